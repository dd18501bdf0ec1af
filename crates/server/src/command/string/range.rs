//! Strings as arrays of bytes: parts of them, and writing at their end and inside.

use std::ops::Range;

use cairn_resp::Reply;
use cairn_store::string::Edit;
use cairn_store::{Error, EventClass, Point, Result, WriteTxn};

use super::{Args, max_length, reply};

const TOO_LONG: Error =
    Error::fixed("ERR string exceeds maximum allowed size (proto-max-bulk-len)");

/// Refuses what would make a string longer than any may be.
fn check_length(limit: u64, offset: u64, added: &[u8]) -> Result<()> {
    match offset.checked_add(added.len() as u64) {
        Some(length) if length <= limit => Ok(()),
        _ => Err(TOO_LONG),
    }
}

pub fn strlen(point: Point<'_>, args: &Args) -> Result<Reply> {
    let string = point.string(args[1])?;
    Ok(string.map_or(0, |string| string.len()).into())
}

pub fn append(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let edit = Edit::open(txn, args[1])?;
    check_length(max_length(txn), edit.len(), args[2])?;
    let length = edit.append(txn, args[2])?;
    txn.notify(EventClass::String, "append", args[1]);
    Ok(length.into())
}

pub fn setrange(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let offset = u64::try_from(args.int(2)?);
    let offset = offset.map_err(|_| Error::fixed("ERR offset is out of range"))?;
    let edit = Edit::open(txn, args[1])?;
    let bytes = args[3];
    if bytes.is_empty() {
        return Ok(edit.len().into());
    }
    check_length(max_length(txn), offset, bytes)?;
    let length = edit.write_at(txn, offset, bytes)?;
    txn.notify(EventClass::String, "setrange", args[1]);
    Ok(length.into())
}

pub fn getrange(point: Point<'_>, args: &Args) -> Result<Reply> {
    let (start, end) = (args.int(2)?, args.int(3)?);
    let Some(string) = point.string(args[1])? else {
        return Ok(Reply::Static(""));
    };
    let range = inside(start, end, string.len());
    if range.is_empty() {
        return Ok(Reply::Static(""));
    }
    reply::part(point, &string, range)
}

/// The part from `start` to `end`, both included, and counted from the end of the string if negative.
fn inside(start: i64, end: i64, length: u64) -> Range<u64> {
    // Both before the string's beginning would otherwise meet there.
    if start < 0 && end < 0 && start > end {
        return 0..0;
    }
    let position = |index: i64| match u64::try_from(index) {
        Ok(index) => index,
        Err(_) => length.saturating_sub(index.unsigned_abs()),
    };
    position(start)..position(end).saturating_add(1).min(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_count_from_either_end_and_are_cut() {
        let cases = [
            ((0, 3), 10, 0..4),
            ((-3, -1), 10, 7..10),
            ((0, -1), 10, 0..10),
            ((5, 100), 10, 5..10),
            ((-100, 2), 10, 0..3),
            ((-100, -50), 10, 0..1),
            ((i64::MIN, i64::MAX), 10, 0..10),
            ((9, 9), 10, 9..10),
        ];
        for ((start, end), length, expected) in cases {
            assert_eq!(inside(start, end, length), expected, "{start} {end}");
        }
        let nothing = [
            ((5, 3), 10),
            ((-1, -3), 10),
            ((-50, -100), 10),
            ((10, 20), 10),
            ((i64::MAX, i64::MAX), 10),
            ((0, -1), 0),
            ((0, 0), 0),
        ];
        for ((start, end), length) in nothing {
            assert!(inside(start, end, length).is_empty(), "{start} {end}");
        }
    }

    #[test]
    fn no_string_outgrows_the_limit() {
        assert!(check_length(10, 9, b"x").is_ok());
        assert!(check_length(10, 10, b"x").is_err());
        assert!(check_length(u64::MAX, u64::MAX, b"x").is_err());
    }
}
