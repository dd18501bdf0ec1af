//! Taking members out at random.
//!
//! One member comes from a pool that was drawn on a walk over all of them, or, if they are more than find room there and
//! counted, from its rank. A handful is collected, on a walk or by ranks, and its rows are deleted. Members by the million are neither collected nor
//! deleted one by one: the members that stay are written as a new version of the set, ahead of the commit
//! if they are many, and the reply walks over the old version, whose rows its walk has pinned, and makes
//! the same choice again.
//!
//! What was popped leaves tombstones all over the set, and each walk passes over them as long as they are there. When there were
//! more of them than members, and not just a few, the members that stay are written as a new version, too, and no later walk passes
//! over what was popped before. No more members are written than were taken out since the last time, about. Where members are found
//! by their ranks nobody looks: there it is left to compactions, which RocksDB begins where it finds many deletions.

use cairn_engine::{EngineError, Expected, Family, deletions_passed};

use super::{Selection, Set, Step, Written};
use crate::collection::Collection;
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

/// So many deletions may be passed over by a walk, or as many as there are members.
const MOST_PASSED: u64 = 10_000;

/// What a walk over all members passes over besides.
struct Passed {
    /// How many tombstones the thread had passed over before it.
    before: u64,
}

impl Passed {
    fn begin() -> Self {
        Passed {
            before: deletions_passed(),
        }
    }

    /// Whether it was too much for a walk that was given so many young rows. They hide what RocksDB has, and no tombstone is
    /// counted for that; but those that are more than the members must be deletions, or puts that a deletion follows.
    fn is_too_much(&self, young: usize, members: u64) -> bool {
        let stored = deletions_passed().saturating_sub(self.before);
        let young = (young as u64).saturating_sub(members);
        stored + young > members.max(MOST_PASSED)
    }
}

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
            let mut coming = Expected::default();
            let expect = |member: &[u8]| coming.add(Family::Data, &self.0.row_key(member));
            let member = queues.take_any(self.0.key(), self.0.version(), expect);
            txn.store().engine().expect(&coming);
            let Some(member) = member else {
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
            txn.note_taken(self.0.key());
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
    fn fill_pool(&mut self, txn: &mut WriteTxn) -> Result<bool> {
        if self.len() > SHORT_WALK && !txn.is_patient() {
            return Err(Error::TooLong);
        }
        let mut shuffle = Shuffle::new(txn.store().queues().room(self.0.key()));
        let passed = Passed::begin();
        let mut rows = self.rows(txn)?;
        while let Some((row_key, _)) = rows.next()? {
            txn.step()?;
            shuffle.add(self.member_of(row_key));
        }
        let is_too_much = passed.is_too_much(rows.carried(), self.len());
        drop(rows);
        let pool = shuffle.finish();
        let is_any = !pool.is_empty();
        // Before the pool is known: if this has to begin again elsewhere, it must come to the same there.
        if is_any && is_too_much {
            self.write_anew(txn)?;
        }
        let queues = txn.store().queues();
        queues.fill_pool(self.0.key(), self.0.version(), || txn.may_keep(), pool);
        txn.check_lead()?;
        Ok(is_any)
    }

    /// Writes all members as a new version, if there is room, and goes on with that.
    fn write_anew(&mut self, txn: &mut WriteTxn) -> Result<()> {
        let nobody = Lottery::new(0, self.len());
        if self.keep_left_over(txn, &nobody, 0)? {
            let written = Collection::find(txn, self.0.key().clone())?;
            self.0 = written.ok_or_else(|| EngineError::Corrupt("a set is missing".into()))?;
        }
        Ok(())
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
        let passed = (count < self.len()).then(Passed::begin);
        let mut chosen = Selection::chosen(txn, &self, &lottery, count)?;
        if let Some(popped) = collect(txn, &mut chosen, handful)? {
            let is_too_much = match passed {
                Some(passed) => passed.is_too_much(self.rows(txn)?.carried(), self.len()),
                None => false,
            };
            if !is_too_much || !self.keep_left_over(txn, &lottery, count)? {
                self.pop_few(txn, &popped)?;
            }
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
        match self.keep_left_over(txn, lottery, count)? {
            true => Ok(()),
            false => Err(Error::DISK_FULL),
        }
    }

    /// Writes what a lottery leaves, which is not nothing, as a new version in place of this one. False if there is no room for
    /// that: nothing has been changed then.
    fn keep_left_over(&self, txn: &mut WriteTxn, lottery: &Lottery, count: u64) -> Result<bool> {
        if txn.store().disk_is_full() {
            return Ok(false);
        }
        if !txn.is_patient() {
            return Err(Error::TooLong);
        }
        let key = self.0.key();
        let left_over = Selection::left_over(txn, self, lottery, count)?;
        let written = match Written::write(txn, key, left_over) {
            // There was room a moment ago.
            Err(Error::Reply(_)) => return Ok(false),
            written => written?,
        };
        let replaced = txn.peek(key)?.map(|found| found.stamp());
        if let Some(replaced) = replaced {
            txn.remains().add(key, replaced.shape);
        }
        let expire_ms = replaced.map_or(0, |replaced| replaced.expire_ms);
        written.install(txn, key, expire_ms);
        Ok(true)
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
