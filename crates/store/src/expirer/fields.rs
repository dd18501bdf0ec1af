//! Fields of hashes that are due.
//!
//! There is one index row for a hash, at the time of the field that is due first, or earlier. What is due is found in
//! the hash's own rows by time, so a hash that is deleted leaves no more than that one row behind. Fields are deleted
//! in batches; after each the index row stands at the time of the field that is next, in its place among all others.
//!
//! Everything is done under the key's latch, which somebody else may have between two batches. One walk serves many of them
//! ([`DueWalk`]), however much is written to the hash meanwhile.

use std::sync::Arc;
use std::time::Instant;

use cairn_engine::Family;

use super::round::{Due, Place};
use super::{DueRow, OLD, tell_outdated};
use crate::collection::Collection;
use crate::effects::{Effect, EventClass};
use crate::error::Result;
use crate::hash::{DueWalk, Removed};
use crate::key::Key;
use crate::store::Store;
use crate::txn::WriteTxn;

/// An index row about the fields of a hash, whose latch is held.
pub(super) struct DueHash<'r> {
    pub(super) row: &'r [u8],
    pub(super) key: Key,
    pub(super) version: u64,
    pub(super) at_ms: u64,
}

/// A hash of which more is due than a batch has taken.
pub(super) struct Begun {
    metadata_key: Vec<u8>,
    version: u64,
    walk: DueWalk,
    since: Instant,
}

/// How many hashes are begun at a time. Their fields are taken in the order of time, so a batch of one comes between
/// batches of another.
const MOST_BEGUN: usize = 16;

#[derive(Default)]
pub(super) struct Dealt {
    pub(super) expired: u64,
    pub(super) stale_rows: u64,
}

/// A walk does not look at more young rows of a hash under its latch.
const MANY_YOUNG: usize = 16 * 1024;

impl Store {
    /// Has the young rows of hashes drained, if they are many, while nobody waits for a latch.
    pub(super) fn make_ready_for_fields(&self, place: &Place, due: &[Due]) {
        let engine = self.engine();
        for due in due {
            if let DueRow {
                key,
                version: Some(version),
                ..
            } = &due.about
                && !place.begun.iter().any(|begun| begun.is_of(key, *version))
            {
                let (lower, upper) = key.version_range(*version);
                if engine.before_walk(Family::ZsetScore, &lower, &upper) > MANY_YOUNG {
                    drop(engine.background_rows(Family::ZsetScore, &lower, &upper));
                }
            }
        }
    }

    /// Deletes what is due of these hashes, no more than `limit` fields. Those that have to wait are
    /// dealt with next.
    pub(super) fn expire_fields(
        self: &Arc<Self>,
        txn: &mut WriteTxn,
        place: &mut Place,
        hashes: &[DueHash<'_>],
        limit: usize,
    ) -> Result<Dealt> {
        let mut dealt = Dealt::default();
        let mut seen: Vec<&[u8]> = Vec::new();
        for hash in hashes {
            let left = limit.saturating_sub(dealt.expired as usize);
            // A second row about the same hash may have become the true one by what was done about the first.
            if left == 0 || seen.contains(&hash.key.metadata()) {
                place.put_back(hash.row.to_vec());
                continue;
            }
            seen.push(hash.key.metadata());
            let Some(mut collection) = living(txn, hash)? else {
                txn.delete(Family::Expiry, hash.row);
                dealt.stale_rows += 1;
                continue;
            };
            let mut begun = match place.take_begun(hash) {
                Some(begun) => begun,
                None => self.begin_hash(txn, &collection, hash)?,
            };
            let due = begun.walk.take(txn, &collection, left)?;
            let removed = due.remove(txn, &mut collection)?;
            dealt.expired += removed.count;
            let is_emptied = collection.is_empty();
            if let Some(fields) = collection.fields().filter(|_| !is_emptied) {
                if fields.first_ms < txn.now_ms() {
                    let row = hash.key.fields_expiry(fields.first_ms, hash.version);
                    place.put_back(row.to_vec());
                }
                place.keep_begun(begun);
            }
            collection.save(txn);
            tell(txn, &hash.key, removed, is_emptied);
        }
        Ok(dealt)
    }

    fn begin_hash(
        &self,
        txn: &WriteTxn,
        collection: &Collection,
        hash: &DueHash<'_>,
    ) -> Result<Begun> {
        let open = |lower: &[u8], upper: &[u8]| {
            self.engine()
                .passing_rows(None, Family::ZsetScore, lower, upper)
        };
        Ok(Begun {
            metadata_key: hash.key.metadata().to_vec(),
            version: hash.version,
            walk: DueWalk::open(collection, hash.at_ms, txn.now_ms(), open)?,
            since: Instant::now(),
        })
    }
}

impl Begun {
    #[cfg(test)]
    pub(super) fn since(&self) -> Instant {
        self.since
    }

    fn is_of(&self, key: &Key, version: u64) -> bool {
        self.metadata_key == key.metadata() && self.version == version
    }
}

impl Place {
    /// Lets go of walks that are old.
    pub(super) fn forget_old(&mut self) {
        self.begun.retain(|begun| begun.since.elapsed() <= OLD);
    }

    fn take_begun(&mut self, hash: &DueHash<'_>) -> Option<Begun> {
        let is_of = |begun: &Begun| begun.is_of(&hash.key, hash.version);
        let place = self.begun.iter().position(is_of)?;
        Some(self.begun.remove(place))
    }

    /// Those that were not asked for longest go first.
    fn keep_begun(&mut self, begun: Begun) {
        let Some(walk) = begun.walk.keep() else {
            return;
        };
        if self.begun.len() >= MOST_BEGUN {
            self.begun.remove(0);
        }
        self.begun.push(Begun { walk, ..begun });
    }
}

/// The hash that an index row is about, unless it has changed since. One of a database that was flushed may still be in
/// memory, after its rows were dropped: it must not be written again.
fn living(txn: &WriteTxn, hash: &DueHash<'_>) -> Result<Option<Collection>> {
    if txn.database_of(&hash.key).is_none() {
        return Ok(None);
    }
    let stamp = txn
        .find_even_expired(&hash.key)?
        .map(|found| found.stamp())
        .filter(|stamp| stamp.fields_expiry() == Some((hash.at_ms, hash.version)));
    Ok(stamp.and_then(|stamp| Collection::of_stamp(hash.key.clone(), &stamp)))
}

/// Has those told who want to know that fields have expired.
fn tell(txn: &mut WriteTxn, key: &Key, removed: Removed, is_emptied: bool) {
    let Some(last_ms) = removed.last_ms else {
        return;
    };
    if txn.store().listeners().hear(EventClass::Hash) {
        txn.notify_of(EventClass::Hash, "hexpired", key);
    }
    if is_emptied && txn.store().listeners().hear(EventClass::Generic) {
        txn.notify_of(EventClass::Generic, "del", key);
    }
    if let Some(database) = txn.database_of(key) {
        txn.add_effect(Effect::FieldsExpired {
            database,
            key: key.name().into(),
            last_ms,
        });
        if !removed.fields.is_empty() {
            txn.add_effect(Effect::FieldsGone {
                database,
                key: key.name().into(),
                fields: removed.fields,
            });
        }
    }
    tell_outdated(txn, key);
}
