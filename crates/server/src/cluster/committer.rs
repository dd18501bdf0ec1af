//! What the store commits, as proposals to a region's Raft group.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use cairn_engine::{Batch, Clock, Commit, Committer, EngineError, Maxima, Underway};
use cairn_raft::{Node, Outcome, ReadLease};
use tokio::runtime::Handle;
use tokio::sync::Notify;

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
        let raft = self.raft.clone();
        let (region, term, epoch) = (self.region, self.term, self.epoch);
        let outcome = async move { raft.propose(region, term, epoch, payload).await };
        let mut proposal = Box::pin(Proposal {
            outcome: Box::pin(outcome),
            doubt: Some(self.doubt.clone()),
            runtime: self.runtime.clone(),
        });
        // Now it is on its way, whoever waits for it and when: others may be proposed meanwhile. Its time limit is for
        // the cluster's threads to look after.
        let _context = self.runtime.enter();
        let first = proposal.as_mut();
        match first.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => Commit::Done(result),
            Poll::Pending => Commit::Underway(proposal),
        }
    }

    fn may_read(&self) -> bool {
        self.lease.holds()
    }
}

/// A batch that was proposed.
struct Proposal {
    outcome: Pin<Box<dyn Future<Output = Outcome> + Send>>,
    /// None once it is known what became of it.
    doubt: Option<Arc<Doubt>>,
    runtime: Handle,
}

impl Future for Proposal {
    type Output = Result<(), EngineError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = ready!(self.outcome.as_mut().poll(context));
        // Whoever waits lets go of the latches afterwards.
        if let (Some(doubt), Outcome::Unknown) = (self.doubt.take(), &outcome) {
            doubt.raise();
        }
        Poll::Ready(result(outcome))
    }
}

impl Underway for Proposal {
    fn wait(self: Pin<Box<Self>>) -> Result<(), EngineError> {
        let runtime = self.runtime.clone();
        runtime.block_on(self)
    }

    fn wait_within(self: Pin<&mut Self>, limit: Duration) -> Option<Result<(), EngineError>> {
        let runtime = self.runtime.clone();
        runtime.block_on(async { tokio::time::timeout(limit, self).await.ok() })
    }
}

/// One for whom nobody waits any more may still be applied.
impl Drop for Proposal {
    fn drop(&mut self) {
        if let Some(doubt) = self.doubt.take() {
            doubt.raise();
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use bytes::Bytes;

    use super::*;

    fn proposed(
        outcome: impl Future<Output = Outcome> + Send + 'static,
        runtime: &Handle,
    ) -> (Pin<Box<Proposal>>, Arc<Doubt>) {
        let doubt: Arc<Doubt> = Arc::default();
        let proposal = Proposal {
            outcome: Box::pin(outcome),
            doubt: Some(doubt.clone()),
            runtime: runtime.clone(),
        };
        (Box::pin(proposal), doubt)
    }

    #[test]
    fn a_lead_ends_with_what_nobody_knows() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let applied = |response: &'static [u8]| Outcome::Applied {
            index: 1,
            response: Bytes::from_static(response),
        };
        let known = [
            (applied(b""), "Ok(())"),
            (applied(WRONG_EPOCH), "Err(Outdated)"),
            (Outcome::NotLeader(None), "Err(NotLeading)"),
            (Outcome::Stale, "Err(Outdated)"),
            (Outcome::TooLarge, "Err(TooLarge)"),
        ];
        for (outcome, expected) in known {
            let (proposal, doubt) = proposed(async { outcome }, runtime.handle());
            assert_eq!(format!("{:?}", proposal.wait()), expected);
            assert!(!doubt.is_raised(), "{expected}");
        }
        let (proposal, doubt) = proposed(async { Outcome::Unknown }, runtime.handle());
        assert!(matches!(proposal.wait(), Err(EngineError::InDoubt)));
        assert!(doubt.is_raised());
        let (proposal, doubt) = proposed(std::future::pending(), runtime.handle());
        drop(proposal);
        assert!(doubt.is_raised(), "it may still be applied");
    }
}
