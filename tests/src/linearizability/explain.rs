//! The message of an anomaly: the shortest history that cannot be, and what could have been instead.

use std::fmt;

use super::operation::{Model, Operation, Outcome, Time};
use super::search::{Verdict, states};
use super::settle::unsettled;
use super::verdict;

/// How many operations are shown, and how many states.
const SHOWN: usize = 16;
const STATES: usize = 8;

/// Clients of an object were told what cannot be true.
#[derive(Clone, Debug)]
pub struct Anomaly {
    pub object: String,
    pub explanation: String,
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.object, self.explanation)
    }
}

/// If a history is impossible, so is every longer one: the shortest is found by halving.
pub(super) fn explain<M: Model>(name: &str, operations: &[Operation<M::Action>]) -> Anomaly {
    let mut ends: Vec<Time> = operations.iter().filter_map(end).collect();
    ends.sort();
    let (mut possible, mut impossible) = (0, ends.len().saturating_sub(1));
    while possible < impossible {
        let middle = (possible + impossible) / 2;
        match verdict::<M>(&until::<M>(operations, ends[middle])) {
            Verdict::Impossible => impossible = middle,
            Verdict::Linearizable | Verdict::Undecided => possible = middle + 1,
        }
    }
    let moment = ends.get(impossible).copied().unwrap_or(0);
    let shortest = until::<M>(operations, moment);
    Anomaly {
        object: name.to_string(),
        explanation: described::<M>(operations, &shortest, moment),
    }
}

fn end<A>(operation: &Operation<A>) -> Option<Time> {
    match operation.outcome {
        Outcome::Done(end) => Some(end),
        Outcome::Unknown | Outcome::Refused(_) => None,
    }
}

/// The history as it was at a moment: what had not ended then may or may not have been done.
fn until<M: Model>(operations: &[Operation<M::Action>], moment: Time) -> Vec<Operation<M::Action>> {
    let begun = operations
        .iter()
        .filter(|operation| operation.begun <= moment);
    begun
        .map(|operation| {
            let mut operation = operation.clone();
            if end(&operation).is_some_and(|end| end > moment) {
                operation.outcome = Outcome::Unknown;
            }
            operation
        })
        .collect()
}

fn described<M: Model>(
    all: &[Operation<M::Action>],
    shortest: &[Operation<M::Action>],
    moment: Time,
) -> String {
    let (last, before): (Vec<_>, Vec<_>) = shortest
        .iter()
        .cloned()
        .partition(|operation| end(operation) == Some(moment));
    let mut text = String::from("no order of its operations explains what clients were told.\n");
    for operation in &last {
        text += &format!("  This cannot be: {}\n", line::<M>(operation));
        text += &origins::<M>(all, operation);
    }
    let timed = unsettled::<M>(&before);
    let states = states(&M::new(&timed), &timed, STATES);
    if !states.is_empty() {
        let states: Vec<String> = states.iter().map(M::describe_state).collect();
        text += &format!("  Without it, there may have been: {}\n", states.join("; "));
    }
    let mut before = before;
    before.sort_by_key(|operation| (end(operation).unwrap_or(operation.begun), operation.begun));
    let (count, shown) = (before.len(), &before[before.len().saturating_sub(SHOWN)..]);
    text += &format!(
        "  The last {} of {count} operations before it:\n",
        shown.len()
    );
    for operation in shown {
        text += &format!("    {}\n", line::<M>(operation));
    }
    text
}

/// Where what it saw came from.
fn origins<M: Model>(all: &[Operation<M::Action>], last: &Operation<M::Action>) -> String {
    let seen = M::saw(&last.action);
    let mut text = String::new();
    for mark in &seen[seen.len().saturating_sub(3)..] {
        let mut writers = all
            .iter()
            .filter(|other| M::leaves(&other.action) == Some(*mark))
            .peekable();
        if writers.peek().is_none() {
            text += &format!("    {mark} was never written\n");
        }
        for writer in writers {
            text += &format!("    {mark} came from: {}\n", line::<M>(writer));
        }
    }
    text
}

fn line<M: Model>(operation: &Operation<M::Action>) -> String {
    let ms = |time: Time| format!("{}.{:03} ms", time / 1_000_000, time / 1_000 % 1_000);
    let begun = ms(operation.begun);
    let times = match operation.outcome {
        Outcome::Done(end) => format!("{begun} to {}", ms(end)),
        Outcome::Unknown => format!("{begun}, outcome unknown"),
        Outcome::Refused(end) => format!("{begun} to {}, refused", ms(end)),
    };
    format!(
        "client {} ({times}): {}",
        operation.client,
        M::describe(&operation.action)
    )
}
