//! What a client did, and what a model makes of it.

use std::fmt::Debug;
use std::hash::Hash;

/// Nanoseconds of a clock that all clients share.
pub type Time = u64;

/// Later than any time.
pub const NEVER: Time = Time::MAX;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation<A> {
    pub client: usize,
    pub begun: Time,
    pub outcome: Outcome,
    /// What was asked, and what was told, if anything was.
    pub action: A,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answered at this time.
    Done(Time),
    /// The connection was lost, or nothing came in time, or the server did not know.
    Unknown,
    /// Told at this time that it was not done, and never will be.
    Refused(Time),
}

/// An operation that is known to have been done by `end`, or of which that is not known, if that is [`NEVER`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timed<A> {
    pub client: usize,
    pub begin: Time,
    pub end: Time,
    pub action: A,
}

/// An object, and what operations do to it.
pub trait Model {
    type Action: Clone + Debug + PartialEq;
    type State: Clone + Debug + Eq + Hash + Ord;

    /// May look at all operations for what makes the search shorter.
    fn new(operations: &[Timed<Self::Action>]) -> Self;

    fn initial(&self) -> Self::State;

    /// The state after an action; none if it would not have been told what it was.
    fn step(&self, state: &Self::State, action: &Self::Action) -> Option<Self::State>;

    /// Whether it changes nothing.
    fn is_read(action: &Self::Action) -> bool;

    /// The same, if nothing is known of what was told; none if it then says nothing at all.
    fn untold(action: &Self::Action) -> Option<Self::Action>;

    /// What is seen by others of this action and of no other.
    fn leaves(action: &Self::Action) -> Option<u64>;

    /// What others left that this one saw.
    fn saw(action: &Self::Action) -> Vec<u64>;

    /// Whether an action that nobody saw can be taken for one that was not done.
    fn forgets_unseen() -> bool;

    /// The same action for all that nobody saw, where they do not differ for anybody.
    fn unseen(action: Self::Action) -> Self::Action {
        action
    }

    fn describe(action: &Self::Action) -> String;

    fn describe_state(state: &Self::State) -> String;
}
