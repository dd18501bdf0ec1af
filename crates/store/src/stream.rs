//! Streams: one row per entry, in the order of IDs, and the rows of consumer groups ([`group`]).
//!
//! The metadata names the first entry and the last ID. Trimming in front, and deleting the first entry, only raises the
//! *floor*: the rows below are dead, and the filters drop them. So a stream that is kept at a length by XADD leaves no
//! tombstones to walk over.
//!
//! A stream that has no entries left goes on to exist, with its last ID and its groups.

mod build;
mod group;
#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;

use cairn_encoding::metadata::{Body, Metadata, Type};
use cairn_encoding::row::RowBytes;
use cairn_encoding::stream::{Sub, entry_sub};
use cairn_engine::{Direction, EngineError, Family, Rows};

pub use build::Builder;
pub use cairn_encoding::stream::{Fields, Head, Id, append_field};
pub use group::{Delivery, Group};

use crate::error::Result;
use crate::key::Key;
use crate::txn::{ReadTxn, Row, WriteTxn};

/// A stream as a command works on it. Changes of its metadata are kept here until [`Stream::save`] writes the row, once.
pub struct Stream {
    key: Key,
    head: Head,
    expire_ms: u64,
    /// As stored when it was opened, to tell whether the metadata must be written.
    stored: Option<Head>,
    /// How many entries now lie below the floor.
    cut: u64,
}

/// How much is cut off in front.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trim {
    pub until: Until,
    /// Entries go in blocks of so many, counted from the first that was ever added; or all of them.
    pub unit: u64,
    pub at_most: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// No more than so many are left.
    Length(u64),
    /// None is left below.
    Id(Id),
}

impl Stream {
    /// Opens the stream, absent or not; an error if the key holds something else.
    pub fn open(txn: &ReadTxn, name: &[u8]) -> Result<Stream> {
        let key = txn.key(name);
        let found = txn.find_kind(&key, Type::Stream)?;
        let (stored, expire_ms) = match &found {
            Some(found) => (found.stream_head()?, found.expire_ms),
            None => (None, 0),
        };
        drop(found);
        let head = stored.unwrap_or(Head {
            version: 0,
            size: 0,
            added: 0,
            groups: 0,
            floor: Id::MIN,
            last: Id::MIN,
            deleted: Id::MIN,
        });
        Ok(Stream {
            key,
            head,
            expire_ms,
            stored,
            cut: 0,
        })
    }

    pub fn name(&self) -> &[u8] {
        self.key.name()
    }

    pub fn exists(&self) -> bool {
        self.stored.is_some()
    }

    pub fn len(&self) -> u64 {
        self.head.size
    }

    pub fn is_empty(&self) -> bool {
        self.head.size == 0
    }

    /// The last ID that was given out.
    pub fn last(&self) -> Id {
        self.head.last
    }

    /// The ID of the first entry, if there is one.
    pub fn first(&self) -> Option<Id> {
        (!self.is_empty()).then_some(self.head.floor)
    }

    /// The ID of the last entry that is there.
    pub fn top(&self, txn: &ReadTxn) -> Result<Option<Id>> {
        if self.is_empty() {
            return Ok(None);
        }
        let mut rows = self.rows(txn, Id::MIN..=Id::MAX, Direction::Backward)?;
        let (row_key, _) = rows.next()?.ok_or_else(missing)?;
        self.id_of(row_key).map(Some)
    }

    /// The largest ID that was deleted.
    pub fn deleted(&self) -> Id {
        self.head.deleted
    }

    /// How many entries were ever added.
    pub fn added(&self) -> u64 {
        self.head.added
    }

    /// How many consumer groups there are.
    pub fn groups(&self) -> u64 {
        self.head.groups
    }

    /// The ID that an entry added now would get; none if IDs are used up.
    pub fn next_id(&self, now_ms: u64) -> Option<Id> {
        if now_ms > self.head.last.ms {
            Some(Id::new(now_ms, 0))
        } else {
            self.head.last.next()
        }
    }

    /// Adds an entry. Its ID must be larger than the last.
    pub fn append(&mut self, txn: &mut WriteTxn, id: Id, entry: &[u8]) {
        self.ensure_version(txn);
        if self.is_empty() {
            self.head.floor = id;
        }
        self.head.size += 1;
        self.head.added += 1;
        self.head.last = id;
        txn.put(Family::Data, &self.entry_key(id), entry);
    }

    /// Gives an absent stream its version, so that it comes to exist.
    pub fn ensure_version(&mut self, txn: &WriteTxn) {
        if self.head.version == 0 {
            self.head.version = txn.next_version();
        }
    }

    /// The fields and values of an entry: see [`Fields`].
    pub fn entry<'t>(&self, txn: &'t ReadTxn, id: Id) -> Result<Option<Row<'t>>> {
        if self.is_empty() || id < self.head.floor || id > self.head.last {
            return Ok(None);
        }
        txn.row(Family::Data, &self.entry_key(id))
    }

    /// The rows of the entries in a range; [`Stream::id_of`] reads a row's key.
    pub fn rows(
        &self,
        txn: &ReadTxn,
        ids: RangeInclusive<Id>,
        direction: Direction,
    ) -> Result<Rows> {
        let lower = self.entry_key(self.head.floor.max(*ids.start()));
        let upper = match ids.end().next() {
            Some(end) => self.entry_key(end),
            // All other rows lie above.
            None => self.row_key(&Sub::groups()),
        };
        let upper = (&*upper).max(&*lower);
        txn.rows(Family::Data, &lower, upper, direction)
    }

    /// Whether a range holds all entries.
    pub fn is_within(&self, ids: &RangeInclusive<Id>) -> bool {
        *ids.start() <= self.head.floor && *ids.end() >= self.head.last
    }

    /// The ID of an entry whose row's key this is.
    pub fn id_of(&self, row_key: &[u8]) -> Result<Id> {
        match Sub::decode(self.key.sub_of(row_key))? {
            Sub::Entry(id) => Ok(id),
            _ => Err(EngineError::Corrupt("a stream's entry is something else".into()).into()),
        }
    }

    /// Where the ID begins in a row's key, for those who outlive this.
    pub fn id_offset(&self) -> usize {
        self.key.sub_offset()
    }

    /// Deletes an entry; true if it was there.
    pub fn delete(&mut self, txn: &mut WriteTxn, id: Id) -> Result<bool> {
        if self.entry(txn, id)?.is_none() {
            return Ok(false);
        }
        self.head.size -= 1;
        self.head.deleted = self.head.deleted.max(id);
        if id != self.head.floor {
            txn.delete(Family::Data, &self.entry_key(id));
        } else if self.is_empty() {
            self.empty(txn);
        } else {
            let above = id.next().unwrap_or(Id::MAX)..=Id::MAX;
            let mut rows = self.rows(txn, above, Direction::Forward)?;
            let (row_key, _) = rows.next()?.ok_or_else(missing)?;
            self.head.floor = self.id_of(row_key)?;
            self.cut += 1;
        }
        Ok(true)
    }

    /// Cuts entries off in front, and tells how many.
    pub fn trim(&mut self, txn: &mut WriteTxn, trim: Trim) -> Result<u64> {
        let before = self.head.size;
        match trim.until {
            Until::Length(kept) => self.trim_to_length(txn, kept, trim)?,
            Until::Id(id) => self.trim_below(txn, id, trim)?,
        }
        Ok(before - self.head.size)
    }

    fn trim_to_length(&mut self, txn: &mut WriteTxn, kept: u64, trim: Trim) -> Result<()> {
        let size = self.head.size;
        let excess = size.saturating_sub(kept).min(trim.at_most);
        if excess == size {
            return self.cut_off_all(txn);
        }
        let passed_in_block = self.passed_in_block(trim);
        let gone = (passed_in_block + excess) / trim.unit * trim.unit;
        let Some(gone) = gone.checked_sub(passed_in_block).filter(|gone| *gone > 0) else {
            return Ok(());
        };
        // The first that stays is found from the nearer end.
        let left = size - gone;
        let (passed, direction) = if gone < left {
            (gone, Direction::Forward)
        } else {
            (left - 1, Direction::Backward)
        };
        let mut rows = self.rows(txn, Id::MIN..=Id::MAX, direction)?;
        for _ in 0..passed {
            txn.step()?;
            rows.next()?;
        }
        let (row_key, _) = rows.next()?.ok_or_else(missing)?;
        let first = self.id_of(row_key)?;
        self.cut_off(gone, first);
        Ok(())
    }

    fn trim_below(&mut self, txn: &mut WriteTxn, id: Id, trim: Trim) -> Result<()> {
        if self.is_empty() || id <= self.head.floor {
            return Ok(());
        }
        let passed_in_block = self.passed_in_block(trim);
        let mut gone = 0;
        // How many may go, and which entry is the first then.
        let mut first = (0, self.head.floor);
        let mut rows = self.rows(txn, Id::MIN..=Id::MAX, Direction::Forward)?;
        while let Some((row_key, _)) = rows.next()? {
            txn.step()?;
            let here = self.id_of(row_key)?;
            if (passed_in_block + gone).is_multiple_of(trim.unit) {
                first = (gone, here);
            }
            if here >= id || gone == trim.at_most {
                self.cut_off(first.0, first.1);
                return Ok(());
            }
            gone += 1;
        }
        self.cut_off_all(txn)
    }

    /// How many entries of its block came before the first that is there; about so many, if some were deleted.
    fn passed_in_block(&self, trim: Trim) -> u64 {
        self.head.added.saturating_sub(self.head.size) % trim.unit
    }

    fn cut_off(&mut self, gone: u64, first: Id) {
        self.head.size -= gone;
        self.head.floor = first;
        self.cut += gone;
    }

    fn cut_off_all(&mut self, txn: &mut WriteTxn) -> Result<()> {
        if !self.is_empty() {
            self.cut += self.head.size - 1;
            self.head.size = 0;
            // What else is there has been deleted row by row.
            self.head.floor = self.head.last;
            self.empty(txn);
        }
        Ok(())
    }

    /// The entry at the floor was the last one.
    fn empty(&mut self, txn: &mut WriteTxn) {
        match self.head.floor.next() {
            Some(above) => {
                self.head.floor = above;
                self.cut += 1;
            }
            None => txn.delete(Family::Data, &self.entry_key(self.head.floor)),
        }
    }

    /// Has the next entry get a larger ID than this, which must not be smaller than that of any entry.
    pub fn set_last(&mut self, txn: &mut WriteTxn, id: Id) -> Result<()> {
        if self.is_empty() && id < self.head.floor {
            // What was cut off would be above the floor again, and alive.
            let (from, to) = (self.entry_key(id), self.entry_key(self.head.floor));
            let mut rows = txn.rows(Family::Data, &from, &to, Direction::Forward)?;
            while let Some((row_key, _)) = rows.next()? {
                txn.step()?;
                txn.delete(Family::Data, row_key);
            }
            self.head.floor = id;
        }
        self.head.last = id;
        Ok(())
    }

    pub fn set_added(&mut self, added: u64) {
        self.head.added = added;
    }

    pub fn set_deleted(&mut self, id: Id) {
        self.head.deleted = id;
    }

    /// Whether an entry above this ID, or at it, has been deleted.
    fn has_gaps_from(&self, id: Id) -> bool {
        let Head { floor, deleted, .. } = self.head;
        !self.is_empty() && deleted != Id::MIN && floor <= deleted && id <= deleted
    }

    /// How many entries were ever added up to this ID, if that can be told.
    pub fn added_up_to(&self, id: Id) -> Option<u64> {
        let Head {
            size,
            added,
            floor,
            last,
            deleted,
            ..
        } = self.head;
        if added == 0 {
            return Some(0);
        }
        if id == last || size == 0 && id < last {
            return Some(added);
        }
        if id > last || deleted != Id::MIN && deleted >= floor {
            return None;
        }
        // Nothing is missing from the first entry on.
        match id.cmp(&floor) {
            std::cmp::Ordering::Less => Some(added.saturating_sub(size)),
            std::cmp::Ordering::Equal => Some(added.saturating_sub(size) + 1),
            std::cmp::Ordering::Greater => None,
        }
    }

    /// Writes the metadata if it changed: to be called after the last change.
    pub fn save(self, txn: &mut WriteTxn) {
        if self.stored == Some(self.head) || self.head.version == 0 {
            return;
        }
        if self.cut > 0 {
            let (version, left) = (self.head.version, self.head.size);
            txn.remains().add_cut(&self.key, version, self.cut, left);
        }
        let metadata = Metadata {
            expire_ms: self.expire_ms,
            body: Body::Stream {
                version: self.head.version,
                size: self.head.size,
                rest: &self.head.rest(),
            },
        };
        txn.put_metadata(&self.key, &metadata, self.expire_ms);
        if self.stored.is_none() {
            txn.notify_new(&self.key);
        }
    }

    fn entry_key(&self, id: Id) -> RowBytes {
        self.row_key(&entry_sub(id))
    }

    fn row_key(&self, sub: &[u8]) -> RowBytes {
        self.key.data(self.head.version, sub)
    }
}

/// The ID of an entry in the key of its row, from where it begins.
pub fn id_at(sub: &[u8]) -> Option<Id> {
    match Sub::decode(sub) {
        Ok(Sub::Entry(id)) => Some(id),
        _ => None,
    }
}

fn missing() -> EngineError {
    EngineError::Corrupt("an entry of a stream is missing".into())
}
