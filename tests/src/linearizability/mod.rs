//! Whether what concurrent clients were told can be true.
//!
//! A history holds what each client asked, when, and what it was told. It is *linearizable* if all operations can be put
//! in one order in which each was told what a single-threaded database would have told it, and no operation comes
//! before one that had ended when it began. Keys do not depend on each other, so each is checked by itself.
//!
//! | model | operations |
//! |---|---|
//! | [`Register`] | SET, GET, and compare-and-set by WATCH |
//! | [`Counter`] | INCRBY, GET |
//! | [`Appends`] | RPUSH, LRANGE |
//! | [`Transfers`] | transactions over several keys, whose sum stays |
//!
//! An operation of which nobody knows whether it was done ([`Outcome::Unknown`]) may take effect at any time after it
//! was begun, or never. One that was certainly refused never does; if it shows, that is an anomaly like any other.
//!
//! `search` looks for an order, depth first, and remembers where it has been (Wing and Gong's algorithm, with the
//! memory that Lowe added). Three things keep it from taking forever: a read that fits is taken at once; an
//! unknown operation whose effect somebody saw is known to have been done by then (`settle`); and of unknown operations
//! that are all alike the first goes first. If no order is found, `explain` looks for the shortest history that has none.

mod appends;
mod counter;
mod explain;
mod history;
mod operation;
mod register;
mod search;
mod settle;
#[cfg(test)]
mod tests;
mod transfers;

pub use appends::{Append, Appends};
pub use counter::{Count, Counter};
pub use explain::Anomaly;
pub use history::{History, Summary};
pub use operation::{Model, Operation, Outcome};
pub use register::{Access, Register};
pub use search::{MEMORY, Verdict};
pub use transfers::{Transfer, Transfers};

/// Checks the operations on one object. `Undecided` if that took too much memory.
pub fn check<M: Model>(
    name: &str,
    operations: &[Operation<M::Action>],
) -> Result<Verdict, Anomaly> {
    match verdict::<M>(operations) {
        Verdict::Impossible => Err(explain::explain::<M>(name, operations)),
        verdict => Ok(verdict),
    }
}

fn verdict<M: Model>(operations: &[Operation<M::Action>]) -> Verdict {
    let timed = settle::settled::<M>(operations);
    let model = M::new(&timed);
    search::search(&model, &timed, MEMORY)
}
