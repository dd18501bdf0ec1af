//! Fields of hashes that are due.
//!
//! There is one index row for a hash, at the time of the field that is due first, or earlier. What is due is found in
//! the hash's own rows by time, so a hash that is deleted leaves no more than that one row behind. Fields are deleted
//! in batches; after each the index row stands at the time of the field that is next, in its place among all others.
//!
//! Everything is done under the key's latch. A time that somebody else sets is later than the moment at which the latch
//! was taken before, so behind the place where a batch has ended there is never anything new.

use std::sync::Arc;

use cairn_encoding::metadata::{Body, Metadata};
use cairn_engine::{Direction, Family, Rows};

use super::round::{Due, Place};
use super::{DueRow, tell_outdated};
use crate::collection::Collection;
use crate::effects::{Effect, EventClass};
use crate::error::Result;
use crate::hash::{DueFields, Removed};
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

/// Where a batch has ended in a hash of which more is due: the deleted rows before it need not be passed again.
pub(super) struct Begun {
    metadata_key: Vec<u8>,
    version: u64,
    /// The row by time that comes next.
    next: Vec<u8>,
}

#[derive(Default)]
pub(super) struct Dealt {
    pub(super) expired: u64,
    pub(super) stale_rows: u64,
}

/// Of a hash with more fields that expire, rows are read as background work does: if many are young, they are
/// drained first.
const FEW: u64 = 1024;

impl Store {
    /// Has the young rows of large hashes drained while nobody waits for a latch.
    pub(super) fn make_ready_for_fields(&self, due: &[Due]) -> Result<()> {
        for DueRow { key, .. } in due
            .iter()
            .map(|due| &due.about)
            .filter(|about| about.version.is_some())
        {
            let stored = self
                .engine()
                .get_quietly(Family::Metadata, key.metadata())?;
            let body = match &stored {
                Some(value) => Some(Metadata::decode(value)?.body),
                None => None,
            };
            if let Some(Body::Collection {
                version,
                fields: Some(fields),
                ..
            }) = body
                && fields.count > FEW
            {
                let (lower, upper) = key.version_range(version);
                drop(self.background_times(&lower, &upper));
            }
        }
        Ok(())
    }

    /// Deletes what is due of these hashes, no more than `limit` fields. Those that have to wait are
    /// dealt with next.
    pub(super) fn expire_fields(
        self: &Arc<Self>,
        txn: &mut WriteTxn,
        place: &mut Place,
        hashes: Vec<DueHash<'_>>,
        limit: usize,
    ) -> Result<Dealt> {
        let mut dealt = Dealt::default();
        for hash in hashes {
            let left = limit.saturating_sub(dealt.expired as usize);
            if left == 0 {
                place.put_back(hash.row.to_vec());
                continue;
            }
            let Some(mut collection) = living(txn, &hash)? else {
                txn.delete(Family::Expiry, hash.row);
                dealt.stale_rows += 1;
                continue;
            };
            let begun = place.begun.take_if(|begun| begun.is_of(&hash));
            let removed = self.remove_due(txn, &mut collection, begun, left)?;
            dealt.expired += removed.count;
            let is_emptied = collection.is_empty();
            collection.save(txn);
            tell(txn, &hash.key, &removed, is_emptied);
            if let Some((next, at_ms)) = removed.next
                && removed.count > 0
                && at_ms < txn.now_ms()
            {
                place.put_back(hash.key.fields_expiry(at_ms, hash.version).to_vec());
                place.begun = Some(Begun {
                    metadata_key: hash.key.metadata().to_vec(),
                    version: hash.version,
                    next,
                });
            }
        }
        Ok(dealt)
    }

    fn remove_due(
        &self,
        txn: &mut WriteTxn,
        hash: &mut Collection,
        begun: Option<Begun>,
        limit: usize,
    ) -> Result<Removed> {
        let Some(fields) = hash.fields() else {
            return Ok(Removed::nothing());
        };
        let from = begun.as_ref().map(|begun| begun.next.as_slice());
        let open = |lower: &[u8], upper: &[u8]| match fields.count > FEW {
            true => self.background_times(lower, upper),
            false => txn.rows(Family::ZsetScore, lower, upper, Direction::Forward),
        };
        let due = DueFields::read(hash, fields, from, txn.now_ms(), limit, open)?;
        due.remove(txn, hash)
    }

    fn background_times(&self, lower: &[u8], upper: &[u8]) -> Rows {
        self.engine()
            .background_rows(Family::ZsetScore, lower, upper)
    }
}

impl Begun {
    fn is_of(&self, hash: &DueHash<'_>) -> bool {
        self.metadata_key == hash.key.metadata() && self.version == hash.version
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
fn tell(txn: &mut WriteTxn, key: &Key, removed: &Removed, is_emptied: bool) {
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
    }
    tell_outdated(txn, key);
}
