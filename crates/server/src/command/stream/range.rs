//! XLEN, XRANGE, XREVRANGE.

use std::ops::RangeInclusive;

use cairn_resp::Reply;
use cairn_store::stream::Id;
use cairn_store::{Direction, Error, Point, ReadTxn, Result, Shape, Stream};

use super::id;
use super::reply::{Gathered, entries};
use crate::command::Args;
use crate::command::args::{int, is};

pub fn xlen(point: Point<'_>, args: &Args) -> Result<Reply> {
    match point.find(args[1])?.map(|found| found.shape) {
        None => Ok(Reply::Int(0)),
        Some(Shape::Stream { size, .. }) => Ok(size.into()),
        Some(_) => Err(Error::WRONG_TYPE),
    }
}

pub fn xrange(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    range(txn, args, [2, 3], Direction::Forward)
}

pub fn xrevrange(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    range(txn, args, [3, 2], Direction::Backward)
}

fn range(txn: &ReadTxn, args: &Args, bounds: [usize; 2], direction: Direction) -> Result<Reply> {
    let ids = id::start(args[bounds[0]])?..=id::end(args[bounds[1]])?;
    let mut count = None;
    let mut options = args.options(4);
    while let Some(option) = options.next() {
        if !is(option, "count") {
            return Err(Error::SYNTAX);
        }
        count = Some(u64::try_from(int(options.value()?)?).unwrap_or(0));
    }
    let stream = Stream::open(txn, args[1])?;
    if !stream.exists() {
        return Ok(Reply::Array(Vec::new()));
    }
    if count == Some(0) {
        return Ok(Reply::NullArray);
    }
    let found = within(txn, &stream, ids, direction, count.unwrap_or(u64::MAX))?;
    Ok(found.unwrap_or(Reply::Array(Vec::new())))
}

/// Up to so many entries are gathered before they are sent.
const FEW: usize = 1000;

/// The entries in a range, at most so many; none if there are none.
pub fn within(
    txn: &ReadTxn,
    stream: &Stream,
    ids: RangeInclusive<Id>,
    direction: Direction,
    most: u64,
) -> Result<Option<Reply>> {
    let mut rows = stream.rows(txn, ids.clone(), direction)?;
    let mut gathered = Gathered::default();
    let mut count = 0;
    while count < most
        && let Some((row_key, entry)) = rows.next()?
    {
        txn.step()?;
        count += 1;
        if gathered.len() < FEW {
            gathered.add(stream.id_of(row_key)?, entry);
        } else if stream.is_within(&ids) {
            // How many there are is known.
            count = stream.len().min(most);
            break;
        }
    }
    if count <= FEW as u64 {
        return Ok((count > 0).then(|| gathered.reply()));
    }
    // They have been counted, and are sent as they are walked over again.
    let rows = stream.rows(txn, ids, direction)?;
    Ok(Some(entries(stream, count, rows)))
}
