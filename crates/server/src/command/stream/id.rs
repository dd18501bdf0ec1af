//! IDs of entries as clients write them.

use cairn_resp::number;
use cairn_store::stream::Id;
use cairn_store::{Error, Result};

use crate::command::quotable;

const INVALID: Error = Error::fixed("ERR Invalid stream ID specified as stream command argument");

/// What follows the time of an ID.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sequence {
    Given(u64),
    Missing,
    /// To be found by whoever adds the entry.
    Any,
}

/// The ID that an entry is to be added with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewId {
    Any,
    AnyOf { ms: u64 },
    Exact(Id),
}

/// The longest ID that Redis reads.
const LONGEST: usize = 127;

fn parts(text: &[u8]) -> Result<(u64, Sequence)> {
    if text.len() > LONGEST {
        return Err(INVALID);
    }
    // To Redis a zero byte ends it.
    let text = quotable(text, LONGEST);
    let (ms, sequence) = match text.iter().position(|byte| *byte == b'-') {
        None => (text, Sequence::Missing),
        Some(at) => {
            let sequence = match &text[at + 1..] {
                b"*" => Sequence::Any,
                sequence => Sequence::Given(number::parse_u64(sequence).ok_or(INVALID)?),
            };
            (&text[..at], sequence)
        }
    };
    Ok((number::parse_u64(ms).ok_or(INVALID)?, sequence))
}

/// An ID, of which the second part may be missing.
pub fn parse(text: &[u8], missing: u64) -> Result<Id> {
    let (ms, sequence) = parts(text)?;
    match sequence {
        Sequence::Given(seq) => Ok(Id::new(ms, seq)),
        Sequence::Missing => Ok(Id::new(ms, missing)),
        Sequence::Any => Err(INVALID),
    }
}

/// An ID that counts from its beginning.
pub fn exact(text: &[u8]) -> Result<Id> {
    parse(text, 0)
}

/// An ID, or the first or last that there can be.
pub fn any(text: &[u8]) -> Result<Id> {
    match text {
        b"-" => Ok(Id::MIN),
        b"+" => Ok(Id::MAX),
        text => exact(text),
    }
}

pub fn all_exact(texts: &[&[u8]]) -> Result<Vec<Id>> {
    texts.iter().map(|text| exact(text)).collect()
}

/// What XADD is given.
pub fn new(text: &[u8]) -> Result<NewId> {
    if text == b"*" {
        return Ok(NewId::Any);
    }
    let (ms, sequence) = parts(text)?;
    Ok(match sequence {
        Sequence::Given(seq) => NewId::Exact(Id::new(ms, seq)),
        Sequence::Missing => NewId::Exact(Id::new(ms, 0)),
        Sequence::Any => NewId::AnyOf { ms },
    })
}

/// Where an interval begins.
pub fn start(text: &[u8]) -> Result<Id> {
    let (id, is_exclusive) = bound(text, 0)?;
    match is_exclusive {
        false => Ok(id),
        true => id
            .next()
            .ok_or(Error::fixed("ERR invalid start ID for the interval")),
    }
}

/// Where an interval ends.
pub fn end(text: &[u8]) -> Result<Id> {
    let (id, is_exclusive) = bound(text, u64::MAX)?;
    match is_exclusive {
        false => Ok(id),
        true => id
            .previous()
            .ok_or(Error::fixed("ERR invalid end ID for the interval")),
    }
}

fn bound(text: &[u8], missing: u64) -> Result<(Id, bool)> {
    match text {
        b"-" | b"+" => Ok((any(text)?, false)),
        [b'(', rest @ ..] if !rest.is_empty() => Ok((parse(rest, missing)?, true)),
        text => Ok((parse(text, missing)?, false)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn ids_are_read_as_redis_reads_them() {
        assert_eq!(exact(b"5-3").unwrap(), Id::new(5, 3));
        assert_eq!(exact(b"5").unwrap(), Id::new(5, 0));
        assert_eq!(parse(b"5", 9).unwrap(), Id::new(5, 9));
        assert_eq!(exact(b"18446744073709551615-1").unwrap().ms, u64::MAX);
        for wrong in ["", "-", "+", "a", "5-", "-5", "5-a", "5-*", "5-3-1", "(5"] {
            assert!(exact(wrong.as_bytes()).is_err(), "{wrong}");
        }
        assert!(exact(&[b'1'; 200]).is_err());
    }

    #[test]
    fn bounds_may_be_open() {
        assert_eq!(start(b"-").unwrap(), Id::MIN);
        assert_eq!(end(b"+").unwrap(), Id::MAX);
        assert_eq!(start(b"(5-3").unwrap(), Id::new(5, 4));
        assert_eq!(end(b"(5-3").unwrap(), Id::new(5, 2));
        assert_eq!(end(b"5").unwrap(), Id::new(5, u64::MAX));
        assert!(end(b"(0-0").is_err());
        assert!(start(b"(18446744073709551615-18446744073709551615").is_err());
        assert!(start(b"(").is_err());
    }

    #[test]
    fn a_new_id_may_be_left_to_the_server() {
        assert_eq!(new(b"*").unwrap(), NewId::Any);
        assert_eq!(new(b"7-*").unwrap(), NewId::AnyOf { ms: 7 });
        assert_eq!(new(b"7-1").unwrap(), NewId::Exact(Id::new(7, 1)));
        assert!(new(b"*-1").is_err());
    }
}
