//! When fields expire: HEXPIRE and its family, as in Redis 7.4.

use cairn_resp::Reply;
use cairn_store::{Error, EventClass, Hash, ReadTxn, Result, WriteTxn};

use super::{Args, Command, GROUP, Handler, READS, UPDATES, command};
use crate::command::args;
use crate::command::events;
use crate::command::expire::{
    AT_MILLISECONDS, AT_SECONDS, Conditions, Form, MILLISECONDS, SECONDS,
};
use crate::command::flags::Flag::{DenyOom, Fast};
use crate::propagation::{Propagate, decimal};

pub const COMMANDS: &[Command] = &[
    command("hexpire", -6, Handler::Write(hexpire))
        .keys(UPDATES)
        .flags(&[DenyOom, Fast])
        .syntax("key seconds:i condition(NX!|XX!|GT!|LT!)? FIELDS/fields{numfields:i field+}")
        .about(
            GROUP,
            "7.4.0",
            "O(1) for each field",
            "Lets fields expire in so many seconds.",
        ),
    command("hpexpire", -6, Handler::Write(hpexpire))
        .keys(UPDATES)
        .flags(&[DenyOom, Fast])
        .syntax("key milliseconds:i condition(NX!|XX!|GT!|LT!)? FIELDS/fields{numfields:i field+}")
        .about(
            GROUP,
            "7.4.0",
            "O(1) for each field",
            "Lets fields expire in so many milliseconds.",
        ),
    command("hexpireat", -6, Handler::Write(hexpireat))
        .keys(UPDATES)
        .flags(&[DenyOom, Fast])
        .syntax(
            "key unix-time-seconds:u condition(NX!|XX!|GT!|LT!)? FIELDS/fields{numfields:i field+}",
        )
        .about(
            GROUP,
            "7.4.0",
            "O(1) for each field",
            "Lets fields expire at a time given in seconds.",
        ),
    command("hpexpireat", -6, Handler::Write(hpexpireat))
        .keys(UPDATES)
        .flags(&[DenyOom, Fast])
        .syntax(
            "key unix-time-milliseconds:u condition(NX!|XX!|GT!|LT!)? \
             FIELDS/fields{numfields:i field+}",
        )
        .about(
            GROUP,
            "7.4.0",
            "O(1) for each field",
            "Lets fields expire at a time given in milliseconds.",
        ),
    command("hpersist", -5, Handler::Write(hpersist))
        .keys(UPDATES)
        .flags(&[Fast])
        .syntax("key FIELDS/fields{numfields:i field+}")
        .about(
            GROUP,
            "7.4.0",
            "O(1) for each field",
            "Lets fields stay for good.",
        ),
    command("httl", -5, Handler::Read(httl))
        .keys(READS)
        .flags(&[Fast])
        .tips(&["nondeterministic_output"])
        .syntax("key FIELDS/fields{numfields:i field+}")
        .about(
            GROUP,
            "7.4.0",
            "O(1) for each field",
            "Returns in how many seconds fields expire.",
        ),
    command("hpttl", -5, Handler::Read(hpttl))
        .keys(READS)
        .flags(&[Fast])
        .tips(&["nondeterministic_output"])
        .syntax("key FIELDS/fields{numfields:i field+}")
        .about(
            GROUP,
            "7.4.0",
            "O(1) for each field",
            "Returns in how many milliseconds fields expire.",
        ),
    command("hexpiretime", -5, Handler::Read(hexpiretime))
        .keys(READS)
        .flags(&[Fast])
        .syntax("key FIELDS/fields{numfields:i field+}")
        .about(
            GROUP,
            "7.4.0",
            "O(1) for each field",
            "Returns the times at which fields expire, in seconds.",
        ),
    command("hpexpiretime", -5, Handler::Read(hpexpiretime))
        .keys(READS)
        .flags(&[Fast])
        .syntax("key FIELDS/fields{numfields:i field+}")
        .about(
            GROUP,
            "7.4.0",
            "O(1) for each field",
            "Returns the times at which fields expire, in milliseconds.",
        ),
];

/// The last moment at which a field may expire.
const LAST_MS: i64 = (1 << 46) - 1;

/// What is said of a field that is not there, and of one that never expires.
const NO_FIELD: i64 = -2;
const NO_EXPIRY: i64 = -1;
/// What becomes of one that is there.
const NOT_MET: i64 = 0;
const DONE: i64 = 1;
const DELETED: i64 = 2;

fn hexpire(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    set(txn, args, SECONDS, "hexpire")
}

fn hpexpire(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    set(txn, args, MILLISECONDS, "hpexpire")
}

fn hexpireat(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    set(txn, args, AT_SECONDS, "hexpireat")
}

fn hpexpireat(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    set(txn, args, AT_MILLISECONDS, "hpexpireat")
}

fn set(txn: &mut WriteTxn, args: &Args, form: Form, command: &str) -> Result<Reply> {
    let mut hash = Hash::open(txn, args[1])?;
    let value = args.int(2)?;
    if value < 0 {
        return Err(Error::fixed("ERR invalid expire time, must be >= 0"));
    }
    let at_ms = form.limited_at_ms(value, txn.now_ms(), LAST_MS, command)?;
    let conditions = Conditions::of_word(args[3]);
    let at = 3 + usize::from(conditions.is_some());
    let conditions = conditions.unwrap_or_default();
    let fields = fields(
        args,
        at,
        "ERR Parameter `numFields` should be greater than 0",
    )?;

    let mut outcomes = Vec::with_capacity(fields.len());
    let (mut has_set, mut has_deleted) = (false, false);
    for field in fields {
        txn.step()?;
        outcomes.push(match hash.expiry_of(txn, field)? {
            None => NO_FIELD,
            Some(before) if !conditions.allow(before, at_ms as i64) => NOT_MET,
            Some(_) if at_ms <= txn.now_ms() => {
                hash.remove(txn, field)?;
                has_deleted = true;
                DELETED
            }
            Some(_) => {
                hash.expire(txn, field, at_ms)?;
                has_set = true;
                DONE
            }
        });
    }
    let is_emptied = hash.is_empty();
    hash.save(txn);
    if txn.is_followed() {
        propagate(txn, args[1], fields, &outcomes, at_ms);
    }
    if has_deleted {
        events::taken(txn, EventClass::Hash, "hdel", args[1], is_emptied);
    } else if has_set {
        txn.notify(EventClass::Hash, "hexpire", args[1]);
    }
    Ok(answer(outcomes))
}

/// Followers are told the moment, whatever it was told by, and the fields for which the conditions were met.
fn propagate(txn: &mut WriteTxn, name: &[u8], fields: &[&[u8]], outcomes: &[i64], at_ms: u64) {
    let of = |wanted: i64| -> Vec<&[u8]> {
        let with = fields.iter().zip(outcomes);
        let with = with.filter(|(_, outcome)| **outcome == wanted);
        with.map(|(field, _)| *field).collect()
    };
    let (set, deleted) = (of(DONE), of(DELETED));
    if !set.is_empty() {
        let (at_ms, count) = (decimal(at_ms), decimal(set.len() as u64));
        let words: [&[u8]; 5] = [b"HPEXPIREAT", name, &at_ms, b"FIELDS", &count];
        txn.propagate_as(&[&words[..], &set].concat());
    }
    if !deleted.is_empty() {
        txn.propagate_as(&[&[&b"HDEL"[..], name][..], &deleted].concat());
    }
}

fn hpersist(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let mut hash = Hash::open(txn, args[1])?;
    let fields = fields(args, 2, NOT_POSITIVE)?;
    let mut outcomes = Vec::with_capacity(fields.len());
    let mut has_changed = false;
    for field in fields {
        txn.step()?;
        outcomes.push(match hash.expiry_of(txn, field)? {
            None => NO_FIELD,
            Some(0) => NO_EXPIRY,
            Some(_) => {
                hash.persist(txn, field)?;
                has_changed = true;
                DONE
            }
        });
    }
    hash.save(txn);
    if has_changed {
        txn.notify(EventClass::Hash, "hpersist", args[1]);
    }
    Ok(answer(outcomes))
}

fn httl(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let now_ms = txn.now_ms();
    tell(txn, args, |at_ms| seconds(at_ms.saturating_sub(now_ms)))
}

fn hpttl(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let now_ms = txn.now_ms();
    tell(txn, args, |at_ms| at_ms.saturating_sub(now_ms))
}

fn hexpiretime(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    tell(txn, args, seconds)
}

fn hpexpiretime(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    tell(txn, args, |at_ms| at_ms)
}

/// Rounded up, other than for keys.
fn seconds(milliseconds: u64) -> u64 {
    milliseconds.div_ceil(1000)
}

fn tell(txn: &ReadTxn, args: &Args, what: impl Fn(u64) -> u64) -> Result<Reply> {
    let hash = Hash::open(txn, args[1])?;
    let fields = fields(args, 2, NOT_POSITIVE)?;
    let mut times = Vec::with_capacity(fields.len());
    for field in fields {
        txn.step()?;
        times.push(match hash.expiry_of(txn, field)? {
            None => NO_FIELD,
            Some(0) => NO_EXPIRY,
            Some(at_ms) => what(at_ms) as i64,
        });
    }
    Ok(answer(times))
}

const NOT_POSITIVE: &str = "ERR Number of fields must be a positive integer";

/// What `FIELDS n` says there is; it stands at that place, and nothing follows the fields.
fn fields<'a>(args: &Args<'a>, at: usize, not_positive: &'static str) -> Result<&'a [&'a [u8]]> {
    if !args::is(args[at], "fields") {
        return Err(Error::fixed(
            "ERR Mandatory argument FIELDS is missing or not at the right position",
        ));
    }
    let count = args.int(at + 1).ok().filter(|count| *count > 0);
    let count = count.ok_or(Error::fixed(not_positive))?;
    let fields = args.rest(at + 2);
    if fields.len() as i64 != count {
        return Err(Error::fixed(
            "ERR The `numfields` parameter must match the number of arguments",
        ));
    }
    Ok(fields)
}

fn answer(numbers: Vec<i64>) -> Reply {
    Reply::Array(numbers.into_iter().map(Reply::Int).collect())
}
