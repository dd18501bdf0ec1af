//! SORT, mostly of lists, by what they hold and by what that leads to: the names of other keys are short, and made of
//! a letter and a number, so `s*` leads from an element to a string.

use super::grammar::Family;

pub const FAMILY: Family = Family {
    home: Some('l'),
    weight: 5,
    commands: &[
        (3, "RPUSH <key> (0|1|2|3|4|5|0|1|2)+"),
        (3, "SORT <key> [ASC|DESC] [LIMIT <int> <int>]"),
        (3, "SORT <key> [ASC|DESC] [LIMIT <int> <int>] ALPHA"),
        (
            4,
            "SORT <key> [BY <lookup>] [LIMIT <int> <int>] [GET <lookup>] [GET <lookup>] [ASC|DESC] [ALPHA]",
        ),
        (
            3,
            "SORT <key> [BY <lookup>] [LIMIT <int> <int>] [GET <lookup>] [ASC|DESC] ALPHA STORE <key>",
        ),
        (
            2,
            "SORT_RO <key> [BY <lookup>] [LIMIT <int> <int>] [GET <lookup>] [ASC|DESC] [ALPHA]",
        ),
    ],
};
