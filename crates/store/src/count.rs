//! How many keys a database has.
//!
//! A plain SET does not know whether its key is new, so nobody keeps a running count. What can be counted
//! in [`PATIENCE`] is counted when asked. The keys of a larger database are counted in the background,
//! and the count is kept slot by slot: first all of them, by whoever comes first while others who ask
//! wait for the result, and then, as long as there are changes, run by run of slots, round after round.
//! So the answer is the sum of counts none of which is older than a round, and what was never right in
//! one slot is not carried over to others.

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cairn_encoding::SLOTS;
use cairn_encoding::row;
use cairn_encoding::slot::slot;
use cairn_engine::EngineError;
use parking_lot::{Condvar, Mutex};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::{Error, Result};
use crate::keyspace::Walk;
use crate::store::Store;
use crate::turns::Turns;
use crate::txn::{Patience, ReadTxn, WriteTxn};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyCount {
    pub keys: u64,
    /// Those among them that will expire.
    pub expires: u64,
}

impl KeyCount {
    pub(crate) fn add(&mut self, other: KeyCount) {
        self.keys += other.keys;
        self.expires += other.expires;
    }
}

/// How long a count may take while a client waits for it.
const PATIENCE: Duration = Duration::from_millis(50);
/// A database that takes longer than this is not counted for a client again: it would not be done in time.
const HOPELESS: Duration = Duration::from_millis(200);
/// How long the background counts before it rests, and before it opens a new walk: a walk pins files.
pub(crate) const RUN: Duration = Duration::from_secs(2);
/// How often the background looks whether there is something to count.
pub(crate) const RECOUNT: Duration = Duration::from_secs(5);
/// After so many changes a small database may have become a large one.
const MANY_CHANGES: u64 = 10_000;
/// A round is worth its while when one key in so many may have come or gone.
const NOTICEABLE: u64 = 1000;

#[derive(Default)]
pub(crate) struct Counts {
    /// What is known of large databases, by index.
    kept: Mutex<FxHashMap<u64, Kept>>,
    /// The databases that are being counted in full.
    under_way: Mutex<FxHashSet<u64>>,
    counted: Condvar,
    /// Rows changed since the start: no more keys have come or gone.
    changes: AtomicU64,
    /// The same when the background last looked at each database that is not kept.
    looked: Mutex<FxHashMap<u64, u64>>,
    is_stopping: AtomicBool,
}

struct Kept {
    slots: Vec<KeyCount>,
    total: KeyCount,
    /// How long it takes to count all slots.
    took: Duration,
    round: Round,
}

/// A passage through all slots.
struct Round {
    /// The slot to go on with; zero: none is under way.
    next: u16,
    took: Duration,
    /// The store's changes when it began.
    began_at: u64,
}

/// The number of keys that live in the selected database, or nearly so for a large one.
pub fn count_keys(txn: &ReadTxn) -> Result<KeyCount> {
    let counts = txn.store().counts();
    let index = txn.index();
    let kept = counts.kept(index);
    if let Some((total, took)) = kept
        && took > HOPELESS
    {
        return Ok(total);
    }
    let mut from = Vec::new();
    row::index_prefix(&mut from, index);
    if let Some(total) = count_in_time(txn, Walk::open(txn, &from))? {
        counts.forget(index);
        return Ok(total);
    }
    match kept {
        Some((total, _)) => Ok(total),
        None if txn.is_patient() => txn.store().count_all(index),
        None => Err(Error::TooLong),
    }
}

/// Counts as long as a client may wait; `None` if that is not enough.
fn count_in_time(txn: &ReadTxn, mut walk: Walk) -> Result<Option<KeyCount>> {
    let started = Instant::now();
    let (mut total, mut seen) = (KeyCount::default(), 0_u32);
    while let Some(met) = walk.next()? {
        txn.step()?;
        if !met.has_expired(txn.now_ms()) {
            total.keys += 1;
            total.expires += u64::from(met.expire_ms != 0);
        }
        seen += 1;
        if seen.is_multiple_of(1024) && started.elapsed() > PATIENCE {
            return Ok(None);
        }
    }
    Ok(Some(total))
}

impl Store {
    /// The number of keys in any database, on a thread that may take its time.
    pub fn count_keys(self: &Arc<Self>, database: u32) -> Result<KeyCount> {
        let mut txn = WriteTxn::new(self.clone(), Patience::Long);
        txn.begin(database);
        count_keys(&txn)
    }

    /// Looks after the counts of large databases, for about `time` each; true if there is more to do.
    pub(crate) fn recount(self: &Arc<Self>, time: Duration) -> Result<bool> {
        let counts = self.counts();
        let mut has_more = false;
        for database in 0..self.databases().count() {
            let index = self.databases().index_of(database);
            if counts.kept(index).is_none() {
                self.look(database, index)?;
            } else if let Some(first) = counts.next_run(index) {
                let mut turns = Turns::begin();
                let run = self.count_run(index, first, time, || turns.go_on())?;
                let run = Run {
                    took: turns.worked(),
                    ..run
                };
                has_more |= counts.keep_run(index, run);
            }
        }
        counts.retain(&self.databases().all());
        Ok(has_more)
    }

    /// Finds out whether a database has become large, and counts it if so.
    fn look(self: &Arc<Self>, database: u32, index: u64) -> Result<()> {
        if !self.counts().may_have_grown(index) {
            return Ok(());
        }
        let mut txn = WriteTxn::new(self.clone(), Patience::Background);
        txn.begin(database);
        let walk = Walk::in_background(self, index, 0);
        if count_in_time(&txn, walk)?.is_none() {
            self.count_all(index)?;
        }
        Ok(())
    }

    /// Counts all slots. Whoever asks for the same meanwhile waits for the result.
    fn count_all(&self, index: u64) -> Result<KeyCount> {
        let counts = self.counts();
        loop {
            let Some(_under_way) = UnderWay::enter(counts, index) else {
                // The other one is done, or has failed.
                match counts.kept(index) {
                    Some((total, _)) => return Ok(total),
                    None => continue,
                }
            };
            let mut kept = Kept::new(counts.changes());
            while kept.add(self.count_run(index, kept.round.next, RUN, || ())?) {}
            let total = kept.total;
            counts.kept.lock().insert(index, kept);
            return Ok(total);
        }
    }

    /// Counts slots from `first` on: for about so long, and whole slots. `between` is called every some keys.
    fn count_run(
        &self,
        index: u64,
        first: u16,
        time: Duration,
        mut between: impl FnMut(),
    ) -> Result<Run> {
        let started = Instant::now();
        let now_ms = self.clock().now_ms();
        let mut walk = Walk::in_background(self, index, first);
        let mut run = Run {
            slots: first..SLOTS,
            counts: vec![KeyCount::default(); usize::from(SLOTS - first)],
            took: Duration::ZERO,
        };
        let (mut current, mut seen) = (first, 0_u32);
        while let Some(met) = walk.next()? {
            let slot = slot(met.name);
            if slot != current {
                if started.elapsed() > time && seen > 0 {
                    run.slots.end = slot;
                    break;
                }
                current = slot;
            }
            if !met.has_expired(now_ms) {
                run.counts[usize::from(slot - first)].add(KeyCount {
                    keys: 1,
                    expires: u64::from(met.expire_ms != 0),
                });
            }
            seen += 1;
            if seen.is_multiple_of(64) {
                between();
            }
            if seen.is_multiple_of(1024) && self.counts().is_stopping.load(Ordering::Relaxed) {
                return Err(EngineError::Closing.into());
            }
        }
        run.counts.truncate(run.slots.len());
        run.took = started.elapsed();
        Ok(run)
    }
}

/// The counts of some slots.
struct Run {
    slots: Range<u16>,
    counts: Vec<KeyCount>,
    took: Duration,
}

impl Kept {
    fn new(changes: u64) -> Self {
        Kept {
            slots: vec![KeyCount::default(); usize::from(SLOTS)],
            total: KeyCount::default(),
            took: Duration::ZERO,
            round: Round::begin(changes),
        }
    }

    /// Takes over the next run of the round; true if the round goes on.
    fn add(&mut self, run: Run) -> bool {
        let range = usize::from(run.slots.start)..usize::from(run.slots.end);
        self.slots[range].copy_from_slice(&run.counts);
        self.total = KeyCount::default();
        for slot in &self.slots {
            self.total.add(*slot);
        }
        self.round.took += run.took;
        let has_ended = run.slots.end == SLOTS;
        self.round.next = if has_ended { 0 } else { run.slots.end };
        if has_ended {
            self.took = self.round.took;
        }
        !has_ended
    }
}

impl Round {
    fn begin(changes: u64) -> Self {
        Round {
            next: 0,
            took: Duration::ZERO,
            began_at: changes,
        }
    }
}

impl Counts {
    /// So many rows have been changed.
    pub(crate) fn note_changes(&self, rows: usize) {
        self.changes.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// Counting is given up, now and from now on.
    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// The count of a large database, and how long it takes.
    fn kept(&self, index: u64) -> Option<(KeyCount, Duration)> {
        let kept = self.kept.lock();
        kept.get(&index).map(|kept| (kept.total, kept.took))
    }

    fn forget(&self, index: u64) {
        self.kept.lock().remove(&index);
    }

    /// Forgets all other databases: they are gone.
    fn retain(&self, indexes: &[u64]) {
        let is_there = |index: &u64, _: &mut _| indexes.contains(index);
        self.kept.lock().retain(is_there);
        self.looked
            .lock()
            .retain(|index, _| indexes.contains(index));
    }

    /// Whether a database that was small, or not looked at yet, may be large by now.
    fn may_have_grown(&self, index: u64) -> bool {
        let changes = self.changes();
        let mut looked = self.looked.lock();
        match looked.get(&index) {
            Some(before) if changes - before < MANY_CHANGES => false,
            _ => {
                looked.insert(index, changes);
                true
            }
        }
    }

    /// Where to count next in a large database; `None` if little has changed since the last round.
    fn next_run(&self, index: u64) -> Option<u16> {
        let changes = self.changes();
        let mut kept = self.kept.lock();
        let kept = kept.get_mut(&index)?;
        if kept.round.next == 0 {
            if (changes - kept.round.began_at).saturating_mul(NOTICEABLE) <= kept.total.keys {
                return None;
            }
            kept.round = Round::begin(changes);
        }
        Some(kept.round.next)
    }

    fn keep_run(&self, index: u64, run: Run) -> bool {
        let mut kept = self.kept.lock();
        kept.get_mut(&index).is_some_and(|kept| kept.add(run))
    }
}

/// The database is being counted in full for as long as this exists.
struct UnderWay<'c> {
    counts: &'c Counts,
    index: u64,
}

impl<'c> UnderWay<'c> {
    /// `None`, after waiting, if someone else was at it.
    fn enter(counts: &'c Counts, index: u64) -> Option<Self> {
        let mut under_way = counts.under_way.lock();
        if under_way.insert(index) {
            return Some(UnderWay { counts, index });
        }
        while under_way.contains(&index) {
            counts.counted.wait(&mut under_way);
        }
        None
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.counts.under_way.lock().remove(&self.index);
        self.counts.counted.notify_all();
    }
}
