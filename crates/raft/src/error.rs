//! What can go wrong, by what to do next.

use std::io;

use openraft::errors::Fatal;
use thiserror::Error;

use crate::consensus::Types;
use crate::group::Member;

/// What became of a proposal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is committed and applied here.
    Applied { index: u64, response: bytes::Bytes },
    /// Certainly not applied: another leads, if it is known who.
    NotLeader(Option<Member>),
    /// Certainly not applied: this replica does not lead in the term for which it was evaluated, or is about to hand
    /// over, or has lost its quorum. To be evaluated again.
    Stale,
    /// Certainly not applied: longer than [`MAX_PAYLOAD`](crate::MAX_PAYLOAD).
    TooLarge,
    /// Leadership was lost before its fate was known. It may be applied, now or later.
    Unknown,
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ReadError {
    #[error("another replica leads")]
    NotLeader(Option<Member>),
    #[error("no quorum answers")]
    NoQuorum,
}

#[derive(Debug, Error)]
pub enum StartError {
    #[error("the log: {0}")]
    Log(#[from] io::Error),
    #[error("settings: {0}")]
    Config(String),
    #[error("{0}")]
    Failed(String),
    #[error("region {0} is running")]
    Running(u64),
}

impl StartError {
    pub(crate) fn config(error: openraft::ConfigError) -> StartError {
        StartError::Config(error.to_string())
    }

    pub(crate) fn fatal(error: Fatal<Types>) -> StartError {
        StartError::Failed(error.to_string())
    }
}

/// Why the members of a region were not changed, or why this is not known.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum MembershipError {
    #[error("another replica leads")]
    NotLeader(Option<Member>),
    #[error("refused: {0}")]
    Refused(String),
    #[error("leadership was lost before the outcome was known")]
    Unknown,
}
