//! EVAL, EVALSHA, their read-only forms, and SCRIPT.

use cairn_resp::Reply;
use cairn_store::{Error, Result};

use super::args::{Args, is};
use super::flags::Flag::{
    AllowBusy, Loading, MayReplicate, MovableKeys, NoMandatoryKeys, NoScript, ReadOnly, Scripting,
    SkipMonitor, Stale,
};
use super::keys::{Access, KeySpec, Keys, Place};
use super::{Command, Flag, Handler, command, help};
use crate::script::call::{Call, Load};
use crate::script::running::Kind;
use crate::session::Session;
use crate::unit::Unit;

const GROUP: &str = "scripting";
const DEPENDS: &str = "That of the script";

pub const MAY_CHANGE_KEYS: Keys = Keys(&[KeySpec {
    access: Access::READ_UPDATE,
    place: Place::Counted { count_at: 2 },
}]);
pub const READS_KEYS: Keys = Keys(&[KeySpec {
    access: Access::READ,
    place: Place::Counted { count_at: 2 },
}]);
/// Of what calls scripts and functions.
pub const CALLS: &[Flag] = &[
    NoScript,
    SkipMonitor,
    Stale,
    NoMandatoryKeys,
    MovableKeys,
    Scripting,
];
const ALL_NODES: &[&str] = &["request_policy:all_nodes", "response_policy:all_succeeded"];

pub const COMMANDS: &[Command] = &[
    command("eval", -3, Handler::Unit(eval))
        .keys(MAY_CHANGE_KEYS)
        .flags(CALLS)
        .flags(&[MayReplicate])
        .syntax("script numkeys:i key?+ arg?+")
        .notes(&["We cannot tell how the keys will be used so we assume the worst, RW and UPDATE"])
        .about(GROUP, "2.6.0", DEPENDS, "Runs a script."),
    command("evalsha", -3, Handler::Unit(evalsha))
        .keys(MAY_CHANGE_KEYS)
        .flags(CALLS)
        .flags(&[MayReplicate])
        .syntax("sha1 numkeys:i key?+ arg?+")
        .about(GROUP, "2.6.0", DEPENDS, "Runs a script that is known."),
    command("eval_ro", -3, Handler::Unit(eval_ro))
        .keys(READS_KEYS)
        .flags(CALLS)
        .flags(&[ReadOnly])
        .syntax("script numkeys:i key?+ arg?+")
        .notes(&["We cannot tell how the keys will be used so we assume the worst, RO and ACCESS"])
        .about(GROUP, "7.0.0", DEPENDS, "Runs a script that only reads."),
    command("evalsha_ro", -3, Handler::Unit(evalsha_ro))
        .keys(READS_KEYS)
        .flags(CALLS)
        .flags(&[ReadOnly])
        .syntax("sha1 numkeys:i key?+ arg?+")
        .about(
            GROUP,
            "7.0.0",
            DEPENDS,
            "Runs a script that is known and only reads.",
        ),
    command("script", -2, Handler::Container)
        .subcommands(SUBCOMMANDS)
        .about(
            GROUP,
            "2.6.0",
            "Depends on the subcommand",
            "Manages the scripts that are known.",
        ),
];

const SUBCOMMANDS: &[Command] = &[
    command("debug", 3, Handler::Session(debug))
        .flags(&[NoScript, Scripting])
        .usage("(YES|SYNC|NO)")
        .syntax("mode(YES!|SYNC!|NO!)")
        .about(
            GROUP,
            "3.2.0",
            "O(1)",
            "Turns off the debugger, which is not there.",
        ),
    command("exists", -3, Handler::Session(exists))
        .flags(&[NoScript, Scripting])
        .usage("<sha1> [<sha1> ...]")
        .tips(&[
            "request_policy:all_shards",
            "response_policy:agg_logical_and",
        ])
        .syntax("sha1+")
        .about(
            GROUP,
            "2.6.0",
            "O(N) for N scripts",
            "Tells which of the scripts are known.",
        ),
    command("flush", -2, Handler::Session(flush))
        .irrevocable()
        .flags(&[NoScript, Scripting])
        .usage("[ASYNC|SYNC]")
        .tips(ALL_NODES)
        .syntax("async(ASYNC!|SYNC!)?")
        .about(GROUP, "2.6.0", "O(N) for N scripts", "Forgets all scripts."),
    command("kill", 2, Handler::Session(kill))
        .irrevocable()
        .flags(&[NoScript, AllowBusy, Scripting])
        .tips(&["request_policy:all_shards", "response_policy:one_succeeded"])
        .about(
            GROUP,
            "2.6.0",
            "O(1)",
            "Ends a script that runs for long and has not written.",
        ),
    command("load", 3, Handler::Unit(load))
        .flags(&[NoScript, Stale, Scripting])
        .usage("<script>")
        .tips(ALL_NODES)
        .syntax("script")
        .about(
            GROUP,
            "2.6.0",
            "O(N) for N bytes",
            "Compiles a script, and remembers it for EVALSHA.",
        ),
    command("help", 2, Handler::Session(help))
        .flags(&[Loading, Stale, Scripting])
        .about(GROUP, "5.0.0", "O(1)", "Prints this help."),
];

const NO_SCRIPT: Error = Error::fixed("NOSCRIPT No matching script. Please use EVAL.");

fn eval(session: &mut Session, args: &Args) -> Result<Box<dyn Unit>> {
    call_text(session, args, false)
}

fn eval_ro(session: &mut Session, args: &Args) -> Result<Box<dyn Unit>> {
    call_text(session, args, true)
}

fn call_text(session: &Session, args: &Args, is_read_only: bool) -> Result<Box<dyn Unit>> {
    let find = || session.server.scripts.of_text(args[1]);
    Ok(Box::new(Call::of_script(args, is_read_only, find)?))
}

fn evalsha(session: &mut Session, args: &Args) -> Result<Box<dyn Unit>> {
    call_name(session, args, false)
}

fn evalsha_ro(session: &mut Session, args: &Args) -> Result<Box<dyn Unit>> {
    call_name(session, args, true)
}

fn call_name(session: &Session, args: &Args, is_read_only: bool) -> Result<Box<dyn Unit>> {
    const NAME: usize = 40;
    if args[1].len() != NAME {
        return Err(NO_SCRIPT);
    }
    let find = || {
        let script = session.server.scripts.named(args[1]).ok_or(NO_SCRIPT)?;
        Ok((script, true))
    };
    Ok(Box::new(Call::of_script(args, is_read_only, find)?))
}

fn load(session: &mut Session, args: &Args) -> Result<Box<dyn Unit>> {
    let (script, _) = session.server.scripts.of_text(args[2])?;
    Ok(Box::new(Load(script)))
}

fn exists(session: &mut Session, args: &Args) -> Result<Reply> {
    let is_known = |name: &&[u8]| i64::from(session.server.scripts.named(name).is_some());
    Ok(args.rest(2).iter().map(is_known).collect())
}

/// What is forgotten takes no time, so the modes do not differ.
fn flush(session: &mut Session, args: &Args) -> Result<Reply> {
    match args.rest(2) {
        [] => {}
        [mode] if is(mode, "sync") || is(mode, "async") => {}
        _ => {
            return Err(Error::fixed(
                "ERR SCRIPT FLUSH only support SYNC|ASYNC option",
            ));
        }
    }
    session.server.scripts.forget();
    Ok(Reply::Ok)
}

fn kill(session: &mut Session, _: &Args) -> Result<Reply> {
    session.server.scripts.running.kill(Kind::Script)
}

fn debug(_: &mut Session, args: &Args) -> Result<Reply> {
    match args[2] {
        mode if is(mode, "no") => Ok(Reply::Ok),
        mode if is(mode, "yes") || is(mode, "sync") => Err(Error::fixed(
            "ERR there is no debugger for scripts in this server",
        )),
        _ => Err(Error::fixed("ERR Use SCRIPT DEBUG YES/SYNC/NO")),
    }
}
