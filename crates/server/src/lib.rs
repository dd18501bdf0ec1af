//! Cairn: Redis' protocol and data types over an LSM tree.

mod acl;
mod address;
mod audience;
mod blocked;
mod cli;
mod client;
mod command;
mod config;
mod connection;
mod descriptors;
mod housekeeping;
pub mod in_process;
mod info;
mod inspect;
mod interest;
mod listener;
mod monitors;
mod observe;
mod outbox;
mod output_limits;
mod pause;
mod pubsub;
mod script;
mod server;
mod session;
mod slowlog;
mod space;
mod spikes;
mod stats;
mod tracking;
mod transaction;
mod turn;
mod unit;
mod watches;

pub use cli::main;
