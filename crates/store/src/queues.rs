//! What is popped next, known without a walk.
//!
//! A walk for the lowest member of a sorted set passes over the tombstones of all that were popped before
//! it, and one for a random member of a set passes over half the set. So one walk looks up many, and the
//! pops that follow take from what it found.
//!
//! - A [`Run`] holds the members of a sorted set from one end up to a bound. All that lies before the bound is
//!   in it: ZADD adds to it. The walk that extends it begins at the bound, behind all tombstones.
//! - A pool holds random members of a set in random order: the beginning of a shuffle of all members. SADD
//!   puts a new member at a random place of that shuffle, which may lie in the pool or not.
//!
//! Members may have left the set by another way, so whoever takes one makes sure that it is still there.
//! Everything here happens under the key's exclusive latch. If a change is taken back, by an undo or a commit
//! that fails, what was taken from here is missing from it, and all is forgotten.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use cairn_engine::Direction;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::key::Key;

/// The most keys that are known of.
const MOST_KEYS: usize = 256;
/// The most members that a run holds.
const LONGEST_RUN: usize = 2048;

/// An element as it sorts: for a sorted set, score and member.
pub(crate) type Element = Box<[u8]>;

#[derive(Default)]
pub(crate) struct Queues {
    /// How many keys there are, to be asked without a lock.
    count: AtomicUsize,
    keys: Mutex<FxHashMap<Box<[u8]>, Queue>>,
}

struct Queue {
    version: u64,
    lowest: Run,
    highest: Run,
    pool: Vec<Element>,
}

impl Queue {
    fn new(version: u64) -> Self {
        Queue {
            version,
            lowest: Run::default(),
            highest: Run::default(),
            pool: Vec::new(),
        }
    }

    fn run(&mut self, direction: Direction) -> &mut Run {
        match direction {
            Direction::Forward => &mut self.lowest,
            Direction::Backward => &mut self.highest,
        }
    }
}

/// The members from one end on, nearest first.
#[derive(Default)]
struct Run {
    elements: VecDeque<Element>,
    /// The last element that was looked at: what comes before it, or is it, is in the run or nowhere.
    bound: Option<Element>,
}

impl Run {
    /// Adds an element, if it lies before the bound.
    fn add(&mut self, element: &[u8], direction: Direction) {
        let comes_first = |a: &[u8], b: &[u8]| match direction {
            Direction::Forward => a < b,
            Direction::Backward => a > b,
        };
        let Some(bound) = &self.bound else {
            return;
        };
        if comes_first(bound, element) {
            return;
        }
        let place = self
            .elements
            .partition_point(|other| comes_first(other, element));
        self.elements.insert(place, element.into());
        if self.elements.len() > LONGEST_RUN {
            self.elements.truncate(LONGEST_RUN / 2);
            self.bound = self.elements.back().cloned();
        }
    }
}

impl Queues {
    fn with<T>(&self, key: &Key, version: u64, f: impl FnOnce(&mut Queue) -> T) -> Option<T> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut keys = self.keys.lock();
        let queue = keys.get_mut(key.metadata())?;
        (queue.version == version).then(|| f(queue))
    }

    fn with_new<T>(&self, key: &Key, version: u64, f: impl FnOnce(&mut Queue) -> T) -> T {
        let mut keys = self.keys.lock();
        if keys.len() >= MOST_KEYS && !keys.contains_key(key.metadata()) {
            // Any of them: it costs its next pop a walk.
            if let Some(other) = keys.keys().next().cloned() {
                keys.remove(&other);
            }
        }
        let queue = keys
            .entry(key.metadata().into())
            .or_insert_with(|| Queue::new(version));
        if queue.version != version {
            *queue = Queue::new(version);
        }
        let result = f(queue);
        self.count.store(keys.len(), Ordering::Relaxed);
        result
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        if self.count.load(Ordering::Relaxed) > 0 {
            self.keys.lock().clear();
            self.count.store(0, Ordering::Relaxed);
        }
    }

    /// Takes out the element nearest to an end of a sorted set.
    pub(crate) fn take_nearest(
        &self,
        key: &Key,
        version: u64,
        direction: Direction,
    ) -> Option<Element> {
        self.with(key, version, |queue| {
            queue.run(direction).elements.pop_front()
        })?
    }

    /// Where the walk goes on that looks for the next elements of a run.
    pub(crate) fn bound(&self, key: &Key, version: u64, direction: Direction) -> Option<Element> {
        self.with(key, version, |queue| queue.run(direction).bound.clone())?
    }

    /// What such a walk has found: all that comes after the bound, up to the last of these.
    pub(crate) fn extend(
        &self,
        key: &Key,
        version: u64,
        direction: Direction,
        found: Vec<Element>,
    ) {
        self.with_new(key, version, |queue| {
            let run = queue.run(direction);
            if let Some(last) = found.last() {
                run.bound = Some(last.clone());
            }
            run.elements.extend(found);
        });
    }

    /// A sorted set has a new element.
    pub(crate) fn add_scored(&self, key: &Key, version: u64, element: impl FnOnce() -> Vec<u8>) {
        self.with(key, version, |queue| {
            let element = element();
            queue.lowest.add(&element, Direction::Forward);
            queue.highest.add(&element, Direction::Backward);
        });
    }

    /// Takes a random member of a set out of its pool.
    pub(crate) fn take_any(&self, key: &Key, version: u64) -> Option<Element> {
        self.with(key, version, |queue| queue.pool.pop())?
    }

    /// Some members of a set, all with the same chance, in any order.
    pub(crate) fn fill(&self, key: &Key, version: u64, mut members: Vec<Element>) {
        fastrand::shuffle(&mut members);
        self.with_new(key, version, |queue| queue.pool = members);
    }

    /// A set has a new member; it had `size` before.
    pub(crate) fn add_member(&self, key: &Key, version: u64, size: u64, member: &[u8]) {
        self.with(key, version, |queue| {
            // Its place in the shuffle, counted from the end that is taken from.
            let place = fastrand::u64(..=size) as usize;
            let last = queue.pool.len();
            if place < last {
                queue.pool.push(member.into());
                queue.pool.swap(last - place, last);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_member_is_as_likely_to_come_next_as_any_other() {
        fastrand::seed(7);
        let (queues, key) = (Queues::default(), Key::new(1, b"set"));
        let rounds = 8000;
        let mut taken = FxHashMap::<Element, u32>::default();
        for _ in 0..rounds {
            let members = [b"a", b"b", b"c"].map(|member| member.as_slice().into());
            queues.fill(&key, 1, members.into());
            queues.add_member(&key, 1, 3, b"new");
            if let Some(next) = queues.take_any(&key, 1) {
                *taken.entry(next).or_default() += 1;
            }
        }
        assert_eq!(taken.len(), 4);
        for (member, times) in taken {
            let is_fair = times.abs_diff(rounds / 4) < rounds / 40;
            assert!(is_fair, "{}: {times}", String::from_utf8_lossy(&member));
        }
    }

    #[test]
    fn a_run_takes_in_what_comes_before_its_bound_and_nothing_else() {
        let (queues, key) = (Queues::default(), Key::new(1, b"zset"));
        let next = |direction| queues.take_nearest(&key, 1, direction);
        let element = |text: &str| Some(Element::from(text.as_bytes()));
        let found = ["b", "d"].map(|text| text.as_bytes().into());
        queues.extend(&key, 1, Direction::Forward, found.into());
        for text in ["a", "c", "e"] {
            queues.add_scored(&key, 1, || text.into());
        }
        for text in ["a", "b", "c", "d"] {
            assert_eq!(next(Direction::Forward), element(text));
        }
        // What lies behind the bound is found by the walk that goes on from there.
        assert_eq!(next(Direction::Forward), None);
        assert_eq!(queues.bound(&key, 1, Direction::Forward), element("d"));
        assert_eq!(next(Direction::Backward), None);
        queues.add_scored(&key, 1, || "c".into());
        assert_eq!(queues.take_nearest(&key, 2, Direction::Forward), None);
        queues.clear();
        assert_eq!(next(Direction::Forward), None);
    }
}
