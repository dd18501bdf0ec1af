//! Reading whole strings: GET, MGET, and GETDEL and GETEX, which change the key as they go.

use cairn_resp::Reply;
use cairn_store::string::Strings;
use cairn_store::{EXPECTED, Error, EventClass, Point, ReadTxn, Result, Str, WriteTxn, keys};

use super::set::Lifetime;
use super::{Args, reply};
use crate::command::args::is;
use crate::command::rows;
use crate::propagation::{Propagate, decimal, deleting_word, expiring_word};

/// How much of MGET's reply is collected before it becomes a stream.
const COLLECTED_BYTES: usize = 256 * 1024;

pub fn get(point: Point<'_>, args: &Args) -> Result<Reply> {
    match point.string(args[1])? {
        Some(string) if string.is_inline() => Ok(whole(string)),
        Some(string) => reply::part(point, &string, 0..string.len()),
        None => Ok(Reply::Null),
    }
}

/// The value of a string in one piece, from where it lies.
fn whole(string: Str<'_>) -> Reply {
    string.share_inline().map_or(Reply::Null, rows::shared)
}

pub fn mget(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let names = args.rest(1);
    let mut values = Vec::with_capacity(names.len());
    let mut bytes = 0;
    for (number, name) in names.iter().enumerate() {
        if number.is_multiple_of(EXPECTED) {
            txn.expect(&names[number..names.len().min(number + EXPECTED)])?;
        }
        txn.step()?;
        let Some(string) = Str::find_only(txn, name)? else {
            values.push(Reply::Null);
            continue;
        };
        bytes += string.len();
        if !string.is_inline() || bytes > COLLECTED_BYTES as u64 {
            if txn.store().listeners().hear(EventClass::Missed) {
                // The stream would find out too late.
                for name in &names[number + 1..] {
                    txn.exists(&txn.key(name))?;
                }
            }
            return Ok(reply::of_strings(Strings::open(txn, names)?));
        }
        values.push(whole(string));
    }
    Ok(Reply::Array(values))
}

pub fn getdel(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let Some(string) = Str::find(txn, args[1])? else {
        txn.notify(EventClass::Missed, "keymiss", args[1]);
        return Ok(Reply::Null);
    };
    let value = reply::before_change(txn, &string)?;
    let stamp = string.stamp();
    drop(string);
    txn.remove(&txn.key(args[1]), &stamp);
    txn.notify(EventClass::Generic, "del", args[1]);
    txn.propagate_as(&[deleting_word(), args[1]]);
    Ok(value)
}

pub fn getex(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let lifetime = parse_getex(args)?;
    let Some(string) = Str::find(txn, args[1])? else {
        txn.notify(EventClass::Missed, "keymiss", args[1]);
        return Ok(Reply::Null);
    };
    let now_ms = txn.now_ms();
    let at_ms = lifetime.given_ms(now_ms, "getex")?;
    let value = reply::before_change(txn, &string)?;
    let before = string.stamp().expire_ms;
    drop(string);
    match at_ms {
        Some(at_ms) if at_ms <= now_ms => {
            keys::delete(txn, args[1])?;
            txn.notify(EventClass::Generic, "del", args[1]);
            txn.propagate_as(&[expiring_word(), args[1]]);
        }
        Some(at_ms) => {
            keys::set_expiry(txn, args[1], at_ms)?;
            txn.notify(EventClass::Generic, "expire", args[1]);
            if txn.is_followed() {
                txn.propagate_as(&[b"PEXPIREAT", args[1], &decimal(at_ms)]);
            }
        }
        None if lifetime == Lifetime::Forever && before != 0 => {
            keys::set_expiry(txn, args[1], 0)?;
            txn.notify(EventClass::Generic, "persist", args[1]);
            txn.propagate_as(&[b"PERSIST", args[1]]);
        }
        None => {}
    }
    Ok(value)
}

fn parse_getex<'a>(args: &Args<'a>) -> Result<Lifetime<'a>> {
    let mut options = args.options(2);
    let mut lifetime = Lifetime::Unsaid;
    while let Some(word) = options.next() {
        let is_known = if is(word, "persist") {
            lifetime.say(Lifetime::Forever)
        } else {
            lifetime.parse(word, &mut options)?
        };
        if !is_known {
            return Err(Error::SYNTAX);
        }
    }
    Ok(lifetime)
}
