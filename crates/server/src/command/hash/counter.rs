//! Fields as numbers.

use cairn_resp::Reply;
use cairn_resp::number::{LongDouble, parse_i64};
use cairn_store::{Error, EventClass, Hash, Result, WriteTxn};

use super::Args;
use crate::command::string::{NOT_FINITE, WOULD_OVERFLOW};
use crate::propagation::Propagate;

pub fn hincrby(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let increment = args.int(3)?;
    let mut sum = 0;
    update(txn, args, |value| {
        let value = parse_i64(value).ok_or(Error::fixed("ERR hash value is not an integer"))?;
        sum = value.checked_add(increment).ok_or(WOULD_OVERFLOW)?;
        Ok(itoa::Buffer::new().format(sum).into())
    })?;
    txn.notify(EventClass::Hash, "hincrby", args[1]);
    Ok(Reply::Int(sum))
}

pub fn hincrbyfloat(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let increment = LongDouble::parse(args[3]).ok_or(Error::NOT_FLOAT)?;
    if !increment.is_finite() {
        return Err(Error::fixed("ERR value is NaN or Infinity"));
    }
    let mut sum = Vec::new();
    update(txn, args, |value| {
        let value =
            LongDouble::parse(value).ok_or(Error::fixed("ERR hash value is not a float"))?;
        sum = value.checked_add(increment).ok_or(NOT_FINITE)?.to_bytes();
        Ok(sum.clone())
    })?;
    txn.notify(EventClass::Hash, "hincrbyfloat", args[1]);
    txn.propagate_with(args, &[(0, b"HSET"), (3, &sum)]);
    Ok(Reply::Bulk(sum))
}

/// Changes the field that the command names; one that is absent counts as zero.
fn update(
    txn: &mut WriteTxn,
    args: &Args,
    change: impl FnOnce(&[u8]) -> Result<Vec<u8>>,
) -> Result<()> {
    let mut hash = Hash::open(txn, args[1])?;
    hash.update(txn, args[2], |value| change(value.unwrap_or(b"0")))?;
    hash.save(txn);
    Ok(())
}
