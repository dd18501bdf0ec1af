//! What transactions leave behind: rows that are dead from their commit on, and lie where they lay.
//!
//! Whoever deletes a key knows how many rows it had. So it is known, nearly, how many dead rows there are, without
//! looking; and a large dead version need not be looked for. A plain SET does not read what it overwrites, and
//! what it leaves behind is found by the reclaimer's search.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use cairn_encoding::CHUNK_SIZE;
use cairn_encoding::metadata::CollectionKind;
use cairn_engine::{Engine, FilterCounters};
use parking_lot::Mutex;

use crate::key::Key;
use crate::reclaimer::{LARGE, Orphans};
use crate::txn::Shape;

/// What an element takes beside its key's name, as a guess: nobody has looked at it.
const ELEMENT_BYTES: u64 = 40;

/// A version that is dead, or a list's of which much was cut off: worth being dealt with by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeadVersion {
    pub(crate) metadata_key: Vec<u8>,
    pub(crate) version: u64,
    /// It was dead when this was noted; otherwise it has only been cut.
    pub(crate) is_whole: bool,
    pub(crate) orphans: Orphans,
}

/// The same, once it is committed that it is so.
struct Noted {
    dead: DeadVersion,
    /// The generation of young rows that the commit is in. What dies young is left out when that is drained.
    generation: u32,
}

/// What one transaction leaves behind if it is committed.
#[derive(Default)]
pub(crate) struct Remains {
    orphans: Orphans,
    large: Vec<DeadVersion>,
}

/// How much there was at a moment.
#[derive(Clone, Copy, Default)]
pub(crate) struct RemainsMark {
    orphans: Orphans,
    large: usize,
}

impl Remains {
    #[inline]
    pub(crate) fn mark(&self) -> RemainsMark {
        RemainsMark {
            orphans: self.orphans,
            large: self.large.len(),
        }
    }

    /// What came since is taken back.
    pub(crate) fn undo(&mut self, mark: RemainsMark) {
        self.orphans = mark.orphans;
        self.large.truncate(mark.large);
    }

    /// What the key held is dead as a whole.
    pub(crate) fn add(&mut self, key: &Key, shape: Shape) {
        let (version, rows, value_bytes) = match shape {
            Shape::Inline { .. } => return,
            Shape::Chunked { version, length } => {
                (version, length.div_ceil(CHUNK_SIZE as u64), length)
            }
            Shape::Collection {
                kind,
                version,
                size,
                expires,
                ..
            } => {
                let rows = match kind {
                    CollectionKind::ZSet => size * 2,
                    // Each field that expires has two rows more, and mostly all do.
                    _ if expires => size * 3,
                    _ => size,
                };
                (version, rows, rows * ELEMENT_BYTES)
            }
            Shape::List { version, size, .. } | Shape::Stream { version, size } => {
                (version, size, size * ELEMENT_BYTES)
            }
        };
        let dead = Orphans {
            versions: 1,
            rows,
            bytes: rows * key.metadata().len() as u64 + value_bytes,
        };
        self.orphans.add(dead);
        if rows >= LARGE as u64 {
            self.large.push(DeadVersion {
                metadata_key: key.metadata().to_vec(),
                version,
                is_whole: true,
                orphans: dead,
            });
        }
    }

    /// So many elements of a list, or entries of a stream, that goes on have been cut off, and so many are left: to be written anew, perhaps. So
    /// only if they are less it is worth not to wait for others that are cut off.
    #[inline]
    pub(crate) fn add_cut(&mut self, key: &Key, version: u64, rows: u64, left: u64) {
        let cut = Orphans {
            versions: 0,
            rows,
            bytes: rows * (key.metadata().len() as u64 + ELEMENT_BYTES),
        };
        self.orphans.add(cut);
        if rows >= left.max(LARGE as u64) {
            self.large.push(DeadVersion {
                metadata_key: key.metadata().to_vec(),
                version,
                is_whole: false,
                orphans: cut,
            });
        }
    }
}

/// How many of those are remembered. More are found by searching.
const REMEMBERED: usize = 10_000;

/// The remains of all transactions, as far as they are known.
#[derive(Default)]
pub(crate) struct Ledger {
    noted: Tally,
    dropped: Tally,
    /// What was there at a moment when it was counted.
    counted: Mutex<Counted>,
    large: Mutex<VecDeque<Noted>>,
}

/// Rows and bytes, ever growing.
#[derive(Default)]
struct Tally {
    rows: AtomicU64,
    bytes: AtomicU64,
}

impl Tally {
    fn add(&self, orphans: Orphans) {
        self.rows.fetch_add(orphans.rows, Ordering::Relaxed);
        self.bytes.fetch_add(orphans.bytes, Ordering::Relaxed);
    }

    fn get(&self) -> (u64, u64) {
        let rows = self.rows.load(Ordering::Relaxed);
        (rows, self.bytes.load(Ordering::Relaxed))
    }
}

#[derive(Clone, Copy, Default)]
struct Counted {
    orphans: Orphans,
    at: Reading,
}

/// How the tallies stand.
#[derive(Clone, Copy, Default)]
pub(crate) struct Reading {
    noted: (u64, u64),
    removed: (u64, u64),
}

impl Ledger {
    /// The transaction has been committed.
    #[inline]
    pub(crate) fn note(&self, remains: Remains, engine: &Engine) {
        if remains.orphans.rows > 0 {
            self.note_some(remains, engine);
        }
    }

    #[cold]
    fn note_some(&self, remains: Remains, engine: &Engine) {
        self.noted.add(remains.orphans);
        if !remains.large.is_empty() {
            let generation = engine.newest_generation();
            let mut large = self.large.lock();
            let room = REMEMBERED.saturating_sub(large.len());
            let noted = remains
                .large
                .into_iter()
                .map(|dead| Noted { dead, generation });
            large.extend(noted.take(room));
        }
    }

    /// The large dead versions that have waited longest, of those that RocksDB knows to be dead.
    pub(crate) fn take_large(&self, count: usize, engine: &Engine) -> Vec<DeadVersion> {
        let mut large = self.large.lock();
        let is_known = |noted: &&Noted| engine.has_drained(noted.generation);
        let count = large.iter().take(count).take_while(is_known).count();
        large.drain(..count).map(|noted| noted.dead).collect()
    }

    pub(crate) fn waiting(&self) -> u64 {
        self.large.lock().len() as u64
    }

    pub(crate) fn note_dropped(&self, orphans: Orphans) {
        self.dropped.add(orphans);
    }

    pub(crate) fn read(&self, filters: &FilterCounters) -> Reading {
        let (rows, bytes) = self.dropped.get();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let filtered = count(&filters.dead_versions) + count(&filters.cut_off);
        Reading {
            noted: self.noted.get(),
            removed: (rows + filtered, bytes + count(&filters.orphaned_bytes)),
        }
    }

    /// At the time of the reading there were these.
    pub(crate) fn note_counted(&self, orphans: Orphans, at: Reading) {
        *self.counted.lock() = Counted { orphans, at };
    }

    /// How many rows are dead, nearly, and how many bytes they take.
    pub(crate) fn estimate(&self, filters: &FilterCounters) -> (u64, u64) {
        let now = self.read(filters);
        let Counted { orphans, at } = *self.counted.lock();
        let estimate =
            |counted: u64, noted: u64, removed: u64| (counted + noted).saturating_sub(removed);
        let rows = estimate(
            orphans.rows,
            now.noted.0 - at.noted.0,
            now.removed.0 - at.removed.0,
        );
        let bytes = estimate(
            orphans.bytes,
            now.noted.1 - at.noted.1,
            now.removed.1 - at.removed.1,
        );
        (rows, if rows == 0 { 0 } else { bytes })
    }
}
