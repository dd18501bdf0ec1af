//! How nodes reach each other: requests and responses as bytes. The real one is `tcp`; the simulation has its own.

use std::time::Duration;

use bytes::Bytes;
use thiserror::Error;

use crate::runtime::Later;

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
    fn serve(&self, from: u64, request: Bytes) -> Later<'static, Bytes>;
}

/// Whether the request was served is not known.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CallError {
    /// To try again at once would be in vain.
    #[error("not reachable: {0}")]
    Unreachable(String),
    #[error("no answer in time")]
    TimedOut,
}
