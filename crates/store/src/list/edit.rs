//! Changes in the middle of a list.
//!
//! Indexes have no gaps, so an element that comes or goes in the middle moves others. Those before it
//! can move and the head with them, or those behind it and the tail: the shorter side is read into
//! memory, edited there, and written again next to the side that stays. A side too long for that is not
//! moved at all: the whole list is copied, edited on the way, into a new version, which may be written
//! ahead piece by piece because nobody sees it before the metadata names it (see [`Fresh`]).

use std::ops::{ControlFlow, Range};

use cairn_encoding::LIST_ORIGIN;
use cairn_encoding::chunk::index_sub;
use cairn_engine::Family;

use super::{End, List};
use crate::error::Result;
use crate::fresh::Fresh;
use crate::txn::{ReadTxn, WriteTxn};

/// How many bytes of rows may be moved in memory.
const MOVED_AT_MOST: usize = 4 * 1024 * 1024;

/// On which side of another element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    Before,
    After,
}

/// What is to be done to a list, in positions.
pub(super) enum Edit<'e> {
    Insert {
        pivot: u64,
        place: Place,
        element: &'e [u8],
    },
    /// Takes out everything in `span` that equals `element`.
    Remove { span: Range<u64>, element: &'e [u8] },
}

impl Edit<'_> {
    /// The positions outside of which nothing comes or goes.
    fn span(&self) -> Range<u64> {
        match self {
            Edit::Insert { pivot, .. } => *pivot..pivot + 1,
            Edit::Remove { span, .. } => span.clone(),
        }
    }

    /// What stands after the edit where this element stood before.
    fn outcome<'r>(&'r self, position: u64, found: &'r [u8]) -> impl Iterator<Item = &'r [u8]> {
        let outcome = match self {
            Edit::Insert {
                pivot,
                place,
                element,
            } if position == *pivot => match place {
                Place::Before => [Some(*element), Some(found)],
                Place::After => [Some(found), Some(*element)],
            },
            Edit::Remove { span, element } if span.contains(&position) && found == *element => {
                [None, None]
            }
            _ => [Some(found), None],
        };
        outcome.into_iter().flatten()
    }
}

impl List {
    /// Inserts beside the first element that equals `pivot`; false if there is none.
    pub fn insert(
        &mut self,
        txn: &mut WriteTxn,
        pivot: &[u8],
        place: Place,
        element: &[u8],
    ) -> Result<bool> {
        let mut found = None;
        self.find(txn, pivot, End::Left, u64::MAX, |position| {
            found = Some(position);
            ControlFlow::Break(())
        })?;
        let Some(pivot) = found else {
            return Ok(false);
        };
        let edit = Edit::Insert {
            pivot,
            place,
            element,
        };
        self.edit(txn, &edit, MOVED_AT_MOST)?;
        Ok(true)
    }

    /// Removes the first `limit` elements that equal this one, seen `from` an end; returns how many.
    pub fn remove(
        &mut self,
        txn: &mut WriteTxn,
        element: &[u8],
        from: End,
        limit: u64,
    ) -> Result<u64> {
        let (span, count) = self.span_of(txn, element, from, limit)?;
        if count > 0 {
            self.edit(txn, &Edit::Remove { span, element }, MOVED_AT_MOST)?;
        }
        Ok(count)
    }

    /// The range from the first to the last of the elements to remove, and how many they are. Every
    /// equal element in that range is one of them, so there is no need to remember their positions.
    pub(super) fn span_of(
        &self,
        txn: &ReadTxn,
        element: &[u8],
        from: End,
        limit: u64,
    ) -> Result<(Range<u64>, u64)> {
        let mut count = 0;
        let (mut start, mut end) = (u64::MAX, 0);
        self.find(txn, element, from, u64::MAX, |position| {
            count += 1;
            (start, end) = (start.min(position), end.max(position + 1));
            if count == limit {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        Ok((start..end, count))
    }

    pub(super) fn edit(
        &mut self,
        txn: &mut WriteTxn,
        edit: &Edit<'_>,
        moved_at_most: usize,
    ) -> Result<()> {
        let span = edit.span();
        let (left, right) = (0..span.end, span.start..self.len());
        let (moving, side) = if left.end <= right.end - right.start {
            (End::Left, left)
        } else {
            (End::Right, right)
        };
        match self.edited_side(txn, edit, side.clone(), moved_at_most)? {
            Some(elements) => {
                if !elements.is_empty() {
                    txn.store().check_room()?;
                }
                self.replace_side(txn, moving, side, elements);
                Ok(())
            }
            None => self.copy_edited(txn, edit),
        }
    }

    /// The elements at these positions as the edit leaves them; none if they take too much memory.
    fn edited_side(
        &self,
        txn: &ReadTxn,
        edit: &Edit<'_>,
        side: Range<u64>,
        at_most: usize,
    ) -> Result<Option<Vec<Box<[u8]>>>> {
        let mut elements = Vec::new();
        let mut bytes = 0;
        self.walk(txn, side, End::Left, |position, found| {
            for element in edit.outcome(position, found) {
                bytes += self.key.sub_offset() + size_of::<u64>() + element.len();
                elements.push(element.into());
            }
            Ok(if bytes > at_most {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            })
        })?;
        Ok((bytes <= at_most).then_some(elements))
    }

    /// Puts these elements in place of a side that reaches to one end, touching the side that stays.
    fn replace_side(
        &mut self,
        txn: &mut WriteTxn,
        moving: End,
        side: Range<u64>,
        elements: Vec<Box<[u8]>>,
    ) {
        let count = elements.len() as u64;
        let first = match moving {
            End::Left => {
                self.head = self.head + side.end - count;
                self.head
            }
            End::Right => {
                self.tail = self.head + side.start + count;
                self.tail - count
            }
        };
        for (index, element) in (first..).zip(elements) {
            self.put(txn, index, &element);
        }
    }

    fn copy_edited(&mut self, txn: &mut WriteTxn, edit: &Edit<'_>) -> Result<()> {
        let version = txn.next_version();
        let mut copy = Fresh::new(&self.key, version);
        let mut tail = LIST_ORIGIN;
        self.walk(txn, 0..self.len(), End::Left, |position, found| {
            for element in edit.outcome(position, found) {
                let row_key = self.key.data(version, &index_sub(tail));
                copy.put(txn, Family::Data, &row_key, element)?;
                tail += 1;
            }
            Ok(ControlFlow::Continue(()))
        })?;
        copy.finish(txn);
        (self.version, self.head, self.tail) = (version, LIST_ORIGIN, tail);
        Ok(())
    }
}
