//! RESP, the protocol of Redis, in both its versions: bytes to requests and replies to bytes.
//!
//! Nothing here reads or writes a socket, knows a command, or keeps more than one request's state. A
//! connection goes through three calls, over and over:
//!
//! 1. [`Parser::parse`] looks at what was read and finds a request in it: [`Args`], which are places in
//!    the connection's own buffer.
//! 2. The command's handler answers with a [`Reply`].
//! 3. [`Reply::write`] appends it to the output through a [`Writer`], spelled in the client's
//!    [`Protocol`]. A large one is a [`ReplyStream`] and is written as the client takes it.
//!
//! [`decode()`] goes the other way, for whoever is the client. [`number`], [`glob`] and [`inline`] are the
//! notation inside the strings: how Redis writes numbers, matches patterns, and quotes words.

#![forbid(unsafe_code)]

mod args;
mod bulks;
mod decode;
mod error;
pub mod glob;
pub mod inline;
pub mod number;
mod parser;
mod reply;
mod writer;

pub use args::Args;
pub use bulks::Bulks;
pub use decode::{DecodeError, Value, decode};
pub use error::ProtocolError;
pub use parser::{Limits, Parsed, Parser};
pub use reply::{Progress, Reply, ReplyStream, StreamError};
pub use writer::{Protocol, Writer};
