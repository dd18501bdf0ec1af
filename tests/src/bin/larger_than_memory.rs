//! Cairn with far more data than memory: what reads cost, whether writes stall, and what stays in memory.
//!
//! ```text
//! larger_than_memory [--megabytes N] [--memory MB] [--seconds N] [--dir PATH] [--port N]
//! ```
//!
//! Starts Cairn (`CAIRN_BIN`, or the binary beside this one), fills it with values of 1 KB, and prints a line
//! for each thing measured, with what it should be and whether it is. The status is 1 if something is not.
//!
//! Blocks are counted by RocksDB, on the thread that serves the connection which asks (DEBUG BLOCK-READS).

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cairn_tests::client::{Client, Value};
use cairn_tests::figures;
use cairn_tests::server::{Launch, Server};
use tempfile::TempDir;

const VALUE_BYTES: usize = 1024;
const KEY_BYTES: usize = 16;
/// Clients that write at the same time, and how many commands each has under way.
const WRITERS: u64 = 4;
const PIPELINE: u64 = 16;
/// Commands that a cost is averaged over; as many again come before, so that the cache is as it always is.
const SAMPLE: u64 = 50_000;
/// How much of the memory the hot set takes. A part of the eighth that rows in memory have.
const HOT_SHARE: u64 = 13;
/// How many keys a scan fetches at once.
const PAGE: &str = "500";

struct Arguments {
    megabytes: u64,
    memory: u64,
    seconds: u64,
    dir: String,
    port: Option<u16>,
}

fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(reason) => {
            eprintln!("larger_than_memory: {reason}");
            return ExitCode::from(2);
        }
    };
    println!(
        "{} MB of data, {} MB of memory, {} s of writes\n",
        arguments.megabytes, arguments.memory, arguments.seconds
    );
    let mut trial = Trial::begin(&arguments);
    trial.fill();
    trial.write_for(Duration::from_secs(arguments.seconds));
    trial.open_again();
    trial.single_commands();
    trial.hot_set();
    if trial.has_failed {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut parsed = Arguments {
        megabytes: 5120,
        memory: 256,
        seconds: 600,
        dir: "/var/tmp".into(),
        port: None,
    };
    while let Some(flag) = words.next() {
        let value = words.next().ok_or(format!("{flag} needs a value"))?;
        let number = || {
            let number = value.parse::<u64>();
            number.map_err(|_| format!("{flag} {value}: not a number"))
        };
        match flag.as_str() {
            "--megabytes" => parsed.megabytes = number()?,
            "--memory" => parsed.memory = number()?,
            "--seconds" => parsed.seconds = number()?,
            "--port" => parsed.port = Some(number()? as u16),
            "--dir" => parsed.dir = value,
            _ => return Err(format!("unknown flag {flag}")),
        }
    }
    Ok(parsed)
}

struct Trial {
    server: Server,
    /// How many keys there are; their numbers begin with zero.
    keys: u64,
    /// The keys of the hot set are the first ones.
    hot: u64,
    memory: u64,
    has_failed: bool,
    _scratch: TempDir,
}

impl Trial {
    fn begin(arguments: &Arguments) -> Trial {
        let scratch = TempDir::with_prefix_in("cairn-larger-", &arguments.dir)
            .expect("a directory for the data");
        let memory = format!("{}mb", arguments.memory);
        let mut launch = Launch::cairn()
            .flags(["--memory", &memory])
            .dir(scratch.path().join("data"));
        if let Some(port) = arguments.port {
            launch = launch.port(port);
        }
        let memory = arguments.memory << 20;
        Trial {
            server: launch.start(),
            keys: (arguments.megabytes << 20) / VALUE_BYTES as u64,
            hot: memory / HOT_SHARE / VALUE_BYTES as u64,
            memory,
            has_failed: false,
            _scratch: scratch,
        }
    }

    /// Prints what was measured, and whether it is at most what it should be.
    fn check(&mut self, what: &str, measured: f64, most: f64, unit: &str) {
        let is_good = measured <= most;
        self.has_failed |= !is_good;
        let verdict = if is_good { "ok  " } else { "FAIL" };
        println!("{verdict} {what:<58} {measured:>9.2} {unit} (at most {most})");
    }

    fn tell(&self, what: &str, measured: f64, unit: &str) {
        println!("     {what:<58} {measured:>9.2} {unit}");
    }

    fn fill(&mut self) {
        let keys = self.keys;
        let next = AtomicU64::new(0);
        let started = Instant::now();
        let wait = self.write(|| {
            let numbers = next.fetch_add(PIPELINE, Ordering::Relaxed);
            (numbers < keys).then(|| (numbers..keys.min(numbers + PIPELINE)).collect())
        });
        self.report_writes("filling", keys, started, wait);
    }

    /// Sets random keys for some time.
    fn write_for(&mut self, time: Duration) {
        let keys = self.keys;
        let started = Instant::now();
        let written = AtomicU64::new(0);
        let before = Written::now(&self.server);
        let wait = self.write(|| {
            written.fetch_add(PIPELINE, Ordering::Relaxed);
            let numbers = || (0..PIPELINE).map(|_| fastrand::u64(..keys)).collect();
            (started.elapsed() < time).then(numbers)
        });
        let written = written.into_inner();
        self.report_writes("sustained SET", written, started, wait);
        let after = Written::now(&self.server);
        let user = (written as usize * (VALUE_BYTES + KEY_BYTES)) as f64;
        let amplification =
            |count: fn(&Written) -> u64| (count(&after) - count(&before)) as f64 / user;
        let tables = amplification(|written| written.flushed + written.compacted);
        self.tell("write amplification of tables", tables, "x");
        let log = amplification(|written| written.logged);
        self.tell("  of RocksDB's log", log, "x");
        let all = amplification(|written| written.by_process);
        self.tell(
            "  of all that reached the disk, the journal included",
            all,
            "x",
        );
    }

    fn report_writes(&mut self, what: &str, written: u64, started: Instant, wait: Duration) {
        let rate = written as f64 / started.elapsed().as_secs_f64();
        self.tell(&format!("{what}: commands a second"), rate, "");
        let what = format!("{what}: longest wait for a reply");
        self.check(&what, wait.as_secs_f64() * 1000.0, 500.0, "ms");
    }

    /// Has writers set the keys that `next` names, until it names none. The longest wait of any for a reply.
    fn write(&self, next: impl Fn() -> Option<Vec<u64>> + Sync) -> Duration {
        thread::scope(|scope| {
            let write = || longest_wait(self.server.client(), &next);
            let writers: Vec<_> = (0..WRITERS).map(|_| scope.spawn(write)).collect();
            let waits = writers
                .into_iter()
                .map(|writer| writer.join().expect("no panic"));
            waits.max().unwrap_or_default()
        })
    }

    fn check_memory(&mut self, what: &str) {
        let (resident, most) = (
            figures::most_resident(pid(&self.server)),
            self.memory * 5 / 4,
        );
        let what = format!("{what}: most resident memory");
        self.check(&what, mebibytes(resident), mebibytes(most), "MiB");
    }

    fn open_again(&mut self) {
        self.check_memory("writing");
        self.server.kill9();
        self.open("opening after a kill in the midst of writes");
        self.server.terminate();
        self.open("opening after an end in good order");
    }

    fn open(&mut self, what: &str) {
        let started = Instant::now();
        self.server.start();
        assert_eq!(
            self.server.client().line("PING"),
            Value::Simple(b"PONG".to_vec())
        );
        let took = started.elapsed().as_secs_f64();
        self.check(what, took, 2.0, "s");
    }

    fn single_commands(&mut self) {
        let keys = self.keys;
        let mut reader = Reader::new(self.server.client());
        let random = || (0..SAMPLE).map(|_| fastrand::u64(..keys));
        reader.get_all(random());
        let gets = reader.blocks_per_get(random());
        self.check("GET of a random key: block reads", gets, 1.1, "");
        let before = reader.block_reads();
        for number in random().take(10_000) {
            reader
                .client
                .send(&[b"SET".as_slice(), &key(number), &value()]);
            assert_eq!(reader.client.receive(), Value::ok());
        }
        let sets = (reader.block_reads() - before) as f64;
        self.check("10,000 SETs of random keys: block reads", sets, 0.0, "");
    }

    /// Whether the hot set stays in memory while others read, or write, everything else.
    fn hot_set(&mut self) {
        let hot = self.hot;
        let mut reader = Reader::new(self.server.client());
        let once = || 0..hot;
        for _ in 0..4 {
            reader.get_all(once());
        }
        let before = reader.blocks_per_get(once());
        self.tell("hot set: keys", hot as f64, "");
        self.check("hot set: block reads per GET", before, 0.05, "");

        let during = self.scan(&mut reader, false);
        self.check("  during a SCAN of everything", during, 0.05, "");
        let during = self.scan(&mut reader, true);
        self.check("  during a SCAN of everything with GETs", during, 0.05, "");
        let during = self.load(&mut reader);
        self.check("  during a load of a quarter more keys", during, 0.05, "");
        let after = reader.blocks_per_get(once());
        self.check("  after that", after, 0.05, "");
        self.check_memory("reading");
    }

    /// Scans all keys, perhaps with their values; as often as a key is looked at, one of the hot set is read. Returns
    /// what that costs.
    fn scan(&self, reader: &mut Reader, with_values: bool) -> f64 {
        let mut cost = Average::default();
        let mut cursor = b"0".to_vec();
        loop {
            let page =
                reader
                    .client
                    .command(&[b"SCAN".as_slice(), &cursor, b"COUNT", PAGE.as_bytes()]);
            let Some([next, names]) = page.items() else {
                panic!("no page of a scan: {page:?}");
            };
            let names = names.items().unwrap_or_default();
            cursor = next.as_bytes().unwrap_or_default().to_vec();
            if with_values {
                reader.get_named(names.iter().filter_map(Value::as_bytes));
            }
            let count = names.len();
            cost.add(reader.blocks_per_get(self.some_hot(count)), count);
            if cursor == b"0" {
                return cost.value();
            }
        }
    }

    /// Sets a quarter more keys than there are, and reads from the hot set as often.
    fn load(&self, reader: &mut Reader) -> f64 {
        let mut cost = Average::default();
        let numbers: Vec<u64> = (self.keys..self.keys * 5 / 4).collect();
        for some in numbers.chunks(PIPELINE as usize) {
            set_all(&mut reader.client, some);
            cost.add(reader.blocks_per_get(self.some_hot(some.len())), some.len());
        }
        cost.value()
    }

    fn some_hot(&self, count: usize) -> impl Iterator<Item = u64> {
        let hot = self.hot;
        (0..count).map(move |_| fastrand::u64(..hot))
    }
}

#[derive(Default)]
struct Average {
    sum: f64,
    count: usize,
}

impl Average {
    fn add(&mut self, value: f64, count: usize) {
        self.sum += value * count as f64;
        self.count += count;
    }

    fn value(&self) -> f64 {
        self.sum / self.count.max(1) as f64
    }
}

/// A client that knows what its reads cost.
struct Reader {
    client: Client,
}

impl Reader {
    fn new(client: Client) -> Reader {
        Reader { client }
    }

    fn block_reads(&mut self) -> i64 {
        let reply = self.client.line("DEBUG BLOCK-READS");
        reply.as_int().expect("a number")
    }

    fn get_all(&mut self, numbers: impl Iterator<Item = u64>) -> u64 {
        self.get_named(numbers.map(key))
    }

    /// Reads keys that are there; returns how many they were.
    fn get_named(&mut self, names: impl Iterator<Item = impl AsRef<[u8]>>) -> u64 {
        let (mut sent, mut received) = (0, 0);
        for name in names {
            self.client.send(&[b"GET", name.as_ref()]);
            sent += 1;
            if sent - received == PIPELINE {
                self.receive_values(PIPELINE);
                received = sent;
            }
        }
        self.receive_values(sent - received);
        sent
    }

    fn receive_values(&mut self, count: u64) {
        for _ in 0..count {
            let reply = self.client.receive();
            assert_eq!(reply.as_bytes().map(<[u8]>::len), Some(VALUE_BYTES));
        }
    }

    fn blocks_per_get(&mut self, numbers: impl Iterator<Item = u64>) -> f64 {
        let before = self.block_reads();
        let count = self.get_all(numbers).max(1);
        (self.block_reads() - before) as f64 / count as f64
    }
}

/// The longest time between two replies to a client that sets what `next` names.
fn longest_wait(mut client: Client, next: impl Fn() -> Option<Vec<u64>>) -> Duration {
    let mut longest = Duration::ZERO;
    while let Some(numbers) = next() {
        let sent = Instant::now();
        set_all(&mut client, &numbers);
        longest = longest.max(sent.elapsed());
    }
    longest
}

fn set_all(client: &mut Client, numbers: &[u64]) {
    for number in numbers {
        client.send(&[b"SET".as_slice(), &key(*number), &value()]);
    }
    for _ in numbers {
        assert_eq!(client.receive(), Value::ok());
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("key:{number:012}").into_bytes()
}

/// Nothing that could be compressed.
fn value() -> Vec<u8> {
    let mut value = vec![0; VALUE_BYTES];
    fastrand::fill(&mut value);
    value
}

/// What the server has written since it was started.
struct Written {
    flushed: u64,
    compacted: u64,
    logged: u64,
    /// Everything, as the system counts it.
    by_process: u64,
}

impl Written {
    fn now(server: &Server) -> Written {
        let mut client = server.client();
        let mut storage = |field| figures::info(&mut client, "storage", field);
        Written {
            flushed: storage("storage_flushed_bytes"),
            compacted: storage("storage_compacted_bytes"),
            logged: storage("storage_logged_bytes"),
            by_process: figures::written_to_disk(pid(server)),
        }
    }
}

fn pid(server: &Server) -> u32 {
    server.pid().expect("the server runs")
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / (1 << 20) as f64
}
