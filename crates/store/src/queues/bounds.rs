//! Before what no element of a sorted set lies, from either end.
//!
//! A walk that begins there passes over nothing that was popped before. A run knows that as well, while it is there; what is kept
//! here is small, and outlives it. What is added before a bound lowers it. It is raised only to what a walk has found by a
//! command, or unit, that had changed nothing yet: what was gone by then is gone for good, unless the commit fails, and then all
//! is forgotten.

use cairn_engine::Direction;
use rustc_hash::FxHashMap;

use super::comes_first;

/// What a key takes beside its bytes.
const OVERHEAD: usize = 128;
/// A bound that is longer is not kept.
const LONGEST: usize = 1024;

pub(super) struct Bounds {
    /// Those that were looked at since the others were.
    recent: Keys,
    /// Forgotten when the recent ones take half of the room.
    older: Keys,
    /// What the recent ones take, about.
    memory: usize,
    room: usize,
}

type Keys = FxHashMap<Box<[u8]>, Ends>;

#[derive(Default)]
struct Ends {
    version: u64,
    /// Not known if it is empty.
    lowest: Vec<u8>,
    highest: Vec<u8>,
}

impl Ends {
    fn len(&self) -> usize {
        self.lowest.len() + self.highest.len()
    }

    fn end(&mut self, direction: Direction) -> &mut Vec<u8> {
        match direction {
            Direction::Forward => &mut self.lowest,
            Direction::Backward => &mut self.highest,
        }
    }
}

impl Bounds {
    pub(super) fn new(room: usize) -> Self {
        Bounds {
            recent: Keys::default(),
            older: Keys::default(),
            memory: 0,
            room,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.recent.len() + self.older.len()
    }

    pub(super) fn clear(&mut self) {
        *self = Bounds::new(self.room);
    }

    fn insert(&mut self, key: Box<[u8]>, ends: Ends) {
        self.memory += key.len() + ends.len() + OVERHEAD;
        self.recent.insert(key, ends);
        if self.memory > self.room / 2 {
            self.older = std::mem::take(&mut self.recent);
            self.memory = 0;
        }
    }

    fn find(&mut self, key: &[u8], version: u64) -> Option<&mut Ends> {
        if !self.recent.contains_key(key)
            && let Some((key, ends)) = self.older.remove_entry(key)
        {
            self.insert(key, ends);
        }
        let keys = match self.recent.contains_key(key) {
            true => &mut self.recent,
            // It was the one too many.
            false => &mut self.older,
        };
        keys.get_mut(key).filter(|ends| ends.version == version)
    }

    /// Changes what is known of a key, if anything is; false if not.
    fn change(&mut self, key: &[u8], version: u64, change: impl FnOnce(&mut Ends)) -> bool {
        let Some(ends) = self.find(key, version) else {
            return false;
        };
        let before = ends.len();
        change(ends);
        let growth = ends.len() as isize - before as isize;
        self.memory = self.memory.saturating_add_signed(growth);
        true
    }

    /// Nothing lies before this element.
    pub(super) fn nearest(
        &mut self,
        key: &[u8],
        version: u64,
        direction: Direction,
    ) -> Option<&[u8]> {
        let end = self.find(key, version)?.end(direction);
        (!end.is_empty()).then_some(end)
    }

    /// A walk has found that nothing lies before this element.
    pub(super) fn raise(&mut self, key: &[u8], version: u64, direction: Direction, element: &[u8]) {
        let is_known = self.change(key, version, |ends| set(ends.end(direction), element));
        if !is_known && element.len() <= LONGEST {
            let mut ends = Ends {
                version,
                ..Ends::default()
            };
            set(ends.end(direction), element);
            self.insert(key.into(), ends);
        }
    }

    /// There is a new element.
    pub(super) fn add(&mut self, key: &[u8], version: u64, element: &[u8]) {
        self.change(key, version, |ends| {
            for direction in [Direction::Forward, Direction::Backward] {
                let end = ends.end(direction);
                if !end.is_empty() && comes_first(direction, element, end) {
                    set(end, element);
                }
            }
        });
    }
}

/// What is too long is not known.
fn set(end: &mut Vec<u8>, element: &[u8]) {
    end.clear();
    if element.len() <= LONGEST {
        end.extend_from_slice(element);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Direction::{Backward, Forward};

    #[test]
    fn a_bound_is_lowered_by_what_is_added_before_it() {
        let mut bounds = Bounds::new(1 << 20);
        bounds.add(b"key", 1, b"b");
        assert_eq!(bounds.nearest(b"key", 1, Forward), None);
        bounds.raise(b"key", 1, Forward, b"m");
        assert_eq!(bounds.nearest(b"key", 1, Backward), None);
        bounds.raise(b"key", 1, Backward, b"p");
        for (added, lowest, highest) in [(b"n", b"m", b"p"), (b"k", b"k", b"p"), (b"q", b"k", b"q")]
        {
            bounds.add(b"key", 1, added);
            assert_eq!(bounds.nearest(b"key", 1, Forward), Some(&lowest[..]));
            assert_eq!(bounds.nearest(b"key", 1, Backward), Some(&highest[..]));
        }
        // Another life of the key.
        bounds.add(b"key", 2, b"a");
        assert_eq!(bounds.nearest(b"key", 2, Forward), None);
        bounds.raise(b"key", 2, Forward, b"x");
        assert_eq!(bounds.nearest(b"key", 2, Forward), Some(&b"x"[..]));
        assert_eq!(bounds.nearest(b"key", 2, Backward), None);
        // Better nothing than what is too long.
        bounds.add(b"key", 2, &[b'a'; LONGEST + 1]);
        assert_eq!(bounds.nearest(b"key", 2, Forward), None);
        bounds.raise(b"other", 1, Forward, &[b'a'; LONGEST + 1]);
        assert_eq!(bounds.len(), 1);
    }

    #[test]
    fn those_that_are_looked_at_stay_and_all_fit_in_their_room() {
        let mut bounds = Bounds::new(100 * (OVERHEAD + 8));
        bounds.raise(b"busy", 1, Forward, b"busy");
        for number in 0..10_000_u32 {
            bounds.raise(&number.to_be_bytes(), 1, Forward, b"idle");
            bounds.add(b"busy", 1, b"z");
            assert!(bounds.len() <= 100);
        }
        let taken = |keys: &Keys| -> usize {
            let taken = keys
                .iter()
                .map(|(key, ends)| key.len() + ends.len() + OVERHEAD);
            taken.sum()
        };
        assert_eq!(bounds.memory, taken(&bounds.recent));
        assert!(bounds.len() >= 50);
        assert_eq!(bounds.nearest(b"busy", 1, Forward), Some(&b"busy"[..]));
        let last = 9_999_u32.to_be_bytes();
        assert_eq!(bounds.nearest(&last, 1, Forward), Some(&b"idle"[..]));
    }
}
