//! Walking rows in key order, with changes that are not stored yet shown on top of what is.
//!
//! [`Rows`] is a lending iterator: `next` gives slices that live until the following call, so a walk
//! over a million rows allocates nothing. RocksDB pins the files and memtables an iterator was opened
//! on, and the changes on top are shared, so a walk shows one moment in time however long it lasts.

use std::sync::Arc;

use rust_rocksdb::{DB, DBRawIteratorWithThreadMode, ReadOptions};

use crate::engine::Database;
use crate::error::Result;
use crate::family::Family;
use crate::overlay::Overlay;
use crate::row::Row;
use crate::whole::{self, Reach};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    Forward,
    Backward,
}

/// What lies below the changes.
pub(crate) enum Stored {
    /// What is known without a look.
    Nothing,
    Iterator(OwnedIterator),
    /// The same, as it was found before.
    Whole(whole::Cursor),
}

impl Stored {
    fn seek(&mut self, key: &[u8]) {
        match self {
            Stored::Nothing => {}
            Stored::Iterator(stored) => stored.iterator.seek(key),
            Stored::Whole(cursor) => cursor.seek(key),
        }
    }

    fn seek_for_prev(&mut self, key: &[u8]) {
        match self {
            Stored::Nothing => {}
            Stored::Iterator(stored) => stored.iterator.seek_for_prev(key),
            Stored::Whole(cursor) => cursor.seek_for_prev(key),
        }
    }

    fn seek_to_last(&mut self) {
        match self {
            Stored::Nothing => {}
            Stored::Iterator(stored) => stored.iterator.seek_to_last(),
            Stored::Whole(cursor) => cursor.seek_to_last(),
        }
    }

    fn advance(&mut self, direction: Direction) {
        match (self, direction) {
            (Stored::Nothing, _) => {}
            (Stored::Iterator(stored), Direction::Forward) => stored.iterator.next(),
            (Stored::Iterator(stored), Direction::Backward) => stored.iterator.prev(),
            (Stored::Whole(cursor), Direction::Forward) => cursor.next(),
            (Stored::Whole(cursor), Direction::Backward) => cursor.prev(),
        }
    }

    fn item(&self) -> Option<(&[u8], &[u8])> {
        match self {
            Stored::Nothing => None,
            Stored::Iterator(stored) => stored.iterator.item(),
            Stored::Whole(cursor) => cursor.item(),
        }
    }

    fn key(&self) -> Option<&[u8]> {
        match self {
            Stored::Nothing => None,
            Stored::Iterator(stored) => stored.iterator.key(),
            Stored::Whole(cursor) => Some(cursor.item()?.0),
        }
    }

    fn status(&self) -> Result<()> {
        match self {
            Stored::Iterator(stored) => Ok(stored.iterator.status()?),
            Stored::Nothing | Stored::Whole(_) => Ok(()),
        }
    }

    /// All rows from the first on, in one piece; none if they are too many, or cannot be read.
    pub(crate) fn read_whole(&mut self, family: Family, prefix: &[u8]) -> Option<Row> {
        let mut whole = whole::Builder::default();
        self.seek(prefix);
        while let Some((key, value)) = self.item() {
            if !whole.add(key, value) {
                return None;
            }
            self.advance(Direction::Forward);
        }
        self.status().ok()?;
        Some(whole.build(family, prefix, Reach::default()))
    }
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

/// Which side the row under the cursor comes from.
enum Cursor {
    Stored,
    /// The change that the walk has just passed.
    Pending,
}

pub struct Rows {
    stored: Stored,
    overlay: Overlay,
    lower: Box<[u8]>,
    direction: Direction,
    /// The stored side stands on a row that was already given out.
    stored_is_spent: bool,
    positioned: bool,
}

impl Rows {
    pub(crate) fn new(stored: Stored, overlay: Overlay, lower: Box<[u8]>) -> Self {
        Rows {
            stored,
            direction: overlay.direction(),
            overlay,
            lower,
            stored_is_spent: false,
            positioned: false,
        }
    }

    /// How many changes that are not stored yet the walk has been given.
    pub fn carried(&self) -> usize {
        self.overlay.len()
    }

    /// Moves so that `next` gives the first row at or after `key` (at or before it, walking backward).
    pub fn seek(&mut self, key: &[u8]) {
        self.positioned = true;
        self.stored_is_spent = false;
        self.overlay.seek(key);
        match self.direction {
            Direction::Forward => self.stored.seek(key.max(&self.lower)),
            Direction::Backward => self.stored.seek_for_prev(key),
        }
    }

    /// Moves back to the first row of the walk.
    pub fn rewind(&mut self) {
        self.positioned = true;
        self.stored_is_spent = false;
        self.overlay.rewind();
        match self.direction {
            Direction::Forward => self.stored.seek(&self.lower),
            Direction::Backward => self.stored.seek_to_last(),
        }
    }

    /// All that it shows, in one piece, from which it begins again; none if that is too much, or cannot be read.
    pub(crate) fn read_whole(
        &mut self,
        family: Family,
        prefix: &[u8],
        reach: Reach,
    ) -> Option<Row> {
        let mut whole = whole::Builder::default();
        self.rewind();
        let is_all = loop {
            match self.next() {
                Ok(Some((key, value))) if whole.add(key, value) => {}
                end => break matches!(end, Ok(None)),
            }
        };
        self.rewind();
        is_all.then(|| whole.build(family, prefix, reach))
    }

    /// The next row, as key and value.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if !self.positioned {
            self.rewind();
        }
        match self.find_next()? {
            None => Ok(None),
            Some(Cursor::Pending) => {
                let row = self.overlay.last();
                Ok(row.and_then(|row| Some((row.key(), row.value()?))))
            }
            Some(Cursor::Stored) => Ok(self.stored.item()),
        }
    }

    fn find_next(&mut self) -> Result<Option<Cursor>> {
        loop {
            if std::mem::take(&mut self.stored_is_spent) {
                self.stored.advance(self.direction);
            }
            let stored = self.stored.key();
            if stored.is_none() {
                self.stored.status()?;
            }
            let Some(pending) = self.overlay.peek() else {
                self.stored_is_spent = stored.is_some();
                return Ok(stored.map(|_| Cursor::Stored));
            };
            let order = match (stored, self.direction) {
                (None, _) => std::cmp::Ordering::Greater,
                (Some(stored), Direction::Forward) => stored.cmp(pending.key()),
                (Some(stored), Direction::Backward) => pending.key().cmp(stored),
            };
            if order.is_lt() {
                self.stored_is_spent = true;
                return Ok(Some(Cursor::Stored));
            }
            // The pending change comes first, and hides the stored row of the same key.
            let is_put = pending.value().is_some();
            self.stored_is_spent = order.is_eq();
            self.overlay.advance();
            if is_put {
                return Ok(Some(Cursor::Pending));
            }
        }
    }
}
