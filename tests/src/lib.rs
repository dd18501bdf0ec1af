//! What Cairn's tests share: a server to run, a client to talk to it, and scripts to hold it to.
//!
//! Nothing here links Cairn itself. The server is started as a program, the client speaks RESP over
//! a socket with a decoder of its own, and so every test that runs against Cairn runs against a real
//! redis-server as well: that is how the tests themselves are checked.

pub mod bank;
pub mod certificates;
pub mod check;
pub mod client;
pub mod clock;
pub mod differential;
pub mod disk;
pub mod ending;
pub mod fault;
pub mod figures;
pub mod follower;
pub mod json;
pub mod linearizability;
pub mod nemesis;
pub mod powercut;
pub mod script;
pub mod server;
pub mod value;
pub mod workload;
