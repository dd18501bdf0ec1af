//! ZRANDMEMBER.
//!
//! Picks are uniform: ranks are drawn, and the members at them looked up. Ranks are drawn some at a time
//! and sorted, so that one walk finds them all, and what it found is shuffled: a reply of any length is
//! written from bounded memory. Distinct ranks, however many, all lie on one walk.

use cairn_resp::{Detached, Progress, Reply, ReplyStream, StreamError, Writer};
use cairn_store::zset::{Picker, Scored};
use cairn_store::{Direction, Error, ReadTxn, Result, Zset};

use super::{Args, reply};
use crate::command::args::is;
use crate::command::rows::Shape;

/// How many members are drawn at once.
const DRAWN_AT_ONCE: usize = 4096;

pub fn zrandmember<'t>(txn: &'t ReadTxn, args: &Args) -> Result<Reply<'t>> {
    if args.len() == 2 {
        return one(txn, args[1]);
    }
    let count = args.int(2)?;
    if count == i64::MIN {
        return Err(Error::reply(format!(
            "ERR value is out of range, value must between {} and {}",
            -i64::MAX,
            i64::MAX
        )));
    }
    let has_scores = match args.rest(3) {
        [] => false,
        [option] if is(option, "withscores") => true,
        _ => return Err(Error::SYNTAX),
    };
    if has_scores && count.unsigned_abs() > i64::MAX.unsigned_abs() / 2 {
        return Err(Error::fixed("ERR value is out of range"));
    }
    several(txn, args[1], count, reply::shape(has_scores))
}

fn one<'t>(txn: &'t ReadTxn, name: &[u8]) -> Result<Reply<'t>> {
    let zset = Zset::open(txn, name)?;
    if zset.is_empty() {
        return Ok(Reply::Null);
    }
    expect_walk(txn, &zset)?;
    let picked = zset.picker(txn).at(fastrand::u64(..zset.len()))?;
    Ok(picked.map(|scored| scored.member).into())
}

fn several<'t>(txn: &'t ReadTxn, name: &[u8], count: i64, shape: Shape) -> Result<Reply<'t>> {
    let zset = Zset::open(txn, name)?;
    let size = zset.len();
    let wanted = count.unsigned_abs();
    if size == 0 || wanted == 0 {
        return Ok(Reply::Array(Vec::new()));
    }
    if count > 0 && wanted >= size {
        let rows = zset.rows(txn, &zset.whole(), Direction::Forward);
        return Ok(reply::of_rows(shape, size, rows, zset.score_rows()));
    }
    expect_walk(txn, &zset)?;
    Ok(Reply::Stream(Box::new(Drawing {
        shape,
        has_header: false,
        picker: zset.picker(txn),
        ranks: Ranks {
            size,
            wanted,
            next: (count > 0).then_some(0),
        },
        drawn: Vec::new(),
    })))
}

/// The walk is made while the reply is written, where it cannot move to another thread any more: that is
/// decided here.
fn expect_walk(txn: &ReadTxn, zset: &Zset) -> Result<()> {
    if !txn.is_patient() {
        for _ in 0..zset.len() {
            txn.step()?;
        }
    }
    Ok(())
}

/// Ranks that are still to be drawn.
struct Ranks {
    size: u64,
    wanted: u64,
    /// The lowest rank that may still come, if none may come twice.
    next: Option<u64>,
}

impl Ranks {
    /// The next ranks, in rising order; fewer than there is room for only if they are the last.
    fn draw(&mut self) -> Vec<u64> {
        let mut ranks = Vec::new();
        while self.wanted > 0 && ranks.len() < DRAWN_AT_ONCE {
            ranks.push(match &mut self.next {
                None => fastrand::u64(..self.size),
                Some(next) => distinct(next, self.size, self.wanted),
            });
            self.wanted -= 1;
        }
        ranks.sort_unstable();
        ranks
    }
}

/// Passes over ranks from `next` on until one is chosen: each with the probability that so many wanted
/// ones leave it among all that remain, which makes every selection equally likely.
fn distinct(next: &mut u64, size: u64, wanted: u64) -> u64 {
    loop {
        let rank = *next;
        *next += 1;
        if fastrand::u64(..size - rank) < wanted {
            return rank;
        }
    }
}

struct Drawing<'t> {
    shape: Shape,
    has_header: bool,
    picker: Picker<'t>,
    ranks: Ranks,
    /// Members to be written, the last one first.
    drawn: Vec<Scored>,
}

impl Drawing<'_> {
    fn draw(&mut self) -> std::result::Result<(), StreamError> {
        for rank in self.ranks.draw() {
            match self.picker.at(rank).map_err(StreamError::new)? {
                Some(scored) => self.drawn.push(scored),
                None => return Err(StreamError::new("rows are missing")),
            }
        }
        fastrand::shuffle(&mut self.drawn);
        Ok(())
    }
}

impl ReplyStream for Drawing<'_> {
    fn write(
        &mut self,
        out: &mut Writer<'_>,
        limit: usize,
    ) -> std::result::Result<Progress, StreamError> {
        if !std::mem::replace(&mut self.has_header, true) {
            self.shape.write(out, self.ranks.wanted);
        }
        while out.len() < limit {
            if self.drawn.is_empty() {
                self.draw()?;
            }
            let Some(Scored { member, score }) = self.drawn.pop() else {
                return Ok(Progress::Done);
            };
            reply::write_member(out, self.shape, &member, score);
        }
        Ok(Progress::More)
    }

    fn detach<'s>(self: Box<Self>) -> Detached<'s>
    where
        Self: 's,
    {
        if self.picker.has_pending() {
            return Err(self);
        }
        let Drawing {
            shape,
            has_header,
            picker,
            ranks,
            drawn,
        } = *self;
        match picker.into_stored() {
            Some(picker) => Ok(Box::new(Drawing {
                shape,
                has_header,
                picker,
                ranks,
                drawn,
            })),
            None => unreachable!("a walk without pending changes is free of its transaction"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn distinct_ranks(size: u64, wanted: u64) -> Vec<u64> {
        let next = Some(0);
        let mut ranks = Ranks { size, wanted, next };
        let mut all = Vec::new();
        while ranks.wanted > 0 {
            all.extend(ranks.draw());
        }
        all
    }

    #[test]
    fn distinct_ranks_rise_across_draws_and_are_as_many_as_wanted() {
        for (size, wanted) in [(1, 1), (10, 1), (10, 9), (10_000, 9_000), (10_000, 10_000)] {
            let ranks = distinct_ranks(size, wanted);
            assert_eq!(ranks.len() as u64, wanted);
            assert!(ranks.is_sorted_by(|a, b| a < b));
            assert!(ranks.iter().all(|&rank| rank < size));
        }
    }

    #[test]
    fn every_rank_is_as_likely() {
        let mut counts = [0u32; 10];
        for _ in 0..30_000 {
            for rank in distinct_ranks(10, 3) {
                counts[rank as usize] += 1;
            }
        }
        // Each is drawn 9000 times on the average, and 80 more or less is one standard deviation.
        assert!(
            counts.iter().all(|count| (8_500..9_500).contains(count)),
            "{counts:?}"
        );
    }
}
