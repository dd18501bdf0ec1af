//! When keys were last used, and how often.
//!
//! Nothing is written for it: beside each row in memory stand 24 bits, as beside each value of Redis. They say in which
//! second the row was last asked for, or, while uses are counted, how often it was (a counter that grows the more slowly
//! the larger it is, and falls with time) and in which minute that was last noted. Seconds are those since the process
//! began. A server that has just begun therefore knows of no use, and a key that is on the disk counts as not used since
//! the beginning, unless it was in memory not long ago: when a row leaves memory its bits go to a small table of their
//! own ([`Faded`]).

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

/// How much is known of a use.
const BITS: u32 = 24;
const MASK: u32 = (1 << BITS) - 1;
/// Where a counter begins, so that what is new is not the first to go.
const FIRST_COUNT: u8 = 5;

/// The time, in the form in which it is needed with every read: the second in the low half; above it the minute, and
/// whether uses are counted.
static NOW: AtomicU64 = AtomicU64::new(0);
const MINUTE_AT: u32 = 32;
const COUNTS_USES: u64 = 1 << 63;
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// How slowly counters grow, and how many minutes it takes one to fall by one; zero: it never does.
static GROWTH: AtomicU32 = AtomicU32::new(10);
static DECAY_MINUTES: AtomicU32 = AtomicU32::new(1);

/// Notes how late it is; to be called several times in a second.
pub fn advance_access_clock() {
    set_seconds(START.elapsed().as_secs());
}

fn set_seconds(seconds: u64) {
    let minute = (seconds / 60) & 0xffff;
    let now = seconds & u64::from(MASK) | minute << MINUTE_AT;
    let besides = |before: u64| Some(before & COUNTS_USES | now);
    let _ = NOW.fetch_update(Ordering::Relaxed, Ordering::Relaxed, besides);
}

/// Whether uses are counted from now on, or their time is noted. What was noted before is taken for the other, until it
/// is noted anew.
pub fn count_uses(are_counted: bool) {
    match are_counted {
        true => NOW.fetch_or(COUNTS_USES, Ordering::Relaxed),
        false => NOW.fetch_and(!COUNTS_USES, Ordering::Relaxed),
    };
}

pub fn set_count_growth(factor: u32) {
    GROWTH.store(factor, Ordering::Relaxed);
}

pub fn set_count_decay(minutes: u32) {
    DECAY_MINUTES.store(minutes, Ordering::Relaxed);
}

/// What is known of the last use of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access(u32);

/// The time at which something is used.
#[derive(Clone, Copy)]
pub(crate) struct Now(u64);

impl Now {
    #[inline]
    pub(crate) fn read() -> Now {
        Now(NOW.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn counts_uses(self) -> bool {
        self.0 & COUNTS_USES != 0
    }

    #[inline]
    pub(crate) fn second(self) -> Access {
        Access(self.0 as u32 & MASK)
    }

    fn minute(self) -> u16 {
        (self.0 >> MINUTE_AT) as u16
    }
}

impl Access {
    /// Of what nothing is known.
    pub(crate) fn unknown() -> Access {
        match Now::read().counts_uses() {
            true => Access::counted(FIRST_COUNT, 0),
            false => Access(0),
        }
    }

    /// Of what has come to be.
    #[inline]
    pub(crate) fn of_new(now: Now) -> Access {
        match now.counts_uses() {
            true => Access::counted(FIRST_COUNT, now.minute()),
            false => now.second(),
        }
    }

    /// Of what is used now for the first time.
    pub fn now() -> Access {
        Access::of_new(Now::read())
    }

    /// It was last used so many seconds ago.
    pub fn idle_for(seconds: u64) -> Access {
        let seconds = seconds.min(u64::from(MASK)) as u32;
        Access(Now::read().second().0.wrapping_sub(seconds) & MASK)
    }

    /// It has been used so often, by its counter.
    pub fn used(count: u8) -> Access {
        Access::counted(count, Now::read().minute())
    }

    fn counted(count: u8, minute: u16) -> Access {
        Access(u32::from(minute) << 8 | u32::from(count))
    }

    #[inline]
    pub(crate) fn of_bits(bits: u32) -> Access {
        Access(bits & MASK)
    }

    #[inline]
    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    /// For how many seconds it was not used, if times are noted.
    pub fn idle_seconds(self) -> u64 {
        u64::from(Now::read().second().0.wrapping_sub(self.0) & MASK)
    }

    /// How much it is used, if uses are counted.
    pub fn frequency(self) -> u8 {
        self.frequency_at(Now::read())
    }

    fn frequency_at(self, now: Now) -> u8 {
        let elapsed = now.minute().wrapping_sub((self.0 >> 8) as u16);
        let periods = match DECAY_MINUTES.load(Ordering::Relaxed) {
            0 => 0,
            minutes => u32::from(elapsed) / minutes,
        };
        (self.0 as u8).saturating_sub(u8::try_from(periods).unwrap_or(u8::MAX))
    }

    /// The same after one more use.
    #[cold]
    pub(crate) fn count(self, now: Now) -> Access {
        let count = self.frequency_at(now);
        let count = grown(count, GROWTH.load(Ordering::Relaxed), fastrand::f64());
        Access::counted(count, now.minute())
    }
}

/// A counter after one more use; the larger it is the less likely it grows.
fn grown(count: u8, factor: u32, chance: f64) -> u8 {
    let above_first = f64::from(count.saturating_sub(FIRST_COUNT));
    let grows = chance < 1.0 / (above_first * f64::from(factor) + 1.0);
    count.saturating_add(u8::from(grows))
}

/// What was known of rows that are in memory no more: as much as finds room, the latest of those that meet in one place.
pub(crate) struct Faded(Box<[AtomicU64]>);

impl Faded {
    pub(crate) fn new(bytes: usize) -> Faded {
        let places = (bytes / size_of::<AtomicU64>()).next_power_of_two();
        Faded((0..places).map(|_| AtomicU64::new(0)).collect())
    }

    fn place(&self, hash: u32) -> &AtomicU64 {
        &self.0[hash as usize & (self.0.len() - 1)]
    }

    pub(crate) fn note(&self, hash: u32, access: Access) {
        // The lowest bit tells it from a place that is empty.
        let noted = u64::from(hash) << 32 | u64::from(access.bits()) << 1 | 1;
        self.place(hash).store(noted, Ordering::Relaxed);
    }

    pub(crate) fn get(&self, hash: u32) -> Option<Access> {
        let noted = self.place(hash).load(Ordering::Relaxed);
        let is_it = noted & 1 != 0 && (noted >> 32) as u32 == hash;
        is_it.then(|| Access::of_bits(noted as u32 >> 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minute: u16) -> Now {
        Now(u64::from(minute) << MINUTE_AT | COUNTS_USES)
    }

    #[test]
    fn counters_grow_more_slowly_the_larger_they_are_and_fall_with_time() {
        assert_eq!(grown(0, 10, 0.99), 1);
        assert_eq!(grown(FIRST_COUNT, 10, 0.99), FIRST_COUNT + 1);
        assert_eq!(grown(10, 10, 0.5), 10);
        assert_eq!(grown(10, 10, 0.019), 11);
        assert_eq!(grown(200, 0, 0.99), 201);
        assert_eq!(grown(u8::MAX, 0, 0.0), u8::MAX);
        let used = Access::counted(20, 100);
        assert_eq!(used.frequency_at(at(100)), 20);
        assert_eq!(used.frequency_at(at(107)), 13);
        assert_eq!(used.frequency_at(at(1000)), 0);
        // Minutes begin again.
        assert_eq!(Access::counted(20, 65_535).frequency_at(at(1)), 18);
    }

    #[test]
    fn uses_take_a_counter_as_far_as_redis_takes_it() {
        let mut used = Access::counted(FIRST_COUNT, 1);
        (0..1000).for_each(|_| used = used.count(at(1)));
        // Redis' documentation: some 18 after 1000 uses, by this factor.
        assert!((12..=26).contains(&used.frequency_at(at(1))), "{used:?}");
    }

    #[test]
    fn what_has_faded_is_known_until_another_takes_its_place() {
        let faded = Faded::new(64);
        assert_eq!(faded.get(3), None);
        faded.note(3, Access(77));
        faded.note(4, Access(MASK));
        assert_eq!(faded.get(3), Some(Access(77)));
        assert_eq!(faded.get(4), Some(Access(MASK)));
        assert_eq!(faded.get(3 + 8), None);
        faded.note(3 + 8, Access(0));
        assert_eq!((faded.get(3), faded.get(11)), (None, Some(Access(0))));
    }

    #[test]
    fn times_before_the_beginning_are_told_apart_too() {
        let idle = Access::idle_for(1000).idle_seconds();
        assert!((1000..1010).contains(&idle));
        assert!(Access::idle_for(u64::MAX).idle_seconds() > 190 * 24 * 3600);
    }
}
