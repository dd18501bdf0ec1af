//! Deleting much at once.

use std::thread;
use std::time::Duration;

use cairn_tests::client::Client;

use crate::fill::{self, Kind};
use crate::measure::{self, Costs, once, words};
use crate::reclaiming::rest;
use crate::table::Table;
use crate::trial::Trial;

const LIMIT: f64 = 2.0;
/// How often the deletion of one element is measured, before and after that of many.
const BASE: usize = 25;

/// The ways in which a collection goes.
const WAYS: [(&str, &[&str]); 4] = [
    ("DEL", &["DEL x"]),
    ("UNLINK", &["UNLINK x"]),
    ("SET over", &["SET x value"]),
    // The pause is not counted: it makes sure that the key is due.
    ("expiry", &["PEXPIRE x 1", "pause", "EXISTS x"]),
];

pub fn run(trial: &mut Trial, table: &mut Table) {
    let elements = trial.scale.elements;
    for kind in Kind::ALL {
        for (name, way) in WAYS {
            let costs = measure::few(LIMIT * trial.scale.slack, || {
                let client = &mut trial.client;
                client.line("DEL many");
                fill::collection(client, kind, "many", elements);
                // One command is measured, which shall not have to wait for what writing them leaves behind.
                rest(client);
                let mut base: Vec<Duration> =
                    (0..BASE).map(|_| delete_one(client, kind, way)).collect();
                let deep = take(client, "many", way);
                base.extend((0..BASE).map(|_| delete_one(client, kind, way)));
                Costs {
                    base: measure::median(base),
                    deep: measure::micros(deep),
                }
            });
            let what = format!("{name} of a {} of {elements} to 1", kind.name());
            table.ratio(&what, costs, LIMIT);
        }
    }
}

fn delete_one(client: &mut Client, kind: Kind, way: &[&str]) -> Duration {
    client.line("DEL one");
    fill::collection(client, kind, "one", 1);
    take(client, "one", way)
}

/// How long it takes to delete a key in this way.
fn take(client: &mut Client, name: &str, way: &[&str]) -> Duration {
    // All after the same, so that none finds the server asleep.
    (0..5).for_each(|_| drop(client.line("GET missing")));
    let mut took = Duration::ZERO;
    for step in way {
        if *step == "pause" {
            thread::sleep(Duration::from_millis(2));
        } else {
            took += once(client, &words(&step.replace('x', name)));
        }
    }
    took
}

pub fn run_flushes(trial: &mut Trial, table: &mut Table) {
    let (elements, rounds) = (trial.scale.elements, trial.scale.rounds);
    for command in ["FLUSHDB", "FLUSHALL"] {
        let costs = measure::few(LIMIT * trial.scale.slack, || {
            fill::keys(&mut trial.client, elements);
            rest(&mut trial.client);
            // All after the same rest and then something else, so that none finds the threads asleep or busy with just
            // this, nor the processor's caches full of it.
            let mut flush = || {
                thread::sleep(Duration::from_millis(200));
                (0..20).for_each(|_| drop(trial.client.line("GET missing")));
                once(&mut trial.client, &[command])
            };
            let deep = flush();
            let base = (0..rounds * 3).map(|_| flush());
            Costs {
                base: measure::median(base.collect()),
                deep: measure::micros(deep),
            }
        });
        table.ratio(
            &format!("{command} of {elements} keys to none"),
            costs,
            LIMIT,
        );
    }
    fill::keys(&mut trial.client, elements);
    let swap = |one: u32, other: u32| {
        let mut client = trial.server.client();
        move || measure::mean(&mut client, 50, |_| words(&format!("SWAPDB {one} {other}")))
    };
    let costs = measure::in_turn(rounds, swap(2, 3), swap(0, 1));
    table.ratio(&format!("SWAPDB of {elements} keys to none"), costs, LIMIT);
}
