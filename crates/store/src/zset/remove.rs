//! Taking many members out at once: ZREMRANGEBY*, ZPOPMIN with a count.
//!
//! Each member costs two deletions, and all of them stand in memory until the commit. So when most of a
//! large set goes, it is what stays that is written, as a new version: less work, and it may be spilled.
//! When everything goes, nothing is written but the metadata.
//!
//! Members by the million are not collected for the reply either: it walks over the rows as they were, which
//! its walk has pinned.

use cairn_engine::{Direction, EngineError, Expected, Family, Rows};

use super::span::successor;
use super::{ScoreRows, Scored, Span, Zset, score_of};
use crate::build::Builder;
use crate::error::{Error, Result};
use crate::queues::Nearest;
use crate::txn::WriteTxn;

/// Up to so many deletions are always made one by one.
const FEW: u64 = 10_000;
/// What the two deletions of a member take in memory until the commit, about.
const DELETION_BYTES: usize = 400;
/// The share of the memory that deletions made one by one may take.
const MEMORY_SHARE: usize = 8;
/// More than so many deletions are never made one by one.
const MANY: u64 = 1_000_000;

/// How many deletions fit in the memory there is.
fn many(memory: usize) -> u64 {
    let fits = memory / MEMORY_SHARE / DELETION_BYTES;
    (fits as u64).clamp(FEW, MANY)
}

/// How many bytes of popped members are collected, and what a member costs besides its row key.
pub(super) const HANDFUL: usize = 4 * 1024 * 1024;
const OVERHEAD: usize = 64;

/// Up to so many members are popped one by one.
const ONE_BY_ONE: u64 = 512;

/// How many rows of a walk that looks ahead count as one.
const ROWS_IN_A_STEP: usize = 4;

/// What was taken out.
pub enum Popped {
    Few(Vec<Scored>),
    /// They can still be read when the change has been committed.
    Many {
        count: u64,
        rows: Box<Rows>,
        keys: ScoreRows,
    },
}

impl Zset {
    /// Takes out the members of a span, which are `count` in number. True if the others stay where they are; false if they were
    /// written anew, or there are none.
    pub fn remove_span(mut self, txn: &mut WriteTxn, span: &Span, count: u64) -> Result<bool> {
        let left = self.len() - count;
        if left == 0 {
            self.0.shrink(count);
        } else if count > left.clamp(FEW, many(txn.store().memory())) {
            self.keep_only_outside(txn, span)?;
            return Ok(false);
        } else {
            self.delete_span(txn, span)?;
        }
        self.save(txn);
        Ok(left > 0)
    }

    /// Takes out the first member of a walk, if there is any.
    pub fn pop_one(mut self, txn: &mut WriteTxn, direction: Direction) -> Result<Option<Scored>> {
        if self.is_empty() {
            return Ok(None);
        }
        let member = self.take_nearest(txn, direction, None)?;
        self.save(txn);
        Ok(Some(member))
    }

    /// Takes out the first `count` members of a walk.
    pub fn pop(mut self, txn: &mut WriteTxn, direction: Direction, count: u64) -> Result<Popped> {
        if count > ONE_BY_ONE {
            return self.pop_by_handful(txn, direction, count, HANDFUL);
        }
        let mut members = Vec::new();
        let changes_first = !txn.has_changed_rows();
        while (members.len() as u64) < count && !self.is_empty() {
            let first = members.first().filter(|_| changes_first);
            members.push(self.take_nearest(txn, direction, first)?);
        }
        self.save(txn);
        Ok(Popped::Few(members))
    }

    /// Takes out the first member of a walk without walking, if it is known. There must be one. The one that the command took
    /// out first is told if nothing had been changed before it.
    fn take_nearest(
        &mut self,
        txn: &mut WriteTxn,
        direction: Direction,
        first: Option<&Scored>,
    ) -> Result<Scored> {
        let keys = ScoreRows { score_at: 0 };
        loop {
            let (key, version) = (self.0.key(), self.0.version());
            let read = |element: &[u8]| (self.0.row_key(element), keys.scored(element));
            let (mut coming, mut coming_scores) = (Expected::default(), Expected::default());
            let expect = |element: &[u8]| {
                coming.add(Family::Data, &self.0.row_key(keys.member(element)));
                coming_scores.add(Family::ZsetScore, &self.0.row_key(element));
            };
            let queues = txn.store().queues();
            let nearest = queues.take_nearest(key, version, direction, read, expect);
            txn.store().engine().expect(&coming);
            txn.store().engine().expect(&coming_scores);
            let Some((score_key, found)) = nearest else {
                if !self.look_ahead(txn, direction, first)? {
                    return Err(EngineError::Corrupt("a member is missing".into()).into());
                }
                continue;
            };
            // It is missing there from now on, unless the commit fails.
            txn.note_taken(key);
            let row_key = self.0.row_key(&found.member);
            let row = self.0.get_row(txn, &row_key)?;
            let score = row.map(|row| score_of(&row)).transpose()?;
            // It may have left by another way, or have another score now.
            if score == Some(found.score) {
                txn.delete(Family::Data, &row_key);
                txn.delete(Family::ZsetScore, &score_key);
                self.0.count_out(txn, self.0.sub_of(&score_key))?;
                self.0.shrink(1);
                return Ok(found);
            }
        }
    }

    /// Finds out what comes next; false if that is nothing.
    fn look_ahead(
        &self,
        txn: &WriteTxn,
        direction: Direction,
        popped_first: Option<&Scored>,
    ) -> Result<bool> {
        let (key, version) = (self.0.key(), self.0.version());
        let queues = txn.store().queues();
        let mut walk = queues.next_walk(key, version, direction);
        let span = self.without_ends(txn, self.whole());
        let mut rows = self.rows(txn, &span, direction)?;
        walk.make_worth(rows.carried(), txn.is_patient());
        let mut passed = 0;
        while walk.wants_more() {
            // To pass over a row is all that is done to it: that makes a step of several.
            passed += 1;
            if passed % ROWS_IN_A_STEP == 0 {
                txn.step()?;
            }
            match rows.next()? {
                Some((row_key, _)) => walk.find(self.0.sub_of(row_key)),
                None => walk.complete(),
            }
        }
        let is_any = walk.first().is_some();
        let bound = match popped_first {
            // If the command is taken back, that is there again, and nothing before it.
            Some(popped) => {
                let row_key = self.score_key(popped.score, &popped.member);
                Some(self.0.sub_of(&row_key).to_vec())
            }
            None if txn.has_changed_rows() => None,
            None => walk.first().map(<[u8]>::to_vec),
        };
        let bound = bound.as_deref();
        queues.extend(key, version, || txn.may_keep(), direction, walk, bound);
        txn.check_lead()?;
        Ok(is_any)
    }

    /// A walk from an end has found this element first. If all that lay before it is gone for good, no walk has to look there.
    fn note_first(&self, txn: &WriteTxn, direction: Direction, element: &[u8]) {
        if !txn.has_changed_rows() {
            let (key, version) = (self.0.key(), self.0.version());
            let queues = txn.store().queues();
            queues.raise(key, version, || txn.may_keep(), direction, element);
        }
    }

    /// What is left of a span without the ends of the set where nothing lies any more, for all that is known: a walk would pass
    /// over all that was popped there.
    fn without_ends(&self, txn: &WriteTxn, span: Span) -> Span {
        let (key, version) = (self.0.key(), self.0.version());
        let queues = txn.store().queues();
        let Span {
            mut lower,
            mut upper,
        } = span;
        let [lowest, highest] = queues.ends(key, version);
        if let Some(lowest) = lowest {
            lower = lower.max(match lowest {
                Nearest::At(element) => self.0.row_key(&element).to_vec(),
                Nearest::Behind(element) => successor(&self.0.row_key(&element)),
            });
        }
        if let Some(highest) = highest {
            upper = upper.min(match highest {
                Nearest::At(element) => successor(&self.0.row_key(&element)),
                Nearest::Behind(element) => self.0.row_key(&element).to_vec(),
            });
        }
        // Nothing is left of a span that lies in one of the ends.
        Span {
            lower: lower.min(upper.clone()),
            upper,
        }
    }

    pub(super) fn pop_by_handful(
        self,
        txn: &mut WriteTxn,
        direction: Direction,
        count: u64,
        handful: usize,
    ) -> Result<Popped> {
        let count = count.min(self.len());
        let keys = self.score_rows();
        let Span { lower, upper } = self.whole();
        let within = self.without_ends(txn, self.whole());
        let mut rows = self.rows(txn, &within, direction)?;
        let (mut members, mut bytes, mut last) = (Vec::new(), 0, Vec::new());
        let mut are_few = true;
        let mut left = count;
        while left > 0
            && let Some((key, _)) = rows.next()?
        {
            txn.step()?;
            if left == count {
                self.note_first(txn, direction, self.0.sub_of(key));
            }
            left -= 1;
            if left == 0 {
                last = key.to_vec();
            }
            bytes += key.len() + OVERHEAD;
            are_few = bytes <= handful;
            if are_few {
                members.push(keys.scored(key));
            } else if !txn.is_patient() {
                return Err(Error::TooLong);
            } else if count == self.len() {
                // Nobody has to know where the last one lies.
                break;
            }
        }
        if last.is_empty() && (1..self.len()).contains(&count) {
            txn.check_lead()?;
            return Err(EngineError::Corrupt("a member is missing".into()).into());
        }
        let popped = if are_few {
            Popped::Few(members)
        } else {
            rows.rewind();
            let rows = Box::new(rows);
            Popped::Many { count, rows, keys }
        };
        if count > 0 {
            let (key, version) = (self.0.key().clone(), self.0.version());
            let span = match direction {
                Direction::Forward => Span::new(lower, successor(&last)),
                Direction::Backward => Span::new(last.clone(), upper),
            };
            if self.remove_span(txn, &span, count)? {
                // They are missing there from now on, unless the commit fails.
                txn.note_taken(&key);
                let (queues, last) = (txn.store().queues(), key.sub_of(&last));
                queues.pass(&key, version, || txn.may_keep(), direction, last);
            }
        }
        Ok(popped)
    }

    fn delete_span(&mut self, txn: &mut WriteTxn, span: &Span) -> Result<()> {
        let keys = self.score_rows();
        let span = self.without_ends(txn, span.clone());
        let mut rows = self.rows(txn, &span, Direction::Forward)?;
        while let Some((key, _)) = rows.next()? {
            txn.step()?;
            self.delete_rows(txn, keys.score(key), keys.member(key))?;
            self.0.shrink(1);
        }
        Ok(())
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
            let side = self.without_ends(txn, side);
            if side.is_empty() {
                continue;
            }
            let mut rows = self.rows(txn, &side, Direction::Forward)?;
            while let Some((key, _)) = rows.next()? {
                txn.step()?;
                kept.scored(txn, keys.member(key), keys.score(key))?;
            }
        }
        kept.finish_zset(txn, expire_ms)?;
        Ok(())
    }
}
