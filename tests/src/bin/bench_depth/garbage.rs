//! Reads that must not walk over what is dead.

use std::cell::RefCell;

use cairn_tests::client::{Client, Value};

use crate::fill::{self, Kind};
use crate::measure::{self, Costs, words};
use crate::table::Table;
use crate::trial::Trial;

/// A small hash whose name has been that of a large one.
pub fn run(trial: &mut Trial, table: &mut Table) {
    let (elements, rounds, commands) = (
        trial.scale.elements,
        trial.scale.rounds,
        trial.scale.commands,
    );
    fill::collection(&mut trial.client, Kind::Hash, "used", elements);
    trial.run("DEL used");
    for name in ["used", "fresh"] {
        fill::collection(&mut trial.client, Kind::Hash, name, 10);
    }
    let client = RefCell::new(&mut trial.client);
    let read = |command: &'static str, name: &'static str| {
        let client = &client;
        let line = format!("{command} {name}");
        move || measure::mean(&mut client.borrow_mut(), commands, |_| words(&line))
    };
    let costs = measure::in_turn(rounds, read("HGETALL", "fresh"), read("HGETALL", "used"));
    let what = format!("HGETALL where {elements} fields were");
    table.ratio(&what, costs, 3.0);
    // The same with a change before each read, so that nothing can be kept from the last one.
    let change = |name: &'static str| {
        let client = &client;
        move || {
            let mut number = 0;
            measure::mean(&mut client.borrow_mut(), commands, |_| {
                number += 1;
                match number % 2 {
                    0 => words(&format!("HGETALL {name}")),
                    _ => words(&format!("HSET {name} member:000000003 {number}")),
                }
            })
        }
    };
    let costs = measure::in_turn(rounds, change("fresh"), change("used"));
    table.ratio("  and HSET and HGETALL in turn", costs, 3.0);
}

/// How many elements are pushed, and then popped, by commands that are under way together: the queue holds between
/// so many and twice as many.
const BATCH: u64 = 50;
/// What has gone through a queue that is still young.
const YOUNG: u64 = 20_000;

/// A queue that very much goes through. It is compared with a young one, at the beginning and at the end: what the
/// machine does besides at the one moment or the other is then no matter.
pub fn run_queue(trial: &mut Trial, table: &mut Table) {
    let queued = trial.scale.queued;
    let mut client = trial.server.client();
    pass(&mut client, "queue", YOUNG);
    let before = costs(trial, &mut client, "queue");
    pass(&mut client, "queue", queued);
    let deep = costs(trial, &mut client, "queue");
    pass(&mut client, "other", YOUNG);
    let after = costs(trial, &mut client, "other");
    for (at, what) in ["LPOP", "LRANGE 0 10"].into_iter().enumerate() {
        let costs = Costs {
            base: f64::midpoint(before[at], after[at]),
            deep: deep[at],
        };
        table.ratio(
            &format!("{what} after {queued} through a queue"),
            costs,
            2.0,
        );
    }
}

/// Lets so many elements through.
fn pass(client: &mut Client, name: &str, count: u64) {
    let name = name.as_bytes();
    for start in (0..count).step_by(BATCH as usize) {
        for number in start..start + BATCH {
            client.send(&[b"RPUSH", name, &fill::member(number)]);
        }
        let pops = if start == 0 { 0 } else { BATCH };
        (0..pops).for_each(|_| client.send(&[b"LPOP", name]));
        for _ in 0..BATCH + pops {
            let reply = client.receive();
            assert!(!matches!(reply, Value::Error(_)), "{reply:?}");
        }
    }
}

/// What LPOP and LRANGE cost.
fn costs(trial: &Trial, client: &mut Client, name: &str) -> [f64; 2] {
    let (rounds, commands) = (trial.scale.rounds, trial.scale.commands);
    let round = |client: &mut Client| {
        let push = format!("RPUSH {name} {}", "element");
        let pops = measure::prepared(client, commands, &push, &format!("LPOP {name}"));
        let range = words(&format!("LRANGE {name} 0 10"));
        let ranges = measure::mean(client, commands, |_| range.clone());
        (pops, ranges)
    };
    let rounds = (0..rounds).map(|_| round(client));
    let (pops, ranges) = rounds.unzip::<_, _, Vec<_>, Vec<_>>();
    [measure::median(pops), measure::median(ranges)]
}
