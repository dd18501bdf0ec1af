//! `cmsgpack`: MessagePack.
//!
//! Written are nil, booleans, integers and floats in the fewest bytes that hold them, strings, arrays
//! (tables with the keys 1 to n and no others) and maps. Read are those, and nothing newer.

use std::rc::Rc;

use mlua::{IntoLua, Lua, MultiValue, Table, Value};

use super::{Buffer, MOST_RESULTS};
use crate::raw::native::{Args, Throw, function, one, to_integer};
use crate::run::Run;

/// Tables in tables beyond this become nil: a table may hold itself.
const MOST_LEVELS_PACKED: usize = 16;
/// Redis ends where its stack does, some thousands deep.
const MOST_LEVELS_UNPACKED: usize = 1000;

pub fn library(lua: &Lua, run: &Rc<Run>) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    let run = run.clone();
    let pack = function(lua, move |lua, args| {
        one(lua.create_string(pack(args, &run)?)?, lua)
    })?;
    library.raw_set("pack", pack)?;
    let all = function(lua, |lua, args| unpack(lua, args, None))?;
    library.raw_set("unpack", all)?;
    let one_only = function(lua, |lua, args| {
        let offset = args.integer_or(2, 0)?;
        unpack(lua, args, Some((1, offset)))
    })?;
    library.raw_set("unpack_one", one_only)?;
    let limited = function(lua, |lua, args| {
        let limit = args.integer(2)?;
        let offset = args.integer_or(3, 0)?;
        unpack(lua, args, Some((limit, offset)))
    })?;
    library.raw_set("unpack_limit", limited)?;
    library.raw_set("_NAME", "cmsgpack")?;
    library.raw_set("_VERSION", "lua-cmsgpack 0.4.0")?;
    library.raw_set("_COPYRIGHT", "Copyright (C) 2012, Salvatore Sanfilippo")?;
    library.raw_set("_DESCRIPTION", "MessagePack C implementation for Lua")?;
    Ok(library)
}

fn pack(args: &Args, run: &Run) -> Result<Vec<u8>, Throw> {
    if args.len() == 0 {
        return Err(args.wrong(0, "MessagePack pack needs input."));
    }
    let mut out = Buffer::new(run);
    for value in args.values() {
        out.value(value, 0)?;
    }
    Ok(out.bytes)
}

impl Buffer<'_> {
    fn value(&mut self, value: &Value, level: usize) -> Result<(), Throw> {
        self.check()?;
        match value {
            Value::String(string) => self.string(&string.as_bytes()),
            Value::Boolean(is) => self.bytes.push(if *is { 0xc3 } else { 0xc2 }),
            Value::Integer(int) => self.integer(*int),
            Value::Number(double) => self.number(*double),
            Value::Table(table) if level < MOST_LEVELS_PACKED => self.table(table, level)?,
            _ => self.bytes.push(0xc0),
        }
        Ok(())
    }

    fn string(&mut self, bytes: &[u8]) {
        match bytes.len() {
            len @ 0..32 => self.bytes.push(0xa0 | len as u8),
            len @ 32..0x100 => self.bytes.extend_from_slice(&[0xd9, len as u8]),
            len => self.length(len, 0xda, 0xdb),
        }
        self.bytes.extend_from_slice(bytes);
    }

    fn length(&mut self, len: usize, two_bytes: u8, four_bytes: u8) {
        match u16::try_from(len) {
            Ok(len) => {
                self.bytes.push(two_bytes);
                self.bytes.extend_from_slice(&len.to_be_bytes());
            }
            Err(_) => {
                self.bytes.push(four_bytes);
                self.bytes.extend_from_slice(&(len as u32).to_be_bytes());
            }
        }
    }

    fn number(&mut self, double: f64) {
        let int = to_integer(double);
        if !double.is_infinite() && int as f64 == double {
            return self.integer(int);
        }
        let float = double as f32;
        if f64::from(float) == double {
            self.bytes.push(0xca);
            self.bytes.extend_from_slice(&float.to_be_bytes());
        } else {
            self.bytes.push(0xcb);
            self.bytes.extend_from_slice(&double.to_be_bytes());
        }
    }

    fn integer(&mut self, int: i64) {
        let bytes = int.to_be_bytes();
        let (kind, width) = match int {
            -32..=127 => return self.bytes.push(int as u8),
            128..=0xff => (0xcc, 1),
            0x100..=0xffff => (0xcd, 2),
            0x1_0000..=0xffff_ffff => (0xce, 4),
            0x1_0000_0000.. => (0xcf, 8),
            -0x80..-32 => (0xd0, 1),
            -0x8000..-0x80 => (0xd1, 2),
            -0x8000_0000..-0x8000 => (0xd2, 4),
            _ => (0xd3, 8),
        };
        self.bytes.push(kind);
        self.bytes.extend_from_slice(&bytes[8 - width..]);
    }

    fn table(&mut self, table: &Table, level: usize) -> Result<(), Throw> {
        // Twice through, since mlua has no room for the keys of a large table.
        let keys = Keys::of(table)?;
        if keys.are_of_array() {
            self.array_header(keys.count);
            for place in 1..=keys.count {
                self.value(&table.raw_get(place)?, level + 1)?;
            }
        } else {
            self.map_header(keys.count);
            for pair in table.pairs::<Value, Value>() {
                let (key, value) = pair?;
                self.value(&key, level + 1)?;
                self.value(&value, level + 1)?;
            }
        }
        Ok(())
    }

    fn array_header(&mut self, len: usize) {
        match len {
            0..16 => self.bytes.push(0x90 | len as u8),
            len => self.length(len, 0xdc, 0xdd),
        }
    }

    fn map_header(&mut self, len: usize) {
        match len {
            0..16 => self.bytes.push(0x80 | len as u8),
            len => self.length(len, 0xde, 0xdf),
        }
    }
}

/// What is to be known of the keys of a table.
#[derive(Default)]
struct Keys {
    count: usize,
    /// The largest number among them.
    largest: i64,
    /// Whether all are whole numbers from 1 on.
    are_places: bool,
}

impl Keys {
    fn of(table: &Table) -> mlua::Result<Keys> {
        let mut keys = Keys {
            are_places: true,
            ..Keys::default()
        };
        for pair in table.pairs::<Value, Value>() {
            keys.count += 1;
            match pair?.0 {
                Value::Integer(place @ 1..) => keys.largest = keys.largest.max(place),
                _ => keys.are_places = false,
            }
        }
        Ok(keys)
    }

    /// Whether they are the numbers from 1 to how many they are: no two are the same.
    fn are_of_array(&self) -> bool {
        self.are_places && self.largest <= self.count as i64
    }
}

/// Without a range, unpacks everything; with a limit and an offset, at most so many values from there on, and
/// says first where the next one begins, or -1.
fn unpack(lua: &Lua, args: &Args, range: Option<(i64, i64)>) -> Result<MultiValue, Throw> {
    let data = args.string(1)?;
    let data = data.as_bytes();
    let (limit, offset) = range.unwrap_or((0, 0));
    if offset < 0 || limit < 0 {
        // The second number is the length in Redis as well, whatever the text says.
        return Err(Throw::message(format!(
            "Invalid request to unpack with offset of {} and limit of {}.",
            offset as i32,
            data.len() as i32
        )));
    }
    let Some(input) = data.get(offset as usize..) else {
        return Err(Throw::message(format!(
            "Start offset {} greater than input length {}.",
            offset as i32,
            data.len() as i32
        )));
    };
    let decode_all = limit == 0 && offset == 0;
    let limit = if decode_all {
        i32::MAX as usize
    } else {
        limit as usize
    };
    let mut input = Input { lua, rest: input };
    let mut results = Vec::new();
    while !input.rest.is_empty() && results.len() < limit {
        if results.len() >= MOST_RESULTS {
            return Err(Throw::message(
                "stack overflow (too many return values at once; use unpack_one or unpack_limit \
                 instead.)",
            ));
        }
        results.push(input.value(0)?);
    }
    if !decode_all {
        let next = match input.rest.len() {
            0 => -1,
            left => (data.len() - left) as i64,
        };
        results.insert(0, next.into_lua(lua)?);
    }
    Ok(results.into_iter().collect())
}

struct Input<'a> {
    lua: &'a Lua,
    rest: &'a [u8],
}

impl Input<'_> {
    fn take(&mut self, len: usize) -> Result<&[u8], Throw> {
        let (taken, rest) = self
            .rest
            .split_at_checked(len)
            .ok_or_else(|| Throw::message("Missing bytes in input."))?;
        self.rest = rest;
        Ok(taken)
    }

    fn fixed<const LEN: usize>(&mut self) -> Result<[u8; LEN], Throw> {
        let mut bytes = [0; LEN];
        bytes.copy_from_slice(self.take(LEN)?);
        Ok(bytes)
    }

    /// An unsigned length of `LEN` bytes.
    fn length<const LEN: usize>(&mut self) -> Result<usize, Throw> {
        let bytes = self.fixed::<LEN>()?;
        Ok(bytes
            .iter()
            .fold(0, |length, byte| length << 8 | usize::from(*byte)))
    }

    fn value(&mut self, level: usize) -> Result<Value, Throw> {
        let [kind] = self.fixed()?;
        let int = match kind {
            0x00..=0x7f | 0xe0..=0xff => i64::from(kind as i8),
            0xcc => i64::from(u8::from_be_bytes(self.fixed()?)),
            0xcd => i64::from(u16::from_be_bytes(self.fixed()?)),
            0xce => i64::from(u32::from_be_bytes(self.fixed()?)),
            // Signed from here on, also where it is written unsigned: so it is in Redis.
            0xcf | 0xd3 => i64::from_be_bytes(self.fixed()?),
            0xd0 => i64::from(i8::from_be_bytes(self.fixed()?)),
            0xd1 => i64::from(i16::from_be_bytes(self.fixed()?)),
            0xd2 => i64::from(i32::from_be_bytes(self.fixed()?)),
            _ => return self.other(kind, level),
        };
        Ok(Value::Integer(int))
    }

    fn other(&mut self, kind: u8, level: usize) -> Result<Value, Throw> {
        Ok(match kind {
            0xc0 => Value::Nil,
            0xc2 => Value::Boolean(false),
            0xc3 => Value::Boolean(true),
            0xca => f64::from(f32::from_be_bytes(self.fixed()?)).into_lua(self.lua)?,
            0xcb => f64::from_be_bytes(self.fixed()?).into_lua(self.lua)?,
            0x80..=0x8f => self.map(usize::from(kind & 0xf), level)?,
            0x90..=0x9f => self.array(usize::from(kind & 0xf), level)?,
            0xa0..=0xbf => self.string(usize::from(kind & 0x1f))?,
            0xd9 => {
                let len = self.length::<1>()?;
                self.string(len)?
            }
            0xda => {
                let len = self.length::<2>()?;
                self.string(len)?
            }
            0xdb => {
                let len = self.length::<4>()?;
                self.string(len)?
            }
            0xdc => {
                let len = self.length::<2>()?;
                self.array(len, level)?
            }
            0xdd => {
                let len = self.length::<4>()?;
                self.array(len, level)?
            }
            0xde => {
                let len = self.length::<2>()?;
                self.map(len, level)?
            }
            0xdf => {
                let len = self.length::<4>()?;
                self.map(len, level)?
            }
            _ => return Err(Throw::message("Bad data format in input.")),
        })
    }

    fn string(&mut self, len: usize) -> Result<Value, Throw> {
        let lua = self.lua;
        Ok(Value::String(lua.create_string(self.take(len)?)?))
    }

    fn array(&mut self, len: usize, level: usize) -> Result<Value, Throw> {
        descend(level)?;
        let array = self.lua.create_table()?;
        for place in 1..=len {
            array.raw_set(place, self.value(level + 1)?)?;
        }
        Ok(Value::Table(array))
    }

    fn map(&mut self, len: usize, level: usize) -> Result<Value, Throw> {
        descend(level)?;
        let map = self.lua.create_table()?;
        for _ in 0..len {
            let key = self.value(level + 1)?;
            let value = self.value(level + 1)?;
            match key {
                Value::Nil => return Err(Throw::Raise(text(self.lua, "table index is nil")?)),
                Value::Number(double) if double.is_nan() => {
                    return Err(Throw::Raise(text(self.lua, "table index is NaN")?));
                }
                key => map.raw_set(key, value)?,
            }
        }
        Ok(Value::Table(map))
    }
}

fn descend(level: usize) -> Result<(), Throw> {
    if level >= MOST_LEVELS_UNPACKED {
        return Err(Throw::message(
            "stack overflow (in function mp_decode_to_lua_array)",
        ));
    }
    Ok(())
}

fn text(lua: &Lua, message: &str) -> Result<Value, Throw> {
    Ok(Value::String(lua.create_string(message)?))
}
