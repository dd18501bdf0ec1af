//! Taking many members out at once: ZREMRANGEBY*, ZPOPMIN with a count.
//!
//! Each member costs two deletions, and all of them stand in memory until the commit. So when most of a
//! large set goes, it is what stays that is written, as a new version: less work, and it may be spilled.
//! When everything goes, nothing is written but the metadata.

use cairn_engine::Direction;

use super::span::successor;
use super::{Builder, Scored, Span, Zset};
use crate::error::Result;
use crate::txn::WriteTxn;

/// Up to so many deletions are always made one by one.
const FEW: u64 = 10_000;
/// More than so many deletions are never made one by one.
const MANY: u64 = 1_000_000;
/// How many rows are read before they are deleted: a walk shows the transaction and stops its changes.
const READ_AT_ONCE: usize = 1_000;

impl Zset {
    /// Takes out the members of a span, which are `count` in number.
    pub fn remove_span(mut self, txn: &mut WriteTxn, span: &Span, count: u64) -> Result<()> {
        let left = self.len() - count;
        if left == 0 {
            self.0.shrink(count);
        } else if count > left.clamp(FEW, MANY) {
            return self.keep_only_outside(txn, span);
        } else {
            self.delete_span(txn, span)?;
        }
        self.save(txn);
        Ok(())
    }

    /// Takes out the first `count` members of a walk.
    pub fn pop(self, txn: &mut WriteTxn, direction: Direction, count: u64) -> Result<Vec<Scored>> {
        let count = count.min(self.len());
        let keys = self.score_rows();
        let mut popped = Vec::new();
        let mut rows = self.rows(txn, &self.whole(), direction);
        while (popped.len() as u64) < count
            && let Some((key, _)) = rows.next()?
        {
            txn.step()?;
            popped.push(keys.scored(key));
        }
        drop(rows);
        let Some(last) = popped.last() else {
            return Ok(popped);
        };
        let key = self.score_key(last.score, &last.member);
        let Span { lower, upper } = self.whole();
        let span = match direction {
            Direction::Forward => Span::new(lower, successor(&key)),
            Direction::Backward => Span::new(key, upper),
        };
        self.remove_span(txn, &span, popped.len() as u64)?;
        Ok(popped)
    }

    fn delete_span(&mut self, txn: &mut WriteTxn, span: &Span) -> Result<()> {
        let keys = self.score_rows();
        let mut rest = span.clone();
        loop {
            let mut members = Vec::new();
            let mut rows = self.rows(txn, &rest, Direction::Forward);
            while members.len() < READ_AT_ONCE
                && let Some((key, _)) = rows.next()?
            {
                txn.step()?;
                members.push(keys.scored(key));
            }
            drop(rows);
            let Some(last) = members.last() else {
                return Ok(());
            };
            rest.lower = successor(&self.score_key(last.score, &last.member));
            for Scored { member, score } in &members {
                self.delete_rows(txn, *score, member);
            }
            self.0.shrink(members.len() as u64);
        }
    }

    pub(super) fn keep_only_outside(self, txn: &mut WriteTxn, span: &Span) -> Result<()> {
        let key = self.0.key();
        let expire_ms = txn.find(key)?.map_or(0, |found| found.expire_ms);
        let keys = self.score_rows();
        let whole = self.whole();
        let mut kept = Builder::new(txn, key.name());
        for side in [
            Span::new(whole.lower, span.lower.clone()),
            Span::new(span.upper.clone(), whole.upper),
        ] {
            if side.is_empty() {
                continue;
            }
            let mut rows = self.rows(txn, &side, Direction::Forward);
            while let Some((key, _)) = rows.next()? {
                txn.step()?;
                kept.add(txn, keys.member(key), keys.score(key))?;
            }
        }
        kept.finish(txn, expire_ms)?;
        Ok(())
    }
}
