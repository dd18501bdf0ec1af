//! Rounds of load, sudden end, return and verification: what the tests that kill servers share.
//!
//! ```text
//!     start ──▶ everything read and checked ──▶ load ──▶ kill -9 ──▶ [power cut] ──▶ offline check ─┐
//!       ▲                                                                                           │
//!       └─────────────────────── now and then killed again while it starts ◀────────────────────────┘
//! ```
//!
//! The server is Cairn, or a redis-server with its append-only file, which the tests themselves are
//! measured by: it has to pass where it promises to, and to fail where it does not.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use tempfile::TempDir;

use crate::check;
use crate::client::Client;
use crate::figures;
use crate::powercut::{Damage, PowerCut, Severity};
use crate::server::{Launch, Server, cairn_binary, free_port};
use crate::workload::{Promise, Tally, Workload};

const CONNECTIONS: usize = 12;

/// How long a server may take until it is killed again while it starts.
const INTERRUPTED_START: Range<u64> = 0..150;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    Cairn,
    Redis,
}

/// What to do to which server, and what it has to withstand.
#[derive(Clone, Debug)]
pub struct Trial {
    pub program: Program,
    /// `always`, `everysec` or `no`: both programs call it that.
    pub sync: &'static str,
    pub promise: Promise,
    pub rounds: usize,
    /// How long the load runs until the end comes.
    pub load: Range<Duration>,
    /// Whether the machine loses its power, or the process alone ends.
    pub power_cut: bool,
    /// Whether the load is joined by compactions of everything.
    pub compactions: bool,
    /// Whether it is joined by large values, so that logs are long and files are used again.
    pub bulk: bool,
}

/// What a trial saw, for its closing line.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    pub rounds: usize,
    pub interrupted_starts: usize,
    pub tally: Tally,
    pub damage: Damage,
    pub checked_offline: usize,
    /// After how many rounds the elements of a large collection were counted.
    pub counted: usize,
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = if self.power_cut {
            "power cut"
        } else {
            "kill -9"
        };
        write!(f, "{:?} --sync {}, {end}", self.program, self.sync)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outcome {
            rounds,
            interrupted_starts,
            tally,
            damage,
            checked_offline,
            counted,
        } = self;
        write!(
            f,
            "{rounds} rounds, {interrupted_starts} more ends while starting, {checked_offline} offline checks, \
             {counted} times with counted elements; \
             {} commands acknowledged, {} of them lost, {} kept without a reply; \
             the cuts took {} bytes, {} files, {} changes of names; {} bytes had been written over",
            tally.acknowledged,
            tally.lost,
            tally.unanswered_but_kept,
            damage.bytes,
            damage.files,
            damage.names,
            damage.written_over,
        )
    }
}

/// A number from the environment, for how long to go on.
pub fn setting<T: FromStr>(name: &str, default: T) -> T {
    let value = std::env::var(name).ok();
    value
        .and_then(|value| value.parse().ok())
        .unwrap_or(default)
}

/// Trials of one test program run one after the other: together they would starve each other, and
/// `everysec` would not hold its second.
pub fn one_at_a_time() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Trial {
    /// Runs all rounds, and describes the first failure.
    pub fn run(&self) -> Result<Outcome, String> {
        let _turn = one_at_a_time();
        let seed = setting("CRASH_SEED", fastrand::u64(..));
        println!("{self:?}, CRASH_SEED={seed}");
        let scratch = scratch("cairn-fault-").map_err(told)?;
        let outcome = Bench::set_up(self, scratch.path(), seed)?.run()?;
        // Past the capture of the test runner: a run that went well has something to say, too.
        let _ = writeln!(io::stderr(), "{self}: {outcome}");
        Ok(outcome)
    }

    fn flags(&self) -> Vec<&'static str> {
        match self.program {
            // With little memory, rows leave the journal soon.
            Program::Cairn if self.bulk => vec!["--sync", self.sync, "--memory", "64mb"],
            Program::Cairn => vec!["--sync", self.sync],
            Program::Redis => vec!["--appendonly", "yes", "--appendfsync", self.sync],
        }
    }

    fn launch(&self) -> Launch {
        match self.program {
            Program::Cairn => Launch::cairn(),
            Program::Redis => Launch::redis(),
        }
    }

    fn command(&self) -> Command {
        match self.program {
            Program::Cairn => {
                let mut command = Command::new(cairn_binary());
                command.arg("serve");
                command
            }
            Program::Redis => Command::new("redis-server"),
        }
    }

    /// Rewrites all that is stored, and removes what is obsolete.
    fn compaction(&self) -> &'static [&'static str] {
        match self.program {
            Program::Cairn => &["DEBUG", "COMPACT"],
            Program::Redis => &["BGREWRITEAOF"],
        }
    }
}

/// One trial under way.
struct Bench<'a> {
    trial: &'a Trial,
    rng: Rng,
    server: Server,
    power: Option<PowerCut>,
    workload: Workload,
    outcome: Outcome,
}

impl<'a> Bench<'a> {
    fn set_up(trial: &'a Trial, scratch: &Path, seed: u64) -> Result<Bench<'a>, String> {
        let dir = scratch.join("data");
        std::fs::create_dir(&dir).map_err(told)?;
        let power = trial.power_cut.then(|| PowerCut::over(&dir));
        let power = power.transpose().map_err(told)?;
        let mut launch = trial.launch().flags(trial.flags()).dir(&dir);
        for (name, value) in environment(power.as_ref()) {
            launch = launch.env(name, value);
        }
        let mut rng = Rng::with_seed(seed);
        Ok(Bench {
            trial,
            server: launch.start(),
            power,
            workload: Workload::new(CONNECTIONS, &mut rng),
            rng,
            outcome: Outcome::default(),
        })
    }

    fn run(&mut self) -> Result<Outcome, String> {
        for round in 1..=self.trial.rounds {
            self.round().map_err(|failure| {
                format!(
                    "round {round} of {:?}:\n{failure}\n{}",
                    self.trial,
                    self.server.log_tail()
                )
            })?;
            self.outcome.rounds = round;
        }
        Ok(self.outcome)
    }

    fn round(&mut self) -> Result<(), String> {
        let ended = self.load_until_killed()?;
        self.lose_power()?;
        self.check_offline()?;
        if self.rng.u8(..3) == 0 {
            self.interrupt_a_start()?;
            self.lose_power()?;
            self.check_offline()?;
        }
        self.start()?;
        let mut client = self.server.client();
        if self.trial.program == Program::Cairn {
            let is_counted = figures::is_counted(&mut client, "shared:board");
            self.outcome.counted += usize::from(is_counted);
        }
        let (found, contradictions) = check::dump(&mut client).map_err(told)?;
        if !contradictions.is_empty() {
            return Err(contradictions.join("\n"));
        }
        let verified = self.workload.verify(&found, self.trial.promise, ended);
        self.outcome.tally += verified.map_err(|violations| violations.join("\n"))?;
        Ok(())
    }

    /// Returns the moment of the end.
    fn load_until_killed(&mut self) -> Result<Instant, String> {
        let Range { start, end } = self.trial.load;
        let deadline = Instant::now() + start + (end - start).mul_f64(self.rng.f64());
        let addr = self.server.addr();
        self.workload.run(&addr, || {
            if self.trial.program == Program::Cairn {
                let (addr, rng) = (addr.clone(), self.rng.fork());
                thread::spawn(move || expire_fields_until_killed(&addr, rng));
            }
            if self.trial.bulk {
                let addr = addr.clone();
                thread::spawn(move || write_bulk_until_killed(&addr));
            }
            if self.trial.compactions {
                compact_until(deadline, &addr, self.trial.compaction(), &mut self.rng);
            }
            thread::sleep(deadline.saturating_duration_since(Instant::now()));
            let ended = Instant::now();
            self.server.kill9();
            ended
        })
    }

    fn start(&mut self) -> Result<(), String> {
        self.arm()?;
        self.server.start();
        Ok(())
    }

    /// Right before a start: the offline check may have written, and all it wrote counts as durable.
    fn arm(&mut self) -> Result<(), String> {
        match &mut self.power {
            Some(power) => power.arm().map_err(told),
            None => Ok(()),
        }
    }

    fn lose_power(&mut self) -> Result<(), String> {
        if let Some(power) = &mut self.power {
            let severity = [Severity::Total, Severity::Torn][self.rng.usize(..2)];
            self.outcome.damage += power.cut(severity, &mut self.rng).map_err(told)?;
        }
        Ok(())
    }

    /// Recovery has to withstand what it recovers from.
    fn interrupt_a_start(&mut self) -> Result<(), String> {
        self.arm()?;
        let mut child = self
            .trial
            .command()
            .args(["--port", &free_port().to_string(), "--dir"])
            .arg(self.server.dir())
            .args(self.trial.flags())
            .envs(environment(self.power.as_ref()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(told)?;
        thread::sleep(Duration::from_millis(self.rng.u64(INTERRUPTED_START)));
        let ended = child.kill().and_then(|()| child.wait());
        self.outcome.interrupted_starts += 1;
        ended.map(drop).map_err(told)
    }

    /// `cairn check` walks all rows: it sees what no command shows.
    fn check_offline(&mut self) -> Result<(), String> {
        if self.trial.program != Program::Cairn || !can_check() {
            return Ok(());
        }
        self.outcome.checked_offline += 1;
        check_offline(self.server.dir())
    }
}

/// `cairn check` of the directory of a server that does not run. What it finds is the error.
pub fn check_offline(dir: &Path) -> Result<(), String> {
    let mut check = Command::new(cairn_binary());
    let output = check.args(["check", "--dir"]).arg(dir).output();
    let output = output.map_err(told)?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    Err(format!(
        "cairn check: {}\n{}",
        output.status,
        String::from_utf8_lossy(&said)
    ))
}

/// Where servers put their data, for as long as a test lasts, or for good with `CRASH_KEEP`.
pub fn scratch(prefix: &str) -> io::Result<TempDir> {
    let mut scratch = TempDir::with_prefix(prefix)?;
    if std::env::var_os("CRASH_KEEP").is_some() {
        scratch.disable_cleanup(true);
        println!("left behind: {}", scratch.path().display());
    }
    Ok(scratch)
}

fn told(error: io::Error) -> String {
    error.to_string()
}

fn environment(power: Option<&PowerCut>) -> Vec<(&'static str, OsString)> {
    power.map(PowerCut::environment).unwrap_or_default()
}

fn can_check() -> bool {
    let help = Command::new(cairn_binary())
        .args(["check", "--help"])
        .output();
    help.is_ok_and(|output| output.status.success())
}

/// What all these values are is no matter: the last one stays.
fn write_bulk_until_killed(addr: &str) {
    let Ok(mut client) = Client::connect(addr) else {
        return;
    };
    let value = vec![b'x'; 200_000];
    while client.try_command(&[&b"SET"[..], b"bulk", &value]).is_ok() {}
}

/// Hashes whose fields expire, in a database of their own: what they hold when the end comes depends on the moment, but
/// their rows have to agree.
fn expire_fields_until_killed(addr: &str, mut rng: Rng) {
    let Ok(mut client) = Client::connect(addr) else {
        return;
    };
    let mut send = |command: String| {
        let words: Vec<&str> = command.split(' ').collect();
        client.try_command(&words).is_ok()
    };
    let mut is_alive = send("SELECT 1".into());
    while is_alive {
        let (key, other) = (rng.u8(..6), rng.u8(..6));
        let field = rng.u16(..300);
        let fields = format!("FIELDS 3 {field} {} {}", field + 1, field + 2);
        is_alive = send(match rng.u8(..12) {
            0..4 => format!("HSET {key} {field} x {} y {} z", field + 1, field + 2),
            4..8 => format!("HPEXPIRE {key} {} {fields}", rng.u16(..400)),
            8 => format!("HPERSIST {key} {fields}"),
            9 => format!("HDEL {key} {field}"),
            10 => format!("COPY {key} {other} REPLACE"),
            _ if rng.u8(..20) == 0 => format!("SET {key} something-else"),
            _ if rng.u8(..20) == 0 => format!("DEL {key}"),
            _ => format!("HINCRBY {key} {} 1", field + 1000),
        });
    }
}

/// Errors are no matter here: a rewrite may be under way already, or the command be missing.
fn compact_until(deadline: Instant, addr: &str, command: &[&str], rng: &mut Rng) {
    let Ok(mut client) = Client::connect(addr) else {
        return;
    };
    loop {
        let pause = Duration::from_millis(rng.u64(100..700));
        if Instant::now() + pause > deadline {
            return;
        }
        thread::sleep(pause);
        if client.try_command(command).is_err() {
            return;
        }
    }
}
