//! That something was committed need not be told at once: the next entries tell it too.
//!
//! openraft tells a follower by a message of its own as soon as it has nothing else to say, and sends no entries before that is
//! answered. Where writes follow each other, that is a message for each that carries some, and a round trip in which the next ones
//! wait. So such a notice is kept for a moment, and dropped if something follows it. A follower only applies a little later, and
//! one that somebody reads from is told at once.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use openraft::raft::AppendEntriesRequest;

use crate::consensus::Types;
use crate::lease::Lease;
use crate::runtime::{Later, sleep};

/// How long a follower may be left in the dark.
const KEPT: Duration = Duration::from_millis(10);

type Append = AppendEntriesRequest<Types>;

/// What is to be sent to a follower, without the notices that something else makes needless.
pub(crate) struct Notices<S> {
    requests: S,
    lease: Arc<Lease>,
    kept: Option<Kept>,
    has_ended: bool,
}

struct Kept {
    notice: Append,
    due: Later<'static, ()>,
}

impl<S> Notices<S> {
    pub(crate) fn new(requests: S, lease: Arc<Lease>) -> Notices<S> {
        Notices {
            requests,
            lease,
            kept: None,
            has_ended: false,
        }
    }

    /// Keeps a notice until the one before it would have been due.
    fn keep(&mut self, notice: Append) {
        match &mut self.kept {
            Some(kept) => kept.notice = notice,
            None => {
                self.kept = Some(Kept {
                    notice,
                    due: Box::pin(sleep(KEPT)),
                });
            }
        }
    }
}

impl<S: Stream<Item = Append> + Unpin> Stream for Notices<S> {
    type Item = Append;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Append>> {
        while !self.has_ended {
            match Pin::new(&mut self.requests).poll_next(context) {
                Poll::Ready(Some(notice))
                    if notice.entries.is_empty() && !self.lease.is_asked() =>
                {
                    self.keep(notice);
                }
                Poll::Ready(Some(request)) => {
                    self.kept = None;
                    return Poll::Ready(Some(request));
                }
                // What was kept is the last.
                Poll::Ready(None) => self.has_ended = true,
                Poll::Pending => break,
            }
        }
        let has_ended = self.has_ended;
        let is_due = |kept: &mut Kept| has_ended || kept.due.as_mut().poll(context).is_ready();
        match self.kept.take_if(is_due) {
            Some(kept) => Poll::Ready(Some(kept.notice)),
            None if has_ended => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use cairn_encoding::raft::LogId;
    use openraft::EntryPayload;
    use tokio::sync::mpsc;

    use super::*;
    use crate::config::Config;
    use crate::consensus::{RaftEntry, RaftVote, raft_log_id};
    use crate::runtime::now;
    use crate::simulation::runtime::run;

    struct Requests(mpsc::UnboundedReceiver<Append>);

    impl Stream for Requests {
        type Item = Append;

        fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Append>> {
            self.0.poll_recv(context)
        }
    }

    fn id(index: u64) -> LogId {
        LogId { term: 1, index }
    }

    /// Tells that all up to `committed` is, and carries so many entries.
    fn append(committed: u64, entries: u64) -> Append {
        let entry = |at| RaftEntry {
            log_id: raft_log_id(id(committed + 1 + at)),
            payload: EntryPayload::Blank,
        };
        Append {
            vote: RaftVote::new_committed(1, 1),
            prev_log_id: Some(raft_log_id(id(committed))),
            entries: (0..entries).map(entry).collect(),
            leader_commit: Some(raft_log_id(id(committed))),
        }
    }

    /// What is sent next, as what it tells and carries, and after how long.
    async fn next(notices: &mut Notices<Requests>) -> Option<(u64, usize, Duration)> {
        let begun = now();
        let sent = poll_fn(|context| Pin::new(&mut *notices).poll_next(context)).await?;
        let committed = sent.leader_commit.map_or(0, |id| id.index);
        Some((committed, sent.entries.len(), now() - begun))
    }

    #[test]
    fn a_notice_is_sent_if_nothing_follows_it() {
        run(1, Duration::from_secs(60), async {
            let (send, requests) = mpsc::unbounded_channel();
            let lease = Arc::new(Lease::new());
            let mut notices = Notices::new(Requests(requests), lease.clone());
            let at_once = Duration::ZERO;
            let config = Config::default();

            // Entries tell it too.
            send.send(append(1, 0)).ok();
            send.send(append(2, 3)).ok();
            assert_eq!(next(&mut notices).await, Some((2, 3, at_once)));

            // Of several the last is enough, when the first is due.
            send.send(append(3, 0)).ok();
            send.send(append(4, 0)).ok();
            assert_eq!(next(&mut notices).await, Some((4, 0, KEPT)));

            // Somebody reads from followers.
            lease.note_asked(&config);
            send.send(append(5, 0)).ok();
            assert_eq!(next(&mut notices).await, Some((5, 0, at_once)));
            sleep(config.election_timeout * 10).await;

            // Nothing will follow.
            send.send(append(6, 0)).ok();
            drop(send);
            assert_eq!(next(&mut notices).await, Some((6, 0, at_once)));
            assert_eq!(next(&mut notices).await, None);
        });
    }
}
