//! Taking members out at random.
//!
//! A handful is collected and its rows are deleted. Members by the million are neither collected nor
//! deleted one by one: the members that stay are written as a new version of the set, ahead of the commit
//! if they are many, and the reply walks over the old version, whose rows its walk has pinned, and makes
//! the same choice again.

use cairn_engine::Family;

use super::{Selection, Set, Step, Written};
use crate::error::{Error, Result};
use crate::random::Lottery;
use crate::txn::{ReadTxn, WriteTxn};

/// How many bytes of members are collected.
const HANDFUL: usize = 4 * 1024 * 1024;
/// What a member costs besides its bytes, in the collection and in the batch that deletes it.
const OVERHEAD: usize = 128;

/// How many members are drawn at once to be popped one by one: a quarter of the set within these limits.
const LEAST_POOL: u64 = 1024;
const MOST_POOL: u64 = 16 * 1024;

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
        let member = loop {
            let (key, version) = (self.0.key(), self.0.version());
            let member = match txn.queues().take_any(key, version) {
                Some(member) => member.into_vec(),
                None => match self.fill_pool(txn)? {
                    true => continue,
                    false => match self.random(txn)? {
                        Some(member) => member,
                        None => return Ok(None),
                    },
                },
            };
            // It may have left by another way.
            if self.remove(txn, &member)? {
                break member;
            }
        };
        self.save(txn);
        Ok(Some(member))
    }

    /// Draws members for the pops to come; false if they would take too much memory.
    fn fill_pool(&self, txn: &WriteTxn) -> Result<bool> {
        let count = (self.len() / 4)
            .clamp(LEAST_POOL, MOST_POOL)
            .min(self.len());
        let lottery = Lottery::new(count, self.len());
        let mut chosen = Selection::chosen(txn, self, &lottery, count);
        let Some(members) = collect(txn, &mut chosen, HANDFUL)? else {
            return Ok(false);
        };
        let members = members.into_iter().map(Vec::into_boxed_slice).collect();
        let queues = txn.store().queues();
        queues.fill(self.0.key(), self.0.version(), members);
        Ok(true)
    }

    /// Takes out that many members at random, or all if there are fewer.
    pub fn pop(self, txn: &mut WriteTxn, count: u64) -> Result<Popped> {
        self.pop_by_handful(txn, count, HANDFUL)
    }

    pub(super) fn pop_by_handful(
        self,
        txn: &mut WriteTxn,
        count: u64,
        handful: usize,
    ) -> Result<Popped> {
        let count = count.min(self.len());
        let lottery = Lottery::new(count, self.len());
        let mut chosen = Selection::chosen(txn, &self, &lottery, count);
        if let Some(popped) = collect(txn, &mut chosen, handful)? {
            self.pop_few(txn, &popped);
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

    fn pop_few(mut self, txn: &mut WriteTxn, popped: &[Vec<u8>]) {
        let count = popped.len() as u64;
        // Without its metadata the set is gone, and so are all its rows.
        if count < self.len() {
            for member in popped {
                txn.delete(Family::Data, &self.0.row_key(member));
            }
        }
        self.0.shrink(count);
        self.save(txn);
    }

    fn pop_many(mut self, txn: &mut WriteTxn, lottery: &Lottery, count: u64) -> Result<()> {
        if count == self.len() {
            self.0.shrink(count);
            self.save(txn);
            return Ok(());
        }
        let key = self.0.key();
        let left_over = Selection::left_over(txn, &self, lottery, count);
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
