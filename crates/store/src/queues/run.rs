//! The members of a sorted set from one end on.
//!
//! A walk finds many at once; what is added later stands beside them. All that lies within the run's reach
//! is in it, or has left: whoever takes an element makes sure that it is still there.

use std::collections::BTreeSet;

use cairn_engine::Direction;

use super::elements::Elements;
use super::{Nearest, comes_first};

/// An element as it sorts: score and member.
pub(crate) type Element = Box<[u8]>;

/// How many elements the first walk looks up; the next ones more and more, as long as all are popped.
const FIRST_WALK: usize = 512;
/// The most that one looks up: a walk that does not hold up its thread.
const LONGEST_WALK: usize = 16 * 1024;
/// The same for a walk on a thread of its own that has to carry many young rows along, and is dear before it begins.
const LONGEST_DEAR_WALK: usize = 256 * 1024;
/// The most elements that are added to what a walk has found.
const MOST_ADDED: usize = 4096;
/// What an added element takes beside its bytes: its share of the tree, and the allocator.
const ADDED_OVERHEAD: usize = 48;

/// How far a run reaches.
#[derive(Default)]
enum Reach {
    #[default]
    Nowhere,
    /// Up to this element, which belongs to it.
    UpTo(Element),
    /// To the other end of the set.
    Everywhere,
}

pub(super) struct Run {
    direction: Direction,
    /// What the last walk has found, the nearest last.
    found: Elements,
    /// What was added since.
    added: BTreeSet<Element>,
    added_bytes: usize,
    reach: Reach,
    next_walk: usize,
}

impl Run {
    pub(super) fn new(direction: Direction) -> Self {
        Run {
            direction,
            found: Elements::default(),
            added: BTreeSet::new(),
            added_bytes: 0,
            reach: Reach::default(),
            next_walk: FIRST_WALK,
        }
    }

    /// Takes out the next element. Now and then those that are most likely taken next are shown.
    pub(super) fn take<T>(
        &mut self,
        read: impl FnOnce(&[u8]) -> T,
        show: impl FnMut(&[u8]),
    ) -> Option<T> {
        let added = match self.direction {
            Direction::Forward => self.added.first(),
            Direction::Backward => self.added.last(),
        };
        match (added, self.found.last()) {
            (None, _) => self.found.take_next(read, show),
            (Some(added), Some(found)) if comes_first(self.direction, found, added) => {
                self.found.take_next(read, show)
            }
            _ => self.take_added().map(|element| read(&element)),
        }
    }

    fn take_added(&mut self) -> Option<Element> {
        let element = match self.direction {
            Direction::Forward => self.added.pop_first(),
            Direction::Backward => self.added.pop_last(),
        }?;
        self.added_bytes -= element.len() + ADDED_OVERHEAD;
        Some(element)
    }

    /// Adds an element, if the run reaches that far.
    pub(super) fn add(&mut self, element: &[u8]) {
        match &self.reach {
            Reach::Nowhere => return,
            Reach::UpTo(bound) if comes_first(self.direction, bound, element) => return,
            Reach::UpTo(_) | Reach::Everywhere => {}
        }
        if self.added.insert(element.into()) {
            self.added_bytes += element.len() + ADDED_OVERHEAD;
        }
        if self.added.len() > MOST_ADDED {
            self.shorten();
        }
    }

    /// Before what nothing lies, for all that the run knows.
    pub(super) fn nearest(&self) -> Option<Nearest> {
        let added = match self.direction {
            Direction::Forward => self.added.first(),
            Direction::Backward => self.added.last(),
        };
        let added = added.map(|added| &**added);
        let nearest = match (added, self.found.last()) {
            (Some(added), Some(found)) if comes_first(self.direction, added, found) => Some(added),
            (added, found) => found.or(added),
        };
        match (nearest, &self.reach) {
            (Some(element), _) => Some(Nearest::At(element.into())),
            (None, Reach::UpTo(bound)) => Some(Nearest::Behind(bound.clone())),
            (None, Reach::Nowhere | Reach::Everywhere) => None,
        }
    }

    /// All elements up to this one have left.
    pub(super) fn pass(&mut self, last: &[u8]) {
        let direction = self.direction;
        let stays = |element: &[u8]| comes_first(direction, last, element);
        self.keep_added(stays);
        while self.found.last().is_some_and(|next| !stays(next)) {
            self.found.take_last(|_| ());
        }
        let reaches_further = match &self.reach {
            Reach::Nowhere => false,
            Reach::UpTo(bound) => stays(bound),
            Reach::Everywhere => true,
        };
        if !reaches_further {
            self.reach = Reach::UpTo(last.into());
        }
    }

    fn keep_added(&mut self, is_kept: impl Fn(&[u8]) -> bool) {
        self.added.retain(|element| is_kept(element));
        let bytes = self
            .added
            .iter()
            .map(|element| element.len() + ADDED_OVERHEAD);
        self.added_bytes = bytes.sum();
    }

    /// Reaches no further than half of what was added, or of what was found if that is all there is.
    pub(super) fn shorten(&mut self) {
        let half = self.added.len() / 2;
        let middle = match self.direction {
            Direction::Forward => self.added.iter().nth(half).cloned(),
            Direction::Backward => self.added.iter().rev().nth(half).cloned(),
        };
        let middle = middle.or_else(|| self.found.get(self.found.len() / 2).map(Element::from));
        let Some(bound) = middle else {
            self.reach = Reach::Nowhere;
            return;
        };
        let direction = self.direction;
        let is_beyond = |element: &[u8]| comes_first(direction, &bound, element);
        self.keep_added(|element| !is_beyond(element));
        let within = (0..self.found.len()).find(|at| !self.found.get(*at).is_some_and(is_beyond));
        self.found.keep_from(within.unwrap_or(self.found.len()));
        self.reach = Reach::UpTo(bound);
    }

    /// What the walk has to know that looks for the next elements.
    pub(super) fn next_walk(&self, room: usize) -> LookAhead {
        LookAhead {
            count: self.next_walk,
            room,
            found: Elements::default(),
            is_complete: false,
        }
    }

    pub(super) fn extend(&mut self, walk: LookAhead) {
        let LookAhead {
            mut found,
            is_complete,
            ..
        } = walk;
        self.reach = match found.last() {
            _ if is_complete => Reach::Everywhere,
            Some(last) => Reach::UpTo(last.into()),
            None => Reach::Nowhere,
        };
        found.reverse();
        self.found = found;
        self.next_walk = (self.next_walk * 2).min(LONGEST_WALK);
    }

    pub(super) fn memory(&self) -> usize {
        let bound = match &self.reach {
            Reach::UpTo(bound) => bound.len(),
            Reach::Nowhere | Reach::Everywhere => 0,
        };
        self.found.memory() + self.added_bytes + bound
    }
}

/// A walk that looks for the next elements of a run which has none left.
pub(crate) struct LookAhead {
    count: usize,
    room: usize,
    found: Elements,
    /// There was nothing more to be found.
    is_complete: bool,
}

impl LookAhead {
    /// The walk carries so many young rows along, whether it finds few elements or many. If a connection's thread may
    /// begin it, they are in order already, for the walks that follow too.
    pub(crate) fn make_worth(&mut self, carried: usize, is_patient: bool) {
        let longest = match is_patient {
            true => LONGEST_DEAR_WALK,
            false => LONGEST_WALK,
        };
        self.count = self.count.max(carried.min(longest));
    }

    pub(crate) fn wants_more(&self) -> bool {
        let is_enough = self.found.len() >= self.count || self.found.memory() > self.room;
        !is_enough && !self.is_complete
    }

    /// The next element.
    pub(crate) fn find(&mut self, element: &[u8]) {
        self.found.push(element);
    }

    /// There is no next element.
    pub(crate) fn complete(&mut self) {
        self.is_complete = true;
    }

    /// The nearest of those that were found.
    pub(crate) fn first(&self) -> Option<&[u8]> {
        self.found.get(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Model = BTreeSet<[u8; 4]>;

    /// Takes the nearest element that is still there, as a pop does.
    fn pop(run: &mut Run, model: &mut Model, walks: &mut usize) -> Option<[u8; 4]> {
        while !model.is_empty() {
            let Some(element) = run.take(<[u8]>::to_vec, |_| ()) else {
                *walks += 1;
                run.extend(walk(run, model));
                continue;
            };
            let element = element.try_into().unwrap_or_default();
            if model.remove(&element) {
                return Some(element);
            }
        }
        None
    }

    fn walk(run: &Run, model: &Model) -> LookAhead {
        let mut walk = run.next_walk(usize::MAX);
        let nearest = run.nearest();
        let is_behind = |element: &&[u8; 4]| match &nearest {
            Some(Nearest::At(bound)) => !comes_first(run.direction, *element, bound),
            Some(Nearest::Behind(bound)) => comes_first(run.direction, bound, *element),
            None => true,
        };
        let mut elements: Vec<_> = model.iter().filter(is_behind).collect();
        if run.direction == Direction::Backward {
            elements.reverse();
        }
        let mut elements = elements.into_iter();
        while walk.wants_more() {
            match elements.next() {
                Some(element) => walk.find(element),
                None => walk.complete(),
            }
        }
        walk
    }

    /// Elements come and go anywhere, while both ends are popped.
    #[test]
    fn the_nearest_is_popped_whatever_comes_and_goes() {
        let mut random = fastrand::Rng::with_seed(7);
        for adds_per_pop in [1, 2, 20] {
            let mut model = Model::new();
            let mut runs = [Direction::Forward, Direction::Backward].map(Run::new);
            for _ in 0..20_000 {
                for _ in 0..random.usize(..=2 * adds_per_pop) {
                    let element = random.u32(..).to_be_bytes();
                    if model.insert(element) {
                        runs.iter_mut().for_each(|run| run.add(&element));
                    }
                }
                if random.bool() {
                    let from = random.u32(..).to_be_bytes();
                    let removed = model.range(from..).next().copied();
                    removed.map(|removed| model.remove(&removed));
                }
                let lowest = model.first().copied();
                assert_eq!(pop(&mut runs[0], &mut model, &mut 0), lowest);
                let highest = model.last().copied();
                assert_eq!(pop(&mut runs[1], &mut model, &mut 0), highest);
                if random.u8(..20) == 0 {
                    let some: Vec<_> = model.iter().take(random.usize(..50)).copied().collect();
                    some.iter().for_each(|passed| _ = model.remove(passed));
                    some.last().into_iter().for_each(|last| runs[0].pass(last));
                }
                let lies_at = |element: &[u8; 4], nearest: &Nearest, direction| match nearest {
                    Nearest::At(bound) => !comes_first(direction, element, bound),
                    Nearest::Behind(bound) => comes_first(direction, bound, element),
                };
                for (run, element) in runs.iter().zip([model.first(), model.last()]) {
                    let nearest = run.nearest();
                    let is_right = |element| {
                        let nearest = nearest.as_ref();
                        nearest.is_none_or(|nearest| lies_at(element, nearest, run.direction))
                    };
                    assert!(element.is_none_or(is_right));
                }
            }
        }
    }

    #[test]
    fn walks_grow_while_all_they_find_is_popped() {
        for direction in [Direction::Forward, Direction::Backward] {
            let mut model: Model = (0..50_000_u32).map(u32::to_be_bytes).collect();
            let (mut run, mut walks) = (Run::new(direction), 0);
            pop(&mut run, &mut model, &mut walks);
            assert_eq!(run.found.len(), FIRST_WALK - 1);
            while pop(&mut run, &mut model, &mut walks).is_some() {}
            // 512, 1024, and so on up to 16,384, and then no more at once.
            assert_eq!(walks, 8);
        }
    }

    #[test]
    fn a_walk_takes_what_it_carries_along_but_holds_up_no_connection() {
        let found = |carried, is_patient| {
            let mut walk = Run::new(Direction::Forward).next_walk(usize::MAX);
            walk.make_worth(carried, is_patient);
            while walk.wants_more() {
                walk.find(b"element");
            }
            walk.found.len()
        };
        for is_patient in [true, false] {
            assert_eq!(found(0, is_patient), FIRST_WALK);
            assert_eq!(found(10_000, is_patient), 10_000);
        }
        assert_eq!(found(1_000_000, true), LONGEST_DEAR_WALK);
        assert_eq!(found(1_000_000, false), LONGEST_WALK);
    }

    #[test]
    fn a_run_that_reaches_everywhere_needs_no_walk_for_what_is_added() {
        let mut model = Model::from([[5; 4], [7; 4]]);
        let (mut run, mut walks) = (Run::new(Direction::Forward), 0);
        for round in 0..100 {
            let element = [round; 4];
            if model.insert(element) {
                run.add(&element);
            }
            pop(&mut run, &mut model, &mut walks);
        }
        assert_eq!(walks, 1);
    }

    #[test]
    fn a_run_takes_in_what_lies_within_its_reach_and_not_too_much() {
        for direction in [Direction::Forward, Direction::Backward] {
            let mut model: Model = (0..2000_u32).map(|n| (n * 1000).to_be_bytes()).collect();
            let (mut run, mut walks) = (Run::new(direction), 0);
            pop(&mut run, &mut model, &mut walks);
            let before = run.memory();
            run.add(&match direction {
                Direction::Forward => u32::MAX.to_be_bytes(),
                Direction::Backward => [0; 4],
            });
            assert!(run.added.is_empty());
            for number in 0..1_000_000_u32 {
                let element = number.to_be_bytes();
                if model.insert(element) {
                    run.add(&element);
                }
            }
            assert!(run.memory() < before + MOST_ADDED * (ADDED_OVERHEAD + 4));
            assert_eq!(run.added_bytes, run.added.len() * (ADDED_OVERHEAD + 4));
            let expected = match direction {
                Direction::Forward => model.first().copied(),
                Direction::Backward => model.last().copied(),
            };
            assert_eq!(pop(&mut run, &mut model, &mut walks), expected);
        }
    }

    #[test]
    fn a_walk_ends_where_its_room_does_but_finds_one_at_least() {
        for (room, expected) in [(0, 1), (10_000, 10)] {
            let mut walk = Run::new(Direction::Forward).next_walk(room);
            while walk.wants_more() {
                walk.find(&[b'x'; 1000]);
            }
            assert!(walk.found.len().abs_diff(expected) <= expected / 2);
        }
    }
}
