//! How nodes reach each other: requests and responses as bytes. The real one is `tcp`; the simulation has its own.

use std::time::Duration;

use bytes::Bytes;
use thiserror::Error;

use crate::runtime::Later;
use crate::tcp::Caller;

/// Calls other nodes.
pub trait Transport: Send + Sync + 'static {
    /// Sends a request, and waits for the response until `limit` has passed. Requests may overtake each other.
    fn call(
        &self,
        node: u64,
        request: Bytes,
        limit: Duration,
    ) -> Later<'static, Result<Bytes, CallError>>;
}

/// Answers other nodes.
pub trait Service: Send + Sync + 'static {
    /// Whether a node that has shown that it belongs to the cluster is talked to; why not, if not.
    fn admits(&self, caller: &Caller) -> Result<(), String>;

    fn serve(&self, from: u64, request: Bytes) -> Later<'static, Bytes>;
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CallError {
    /// The request has not been sent, and will not be. To try again at once would be in vain.
    #[error("not reachable: {0}")]
    NotSent(String),
    /// Whether it was served is not known. To try again at once would be in vain.
    #[error("not reachable: {0}")]
    Unreachable(String),
    /// Nor is it here, nor whether it will be.
    #[error("no answer in time")]
    TimedOut,
}
