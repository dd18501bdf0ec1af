//! When young rows are moved into RocksDB: the work of a thread that whoever commits wakes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::engine::Engine;
use crate::lull::Lull;
use crate::priority::give_way;

/// How long rows stay young while there is room for them, so that those that change again are written once, and many
/// together; and so that a burst of writes is over before RocksDB wants the processor.
const YOUTH: Duration = Duration::from_secs(30);
/// The same when walks have merged many generations: the fewer there are, the less a walk costs.
const SHORT_YOUTH: Duration = Duration::from_millis(20);
/// How long to wait after a drain that failed.
const AFTER_FAILURE: Duration = Duration::from_millis(500);

/// Shares of the room for young rows.
pub(crate) const HALF: usize = 2;
const AN_EIGHTH: usize = 8;

/// Of the rows that are young, the oldest first.
enum HowMany {
    /// As many as are drained at once.
    Few,
    Half,
    All,
}

pub(crate) struct Drain {
    engine: Arc<Engine>,
    closed: Mutex<bool>,
    /// There is something to drain, or the end has come.
    work: Condvar,
}

impl Drain {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Drain {
            engine,
            closed: Mutex::new(false),
            work: Condvar::new(),
        }
    }

    /// There are young rows where there were none, or many.
    pub(crate) fn wake(&self) {
        // With the lock the drainer is either asleep, or has yet to look.
        let _asleep = self.closed.lock();
        self.work.notify_one();
    }

    pub(crate) fn close(&self) {
        *self.closed.lock() = true;
        self.work.notify_one();
    }

    /// How many rows are drained, however young they are: so many that there will be room for those that come. If nobody
    /// else has anything to do, that is seen to before it is urgent.
    fn due(&self, lull: &mut Lull) -> Option<HowMany> {
        if self.engine.is_full_of_young(HALF) {
            return Some(HowMany::Half);
        }
        let is_time = lull.is_on(self.engine.commits()) && self.engine.is_full_of_young(AN_EIGHTH);
        is_time.then_some(HowMany::Few)
    }

    /// Drains until it is closed. What is young then is left to whoever closes it.
    pub(crate) fn run(&self, after_each: impl Fn()) {
        give_way();
        let engine = &self.engine;
        let mut has_failed = false;
        let mut lull = Lull::new(engine.commits());
        loop {
            let mut closed = self.closed.lock();
            while !*closed && !engine.has_young() {
                self.work.wait(&mut closed);
            }
            let rest = if has_failed { AFTER_FAILURE } else { YOUTH };
            let rested = Instant::now() + rest;
            let mut how_many = HowMany::All;
            while !*closed && Instant::now() < rested {
                if let Some(due) = self.due(&mut lull).filter(|_| !has_failed) {
                    how_many = due;
                    break;
                }
                self.work.wait_for(&mut closed, SHORT_YOUTH);
                if !has_failed && engine.has_walked_over_young() {
                    break;
                }
            }
            if *closed {
                return;
            }
            drop(closed);
            let drained = match how_many {
                HowMany::Few => engine.drain_oldest(),
                HowMany::Half => engine.drain_oldest_half(),
                HowMany::All => engine.drain_gently(),
            };
            has_failed = drained.is_err();
            if let Err(error) = drained {
                tracing::error!("cannot move young rows into RocksDB: {error}");
            }
            after_each();
        }
    }
}
