//! A number that many threads add to.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Threads beyond this many share.
pub const SHARDS: usize = 16;

/// The shard of the calling thread.
pub fn shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    MINE.with(|mine| {
        if mine.get() == usize::MAX {
            mine.set(NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS);
        }
        mine.get()
    })
}

/// Alone on its cache line.
#[derive(Default)]
#[repr(align(64))]
struct Shard(AtomicU64);

/// A counter that many threads add to and few read.
#[derive(Default)]
pub struct Counter([Shard; SHARDS]);

impl Counter {
    pub fn add(&self, n: u64) {
        self.0[shard()].0.fetch_add(n, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0
            .iter()
            .map(|shard| shard.0.load(Ordering::Relaxed))
            .sum()
    }

    pub fn reset(&self) {
        for shard in &self.0 {
            shard.0.store(0, Ordering::Relaxed);
        }
    }
}
