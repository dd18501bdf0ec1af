//! Rows in the order in which they came, each once, to be found by their hashes.
//!
//! What a turn of many commands gathers is gone through several times, and taken apart in the end. So the rows lie
//! densely, one behind the other, and only small numbers are spread by hash. The few rows of most batches need not even
//! that: they are looked through.

use crate::row::{Kind, Row, hash};

/// So many rows are looked through.
const FEW: usize = 8;
/// The smallest index: half of it stays free, so that searches stay short.
const LEAST: usize = 64;
/// To clear an index that is more than so many times as long as there are rows takes longer than to make one that fits.
const TOO_LONG: usize = 64;

#[derive(Default)]
pub(crate) struct OrderedRows {
    rows: Vec<Change>,
    /// One more than the place of a row, near where its hash says; zeros where there is none. A power of two, or none while
    /// there are few rows.
    index: Box<[u32]>,
}

/// A row that is changed.
pub(crate) struct Change {
    pub(crate) hash: u32,
    /// There was certainly no such row before.
    pub(crate) is_new: bool,
    pub(crate) row: Row,
}

impl Change {
    pub(crate) fn of(row: Row) -> Change {
        Change {
            hash: hash(row.kind(), row.key()),
            is_new: false,
            row,
        }
    }
}

/// Where a row is, or belongs.
pub(crate) enum Found<'r> {
    Row(&'r mut Row),
    Room(Room<'r>),
}

/// The right to add a row that is not there.
pub(crate) struct Room<'r> {
    rows: &'r mut OrderedRows,
    hash: u32,
    /// In the index, if there is one.
    slot: usize,
}

impl Room<'_> {
    pub(crate) fn add(self, row: Row, is_new: bool) {
        let Room { rows, hash, slot } = self;
        rows.rows.push(Change { hash, is_new, row });
        let count = rows.rows.len();
        if let Some(slot) = rows.index.get_mut(slot) {
            *slot = count as u32;
        }
        if count > FEW && count > rows.index.len() / 2 {
            rows.grow();
        }
    }
}

impl OrderedRows {
    /// An empty one that will hold about as many.
    pub(crate) fn successor(&self, most: usize) -> OrderedRows {
        let count = self.len().min(most);
        OrderedRows {
            rows: Vec::with_capacity(count),
            index: match count > FEW {
                true => empty_index(count),
                false => Box::default(),
            },
        }
    }

    /// Takes out every row, in order.
    pub(crate) fn drain(&mut self) -> std::vec::Drain<'_, Change> {
        match self.index.len() > self.len() * TOO_LONG {
            true => self.index = Box::default(),
            false => self.index.fill(0),
        }
        self.rows.drain(..)
    }

    /// Is empty afterwards, and has the room that it has for what comes next, unless that is more than for `most`.
    pub(crate) fn clear(&mut self, most: usize) {
        if !self.is_empty() {
            self.drain();
        }
        if self.rows.capacity() > most {
            *self = OrderedRows::default();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().map(|change| &change.row)
    }

    /// The row that came after so many others.
    pub(crate) fn at(&self, place: u32) -> &Row {
        &self.rows[place as usize].row
    }

    #[inline]
    fn mask(&self) -> usize {
        self.index.len() - 1
    }

    /// The place of a row, or where in the index it belongs.
    #[inline]
    fn place(&self, hash: u32, kind: Kind, key: &[u8]) -> Result<usize, usize> {
        let is_it = |change: &Change| change.hash == hash && change.row.is(kind, key);
        if self.index.is_empty() {
            return self.rows.iter().position(is_it).ok_or(0);
        }
        let mut slot = hash as usize & self.mask();
        loop {
            match self.index[slot] as usize {
                0 => return Err(slot),
                number if is_it(&self.rows[number - 1]) => return Ok(number - 1),
                _ => slot = (slot + 1) & self.mask(),
            }
        }
    }

    #[inline]
    pub(crate) fn get(&self, hash: u32, kind: impl Into<Kind>, key: &[u8]) -> Option<&Row> {
        let place = self.place(hash, kind.into(), key).ok()?;
        Some(&self.rows[place].row)
    }

    #[inline]
    pub(crate) fn find(&mut self, hash: u32, kind: impl Into<Kind>, key: &[u8]) -> Found<'_> {
        match self.place(hash, kind.into(), key) {
            Ok(place) => Found::Row(&mut self.rows[place].row),
            Err(slot) => Found::Room(Room {
                rows: self,
                hash,
                slot,
            }),
        }
    }

    /// Takes back the row that was added last.
    pub(crate) fn take_last(&mut self) -> Option<Row> {
        let Change { hash, row, .. } = self.rows.pop()?;
        if !self.index.is_empty() {
            // Nothing has been added behind it that is not gone: no search goes past its slot.
            let number = self.rows.len() as u32 + 1;
            let mut slot = hash as usize & self.mask();
            while self.index[slot] != number {
                slot = (slot + 1) & self.mask();
            }
            self.index[slot] = 0;
        }
        Some(row)
    }

    #[cold]
    fn grow(&mut self) {
        self.index = empty_index(self.rows.len());
        // In the order in which they came, so that the last is the last again.
        for number in 1..=self.rows.len() {
            let mut slot = self.rows[number - 1].hash as usize & self.mask();
            while self.index[slot] != 0 {
                slot = (slot + 1) & self.mask();
            }
            self.index[slot] = number as u32;
        }
    }
}

/// With room for twice as many rows, and as much again that stays free.
fn empty_index(rows: usize) -> Box<[u32]> {
    vec![0; (rows * 4).next_power_of_two().max(LEAST)].into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::family::Family;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Put(u8, u8),
        TakeLast,
        Begin,
        Drain,
        Clear(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            12 => any::<(u8, u8)>().prop_map(|(key, value)| Step::Put(key, value)),
            4 => Just(Step::TakeLast),
            1 => Just(Step::Begin),
            1 => Just(Step::Drain),
            1 => (0..100_usize).prop_map(Step::Clear),
        ]
    }

    proptest! {
        /// Few hashes, so that searches run into each other and round the end.
        #[test]
        fn it_does_what_a_list_does(steps in prop::collection::vec(step(), 0..400), hashes in 1..300_u32) {
            let hash = |key: u8| u32::from(key) % hashes * 0x9e37 + 60;
            let (mut rows, mut list) = (OrderedRows::default(), Vec::<(u8, u8)>::new());
            for step in steps {
                match step {
                    Step::Put(key, value) => {
                        let row = Row::new(Family::Data, &[key], Some(&[value]));
                        let known = list.iter_mut().find(|(other, _)| *other == key);
                        match (rows.find(hash(key), Family::Data, &[key]), known) {
                            (Found::Row(found), Some((_, before))) => {
                                *found = row;
                                *before = value;
                            }
                            (Found::Room(room), None) => {
                                room.add(row, key.is_multiple_of(2));
                                list.push((key, value));
                            }
                            _ => prop_assert!(false, "{key}"),
                        }
                    }
                    Step::TakeLast => {
                        let taken = rows.take_last().map(|row| (row.key()[0], row.value().unwrap()[0]));
                        prop_assert_eq!(taken, list.pop());
                    }
                    Step::Begin => {
                        rows = rows.successor(100);
                        list.clear();
                    }
                    Step::Drain => {
                        let drained = rows.drain().map(|change| (change.row.key()[0], change.row.value().unwrap()[0]));
                        prop_assert!(drained.eq(list.drain(..)));
                    }
                    Step::Clear(most) => {
                        rows.clear(most);
                        list.clear();
                    }
                }
                prop_assert_eq!((rows.len(), rows.is_empty()), (list.len(), list.is_empty()));
                for key in 0..=255 {
                    let found = rows.get(hash(key), Family::Data, &[key]);
                    let expected = list.iter().find(|(other, _)| *other == key);
                    prop_assert_eq!(found.map(|row| row.value().unwrap()[0]), expected.map(|(_, value)| *value));
                }
            }
            let left = rows.rows().map(|row| row.key()[0]);
            prop_assert!(left.eq(list.iter().map(|(key, _)| *key)));
        }
    }
}
