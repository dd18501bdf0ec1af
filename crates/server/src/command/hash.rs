//! Commands on hashes.

mod counter;
pub mod expiry;
mod random;
mod reply;

use cairn_resp::{Reply, Writer};
use cairn_store::{CollectionKind, EXPECTED, EventClass, Hash, Point, ReadTxn, Result, WriteTxn};

use super::events;
use super::flags::Flag::{DenyOom, Fast};
use super::keys::{Access, KeySpec, Keys};
use super::rows::{self, Shape};
use super::{Args, Command, Handler, command, wrong_arity};

const GROUP: &str = "hash";

const READS: Keys = Keys(&[KeySpec::at(1, Access::READ)]);
const PEEKS: Keys = Keys(&[KeySpec::at(1, Access::PEEK)]);
const UPDATES: Keys = Keys(&[KeySpec::at(1, Access::UPDATE)]);
const READS_AND_UPDATES: Keys = Keys(&[KeySpec::at(1, Access::READ_UPDATE)]);

pub const COMMANDS: &[Command] = &[
    command("hset", -4, Handler::Write(hset))
        .keys(UPDATES)
        .flags(&[DenyOom, Fast])
        .syntax("key field_value{field value}+")
        .about(
            GROUP,
            "2.0.0",
            "O(1) for each field",
            "Sets fields to values.",
        ),
    command("hmset", -4, Handler::Write(hmset))
        .keys(UPDATES)
        .flags(&[DenyOom, Fast])
        .syntax("key field_value{field value}+")
        .deprecated("4.0.0", "`HSET` with multiple field-value pairs")
        .about(
            GROUP,
            "2.0.0",
            "O(1) for each field",
            "Sets fields to values: the old name of HSET.",
        ),
    command("hsetnx", 4, Handler::Write(hsetnx))
        .keys(Keys(&[KeySpec::at(1, Access::INSERT)]))
        .flags(&[DenyOom, Fast])
        .syntax("key field value")
        .about(
            GROUP,
            "2.0.0",
            "O(1)",
            "Sets a field to a value unless the hash has it.",
        ),
    command("hget", 3, Handler::Point(hget))
        .keys(READS)
        .flags(&[Fast])
        .syntax("key field")
        .about(GROUP, "2.0.0", "O(1)", "Returns the value of a field."),
    command("hmget", -3, Handler::Read(hmget))
        .keys(READS)
        .flags(&[Fast])
        .syntax("key field+")
        .about(
            GROUP,
            "2.0.0",
            "O(1) for each field",
            "Returns the values of several fields.",
        ),
    command("hgetall", 2, Handler::Read(hgetall))
        .keys(READS)
        .tips(&["nondeterministic_output_order"])
        .syntax("key")
        .about(
            GROUP,
            "2.0.0",
            "O(N) for N fields",
            "Returns all fields and their values.",
        ),
    command("hdel", -3, Handler::Write(hdel))
        .keys(Keys(&[KeySpec::at(1, Access::DELETE)]))
        .flags(&[Fast])
        .syntax("key field+")
        .about(
            GROUP,
            "2.0.0",
            "O(1) for each field",
            "Deletes fields, and with the last of them the key.",
        ),
    command("hexists", 3, Handler::Point(hexists))
        .keys(PEEKS)
        .flags(&[Fast])
        .syntax("key field")
        .about(GROUP, "2.0.0", "O(1)", "Tells whether a hash has a field."),
    command("hkeys", 2, Handler::Read(hkeys))
        .keys(READS)
        .tips(&["nondeterministic_output_order"])
        .syntax("key")
        .about(GROUP, "2.0.0", "O(N) for N fields", "Returns all fields."),
    command("hvals", 2, Handler::Read(hvals))
        .keys(READS)
        .tips(&["nondeterministic_output_order"])
        .syntax("key")
        .about(
            GROUP,
            "2.0.0",
            "O(N) for N fields",
            "Returns the values of all fields.",
        ),
    command("hlen", 2, Handler::Point(hlen))
        .keys(PEEKS)
        .flags(&[Fast])
        .syntax("key")
        .about(GROUP, "2.0.0", "O(1)", "Returns the number of fields."),
    command("hstrlen", 3, Handler::Point(hstrlen))
        .keys(PEEKS)
        .flags(&[Fast])
        .syntax("key field")
        .about(
            GROUP,
            "3.2.0",
            "O(1)",
            "Returns the length of a field's value.",
        ),
    command("hincrby", 4, Handler::Write(counter::hincrby))
        .keys(READS_AND_UPDATES)
        .flags(&[DenyOom, Fast])
        .syntax("key field increment:i")
        .about(
            GROUP,
            "2.0.0",
            "O(1)",
            "Adds to a field that is a whole number.",
        ),
    command("hincrbyfloat", 4, Handler::Write(counter::hincrbyfloat))
        .keys(READS_AND_UPDATES)
        .flags(&[DenyOom, Fast])
        .syntax("key field increment:d")
        .about(
            GROUP,
            "2.6.0",
            "O(1)",
            "Adds to a field that is a number and may have a fraction.",
        ),
    command("hrandfield", -2, Handler::Read(random::hrandfield))
        .keys(READS)
        .tips(&["nondeterministic_output"])
        .syntax("key options{count:i WITHVALUES!?}?")
        .about(
            GROUP,
            "6.2.0",
            "O(N) for N fields",
            "Returns fields at random.",
        ),
];

/// How much of HMGET's reply is collected before it becomes a stream.
const COLLECTED_BYTES: usize = 256 * 1024;

fn hset(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    Ok(set_all(txn, args, "hset")?.into())
}

fn hmset(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    set_all(txn, args, "hmset")?;
    Ok(Reply::Ok)
}

/// Sets all fields, and counts those that are new.
fn set_all(txn: &mut WriteTxn, args: &Args, command: &str) -> Result<u64> {
    let (pairs, []) = args.rest(2).as_chunks() else {
        return Err(wrong_arity(command));
    };
    let mut hash = Hash::open(txn, args[1])?;
    let mut created = 0;
    for [field, value] in pairs {
        txn.step()?;
        created += u64::from(hash.set(txn, field, value)?);
    }
    hash.save(txn);
    txn.notify(EventClass::Hash, "hset", args[1]);
    Ok(created)
}

fn hsetnx(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let mut hash = Hash::open(txn, args[1])?;
    let is_new = hash.insert(txn, args[2], args[3])?;
    hash.save(txn);
    if is_new {
        txn.notify(EventClass::Hash, "hset", args[1]);
    }
    Ok(Reply::Int(i64::from(is_new)))
}

fn hdel(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let mut hash = Hash::open(txn, args[1])?;
    let mut removed = 0;
    for field in args.rest(2) {
        txn.step()?;
        removed += i64::from(hash.remove(txn, field)?);
    }
    let is_emptied = hash.is_empty();
    hash.save(txn);
    if removed > 0 {
        events::taken(txn, EventClass::Hash, "hdel", args[1], is_emptied);
    }
    Ok(Reply::Int(removed))
}

fn hget(point: Point<'_>, args: &Args) -> Result<Reply> {
    let row = point.element(args[1], CollectionKind::Hash, args[2])?;
    Ok(row.map_or(Reply::Null, |value| rows::shared(value.share(0))))
}

fn hexists(point: Point<'_>, args: &Args) -> Result<Reply> {
    let row = point.element(args[1], CollectionKind::Hash, args[2])?;
    Ok(Reply::Int(i64::from(row.is_some())))
}

fn hstrlen(point: Point<'_>, args: &Args) -> Result<Reply> {
    let row = point.element(args[1], CollectionKind::Hash, args[2])?;
    Ok(row.map_or(0, |value| value.len()).into())
}

fn hlen(point: Point<'_>, args: &Args) -> Result<Reply> {
    Ok(point.len(args[1], CollectionKind::Hash)?.into())
}

fn hmget(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let hash = Hash::open(txn, args[1])?;
    let fields = args.rest(2);
    let mut values = Vec::with_capacity(fields.len());
    let mut bytes = 0;
    for some in fields.chunks(EXPECTED) {
        hash.collection().expect(txn, some)?;
        for field in some {
            txn.step()?;
            let row = hash.get(txn, field)?;
            bytes += row.as_deref().map_or(0, <[u8]>::len);
            if bytes > COLLECTED_BYTES {
                return Ok(reply::of_values(hash.values(txn, fields)?));
            }
            values.push(row.map_or(Reply::Null, |value| rows::shared(value.share(0))));
        }
    }
    Ok(Reply::Array(values))
}

fn hgetall(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let hash = Hash::open(txn, args[1])?;
    let field_at = hash.collection().sub_offset();
    all(txn, &hash, Shape::Map, move |row_key, value, out| {
        out.bulk(&row_key[field_at..]);
        out.bulk(value);
    })
}

fn hkeys(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let hash = Hash::open(txn, args[1])?;
    let field_at = hash.collection().sub_offset();
    all(txn, &hash, Shape::Array, move |row_key, _, out| {
        out.bulk(&row_key[field_at..]);
    })
}

fn hvals(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let hash = Hash::open(txn, args[1])?;
    all(txn, &hash, Shape::Array, |_, value, out| {
        out.bulk(value);
    })
}

/// A reply made of all rows.
fn all(
    txn: &ReadTxn,
    hash: &Hash,
    shape: Shape,
    item: impl FnMut(&[u8], &[u8], &mut Writer<'_>) + Send + 'static,
) -> Result<Reply> {
    let size = hash.len(txn)?;
    Ok(rows::reply(shape, size, hash.rows(txn)?, item))
}
