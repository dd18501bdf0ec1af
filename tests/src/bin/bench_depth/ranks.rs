//! Ranks, offsets and counts in a sorted set.

use crate::fill::{self, Kind};
use crate::measure::{self, words};
use crate::table::Table;
use crate::trial::Trial;

const FEW: u64 = 5000;

pub fn run(trial: &mut Trial, table: &mut Table) {
    let elements = trial.scale.elements;
    // The same through time: neither may have been written later than the other.
    fill::collection(&mut trial.client, Kind::Zset, "few", FEW);
    fill::collection(&mut trial.client, Kind::Zset, "many", elements);
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
        let (rounds, commands) = (trial.scale.rounds, trial.scale.commands / 4);
        let client = std::cell::RefCell::new(&mut trial.client);
        let cost = |name: &'static str, size: u64, count: u64| {
            let client = &client;
            move || {
                measure::mean(&mut client.borrow_mut(), count, |_| {
                    words(&asked(name, size))
                })
            }
        };
        // A walk over millions takes its time: one command shows it as well as a hundred.
        let deep = cost("many", elements, 1)().as_millis() > 20;
        let (rounds, commands) = if deep { (3, 1) } else { (rounds, commands) };
        let costs = measure::in_turn(
            rounds,
            cost("few", FEW, 50),
            cost("many", elements, commands),
        );
        table.ratio(&format!("{what}, {elements} to {FEW}"), costs, 4.0);
    }
    additions(trial, table);
}

/// What ZADD costs for the sake of the index.
fn additions(trial: &mut Trial, table: &mut Table) {
    let elements = trial.scale.elements;
    if trial.client.line("CONFIG SET rank-index no").is_error() {
        table.skipped("ZADD with and without the rank index: there is none");
        return;
    }
    fill::collection(&mut trial.client, Kind::Zset, "plain", elements);
    trial.run("CONFIG SET rank-index yes");
    let (rounds, commands) = (trial.scale.rounds, trial.scale.commands);
    let client = std::cell::RefCell::new(&mut trial.client);
    let add = |name: &'static str| {
        let client = &client;
        move || {
            measure::mean(&mut client.borrow_mut(), commands, |_| {
                let number = fastrand::u64(..1 << 32);
                words(&format!("ZADD {name} {number} new:{number}"))
            })
        }
    };
    let costs = measure::in_turn(rounds, add("plain"), add("many"));
    table.ratio("ZADD with the rank index, to without", costs, 1.6);
}
