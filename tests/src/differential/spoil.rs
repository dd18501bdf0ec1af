//! Commands spoiled in one place: an argument lost, doubled, misplaced or made nonsense of, as a
//! client with a bug would send them.

use super::draw::{Draw, Slot};
use super::grammar::Argv;

/// Words that mean something in some place of some command.
const WORDS: [&str; 26] = [
    "NX",
    "XX",
    "GT",
    "LT",
    "CH",
    "INCR",
    "GET",
    "EX",
    "PXAT",
    "KEEPTTL",
    "PERSIST",
    "WITHSCORES",
    "WITHVALUES",
    "LIMIT",
    "COUNT",
    "MATCH",
    "BYSCORE",
    "BYLEX",
    "REV",
    "REPLACE",
    "DB",
    "WEIGHTS",
    "AGGREGATE",
    "LEFT",
    "IDX",
    "RANK",
];

pub fn spoil(argv: &mut Argv, draw: &mut Draw<'_>) {
    let arguments = argv.len() - 1;
    if arguments == 0 {
        argv.push(stray(draw));
        return;
    }
    let place = draw.rng.usize(1..=arguments);
    match draw.rng.u32(..20) {
        0..=3 => drop(argv.remove(place)),
        4..=6 => argv.insert(place, stray(draw)),
        7..=8 => argv.push(stray(draw)),
        9..=14 => argv[place] = stray(draw),
        15 => argv.insert(place, argv[place].clone()),
        16 | 17 => argv.swap(place, draw.rng.usize(1..=arguments)),
        18 => argv.truncate(place),
        _ => rename(argv, draw),
    }
}

/// An argument that was not asked for.
fn stray(draw: &mut Draw<'_>) -> Vec<u8> {
    let slots = [Slot::Key, Slot::Int, Slot::Float, Slot::Value, Slot::Pick];
    match draw.rng.u32(..3) {
        0 => {
            let word = draw.one_of(&WORDS);
            draw.in_some_case(word)
        }
        _ => {
            let mut drawn = Vec::new();
            let slot = slots[draw.rng.usize(..slots.len())];
            draw.fill(slot, &mut drawn);
            drawn.swap_remove(0)
        }
    }
}

/// To a name that no server knows.
fn rename(argv: &mut Argv, draw: &mut Draw<'_>) {
    argv[0] = match draw.rng.u32(..4) {
        0 => Vec::new(),
        1 => b"NOT\r\nTHERE".to_vec(),
        2 => [&argv[0], &b"Z"[..]].concat(),
        _ => vec![b'N'; 200],
    };
}
