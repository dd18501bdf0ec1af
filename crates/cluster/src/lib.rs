//! Who belongs to a cluster, which node has which slots, and what to do next about it: decided here, and done elsewhere.
//!
//! The *cluster map* ([`ClusterMap`]) is what region 0 replicates: nodes, regions, the replicas of each. It changes by
//! [`Change`]s alone, which are entries in the log of region 0. A change that does not fit changes nothing, and says
//! why, on every replica alike.
//!
//! The map *directs*, and each region's own log decides. Follow a replica that moves from one node to another. The map
//! gets a learner, with a number that was never used before ([`Change::AddReplica`]); its node sees that and starts it.
//! [`drive`] compares what the map wants with what the region's group is ([`Group`]), and names the next step:
//! the leader adds the learner. Once that has caught up, the map makes it a voter, and the one that it replaces is to
//! leave; the leader changes the voters to those of the map, by a joint change, after it has handed over if it is the
//! one to leave. When the group has forgotten the old replica, so does the map, and its node destroys it. At
//! every point the next step follows from the map and the group, so whoever directs may crash, and another goes on.
//!
//! [`plan`] decides which replicas to move: away from nodes that are to leave, to where some are missing, and until
//! all nodes have about the same number of replicas and of leaders. It proposes few steps at a time, and none once all
//! is well.
//!
//! [`View`] is what clients are told, in the words of Redis Cluster; [`Status`] is for people.
//!
//! Nothing here does I/O, reads a clock, or knows what Raft or rows are.

mod balance;
mod change;
mod drive;
mod found;
mod json;
mod layout;
mod map;
mod node;
mod observed;
mod plan;
mod region;
mod slots;
mod status;
mod view;

pub use change::{Change, Effect, Refusal};
pub use drive::{Progress, Step, Waiting, drive};
pub use found::{Foundation, Founder};
pub use layout::{LayoutError, NEWEST};
pub use map::{ClusterMap, Settings};
pub use node::{Addresses, Endpoint, Node, NodeState, Peer};
pub use observed::{CLOSE, Group, Observed};
pub use plan::{Limits, Plan, plan};
pub use region::{Duty, MAP_REGION, Region, Replica, Split};
pub use slots::SlotRange;
pub use status::Status;
pub use view::{Alone, Answer, Route, View, node_name};

#[cfg(test)]
mod simulation;
