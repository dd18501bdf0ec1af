//! Changes that come in no order.
//!
//! There may be thousands of them, and most walks end early: so they are put in order piece by piece, as the walk comes
//! to them.

use std::cmp::Ordering;

use crate::row::{Row, common_prefix, number_at};
use crate::rows::Direction;

/// How many are put in order first; then as many again as are, and so on.
const FIRST_PIECE: usize = 1024;

struct Change {
    /// The part of the key that comes after what all begin with: most are told apart by it.
    number: u64,
    /// Of several changes of one row that with the lowest counts.
    age: u32,
    row: Row,
}

pub(crate) struct Pile {
    direction: Direction,
    /// Those that are in order, which is that of the walk; each row once.
    ordered: Vec<Row>,
    /// How many of them the walk has passed.
    passed: usize,
    /// All that come later, in no order.
    later: Vec<Change>,
}

impl Pile {
    /// Of several changes of one row the first counts.
    pub(crate) fn new(changes: Vec<Row>, direction: Direction) -> Self {
        let common = common_prefix(changes.iter().map(Row::key));
        let later = changes.into_iter().zip(0..).map(|(row, age)| Change {
            number: number_at(row.key(), common),
            age,
            row,
        });
        Pile {
            direction,
            ordered: Vec::new(),
            passed: 0,
            later: later.collect(),
        }
    }

    /// How many changes there are, at most.
    pub(crate) fn len(&self) -> usize {
        self.ordered.len() + self.later.len()
    }

    /// The change that the walk comes to next.
    #[inline]
    pub(crate) fn peek(&mut self) -> Option<&Row> {
        while self.passed == self.ordered.len() && !self.later.is_empty() {
            self.order(self.ordered.len().max(FIRST_PIECE));
        }
        self.ordered.get(self.passed)
    }

    #[inline]
    pub(crate) fn advance(&mut self) {
        self.passed += 1;
    }

    /// The change that was passed last.
    #[inline]
    pub(crate) fn last(&self) -> Option<&Row> {
        self.ordered[..self.passed].last()
    }

    pub(crate) fn rewind(&mut self) {
        self.passed = 0;
    }

    pub(crate) fn seek(&mut self, to: &[u8]) {
        let direction = self.direction;
        let is_before = |row: &Row| in_order(direction, row.key().cmp(to)).is_lt();
        if self.ordered.last().is_none_or(is_before) {
            self.order(self.later.len());
        }
        self.passed = self.ordered.partition_point(is_before);
    }

    /// Puts the next `count` in order, or all that are left.
    fn order(&mut self, count: usize) {
        let direction = self.direction;
        let order = |one: &Change, other: &Change| {
            let by_key = one.number.cmp(&other.number);
            let by_key = by_key.then_with(|| one.row.key().cmp(other.row.key()));
            in_order(direction, by_key).then_with(|| one.age.cmp(&other.age))
        };
        // The next ones are moved to the end, from where they can be taken without moving the others.
        let kept = self.later.len().saturating_sub(count);
        if kept > 0 {
            self.later
                .select_nth_unstable_by(kept, |one, other| order(other, one));
        }
        let mut piece = match kept {
            0 => std::mem::take(&mut self.later),
            _ => self.later.split_off(kept),
        };
        piece.sort_unstable_by(order);
        self.ordered.reserve(piece.len());
        for Change { row, .. } in piece {
            let is_known = self
                .ordered
                .last()
                .is_some_and(|last| last.key() == row.key());
            if !is_known {
                self.ordered.push(row);
            }
        }
    }
}

pub(super) fn in_order(direction: Direction, by_key: Ordering) -> Ordering {
    match direction {
        Direction::Forward => by_key,
        Direction::Backward => by_key.reverse(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::Family;
    use std::collections::BTreeMap;

    /// Many changes, some of the same row, walked and sought in both directions, against a map.
    #[test]
    fn changes_come_in_order_and_each_row_once() {
        let mut random = fastrand::Rng::with_seed(3);
        for count in [0, 1, 2, 1023, 1024, 1025, 5000, 20_000] {
            let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
            let mut changes = Vec::new();
            for age in 0..count {
                let length = random.usize(0..12);
                let mut key = b"common".to_vec();
                key.extend((0..length).map(|_| random.u8(..4)));
                let value = format!("{age}").into_bytes();
                changes.push(Row::new(Family::Data, &key, Some(&value)));
                model.entry(key).or_insert(value);
            }
            for direction in [Direction::Forward, Direction::Backward] {
                let mut expected: Vec<_> = model.iter().collect();
                if direction == Direction::Backward {
                    expected.reverse();
                }
                let mut pile = Pile::new(changes.clone(), direction);
                assert_eq!(pile.len(), count);
                for round in 0..20 {
                    let mut at = 0;
                    match round {
                        0 => {}
                        1 => pile.rewind(),
                        _ => {
                            let to = changes.get(random.usize(..count.max(1)));
                            let to = to.map_or(&b"common"[..], Row::key);
                            pile.seek(to);
                            at = expected.partition_point(|(key, _)| match direction {
                                Direction::Forward => &key[..] < to,
                                Direction::Backward => &key[..] > to,
                            });
                        }
                    }
                    // Not all of it, so that the next one finds some in order and some not.
                    let stop = random.usize(at..=expected.len());
                    for (key, value) in &expected[at..stop] {
                        assert_eq!(pile.peek().map(Row::key), Some(&key[..]));
                        pile.advance();
                        let last = pile.last().and_then(Row::value);
                        assert_eq!(last, Some(&value[..]));
                    }
                    if stop == expected.len() {
                        assert!(pile.peek().is_none());
                    }
                }
            }
        }
    }
}
