//! FCALL, FCALL_RO and FUNCTION.

use cairn_resp::Reply;
use cairn_script::{Policy, Value, dump};
use cairn_store::{Error, Result};

use super::args::{Args, is};
use super::flags::Flag::{
    AllowBusy, DenyOom, Loading, MayReplicate, NoScript, ReadOnly, Scripting, Stale, Write,
};
use super::script::{CALLS, MAY_CHANGE_KEYS, READS_KEYS};
use super::{Command, Flag, Handler, OwnedArgs, command, help, printable};
use crate::script::call::Call;
use crate::script::functions::{Called, Change, Look};
use crate::script::running::Kind;
use crate::session::Session;
use crate::unit::Unit;

const GROUP: &str = "scripting";
const DEPENDS: &str = "That of the function";
const CHANGES: &[Flag] = &[Write, NoScript, Scripting];
const LOOKS: &[Flag] = &[NoScript, Scripting];
const ALL_SHARDS: &[&str] = &["request_policy:all_shards", "response_policy:all_succeeded"];

pub const COMMANDS: &[Command] = &[
    command("fcall", -3, Handler::Unit(fcall))
        .keys(MAY_CHANGE_KEYS)
        .flags(CALLS)
        .flags(&[MayReplicate])
        .syntax("function numkeys:i key?+ arg?+")
        .notes(&["We cannot tell how the keys will be used so we assume the worst, RW and UPDATE"])
        .about(GROUP, "7.0.0", DEPENDS, "Calls a function."),
    command("fcall_ro", -3, Handler::Unit(fcall_ro))
        .keys(READS_KEYS)
        .flags(CALLS)
        .flags(&[ReadOnly])
        .syntax("function numkeys:i key?+ arg?+")
        .notes(&["We cannot tell how the keys will be used so we assume the worst, RO and ACCESS"])
        .about(GROUP, "7.0.0", DEPENDS, "Calls a function that only reads."),
    command("function", -2, Handler::Container)
        .subcommands(SUBCOMMANDS)
        .about(
            GROUP,
            "7.0.0",
            "Depends on the subcommand",
            "Manages functions.",
        ),
];

const SUBCOMMANDS: &[Command] = &[
    command("delete", 3, Handler::Unit(delete))
        .flags(CHANGES)
        .usage("<library name>")
        .tips(ALL_SHARDS)
        .syntax("library-name")
        .about(GROUP, "7.0.0", "O(1)", "Deletes a library."),
    command("dump", 2, Handler::Unit(dump_all))
        .flags(LOOKS)
        .about(
            GROUP,
            "7.0.0",
            "O(N) for N functions",
            "Returns all libraries as bytes that FUNCTION RESTORE reads.",
        ),
    command("flush", -2, Handler::Unit(flush))
        .flags(CHANGES)
        .usage("[ASYNC|SYNC]")
        .tips(ALL_SHARDS)
        .syntax("async(ASYNC!|SYNC!)?")
        .about(
            GROUP,
            "7.0.0",
            "O(N) for N functions",
            "Deletes all functions.",
        ),
    command("kill", 2, Handler::Session(kill))
        .irrevocable()
        .flags(&[NoScript, AllowBusy, Scripting])
        .tips(&["request_policy:all_shards", "response_policy:one_succeeded"])
        .about(
            GROUP,
            "7.0.0",
            "O(1)",
            "Ends a function that runs for long and has not written.",
        ),
    command("list", -2, Handler::Unit(list))
        .flags(LOOKS)
        .usage("[LIBRARYNAME <pattern>] [WITHCODE]")
        .tips(&["nondeterministic_output_order"])
        .syntax("LIBRARYNAME/library-name-pattern? WITHCODE!?")
        .about(
            GROUP,
            "7.0.0",
            "O(N) for N functions",
            "Lists libraries and their functions.",
        ),
    command("load", -3, Handler::Unit(load))
        .flags(CHANGES)
        .flags(&[DenyOom])
        .usage("[REPLACE] <code>")
        .tips(ALL_SHARDS)
        .syntax("REPLACE!? function-code")
        .about(
            GROUP,
            "7.0.0",
            "O(1), and what the code does",
            "Makes a library of some code.",
        ),
    command("restore", -3, Handler::Unit(restore))
        .flags(CHANGES)
        .flags(&[DenyOom])
        .usage("<payload> [FLUSH|APPEND|REPLACE]")
        .tips(ALL_SHARDS)
        .syntax("serialized-value policy(FLUSH!|APPEND!|REPLACE!)?")
        .about(
            GROUP,
            "7.0.0",
            "O(N) for N functions",
            "Brings back what FUNCTION DUMP returned.",
        ),
    command("stats", 2, Handler::Unit(stats))
        .flags(&[NoScript, AllowBusy, Scripting])
        .tips(&[
            "nondeterministic_output",
            "request_policy:all_shards",
            "response_policy:special",
        ])
        .about(
            GROUP,
            "7.0.0",
            "O(1)",
            "Tells which function runs for long, and how many there are.",
        ),
    command("help", 2, Handler::Session(help))
        .flags(&[Loading, Stale, Scripting])
        .about(GROUP, "7.0.0", "O(1)", "Prints this help."),
];

fn fcall(session: &mut Session, args: &Args) -> Result<Box<dyn Unit>> {
    Ok(Box::new(Call::of_function(session, args, false)?))
}

fn fcall_ro(session: &mut Session, args: &Args) -> Result<Box<dyn Unit>> {
    Ok(Box::new(Call::of_function(session, args, true)?))
}

fn load(_: &mut Session, args: &Args) -> Result<Box<dyn Unit>> {
    let Some((code, options)) = args.rest(2).split_last() else {
        return Err(Error::fixed("ERR Function code is missing"));
    };
    let unknown = options.iter().find(|option| !is(option, "replace"));
    if let Some(option) = unknown {
        let option = printable(option, 1024);
        return Err(Error::reply(format!("ERR Unknown option given: {option}")));
    }
    let (code, replaces) = (code.to_vec(), !options.is_empty());
    changed(args, Change::Load { code, replaces })
}

fn changed(args: &Args, change: Change) -> Result<Box<dyn Unit>> {
    let words = OwnedArgs::new(args);
    Ok(Box::new(Called { change, words }))
}

fn delete(_: &mut Session, args: &Args) -> Result<Box<dyn Unit>> {
    let name = args[2].to_vec();
    changed(args, Change::Delete { name })
}

fn flush(_: &mut Session, args: &Args) -> Result<Box<dyn Unit>> {
    match args.rest(2) {
        [] => {}
        [mode] if is(mode, "sync") || is(mode, "async") => {}
        [_] => {
            return Err(Error::fixed(
                "ERR FUNCTION FLUSH only supports SYNC|ASYNC option",
            ));
        }
        _ => return Err(wrong_use(args)),
    }
    changed(args, Change::Flush)
}

fn restore(_: &mut Session, args: &Args) -> Result<Box<dyn Unit>> {
    let policy = match *args.rest(3) {
        [] => Policy::Append,
        [policy] if is(policy, "append") => Policy::Append,
        [policy] if is(policy, "replace") => Policy::Replace,
        [policy] if is(policy, "flush") => Policy::Flush,
        [_] => {
            return Err(Error::fixed(
                "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.",
            ));
        }
        _ => return Err(wrong_use(args)),
    };
    let payload = args[2].to_vec();
    changed(args, Change::Restore { payload, policy })
}

/// For what has too many arguments, and is not told so by its arity.
fn wrong_use(args: &Args) -> Error {
    let name = printable(args[1], 128);
    Error::reply(format!(
        "ERR unknown subcommand or wrong number of arguments for '{name}'. Try FUNCTION HELP."
    ))
}

fn dump_all(_: &mut Session, _: &Args) -> Result<Box<dyn Unit>> {
    Ok(Box::new(Look(Box::new(|view| Value::Bulk(dump(view))))))
}

fn list(_: &mut Session, args: &Args) -> Result<Box<dyn Unit>> {
    let mut with_code = false;
    let mut pattern: Option<Vec<u8>> = None;
    let mut options = args.options(2);
    while !options.is_empty() {
        if !with_code && options.take("withcode") {
            with_code = true;
        } else if pattern.is_none() && options.take("libraryname") {
            let given = options.next();
            let given = given.ok_or(Error::fixed("ERR library name argument was not given"))?;
            pattern = Some(given.to_vec());
        } else {
            let option = printable(options.next().unwrap_or_default(), 1024);
            return Err(Error::reply(format!("ERR Unknown argument {option}")));
        }
    }
    Ok(Box::new(Look(Box::new(move |view| {
        view.list(pattern.as_deref(), with_code)
    }))))
}

fn stats(session: &mut Session, _: &Args) -> Result<Box<dyn Unit>> {
    let running = session.server.scripts.running.describe()?;
    Ok(Box::new(Look(Box::new(move |view| {
        Value::Map(vec![
            (Value::Bulk(b"running_script".to_vec()), running.clone()),
            (Value::Bulk(b"engines".to_vec()), view.engines()),
        ])
    }))))
}

fn kill(session: &mut Session, _: &Args) -> Result<Reply> {
    session.server.scripts.running.kill(Kind::Function)
}
