//! Reads that must not walk over what is dead.

use std::cell::RefCell;

use cairn_tests::client::{Client, Value};

use crate::fill::{self, Kind};
use crate::measure::{self, words};
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

/// A queue that very much goes through, beside one that is young.
pub fn run_queue(trial: &mut Trial, table: &mut Table) {
    let (queued, rounds, commands) = (trial.scale.queued, trial.scale.rounds, trial.scale.commands);
    let mut client = trial.server.client();
    pass(&mut client, "old", queued);
    pass(&mut client, "young", YOUNG);
    let client = RefCell::new(&mut client);
    let pop = |name: &'static str| {
        let client = &client;
        let (push, pop) = (format!("RPUSH {name} element"), format!("LPOP {name}"));
        move || measure::prepared(&mut client.borrow_mut(), commands, &push, &pop)
    };
    let range = |name: &'static str| {
        let client = &client;
        let line = words(&format!("LRANGE {name} 0 10"));
        move || measure::mean(&mut client.borrow_mut(), commands, |_| line.clone())
    };
    let pops = measure::in_turn(rounds, pop("young"), pop("old"));
    table.ratio(&format!("LPOP after {queued} through a queue"), pops, 2.0);
    let ranges = measure::in_turn(rounds, range("young"), range("old"));
    table.ratio(
        &format!("LRANGE 0 10 after {queued} through a queue"),
        ranges,
        2.0,
    );
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
