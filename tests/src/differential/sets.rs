//! Sets: membership, random picks, and the algebra of several sets.

use super::grammar::Family;

pub const FAMILY: Family = Family {
    home: Some('t'),
    weight: 15,
    commands: &[
        (10, "SADD <key> <member>+"),
        (4, "SREM <key> <member>+"),
        (3, "SISMEMBER <key> <member>"),
        (3, "SMISMEMBER <key> <member>+"),
        (3, "SCARD <key>"),
        (3, "SMEMBERS <key>"),
        (3, "SMOVE <key> <key> <member>"),
        (1, "SPOP <key>"),
        (2, "SPOP <key> <count>"),
        (1, "SRANDMEMBER <key>"),
        (3, "SRANDMEMBER <key> <pick>"),
        (3, "SINTER <key>+"),
        (3, "SINTERCARD <keys> [LIMIT <count>]"),
        (2, "SINTERSTORE <key> <key>+"),
        (3, "SUNION <key>+"),
        (2, "SUNIONSTORE <key> <key>+"),
        (3, "SDIFF <key>+"),
        (2, "SDIFFSTORE <key> <key>+"),
        (3, "SSCAN <key> <cursor> [MATCH <pattern>] [COUNT <count>]"),
    ],
};
