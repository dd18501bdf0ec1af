//! `struct`: numbers and strings to and from the bytes of C structures.
//!
//! ```text
//! > <      big, little endian         b B      one byte, signed and unsigned
//! ! !n     alignment, n or 8          h H      two, l L T: eight
//! x        a byte of padding          i I in   four, or n
//! s        a string and a NUL         f d      floats of four and eight
//! cn c0    n bytes; the whole string, or as many as the number read before
//! ```

use std::rc::Rc;

use mlua::{IntoLua, Lua, MultiValue, Table, Value};

use super::{Buffer, MOST_RESULTS};
use crate::convert::c_string;
use crate::raw::native::{Args, Throw, function, one, to_integer};
use crate::run::Run;

const MOST_INTEGER_BYTES: i32 = 32;
const DEFAULT_ALIGNMENT: i32 = 8;

pub fn library(lua: &Lua, run: &Rc<Run>) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    let run = run.clone();
    let pack = function(lua, move |lua, args| {
        let format = args.string(1)?;
        // The nil is what Redis finds, and reports, where the first value is missing.
        let packed = pack(&format.as_bytes(), &args.followed_by_nil(), &run)?;
        one(lua.create_string(packed)?, lua)
    })?;
    library.raw_set("pack", pack)?;
    library.raw_set("unpack", function(lua, unpack)?)?;
    library.raw_set("size", function(lua, |lua, args| one(size(args)?, lua))?)?;
    Ok(library)
}

/// Goes through a format, keeping what its options have set.
struct Format<'a> {
    rest: &'a [u8],
    little_endian: bool,
    alignment: usize,
}

impl<'a> Format<'a> {
    fn new(text: &'a [u8]) -> Format<'a> {
        Format {
            rest: c_string(text),
            little_endian: true,
            alignment: 1,
        }
    }

    /// The next option and the bytes that its value takes; 0 where that is not fixed, or there is none.
    fn next(&mut self) -> Result<Option<(u8, usize)>, Throw> {
        let Some((&option, rest)) = self.rest.split_first() else {
            return Ok(None);
        };
        self.rest = rest;
        let size = match option {
            b'B' | b'b' | b'x' => 1,
            b'H' | b'h' => 2,
            b'L' | b'l' | b'T' | b'd' => 8,
            b'f' => 4,
            b'c' => self.number(1)? as usize,
            b'i' | b'I' => match self.number(4)? {
                size if size > MOST_INTEGER_BYTES => {
                    return Err(Throw::message(format!(
                        "integral size {size} is larger than limit of {MOST_INTEGER_BYTES}"
                    )));
                }
                size => size as usize,
            },
            _ => 0,
        };
        Ok(Some((option, size)))
    }

    fn number(&mut self, default: i32) -> Result<i32, Throw> {
        let len = self
            .rest
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        if len == 0 {
            return Ok(default);
        }
        let (digits, rest) = self.rest.split_at(len);
        self.rest = rest;
        std::str::from_utf8(digits)
            .ok()
            .and_then(|digits| digits.parse().ok())
            .ok_or_else(|| Throw::message("integral size overflow"))
    }

    /// How many bytes to leave out before a value of `size` bytes at `place`. A size that is no power of two
    /// aligns to what its bits say, as it does in C.
    fn padding(&self, place: usize, option: u8, size: usize) -> usize {
        if size == 0 || option == b'c' {
            return 0;
        }
        let size = size.min(self.alignment);
        size.wrapping_sub(place & (size - 1)) & (size - 1)
    }

    /// An option that is not a value.
    fn control(&mut self, option: u8) -> Result<(), Throw> {
        match option {
            b' ' => {}
            b'>' => self.little_endian = false,
            b'<' => self.little_endian = true,
            b'!' => {
                let alignment = self.number(DEFAULT_ALIGNMENT)?;
                if alignment <= 0 || !(alignment as u32).is_power_of_two() {
                    return Err(Throw::message(format!(
                        "alignment {alignment} is not a power of 2"
                    )));
                }
                self.alignment = alignment as usize;
            }
            option => {
                let text = [b"invalid format option '", &[option][..], b"'"].concat();
                return Err(Throw::Argument(1, text));
            }
        }
        Ok(())
    }

    /// Puts bytes in order, to the format's or from it: they are little endian on one side.
    fn order(&self, bytes: &mut [u8]) {
        if !self.little_endian {
            bytes.reverse();
        }
    }
}

fn pack(format: &[u8], args: &Args, run: &Run) -> Result<Vec<u8>, Throw> {
    let mut format = Format::new(format);
    let mut out = Buffer::new(run);
    let mut next_arg = 2;
    while let Some((option, size)) = format.next()? {
        let padding = format.padding(out.bytes.len(), option, size);
        out.bytes.resize(out.bytes.len() + padding, 0);
        let mut take = || {
            next_arg += 1;
            next_arg - 1
        };
        match option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let value = integer(args.number(take())?);
                let mut bytes = value.to_le_bytes().to_vec();
                bytes.resize(size, 0);
                format.order(&mut bytes);
                out.bytes.extend_from_slice(&bytes);
            }
            b'x' => out.bytes.push(0),
            b'f' => {
                let mut bytes = (args.number(take())? as f32).to_le_bytes();
                format.order(&mut bytes);
                out.bytes.extend_from_slice(&bytes);
            }
            b'd' => {
                let mut bytes = args.number(take())?.to_le_bytes();
                format.order(&mut bytes);
                out.bytes.extend_from_slice(&bytes);
            }
            b'c' | b's' => {
                let string = args.string(take())?;
                let string = string.as_bytes();
                let size = if size == 0 { string.len() } else { size };
                let Some(kept) = string.get(..size) else {
                    return Err(args.wrong(next_arg, "string too short"));
                };
                out.bytes.extend_from_slice(kept);
                if option == b's' {
                    out.bytes.push(0);
                }
            }
            option => format.control(option)?,
        }
        out.check()?;
    }
    Ok(out.bytes)
}

/// A C cast to a 64-bit integer, signed if the number is negative and unsigned otherwise.
fn integer(value: f64) -> u64 {
    const HALF: f64 = 9_223_372_036_854_775_808.0;
    if value >= HALF {
        to_integer(value - HALF) as u64 ^ (1 << 63)
    } else {
        to_integer(value) as u64
    }
}

fn unpack(lua: &Lua, args: &Args) -> Result<MultiValue, Throw> {
    let format = args.string(1)?;
    let text = format.as_bytes();
    let mut format = Format::new(&text);
    let data = args.string(2)?;
    let data = data.as_bytes();
    let start = args.integer_or(3, 1)?;
    // Unsigned in C: a negative offset is a large one.
    if start == 0 {
        return Err(args.wrong(3, "offset must be 1 or greater"));
    }
    let mut place = (start as usize).wrapping_sub(1);
    let too_short = || args.wrong(2, "data string too short");
    let mut results: Vec<Value> = Vec::new();
    while let Some((option, size)) = format.next()? {
        place = place.wrapping_add(format.padding(place, option, size));
        let field = |size: usize| {
            let end = place.checked_add(size).ok_or_else(too_short)?;
            data.get(place..end).ok_or_else(too_short)
        };
        let bytes = field(size)?;
        if results.len() >= MOST_RESULTS {
            return Err(Throw::message("stack overflow (too many results)"));
        }
        let mut taken = size;
        match option {
            b'b' | b'h' | b'l' | b'i' => results.push(signed(&format, bytes).into_lua(lua)?),
            b'B' | b'H' | b'L' | b'T' | b'I' => {
                results.push((unsigned(&format, bytes) as f64).into_lua(lua)?);
            }
            b'x' => {}
            b'f' => {
                let mut bytes: [u8; 4] = bytes.try_into().map_err(|_| too_short())?;
                format.order(&mut bytes);
                results.push(f64::from(f32::from_le_bytes(bytes)).into_lua(lua)?);
            }
            b'd' => {
                let mut bytes: [u8; 8] = bytes.try_into().map_err(|_| too_short())?;
                format.order(&mut bytes);
                results.push(f64::from_le_bytes(bytes).into_lua(lua)?);
            }
            b'c' if size == 0 => {
                let size = match results.pop() {
                    Some(Value::Integer(size)) => size as f64,
                    Some(Value::Number(size)) => size,
                    last => last
                        .and_then(|last| lua.coerce_number(last).ok().flatten())
                        .ok_or_else(|| Throw::message("format 'c0' needs a previous size"))?,
                };
                taken = integer(size) as usize;
                results.push(lua.create_string(field(taken)?)?.into_lua(lua)?);
            }
            b'c' => results.push(lua.create_string(bytes)?.into_lua(lua)?),
            b's' => {
                let rest = &data[place..];
                let Some(len) = rest.iter().position(|&byte| byte == 0) else {
                    return Err(Throw::message("unfinished string in data"));
                };
                results.push(lua.create_string(&rest[..len])?.into_lua(lua)?);
                taken = len + 1;
            }
            option => format.control(option)?,
        }
        place += taken;
    }
    results.push((place as i64 + 1).into_lua(lua)?);
    Ok(results.into_iter().collect())
}

/// What of the bytes fits 64 bits.
fn unsigned(format: &Format<'_>, bytes: &[u8]) -> u64 {
    let shift = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
    if format.little_endian {
        bytes.iter().rev().fold(0, shift)
    } else {
        bytes.iter().fold(0, shift)
    }
}

fn signed(format: &Format<'_>, bytes: &[u8]) -> f64 {
    let value = unsigned(format, bytes);
    // Of a number of more than eight bytes, the sign is where C's shift by its width, which wraps around,
    // finds it.
    let mask = u64::MAX.wrapping_shl((bytes.len() as u32).wrapping_mul(8).wrapping_sub(1));
    let extended = if value & mask != 0 {
        value | mask
    } else {
        value
    };
    extended as i64 as f64
}

fn size(args: &Args) -> Result<i64, Throw> {
    let format = args.string(1)?;
    let text = format.as_bytes();
    let mut format = Format::new(&text);
    let mut total = 0usize;
    while let Some((option, size)) = format.next()? {
        total = total.wrapping_add(format.padding(total, option, size));
        match option {
            b's' => return Err(args.wrong(1, "option 's' has no fixed size")),
            b'c' if size == 0 => return Err(args.wrong(1, "option 'c0' has no fixed size")),
            option if option.is_ascii_alphanumeric() => {}
            option => format.control(option)?,
        }
        total = total.wrapping_add(size);
    }
    Ok(total as i64)
}
