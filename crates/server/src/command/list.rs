//! Commands on lists.

mod find;
mod pop;

use std::ops::Range;

use cairn_resp::{Bulks, Reply, Writer};
use cairn_store::{End, Error, EventClass, List, Place, Point, ReadTxn, Result, Shape, WriteTxn};

use find::lpos;
pub(super) use pop::{end_word, ends, move_element, parse_pops, pop_first, pop_one, pop_word};
use pop::{lmove, lmpop, lpop, rpop, rpoplpush};

use super::args::{int, is};
use super::events;
use super::flags::Flag::{DenyOom, Fast, MovableKeys};
use super::keys::{self, Access, KeySpec, Keys};
use super::rows;
use super::{Args, Command, Handler, command};

const READS_KEY: Keys = Keys(&[KeySpec::at(1, Access::READ)]);
const PEEKS_AT_KEY: Keys = Keys(&[KeySpec::at(1, Access::PEEK)]);
const UPDATES_KEY: Keys = Keys(&[KeySpec::at(1, Access::UPDATE)]);
const INSERTS_INTO_KEY: Keys = Keys(&[KeySpec::at(1, Access::INSERT)]);
const DELETES_FROM_KEY: Keys = Keys(&[KeySpec::at(1, Access::DELETE)]);
const POPS_KEY: Keys = Keys(&[KeySpec::at(1, Access::READ_DELETE)]);
const POPS_SEVERAL_KEYS: Keys = Keys(&[KeySpec {
    access: Access::READ_DELETE,
    place: keys::Place::Counted { count_at: 1 },
}]);
const MOVES_BETWEEN_KEYS: Keys = Keys(&[
    KeySpec::at(1, Access::READ_DELETE),
    KeySpec::at(2, Access::INSERT),
]);

pub const COMMANDS: &[Command] = &[
    command("lpush", -3, Handler::Write(lpush))
        .keys(INSERTS_INTO_KEY)
        .flags(&[DenyOom, Fast])
        .syntax("key element+")
        .about(
            "list",
            "1.0.0",
            "O(1) for each element",
            "Puts elements in front, one after the other.",
        ),
    command("rpush", -3, Handler::Write(rpush))
        .keys(INSERTS_INTO_KEY)
        .flags(&[DenyOom, Fast])
        .syntax("key element+")
        .about(
            "list",
            "1.0.0",
            "O(1) for each element",
            "Puts elements at the end.",
        ),
    command("lpushx", -3, Handler::Write(lpushx))
        .keys(INSERTS_INTO_KEY)
        .flags(&[DenyOom, Fast])
        .syntax("key element+")
        .about(
            "list",
            "2.2.0",
            "O(1) for each element",
            "Puts elements in front of a list that exists.",
        ),
    command("rpushx", -3, Handler::Write(rpushx))
        .keys(INSERTS_INTO_KEY)
        .flags(&[DenyOom, Fast])
        .syntax("key element+")
        .about(
            "list",
            "2.2.0",
            "O(1) for each element",
            "Puts elements at the end of a list that exists.",
        ),
    command("lpop", -2, Handler::Write(lpop))
        .keys(POPS_KEY)
        .flags(&[Fast])
        .syntax("key count:i?")
        .about(
            "list",
            "1.0.0",
            "O(N) for N elements returned",
            "Takes elements from the front.",
        ),
    command("rpop", -2, Handler::Write(rpop))
        .keys(POPS_KEY)
        .flags(&[Fast])
        .syntax("key count:i?")
        .about(
            "list",
            "1.0.0",
            "O(N) for N elements returned",
            "Takes elements from the end.",
        ),
    command("lmpop", -4, Handler::Write(lmpop))
        .keys(POPS_SEVERAL_KEYS)
        .flags(&[MovableKeys])
        .syntax("numkeys:i key+ where(LEFT!|RIGHT!) COUNT/count:i?")
        .about(
            "list",
            "7.0.0",
            "O(N + M) for N keys and M elements",
            "Takes elements from the first list that has any.",
        ),
    command("lmove", 5, Handler::Write(lmove))
        .keys(MOVES_BETWEEN_KEYS)
        .flags(&[DenyOom])
        .syntax("source:k destination:k wherefrom(LEFT!|RIGHT!) whereto(LEFT!|RIGHT!)")
        .about(
            "list",
            "6.2.0",
            "O(1)",
            "Takes an element from one list and puts it in another.",
        ),
    command("rpoplpush", 3, Handler::Write(rpoplpush))
        .keys(MOVES_BETWEEN_KEYS)
        .flags(&[DenyOom])
        .syntax("source:k destination:k")
        .deprecated("6.2.0", "`LMOVE` with the `RIGHT` and `LEFT` arguments")
        .about(
            "list",
            "1.2.0",
            "O(1)",
            "Moves the last element of one list to the front of another.",
        ),
    command("llen", 2, Handler::Point(llen))
        .keys(PEEKS_AT_KEY)
        .flags(&[Fast])
        .syntax("key")
        .about("list", "1.0.0", "O(1)", "Returns the number of elements."),
    command("lindex", 3, Handler::Read(lindex))
        .keys(READS_KEY)
        .syntax("key index:i")
        .about(
            "list",
            "1.0.0",
            "O(1)",
            "Returns the element at a position.",
        ),
    command("lrange", 4, Handler::Read(lrange))
        .keys(READS_KEY)
        .syntax("key start:i stop:i")
        .about(
            "list",
            "1.0.0",
            "O(N) for N elements returned",
            "Returns the elements between two positions.",
        ),
    command("lpos", -3, Handler::Read(lpos))
        .keys(READS_KEY)
        .syntax("key element RANK/rank:i? COUNT/num-matches:i? MAXLEN/len:i?")
        .about(
            "list",
            "6.0.6",
            "O(N) for N elements compared",
            "Returns the positions of an element.",
        ),
    command("lset", 4, Handler::Write(lset))
        .keys(UPDATES_KEY)
        .flags(&[DenyOom])
        .syntax("key index:i element")
        .about(
            "list",
            "1.0.0",
            "O(1)",
            "Replaces the element at a position.",
        ),
    command("ltrim", 4, Handler::Write(ltrim))
        .keys(DELETES_FROM_KEY)
        .syntax("key start:i stop:i")
        .about(
            "list",
            "1.0.0",
            "O(1)",
            "Drops everything but the elements between two positions.",
        ),
    command("linsert", 5, Handler::Write(linsert))
        .keys(INSERTS_INTO_KEY)
        .flags(&[DenyOom])
        .syntax("key where(BEFORE!|AFTER!) pivot element")
        .about(
            "list",
            "2.2.0",
            "O(N) for N elements in the list",
            "Puts an element before or after another.",
        ),
    command("lrem", 4, Handler::Write(lrem))
        .keys(DELETES_FROM_KEY)
        .syntax("key count:i element")
        .about(
            "list",
            "1.0.0",
            "O(N) for N elements in the list",
            "Removes elements by their value.",
        ),
];

fn lpush(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    push(txn, args, End::Left, Onto::Any)
}

fn rpush(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    push(txn, args, End::Right, Onto::Any)
}

fn lpushx(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    push(txn, args, End::Left, Onto::Existing)
}

fn rpushx(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    push(txn, args, End::Right, Onto::Existing)
}

/// Which lists are pushed to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Onto {
    Any,
    Existing,
}

fn push(txn: &mut WriteTxn, args: &Args, end: End, onto: Onto) -> Result<Reply> {
    let mut list = List::open(txn, args[1])?;
    if onto == Onto::Existing && !list.exists() {
        return Ok(Reply::Int(0));
    }
    for element in args.rest(2) {
        txn.step()?;
        list.push(txn, end, element);
    }
    let length = list.len();
    list.save(txn);
    txn.notify(EventClass::List, push_event(end), args[1]);
    Ok(length.into())
}

/// What a push at this end is called.
fn push_event(end: End) -> &'static str {
    match end {
        End::Left => "lpush",
        End::Right => "rpush",
    }
}

fn llen(point: Point<'_>, args: &Args) -> Result<Reply> {
    match point.find(args[1])?.map(|found| found.shape) {
        None => Ok(Reply::Int(0)),
        Some(Shape::List { size, .. }) => Ok(size.into()),
        Some(_) => Err(Error::WRONG_TYPE),
    }
}

fn lindex(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let list = List::open(txn, args[1])?;
    if !list.exists() {
        return Ok(Reply::Null);
    }
    match position(args.int(2)?, list.len()) {
        Some(position) => Ok(Reply::from(&*list.get(txn, position)?)),
        None => Ok(Reply::Null),
    }
}

/// Up to so many elements are looked for in memory before they are walked over.
const SHORT: u64 = 1000;

fn lrange(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let (first, last) = (args.int(2)?, args.int(3)?);
    let list = List::open(txn, args[1])?;
    let positions = positions(first, last, list.len());
    if positions.is_empty() {
        return Ok(Reply::Array(Vec::new()));
    }
    elements(txn, &list, positions.clone(), End::Left, |bulks| {
        list.show_part(txn, positions, |element| bulks.push(element))
    })
}

fn lset(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let list = List::open(txn, args[1])?;
    if !list.exists() {
        return Err(Error::NO_SUCH_KEY);
    }
    let position = position(args.int(2)?, list.len()).ok_or(Error::OUT_OF_RANGE)?;
    list.set(txn, position, args[3]);
    txn.notify(EventClass::List, "lset", args[1]);
    Ok(Reply::Ok)
}

fn ltrim(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let (first, last) = (args.int(2)?, args.int(3)?);
    let mut list = List::open(txn, args[1])?;
    if !list.exists() {
        return Ok(Reply::Ok);
    }
    list.trim(positions(first, last, list.len()));
    let is_emptied = list.is_empty();
    list.save(txn);
    events::taken(txn, EventClass::List, "ltrim", args[1], is_emptied);
    Ok(Reply::Ok)
}

fn linsert(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let place = if is(args[2], "before") {
        Place::Before
    } else if is(args[2], "after") {
        Place::After
    } else {
        return Err(Error::SYNTAX);
    };
    let mut list = List::open(txn, args[1])?;
    if !list.exists() {
        return Ok(Reply::Int(0));
    }
    if !list.insert(txn, args[3], place, args[4])? {
        return Ok(Reply::Int(-1));
    }
    let length = list.len();
    list.save(txn);
    txn.notify(EventClass::List, "linsert", args[1]);
    Ok(length.into())
}

fn lrem(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let count = args.int(2)?;
    let from = if count < 0 { End::Right } else { End::Left };
    let limit = match count.unsigned_abs() {
        0 => u64::MAX,
        limit => limit,
    };
    let mut list = List::open(txn, args[1])?;
    let removed = list.remove(txn, args[3], from, limit)?;
    let is_emptied = list.is_empty();
    list.save(txn);
    if removed > 0 {
        events::taken(txn, EventClass::List, "lrem", args[1], is_emptied);
    }
    Ok(removed.into())
}

/// A number that must be at least `least`; anything else gets the same complaint.
fn count_from(text: &[u8], least: u64, complaint: &'static str) -> Result<u64> {
    let count = int(text).ok().and_then(|count| u64::try_from(count).ok());
    count
        .filter(|count| *count >= least)
        .ok_or(Error::fixed(complaint))
}

/// The position that an argument means, negative ones being counted from the end; none if that lies
/// before the front.
fn from_front(index: i64, length: u64) -> Option<u64> {
    if index < 0 {
        length.checked_sub(index.unsigned_abs())
    } else {
        Some(index.unsigned_abs())
    }
}

/// The same, if there is an element.
fn position(index: i64, length: u64) -> Option<u64> {
    from_front(index, length).filter(|position| *position < length)
}

/// The positions from `first` to `last`, cut to those that exist.
fn positions(first: i64, last: i64, length: u64) -> Range<u64> {
    let start = from_front(first, length).unwrap_or(0);
    let end = from_front(last, length).map_or(0, |last| (last + 1).min(length));
    if start < end { start..end } else { 0..0 }
}

/// The elements at these positions, from one end on: copied from memory if they are few and `show` finds all of them there,
/// and else walked over as they are sent.
fn elements(
    txn: &ReadTxn,
    list: &List,
    positions: Range<u64>,
    from: End,
    show: impl FnOnce(&mut Bulks) -> bool,
) -> Result<Reply> {
    let count = positions.end - positions.start;
    if count <= SHORT {
        let mut elements = Bulks::with_capacity(count as usize);
        if show(&mut elements) {
            return Ok(Reply::Bulks(elements));
        }
    }
    let rows = list.rows(txn, positions, from.direction())?;
    let item = |_: &[u8], element: &[u8], out: &mut Writer<'_>| out.bulk(element);
    Ok(rows::reply(rows::Shape::Array, count, rows, item))
}
