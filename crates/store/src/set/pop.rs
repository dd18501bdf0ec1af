//! Taking members out at random.
//!
//! One member comes from a pool that was drawn on a walk over all of them, or, if they are more than find room there and
//! counted, from its rank. A handful is collected, on a walk or by ranks, and its rows are deleted. Members by the million are neither collected nor
//! deleted one by one: the members that stay are written as a new version of the set, ahead of the commit
//! if they are many, and the reply walks over the old version, whose rows its walk has pinned, and makes
//! the same choice again.

use cairn_engine::{EngineError, Family};

use super::{Selection, Set, Step, Written};
use crate::error::{Error, Result};
use crate::queues::Shuffle;
use crate::random::Lottery;
use crate::txn::{ReadTxn, WriteTxn};

/// How many bytes of members are collected.
const HANDFUL: usize = 4 * 1024 * 1024;
/// What a member costs besides its bytes, in the collection and in the batch that deletes it.
const OVERHEAD: usize = 128;

/// Up to so many members are popped one by one.
const ONE_BY_ONE: u64 = 128;
/// A larger set is not walked on a connection thread.
const SHORT_WALK: u64 = 16 * 1024;
/// To walk over a larger one takes so long that members are drawn by their ranks, once these are known.
const LONG_WALK: u64 = 128 * 1024;
/// What a member takes in the pool, for all that is known before the walk.
const LIKELY_BYTES: u64 = 64;

/// What was taken out.
pub enum Popped {
    Few(Vec<Vec<u8>>),
    /// They can still be read when the change has been committed.
    Many {
        count: u64,
        members: Selection,
    },
}

impl Set {
    /// Takes out one member at random, if there is any.
    pub fn pop_one(mut self, txn: &mut WriteTxn) -> Result<Option<Vec<u8>>> {
        if self.is_empty() {
            return Ok(None);
        }
        let member = self.take_any(txn)?;
        self.save(txn);
        Ok(Some(member))
    }

    /// Takes out a member. There must be one.
    fn take_any(&mut self, txn: &mut WriteTxn) -> Result<Vec<u8>> {
        loop {
            let queues = txn.store().queues();
            let Some(member) = queues.take_any(self.0.key(), self.0.version()) else {
                if self.len() > LONG_WALK
                    && !self.fits_in_pool(txn)
                    && let Some(member) = self.take_by_rank(txn)?
                {
                    return Ok(member);
                }
                if !self.fill_pool(txn)? {
                    return Err(EngineError::Corrupt("a member is missing".into()).into());
                }
                continue;
            };
            // It is missing there from now on, unless the commit fails.
            txn.queues();
            // It may have left by another way.
            if self.delete_row(txn, &member)? {
                return Ok(member);
            }
        }
    }

    /// Whether one walk is enough for all pops to come: nothing has to be counted for them then.
    fn fits_in_pool(&self, txn: &ReadTxn) -> bool {
        let room = txn.store().queues().room(self.0.key()) as u64;
        !self.0.is_counted() && self.len().saturating_mul(LIKELY_BYTES) <= room
    }

    /// Takes out a member, if they are counted.
    pub(crate) fn take_by_rank(&mut self, txn: &mut WriteTxn) -> Result<Option<Vec<u8>>> {
        if !self.0.has_ranks(txn)? {
            return Ok(None);
        }
        let member = self.random(txn)?;
        if let Some(member) = &member {
            self.remove(txn, member)?;
        }
        Ok(member)
    }

    /// Draws members for the pops to come; false if there are none.
    fn fill_pool(&self, txn: &WriteTxn) -> Result<bool> {
        if self.len() > SHORT_WALK && !txn.is_patient() {
            return Err(Error::TooLong);
        }
        let (key, queues) = (self.0.key(), txn.store().queues());
        let mut shuffle = Shuffle::new(queues.room(key));
        let mut rows = self.rows(txn)?;
        while let Some((row_key, _)) = rows.next()? {
            txn.step()?;
            shuffle.add(self.member_of(row_key));
        }
        let pool = shuffle.finish();
        let is_any = !pool.is_empty();
        queues.fill_pool(key, self.0.version(), || txn.may_keep(), pool);
        txn.check_lead()?;
        Ok(is_any)
    }

    /// Takes out that many members at random, or all if there are fewer.
    pub fn pop(mut self, txn: &mut WriteTxn, count: u64) -> Result<Popped> {
        if count > ONE_BY_ONE || count >= self.len() {
            return match self.collect_by_rank(txn, count)? {
                Some(popped) => {
                    self.pop_few(txn, &popped)?;
                    Ok(Popped::Few(popped))
                }
                None => self.pop_by_handful(txn, count, HANDFUL),
            };
        }
        let mut members = Vec::new();
        for _ in 0..count {
            members.push(self.take_any(txn)?);
        }
        self.save(txn);
        Ok(Popped::Few(members))
    }

    /// Members to be taken out of a set that is counted, and so large that a walk would pass over most of it in vain;
    /// None if it is not, or if they are too large to be collected.
    fn collect_by_rank(&self, txn: &ReadTxn, count: u64) -> Result<Option<Vec<Vec<u8>>>> {
        let Some(mut jumps) = self.0.jumps(txn, count, false)? else {
            return Ok(None);
        };
        if !txn.is_patient() {
            return Err(Error::TooLong);
        }
        let (mut members, mut bytes) = (Vec::new(), 0);
        while let Some((row_key, _)) = jumps.next()? {
            let member = self.member_of(row_key).to_vec();
            bytes += member.len() + OVERHEAD;
            if bytes > HANDFUL {
                return Ok(None);
            }
            members.push(member);
        }
        Ok(Some(members))
    }

    pub(super) fn pop_by_handful(
        self,
        txn: &mut WriteTxn,
        count: u64,
        handful: usize,
    ) -> Result<Popped> {
        let count = count.min(self.len());
        let lottery = Lottery::new(count, self.len());
        let mut chosen = Selection::chosen(txn, &self, &lottery, count)?;
        if let Some(popped) = collect(txn, &mut chosen, handful)? {
            self.pop_few(txn, &popped)?;
            return Ok(Popped::Few(popped));
        }
        if !txn.is_patient() {
            return Err(Error::TooLong);
        }
        chosen.rewind();
        self.pop_many(txn, &lottery, count)?;
        Ok(Popped::Many {
            count,
            members: chosen,
        })
    }

    fn pop_few(mut self, txn: &mut WriteTxn, popped: &[Vec<u8>]) -> Result<()> {
        let count = popped.len() as u64;
        // Without its metadata the set is gone, and so are all its rows.
        if count < self.len() {
            for member in popped {
                txn.delete(Family::Data, &self.0.row_key(member));
                self.0.count_out(txn, member)?;
                let queues = txn.store().queues();
                queues.leave(self.0.key(), self.0.version(), member);
            }
        }
        self.0.shrink(count);
        self.save(txn);
        Ok(())
    }

    fn pop_many(mut self, txn: &mut WriteTxn, lottery: &Lottery, count: u64) -> Result<()> {
        if count == self.len() {
            self.0.shrink(count);
            self.save(txn);
            return Ok(());
        }
        let key = self.0.key();
        let left_over = Selection::left_over(txn, &self, lottery, count)?;
        let written = Written::write(txn, key, left_over)?;
        let expire_ms = txn.find(key)?.map_or(0, |found| found.expire_ms);
        written.install(txn, key, expire_ms);
        Ok(())
    }
}

/// All that were chosen; none of them if that is too much.
fn collect(txn: &ReadTxn, chosen: &mut Selection, handful: usize) -> Result<Option<Vec<Vec<u8>>>> {
    let (mut popped, mut bytes) = (Vec::new(), 0);
    loop {
        txn.step()?;
        match chosen.step()? {
            Step::End => return Ok(Some(popped)),
            Step::Onward => {}
            Step::Member => {
                bytes += chosen.member().len() + OVERHEAD;
                if bytes > handful {
                    return Ok(None);
                }
                popped.push(chosen.member().to_vec());
            }
        }
    }
}
