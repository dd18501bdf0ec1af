//! Strings and lengths, the parts of everything else.
//!
//! ```text
//! 00LLLLLL                a length in one byte
//! 01LLLLLL LLLLLLLL       in two
//! 10000000 u32            in five, big endian
//! 10000001 u64            in nine
//! 110000NN                no length: a number of one, two or four bytes, little endian (NN of 0 to 2),
//!                         or LZF (3): the length of what follows, the length of the string, what follows
//! ```

use cairn_resp::number;

use crate::lzf;

pub const LENGTH_32: u8 = 0x80;
pub const LENGTH_64: u8 = 0x81;
pub const INT_8: u8 = 0xc0;
pub const INT_16: u8 = 0xc1;
pub const INT_32: u8 = 0xc2;
pub const COMPRESSED: u8 = 0xc3;

/// The most characters that a number of four bytes has.
const LONGEST_NUMBER: usize = 11;
/// Up to this length nothing is compressed.
const SHORT: usize = 20;
/// What compression must save to be worth it.
const SAVED: usize = 4;

pub fn append_length(length: u64, out: &mut Vec<u8>) {
    match length {
        0..0x40 => out.push(length as u8),
        0x40..0x4000 => out.extend_from_slice(&(length as u16 | 0x4000).to_be_bytes()),
        _ => match u32::try_from(length) {
            Ok(length) => {
                out.push(LENGTH_32);
                out.extend_from_slice(&length.to_be_bytes());
            }
            Err(_) => {
                out.push(LENGTH_64);
                out.extend_from_slice(&length.to_be_bytes());
            }
        },
    }
}

/// Appends a string in its shortest form.
pub fn append(value: &[u8], out: &mut Vec<u8>) {
    if let Some(number) = small_number(value) {
        return append_number(number, out);
    }
    if value.len() > SHORT {
        let start = out.len();
        out.push(COMPRESSED);
        if append_compressed(value, out) {
            return;
        }
        out.truncate(start);
    }
    append_plain(value, out);
}

/// Appends a string as it is.
pub fn append_plain(value: &[u8], out: &mut Vec<u8>) {
    append_length(value.len() as u64, out);
    out.extend_from_slice(value);
}

/// False, and something to be cut off again, if it is not worth it.
fn append_compressed(value: &[u8], out: &mut Vec<u8>) -> bool {
    let lengths = out.len();
    if !lzf::compress(value, value.len() - SAVED, out) {
        return false;
    }
    let compressed = out.len() - lengths;
    let mut both = Vec::new();
    append_length(compressed as u64, &mut both);
    append_length(value.len() as u64, &mut both);
    out.splice(lengths..lengths, both);
    true
}

fn small_number(value: &[u8]) -> Option<i32> {
    if value.len() > LONGEST_NUMBER {
        return None;
    }
    number::parse_i64(value).and_then(|number| i32::try_from(number).ok())
}

fn append_number(number: i32, out: &mut Vec<u8>) {
    if let Ok(number) = i8::try_from(number) {
        out.push(INT_8);
        out.extend_from_slice(&number.to_le_bytes());
    } else if let Ok(number) = i16::try_from(number) {
        out.push(INT_16);
        out.extend_from_slice(&number.to_le_bytes());
    } else {
        out.push(INT_32);
        out.extend_from_slice(&number.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Input;

    fn round(value: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        append(value, &mut out);
        let mut input = Input(&out);
        assert_eq!(&*input.string().unwrap(), value);
        assert!(input.is_empty());
        out
    }

    #[test]
    fn each_length_has_its_form() {
        for (length, bytes) in [
            (63, 1),
            (64, 2),
            (16383, 2),
            (16384, 5),
            (u64::from(u32::MAX), 5),
            (1 << 32, 9),
        ] {
            let mut out = Vec::new();
            append_length(length, &mut out);
            assert_eq!(out.len(), bytes);
            assert_eq!(Input(&out).length(), Ok(length));
        }
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(round(b"-128"), [INT_8, 0x80]);
        assert_eq!(round(b"128"), [INT_16, 0x80, 0]);
        assert_eq!(round(b"-32769"), [INT_32, 0xff, 0x7f, 0xff, 0xff]);
        assert_eq!(round(b"-2147483648").len(), 5);
        // Nobody would know of the zero again.
        assert_eq!(round(b"01"), b"\x0201");
        assert_eq!(round(b"2147483648"), b"\x0a2147483648");
    }

    #[test]
    fn what_repeats_is_compressed() {
        assert!(round(&[b'a'; 20]).len() > 20);
        assert_eq!(round(&[b'a'; 21])[0], COMPRESSED);
        assert!(round(&[b'a'; 100_000]).len() < 1200);
        assert!(round(b"abcdefghijklmnopqrstuvwxyz").len() > 26);
    }

    #[test]
    fn lengths_are_not_believed() {
        for bytes in [
            &b"\x81\xff\xff\xff\xff\xff\xff\xff\xffa"[..],
            b"\x80\xff\xff\xff\xffa",
            b"\xc3\x02\x81\xff\xff\xff\xff\xff\xff\xff\xff\x00a",
            b"\xc3\x81\xff\xff\xff\xff\xff\xff\xff\xff\x02\x00a",
            b"\xc4",
            b"\x82",
            b"\xc2\0\0\0",
            b"",
        ] {
            assert!(Input(bytes).string().is_err(), "{bytes:?}");
        }
    }
}
