//! The expirer: deletes what is due.
//!
//! Expired keys are invisible at once, whatever this module does; here they are removed. The `expiry`
//! rows lie in time order, so what is due is at the front. Each is checked against the key's metadata
//! under the key's latch (a plain SET leaves the old row behind, so a row may be stale), and goes in an
//! ordinary batch together with the key. One walk over the index serves many batches: what it finds is checked
//! when its turn comes.
//!
//! A row may also be about fields of a hash: its metadata has the same time, and says of which version it is. Which fields
//! are due is told by rows of the hash itself ([`fields`]).
//!
//! One walk serves all regions: what it finds is sorted by them, and there is a batch for each. Rows of regions that
//! another node leads are passed over; that node deals with them. So are those of a region in which nothing comes to its end, since too
//! few of its replicas are there: a thread of its own waits for its last batch, and the others go on.
//!
//! The batch that leaves nothing due behind in its region also raises the region's watermark: everything that was due
//! before it has been dealt with. The compaction filters need that, since they never read a clock.

mod batch;
mod fields;
mod round;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cairn_encoding::row::{self, RowKey};
use cairn_engine::{EngineError, Family, Rows};
use parking_lot::Mutex;

use crate::effects::{Effect, EventClass};
use crate::error::Result;
use crate::key::Key;
use crate::store::Store;
use crate::txn::WriteTxn;
use batch::{Batch, Committed};
use round::{Place, Round};

/// What the expirer has done, and whether it may.
#[derive(Default)]
pub struct Expirer {
    expired_keys: AtomicU64,
    expired_fields: AtomicU64,
    stale_rows: AtomicU64,
    is_paused: AtomicBool,
    /// It may not work before this moment.
    rests_until: Mutex<Option<Instant>>,
    /// Held while a batch is dealt with.
    place: Mutex<Place>,
    /// How far it had got with the last one, for those who do not wait for the next.
    reached: Mutex<Vec<u8>>,
    /// What has been passed over may be for this node to deal with by now.
    looks_back: AtomicBool,
    /// The regions whose last batch takes its time, and is waited for elsewhere.
    held_up: Mutex<BTreeSet<u64>>,
}

impl Expirer {
    /// Keys deleted because they were due.
    pub fn expired_keys(&self) -> u64 {
        self.expired_keys.load(Ordering::Relaxed)
    }

    /// Fields of hashes deleted because they were due.
    pub fn expired_fields(&self) -> u64 {
        self.expired_fields.load(Ordering::Relaxed)
    }

    /// Index rows dropped because their key had changed.
    pub fn stale_rows(&self) -> u64 {
        self.stale_rows.load(Ordering::Relaxed)
    }

    /// CLIENT PAUSE: nothing is deleted before this moment.
    pub fn rest_until(&self, moment: Option<Instant>) {
        *self.rests_until.lock() = moment;
    }

    /// Begins again with what has been due for longest.
    pub(crate) fn look_back(&self) {
        self.looks_back.store(true, Ordering::Relaxed);
    }

    fn may_work(&self) -> bool {
        let rests_until = *self.rests_until.lock();
        !self.is_paused.load(Ordering::Relaxed)
            && rests_until.is_none_or(|moment| Instant::now() >= moment)
    }

    /// DEBUG SET-ACTIVE-EXPIRE.
    pub fn pause(&self, is_paused: bool) {
        self.is_paused.store(is_paused, Ordering::Relaxed);
    }
}

/// Whether there is more to do at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    Idle,
    More {
        /// What was dealt with last had been due for so long.
        lag: Duration,
        /// How much of the time was no work: rows had to be drained, others held a latch or, in a cluster, had to agree.
        waited: Duration,
    },
}

impl Store {
    /// Deals with at most `limit` rows that are due.
    pub fn expire_some(self: &Arc<Self>, limit: usize) -> Result<Progress> {
        let expirer = self.expirer();
        let mut place = expirer.place.lock();
        if expirer.looks_back.swap(false, Ordering::Relaxed) {
            *place = Place::default();
        }
        let may_work = expirer.may_work();
        let progress = match may_work {
            true => self.expire_next(&mut place, limit),
            false => Ok(Progress::Idle),
        };
        if !may_work || progress.is_err() {
            // What was begun, or taken out, is found again from the beginning.
            *place = Place::default();
        }
        expirer.reached.lock().clone_from(place.reached());
        progress
    }

    fn expire_next(self: &Arc<Self>, place: &mut Place, limit: usize) -> Result<Progress> {
        let started = Instant::now();
        place.forget_old();
        let goes_on = place.round.is_some();
        let mut round = match place.round.take() {
            Some(round) => round,
            None => self.begin_round(place),
        };
        if round.since.elapsed() > OLD {
            round.walk = self.due_rows(&place.after, round.until_ms);
            round.since = Instant::now();
        }
        let mut due = round.take(limit)?;
        let last_walked = round.last_walked.take();
        let has_work = goes_on || !due.is_empty() || !round.is_over();
        if !has_work && round.rising(self.is_replicated()).next().is_none() {
            place.after = last_walked.unwrap_or_else(|| std::mem::take(&mut place.after));
            return Ok(Progress::Idle);
        }
        place.round = Some(round);
        self.make_ready_for_fields(place, &due);
        let mut waited = started.elapsed();
        due.sort_by_key(|due| due.led);
        let mut batches: Vec<Batch> = Vec::new();
        for due in due.chunk_by(|one, next| one.led == next.led) {
            let mut batch = Batch::begin(self, &due[0].region, due[0].led);
            // The first row is waited for, while nothing is held.
            if batches.is_empty() {
                waited += batch.wait_for(&due[0]);
            }
            batch.gather(place, due, limit)?;
            batches.push(batch);
        }
        let is_last = place.round.as_ref().is_none_or(Round::is_over);
        if is_last && let Some(round) = &place.round {
            self.raise_watermarks(round, &mut batches);
        }
        let last_ms = batches.iter().filter_map(|batch| batch.last_ms).max();
        waited += self.commit_batches(place, batches)?;
        // While there is more ahead, what was skipped lies behind; then it comes first.
        if is_last {
            place.round = None;
        }
        let skipped = place.skipped.take_if(|_| is_last);
        if let Some(after) = skipped.or(last_walked) {
            place.after = after;
        }
        let now_ms = self.clock().now_ms();
        Ok(match last_ms {
            Some(at_ms) if !is_last => Progress::More {
                lag: Duration::from_millis(now_ms.saturating_sub(at_ms)),
                waited,
            },
            // What lies behind the rows that were passed over may have waited for long.
            None if !is_last && due.is_empty() => Progress::More {
                lag: Duration::ZERO,
                waited,
            },
            _ => Progress::Idle,
        })
    }

    /// The round ends with these batches.
    fn raise_watermarks(self: &Arc<Self>, round: &Round, batches: &mut Vec<Batch>) {
        for (number, led) in round.rising(self.is_replicated()) {
            let made = batches.iter().position(|batch| batch.led == number);
            let at = made.unwrap_or_else(|| {
                batches.push(Batch::begin(self, &led.region, number));
                batches.len() - 1
            });
            batches[at].raise_watermark(round.until_ms);
        }
    }

    /// Commits the batches of all regions together. What belongs to a region that is not led any more is for whoever
    /// leads it. Returns how long it had to wait for other nodes.
    fn commit_batches(
        self: &Arc<Self>,
        place: &mut Place,
        batches: Vec<Batch>,
    ) -> Result<Duration> {
        let started = Instant::now();
        let begun: Vec<_> = batches
            .into_iter()
            .map(|batch| batch.commit(self))
            .collect();
        let mut failed: Result<()> = Ok(());
        for mut committed in begun {
            let led = committed.led;
            let left = MOST_WAIT.saturating_sub(started.elapsed());
            let ended = match self.is_replicated() {
                true => committed.end_within(self, left),
                false => {
                    failed = failed.and(committed.finish(self).map_err(Into::into));
                    continue;
                }
            };
            match ended {
                Some(Ok(())) => {}
                Some(Err(
                    EngineError::NotLeading | EngineError::Outdated | EngineError::InDoubt,
                )) => place.fall_behind(led),
                Some(Err(error)) => failed = Err(error.into()),
                None => {
                    place.hold_up(led);
                    self.wait_elsewhere(committed);
                }
            }
        }
        failed?;
        Ok(match self.is_replicated() {
            true => started.elapsed(),
            false => Duration::ZERO,
        })
    }

    /// Waits for the end of a batch on a thread of its own, where its latches are let go. Then what was passed over meanwhile is
    /// looked for.
    fn wait_elsewhere(self: &Arc<Self>, late: Committed) {
        let (store, region) = (self.clone(), late.region.id());
        self.expirer().held_up.lock().insert(region);
        std::thread::spawn(move || {
            // Whoever leads the region by then deals with what is left.
            let _ = late.finish(&store);
            store.expirer().held_up.lock().remove(&region);
            store.expirer().look_back();
        });
    }

    fn begin_round(&self, place: &mut Place) -> Round {
        if place.since.is_none_or(|since| since.elapsed() > LOOK_BACK) {
            *place = Place::beginning();
        }
        let until_ms = self.clock().now_ms();
        let walk = self.due_rows(&place.after, until_ms);
        let held_up = self.expirer().held_up.lock().clone();
        Round::begin(self.regions(), &held_up, walk, until_ms)
    }

    /// A walk over what is due and lies behind `from`.
    fn due_rows(&self, from: &[u8], now_ms: u64) -> Rows {
        let (from, upper) = due_range(from, now_ms);
        self.engine().background_rows(Family::Expiry, &from, &upper)
    }

    /// The same over what the expirer has left, for who asks how much that is, and waits for nobody.
    pub(crate) fn left_due(&self, now_ms: u64) -> Rows {
        let reached = self.expirer().reached.lock().clone();
        let (from, upper) = due_range(&reached, now_ms);
        self.engine()
            .passing_rows(None, Family::Expiry, &from, &upper)
    }
}

/// The bounds of what is due from a row on.
fn due_range(from: &[u8], now_ms: u64) -> (Vec<u8>, Vec<u8>) {
    let mut upper = Vec::new();
    row::expiry_prefix(&mut upper, now_ms);
    (from.min(&upper).to_vec(), upper)
}

/// How often to look from the beginning again, although what lies there has been dealt with: a row may
/// come late, written by a command that began before its time was up.
const LOOK_BACK: Duration = Duration::from_secs(10);

/// For how long all regions wait for the slowest. A majority answers within milliseconds.
const MOST_WAIT: Duration = Duration::from_millis(500);

/// A walk pins files, and memory: one that is so old is opened anew.
const OLD: Duration = Duration::from_secs(10);

/// What a row of `expiry` is about.
pub(crate) struct DueRow {
    pub(crate) at_ms: u64,
    pub(crate) key: Key,
    /// Of the hash, if it is about fields.
    pub(crate) version: Option<u64>,
}

impl DueRow {
    pub(crate) fn decode(row: &[u8]) -> Option<DueRow> {
        let (at_ms, index, key, version) = match RowKey::decode_expiry(row).ok()? {
            RowKey::Expiry { at_ms, index, key } => (at_ms, index, key, None),
            RowKey::FieldsExpiry {
                at_ms,
                index,
                key,
                version,
            } => (at_ms, index, key, Some(version)),
            _ => return None,
        };
        Some(DueRow {
            at_ms,
            key: Key::new(index, key),
            version,
        })
    }
}

/// Has those told who want to know that a key has expired.
fn tell(txn: &mut WriteTxn, key: &Key) {
    if txn.store().listeners().hear(EventClass::Expired) {
        txn.notify_of(EventClass::Expired, "expired", key);
    }
    tell_outdated(txn, key);
    tell_gone(txn, key);
}

/// The same of those who keep copies of it.
pub(crate) fn tell_outdated(txn: &mut WriteTxn, key: &Key) {
    if txn.store().listeners().are_kept() {
        let (key, by) = (key.name().into(), None);
        txn.add_effect(Effect::Outdated { key, by });
    }
}

/// The same of those who wait for it, or follow.
fn tell_gone(txn: &mut WriteTxn, key: &Key) {
    let listeners = txn.store().listeners();
    if (listeners.depend() || listeners.are_followed())
        && let Some(database) = txn.database_of(key)
    {
        let key = key.name().into();
        txn.add_effect(Effect::Expired { database, key });
    }
}

#[cfg(test)]
mod tests;
