//! What joins the layers of a cluster: Raft below, the engine beside it.

mod machine;

pub use machine::{RegionMachine, WRONG_EPOCH};
