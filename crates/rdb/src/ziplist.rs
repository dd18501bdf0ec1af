//! Ziplists, which were before listpacks.
//!
//! ```text
//! bytes u32 | place of the last element u32 | elements u16 | element... | FF      little endian
//!
//! element   length of the one before: u8, or FE and u32
//!           00LLLLLL bytes               a string
//!           01LLLLLL LLLLLLLL bytes      a string
//!           80 u32 bytes                 a string, its length big endian
//!           C0 D0 E0 F0 FE               a number of 2, 4, 8, 3 or 1 byte
//!           F1 to FD                     a number, 0 to 12
//! ```

use crate::listpack::Value;
use crate::{Corrupt, Input};

const HEADER: usize = 10;
const END: u8 = 0xff;
const UNCOUNTED: u16 = u16::MAX;
const LONG: u8 = 0xfe;

/// Reads the elements of a ziplist, and makes sure that it is one.
pub struct Elements<'a> {
    input: Input<'a>,
    whole: usize,
    last: u32,
    left: Option<u16>,
    /// Where the latest began, and how long it is.
    latest: (usize, usize),
}

impl<'a> Elements<'a> {
    pub fn open(bytes: &'a [u8]) -> Result<Self, Corrupt> {
        let whole = bytes.len();
        let mut input = Input(bytes);
        let stated = u32::from_le_bytes(input.fixed()?);
        let last = u32::from_le_bytes(input.fixed()?);
        let count = u16::from_le_bytes(input.fixed()?);
        let (end, elements) = input.0.split_last().ok_or(Corrupt)?;
        if stated as usize != whole || *end != END {
            return Err(Corrupt);
        }
        Ok(Elements {
            input: Input(elements),
            whole,
            last,
            left: (count != UNCOUNTED).then_some(count),
            latest: (HEADER, 0),
        })
    }

    pub fn next(&mut self) -> Result<Option<Value<'a>>, Corrupt> {
        let start = self.whole - 1 - self.input.0.len();
        if self.input.is_empty() {
            let is_complete = matches!(self.left, None | Some(0));
            return match is_complete && self.latest.0 == self.last as usize {
                true => Ok(None),
                false => Err(Corrupt),
            };
        }
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(1).ok_or(Corrupt)?;
        }
        let before = match self.input.byte()? {
            END => return Err(Corrupt),
            LONG => u32::from_le_bytes(self.input.fixed()?) as usize,
            short => usize::from(short),
        };
        if before != self.latest.1 {
            return Err(Corrupt);
        }
        let value = self.value()?;
        let end = self.whole - 1 - self.input.0.len();
        self.latest = (start, end - start);
        Ok(Some(value))
    }

    fn value(&mut self) -> Result<Value<'a>, Corrupt> {
        let input = &mut self.input;
        let first = input.byte()?;
        let length = match first {
            0..0x40 => usize::from(first),
            0x40..0x80 => usize::from(first & 0x3f) << 8 | usize::from(input.byte()?),
            0x80 => u32::from_be_bytes(input.fixed()?) as usize,
            0xc0 => return Ok(Value::Number(i16::from_le_bytes(input.fixed()?).into())),
            0xd0 => return Ok(Value::Number(i32::from_le_bytes(input.fixed()?).into())),
            0xe0 => return Ok(Value::Number(i64::from_le_bytes(input.fixed()?))),
            0xf0 => {
                let [a, b, c] = input.fixed()?;
                return Ok(Value::Number(i64::from(
                    i32::from_le_bytes([0, a, b, c]) >> 8,
                )));
            }
            0xf1..=0xfd => return Ok(Value::Number(i64::from(first & 0x0f) - 1)),
            0xfe => return Ok(Value::Number(i64::from(input.byte()? as i8))),
            _ => return Err(Corrupt),
        };
        input.take(length).map(Value::String)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `RPUSH l a 1 -1000 70000` made of a list in Redis 3.
    const FOUR: &[u8] =
        b"\x1c\0\0\0\x16\0\0\0\x04\0\0\x01a\x03\xf2\x02\xc0\x18\xfc\x04\xf0\x70\x11\x01\xff";

    fn elements(bytes: &[u8]) -> Result<Vec<Vec<u8>>, Corrupt> {
        let mut elements = Elements::open(bytes)?;
        let mut all = Vec::new();
        while let Some(value) = elements.next()? {
            all.push(value.with(<[u8]>::to_vec));
        }
        Ok(all)
    }

    fn four() -> Vec<u8> {
        let mut bytes = FOUR.to_vec();
        bytes[0] = bytes.len() as u8;
        bytes[4] = (bytes.len() - 6) as u8;
        bytes
    }

    #[test]
    fn elements_of_several_widths() {
        let expected: [&[u8]; 4] = [b"a", b"1", b"-1000", b"70000"];
        assert_eq!(elements(&four()).unwrap(), expected);
        assert!(
            elements(b"\x0b\0\0\0\x0a\0\0\0\0\0\xff")
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn a_wrong_frame_is_refused() {
        let bytes = four();
        for place in [0, 1, 4, 8, 10, 13, 15, 19, bytes.len() - 1] {
            let mut changed = bytes.clone();
            changed[place] ^= 1;
            assert!(elements(&changed).is_err(), "{place}");
        }
        for length in 0..bytes.len() {
            assert!(elements(&bytes[..length]).is_err());
        }
    }
}
