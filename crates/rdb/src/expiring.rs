//! Hashes with fields that expire, as Redis 7.4 writes them.
//!
//! ```text
//! first u64 | count | (time | field | value)...     one by one; the time is one more than what lies between the first
//!                                                   and that of the field, and zero if it never expires
//! first u64 | listpack of fields, values, times     in the order of time, with those that never expire at the end
//! ```
//!
//! `first`, little endian, is the time at which the first field expires. A small hash may have either form; the first is
//! written.

use crate::listpack::{Elements, Value};
use crate::{Corrupt, Input, Item};

/// The last time there is, as in Redis.
const LAST: u64 = (1 << 48) - 1;

/// The next field.
pub fn read_field<E: From<Corrupt>>(
    input: &mut Input<'_>,
    first: u64,
    visit: &mut dyn FnMut(Item<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let at_ms = match input.length()? {
        0 => 0,
        beyond => first.checked_add(beyond - 1).ok_or(Corrupt)?,
    };
    let field = input.string()?;
    visit(item(&field, &input.string()?, at_ms)?)
}

pub fn read_small<E: From<Corrupt>>(
    input: &mut Input<'_>,
    visit: &mut dyn FnMut(Item<'_>) -> Result<(), E>,
) -> Result<(), E> {
    input.fixed::<8>()?;
    let node = input.string()?;
    let mut elements = Elements::open(&node)?;
    let mut last = Some(0);
    while let Some(field) = elements.next()? {
        let value = elements.expect()?;
        let Value::Number(time) = elements.expect()? else {
            return Err(Corrupt.into());
        };
        let at_ms = u64::try_from(time).map_err(|_| Corrupt)?;
        let is_in_order = at_ms == 0 || last.is_some_and(|last| last <= at_ms);
        if !is_in_order {
            return Err(Corrupt.into());
        }
        last = (at_ms != 0).then_some(at_ms);
        field.with(|field| value.with(|value| visit(item(field, value, at_ms)?)))?;
    }
    Ok(())
}

fn item<'a>(field: &'a [u8], value: &'a [u8], at_ms: u64) -> Result<Item<'a>, Corrupt> {
    match at_ms {
        0 => Ok(Item::Field(field, value)),
        1..=LAST => Ok(Item::FieldUntil(field, value, at_ms)),
        _ => Err(Corrupt),
    }
}
