//! Unions, intersections and differences of sorted sets, and of sets, whose members all score 1.
//!
//! The data rows of either kind sort by member, so that every operation is a merge of walks: nothing is
//! held but the row that each walk stands at. The result comes in the order of the members. Who wants
//! it in the order of the scores sorts it, or writes it to a key, which sorts by itself.
//!
//! Scores are aggregated from the smallest source to the largest, as Redis does: sums of doubles depend
//! on the order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use cairn_encoding::metadata::{CollectionKind, Type};
use cairn_encoding::score;

use crate::collection::Collection;
use crate::error::{Error, Result};
use crate::set::Step;
use crate::txn::ReadTxn;
use crate::walks::{ElementRows, Walks};

/// How many rows a walk that is behind tries one by one before it seeks: a seek costs as much as some
/// steps.
const STEPS_BEFORE_SEEK: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Union,
    Intersection,
    Difference,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn apply(self, a: f64, b: f64) -> f64 {
        match self {
            Aggregate::Sum => number_or_zero(a + b),
            Aggregate::Min if b < a => b,
            Aggregate::Max if b > a => b,
            Aggregate::Min | Aggregate::Max => a,
        }
    }
}

/// Infinities of opposite sign, and infinity weighted by zero, come to nothing.
fn number_or_zero(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// One of the keys that an operation reads: a sorted set, a set, or absent.
pub struct Source {
    collection: Collection,
    has_scores: bool,
    pub weight: f64,
}

impl Source {
    pub fn open(txn: &ReadTxn, name: &[u8]) -> Result<Source> {
        let found = txn.peek(&txn.key(name))?;
        let kind = match found.map(|found| found.kind()) {
            None | Some(Type::ZSet) => CollectionKind::ZSet,
            Some(Type::Set) => CollectionKind::Set,
            Some(_) => return Err(Error::WRONG_TYPE),
        };
        Ok(Source {
            collection: Collection::open(txn, name, kind)?,
            has_scores: kind == CollectionKind::ZSet,
            weight: 1.0,
        })
    }
}

/// The result of an operation, member by member. It may be made again, and of the same rows.
pub struct Algebra {
    operation: Operation,
    aggregate: Aggregate,
    /// Of a union, those that are over. Otherwise the first leads, and the others have to keep up with it.
    walks: Vec<Walk>,
    /// Of a union, those that are not over.
    heap: BinaryHeap<Reverse<Walk>>,
    member: Vec<u8>,
    score: f64,
}

impl Algebra {
    pub fn new(
        txn: &ReadTxn,
        operation: Operation,
        aggregate: Aggregate,
        mut sources: Vec<Source>,
    ) -> Result<Algebra> {
        if operation != Operation::Difference {
            sources.sort_by_key(|source| source.collection.len());
        }
        let is_void = match operation {
            Operation::Union => false,
            Operation::Intersection => sources.iter().any(|source| source.collection.is_empty()),
            Operation::Difference => sources
                .first()
                .is_none_or(|first| first.collection.is_empty()),
        };
        if is_void {
            sources.clear();
        }
        let opener = Walks::new(txn, sources.len())?;
        let walks = sources.into_iter().enumerate();
        let walks: Result<_> = walks
            .map(|(turn, source)| Walk::new(&opener, turn, source))
            .collect();
        let mut algebra = Algebra {
            operation,
            aggregate,
            walks: walks?,
            heap: BinaryHeap::new(),
            member: Vec::new(),
            score: 0.0,
        };
        algebra.rewind()?;
        Ok(algebra)
    }

    /// Starts again.
    pub fn rewind(&mut self) -> Result<()> {
        self.walks
            .extend(self.heap.drain().map(|Reverse(walk)| walk));
        for walk in &mut self.walks {
            walk.rewind()?;
        }
        if self.operation == Operation::Union {
            let under_way = self.walks.extract_if(.., |walk| !walk.is_over);
            self.heap.extend(under_way.map(Reverse));
        }
        Ok(())
    }

    /// Moves on by a few rows; members come in byte order.
    pub fn step(&mut self) -> Result<Step> {
        match self.operation {
            Operation::Union => self.step_union(),
            Operation::Intersection => self.step_intersection(),
            Operation::Difference => self.step_difference(),
        }
    }

    /// The next member and its score, however many steps it takes.
    pub fn next_member(&mut self, txn: &ReadTxn) -> Result<Option<(&[u8], f64)>> {
        loop {
            txn.step()?;
            match self.step()? {
                Step::Member => return Ok(Some(self.member())),
                Step::Onward => {}
                Step::End => return Ok(None),
            }
        }
    }

    /// The member that the last step came to, and its score.
    pub fn member(&self) -> (&[u8], f64) {
        (&self.member, self.score)
    }

    fn step_union(&mut self) -> Result<Step> {
        let mut total = None;
        while let Some(mut least) = self.heap.peek_mut() {
            let walk = &mut least.0;
            let score = number_or_zero(walk.weighted());
            total = Some(match total {
                None => {
                    self.member.clone_from(&walk.member);
                    score
                }
                Some(total) if walk.member == self.member => self.aggregate.apply(total, score),
                Some(_) => break,
            });
            walk.advance()?;
            if walk.is_over {
                self.walks.push(PeekMut::pop(least).0);
            }
        }
        match total {
            None => Ok(Step::End),
            Some(total) => {
                self.score = total;
                Ok(Step::Member)
            }
        }
    }

    fn step_intersection(&mut self) -> Result<Step> {
        let Some((leader, others)) = self.walks.split_first_mut() else {
            return Ok(Step::End);
        };
        if leader.is_over {
            return Ok(Step::End);
        }
        let mut total = number_or_zero(leader.weighted());
        for other in others {
            other.advance_to(&leader.member)?;
            if other.is_over {
                return Ok(Step::End);
            }
            if other.member != leader.member {
                leader.advance_to(&other.member)?;
                return Ok(Step::Onward);
            }
            // Unlike in a union, what is not a number takes the sum with it to zero, and is no minimum
            // or maximum.
            total = self.aggregate.apply(total, other.weighted());
        }
        self.member.clone_from(&leader.member);
        self.score = total;
        leader.advance()?;
        Ok(Step::Member)
    }

    fn step_difference(&mut self) -> Result<Step> {
        let Some((leader, others)) = self.walks.split_first_mut() else {
            return Ok(Step::End);
        };
        if leader.is_over {
            return Ok(Step::End);
        }
        for other in others {
            other.advance_to(&leader.member)?;
            if !other.is_over && other.member == leader.member {
                leader.advance()?;
                return Ok(Step::Onward);
            }
        }
        self.member.clone_from(&leader.member);
        self.score = leader.score;
        leader.advance()?;
        Ok(Step::Member)
    }
}

/// A walk over a source that stands at a member, or is over.
struct Walk {
    source: Source,
    rows: ElementRows,
    /// The place among the sources; of equal members the earlier source's comes first.
    turn: usize,
    member: Vec<u8>,
    score: f64,
    is_over: bool,
}

impl Walk {
    /// A walk that is over, until it is rewound.
    fn new(opener: &Walks<'_>, turn: usize, source: Source) -> Result<Walk> {
        Ok(Walk {
            rows: opener.open(&source.collection)?,
            source,
            turn,
            member: Vec::new(),
            score: 1.0,
            is_over: true,
        })
    }

    /// Moves to the first member.
    fn rewind(&mut self) -> Result<()> {
        self.rows.rewind();
        self.is_over = self.source.collection.is_empty();
        self.advance()
    }

    fn weighted(&self) -> f64 {
        self.source.weight * self.score
    }

    fn advance(&mut self) -> Result<()> {
        if self.is_over {
            return Ok(());
        }
        let (source, member, last) = (&self.source, &mut self.member, self.score);
        let read = self.rows.read_next(|key, value| {
            member.clear();
            member.extend_from_slice(source.collection.sub_of(key));
            if source.has_scores {
                score::decode_value(value)
            } else {
                Ok(last)
            }
        })?;
        match read {
            Some(score) => self.score = score?,
            None => self.is_over = true,
        }
        Ok(())
    }

    /// Moves on to the first member that is not below this one.
    fn advance_to(&mut self, member: &[u8]) -> Result<()> {
        for _ in 0..STEPS_BEFORE_SEEK {
            if self.is_over || *self.member >= *member {
                return Ok(());
            }
            self.advance()?;
        }
        if !self.is_over && *self.member < *member {
            self.rows.seek(&self.source.collection.row_key(member));
            self.advance()?;
        }
        Ok(())
    }
}

// The order of a union: by member, and by source where the members are equal.

impl Ord for Walk {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (&self.member, self.turn).cmp(&(&other.member, other.turn))
    }
}

impl PartialOrd for Walk {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Walk {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Walk {}
