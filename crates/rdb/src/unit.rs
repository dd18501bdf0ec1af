//! How long the next thing is, of which perhaps not all has come yet.

use crate::{Corrupt, string};

/// No string is longer than Redis' longest, twice: it stands in memory as a whole.
const LONGEST: u64 = 1 << 30;

/// What a file is made of, between the points at which its reader stops to wait for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// So many bytes.
    Bytes(usize),
    Length,
    String,
    /// A score as text, its length in front.
    Score,
}

/// How many bytes these take, one after the other; none if they are not all there.
pub fn measure(bytes: &[u8], units: &[Unit]) -> Result<Option<usize>, Corrupt> {
    let mut at = 0;
    for unit in units {
        let Some(rest) = bytes.get(at..) else {
            return Ok(None);
        };
        let length = match unit {
            Unit::Bytes(length) => Some(*length),
            Unit::Length => length(rest)?.map(|(length, _)| length),
            Unit::String => string_length(rest)?,
            Unit::Score => rest.first().map(|length| match length {
                253.. => 1,
                length => 1 + usize::from(*length),
            }),
        };
        let Some(length) = length else {
            return Ok(None);
        };
        at += length;
    }
    Ok((at <= bytes.len()).then_some(at))
}

/// How many bytes a length takes, and what it says.
fn length(bytes: &[u8]) -> Result<Option<(usize, u64)>, Corrupt> {
    let Some((first, rest)) = bytes.split_first() else {
        return Ok(None);
    };
    Ok(match *first {
        0..0x40 => Some((1, u64::from(*first))),
        0x40..0x80 => rest
            .first()
            .map(|low| (2, u64::from(first & 0x3f) << 8 | u64::from(*low))),
        string::LENGTH_32 => rest
            .first_chunk()
            .map(|length| (5, u64::from(u32::from_be_bytes(*length)))),
        string::LENGTH_64 => rest
            .first_chunk()
            .map(|length| (9, u64::from_be_bytes(*length))),
        _ => return Err(Corrupt),
    })
}

fn string_length(bytes: &[u8]) -> Result<Option<usize>, Corrupt> {
    let head = match bytes.first() {
        None => return Ok(None),
        Some(&string::INT_8) => return Ok(Some(2)),
        Some(&string::INT_16) => return Ok(Some(3)),
        Some(&string::INT_32) => return Ok(Some(5)),
        Some(&string::COMPRESSED) => {
            let Some((compressed_len, compressed)) = length(&bytes[1..])? else {
                return Ok(None);
            };
            let Some((whole_len, _)) = length(&bytes[1 + compressed_len..])? else {
                return Ok(None);
            };
            Some((1 + compressed_len + whole_len, compressed))
        }
        Some(_) => length(bytes)?,
    };
    match head {
        Some((_, 0..=LONGEST)) | None => Ok(head.map(|(head, length)| head + length as usize)),
        Some(_) => Err(Corrupt),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Input;

    /// Of each beginning of a string it is known that more has to come, and of the whole how long it is.
    #[test]
    fn a_string_is_as_long_as_its_reader_finds() {
        let long = vec![b'x'; 300];
        let noise: Vec<u8> = (0..20_000u32).map(|n| (n * n % 251) as u8).collect();
        for value in [&b"7"[..], b"-300", b"70000", b"", b"word", &long, &noise] {
            let mut bytes = Vec::new();
            string::append(value, &mut bytes);
            for cut in 0..bytes.len() {
                assert_eq!(measure(&bytes[..cut], &[Unit::String]), Ok(None));
            }
            assert_eq!(measure(&bytes, &[Unit::String]), Ok(Some(bytes.len())));
            bytes.extend_from_slice(b"more");
            let mut input = Input(&bytes);
            assert_eq!(&*input.string().unwrap(), value);
            let length = bytes.len() - input.0.len();
            assert_eq!(measure(&bytes, &[Unit::String]), Ok(Some(length)));
        }
    }

    #[test]
    fn what_no_string_can_be_is_not_waited_for() {
        assert_eq!(measure(b"\xc4", &[Unit::String]), Err(Corrupt));
        let endless = b"\x81\xff\xff\xff\xff\xff\xff\xff\xff";
        assert_eq!(measure(endless, &[Unit::String]), Err(Corrupt));
        assert_eq!(measure(endless, &[Unit::Length]), Ok(Some(9)));
    }

    #[test]
    fn several_units_are_there_when_the_last_is() {
        let units = [Unit::String, Unit::Bytes(2), Unit::Score, Unit::Length];
        let bytes = b"\x01a..\x031.5\x05";
        for cut in 0..bytes.len() {
            assert_eq!(measure(&bytes[..cut], &units), Ok(None), "{cut}");
        }
        assert_eq!(measure(bytes, &units), Ok(Some(bytes.len())));
    }
}
