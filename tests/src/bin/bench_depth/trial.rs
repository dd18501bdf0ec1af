//! A server to measure, and what the system knows of it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use cairn_tests::client::{Client, Value};
use cairn_tests::figures;
use cairn_tests::server::{Launch, Server};
use tempfile::TempDir;

use crate::scale::Scale;

pub struct Settings {
    /// In megabytes.
    pub memory: u64,
    pub dir: String,
    pub port: Option<u16>,
}

/// How long the elements of a large collection may take to be counted.
const COUNT_LIMIT: Duration = Duration::from_secs(120);

pub struct Trial<'s> {
    pub server: Server,
    pub scale: &'s Scale,
    settings: &'s Settings,
    pub client: Client,
    _scratch: TempDir,
}

impl<'s> Trial<'s> {
    pub fn begin(settings: &'s Settings, scale: &'s Scale) -> Trial<'s> {
        Trial::with_flags(settings, scale, settings.port, &[])
    }

    /// The same with another server, that has these flags.
    pub fn beside(&self, flags: &[&str]) -> Trial<'s> {
        let port = self.settings.port.map(|port| port + 1);
        Trial::with_flags(self.settings, self.scale, port, flags)
    }

    fn with_flags(
        settings: &'s Settings,
        scale: &'s Scale,
        port: Option<u16>,
        flags: &[&str],
    ) -> Trial<'s> {
        let scratch = TempDir::with_prefix_in("cairn-depth-", &settings.dir)
            .expect("a directory for the data");
        let memory = format!("{}mb", settings.memory);
        let mut launch = Launch::cairn()
            .flags(["--memory", &memory])
            .flags(flags)
            .dir(scratch.path().join("data"));
        if let Some(port) = port {
            launch = launch.port(port);
        }
        let server = launch.start();
        Trial {
            client: server.client(),
            server,
            scale,
            settings,
            _scratch: scratch,
        }
    }

    pub fn restart(&mut self) {
        self.server.restart();
        self.client = self.server.client();
    }

    /// A line whose reply must not be an error.
    pub fn run(&mut self, line: &str) -> Value {
        let reply = self.client.line(line);
        assert!(!reply.is_error(), "{line}: {reply:?}");
        reply
    }

    /// Asks a question about ranks, and waits until the elements are counted for its sake; how long that took.
    pub fn count_elements(&mut self, name: &str, question: &str) -> Duration {
        let started = Instant::now();
        self.run(question);
        while !figures::is_counted(&mut self.client, name) {
            assert!(started.elapsed() < COUNT_LIMIT, "{name} is not counted");
            thread::sleep(Duration::from_millis(20));
        }
        started.elapsed()
    }

    pub fn info(&mut self, section: &str, field: &str) -> u64 {
        figures::info(&mut self.client, section, field)
    }

    pub fn disk(&self) -> Disk {
        Disk::of(self.server.dir())
    }

    /// Megabytes that the server is to make do with.
    pub fn memory(&self) -> u64 {
        self.settings.memory
    }

    pub fn pid(&self) -> u32 {
        self.server.pid().expect("the server runs")
    }
}

/// What the server's files take.
#[derive(Clone, Copy, Default)]
pub struct Disk {
    /// RocksDB's log and Cairn's journal: what has been written ahead.
    pub logs: u64,
    pub rest: u64,
}

impl Disk {
    pub fn of(directory: &Path) -> Disk {
        let mut disk = Disk::default();
        disk.add(directory);
        disk
    }

    fn add(&mut self, directory: &Path) {
        // Files go while they are looked at.
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            if metadata.is_dir() {
                self.add(&entry.path());
                continue;
            }
            let path = entry.path();
            let is_journal = directory.ends_with("journal");
            let is_log = path.extension().is_some_and(|extension| extension == "log");
            let bytes = metadata.blocks() * 512;
            if is_log || is_journal {
                self.logs += bytes;
            } else {
                self.rest += bytes;
            }
        }
    }

    pub fn all(self) -> u64 {
        self.logs + self.rest
    }
}
