//! Strings: what they hold, how they grow across the chunks of a large value, and how they count.

use super::grammar::Family;

pub const FAMILY: Family = Family {
    home: Some('s'),
    weight: 22,
    commands: &[
        (
            8,
            "SET <key> <value> [NX|XX] [GET] [EX <ttl>|PX <pttl>|EXAT <at>|PXAT <pat>|KEEPTTL]",
        ),
        (5, "SET <key> <value>"),
        (5, "SET <key> <int>"),
        (2, "SET <key> <float>"),
        (6, "GET <key>"),
        (2, "GETSET <key> <value>"),
        (2, "GETDEL <key>"),
        (
            4,
            "GETEX <key> [EX <ttl>|PX <pttl>|EXAT <at>|PXAT <pat>|PERSIST]",
        ),
        (2, "SETNX <key> <value>"),
        (2, "SETEX <key> <ttl> <value>"),
        (2, "PSETEX <key> <pttl> <value>"),
        (3, "MSET (<key> <value>)+"),
        (2, "MSETNX (<key> <value>)+"),
        (3, "MGET <key>+"),
        (6, "APPEND <key> <value>"),
        (4, "STRLEN <key>"),
        (7, "GETRANGE <key> <index> <index>"),
        (2, "SUBSTR <key> <index> <index>"),
        (6, "SETRANGE <key> <offset> <value>"),
        (3, "SETBIT <key> <offset> 1"),
        (2, "SETBIT <key> <offset> 0"),
        (1, "SETBIT <key> <int> <int>"),
        (4, "GETBIT <key> <offset>"),
        (1, "GETBIT <key> <int>"),
        (3, "INCR <key>"),
        (3, "DECR <key>"),
        (4, "INCRBY <key> <int>"),
        (3, "DECRBY <key> <int>"),
        (5, "INCRBYFLOAT <key> <float>"),
        (
            3,
            "LCS <key> <key> [LEN] [IDX] [MINMATCHLEN <count>] [WITHMATCHLEN]",
        ),
    ],
};
