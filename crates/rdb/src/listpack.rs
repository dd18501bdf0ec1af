//! Listpacks: the elements of a small collection in one piece.
//!
//! ```text
//! bytes u32 | elements u16 | element... | FF        little endian; FFFF elements: go and count them
//!
//! element   0nnnnnnn                    a number, 0 to 127
//!           10LLLLLL bytes              a string
//!           110nnnnn nnnnnnnn           a number of 13 bits, big endian, as those above it are not
//!           1110LLLL LLLLLLLL bytes     a string
//!           F0 u32 bytes                a string
//!           F1 to F4                    a number of 2, 3, 4 or 8 bytes
//! ```
//!
//! Behind each element stands how long it is, for those who come from the end: seven bits in a byte, the lowest
//! last, all but the first marked by their highest bit.

use cairn_resp::number;

use crate::{Corrupt, Input};

const HEADER: usize = 6;
const END: u8 = 0xff;
const UNCOUNTED: u16 = u16::MAX;
const LONGEST_NUMBER: usize = 20;

/// An element of a small collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    String(&'a [u8]),
    Number(i64),
}

impl Value<'_> {
    /// How long it is as a string, at most.
    pub(crate) fn most_len(self) -> usize {
        match self {
            Value::String(string) => string.len(),
            Value::Number(_) => LONGEST_NUMBER,
        }
    }

    /// Shows the element as a string.
    pub fn with<T>(self, show: impl FnOnce(&[u8]) -> T) -> T {
        match self {
            Value::String(string) => show(string),
            Value::Number(number) => show(number.to_string().as_bytes()),
        }
    }
}

/// Reads the elements of a listpack, and makes sure that it is one.
pub struct Elements<'a> {
    input: Input<'a>,
    /// How many there should be, if that is known.
    left: Option<u16>,
}

impl<'a> Elements<'a> {
    pub fn open(bytes: &'a [u8]) -> Result<Self, Corrupt> {
        let whole = bytes.len();
        let mut input = Input(bytes);
        let stated = u32::from_le_bytes(input.fixed()?);
        let count = u16::from_le_bytes(input.fixed()?);
        let (end, elements) = input.0.split_last().ok_or(Corrupt)?;
        if stated as usize != whole || *end != END {
            return Err(Corrupt);
        }
        Ok(Elements {
            input: Input(elements),
            left: (count != UNCOUNTED).then_some(count),
        })
    }

    pub fn next(&mut self) -> Result<Option<Value<'a>>, Corrupt> {
        if self.input.is_empty() {
            return match self.left {
                None | Some(0) => Ok(None),
                Some(_) => Err(Corrupt),
            };
        }
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(1).ok_or(Corrupt)?;
        }
        let before = self.input.0.len();
        let value = self.value()?;
        let length = before - self.input.0.len();
        let (expected, width) = backward_length(length);
        if self.input.take(width)? != &expected[..width] {
            return Err(Corrupt);
        }
        Ok(Some(value))
    }

    /// The next one, where there must be one.
    pub fn expect(&mut self) -> Result<Value<'a>, Corrupt> {
        self.next()?.ok_or(Corrupt)
    }

    fn value(&mut self) -> Result<Value<'a>, Corrupt> {
        let input = &mut self.input;
        let first = input.byte()?;
        let length = match first {
            0..0x80 => return Ok(Value::Number(i64::from(first))),
            0x80..0xc0 => usize::from(first & 0x3f),
            0xc0..0xe0 => {
                // The sign is the highest of 13 bits.
                let number = u16::from_be_bytes([first << 3, 0]) | u16::from(input.byte()?) << 3;
                return Ok(Value::Number(i64::from(number as i16 >> 3)));
            }
            0xe0..0xf0 => usize::from(first & 0x0f) << 8 | usize::from(input.byte()?),
            0xf0 => u32::from_le_bytes(input.fixed()?) as usize,
            0xf1 => return Ok(Value::Number(i16::from_le_bytes(input.fixed()?).into())),
            0xf2 => {
                let [a, b, c] = input.fixed()?;
                return Ok(Value::Number(i64::from(
                    i32::from_le_bytes([0, a, b, c]) >> 8,
                )));
            }
            0xf3 => return Ok(Value::Number(i32::from_le_bytes(input.fixed()?).into())),
            0xf4 => return Ok(Value::Number(i64::from_le_bytes(input.fixed()?))),
            _ => return Err(Corrupt),
        };
        input.take(length).map(Value::String)
    }
}

/// The length of an element as it stands behind it, and in how many bytes.
fn backward_length(length: usize) -> ([u8; 5], usize) {
    // These limits, one too low but for the first, are part of the format.
    let width = match length {
        0..=127 => 1,
        128..16383 => 2,
        16383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    };
    let mut bytes = [0; 5];
    for (place, byte) in bytes[..width].iter_mut().rev().enumerate() {
        *byte = (length >> (7 * place)) as u8 & 0x7f | 0x80;
    }
    bytes[0] &= 0x7f;
    (bytes, width)
}

/// A listpack under construction.
pub struct Listpack {
    bytes: Vec<u8>,
    count: usize,
}

impl Default for Listpack {
    fn default() -> Self {
        Listpack {
            bytes: vec![0; HEADER],
            count: 0,
        }
    }
}

impl Listpack {
    /// How many bytes it takes.
    pub fn size(&self) -> usize {
        self.bytes.len() + 1
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many elements it has.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Appends an element: as a number, if it is one.
    pub fn push(&mut self, element: &[u8]) {
        match number::parse_i64(element) {
            Some(number) => self.push_number(number),
            None => self.push_string(element),
        }
    }

    fn push_string(&mut self, string: &[u8]) {
        let start = self.bytes.len();
        match string.len() {
            length @ 0..64 => self.bytes.push(0x80 | length as u8),
            length @ 64..4096 => {
                let length = 0xe000 | length as u16;
                self.bytes.extend_from_slice(&length.to_be_bytes());
            }
            length => {
                self.bytes.push(0xf0);
                self.bytes.extend_from_slice(&(length as u32).to_le_bytes());
            }
        }
        self.bytes.extend_from_slice(string);
        self.end_element(start);
    }

    pub fn push_number(&mut self, number: i64) {
        let start = self.bytes.len();
        let bytes = number.to_le_bytes();
        match number {
            0..128 => self.bytes.push(number as u8),
            -4096..4096 => {
                let number = 0xc000 | number as u16 & 0x1fff;
                self.bytes.extend_from_slice(&number.to_be_bytes());
            }
            -0x8000..0x8000 => self.push_bytes(0xf1, &bytes[..2]),
            -0x80_0000..0x80_0000 => self.push_bytes(0xf2, &bytes[..3]),
            -0x8000_0000..0x8000_0000 => self.push_bytes(0xf3, &bytes[..4]),
            _ => self.push_bytes(0xf4, &bytes),
        }
        self.end_element(start);
    }

    fn push_bytes(&mut self, mark: u8, bytes: &[u8]) {
        self.bytes.push(mark);
        self.bytes.extend_from_slice(bytes);
    }

    fn end_element(&mut self, start: usize) {
        let (length, width) = backward_length(self.bytes.len() - start);
        self.bytes.extend_from_slice(&length[..width]);
        self.count += 1;
    }

    /// How many bytes both would take as one.
    pub fn joined_size(&self, other: &Listpack) -> usize {
        self.size() + other.bytes.len() - HEADER
    }

    /// Appends the elements of another.
    pub fn append(&mut self, other: Listpack) {
        self.bytes.extend_from_slice(&other.bytes[HEADER..]);
        self.count += other.count;
    }

    pub fn finish(mut self) -> Vec<u8> {
        self.bytes.push(END);
        let size = self.bytes.len() as u32;
        let count = u16::try_from(self.count).unwrap_or(UNCOUNTED);
        self.bytes[..4].copy_from_slice(&size.to_le_bytes());
        self.bytes[4..HEADER].copy_from_slice(&count.to_le_bytes());
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(bytes: &[u8]) -> Result<Vec<Vec<u8>>, Corrupt> {
        let mut elements = Elements::open(bytes)?;
        let mut all = Vec::new();
        while let Some(value) = elements.next()? {
            all.push(value.with(<[u8]>::to_vec));
        }
        Ok(all)
    }

    #[test]
    fn elements_of_every_width() {
        let mut pushed: Vec<Vec<u8>> = Vec::new();
        for shift in 0..64 {
            for number in [
                1i64 << shift,
                (1 << shift) - 1,
                -(1 << shift),
                -(1 << shift) - 1,
            ] {
                pushed.push(number.to_string().into_bytes());
            }
        }
        for length in [
            0, 1, 62, 63, 64, 125, 126, 127, 4095, 4096, 16380, 16381, 16383,
        ] {
            pushed.push(vec![b'x'; length]);
        }
        pushed.push(vec![b'y'; 2_097_151]);
        let mut listpack = Listpack::default();
        pushed.iter().for_each(|element| listpack.push(element));
        let size = listpack.size();
        let bytes = listpack.finish();
        assert_eq!(bytes.len(), size);
        assert_eq!(elements(&bytes).unwrap(), pushed);
    }

    #[test]
    fn more_elements_than_the_header_counts() {
        let mut listpack = Listpack::default();
        (0..70_000).for_each(|_| listpack.push(b"a"));
        let bytes = listpack.finish();
        assert_eq!(bytes[4..6], [0xff, 0xff]);
        assert_eq!(elements(&bytes).unwrap().len(), 70_000);
    }

    #[test]
    fn one_wrong_byte_of_the_frame_is_found() {
        let mut listpack = Listpack::default();
        for element in [&b"field"[..], b"12", b"-3000", b"99999999999"] {
            listpack.push(element);
        }
        let bytes = listpack.finish();
        // Header, marks, backward lengths and end; the rest may be anything.
        for place in [0, 1, 4, 5, 6, 12, 14, 17, 27, 28] {
            for wrong in 0..=255 {
                let mut changed = bytes.clone();
                changed[place] = wrong;
                let is_same = wrong == bytes[place];
                assert_eq!(elements(&changed).is_ok(), is_same, "{place} {wrong}");
            }
        }
        for length in 0..bytes.len() {
            assert!(elements(&bytes[..length]).is_err());
        }
    }
}
