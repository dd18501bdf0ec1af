//! Keys of any type: their life, their names, their databases and the time they have left.

use super::grammar::Family;

pub const FAMILY: Family = Family {
    home: None,
    weight: 18,
    commands: &[
        (15, "DEL <key>+"),
        (9, "UNLINK <key>+"),
        (12, "EXISTS <key>+"),
        (12, "TYPE <key>"),
        (6, "TOUCH <key>+"),
        (15, "RENAME <key> <key>"),
        (12, "RENAMENX <key> <key>"),
        (18, "COPY <key> <key> [DB <db>] [REPLACE]"),
        (9, "MOVE <key> <db>"),
        (9, "KEYS <pattern>"),
        (
            12,
            "SCAN <cursor> [MATCH <pattern>] [COUNT <count>] [TYPE <type>]",
        ),
        (6, "RANDOMKEY"),
        (12, "DBSIZE"),
        (15, "EXPIRE <key> <ttl> [NX|XX|GT|LT]"),
        (15, "PEXPIRE <key> <pttl> [NX|XX|GT|LT]"),
        (15, "EXPIREAT <key> <at> [NX|XX|GT|LT]"),
        (15, "PEXPIREAT <key> <pat> [NX|XX|GT|LT]"),
        (6, "EXPIRE <key> <ttl> [NX] [XX] [GT] [LT]"),
        (12, "TTL <key>"),
        (12, "PTTL <key>"),
        (9, "EXPIRETIME <key>"),
        (9, "PEXPIRETIME <key>"),
        (9, "PERSIST <key>"),
        (9, "OBJECT (ENCODING|REFCOUNT|IDLETIME|FREQ) <key>"),
        (1, "FLUSHDB [ASYNC|SYNC]"),
        (1, "FLUSHALL [ASYNC|SYNC]"),
        (6, "SWAPDB <db> <db>"),
        (6, "SELECT <db>"),
    ],
};
