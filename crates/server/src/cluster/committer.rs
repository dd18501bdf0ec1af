//! What the store commits, as proposals to a region's Raft group.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cairn_engine::{Batch, Clock, Commit, Committer, EngineError, Maxima};
use cairn_raft::{Node, Outcome, ReadLease};
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use super::machine::{WRONG_EPOCH, rows_entry};

/// Whether the fate of a proposal is not known, although the term may go on.
///
/// Such a proposal may still be applied, at any moment, and whoever evaluates anything about the same rows before that does
/// not see it. So nothing is committed any more under a lead in which this happened; there is another once all that was
/// proposed before has come to its end (see `replicas`).
#[derive(Default)]
pub struct Doubt {
    is_raised: AtomicBool,
    raised: Notify,
}

impl Doubt {
    pub fn is_raised(&self) -> bool {
        self.is_raised.load(Ordering::Acquire)
    }

    fn raise(&self) {
        self.is_raised.store(true, Ordering::Release);
        self.raised.notify_one();
    }

    /// Waits until it is.
    pub async fn raised(&self) {
        self.raised.notified().await;
    }
}

/// Commits to a region in one term and one epoch.
pub struct RaftCommitter {
    pub raft: Arc<Node>,
    pub region: u64,
    pub term: u64,
    pub epoch: u64,
    pub lease: ReadLease,
    pub clock: Arc<Clock>,
    pub doubt: Arc<Doubt>,
    pub runtime: Handle,
}

impl Committer for RaftCommitter {
    fn commit(&self, batch: Batch) -> Commit {
        if self.doubt.is_raised() {
            return Commit::Done(Err(EngineError::Outdated));
        }
        let (version, timestamp_ms) = self.clock.maxima();
        let maxima = Maxima {
            version,
            timestamp_ms,
        };
        let payload = rows_entry(self.region, &batch, maxima);
        let (told, outcome) = oneshot::channel();
        let told = Told(Some(told));
        let (raft, doubt) = (self.raft.clone(), self.doubt.clone());
        let (region, term, epoch) = (self.region, self.term, self.epoch);
        self.runtime.spawn(async move {
            let outcome = raft.propose(region, term, epoch, payload).await;
            if outcome == Outcome::Unknown {
                // Before anybody lets go of the latches.
                doubt.raise();
            }
            told.send(result(outcome));
        });
        Commit::Pending(outcome)
    }

    fn may_read(&self) -> bool {
        self.lease.holds()
    }
}

/// Tells what became of a commit. If nobody will know any more, because the server ends, it tells that.
struct Told(Option<oneshot::Sender<Result<(), EngineError>>>);

impl Told {
    fn send(mut self, result: Result<(), EngineError>) {
        if let Some(told) = self.0.take() {
            // Whoever waited may be gone.
            told.send(result).ok();
        }
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        if let Some(told) = self.0.take() {
            told.send(Err(EngineError::InDoubt)).ok();
        }
    }
}

fn result(outcome: Outcome) -> Result<(), EngineError> {
    match outcome {
        Outcome::Applied { response, .. } if response == WRONG_EPOCH => Err(EngineError::Outdated),
        Outcome::Applied { .. } => Ok(()),
        Outcome::NotLeader(_) => Err(EngineError::NotLeading),
        Outcome::Stale => Err(EngineError::Outdated),
        Outcome::TooLarge => Err(EngineError::TooLarge),
        Outcome::Unknown => Err(EngineError::InDoubt),
    }
}
