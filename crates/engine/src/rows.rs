//! Walking rows in key order, with a pending batch shown on top of what is stored.
//!
//! [`Rows`] is a lending iterator: `next` gives slices that live until the following call, so a walk
//! over a million rows allocates nothing. RocksDB pins the files and memtables an iterator was opened
//! on, so a walk shows one moment in time however long it lasts.

use std::collections::btree_map;
use std::ops::Bound;
use std::sync::Arc;

use rust_rocksdb::{DB, DBRawIteratorWithThreadMode, ReadOptions};

use crate::batch::{Batch, Change};
use crate::engine::Database;
use crate::error::Result;
use crate::family::Family;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    Forward,
    Backward,
}

/// A RocksDB iterator that keeps its database alive.
pub(crate) struct OwnedIterator {
    // Declared before `_database`, so dropped before it.
    iterator: DBRawIteratorWithThreadMode<'static, DB>,
    _database: Arc<Database>,
}

impl OwnedIterator {
    pub(crate) fn new(database: Arc<Database>, family: Family, options: ReadOptions) -> Self {
        let iterator = database
            .db()
            .raw_iterator_cf_opt(&database.family(family), options);
        // SAFETY: the iterator borrows the DB inside `database`, which stands at a fixed address behind
        // its Arc. The Arc is kept beside the iterator and dropped after it (field order), so the
        // borrow holds for as long as the iterator exists.
        let iterator = unsafe {
            std::mem::transmute::<
                DBRawIteratorWithThreadMode<'_, DB>,
                DBRawIteratorWithThreadMode<'static, DB>,
            >(iterator)
        };
        OwnedIterator {
            iterator,
            _database: database,
        }
    }
}

type Changes<'b> = btree_map::Range<'b, Box<[u8]>, Change>;

/// The pending changes of the walked range, in the walk's direction.
struct Pending<'b> {
    changes: Option<Changes<'b>>,
    direction: Direction,
    next: Option<(&'b [u8], Option<&'b [u8]>)>,
}

impl<'b> Pending<'b> {
    fn new(changes: Option<Changes<'b>>, direction: Direction) -> Self {
        let mut pending = Pending {
            changes,
            direction,
            next: None,
        };
        pending.advance();
        pending
    }

    fn advance(&mut self) {
        let next = self
            .changes
            .as_mut()
            .and_then(|changes| match self.direction {
                Direction::Forward => changes.next(),
                Direction::Backward => changes.next_back(),
            });
        self.next = next.map(|(key, change)| (&**key, change.as_deref()));
    }
}

/// Which side the row under the cursor comes from.
enum Cursor<'b> {
    Stored,
    Pending(&'b [u8], &'b [u8]),
}

pub struct Rows<'b> {
    stored: OwnedIterator,
    batch: Option<&'b Batch>,
    family: Family,
    lower: Box<[u8]>,
    /// Exclusive; empty means that there is none.
    upper: Box<[u8]>,
    direction: Direction,
    pending: Pending<'b>,
    /// The stored side stands on a row that was already given out.
    stored_is_spent: bool,
    positioned: bool,
}

impl<'b> Rows<'b> {
    pub(crate) fn new(
        stored: OwnedIterator,
        batch: Option<&'b Batch>,
        family: Family,
        lower: Box<[u8]>,
        upper: Box<[u8]>,
        direction: Direction,
    ) -> Self {
        Rows {
            stored,
            batch: batch.filter(|batch| batch.has_changes_in(family)),
            family,
            lower,
            upper,
            direction,
            pending: Pending::new(None, direction),
            stored_is_spent: false,
            positioned: false,
        }
    }

    /// Whether a pending batch has a part in this walk, so that it cannot outlive its transaction.
    pub fn has_pending(&self) -> bool {
        self.batch.is_some()
    }

    /// The same walk, free of the transaction, if no pending batch has a part in it.
    pub fn into_stored(self) -> Option<Rows<'static>> {
        match self.batch {
            Some(_) => None,
            None => Some(Rows {
                stored: self.stored,
                batch: None,
                family: self.family,
                lower: self.lower,
                upper: self.upper,
                direction: self.direction,
                pending: Pending::new(None, self.direction),
                stored_is_spent: self.stored_is_spent,
                positioned: self.positioned,
            }),
        }
    }

    /// Moves so that `next` gives the first row at or after `key` (at or before it, walking backward).
    pub fn seek(&mut self, key: &[u8]) {
        self.positioned = true;
        self.stored_is_spent = false;
        match self.direction {
            Direction::Forward => {
                let key = key.max(&self.lower);
                self.stored.iterator.seek(key);
                self.pending = self.open_pending(Bound::Included(key), self.upper_bound());
            }
            Direction::Backward => {
                self.stored.iterator.seek_for_prev(key);
                let upper = match self.upper_bound() {
                    Bound::Excluded(upper) if upper <= key => Bound::Excluded(upper),
                    _ => Bound::Included(key),
                };
                self.pending = self.open_pending(Bound::Included(&self.lower), upper);
            }
        }
    }

    /// Moves back to the first row of the walk.
    pub fn rewind(&mut self) {
        self.positioned = true;
        self.stored_is_spent = false;
        match self.direction {
            Direction::Forward => self.stored.iterator.seek(&self.lower),
            Direction::Backward => self.stored.iterator.seek_to_last(),
        }
        self.pending = self.open_pending(Bound::Included(&self.lower), self.upper_bound());
    }

    fn upper_bound(&self) -> Bound<&[u8]> {
        if self.upper.is_empty() {
            Bound::Unbounded
        } else {
            Bound::Excluded(&self.upper)
        }
    }

    fn open_pending(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Pending<'b> {
        let Some(batch) = self.batch else {
            return Pending::new(None, self.direction);
        };
        // BTreeMap::range panics on a range whose end lies before its start.
        let empty = match (lower, upper) {
            (Bound::Included(from), Bound::Excluded(to)) => from >= to,
            (Bound::Included(from), Bound::Included(to)) => from > to,
            _ => false,
        };
        let changes = (!empty).then(|| batch.range(self.family, lower, upper));
        Pending::new(changes, self.direction)
    }

    /// The next row, as key and value.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if !self.positioned {
            self.rewind();
        }
        match self.find_next()? {
            None => Ok(None),
            Some(Cursor::Pending(key, value)) => Ok(Some((key, value))),
            Some(Cursor::Stored) => Ok(self.stored.iterator.item()),
        }
    }

    fn find_next(&mut self) -> Result<Option<Cursor<'b>>> {
        loop {
            if std::mem::take(&mut self.stored_is_spent) {
                match self.direction {
                    Direction::Forward => self.stored.iterator.next(),
                    Direction::Backward => self.stored.iterator.prev(),
                }
            }
            let stored = self.stored.iterator.key();
            if stored.is_none() {
                self.stored.iterator.status()?;
            }
            let Some((pending, change)) = self.pending.next else {
                self.stored_is_spent = stored.is_some();
                return Ok(stored.map(|_| Cursor::Stored));
            };
            let order = match (stored, self.direction) {
                (None, _) => std::cmp::Ordering::Greater,
                (Some(stored), Direction::Forward) => stored.cmp(pending),
                (Some(stored), Direction::Backward) => pending.cmp(stored),
            };
            if order.is_lt() {
                self.stored_is_spent = true;
                return Ok(Some(Cursor::Stored));
            }
            // The pending change comes first, and hides the stored row of the same key.
            self.stored_is_spent = order.is_eq();
            self.pending.advance();
            if let Some(value) = change {
                return Ok(Some(Cursor::Pending(pending, value)));
            }
        }
    }
}
