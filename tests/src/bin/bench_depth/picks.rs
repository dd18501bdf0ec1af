//! Random elements.

use std::cell::RefCell;

use crate::fill::{self, Kind};
use crate::measure::{self, words};
use crate::table::Table;
use crate::trial::Trial;

const FEW: u64 = 1000;

pub fn run(trial: &mut Trial, table: &mut Table) {
    let many = trial.scale.many;
    for kind in [Kind::Hash, Kind::Set, Kind::Zset] {
        for (size, elements) in [("few", FEW), ("many", many)] {
            let name = format!("{}:{size}", kind.name());
            fill::collection(&mut trial.client, kind, &name, elements);
        }
    }
    // SPOP comes last, since it makes less of what it pops from.
    for (command, kind) in [
        ("SRANDMEMBER", Kind::Set),
        ("HRANDFIELD", Kind::Hash),
        ("ZRANDMEMBER", Kind::Zset),
        ("SPOP", Kind::Set),
    ] {
        let name = format!("{}:many", kind.name());
        trial.count_elements(&name, &format!("{command} {name}"));
        let (rounds, commands) = (trial.scale.rounds, trial.scale.commands / 8);
        let client = RefCell::new(&mut trial.client);
        let cost = |size: &'static str| {
            let client = &client;
            let line = format!("{command} {}:{size}", kind.name());
            move || measure::mean(&mut client.borrow_mut(), commands, |_| words(&line))
        };
        let costs = measure::in_turn(rounds, cost("few"), cost("many"));
        table.ratio(&format!("{command}, {many} to {FEW}"), costs, 10.0);
    }
}
