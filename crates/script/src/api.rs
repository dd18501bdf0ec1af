//! The table `redis`.

use std::rc::Rc;

use cairn_resp::number;
use mlua::{Lua, MultiValue, Table, Value};

use crate::convert::{error_reply, own_error};
use crate::host::LogLevel;
use crate::raw::command;
use crate::raw::native::{Args, Throw, function, none, one, to_integer};
use crate::run::{Phase, Run};
use crate::sha1::sha1_hex;

/// The version whose behaviour this is.
const VERSION: &str = "7.0.15";
const VERSION_NUMBER: i64 = 0x0007_000f;

const AOF: i64 = 1;
const REPLICAS: i64 = 2;

/// For scripts and for functions.
pub fn table(lua: &Lua, run: &Rc<Run>) -> mlua::Result<Table> {
    let redis = lua.create_table()?;
    let add = |name: &str, f: fn(&Lua, &Run, &Args) -> Result<MultiValue, Throw>| {
        let run = run.clone();
        redis.raw_set(name, function(lua, move |lua, args| f(lua, &run, args))?)
    };
    redis.raw_set("call", command::function(lua, true)?)?;
    redis.raw_set("pcall", command::function(lua, false)?)?;
    add("setresp", set_protocol)?;
    add("sha1hex", sha1hex)?;
    add("error_reply", make_error_reply)?;
    add("status_reply", make_status_reply)?;
    add("set_repl", set_replication)?;
    add("acl_check_cmd", may_run)?;
    for (name, flags) in [
        ("REPL_NONE", 0),
        ("REPL_AOF", AOF),
        ("REPL_SLAVE", REPLICAS),
        ("REPL_REPLICA", REPLICAS),
        ("REPL_ALL", AOF | REPLICAS),
    ] {
        redis.raw_set(name, flags)?;
    }
    add_log(lua, run, &redis)?;
    add_version(&redis)?;
    Ok(redis)
}

/// What only EVAL has. There is no debugger to talk to.
pub fn add_for_scripts(lua: &Lua, redis: &Table) -> mlua::Result<()> {
    redis.raw_set("breakpoint", function(lua, |lua, _| one(false, lua))?)?;
    redis.raw_set("debug", function(lua, |_, _| none())?)?;
    let replicate = function(lua, |lua, _| one(true, lua))?;
    redis.raw_set("replicate_commands", replicate)
}

pub fn add_log(lua: &Lua, run: &Rc<Run>, redis: &Table) -> mlua::Result<()> {
    let run = run.clone();
    redis.raw_set("log", function(lua, move |lua, args| log(lua, &run, args))?)?;
    for (level, name) in LogLevel::ALL {
        redis.raw_set(name, level as i64)?;
    }
    Ok(())
}

pub fn add_version(redis: &Table) -> mlua::Result<()> {
    redis.raw_set("REDIS_VERSION_NUM", VERSION_NUMBER)?;
    redis.raw_set("REDIS_VERSION", VERSION)
}

fn raise(lua: &Lua, message: &str) -> Throw {
    match own_error(lua, message) {
        Ok(error) => Throw::Raise(Value::Table(error)),
        Err(error) => Throw::Failed(error),
    }
}

fn in_script(lua: &Lua, run: &Run, what: &str) -> Result<(), Throw> {
    match run.phase() {
        Phase::Script => Ok(()),
        _ => Err(raise(
            lua,
            &format!("{what} can only be called inside a script invocation"),
        )),
    }
}

/// The words of a command: strings, and numbers spelled so that none of their digits is lost.
fn words(args: &Args) -> Result<Vec<Vec<u8>>, &'static str> {
    if args.len() == 0 {
        return Err("Please specify at least one argument for this redis lib call");
    }
    let words = args.values().iter().map(|value| {
        let double = match value {
            Value::String(string) => return Some(string.as_bytes().to_vec()),
            Value::Integer(int) => *int as f64,
            Value::Number(double) => *double,
            _ => return None,
        };
        let mut word = Vec::new();
        number::format_double(double, &mut word);
        Some(word)
    });
    words
        .collect::<Option<_>>()
        .ok_or("Lua redis lib command arguments must be strings or integers")
}

fn set_protocol(lua: &Lua, run: &Run, args: &Args) -> Result<MultiValue, Throw> {
    in_script(lua, run, "redis.setresp")?;
    if args.len() != 1 {
        return Err(raise(lua, "redis.setresp() requires one argument."));
    }
    match to_integer(args.number_if_any(1).unwrap_or(0.0)) {
        version @ (2 | 3) => run.set_protocol(version as u8),
        _ => return Err(raise(lua, "RESP version must be 2 or 3.")),
    }
    none()
}

fn sha1hex(lua: &Lua, _: &Run, args: &Args) -> Result<MultiValue, Throw> {
    if args.len() != 1 {
        return Err(raise(lua, "wrong number of arguments"));
    }
    let digest = match args.string(1) {
        Ok(text) => sha1_hex(&text.as_bytes()),
        Err(_) => sha1_hex(b""),
    };
    one(digest, lua)
}

/// The one argument, if it is one and a string; numbers are none here.
fn only_string(args: &Args) -> Option<mlua::LuaString> {
    match args.values() {
        [Value::String(text)] => Some(text.clone()),
        _ => None,
    }
}

fn make_error_reply(lua: &Lua, _: &Run, args: &Args) -> Result<MultiValue, Throw> {
    let error = match only_string(args) {
        Some(text) => {
            let text = text.as_bytes();
            error_reply(lua, text.strip_prefix(b"-").unwrap_or(&text))?
        }
        None => own_error(lua, "wrong number or type of arguments")?,
    };
    one(error, lua)
}

fn make_status_reply(lua: &Lua, _: &Run, args: &Args) -> Result<MultiValue, Throw> {
    let Some(text) = only_string(args) else {
        return one(own_error(lua, "wrong number or type of arguments")?, lua);
    };
    let status = lua.create_table()?;
    status.raw_set("ok", text)?;
    one(status, lua)
}

fn set_replication(lua: &Lua, run: &Run, args: &Args) -> Result<MultiValue, Throw> {
    in_script(lua, run, "redis.set_repl")?;
    if args.len() != 1 {
        return Err(raise(lua, "redis.set_repl() requires two arguments."));
    }
    let flags = to_integer(args.number_if_any(1).unwrap_or(0.0));
    if flags & !(AOF | REPLICAS) != 0 {
        return Err(raise(
            lua,
            "Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.",
        ));
    }
    run.host(|host| host.set_replication(flags & AOF != 0, flags & REPLICAS != 0));
    none()
}

fn may_run(lua: &Lua, run: &Run, args: &Args) -> Result<MultiValue, Throw> {
    in_script(lua, run, "redis.acl_check_cmd")?;
    let words = words(args).map_err(|message| raise(lua, message))?;
    match run.host(|host| host.may_run(&words)).flatten() {
        Some(may) => one(may, lua),
        None => Err(raise(
            lua,
            "Invalid command passed to redis.acl_check_cmd()",
        )),
    }
}

fn log(lua: &Lua, run: &Run, args: &Args) -> Result<MultiValue, Throw> {
    if args.len() < 2 {
        return Err(raise(lua, "redis.log() requires two arguments or more."));
    }
    let Some(level) = args.number_if_any(1) else {
        return Err(raise(lua, "First argument must be a number (log level)."));
    };
    let Some(level) = LogLevel::from_number(to_integer(level)) else {
        return Err(raise(lua, "Invalid debug level."));
    };
    let mut message = Vec::new();
    for number in 2..=args.len() {
        // What is neither a string nor a number is passed over.
        let Ok(text) = args.string(number) else {
            continue;
        };
        if number > 2 {
            message.push(b' ');
        }
        message.extend_from_slice(&text.as_bytes());
    }
    run.host(|host| host.log(level, &message));
    none()
}
