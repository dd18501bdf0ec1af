//! Raft for many regions: what one node commits, a majority of its replicas has on the disk.
//!
//! A *region* is one Raft group. A *node* has one *replica* of each of some regions, and this crate keeps all of them
//! at work: [`Node`]. It replicates batches of bytes and knows nothing about what is in them; they are applied to a
//! [`Machine`], which is given to it. openraft drives each group, and shows nowhere in what this crate offers.
//!
//! Follow a batch. Whoever evaluated it did so while its replica led and was ready ([`Role`]), and names that term when
//! it proposes it (`propose`). openraft compares the term, appends the batch to its log, and tells the other
//! replicas (`network`, `notices`, `message`, [`Transport`], [`Tcp`]). Each of them has it on the disk before it answers: one thread
//! writes what all regions have queued, with one sync (`log`). With a majority it is committed, and each replica applies
//! it (`state_machine`). Then the one who proposed it learns that ([`Outcome`]), or that it certainly was not, or
//! that nobody knows.
//!
//! Reads ask nobody while a majority has lately confirmed who leads (`lease`, `read`). Logs are cut off at the front once the
//! machine is durable up to there (`purge`), and a replica that needs what is gone gets the machine's state instead
//! (`snapshot`).
//!
//! `simulation` tells thousands of stories in which nodes crash, lose power, lose messages and are wrong
//! about the time, and looks whether what was told to anybody is true.

mod config;
mod consensus;
mod error;
mod group;
mod handler;
mod lease;
mod log;
mod machine;
mod membership;
mod message;
mod network;
mod node;
mod notices;
mod propose;
mod purge;
mod read;
mod runtime;
#[cfg(test)]
mod simulation;
mod snapshot;
mod state_machine;
mod tcp;
mod time;
mod transport;

pub use cairn_encoding::raft::{Applied, LogId, Membership};
pub use config::{Config, Failure, HearTime, WallClock};
pub use error::{MembershipError, Outcome, ReadError, StartError};
pub use group::{Member, Role, Status};
pub use lease::{ReadLease, Suspended};
pub use log::Log;
pub use machine::{Content, Entry, Machine, SnapshotReader, SnapshotWriter};
pub use node::Node;
pub use propose::MAX_PAYLOAD;
pub use runtime::Later;
pub use tcp::{Caller, Identity, Run, Tcp, Tls, Traffic};
pub use transport::{CallError, Service, Transport};
