//! Before what no element of a sorted set lies, from either end.
//!
//! A walk that begins there passes over nothing that was popped before. A run knows that as well, while it is there; what is kept
//! here is small, and outlives it. What is added before a bound lowers it. It is raised no further than to where it stays true if
//! the command, or unit, is taken back: to what a walk has found first before that had changed anything, or, where a pop of several
//! has to walk in the midst, to what it took out first. What was gone by then is gone for good, unless the commit fails, and then
//! all is forgotten.

use std::collections::hash_map::IntoIter;
use std::sync::Arc;

use cairn_engine::Direction;
use rustc_hash::FxHashMap;

use super::{Known, Mark, comes_first};

/// What a key takes beside its bytes.
pub(super) const OVERHEAD: usize = 128;
/// A bound that is longer is not kept, nor one of a key that is.
const LONGEST: usize = 1024;
/// How many of those that are forgotten are freed with each that comes: all together would hold up everyone who asks.
const FREED_AT_ONCE: usize = 16;

pub(super) struct Bounds {
    /// Those that were looked at since the others were.
    recent: Keys,
    /// Forgotten when the recent ones take half of the room.
    older: Keys,
    /// Those that are forgotten.
    forgotten: IntoIter<Box<[u8]>, Ends>,
    /// What the recent ones take, about.
    memory: usize,
    room: usize,
    known: Arc<Known>,
}

type Keys = FxHashMap<Box<[u8]>, Ends>;

struct Ends {
    version: u64,
    /// Not known if it is empty.
    lowest: Vec<u8>,
    highest: Vec<u8>,
    _mark: Mark,
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

fn size(key: &[u8], ends: &Ends) -> usize {
    key.len() + ends.len() + OVERHEAD
}

impl Bounds {
    pub(super) fn new(room: usize, known: Arc<Known>) -> Self {
        Bounds {
            recent: Keys::default(),
            older: Keys::default(),
            forgotten: Keys::default().into_iter(),
            memory: 0,
            room,
            known,
        }
    }

    /// How many keys there are, forgotten ones included until they are freed.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.recent.len() + self.older.len() + self.forgotten.len()
    }

    pub(super) fn clear(&mut self) {
        *self = Bounds::new(self.room, self.known.clone());
    }

    /// Forgets the older ones if there is no room for so much more among the recent ones.
    fn make_room(&mut self, more: usize) {
        if self.memory + more > self.room / 2 {
            let recent = std::mem::take(&mut self.recent);
            self.forgotten = std::mem::replace(&mut self.older, recent).into_iter();
            self.memory = 0;
        }
    }

    fn free_some(&mut self) {
        self.forgotten.by_ref().take(FREED_AT_ONCE).for_each(drop);
        if self.forgotten.len() == 0 {
            // Their table goes, too.
            self.forgotten = Keys::default().into_iter();
        }
    }

    /// Puts a key among the recent ones, in place of what was known of it there.
    fn insert(&mut self, key: Box<[u8]>, ends: Ends) {
        self.free_some();
        if let Some(replaced) = self.recent.remove(&key) {
            self.memory -= size(&key, &replaced);
        }
        let more = size(&key, &ends);
        self.make_room(more);
        self.memory += more;
        self.recent.insert(key, ends);
    }

    /// What is known of a key, which is a recent one from now on.
    fn find(&mut self, key: &[u8], version: u64) -> Option<&mut Ends> {
        if !self.recent.contains_key(key) {
            let (key, ends) = self.older.remove_entry(key)?;
            self.insert(key, ends);
        }
        let ends = self.recent.get_mut(key);
        ends.filter(|ends| ends.version == version)
    }

    /// Changes what is known of a key, if anything is; false if not.
    fn change(&mut self, key: &[u8], version: u64, change: impl FnOnce(&mut Ends)) -> bool {
        let Some(ends) = self.find(key, version) else {
            return false;
        };
        let before = ends.len();
        change(ends);
        let after = ends.len();
        self.memory = self.memory - before + after;
        self.make_room(0);
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

    /// Nothing lies before this element, not even if the command is taken back.
    pub(super) fn raise(&mut self, key: &[u8], version: u64, direction: Direction, element: &[u8]) {
        let is_known = self.change(key, version, |ends| set(ends.end(direction), element));
        if !is_known && key.len() <= LONGEST && element.len() <= LONGEST {
            let mut ends = Ends {
                version,
                lowest: Vec::new(),
                highest: Vec::new(),
                _mark: self.known.mark(key),
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

    fn within(room: usize) -> Bounds {
        Bounds::new(room, Known::of_about(0))
    }

    fn taken(keys: &Keys) -> usize {
        keys.iter().map(|(key, ends)| size(key, ends)).sum()
    }

    #[test]
    fn a_bound_is_lowered_by_what_is_added_before_it() {
        let mut bounds = within(1 << 20);
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
        bounds.raise(&[b'k'; LONGEST + 1], 1, Forward, b"a");
        assert_eq!(bounds.len(), 1);
    }

    #[test]
    fn those_that_are_looked_at_stay_and_all_fit_in_their_room() {
        let room = 100 * (OVERHEAD + 8);
        let mut bounds = within(room);
        bounds.raise(b"busy", 1, Forward, b"busy");
        for number in 0..10_000_u32 {
            bounds.raise(&number.to_be_bytes(), 1, Forward, b"idle");
            bounds.add(b"busy", 1, b"z");
            assert!(bounds.recent.len() + bounds.older.len() <= 100);
            assert!(bounds.forgotten.len() < 50);
        }
        assert_eq!(bounds.memory, taken(&bounds.recent));
        assert!(bounds.len() >= 50);
        assert_eq!(bounds.nearest(b"busy", 1, Forward), Some(&b"busy"[..]));
        let last = 9_999_u32.to_be_bytes();
        assert_eq!(bounds.nearest(&last, 1, Forward), Some(&b"idle"[..]));
        // So do those that grow.
        for number in 9_900..10_000_u32 {
            bounds.raise(&number.to_be_bytes(), 1, Backward, &[b'z'; LONGEST]);
            assert_eq!(bounds.memory, taken(&bounds.recent));
            assert!(taken(&bounds.recent) + taken(&bounds.older) <= room + LONGEST);
        }
    }

    #[test]
    fn another_life_of_a_key_takes_the_place_of_the_last_and_of_no_other_key() {
        let mut bounds = within(100 * (OVERHEAD + 8));
        bounds.raise(b"other", 1, Forward, b"m");
        for version in 1..1000 {
            for direction in [Forward, Backward] {
                bounds.raise(b"key", version, direction, &[b'm'; 100]);
                assert_eq!(bounds.memory, taken(&bounds.recent));
            }
        }
        assert_eq!(bounds.len(), 2);
        assert_eq!(bounds.nearest(b"other", 1, Forward), Some(&b"m"[..]));
    }
}
