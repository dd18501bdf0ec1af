//! Changes on top of the stored rows of a walk.
//!
//! What was changed last comes in no order ([`Pile`]); what was changed before that, if it is much, in runs that are in
//! order already ([`Run`]). The walk takes from all of them as from one.

mod pile;

use crate::generation::Run;
use crate::row::Row;
use crate::rows::Direction;
use crate::young::Carried;
use pile::{Pile, in_order};

pub(crate) struct Overlay {
    direction: Direction,
    pile: Pile,
    /// The newest first: of several changes of one row the first counts, and that of the pile before all.
    runs: Vec<Run>,
    /// Those that come to the next row, the one that counts first; if it is known, and if there are runs. Zero is the
    /// pile, and the runs follow.
    next: Vec<usize>,
    /// The one that the row came from which was passed last.
    last: usize,
}

impl Overlay {
    pub(crate) fn new(changes: Carried, direction: Direction) -> Self {
        Overlay {
            direction,
            pile: Pile::new(changes.newest, direction),
            runs: changes.runs,
            next: Vec::new(),
            last: 0,
        }
    }

    pub(crate) fn direction(&self) -> Direction {
        self.direction
    }

    /// How many changes there are, at most.
    pub(crate) fn len(&self) -> usize {
        self.pile.len() + self.runs.iter().map(Run::len).sum::<usize>()
    }

    /// The change that the walk comes to next.
    #[inline]
    pub(crate) fn peek(&mut self) -> Option<&Row> {
        if self.runs.is_empty() {
            return self.pile.peek();
        }
        self.peek_among_runs()
    }

    fn peek_among_runs(&mut self) -> Option<&Row> {
        if self.next.is_empty() {
            self.find_next();
        }
        match *self.next.first()? {
            0 => self.pile.peek(),
            number => self.runs[number - 1].peek(),
        }
    }

    fn find_next(&mut self) {
        let direction = self.direction;
        let newest = self.pile.peek();
        let mut first: Option<&Row> = None;
        let heads = std::iter::once(newest).chain(self.runs.iter().map(Run::peek));
        for (number, row) in heads.enumerate() {
            let Some(row) = row else {
                continue;
            };
            let order = first.map(|first| in_order(direction, row.key().cmp(first.key())));
            if order.is_none_or(std::cmp::Ordering::is_lt) {
                first = Some(row);
                self.next.clear();
                self.next.push(number);
            } else if order.is_some_and(std::cmp::Ordering::is_eq) {
                self.next.push(number);
            }
        }
    }

    /// Passes the change that was peeked at.
    #[inline]
    pub(crate) fn advance(&mut self) {
        if self.runs.is_empty() {
            return self.pile.advance();
        }
        self.last = self.next.first().copied().unwrap_or_default();
        for number in self.next.drain(..) {
            match number {
                0 => self.pile.advance(),
                number => self.runs[number - 1].advance(),
            }
        }
    }

    /// The change that was just passed.
    #[inline]
    pub(crate) fn last(&self) -> Option<&Row> {
        match self.last {
            0 => self.pile.last(),
            number => self.runs[number - 1].last(),
        }
    }

    pub(crate) fn rewind(&mut self) {
        self.pile.rewind();
        self.runs.iter_mut().for_each(Run::rewind);
        self.next.clear();
    }

    pub(crate) fn seek(&mut self, to: &[u8]) {
        self.pile.seek(to);
        self.runs.iter_mut().for_each(|run| run.seek(to));
        self.next.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::Family;
    use crate::generation::{Generation, WalkedRange};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    fn random_rows(random: &mut fastrand::Rng, count: usize) -> BTreeMap<Vec<u8>, Row> {
        let keys = (0..count).map(|_| {
            let length = random.usize(0..7);
            let letters = (0..length).map(|_| random.u8(b'a'..b'e'));
            letters.collect::<Vec<u8>>()
        });
        let keys: Vec<_> = keys.collect();
        let rows = keys.into_iter().map(|key| {
            let value = random.u64(..).to_be_bytes();
            let value = random.bool().then_some(&value[..]);
            (key.clone(), Row::new(Family::Metadata, &key, value))
        });
        rows.collect()
    }

    /// Random changes of some generations and of a pile on top, in a part of the keys, walked and sought, against a map.
    #[test]
    fn of_changes_from_everywhere_each_row_comes_once_as_it_is_now() {
        let mut random = fastrand::Rng::with_seed(5);
        for story in 0..300 {
            let mut model = BTreeMap::new();
            let mut generations = Vec::new();
            for _ in 0..random.usize(0..5) {
                let count = [10, 60, 1000][random.usize(..3)];
                let count = random.usize(0..count);
                let rows = random_rows(&mut random, count);
                let mut generation = Generation::default();
                rows.values().for_each(|row| {
                    generation.add(row.clone(), 0);
                });
                for other in 0..random.usize(0..50) {
                    let key = [&b"x"[..], &other.to_be_bytes()].concat();
                    generation.add(Row::new(Family::Metadata, &key, None), 0);
                }
                model.extend(rows);
                generations.push(Arc::new(generation));
            }
            let newest = random_rows(&mut random, story % 20);
            model.extend(newest.clone());
            let (from, to) = match random.bool() {
                true => (&b""[..], &b"x"[..]),
                false => (&b"b"[..], &b"d"[..]),
            };
            model.retain(|key, _| &key[..] >= from && &key[..] < to);
            let range = WalkedRange::new(Family::Metadata, from, to);
            for direction in [Direction::Forward, Direction::Backward] {
                let runs = generations.iter().rev();
                let mut newest: Vec<Row> = newest.values().cloned().collect();
                newest.retain(|row| row.key() >= from && row.key() < to);
                let carried = Carried {
                    newest,
                    runs: runs
                        .filter_map(|rows| rows.run(&range, direction))
                        .collect(),
                    ..Carried::default()
                };
                let mut overlay = Overlay::new(carried, direction);
                let mut expected: Vec<&Row> = model.values().collect();
                if direction == Direction::Backward {
                    expected.reverse();
                }
                for round in 0..6 {
                    let mut at = 0;
                    match round {
                        0 => {}
                        1 => overlay.rewind(),
                        _ => {
                            let to = [random.u8(b'a'..b'f'), random.u8(b'a'..b'f')];
                            overlay.seek(&to);
                            at = expected.partition_point(|row| match direction {
                                Direction::Forward => row.key() < &to[..],
                                Direction::Backward => row.key() > &to[..],
                            });
                        }
                    }
                    let stop = random.usize(at..=expected.len());
                    for row in &expected[at..stop] {
                        assert_eq!(overlay.peek().map(Row::bytes), Some(row.bytes()));
                        overlay.advance();
                        assert_eq!(overlay.last().map(Row::bytes), Some(row.bytes()));
                    }
                    if stop == expected.len() {
                        assert!(overlay.peek().is_none());
                    }
                }
            }
        }
    }
}
