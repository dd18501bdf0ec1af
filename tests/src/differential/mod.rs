//! Random commands to Cairn and to a real redis-server: the replies must be the same.
//!
//! A run is a row of rounds, and each round has a seed of its own, the first one the run's. A round
//! begins on empty servers and over fresh connections: [`round`] draws its commands from the tables
//! of the families ([`strings`] and so on, written in the small language of [`grammar`]), [`duel`]
//! plays them on both servers and compares every reply by the command's [`rule`], and [`walk`] compares
//! all that the servers hold every few hundred commands. When something differs, [`shrink`] looks for
//! the shortest sequence that still does, and [`report`] prints it together with the seed.
//!
//! Nothing is compared that Redis leaves open: orders and random choices are judged by what they may
//! be, times by the second, and [`fair`] keeps commands away that race against a clock.

pub mod bitmaps;
pub mod connection;
mod draw;
pub mod duel;
pub mod dumps;
pub mod fair;
pub mod geo;
pub mod grammar;
pub mod hashes;
pub mod hyperloglogs;
mod ids;
pub mod judge;
pub mod keys;
#[cfg(test)]
mod liar;
pub mod lists;
mod numbers;
pub mod peer;
pub mod report;
pub mod round;
pub mod rule;
pub mod sets;
pub mod shrink;
pub mod sorted_sets;
pub mod sorting;
mod spoil;
pub mod streams;
pub mod strings;
pub mod walk;

use std::time::{Duration, Instant};

use duel::{Difference, End, Tallies, Walks, duel};
use fair::name_of;
use grammar::Grammar;
use peer::Peer;
use report::{Finding, Report};
use round::{Step, round};

/// Commands in a round. Long enough for collections to grow, short enough to shrink quickly.
pub const ROUND: usize = 1000;
/// Commands between two comparisons of the whole state.
const BETWEEN_WALKS: usize = 250;
/// A difference that will not shrink in this time is shown as it is.
const SHRINK_LIMIT: Duration = Duration::from_secs(60);
/// A random choice of the target may hide a difference once, hardly three times.
const REPRODUCTIONS: usize = 3;

pub struct Options {
    pub seed: u64,
    pub commands: usize,
    pub time_limit: Option<Duration>,
    /// Commands to leave out, in capitals.
    pub without: Vec<String>,
    /// Differences, each of another command, after which the run ends.
    pub findings: usize,
}

/// The grammar of all families.
pub fn grammar() -> Grammar {
    Grammar::new(&[
        &strings::FAMILY,
        &bitmaps::FAMILY,
        &hyperloglogs::FAMILY,
        &hashes::FAMILY,
        &lists::FAMILY,
        &sets::FAMILY,
        &sorted_sets::FAMILY,
        &streams::FAMILY,
        &geo::FAMILY,
        &keys::FAMILY,
        &dumps::FAMILY,
        &sorting::FAMILY,
        &connection::FAMILY,
    ])
}

/// Plays round after round. `tell` hears of each new difference at once.
pub fn run(
    target: &dyn Peer,
    reference: &dyn Peer,
    options: &Options,
    tell: &mut dyn FnMut(&Finding),
) -> Report {
    let grammar = grammar();
    let started = Instant::now();
    let mut report = Report::default();
    let mut seed = options.seed;
    let mut played = 0;
    while played < options.commands
        && report.findings.len() < options.findings
        && options
            .time_limit
            .is_none_or(|limit| started.elapsed() < limit)
    {
        let length = ROUND.min(options.commands - played);
        let mut steps = round(&grammar, seed, length);
        steps.retain(|step| !options.without.contains(&name_of(&step.argv)));
        let walks = Walks::Every(BETWEEN_WALKS);
        match duel(target, reference, &steps, walks, &mut report.tallies) {
            Ok(()) => {}
            Err(End::Difference(difference)) => {
                if difference.in_state || !report.knows(&name_of(&difference.argv)) {
                    let finding = investigate(target, reference, seed, steps, *difference);
                    if !report.knows(&finding.name()) {
                        tell(&finding);
                        report.findings.push(finding);
                    }
                }
            }
            Err(End::Broken(error)) => {
                report.broken = Some(format!("round of seed {seed}: {error}"));
                break;
            }
        }
        played += length;
        seed = seed.wrapping_add(1);
    }
    report.elapsed = started.elapsed();
    report
}

/// Finds out how little it takes to see the difference again.
fn investigate(
    target: &dyn Peer,
    reference: &dyn Peer,
    seed: u64,
    mut steps: Vec<Step>,
    difference: Difference,
) -> Finding {
    steps.truncate(difference.step + 1);
    let shrunk_from = steps.len();
    let mut seen = difference;
    let wanted = (seen.in_state, name_of(&seen.argv));
    let deadline = Instant::now() + SHRINK_LIMIT;
    let mut fails = |steps: &[Step]| {
        let walks = if wanted.0 {
            Walks::AtTheEnd
        } else {
            Walks::Never
        };
        if steps.is_empty() || Instant::now() > deadline {
            return false;
        }
        match duel(target, reference, steps, walks, &mut Tallies::new()) {
            // Shrinking must not slip from one difference into another one.
            Err(End::Difference(again)) if (again.in_state, name_of(&again.argv)) == wanted => {
                seen = *again;
                true
            }
            _ => false,
        }
    };
    let reproduced = (0..REPRODUCTIONS).any(|_| fails(&steps));
    let steps = if reproduced {
        shrink::shrink(steps, &mut fails)
    } else {
        steps
    };
    Finding {
        seed,
        difference: seen,
        steps,
        shrunk_from,
        reproduced,
    }
}
