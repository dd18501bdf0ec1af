//! Sorted sets: by rank, by score, by name, and the algebra of several of them.
//!
//! Order by name means something only while all scores are equal, so it has keys of its own
//! (`<lexkey>`) on which most members score 0.

use super::grammar::Family;

pub const FAMILY: Family = Family {
    home: Some('z'),
    weight: 25,
    commands: &[
        (10, "ZADD <key> (<score> <member>)+"),
        (5, "ZADD <key> [NX|XX|GT|LT] [CH] (<score> <member>)+"),
        (3, "ZADD <key> [NX|XX|GT|LT] INCR <score> <member>"),
        (
            3,
            "ZADD <key> [NX|XX] [GT|LT] [CH] [INCR] (<score> <member>)+",
        ),
        (8, "ZADD <lexkey> (0 <member>)+"),
        (4, "ZREM <key> <member>+"),
        (3, "ZSCORE <key> <member>"),
        (2, "ZMSCORE <key> <member>+"),
        (3, "ZCARD <key>"),
        (4, "ZINCRBY <key> <score> <member>"),
        (3, "ZRANK <key> <member>"),
        (3, "ZREVRANK <key> <member>"),
        (4, "ZCOUNT <key> <scorebound> <scorebound>"),
        (3, "ZLEXCOUNT <lexkey> <lexbound> <lexbound>"),
        (4, "ZRANGE <key> <index> <index> [REV] [WITHSCORES]"),
        (
            4,
            "ZRANGE <key> <scorebound> <scorebound> BYSCORE [REV] [LIMIT <int> <int>] [WITHSCORES]",
        ),
        (
            2,
            "ZRANGE <lexkey> <lexbound> <lexbound> BYLEX [REV] [LIMIT <int> <int>]",
        ),
        (2, "ZRANGESTORE <key> <key> <index> <index> [REV]"),
        (
            2,
            "ZRANGESTORE <key> <key> <scorebound> <scorebound> BYSCORE [REV] [LIMIT <int> <int>]",
        ),
        (
            1,
            "ZRANGESTORE <lexkey> <lexkey> <lexbound> <lexbound> BYLEX [REV] [LIMIT <int> <int>]",
        ),
        (3, "ZREVRANGE <key> <index> <index> [WITHSCORES]"),
        (
            3,
            "ZRANGEBYSCORE <key> <scorebound> <scorebound> [WITHSCORES] [LIMIT <int> <int>]",
        ),
        (
            3,
            "ZREVRANGEBYSCORE <key> <scorebound> <scorebound> [WITHSCORES] [LIMIT <int> <int>]",
        ),
        (
            2,
            "ZRANGEBYLEX <lexkey> <lexbound> <lexbound> [LIMIT <int> <int>]",
        ),
        (
            2,
            "ZREVRANGEBYLEX <lexkey> <lexbound> <lexbound> [LIMIT <int> <int>]",
        ),
        (2, "ZREMRANGEBYRANK <key> <index> <index>"),
        (2, "ZREMRANGEBYSCORE <key> <scorebound> <scorebound>"),
        (1, "ZREMRANGEBYLEX <lexkey> <lexbound> <lexbound>"),
        (2, "ZPOPMIN <key> [<count>]"),
        (2, "ZPOPMAX <key> [<count>]"),
        (3, "ZMPOP <keys> (MIN|MAX) [COUNT <count>]"),
        (1, "ZRANDMEMBER <key>"),
        (3, "ZRANDMEMBER <key> <pick> [WITHSCORES]"),
        (
            3,
            "ZUNION <keys> [WEIGHTS <weights>] [AGGREGATE (SUM|MIN|MAX)] [WITHSCORES]",
        ),
        (
            3,
            "ZUNIONSTORE <key> <keys> [WEIGHTS <weights>] [AGGREGATE (SUM|MIN|MAX)]",
        ),
        (
            3,
            "ZINTER <keys> [WEIGHTS <weights>] [AGGREGATE (SUM|MIN|MAX)] [WITHSCORES]",
        ),
        (
            2,
            "ZINTERSTORE <key> <keys> [WEIGHTS <weights>] [AGGREGATE (SUM|MIN|MAX)]",
        ),
        (3, "ZINTERCARD <keys> [LIMIT <count>]"),
        (3, "ZDIFF <keys> [WITHSCORES]"),
        (2, "ZDIFFSTORE <key> <keys>"),
        (3, "ZSCAN <key> <cursor> [MATCH <pattern>] [COUNT <count>]"),
    ],
};
