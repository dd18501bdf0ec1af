//! What is popped next, known without a walk.
//!
//! A walk for the lowest member of a sorted set passes over the tombstones of all that were popped before
//! it, and one for a random member of a set passes over half the set. So one walk looks up many, and the
//! pops that follow take from what it found.
//!
//! - A [`Run`] holds the members of a sorted set from one end on, as far as it reaches. ZADD adds to it. The
//!   walk that extends it begins where it ended, behind all tombstones.
//! - A [`Pool`] holds random members of a set in random order: the beginning of a shuffle of all members, or
//!   all of it. SADD puts a new member at a random place of that shuffle, which may lie in the pool or not.
//!
//! Members may have left by another way, so whoever takes one makes sure that it is still there.
//! Everything here happens under the key's exclusive latch. If a change is taken back, what was taken from here is
//! missing from it: after an undo the queues are forgotten that it was taken from, after a commit that fails all is. What remains
//! after an undo, and when queues have to go, is before what nothing lies: see [`bounds`].
//!
//! All queues share a budget. A queue that is filled gets what is left of it, and no less than what everyone
//! would get if all had the same; if there is not so much, the largest of the others go. So queues that are
//! in use together come to fit side by side, and none keeps pushing out another.

mod bounds;
mod elements;
mod known;
mod pool;
mod run;

use std::cmp::Reverse;
use std::sync::Arc;

use cairn_engine::Direction;
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::key::Key;

use bounds::Bounds;
use known::{Known, Mark, hash_of};
pub(crate) use pool::{Pool, Shuffle};
pub(crate) use run::LookAhead;
use run::Run;

/// The most keys that are known of. If there are more, the smallest queue goes: it costs little to know again.
const MOST_KEYS: usize = 1024;
/// The share of the memory that all queues may take, and what they may take in any case.
const MEMORY_SHARE: usize = 64;
const LEAST_BUDGET: usize = 4 * 1024 * 1024;
/// The part of that for what outlives them.
const BOUNDS_SHARE: usize = 8;

pub(crate) struct Queues {
    budget: usize,
    known: Arc<Known>,
    table: Mutex<Table>,
}

struct Table {
    keys: FxHashMap<Box<[u8]>, Queue>,
    /// What all of them take.
    memory: usize,
    bounds: Bounds,
}

/// A key from whose queue something was taken, or one of very few that are taken for it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Taken(u64);

impl Taken {
    fn from(key: &[u8]) -> Taken {
        Taken(hash_of(key))
    }

    pub(crate) fn from_queue_of(key: &Key) -> Taken {
        Taken::from(key.metadata())
    }
}

/// Where the nearest element of a sorted set lies, at the earliest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Nearest {
    At(Box<[u8]>),
    Behind(Box<[u8]>),
}

fn comes_first(direction: Direction, one: &[u8], other: &[u8]) -> bool {
    match direction {
        Direction::Forward => one < other,
        Direction::Backward => one > other,
    }
}

struct Queue {
    version: u64,
    lowest: Run,
    highest: Run,
    pool: Pool,
    /// What it takes, as last counted.
    memory: usize,
    _mark: Mark,
}

impl Queue {
    fn new(version: u64, mark: Mark) -> Self {
        Queue {
            version,
            lowest: Run::new(Direction::Forward),
            highest: Run::new(Direction::Backward),
            pool: Pool::default(),
            memory: 0,
            _mark: mark,
        }
    }

    fn run(&mut self, direction: Direction) -> &mut Run {
        match direction {
            Direction::Forward => &mut self.lowest,
            Direction::Backward => &mut self.highest,
        }
    }

    /// Counts anew what it takes, and what all take with it.
    fn count(&mut self, total: &mut usize) {
        let memory = self.pool.memory() + self.lowest.memory() + self.highest.memory();
        *total = *total - self.memory + memory;
        self.memory = memory;
    }

    fn halve(&mut self) {
        self.lowest.shorten();
        self.highest.shorten();
        self.pool.halve();
    }
}

impl Table {
    fn forget_queues_if(&mut self, is_forgotten: impl Fn(&[u8]) -> bool) {
        let memory = &mut self.memory;
        self.keys.retain(|key, queue| {
            let stays = !is_forgotten(key);
            *memory -= if stays { 0 } else { queue.memory };
            stays
        });
    }

    fn remove(&mut self, key: &[u8]) {
        if let Some(queue) = self.keys.remove(key) {
            self.memory -= queue.memory;
        }
    }

    /// Forgets the one of the others that ranks highest by what it takes; false if there is none.
    fn forget_other<R: Ord>(&mut self, key: &[u8], rank: impl Fn(usize) -> R) -> bool {
        let others = self.keys.iter().filter(|(other, _)| ***other != *key);
        let highest = others.max_by_key(|(_, queue)| rank(queue.memory));
        let Some(highest) = highest.map(|(other, _)| other.clone()) else {
            return false;
        };
        self.remove(&highest);
        true
    }

    /// Where the nearest element to an end of a sorted set lies, at the earliest, if anything is known of that.
    fn nearest(&mut self, key: &Key, version: u64, direction: Direction) -> Option<Nearest> {
        let queue = find(&mut self.keys, key, version);
        let of_run = queue.and_then(|queue| queue.run(direction).nearest());
        of_run.or_else(|| {
            let bound = self.bounds.nearest(key.metadata(), version, direction);
            bound.map(|element| Nearest::At(element.into()))
        })
    }
}

fn find<'k>(
    keys: &'k mut FxHashMap<Box<[u8]>, Queue>,
    key: &Key,
    version: u64,
) -> Option<&'k mut Queue> {
    let queue = keys.get_mut(key.metadata());
    queue.filter(|queue| queue.version == version)
}

impl Queues {
    /// For a process that may use so much memory.
    pub(crate) fn new(memory: usize) -> Self {
        let all = (memory / MEMORY_SHARE).max(LEAST_BUDGET);
        let for_bounds = all / BOUNDS_SHARE;
        Self::within(all - for_bounds, for_bounds)
    }

    fn within(budget: usize, for_bounds: usize) -> Self {
        let known = Known::of_about(for_bounds / bounds::OVERHEAD);
        Queues {
            budget,
            table: Mutex::new(Table {
                keys: FxHashMap::default(),
                memory: 0,
                bounds: Bounds::new(for_bounds, known.clone()),
            }),
            known,
        }
    }

    /// Takes from a queue, if there is one.
    fn take<T>(
        &self,
        key: &Key,
        version: u64,
        take: impl FnOnce(&mut Queue) -> Option<T>,
    ) -> Option<T> {
        if !self.known.has(key.metadata()) {
            return None;
        }
        let table = &mut *self.table.lock();
        let queue = find(&mut table.keys, key, version)?;
        let taken = take(queue);
        queue.count(&mut table.memory);
        taken
    }

    /// Tells a queue of a change, if there is one. If that makes it too large, it gives up a half.
    fn tell(&self, key: &Key, version: u64, change: impl FnOnce(&mut Queue)) {
        if self.known.has(key.metadata()) {
            self.tell_in(&mut self.table.lock(), key, version, change);
        }
    }

    fn tell_in(&self, table: &mut Table, key: &Key, version: u64, change: impl FnOnce(&mut Queue)) {
        let Some(queue) = find(&mut table.keys, key, version) else {
            return;
        };
        change(queue);
        queue.count(&mut table.memory);
        if table.memory > self.budget {
            queue.halve();
            queue.count(&mut table.memory);
        }
        if table.memory > self.budget {
            table.remove(key.metadata());
        }
    }

    /// Fills a queue, new or not, and forgets others that there is no more room for. `may_keep` is asked under the lock.
    fn fill(
        &self,
        key: &Key,
        version: u64,
        may_keep: impl FnOnce() -> bool,
        fill: impl FnOnce(&mut Queue),
    ) {
        let table = &mut *self.table.lock();
        if may_keep() {
            self.fill_in(table, key, version, fill);
        }
    }

    fn fill_in(&self, table: &mut Table, key: &Key, version: u64, fill: impl FnOnce(&mut Queue)) {
        let (keys, total) = (&mut table.keys, &mut table.memory);
        let new = || Queue::new(version, self.known.mark(key.metadata()));
        let queue = keys.entry(key.metadata().into()).or_insert_with(new);
        if queue.version != version {
            *total -= queue.memory;
            *queue = new();
        }
        fill(queue);
        queue.count(total);
        if table.keys.len() > MOST_KEYS {
            table.forget_other(key.metadata(), Reverse);
        }
        while table.memory > self.budget && table.forget_other(key.metadata(), |memory| memory) {}
    }

    /// How much a queue may take that is about to be filled.
    pub(crate) fn room(&self, key: &Key) -> usize {
        self.room_in(&self.table.lock(), key)
    }

    fn room_in(&self, table: &Table, key: &Key) -> usize {
        let own = table.keys.get(key.metadata());
        let (own_memory, own_count) = own.map_or((0, 0), |queue| (queue.memory, 1));
        let others = table.keys.len() - own_count;
        let left = self.budget.saturating_sub(table.memory - own_memory);
        left.max(self.budget / (others + 1))
    }

    /// Forgets queues: what was just taken from them is there after all.
    pub(crate) fn forget_taken(&self, from: impl Iterator<Item = Taken>) {
        let taken: FxHashSet<Taken> = from.collect();
        if !taken.is_empty() {
            self.table
                .lock()
                .forget_queues_if(|key| taken.contains(&Taken::from(key)));
        }
    }

    #[cfg(test)]
    pub(crate) fn forget_queues(&self) {
        self.table.lock().forget_queues_if(|_| true);
    }

    /// Forgets everything. It is not asked before whether there is anything: somebody may be just about to add it.
    pub(crate) fn clear(&self) {
        let table = &mut *self.table.lock();
        table.bounds.clear();
        table.forget_queues_if(|_| true);
    }

    /// Takes out the element nearest to an end of a sorted set. Now and then those that come behind it are shown.
    pub(crate) fn take_nearest<T>(
        &self,
        key: &Key,
        version: u64,
        direction: Direction,
        read: impl FnOnce(&[u8]) -> T,
        show: impl FnMut(&[u8]),
    ) -> Option<T> {
        self.take(key, version, |queue| queue.run(direction).take(read, show))
    }

    /// Where the lowest and the highest element of a sorted set lie, at the earliest, as far as anything is known of that.
    pub(crate) fn ends(&self, key: &Key, version: u64) -> [Option<Nearest>; 2] {
        if !self.known.has(key.metadata()) {
            return [None, None];
        }
        let table = &mut *self.table.lock();
        let ends = [Direction::Forward, Direction::Backward];
        ends.map(|direction| table.nearest(key, version, direction))
    }

    /// Nothing lies before this element, not even if the current command, or unit, is taken back.
    pub(crate) fn raise(
        &self,
        key: &Key,
        version: u64,
        may_keep: impl FnOnce() -> bool,
        direction: Direction,
        element: &[u8],
    ) {
        let table = &mut *self.table.lock();
        if may_keep() {
            let key = key.metadata();
            table.bounds.raise(key, version, direction, element);
        }
    }

    /// All elements up to this one are taken out, and not one by one.
    pub(crate) fn pass(
        &self,
        key: &Key,
        version: u64,
        may_keep: impl FnOnce() -> bool,
        direction: Direction,
        last: &[u8],
    ) {
        self.fill(key, version, may_keep, |queue| {
            queue.run(direction).pass(last);
        });
    }

    /// How far the walk goes that looks for the next elements of a run.
    pub(crate) fn next_walk(&self, key: &Key, version: u64, direction: Direction) -> LookAhead {
        let table = &mut *self.table.lock();
        let room = self.room_in(table, key);
        match find(&mut table.keys, key, version) {
            Some(queue) => queue.run(direction).next_walk(room),
            None => Run::new(direction).next_walk(room),
        }
    }

    /// What such a walk has found, and before what nothing lies, if that can be said: see [`Queues::raise`].
    pub(crate) fn extend(
        &self,
        key: &Key,
        version: u64,
        may_keep: impl FnOnce() -> bool,
        direction: Direction,
        walk: LookAhead,
        bound: Option<&[u8]>,
    ) {
        let table = &mut *self.table.lock();
        if !may_keep() {
            return;
        }
        if let Some(bound) = bound {
            let key = key.metadata();
            table.bounds.raise(key, version, direction, bound);
        }
        let extend = |queue: &mut Queue| queue.run(direction).extend(walk);
        self.fill_in(table, key, version, extend);
    }

    /// A sorted set has a new element.
    pub(crate) fn add_scored(&self, key: &Key, version: u64, element: &[u8]) {
        if !self.known.has(key.metadata()) {
            return;
        }
        let table = &mut *self.table.lock();
        table.bounds.add(key.metadata(), version, element);
        self.tell_in(table, key, version, |queue| {
            queue.lowest.add(element);
            queue.highest.add(element);
        });
    }

    /// Takes a random member of a set out of its pool. Now and then those that come behind it are shown.
    pub(crate) fn take_any(
        &self,
        key: &Key,
        version: u64,
        show: impl FnMut(&[u8]),
    ) -> Option<Vec<u8>> {
        self.take(key, version, |queue| queue.pool.take(<[u8]>::to_vec, show))
    }

    /// What is popped next from a set.
    pub(crate) fn fill_pool(
        &self,
        key: &Key,
        version: u64,
        may_keep: impl FnOnce() -> bool,
        pool: Pool,
    ) {
        self.fill(key, version, may_keep, |queue| queue.pool = pool);
    }

    /// A set has a new member; it had `size` before.
    pub(crate) fn add_member(&self, key: &Key, version: u64, size: u64, member: &[u8]) {
        self.tell(key, version, |queue| queue.pool.add(size, member));
    }

    /// A member has left a set, and not by [`Queues::take_any`].
    pub(crate) fn leave(&self, key: &Key, version: u64, member: &[u8]) {
        self.tell(key, version, |queue| queue.pool.leave(member));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn within(budget: usize) -> Queues {
        Queues::within(budget, 1 << 20)
    }

    fn fill(queues: &Queues, key: &Key, count: u64) {
        let mut shuffle = Shuffle::new(queues.room(key));
        for number in 0..count {
            shuffle.add(&number.to_be_bytes());
        }
        queues.fill_pool(key, 1, || true, shuffle.finish());
    }

    fn is_known(queues: &Queues, key: &Key) -> bool {
        queues.take_any(key, 1, |_| ()).is_some()
    }

    /// As counted while they came and went.
    fn memory(queues: &Queues) -> usize {
        let table = queues.table.lock();
        let memory = table.keys.values().map(|queue| queue.memory).sum();
        assert_eq!(table.memory, memory);
        memory
    }

    #[test]
    fn a_queue_belongs_to_one_version_of_its_key() {
        let (queues, key) = (within(1 << 20), Key::new(1, b"set"));
        assert!(!is_known(&queues, &key));
        fill(&queues, &key, 10);
        assert!(is_known(&queues, &key));
        assert_eq!(queues.take_any(&key, 2, |_| ()), None);
        assert_eq!(queues.take_any(&Key::new(2, b"set"), 1, |_| ()), None);
        queues.fill_pool(&key, 2, || true, Pool::default());
        assert!(!is_known(&queues, &key));
        assert_eq!(memory(&queues), 0);
        fill(&queues, &key, 10);
        queues.clear();
        assert!(!is_known(&queues, &key));
        assert_eq!(memory(&queues), 0);
    }

    /// What is known of a sorted set's nearest element, as its run comes and goes.
    #[test]
    fn where_the_nearest_lies_is_known_when_the_run_is_not() {
        use Direction::{Backward, Forward};
        let (queues, key) = (within(1 << 20), Key::new(1, b"zset"));
        let nearest = |direction| {
            let [lowest, highest] = queues.ends(&key, 1);
            match direction {
                Forward => lowest,
                Backward => highest,
            }
        };
        let at = |element: &[u8; 1]| Some(Nearest::At(element[..].into()));
        let behind = |element: &[u8; 1]| Some(Nearest::Behind(element[..].into()));
        let walk = |found: &[&[u8]]| {
            let mut walk = queues.next_walk(&key, 1, Forward);
            found.iter().for_each(|element| walk.find(element));
            queues.extend(&key, 1, || true, Forward, walk, found.first().copied());
        };
        let pop = || queues.take_nearest(&key, 1, Forward, <[u8]>::to_vec, |_| ());
        assert_eq!(nearest(Forward), None);
        queues.raise(&key, 1, || false, Forward, b"d");
        assert_eq!(nearest(Forward), None);
        queues.raise(&key, 1, || true, Forward, b"d");
        assert_eq!((nearest(Forward), nearest(Backward)), (at(b"d"), None));
        walk(&[b"d", b"f"]);
        pop();
        assert_eq!(nearest(Forward), at(b"f"));
        pop();
        assert_eq!(nearest(Forward), behind(b"f"));
        queues.add_scored(&key, 1, b"e");
        assert_eq!(nearest(Forward), at(b"e"));
        queues.pass(&key, 1, || true, Forward, b"g");
        assert_eq!((pop(), nearest(Forward)), (None, behind(b"g")));
        // What was taken may be there after all.
        queues.forget_queues();
        assert_eq!(nearest(Forward), at(b"d"));
        queues.add_scored(&key, 1, b"c");
        assert_eq!(nearest(Forward), at(b"c"));
        walk(&[b"a", b"b"]);
        pop();
        queues.forget_queues();
        assert_eq!(nearest(Forward), at(b"a"));
        queues.clear();
        assert_eq!(nearest(Forward), None);
        queues.pass(&key, 1, || true, Forward, b"g");
        assert_eq!(nearest(Forward), behind(b"g"));
    }

    /// As many keys and versions come and go as find no room together.
    #[test]
    fn a_key_is_asked_about_as_long_as_anything_is_known_of_it() {
        use Direction::Forward;
        let queues = Queues::within(64 * 1024, 64 * 1024);
        let keys: Vec<Key> = (0..2000).map(|index| Key::new(index, b"key")).collect();
        let assert_counted = || {
            let table = queues.table.lock();
            let entries = table.keys.len() + table.bounds.len();
            assert_eq!(queues.known.count(), entries);
            assert!(table.keys.keys().all(|key| queues.known.has(key)));
        };
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..100 {
            for _ in 0..100 {
                let (key, version) = (&keys[random.usize(..keys.len())], random.u64(1..3));
                match random.u8(..3) {
                    0 => {
                        queues.raise(key, version, || true, Forward, b"d");
                        assert!(queues.known.has(key.metadata()));
                    }
                    1 => queues.pass(key, version, || true, Forward, b"c"),
                    _ => queues.add_scored(key, version, b"b"),
                }
                fill(&queues, &keys[random.usize(..keys.len())], 10);
            }
            assert_counted();
        }
        queues.forget_queues();
        assert_counted();
        queues.clear();
        assert_counted();
        assert!(!keys.iter().any(|key| queues.known.has(key.metadata())));
    }

    #[test]
    fn queues_that_are_used_together_come_to_fit_side_by_side() {
        let queues = within(64 * 1024);
        let keys = [b"a", b"b", b"c", b"d", b"e"].map(|name| Key::new(1, name));
        fill(&queues, &keys[0], 100_000);
        assert!(memory(&queues) >= 32 * 1024);
        for _ in 0..10 {
            for key in &keys {
                if !is_known(&queues, key) {
                    fill(&queues, key, 100_000);
                }
                assert!(memory(&queues) <= 64 * 1024);
            }
        }
        assert!(keys.iter().all(|key| is_known(&queues, key)));
    }

    #[test]
    fn the_largest_goes_when_a_new_one_finds_no_room() {
        let queues = within(64 * 1024);
        let [small, large, new] = [b"s", b"l", b"n"].map(|name| Key::new(1, name));
        fill(&queues, &small, 10);
        fill(&queues, &large, 2500);
        fill(&queues, &new, 1000);
        assert!(is_known(&queues, &small));
        assert!(!is_known(&queues, &large));
        assert!(is_known(&queues, &new));
    }

    #[test]
    fn a_queue_that_grows_too_large_gives_up_a_half() {
        let (queues, key) = (within(64 * 1024), Key::new(1, b"set"));
        fill(&queues, &key, 10);
        for size in 10..100_000_u64 {
            queues.add_member(&key, 1, size, &size.to_be_bytes());
            assert!(memory(&queues) <= 64 * 1024);
        }
        assert!(is_known(&queues, &key));
        for number in 0..100_000_u64 {
            queues.leave(&key, 1, &number.to_be_bytes());
            assert!(memory(&queues) <= 64 * 1024);
        }
        for number in 0..100_000_u64 {
            queues.add_scored(&key, 1, &number.to_be_bytes());
            assert!(memory(&queues) <= 64 * 1024);
        }
    }

    #[test]
    fn what_was_taken_from_others_stays_known() {
        let queues = within(64 * 1024);
        let keys = [b"a", b"b", b"c", b"d"].map(|name| Key::new(1, name));
        keys.iter().for_each(|key| fill(&queues, key, 10));
        queues.forget_taken(
            [&keys[0], &keys[2], &keys[0]]
                .map(Taken::from_queue_of)
                .into_iter(),
        );
        let known = keys.iter().map(|key| is_known(&queues, key));
        assert_eq!(known.collect::<Vec<_>>(), [false, true, false, true]);
        assert!(memory(&queues) > 0);
    }

    #[test]
    fn of_too_many_keys_the_largest_stay() {
        let queues = within(1 << 20);
        let large = Key::new(1, b"large");
        fill(&queues, &large, 1000);
        let keys: Vec<Key> = (0..2000).map(|index| Key::new(index, b"small")).collect();
        keys.iter().for_each(|key| fill(&queues, key, 1));
        assert!(is_known(&queues, &large));
        let known = keys.iter().filter(|key| is_known(&queues, key));
        assert_eq!(known.count(), MOST_KEYS - 1);
    }
}
