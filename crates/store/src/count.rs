//! How many keys a database has.
//!
//! A plain SET does not know whether its key is new, so nobody keeps a running count. Up to some hundred
//! thousand keys are counted when asked. For a larger database the answer is a count that the background
//! keeps: a full count when that is quick, else the last full count scaled by how a sample of its slots
//! has grown since.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_encoding::SLOTS;
use cairn_encoding::metadata::has_expired;
use cairn_encoding::row;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::error::Result;
use crate::keyspace::Walk;
use crate::store::Store;
use crate::txn::{Patience, ReadTxn, WriteTxn};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyCount {
    pub keys: u64,
    /// Those among them that will expire.
    pub expires: u64,
}

/// How long a count may take while a client waits for it.
const PATIENCE: Duration = Duration::from_millis(50);
/// How long a background count may take before it samples instead.
const FULL_COUNT: Duration = Duration::from_secs(2);
/// How often the background counts.
pub(crate) const RECOUNT: Duration = Duration::from_secs(5);

/// What the background knows of one database.
struct Kept {
    count: KeyCount,
    full: KeyCount,
    per_slot: Vec<u32>,
    full_took: Duration,
}

#[derive(Default)]
pub(crate) struct Counts {
    by_index: Mutex<FxHashMap<u64, Kept>>,
}

/// The number of keys that live in the selected database, or nearly so for a large one.
pub fn count_keys(txn: &ReadTxn) -> Result<KeyCount> {
    let counts = txn.store().counts();
    let kept = counts.kept(txn.index());
    let mut full = Tally::default();
    let started = Instant::now();
    let limit = kept.map(|_| PATIENCE);
    match full.count(txn, 0..SLOTS, limit)? {
        Outcome::Whole => {}
        Outcome::CutShort => return Ok(kept.unwrap_or_default()),
    }
    let (total, took) = (full.total, started.elapsed());
    if took > PATIENCE {
        counts.keep_full(txn.index(), full, took);
    } else {
        counts.forget(txn.index());
    }
    Ok(total)
}

impl Store {
    /// The number of keys in any database, on a thread that may take its time.
    pub fn count_keys(self: &Arc<Self>, database: u32) -> Result<KeyCount> {
        let mut txn = WriteTxn::new(self.clone(), Patience::Long);
        txn.begin(database);
        count_keys(&txn)
    }

    /// Brings the counts of large databases up to date; called by the background.
    pub(crate) fn recount(self: &Arc<Self>) -> Result<()> {
        for database in 0..self.databases().count() {
            let mut txn = WriteTxn::new(self.clone(), Patience::Long);
            txn.begin(database);
            let index = txn.index();
            let Some(full_took) = self.counts().full_took(index) else {
                continue;
            };
            let started = Instant::now();
            let mut tally = Tally::default();
            if full_took <= FULL_COUNT {
                tally.count(&txn, 0..SLOTS, None)?;
                self.counts().keep_full(index, tally, started.elapsed());
            } else {
                let share = FULL_COUNT.as_secs_f64() / full_took.as_secs_f64();
                let width = ((f64::from(SLOTS) * share) as u16).max(16);
                let first = fastrand::u16(..SLOTS - width);
                tally.count(&txn, first..first + width, None)?;
                self.counts().scale(index, first..first + width, &tally);
            }
        }
        Ok(())
    }
}

impl Counts {
    fn kept(&self, index: u64) -> Option<KeyCount> {
        self.by_index.lock().get(&index).map(|kept| kept.count)
    }

    fn full_took(&self, index: u64) -> Option<Duration> {
        self.by_index.lock().get(&index).map(|kept| kept.full_took)
    }

    fn keep_full(&self, index: u64, tally: Tally, full_took: Duration) {
        let kept = Kept {
            count: tally.total,
            full: tally.total,
            per_slot: tally.per_slot,
            full_took,
        };
        self.by_index.lock().insert(index, kept);
    }

    fn forget(&self, index: u64) {
        self.by_index.lock().remove(&index);
    }

    /// The last full count, scaled by what became of the sampled slots since.
    fn scale(&self, index: u64, slots: std::ops::Range<u16>, sample: &Tally) {
        let mut counts = self.by_index.lock();
        let Some(kept) = counts.get_mut(&index) else {
            return;
        };
        let range = usize::from(slots.start)..usize::from(slots.end);
        let before: u64 = kept.per_slot[range].iter().map(|n| u64::from(*n)).sum();
        if before == 0 {
            return;
        }
        let growth = sample.total.keys as f64 / before as f64;
        kept.count = KeyCount {
            keys: (kept.full.keys as f64 * growth) as u64,
            expires: (kept.full.expires as f64 * growth) as u64,
        };
    }
}

struct Tally {
    total: KeyCount,
    per_slot: Vec<u32>,
}

impl Default for Tally {
    fn default() -> Self {
        Tally {
            total: KeyCount::default(),
            per_slot: vec![0; usize::from(SLOTS)],
        }
    }
}

enum Outcome {
    Whole,
    CutShort,
}

impl Tally {
    fn count(
        &mut self,
        txn: &ReadTxn,
        slots: std::ops::Range<u16>,
        limit: Option<Duration>,
    ) -> Result<Outcome> {
        let started = Instant::now();
        let mut from = Vec::new();
        row::slot_prefix(&mut from, txn.index(), slots.start);
        let mut walk = Walk::open(txn, &from);
        let mut seen = 0_u32;
        while let Some(met) = walk.next()? {
            txn.step()?;
            let slot = cairn_encoding::slot::slot(met.name);
            if slot >= slots.end {
                break;
            }
            if !has_expired(met.expire_ms, txn.now_ms()) {
                self.total.keys += 1;
                self.total.expires += u64::from(met.expire_ms != 0);
                self.per_slot[usize::from(slot)] += 1;
            }
            seen += 1;
            if seen.is_multiple_of(1024) && limit.is_some_and(|limit| started.elapsed() > limit) {
                return Ok(Outcome::CutShort);
            }
        }
        Ok(Outcome::Whole)
    }
}
