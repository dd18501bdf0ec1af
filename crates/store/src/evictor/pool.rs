//! The best of the keys that were looked at.

use crate::key::Key;

/// How many wait for better ones.
const ROOM: usize = 16;

/// A key that may go.
pub(super) struct Candidate {
    pub(super) key: Key,
    /// The higher, the sooner it goes.
    pub(super) score: u64,
}

/// The best come last.
#[derive(Default)]
pub(super) struct Pool(Vec<Candidate>);

impl Pool {
    /// Takes a key in, unless it is there, or all that are there are better and there is no room.
    pub(super) fn add(&mut self, candidate: Candidate) {
        let name = candidate.key.metadata();
        if self.0.iter().any(|known| known.key.metadata() == name) {
            return;
        }
        let place = self
            .0
            .partition_point(|known| known.score < candidate.score);
        if self.0.len() < ROOM {
            self.0.insert(place, candidate);
        } else if place > 0 {
            self.0.insert(place, candidate);
            self.0.remove(0);
        }
    }

    pub(super) fn take_best(&mut self) -> Option<Candidate> {
        self.0.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(name: u64, score: u64) -> Candidate {
        let key = Key::new(1, &name.to_be_bytes());
        Candidate { key, score }
    }

    #[test]
    fn the_best_of_all_that_were_looked_at_go_first() {
        let mut pool = Pool::default();
        let scores: Vec<u64> = (0..1000).map(|number| number * 7919 % 1000).collect();
        for score in &scores {
            pool.add(candidate(*score, *score));
        }
        assert_eq!(pool.0.len(), ROOM);
        let best: Vec<u64> = std::iter::from_fn(|| pool.take_best())
            .map(|best| best.score)
            .collect();
        let expected: Vec<u64> = (1000 - ROOM as u64..1000).rev().collect();
        assert_eq!(best, expected);
    }

    #[test]
    fn a_key_is_there_once() {
        let mut pool = Pool::default();
        pool.add(candidate(1, 5));
        pool.add(candidate(1, 9));
        assert_eq!(pool.take_best().map(|best| best.score), Some(5));
        assert!(pool.take_best().is_none());
    }
}
