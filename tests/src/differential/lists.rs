//! Lists: both ends, the middle, and moves from one list to another (or within one).

use super::grammar::Family;

pub const FAMILY: Family = Family {
    home: Some('l'),
    weight: 17,
    commands: &[
        (8, "LPUSH <key> <element>+"),
        (8, "RPUSH <key> <element>+"),
        (2, "LPUSHX <key> <element>+"),
        (2, "RPUSHX <key> <element>+"),
        (3, "LPOP <key>"),
        (3, "RPOP <key>"),
        (3, "LPOP <key> <count>"),
        (3, "RPOP <key> <count>"),
        (3, "LLEN <key>"),
        (4, "LINDEX <key> <index>"),
        (4, "LSET <key> <index> <element>"),
        (6, "LRANGE <key> <index> <index>"),
        (2, "LTRIM <key> <index> <index>"),
        (4, "LREM <key> <int> <element>"),
        (4, "LINSERT <key> (BEFORE|AFTER) <element> <element>"),
        (
            5,
            "LPOS <key> <element> [RANK <int>] [COUNT <count>] [MAXLEN <count>]",
        ),
        (4, "LMOVE <key> <key> (LEFT|RIGHT) (LEFT|RIGHT)"),
        (3, "RPOPLPUSH <key> <key>"),
        (3, "LMPOP <keys> (LEFT|RIGHT) [COUNT <count>]"),
    ],
};
