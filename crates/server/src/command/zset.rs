//! Commands on sorted sets.

mod algebra;
mod bound;
mod member;
mod pop;
mod random;
mod range;
mod reply;
mod sorted;
mod window;

pub(super) use pop::{parse_pops, pop_first, pop_one, pop_word};
pub(super) use window::{OVERHEAD, WINDOW, Window};

use super::flags::Flag::{DenyOom, Fast, MovableKeys};
use super::keys::{Access, KeySpec, Keys, Place};
use super::{Args, Command, Handler, command};

const GROUP: &str = "sorted-set";

const READS_KEY: Keys = Keys(&[KeySpec::at(1, Access::READ)]);
const PEEKS_AT_KEY: Keys = Keys(&[KeySpec::at(1, Access::PEEK)]);
const UPDATES_KEY: Keys = Keys(&[KeySpec::at(1, Access::UPDATE)]);
const DELETES_FROM_KEY: Keys = Keys(&[KeySpec::at(1, Access::DELETE)]);
const POPS_FROM_KEY: Keys = Keys(&[KeySpec::at(1, Access::READ_DELETE)]);
const POPS_FROM_COUNTED: Keys = Keys(&[counted(1, Access::READ_DELETE)]);
const READS_COUNTED: Keys = Keys(&[counted(1, Access::READ)]);
const STORES_COUNTED: Keys = Keys(&[KeySpec::at(1, Access::OVERWRITE), counted(2, Access::READ)]);
const STORES_RANGE: Keys = Keys(&[
    KeySpec::at(1, Access::OVERWRITE),
    KeySpec::at(2, Access::READ),
]);

const fn counted(count_at: usize, access: Access) -> KeySpec {
    KeySpec {
        access,
        place: Place::Counted { count_at },
    }
}

pub const COMMANDS: &[Command] = &[
    command("zadd", -4, Handler::Write(member::zadd))
        .keys(UPDATES_KEY)
        .flags(&[DenyOom, Fast])
        .syntax(
            "key condition(NX!|XX!)? comparison(GT!|LT!)? CH/change!? INCR/increment!? \
             score_member{score:d member}+",
        )
        .about(
            GROUP,
            "1.2.0",
            "O(log(N)) for each member",
            "Adds members, or gives them new scores.",
        ),
    command("zincrby", 4, Handler::Write(member::zincrby))
        .keys(Keys(&[KeySpec::at(1, Access::READ_UPDATE)]))
        .flags(&[DenyOom, Fast])
        .syntax("key increment:i member")
        .about(
            GROUP,
            "1.2.0",
            "O(log(N))",
            "Adds to the score of a member.",
        ),
    command("zrem", -3, Handler::Write(member::zrem))
        .keys(DELETES_FROM_KEY)
        .flags(&[Fast])
        .syntax("key member+")
        .about(
            GROUP,
            "1.2.0",
            "O(log(N)) for each member",
            "Takes members out.",
        ),
    command("zscore", 3, Handler::Point(member::zscore))
        .keys(READS_KEY)
        .flags(&[Fast])
        .syntax("key member")
        .about(GROUP, "1.2.0", "O(1)", "Returns the score of a member."),
    command("zmscore", -3, Handler::Read(member::zmscore))
        .keys(READS_KEY)
        .flags(&[Fast])
        .syntax("key member+")
        .about(
            GROUP,
            "6.2.0",
            "O(1) for each member",
            "Returns the scores of members.",
        ),
    command("zcard", 2, Handler::Point(member::zcard))
        .keys(PEEKS_AT_KEY)
        .flags(&[Fast])
        .syntax("key")
        .about(GROUP, "1.2.0", "O(1)", "Returns the number of members."),
    command("zrank", 3, Handler::Read(member::zrank))
        .keys(READS_KEY)
        .flags(&[Fast])
        .syntax("key member")
        .about(
            GROUP,
            "2.0.0",
            "O(N)",
            "Returns how many members come before one, lowest score first.",
        ),
    command("zrevrank", 3, Handler::Read(member::zrevrank))
        .keys(READS_KEY)
        .flags(&[Fast])
        .syntax("key member")
        .about(
            GROUP,
            "2.0.0",
            "O(N)",
            "Returns how many members come before one, highest score first.",
        ),
    command("zcount", 4, Handler::Read(range::zcount))
        .keys(READS_KEY)
        .flags(&[Fast])
        .syntax("key min:d max:d")
        .about(
            GROUP,
            "2.0.0",
            "O(log(N)+M) for M members counted",
            "Counts the members in a range of scores.",
        ),
    command("zlexcount", 4, Handler::Read(range::zlexcount))
        .keys(READS_KEY)
        .flags(&[Fast])
        .syntax("key min max")
        .about(
            GROUP,
            "2.8.9",
            "O(log(N)+M) for M members counted",
            "Counts the members in a range of members.",
        ),
    command("zrange", -4, Handler::Read(range::zrange))
        .keys(READS_KEY)
        .syntax(
            "key start stop sortby(BYSCORE!|BYLEX!)? REV!? LIMIT/offset_count{offset:i count:i}? \
             WITHSCORES!?",
        )
        .about(
            GROUP,
            "1.2.0",
            "O(log(N)+M) for M members returned",
            "Returns the members in a range of ranks, scores or members.",
        ),
    command("zrangestore", -5, Handler::Write(range::zrangestore))
        .counts_lookups()
        .keys(STORES_RANGE)
        .flags(&[DenyOom])
        .syntax(
            "dst:k src:k min max sortby(BYSCORE!|BYLEX!)? REV!? LIMIT/offset_count{offset:i \
             count:i}?",
        )
        .about(
            GROUP,
            "6.2.0",
            "O(log(N)+M) for M members stored",
            "Stores the members in a range under another key.",
        ),
    command("zrevrange", -4, Handler::Read(range::zrevrange))
        .keys(READS_KEY)
        .syntax("key start:i stop:i WITHSCORES!?")
        .deprecated("6.2.0", "`ZRANGE` with the `REV` argument")
        .about(
            GROUP,
            "1.2.0",
            "O(log(N)+M) for M members returned",
            "Returns the members in a range of ranks, highest score first.",
        ),
    command("zrangebyscore", -4, Handler::Read(range::zrangebyscore))
        .keys(READS_KEY)
        .syntax("key min:d max:d WITHSCORES!? LIMIT/offset_count{offset:i count:i}?")
        .deprecated("6.2.0", "`ZRANGE` with the `BYSCORE` argument")
        .about(
            GROUP,
            "1.0.5",
            "O(log(N)+M) for M members returned",
            "Returns the members in a range of scores.",
        ),
    command(
        "zrevrangebyscore",
        -4,
        Handler::Read(range::zrevrangebyscore),
    )
    .keys(READS_KEY)
    .syntax("key max:d min:d WITHSCORES!? LIMIT/offset_count{offset:i count:i}?")
    .deprecated("6.2.0", "`ZRANGE` with the `REV` and `BYSCORE` arguments")
    .about(
        GROUP,
        "2.2.0",
        "O(log(N)+M) for M members returned",
        "Returns the members in a range of scores, highest first.",
    ),
    command("zrangebylex", -4, Handler::Read(range::zrangebylex))
        .keys(READS_KEY)
        .syntax("key min max LIMIT/offset_count{offset:i count:i}?")
        .deprecated("6.2.0", "`ZRANGE` with the `BYLEX` argument")
        .about(
            GROUP,
            "2.8.9",
            "O(log(N)+M) for M members returned",
            "Returns the members in a range of members.",
        ),
    command("zrevrangebylex", -4, Handler::Read(range::zrevrangebylex))
        .keys(READS_KEY)
        .syntax("key max min LIMIT/offset_count{offset:i count:i}?")
        .deprecated("6.2.0", "`ZRANGE` with the `REV` and `BYLEX` arguments")
        .about(
            GROUP,
            "2.8.9",
            "O(log(N)+M) for M members returned",
            "Returns the members in a range of members, last first.",
        ),
    command("zremrangebyrank", 4, Handler::Write(range::zremrangebyrank))
        .keys(DELETES_FROM_KEY)
        .syntax("key start:i stop:i")
        .about(
            GROUP,
            "2.0.0",
            "O(N+M) for M members removed",
            "Takes out the members in a range of ranks.",
        ),
    command(
        "zremrangebyscore",
        4,
        Handler::Write(range::zremrangebyscore),
    )
    .keys(DELETES_FROM_KEY)
    .syntax("key min:d max:d")
    .about(
        GROUP,
        "1.2.0",
        "O(log(N)+M) for M members removed",
        "Takes out the members in a range of scores.",
    ),
    command("zremrangebylex", 4, Handler::Write(range::zremrangebylex))
        .keys(DELETES_FROM_KEY)
        .syntax("key min max")
        .about(
            GROUP,
            "2.8.9",
            "O(log(N)+M) for M members removed",
            "Takes out the members in a range of members.",
        ),
    command("zpopmin", -2, Handler::Write(pop::zpopmin))
        .keys(POPS_FROM_KEY)
        .flags(&[Fast])
        .syntax("key count:i?")
        .about(
            GROUP,
            "5.0.0",
            "O(log(N)) for each member",
            "Takes out and returns the members with the lowest scores.",
        ),
    command("zpopmax", -2, Handler::Write(pop::zpopmax))
        .keys(POPS_FROM_KEY)
        .flags(&[Fast])
        .syntax("key count:i?")
        .about(
            GROUP,
            "5.0.0",
            "O(log(N)) for each member",
            "Takes out and returns the members with the highest scores.",
        ),
    command("zmpop", -4, Handler::Write(pop::zmpop))
        .keys(POPS_FROM_COUNTED)
        .flags(&[MovableKeys])
        .syntax("numkeys:i key+ where(MIN!|MAX!) COUNT/count:i?")
        .about(
            GROUP,
            "7.0.0",
            "O(K)+O(log(N)) for K keys and for each member",
            "Takes members out of the first of several keys that has any.",
        ),
    command("zrandmember", -2, Handler::Read(random::zrandmember))
        .keys(READS_KEY)
        .tips(&["nondeterministic_output"])
        .syntax("key options{count:i WITHSCORES!?}?")
        .about(GROUP, "6.2.0", "O(N)", "Returns members picked at random."),
    command("zunion", -3, Handler::Read(algebra::zunion))
        .keys(READS_COUNTED)
        .flags(&[MovableKeys])
        .syntax(
            "numkeys:i key+ WEIGHTS/weight:i?+ AGGREGATE/aggregate(SUM!|MIN!|MAX!)? WITHSCORES!?",
        )
        .about(
            GROUP,
            "6.2.0",
            "O(N)+O(M*log(M)) for N members in all and M returned",
            "Returns the members of any of several keys.",
        ),
    command("zunionstore", -4, Handler::Write(algebra::zunionstore))
        .counts_lookups()
        .keys(STORES_COUNTED)
        .flags(&[DenyOom, MovableKeys])
        .syntax(
            "destination:k numkeys:i key+ WEIGHTS/weight:i?+ AGGREGATE/aggregate(SUM!|MIN!|MAX!)?",
        )
        .about(
            GROUP,
            "2.0.0",
            "O(N)+O(M*log(M)) for N members in all and M stored",
            "Stores the members of any of several keys.",
        ),
    command("zinter", -3, Handler::Read(algebra::zinter))
        .keys(READS_COUNTED)
        .flags(&[MovableKeys])
        .syntax(
            "numkeys:i key+ WEIGHTS/weight:i?+ AGGREGATE/aggregate(SUM!|MIN!|MAX!)? WITHSCORES!?",
        )
        .about(
            GROUP,
            "6.2.0",
            "O(N*K)+O(M*log(M)) for N members in the smallest of K keys and M returned",
            "Returns the members that several keys have in common.",
        ),
    command("zinterstore", -4, Handler::Write(algebra::zinterstore))
        .counts_lookups()
        .keys(STORES_COUNTED)
        .flags(&[DenyOom, MovableKeys])
        .syntax(
            "destination:k numkeys:i key+ WEIGHTS/weight:i?+ AGGREGATE/aggregate(SUM!|MIN!|MAX!)?",
        )
        .about(
            GROUP,
            "2.0.0",
            "O(N*K)+O(M*log(M)) for N members in the smallest of K keys and M stored",
            "Stores the members that several keys have in common.",
        ),
    command("zintercard", -3, Handler::Read(algebra::zintercard))
        .keys(READS_COUNTED)
        .flags(&[MovableKeys])
        .syntax("numkeys:i key+ LIMIT/limit:i?")
        .about(
            GROUP,
            "7.0.0",
            "O(N*K) for N members in the smallest of K keys",
            "Counts the members that several keys have in common.",
        ),
    command("zdiff", -3, Handler::Read(algebra::zdiff))
        .keys(READS_COUNTED)
        .flags(&[MovableKeys])
        .syntax("numkeys:i key+ WITHSCORES!?")
        .about(
            GROUP,
            "6.2.0",
            "O(N)+O(M*log(M)) for N members in all and M returned",
            "Returns the members of the first key that are in none of the others.",
        ),
    command("zdiffstore", -4, Handler::Write(algebra::zdiffstore))
        .counts_lookups()
        .keys(STORES_COUNTED)
        .flags(&[DenyOom, MovableKeys])
        .syntax("destination:k numkeys:i key+")
        .about(
            GROUP,
            "6.2.0",
            "O(N)+O(M*log(M)) for N members in all and M stored",
            "Stores the members of the first key that are in none of the others.",
        ),
];
