//! What the store commits, as proposals to a region's Raft group.
//!
//! One of a region is under way at a time, and what comes meanwhile is gathered (`gathering`) and proposed as one batch. Latches are
//! held as ever: each turn holds its own until its changes are applied.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use cairn_engine::{Batch, Clock, Commit, Committer, EngineError, Maxima, Underway};
use cairn_raft::{Node, Outcome, ReadLease};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout_at};

use super::gathering::{Gathered, Gathering, rows};
use super::machine::{WRONG_EPOCH, rows_entry};

/// How long those who were answered may take to write again: twice as long as the proposal took that they waited for, within these
/// bounds. Where processors are scarce both take longer, and who leaves too soon leaves most of them behind.
const SHORTEST_RETURN: Duration = Duration::from_millis(2);
const LONGEST_RETURN: Duration = Duration::from_millis(10);

/// Whether the fate of a proposal is not known, although the term may go on.
///
/// Such a proposal may still be applied, at any moment, and whoever evaluates anything about the same rows before that does
/// not see it. So nothing is committed any more under a lead in which this happened; there is another once all that was
/// proposed before has come to its end (see `replicas`).
#[derive(Default)]
pub struct Doubt {
    is_raised: Mutex<bool>,
    raised: Notify,
}

impl Doubt {
    pub fn is_raised(&self) -> bool {
        *self.is_raised.lock()
    }

    fn raise(&self) {
        *self.is_raised.lock() = true;
        self.raised.notify_one();
    }

    /// Does something that must not be done once it is raised; none if it is.
    fn unless_raised<T>(&self, act: impl FnOnce() -> T) -> Option<T> {
        let is_raised = self.is_raised.lock();
        (!*is_raised).then(act)
    }

    /// Waits until it is.
    pub async fn raised(&self) {
        self.raised.notified().await;
    }
}

/// Commits to a region in one term and one epoch.
pub struct RaftCommitter {
    proposer: Arc<Proposer>,
    lease: ReadLease,
    runtime: Handle,
}

/// Brings what is committed into the log of a region.
pub struct Proposer {
    pub raft: Arc<Node>,
    pub region: u64,
    pub term: u64,
    pub epoch: u64,
    pub clock: Arc<Clock>,
    pub doubt: Arc<Doubt>,
    pub gathering: Mutex<Gathering>,
    /// As much has come as was waited for.
    pub come: Notify,
}

impl RaftCommitter {
    pub fn new(proposer: Proposer, lease: ReadLease, runtime: Handle) -> Self {
        RaftCommitter {
            proposer: Arc::new(proposer),
            lease,
            runtime,
        }
    }
}

impl Committer for RaftCommitter {
    fn commit(&self, batch: &mut Batch) -> Commit {
        let doubt = &self.proposer.doubt;
        if doubt.is_raised() {
            return Commit::Done(Err(EngineError::Outdated));
        }
        let (told, fate) = oneshot::channel();
        let batch = batch.take();
        let next = {
            let mut gathering = self.proposer.gathering.lock();
            let next = gathering.add(Gathered { batch, told });
            if gathering.has_come() {
                self.proposer.come.notify_one();
            }
            next
        };
        if let Some(next) = next {
            self.runtime.spawn(self.proposer.clone().carry(next));
        }
        Commit::Underway(Box::pin(Proposal {
            fate,
            doubt: Some(doubt.clone()),
            runtime: self.runtime.clone(),
        }))
    }

    fn may_read(&self) -> bool {
        self.lease.holds()
    }
}

impl Proposer {
    /// Proposes what was gathered, and then what has been gathered meanwhile, until there is nothing.
    async fn carry(self: Arc<Self>, first: Vec<Gathered>) {
        let mut next = Some(first);
        while let Some(commits) = next {
            let begun = Instant::now();
            let result = self.propose(&commits).await;
            let took = begun.elapsed();
            let answered = rows(&commits);
            for commit in commits {
                // Whoever waits lets go of its latches afterwards. If nobody does any more, there is doubt already.
                commit.told.send(result.clone()).ok();
            }
            self.wait_for_more(answered, took).await;
            next = self.gathering.lock().ended();
        }
    }

    /// Gives those who were answered a moment to come back, after a proposal that took so long.
    async fn wait_for_more(&self, answered: usize, took: Duration) {
        if !self.gathering.lock().expects_more(answered) {
            return;
        }
        let until = Instant::now() + (took * 2).clamp(SHORTEST_RETURN, LONGEST_RETURN);
        while !self.gathering.lock().has_come() {
            if timeout_at(until, self.come.notified()).await.is_err() {
                break;
            }
        }
        self.gathering.lock().stop_waiting();
    }

    async fn propose(&self, commits: &[Gathered]) -> Result<(), EngineError> {
        let (version, timestamp_ms) = self.clock.maxima();
        let maxima = Maxima {
            version,
            timestamp_ms,
        };
        let batches = commits.iter().map(|commit| &commit.batch);
        let payload = rows_entry(self.region, batches, maxima);
        let outcome = self
            .raft
            .propose(self.region, self.term, self.epoch, payload);
        let mut outcome = std::pin::pin!(outcome);
        // It is handed over before doubt can be raised, or not at all: who waits for all that was proposed before that proposes
        // something behind it.
        let handed_over = self.doubt.unless_raised(|| {
            outcome
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
        });
        let outcome = match handed_over {
            None => return Err(EngineError::Outdated),
            Some(Poll::Ready(outcome)) => outcome,
            Some(Poll::Pending) => outcome.await,
        };
        if let Outcome::Unknown = outcome {
            self.doubt.raise();
        }
        result(outcome)
    }
}

/// A batch that is to be proposed, or was.
struct Proposal {
    fate: oneshot::Receiver<Result<(), EngineError>>,
    /// None once it is known what became of it.
    doubt: Option<Arc<Doubt>>,
    runtime: Handle,
}

impl Future for Proposal {
    type Output = Result<(), EngineError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let told = ready!(Pin::new(&mut self.fate).poll(context));
        // Nobody is left to tell: the node ends.
        let result = told.unwrap_or(Err(EngineError::InDoubt));
        if let (Some(doubt), Err(EngineError::InDoubt)) = (self.doubt.take(), &result) {
            doubt.raise();
        }
        Poll::Ready(result)
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

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
    }

    type Told = oneshot::Sender<Result<(), EngineError>>;

    fn proposed(runtime: &Handle) -> (Told, Pin<Box<Proposal>>, Arc<Doubt>) {
        let doubt: Arc<Doubt> = Arc::default();
        let (told, fate) = oneshot::channel();
        let proposal = Proposal {
            fate,
            doubt: Some(doubt.clone()),
            runtime: runtime.clone(),
        };
        (told, Box::pin(proposal), doubt)
    }

    #[test]
    fn a_lead_ends_with_what_nobody_knows() {
        let runtime = runtime();
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
            let (told, proposal, doubt) = proposed(runtime.handle());
            told.send(result(outcome)).unwrap();
            assert_eq!(format!("{:?}", proposal.wait()), expected);
            assert!(!doubt.is_raised(), "{expected}");
        }
        let (told, proposal, doubt) = proposed(runtime.handle());
        told.send(result(Outcome::Unknown)).unwrap();
        assert!(matches!(proposal.wait(), Err(EngineError::InDoubt)));
        assert!(doubt.is_raised());
        let (told, proposal, doubt) = proposed(runtime.handle());
        drop(told);
        assert!(matches!(proposal.wait(), Err(EngineError::InDoubt)));
        assert!(doubt.is_raised(), "who should tell is gone");
        let (_told, proposal, doubt) = proposed(runtime.handle());
        drop(proposal);
        assert!(doubt.is_raised(), "it may still be applied");
        assert_eq!(doubt.unless_raised(|| ()), None);
    }
}
