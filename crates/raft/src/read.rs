//! Reading what is certainly the latest.
//!
//! A leader that holds its lease reads at once: whatever was acknowledged, it has applied before. Otherwise
//! it asks the others whether it still leads, once for all reads that wait. A read never joins a question that
//! was asked before it came. A follower asks the leader in the same way.

use std::sync::Arc;

use cairn_encoding::raft::LogId;
use openraft::LinearizerOption;
use openraft::errors::{LinearizableReadError, RaftError};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::consensus::log_id;
use crate::error::ReadError;
use crate::group::{Group, member};
use crate::runtime::{spawn, within};

pub(crate) type Answer = Result<Confirmed, ReadError>;

/// The leader leads.
#[derive(Clone, Copy)]
pub(crate) struct Confirmed {
    /// What has to be applied before a read.
    pub id: LogId,
    /// The leader's time since.
    pub now: u64,
}

/// Those who wait for the next question.
#[derive(Default)]
pub(crate) struct Barrier {
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    asking: bool,
    next: Vec<oneshot::Sender<Answer>>,
}

impl Barrier {
    /// Waits for the answer to the next question; the first to wait has it asked.
    pub(crate) async fn pass<A>(self: &Arc<Self>, ask: impl Fn() -> A + Send + 'static) -> Answer
    where
        A: Future<Output = Answer> + Send + 'static,
    {
        let (told, answer) = oneshot::channel();
        let first = {
            let mut waiting = self.waiting.lock();
            waiting.next.push(told);
            !std::mem::replace(&mut waiting.asking, true)
        };
        if first {
            let barrier = self.clone();
            spawn(async move { barrier.ask_while_anybody_waits(ask).await });
        }
        answer.await.unwrap_or(Err(ReadError::NoQuorum))
    }

    async fn ask_while_anybody_waits<A>(&self, ask: impl Fn() -> A)
    where
        A: Future<Output = Answer>,
    {
        loop {
            let those = {
                let mut waiting = self.waiting.lock();
                if waiting.next.is_empty() {
                    waiting.asking = false;
                    return;
                }
                std::mem::take(&mut waiting.next)
            };
            let answer = ask().await;
            for waiting in those {
                waiting.send(answer.clone()).ok();
            }
        }
    }
}

impl Group {
    /// Waits until this replica has applied all that was acknowledged before the call, as its leader.
    pub(crate) async fn read_barrier(self: &Arc<Self>) -> Result<(), ReadError> {
        if self.holds_lease() {
            return Ok(());
        }
        self.confirm().await.map(|_| ())
    }

    /// The same for a replica that follows.
    pub(crate) async fn confirm_for_follower(self: &Arc<Self>) -> Answer {
        // Before it can show anything.
        self.lease.note_asked(&self.config);
        self.confirm().await
    }

    /// Makes sure that it leads, and returns what has to be applied before a read that came before the call; here it is.
    pub(crate) async fn confirm(self: &Arc<Self>) -> Answer {
        let group = self.clone();
        let ask = move || {
            let group = group.clone();
            async move {
                // The group is silent while a snapshot is installed.
                let patience = group.config.election_timeout * 3;
                let answer = within(patience, group.ask()).await;
                answer.unwrap_or(Err(ReadError::NoQuorum))
            }
        };
        self.barrier.pass(ask).await
    }

    async fn ask(&self) -> Answer {
        let config = &self.config;
        // All that was hidden before the question was so by now; and whoever leads next is told no earlier time.
        let now = (config.wall_clock)();
        let option = LinearizerOption::new(Some(self.trusted_age()), true)
            .with_wait_timeout(config.election_timeout);
        let linearizer = match self.raft.get_read_linearizer(option).await {
            Ok(linearizer) => linearizer,
            Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(forward))) => {
                let leader = member(forward.leader_id, forward.leader_node)
                    .filter(|leader| leader.replica != self.replica);
                return Err(ReadError::NotLeader(leader));
            }
            Err(_) => return Err(ReadError::NoQuorum),
        };
        match linearizer
            .try_await_ready(&self.raft, Some(config.election_timeout))
            .await
        {
            Ok(Ok(state)) => Ok(Confirmed {
                id: log_id(state.read_log_id().log_id()),
                now,
            }),
            _ => Err(ReadError::NoQuorum),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use openraft::rt::AsyncRuntime;
    use tokio::sync::watch;

    use super::*;
    use crate::runtime::Runtime;

    #[test]
    fn reads_that_wait_share_a_question_that_was_asked_after_they_came() {
        Runtime::run(async {
            let barrier = Arc::new(Barrier::default());
            let asked = Arc::new(AtomicUsize::new(0));
            let (answers, answered) = watch::channel(false);
            let questions = asked.clone();
            let pass = || {
                let (barrier, asked, answered) =
                    (barrier.clone(), questions.clone(), answered.clone());
                let ask = move || {
                    asked.fetch_add(1, Ordering::Relaxed);
                    let mut answered = answered.clone();
                    async move {
                        answered.wait_for(|is_so| *is_so).await.ok();
                        let id = LogId { term: 1, index: 1 };
                        Ok(Confirmed { id, now: 0 })
                    }
                };
                tokio::spawn(async move { barrier.pass(ask).await.is_ok() })
            };
            let first = pass();
            while asked.load(Ordering::Relaxed) == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let others: Vec<_> = (0..50).map(|_| pass()).collect();
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert_eq!(asked.load(Ordering::Relaxed), 1);
            answers.send(true).unwrap();
            assert!(first.await.unwrap());
            for other in others {
                assert!(other.await.unwrap());
            }
            assert_eq!(asked.load(Ordering::Relaxed), 2);
        });
    }
}
