//! A number that is increased.

use super::operation::{Model, Timed};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Count {
    /// By how much, and what it was afterwards, as far as is known.
    Increase { by: i64, told: Option<i64> },
    /// Nothing is 0.
    Get(i64),
}

pub struct Counter;

impl Model for Counter {
    type Action = Count;
    type State = i64;

    fn new(_: &[Timed<Count>]) -> Counter {
        Counter
    }

    fn initial(&self) -> i64 {
        0
    }

    fn step(&self, state: &i64, action: &Count) -> Option<i64> {
        match action {
            Count::Increase { by, told } => {
                let after = state + by;
                told.is_none_or(|told| told == after).then_some(after)
            }
            Count::Get(found) => (found == state).then_some(*state),
        }
    }

    fn is_read(action: &Count) -> bool {
        matches!(action, Count::Get(_))
    }

    fn untold(action: &Count) -> Option<Count> {
        match action {
            Count::Increase { by, .. } => Some(Count::Increase {
                by: *by,
                told: None,
            }),
            Count::Get(_) => None,
        }
    }

    /// One increase looks like another.
    fn leaves(_: &Count) -> Option<u64> {
        None
    }

    fn saw(_: &Count) -> Vec<u64> {
        Vec::new()
    }

    fn forgets_unseen() -> bool {
        false
    }

    fn describe(action: &Count) -> String {
        match action {
            Count::Increase {
                by,
                told: Some(told),
            } => format!("INCRBY {by} made it {told}"),
            Count::Increase { by, told: None } => format!("INCRBY {by}"),
            Count::Get(found) => format!("GET found {found}"),
        }
    }

    fn describe_state(state: &i64) -> String {
        state.to_string()
    }
}
