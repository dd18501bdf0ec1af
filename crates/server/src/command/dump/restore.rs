//! RESTORE. A payload is checked as a whole before anything is changed: see `cairn_rdb`.

use cairn_rdb::{Payload, Refused};
use cairn_resp::Reply;
use cairn_store::{Access, Effect, Error, EventClass, Result, WriteTxn, keys};

use super::building::{Building, Stopped};
use crate::command::args::{self, Args};
use crate::config::ENCODINGS;
use crate::propagation::{Propagate, decimal};

/// A larger payload is not looked at on a connection's thread: a hundred times as much may be compressed in it.
const SHORT: usize = 16 * 1024;

struct Options {
    replaces: bool,
    /// The time to live is a moment.
    is_absolute: bool,
    /// How long it is to count as idle, or how often as used, if that is what is noted.
    access: Option<Access>,
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
    if let Some(access) = options.access {
        let metadata_key = txn.key(name).metadata().to_vec();
        txn.add_effect(Effect::Accessed {
            metadata_key,
            access,
        });
    }
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

fn options(args: &Args) -> Result<Options> {
    let mut parsed = Options {
        replaces: false,
        is_absolute: false,
        access: None,
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
            idle = Some(seconds.unsigned_abs());
        } else if args::is(option, "freq") && !options.is_empty() && idle.is_none() {
            let uses = args::int(options.value()?)?;
            let uses = u8::try_from(uses)
                .map_err(|_| Error::fixed("ERR Invalid FREQ value, must be >= 0 and <= 255"))?;
            frequency = Some(uses);
        } else {
            return Err(Error::SYNTAX);
        }
    }
    parsed.access = match ENCODINGS.counts_uses() {
        true => frequency.map(Access::used),
        false => idle.map(Access::idle_for),
    };
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

/// Makes the value that of a key that is absent.
fn build(
    txn: &mut WriteTxn,
    name: &[u8],
    payload: &Payload<'_>,
    expire_ms: u64,
) -> Result<(), Stopped> {
    let mut building = Building::new(txn, name, payload.kind(), expire_ms);
    payload.read(&mut |item| building.add(txn, item))?;
    Ok(building.finish(txn)?)
}
