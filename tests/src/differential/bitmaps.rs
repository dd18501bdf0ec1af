//! Bitmaps: the same strings, bit by bit.

use super::grammar::Family;

pub const FAMILY: Family = Family {
    home: Some('s'),
    weight: 6,
    commands: &[
        (3, "BITCOUNT <key>"),
        (4, "BITCOUNT <key> <index> <index> [BYTE|BIT]"),
        (2, "BITPOS <key> (0|1)"),
        (4, "BITPOS <key> (0|1) <index> [<index>] [BYTE|BIT]"),
        (1, "BITPOS <key> <int> <index>"),
        (2, "BITOP (AND|OR|XOR) <key> <key>+"),
        (1, "BITOP NOT <key> <key>"),
        (3, "BITFIELD <key> GET (u8|i16|u63|i64|u1|i7) <offset>"),
        (
            2,
            "BITFIELD <key> SET (u8|i16|u63|i64|u1|i7) <offset> <int>",
        ),
        (
            2,
            "BITFIELD <key> SET (u8|i16|i32|u5) (#0|#1|#7|#300) <int>",
        ),
        (
            3,
            "BITFIELD <key> [OVERFLOW (WRAP|SAT|FAIL)] INCRBY (u8|i16|u63|i64|u1) <offset> <int>",
        ),
        (
            2,
            "BITFIELD <key> GET u8 <offset> SET i5 <offset> <int> OVERFLOW FAIL INCRBY u2 <offset> 1",
        ),
        (2, "BITFIELD_RO <key> GET (u8|i16|u63|i64) <offset>"),
    ],
};
