//! Ranks: which element is the n-th, how many lie before another, and so any of them at random.
//!
//! The elements of a collection lie in an order, and to count them is to walk. A large collection that is asked
//! for ranks is therefore cut into blocks of some hundred elements, with a row for each that says how many they
//! are (`encoding::count`). From then on whoever adds or removes an element also writes the row of its block, in
//! the same batch, and whoever asks adds up counts and walks inside one block.
//!
//! - A [`Directory`] is what the count rows of a collection say, in memory: it is read once, and changed with the
//!   batch, under the key's exclusive latch. There is one level of rows and no sum of sums on disk, because a
//!   second row per change would cost more than reading all of them once does; blocks grow with their
//!   collection, so that there are never more than some ten thousand of them ([`RankOptions::target`]).
//! - [`counted`] reads and changes a collection's counts.
//! - [`keeper`] is the background: it builds the counts of a collection, and cuts and merges blocks. Changes of
//!   the latter kind have a commit of their own, so that a command that is undone has only numbers to take back.
//!
//! A collection is counted as a whole or not at all, and a bit in its metadata says so. One that is not costs
//! nothing. While a large one is being built, step by step and in memory, its writers keep the part that is
//! done true; the last step writes all its rows and the bit in one batch, so that no crash leaves a part.

mod counted;
mod directory;
mod keeper;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::key::Key;
pub use counted::Jumps;
pub(crate) use counted::skip;
use directory::{Directory, Spot};
use keeper::Building;

/// When elements are counted, and how.
#[derive(Clone, Copy, Debug)]
pub struct RankOptions {
    /// Whether collections that are not counted yet come to be, and counts are used. Those that there are stay
    /// true in any case.
    pub is_enabled: bool,
    /// The size from which on a collection is worth it.
    pub least: u64,
    /// How many elements a block has, at least: it is cut when it has twice as many.
    pub block: u64,
}

impl Default for RankOptions {
    fn default() -> Self {
        RankOptions {
            is_enabled: true,
            least: 1024,
            block: 128,
        }
    }
}

/// A collection has about twice as many blocks, however large it is.
const MOST_BLOCKS: u64 = 32 * 1024;

impl RankOptions {
    /// How many elements the blocks of a collection should have.
    fn target(&self, size: u64) -> u64 {
        self.block.max(size / MOST_BLOCKS)
    }

    /// Over so few rows it is walked, whatever is counted.
    pub(crate) fn near(&self) -> u64 {
        self.block / 2
    }
}

/// The share of the memory that all directories may take, and what they may take in any case.
const MEMORY_SHARE: usize = 32;
const LEAST_BUDGET: usize = 8 * 1024 * 1024;
/// The most directories that are known, and the most keys that wait for the background.
const MOST_KEYS: usize = 4096;

/// The counts of one version of a key.
pub(crate) struct Ranking {
    /// The metadata row's key.
    key: Box<[u8]>,
    version: u64,
    directory: RwLock<Directory>,
    /// The background was told that blocks are to be cut or merged.
    is_reported: AtomicBool,
    /// When it was last asked for, by a clock that counts questions.
    used: AtomicU64,
}

impl Ranking {
    fn new(key: &[u8], version: u64, directory: Directory) -> Arc<Self> {
        Arc::new(Ranking {
            key: key.into(),
            version,
            directory: RwLock::new(directory),
            is_reported: AtomicBool::new(false),
            used: AtomicU64::new(0),
        })
    }
}

/// A change that a transaction has made to a directory, and may have to take back.
pub(crate) struct Counted {
    ranking: Arc<Ranking>,
    spot: Spot,
    by: i64,
}

pub(crate) struct Ranks {
    options: RankOptions,
    budget: usize,
    known: Mutex<Known>,
    clock: AtomicU64,
    /// The large collection that is being counted.
    building: Mutex<Option<Building>>,
    /// Whether there is one, to be asked without a lock.
    is_building: AtomicBool,
    requests: Mutex<Requests>,
}

#[derive(Default)]
struct Known {
    rankings: FxHashMap<Box<[u8]>, (Arc<Ranking>, usize)>,
    /// What all of them take.
    memory: usize,
}

/// Keys that the background shall look at, each once.
#[derive(Default)]
struct Requests {
    keys: FxHashSet<Box<[u8]>>,
    in_order: VecDeque<Box<[u8]>>,
}

impl Known {
    fn remove(&mut self, key: &[u8]) {
        if let Some((_, memory)) = self.rankings.remove(key) {
            self.memory -= memory;
        }
    }

    /// Forgets all but the half that was asked for last.
    fn forget_half(&mut self) {
        let used = |ranking: &Ranking| ranking.used.load(Ordering::Relaxed);
        let mut all: Vec<u64> = self.rankings.values().map(|(one, _)| used(one)).collect();
        let middle = all.len() / 2;
        let (_, limit, _) = all.select_nth_unstable(middle);
        let limit = *limit;
        self.rankings
            .retain(|_, (ranking, _)| used(ranking) >= limit);
        self.memory = self.rankings.values().map(|(_, memory)| memory).sum();
    }
}

impl Ranks {
    /// For a process that may use so much memory.
    pub(crate) fn new(options: RankOptions, memory: usize) -> Self {
        Ranks {
            options,
            budget: (memory / MEMORY_SHARE).max(LEAST_BUDGET),
            known: Mutex::default(),
            clock: AtomicU64::new(0),
            building: Mutex::default(),
            is_building: AtomicBool::new(false),
            requests: Mutex::default(),
        }
    }

    pub(crate) fn options(&self) -> &RankOptions {
        &self.options
    }

    #[inline]
    pub(crate) fn is_building(&self) -> bool {
        self.is_building.load(Ordering::Relaxed)
    }

    fn find(&self, key: &Key, version: u64) -> Option<Arc<Ranking>> {
        let known = self.known.lock();
        let (ranking, _) = known.rankings.get(key.metadata())?;
        if ranking.version != version {
            return None;
        }
        let now = self.clock.fetch_add(1, Ordering::Relaxed);
        ranking.used.store(now, Ordering::Relaxed);
        Some(ranking.clone())
    }

    /// Keeps a ranking, new or grown, and forgets others that there is no more room for. It stays itself in any
    /// case: blocks are never so many that it would be too large. `may_keep` is asked under the lock.
    fn keep(&self, ranking: &Arc<Ranking>, may_keep: impl FnOnce() -> bool) {
        let memory = ranking.directory.read().memory();
        let now = self.clock.fetch_add(1, Ordering::Relaxed);
        ranking.used.store(now, Ordering::Relaxed);
        let mut known = self.known.lock();
        if !may_keep() {
            return;
        }
        known.remove(&ranking.key);
        known.memory += memory;
        let kept = (ranking.clone(), memory);
        known.rankings.insert(ranking.key.clone(), kept);
        while known.rankings.len() > 1
            && (known.memory > self.budget || known.rankings.len() > MOST_KEYS)
        {
            known.forget_half();
        }
    }

    fn forget(&self, key: &[u8]) {
        self.known.lock().remove(key);
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        *self.known.lock() = Known::default();
        self.stop_building();
    }

    fn stop_building(&self) {
        *self.building.lock() = None;
        self.is_building.store(false, Ordering::Relaxed);
    }

    /// Has the background look at a key; false if there are too many of them already.
    fn request(&self, key: &[u8]) -> bool {
        let mut requests = self.requests.lock();
        if requests.keys.contains(key) {
            return true;
        }
        let has_room = requests.in_order.len() < MOST_KEYS;
        if has_room {
            requests.keys.insert(key.into());
            requests.in_order.push_back(key.into());
        }
        has_room
    }

    fn next_request(&self) -> Option<Box<[u8]>> {
        let mut requests = self.requests.lock();
        let next = requests.in_order.pop_front()?;
        requests.keys.remove(&next);
        Some(next)
    }

    /// Takes back what an undone command has counted. A directory that was read anew since has the changes in
    /// it and knows nothing of this one: it is forgotten.
    pub(crate) fn take_back(&self, counted: Counted) {
        let Counted { ranking, spot, by } = counted;
        let is_undone = ranking.directory.write().change(spot, -by).is_ok();
        let is_built = |building: &Building| Arc::ptr_eq(building.ranking(), &ranking);
        if self.building.lock().as_ref().is_some_and(is_built) {
            return;
        }
        let mut known = self.known.lock();
        let kept = known.rankings.get(&ranking.key);
        if !is_undone || kept.is_some_and(|(kept, _)| !Arc::ptr_eq(kept, &ranking)) {
            known.remove(&ranking.key);
        }
    }
}
