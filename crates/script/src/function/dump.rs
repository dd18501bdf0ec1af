//! The bytes of FUNCTION DUMP, which FUNCTION RESTORE reads, Redis' or ours.
//!
//! ```text
//! F5 | code   for each library    (F6 | name | engine | 0 or 1 description | code: before 7.0.0)
//! 0A 00       the version of the format
//! CRC-64      of all before, little endian
//! ```
//!
//! Strings are those of Redis' snapshots: a length in one, two, five or nine bytes, and the bytes; or, marked
//! in the length, a number, or LZF.

use super::crc64::crc64;
use super::libraries::Libraries;
use super::lzf;

const LIBRARY: u8 = 0xf5;
const LIBRARY_BEFORE_7: u8 = 0xf6;
const VERSION: u16 = 10;
const FOOTER: usize = 10;

pub fn dump(libraries: &Libraries) -> Vec<u8> {
    let mut out = Vec::new();
    for library in libraries.iter() {
        out.push(LIBRARY);
        write_string(&library.code, &mut out);
    }
    out.extend_from_slice(&VERSION.to_le_bytes());
    let checksum = crc64(&out);
    out.extend_from_slice(&checksum.to_le_bytes());
    out
}

fn write_string(text: &[u8], out: &mut Vec<u8>) {
    match text.len() {
        len @ 0..0x40 => out.push(len as u8),
        len @ 0x40..0x4000 => out.extend_from_slice(&(len as u16 | 0x4000).to_be_bytes()),
        len => match u32::try_from(len) {
            Ok(len) => {
                out.push(0x80);
                out.extend_from_slice(&len.to_be_bytes());
            }
            Err(_) => {
                out.push(0x81);
                out.extend_from_slice(&(len as u64).to_be_bytes());
            }
        },
    }
    out.extend_from_slice(text);
}

/// The codes of the libraries in a payload. Errors are the text after `ERR `.
pub fn codes(payload: &[u8]) -> Result<Vec<Vec<u8>>, &'static str> {
    let mut input = Input(verified(payload).ok_or("DUMP payload version or checksum are wrong")?);
    let mut codes = Vec::new();
    while let Some((&kind, rest)) = input.0.split_first() {
        input.0 = rest;
        codes.push(match kind {
            LIBRARY => input.string().ok_or("Failed loading library payload")?,
            LIBRARY_BEFORE_7 => input.old_library()?,
            _ => return Err("given type is not a function"),
        });
    }
    Ok(codes)
}

/// What the payload holds, if its footer is right.
fn verified(payload: &[u8]) -> Option<&[u8]> {
    let (content, footer) = payload.split_at(payload.len().checked_sub(FOOTER)?);
    let (version, checksum) = footer.split_first_chunk::<2>()?;
    let right = u16::from_le_bytes(*version) <= VERSION
        && crc64(&payload[..content.len() + 2]).to_le_bytes() == checksum;
    right.then_some(content)
}

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn take(&mut self, len: usize) -> Option<&[u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn fixed<const LEN: usize>(&mut self) -> Option<[u8; LEN]> {
        self.take(LEN)?.try_into().ok()
    }

    fn length(&mut self) -> Option<usize> {
        let [first] = self.fixed()?;
        match first >> 6 {
            0 => Some(usize::from(first)),
            1 => {
                let [second] = self.fixed()?;
                Some(usize::from(first & 0x3f) << 8 | usize::from(second))
            }
            2 if first == 0x80 => Some(u32::from_be_bytes(self.fixed()?) as usize),
            2 if first == 0x81 => usize::try_from(u64::from_be_bytes(self.fixed()?)).ok(),
            _ => None,
        }
    }

    fn string(&mut self) -> Option<Vec<u8>> {
        let first = *self.0.first()?;
        if first >> 6 < 3 {
            let len = self.length()?;
            return self.take(len).map(<[u8]>::to_vec);
        }
        self.0 = &self.0[1..];
        let number = match first {
            0xc0 => i32::from(i8::from_le_bytes(self.fixed()?)),
            0xc1 => i32::from(i16::from_le_bytes(self.fixed()?)),
            0xc2 => i32::from_le_bytes(self.fixed()?),
            0xc3 => {
                let compressed = self.length()?;
                let len = self.length()?;
                return lzf::decompress(self.take(compressed)?, len);
            }
            _ => return None,
        };
        Some(number.to_string().into_bytes())
    }

    /// A library of a release candidate, which kept name and engine beside the code.
    fn old_library(&mut self) -> Result<Vec<u8>, &'static str> {
        let name = self.string().ok_or("Failed loading library name")?;
        let engine = self.string().ok_or("Failed loading engine name")?;
        let described = self
            .length()
            .ok_or("Failed loading library description indicator")?;
        if described != 0 {
            self.string().ok_or("Failed loading library description")?;
        }
        let code = self.string().ok_or("Failed loading library blob")?;
        Ok([b"#!", &engine[..], b" name=", &name, b"\n", &code].concat())
    }
}
