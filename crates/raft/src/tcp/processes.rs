//! Which process each node is, as far as this one has heard.
//!
//! A node is one process at a time. Whoever starts one on a copy of another's directory has two that vote under one number,
//! and whoever puts an old copy in the place of a directory has one that has forgotten what it promised. Neither can be told
//! from within. But a directory counts how often it was started, and a process has a number that it made up: so others see
//! that a node began anew, that it went back, or that there are two of it. They remember the last process of each in their logs, and
//! nobody is let in before that.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::watch;
use tokio::time::sleep;

use super::handshake::{outdated, refused};
use crate::log::Log;

/// A process that has a connection and says nothing for so long may be gone: nodes tell of themselves several times in a second.
const SILENCE: Duration = Duration::from_secs(1);

/// A run of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// How often its directory was started until then.
    pub starts: u64,
    /// Tells it from others that began in the same way.
    pub number: u64,
}

#[derive(Default)]
pub(super) struct Processes {
    met: Mutex<BTreeMap<u64, Process>>,
    /// Where they are remembered; where there is none, this node forgets them when it ends.
    log: Option<Log>,
    /// Held while one is let in.
    entrance: tokio::sync::Mutex<()>,
}

struct Process {
    run: Run,
    /// It is remembered.
    is_noted: bool,
    connections: usize,
    /// Counts what was heard of it.
    heard: Arc<AtomicU64>,
    /// True once another has taken its place.
    is_over: watch::Sender<bool>,
}

/// A connection with a process, for as long as it exists.
pub(super) struct Presence {
    processes: Arc<Processes>,
    node: u64,
    run: Run,
    heard: Arc<AtomicU64>,
    is_over: watch::Receiver<bool>,
}

impl Presence {
    /// To be raised with all that is heard.
    pub(super) fn heard(&self) -> Arc<AtomicU64> {
        self.heard.clone()
    }

    /// Waits until another process is the node.
    pub(super) async fn over(&self) -> io::Error {
        let mut is_over = self.is_over.clone();
        // If nobody can tell any more, the node has been forgotten.
        is_over.wait_for(|is_over| *is_over).await.ok();
        refused("another process has taken its place")
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let mut processes = self.processes.met.lock();
        if let Some(process) = processes.get_mut(&self.node)
            && process.run == self.run
        {
            process.connections -= 1;
        }
    }
}

/// A presence, or what was heard of another process that may still run.
type Entered = Result<Presence, (Run, u64)>;

impl Processes {
    pub(super) fn remembered_in(log: Log) -> Processes {
        Processes {
            log: Some(log),
            ..Processes::default()
        }
    }

    /// A connection with a node that says that it is this run of it, and nothing more until it is known; an error if it
    /// cannot be, or has gone meanwhile. Who is gone takes nobody's place: the one that it was mistaken for may start again.
    pub(super) async fn meet<S: AsyncRead + Unpin>(
        self: &Arc<Self>,
        stream: &mut S,
        node: u64,
        run: Run,
    ) -> io::Result<Presence> {
        tokio::select! {
            biased;
            said = stream.read_u8() => Err(said.err().unwrap_or_else(|| refused("it speaks out of turn"))),
            entered = self.enter_in_turn(node, run) => entered,
        }
    }

    /// Waits, while there seems to be another process, until that has been silent.
    async fn enter_in_turn(self: &Arc<Self>, node: u64, run: Run) -> io::Result<Presence> {
        let before = match self.let_in(node, run, None).await? {
            Ok(presence) => return Ok(presence),
            Err(before) => before,
        };
        sleep(SILENCE).await;
        let entered = self.let_in(node, run, Some(before)).await?;
        entered.map_err(|_| {
            refused(&format!(
                "another process runs as node {node}: two must not have the same directory, or copies of it"
            ))
        })
    }

    /// Has it remembered that the process was met, before it takes part in anything.
    async fn let_in(
        self: &Arc<Self>,
        node: u64,
        run: Run,
        before: Option<(Run, u64)>,
    ) -> io::Result<Entered> {
        let _alone = self.entrance.lock().await;
        self.recall(node)?;
        let entered = self.enter(node, run, before)?;
        let is_new = |process: &Process| process.run == run && !process.is_noted;
        if entered.is_ok()
            && let Some(log) = &self.log
            && self.met.lock().get(&node).is_some_and(is_new)
        {
            log.note_peer(node, run).await?;
            if let Some(process) = self.met.lock().get_mut(&node) {
                process.is_noted = true;
            }
        }
        Ok(entered)
    }

    /// What an earlier process of this node has met.
    fn recall(&self, node: u64) -> io::Result<()> {
        if let Some(log) = &self.log
            && !self.met.lock().contains_key(&node)
            && let Some(run) = log.peer(node)?
        {
            let process = Process {
                is_noted: true,
                ..Process::new(run)
            };
            self.met.lock().insert(node, process);
        }
        Ok(())
    }

    /// What was heard of another process that may still run, if there is one of which more was heard than `before`.
    fn enter(
        self: &Arc<Self>,
        node: u64,
        run: Run,
        before: Option<(Run, u64)>,
    ) -> io::Result<Entered> {
        let mut processes = self.met.lock();
        let process = processes.entry(node).or_insert_with(|| Process::new(run));
        if process.run != run {
            if run.starts <= process.run.starts {
                return Err(outdated(&format!(
                    "node {node} was started from an old copy of its directory, or a second time from one: remove it from the \
                     cluster, and add it again with an empty directory"
                )));
            }
            let heard = (process.run, process.heard.load(Ordering::Relaxed));
            if process.connections > 0 && before != Some(heard) {
                return Ok(Err(heard));
            }
            process.is_over.send_replace(true);
            *process = Process::new(run);
        }
        process.connections += 1;
        Ok(Ok(Presence {
            processes: self.clone(),
            node,
            run,
            heard: process.heard.clone(),
            is_over: process.is_over.subscribe(),
        }))
    }
}

impl Process {
    fn new(run: Run) -> Process {
        Process {
            run,
            is_noted: false,
            connections: 0,
            heard: Arc::default(),
            is_over: watch::Sender::new(false),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use openraft::rt::AsyncRuntime;

    use super::super::handshake::is_outdated;
    use super::*;
    use crate::runtime::Runtime;

    fn run(starts: u64, number: u64) -> Run {
        Run { starts, number }
    }

    #[test]
    fn a_node_that_starts_again_is_let_in() {
        Runtime::run(async {
            let processes = Arc::new(Processes::default());
            let first = processes.enter_in_turn(1, run(1, 10)).await.unwrap();
            let second = processes.enter_in_turn(1, run(1, 10)).await.unwrap();
            drop((first, second));
            let again = processes.enter_in_turn(1, run(2, 20)).await.unwrap();
            processes.enter_in_turn(2, run(1, 30)).await.unwrap();
            drop(again);
            processes.enter_in_turn(1, run(7, 40)).await.unwrap();
        });
    }

    #[test]
    fn what_was_started_from_an_old_copy_is_refused() {
        Runtime::run(async {
            let processes = Arc::new(Processes::default());
            drop(processes.enter_in_turn(1, run(5, 10)).await.unwrap());
            for old in [run(4, 20), run(5, 30)] {
                let refused = processes.enter_in_turn(1, old).await.err().unwrap();
                assert!(refused.to_string().contains("an old copy"), "{refused}");
                assert!(is_outdated(&refused));
            }
            processes.enter_in_turn(1, run(6, 40)).await.unwrap();
        });
    }

    #[test]
    fn what_was_met_is_known_after_a_restart() {
        Runtime::run(async {
            let dir = tempfile::tempdir().unwrap();
            let open = || {
                let log = Log::open(dir.path(), &crate::Config::default()).unwrap();
                Arc::new(Processes::remembered_in(log))
            };
            let before = open();
            for met in [run(4, 10), run(5, 20)] {
                drop(before.enter_in_turn(1, met).await.unwrap());
            }
            drop(before);
            let processes = open();
            for old in [run(4, 10), run(5, 30)] {
                let refused = processes.enter_in_turn(1, old).await.err().unwrap();
                assert!(refused.to_string().contains("an old copy"), "{refused}");
            }
            // It has run all the time.
            drop(processes.enter_in_turn(1, run(5, 20)).await.unwrap());
            drop(processes.enter_in_turn(2, run(1, 40)).await.unwrap());
            drop(processes.enter_in_turn(1, run(6, 50)).await.unwrap());
        });
    }

    /// A copy of the directory of a process that runs was started once more than that was.
    #[test]
    fn a_second_process_is_refused_while_the_first_is_heard() {
        Runtime::run(async {
            let processes = Arc::new(Processes::default());
            let first = processes.enter_in_turn(1, run(5, 10)).await.unwrap();
            let heard = first.heard();
            let speaking = tokio::spawn(async move {
                loop {
                    heard.fetch_add(1, Ordering::Relaxed);
                    sleep(SILENCE / 4).await;
                }
            });
            let refused = processes.enter_in_turn(1, run(6, 20)).await.err().unwrap();
            assert!(
                refused
                    .to_string()
                    .contains("another process runs as node 1"),
                "{refused}"
            );
            // It may be that one, whose last words are still on their way.
            assert!(!is_outdated(&refused));
            // It has stopped, without closing its connection.
            speaking.abort();
            let second = processes.enter_in_turn(1, run(6, 20)).await.unwrap();
            assert!(
                first
                    .over()
                    .await
                    .to_string()
                    .contains("has taken its place")
            );
            drop(first);
            // Its connection does not count for the other.
            assert!(processes.enter_in_turn(1, run(5, 10)).await.is_err());
            drop(second);
        });
    }

    /// It was made to wait, and the first ended after it.
    #[test]
    fn a_second_process_that_is_gone_does_not_take_the_place_of_the_first() {
        Runtime::run(async {
            let processes = Arc::new(Processes::default());
            let first = processes.enter_in_turn(1, run(5, 10)).await.unwrap();
            let (here, mut there) = tokio::io::duplex(16);
            let met = tokio::spawn({
                let processes = processes.clone();
                async move { processes.meet(&mut there, 1, run(6, 20)).await.err() }
            });
            tokio::task::yield_now().await;
            drop(here);
            let gone = met.await.unwrap().unwrap();
            assert_eq!(gone.kind(), io::ErrorKind::UnexpectedEof, "{gone}");
            drop(first);
            processes.enter_in_turn(1, run(6, 30)).await.unwrap();
        });
    }
}
