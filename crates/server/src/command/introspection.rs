//! What the server tells about itself: COMMAND about its commands, OBJECT and MEMORY about its values.

mod describe;
mod encoding;
mod getkeys;

pub use describe::find_by_full_name;
pub use encoding::{bytes_of, encoding_of};
pub use getkeys::keys_of;

use cairn_resp::{Reply, glob};
use cairn_store::{Error, Result};

use super::args::{Args, is};
use super::flags::Flag::{Connection, Keyspace, Loading, Stale};
use super::keys::{Access, KeySpec, Keys};
use super::{Command, Flag, Handler, all, by_number, command, count, help};
use crate::info::memory;
use crate::session::Session;

const SERVER: &str = "server";
const GENERIC: &str = "generic";
const KEY_SECOND: Keys = Keys(&[KeySpec::at(2, Access::PEEK)]);
const ANY_ORDER: &[&str] = &["nondeterministic_output_order"];
const ANY_OUTPUT: &[&str] = &["nondeterministic_output"];
const ALL_SHARDS: &[&str] = &[
    "nondeterministic_output",
    "request_policy:all_shards",
    "response_policy:special",
];
const ABOUT_COMMANDS: &[Flag] = &[Loading, Stale, Connection];

pub const COMMANDS: &[Command] = &[
    command("command", -1, Handler::Session(describe::everything))
        .flags(ABOUT_COMMANDS)
        .tips(ANY_ORDER)
        .subcommands(COMMAND_SUBCOMMANDS)
        .about(
            SERVER,
            "2.8.13",
            "O(N) for N commands",
            "Describes all commands.",
        ),
    command("object", -2, Handler::Container)
        .subcommands(OBJECT_SUBCOMMANDS)
        .about(
            GENERIC,
            "2.2.3",
            "Depends on the subcommand",
            "Tells about the value of a key.",
        ),
    command("memory", -2, Handler::Container)
        .subcommands(MEMORY_SUBCOMMANDS)
        .about(
            SERVER,
            "4.0.0",
            "Depends on the subcommand",
            "Tells about the use of memory.",
        ),
];

const COMMAND_SUBCOMMANDS: &[Command] = &[
    command("count", 2, Handler::Session(count_commands))
        .flags(ABOUT_COMMANDS)
        .about(SERVER, "2.8.13", "O(1)", "Returns the number of commands."),
    command("docs", -2, Handler::Session(describe::docs))
        .flags(ABOUT_COMMANDS)
        .tips(ANY_ORDER)
        .usage("[<command> ...]")
        .syntax("command-name?+")
        .about(
            SERVER,
            "7.0.0",
            "O(N) for N commands",
            "Documents these commands, or all.",
        ),
    command("getkeys", -4, Handler::Session(getkeys::keys))
        .flags(ABOUT_COMMANDS)
        .usage("<command> [<arg> ...]")
        .about(
            SERVER,
            "2.8.13",
            "O(N) for N arguments",
            "Returns the keys that a call names.",
        ),
    command(
        "getkeysandflags",
        -4,
        Handler::Session(getkeys::keys_and_flags),
    )
    .flags(ABOUT_COMMANDS)
    .usage("<command> [<arg> ...]")
    .about(
        SERVER,
        "7.0.0",
        "O(N) for N arguments",
        "Returns the keys that a call names, and what it does to them.",
    ),
    command("info", -2, Handler::Session(describe::info))
        .flags(ABOUT_COMMANDS)
        .tips(ANY_ORDER)
        .usage("[<command> ...]")
        .syntax("command-name?+")
        .about(
            SERVER,
            "2.8.13",
            "O(N) for N commands",
            "Describes these commands, or all.",
        ),
    command("list", -2, Handler::Session(list_commands))
        .flags(ABOUT_COMMANDS)
        .tips(ANY_ORDER)
        .usage("[FILTERBY (MODULE <name>|ACLCAT <category>|PATTERN <pattern>)]")
        .syntax("FILTERBY/filterby(MODULE/module-name|ACLCAT/category|PATTERN/pattern:p)?")
        .about(
            SERVER,
            "7.0.0",
            "O(N) for N commands",
            "Returns the names of the commands.",
        ),
    command("help", 2, Handler::Session(help))
        .flags(ABOUT_COMMANDS)
        .about(SERVER, "5.0.0", "O(1)", "Prints this help."),
];

const OBJECT_SUBCOMMANDS: &[Command] = &[
    command("encoding", 3, Handler::Read(encoding::object_encoding))
        .looks_on()
        .keys(KEY_SECOND)
        .flags(&[Keyspace])
        .tips(ANY_OUTPUT)
        .usage("<key>")
        .syntax("key")
        .about(
            GENERIC,
            "2.2.3",
            "O(1)",
            "Returns the structure that Redis would hold the value in.",
        ),
    command("freq", 3, Handler::Read(encoding::object_freq))
        .looks_on()
        .keys(KEY_SECOND)
        .flags(&[Keyspace])
        .tips(ANY_OUTPUT)
        .usage("<key>")
        .syntax("key")
        .about(
            GENERIC,
            "4.0.0",
            "O(1)",
            "Returns how often the key is used, if that is counted.",
        ),
    command("idletime", 3, Handler::Read(encoding::object_idletime))
        .looks_on()
        .keys(KEY_SECOND)
        .flags(&[Keyspace])
        .tips(ANY_OUTPUT)
        .usage("<key>")
        .syntax("key")
        .about(
            GENERIC,
            "2.2.3",
            "O(1)",
            "Returns the seconds since the key was last used.",
        ),
    command("refcount", 3, Handler::Read(encoding::object_refcount))
        .looks_on()
        .keys(KEY_SECOND)
        .flags(&[Keyspace])
        .tips(ANY_OUTPUT)
        .usage("<key>")
        .syntax("key")
        .about(
            GENERIC,
            "2.2.3",
            "O(1)",
            "Returns how many keys share the value: never more than one.",
        ),
    command("help", 2, Handler::Session(help))
        .flags(&[Loading, Stale, Keyspace])
        .about(GENERIC, "6.2.0", "O(1)", "Prints this help."),
];

const MEMORY_SUBCOMMANDS: &[Command] = &[
    command("doctor", 2, Handler::Admin(memory::doctor))
        .tips(ALL_SHARDS)
        .about(SERVER, "4.0.0", "O(1)", "Says in words how memory is used."),
    command("malloc-stats", 2, Handler::Admin(memory::malloc_stats))
        .tips(ALL_SHARDS)
        .about(
            SERVER,
            "4.0.0",
            "O(N) for N arenas",
            "Returns what the allocator tells about itself.",
        ),
    command("purge", 2, Handler::Admin(memory::purge))
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .about(
            SERVER,
            "4.0.0",
            "O(N) for N arenas",
            "Has the allocator give back what it does not use.",
        ),
    command("stats", 2, Handler::Admin(memory::stats))
        .tips(ALL_SHARDS)
        .about(
            SERVER,
            "4.0.0",
            "O(1)",
            "Returns what memory is used for, as figures.",
        ),
    command("usage", -3, Handler::Read(encoding::memory_usage))
        .looks_on()
        .keys(KEY_SECOND)
        .usage("<key> [SAMPLES <count>]")
        .syntax("key SAMPLES/count:i?")
        .about(
            SERVER,
            "4.0.0",
            "O(N) for N samples",
            "Estimates the bytes of a key and its value from some of its rows; 0 samples are all.",
        ),
    command("help", 2, Handler::Session(help))
        .flags(&[Loading, Stale])
        .about(SERVER, "4.0.0", "O(1)", "Prints this help."),
];

fn count_commands(_: &mut Session, _: &Args) -> Result<Reply> {
    Ok(all().count().into())
}

fn list_commands(_: &mut Session, args: &Args) -> Result<Reply> {
    let is_listed: Box<dyn Fn(&Command) -> bool> = match *args.rest(2) {
        [] => Box::new(|_| true),
        [filter, by, name] if is(filter, "filterby") && is(by, "module") => {
            let _ = name;
            Box::new(|_| false)
        }
        [filter, by, category] if is(filter, "filterby") && is(by, "aclcat") => {
            let category = category.to_ascii_lowercase();
            Box::new(move |command| {
                let categories = command.categories();
                categories.iter().any(|known| known.as_bytes() == category)
            })
        }
        [filter, by, pattern] if is(filter, "filterby") && is(by, "pattern") => {
            let pattern = pattern.to_vec();
            Box::new(move |command| glob::matches(&pattern, command.full_name.as_bytes(), true))
        }
        _ => return Err(Error::SYNTAX),
    };
    let commands = (0..count()).filter_map(by_number);
    Ok(commands
        .filter(|command| is_listed(command))
        .map(|command| command.full_name)
        .collect())
}
