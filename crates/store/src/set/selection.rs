//! Members chosen from one or several sets.
//!
//! A selection gives them one by one and holds none of them, so its memory does not depend on how many
//! there are. Nor does it hold up its thread: a step reads a handful of rows at most, whether it finds a
//! member or not, and the caller decides how many to take at a time.

use super::Set;
use super::algebra::{Difference, Intersection, Operation, Union};
use super::cursor::Cursor;
use super::random::{Repeats, Sample};
use crate::error::Result;
use crate::random::{Draws, Lottery};
use crate::txn::ReadTxn;
use crate::walks::Walks;

/// What a step came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A member, to be read by [`Selection::member`].
    Member,
    /// Nothing yet.
    Onward,
    End,
}

#[derive(Clone)]
enum Rule {
    Union(Union),
    Intersection(Intersection),
    Difference(Difference),
    Sample(Sample),
    Repeats(Box<Repeats>),
}

pub struct Selection {
    cursors: Vec<Cursor>,
    rule: Rule,
    /// The rule as it was before the first step, with the random numbers that it will come upon.
    start: Rule,
    member: Vec<u8>,
    len: Option<u64>,
}

impl Selection {
    /// The result of an operation, in byte order. All keys must hold sets or nothing, those included that
    /// cannot have a part in the result.
    pub fn of(txn: &ReadTxn, operation: Operation, names: &[&[u8]]) -> Result<Selection> {
        let mut sets = Vec::with_capacity(names.len());
        for name in names {
            sets.push(Set::open(txn, name)?);
        }
        match operation {
            Operation::Union => Self::union(txn, sets),
            Operation::Intersection => Self::intersection(txn, sets),
            Operation::Difference => Self::difference(txn, sets),
        }
    }

    fn union(txn: &ReadTxn, mut sets: Vec<Set>) -> Result<Self> {
        sets.retain(|set| !set.is_empty());
        keep_distinct(&mut sets);
        Self::over_sets(txn, Rule::Union(Union::default()), &sets)
    }

    fn intersection(txn: &ReadTxn, mut sets: Vec<Set>) -> Result<Self> {
        if sets.iter().any(Set::is_empty) {
            sets.clear();
        }
        keep_distinct(&mut sets);
        sets.sort_by_key(Set::len);
        Self::over_sets(txn, Rule::Intersection(Intersection::default()), &sets)
    }

    fn difference(txn: &ReadTxn, mut sets: Vec<Set>) -> Result<Self> {
        let mut others = sets.split_off(1.min(sets.len()));
        others.retain(|set| !set.is_empty());
        keep_distinct(&mut others);
        // A member that must go is found out soonest in a large set.
        others.sort_by_key(|set| std::cmp::Reverse(set.len()));
        sets.retain(|first| {
            let is_first = |other: &Set| key_of(other) == key_of(first);
            !first.is_empty() && !others.iter().any(is_first)
        });
        if !sets.is_empty() {
            sets.append(&mut others);
        }
        Self::over_sets(txn, Rule::Difference(Difference::default()), &sets)
    }

    /// By a rule that gives all members of a set that is alone.
    fn over_sets(txn: &ReadTxn, rule: Rule, sets: &[Set]) -> Result<Self> {
        let len = match sets {
            [] => Some(0),
            [alone] => Some(alone.len()),
            _ => None,
        };
        let walks = Walks::new(txn, sets.len())?;
        Self::new(&walks, rule, sets, len)
    }

    /// That many different members at random, or all if there are fewer; in byte order.
    pub fn sample(txn: &ReadTxn, set: &Set, count: u64) -> Result<Self> {
        let count = count.min(set.len());
        Self::chosen(txn, set, &Lottery::new(count, set.len()), count)
    }

    /// The members that a lottery chooses, which are `count`.
    pub(super) fn chosen(txn: &ReadTxn, set: &Set, lottery: &Lottery, count: u64) -> Result<Self> {
        Self::of_lottery(txn, set, lottery, true, count)
    }

    /// The members that the same lottery leaves.
    pub(super) fn left_over(
        txn: &ReadTxn,
        set: &Set,
        lottery: &Lottery,
        count: u64,
    ) -> Result<Self> {
        Self::of_lottery(txn, set, lottery, false, set.len() - count)
    }

    fn of_lottery(
        txn: &ReadTxn,
        set: &Set,
        lottery: &Lottery,
        gives_chosen: bool,
        len: u64,
    ) -> Result<Self> {
        let sample = Sample {
            lottery: lottery.clone(),
            gives_chosen,
        };
        Self::over_one(txn, Rule::Sample(sample), set, len)
    }

    /// So many draws from a set that is not empty, each giving any member, in random order.
    pub fn repeats(txn: &ReadTxn, set: &Set, count: u64) -> Result<Self> {
        let rule = Rule::Repeats(Box::new(Repeats(Draws::new(count, set.len()))));
        Self::over_one(txn, rule, set, count)
    }

    fn over_one(txn: &ReadTxn, rule: Rule, set: &Set, len: u64) -> Result<Self> {
        let walks = Walks::of_few(txn);
        Self::new(&walks, rule, std::slice::from_ref(set), Some(len))
    }

    fn new(walks: &Walks<'_>, rule: Rule, sets: &[Set], len: Option<u64>) -> Result<Self> {
        let cursors: Result<_> = sets.iter().map(|set| Cursor::new(walks, set)).collect();
        Ok(Selection {
            cursors: cursors?,
            start: rule.clone(),
            rule,
            member: Vec::new(),
            len,
        })
    }

    /// How many members there will be, if that is known without looking.
    pub fn known_len(&self) -> Option<u64> {
        self.len
    }

    pub fn step(&mut self) -> Result<Step> {
        let (cursors, member) = (self.cursors.as_mut_slice(), &mut self.member);
        match &mut self.rule {
            Rule::Union(union) => union.step(cursors, member),
            Rule::Intersection(intersection) => intersection.step(cursors, member),
            Rule::Difference(difference) => difference.step(cursors, member),
            Rule::Sample(sample) => sample.step(&mut cursors[0], member),
            Rule::Repeats(repeats) => repeats.step(&mut cursors[0], member),
        }
    }

    /// The member that the last step came to.
    pub fn member(&self) -> &[u8] {
        &self.member
    }

    /// Starts again; what follows is the same as before, at random or not.
    pub fn rewind(&mut self) {
        for cursor in &mut self.cursors {
            cursor.rewind();
        }
        self.rule = self.start.clone();
    }
}

fn key_of(set: &Set) -> &[u8] {
    set.0.key().metadata()
}

/// A key that is named twice adds nothing.
fn keep_distinct(sets: &mut Vec<Set>) {
    sets.sort_by(|a, b| key_of(a).cmp(key_of(b)));
    sets.dedup_by(|a, b| key_of(a) == key_of(b));
}
