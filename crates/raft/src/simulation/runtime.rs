//! The runtime of the tests: tokio's, or inside of [`run`] one of our own in which nothing happens by chance.
//!
//! There every task runs on the one thread, until it waits. Which of those that are ready is next, and what openraft
//! takes for random, comes from the seed; and the clock stands still while anybody has something to do. So a
//! seed tells the whole story, and a second takes no longer than what happens in it.
//!
//! A task belongs to the node that started it, and a node can be killed: its tasks are dropped wherever they wait.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use openraft::rt::AsyncRuntime;
use openraft_rt_tokio::{TokioMpsc, TokioMutex, TokioOneshot, TokioWatch};
use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use tokio::sync::oneshot;

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

struct World {
    /// In an order that does not depend on who was woken first: tokio's channels wake in an order of their own.
    ready: Arc<Mutex<BTreeSet<u64>>>,
    /// None while it runs.
    tasks: BTreeMap<u64, (u64, Option<Task>)>,
    timers: BTreeMap<(u64, u64), Waker>,
    next: u64,
    now: u64,
    random: fastrand::Rng,
    /// The node whose task runs.
    owner: u64,
}

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

fn world<T>(use_it: impl FnOnce(&mut World) -> T) -> Option<T> {
    // There is none while a story that failed is cleared away.
    WORLD
        .try_with(|world| world.try_borrow_mut().ok()?.as_mut().map(use_it))
        .ok()
        .flatten()
}

struct Ready {
    task: u64,
    ready: Arc<Mutex<BTreeSet<u64>>>,
}

impl Wake for Ready {
    fn wake(self: Arc<Self>) {
        self.ready.lock().insert(self.task);
    }
}

/// Runs a story to its end. `limit` is how long it may take in its own time.
pub(crate) fn run(seed: u64, limit: Duration, story: impl Future<Output = ()> + Send + 'static) {
    let ready = Arc::new(Mutex::new(BTreeSet::new()));
    WORLD.set(Some(World {
        ready: ready.clone(),
        tasks: BTreeMap::new(),
        timers: BTreeMap::new(),
        next: 0,
        now: 0,
        random: fastrand::Rng::with_seed(seed),
        owner: 0,
    }));
    let (told, mut done) = oneshot::channel();
    spawn(Box::pin(async move {
        story.await;
        told.send(()).ok();
    }));
    let ended = loop {
        if done.try_recv().is_ok() {
            break true;
        }
        if !step(limit) {
            break false;
        }
    };
    // Dropped one by one, while there is still a world to drop them in.
    while let Some(task) = world(|world| world.tasks.pop_first()).flatten() {
        drop(task);
    }
    WORLD.set(None);
    assert!(ended, "the story of seed {seed} came to no end");
}

/// Runs a task that is ready, or lets time pass until one is; false if nothing will ever happen.
fn step(limit: Duration) -> bool {
    let picked = world(|world| {
        let mut ready = world.ready.lock();
        if ready.is_empty() {
            drop(ready);
            let Some(((at, _), waker)) = world.timers.pop_first() else {
                return Err(false);
            };
            world.now = world.now.max(at);
            waker.wake();
            return Err(world.now < limit.as_nanos() as u64);
        }
        let picked = world.random.usize(..ready.len());
        let id = *ready.iter().nth(picked).expect("it is one of them");
        ready.remove(&id);
        drop(ready);
        match world.tasks.get_mut(&id) {
            Some((owner, task)) => {
                world.owner = *owner;
                Ok(task.take().map(|task| (id, task, world.ready.clone())))
            }
            None => Ok(None),
        }
    })
    .expect("a step is taken inside of a run");
    let (id, mut task, ready) = match picked {
        Err(goes_on) => return goes_on,
        Ok(None) => return true,
        Ok(Some(picked)) => picked,
    };
    let waker = Waker::from(Arc::new(Ready { task: id, ready }));
    let polled = task.as_mut().poll(&mut Context::from_waker(&waker));
    let over = world(|world| match polled {
        Poll::Ready(()) => {
            world.tasks.remove(&id);
            Some(task)
        }
        Poll::Pending => match world.tasks.get_mut(&id) {
            Some((_, place)) => {
                *place = Some(task);
                None
            }
            // It was killed meanwhile.
            None => Some(task),
        },
    });
    drop(over);
    true
}

fn spawn(task: Task) {
    world(|world| {
        let id = world.next;
        world.next += 1;
        world.tasks.insert(id, (world.owner, Some(task)));
        world.ready.lock().insert(id);
    })
    .expect("a task is spawned inside of a run");
}

/// Runs what belongs to a node, and all that it spawns.
pub(crate) fn spawn_on(owner: u64, task: impl Future<Output = ()> + Send + 'static) {
    as_owner(owner, || spawn(Box::pin(task)));
}

/// Does something for a node: what is spawned meanwhile belongs to it.
pub(crate) fn as_owner<T>(owner: u64, act: impl FnOnce() -> T) -> T {
    let before = world(|world| std::mem::replace(&mut world.owner, owner));
    let done = act();
    world(|world| world.owner = before.unwrap_or(0));
    done
}

/// Ends all tasks of a node, wherever they are.
pub(crate) fn kill(owner: u64) {
    let dead: Vec<_> = world(|world| {
        world
            .tasks
            .extract_if(.., |_, (task_owner, _)| *task_owner == owner)
            .collect()
    })
    .unwrap_or_default();
    drop(dead);
}

/// A random number of the story.
pub(crate) fn random(range: std::ops::Range<u64>) -> u64 {
    world(|world| world.random.u64(range)).expect("stories are told inside of a run")
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Instant(u64);

impl Instant {
    pub(crate) fn millis(self) -> u64 {
        self.0 / 1_000_000
    }

    pub(crate) fn nanos(self) -> u64 {
        self.0
    }
}

impl openraft::rt::Instant for Instant {
    fn now() -> Self {
        static START: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);
        // The first nanoseconds are left out, so that what lies before the beginning is a time as well.
        let day = 86_400_000_000_000;
        let since = world(|world| world.now).unwrap_or_else(|| START.elapsed().as_nanos() as u64);
        Instant(day + since)
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, duration: Duration) -> Instant {
        Instant(self.0.saturating_add(duration.as_nanos() as u64))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;

    fn sub(self, duration: Duration) -> Instant {
        Instant(self.0.saturating_sub(duration.as_nanos() as u64))
    }
}

impl SubAssign<Duration> for Instant {
    fn sub_assign(&mut self, duration: Duration) {
        *self = *self - duration;
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

pub(crate) enum Sleep {
    Simulated {
        until: u64,
        timer: Option<(u64, u64)>,
    },
    Real(Pin<Box<tokio::time::Sleep>>),
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match &mut *self {
            Sleep::Real(sleep) => sleep.as_mut().poll(context),
            Sleep::Simulated { until, timer } => world(|world| {
                if let Some(timer) = timer.take() {
                    world.timers.remove(&timer);
                }
                if world.now >= *until {
                    return Poll::Ready(());
                }
                let key = (*until, world.next);
                world.next += 1;
                world.timers.insert(key, context.waker().clone());
                *timer = Some(key);
                Poll::Pending
            })
            .unwrap_or(Poll::Pending),
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Sleep::Simulated {
            timer: Some(timer), ..
        } = self
        {
            world(|world| world.timers.remove(timer));
        }
    }
}

pub(crate) struct Timeout<F> {
    future: Pin<Box<F>>,
    sleep: Sleep,
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Gone>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(value) = self.future.as_mut().poll(context) {
            return Poll::Ready(Ok(value));
        }
        Pin::new(&mut self.sleep).poll(context).map(|()| Err(Gone))
    }
}

/// It took too long, or was killed.
#[derive(Debug)]
pub(crate) struct Gone;

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("gone")
    }
}

pub(crate) struct JoinHandle<T>(oneshot::Receiver<T>);

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, Gone>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0)
            .poll(context)
            .map(|ended| ended.map_err(|_| Gone))
    }
}

#[derive(Debug)]
pub(crate) struct Runtime(tokio::runtime::Runtime);

impl AsyncRuntime for Runtime {
    type JoinError = Gone;
    type JoinHandle<T: Send + 'static> = JoinHandle<T>;
    type Sleep = Sleep;
    type Instant = Instant;
    type TimeoutError = Gone;
    type Timeout<R, T: Future<Output = R> + Send> = Timeout<T>;
    type ThreadLocalRng = SmallRng;
    type Mpsc = TokioMpsc;
    type Watch = TokioWatch;
    type Oneshot = TokioOneshot;
    type Mutex<T: Send + 'static> = TokioMutex<T>;

    fn spawn<T>(future: T) -> JoinHandle<T::Output>
    where
        T: Future + Send + 'static,
        T::Output: Send + 'static,
    {
        let (told, done) = oneshot::channel();
        let task = async move {
            told.send(future.await).ok();
        };
        match world(|_| ()) {
            Some(()) => spawn(Box::pin(task)),
            None => drop(tokio::spawn(task)),
        }
        JoinHandle(done)
    }

    fn sleep(duration: Duration) -> Sleep {
        Runtime::sleep_until(crate::runtime::now() + duration)
    }

    fn sleep_until(deadline: Instant) -> Sleep {
        let left = deadline - crate::runtime::now();
        let simulated = world(|world| Sleep::Simulated {
            until: world.now.saturating_add(left.as_nanos() as u64),
            timer: None,
        });
        simulated.unwrap_or_else(|| Sleep::Real(Box::pin(tokio::time::sleep(left))))
    }

    fn timeout<R, F: Future<Output = R> + Send>(duration: Duration, future: F) -> Timeout<F> {
        Timeout {
            future: Box::pin(future),
            sleep: Runtime::sleep(duration),
        }
    }

    fn timeout_at<R, F: Future<Output = R> + Send>(deadline: Instant, future: F) -> Timeout<F> {
        Timeout {
            future: Box::pin(future),
            sleep: Runtime::sleep_until(deadline),
        }
    }

    fn is_panic(_: &Gone) -> bool {
        false
    }

    fn thread_rng() -> SmallRng {
        let seed = world(|world| world.random.u64(..)).unwrap_or_else(|| fastrand::u64(..));
        SmallRng::seed_from_u64(seed)
    }

    fn new(threads: usize) -> Runtime {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .enable_all()
            .build();
        Runtime(runtime.expect("the tests have threads"))
    }

    fn block_on<F, T>(&mut self, future: F) -> T
    where
        F: Future<Output = T>,
    {
        self.0.block_on(future)
    }
}
