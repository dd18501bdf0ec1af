//! What can be said of operations whose outcome is unknown.

use std::collections::{HashMap, HashSet};

use super::operation::{Model, NEVER, Operation, Outcome, Timed};

/// The operations that may have been done. One whose outcome is unknown, but of which somebody saw what it left, was done
/// before that one ended. Of what nobody saw, some does not matter.
pub(super) fn settled<M: Model>(operations: &[Operation<M::Action>]) -> Vec<Timed<M::Action>> {
    let mut timed = unsettled::<M>(operations);
    let mut left: HashMap<u64, Vec<usize>> = HashMap::new();
    for (place, operation) in timed.iter().enumerate() {
        if let Some(mark) = M::leaves(&operation.action) {
            left.entry(mark).or_default().push(place);
        }
    }
    // What two operations left cannot be told apart.
    left.retain(|_, by| by.len() == 1);
    let mut seen = HashSet::new();
    // Ends come earlier only, and each is that of some operation which is known to be done: so this ends.
    let mut news: Vec<usize> = (0..timed.len())
        .filter(|place| timed[*place].end != NEVER)
        .collect();
    while let Some(observer) = news.pop() {
        let end = timed[observer].end;
        for mark in M::saw(&timed[observer].action) {
            seen.insert(mark);
            let Some(by) = left.get(&mark).map(|by| by[0]) else {
                continue;
            };
            // Who saw what had not begun will be found out by the search.
            let end = end.max(timed[by].begin);
            if timed[by].end > end {
                timed[by].end = end;
                news.push(by);
            }
        }
    }
    let is_unseen = |operation: &Timed<M::Action>| {
        let mark = M::leaves(&operation.action);
        operation.end == NEVER && mark.is_some_and(|mark| !seen.contains(&mark))
    };
    if M::forgets_unseen() {
        timed.retain(|operation| !is_unseen(operation));
        return timed;
    }
    for operation in &mut timed {
        if is_unseen(operation) {
            operation.action = M::unseen(operation.action.clone());
        }
    }
    timed
}

/// The same, with nothing known about those whose outcome is unknown.
pub(super) fn unsettled<M: Model>(operations: &[Operation<M::Action>]) -> Vec<Timed<M::Action>> {
    operations.iter().filter_map(possible::<M>).collect()
}

/// None if it was not done, or if nobody learnt anything from it.
fn possible<M: Model>(operation: &Operation<M::Action>) -> Option<Timed<M::Action>> {
    let (end, action) = match operation.outcome {
        Outcome::Done(end) => (end, operation.action.clone()),
        Outcome::Unknown => (NEVER, M::untold(&operation.action)?),
        Outcome::Refused(_) => return None,
    };
    Some(Timed {
        client: operation.client,
        begin: operation.begun,
        end,
        action,
    })
}
