//! Money that moves between accounts, several keys in one transaction.
//!
//! A transfer takes from one account, gives to another, and appends its number to a log; whoever reads, reads all balances and
//! the log at once. So it shows which transfers were done, each whole or not at all, and the sum stays.

use super::appends::{Appends, tail};
use super::operation::{Model, Timed};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transfer {
    Move {
        /// No two have the same.
        number: u64,
        from: usize,
        to: usize,
        amount: i64,
        /// Both balances afterwards, as far as they are known.
        told: Option<(i64, i64)>,
    },
    /// Accounts that nobody has touched are empty, and may be in debt.
    Read { balances: Vec<i64>, log: Vec<u64> },
}

pub struct Transfers {
    log: Appends,
    accounts: usize,
}

impl Model for Transfers {
    type Action = Transfer;
    /// How many were done, and what they left.
    type State = (usize, Vec<i64>);

    fn new(operations: &[Timed<Transfer>]) -> Transfers {
        let (mut longest, mut accounts) = (Vec::new(), 0);
        for operation in operations {
            match &operation.action {
                Transfer::Move { from, to, .. } => accounts = accounts.max(from + 1).max(to + 1),
                Transfer::Read { balances, log } => {
                    accounts = accounts.max(balances.len());
                    if log.len() > longest.len() {
                        longest = log.clone();
                    }
                }
            }
        }
        Transfers {
            log: Appends::of(longest),
            accounts,
        }
    }

    fn initial(&self) -> (usize, Vec<i64>) {
        (0, vec![0; self.accounts])
    }

    fn step(&self, state: &(usize, Vec<i64>), action: &Transfer) -> Option<(usize, Vec<i64>)> {
        let (done, before) = state;
        match action {
            Transfer::Move {
                number,
                from,
                to,
                amount,
                told,
            } => {
                if !self.log.fits(*done, *number) {
                    return None;
                }
                let mut after = before.clone();
                after[*from] -= amount;
                after[*to] += amount;
                let fits = told.is_none_or(|told| told == (after[*from], after[*to]));
                fits.then_some((done + 1, after))
            }
            Transfer::Read { balances, log } => {
                let fits = balances == before && self.log.shows(*done, log);
                fits.then(|| state.clone())
            }
        }
    }

    fn is_read(action: &Transfer) -> bool {
        matches!(action, Transfer::Read { .. })
    }

    fn untold(action: &Transfer) -> Option<Transfer> {
        match action.clone() {
            Transfer::Move {
                number,
                from,
                to,
                amount,
                ..
            } => Some(Transfer::Move {
                number,
                from,
                to,
                amount,
                told: None,
            }),
            Transfer::Read { .. } => None,
        }
    }

    fn leaves(action: &Transfer) -> Option<u64> {
        match action {
            Transfer::Move { number, .. } => Some(*number),
            Transfer::Read { .. } => None,
        }
    }

    fn saw(action: &Transfer) -> Vec<u64> {
        match action {
            Transfer::Move { .. } => Vec::new(),
            Transfer::Read { log, .. } => log.clone(),
        }
    }

    /// The balances that another transfer was told may count it.
    fn forgets_unseen() -> bool {
        false
    }

    fn describe(action: &Transfer) -> String {
        match action {
            Transfer::Move {
                number,
                from,
                to,
                amount,
                told,
            } => {
                let left = told.map(|(from, to)| format!(", which left {from} and {to}"));
                let left = left.unwrap_or_default();
                format!("transfer {number}: {amount} from {from} to {to}{left}")
            }
            Transfer::Read { balances, log } => {
                let sum: i64 = balances.iter().sum();
                format!(
                    "found {balances:?}, {sum} in all, after transfers {}",
                    tail(log)
                )
            }
        }
    }

    fn describe_state(state: &(usize, Vec<i64>)) -> String {
        format!("{:?} after {} transfers", state.1, state.0)
    }
}
