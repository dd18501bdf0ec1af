//! ZPOPMIN, ZPOPMAX, ZMPOP.

use cairn_resp::{Reply, Writer, number};
use cairn_store::zset::{Popped, ScoreRows, Scored};
use cairn_store::{Direction, Error, EventClass, Result, Rows, WriteTxn, Zset};

use super::{Args, reply};
use crate::command::args::is;
use crate::command::events;
use crate::command::piecewise;
use crate::command::rows::{self, Shape};
use crate::propagation::{Propagate, decimal};

pub fn zpopmin(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    pop(txn, args, Direction::Forward)
}

pub fn zpopmax(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    pop(txn, args, Direction::Backward)
}

fn pop(txn: &mut WriteTxn, args: &Args, direction: Direction) -> Result<Reply> {
    let count = match args.rest(2) {
        [] => {
            let popped = pop_one(txn, args[1], direction)?;
            // In RESP3 too, one member popped without a count makes no pair of its own.
            return Ok(Reply::Array(popped.map_or_else(Vec::new, Vec::from)));
        }
        [count] => parse_count(count)?,
        _ => return Err(Error::SYNTAX),
    };
    let zset = Zset::open(txn, args[1])?;
    Ok(match take(txn, args[1], zset, direction, count)? {
        Popped::Few(members) => reply::of_members(Shape::Pairs, members),
        Popped::Many { count, rows, keys } => reply::of_rows(Shape::Pairs, count, *rows, keys),
    })
}

/// Takes members, and tells of that.
fn take(
    txn: &mut WriteTxn,
    name: &[u8],
    zset: Zset,
    direction: Direction,
    count: u64,
) -> Result<Popped> {
    let size = zset.len();
    let popped = zset.pop(txn, direction, count)?;
    if count.min(size) > 0 {
        tell(txn, name, direction, count >= size);
    }
    Ok(popped)
}

fn tell(txn: &mut WriteTxn, name: &[u8], direction: Direction, is_emptied: bool) {
    let event = match direction {
        Direction::Forward => "zpopmin",
        Direction::Backward => "zpopmax",
    };
    events::taken(txn, EventClass::Zset, event, name, is_emptied);
}

fn parse_count(text: &[u8]) -> Result<u64> {
    number::parse_i64(text)
        .and_then(|count| u64::try_from(count).ok())
        .ok_or(Error::fixed("ERR value is out of range, must be positive"))
}

fn pair(Scored { member, score }: Scored) -> [Reply; 2] {
    [Reply::Bulk(member), Reply::Double(score)]
}

/// Takes the outermost member and its score, if there is a set.
pub fn pop_one(
    txn: &mut WriteTxn,
    name: &[u8],
    direction: Direction,
) -> Result<Option<[Reply; 2]>> {
    let zset = Zset::open(txn, name)?;
    let size = zset.len();
    let popped = zset.pop_one(txn, direction)?;
    if popped.is_some() {
        tell(txn, name, direction, size == 1);
    }
    Ok(popped.map(pair))
}

pub fn zmpop(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let (keys, wanted) = parse_pops(args.rest(1))?;
    let popped = pop_first(txn, keys.iter().copied(), wanted)?;
    Ok(popped.unwrap_or(Reply::NullArray))
}

type Names<'a> = &'a [&'a [u8]];

/// `numkeys key [key ...] MIN | MAX [COUNT count]`: the keys, and what to take.
pub fn parse_pops<'a>(words: &'a [&'a [u8]]) -> Result<(Names<'a>, (Direction, u64))> {
    let key_count = positive(words[0], "ERR numkeys should be greater than 0")?;
    let keys = &words[1..];
    let end = usize::try_from(key_count)
        .unwrap_or(usize::MAX)
        .min(keys.len());
    let (keys, options) = keys.split_at(end);
    Ok((keys, parse_options(options)?))
}

/// The command that takes from this end.
pub fn pop_word(direction: Direction) -> &'static [u8] {
    match direction {
        Direction::Forward => b"ZPOPMIN",
        Direction::Backward => b"ZPOPMAX",
    }
}

/// Takes members from the first of the sets that has any.
pub fn pop_first<'a>(
    txn: &mut WriteTxn,
    names: impl Iterator<Item = &'a [u8]>,
    (direction, count): (Direction, u64),
) -> Result<Option<Reply>> {
    for name in names {
        let zset = Zset::open(txn, name)?;
        if zset.is_empty() {
            continue;
        }
        let taken = count.min(zset.len());
        let popped = take(txn, name, zset, direction, count)?;
        if txn.is_followed() {
            txn.propagate_as(&[pop_word(direction), name, &decimal(taken)]);
        }
        let pairs = match popped {
            Popped::Few(members) => {
                let pairs = members.into_iter().map(|member| pair(member).into());
                Reply::Array(pairs.map(Reply::Array).collect())
            }
            Popped::Many { count, rows, keys } => pairs_of_rows(count, *rows, keys),
        };
        return Ok(Some(piecewise::with_key(name, pairs)));
    }
    Ok(None)
}

/// In RESP2 too, each member makes a pair with its score.
fn pairs_of_rows(count: u64, rows: Rows, keys: ScoreRows) -> Reply {
    let item = move |key: &[u8], _: &[u8], out: &mut Writer<'_>| {
        out.array(2);
        out.bulk(keys.member(key));
        out.double(keys.score(key));
    };
    rows::reply(Shape::Array, count, rows, item)
}

/// What follows the keys: `MIN | MAX [COUNT count]`.
fn parse_options(options: &[&[u8]]) -> Result<(Direction, u64)> {
    let Some((end, options)) = options.split_first() else {
        return Err(Error::SYNTAX);
    };
    let direction = if is(end, "min") {
        Direction::Forward
    } else if is(end, "max") {
        Direction::Backward
    } else {
        return Err(Error::SYNTAX);
    };
    match options {
        [] => Ok((direction, 1)),
        [option, count, rest @ ..] if is(option, "count") => {
            let count = positive(count, "ERR count should be greater than 0")?;
            match rest {
                [] => Ok((direction, count)),
                _ => Err(Error::SYNTAX),
            }
        }
        _ => Err(Error::SYNTAX),
    }
}

fn positive(text: &[u8], otherwise: &'static str) -> Result<u64> {
    match number::parse_i64(text) {
        Some(number @ 1..) => Ok(number.unsigned_abs()),
        _ => Err(Error::fixed(otherwise)),
    }
}
