//! Lists: one row per element, `prefix | version | index → element`.
//!
//! The metadata names the indexes in use, a half-open range `[head, tail)` without gaps. A push writes a
//! row beside the range and widens it. A pop or a trim only narrows it: the rows it leaves behind are dead
//! by lying outside, the filters drop them, and a push that comes back to their indexes overwrites them.
//! So a queue that is pushed at one end and popped at the other leaves no tombstones to walk over.
//!
//! A new list starts in the middle of all indexes. To reach either end of them takes 2^63 pushes more on
//! one side than on the other, so nothing here watches for it.
//!
//! Callers count *positions*, from 0 at the head; an *index* is the number in a row's key. Changes in the
//! middle are told in [`edit`].

mod edit;
#[cfg(test)]
mod tests;

use std::ops::{ControlFlow, Range};

use cairn_encoding::LIST_ORIGIN;
use cairn_encoding::chunk::{decode_index_sub, index_sub};
use cairn_encoding::metadata::{Body, Metadata, Type};
use cairn_encoding::row::RowBytes;
use cairn_engine::{Direction, EngineError, Expected, Family, Rows};

pub use edit::Place;

use crate::error::Result;
use crate::excerpts::{Asked, Excerpt};
use crate::expect::EXPECTED;
use crate::key::Key;
use crate::txn::{ReadTxn, Row, Shape, Shared, WriteTxn};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Left,
    Right,
}

impl End {
    /// The way of a walk that starts at this end.
    pub fn direction(self) -> Direction {
        match self {
            End::Left => Direction::Forward,
            End::Right => Direction::Backward,
        }
    }
}

/// A list as a command works on it. Its bounds are kept here until [`List::save`] writes the metadata
/// row, once.
pub struct List {
    key: Key,
    /// Zero: the key is absent and has no version yet.
    version: u64,
    head: u64,
    tail: u64,
    expire_ms: u64,
    /// Version and bounds as stored when it was opened, to tell whether the metadata must be written.
    stored: Option<(u64, u64, u64)>,
}

impl List {
    /// Opens the list, absent or not; an error if the key holds something else.
    pub fn open(txn: &ReadTxn, name: &[u8]) -> Result<List> {
        let mut list = List {
            key: txn.key(name),
            version: 0,
            head: LIST_ORIGIN,
            tail: LIST_ORIGIN,
            expire_ms: 0,
            stored: None,
        };
        if let Some(found) = txn.find_kind(&list.key, Type::List)?
            && let Shape::List {
                version,
                head,
                tail,
                ..
            } = found.shape
        {
            (list.version, list.head, list.tail) = (version, head, tail);
            list.expire_ms = found.expire_ms;
            list.stored = Some((version, head, tail));
        }
        Ok(list)
    }

    pub fn exists(&self) -> bool {
        self.stored.is_some()
    }

    pub fn len(&self) -> u64 {
        self.tail - self.head
    }

    pub fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// The element at a position, which must lie inside the list.
    pub fn get<'t>(&self, txn: &'t ReadTxn, position: u64) -> Result<Row<'t>> {
        let row_key = self.row_key(self.head + position);
        let row = txn.row(Family::Data, &row_key)?;
        Ok(row.ok_or_else(missing)?)
    }

    /// Shows the elements at these positions, without a walk; tells whether all of them are in memory. The last that
    /// is shown is the last before one that is not.
    pub fn show_from_memory(
        &self,
        txn: &ReadTxn,
        positions: impl Iterator<Item = u64>,
        mut show: impl FnMut(&[u8]),
    ) -> bool {
        let mut row_key = self.row_key(0);
        let index_at = self.key.sub_offset();
        let memory = txn.in_memory();
        for position in positions {
            let index = index_sub(self.head + position);
            row_key[index_at..].copy_from_slice(&index);
            match memory.row(Family::Data, &row_key) {
                Some(element) => show(element),
                None => return false,
            }
        }
        true
    }

    /// The same for elements that may be asked for again: see [`Excerpts`](crate::excerpts::Excerpts).
    pub fn show_part(
        &self,
        txn: &ReadTxn,
        positions: Range<u64>,
        mut show: impl FnMut(&[u8]),
    ) -> bool {
        let Some(excerpts) = txn.excerpts() else {
            return self.show_from_memory(txn, positions, show);
        };
        let indexes = self.head + positions.start..self.head + positions.end;
        match excerpts.ask(&self.key, self.version, &indexes) {
            Asked::Found(found) => {
                indexes.for_each(|index| show(found.element(index)));
                true
            }
            Asked::First => self.show_from_memory(txn, positions, show),
            Asked::Again => {
                let mut excerpt = Excerpt::default();
                let are_all = self.show_from_memory(txn, positions, |element| {
                    excerpt.push(element);
                    show(element);
                });
                if are_all {
                    excerpts.keep(txn, &self.key, self.version, indexes, excerpt);
                }
                are_all
            }
        }
    }

    /// Replaces the element at a position, which must lie inside the list.
    pub fn set(&self, txn: &mut WriteTxn, position: u64, element: &[u8]) {
        self.put(txn, self.head + position, element);
    }

    fn put(&self, txn: &mut WriteTxn, index: u64, element: &[u8]) {
        txn.store().excerpts().forget(&self.key);
        txn.put(Family::Data, &self.row_key(index), element);
    }

    pub fn push(&mut self, txn: &mut WriteTxn, end: End, element: &[u8]) {
        if self.version == 0 {
            self.version = txn.next_version();
        }
        let index = match end {
            End::Left => {
                self.head -= 1;
                self.head
            }
            End::Right => {
                self.tail += 1;
                self.tail - 1
            }
        };
        self.put(txn, index, element);
    }

    pub fn pop(&mut self, txn: &ReadTxn, end: End) -> Result<Option<Shared>> {
        if self.is_empty() {
            return Ok(None);
        }
        let taken = self.outermost(end, 1);
        let element = self.get(txn, taken.start)?.share(0);
        self.drop_outermost(end, 1);
        self.expect_pops(txn, end);
        Ok(Some(element))
    }

    /// Now and then has elements brought near that will be popped next, as many as can be at once.
    fn expect_pops(&self, txn: &ReadTxn, end: End) {
        let edge = match end {
            End::Left => self.head,
            End::Right => self.tail,
        };
        if edge.is_multiple_of(EXPECTED as u64) {
            let mut coming = Expected::default();
            for position in self.outermost(end, EXPECTED as u64) {
                coming.add(Family::Data, &self.row_key(self.head + position));
            }
            txn.store().engine().expect(&coming);
        }
    }

    /// The positions of the `count` elements nearest to an end, or of all if there are fewer.
    pub fn outermost(&self, end: End, count: u64) -> Range<u64> {
        let count = count.min(self.len());
        match end {
            End::Left => 0..count,
            End::Right => self.len() - count..self.len(),
        }
    }

    /// Pops without reading.
    pub fn drop_outermost(&mut self, end: End, count: u64) {
        let dropped = self.outermost(end, count);
        match end {
            End::Left => self.trim(dropped.end..self.len()),
            End::Right => self.trim(0..dropped.start),
        }
    }

    /// Keeps these positions only.
    pub fn trim(&mut self, kept: Range<u64>) {
        self.tail = self.head + kept.end;
        self.head += kept.start;
    }

    /// Walks the rows at these positions; their values are the elements.
    pub fn rows(&self, txn: &ReadTxn, positions: Range<u64>, direction: Direction) -> Result<Rows> {
        let lower = self.row_key(self.head + positions.start);
        let upper = self.row_key(self.head + positions.end);
        txn.rows(Family::Data, &lower, &upper, direction)
    }

    /// Calls `visit` with the position of every element equal to this one, starting `from` an end and
    /// comparing no more than `within` elements.
    pub fn find(
        &self,
        txn: &ReadTxn,
        element: &[u8],
        from: End,
        within: u64,
        mut visit: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<()> {
        let compared = self.outermost(from, within);
        self.walk(txn, compared, from, |position, other| {
            Ok(if other == element {
                visit(position)
            } else {
                ControlFlow::Continue(())
            })
        })
    }

    /// Shows `visit` one element after the other with its position, until it has seen enough.
    fn walk(
        &self,
        txn: &ReadTxn,
        positions: Range<u64>,
        from: End,
        mut visit: impl FnMut(u64, &[u8]) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        if positions.is_empty() {
            return Ok(());
        }
        let mut rows = self.rows(txn, positions.clone(), from.direction())?;
        for _ in positions {
            txn.step()?;
            let (row_key, element) = rows.next()?.ok_or_else(missing)?;
            let index = decode_index_sub(self.key.sub_of(row_key))?;
            if visit(index - self.head, element)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Writes the metadata if the bounds changed, or deletes the key if nothing is left: to be called
    /// after the last change.
    pub fn save(self, txn: &mut WriteTxn) {
        if self.stored == Some((self.version, self.head, self.tail)) {
            return;
        }
        if let Some((version, head, tail)) = self.stored {
            let stored = Shape::List {
                version,
                size: tail - head,
                head,
                tail,
            };
            if self.is_empty() || version != self.version {
                txn.remains().add(&self.key, stored);
            } else {
                let cut = self.head.saturating_sub(head) + tail.saturating_sub(self.tail);
                let left = self.tail - self.head;
                txn.remains().add_cut(&self.key, version, cut, left);
            }
        }
        if self.is_empty() {
            if self.exists() {
                txn.remove_metadata(&self.key, self.expire_ms);
            }
            return;
        }
        let metadata = Metadata {
            expire_ms: self.expire_ms,
            body: Body::List {
                version: self.version,
                size: self.len(),
                head: self.head,
                tail: self.tail,
            },
        };
        txn.put_metadata(&self.key, &metadata, self.expire_ms);
        if !self.exists() {
            txn.notify_new(&self.key);
        }
    }

    fn row_key(&self, index: u64) -> RowBytes {
        self.key.data(self.version, &index_sub(index))
    }
}

fn missing() -> EngineError {
    EngineError::Corrupt("an element of a list is missing".into())
}
