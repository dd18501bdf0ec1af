//! The expirer: deletes what is due.
//!
//! Expired keys are invisible at once, whatever this module does; here they are removed. The `expiry`
//! rows lie in time order, so what is due is at the front. Each is checked against the key's metadata
//! under the key's latch (a plain SET leaves the old row behind, so a row may be stale), and goes in an
//! ordinary batch together with the key.
//!
//! A batch that leaves nothing due behind also raises the watermark: everything that was due before it
//! has been dealt with. The compaction filters need that, since they never read a clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cairn_encoding::metadata::has_expired;
use cairn_encoding::row::{self, RowKey};
use cairn_encoding::system::{SystemKey, value};
use cairn_engine::{Family, LOCAL_REGION};
use parking_lot::Mutex;

use crate::error::Result;
use crate::key::Key;
use crate::latch::{Mode, Request};
use crate::store::Store;
use crate::txn::{Patience, WriteTxn};

/// What the expirer has done, and whether it may.
#[derive(Default)]
pub struct Expirer {
    expired_keys: AtomicU64,
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
    More,
}

impl Store {
    /// Deals with at most `limit` rows that are due.
    pub fn expire_some(self: &Arc<Self>, limit: usize) -> Result<Progress> {
        let expirer = self.expirer();
        if !expirer.may_work() {
            return Ok(Progress::Idle);
        }
        let mut place = expirer.place.lock();
        if place.since.is_none_or(|since| since.elapsed() > LOOK_BACK) {
            *place = Place::beginning();
        }
        let now_ms = self.clock().now_ms();
        let due = self.due_rows(&place.after, now_ms, limit)?;
        let Some(last) = due.last() else {
            return Ok(Progress::Idle);
        };
        // Keys that others work on are left for the next time: nobody shall wait for the expirer.
        let mut held = self.latches().none();
        let mut skipped = None;
        let mut txn = WriteTxn::new(self.clone(), Patience::Background);
        let (mut expired, mut dealt_with) = (0, 0);
        for row in &due {
            let Ok(RowKey::Expiry { at_ms, index, key }) = RowKey::decode_expiry(row) else {
                tracing::error!("an expiry row cannot be read, and is left alone: {row:?}");
                continue;
            };
            let mut request = Request::default();
            request.add(key, Mode::Exclusive);
            if !held.try_extend(&request) {
                skipped = skipped.or(Some(row));
                continue;
            }
            expired += u64::from(expire(&mut txn, &Key::new(index, key), at_ms)?);
            txn.delete(Family::Expiry, row);
            dealt_with += 1;
        }
        let is_last = due.len() < limit;
        if is_last && skipped.is_none() {
            txn.put(
                Family::Meta,
                &SystemKey::Watermark {
                    region: LOCAL_REGION,
                }
                .encode(),
                value::encode_watermark(now_ms),
            );
        }
        self.commit_blocking(&mut txn)?;
        expirer.expired_keys.fetch_add(expired, Ordering::Relaxed);
        expirer
            .stale_rows
            .fetch_add(dealt_with - expired, Ordering::Relaxed);
        place.after = skipped.unwrap_or(last).clone();
        Ok(if is_last {
            Progress::Idle
        } else {
            Progress::More
        })
    }

    pub(crate) fn due_rows(&self, from: &[u8], now_ms: u64, limit: usize) -> Result<Vec<Vec<u8>>> {
        let mut upper = Vec::new();
        row::expiry_prefix(&mut upper, now_ms);
        if from >= upper.as_slice() {
            return Ok(Vec::new());
        }
        let mut rows = self.engine().background_rows(Family::Expiry, from, &upper);
        let mut due = Vec::new();
        while due.len() < limit
            && let Some((row, _)) = rows.next()?
        {
            due.push(row.to_vec());
        }
        Ok(due)
    }
}

/// How often to look from the beginning again, although what lies there has been dealt with: a row may
/// come late, written by a command that began before its time was up.
const LOOK_BACK: Duration = Duration::from_secs(10);

/// Where the expirer has got to. Walking from the beginning each time would mean to step over the
/// remains of everything that was deleted before.
#[derive(Default)]
struct Place {
    after: Vec<u8>,
    since: Option<Instant>,
}

impl Place {
    fn beginning() -> Place {
        let mut after = Vec::new();
        row::expiry_prefix(&mut after, 0);
        Place {
            after,
            since: Some(Instant::now()),
        }
    }
}

/// Deletes the key if it is due by the row that says so.
fn expire(txn: &mut WriteTxn, key: &Key, at_ms: u64) -> Result<bool> {
    let stamp = match txn.find_even_expired(key)? {
        Some(found) if found.expire_ms == at_ms && has_expired(at_ms, txn.now_ms()) => {
            found.stamp()
        }
        _ => return Ok(false),
    };
    txn.remove(key, &stamp);
    Ok(true)
}
