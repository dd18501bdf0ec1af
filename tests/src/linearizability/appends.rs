//! A list that grows at its end.
//!
//! Nothing is ever removed, so whoever reads sees what everybody before saw, and perhaps more. The longest list that anybody
//! saw tells the place of each of its elements; so the state is how many there are. What was never read may come behind them.

use std::collections::HashSet;

use super::operation::{Model, Timed};

/// No two appends to a list append the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Append {
    /// What, and how long the list was afterwards, as far as is known.
    Push { element: u64, told: Option<usize> },
    /// All elements.
    Read(Vec<u64>),
}

/// Stands for every element that nobody read.
const UNSEEN: u64 = u64::MAX;

pub struct Appends {
    longest: Vec<u64>,
    known: HashSet<u64>,
}

impl Appends {
    pub(super) fn of(longest: Vec<u64>) -> Appends {
        Appends {
            known: longest.iter().copied().collect(),
            longest,
        }
    }

    /// Whether an element can be the one after `length` others.
    pub(super) fn fits(&self, length: usize, element: u64) -> bool {
        match self.longest.get(length) {
            Some(there) => *there == element,
            None => !self.known.contains(&element),
        }
    }

    pub(super) fn shows(&self, length: usize, read: &[u64]) -> bool {
        read.len() == length && self.longest.starts_with(read)
    }
}

impl Model for Appends {
    type Action = Append;
    type State = usize;

    fn new(operations: &[Timed<Append>]) -> Appends {
        let reads = operations
            .iter()
            .filter_map(|operation| match &operation.action {
                Append::Read(elements) => Some(elements),
                Append::Push { .. } => None,
            });
        Appends::of(
            reads
                .max_by_key(|read| read.len())
                .cloned()
                .unwrap_or_default(),
        )
    }

    fn initial(&self) -> usize {
        0
    }

    fn step(&self, state: &usize, action: &Append) -> Option<usize> {
        match action {
            Append::Push { element, told } => {
                let after = state + 1;
                let fits = self.fits(*state, *element) && told.is_none_or(|told| told == after);
                fits.then_some(after)
            }
            Append::Read(elements) => self.shows(*state, elements).then_some(*state),
        }
    }

    fn is_read(action: &Append) -> bool {
        matches!(action, Append::Read(_))
    }

    fn untold(action: &Append) -> Option<Append> {
        match action {
            Append::Push { element, .. } => Some(Append::Push {
                element: *element,
                told: None,
            }),
            Append::Read(_) => None,
        }
    }

    fn leaves(action: &Append) -> Option<u64> {
        match action {
            Append::Push { element, .. } => Some(*element),
            Append::Read(_) => None,
        }
    }

    fn saw(action: &Append) -> Vec<u64> {
        match action {
            Append::Push { .. } => Vec::new(),
            Append::Read(elements) => elements.clone(),
        }
    }

    /// The length that another append was told may count it.
    fn forgets_unseen() -> bool {
        false
    }

    fn unseen(action: Append) -> Append {
        match action {
            Append::Push { told, .. } => Append::Push {
                element: UNSEEN,
                told,
            },
            Append::Read(_) => action,
        }
    }

    fn describe(action: &Append) -> String {
        match action {
            Append::Push {
                element,
                told: Some(told),
            } => {
                format!("RPUSH {} made it {told} long", shown(*element))
            }
            Append::Push {
                element,
                told: None,
            } => format!("RPUSH {}", shown(*element)),
            Append::Read(elements) => format!("LRANGE found {}", tail(elements)),
        }
    }

    fn describe_state(state: &usize) -> String {
        format!("{state} elements")
    }
}

fn shown(element: u64) -> String {
    match element {
        UNSEEN => "something".to_string(),
        element => element.to_string(),
    }
}

/// The end of a list, which is what changes.
pub(super) fn tail(elements: &[u64]) -> String {
    let shown = &elements[elements.len().saturating_sub(8)..];
    let before = if shown.len() < elements.len() {
        "... "
    } else {
        ""
    };
    let shown: Vec<String> = shown.iter().map(u64::to_string).collect();
    format!("{} elements: {before}{}", elements.len(), shown.join(" "))
}
