//! What the expirer deletes at once in one region.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cairn_encoding::metadata::has_expired;
use cairn_encoding::system::{SystemKey, value};
use cairn_engine::{EngineError, Family, Value};

use super::fields::{Dealt, DueHash};
use super::round::{Due, Place};
use super::{Expirer, tell};
use crate::commit::Begun;
use crate::error::Result;
use crate::key::Key;
use crate::latch::{Held, Mode, Request};
use crate::region::Region;
use crate::store::Store;
use crate::txn::{Found, Patience, Row, Stamp, WriteTxn};

/// For how long a latch is waited for. Who works on a key without pause lets go of it more often; who holds it for longer
/// does one long thing.
const MOST_WAIT: Duration = Duration::from_millis(5);

pub(super) struct Batch {
    /// Which of the regions of the round it is about.
    pub(super) led: usize,
    txn: WriteTxn,
    held: Held,
    /// The latest time of what it has found due.
    pub(super) last_ms: Option<u64>,
    expired: u64,
    stale: u64,
    fields: Dealt,
    watermark_ms: Option<u64>,
}

/// A batch whose commit was begun. The latches are held until it has ended.
pub(super) struct Committed {
    pub(super) led: usize,
    pub(super) region: Arc<Region>,
    begun: Begun,
    _held: Held,
    done: Done,
}

/// What is to be noted once a batch is committed.
struct Done {
    expired: u64,
    fields: u64,
    stale: u64,
    watermark_ms: Option<u64>,
}

impl Batch {
    pub(super) fn begin(store: &Arc<Store>, region: &Arc<Region>, led: usize) -> Batch {
        Batch {
            led,
            txn: WriteTxn::new(store.clone(), region.clone(), Patience::Background),
            held: store.latches().none(),
            last_ms: None,
            expired: 0,
            stale: 0,
            fields: Dealt::default(),
            watermark_ms: None,
        }
    }

    /// Waits for the latch of what comes first, with nothing held, for a while; tells for how long.
    pub(super) fn wait_for(&mut self, first: &Due) -> Duration {
        let request = request(first);
        if self.held.try_extend(&request) {
            return Duration::ZERO;
        }
        let started = Instant::now();
        let latches = self.txn.store().latches();
        if let Some(granted) = latches.acquire_within(request, MOST_WAIT) {
            self.held = granted;
        }
        started.elapsed()
    }

    /// Deletes what is due, as far as its latches are free.
    pub(super) fn gather(&mut self, place: &mut Place, due: &[Due], limit: usize) -> Result<()> {
        let (mut rows, mut hashes) = (Vec::new(), Vec::new());
        for due in due {
            // Keys that others work on are left for the next time, since nobody may wait while holding a latch. Then
            // they are the first, and get their turn however busy they are.
            let about = &due.about;
            if !self.held.try_extend(&request(due)) {
                place.skip(due);
                continue;
            }
            self.last_ms = self.last_ms.max(Some(about.at_ms));
            match about.version {
                Some(version) => hashes.push(DueHash {
                    row: &due.row,
                    key: about.key.clone(),
                    version,
                    at_ms: about.at_ms,
                }),
                None => rows.push(due),
            }
        }
        // Sampled anew: who has held one of these latches before did so with a time that is not later.
        self.txn.sample_time();
        self.remove_keys(&rows)?;
        // Second, for a key may be gone by now.
        let store = self.txn.store().clone();
        self.fields = store.expire_fields(&mut self.txn, place, &hashes, limit)?;
        Ok(())
    }

    fn remove_keys(&mut self, rows: &[&Due]) -> Result<()> {
        let txn = &mut self.txn;
        let keys: Vec<&Key> = rows.iter().map(|due| &due.about.key).collect();
        let stamps = stamps(txn, &keys)?;
        for (due, stamp) in rows.iter().zip(stamps) {
            // Not if the key has changed since the row was written.
            let (key, at_ms) = (&due.about.key, due.about.at_ms);
            let is_due =
                |stamp: &Stamp| stamp.expire_ms == at_ms && has_expired(at_ms, txn.now_ms());
            if let Some(stamp) = stamp.filter(is_due) {
                txn.remove(key, &stamp);
                tell(txn, key);
                self.expired += 1;
            } else {
                self.stale += 1;
            }
            txn.delete(Family::Expiry, &due.row);
        }
        Ok(())
    }

    /// Everything that was due before has been dealt with once this is committed.
    pub(super) fn raise_watermark(&mut self, until_ms: u64) {
        let region = self.txn.region().id();
        let row = SystemKey::Watermark { region }.encode();
        self.txn
            .put(Family::Meta, &row, value::encode_watermark(until_ms));
        self.watermark_ms = Some(until_ms);
    }

    pub(super) fn commit(mut self, store: &Store) -> Committed {
        Committed {
            led: self.led,
            region: self.txn.region().clone(),
            begun: store.begin_commit(&mut self.txn),
            _held: self.held,
            done: Done {
                expired: self.expired,
                fields: self.fields.expired,
                stale: self.stale + self.fields.stale_rows,
                watermark_ms: self.watermark_ms,
            },
        }
    }
}

impl Committed {
    /// Waits for the end of the commit, for so long at most; none if it takes longer. The latches are held.
    pub(super) fn end_within(
        &mut self,
        store: &Store,
        limit: Duration,
    ) -> Option<Result<(), EngineError>> {
        let ended = match &mut self.begun {
            Begun::Done(result) => result.clone(),
            Begun::Pending(commit) => commit.wait_within(store, limit)?,
        };
        Some(ended.inspect(|()| self.done.note(store.expirer(), &self.region)))
    }

    /// The same, for as long as it takes, and lets go of the latches.
    pub(super) fn finish(self, store: &Store) -> Result<(), EngineError> {
        match self.begun {
            Begun::Done(result) => result?,
            Begun::Pending(commit) => commit.wait(store)?,
        }
        self.done.note(store.expirer(), &self.region);
        Ok(())
    }
}

impl Done {
    fn note(&self, expirer: &Expirer, region: &Region) {
        let add = |counter: &AtomicU64, count: u64| {
            counter.fetch_add(count, Ordering::Relaxed);
        };
        add(&expirer.expired_keys, self.expired);
        add(&expirer.expired_fields, self.fields);
        add(&expirer.stale_rows, self.stale);
        if let Some(watermark_ms) = self.watermark_ms {
            region.note_raised(watermark_ms);
        }
    }
}

/// The latch of what is due.
fn request(due: &Due) -> Request {
    let mut request = Request::default();
    request.add(due.about.key.name(), Mode::Exclusive);
    request
}

/// What each of the keys is now, expired or not.
fn stamps(txn: &WriteTxn, keys: &[&Key]) -> Result<Vec<Option<Stamp>>> {
    let store = txn.store();
    let names: Vec<&[u8]> = keys.iter().map(|key| key.metadata()).collect();
    let found = store
        .engine()
        .get_many_quietly(Family::Metadata, &names)?
        .into_iter()
        .zip(keys);
    let stamp = |(row, key): (Option<Value<'_>>, &&Key)| match row {
        Some(value) => Ok(Some(Found::of_metadata(Row::Stored(value))?.stamp())),
        // It may lie in the old format.
        None if store.may_have_legacy() => {
            Ok(txn.find_even_expired(key)?.map(|found| found.stamp()))
        }
        None => Ok(None),
    };
    found.map(stamp).collect()
}
