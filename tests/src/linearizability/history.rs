//! What all clients did to all objects.

use std::collections::BTreeMap;
use std::fmt;

use super::appends::{Append, Appends};
use super::check;
use super::counter::{Count, Counter};
use super::explain::Anomaly;
use super::operation::{Model, Operation, Outcome};
use super::register::{Access, Register};
use super::search::Verdict;
use super::transfers::{Transfer, Transfers};

type Objects<A> = BTreeMap<String, Vec<Operation<A>>>;

#[derive(Clone, Debug, Default)]
pub struct History {
    pub registers: Objects<Access>,
    pub counters: Objects<Count>,
    pub lists: Objects<Append>,
    pub transfers: Objects<Transfer>,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    pub objects: usize,
    pub done: usize,
    pub unknown: usize,
    pub refused: usize,
    /// Objects that would have taken too much memory.
    pub undecided: Vec<String>,
    pub anomalies: Vec<Anomaly>,
}

impl History {
    pub fn merge(&mut self, other: History) {
        merge(&mut self.registers, other.registers);
        merge(&mut self.counters, other.counters);
        merge(&mut self.lists, other.lists);
        merge(&mut self.transfers, other.transfers);
    }

    pub fn check(&self) -> Summary {
        let mut summary = Summary::default();
        summary.check::<Register>(&self.registers);
        summary.check::<Counter>(&self.counters);
        summary.check::<Appends>(&self.lists);
        summary.check::<Transfers>(&self.transfers);
        summary
    }
}

fn merge<A>(into: &mut Objects<A>, from: Objects<A>) {
    for (name, operations) in from {
        into.entry(name).or_default().extend(operations);
    }
}

impl Summary {
    fn check<M: Model>(&mut self, objects: &Objects<M::Action>) {
        for (name, operations) in objects {
            self.objects += 1;
            for operation in operations {
                match operation.outcome {
                    Outcome::Done(_) => self.done += 1,
                    Outcome::Unknown => self.unknown += 1,
                    Outcome::Refused(_) => self.refused += 1,
                }
            }
            match check::<M>(name, operations) {
                Ok(Verdict::Undecided) => self.undecided.push(name.clone()),
                Ok(_) => {}
                Err(anomaly) => self.anomalies.push(anomaly),
            }
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary {
            objects,
            done,
            unknown,
            refused,
            undecided,
            anomalies,
        } = self;
        writeln!(
            f,
            "{objects} objects, {done} operations done, {unknown} unknown, {refused} refused; {} undecided, {} anomalies",
            undecided.len(),
            anomalies.len()
        )?;
        undecided
            .iter()
            .try_for_each(|name| writeln!(f, "undecided: {name}"))?;
        anomalies
            .iter()
            .try_for_each(|anomaly| write!(f, "{anomaly}"))
    }
}
