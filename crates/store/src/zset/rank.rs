//! Positions: how many members lie in a span, where a member stands, who stands at a place.
//!
//! Where the members are counted (see [`crate::ranks`]), little is walked; else all of it is done by walking,
//! from the nearer end where that is known.

use cairn_engine::{Direction, Rows};

use super::span::successor;
use super::{Span, Zset};
use crate::error::Result;
use crate::ranks::skip;
use crate::txn::ReadTxn;

impl Zset {
    pub fn count(&self, txn: &ReadTxn, span: &Span) -> Result<u64> {
        if span.is_empty() || self.is_empty() {
            return Ok(0);
        }
        if *span == self.whole() {
            return Ok(self.len());
        }
        if let Some(count) = self.0.count_between(txn, self.from(span), self.to(span))? {
            return Ok(count);
        }
        let mut rows = self.rows(txn, span, Direction::Forward)?;
        skip(txn, &mut rows, u64::MAX)
    }

    /// Where a span begins; none if that is before all members.
    fn from<'s>(&self, span: &'s Span) -> Option<&'s [u8]> {
        (span.lower != self.whole().lower).then(|| self.0.sub_of(&span.lower))
    }

    /// Where it ends; none if that is behind all members.
    fn to<'s>(&self, span: &'s Span) -> Option<&'s [u8]> {
        (span.upper != self.whole().upper).then(|| self.0.sub_of(&span.upper))
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

    /// A walk that begins with the `rank`-th member, counted in the walk's own direction.
    pub fn rows_from(&self, txn: &ReadTxn, rank: u64, direction: Direction) -> Result<Rows> {
        let mut rows = self.rows(txn, &self.whole(), direction)?;
        if rank > 0 && rank < self.len() {
            let from_bottom = match direction {
                Direction::Forward => rank,
                Direction::Backward => self.len() - 1 - rank,
            };
            if let Some(key) = self.0.nth(txn, from_bottom)? {
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
            rank => self.0.nth(txn, rank)?,
        };
        let upper = if end >= self.len() {
            Some(whole.upper)
        } else {
            self.0.nth(txn, end)?
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
        let mut rows = self.rows(txn, span, direction)?;
        if span.is_empty() || offset >= self.len() || limit == 0 {
            return Ok((rows, 0));
        }
        if *span == self.whole() {
            let rows = self.rows_from(txn, offset, direction)?;
            return Ok((rows, limit.min(self.len() - offset)));
        }
        let near = txn.store().ranks().options().near();
        if offset.saturating_add(limit) > near
            && let Some(count) = self.0.count_between(txn, self.from(span), self.to(span))?
        {
            let Some(rest) = count.checked_sub(offset).filter(|rest| *rest > 0) else {
                return Ok((rows, 0));
            };
            if offset > 0 {
                let before = match self.from(span) {
                    Some(from) => self.0.count_before(txn, from)?.unwrap_or_default(),
                    None => 0,
                };
                let first = match direction {
                    Direction::Forward => before + offset,
                    Direction::Backward => before + rest - 1,
                };
                if let Some(first) = self.0.nth(txn, first)? {
                    rows.seek(&first);
                }
            }
            return Ok((rows, limit.min(rest)));
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
