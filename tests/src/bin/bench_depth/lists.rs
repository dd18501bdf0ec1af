//! Lists of millions.

use std::cell::RefCell;

use cairn_tests::figures;

use crate::fill::{self, Kind};
use crate::measure;
use crate::table::{Table, megabytes};
use crate::trial::Trial;

const FEW: u64 = 1000;
const LIMIT: f64 = 2.0;

pub fn run(trial: &mut Trial, table: &mut Table) {
    let elements = trial.scale.elements;
    let (rounds, commands) = (trial.scale.rounds, trial.scale.commands / 8);
    fill::collection(&mut trial.client, Kind::List, "few", FEW);
    fill::collection(&mut trial.client, Kind::List, "many", elements);
    // What comes first makes up for what the command takes away, or lets it find something.
    for (what, prepare, line) in [
        ("LTRIM", "RPUSH x element element", "LTRIM x 2 -1"),
        ("LPOP of 2", "RPUSH x element element", "LPOP x 2"),
        ("RPOP of 2", "RPUSH x element element", "RPOP x 2"),
        (
            "LINSERT near the head",
            "LPUSH x a pivot b",
            "LINSERT x BEFORE pivot new",
        ),
        ("LREM near the tail", "RPUSH x a pivot b", "LREM x -1 pivot"),
    ] {
        let client = RefCell::new(&mut trial.client);
        let cost = |name: &'static str| {
            let client = &client;
            let (prepare, line) = (prepare.replace('x', name), line.replace('x', name));
            move || measure::prepared(&mut client.borrow_mut(), commands, &prepare, &line)
        };
        let costs = measure::in_turn(rounds, cost("few"), cost("many"));
        table.ratio(&format!("{what}, {elements} to {FEW}"), costs, LIMIT);
    }
    in_the_middle(trial, table);
}

/// Elements that come and go in the middle move half of the list.
fn in_the_middle(trial: &mut Trial, table: &mut Table) {
    let elements = trial.scale.elements;
    let middle = elements / 2;
    trial.run(&format!("LSET many {middle} pivot"));
    for line in ["LINSERT many BEFORE pivot new", "LREM many 1 pivot"] {
        // What it finds on its way fills caches, which are no part of what is looked for.
        trial.run("LINSERT many BEFORE absent new");
        let before = figures::resident(trial.pid());
        figures::forget_most_resident(trial.pid());
        trial.run(line);
        let grown = figures::most_resident(trial.pid()).saturating_sub(before);
        let what = format!(
            "{} in the middle, memory",
            line.split(' ').next().unwrap_or(line)
        );
        table.at_most(&what, megabytes(grown), "MB", 160.0);
    }
}
