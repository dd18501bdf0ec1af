//! A string that is set and read.

use super::operation::{Model, Timed};

/// No two writes of a key write the same value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    Set(u64),
    /// What was found, if anything.
    Get(Option<u64>),
    /// WATCH, GET, MULTI, SET, EXEC, which was not in vain. One that was in vain is a `Get`.
    Swap {
        from: Option<u64>,
        to: u64,
    },
}

pub struct Register;

impl Model for Register {
    type Action = Access;
    type State = Option<u64>;

    fn new(_: &[Timed<Access>]) -> Register {
        Register
    }

    fn initial(&self) -> Option<u64> {
        None
    }

    fn step(&self, state: &Option<u64>, action: &Access) -> Option<Option<u64>> {
        match action {
            Access::Set(value) => Some(Some(*value)),
            Access::Get(found) => (found == state).then_some(*state),
            Access::Swap { from, to } => (from == state).then_some(Some(*to)),
        }
    }

    fn is_read(action: &Access) -> bool {
        matches!(action, Access::Get(_))
    }

    fn untold(action: &Access) -> Option<Access> {
        (!Register::is_read(action)).then(|| action.clone())
    }

    fn leaves(action: &Access) -> Option<u64> {
        match action {
            Access::Set(value) | Access::Swap { to: value, .. } => Some(*value),
            Access::Get(_) => None,
        }
    }

    fn saw(action: &Access) -> Vec<u64> {
        match action {
            Access::Set(_) => Vec::new(),
            Access::Get(found) | Access::Swap { from: found, .. } => {
                found.iter().copied().collect()
            }
        }
    }

    /// Who writes does not learn what was there before.
    fn forgets_unseen() -> bool {
        true
    }

    fn describe(action: &Access) -> String {
        match action {
            Access::Set(value) => format!("SET {value}"),
            Access::Get(found) => format!("GET found {}", shown(*found)),
            Access::Swap { from, to } => format!("found {} and swapped it for {to}", shown(*from)),
        }
    }

    fn describe_state(state: &Option<u64>) -> String {
        shown(*state)
    }
}

fn shown(value: Option<u64>) -> String {
    value.map_or("nothing".to_string(), |value| value.to_string())
}
