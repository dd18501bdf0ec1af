//! Sorted sets: two rows per member.
//!
//! ```text
//!   data        prefix | version | member          → score
//!   zset_score  prefix | version | score | member  → (empty)
//! ```
//!
//! Who knows the member finds its score by the first (ZSCORE, ZADD); who asks for an order walks the
//! second, in which members of equal score sort by their bytes. Every change writes both, so that each
//! row of one has its counterpart in the other, and the size in the metadata is the number of either.
//!
//! The questions come down to three, each with a module of its own: `span` turns a range of scores or
//! of members into a range of rows, `rank` knows how many rows a span has and which is the n-th, and
//! `algebra` merges several sorted sets by member. `remove` takes many members out at once.

mod algebra;
mod rank;
mod remove;
mod span;

#[cfg(test)]
mod tests;

use cairn_encoding::metadata::CollectionKind;
use cairn_encoding::row::RowBytes;
use cairn_encoding::{row, score};
use cairn_engine::{Direction, Family, Rows};

use crate::collection::Collection;
use crate::error::Result;
use crate::txn::{ReadTxn, WriteTxn};

pub use algebra::{Aggregate, Algebra, Operation, Source};
pub use remove::Popped;
pub use span::{LexBound, LexRange, ScoreBound, ScoreRange, Span};

/// The score that the row of a member holds.
pub fn score_of(row: &[u8]) -> Result<f64> {
    Ok(score::decode_value(row)?)
}

/// A member taken out of its row.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    pub member: Vec<u8>,
    pub score: f64,
}

/// What [`Zset::update`] did. The scores are the new ones, as computed: a -0 is stored as 0, but the
/// client who asked for it is told -0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Update {
    Skipped,
    Added(f64),
    Changed(f64),
    /// The score was the same before.
    Kept(f64),
}

pub struct Zset(Collection);

impl Zset {
    #[inline]
    pub fn open(txn: &ReadTxn, name: &[u8]) -> Result<Zset> {
        Collection::open(txn, name, CollectionKind::ZSet).map(Zset)
    }

    pub fn exists(&self) -> bool {
        self.0.exists()
    }

    pub fn len(&self) -> u64 {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn collection(&self) -> &Collection {
        &self.0
    }

    pub fn score(&self, txn: &ReadTxn, member: &[u8]) -> Result<Option<f64>> {
        match self.0.get(txn, member)? {
            Some(row) => score_of(&row).map(Some),
            None => Ok(None),
        }
    }

    /// Gives a member the score that `decide` makes of its present one; none leaves it as it is.
    pub fn update(
        &mut self,
        txn: &mut WriteTxn,
        member: &[u8],
        decide: impl FnOnce(Option<f64>) -> Result<Option<f64>>,
    ) -> Result<Update> {
        let before = self.score(txn, member)?;
        let Some(score) = decide(before)? else {
            return Ok(Update::Skipped);
        };
        match before {
            Some(before) if before == score => return Ok(Update::Kept(score)),
            Some(before) => {
                let score_key = self.score_key(before, member);
                txn.delete(Family::ZsetScore, &score_key);
                self.0.count_out(txn, self.0.sub_of(&score_key))?;
            }
            None => {
                self.0.ensure_version(txn);
                self.0.grow(1);
            }
        }
        let (row_key, value) = (self.0.row_key(member), score::encode(score));
        match before {
            Some(_) => txn.put(Family::Data, &row_key, value),
            None => txn.put_new(Family::Data, &row_key, value),
        }
        let score_key = self.score_key(score, member);
        txn.put_new(Family::ZsetScore, &score_key, []);
        let element = self.0.sub_of(&score_key);
        self.0.count_in(txn, element)?;
        let queues = txn.store().queues();
        queues.add_scored(self.0.key(), self.0.version(), element);
        Ok(match before {
            Some(_) => Update::Changed(score),
            None => Update::Added(score),
        })
    }

    /// Takes a member out; true if it was there.
    pub fn remove(&mut self, txn: &mut WriteTxn, member: &[u8]) -> Result<bool> {
        let Some(score) = self.score(txn, member)? else {
            return Ok(false);
        };
        self.delete_rows(txn, score, member)?;
        self.0.shrink(1);
        Ok(true)
    }

    fn delete_rows(&self, txn: &mut WriteTxn, score: f64, member: &[u8]) -> Result<()> {
        txn.delete(Family::Data, &self.0.row_key(member));
        let score_key = self.score_key(score, member);
        txn.delete(Family::ZsetScore, &score_key);
        self.0.count_out(txn, self.0.sub_of(&score_key))
    }

    /// The score rows of a span; [`Zset::score_rows`] reads their keys.
    pub fn rows(&self, txn: &ReadTxn, span: &Span, direction: Direction) -> Result<Rows> {
        let Span { lower, upper } = span;
        self.0
            .rows_within(txn, Family::ZsetScore, lower, upper, direction)
    }

    /// How to read the keys of this set's score rows.
    pub fn score_rows(&self) -> ScoreRows {
        ScoreRows {
            score_at: self.0.sub_offset(),
        }
    }

    fn score_key(&self, score: f64, member: &[u8]) -> RowBytes {
        self.0.key().score(self.0.version(), score, member)
    }

    /// Writes the metadata: to be called after the last change.
    #[inline]
    pub fn save(self, txn: &mut WriteTxn) {
        self.0.save(txn);
    }
}

/// Reads the keys of one sorted set's score rows, for whoever outlives the [`Zset`]: a streamed reply.
#[derive(Clone, Copy, Debug)]
pub struct ScoreRows {
    score_at: usize,
}

impl ScoreRows {
    pub fn member(self, row_key: &[u8]) -> &[u8] {
        &row_key[self.score_at + row::SCORE_LEN..]
    }

    pub fn score(self, row_key: &[u8]) -> f64 {
        let mut bytes = [0; row::SCORE_LEN];
        bytes.copy_from_slice(&row_key[self.score_at..self.score_at + row::SCORE_LEN]);
        score::decode(bytes)
    }

    pub fn scored(self, row_key: &[u8]) -> Scored {
        Scored {
            member: self.member(row_key).to_vec(),
            score: self.score(row_key),
        }
    }
}
