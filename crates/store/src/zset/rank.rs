//! Positions: how many members lie in a span, where a member stands, who stands at a place.
//!
//! All of it is done by walking, from the nearer end where that is known. Nobody else counts rows, so
//! an index of counts has one module to replace.

use cairn_engine::{Direction, Rows};

use super::span::successor;
use super::{Span, Zset};
use crate::error::Result;
use crate::txn::ReadTxn;

impl Zset {
    pub fn count(&self, txn: &ReadTxn, span: &Span) -> Result<u64> {
        if span.is_empty() || self.is_empty() {
            return Ok(0);
        }
        if *span == self.whole() {
            return Ok(self.len());
        }
        let mut rows = self.rows(txn, span, Direction::Forward);
        skip(txn, &mut rows, u64::MAX)
    }

    /// How many members come before this one, walking in `direction`.
    pub fn rank_of(
        &self,
        txn: &ReadTxn,
        member: &[u8],
        direction: Direction,
    ) -> Result<Option<u64>> {
        let Some(score) = self.score(txn, member)? else {
            return Ok(None);
        };
        let key = self.score_key(score, member);
        let Span { lower, upper } = self.whole();
        let before = match direction {
            Direction::Forward => Span::new(lower, key.to_vec()),
            Direction::Backward => Span::new(successor(&key), upper),
        };
        self.count(txn, &before).map(Some)
    }

    /// The row that stands at `rank`, counted from the lowest.
    fn nth(&self, txn: &ReadTxn, rank: u64) -> Result<Option<Vec<u8>>> {
        if rank >= self.len() {
            return Ok(None);
        }
        let from_top = self.len() - 1 - rank;
        let (direction, before) = if rank <= from_top {
            (Direction::Forward, rank)
        } else {
            (Direction::Backward, from_top)
        };
        let mut rows = self.rows(txn, &self.whole(), direction);
        skip(txn, &mut rows, before)?;
        Ok(rows.next()?.map(|(key, _)| key.to_vec()))
    }

    /// A walk that begins with the `rank`-th member, counted in the walk's own direction.
    pub fn rows_from(&self, txn: &ReadTxn, rank: u64, direction: Direction) -> Result<Rows> {
        let mut rows = self.rows(txn, &self.whole(), direction);
        if rank > 0 && rank < self.len() {
            let from_bottom = match direction {
                Direction::Forward => rank,
                Direction::Backward => self.len() - 1 - rank,
            };
            if let Some(key) = self.nth(txn, from_bottom)? {
                rows.seek(&key);
            }
        }
        Ok(rows)
    }

    /// The `count` rows from the `rank`-th on, counted from the lowest.
    pub fn span_of_ranks(&self, txn: &ReadTxn, rank: u64, count: u64) -> Result<Span> {
        let whole = self.whole();
        let end = rank.saturating_add(count);
        let lower = match rank {
            0 => Some(whole.lower),
            rank => self.nth(txn, rank)?,
        };
        let upper = if end >= self.len() {
            Some(whole.upper)
        } else {
            self.nth(txn, end)?
        };
        Ok(match (lower, upper) {
            (Some(lower), Some(upper)) => Span::new(lower, upper),
            _ => self.nothing(),
        })
    }

    /// At most `limit` rows of a span, after the first `offset` of the walk; and how many they are.
    pub fn window(
        &self,
        txn: &ReadTxn,
        span: &Span,
        direction: Direction,
        offset: u64,
        limit: u64,
    ) -> Result<(Rows, u64)> {
        let mut rows = self.rows(txn, span, direction);
        if span.is_empty() || offset >= self.len() || limit == 0 {
            return Ok((rows, 0));
        }
        if *span == self.whole() {
            let rows = self.rows_from(txn, offset, direction)?;
            return Ok((rows, limit.min(self.len() - offset)));
        }
        skip(txn, &mut rows, offset)?;
        let Some(first) = rows.next()?.map(|(key, _)| key.to_vec()) else {
            return Ok((rows, 0));
        };
        let count = 1 + skip(txn, &mut rows, limit - 1)?;
        rows.seek(&first);
        Ok((rows, count))
    }
}

/// Passes over at most `count` rows; how many there were.
fn skip(txn: &ReadTxn, rows: &mut Rows, count: u64) -> Result<u64> {
    let mut passed = 0;
    while passed < count && rows.next()?.is_some() {
        txn.step()?;
        passed += 1;
    }
    Ok(passed)
}
