//! When keys expire: EXPIRE and its family, and the options that SET and GETEX share with it.

use cairn_resp::Reply;
use cairn_store::{Error, EventClass, Point, Result, WriteTxn, keys};

use super::args::{self, Args};
use crate::propagation::{Propagate, decimal, expiring_word};

/// How an expiry is written: its unit, and what it counts from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Form {
    in_seconds: bool,
    is_absolute: bool,
}

pub const SECONDS: Form = Form {
    in_seconds: true,
    is_absolute: false,
};
pub const MILLISECONDS: Form = Form {
    in_seconds: false,
    is_absolute: false,
};
pub const AT_SECONDS: Form = Form {
    in_seconds: true,
    is_absolute: true,
};
pub const AT_MILLISECONDS: Form = Form {
    in_seconds: false,
    is_absolute: true,
};

fn invalid(command: &str) -> Error {
    Error::reply(format!("ERR invalid expire time in '{command}' command"))
}

impl Form {
    /// The time as milliseconds since the epoch; negative if it lies before that.
    fn at_ms(self, value: i64, now_ms: u64, command: &str) -> Result<i64> {
        let value = if self.in_seconds {
            value.checked_mul(1000).ok_or_else(|| invalid(command))?
        } else {
            value
        };
        if self.is_absolute {
            return Ok(value);
        }
        value
            .checked_add(now_ms as i64)
            .ok_or_else(|| invalid(command))
    }

    /// The same for a field, where times are not negative, and end somewhere.
    pub fn limited_at_ms(
        self,
        value: i64,
        now_ms: u64,
        last_ms: i64,
        command: &str,
    ) -> Result<u64> {
        let at_ms = self.at_ms(value, now_ms, command)?;
        u64::try_from(at_ms)
            .ok()
            .filter(|_| at_ms <= last_ms)
            .ok_or_else(|| invalid(command))
    }

    /// The same for an option of SET, GETEX, SETEX or PSETEX, where a time must be positive.
    pub fn positive_at_ms(self, text: &[u8], now_ms: u64, command: &str) -> Result<u64> {
        let value = args::int(text)?;
        if value <= 0 {
            return Err(invalid(command));
        }
        let at_ms = self.at_ms(value, now_ms, command)?;
        u64::try_from(at_ms).map_err(|_| invalid(command))
    }
}

pub fn expire(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    set(txn, args, SECONDS, "expire")
}

pub fn pexpire(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    set(txn, args, MILLISECONDS, "pexpire")
}

pub fn expireat(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    set(txn, args, AT_SECONDS, "expireat")
}

pub fn pexpireat(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    set(txn, args, AT_MILLISECONDS, "pexpireat")
}

/// Which of the conditions NX, XX, GT and LT were given.
#[derive(Default)]
pub struct Conditions {
    only_without: bool,
    only_with: bool,
    only_later: bool,
    only_earlier: bool,
}

impl Conditions {
    /// The one that a word stands for.
    pub fn of_word(word: &[u8]) -> Option<Conditions> {
        let mut conditions = Conditions::default();
        conditions.take(word).then_some(conditions)
    }

    /// False if the word is none of them.
    fn take(&mut self, word: &[u8]) -> bool {
        let conditions = [
            ("nx", &mut self.only_without),
            ("xx", &mut self.only_with),
            ("gt", &mut self.only_later),
            ("lt", &mut self.only_earlier),
        ];
        for (name, condition) in conditions {
            if args::is(word, name) {
                *condition = true;
                return true;
            }
        }
        false
    }

    fn parse(args: &Args) -> Result<Conditions> {
        let mut conditions = Conditions::default();
        for option in args.rest(3) {
            if !conditions.take(option) {
                let option = super::quotable(option, usize::MAX);
                return Err(Error::reply([b"ERR Unsupported option ", option].concat()));
            }
        }
        let others = conditions.only_with || conditions.only_later || conditions.only_earlier;
        if conditions.only_without && others {
            return Err(Error::fixed(
                "ERR NX and XX, GT or LT options at the same time are not compatible",
            ));
        }
        if conditions.only_later && conditions.only_earlier {
            return Err(Error::fixed(
                "ERR GT and LT options at the same time are not compatible",
            ));
        }
        Ok(conditions)
    }

    /// Whether an expiry of `before` (zero: never) may become `after`.
    pub fn allow(&self, before: u64, after: i64) -> bool {
        let has_expiry = before != 0;
        let before = before as i64;
        !(self.only_without && has_expiry
            || self.only_with && !has_expiry
            // A key that never expires counts as one that expires last.
            || self.only_later && (!has_expiry || after <= before)
            || self.only_earlier && has_expiry && after >= before)
    }
}

fn set(txn: &mut WriteTxn, args: &Args, form: Form, command: &str) -> Result<Reply> {
    let conditions = Conditions::parse(args)?;
    let at_ms = form.at_ms(args.int(2)?, txn.now_ms(), command)?;
    let Some(before) = keys::expiry_of(txn, args[1])? else {
        return Ok(Reply::Int(0));
    };
    if !conditions.allow(before, at_ms) {
        return Ok(Reply::Int(0));
    }
    if at_ms <= txn.now_ms() as i64 {
        keys::delete(txn, args[1])?;
        txn.notify(EventClass::Generic, "del", args[1]);
        txn.propagate_as(&[expiring_word(), args[1]]);
    } else {
        keys::set_expiry(txn, args[1], at_ms as u64)?;
        txn.notify(EventClass::Generic, "expire", args[1]);
        propagate(txn, args, form, at_ms as u64);
    }
    Ok(Reply::Int(1))
}

/// Followers are told the moment, whatever it was told by.
fn propagate(txn: &mut WriteTxn, args: &Args, form: Form, at_ms: u64) {
    if form != AT_MILLISECONDS && txn.is_followed() {
        txn.propagate_with(args, &[(0, b"PEXPIREAT"), (2, &decimal(at_ms))]);
    }
}

pub fn ttl(point: Point<'_>, args: &Args) -> Result<Reply> {
    let now_ms = point.now_ms();
    tell(point, args, |at_ms| {
        (at_ms.saturating_sub(now_ms) + 500) / 1000
    })
}

pub fn pttl(point: Point<'_>, args: &Args) -> Result<Reply> {
    let now_ms = point.now_ms();
    tell(point, args, |at_ms| at_ms.saturating_sub(now_ms))
}

pub fn expiretime(point: Point<'_>, args: &Args) -> Result<Reply> {
    tell(point, args, |at_ms| (at_ms + 500) / 1000)
}

pub fn pexpiretime(point: Point<'_>, args: &Args) -> Result<Reply> {
    tell(point, args, |at_ms| at_ms)
}

fn tell(point: Point<'_>, args: &Args, what: impl Fn(u64) -> u64) -> Result<Reply> {
    Ok(match point.find(args[1])? {
        None => Reply::Int(-2),
        Some(found) if found.expire_ms == 0 => Reply::Int(-1),
        Some(found) => what(found.expire_ms).into(),
    })
}
