//! A server as a child process: Cairn, or the redis-server that Cairn is measured against.
//!
//! A [`Launch`] says what to start, a [`Server`] is what runs. It can be killed, ended in good order
//! and started again on the same directory and port. What it logs goes to a file, shown when a test
//! fails.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::client::Client;

const START_LIMIT: Duration = Duration::from_secs(30);
const STOP_LIMIT: Duration = Duration::from_secs(30);

/// Both servers say so in their log, Redis with a capital.
const READY: &str = "eady to accept connections";

/// How many lines of the log a failure shows.
const LOG_TAIL: usize = 40;

/// The address to test instead of a server of our own, if the environment names one.
pub fn external_address() -> Option<String> {
    std::env::var("CAIRN_TEST_ADDR").ok()
}

/// Cairn's binary: `CAIRN_BIN`, or the one built beside the running test.
pub fn cairn_binary() -> PathBuf {
    if let Some(path) = std::env::var_os("CAIRN_BIN") {
        return PathBuf::from(path);
    }
    let test = std::env::current_exe().expect("the running test has a path");
    let beside = test
        .ancestors()
        .skip(1)
        .take(2)
        .map(|dir| dir.join("cairn"));
    beside
        .into_iter()
        .find(|path| path.is_file())
        .expect("the cairn binary is built beside the test, or CAIRN_BIN names it")
}

/// The kernel gives none of these to anybody who asks for any.
pub const CLAIMABLE: Range<u16> = 15_000..32_500;

/// A port that nobody listens on, and that stays this process' until it ends, also while the server behind it is down: other tests
/// see that it is claimed.
pub fn free_port() -> u16 {
    static CLAIMS: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());
    for _ in 0..10_000 {
        let port = fastrand::u16(CLAIMABLE);
        let name = SocketAddr::from_abstract_name(format!("cairn-test-port-{port}"));
        let claim = name.and_then(|name| UnixListener::bind_addr(&name));
        if let Ok(claim) = claim
            && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
        {
            CLAIMS.lock().expect("nobody panics in between").push(claim);
            return port;
        }
    }
    panic!("no port is free");
}

/// What to start. `Launch::cairn().flags(["--sync", "always"]).start()`
pub struct Launch {
    program: PathBuf,
    leading: Vec<OsString>,
    flags: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    dir: Option<PathBuf>,
    port: Option<u16>,
}

impl Launch {
    pub fn cairn() -> Launch {
        Launch::new(cairn_binary(), &["serve"])
    }

    /// Debian's redis-server, with DEBUG allowed and no snapshots.
    pub fn redis() -> Launch {
        let mut launch = Launch::new(PathBuf::from("redis-server"), &[]);
        let flags = ["--save", "", "--enable-debug-command", "yes"];
        launch.flags.extend(flags.map(OsString::from));
        launch
    }

    fn new(program: PathBuf, leading: &[&str]) -> Launch {
        Launch {
            program,
            leading: leading.iter().map(OsString::from).collect(),
            flags: Vec::new(),
            environment: Vec::new(),
            dir: None,
            port: None,
        }
    }

    pub fn flags<F: Into<OsString>>(mut self, flags: impl IntoIterator<Item = F>) -> Launch {
        self.flags.extend(flags.into_iter().map(Into::into));
        self
    }

    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Launch {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Lets the server have at most so many files open, connections included.
    pub fn file_limit(mut self, limit: u32) -> Launch {
        let command = format!("ulimit -n {limit}; exec \"$0\" \"$@\"");
        let program = std::mem::replace(&mut self.program, PathBuf::from("sh"));
        let wrapped = [OsString::from("-c"), command.into(), program.into()];
        self.leading.splice(0..0, wrapped);
        self
    }

    /// Keeps the data in `dir`, which outlives the server, instead of a temporary directory.
    pub fn dir(mut self, dir: impl Into<PathBuf>) -> Launch {
        self.dir = Some(dir.into());
        self
    }

    pub fn port(mut self, port: u16) -> Launch {
        self.port = Some(port);
        self
    }

    /// Starts the server and waits until it accepts connections; panics with its log if it does not.
    pub fn start(self) -> Server {
        let scratch = TempDir::with_prefix("cairn-test-").expect("a temporary directory");
        let dir = self
            .dir
            .clone()
            .unwrap_or_else(|| scratch.path().join("data"));
        fs::create_dir_all(&dir).expect("a data directory");
        let mut server = Server {
            port: self.port.unwrap_or_else(free_port),
            log: scratch.path().join("log"),
            launch: self,
            dir,
            child: None,
            _scratch: scratch,
        };
        server.start();
        server
    }
}

pub struct Server {
    launch: Launch,
    port: u16,
    dir: PathBuf,
    log: PathBuf,
    child: Option<Child>,
    _scratch: TempDir,
}

impl Server {
    /// Cairn on an empty temporary directory.
    pub fn cairn(flags: &[&str]) -> Server {
        Launch::cairn().flags(flags).start()
    }

    /// The real redis-server on an empty temporary directory.
    pub fn redis(flags: &[&str]) -> Server {
        Launch::redis().flags(flags).start()
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn addr(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Where the data lies.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Whether the process still answers to its port.
    pub fn is_running(&self) -> bool {
        Client::connect(("127.0.0.1", self.port)).is_ok()
    }

    /// A new connection.
    pub fn client(&self) -> Client {
        match Client::connect(("127.0.0.1", self.port)) {
            Ok(client) => client,
            Err(error) => panic!("cannot connect: {error}\n{}", self.log_tail()),
        }
    }

    /// All that the server has logged, over all its starts.
    pub fn log(&self) -> String {
        self.log_since(0)
    }

    fn log_since(&self, offset: usize) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes[offset..]).into_owned()
    }

    pub fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let tail = &lines[lines.len().saturating_sub(LOG_TAIL)..];
        format!("--- log of {}\n{}", self.addr(), tail.join("\n"))
    }

    /// Whether the process has ended by itself. If so it may be started again.
    pub fn has_ended(&mut self) -> bool {
        let ended = match &mut self.child {
            Some(child) => child.try_wait().expect("the server can be waited for"),
            None => return true,
        };
        if ended.is_some() {
            self.child = None;
        }
        ended.is_some()
    }

    /// Ends the server at once, as a crash would.
    pub fn kill9(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("the server can be killed");
            child.wait().expect("the killed server is reaped");
        }
    }

    /// Asks the server to end, and waits until it has.
    pub fn terminate(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("the server is running");
        let pid = libc::pid_t::try_from(child.id()).expect("a process id");
        // SAFETY: the child has not been waited for, so its id still names it and nothing else.
        unsafe { libc::kill(pid, libc::SIGTERM) };
        let deadline = Instant::now() + STOP_LIMIT;
        loop {
            if let Some(status) = child.try_wait().expect("the server can be waited for") {
                return status;
            }
            if Instant::now() > deadline {
                self.child = Some(child);
                panic!("the server does not end\n{}", self.log_tail());
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Ends the server in good order if it runs, and starts it again where it was.
    pub fn restart(&mut self) {
        if self.child.is_some() {
            self.terminate();
        }
        self.start();
    }

    /// Starts a server that has ended: same directory, same port.
    pub fn start(&mut self) {
        assert!(self.child.is_none(), "the server is running already");
        for _ in 0..10 {
            match self.try_start() {
                Ok(()) => return,
                // Somebody else was quicker to take the port: nobody knows ours yet.
                Err(Refused::PortTaken) if self.launch.port.is_none() => self.port = free_port(),
                Err(refused) => panic!("{refused:?}\n{}", self.log_tail()),
            }
        }
        panic!("no free port\n{}", self.log_tail());
    }

    /// Starts a server that has ended, and kills it so much later, however far it has come.
    pub fn interrupt_start(&mut self, after: Duration) {
        assert!(self.child.is_none(), "the server is running already");
        self.child = Some(self.spawn().expect("the server can be run"));
        thread::sleep(after);
        self.kill9();
    }

    fn try_start(&mut self) -> Result<(), Refused> {
        let seen = fs::metadata(&self.log).map_or(0, |log| log.len() as usize);
        let mut child = self.spawn().map_err(Refused::CannotRun)?;
        let deadline = Instant::now() + START_LIMIT;
        loop {
            let ended = child.try_wait().map_err(Refused::CannotRun)?;
            let news = self.log_since(seen);
            if news.contains(READY) {
                self.child = Some(child);
                // From here on the port is part of what callers hold on to.
                self.launch.port = Some(self.port);
                return Ok(());
            }
            if let Some(status) = ended {
                let taken = news.to_lowercase().contains("address already in use");
                return Err(if taken {
                    Refused::PortTaken
                } else {
                    Refused::Ended(status)
                });
            }
            if Instant::now() > deadline {
                self.child = Some(child);
                return Err(Refused::NotReady(START_LIMIT));
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn spawn(&self) -> io::Result<Child> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        Command::new(&self.launch.program)
            .args(&self.launch.leading)
            .args(["--port", &self.port.to_string()])
            .arg("--dir")
            .arg(&self.dir)
            .args(&self.launch.flags)
            .envs(
                self.launch
                    .environment
                    .iter()
                    .map(|(name, value)| (name, value)),
            )
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
    }
}

/// Why a server did not come up. Shown with its log.
#[derive(Debug)]
#[allow(
    dead_code,
    reason = "read through Debug, in the message of a failed test"
)]
enum Refused {
    PortTaken,
    CannotRun(io::Error),
    Ended(ExitStatus),
    NotReady(Duration),
}

impl Drop for Server {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}", self.log_tail());
        }
        self.kill9();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Value;

    #[test]
    fn redis_starts_talks_and_restarts() {
        let mut server = Server::redis(&["--appendonly", "yes", "--appendfsync", "always"]);
        assert_eq!(server.client().line("SET k v"), Value::ok());
        server.kill9();
        assert!(Client::connect(server.addr()).is_err());
        server.start();
        assert_eq!(server.client().line("GET k"), Value::bulk("v"));
        server.restart();
        assert_eq!(server.client().line("GET k"), Value::bulk("v"));
        assert!(server.terminate().success());
    }

    #[test]
    fn pipelines_and_raw_bytes_pass() {
        let server = Server::redis(&[]);
        let mut client = server.client();
        let big = vec![b'x'; 300_000];
        let commands = vec![
            vec![&b"SET"[..], b"big", &big],
            vec![b"GET", b"big"],
            vec![b"STRLEN", b"big"],
        ];
        let replies = client.pipeline(&commands).expect("three replies");
        assert_eq!(
            replies,
            [Value::ok(), Value::Bulk(big.clone()), Value::Int(300_000)]
        );
        assert!(matches!(client.resp3(), Value::Map(_)));
        client.send_raw(b"PING\r\n*bad\r\n");
        let rest = client.receive_until_closed().expect("the server closes");
        assert_eq!(
            rest,
            b"+PONG\r\n-ERR Protocol error: invalid multibulk length\r\n"
        );
    }
}
