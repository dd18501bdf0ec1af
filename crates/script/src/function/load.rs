//! Running a library's code.
//!
//! While it runs, all it finds is a `redis` with register_function, log and the version; not even Lua's
//! own functions. Those are there once its functions are called.

use std::rc::Rc;

use mlua::{Function, Lua, MultiValue, Table, Value};

use crate::convert::own_error;
use crate::flags::Flags;
use crate::raw::native::{Args, Throw, function, none};
use crate::run::{Phase, Run};
use crate::{api, sandbox};

/// What a library has registered so far.
#[derive(Default)]
pub struct Loading {
    pub functions: Vec<Registered>,
}

pub struct Registered {
    pub declared: Declared,
    pub callback: Function,
}

/// A function as FUNCTION LIST shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    pub name: Vec<u8>,
    pub description: Option<Vec<u8>>,
    pub flags: Flags,
}

pub fn globals(lua: &Lua, run: &Rc<Run>) -> mlua::Result<Table> {
    let redis = lua.create_table()?;
    let shared = run.clone();
    let register = function(lua, move |lua, args| register(lua, &shared, args))?;
    redis.raw_set("register_function", register)?;
    api::add_log(lua, run, &redis)?;
    api::add_version(&redis)?;
    let globals = lua.create_table()?;
    globals.raw_set("redis", sandbox::strict(lua, &redis)?)?;
    // The face is not needed: nothing hands out the table itself.
    sandbox::strict(lua, &globals)?;
    Ok(globals)
}

/// Names of libraries and functions.
pub fn is_name(name: &[u8]) -> bool {
    !name.is_empty()
        && name
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

pub const BAD_NAME: &str = "Library names can only contain letters, numbers, or underscores(_) and \
                            must be at least one character long";

fn register(lua: &Lua, run: &Run, args: &Args) -> Result<MultiValue, Throw> {
    let registered = if run.phase() == Phase::Load {
        match args.len() {
            1 => named(lua, args),
            2 => positional(args),
            _ => Err("wrong number of arguments to redis.register_function"),
        }
    } else {
        Err("redis.register_function can only be called on FUNCTION LOAD command")
    };
    let added = registered.and_then(|registered| add(run, registered));
    match added {
        Ok(()) => none(),
        Err(message) => Err(Throw::Raise(Value::Table(own_error(lua, message)?))),
    }
}

fn add(run: &Run, registered: Registered) -> Result<(), &'static str> {
    let name = &registered.declared.name;
    if !is_name(name) {
        return Err(BAD_NAME);
    }
    let mut loading = run.loading.borrow_mut();
    // Two names that differ in case only would be one to FCALL. Redis takes both, and breaks later.
    let known = |other: &Registered| other.declared.name.eq_ignore_ascii_case(name);
    if loading.functions.iter().any(known) {
        return Err("Function already exists in the library");
    }
    loading.functions.push(registered);
    Ok(())
}

fn positional(args: &Args) -> Result<Registered, &'static str> {
    let name = args
        .string(1)
        .map_err(|_| "first argument to redis.register_function must be a string")?;
    let Value::Function(callback) = args.get(2) else {
        return Err("second argument to redis.register_function must be a function");
    };
    Ok(Registered {
        declared: Declared {
            name: name.as_bytes().to_vec(),
            description: None,
            flags: Flags::default(),
        },
        callback,
    })
}

fn named(lua: &Lua, args: &Args) -> Result<Registered, &'static str> {
    let Value::Table(named) = args.get(1) else {
        return Err(
            "calling redis.register_function with a single argument is only applicable to Lua table \
             (representing named arguments).",
        );
    };
    let mut name = None;
    let mut description = None;
    let mut callback = None;
    let mut flags = Flags::default();
    for pair in named.pairs::<Value, Value>() {
        const NO_STRING: &str =
            "named argument key given to redis.register_function is not a string";
        let (key, value) = pair.map_err(|_| NO_STRING)?;
        let key = text(lua, key).ok_or(NO_STRING)?.to_ascii_lowercase();
        match key.as_slice() {
            b"function_name" => {
                name = Some(text(lua, value).ok_or(
                    "function_name argument given to redis.register_function must be a string",
                )?);
            }
            b"description" => {
                description = Some(text(lua, value).ok_or(
                    "description argument given to redis.register_function must be a string",
                )?);
            }
            b"callback" => match value {
                Value::Function(given) => callback = Some(given),
                _ => {
                    return Err(
                        "callback argument given to redis.register_function must be a function",
                    );
                }
            },
            b"flags" => {
                let Value::Table(names) = value else {
                    return Err("flags argument to redis.register_function must be a table \
                                representing function flags");
                };
                flags = read_flags(lua, &names).ok_or("unknown flag given")?;
            }
            _ => return Err("unknown argument given to redis.register_function"),
        }
    }
    Ok(Registered {
        declared: Declared {
            name: name.ok_or("redis.register_function must get a function name argument")?,
            description,
            flags,
        },
        callback: callback.ok_or("redis.register_function must get a callback argument")?,
    })
}

fn read_flags(lua: &Lua, names: &Table) -> Option<Flags> {
    let mut flags = Flags::default();
    for place in 1.. {
        match names.raw_get(place).ok()? {
            Value::Nil => break,
            name => flags.insert(Flags::named_in_any_case(&text(lua, name)?)?),
        }
    }
    Some(flags)
}

/// A string, or a number as one.
fn text(lua: &Lua, value: Value) -> Option<Vec<u8>> {
    match value {
        Value::String(_) | Value::Integer(_) | Value::Number(_) => {
            let string = lua.coerce_string(value).ok()??;
            Some(string.as_bytes().to_vec())
        }
        _ => None,
    }
}
