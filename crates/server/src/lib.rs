//! Cairn: Redis' protocol and data types over an LSM tree.

mod address;
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
mod listener;
mod pause;
mod server;
mod session;
mod space;
mod stats;
mod turn;

pub use cli::main;
