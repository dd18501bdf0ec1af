//! A number that many threads add to.
//!
//! Each thread has a shard of its own, so it need not fight over a cache line, nor lock it: what nobody else writes is
//! read, added to and written back. Whoever wants to know adds the shards up. Nobody sets them back either: a counter
//! that is reset remembers what it had reached.

use std::cell::OnceCell;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Threads beyond all but one of these share the last.
pub const SHARDS: usize = 17;
const SHARED: usize = SHARDS - 1;

/// Which shards have an owner.
static OWNED: Mutex<[bool; SHARED]> = Mutex::new([false; SHARED]);

thread_local! {
    static MINE: OnceCell<Owned> = const { OnceCell::new() };
}

/// Lets go of the shard when its thread ends; the lock has the next owner see all that was counted.
struct Owned(Place);

impl Drop for Owned {
    fn drop(&mut self) {
        if let Some(is_owned) = OWNED.lock().get_mut(self.0.number()) {
            *is_owned = false;
        }
    }
}

/// The shard that a thread adds to.
#[derive(Clone, Copy)]
pub struct Place(usize);

impl Place {
    /// That of the calling thread.
    #[inline]
    pub fn mine() -> Place {
        // A thread that ends counts among those that have none.
        MINE.try_with(|mine| mine.get_or_init(Place::take).0)
            .unwrap_or(Place(SHARED))
    }

    #[cold]
    fn take() -> Owned {
        let mut owned = OWNED.lock();
        let free = owned.iter().position(|is_owned| !is_owned);
        if let Some(free) = free {
            owned[free] = true;
        }
        Owned(Place(free.unwrap_or(SHARED)))
    }

    #[inline]
    pub fn number(self) -> usize {
        self.0
    }

    /// Adds to a number in this shard.
    #[inline]
    pub fn add(self, number: &AtomicU64, n: u64) {
        if self.0 == SHARED {
            number.fetch_add(n, Ordering::Relaxed);
        } else {
            let sum = number.load(Ordering::Relaxed).wrapping_add(n);
            number.store(sum, Ordering::Relaxed);
        }
    }
}

/// Alone on its cache line.
#[derive(Default)]
#[repr(align(64))]
struct Shard(AtomicU64);

/// A counter that many threads add to and few read.
#[derive(Default)]
pub struct Counter {
    shards: [Shard; SHARDS],
    /// What they came to at the last reset.
    before: AtomicU64,
}

impl Counter {
    #[inline]
    pub fn add(&self, n: u64) {
        let mine = Place::mine();
        mine.add(&self.shards[mine.number()].0, n);
    }

    fn sum(&self) -> u64 {
        let shards = self.shards.iter();
        shards.map(|shard| shard.0.load(Ordering::Relaxed)).sum()
    }

    pub fn get(&self) -> u64 {
        // First, because the sum rises.
        let before = self.before.load(Ordering::Acquire);
        self.sum().saturating_sub(before)
    }

    pub fn reset(&self) {
        self.before.store(self.sum(), Ordering::Release);
    }
}
