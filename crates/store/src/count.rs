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

use cairn_encoding::slot::slot;
use cairn_engine::EngineError;
use parking_lot::{Condvar, Mutex};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::{Error, Result};
use crate::keyspace::Walk;
use crate::region::Region;
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
/// How often the background looks whether there is something to count: seldom, since to count a hundred thousand keys takes
/// a tenth of a second.
pub(crate) const RECOUNT: Duration = Duration::from_secs(30);
/// After so many changes to a region a small database of it may have become a large one: fewer keys are counted in time.
const MANY_CHANGES: u64 = 50_000;
/// A round is worth its while when one key in so many may have come or gone.
const NOTICEABLE: u64 = 1000;

#[derive(Default)]
pub(crate) struct Counts {
    /// What is known of large databases.
    kept: Mutex<FxHashMap<Place, Kept>>,
    /// The databases that are being counted in full.
    under_way: Mutex<FxHashSet<Place>>,
    counted: Condvar,
    /// Rows changed since the start: no more keys have come or gone.
    changes: AtomicU64,
    /// The same of its region, when the background last looked at each database that is not kept.
    looked: Mutex<FxHashMap<Place, u64>>,
    /// How often counts were forgotten since others may have changed what was counted.
    outdated: AtomicU64,
    is_stopping: AtomicBool,
}

/// A database of a region: its index says which only together with the region.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Place {
    region: u64,
    /// With other slots it is another one.
    epoch: u64,
    index: u64,
}

impl Place {
    fn of(region: &Region, index: u64) -> Place {
        Place {
            region: region.id(),
            epoch: region.epoch(),
            index,
        }
    }
}

struct Kept {
    slots: Range<u16>,
    /// One for each of them.
    counts: Vec<KeyCount>,
    total: KeyCount,
    /// How long it takes to count all slots.
    took: Duration,
    round: Round,
}

/// A passage through all slots.
struct Round {
    /// The slot to go on with; the first one: none is under way.
    next: u16,
    took: Duration,
    /// The store's changes when it began.
    began_at: u64,
}

/// The number of keys of its region that live in the selected database, or nearly so for a large one.
pub fn count_keys(txn: &ReadTxn) -> Result<KeyCount> {
    let counts = txn.store().counts();
    let place = Place::of(txn.region(), txn.index());
    let kept = counts.kept(place);
    if let Some((total, took)) = kept
        && took > HOPELESS
    {
        return Ok(total);
    }
    if let Some(total) = count_in_time(txn, Walk::whole(txn)?)? {
        counts.forget(place);
        return Ok(total);
    }
    match kept {
        Some((total, _)) => Ok(total),
        None if txn.is_patient() => txn.store().count_all(txn.region(), txn.index()),
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
    /// The number of keys in any database, of all regions that this node leads, on a thread that may take its time.
    pub fn count_keys(self: &Arc<Self>, database: u32) -> Result<KeyCount> {
        let mut total = KeyCount::default();
        for region in self.regions().led() {
            let mut txn = WriteTxn::new(self.clone(), region.clone(), Patience::Long);
            txn.begin(database);
            total.add(count_keys(&txn)?);
        }
        Ok(total)
    }

    /// Looks after the counts of large databases, for about `time` each; true if there is more to do.
    pub(crate) fn recount(self: &Arc<Self>, time: Duration) -> Result<bool> {
        let counts = self.counts();
        let (mut has_more, mut places) = (false, Vec::new());
        for region in self.regions().led() {
            for database in 0..self.database_count() {
                let index = region.databases().index_of(database);
                let place = Place::of(region, index);
                places.push(place);
                if counts.kept(place).is_none() {
                    self.look(region, database)?;
                } else if let Some(first) = counts.next_run(place) {
                    let mut turns = Turns::begin();
                    let run = self.count_run(region, index, first, time, || turns.go_on())?;
                    let run = Run {
                        took: turns.worked(),
                        ..run
                    };
                    has_more |= counts.keep_run(place, run);
                }
            }
        }
        counts.retain(&places);
        Ok(has_more)
    }

    /// Finds out whether a database has become large, and counts it if so.
    fn look(self: &Arc<Self>, region: &Arc<Region>, database: u32) -> Result<()> {
        let mut txn = WriteTxn::new(self.clone(), region.clone(), Patience::Background);
        txn.begin(database);
        let index = txn.index();
        if !self.counts().may_have_grown(region, index) {
            return Ok(());
        }
        // What is young has come lately. It is not worth being drained for this: there will be another look.
        let walk = Walk::of_stored(self, region, index);
        if count_in_time(&txn, walk)?.is_none() {
            self.count_all(region, index)?;
        }
        Ok(())
    }

    /// Counts all slots. Whoever asks for the same meanwhile waits for the result.
    fn count_all(&self, region: &Region, index: u64) -> Result<KeyCount> {
        let (counts, place) = (self.counts(), Place::of(region, index));
        loop {
            let Some(_under_way) = UnderWay::enter(counts, place) else {
                // The other one is done, or has failed.
                match counts.kept(place) {
                    Some((total, _)) => return Ok(total),
                    None => continue,
                }
            };
            let outdated = counts.outdated.load(Ordering::Relaxed);
            let mut kept = Kept::new(region.slots(), counts.changes());
            while kept.add(self.count_run(region, index, kept.round.next, RUN, || ())?) {}
            let total = kept.total;
            counts.keep(place, kept, outdated);
            return Ok(total);
        }
    }

    /// Counts slots from `first` on: for about so long, and whole slots. `between` is called every some keys.
    fn count_run(
        &self,
        region: &Region,
        index: u64,
        first: u16,
        time: Duration,
        mut between: impl FnMut(),
    ) -> Result<Run> {
        let started = Instant::now();
        let now_ms = self.clock().now_ms();
        let end = region.slots().end;
        let mut walk = Walk::in_background(self, region, index, first);
        let mut run = Run {
            slots: first..end,
            counts: vec![KeyCount::default(); usize::from(end - first)],
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
    fn new(slots: Range<u16>, changes: u64) -> Self {
        Kept {
            counts: vec![KeyCount::default(); slots.len()],
            total: KeyCount::default(),
            took: Duration::ZERO,
            round: Round::begin(slots.start, changes),
            slots,
        }
    }

    /// Takes over the next run of the round; true if the round goes on.
    fn add(&mut self, run: Run) -> bool {
        let first = usize::from(run.slots.start - self.slots.start);
        self.counts[first..first + run.counts.len()].copy_from_slice(&run.counts);
        self.total = KeyCount::default();
        for slot in &self.counts {
            self.total.add(*slot);
        }
        self.round.took += run.took;
        let has_ended = run.slots.end == self.slots.end;
        self.round.next = if has_ended {
            self.slots.start
        } else {
            run.slots.end
        };
        if has_ended {
            self.took = self.round.took;
        }
        !has_ended
    }
}

impl Round {
    fn begin(first: u16, changes: u64) -> Self {
        Round {
            next: first,
            took: Duration::ZERO,
            began_at: changes,
        }
    }
}

impl Counts {
    /// So many rows of a region have been changed.
    pub(crate) fn note_changes(&self, region: &Region, rows: usize) {
        region.note_changes(rows as u64);
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
    fn kept(&self, place: Place) -> Option<(KeyCount, Duration)> {
        let kept = self.kept.lock();
        kept.get(&place).map(|kept| (kept.total, kept.took))
    }

    fn forget(&self, place: Place) {
        self.kept.lock().remove(&place);
    }

    /// Keeps a count, unless it may be outdated since it was begun.
    fn keep(&self, place: Place, count: Kept, outdated: u64) {
        let mut kept = self.kept.lock();
        if self.outdated.load(Ordering::Relaxed) == outdated {
            kept.insert(place, count);
        }
    }

    /// Forgets what was counted in a region: from now on others may change it, and tell nobody.
    pub(crate) fn forget_region(&self, region: u64) {
        let mut kept = self.kept.lock();
        self.outdated.fetch_add(1, Ordering::Relaxed);
        kept.retain(|place, _| place.region != region);
        self.looked.lock().retain(|place, _| place.region != region);
    }

    /// Forgets all other databases: they are gone.
    fn retain(&self, places: &[Place]) {
        self.kept.lock().retain(|place, _| places.contains(place));
        self.looked.lock().retain(|place, _| places.contains(place));
    }

    /// Whether a database that was small, or not looked at yet, may be large by now.
    fn may_have_grown(&self, region: &Region, index: u64) -> bool {
        let (place, changes) = (Place::of(region, index), region.changes());
        let mut looked = self.looked.lock();
        match looked.get(&place) {
            // They begin again where a region comes back.
            Some(before)
                if changes
                    .checked_sub(*before)
                    .is_some_and(|new| new < MANY_CHANGES) =>
            {
                false
            }
            _ => {
                looked.insert(place, changes);
                true
            }
        }
    }

    /// Where to count next in a large database; `None` if little has changed since the last round.
    fn next_run(&self, place: Place) -> Option<u16> {
        let changes = self.changes();
        let mut kept = self.kept.lock();
        let kept = kept.get_mut(&place)?;
        if kept.round.next == kept.slots.start {
            if (changes - kept.round.began_at).saturating_mul(NOTICEABLE) <= kept.total.keys {
                return None;
            }
            kept.round = Round::begin(kept.slots.start, changes);
        }
        Some(kept.round.next)
    }

    fn keep_run(&self, place: Place, run: Run) -> bool {
        let mut kept = self.kept.lock();
        kept.get_mut(&place).is_some_and(|kept| kept.add(run))
    }
}

/// The database is being counted in full for as long as this exists.
struct UnderWay<'c> {
    counts: &'c Counts,
    place: Place,
}

impl<'c> UnderWay<'c> {
    /// `None`, after waiting, if someone else was at it.
    fn enter(counts: &'c Counts, place: Place) -> Option<Self> {
        let mut under_way = counts.under_way.lock();
        if under_way.insert(place) {
            return Some(UnderWay { counts, place });
        }
        while under_way.contains(&place) {
            counts.counted.wait(&mut under_way);
        }
        None
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.counts.under_way.lock().remove(&self.place);
        self.counts.counted.notify_all();
    }
}
