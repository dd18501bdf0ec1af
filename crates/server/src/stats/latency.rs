//! How long calls took: a histogram of fixed size.
//!
//! Every power of two is cut into sixteen buckets of equal width, so a bucket is never wider than a
//! sixteenth of its values, and the bucket of a value is found with a shift.

use std::sync::atomic::{AtomicU64, Ordering};

use super::counter::Place;

/// Buckets in a power of two.
const CUTS: u64 = 16;
const CUT_BITS: u32 = CUTS.trailing_zeros();
/// All that takes longer, 2^36 ns or a minute, is in the last bucket.
const LARGEST: u64 = (1 << 36) - 1;
const BUCKETS: usize = ((36 - CUT_BITS + 1) as usize) << CUT_BITS;

pub struct Latency {
    buckets: [AtomicU64; BUCKETS],
}

impl Default for Latency {
    fn default() -> Self {
        Latency {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
        }
    }
}

fn bucket_of(nanoseconds: u64) -> usize {
    let value = nanoseconds.min(LARGEST);
    if value < CUTS {
        return value as usize;
    }
    let shift = value.ilog2() - CUT_BITS;
    ((u64::from(shift) << CUT_BITS) + (value >> shift)) as usize
}

/// The largest value that falls into the bucket.
fn top_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < CUTS {
        return bucket;
    }
    let shift = (bucket >> CUT_BITS) - 1;
    ((bucket - (shift << CUT_BITS) + 1) << shift) - 1
}

impl Latency {
    /// To be called for one in the shard of the calling thread.
    #[inline]
    pub fn record(&self, place: Place, nanoseconds: u64) {
        place.add(&self.buckets[bucket_of(nanoseconds)], 1);
    }

    pub fn add(&self, other: &Latency) {
        self.combine(other, u64::wrapping_add);
    }

    /// Takes off what was there before.
    pub fn subtract(&self, before: &Latency) {
        self.combine(before, u64::saturating_sub);
    }

    /// Becomes the same as another.
    pub fn set(&self, other: &Latency) {
        self.combine(other, |_, other| other);
    }

    fn combine(&self, other: &Latency, with: fn(u64, u64) -> u64) {
        for (mine, other) in self.buckets.iter().zip(&other.buckets) {
            let combined = with(mine.load(Ordering::Relaxed), other.load(Ordering::Relaxed));
            mine.store(combined, Ordering::Relaxed);
        }
    }

    pub fn count(&self) -> u64 {
        self.buckets
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .sum()
    }

    /// The time, in nanoseconds, that this percentage of the calls did not exceed.
    pub fn percentile(&self, percent: f64) -> u64 {
        let rank = (self.count() as f64 * percent / 100.0).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count.load(Ordering::Relaxed);
            if seen >= rank {
                return top_of(bucket);
            }
        }
        LARGEST
    }

    /// How many calls took at most about a microsecond, two, four and so on, in microseconds; only where it
    /// grows.
    pub fn doublings(&self) -> Vec<(u64, u64)> {
        let mut doublings = Vec::new();
        let (mut bucket, mut seen, mut before) = (0, 0, 0);
        for power in 10..=36 {
            // What two digits do not tell apart from the power itself counts as well.
            let end = (1u64 << power) + (1 << (power - 7));
            while bucket < BUCKETS && top_of(bucket) < end {
                seen += self.buckets[bucket].load(Ordering::Relaxed);
                bucket += 1;
            }
            if seen > before {
                doublings.push(((end - 1) / 1000, seen));
                before = seen;
            }
        }
        doublings
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buckets_follow_each_other_without_gaps() {
        let mut next = 0;
        for bucket in 0..BUCKETS {
            assert_eq!(bucket_of(next), bucket, "{next}");
            let top = top_of(bucket);
            assert_eq!(bucket_of(top), bucket, "{top}");
            next = top + 1;
        }
        assert_eq!(next, LARGEST + 1);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_those_of_the_values() {
        let latency = Latency::default();
        for value in 1..=1000 {
            latency.record(Place::mine(), value * 1000);
        }
        for (percent, exact) in [
            (0.0, 1_000),
            (50.0, 500_000),
            (99.0, 990_000),
            (100.0, 1_000_000),
        ] {
            let found = latency.percentile(percent);
            assert!(
                found >= exact && found <= exact + exact / 16,
                "{percent}: {found}"
            );
        }
    }

    proptest! {
        #[test]
        fn a_bucket_is_narrow(value in 0..=LARGEST) {
            let top = top_of(bucket_of(value));
            prop_assert!(top >= value && top - value <= value / CUTS);
        }
    }
}
