//! Commands on keys, whatever they hold.

use cairn_resp::{Progress, Reply, ReplyStream, StreamError, Writer, glob};
use cairn_store::keyspace::everywhere::{self, Walks};
use cairn_store::{
    EXPECTED, Error, EventClass, Key, Point, ReadTxn, Result, Type, WriteTxn, databases, keys,
    keyspace,
};

use super::args::{self, Args};
use super::flags::Flag::{Dangerous, DenyOom, Fast, Keyspace};
use super::keys::{Access, KeySpec, Keys, Place, Purpose};
use super::piecewise::ROWS_PER_PIECE;
use super::scan;
use super::{Command, Handler, command};
use super::{events, expire};
use crate::propagation::Propagate;

const GROUP: &str = "generic";

const fn all_keys(access: Access) -> KeySpec {
    KeySpec {
        access,
        place: Place::Range {
            first: 1,
            last: -1,
            step: 1,
        },
    }
}

/// The key itself is looked at or moved, not its value.
const PEEKS: Keys = Keys(&[KeySpec::at(1, Access::PEEK)]);
const EXPIRES: Keys = Keys(&[KeySpec::at(1, Access::UPDATE)]);

pub const COMMANDS: &[Command] = &[
    command("del", -2, Handler::Write(del))
        .keys(Keys(&[all_keys(Access::REMOVE)]))
        .flags(&[Keyspace])
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .syntax("key+")
        .about(GROUP, "1.0.0", "O(1) for each key", "Deletes keys."),
    command("unlink", -2, Handler::Write(del))
        .keys(Keys(&[all_keys(Access::REMOVE)]))
        .flags(&[Fast, Keyspace])
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .syntax("key+")
        .about(
            GROUP,
            "4.0.0",
            "O(1) for each key",
            "Deletes keys; their space is given back later.",
        ),
    command("exists", -2, Handler::Read(exists))
        .looks_on()
        .keys(Keys(&[all_keys(Access::PEEK)]))
        .flags(&[Fast, Keyspace])
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .syntax("key+")
        .about(
            GROUP,
            "1.0.0",
            "O(1) for each key",
            "Counts how many of the keys exist.",
        ),
    command("touch", -2, Handler::Read(exists))
        .always_uses()
        .keys(Keys(&[all_keys(Access::PEEK)]))
        .flags(&[Fast, Keyspace])
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .syntax("key+")
        .about(
            GROUP,
            "3.2.1",
            "O(1) for each key",
            "Counts how many of the keys exist, as if each were used.",
        ),
    command("type", 2, Handler::Point(type_of))
        .looks_on()
        .keys(PEEKS)
        .flags(&[Fast, Keyspace])
        .syntax("key")
        .about(
            GROUP,
            "1.0.0",
            "O(1)",
            "Tells what kind of value a key holds.",
        ),
    command("rename", 3, Handler::Write(rename))
        .keys(Keys(&[
            KeySpec::at(1, Access::READ_DELETE),
            KeySpec::at(2, Access::OVERWRITE),
        ]))
        .flags(&[Keyspace])
        .syntax("key newkey:k")
        .about(
            GROUP,
            "1.0.0",
            "O(N) for N elements",
            "Gives a key another name, replacing what had it.",
        ),
    command("renamenx", 3, Handler::Write(renamenx))
        .keys(Keys(&[
            KeySpec::at(1, Access::READ_DELETE),
            KeySpec::at(2, Access::Overwrite(Purpose::Insert)),
        ]))
        .flags(&[Fast, Keyspace])
        .syntax("key newkey:k")
        .about(
            GROUP,
            "1.0.0",
            "O(N) for N elements",
            "Gives a key another name if nothing has it.",
        ),
    command("copy", -3, Handler::Write(copy))
        .counts_lookups()
        .keys(Keys(&[
            KeySpec::at(1, Access::READ),
            KeySpec::at(2, Access::OVERWRITE),
        ]))
        .flags(&[DenyOom, Keyspace])
        .syntax("source:k destination:k DB/destination-db:i? REPLACE!?")
        .about(
            GROUP,
            "6.2.0",
            "O(N) for N elements",
            "Copies a key to another, in any database.",
        ),
    command("move", 3, Handler::Write(move_key))
        .needs_databases()
        .keys(Keys(&[KeySpec::at(1, Access::READ_UPDATE)]))
        .flags(&[Fast, Keyspace])
        .syntax("key db:i")
        .about(
            GROUP,
            "1.0.0",
            "O(N) for N elements",
            "Moves a key to another database.",
        ),
    command("keys", 2, Handler::Read(all_names))
        .walks_keys()
        .flags(&[Dangerous, Keyspace])
        .tips(&["request_policy:all_shards", "nondeterministic_output_order"])
        .syntax("pattern:p")
        .about(
            GROUP,
            "1.0.0",
            "O(N) for N keys",
            "Lists the keys that match a pattern.",
        ),
    command("scan", -2, Handler::Read(scan::scan))
        .walks_keys()
        .flags(&[Keyspace])
        .tips(&["nondeterministic_output", "request_policy:special"])
        .syntax("cursor:i MATCH/pattern:p? COUNT/count:i? TYPE/type?")
        .about(GROUP, "2.8.0", "O(COUNT)", "Lists keys step by step."),
    command("randomkey", 1, Handler::Read(random_key))
        .walks_keys()
        .flags(&[Keyspace])
        .tips(&["request_policy:all_shards", "nondeterministic_output"])
        .about(GROUP, "1.0.0", "O(1)", "Returns some key."),
    command("dbsize", 1, Handler::Read(dbsize))
        .walks_keys()
        .flags(&[Fast, Keyspace])
        .tips(&["request_policy:all_shards", "response_policy:agg_sum"])
        .about(
            "server",
            "1.0.0",
            "O(1)",
            "Counts the keys of the database.",
        ),
    command("expire", -3, Handler::Write(expire::expire))
        .keys(EXPIRES)
        .flags(&[Fast, Keyspace])
        .syntax("key seconds:i condition(NX!|XX!|GT!|LT!)?")
        .about(
            GROUP,
            "1.0.0",
            "O(1)",
            "Lets a key expire in so many seconds.",
        ),
    command("pexpire", -3, Handler::Write(expire::pexpire))
        .keys(EXPIRES)
        .flags(&[Fast, Keyspace])
        .syntax("key milliseconds:i condition(NX!|XX!|GT!|LT!)?")
        .about(
            GROUP,
            "2.6.0",
            "O(1)",
            "Lets a key expire in so many milliseconds.",
        ),
    command("expireat", -3, Handler::Write(expire::expireat))
        .keys(EXPIRES)
        .flags(&[Fast, Keyspace])
        .syntax("key unix-time-seconds:u condition(NX!|XX!|GT!|LT!)?")
        .about(
            GROUP,
            "1.2.0",
            "O(1)",
            "Lets a key expire at a time given in seconds.",
        ),
    command("pexpireat", -3, Handler::Write(expire::pexpireat))
        .keys(EXPIRES)
        .flags(&[Fast, Keyspace])
        .syntax("key unix-time-milliseconds:u condition(NX!|XX!|GT!|LT!)?")
        .about(
            GROUP,
            "2.6.0",
            "O(1)",
            "Lets a key expire at a time given in milliseconds.",
        ),
    command("persist", 2, Handler::Write(persist))
        .keys(EXPIRES)
        .flags(&[Fast, Keyspace])
        .syntax("key")
        .about(GROUP, "2.2.0", "O(1)", "Lets a key stay for good."),
    command("ttl", 2, Handler::Point(expire::ttl))
        .looks_on()
        .keys(Keys(&[KeySpec::at(1, Access::READ)]))
        .flags(&[Fast, Keyspace])
        .tips(&["nondeterministic_output"])
        .syntax("key")
        .about(
            GROUP,
            "1.0.0",
            "O(1)",
            "Returns the seconds until a key expires.",
        ),
    command("pttl", 2, Handler::Point(expire::pttl))
        .looks_on()
        .keys(Keys(&[KeySpec::at(1, Access::READ)]))
        .flags(&[Fast, Keyspace])
        .tips(&["nondeterministic_output"])
        .syntax("key")
        .about(
            GROUP,
            "2.6.0",
            "O(1)",
            "Returns the milliseconds until a key expires.",
        ),
    command("expiretime", 2, Handler::Point(expire::expiretime))
        .looks_on()
        .keys(Keys(&[KeySpec::at(1, Access::READ)]))
        .flags(&[Fast, Keyspace])
        .syntax("key")
        .about(
            GROUP,
            "7.0.0",
            "O(1)",
            "Returns when a key expires, in seconds.",
        ),
    command("pexpiretime", 2, Handler::Point(expire::pexpiretime))
        .looks_on()
        .keys(Keys(&[KeySpec::at(1, Access::READ)]))
        .flags(&[Fast, Keyspace])
        .syntax("key")
        .about(
            GROUP,
            "7.0.0",
            "O(1)",
            "Returns when a key expires, in milliseconds.",
        ),
    command("flushdb", -1, Handler::Exclusive(flushdb))
        .walks_keys()
        .flags(&[Dangerous, Keyspace])
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .syntax("async(ASYNC!|SYNC!)?")
        .about(
            "server",
            "1.0.0",
            "O(1)",
            "Deletes all keys of the database.",
        ),
    command("flushall", -1, Handler::Exclusive(flushall))
        .walks_keys()
        .flags(&[Dangerous, Keyspace])
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .syntax("async(ASYNC!|SYNC!)?")
        .about(
            "server",
            "1.0.0",
            "O(1)",
            "Deletes all keys of all databases.",
        ),
    command("swapdb", 3, Handler::Exclusive(swapdb))
        .needs_databases()
        .flags(&[Dangerous, Fast, Keyspace])
        .syntax("index1:i index2:i")
        .about("server", "4.0.0", "O(1)", "Exchanges two databases."),
];

fn del(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let mut deleted = 0;
    for some in args.rest(1).chunks(EXPECTED) {
        txn.expect(some)?;
        for name in some {
            if keys::delete(txn, name)? {
                txn.notify(EventClass::Generic, "del", name);
                deleted += 1;
            }
        }
    }
    Ok(Reply::Int(deleted))
}

fn exists(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let mut count = 0;
    for some in args.rest(1).chunks(EXPECTED) {
        txn.expect(some)?;
        for name in some {
            count += i64::from(txn.exists(&txn.key(name))?);
        }
    }
    Ok(Reply::Int(count))
}

fn type_of(point: Point<'_>, args: &Args) -> Result<Reply> {
    let found = point.find(args[1])?;
    Ok(Reply::Simple(
        found.map_or("none", |found| found.kind().name()),
    ))
}

fn rename(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let (from, to) = (txn.key(args[1]), txn.key(args[2]));
    if !txn.exists(&from)? {
        return Err(Error::NO_SUCH_KEY);
    }
    if args[1] != args[2] {
        keys::rename(txn, &from, &to)?;
        tell_rename(txn, args);
    }
    Ok(Reply::Ok)
}

fn tell_rename(txn: &mut WriteTxn, args: &Args) {
    txn.notify(EventClass::Generic, "rename_from", args[1]);
    txn.notify(EventClass::Generic, "rename_to", args[2]);
}

fn renamenx(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let (from, to) = (txn.key(args[1]), txn.key(args[2]));
    if !txn.exists(&from)? {
        return Err(Error::NO_SUCH_KEY);
    }
    if txn.exists(&to)? {
        return Ok(Reply::Int(0));
    }
    keys::rename(txn, &from, &to)?;
    tell_rename(txn, args);
    Ok(Reply::Int(1))
}

fn copy(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let mut database = txn.database();
    let mut replaces = false;
    let mut options = args.options(3);
    while let Some(option) = options.next() {
        if args::is(option, "replace") {
            replaces = true;
        } else if args::is(option, "db") && !options.is_empty() {
            let number = args::int32(options.value()?)?;
            if number != 0 && txn.store().is_replicated() {
                return Err(Error::fixed(
                    "ERR Copying to another database is not allowed in cluster mode",
                ));
            }
            database = database_number(txn, number)?;
        } else {
            return Err(Error::SYNTAX);
        }
    }
    if database == txn.database() && args[1] == args[2] {
        return Err(Error::fixed(
            "ERR source and destination objects are the same",
        ));
    }
    events::missing(txn, &args[1..2])?;
    let from = txn.key(args[1]);
    let to = Key::new(txn.index_of(database), args[2]);
    if !txn.exists(&from)? || (!replaces && txn.peek(&to)?.is_some()) {
        return Ok(Reply::Int(0));
    }
    bury_in(txn, database, args[2])?;
    keys::copy(txn, &from, &to)?;
    txn.notify_in(database, EventClass::Generic, "copy_to", args[2]);
    Ok(Reply::Int(1))
}

fn move_key(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let database = database_number(txn, args::int32(args[2])?)?;
    if database == txn.database() {
        return Err(Error::fixed(
            "ERR source and destination objects are the same",
        ));
    }
    let from = txn.key(args[1]);
    let to = Key::new(txn.index_of(database), args[1]);
    if txn.exists(&to)? || !txn.exists(&from)? {
        return Ok(Reply::Int(0));
    }
    bury_in(txn, database, args[1])?;
    if !keys::rename(txn, &from, &to)? {
        return Ok(Reply::Int(0));
    }
    txn.notify(EventClass::Generic, "move_from", args[1]);
    txn.notify_in(database, EventClass::Generic, "move_to", args[1]);
    Ok(Reply::Int(1))
}

/// If others follow, a key of another database that has expired, and is in the way there, is deleted before.
fn bury_in(txn: &mut WriteTxn, database: u32, name: &[u8]) -> Result<()> {
    let selected = txn.database();
    if database == selected || !txn.is_followed() {
        return Ok(());
    }
    txn.select(database);
    let buried = txn.bury(name);
    txn.select(selected);
    buried
}

fn database_number(txn: &ReadTxn, number: i32) -> Result<u32> {
    u32::try_from(number)
        .ok()
        .filter(|number| *number < txn.store().database_count())
        .ok_or(Error::fixed("ERR DB index is out of range"))
}

/// The keys that KEYS asks for.
struct Matching {
    pattern: Vec<u8>,
    now_ms: u64,
}

impl Matching {
    fn takes(&self, met: &keyspace::Met<'_>) -> bool {
        // A lone star is no condition at all.
        let matches = self.pattern == b"*" || glob::matches(&self.pattern, met.name, false);
        matches && !met.has_expired(self.now_ms)
    }
}

/// As many names are gathered while they are counted; more are counted, and then sent from a second walk.
const GATHERED_NAMES: usize = 1000;

fn all_names(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let matching = Matching {
        pattern: args[1].to_vec(),
        now_ms: txn.now_ms(),
    };
    let mut walk = Walks::open(txn)?;
    let mut names = Vec::new();
    let mut count = 0;
    while let Some(met) = walk.next()? {
        txn.step()?;
        if matching.takes(&met) {
            count += 1;
            if names.len() < GATHERED_NAMES {
                names.push(Reply::from(met.name));
            }
        }
    }
    if count == names.len() {
        return Ok(Reply::Array(names));
    }
    walk.rewind();
    Ok(Reply::Stream(Box::new(Names {
        header: Some(count),
        walk,
        left: count,
        matching,
    })))
}

/// Many names, sent as they are met.
struct Names {
    header: Option<usize>,
    walk: Walks,
    left: usize,
    matching: Matching,
}

impl ReplyStream for Names {
    fn write(
        &mut self,
        out: &mut Writer<'_>,
        limit: usize,
    ) -> std::result::Result<Progress, StreamError> {
        if let Some(count) = self.header.take() {
            out.array(count);
        }
        for _ in 0..ROWS_PER_PIECE {
            if self.left == 0 {
                return Ok(Progress::Done);
            }
            if out.len() >= limit {
                break;
            }
            match self.walk.next().map_err(StreamError::new)? {
                Some(met) if self.matching.takes(&met) => {
                    out.bulk(met.name);
                    self.left -= 1;
                }
                Some(_) => {}
                None => return Err(StreamError::new("keys are missing")),
            }
        }
        Ok(Progress::More)
    }
}

fn random_key(txn: &ReadTxn, _: &Args) -> Result<Reply> {
    Ok(everywhere::random(txn)?.into())
}

fn dbsize(txn: &ReadTxn, _: &Args) -> Result<Reply> {
    Ok(everywhere::count(txn)?.keys.into())
}

fn persist(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    match keys::expiry_of(txn, args[1])? {
        None | Some(0) => Ok(Reply::Int(0)),
        Some(_) => {
            keys::set_expiry(txn, args[1], 0)?;
            txn.notify(EventClass::Generic, "persist", args[1]);
            Ok(Reply::Int(1))
        }
    }
}

fn flushdb(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    check_flush_option(args)?;
    let database = txn.database();
    databases::flush(txn, [database]);
    txn.propagate_with(args, &[]);
    Ok(Reply::Ok)
}

fn flushall(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    check_flush_option(args)?;
    let count = txn.store().database_count();
    databases::flush(txn, 0..count);
    txn.propagate_with(args, &[]);
    Ok(Reply::Ok)
}

/// SYNC and ASYNC are the same here: both take no time.
fn check_flush_option(args: &Args) -> Result<()> {
    match args.rest(1) {
        [] => Ok(()),
        [option] if args::is(option, "sync") || args::is(option, "async") => Ok(()),
        _ => Err(Error::SYNTAX),
    }
}

fn swapdb(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let one = args::int32(args[1]).map_err(|_| Error::fixed("ERR invalid first DB index"))?;
    let other = args::int32(args[2]).map_err(|_| Error::fixed("ERR invalid second DB index"))?;
    let (one, other) = (database_number(txn, one)?, database_number(txn, other)?);
    databases::swap(txn, one, other);
    txn.propagate_with(args, &[]);
    Ok(Reply::Ok)
}

/// A type's name as TYPE prints it and SCAN's TYPE option takes it.
pub fn type_named(name: &[u8]) -> Option<Type> {
    [
        Type::String,
        Type::List,
        Type::Set,
        Type::ZSet,
        Type::Hash,
        Type::Stream,
    ]
    .into_iter()
    .find(|kind| name.eq_ignore_ascii_case(kind.name().as_bytes()))
}
