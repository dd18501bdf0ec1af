//! Commands on sets.

mod reply;

use cairn_resp::{Reply, Writer};
use cairn_store::set::{self, Operation, Popped, Selection, Step};
use cairn_store::{
    CollectionKind, EXPECTED, Error, EventClass, Point, ReadTxn, Result, Set, WriteTxn,
};

use reply::Kind;

use super::args::{self, Args};
use super::events;
use super::flags::Flag::{DenyOom, Fast, MovableKeys};
use super::keys::{Access, KeySpec, Keys, Place};
use super::random;
use super::rows::{self, Shape};
use super::{Command, Handler, command};
use crate::propagation::Propagate;

const READS_KEY: Keys = Keys(&[KeySpec::at(1, Access::READ)]);
const PEEKS_AT_KEY: Keys = Keys(&[KeySpec::at(1, Access::PEEK)]);
const READS_KEYS: Keys = Keys(&[reads_from(1)]);
const OVERWRITES_AND_READS: Keys = Keys(&[KeySpec::at(1, Access::OVERWRITE), reads_from(2)]);

/// All arguments from `first` on are keys.
const fn reads_from(first: usize) -> KeySpec {
    KeySpec {
        access: Access::READ,
        place: Place::Range {
            first,
            last: -1,
            step: 1,
        },
    }
}

pub const COMMANDS: &[Command] = &[
    command("sadd", -3, Handler::Write(sadd))
        .keys(Keys(&[KeySpec::at(1, Access::INSERT)]))
        .flags(&[DenyOom, Fast])
        .syntax("key member+")
        .about(
            "set",
            "1.0.0",
            "O(1) for each member",
            "Adds members to a set.",
        ),
    command("srem", -3, Handler::Write(srem))
        .keys(Keys(&[KeySpec::at(1, Access::DELETE)]))
        .flags(&[Fast])
        .syntax("key member+")
        .about(
            "set",
            "1.0.0",
            "O(1) for each member",
            "Removes members from a set.",
        ),
    command("sismember", 3, Handler::Point(sismember))
        .keys(PEEKS_AT_KEY)
        .flags(&[Fast])
        .syntax("key member")
        .about("set", "1.0.0", "O(1)", "Tells whether a set has a member."),
    command("smismember", -3, Handler::Read(smismember))
        .keys(READS_KEY)
        .flags(&[Fast])
        .syntax("key member+")
        .about(
            "set",
            "6.2.0",
            "O(1) for each member",
            "Tells which of several members a set has.",
        ),
    command("scard", 2, Handler::Point(scard))
        .keys(PEEKS_AT_KEY)
        .flags(&[Fast])
        .syntax("key")
        .about("set", "1.0.0", "O(1)", "Returns the number of members."),
    command("smembers", 2, Handler::Read(smembers))
        .keys(READS_KEY)
        .tips(&["nondeterministic_output_order"])
        .syntax("key")
        .about(
            "set",
            "1.0.0",
            "O(N) for N members",
            "Returns all members of a set.",
        ),
    command("smove", 4, Handler::Write(smove))
        .keys(Keys(&[
            KeySpec::at(1, Access::READ_DELETE),
            KeySpec::at(2, Access::INSERT),
        ]))
        .flags(&[Fast])
        .syntax("source:k destination:k member")
        .about(
            "set",
            "1.0.0",
            "O(1)",
            "Moves a member from one set to another.",
        ),
    command("spop", -2, Handler::Write(spop))
        .keys(Keys(&[KeySpec::at(1, Access::READ_DELETE)]))
        .flags(&[Fast])
        .tips(&["nondeterministic_output"])
        .syntax("key count:i?")
        .about(
            "set",
            "1.0.0",
            "O(N) for N members",
            "Takes members out of a set at random.",
        ),
    command("srandmember", -2, Handler::Read(srandmember))
        .keys(READS_KEY)
        .tips(&["nondeterministic_output"])
        .syntax("key count:i?")
        .about(
            "set",
            "1.0.0",
            "O(N) for N members",
            "Returns members of a set at random.",
        ),
    command("sinter", -2, Handler::Read(sinter))
        .keys(READS_KEYS)
        .tips(&["nondeterministic_output_order"])
        .syntax("key+")
        .about(
            "set",
            "1.0.0",
            INTERSECTION_COST,
            "Returns what several sets have in common.",
        ),
    command("sintercard", -3, Handler::Read(sintercard))
        .keys(Keys(&[KeySpec {
            access: Access::READ,
            place: Place::Counted { count_at: 1 },
        }]))
        .flags(&[MovableKeys])
        .syntax("numkeys:i key+ LIMIT/limit:i?")
        .about(
            "set",
            "7.0.0",
            INTERSECTION_COST,
            "Counts what several sets have in common.",
        ),
    command("sinterstore", -3, Handler::Write(sinterstore))
        .counts_lookups()
        .keys(Keys(&[KeySpec::at(1, Access::UPDATE), reads_from(2)]))
        .flags(&[DenyOom])
        .syntax("destination:k key+")
        .about(
            "set",
            "1.0.0",
            INTERSECTION_COST,
            "Stores what several sets have in common.",
        ),
    command("sunion", -2, Handler::Read(sunion))
        .keys(READS_KEYS)
        .tips(&["nondeterministic_output_order"])
        .syntax("key+")
        .about(
            "set",
            "1.0.0",
            MERGE_COST,
            "Returns the members that any of several sets has.",
        ),
    command("sunionstore", -3, Handler::Write(sunionstore))
        .counts_lookups()
        .keys(OVERWRITES_AND_READS)
        .flags(&[DenyOom])
        .syntax("destination:k key+")
        .about(
            "set",
            "1.0.0",
            MERGE_COST,
            "Stores the members that any of several sets has.",
        ),
    command("sdiff", -2, Handler::Read(sdiff))
        .keys(READS_KEYS)
        .tips(&["nondeterministic_output_order"])
        .syntax("key+")
        .about(
            "set",
            "1.0.0",
            MERGE_COST,
            "Returns what the first of several sets has alone.",
        ),
    command("sdiffstore", -3, Handler::Write(sdiffstore))
        .counts_lookups()
        .keys(OVERWRITES_AND_READS)
        .flags(&[DenyOom])
        .syntax("destination:k key+")
        .about(
            "set",
            "1.0.0",
            MERGE_COST,
            "Stores what the first of several sets has alone.",
        ),
];

const INTERSECTION_COST: &str = "O(N*M) for N members of the smallest of M sets";
const MERGE_COST: &str = "O(N) for N members of all sets together";

fn sadd(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let mut set = Set::open(txn, args[1])?;
    let mut added = 0;
    for member in args.rest(2) {
        added += i64::from(set.add(txn, member)?);
    }
    set.save(txn);
    if added > 0 {
        txn.notify(EventClass::Set, "sadd", args[1]);
    }
    Ok(Reply::Int(added))
}

fn srem(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let mut set = Set::open(txn, args[1])?;
    let mut removed = 0;
    for member in args.rest(2) {
        removed += i64::from(set.remove(txn, member)?);
    }
    let is_emptied = set.is_empty();
    set.save(txn);
    if removed > 0 {
        events::taken(txn, EventClass::Set, "srem", args[1], is_emptied);
    }
    Ok(Reply::Int(removed))
}

fn sismember(point: Point<'_>, args: &Args) -> Result<Reply> {
    let row = point.element(args[1], CollectionKind::Set, args[2])?;
    Ok(Reply::Int(i64::from(row.is_some())))
}

fn smismember(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let set = Set::open(txn, args[1])?;
    let mut has = Vec::with_capacity(args.len() - 2);
    for some in args.rest(2).chunks(EXPECTED) {
        set.collection().expect(txn, some)?;
        for member in some {
            has.push(Reply::Int(i64::from(set.contains(txn, member)?)));
        }
    }
    Ok(Reply::Array(has))
}

fn scard(point: Point<'_>, args: &Args) -> Result<Reply> {
    Ok(point.len(args[1], CollectionKind::Set)?.into())
}

fn smembers(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let set = Set::open(txn, args[1])?;
    let member_at = set.collection().sub_offset();
    let item = move |row_key: &[u8], _: &[u8], out: &mut Writer<'_>| {
        out.bulk(&row_key[member_at..]);
    };
    Ok(rows::reply(Shape::Set, set.len(), set.rows(txn)?, item))
}

fn smove(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let (from, to, member) = (args[1], args[2], args[3]);
    let mut source = Set::open(txn, from)?;
    // Nothing to move: what the other key holds does not matter.
    if !source.exists() {
        return Ok(Reply::Int(0));
    }
    let mut target = Set::open(txn, to)?;
    if from == to {
        return Ok(Reply::Int(i64::from(source.contains(txn, member)?)));
    }
    let is_moved = source.remove(txn, member)?;
    if is_moved {
        let is_emptied = source.is_empty();
        source.save(txn);
        events::taken(txn, EventClass::Set, "srem", from, is_emptied);
        let is_new = target.add(txn, member)?;
        target.save(txn);
        if is_new {
            txn.notify(EventClass::Set, "sadd", to);
        }
    }
    Ok(Reply::Int(i64::from(is_moved)))
}

fn spop(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    match args.rest(2) {
        [] => {
            let set = Set::open(txn, args[1])?;
            let size = set.len();
            let member = set.pop_one(txn)?;
            tell_pop(txn, args[1], 1, size);
            if let Some(member) = &member {
                txn.propagate_as(&[b"SREM", args[1], member]);
            }
            Ok(member.into())
        }
        [count] => {
            let count = natural(count, "ERR value is out of range, must be positive")?;
            let set = Set::open(txn, args[1])?;
            let size = set.len();
            let mut popped = set.pop(txn, count)?;
            tell_pop(txn, args[1], count, size);
            if txn.is_followed() && size > 0 {
                propagate_pop(txn, args[1], &mut popped, count >= size)?;
            }
            Ok(match popped {
                Popped::Few(members) => Reply::Set(members.into_iter().map(Reply::Bulk).collect()),
                Popped::Many { count, members } => reply::stream(Kind::Set, count, members),
            })
        }
        _ => Err(Error::SYNTAX),
    }
}

/// So many members were taken, at most, of a set of this size.
fn tell_pop(txn: &mut WriteTxn, name: &[u8], count: u64, size: u64) {
    if count.min(size) > 0 {
        events::taken(txn, EventClass::Set, "spop", name, count >= size);
    }
}

/// Followers would choose others.
fn propagate_pop(
    txn: &mut WriteTxn,
    name: &[u8],
    popped: &mut Popped,
    is_emptied: bool,
) -> Result<()> {
    if is_emptied {
        txn.propagate_as(&[b"DEL", name]);
        return Ok(());
    }
    match popped {
        Popped::Few(members) => {
            for member in members {
                txn.propagate_as(&[b"SREM", name, member]);
            }
        }
        Popped::Many { members, .. } => {
            loop {
                match members.step()? {
                    Step::Member => txn.propagate_as(&[b"SREM", name, members.member()]),
                    Step::Onward => {}
                    Step::End => break,
                }
            }
            members.rewind();
        }
    }
    Ok(())
}

fn srandmember(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let count = match args.rest(2) {
        [] => return Ok(Set::open(txn, args[1])?.random(txn)?.into()),
        [count] => args::int(count)?,
        _ => return Err(Error::SYNTAX),
    };
    if count == i64::MIN {
        return Err(Error::fixed(
            "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
        ));
    }
    let set = Set::open(txn, args[1])?;
    let times = count.unsigned_abs();
    let members = Members {
        member_at: set.collection().sub_offset(),
    };
    let wanted = (times, count < 0);
    if let Some(reply) = random::picked(txn, set.collection(), wanted, Shape::Array, members)? {
        return Ok(reply);
    }
    let selection = if count < 0 && !set.is_empty() {
        Selection::repeats(txn, &set, times)?
    } else {
        Selection::sample(txn, &set, times)?
    };
    reply::members(txn, Kind::Array, selection)
}

#[derive(Clone, Copy)]
struct Members {
    member_at: usize,
}

impl random::Item for Members {
    fn name(self, row_key: &[u8]) -> &[u8] {
        &row_key[self.member_at..]
    }

    fn write_partner(self, _: &[u8], _: &[u8], _: &mut Writer<'_>) {}
}

fn sinter(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    combine(txn, Operation::Intersection, args)
}

fn sunion(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    combine(txn, Operation::Union, args)
}

fn sdiff(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    combine(txn, Operation::Difference, args)
}

fn combine(txn: &ReadTxn, operation: Operation, args: &Args) -> Result<Reply> {
    let selection = Selection::of(txn, operation, args.rest(1))?;
    reply::members(txn, Kind::Set, selection)
}

fn sinterstore(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    store(txn, Operation::Intersection, "sinterstore", args)
}

fn sunionstore(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    store(txn, Operation::Union, "sunionstore", args)
}

fn sdiffstore(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    store(txn, Operation::Difference, "sdiffstore", args)
}

fn store(
    txn: &mut WriteTxn,
    operation: Operation,
    event: &'static str,
    args: &Args,
) -> Result<Reply> {
    events::missing(txn, args.rest(2))?;
    let size = set::store(txn, operation, args[1], args.rest(2))?;
    events::stored(txn, EventClass::Set, event, args[1], size);
    Ok(size.into())
}

fn sintercard(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let keys = natural(args[1], "ERR numkeys should be greater than 0")?;
    if keys == 0 {
        return Err(Error::fixed("ERR numkeys should be greater than 0"));
    }
    let words = args.rest(2);
    let Some((names, _)) = usize::try_from(keys)
        .ok()
        .and_then(|keys| words.split_at_checked(keys))
    else {
        return Err(Error::fixed(
            "ERR Number of keys can't be greater than number of args",
        ));
    };
    let mut limit = 0;
    let mut options = args.options(2 + names.len());
    while !options.is_empty() {
        if !options.take("limit") {
            return Err(Error::SYNTAX);
        }
        limit = natural(options.value()?, "ERR LIMIT can't be negative")?;
    }
    let limit = if limit == 0 { u64::MAX } else { limit };
    let selection = Selection::of(txn, Operation::Intersection, names)?;
    Ok(count_up_to(txn, selection, limit)?.into())
}

fn count_up_to(txn: &ReadTxn, mut selection: Selection, limit: u64) -> Result<u64> {
    if let Some(count) = selection.known_len() {
        return Ok(count.min(limit));
    }
    let mut count = 0;
    while count < limit {
        txn.step()?;
        match selection.step()? {
            Step::Member => count += 1,
            Step::Onward => {}
            Step::End => break,
        }
    }
    Ok(count)
}

/// A number that is not negative; the same complaint for all that is not.
fn natural(text: &[u8], complaint: &'static str) -> Result<u64> {
    let number = args::int(text)
        .ok()
        .and_then(|number| u64::try_from(number).ok());
    number.ok_or(Error::fixed(complaint))
}
