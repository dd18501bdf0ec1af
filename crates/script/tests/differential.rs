//! Random arguments for the libraries, to Redis and to us.
//!
//! `SEED=7 CASES=100000 cargo test -p cairn-script --test differential` goes on where this ends.

#![allow(clippy::unwrap_used)]

mod common;

use std::env;

use common::notation::notation;
use common::redis::Redis;
use common::table::Server;

/// As `drand48` makes them; any would do.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(0x5_deec_e66d).wrapping_add(0xb) & ((1 << 48) - 1);
        (self.0 >> 17) as usize % limit
    }

    fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }

    fn pieces(&mut self, most: usize, choices: &[&str]) -> String {
        (0..self.below(most + 1))
            .map(|_| self.pick(choices))
            .collect()
    }
}

/// Prints what a value is, numbers with all their digits, tables in an order of their own.
const SHOW: &str = "
    local function show(v)
        if type(v) == 'number' then return string.format('%.17g', v):gsub('^-nan', 'nan') .. '' end
        if type(v) ~= 'table' then return type(v) .. ':' .. tostring(v) end
        local r = {}
        for k, x in pairs(v) do r[#r + 1] = show(k) .. '=' .. show(x) end
        table.sort(r)
        return '{' .. table.concat(r, ',') .. '}'
    end
    local r = {pcall(function() return CALL end)}
    for i = 1, table.maxn(r) do r[i] = show(r[i]) end
    return r";

const NUMBERS: [&str; 22] = [
    "0", "1", "-1", "0.5", "2.5", "127", "128", "-129", "255", "256", "65536", "-32769", "2^31",
    "-2^31", "2^32+5", "2^52+0.5", "2^53", "1e10", "1e17", "-3.7", "'12'", "'0x1f'",
];
const VALUES: [&str; 10] = [
    "nil",
    "true",
    "''",
    "'text'",
    "{}",
    "{1, 2, {3}}",
    "{a = 1}",
    "{[2] = 1}",
    "{1, nil, 3}",
    "cjson.null",
];
const JSON: [&str; 40] = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"a\"",
    "\"\"",
    "\"b\\\\u00e9\"",
    "1",
    "-2.5",
    "1e3",
    "0",
    "true",
    "false",
    "null",
    " ",
    "\\n",
    "{\"k\":",
    "[1,",
    "\"\\\\",
    "\"\\\\u12\"",
    "nan",
    "-inf",
    "0x1F",
    "+",
    "-",
    ".",
    "e",
    "E5",
    "01",
    "\\0",
    "\\127",
    "\"\\\\ud83d\\\\ude00\"",
    "\"\\\\ud83d\"",
    "tru",
    "Infinity",
    "[[]]",
    "{}",
    "x",
];
const FORMATS: [&str; 32] = [
    ">", "<", "!", "!2", "!4", "!8", "b", "B", "h", "H", "l", "L", "T", "i", "I", "i1", "I3", "i7",
    "i9", "I16", "f", "d", "s", "x", "c0", "c2", "c3", " ", "Bc0", "z", "!3", "i32",
];
const BIT: [&str; 12] = [
    "tobit", "bnot", "bswap", "band", "bor", "bxor", "lshift", "rshift", "arshift", "rol", "ror",
    "tohex",
];

fn bytes(random: &mut Random, most: usize) -> String {
    let interesting = [0, 1, 127, 128, 129, 144, 145, 160, 161, 192, 195, 255];
    let byte = |random: &mut Random| match random.below(3) {
        0 => interesting[random.below(interesting.len())],
        1 => 0xc0 + random.below(32),
        _ => random.below(256),
    };
    let escaped = (0..random.below(most + 1)).map(|_| format!("\\{:03}", byte(random)));
    format!("'{}'", escaped.collect::<String>())
}

fn values(random: &mut Random, most: usize) -> String {
    let all: Vec<_> = (0..random.below(most + 1))
        .map(|_| match random.below(3) {
            0 => random.pick(&VALUES),
            _ => random.pick(&NUMBERS),
        })
        .collect();
    all.join(", ")
}

fn call(random: &mut Random) -> String {
    match random.below(8) {
        0 => format!("bit.{}({})", random.pick(&BIT), values(random, 3)),
        1 => {
            let given = values(random, 6);
            let comma = if given.is_empty() { "" } else { ", " };
            format!(
                "struct.pack('{}'{comma}{given})",
                random.pieces(6, &FORMATS)
            )
        }
        2 => format!(
            "struct.unpack('{}', {})",
            random.pieces(5, &FORMATS),
            bytes(random, 40)
        ),
        3 => format!("struct.size('{}')", random.pieces(6, &FORMATS)),
        4 => format!("cmsgpack.unpack({})", bytes(random, 24)),
        5 => format!("cmsgpack.pack({})", values(random, 4)),
        6 => format!("cjson.decode('{}')", random.pieces(8, &JSON)),
        _ => format!("cjson.encode({{{}}})", values(random, 5)),
    }
}

#[test]
fn the_libraries_answer_as_in_redis() {
    let from_env =
        |name: &str, default: u64| env::var(name).map_or(default, |value| value.parse().unwrap());
    let mut random = Random(from_env("SEED", 1));
    let mut redis = Redis::start();
    let mut ours = Server::new();
    for case in 0..from_env("CASES", 5000) {
        let script = SHOW.replace("CALL", &call(&mut random));
        let words = ["EVAL", &script, "0"].map(|word| word.as_bytes().to_vec());
        let expected = notation(&redis.ask(&words));
        let found = notation(&ours.ask(&words));
        assert_eq!(found, expected, "case {case}: {script}");
    }
}
