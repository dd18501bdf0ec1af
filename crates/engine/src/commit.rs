//! Making a batch durable and visible: the one seam between one machine and many.
//!
//! [`LocalCommitter`] appends to the journal, and makes the rows young (see `journal` and `young`). The
//! calling thread appends, and another syncs once a second. Yet another drains the young rows into RocksDB (`drain`).
//! If the disk is so slow that a sync is overdue, commits wait for it, as in Redis: otherwise a power cut could take
//! any number of seconds.
//!
//! With `--sync always` the calling thread syncs too: to wake another one and to be woken by it would take
//! as long again as a quick disk. But one thread commits at a time. Who comes meanwhile queues its batch,
//! and the commit thread takes all that is queued into one record and one fsync. It takes every batch
//! while the disk is slow: the calling thread has others to serve.
//!
//! Each record carries the clock's maxima. One writer at a time makes sure that they never fall: two
//! threads could otherwise write theirs in the opposite order of their batches.

use std::pin::Pin;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cairn_encoding::system::Maxima;
use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::oneshot;

use crate::LOCAL_REGION;
use crate::batch::Batch;
use crate::clock::Clock;
use crate::drain::Drain;
use crate::engine::Engine;
use crate::error::{EngineError, Result};
use crate::journal::{Journal, Layout, Segment};

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

/// Commits batches. An error means that nothing of the batch was applied, unless it is [`EngineError::InDoubt`].
pub trait Committer: Send + Sync {
    /// Commits what the batch holds. What is left in it afterwards is of no use, but for its memory.
    fn commit(&self, batch: &mut Batch) -> Commit;

    /// Whether what is committed can be read now without asking anybody: certainly nobody else commits.
    fn may_read(&self) -> bool {
        true
    }
}

/// The outcome of a commit, at once or later.
pub enum Commit {
    Done(Result<()>),
    Pending(oneshot::Receiver<Result<()>>),
    Underway(Pin<Box<dyn Underway>>),
}

/// A commit that goes on by itself, and says what became of it to whoever asks.
pub trait Underway: Future<Output = Result<()>> + Send {
    /// Waits on a thread that may block.
    fn wait(self: Pin<Box<Self>>) -> Result<()>;

    /// The same, for so long at most; none if it takes longer.
    fn wait_within(self: Pin<&mut Self>, limit: Duration) -> Option<Result<()>>;
}

impl Future for Commit {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Commit::Done(result) => Poll::Ready(result.clone()),
            Commit::Pending(receiver) => Pin::new(receiver)
                .poll(context)
                .map(|outcome| outcome.unwrap_or(Err(EngineError::Closing))),
            Commit::Underway(commit) => commit.as_mut().poll(context),
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
            Commit::Underway(commit) => commit.wait(),
        }
    }

    /// The same, for so long at most; none if it takes longer.
    pub fn wait_within(&mut self, limit: Duration) -> Option<Result<()>> {
        match self {
            Commit::Done(result) => Some(result.clone()),
            Commit::Pending(receiver) => received_within(receiver, limit),
            Commit::Underway(commit) => commit.as_mut().wait_within(limit),
        }
    }
}

fn received_within(
    receiver: &mut oneshot::Receiver<Result<()>>,
    limit: Duration,
) -> Option<Result<()>> {
    struct Waiting(std::thread::Thread);
    impl std::task::Wake for Waiting {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Waiting(std::thread::current())).into();
    let mut context = Context::from_waker(&waker);
    let until = Instant::now() + limit;
    loop {
        if let Poll::Ready(outcome) = Pin::new(&mut *receiver).poll(&mut context) {
            return Some(outcome.unwrap_or(Err(EngineError::Closing)));
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        std::thread::park_timeout(left);
    }
}

/// A thread that serves connections may wait that long for the disk.
const QUICK_SYNC: Duration = Duration::from_millis(1);

/// How often the journal is synced where that is not done with each commit.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);
/// How old commits may become that are not synced, before others wait.
const MOST_UNSYNCED: Duration = Duration::from_secs(2);
/// How long to wait until it is tried again to make a spare segment.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// What a thread of the committer does.
type ThreadBody = fn(&Shared);

type Queued = (Batch, oneshot::Sender<Result<()>>);

#[derive(Default)]
struct Queue {
    batches: Vec<Queued>,
    /// A thread is committing with a sync. Whoever comes meanwhile queues, and so does whoever comes while
    /// others are queued: batches are committed in the order in which they came.
    is_committing: bool,
    closed: bool,
}

/// How long syncs take of late, in nanoseconds: an average in which each weighs an eighth.
#[derive(Default)]
struct SyncTime(AtomicU64);

impl SyncTime {
    /// Called by one thread at a time.
    fn note(&self, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let average = self.0.load(Ordering::Relaxed);
        self.0
            .store(average - average / 8 + took / 8, Ordering::Relaxed);
    }

    fn is_quick(&self) -> bool {
        Duration::from_nanos(self.0.load(Ordering::Relaxed)) < QUICK_SYNC
    }
}

/// The right to commit with a sync; one thread has it.
struct Committing<'s>(&'s Shared);

impl Drop for Committing<'_> {
    /// However the commit ended: those who have queued meanwhile must not wait forever.
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        queue.is_committing = false;
        if !queue.batches.is_empty() {
            self.0.work.notify_one();
        }
    }
}

struct Shared {
    engine: Arc<Engine>,
    clock: Arc<Clock>,
    mode: SyncMode,
    /// Held from the append until the rows are young: the order of commits.
    journal: Mutex<Journal>,
    queue: Mutex<Queue>,
    sync_time: SyncTime,
    /// There is something to commit and nobody else at it, or the end has come.
    work: Condvar,
    /// The journal has no spare segment, or the end has come; goes with the journal.
    spare_wanted: Condvar,
    everysec: EverySecond,
    drain: Drain,
}

/// Whether what was committed a while ago is on the disk, where it is synced once a second.
struct EverySecond {
    /// When the last sync that has ended began: what was committed before is on the disk.
    covered: Mutex<Instant>,
    /// Another one has ended.
    synced: Condvar,
    /// The same as `covered`, for those who only look, in milliseconds since `started`.
    covered_ms: AtomicU64,
    started: Instant,
}

impl EverySecond {
    fn new() -> Self {
        let started = Instant::now();
        EverySecond {
            covered: Mutex::new(started),
            synced: Condvar::new(),
            covered_ms: AtomicU64::new(0),
            started,
        }
    }

    /// Whatever was committed before that moment is on the disk.
    fn note(&self, moment: Instant) {
        *self.covered.lock() = moment;
        let since_start = moment.duration_since(self.started);
        self.covered_ms
            .store(since_start.as_millis() as u64, Ordering::Relaxed);
        self.synced.notify_all();
    }

    /// Waits while a sync is overdue.
    #[inline]
    fn wait(&self) {
        let covered = Duration::from_millis(self.covered_ms.load(Ordering::Relaxed));
        if self.started.elapsed() > covered + MOST_UNSYNCED {
            self.wait_for_sync();
        }
    }

    #[cold]
    fn wait_for_sync(&self) {
        let mut covered = self.covered.lock();
        if covered.elapsed() > MOST_UNSYNCED {
            tracing::warn!("the disk takes long to sync: commits wait for it");
        }
        while covered.elapsed() > MOST_UNSYNCED {
            self.synced.wait(&mut covered);
        }
    }
}

impl Shared {
    fn write(&self, batches: &mut [Batch], sync: bool) -> Result<()> {
        self.engine.make_room()?;
        if self.mode == SyncMode::EverySecond {
            self.everysec.wait();
        }
        let mut journal = self.journal.lock();
        let (version, timestamp_ms) = self.clock.maxima();
        let maxima = Maxima {
            version,
            timestamp_ms,
        };
        let index = journal.append(batches.iter(), maxima)?;
        if sync && let Some(unsynced) = journal.unsynced() {
            let started = Instant::now();
            unsynced.sync();
            self.sync_time.note(started.elapsed());
            journal.note_synced(&unsynced);
            if journal.wants_spare() {
                self.spare_wanted.notify_one();
            }
        }
        let must_drain = self.engine.apply(batches, index, maxima);
        drop(journal);
        if must_drain {
            self.drain.wake();
        }
        Ok(())
    }

    /// Commits the batch here and now if nobody else is at it; otherwise the commit thread does it later.
    fn commit_synced(&self, batch: &mut Batch) -> Commit {
        let mut queue = self.queue.lock();
        if queue.closed {
            return Commit::Done(Err(EngineError::Closing));
        }
        let is_free = !queue.is_committing && queue.batches.is_empty();
        if is_free && self.sync_time.is_quick() {
            let _committing = self.start_committing(queue);
            return Commit::Done(self.write(slice::from_mut(batch), true));
        }
        let (done, outcome) = oneshot::channel();
        queue.batches.push((batch.take(), done));
        drop(queue);
        if is_free {
            self.work.notify_one();
        }
        Commit::Pending(outcome)
    }

    fn is_closed(&self) -> bool {
        self.queue.lock().closed
    }

    fn start_committing(&self, mut queue: MutexGuard<'_, Queue>) -> Committing<'_> {
        queue.is_committing = true;
        Committing(self)
    }

    /// Lets go of segments that RocksDB has, and has some of them written over next.
    fn tend_journal(&self) {
        for segment in self.retire_segments() {
            let journal = self.journal.lock();
            let becomes_spare = journal.room_for_spares() > 0 && journal.can_renew(&segment);
            drop(journal);
            if !becomes_spare {
                segment.remove();
                continue;
            }
            match segment.renew() {
                Ok(spare) => self.journal.lock().take_spare(spare),
                Err(error) => tracing::debug!("a segment of the journal is lost: {error}"),
            }
        }
    }

    fn retire_segments(&self) -> Vec<Segment> {
        if !self.journal.lock().is_long() {
            return Vec::new();
        }
        // What is in RocksDB before the sync is on the disk after it.
        let applied = self.engine.applied();
        match self.engine.sync_stored() {
            Ok(()) => self.journal.lock().retire(applied),
            Err(error) => {
                tracing::error!("RocksDB's log is not synced: {error}");
                Vec::new()
            }
        }
    }

    fn sync(&self) {
        let began = Instant::now();
        let unsynced = self.journal.lock().unsynced();
        if let Some(unsynced) = unsynced {
            unsynced.sync();
            self.journal.lock().note_synced(&unsynced);
        }
        self.everysec.note(began);
    }
}

pub struct LocalCommitter {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl LocalCommitter {
    /// There is one committer for an engine.
    pub fn new(engine: Arc<Engine>, clock: Arc<Clock>, mode: SyncMode) -> Result<Self> {
        let layout = match mode {
            SyncMode::Always => Layout::WRITTEN_OVER,
            SyncMode::EverySecond | SyncMode::No => Layout::GROWING,
        };
        let journal = Journal::begin(engine.path(), engine.applied(), layout)?;
        let shared = Arc::new(Shared {
            drain: Drain::new(engine.clone()),
            engine,
            clock,
            mode,
            journal: Mutex::new(journal),
            queue: Mutex::new(Queue::default()),
            sync_time: SyncTime::default(),
            work: Condvar::new(),
            spare_wanted: Condvar::new(),
            everysec: EverySecond::new(),
        });
        let mut committer = LocalCommitter {
            shared,
            threads: Vec::new(),
        };
        committer.spawn("drain", |shared| {
            shared.drain.run(|| shared.tend_journal());
        })?;
        match mode {
            SyncMode::Always => {
                committer.spawn("commit", commit_loop)?;
                committer.spawn("spares", spare_loop)?;
            }
            SyncMode::EverySecond => committer.spawn("sync", sync_loop)?,
            SyncMode::No => {}
        }
        Ok(committer)
    }

    fn spawn(&mut self, name: &str, body: ThreadBody) -> Result<()> {
        let shared = self.shared.clone();
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || body(&shared))
            .map_err(|error| EngineError::Storage(format!("cannot start a thread: {error}")))?;
        self.threads.push(thread);
        Ok(())
    }
}

impl Committer for LocalCommitter {
    fn commit(&self, batch: &mut Batch) -> Commit {
        if batch.is_empty() {
            return Commit::Done(Ok(()));
        }
        let one = slice::from_mut(batch);
        self.shared.engine.measure_batches(LOCAL_REGION, one);
        if self.shared.mode != SyncMode::Always {
            return Commit::Done(self.shared.write(one, false));
        }
        self.shared.commit_synced(batch)
    }
}

impl Drop for LocalCommitter {
    fn drop(&mut self) {
        self.shared.queue.lock().closed = true;
        self.shared.work.notify_all();
        // With the lock whoever makes spares is either asleep, or has yet to look.
        drop(self.shared.journal.lock());
        self.shared.spare_wanted.notify_all();
        let _waiting = self.shared.engine.wait_for_drain();
        self.shared.drain.close();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the committer panicked");
            }
        }
        match self.shared.engine.sync() {
            Ok(()) => self.shared.journal.lock().clear(),
            Err(error) => {
                tracing::error!("what is in the journal only is left to the next start: {error}");
            }
        }
    }
}

/// Group commit: whatever was queued while the last fsync ran goes into the next.
fn commit_loop(shared: &Shared) {
    loop {
        let mut queue = shared.queue.lock();
        while queue.is_committing || queue.batches.is_empty() {
            if queue.closed && queue.batches.is_empty() {
                return;
            }
            shared.work.wait(&mut queue);
        }
        let group = std::mem::take(&mut queue.batches);
        let committing = shared.start_committing(queue);

        let (mut batches, waiting): (Vec<_>, Vec<_>) = group.into_iter().unzip();
        let result = shared.write(&mut batches, true);
        drop(committing);
        for done in waiting {
            // A client that went away does not wait for its answer.
            let _ = done.send(result.clone());
        }
    }
}

/// Has segments ready that commits go on with, so that none of them waits for one.
fn spare_loop(shared: &Shared) {
    let mut journal = shared.journal.lock();
    while !shared.is_closed() {
        let Some(wanted) = journal.wanted_spare() else {
            shared.spare_wanted.wait(&mut journal);
            continue;
        };
        drop(journal);
        let made = wanted.make();
        journal = shared.journal.lock();
        match made {
            Ok(spare) => journal.take_spare(spare),
            Err(error) => {
                tracing::debug!("the journal has no spare segment: {error}");
                shared.spare_wanted.wait_for(&mut journal, AFTER_FAILURE);
            }
        }
    }
}

fn sync_loop(shared: &Shared) {
    let mut began = Instant::now();
    loop {
        let mut queue = shared.queue.lock();
        if !queue.closed {
            shared.work.wait_until(&mut queue, began + SYNC_INTERVAL);
        }
        let closed = queue.closed;
        drop(queue);
        began = Instant::now();
        shared.sync();
        if closed {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_wait_while_a_sync_is_overdue() {
        let everysec = EverySecond::new();
        everysec.wait();
        let long_ago = Instant::now().checked_sub(2 * MOST_UNSYNCED);
        let long_ago = long_ago.unwrap_or_else(Instant::now);
        let everysec = EverySecond {
            covered: Mutex::new(long_ago),
            started: long_ago,
            ..everysec
        };
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| everysec.wait());
            std::thread::sleep(Duration::from_millis(100));
            assert!(!waiting.is_finished());
            everysec.note(Instant::now());
            assert!(waiting.join().is_ok());
        });
        everysec.wait();
    }

    #[test]
    fn a_disk_that_turns_slow_is_noticed_at_once_and_one_slow_sync_is_soon_forgotten() {
        let sync_time = SyncTime::default();
        assert!(sync_time.is_quick());
        sync_time.note(Duration::from_millis(10));
        assert!(!sync_time.is_quick());
        for _ in 0..10 {
            sync_time.note(Duration::from_micros(200));
        }
        assert!(sync_time.is_quick());
        for _ in 0..100 {
            sync_time.note(Duration::from_millis(2));
        }
        assert!(!sync_time.is_quick());
    }
}
