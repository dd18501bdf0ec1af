//! Dumps: what Redis has written, and what each server makes of its own.

use std::sync::LazyLock;

use super::grammar::Family;

pub const FAMILY: Family = Family {
    home: None,
    weight: 6,
    commands: &[
        (1, "DUMP <key>"),
        (4, "EVAL <handover> 2 <key> <key> <pttl>"),
        (
            3,
            "RESTORE <key> <pttl> <payload> [REPLACE] [ABSTTL] [IDLETIME <int>|FREQ <count>]",
        ),
        (1, "RESTORE <key> <pat> <payload> ABSTTL [REPLACE]"),
    ],
};

/// Gives one key the value of another, by way of a dump: at once, or only if it is free.
pub const HAND_OVER: [&str; 2] = [
    "local dump = redis.call('DUMP', KEYS[1]) \
     if not dump then return 'nothing' end \
     return redis.call('RESTORE', KEYS[2], ARGV[1], dump, 'REPLACE')",
    "local dump = redis.call('DUMP', KEYS[1]) \
     if not dump then return 'nothing' end \
     return redis.pcall('RESTORE', KEYS[2], ARGV[1], dump)",
];

/// Payloads of every form.
pub static PAYLOADS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let golden = include_str!("../../../crates/rdb/tests/golden.txt").lines();
    let payloads = golden.filter_map(|line| line.split(" | ").nth(2));
    payloads.map(bytes_of).collect()
});

fn bytes_of(hex: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex digits");
    (0..hex.len()).step_by(2).map(digit).collect()
}
