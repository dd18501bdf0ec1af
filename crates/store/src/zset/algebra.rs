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
use cairn_engine::{Direction, Rows};

use crate::collection::Collection;
use crate::error::{Error, Result};
use crate::txn::ReadTxn;

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
        let found = txn.find(&txn.key(name))?;
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

/// The result of an operation, member by member.
pub struct Algebra<'t> {
    txn: &'t ReadTxn,
    aggregate: Aggregate,
    merge: Merge<'t>,
    /// The member given last.
    member: Vec<u8>,
}

enum Merge<'t> {
    Union(BinaryHeap<Reverse<Walk<'t>>>),
    /// The first walk leads, and the others have to keep up with it.
    Intersection(Vec<Walk<'t>>),
    Difference(Vec<Walk<'t>>),
}

impl<'t> Algebra<'t> {
    pub fn new(
        txn: &'t ReadTxn,
        operation: Operation,
        aggregate: Aggregate,
        mut sources: Vec<Source>,
    ) -> Result<Algebra<'t>> {
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
        let mut walks = Vec::with_capacity(sources.len());
        for (turn, source) in sources.into_iter().enumerate() {
            walks.push(Walk::new(txn, turn, source)?);
        }
        Ok(Algebra {
            txn,
            aggregate,
            merge: match operation {
                Operation::Union => {
                    walks.retain(|walk| !walk.is_over);
                    Merge::Union(walks.into_iter().map(Reverse).collect())
                }
                Operation::Intersection => Merge::Intersection(walks),
                Operation::Difference => Merge::Difference(walks),
            },
            member: Vec::new(),
        })
    }

    /// The next member in byte order, and its score.
    pub fn next_member(&mut self) -> Result<Option<(&[u8], f64)>> {
        let (txn, aggregate, member) = (self.txn, self.aggregate, &mut self.member);
        let score = match &mut self.merge {
            Merge::Union(walks) => next_of_union(txn, aggregate, walks, member)?,
            Merge::Intersection(walks) => next_of_intersection(txn, aggregate, walks, member)?,
            Merge::Difference(walks) => next_of_difference(txn, walks, member)?,
        };
        Ok(score.map(|score| (self.member.as_slice(), score)))
    }
}

fn next_of_union(
    txn: &ReadTxn,
    aggregate: Aggregate,
    walks: &mut BinaryHeap<Reverse<Walk<'_>>>,
    member: &mut Vec<u8>,
) -> Result<Option<f64>> {
    let mut total = None;
    while let Some(mut least) = walks.peek_mut() {
        let walk = &mut least.0;
        let score = number_or_zero(walk.weighted());
        total = Some(match total {
            None => {
                member.clone_from(&walk.member);
                score
            }
            Some(total) if walk.member == *member => aggregate.apply(total, score),
            Some(_) => break,
        });
        walk.advance(txn)?;
        if walk.is_over {
            PeekMut::pop(least);
        }
    }
    Ok(total)
}

fn next_of_intersection(
    txn: &ReadTxn,
    aggregate: Aggregate,
    walks: &mut [Walk<'_>],
    member: &mut Vec<u8>,
) -> Result<Option<f64>> {
    let Some((leader, others)) = walks.split_first_mut() else {
        return Ok(None);
    };
    'candidates: while !leader.is_over {
        let mut total = number_or_zero(leader.weighted());
        for other in &mut *others {
            other.advance_to(txn, &leader.member)?;
            if other.is_over {
                leader.is_over = true;
                return Ok(None);
            }
            if other.member != leader.member {
                leader.advance_to(txn, &other.member)?;
                continue 'candidates;
            }
            // Unlike in a union, what is not a number takes the sum with it to zero, and is no minimum
            // or maximum.
            total = aggregate.apply(total, other.weighted());
        }
        member.clone_from(&leader.member);
        leader.advance(txn)?;
        return Ok(Some(total));
    }
    Ok(None)
}

fn next_of_difference(
    txn: &ReadTxn,
    walks: &mut [Walk<'_>],
    member: &mut Vec<u8>,
) -> Result<Option<f64>> {
    let Some((leader, others)) = walks.split_first_mut() else {
        return Ok(None);
    };
    'candidates: while !leader.is_over {
        for other in &mut *others {
            other.advance_to(txn, &leader.member)?;
            if !other.is_over && other.member == leader.member {
                leader.advance(txn)?;
                continue 'candidates;
            }
        }
        let score = leader.score;
        member.clone_from(&leader.member);
        leader.advance(txn)?;
        return Ok(Some(score));
    }
    Ok(None)
}

/// A walk over a source that stands at a member, or is over.
struct Walk<'t> {
    source: Source,
    rows: Rows<'t>,
    /// The place among the sources; of equal members the earlier source's comes first.
    turn: usize,
    member: Vec<u8>,
    score: f64,
    is_over: bool,
}

impl<'t> Walk<'t> {
    fn new(txn: &'t ReadTxn, turn: usize, source: Source) -> Result<Walk<'t>> {
        let mut walk = Walk {
            rows: source.collection.rows(txn, Direction::Forward),
            is_over: source.collection.is_empty(),
            source,
            turn,
            member: Vec::new(),
            score: 1.0,
        };
        walk.advance(txn)?;
        Ok(walk)
    }

    fn weighted(&self) -> f64 {
        self.source.weight * self.score
    }

    fn advance(&mut self, txn: &ReadTxn) -> Result<()> {
        if self.is_over {
            return Ok(());
        }
        txn.step()?;
        let Some((key, value)) = self.rows.next()? else {
            self.is_over = true;
            return Ok(());
        };
        self.member.clear();
        self.member
            .extend_from_slice(self.source.collection.sub_of(key));
        if self.source.has_scores {
            self.score = score::decode_value(value)?;
        }
        Ok(())
    }

    /// Moves on to the first member that is not below this one.
    fn advance_to(&mut self, txn: &ReadTxn, member: &[u8]) -> Result<()> {
        for _ in 0..STEPS_BEFORE_SEEK {
            if self.is_over || *self.member >= *member {
                return Ok(());
            }
            self.advance(txn)?;
        }
        if !self.is_over && *self.member < *member {
            self.rows.seek(&self.source.collection.row_key(member));
            self.advance(txn)?;
        }
        Ok(())
    }
}

// The order of a union: by member, and by source where the members are equal.

impl Ord for Walk<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (&self.member, self.turn).cmp(&(&other.member, other.turn))
    }
}

impl PartialOrd for Walk<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Walk<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Walk<'_> {}
