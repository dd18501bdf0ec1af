//! openraft's types, and ours. Nothing of openraft is seen outside this crate.

use std::fmt;

use bytes::Bytes;
use cairn_encoding::raft::{self as stored, LogId, Membership};
use openraft::EntryPayload;
use openraft::impls::leader_id_std;

use crate::runtime::Runtime;

/// What a proposal becomes in the log.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Batch {
    pub timestamp_ms: u64,
    pub epoch: u64,
    pub payload: Bytes,
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes, epoch {}", self.payload.len(), self.epoch)
    }
}

impl fmt::Display for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// On which node a replica is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Place {
    pub node: u64,
}

openraft::declare_raft_types!(
    pub(crate) Types:
        D = Batch,
        R = Bytes,
        NodeId = u64,
        Node = Place,
        // One leader per term, so that a term names a leader.
        LeaderId = leader_id_std::LeaderId<u64, u64>,
        AsyncRuntime = Runtime,
);

pub(crate) type RaftLogId = openraft::alias::LogIdOf<Types>;
pub(crate) type RaftVote = openraft::alias::VoteOf<Types>;
pub(crate) type RaftEntry = openraft::alias::EntryOf<Types>;
pub(crate) type RaftMembership = openraft::Membership<u64, Place>;
pub(crate) type RaftStoredMembership = openraft::alias::StoredMembershipOf<Types>;
pub(crate) type RaftSnapshotMeta = openraft::alias::SnapshotMetaOf<Types>;

pub(crate) fn log_id(id: &RaftLogId) -> LogId {
    LogId {
        term: id.leader_id.term,
        index: id.index,
    }
}

pub(crate) fn raft_log_id(id: LogId) -> RaftLogId {
    RaftLogId::new(id.term.into(), id.index)
}

pub(crate) fn vote(vote: &RaftVote) -> stored::Vote {
    stored::Vote {
        term: vote.leader_id.term,
        candidate: vote.leader_id.voted_for,
        committed: vote.committed,
    }
}

pub(crate) fn raft_vote(vote: stored::Vote) -> RaftVote {
    let raft = RaftVote::new(vote.term, vote.candidate);
    RaftVote {
        committed: vote.committed,
        ..raft
    }
}

pub(crate) fn membership(raft: &RaftMembership) -> Membership {
    Membership {
        configs: raft.get_joint_config().clone(),
        nodes: raft
            .nodes()
            .map(|(replica, place)| (*replica, place.node))
            .collect(),
    }
}

/// An empty membership is what a new replica starts with. Any other that has voters without a node was never
/// made by an encoder.
pub(crate) fn raft_membership(membership: &Membership) -> std::io::Result<RaftMembership> {
    let nodes: std::collections::BTreeMap<u64, Place> = membership
        .nodes
        .iter()
        .map(|(replica, node)| (*replica, Place { node: *node }))
        .collect();
    RaftMembership::new(membership.configs.clone(), nodes)
        .map_err(|error| std::io::Error::new(std::io::ErrorKind::InvalidData, error.to_string()))
}

/// The body of an entry, for its encoder.
pub(crate) fn body(entry: &RaftEntry) -> stored::Body<'_> {
    match &entry.payload {
        EntryPayload::Blank => stored::Body::Blank,
        EntryPayload::Normal(batch) => stored::Body::Batch {
            timestamp_ms: batch.timestamp_ms,
            epoch: batch.epoch,
            payload: &batch.payload,
        },
        EntryPayload::Membership(raft) => stored::Body::Membership(membership(raft)),
    }
}

/// The entry whose body was read from `bytes`. The payload is not copied.
pub(crate) fn raft_entry(
    id: LogId,
    body: stored::Body<'_>,
    bytes: &Bytes,
) -> std::io::Result<RaftEntry> {
    let payload = match body {
        stored::Body::Blank => EntryPayload::Blank,
        stored::Body::Batch {
            timestamp_ms,
            epoch,
            payload,
        } => EntryPayload::Normal(Batch {
            timestamp_ms,
            epoch,
            payload: bytes.slice_ref(payload),
        }),
        stored::Body::Membership(membership) => {
            EntryPayload::Membership(raft_membership(&membership)?)
        }
    };
    Ok(RaftEntry {
        log_id: raft_log_id(id),
        payload,
    })
}

/// What an entry takes in memory and on the disk, nearly.
pub(crate) fn size(entry: &RaftEntry) -> u64 {
    let payload = match &entry.payload {
        EntryPayload::Normal(batch) => batch.payload.len(),
        EntryPayload::Blank | EntryPayload::Membership(_) => 0,
    };
    payload as u64 + 64
}
