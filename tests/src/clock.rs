//! A clock that can be set wrong, for one process and while it runs: see `clock-shim/clock.c`.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::powercut::compile;

const SHIM: &str = include_str!("../clock-shim/clock.c");

pub struct Clock {
    shim: PathBuf,
    offset: PathBuf,
}

impl Clock {
    /// A clock that is right until it is set. What it needs lies in `dir`.
    pub fn new(dir: &Path) -> io::Result<Clock> {
        fs::create_dir_all(dir)?;
        let clock = Clock {
            shim: dir.join("clock.so"),
            offset: dir.join("offset"),
        };
        compile(SHIM, &["-shared", "-fPIC"], &clock.shim)?;
        clock.set_ms(0)?;
        Ok(clock)
    }

    /// The environment of a process that goes by it.
    pub fn environment(&self) -> [(&'static str, OsString); 2] {
        [
            ("LD_PRELOAD", self.shim.clone().into()),
            ("CLOCK_OFFSET", self.offset.clone().into()),
        ]
    }

    /// How many milliseconds it is ahead, or behind.
    pub fn set_ms(&self, ahead: i64) -> io::Result<()> {
        // Never shortened: whoever goes by it has the file in its memory.
        let mut file = File::options()
            .create(true)
            .write(true)
            .truncate(false)
            .open(&self.offset)?;
        file.write_all(&(ahead * 1_000_000).to_ne_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Client, Value};
    use crate::server::Launch;
    use std::time::{SystemTime, UNIX_EPOCH};

    fn seconds_ahead(client: &mut Client) -> i64 {
        let reply = client.line("TIME");
        let told = reply.items().and_then(|items| items[0].as_bytes());
        let told = String::from_utf8_lossy(told.expect("seconds")).into_owned();
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        told.parse::<i64>().expect("a number") - now.expect("after 1970").as_secs() as i64
    }

    #[test]
    fn a_clock_is_set_while_its_server_runs() {
        let dir = tempfile::tempdir().expect("a directory");
        let clock = Clock::new(dir.path()).expect("a clock");
        let mut launch = Launch::redis();
        for (name, value) in clock.environment() {
            launch = launch.env(name, value);
        }
        let server = launch.start();
        let mut client = server.client();
        assert_eq!(client.line("PING"), Value::Simple(b"PONG".to_vec()));
        for ahead in [0, 3600, -3600, 0] {
            clock.set_ms(ahead * 1000).expect("the clock is set");
            let found = seconds_ahead(&mut client);
            assert!((found - ahead).abs() <= 1, "{found} instead of {ahead}");
        }
    }
}
