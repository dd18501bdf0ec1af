//! Making a batch durable and visible: the one seam between one machine and many.
//!
//! [`LocalCommitter`] writes to RocksDB. With `--sync always` a single thread drains what all
//! connections have queued into one write and one fsync, because RocksDB groups threads and not tasks;
//! otherwise the calling thread writes, and another syncs the log once a second.
//!
//! Each write also stores the clock's maxima. One writer at a time makes sure that they never fall: two
//! threads could otherwise write theirs in the opposite order of their batches.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use cairn_encoding::system::{Maxima, SystemKey};
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::LOCAL_REGION;
use crate::batch::Batch;
use crate::clock::Clock;
use crate::engine::Engine;
use crate::error::{EngineError, Result};
use crate::family::Family;
use crate::listener::fatal;

/// When an acknowledged write survives a power cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyncMode {
    /// Always: acknowledged means synced.
    Always,
    /// All but the last second.
    EverySecond,
    /// When the system gets round to it.
    No,
}

/// Commits batches. An error means that nothing of the batch was applied.
pub trait Committer: Send + Sync {
    fn commit(&self, batch: Batch) -> Commit;
}

/// The outcome of a commit, at once or later.
pub enum Commit {
    Done(Result<()>),
    Pending(oneshot::Receiver<Result<()>>),
}

impl Future for Commit {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Commit::Done(result) => Poll::Ready(result.clone()),
            Commit::Pending(receiver) => Pin::new(receiver)
                .poll(context)
                .map(|outcome| outcome.unwrap_or(Err(EngineError::Closing))),
        }
    }
}

impl Commit {
    /// Waits on a thread that may block.
    pub fn wait(self) -> Result<()> {
        match self {
            Commit::Done(result) => result,
            Commit::Pending(receiver) => receiver
                .blocking_recv()
                .unwrap_or(Err(EngineError::Closing)),
        }
    }
}

/// What the committer's thread does, if it has one.
type ThreadBody = fn(&Shared);

type Queued = (Batch, oneshot::Sender<Result<()>>);

#[derive(Default)]
struct Queue {
    batches: Vec<Queued>,
    closed: bool,
}

struct Shared {
    engine: Arc<Engine>,
    clock: Arc<Clock>,
    mode: SyncMode,
    /// Held while writing: the order of commits.
    writing: Mutex<()>,
    unsynced: AtomicBool,
    queue: Mutex<Queue>,
    work: Condvar,
}

impl Shared {
    fn write<'b>(&self, batches: impl Iterator<Item = &'b Batch>, sync: bool) -> Result<()> {
        let _order = self.writing.lock();
        let (version, timestamp_ms) = self.clock.maxima();
        let mut maxima = Batch::new();
        maxima.put(
            Family::Meta,
            &SystemKey::Maxima {
                region: LOCAL_REGION,
            }
            .encode(),
            Maxima {
                version,
                timestamp_ms,
            }
            .encode(),
        );
        let batches = batches.map(|batch| -> &Batch { batch });
        self.engine
            .write(batches.chain(std::iter::once(&maxima)), sync)?;
        self.unsynced.store(!sync, Ordering::Release);
        Ok(())
    }
}

pub struct LocalCommitter {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl LocalCommitter {
    pub fn new(engine: Arc<Engine>, clock: Arc<Clock>, mode: SyncMode) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            engine,
            clock,
            mode,
            writing: Mutex::new(()),
            unsynced: AtomicBool::new(false),
            queue: Mutex::new(Queue::default()),
            work: Condvar::new(),
        });
        let run: Option<(&str, ThreadBody)> = match mode {
            SyncMode::Always => Some(("commit", commit_loop)),
            SyncMode::EverySecond => Some(("wal-sync", sync_loop)),
            SyncMode::No => None,
        };
        let thread = match run {
            None => None,
            Some((name, body)) => {
                let shared = shared.clone();
                let builder = std::thread::Builder::new().name(name.into());
                Some(builder.spawn(move || body(&shared))?)
            }
        };
        Ok(LocalCommitter { shared, thread })
    }
}

impl Committer for LocalCommitter {
    fn commit(&self, batch: Batch) -> Commit {
        if batch.is_empty() {
            return Commit::Done(Ok(()));
        }
        if self.shared.mode != SyncMode::Always {
            return Commit::Done(self.shared.write(std::iter::once(&batch), false));
        }
        let (done, outcome) = oneshot::channel();
        let mut queue = self.shared.queue.lock();
        if queue.closed {
            return Commit::Done(Err(EngineError::Closing));
        }
        queue.batches.push((batch, done));
        drop(queue);
        self.shared.work.notify_one();
        Commit::Pending(outcome)
    }
}

impl Drop for LocalCommitter {
    fn drop(&mut self) {
        self.shared.queue.lock().closed = true;
        self.shared.work.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the commit thread panicked");
        }
    }
}

/// Group commit: whatever was queued while the last fsync ran goes into the next.
fn commit_loop(shared: &Shared) {
    let mut group = Vec::new();
    loop {
        let mut queue = shared.queue.lock();
        while queue.batches.is_empty() {
            if queue.closed {
                return;
            }
            shared.work.wait(&mut queue);
        }
        std::mem::swap(&mut group, &mut queue.batches);
        drop(queue);

        let result = shared.write(group.iter().map(|(batch, _)| batch), true);
        if let Err(error) = &result {
            // It may be in the log or not: neither answer would be true.
            fatal("the write-ahead log could not be written", error);
        }
        for (_, done) in group.drain(..) {
            // A client that went away does not wait for its answer.
            let _ = done.send(result.clone());
        }
    }
}

fn sync_loop(shared: &Shared) {
    loop {
        let mut queue = shared.queue.lock();
        if !queue.closed {
            shared.work.wait_for(&mut queue, Duration::from_secs(1));
        }
        let closed = queue.closed;
        drop(queue);
        if shared.unsynced.swap(false, Ordering::AcqRel) {
            shared.engine.sync();
        }
        if closed {
            return;
        }
    }
}
