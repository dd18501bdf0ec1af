//! Of which keys something may be known, to be asked without a lock: whoever adds to another has nothing to tell.
//!
//! A key has a counter, which it may share with others, and what is known of it has a [`Mark`], which counts there until it is
//! dropped. So an entry cannot go without being counted out, by whichever way it goes.
//!
//! What is known of a key is entered under its latch, and so is seen by all who hold the latch later. It may be forgotten at any
//! time, and whoever still finds it here finds nothing in the table.

use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use rustc_hash::FxHasher;

/// There are so many places at least, and not many more than entries that find room: few keys of which nothing is known share
/// one with another then, and as many places as can be stay in a processor's cache.
const FEWEST_PLACES: usize = 1 << 14;

pub(super) struct Known {
    /// How many entries there are.
    all: AtomicUsize,
    /// How many at each place.
    at: Box<[AtomicU32]>,
}

/// Tells a key from nearly all others.
pub(super) fn hash_of(key: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(key);
    hasher.finish()
}

impl Known {
    /// For about so many entries at the most.
    pub(super) fn of_about(entries: usize) -> Arc<Self> {
        let places = entries.next_power_of_two().max(FEWEST_PLACES);
        Arc::new(Known {
            all: AtomicUsize::new(0),
            at: (0..places).map(|_| AtomicU32::new(0)).collect(),
        })
    }

    fn place_of(&self, key: &[u8]) -> usize {
        (hash_of(key) >> (u64::BITS - self.at.len().ilog2())) as usize
    }

    /// False if nothing is known of the key.
    #[inline]
    pub(super) fn has(&self, key: &[u8]) -> bool {
        self.all.load(Ordering::Relaxed) > 0
            && self.at[self.place_of(key)].load(Ordering::Relaxed) > 0
    }

    /// To be kept in the entry of the key, and made before that is in the table.
    pub(super) fn mark(self: &Arc<Self>, key: &[u8]) -> Mark {
        let place = self.place_of(key);
        self.at[place].fetch_add(1, Ordering::Relaxed);
        self.all.fetch_add(1, Ordering::Relaxed);
        Mark {
            known: self.clone(),
            place,
        }
    }

    /// How many entries there are, which is as many as at all places.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        let all = self.all.load(Ordering::Relaxed);
        let at = self.at.iter().map(|count| count.load(Ordering::Relaxed));
        assert_eq!(at.sum::<u32>() as usize, all);
        all
    }
}

/// An entry counts as long as it has this.
pub(super) struct Mark {
    known: Arc<Known>,
    place: usize,
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.known.at[self.place].fetch_sub(1, Ordering::Relaxed);
        self.known.all.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::time::Duration;

    use cairn_engine::Direction;

    use super::super::{Pool, Queues};
    use super::*;
    use crate::key::Key;

    #[test]
    fn a_key_counts_as_long_as_there_is_a_mark_of_it() {
        let known = Known::of_about(0);
        let state = || (known.has(b"key"), known.count());
        assert_eq!(state(), (false, 0));
        let marks = [known.mark(b"key"), known.mark(b"key")];
        assert_eq!(state(), (true, 2));
        let [first, second] = marks;
        drop(first);
        assert_eq!(state(), (true, 1));
        drop(second);
        assert_eq!(state(), (false, 0));
    }

    #[test]
    fn keys_that_share_a_counter_are_counted_together() {
        // Of more keys than there are places some share one.
        let known = Known::of_about(0);
        let mut found = HashMap::new();
        let mut keys = (0..=FEWEST_PLACES).map(usize::to_be_bytes);
        let shared = keys.find_map(|key| {
            let before = found.insert(known.place_of(&key), key)?;
            Some([before, key])
        });
        let [one, other] = shared.unwrap();
        let state = || (known.has(&one), known.has(&other), known.count());
        let of_one = known.mark(&one);
        // Nothing is known of the other, which is found out in the table.
        assert_eq!(state(), (true, true, 1));
        let of_other = known.mark(&other);
        assert_eq!(state(), (true, true, 2));
        drop(of_one);
        assert_eq!(state(), (true, true, 1));
        drop(of_other);
        assert_eq!(state(), (false, false, 0));
    }

    #[test]
    fn that_nothing_is_known_of_a_key_is_found_out_without_a_lock() {
        let queues = Queues::within(1 << 20, 1 << 20);
        queues.fill_pool(&Key::new(0, b"key"), 1, || true, Pool::default());
        assert_eq!(queues.known.count(), 1);
        let mut others = (1..).map(|index| Key::new(index, b"key"));
        let other = others.find(|key| !queues.known.has(key.metadata()));
        let other = other.unwrap();
        let table = queues.table.lock();
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| {
                queues.add_member(&other, 1, 0, b"member");
                queues.leave(&other, 1, b"member");
                queues.add_scored(&other, 1, b"element");
                let (read, direction) = (<[u8]>::to_vec, Direction::Forward);
                let nearest = queues.take_nearest(&other, 1, direction, read, |_| ());
                let is_any_end = queues.ends(&other, 1).iter().any(Option::is_some);
                let any = queues.take_any(&other, 1, |_| ());
                nearest.is_some() || is_any_end || any.is_some()
            });
            for _ in 0..10_000 {
                if asked.is_finished() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            let is_answered = asked.is_finished();
            // So that it comes to its end in any case.
            drop(table);
            assert!(is_answered);
            assert!(!asked.join().unwrap());
        });
    }
}
