//! Streams of millions, and millions of entries that are pending.

use std::cell::RefCell;

use cairn_tests::figures;

use crate::fill;
use crate::measure;
use crate::reclaiming::settle;
use crate::table::{Table, megabytes};
use crate::trial::Trial;

const FEW: u64 = 10;
const LIMIT: f64 = 2.0;
/// How many entries a consumer takes at once while millions are delivered.
const DELIVERED: u64 = 1000;

pub fn run(trial: &mut Trial, table: &mut Table) {
    let entries = trial.scale.queued;
    fill::stream(&mut trial.client, "few", FEW);
    fill::stream(&mut trial.client, "many", entries);
    for name in ["few", "many"] {
        trial.run(&format!("XGROUP CREATE {name} g 0"));
    }
    let pending = trial.scale.elements;
    trial.run(&format!(
        "XREADGROUP GROUP g one COUNT {} STREAMS few >",
        FEW / 2
    ));
    let before = figures::resident(trial.pid());
    for _ in 0..pending / DELIVERED {
        let line = format!("XREADGROUP GROUP g one COUNT {DELIVERED} STREAMS many >");
        trial.run(&line);
    }
    let grown = figures::resident(trial.pid()).saturating_sub(before);
    let what = format!("memory that {pending} pending entries take");
    table.at_most(&what, megabytes(grown), "MB", trial.memory() as f64);

    // What was just written must not be on its way to the disk while clients are timed.
    settle(trial);
    // What comes first makes up for what the command takes away; MID stands for an entry in the middle.
    for (what, prepare, line) in [
        ("XADD", "XLEN x", "XADD x * field value"),
        (
            "XADD that trims as much",
            "XADD x * field value",
            "XADD x MAXLEN SIZE * field value",
        ),
        ("XREAD", "XLEN x", "XREAD COUNT 1 STREAMS x MID"),
        ("XRANGE of 5", "XLEN x", "XRANGE x MID + COUNT 5"),
        ("XTRIM of 1", "XADD x * field value", "XTRIM x MAXLEN SIZE"),
        (
            "XREADGROUP of 1",
            "XADD x * field value",
            "XREADGROUP GROUP g two COUNT 1 STREAMS x >",
        ),
        (
            "XREADGROUP of what one has",
            "XLEN x",
            "XREADGROUP GROUP g one COUNT 1 STREAMS x 0",
        ),
        ("XACK", "XCLAIM x g one 0 MID FORCE JUSTID", "XACK x g MID"),
        ("XCLAIM", "XLEN x", "XCLAIM x g two 0 MID FORCE JUSTID"),
        ("XPENDING", "XLEN x", "XPENDING x g"),
        ("XPENDING of 5", "XLEN x", "XPENDING x g - + 5"),
        (
            "XAUTOCLAIM of 5",
            "XLEN x",
            "XAUTOCLAIM x g one 0 0 COUNT 5 JUSTID",
        ),
    ] {
        let (rounds, commands) = (trial.scale.rounds, trial.scale.commands / 8);
        let client = RefCell::new(&mut trial.client);
        let cost = |name: &'static str, size: u64| {
            let client = &client;
            let [prepare, line] = [prepare, line].map(|text| {
                let middle = format!("{}-0", size / 2);
                let text = text.replace(" x ", &format!(" {name} "));
                let text = match text.strip_suffix(" x") {
                    Some(start) => format!("{start} {name}"),
                    None => text,
                };
                text.replace("MID", &middle)
                    .replace("SIZE", &size.to_string())
            });
            move || measure::prepared(&mut client.borrow_mut(), commands, &prepare, &line)
        };
        let costs = measure::in_turn(rounds, cost("few", FEW), cost("many", entries));
        table.ratio(&format!("{what}, {entries} to {FEW}"), costs, LIMIT);
    }
}
