//! Streams: entries, and groups that read them. No ID is left to a server's clock, and nothing depends on how long
//! an entry has been pending.

use super::grammar::Family;

pub const FAMILY: Family = Family {
    home: Some('x'),
    weight: 17,
    commands: &[
        (
            14,
            "XADD <key> [NOMKSTREAM] [<trim>] <newid> (<field> <value>)+",
        ),
        (2, "XLEN <key>"),
        (4, "XRANGE <key> <idbound> <idbound> [COUNT <count>]"),
        (4, "XREVRANGE <key> <idbound> <idbound> [COUNT <count>]"),
        (4, "XDEL <key> <id>+"),
        (2, "XTRIM <key> <trim>"),
        (
            1,
            "XSETID <key> <id> [ENTRIESADDED <int>] [MAXDELETEDID <id>]",
        ),
        (4, "XREAD [COUNT <count>] STREAMS <key> (<id>|$|0)"),
        (
            1,
            "XREAD [COUNT <count>] STREAMS <key> <key> (<id>|$|0) (<id>|$|0)",
        ),
        (
            8,
            "XGROUP CREATE <key> <group> (<id>|$|0) [MKSTREAM] [ENTRIESREAD <int>]",
        ),
        (
            1,
            "XGROUP SETID <key> <group> (<idbound>|$|0) [ENTRIESREAD <int>]",
        ),
        (1, "XGROUP DESTROY <key> <group>"),
        (1, "XGROUP CREATECONSUMER <key> <group> <consumer>"),
        (1, "XGROUP DELCONSUMER <key> <group> <consumer>"),
        (
            10,
            "XREADGROUP GROUP <group> <consumer> [COUNT <count>] [NOACK] STREAMS <key> <readid>",
        ),
        (
            1,
            "XREADGROUP GROUP <group> <consumer> [COUNT <count>] STREAMS <key> <key> <readid> <readid>",
        ),
        (5, "XACK <key> <group> <id>+"),
        (2, "XPENDING <key> <group>"),
        (
            3,
            "XPENDING <key> <group> <idbound> <idbound> <count> [<consumer>]",
        ),
        (
            4,
            "XCLAIM <key> <group> <consumer> (0|100000000) <id>+ [RETRYCOUNT <count>] [FORCE] [JUSTID] \
             [LASTID <id>]",
        ),
        (
            3,
            "XAUTOCLAIM <key> <group> <consumer> (0|100000000) <idbound> [COUNT <count>] [JUSTID]",
        ),
        (2, "XINFO GROUPS <key>"),
        (1, "XINFO CONSUMERS <key> <group>"),
        (1, "XINFO STREAM <key>"),
    ],
};
