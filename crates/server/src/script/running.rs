//! The scripts that have run for so long that they have a thread of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use cairn_resp::{Reply, Value};
use cairn_store::{Error, Result};
use parking_lot::Mutex;

/// What runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Script,
    Function,
}

impl Kind {
    /// What others are told while one of these keeps the server busy.
    pub fn busy(self) -> Error {
        match self {
            Kind::Script => Error::fixed(
                "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
            ),
            Kind::Function => Error::fixed(
                "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.",
            ),
        }
    }
}

/// One that runs for long.
pub struct Running {
    kind: Kind,
    name: Vec<u8>,
    /// The command that called it.
    words: Vec<Vec<u8>>,
    since: Instant,
    has_written: AtomicBool,
    is_busy: AtomicBool,
    is_killed: AtomicBool,
}

/// All that run for long.
#[derive(Default)]
pub struct AllRunning {
    running: Mutex<Vec<Arc<Running>>>,
    /// How many have run for longer than others are to wait.
    busy: AtomicUsize,
}

/// Is listed until it is dropped.
pub struct Listed<'a> {
    all: &'a AllRunning,
    running: Arc<Running>,
}

impl AllRunning {
    pub fn enter(&self, kind: Kind, name: Vec<u8>, words: Vec<Vec<u8>>) -> Listed<'_> {
        let running = Arc::new(Running {
            kind,
            name,
            words,
            since: Instant::now(),
            has_written: AtomicBool::new(false),
            is_busy: AtomicBool::new(false),
            is_killed: AtomicBool::new(false),
        });
        self.running.lock().push(running.clone());
        Listed { all: self, running }
    }

    /// Whether one has run for so long that others are not to wait for it.
    #[inline]
    pub fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed) > 0
    }

    /// What others are told then.
    #[cold]
    pub fn check_busy(&self) -> Result<()> {
        match self.first_busy() {
            Some(running) => Err(running.kind.busy()),
            None => Ok(()),
        }
    }

    fn first_busy(&self) -> Option<Arc<Running>> {
        let running = self.running.lock();
        let mut busy = running.iter().filter(|running| running.is_busy());
        busy.next().cloned()
    }

    /// SCRIPT KILL and FUNCTION KILL. Redis runs one at a time; here all are meant that keep the server busy, or, if
    /// none does yet, all that run for long.
    pub fn kill(&self, kind: Kind) -> Result<Reply> {
        let running = self.running.lock();
        let any_busy = running.iter().any(|running| running.is_busy());
        let mut meant: Vec<&Arc<Running>> = running
            .iter()
            .filter(|running| running.is_busy() || !any_busy)
            .collect();
        let Some(first) = meant.first() else {
            return Err(Error::fixed("NOTBUSY No scripts in execution right now."));
        };
        let other_kind = first.kind.busy();
        if meant.iter().all(|running| running.has_written()) {
            return Err(Error::fixed(
                "UNKILLABLE Sorry the script already executed write commands against the dataset. You can \
                 either wait the script termination or kill the server in a hard way using the SHUTDOWN \
                 NOSAVE command.",
            ));
        }
        meant.retain(|running| !running.has_written() && running.kind == kind);
        if meant.is_empty() {
            return Err(other_kind);
        }
        for running in meant {
            running.is_killed.store(true, Ordering::Relaxed);
        }
        Ok(Reply::Ok)
    }

    /// What FUNCTION STATS tells of the function that runs, if one does.
    pub fn describe(&self) -> Result<Value> {
        let running = self.running.lock();
        let Some(first) = running.first() else {
            return Ok(Value::Null);
        };
        if first.kind == Kind::Script {
            return Err(first.kind.busy());
        }
        let bulk = |text: &[u8]| Value::Bulk(text.to_vec());
        let words = first.words.iter().map(|word| bulk(word)).collect();
        let milliseconds = first.since.elapsed().as_millis() as i64;
        Ok(Value::Map(vec![
            (bulk(b"name"), bulk(&first.name)),
            (bulk(b"command"), Value::Array(words)),
            (bulk(b"duration_ms"), Value::Int(milliseconds)),
        ]))
    }
}

impl Running {
    fn is_busy(&self) -> bool {
        self.is_busy.load(Ordering::Relaxed)
    }

    fn has_written(&self) -> bool {
        self.has_written.load(Ordering::Relaxed)
    }
}

impl Listed<'_> {
    /// From here on it is not to be killed.
    pub fn writes(&self) {
        self.running.has_written.store(true, Ordering::Relaxed);
    }

    pub fn is_killed(&self) -> bool {
        self.running.is_killed.load(Ordering::Relaxed)
    }

    /// Others are not to wait for it any more, if it has run for longer than this; zero is for ever.
    pub fn check_time(&self, now: Instant, threshold: Duration) {
        let running = &self.running;
        let took = now.duration_since(running.since);
        if threshold.is_zero() || took < threshold || running.is_busy() {
            return;
        }
        running.is_busy.store(true, Ordering::Relaxed);
        self.all.busy.fetch_add(1, Ordering::Relaxed);
        let command = match running.kind {
            Kind::Script => "SCRIPT KILL",
            Kind::Function => "FUNCTION KILL",
        };
        let (name, took) = (String::from_utf8_lossy(&running.name), took.as_millis());
        tracing::warn!(
            "Slow script detected: still in execution after {took} milliseconds. You can try killing the \
             script using the {command} command. Script name is: {name}."
        );
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        let mut running = self.all.running.lock();
        running.retain(|running| !Arc::ptr_eq(running, &self.running));
        if self.running.is_busy() {
            self.all.busy.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn told(result: Result<Reply>) -> String {
        match result {
            Ok(reply) => format!("{reply:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn those_are_killed_that_keep_the_server_busy() {
        let all = AllRunning::default();
        assert!(told(all.kill(Kind::Script)).starts_with("NOTBUSY"));
        let young = all.enter(Kind::Script, b"young".to_vec(), Vec::new());
        let old = all.enter(Kind::Script, b"old".to_vec(), Vec::new());
        let later = Instant::now() + Duration::from_secs(5);
        old.check_time(later, Duration::ZERO);
        old.check_time(later, Duration::from_secs(60));
        assert!(!all.is_busy() && all.check_busy().is_ok());
        old.check_time(later, Duration::from_secs(1));
        old.check_time(later, Duration::from_secs(1));
        assert!(all.is_busy() && all.check_busy().is_err());
        assert!(told(all.kill(Kind::Function)).contains("SCRIPT KILL"));
        assert_eq!(told(all.kill(Kind::Script)), "Ok");
        assert!(old.is_killed() && !young.is_killed());
        old.writes();
        assert!(told(all.kill(Kind::Script)).starts_with("UNKILLABLE"));
        drop(old);
        assert!(!all.is_busy());
        assert_eq!(told(all.kill(Kind::Script)), "Ok");
        assert!(young.is_killed(), "it is the only one");
    }
}
