//! Strings as numbers.

use cairn_resp::{Reply, number::LongDouble};
use cairn_store::string::Edit;
use cairn_store::{Error, EventClass, Result, WriteTxn};

use super::Args;
use crate::command::args;
use crate::propagation::Propagate;

pub const WOULD_OVERFLOW: Error = Error::fixed("ERR increment or decrement would overflow");
pub const NOT_FINITE: Error = Error::fixed("ERR increment would produce NaN or Infinity");

pub fn incr(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    add(txn, args[1], 1)
}

pub fn decr(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    add(txn, args[1], -1)
}

pub fn incrby(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let increment = args.int(2)?;
    add(txn, args[1], increment)
}

pub fn decrby(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let increment = args.int(2)?.checked_neg();
    let increment = increment.ok_or(Error::fixed("ERR decrement would overflow"))?;
    add(txn, args[1], increment)
}

fn add(txn: &mut WriteTxn, name: &[u8], increment: i64) -> Result<Reply> {
    let edit = Edit::open(txn, name)?;
    // What is not inline is too long for a number, and an empty text is none.
    let value = if edit.exists() {
        args::int(edit.inline())?
    } else {
        0
    };
    let sum = value.checked_add(increment).ok_or(WOULD_OVERFLOW)?;
    edit.replace(txn, itoa::Buffer::new().format(sum).as_bytes())?;
    txn.notify(EventClass::String, "incrby", name);
    Ok(Reply::Int(sum))
}

pub fn incrbyfloat(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let edit = Edit::open(txn, args[1])?;
    let value = if edit.exists() { edit.inline() } else { b"0" };
    let value = LongDouble::parse(value).ok_or(Error::NOT_FLOAT)?;
    let increment = LongDouble::parse(args[2]).ok_or(Error::NOT_FLOAT)?;
    let sum = value.checked_add(increment).ok_or(NOT_FINITE)?.to_bytes();
    edit.replace(txn, &sum)?;
    txn.notify(EventClass::String, "incrbyfloat", args[1]);
    // Followers may reckon otherwise.
    txn.propagate_with(args, &[(0, b"SET"), (2, &sum), (3, b"KEEPTTL")]);
    Ok(Reply::Bulk(sum))
}
