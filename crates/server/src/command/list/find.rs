//! LPOS: where an element is.

use std::ops::ControlFlow;

use cairn_resp::{Progress, Reply, ReplyStream, StreamError, Writer};
use cairn_store::{End, Error, List, ReadTxn, Result};

use super::count_from;
use crate::command::Args;
use crate::command::args::int;

pub(super) fn lpos(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let search = Search::parse(args)?;
    let list = List::open(txn, args[1])?;
    let limit = search.limit();
    let mut to_skip = search.skipped.unwrap_or(0);
    let mut found = Vec::new();
    list.find(txn, args[2], search.from, search.within, |position| {
        if to_skip > 0 {
            to_skip -= 1;
            return ControlFlow::Continue(());
        }
        found.push(position);
        if found.len() as u64 == limit {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    Ok(match search.count {
        Some(_) => Reply::Stream(Box::new(Positions {
            count: Some(found.len()),
            left: found.into_iter(),
        })),
        None => found.first().copied().into(),
    })
}

/// What LPOS looks for.
struct Search {
    from: End,
    /// How many matches to pass over; none: the rank was the smallest number there is.
    skipped: Option<u64>,
    /// How many matches to return; none: the first, by itself.
    count: Option<u64>,
    /// How many elements to compare.
    within: u64,
}

impl Search {
    fn parse(args: &Args) -> Result<Search> {
        let mut search = Search {
            from: End::Left,
            skipped: Some(0),
            count: None,
            within: u64::MAX,
        };
        let mut options = args.options(3);
        while !options.is_empty() {
            if options.take("rank") {
                search.set_rank(int(options.value()?)?)?;
            } else if options.take("count") {
                let count = count_from(options.value()?, 0, "ERR COUNT can't be negative")?;
                search.count = Some(zero_is_all(count));
            } else if options.take("maxlen") {
                let within = count_from(options.value()?, 0, "ERR MAXLEN can't be negative")?;
                search.within = zero_is_all(within);
            } else {
                return Err(Error::SYNTAX);
            }
        }
        Ok(search)
    }

    fn set_rank(&mut self, rank: i64) -> Result<()> {
        if rank == 0 {
            return Err(Error::fixed(
                "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... \
                 or use negative to start from the end of the list",
            ));
        }
        self.from = if rank < 0 { End::Right } else { End::Left };
        self.skipped = rank.checked_abs().map(|rank| rank.unsigned_abs() - 1);
        Ok(())
    }

    /// The smallest rank has no opposite, and overflows in Redis: the search starts at the last match
    /// and never reaches its count.
    fn limit(&self) -> u64 {
        match (self.count, self.skipped) {
            (None, _) => 1,
            (Some(_), None) => u64::MAX,
            (Some(count), Some(_)) => count,
        }
    }
}

fn zero_is_all(count: u64) -> u64 {
    if count == 0 { u64::MAX } else { count }
}

/// An array of positions, kept as bare numbers: as replies they would take five times the memory.
struct Positions {
    /// Until it is written.
    count: Option<usize>,
    left: std::vec::IntoIter<u64>,
}

impl ReplyStream for Positions {
    fn write(&mut self, out: &mut Writer<'_>, limit: usize) -> Result<Progress, StreamError> {
        if let Some(count) = self.count.take() {
            out.array(count);
        }
        while out.len() < limit {
            match self.left.next() {
                Some(position) => out.int(position.cast_signed()),
                None => return Ok(Progress::Done),
            }
        }
        Ok(Progress::More)
    }
}
