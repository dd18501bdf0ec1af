//! Setting strings: SET with all its options, and the commands that are some of them under a name of
//! their own.

use cairn_resp::Reply;
use cairn_store::{Error, EventClass, Expiry, Result, Stamp, Str, WriteTxn, string};

use super::{Args, reply};
use crate::command::args::{Options, is};
use crate::command::expire::{self, Form};
use crate::command::wrong_arity;
use crate::propagation::{Propagate, decimal};

/// What was said about how long a key shall live.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lifetime<'a> {
    Unsaid,
    /// KEEPTTL.
    AsBefore,
    /// PERSIST.
    Forever,
    /// EX, PX, EXAT, PXAT, with the time as it was written.
    Given(Form, &'a [u8]),
}

impl<'a> Lifetime<'a> {
    /// Says it, unless something else was said before. The same may be said twice, and the last time
    /// given counts.
    pub fn say(&mut self, other: Lifetime<'a>) -> bool {
        let is_same_option = match (*self, other) {
            (Lifetime::Unsaid, _) => true,
            (Lifetime::Given(before, _), Lifetime::Given(now, _)) => before == now,
            (before, now) => before == now,
        };
        if is_same_option {
            *self = other;
        }
        is_same_option
    }

    /// Takes an option that gives a time, with that time; false if it is none, or contradicts.
    pub fn parse(&mut self, word: &[u8], options: &mut Options<'a>) -> Result<bool> {
        let form = if is(word, "ex") {
            expire::SECONDS
        } else if is(word, "px") {
            expire::MILLISECONDS
        } else if is(word, "exat") {
            expire::AT_SECONDS
        } else if is(word, "pxat") {
            expire::AT_MILLISECONDS
        } else {
            return Ok(false);
        };
        Ok(self.say(Lifetime::Given(form, options.value()?)))
    }

    /// The time that was given, if one was.
    pub fn given_ms(self, now_ms: u64, command: &str) -> Result<Option<u64>> {
        match self {
            Lifetime::Given(form, text) => form.positive_at_ms(text, now_ms, command).map(Some),
            _ => Ok(None),
        }
    }

    fn expiry(self, now_ms: u64, command: &str) -> Result<Expiry> {
        Ok(match self.given_ms(now_ms, command)? {
            Some(at_ms) => Expiry::At(at_ms),
            None if self == Lifetime::AsBefore => Expiry::Keep,
            None => Expiry::Never,
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Condition {
    Absent,
    Present,
}

struct SetOptions<'a> {
    condition: Option<Condition>,
    returns_old: bool,
    lifetime: Lifetime<'a>,
}

impl<'a> SetOptions<'a> {
    fn parse(args: &Args<'a>) -> Result<SetOptions<'a>> {
        let mut parsed = SetOptions {
            condition: None,
            returns_old: false,
            lifetime: Lifetime::Unsaid,
        };
        let mut options = args.options(3);
        while let Some(word) = options.next() {
            let is_known = if is(word, "nx") {
                parsed.only_if(Condition::Absent)
            } else if is(word, "xx") {
                parsed.only_if(Condition::Present)
            } else if is(word, "get") {
                parsed.returns_old = true;
                true
            } else if is(word, "keepttl") {
                parsed.lifetime.say(Lifetime::AsBefore)
            } else {
                parsed.lifetime.parse(word, &mut options)?
            };
            if !is_known {
                return Err(Error::SYNTAX);
            }
        }
        Ok(parsed)
    }

    fn only_if(&mut self, condition: Condition) -> bool {
        *self.condition.get_or_insert(condition) == condition
    }

    fn forbid(&self, live: Option<&Stamp>) -> bool {
        match self.condition {
            Some(Condition::Absent) => live.is_some(),
            Some(Condition::Present) => live.is_none(),
            None => false,
        }
    }
}

pub fn set(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let (name, value) = (args[1], args[2]);
    let options = SetOptions::parse(args)?;
    let expiry = options.lifetime.expiry(txn.now_ms(), "set")?;
    if options.condition.is_none() && !options.returns_old {
        string::set(txn, name, value, expiry)?;
        tell(txn, name, expiry);
        propagate(txn, name, value, expiry);
        return Ok(Reply::Ok);
    }
    let key = txn.key(name);
    let (live, old) = if options.returns_old {
        look(txn, name)?
    } else {
        let live = txn.peek(&key)?.map(|found| found.stamp());
        (live, Reply::Null)
    };
    if options.returns_old && live.is_none() {
        txn.notify(EventClass::Missed, "keymiss", name);
    }
    if options.forbid(live.as_ref()) {
        return Ok(old);
    }
    string::replace(txn, &key, live.as_ref(), value, expiry)?;
    tell(txn, name, expiry);
    match expiry {
        // What it returns is of no interest to followers.
        Expiry::Never | Expiry::Keep if options.returns_old && txn.is_followed() => {
            propagate_without_get(txn, args);
        }
        _ => propagate(txn, name, value, expiry),
    }
    Ok(if options.returns_old { old } else { Reply::Ok })
}

fn tell(txn: &mut WriteTxn, name: &[u8], expiry: Expiry) {
    txn.notify(EventClass::String, "set", name);
    if let Expiry::At(_) = expiry {
        txn.notify(EventClass::Generic, "expire", name);
    }
}

/// When it expires is told by the clock, so that followers need not ask theirs.
fn propagate(txn: &mut WriteTxn, name: &[u8], value: &[u8], expiry: Expiry) {
    if let Expiry::At(at_ms) = expiry
        && txn.is_followed()
    {
        txn.propagate_as(&[b"SET", name, value, b"PXAT", &decimal(at_ms)]);
    }
}

fn propagate_without_get(txn: &mut WriteTxn, args: &Args) {
    let is_get = |at: usize, word: &[u8]| at >= 3 && is(word, "get");
    let words = args.iter().copied().enumerate();
    let words: Vec<&[u8]> = words
        .filter(|(at, word)| !is_get(*at, word))
        .map(|(_, word)| word)
        .collect();
    txn.propagate_as(&words);
}

/// What the key holds, which must be a string if anything, and the same as a reply.
fn look(txn: &WriteTxn, name: &[u8]) -> Result<(Option<Stamp>, Reply)> {
    Ok(match Str::find(txn, name)? {
        Some(string) => (Some(string.stamp()), reply::before_change(txn, &string)?),
        None => (None, Reply::Null),
    })
}

pub fn getset(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let (live, old) = look(txn, args[1])?;
    if live.is_none() {
        txn.notify(EventClass::Missed, "keymiss", args[1]);
    }
    string::set(txn, args[1], args[2], Expiry::Never)?;
    tell(txn, args[1], Expiry::Never);
    txn.propagate_with(args, &[(0, b"SET")]);
    Ok(old)
}

pub fn setnx(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    if txn.exists(&txn.key(args[1]))? {
        return Ok(Reply::Int(0));
    }
    string::set(txn, args[1], args[2], Expiry::Never)?;
    tell(txn, args[1], Expiry::Never);
    Ok(Reply::Int(1))
}

pub fn setex(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    set_for(txn, args, expire::SECONDS, "setex")
}

pub fn psetex(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    set_for(txn, args, expire::MILLISECONDS, "psetex")
}

fn set_for(txn: &mut WriteTxn, args: &Args, form: Form, command: &str) -> Result<Reply> {
    let at_ms = form.positive_at_ms(args[2], txn.now_ms(), command)?;
    string::set(txn, args[1], args[3], Expiry::At(at_ms))?;
    tell(txn, args[1], Expiry::At(at_ms));
    propagate(txn, args[1], args[3], Expiry::At(at_ms));
    Ok(Reply::Ok)
}

pub fn mset(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    set_all(txn, pairs(args, "mset")?)?;
    Ok(Reply::Ok)
}

pub fn msetnx(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let pairs = pairs(args, "msetnx")?;
    for pair in pairs {
        txn.step()?;
        if txn.exists(&txn.key(pair[0]))? {
            return Ok(Reply::Int(0));
        }
    }
    set_all(txn, pairs)?;
    Ok(Reply::Int(1))
}

/// Names and values in turn.
fn pairs<'a>(args: &Args<'a>, command: &str) -> Result<&'a [[&'a [u8]; 2]]> {
    match args.rest(1).as_chunks() {
        (pairs, []) => Ok(pairs),
        _ => Err(wrong_arity(command)),
    }
}

fn set_all(txn: &mut WriteTxn, pairs: &[[&[u8]; 2]]) -> Result<()> {
    for [name, value] in pairs {
        txn.step()?;
        string::set(txn, name, value, Expiry::Never)?;
        tell(txn, name, Expiry::Never);
    }
    Ok(())
}
