//! `bit`: operations on 32 bits.

use mlua::{Lua, Table};

use crate::raw::native::{Args, Throw, function, one};

type Unary = fn(u32) -> u32;
type Binary = fn(u32, u32) -> u32;

pub fn library(lua: &Lua) -> mlua::Result<Table> {
    let bit = lua.create_table()?;
    let unary: [(&str, Unary); 3] = [
        ("tobit", |bits| bits),
        ("bnot", |bits| !bits),
        ("bswap", u32::swap_bytes),
    ];
    for (name, f) in unary {
        let native = function(lua, move |lua, args| one(signed(f(bits(args, 1)?)), lua))?;
        bit.raw_set(name, native)?;
    }
    let folding: [(&str, Binary); 3] = [
        ("band", |a, b| a & b),
        ("bor", |a, b| a | b),
        ("bxor", |a, b| a ^ b),
    ];
    for (name, f) in folding {
        let native = function(lua, move |lua, args| {
            let mut result = bits(args, 1)?;
            // From the last on, so that of several bad arguments the same one is named as in Redis.
            for number in (2..=args.len()).rev() {
                result = f(result, bits(args, number)?);
            }
            one(signed(result), lua)
        })?;
        bit.raw_set(name, native)?;
    }
    let shifts: [(&str, Binary); 5] = [
        ("lshift", |bits, by| bits << by),
        ("rshift", |bits, by| bits >> by),
        ("arshift", |bits, by| (bits as i32 >> by) as u32),
        ("rol", u32::rotate_left),
        ("ror", u32::rotate_right),
    ];
    for (name, f) in shifts {
        let native = function(lua, move |lua, args| {
            let by = bits(args, 2);
            one(signed(f(bits(args, 1)?, by? & 31)), lua)
        })?;
        bit.raw_set(name, native)?;
    }
    bit.raw_set("tohex", function(lua, |lua, args| one(to_hex(args)?, lua))?)?;
    Ok(bit)
}

/// The low 32 bits of a number that may have a fraction, which is rounded, halves to even: those of the
/// mantissa once 2^52 + 2^51 is added.
fn bits(args: &Args, number: usize) -> Result<u32, Throw> {
    let value = args.number(number)?;
    Ok((value + 6_755_399_441_055_744.0).to_bits() as u32)
}

fn signed(bits: u32) -> i32 {
    bits as i32
}

/// Eight digits, or as many as asked for; capitals if the number asked for is negative.
fn to_hex(args: &Args) -> Result<String, Throw> {
    let value = bits(args, 1)?;
    let wanted = match args.len() {
        0 | 1 => 8,
        _ => signed(bits(args, 2)?),
    };
    let digits = if wanted < 0 {
        format!("{value:08X}")
    } else {
        format!("{value:08x}")
    };
    let kept = wanted.unsigned_abs().min(8) as usize;
    Ok(digits[8 - kept..].to_string())
}
