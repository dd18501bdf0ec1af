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
//! A batch that leaves nothing due behind also raises the watermark: everything that was due before it
//! has been dealt with. The compaction filters need that, since they never read a clock.

mod fields;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cairn_encoding::metadata::has_expired;
use cairn_encoding::row::{self, RowKey};
use cairn_encoding::system::{SystemKey, value};
use cairn_engine::{Family, LOCAL_REGION, Rows, Value};
use parking_lot::Mutex;

use crate::effects::{Effect, EventClass};
use crate::error::Result;
use crate::key::Key;
use crate::latch::{Mode, Request};
use crate::store::Store;
use crate::txn::{Found, Patience, Row, Stamp, WriteTxn};
use fields::{Begun, DueHash};

/// What the expirer has done, and whether it may.
#[derive(Default)]
pub struct Expirer {
    expired_keys: AtomicU64,
    expired_fields: AtomicU64,
    stale_rows: AtomicU64,
    is_paused: AtomicBool,
    /// It may not work before this moment.
    rests_until: Mutex<Option<Instant>>,
    place: Mutex<Place>,
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

    /// Everything due lies behind this row, or nearly so: what came late is found by the next look back.
    pub(crate) fn place(&self) -> Vec<u8> {
        self.place.lock().after.clone()
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
    /// What was dealt with last had been due for so long.
    More {
        lag: Duration,
    },
}

impl Store {
    /// Deals with at most `limit` rows that are due.
    pub fn expire_some(self: &Arc<Self>, limit: usize) -> Result<Progress> {
        let expirer = self.expirer();
        let mut place = expirer.place.lock();
        if !expirer.may_work() {
            // What was begun is found again from the beginning.
            *place = Place::default();
            return Ok(Progress::Idle);
        }
        let progress = self.expire_next(&mut place, limit);
        if progress.is_err() {
            // What was taken out is found again from the beginning.
            *place = Place::default();
        }
        progress
    }

    fn expire_next(self: &Arc<Self>, place: &mut Place, limit: usize) -> Result<Progress> {
        let goes_on = place.round.is_some();
        let mut round = match place.round.take() {
            Some(round) => round,
            None => self.begin_round(place),
        };
        if round.since.elapsed() > OLD {
            round.walk = self.due_rows(&place.after, round.until_ms);
            round.since = Instant::now();
        }
        let (due, is_walked) = round.take(limit)?;
        if due.is_empty() && !goes_on {
            return Ok(Progress::Idle);
        }
        let until_ms = round.until_ms;
        place.round = Some(round);
        self.make_ready_for_fields(&due)?;
        let mut held = self.latches().none();
        let mut txn = WriteTxn::new(self.clone(), Patience::Background);
        let (mut rows, mut keys, mut times) = (Vec::new(), Vec::new(), Vec::new());
        let mut hashes = Vec::new();
        for row in &due {
            let Some(DueRow {
                at_ms,
                key,
                version,
            }) = DueRow::decode(row)
            else {
                tracing::error!("an expiry row cannot be read, and is left alone: {row:?}");
                continue;
            };
            // Keys that others work on are left for the next time: nobody shall wait for the expirer.
            let mut request = Request::default();
            request.add(key.name(), Mode::Exclusive);
            if !held.try_extend(&request) {
                place.skip(row);
            } else if let Some(version) = version {
                hashes.push(DueHash {
                    row,
                    key,
                    version,
                    at_ms,
                });
            } else {
                rows.push(row);
                keys.push(key);
                times.push(at_ms);
            }
        }
        // Sampled anew: who has held one of these latches before did so with a time that is not later.
        txn.sample_time();
        let last_ms = hashes
            .iter()
            .map(|hash| hash.at_ms)
            .chain(times.iter().copied())
            .max();
        let mut expired = 0;
        let stamps = stamps(&txn, &keys)?;
        for (number, (key, stamp)) in keys.iter().zip(stamps).enumerate() {
            // Not if the key has changed since the row was written.
            let at_ms = times[number];
            let is_due =
                |stamp: &Stamp| stamp.expire_ms == at_ms && has_expired(at_ms, txn.now_ms());
            if let Some(stamp) = stamp.filter(is_due) {
                txn.remove(key, &stamp);
                tell(&mut txn, key);
                expired += 1;
            }
            txn.delete(Family::Expiry, rows[number]);
        }
        // Second, for a key may be gone by now.
        let fields = self.expire_fields(&mut txn, place, hashes, limit)?;
        let is_last = place.round.as_ref().is_none_or(Round::is_over);
        if is_last && place.skipped.is_none() {
            txn.put(
                Family::Meta,
                &SystemKey::Watermark {
                    region: LOCAL_REGION,
                }
                .encode(),
                value::encode_watermark(until_ms),
            );
        }
        self.commit_blocking(&mut txn)?;
        let expirer = self.expirer();
        expirer.expired_keys.fetch_add(expired, Ordering::Relaxed);
        expirer
            .expired_fields
            .fetch_add(fields.expired, Ordering::Relaxed);
        let stale = rows.len() as u64 - expired + fields.stale_rows;
        expirer.stale_rows.fetch_add(stale, Ordering::Relaxed);
        // While there is more ahead, what was skipped lies behind; then it comes first.
        if is_last {
            place.round = None;
        }
        let skipped = place.skipped.take_if(|_| is_last);
        let last_walked = due.last().filter(|_| is_walked);
        if let Some(after) = skipped.as_ref().or(last_walked) {
            place.after.clone_from(after);
        }
        Ok(match (is_last, last_ms) {
            (false, Some(at_ms)) => Progress::More {
                lag: Duration::from_millis(self.clock().now_ms().saturating_sub(at_ms)),
            },
            _ => Progress::Idle,
        })
    }

    fn begin_round(&self, place: &mut Place) -> Round {
        if place.since.is_none_or(|since| since.elapsed() > LOOK_BACK) {
            *place = Place::beginning();
        }
        let until_ms = self.clock().now_ms();
        Round {
            until_ms,
            walk: self.due_rows(&place.after, until_ms),
            since: Instant::now(),
            is_walked: false,
            returned: BTreeSet::new(),
        }
    }

    /// A walk over what is due and lies behind `from`.
    pub(crate) fn due_rows(&self, from: &[u8], now_ms: u64) -> Rows {
        let mut upper = Vec::new();
        row::expiry_prefix(&mut upper, now_ms);
        let from = from.min(&upper);
        self.engine().background_rows(Family::Expiry, from, &upper)
    }
}

/// How often to look from the beginning again, although what lies there has been dealt with: a row may
/// come late, written by a command that began before its time was up.
const LOOK_BACK: Duration = Duration::from_secs(10);

/// A walk pins files, and memory: one that is so old is opened anew.
const OLD: Duration = Duration::from_secs(10);

/// Where the expirer has got to. Walking from the beginning each time would mean to step over the
/// remains of everything that was deleted before.
#[derive(Default)]
struct Place {
    after: Vec<u8>,
    since: Option<Instant>,
    /// Goes on while there is more of what was due when it began.
    round: Option<Round>,
    /// The first that could not be dealt with since.
    skipped: Option<Vec<u8>>,
    /// The hash of which only a part of what is due has been dealt with.
    begun: Option<Begun>,
}

/// What was due at one moment, and has not been dealt with. One walk serves many batches: to open one means to carry
/// along the young rows of all that was just deleted, or to wait until they are drained.
struct Round {
    until_ms: u64,
    walk: Rows,
    since: Instant,
    /// The walk has come to its end.
    is_walked: bool,
    /// Rows that have to be dealt with again: they are about hashes of which more is due.
    returned: BTreeSet<Vec<u8>>,
}

impl Round {
    /// The next rows, and whether the last of them comes from the walk.
    fn take(&mut self, limit: usize) -> Result<(Vec<Vec<u8>>, bool)> {
        let mut due = Vec::with_capacity(limit);
        while due.len() < limit
            && let Some(row) = self.returned.pop_first()
        {
            due.push(row);
        }
        let returned = due.len();
        while due.len() < limit && !self.is_walked {
            match self.walk.next()? {
                Some((row, _)) => due.push(row.to_vec()),
                None => self.is_walked = true,
            }
        }
        let is_walked = due.len() > returned;
        Ok((due, is_walked))
    }

    fn is_over(&self) -> bool {
        self.is_walked && self.returned.is_empty()
    }
}

impl Place {
    /// A row has to be left for the next round, which begins there at the latest.
    fn skip(&mut self, row: &[u8]) {
        if self.skipped.as_deref().is_none_or(|first| row < first) {
            self.skipped = Some(row.to_vec());
        }
    }

    fn beginning() -> Place {
        let mut after = Vec::new();
        row::expiry_prefix(&mut after, 0);
        Place {
            after,
            since: Some(Instant::now()),
            ..Place::default()
        }
    }
}

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
}

/// The same of those who keep copies of it.
fn tell_outdated(txn: &mut WriteTxn, key: &Key) {
    if txn.store().listeners().are_kept() {
        let (key, by) = (key.name().into(), None);
        txn.add_effect(Effect::Outdated { key, by });
    }
    if txn.store().listeners().depend()
        && let Some(database) = txn.database_of(key)
    {
        let key = key.name().into();
        txn.add_effect(Effect::Expired { database, key });
    }
}

/// What each of the keys is now, expired or not.
fn stamps(txn: &WriteTxn, keys: &[Key]) -> Result<Vec<Option<Stamp>>> {
    let store = txn.store();
    let names: Vec<&[u8]> = keys.iter().map(Key::metadata).collect();
    let found = store
        .engine()
        .get_many_quietly(Family::Metadata, &names)?
        .into_iter()
        .zip(keys);
    let stamp = |(row, key): (Option<Value<'_>>, &Key)| match row {
        Some(value) => Ok(Some(Found::of_metadata(Row::Stored(value))?.stamp())),
        // It may lie in the old format.
        None if store.may_have_legacy() => {
            Ok(txn.find_even_expired(key)?.map(|found| found.stamp()))
        }
        None => Ok(None),
    };
    found.map(stamp).collect()
}
