//! The version that separates one life of a collection from the next.
//!
//! ```text
//!   version u64 = microseconds since 1970 (53 bits) | counter (11 bits)
//! ```
//!
//! Every collection row names the version it was written under, and only the one in the metadata row is
//! alive. So a version must never return: a second use would bring back what the first had deleted. The
//! clock alone cannot promise that, since it may step back or stand still, so each version is also above
//! the last one handed out, which is persisted with every commit. The counter bits leave room for 2048
//! versions in a microsecond before they run ahead of the clock; running ahead is harmless.

const COUNTER_BITS: u32 = 11;

/// The version after `last`, close to the clock where the clock allows.
///
/// # Panics
///
/// If `last` is the largest version there is, for reusing one would revive deleted rows.
pub fn next(now_micros: u64, last: u64) -> u64 {
    let successor = last
        .checked_add(1)
        .expect("no version is left after u64::MAX");
    from_clock(now_micros).max(successor)
}

/// What a version is made of: microseconds since 1970, and how many came before it in the same one.
pub fn parts(version: u64) -> (u64, u64) {
    (version >> COUNTER_BITS, version & ((1 << COUNTER_BITS) - 1))
}

/// A clock beyond the year 2255 does not fit. It counts as no clock at all, rather than as a wrapped one
/// or as the last version there is.
fn from_clock(now_micros: u64) -> u64 {
    if now_micros > u64::MAX >> COUNTER_BITS {
        return 0;
    }
    now_micros << COUNTER_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000_000_000;

    #[test]
    fn a_clock_that_moves_on_sets_the_version() {
        assert_eq!(next(NOW, 0), 3_481_600_000_000_000_000);
        let next_microsecond = 3_481_600_000_000_002_048;
        assert_eq!(next(NOW + 1, next_microsecond - 1), next_microsecond);
    }

    #[test]
    fn a_version_comes_apart_again() {
        let first = next(NOW, 0);
        assert_eq!(parts(first), (NOW, 0));
        assert_eq!(parts(first + 2047), (NOW, 2047));
        assert_eq!(parts(first + 2048), (NOW + 1, 0));
        assert_eq!(parts(u64::MAX), (u64::MAX >> COUNTER_BITS, 2047));
    }

    #[test]
    fn a_clock_that_stands_still_or_steps_back_does_not_hold_it_back() {
        let first = next(NOW, 0);
        let second = next(NOW, first);
        let third = next(NOW - 60_000_000, second);
        assert_eq!((second, third), (first + 1, first + 2));
    }

    #[test]
    fn a_clock_beyond_the_range_is_ignored() {
        let largest_micros = u64::MAX >> COUNTER_BITS;
        assert_eq!(next(largest_micros, 7), largest_micros << COUNTER_BITS);
        assert_eq!(next(largest_micros + 1, 7), 8);
        assert_eq!(next(u64::MAX, 7), 8);
    }

    #[test]
    #[should_panic(expected = "no version is left")]
    fn the_last_version_has_no_successor() {
        next(NOW, u64::MAX);
    }
}
