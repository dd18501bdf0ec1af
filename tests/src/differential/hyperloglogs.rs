//! HyperLogLogs: strings, so that what GET and SETRANGE make of them is compared too.

use super::grammar::Family;

pub const FAMILY: Family = Family {
    home: Some('p'),
    weight: 5,
    commands: &[
        (6, "PFADD <key> <element>+"),
        (1, "PFADD <key>"),
        (3, "PFCOUNT <key>"),
        (2, "PFCOUNT <key>+"),
        (2, "PFMERGE <key> <key>+"),
        (1, "PFMERGE <key>"),
        (2, "GET <key>"),
        (1, "COPY <key> <key> [REPLACE]"),
    ],
};
