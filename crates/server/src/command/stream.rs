//! Commands on streams.

mod edit;
mod group;
mod id;
mod info;
mod pending;
mod range;
mod read;
mod reply;

pub(super) use read::block_option;

use super::flags::Flag::{DenyOom, Fast, MovableKeys, ReadOnly};
use super::keys::{Access, Among, KeySpec, Keys, Place};
use super::{Command, Handler, command, help};

const READS_KEY: Keys = Keys(&[KeySpec::at(1, Access::READ)]);
const PEEKS_AT_KEY: Keys = Keys(&[KeySpec::at(1, Access::PEEK)]);
const UPDATES_KEY: Keys = Keys(&[KeySpec::at(1, Access::UPDATE)]);
const DELETES_FROM_KEY: Keys = Keys(&[KeySpec::at(1, Access::DELETE)]);

const READS_SECOND: Keys = Keys(&[KeySpec::at(2, Access::READ)]);
const UPDATES_SECOND: Keys = Keys(&[KeySpec::at(2, Access::UPDATE)]);
const INSERTS_INTO_SECOND: Keys = Keys(&[KeySpec::at(2, Access::INSERT)]);
const DELETES_FROM_SECOND: Keys = Keys(&[KeySpec::at(2, Access::DELETE)]);

/// The option of XREAD and XREADGROUP behind which streams stand. A group, too, may be named so.
pub(super) const STREAMS: Among = Among {
    word: "STREAMS",
    from: 1,
    options: &[("GROUP", 2), ("COUNT", 1), ("BLOCK", 1)],
};

const READS_STREAMS: Keys = Keys(&[KeySpec {
    access: Access::READ,
    place: Place::HalfBehind {
        option: STREAMS,
        from: 1,
    },
}]);
const READS_STREAMS_IN_GROUP: Keys = Keys(&[KeySpec {
    access: Access::READ,
    place: Place::HalfBehind {
        option: STREAMS,
        from: 4,
    },
}]);

const STREAM: &str = "stream";
const ANY_OUTPUT: &[&str] = &["nondeterministic_output"];

pub const COMMANDS: &[Command] = &[
    command("xadd", -5, Handler::Write(edit::xadd))
        .keys(UPDATES_KEY)
        .notes(&["UPDATE instead of INSERT because of the optional trimming feature"])
        .flags(&[DenyOom, Fast])
        .tips(ANY_OUTPUT)
        .syntax(
            "key NOMKSTREAM!? trim{strategy(MAXLEN!|MINID!) operator(=/equal!|~/approximately!)? \
             threshold LIMIT/count:i?}? id_or_auto(*/auto_id!|id) field_value{field value}+",
        )
        .notes(&["UPDATE instead of INSERT because of the optional trimming feature"])
        .about(
            STREAM,
            "5.0.0",
            "O(1), and O(N) for N entries trimmed",
            "Appends an entry.",
        ),
    command("xlen", 2, Handler::Point(range::xlen))
        .keys(PEEKS_AT_KEY)
        .flags(&[Fast])
        .syntax("key")
        .about(STREAM, "5.0.0", "O(1)", "Returns the number of entries."),
    command("xrange", -4, Handler::Read(range::xrange))
        .keys(READS_KEY)
        .syntax("key start end COUNT/count:i?")
        .about(
            STREAM,
            "5.0.0",
            "O(N) for N entries returned",
            "Returns the entries between two IDs.",
        ),
    command("xrevrange", -4, Handler::Read(range::xrevrange))
        .keys(READS_KEY)
        .syntax("key end start COUNT/count:i?")
        .about(
            STREAM,
            "5.0.0",
            "O(N) for N entries returned",
            "Returns the entries between two IDs, the last first.",
        ),
    command("xdel", -3, Handler::Write(edit::xdel))
        .keys(DELETES_FROM_KEY)
        .flags(&[Fast])
        .syntax("key id+")
        .about(
            STREAM,
            "5.0.0",
            "O(1) for each entry",
            "Deletes entries by their IDs.",
        ),
    command("xtrim", -4, Handler::Write(edit::xtrim))
        .keys(DELETES_FROM_KEY)
        .tips(ANY_OUTPUT)
        .syntax(
            "key trim{strategy(MAXLEN!|MINID!) operator(=/equal!|~/approximately!)? threshold \
             LIMIT/count:i?}",
        )
        .about(
            STREAM,
            "5.0.0",
            "O(N) for N entries trimmed, or left if those are fewer",
            "Cuts off the oldest entries.",
        ),
    command("xsetid", -3, Handler::Write(edit::xsetid))
        .keys(UPDATES_KEY)
        .flags(&[DenyOom, Fast])
        .syntax("key last-id ENTRIESADDED/entries_added:i? MAXDELETEDID/max_deleted_entry_id?")
        .about(
            STREAM,
            "5.0.0",
            "O(1)",
            "Sets the last ID, as it is done to replicate streams.",
        ),
    command("xread", -4, read::XREAD)
        .keys(READS_STREAMS)
        .flags(&[ReadOnly, MovableKeys])
        .syntax("COUNT/count:i? BLOCK/milliseconds:i? STREAMS/streams{key+ id+}")
        .about(
            STREAM,
            "5.0.0",
            "O(N) for N entries returned",
            "Returns the entries behind an ID of each stream, or waits for some.",
        ),
    command("xreadgroup", -7, read::XREADGROUP)
        .keys(READS_STREAMS_IN_GROUP)
        .flags(&[MovableKeys])
        .syntax(
            "GROUP/group_consumer{group consumer} COUNT/count:i? BLOCK/milliseconds:i? NOACK!? \
             STREAMS/streams{key+ id+}",
        )
        .about(
            STREAM,
            "5.0.0",
            "O(N) for N entries returned",
            "Delivers new entries to a consumer of a group, or returns what it has not acknowledged.",
        ),
    command("xgroup", -2, Handler::Container)
        .subcommands(XGROUP)
        .about(
            STREAM,
            "5.0.0",
            "Depends on the subcommand",
            "Manages consumer groups.",
        ),
    command("xack", -4, Handler::Write(group::xack))
        .counts_lookups()
        .keys(UPDATES_KEY)
        .flags(&[Fast])
        .syntax("key group id+")
        .about(
            STREAM,
            "5.0.0",
            "O(1) for each entry",
            "Acknowledges entries that were delivered.",
        ),
    command("xpending", -3, Handler::Read(pending::xpending))
        .keys(READS_KEY)
        .tips(ANY_OUTPUT)
        .syntax("key group filters{IDLE/min-idle-time:i? start end count:i consumer?}?")
        .about(
            STREAM,
            "5.0.0",
            "O(N) for N entries returned",
            "Tells which entries were delivered and not acknowledged.",
        ),
    command("xclaim", -6, Handler::Write(pending::xclaim))
        .counts_lookups()
        .keys(UPDATES_KEY)
        .flags(&[Fast])
        .tips(ANY_OUTPUT)
        .syntax(
            "key group consumer min-idle-time id+ IDLE/ms:i? TIME/unix-time-milliseconds:u? \
             RETRYCOUNT/count:i? FORCE!? JUSTID!? LASTID/id?",
        )
        .about(
            STREAM,
            "5.0.0",
            "O(1) for each entry",
            "Gives entries that are pending to another consumer.",
        ),
    command("xautoclaim", -6, Handler::Write(pending::xautoclaim))
        .counts_lookups()
        .keys(DELETES_FROM_KEY)
        .flags(&[Fast])
        .tips(ANY_OUTPUT)
        .syntax("key group consumer min-idle-time start COUNT/count:i? JUSTID!?")
        .about(
            STREAM,
            "6.2.0",
            "O(N) for N entries looked at",
            "Gives entries that have been pending for long to another consumer.",
        ),
    command("xinfo", -2, Handler::Container)
        .subcommands(XINFO)
        .about(
            STREAM,
            "5.0.0",
            "Depends on the subcommand",
            "Tells about a stream and its consumer groups.",
        ),
];

const XGROUP: &[Command] = &[
    command("create", -5, Handler::Write(group::create))
        .keys(INSERTS_INTO_SECOND)
        .flags(&[DenyOom])
        .usage("<key> <groupname> <id|$> [MKSTREAM] [ENTRIESREAD <n>]")
        .syntax("key groupname id(id|$/new_id!) MKSTREAM!? ENTRIESREAD/entries_read:i?")
        .about(STREAM, "5.0.0", "O(1)", "Creates a consumer group."),
    command("createconsumer", 5, Handler::Write(group::create_consumer))
        .keys(INSERTS_INTO_SECOND)
        .flags(&[DenyOom])
        .usage("<key> <groupname> <consumername>")
        .syntax("key groupname consumername")
        .about(STREAM, "6.2.0", "O(1)", "Creates a consumer of a group."),
    command("delconsumer", 5, Handler::Write(group::delete_consumer))
        .keys(DELETES_FROM_SECOND)
        .usage("<key> <groupname> <consumername>")
        .syntax("key groupname consumername")
        .about(
            STREAM,
            "5.0.0",
            "O(N) for N entries that it has pending",
            "Deletes a consumer, and what it has pending.",
        ),
    command("destroy", 4, Handler::Write(group::destroy))
        .keys(DELETES_FROM_SECOND)
        .usage("<key> <groupname>")
        .syntax("key groupname")
        .about(
            STREAM,
            "5.0.0",
            "O(N) for N entries that are pending",
            "Deletes a consumer group.",
        ),
    command("setid", -5, Handler::Write(group::set_id))
        .keys(UPDATES_SECOND)
        .usage("<key> <groupname> <id|$> [ENTRIESREAD <n>]")
        .syntax("key groupname id(id|$/new_id!) ENTRIESREAD/entries_read:i?")
        .about(
            STREAM,
            "5.0.0",
            "O(1)",
            "Sets the last entry that was delivered to a group.",
        ),
    command("help", 2, Handler::Session(help))
        .flags(HELPS)
        .about(STREAM, "5.0.0", "O(1)", "Prints this help."),
];

const XINFO: &[Command] = &[
    command("consumers", 4, Handler::Read(info::consumers))
        .keys(READS_SECOND)
        .tips(ANY_OUTPUT)
        .usage("<key> <groupname>")
        .syntax("key groupname")
        .about(
            STREAM,
            "5.0.0",
            "O(1) for each consumer",
            "Tells about the consumers of a group.",
        ),
    command("groups", 3, Handler::Read(info::groups))
        .keys(READS_SECOND)
        .usage("<key>")
        .syntax("key")
        .about(
            STREAM,
            "5.0.0",
            "O(1) for each group",
            "Tells about the consumer groups of a stream.",
        ),
    command("stream", -3, Handler::Read(info::stream))
        .keys(READS_SECOND)
        .usage("<key> [FULL [COUNT <count>]]")
        .syntax("key FULL/full{COUNT/count:i?}?")
        .about(STREAM, "5.0.0", "O(1)", "Tells about a stream."),
    command("help", 2, Handler::Session(help))
        .flags(HELPS)
        .about(STREAM, "5.0.0", "O(1)", "Prints this help."),
];

const HELPS: &[super::Flag] = &[super::Flag::Loading, super::Flag::Stale];
