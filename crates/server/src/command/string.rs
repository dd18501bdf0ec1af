//! Commands on strings.
//!
//! A value above 16 KiB lies in chunks: replies that show one are written chunk by chunk (`reply`), and
//! writes touch the chunks they fall into. No string is longer than the longest argument.

mod counter;
mod get;
mod lcs;
mod range;
mod reply;
mod set;

pub use counter::{NOT_FINITE, WOULD_OVERFLOW};

use std::sync::atomic::Ordering;

use cairn_store::ReadTxn;

use super::args::is;
use super::flags::Flag::{DenyOom, Fast};
use super::keys::{Access, KeySpec, Keys, Place, Purpose};
use super::{Args, Command, Handler, command};

const GROUP: &str = "string";

const fn keys_from_first(last: i32, step: usize, access: Access) -> KeySpec {
    let first = 1;
    KeySpec {
        access,
        place: Place::Range { first, last, step },
    }
}

const INSERT_IF_ABSENT: Access = Access::Overwrite(Purpose::Insert);

const READS: Keys = Keys(&[KeySpec::at(1, Access::READ)]);
const OVERWRITES: Keys = Keys(&[KeySpec::at(1, Access::OVERWRITE)]);
const READS_AND_UPDATES: Keys = Keys(&[KeySpec::at(1, Access::READ_UPDATE)]);

pub const COMMANDS: &[Command] = &[
    command("get", 2, Handler::Point(get::get))
        .keys(READS)
        .flags(&[Fast])
        .syntax("key")
        .about(GROUP, "1.0.0", "O(1)", "Returns the value of a key."),
    command("set", -3, Handler::Write(set::set))
        .counts_lookups()
        .keys(READS_AND_UPDATES)
        .access(access_of_set)
        .flags(&[DenyOom])
        .syntax(
            "key value condition(NX!|XX!)? GET!? expiration(EX/seconds:i|PX/milliseconds:i|\
             EXAT/unix-time-seconds:u|PXAT/unix-time-milliseconds:u|KEEPTTL!)?",
        )
        .notes(&["RW and ACCESS due to the optional `GET` argument"])
        .about(GROUP, "1.0.0", "O(1)", "Sets a key to a value."),
    command("getset", 3, Handler::Write(set::getset))
        .counts_lookups()
        .keys(READS_AND_UPDATES)
        .flags(&[DenyOom, Fast])
        .syntax("key value")
        .deprecated("6.2.0", "`SET` with the `!GET` argument")
        .about(
            GROUP,
            "1.0.0",
            "O(1)",
            "Sets a key to a value and returns the old one.",
        ),
    command("getdel", 2, Handler::Write(get::getdel))
        .counts_lookups()
        .keys(Keys(&[KeySpec::at(1, Access::READ_DELETE)]))
        .flags(&[Fast])
        .syntax("key")
        .about(
            GROUP,
            "6.2.0",
            "O(1)",
            "Deletes a key and returns the value it had.",
        ),
    command("getex", -2, Handler::Write(get::getex))
        .counts_lookups()
        .keys(READS_AND_UPDATES)
        .flags(&[Fast])
        .syntax(
            "key expiration(EX/seconds:i|PX/milliseconds:i|EXAT/unix-time-seconds:u|\
             PXAT/unix-time-milliseconds:u|PERSIST!)?",
        )
        .notes(&["RW and UPDATE because it changes the TTL"])
        .about(
            GROUP,
            "6.2.0",
            "O(1)",
            "Returns the value of a key and changes when it expires.",
        ),
    command("setnx", 3, Handler::Write(set::setnx))
        .keys(Keys(&[KeySpec::at(1, INSERT_IF_ABSENT)]))
        .flags(&[DenyOom, Fast])
        .syntax("key value")
        .about(
            GROUP,
            "1.0.0",
            "O(1)",
            "Sets a key to a value unless it exists.",
        ),
    command("setex", 4, Handler::Write(set::setex))
        .keys(OVERWRITES)
        .flags(&[DenyOom])
        .syntax("key seconds:i value")
        .about(
            GROUP,
            "2.0.0",
            "O(1)",
            "Sets a key to a value that lives for some seconds.",
        ),
    command("psetex", 4, Handler::Write(set::psetex))
        .keys(OVERWRITES)
        .flags(&[DenyOom])
        .syntax("key milliseconds:i value")
        .about(
            GROUP,
            "2.6.0",
            "O(1)",
            "Sets a key to a value that lives for some milliseconds.",
        ),
    command("mset", -3, Handler::Write(set::mset))
        .keys(Keys(&[keys_from_first(-1, 2, Access::OVERWRITE)]))
        .flags(&[DenyOom])
        .tips(&[
            "request_policy:multi_shard",
            "response_policy:all_succeeded",
        ])
        .syntax("key_value{key value}+")
        .about(
            GROUP,
            "1.0.1",
            "O(N) for N keys",
            "Sets several keys at once.",
        ),
    command("msetnx", -3, Handler::Write(set::msetnx))
        .keys(Keys(&[keys_from_first(-1, 2, INSERT_IF_ABSENT)]))
        .flags(&[DenyOom])
        .tips(&["request_policy:multi_shard", "response_policy:agg_min"])
        .syntax("key_value{key value}+")
        .about(
            GROUP,
            "1.0.1",
            "O(N) for N keys",
            "Sets several keys at once if none of them exists.",
        ),
    command("mget", -2, Handler::Read(get::mget))
        .keys(Keys(&[keys_from_first(-1, 1, Access::READ)]))
        .flags(&[Fast])
        .tips(&["request_policy:multi_shard"])
        .syntax("key+")
        .about(
            GROUP,
            "1.0.0",
            "O(N) for N keys",
            "Returns the values of several keys.",
        ),
    command("append", 3, Handler::Write(range::append))
        .keys(Keys(&[KeySpec::at(1, Access::INSERT)]))
        .flags(&[DenyOom, Fast])
        .syntax("key value")
        .about(
            GROUP,
            "2.0.0",
            "O(N) for N bytes appended",
            "Appends bytes to a value.",
        ),
    command("strlen", 2, Handler::Point(range::strlen))
        .keys(Keys(&[KeySpec::at(1, Access::PEEK)]))
        .flags(&[Fast])
        .syntax("key")
        .about(GROUP, "2.2.0", "O(1)", "Returns the length of a value."),
    command("getrange", 4, Handler::Point(range::getrange))
        .keys(READS)
        .syntax("key start:i end:i")
        .about(
            GROUP,
            "2.4.0",
            "O(N) for N bytes returned",
            "Returns a part of a value.",
        ),
    command("substr", 4, Handler::Point(range::getrange))
        .keys(READS)
        .syntax("key start:i end:i")
        .deprecated("2.0.0", "`GETRANGE`")
        .about(
            GROUP,
            "1.0.0",
            "O(N) for N bytes returned",
            "Returns a part of a value: the old name of GETRANGE.",
        ),
    command("setrange", 4, Handler::Write(range::setrange))
        .keys(Keys(&[KeySpec::at(1, Access::UPDATE)]))
        .flags(&[DenyOom])
        .syntax("key offset:i value")
        .about(
            GROUP,
            "2.2.0",
            "O(N) for N bytes written",
            "Overwrites a part of a value, making it longer where needed.",
        ),
    command("incr", 2, Handler::Write(counter::incr))
        .keys(READS_AND_UPDATES)
        .flags(&[DenyOom, Fast])
        .syntax("key")
        .about(GROUP, "1.0.0", "O(1)", "Adds one to a whole number."),
    command("decr", 2, Handler::Write(counter::decr))
        .keys(READS_AND_UPDATES)
        .flags(&[DenyOom, Fast])
        .syntax("key")
        .about(GROUP, "1.0.0", "O(1)", "Takes one from a whole number."),
    command("incrby", 3, Handler::Write(counter::incrby))
        .keys(READS_AND_UPDATES)
        .flags(&[DenyOom, Fast])
        .syntax("key increment:i")
        .about(GROUP, "1.0.0", "O(1)", "Adds to a whole number."),
    command("decrby", 3, Handler::Write(counter::decrby))
        .keys(READS_AND_UPDATES)
        .flags(&[DenyOom, Fast])
        .syntax("key decrement:i")
        .about(GROUP, "1.0.0", "O(1)", "Takes from a whole number."),
    command("incrbyfloat", 3, Handler::Write(counter::incrbyfloat))
        .keys(READS_AND_UPDATES)
        .flags(&[DenyOom, Fast])
        .syntax("key increment:d")
        .about(
            GROUP,
            "2.6.0",
            "O(1)",
            "Adds to a number that may have a fraction.",
        ),
    command("lcs", -3, Handler::Read(lcs::lcs))
        .keys(Keys(&[keys_from_first(2, 1, Access::READ)]))
        .syntax("key1:k key2:k LEN!? IDX!? MINMATCHLEN/len:i? WITHMATCHLEN!?")
        .about(
            GROUP,
            "7.0.0",
            "O(N*M) for strings of N and M bytes",
            "Finds the longest common subsequence of two strings.",
        ),
];

/// Only with GET does SET look at what it replaces.
fn access_of_set(args: &Args) -> Access {
    if args.rest(3).iter().any(|option| is(option, "get")) {
        Access::READ_UPDATE
    } else {
        Access::OVERWRITE
    }
}

/// How long a string may become: proto-max-bulk-len.
fn max_length(txn: &ReadTxn) -> u64 {
    txn.store().max_value_len().load(Ordering::Relaxed) as u64
}
