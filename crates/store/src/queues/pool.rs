//! The beginning of a shuffle of a set's members.
//!
//! What is popped next is the next of the shuffle. A member that leaves the set by another way keeps its
//! place, and is passed over when its turn comes; if it comes back before, it has that place again. A new
//! member gets a random place among all, which may lie in the pool or behind it.

use fastrand::Rng;
use rustc_hash::FxHashSet;

use super::elements::{Elements, OVERHEAD};

/// What a member takes in the set of those that have left.
const GONE_OVERHEAD: usize = 32;

#[derive(Default)]
pub(crate) struct Pool {
    /// The next one last.
    members: Elements,
    /// Those that have left by another way since the shuffle, in the pool or behind it.
    gone: FxHashSet<Box<[u8]>>,
    gone_bytes: usize,
}

impl Pool {
    pub(crate) fn is_empty(&self) -> bool {
        self.members.len() == 0
    }

    /// Takes out the next member. Now and then those that are most likely taken next are shown.
    pub(super) fn take<T>(
        &mut self,
        mut read: impl FnMut(&[u8]) -> T,
        mut show: impl FnMut(&[u8]),
    ) -> Option<T> {
        if self.gone.is_empty() {
            return self.members.take_next(read, show);
        }
        while let Some(next) = self.members.last() {
            let is_gone = forget(&mut self.gone, &mut self.gone_bytes, next);
            let taken = self.members.take_next(&mut read, &mut show);
            if !is_gone {
                return taken;
            }
        }
        None
    }

    /// The set has a new member; it had `size` before.
    pub(super) fn add(&mut self, size: u64, member: &[u8]) {
        if forget(&mut self.gone, &mut self.gone_bytes, member) {
            return;
        }
        // Its place, counted from the next one.
        let place = fastrand::u64(..=size + self.gone.len() as u64) as usize;
        let last = self.members.len();
        if place <= last {
            self.members.push(member);
            self.members.swap(last - place, last);
        }
    }

    /// A member has left by another way.
    pub(super) fn leave(&mut self, member: &[u8]) {
        if self.is_empty() {
            return;
        }
        if self.gone.insert(member.into()) {
            self.gone_bytes += member.len();
        }
        // So few are left that it is better to draw again.
        if self.gone.len() > self.members.len() {
            *self = Pool::default();
        }
    }

    /// Leaves out the later half.
    pub(super) fn halve(&mut self) {
        self.members.keep_from(self.members.len().div_ceil(2));
    }

    pub(super) fn memory(&self) -> usize {
        let slots = self.gone.capacity() * GONE_OVERHEAD;
        self.members.memory() + slots + self.gone_bytes
    }
}

/// Takes a member out of those that have left; false if it is none of them.
fn forget(gone: &mut FxHashSet<Box<[u8]>>, gone_bytes: &mut usize, member: &[u8]) -> bool {
    let was_gone = gone.remove(member);
    if was_gone {
        *gone_bytes -= member.len();
    }
    was_gone
}

/// Draws a pool from a walk over all members.
///
/// Every member gets a random number, and the order of the numbers is the shuffle. If all members find room
/// they are all kept; otherwise the first ones, until half of the room is taken. So which is the last does
/// not depend on those that come after it, and nobody's chance on his size.
pub(crate) struct Shuffle {
    room: usize,
    used: usize,
    random: Rng,
    members: Elements,
    numbers: Vec<u64>,
    /// The number of the last one that can still be in the pool, if not all can.
    last: Option<u64>,
}

impl Shuffle {
    pub(crate) fn new(room: usize) -> Self {
        Shuffle {
            room,
            used: 0,
            random: Rng::new(),
            members: Elements::default(),
            numbers: Vec::new(),
            last: None,
        }
    }

    pub(crate) fn add(&mut self, member: &[u8]) {
        let number = self.random.u64(..);
        if self.last.is_some_and(|last| number > last) {
            return;
        }
        self.members.push(member);
        self.numbers.push(number);
        self.used += member.len() + OVERHEAD;
        if self.used > self.room {
            self.cut();
        }
    }

    /// Keeps the first ones, until half of the room is taken, in the order of their numbers.
    fn cut(&mut self) {
        let mut order: Vec<(u64, usize)> = self.numbers.iter().copied().zip(0..).collect();
        order.sort_unstable();
        let mut used = 0;
        let reaches_half = |(_, at): &(u64, usize)| {
            used += self.members.get(*at).map_or(0, <[u8]>::len) + OVERHEAD;
            used >= self.room / 2
        };
        if let Some(last) = order.iter().position(reaches_half) {
            order.truncate(last + 1);
        }
        self.used = used;
        self.numbers = order.iter().map(|(number, _)| *number).collect();
        self.members.keep(order.into_iter().map(|(_, at)| at));
        self.last = self.numbers.last().copied();
    }

    pub(crate) fn finish(mut self) -> Pool {
        if self.last.is_some() {
            self.cut();
            self.members.reverse();
        } else {
            // Nobody has looked at the numbers.
            let mut order: Vec<usize> = (0..self.numbers.len()).collect();
            self.random.shuffle(&mut order);
            self.members.keep(order.into_iter());
        }
        Pool {
            members: self.members,
            ..Pool::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw<'m>(room: usize, members: impl IntoIterator<Item = &'m [u8]>) -> Pool {
        let mut shuffle = Shuffle::new(room);
        members.into_iter().for_each(|member| shuffle.add(member));
        shuffle.finish()
    }

    fn take_all(pool: &mut Pool) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| pool.take(<[u8]>::to_vec, |_| ())).collect()
    }

    /// That each of so many is as likely as any other.
    fn assert_fair(times: &[u32]) {
        let fair = times.iter().sum::<u32>() / times.len() as u32;
        let is_fair = |times: &u32| times.abs_diff(fair) < fair / 10;
        assert!(times.iter().all(is_fair), "{times:?}");
    }

    #[test]
    fn if_all_find_room_each_comes_once_and_every_new_one_too() {
        let members: Vec<[u8; 4]> = (0..1000_u32).map(u32::to_be_bytes).collect();
        let (old, new) = members.split_at(700);
        let mut pool = draw(usize::MAX, old.iter().map(<[u8; 4]>::as_slice));
        for (member, size) in new.iter().zip(700..) {
            pool.add(size, member);
        }
        let mut all = take_all(&mut pool);
        assert!(!all.is_sorted());
        all.sort();
        assert_eq!(all, members);
        assert_eq!(pool.memory(), 0);
    }

    #[test]
    fn a_new_member_is_as_likely_to_come_next_as_any_other() {
        // With all in the pool, and with some.
        for room in [usize::MAX, 3 * (1 + OVERHEAD)] {
            let mut times = [0; 4];
            for _ in 0..8000 {
                let mut pool = draw(room, [b"\0".as_slice(), b"\x01", b"\x02"]);
                pool.add(3, b"\x03");
                let next = pool.take(|member| member[0], |_| ());
                times[usize::from(next.unwrap_or_default())] += 1;
            }
            assert_fair(&times);
        }
    }

    #[test]
    fn one_that_leaves_and_comes_back_has_its_old_chance() {
        let mut times = [0; 4];
        for _ in 0..8000 {
            let mut pool = draw(usize::MAX, [b"\0".as_slice(), b"\x01", b"\x02", b"\x03"]);
            for _ in 0..10 {
                pool.leave(b"\x01");
                pool.add(3, b"\x01");
            }
            pool.leave(b"\x02");
            let next = pool.take(|member| member[0], |_| ());
            times[usize::from(next.unwrap_or_default())] += 1;
        }
        assert_eq!(times[2], 0);
        assert_fair(&[times[0], times[1], times[3]]);
    }

    /// Members of all sizes are popped one by one, and drawn again when the pool has no more: each must come
    /// at each turn as often as any other.
    #[test]
    fn with_little_room_the_large_come_as_often_as_the_small() {
        let members = [1, 10, 100, 1000].map(|len| vec![b'x'; len]);
        let mut times = [[0; 4]; 4];
        for _ in 0..8000 {
            let mut left: Vec<&[u8]> = members.iter().map(Vec::as_slice).collect();
            let mut pool = Pool::default();
            for times in &mut times {
                if pool.is_empty() {
                    pool = draw(300, left.iter().copied());
                }
                let len = pool.take(<[u8]>::len, |_| ()).unwrap_or_default();
                left.retain(|member| member.len() != len);
                times[members
                    .iter()
                    .position(|member| member.len() == len)
                    .unwrap_or(0)] += 1;
            }
        }
        times.iter().for_each(|times| assert_fair(times));
    }

    #[test]
    fn no_more_is_drawn_than_finds_room() {
        let members: Vec<[u8; 16]> = (0..50_000_u128).map(u128::to_be_bytes).collect();
        let room = 32 * 1024;
        let mut pool = draw(room, members.iter().map(<[u8; 16]>::as_slice));
        assert!((room / 2..room).contains(&pool.memory()));
        let all = take_all(&mut pool);
        assert_eq!(all.len(), room / 2 / (16 + OVERHEAD));
        let early = all
            .iter()
            .filter(|member| member.as_slice() < members[25_000].as_slice());
        let share = early.count() as f64 / all.len() as f64;
        assert!((0.4..0.6).contains(&share), "{share}");
    }

    #[test]
    fn a_half_is_the_half_that_comes_next() {
        let members: Vec<[u8; 4]> = (0..101_u32).map(u32::to_be_bytes).collect();
        let draw = || {
            let mut shuffle = Shuffle::new(usize::MAX);
            shuffle.random = Rng::with_seed(7);
            members.iter().for_each(|member| shuffle.add(member));
            shuffle.finish()
        };
        let (mut whole, mut half) = (draw(), draw());
        half.halve();
        assert!(half.memory() < whole.memory() * 6 / 10);
        assert_eq!(take_all(&mut half), take_all(&mut whole)[..50]);
    }

    #[test]
    fn a_pool_of_which_most_have_left_is_drawn_anew() {
        let members: Vec<[u8; 4]> = (0..100_u32).map(u32::to_be_bytes).collect();
        let mut pool = draw(usize::MAX, members.iter().map(<[u8; 4]>::as_slice));
        members.iter().for_each(|member| pool.leave(member));
        assert!(!pool.is_empty());
        pool.leave(b"one more");
        assert!(pool.is_empty());
    }
}
