//! Shared collections so large that a server comes to count their elements, block by block, for the sake of those who
//! ask for ranks and random picks. Whoever changes them changes counts, and elements leave and come back in units.
//!
//! | keys | commands | always true |
//! |---|---|---|
//! | `board` | ZADD, ZINCRBY, ZRANK, ZCOUNT; ZREM and ZADD of a member in a unit | all members are there |
//! | `crowd` | SADD, SRANDMEMBER, SCARD; SREM and SADD of a member in a unit | the same |

use fastrand::Rng;

use super::model::{Expected, Object};
use crate::client::Value;

pub const MEMBERS: usize = 3000;

/// What makes them.
pub fn seeds() -> [String; 2] {
    let scored: String = (0..MEMBERS).map(|n| format!(" {n} m{n}")).collect();
    let plain: String = (0..MEMBERS).map(|n| format!(" m{n}")).collect();
    [
        format!("ZADD @board{scored}"),
        format!("SADD @crowd{plain}"),
    ]
}

fn int(value: usize) -> Expected {
    Expected::Exactly(Value::Int(value as i64))
}

fn member(rng: &mut Rng) -> String {
    format!("m{}", rng.usize(..MEMBERS))
}

/// Now from many scores and now from few, so that blocks grow and shrink.
fn score(rng: &mut Rng) -> u32 {
    rng.u32(..) >> rng.u32(..28)
}

pub fn command(rng: &mut Rng) -> (String, Expected) {
    let (score, member) = (score(rng), member(rng));
    match rng.u8(..8) {
        0 | 1 => (format!("ZADD @board {score} {member}"), int(0)),
        2 => (
            format!("ZINCRBY @board {score} {member}"),
            Expected::NoError,
        ),
        3 => (format!("ZRANK @board {member}"), Expected::NoError),
        4 => ("ZCOUNT @board -inf +inf".into(), int(MEMBERS)),
        5 => (format!("SADD @crowd {member}"), int(0)),
        6 => ("SRANDMEMBER @crowd".into(), Expected::NoError),
        _ => ("SCARD @crowd".into(), int(MEMBERS)),
    }
}

/// A member that leaves and comes back.
pub fn unit(rng: &mut Rng) -> ([String; 2], Expected) {
    let (score, member) = (score(rng), member(rng));
    let commands = match rng.bool() {
        true => [
            format!("ZREM @board {member}"),
            format!("ZADD @board {score} {member}"),
        ],
        false => [
            format!("SREM @crowd {member}"),
            format!("SADD @crowd {member}"),
        ],
    };
    (commands, Expected::Each(vec![int(1), int(1)]))
}

/// What is wrong with one of the keys.
pub fn violation(name: &str, found: Option<&Object>) -> Option<String> {
    let members = found.map_or(0, Object::len);
    (members != MEMBERS).then(|| format!("{members} members in {name}"))
}
