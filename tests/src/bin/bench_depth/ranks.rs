//! Ranks, offsets and counts in a sorted set.

use std::cell::RefCell;
use std::thread;
use std::time::Duration;

use crate::fill::{self, Kind};
use crate::measure::{self, words};
use crate::reclaiming::settle;
use crate::table::Table;
use crate::trial::Trial;

const FEW: u64 = 5000;

pub fn run(trial: &mut Trial, table: &mut Table) {
    for (name, size) in sets(trial) {
        fill::collection(&mut trial.client, Kind::Zset, name, size);
        let question = format!("ZRANK {name} member:{:09}", size / 2);
        let took = trial.count_elements(name, &question).as_secs_f64();
        table.remark(&format!("{size} members are counted after {took:.1} s"));
    }
    questions(trial, table);
    additions(trial, table);
}

fn sets(trial: &Trial) -> [(&'static str, u64); 2] {
    [("few", FEW), ("many", trial.scale.elements)]
}

fn questions(trial: &mut Trial, table: &mut Table) {
    let elements = trial.scale.elements;
    let (rounds, commands) = (trial.scale.rounds, trial.scale.commands);
    type Asked = fn(&str, u64) -> String;
    let questions: [(&str, Asked); 3] = [
        ("ZRANK of a random member", |name, size| {
            format!("ZRANK {name} member:{:09}", fastrand::u64(..size))
        }),
        ("ZRANGE of 10 at a random offset", |name, size| {
            let offset = fastrand::u64(..size - 10);
            format!("ZRANGE {name} {offset} {}", offset + 9)
        }),
        ("ZCOUNT of a random half", |name, _| {
            let from = fastrand::u64(..1 << 31);
            format!("ZCOUNT {name} {from} {}", from + (1 << 31))
        }),
    ];
    for (what, asked) in questions {
        let client = RefCell::new(&mut trial.client);
        let cost = |name: &'static str, size: u64| {
            let client = &client;
            move || {
                measure::mean(&mut client.borrow_mut(), commands, |_| {
                    words(&asked(name, size))
                })
            }
        };
        let costs = measure::in_turn(rounds, cost("few", FEW), cost("many", elements));
        table.ratio(&format!("{what}, {elements} to {FEW}"), costs, 4.0);
    }
}

/// What ZADD costs for the sake of the index, beside a server that keeps none.
fn additions(trial: &mut Trial, table: &mut Table) {
    // Each takes some microseconds: so many that a moment in which the machine does something else does not count.
    let (rounds, commands) = (trial.scale.rounds, trial.scale.commands * 50);
    let mut plain = trial.beside(&["--rank-index", "no"]);
    for (name, size) in sets(trial) {
        fill::collection(&mut plain.client, Kind::Zset, name, size);
    }
    // What was filled last would otherwise be written out, and compacted, while it is timed.
    settle(&mut plain);
    thread::sleep(Duration::from_secs(10));
    settle(&mut plain);
    settle(trial);
    let add = |trial: &mut Trial| {
        measure::mean_of_many(&mut trial.client, commands, |_| {
            let number = fastrand::u64(..1 << 32);
            words(&format!("ZADD many {number} new:{number}"))
        })
    };
    let costs = measure::in_turn(rounds, || add(&mut plain), || add(trial));
    table.ratio("ZADD with the rank index, to without", costs, 1.6);
}
