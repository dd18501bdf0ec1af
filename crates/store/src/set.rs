//! Sets: one row per member, `prefix | version | member → (empty)`.
//!
//! The rows of every set lie in the byte order of their members. So unions, intersections and differences
//! are merges of sorted walks, and never stand in memory ([`Selection`]). Members picked at random are
//! found by their rank, and every member has the same chance: see [`crate::ranks`].

mod algebra;
mod cursor;
mod pop;
mod random;
mod selection;
#[cfg(test)]
mod tests;

use cairn_encoding::metadata::{Body, CollectionKind, Metadata};
use cairn_engine::{Direction, Family, Rows};

pub use algebra::Operation;
pub use pop::Popped;
pub use selection::{Selection, Step};

use crate::collection::Collection;
use crate::effects::EventClass;
use crate::error::Result;
use crate::fresh::Fresh;
use crate::key::Key;
use crate::txn::{ReadTxn, WriteTxn};

pub struct Set(Collection);

impl Set {
    /// Opens the set, absent or not; an error if the key holds something else.
    #[inline]
    pub fn open(txn: &ReadTxn, name: &[u8]) -> Result<Set> {
        Collection::open(txn, name, CollectionKind::Set).map(Set)
    }

    pub fn exists(&self) -> bool {
        self.0.exists()
    }

    pub fn len(&self) -> u64 {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn collection(&self) -> &Collection {
        &self.0
    }

    pub fn contains(&self, txn: &ReadTxn, member: &[u8]) -> Result<bool> {
        self.0.contains(txn, member)
    }

    /// Adds a member; true if it is new.
    pub fn add(&mut self, txn: &mut WriteTxn, member: &[u8]) -> Result<bool> {
        self.0.ensure_version(txn);
        let row_key = self.0.row_key(member);
        if self.0.get_row(txn, &row_key)?.is_some() {
            return Ok(false);
        }
        txn.put_new(Family::Data, &row_key, []);
        self.0.count_in(txn, member)?;
        let queues = txn.store().queues();
        queues.add_member(self.0.key(), self.0.version(), self.len(), member);
        self.0.grow(1);
        Ok(true)
    }

    /// Removes a member; true if it was there.
    pub fn remove(&mut self, txn: &mut WriteTxn, member: &[u8]) -> Result<bool> {
        let was_there = self.delete_row(txn, member)?;
        if was_there {
            let queues = txn.store().queues();
            queues.leave(self.0.key(), self.0.version(), member);
        }
        Ok(was_there)
    }

    /// Deletes a member's row; true if there was one.
    fn delete_row(&mut self, txn: &mut WriteTxn, member: &[u8]) -> Result<bool> {
        if self.is_empty() {
            return Ok(false);
        }
        let row_key = self.0.row_key(member);
        if self.0.get_row(txn, &row_key)?.is_none() {
            return Ok(false);
        }
        txn.delete(Family::Data, &row_key);
        self.0.count_out(txn, member)?;
        self.0.shrink(1);
        Ok(true)
    }

    /// All members in byte order; [`Set::member_of`] reads a row's key.
    pub fn rows(&self, txn: &ReadTxn) -> Result<Rows> {
        self.0.rows(txn, Direction::Forward)
    }

    pub fn member_of<'r>(&self, row_key: &'r [u8]) -> &'r [u8] {
        self.0.sub_of(row_key)
    }

    /// Any member, each with the same chance.
    pub fn random(&self, txn: &ReadTxn) -> Result<Option<Vec<u8>>> {
        let row_key = self.0.any(txn)?;
        Ok(row_key.map(|row_key| self.member_of(&row_key).to_vec()))
    }

    /// Writes the metadata: to be called after the last change.
    #[inline]
    pub fn save(self, txn: &mut WriteTxn) {
        self.0.save(txn);
    }
}

/// Makes the result of an operation the value of a key, whatever that held and even if it is one of the
/// sources. Returns the size of the result; if that is zero, the key is gone.
pub fn store(
    txn: &mut WriteTxn,
    operation: Operation,
    destination: &[u8],
    sources: &[&[u8]],
) -> Result<u64> {
    let key = txn.key(destination);
    let written = Written::write(txn, &key, Selection::of(txn, operation, sources)?)?;
    let replaced = txn.find_even_expired(&key)?.map(|found| found.stamp());
    if let Some(stamp) = replaced {
        txn.remove(&key, &stamp);
    }
    let was_live = replaced.is_some_and(|stamp| txn.is_live(&stamp));
    let size = written.size;
    written.install(txn, &key, 0);
    match (was_live, size) {
        (true, 0) => txn.notify(EventClass::Generic, "del", destination),
        (false, 1..) => txn.notify_new(&key),
        _ => {}
    }
    Ok(size)
}

/// A set that has been written under a version of its own, and that nobody can see yet.
struct Written {
    rows: Fresh,
    version: u64,
    size: u64,
}

impl Written {
    fn write(txn: &WriteTxn, key: &Key, mut members: Selection) -> Result<Written> {
        let version = txn.next_version();
        let mut rows = Fresh::new(key, version);
        let mut size = 0;
        loop {
            txn.step()?;
            match members.step()? {
                Step::Member => {
                    rows.put(txn, Family::Data, &key.data(version, members.member()), [])?;
                    size += 1;
                }
                Step::Onward => {}
                Step::End => break,
            }
        }
        Ok(Written {
            rows,
            version,
            size,
        })
    }

    /// Makes it the value of the key, unless it is empty. `expire_ms` is the expiry that the key has, and
    /// keeps.
    fn install(self, txn: &mut WriteTxn, key: &Key, expire_ms: u64) {
        self.rows.finish(txn);
        if self.size == 0 {
            return;
        }
        let metadata = Metadata {
            expire_ms,
            body: Body::Collection {
                kind: CollectionKind::Set,
                version: self.version,
                size: self.size,
                is_counted: false,
                fields: None,
            },
        };
        txn.put_metadata(key, &metadata, expire_ms);
    }
}
