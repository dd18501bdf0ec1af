//! RESTORE. A payload is checked as a whole before anything is changed: see `cairn_rdb`.

use cairn_rdb::{Corrupt, Item, Kind, Payload, Read, Refused};
use cairn_resp::Reply;
use cairn_store::stream::{self, Id, append_field};
use cairn_store::{Builder, Error, EventClass, Expiry, Result, WriteTxn, keys, string};

use crate::command::args::{self, Args};
use crate::propagation::{Propagate, decimal};

/// A larger payload is not looked at on a connection's thread: a hundred times as much may be compressed in it.
const SHORT: usize = 16 * 1024;

struct Options {
    replaces: bool,
    /// The time to live is a moment.
    is_absolute: bool,
}

pub fn restore(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let options = options(args)?;
    let (name, payload) = (args[1], args[3]);
    if !options.replaces && txn.peek(&txn.key(name))?.is_some() {
        return Err(Error::fixed("BUSYKEY Target key name already exists."));
    }
    let ttl = args.int(2)?;
    if ttl < 0 {
        return Err(Error::fixed("ERR Invalid TTL value, must be >= 0"));
    }
    if payload.len() > SHORT && !txn.is_patient() {
        return Err(Error::TooLong);
    }
    let payload = checked(payload).map_err(|refused| Error::fixed(refused.text()))?;
    let was_there = keys::clear(txn, name)?;
    let Some(expire_ms) = expiry(txn, ttl, options.is_absolute) else {
        if was_there {
            txn.notify(EventClass::Generic, "del", name);
            txn.propagate_as(&[b"DEL", name]);
        }
        return Ok(Reply::Ok);
    };
    build(txn, name, &payload, expire_ms).map_err(|stopped| match stopped {
        // It has been read to its end before.
        Stopped::Corrupt => Error::fixed(Refused::Corrupt.text()),
        Stopped::Store(error) => error,
    })?;
    txn.notify(EventClass::Generic, "restore", name);
    if expire_ms != 0 && !options.is_absolute && txn.is_followed() {
        let added = (args.len(), &b"ABSTTL"[..]);
        txn.propagate_with(args, &[(2, &decimal(expire_ms)), added]);
    }
    Ok(Reply::Ok)
}

fn checked(payload: &[u8]) -> Result<Payload<'_>, Refused> {
    let payload = Payload::open(payload)?;
    payload.check()?;
    Ok(payload)
}

/// How long a key was idle, and how often it was used, is not kept; but it is understood.
fn options(args: &Args) -> Result<Options> {
    let mut parsed = Options {
        replaces: false,
        is_absolute: false,
    };
    let (mut idle, mut frequency) = (None, None);
    let mut options = args.options(4);
    while let Some(option) = options.next() {
        if args::is(option, "replace") {
            parsed.replaces = true;
        } else if args::is(option, "absttl") {
            parsed.is_absolute = true;
        } else if args::is(option, "idletime") && !options.is_empty() && frequency.is_none() {
            let seconds = args::int(options.value()?)?;
            if seconds < 0 {
                return Err(Error::fixed("ERR Invalid IDLETIME value, must be >= 0"));
            }
            idle = Some(seconds);
        } else if args::is(option, "freq") && !options.is_empty() && idle.is_none() {
            let uses = args::int(options.value()?)?;
            if !(0..=255).contains(&uses) {
                return Err(Error::fixed(
                    "ERR Invalid FREQ value, must be >= 0 and <= 255",
                ));
            }
            frequency = Some(uses);
        } else {
            return Err(Error::SYNTAX);
        }
    }
    Ok(parsed)
}

/// When the key expires, zero for never; nothing if it has already done so.
fn expiry(txn: &WriteTxn, ttl: i64, is_absolute: bool) -> Option<u64> {
    if ttl == 0 {
        return Some(0);
    }
    let now_ms = txn.now_ms();
    let at_ms = match is_absolute {
        true => ttl as u64,
        // What is too far away lies in the past for Redis, too.
        false => now_ms
            .checked_add(ttl as u64)
            .filter(|at_ms| i64::try_from(*at_ms).is_ok())?,
    };
    (at_ms > now_ms).then_some(at_ms)
}

enum Stopped {
    Corrupt,
    Store(Error),
}

impl From<Corrupt> for Stopped {
    fn from(Corrupt: Corrupt) -> Self {
        Stopped::Corrupt
    }
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Self {
        Stopped::Store(error)
    }
}

/// Makes the value that of a key that is absent.
fn build(
    txn: &mut WriteTxn,
    name: &[u8],
    payload: &Payload<'_>,
    expire_ms: u64,
) -> Result<(), Stopped> {
    let kind = payload.kind();
    match kind {
        Kind::String => {
            let expiry = match expire_ms {
                0 => Expiry::Never,
                at_ms => Expiry::At(at_ms),
            };
            payload.read(&mut |item| match item {
                Item::String(value) => Ok(string::set(txn, name, value, expiry)?),
                _ => Err(Stopped::Corrupt),
            })
        }
        Kind::Stream => build_stream(txn, name, payload, expire_ms),
        Kind::List | Kind::Set | Kind::Zset | Kind::Hash => {
            let mut builder = Builder::new(txn, name);
            payload.read(&mut |item| match item {
                Item::Element(element) => Ok(builder.element(txn, element)?),
                Item::Member(member) => Ok(builder.member(txn, member)?),
                Item::Scored(member, score) => Ok(builder.scored(txn, member, score)?),
                Item::Field(field, value) => Ok(builder.field(txn, field, value)?),
                // Meanwhile it may have expired.
                Item::FieldUntil(_, _, at_ms) if at_ms <= txn.now_ms() => Ok(()),
                Item::FieldUntil(field, value, at_ms) => {
                    Ok(builder.field_until(txn, field, value, at_ms)?)
                }
                _ => Err(Stopped::Corrupt),
            })?;
            match kind {
                Kind::List => builder.finish_list(txn, expire_ms),
                Kind::Set => builder.finish_set(txn, expire_ms),
                Kind::Zset => builder.finish_zset(txn, expire_ms),
                _ => builder.finish_hash(txn, expire_ms),
            }?;
            Ok(())
        }
    }
}

fn build_stream(
    txn: &mut WriteTxn,
    name: &[u8],
    payload: &Payload<'_>,
    expire_ms: u64,
) -> Result<(), Stopped> {
    let id = |id: cairn_rdb::Id| Id::new(id.ms, id.seq);
    let mut builder = stream::Builder::new(txn, name);
    let mut entry = Vec::new();
    payload.read(&mut |item| match item {
        Item::Entry(at, words) => {
            entry.clear();
            for word in words {
                word.with(|word| append_field(&mut entry, word));
            }
            Ok(builder.entry(txn, id(at), &entry)?)
        }
        Item::Facts(facts) => {
            builder.facts(id(facts.last), id(facts.deleted), facts.added);
            Ok(())
        }
        Item::Group { name, last, read } => {
            let read = match read {
                Read::Known(read) => Some(Some(read)),
                Read::Unknown => Some(None),
                Read::Untold => None,
            };
            Ok(builder.group(txn, name, id(last), read)?)
        }
        Item::Consumer { name, seen_ms } => Ok(builder.consumer(txn, name, seen_ms)?),
        Item::Pending {
            id: at,
            delivered_ms,
            deliveries,
        } => Ok(builder.pending(txn, id(at), delivered_ms, deliveries)?),
        _ => Err(Stopped::Corrupt),
    })?;
    Ok(builder.finish(txn, expire_ms)?)
}
