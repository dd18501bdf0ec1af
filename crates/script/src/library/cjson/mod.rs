//! `cjson`: JSON.
//!
//! Its options are those of lua-cjson 2.1. In Redis a script that sets one leaves it set for all that come
//! after; here each run begins with the defaults.

mod decode;
mod encode;

use std::cell::Cell;
use std::rc::Rc;

use mlua::{IntoLua, Lua, MultiValue, Table, Value};

use crate::raw::native::{Args, Throw, function, one};
use crate::run::Run;

/// How deep encoding and decoding may go, whatever the options say: they recurse.
const MOST_LEVELS: i32 = 1000;

#[derive(Clone, Copy)]
struct Config {
    sparse_convert: bool,
    sparse_ratio: i32,
    sparse_safe: i32,
    encode_max_depth: i32,
    decode_max_depth: i32,
    encode_invalid: InvalidNumbers,
    decode_invalid: bool,
    keep_buffer: bool,
    precision: i32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum InvalidNumbers {
    Refuse,
    Write,
    Null,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            sparse_convert: false,
            sparse_ratio: 2,
            sparse_safe: 10,
            encode_max_depth: 1000,
            decode_max_depth: 1000,
            encode_invalid: InvalidNumbers::Refuse,
            decode_invalid: true,
            keep_buffer: true,
            precision: 14,
        }
    }
}

/// The options of one `cjson`, shared by its functions.
#[derive(Clone, Default)]
pub struct Shared(Rc<Cell<Config>>);

impl Shared {
    pub fn reset(&self) {
        self.0.set(Config::default());
    }

    /// Changes one option, and gives it back as it is then.
    fn change<T>(&self, f: impl FnOnce(&mut Config) -> Result<T, Throw>) -> Result<T, Throw> {
        let mut config = self.0.get();
        let result = f(&mut config);
        self.0.set(config);
        result
    }
}

pub fn library(lua: &Lua, run: &Rc<Run>) -> mlua::Result<Table> {
    instance(lua, run, &run.json)
}

fn instance(lua: &Lua, run: &Rc<Run>, config: &Shared) -> mlua::Result<Table> {
    let cjson = lua.create_table()?;
    let shared = (config.clone(), run.clone());
    let encode = function(lua, move |lua, args| {
        let text = encode::encode(args, shared.0.0.get(), &shared.1)?;
        one(lua.create_string(text)?, lua)
    })?;
    cjson.raw_set("encode", encode)?;
    let shared = config.clone();
    let decode = function(lua, move |lua, args| {
        one(decode::decode(lua, args, shared.0.get())?, lua)
    })?;
    cjson.raw_set("decode", decode)?;
    add_options(lua, config, &cjson)?;
    let new_run = run.clone();
    let new = function(lua, move |lua, _| {
        one(instance(lua, &new_run, &Shared::default())?, lua)
    })?;
    cjson.raw_set("new", new)?;
    cjson.raw_set("null", Value::NULL)?;
    cjson.raw_set("_NAME", "cjson")?;
    cjson.raw_set("_VERSION", "2.1.0")?;
    Ok(cjson)
}

type Option = fn(&Lua, &Args, &mut Config) -> Result<MultiValue, Throw>;

fn add_options(lua: &Lua, config: &Shared, cjson: &Table) -> mlua::Result<()> {
    let options: [(&str, usize, Option); 7] = [
        ("encode_sparse_array", 3, |lua, args, config| {
            switch(args, 1, &mut config.sparse_convert)?;
            integer(args, 2, &mut config.sparse_ratio, 0, i32::MAX)?;
            integer(args, 3, &mut config.sparse_safe, 0, i32::MAX)?;
            let values = [
                config.sparse_convert.into_lua(lua)?,
                config.sparse_ratio.into_lua(lua)?,
                config.sparse_safe.into_lua(lua)?,
            ];
            Ok(values.into_iter().collect())
        }),
        ("encode_max_depth", 1, |lua, args, config| {
            integer(args, 1, &mut config.encode_max_depth, 1, i32::MAX)?;
            one(config.encode_max_depth, lua)
        }),
        ("decode_max_depth", 1, |lua, args, config| {
            integer(args, 1, &mut config.decode_max_depth, 1, i32::MAX)?;
            one(config.decode_max_depth, lua)
        }),
        ("encode_number_precision", 1, |lua, args, config| {
            integer(args, 1, &mut config.precision, 1, 14)?;
            one(config.precision, lua)
        }),
        ("encode_keep_buffer", 1, |lua, args, config| {
            switch(args, 1, &mut config.keep_buffer)?;
            one(config.keep_buffer, lua)
        }),
        ("encode_invalid_numbers", 1, |lua, args, config| {
            invalid_numbers(args, &mut config.encode_invalid)?;
            match config.encode_invalid {
                InvalidNumbers::Refuse => one(false, lua),
                InvalidNumbers::Write => one(true, lua),
                InvalidNumbers::Null => one("null", lua),
            }
        }),
        ("decode_invalid_numbers", 1, |lua, args, config| {
            switch(args, 1, &mut config.decode_invalid)?;
            one(config.decode_invalid, lua)
        }),
    ];
    for (name, most_args, option) in options {
        let config = config.clone();
        let f = function(lua, move |lua, args| {
            if args.len() > most_args {
                return Err(args.wrong(most_args + 1, "found too many arguments"));
            }
            config.change(|config| option(lua, args, config))
        })?;
        cjson.raw_set(name, f)?;
    }
    Ok(())
}

/// Sets an option to an argument, if it is given.
fn integer(
    args: &Args,
    number: usize,
    option: &mut i32,
    least: i32,
    most: i32,
) -> Result<(), Throw> {
    if args.get(number).is_nil() {
        return Ok(());
    }
    let value = args.integer(number)? as i32;
    if !(least..=most).contains(&value) {
        // Always the first: so it is called in Redis, wherever it stands.
        return Err(args.wrong(1, format!("expected integer between {least} and {most}")));
    }
    *option = value;
    Ok(())
}

fn switch(args: &Args, number: usize, option: &mut bool) -> Result<(), Throw> {
    match args.get(number) {
        Value::Nil => {}
        Value::Boolean(is) => *option = is,
        _ => *option = choice(args, number, &["off", "on"])? == 1,
    }
    Ok(())
}

fn invalid_numbers(args: &Args, option: &mut InvalidNumbers) -> Result<(), Throw> {
    *option = match args.get(1) {
        Value::Nil => return Ok(()),
        Value::Boolean(true) => InvalidNumbers::Write,
        Value::Boolean(false) => InvalidNumbers::Refuse,
        _ => match choice(args, 1, &["off", "on", "null"])? {
            0 => InvalidNumbers::Refuse,
            1 => InvalidNumbers::Write,
            _ => InvalidNumbers::Null,
        },
    };
    Ok(())
}

fn choice(args: &Args, number: usize, names: &[&str]) -> Result<usize, Throw> {
    let given = args.string(number)?;
    let given = crate::convert::c_string(&given.as_bytes()).to_vec();
    names
        .iter()
        .position(|name| name.as_bytes() == given)
        .ok_or_else(|| {
            let text = [b"invalid option '", given.as_slice(), b"'"].concat();
            args.wrong(number, text)
        })
}
