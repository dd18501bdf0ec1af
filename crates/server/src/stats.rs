//! Counters of the whole server, made to be added to on the way of every command.
//!
//! Each thread adds to a shard of its own (see `counter`). Nothing here allocates once a command has been called for
//! the first time.

mod counter;
mod latency;
mod rates;

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cairn_store::Lookups;
use parking_lot::Mutex;

pub use counter::Counter;
pub use latency::Latency;
pub use rates::{Rates, Totals};

use crate::command::{self, Command};
use counter::{Place, SHARDS};

pub struct Stats {
    pub connections: Counter,
    pub rejected_connections: Counter,
    pub bytes_in: Counter,
    pub bytes_out: Counter,
    pub reads: Counter,
    pub writes: Counter,
    pub commits: Counter,
    pub keyspace_hits: Counter,
    pub keyspace_misses: Counter,
    pub rates: Rates,
    /// The most bytes that were ever allocated when someone looked.
    pub peak_memory: AtomicU64,
    /// By thread, then by command.
    commands: Vec<Vec<CommandShard>>,
    /// What they came to when the statistics were reset, by command.
    before: Vec<CommandShard>,
    /// Error replies by their code.
    errors: Mutex<BTreeMap<Vec<u8>, u64>>,
    /// What the expirer had counted when the statistics were reset.
    expired_before: AtomicU64,
    expired_fields_before: AtomicU64,
}

#[derive(Default)]
struct CommandShard {
    calls: AtomicU64,
    nanoseconds: AtomicU64,
    rejected: AtomicU64,
    failed: AtomicU64,
    latency: OnceLock<Box<Latency>>,
}

/// One of a command's counters.
type Of = fn(&CommandShard) -> &AtomicU64;

fn field(shard: &CommandShard, of: Of) -> u64 {
    of(shard).load(Ordering::Relaxed)
}

/// What is known of one command.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct CommandStats {
    pub calls: u64,
    pub microseconds: u64,
    /// Refused before it ran: arguments missing, not authenticated.
    pub rejected: u64,
    /// Ran, and answered with an error.
    pub failed: u64,
}

impl Default for Stats {
    fn default() -> Self {
        let shard = || {
            (0..command::count())
                .map(|_| CommandShard::default())
                .collect()
        };
        Stats {
            connections: Counter::default(),
            rejected_connections: Counter::default(),
            bytes_in: Counter::default(),
            bytes_out: Counter::default(),
            reads: Counter::default(),
            writes: Counter::default(),
            commits: Counter::default(),
            keyspace_hits: Counter::default(),
            keyspace_misses: Counter::default(),
            rates: Rates::default(),
            peak_memory: AtomicU64::new(0),
            commands: (0..SHARDS).map(|_| shard()).collect(),
            before: shard(),
            errors: Mutex::default(),
            expired_before: AtomicU64::new(0),
            expired_fields_before: AtomicU64::new(0),
        }
    }
}

/// A client that makes up codes must not fill the memory with them.
const MOST_ERROR_CODES: usize = 128;

impl Stats {
    /// A command ran; its time goes into the histogram only if there shall be one.
    pub fn ran(&self, command: &Command, nanoseconds: u64, has_failed: bool, tracks_latency: bool) {
        let mine = Place::mine();
        let shard = &self.commands[mine.number()][command.number()];
        mine.add(&shard.calls, 1);
        mine.add(&shard.nanoseconds, nanoseconds);
        if has_failed {
            mine.add(&shard.failed, 1);
        }
        if tracks_latency {
            let latency = shard.latency.get_or_init(Box::default);
            latency.record(mine, nanoseconds);
        }
    }

    /// A command asked for keys. Of most that write this does not count, as in Redis.
    pub fn looked_up(&self, lookups: Lookups) {
        if lookups.hits > 0 {
            self.keyspace_hits.add(u64::from(lookups.hits));
        }
        if lookups.misses > 0 {
            self.keyspace_misses.add(u64::from(lookups.misses));
        }
    }

    /// A command ran inside of another. If it has failed, this is the text of its error.
    pub fn counted(&self, command: &Command, took: Duration, error: Option<&[u8]>) {
        error.into_iter().for_each(|text| self.error(text));
        self.ran(command, took.as_nanos() as u64, error.is_some(), true);
    }

    /// A command was known, and refused.
    pub fn rejected(&self, command: &Command) {
        let mine = Place::mine();
        let shard = &self.commands[mine.number()][command.number()];
        mine.add(&shard.rejected, 1);
    }

    /// A client was sent an error; the first word of its text is its code.
    pub fn error(&self, text: &[u8]) {
        let end = text.iter().position(|byte| b" \r\n".contains(byte));
        let code = &text[..end.unwrap_or(text.len())];
        let mut errors = self.errors.lock();
        if let Some(count) = errors.get_mut(code) {
            *count += 1;
        } else if errors.len() < MOST_ERROR_CODES {
            errors.insert(code.to_vec(), 1);
        }
    }

    pub fn errors(&self) -> BTreeMap<Vec<u8>, u64> {
        self.errors.lock().clone()
    }

    pub fn of(&self, command: &Command) -> CommandStats {
        let number = command.number();
        let since_reset = |of| {
            // First, because the sum rises.
            let before = field(&self.before[number], of);
            self.sum(number, of).saturating_sub(before)
        };
        CommandStats {
            calls: since_reset(|shard| &shard.calls),
            microseconds: since_reset(|shard| &shard.nanoseconds) / 1000,
            rejected: since_reset(|shard| &shard.rejected),
            failed: since_reset(|shard| &shard.failed),
        }
    }

    /// A counter of a command, over all threads and all the time.
    fn sum(&self, command: usize, of: Of) -> u64 {
        let shards = self.commands.iter();
        shards.map(|shard| field(&shard[command], of)).sum()
    }

    /// How long the command's calls took; none if it was never timed.
    pub fn latency_of(&self, command: &Command) -> Option<Latency> {
        let before = self.before[command.number()].latency.get();
        let sum = self.latency_ever(command.number());
        before.into_iter().for_each(|before| sum.subtract(before));
        (sum.count() > 0).then_some(sum)
    }

    fn latency_ever(&self, command: usize) -> Latency {
        let sum = Latency::default();
        let shards = self.commands.iter();
        let timed = shards.filter_map(|shard| shard[command].latency.get());
        timed.for_each(|latency| sum.add(latency));
        sum
    }

    /// How many commands ran.
    pub fn commands(&self) -> u64 {
        let calls: Of = |shard| &shard.calls;
        let before: u64 = self.before.iter().map(|shard| field(shard, calls)).sum();
        let shards = self.commands.iter().flatten();
        let ever: u64 = shards.map(|shard| field(shard, calls)).sum();
        ever.saturating_sub(before)
    }

    /// Keys that expired, given how many the expirer has counted since it started.
    pub fn expired(&self, counted: u64) -> u64 {
        counted.saturating_sub(self.expired_before.load(Ordering::Relaxed))
    }

    /// The same of fields.
    pub fn expired_fields(&self, counted: u64) -> u64 {
        counted.saturating_sub(self.expired_fields_before.load(Ordering::Relaxed))
    }

    /// Remembers how much is allocated, if that is the most so far; returns the most.
    pub fn note_memory(&self, allocated: u64) -> u64 {
        let before = self.peak_memory.fetch_max(allocated, Ordering::Relaxed);
        before.max(allocated)
    }

    /// CONFIG RESETSTAT.
    pub fn reset(&self, (expired, expired_fields): (u64, u64), allocated: u64) {
        for counter in [
            &self.connections,
            &self.rejected_connections,
            &self.bytes_in,
            &self.bytes_out,
            &self.reads,
            &self.writes,
            &self.commits,
            &self.keyspace_hits,
            &self.keyspace_misses,
        ] {
            counter.reset();
        }
        for (number, before) in self.before.iter().enumerate() {
            let counters: [Of; 4] = [
                |shard| &shard.calls,
                |shard| &shard.nanoseconds,
                |shard| &shard.rejected,
                |shard| &shard.failed,
            ];
            for of in counters {
                of(before).store(self.sum(number, of), Ordering::Relaxed);
            }
            let latency = self.latency_ever(number);
            if latency.count() > 0 {
                before.latency.get_or_init(Box::default).set(&latency);
            }
        }
        self.errors.lock().clear();
        self.rates.reset();
        self.expired_before.store(expired, Ordering::Relaxed);
        self.expired_fields_before
            .store(expired_fields, Ordering::Relaxed);
        self.peak_memory.store(allocated, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_threads_count_adds_up() {
        let stats = Stats::default();
        let (get, set) = (
            command::find(b"get").unwrap(),
            command::find(b"set").unwrap(),
        );
        std::thread::scope(|scope| {
            for _ in 0..SHARDS + 3 {
                scope.spawn(|| {
                    for call in 0..100 {
                        stats.ran(get, 10_000, call == 0, true);
                        stats.connections.add(2);
                    }
                    stats.rejected(set);
                });
            }
        });
        let threads = SHARDS as u64 + 3;
        assert_eq!(stats.connections.get(), 200 * threads);
        assert_eq!(stats.commands(), 100 * threads);
        let expected = CommandStats {
            calls: 100 * threads,
            microseconds: 1000 * threads,
            rejected: 0,
            failed: threads,
        };
        assert_eq!(stats.of(get), expected);
        assert_eq!(stats.of(set).rejected, threads);
        assert_eq!(stats.latency_of(get).unwrap().count(), 100 * threads);
        assert!(stats.latency_of(set).is_none());
        stats.reset((0, 0), 0);
        assert_eq!(stats.of(get), CommandStats::default());
        assert!(stats.latency_of(get).is_none());
    }

    #[test]
    fn errors_are_told_apart_by_their_first_word() {
        let stats = Stats::default();
        for text in [
            "ERR syntax error",
            "ERR no such key",
            "WRONGTYPE Operation",
            "EXECABORT",
        ] {
            stats.error(text.as_bytes());
        }
        let errors = stats.errors();
        let counts: Vec<(&[u8], u64)> = errors.iter().map(|(code, n)| (&**code, *n)).collect();
        assert_eq!(
            counts,
            [(&b"ERR"[..], 2), (b"EXECABORT", 1), (b"WRONGTYPE", 1)]
        );
        for made_up in 0..1000 {
            stats.error(format!("CODE{made_up} text").as_bytes());
        }
        assert_eq!(stats.errors().len(), MOST_ERROR_CODES);
    }
}
