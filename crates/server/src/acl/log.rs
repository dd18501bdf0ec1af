//! What was not permitted lately: ACL LOG.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::check::{Context, Reason};

/// How many of the latest entries are looked at for one that is the same.
const LOOKED_AT: usize = 10;
/// How old it may be.
const SAME_FOR: Duration = Duration::from_secs(60);

pub struct Log {
    /// The latest first.
    entries: Mutex<VecDeque<Entry>>,
    most: AtomicUsize,
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub count: u64,
    pub reason: Reason,
    pub context: Context,
    pub object: Vec<u8>,
    pub user: Vec<u8>,
    /// The last time.
    pub at: Instant,
    /// Its line in CLIENT LIST, the last time.
    pub client: Vec<u8>,
}

impl Entry {
    pub fn new(
        reason: Reason,
        context: Context,
        object: &[u8],
        user: &[u8],
        client: Vec<u8>,
    ) -> Entry {
        Entry {
            count: 1,
            reason,
            context,
            object: object.to_vec(),
            user: user.to_vec(),
            at: Instant::now(),
            client,
        }
    }

    fn is_same(&self, other: &Entry) -> bool {
        self.reason == other.reason
            && self.context == other.context
            && self.object == other.object
            && self.user == other.user
            && other.at.saturating_duration_since(self.at) <= SAME_FOR
    }
}

impl Default for Log {
    fn default() -> Self {
        Log {
            entries: Mutex::default(),
            most: AtomicUsize::new(128),
        }
    }
}

impl Log {
    /// Adds an entry, or counts it if one of the latest is the same.
    pub fn add(&self, mut entry: Entry) {
        let mut entries = self.entries.lock();
        let latest = entries.iter().take(LOOKED_AT);
        let same = latest.into_iter().position(|known| known.is_same(&entry));
        if let Some(known) = same.and_then(|at| entries.remove(at)) {
            entry.count += known.count;
        }
        entries.push_front(entry);
        entries.truncate(self.most.load(Ordering::Relaxed));
    }

    pub fn latest(&self, count: usize) -> Vec<Entry> {
        self.entries.lock().iter().take(count).cloned().collect()
    }

    pub fn clear(&self) {
        self.entries.lock().clear();
    }

    /// `acllog-max-len`; what is too much goes with the next entry.
    pub fn limit(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(log: &Log, object: &str) {
        let (reason, context) = (Reason::Key, Context::TopLevel);
        log.add(Entry::new(
            reason,
            context,
            object.as_bytes(),
            b"u",
            Vec::new(),
        ));
    }

    fn shown(log: &Log) -> Vec<(String, u64)> {
        let entries = log.latest(usize::MAX).into_iter();
        let shown = entries.map(|entry| (String::from_utf8(entry.object), entry.count));
        shown
            .map(|(object, count)| (object.unwrap_or_default(), count))
            .collect()
    }

    #[test]
    fn what_happens_again_is_counted_and_comes_first() {
        let log = Log::default();
        for object in ["a", "b", "a", "a"] {
            add(&log, object);
        }
        assert_eq!(shown(&log), [("a".into(), 3), ("b".into(), 1)]);
        log.limit(1);
        add(&log, "c");
        assert_eq!(shown(&log), [("c".into(), 1)]);
        log.clear();
        assert!(shown(&log).is_empty());
    }

    #[test]
    fn only_the_latest_are_looked_at() {
        let log = Log::default();
        for number in 0..=LOOKED_AT {
            add(&log, &number.to_string());
        }
        add(&log, "0");
        assert_eq!(shown(&log).len(), LOOKED_AT + 2);
    }
}
