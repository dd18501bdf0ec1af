//! Small collections in one piece.
//!
//! To walk a hash of ten fields costs RocksDB as much as ten point reads and more: an iterator is opened,
//! and every level searched. So what a walk over a small collection has found below is kept, all rows of
//! it in one, among the hot rows (see `young`), until a drain changes one of them. It stands for RocksDB:
//! young rows are shown on top of it as they are on top of an iterator.
//!
//! A collection that is walked over again and again while it is young is kept with its young rows. To show these on top once more
//! changes nothing, so it may stand for RocksDB all the same; and as long as it [reaches](Reach) to the last change nothing
//! has to be shown on top of it. When these are drained, it is what RocksDB has then.
//!
//! ```text
//!   generation u32 | changes u32 | count u16 | where each entry ends u16 ... | entries: key_len u16 | key | value
//! ```

use std::ops::Range;

use crate::family::Family;
use crate::row::{Kind, Row};

/// The most rows that are kept in one piece.
pub const FEW: usize = 128;
/// The most bytes that they take.
const MOST_BYTES: usize = 16 * 1024;
const NUMBER: usize = 2;
/// What stands before the numbers.
const HEAD: usize = 8;

/// Up to which change young rows are in it: those of all generations before this one, and of this one as it was after so many
/// changes of the collection. By default none are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Reach {
    pub(crate) generation: u32,
    pub(crate) changes: u32,
}

impl Reach {
    pub(crate) fn of(whole: &Row) -> Reach {
        let value = whole.value().unwrap_or_default();
        let number = |at: usize| {
            let bytes = value.get(at..at + 4).unwrap_or(&[0; 4]);
            u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
        };
        Reach {
            generation: number(0),
            changes: number(4),
        }
    }

    fn bytes(self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[..4].copy_from_slice(&self.generation.to_ne_bytes());
        bytes[4..].copy_from_slice(&self.changes.to_ne_bytes());
        bytes
    }
}

/// From now on it is what RocksDB has.
pub(crate) fn settle(whole: &mut Row) {
    let length = whole.value().map_or(0, <[u8]>::len);
    if whole.place_to_overwrite(length).is_none() {
        // Somebody walks over it.
        *whole = Row::copy_of(whole.bytes());
    }
    if let Some((bytes, value_at)) = whole.place_to_overwrite(length) {
        bytes[value_at..value_at + HEAD].copy_from_slice(&Reach::default().bytes());
    }
}

/// What a walk finds, row by row.
#[derive(Default)]
pub(crate) struct Builder {
    ends: Vec<u8>,
    entries: Vec<u8>,
}

impl Builder {
    /// Adds the row that comes next; false if that is too much.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) -> bool {
        let length = self.entries.len() + NUMBER + key.len() + value.len();
        if self.ends.len() / NUMBER == FEW || length > MOST_BYTES {
            return false;
        }
        self.entries
            .extend_from_slice(&(key.len() as u16).to_ne_bytes());
        self.entries.extend_from_slice(key);
        self.entries.extend_from_slice(value);
        self.ends.extend_from_slice(&(length as u16).to_ne_bytes());
        true
    }

    /// All rows of the family that begin with `prefix`.
    pub(crate) fn build(self, family: Family, prefix: &[u8], reach: Reach) -> Row {
        let count = ((self.ends.len() / NUMBER) as u16).to_ne_bytes();
        let head = reach.bytes();
        let value = [&head[..], &count, &self.ends[..], &self.entries[..]].concat();
        Row::new(Kind::Whole(family), prefix, Some(&value))
    }
}

/// Stands on one of the rows, or on none.
pub(crate) struct Cursor {
    whole: Row,
    /// The rows that it may stand on.
    range: Range<usize>,
    at: Option<usize>,
}

impl Cursor {
    /// For the rows in `[lower, upper)`.
    pub(crate) fn new(whole: Row, lower: &[u8], upper: &[u8]) -> Self {
        let mut cursor = Cursor {
            range: 0..0,
            at: None,
            whole,
        };
        cursor.range.end = cursor.count();
        cursor.range = cursor.first_from(lower)..cursor.first_from(upper);
        cursor
    }

    fn value(&self) -> &[u8] {
        let value = self.whole.value().unwrap_or_default();
        value.get(HEAD..).unwrap_or_default()
    }

    fn number(&self, at: usize) -> usize {
        let bytes = &self.value()[at..at + NUMBER];
        usize::from(u16::from_ne_bytes([bytes[0], bytes[1]]))
    }

    fn count(&self) -> usize {
        self.number(0)
    }

    fn entry(&self, index: usize) -> (&[u8], &[u8]) {
        let entries = NUMBER * (1 + self.count());
        let start = match index {
            0 => 0,
            _ => self.number(NUMBER * index),
        };
        let end = entries + self.number(NUMBER * (index + 1));
        let start = entries + start;
        let key = start + NUMBER;
        self.value()[key..end].split_at(self.number(start))
    }

    /// The first row in the range that is not before `key`.
    fn first_from(&self, key: &[u8]) -> usize {
        let Range { mut start, mut end } = self.range;
        while start < end {
            let middle = usize::midpoint(start, end);
            match self.entry(middle).0 < key {
                true => start = middle + 1,
                false => end = middle,
            }
        }
        start
    }

    fn stand(&mut self, at: Option<usize>) {
        self.at = at.filter(|at| self.range.contains(at));
    }

    pub(crate) fn seek(&mut self, key: &[u8]) {
        self.stand(Some(self.first_from(key)));
    }

    pub(crate) fn seek_for_prev(&mut self, key: &[u8]) {
        let at = self.first_from(key);
        let is_there = self.range.contains(&at) && self.entry(at).0 == key;
        self.stand(if is_there {
            Some(at)
        } else {
            at.checked_sub(1)
        });
    }

    pub(crate) fn seek_to_last(&mut self) {
        self.stand(self.range.end.checked_sub(1));
    }

    pub(crate) fn next(&mut self) {
        self.stand(self.at.map(|at| at + 1));
    }

    pub(crate) fn prev(&mut self) {
        self.stand(self.at.and_then(|at| at.checked_sub(1)));
    }

    pub(crate) fn item(&self) -> Option<(&[u8], &[u8])> {
        self.at.map(|at| self.entry(at))
    }
}
