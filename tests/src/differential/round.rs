//! A round: the commands that one seed stands for, on empty servers, over fresh connections.
//!
//! Nothing in a round depends on a reply, so it can be replayed, cut short and thinned out at will.

use fastrand::Rng;

use super::draw::{Draw, Mood};
use super::fair::is_fair;
use super::grammar::{Argv, Grammar};
use super::spoil::spoil;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub connection: usize,
    pub argv: Argv,
    /// Whether the next step is sent along without waiting for this one's reply.
    pub pipelined: bool,
}

/// The first `commands` steps of the round of `seed`.
pub fn round(grammar: &Grammar, seed: u64, commands: usize) -> Vec<Step> {
    let mut rng = Rng::with_seed(seed);
    let connections = match rng.u32(..10) {
        0 => 3,
        1 | 2 => 2,
        _ => 1,
    };
    let mood = match rng.u32(..5) {
        0 => Mood::Crowded,
        1 => Mood::Large,
        _ => Mood::Plain,
    };
    let mut steps = Vec::with_capacity(commands + connections);
    for connection in 0..connections {
        if rng.bool() {
            steps.push(Step {
                connection,
                argv: vec![b"HELLO".to_vec(), b"3".to_vec()],
                pipelined: false,
            });
        }
    }
    while steps.len() < commands {
        let connection = rng.usize(..connections);
        let length = pipeline_length(&mut rng);
        for place in 1..=length {
            steps.push(Step {
                connection,
                argv: fair_command(grammar, &mut rng, mood),
                pipelined: place < length,
            });
        }
    }
    steps.truncate(commands);
    steps
}

fn pipeline_length(rng: &mut Rng) -> usize {
    match rng.u32(..8) {
        0 => 1,
        1 | 2 => rng.usize(2..8),
        3..=5 => rng.usize(8..64),
        _ => rng.usize(64..200),
    }
}

fn fair_command(grammar: &Grammar, rng: &mut Rng, mood: Mood) -> Argv {
    loop {
        let mut argv = grammar.command(rng, mood);
        if rng.u32(..10) == 0 {
            spoil(&mut argv, &mut Draw::new(rng, mood, None));
        }
        if is_fair(&argv) {
            return argv;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::grammar;
    use super::*;

    #[test]
    fn a_seed_stands_for_the_same_round_every_time() {
        let grammar = grammar();
        assert_eq!(round(&grammar, 7, 500), round(&grammar, 7, 500));
        assert_ne!(round(&grammar, 7, 500), round(&grammar, 8, 500));
    }

    #[test]
    fn a_shorter_round_is_the_beginning_of_a_longer_one() {
        let grammar = grammar();
        assert_eq!(round(&grammar, 3, 100), round(&grammar, 3, 400)[..100]);
    }
}
