//! Bringing a batch into a region's log, and finding out what became of it.

use std::pin::pin;

use bytes::Bytes;
use openraft::errors::{ClientWriteError, ForwardReason};
use openraft::impls::ProgressResponder;
use openraft::raft::ClientWriteResult;

use crate::consensus::{Batch, Types};
use crate::error::Outcome;
use crate::group::{Group, Role, member};
use crate::runtime::within;

/// The longest batch: it stands in the memory of each node, and in one message.
pub const MAX_PAYLOAD: usize = 256 * 1024 * 1024;

/// After so many election timeouts in which nothing at all was committed, nobody knows what will become of what waits. The
/// longest batches take some seconds on a slow disk.
const STUCK: u32 = 60;

impl Group {
    pub(crate) async fn propose(&self, term: u64, epoch: u64, payload: Bytes) -> Outcome {
        if payload.len() > MAX_PAYLOAD {
            return Outcome::TooLarge;
        }
        let batch = Batch {
            timestamp_ms: (self.config.wall_clock)(),
            epoch,
            payload,
        };
        let (responder, done) =
            ProgressResponder::<Types, ClientWriteResult<Types>>::complete_only();
        // openraft compares the term when it appends. So what was evaluated in a term that has ended is refused, also if
        // this replica leads again.
        let sent = self
            .raft
            .write(batch)
            .with_leader(term)
            .responder(responder)
            .await;
        if sent.is_err() {
            // It has stopped, and never saw it.
            return Outcome::NotLeader(None);
        }
        match self.while_leading(term, done).await {
            Some(Ok(result)) => outcome(result, self.replica),
            Some(Err(_)) | None => Outcome::Unknown,
        }
    }

    /// Waits for something that a leader learns. One that no longer leads, or has lost its quorum, may never learn it,
    /// and is given some time more: none if it does not. So is one whose quorum is there and writes nothing: followers answer that
    /// they hear it before their disks do.
    pub(crate) async fn while_leading<T: Send>(
        &self,
        term: u64,
        learnt: impl Future<Output = T> + Send,
    ) -> Option<T> {
        let mut learnt = pin!(learnt);
        let (mut lost, mut stuck) = (0, 0);
        let mut committed = self.log.places().committed();
        while lost < 2 && stuck < STUCK {
            if let Some(learnt) = within(self.config.election_timeout, &mut learnt).await {
                return Some(learnt);
            }
            lost = match self.leads(term) && self.has_quorum() {
                true => 0,
                false => lost + 1,
            };
            let by_now = self.log.places().committed();
            stuck = match by_now == committed {
                true => stuck + 1,
                false => 0,
            };
            committed = by_now;
        }
        None
    }

    pub(crate) fn leads(&self, in_term: u64) -> bool {
        matches!(self.role(), Role::Leader { term, .. } if term == in_term)
    }
}

fn outcome(result: ClientWriteResult<Types>, own: u64) -> Outcome {
    match result {
        Ok(applied) => Outcome::Applied {
            index: applied.log_id.index,
            response: applied.data,
        },
        // Refused before it was appended.
        Err(ClientWriteError::ForwardToLeader(forward)) => {
            match (
                forward.reason,
                member(forward.leader_id, forward.leader_node),
            ) {
                (ForwardReason::NotLeader, Some(leader)) if leader.replica != own => {
                    Outcome::NotLeader(Some(leader))
                }
                _ => Outcome::Stale,
            }
        }
        // It was in the log of a leader, and others may have it.
        Err(ClientWriteError::LogEntryDiscarded(_)) => Outcome::Unknown,
        Err(
            ClientWriteError::ChangeMembershipError(_) | ClientWriteError::PreconditionFailed(_),
        ) => Outcome::Stale,
    }
}
