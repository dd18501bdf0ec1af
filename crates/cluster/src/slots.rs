//! Ranges of slots.

use std::fmt;

use cairn_encoding::SLOTS;

/// Slots from the first to the last, both included. There is at least one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SlotRange {
    first: u16,
    last: u16,
}

impl SlotRange {
    pub const ALL: SlotRange = SlotRange {
        first: 0,
        last: SLOTS - 1,
    };

    pub fn new(first: u16, last: u16) -> Option<SlotRange> {
        (first <= last && last < SLOTS).then_some(SlotRange { first, last })
    }

    pub fn first(self) -> u16 {
        self.first
    }

    pub fn last(self) -> u16 {
        self.last
    }

    pub fn count(self) -> u16 {
        self.last - self.first + 1
    }

    pub fn contains(self, slot: u16) -> bool {
        (self.first..=self.last).contains(&slot)
    }

    /// The slots below `at`, and those from `at` on; none if either would be empty.
    pub fn split(self, at: u16) -> Option<(SlotRange, SlotRange)> {
        let below = SlotRange::new(self.first, at.checked_sub(1)?)?;
        let above = SlotRange::new(at, self.last)?;
        self.contains(at).then_some((below, above))
    }

    /// All slots in so many ranges, as even as can be. At most as many as there are slots.
    pub fn divide(parts: u16) -> Vec<SlotRange> {
        let parts = u32::from(parts.clamp(1, SLOTS));
        let start = |part: u32| (part * u32::from(SLOTS) / parts) as u16;
        (0..parts)
            .map(|part| SlotRange {
                first: start(part),
                last: start(part + 1) - 1,
            })
            .collect()
    }
}

/// As Redis writes it: `0-5460`, or `7` for one slot.
impl fmt::Display for SlotRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => write!(f, "{}", self.first),
            false => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_slots_are_divided_evenly() {
        for parts in [1, 2, 3, 7, 16, 1000, SLOTS] {
            let ranges = SlotRange::divide(parts);
            assert_eq!(ranges.len(), usize::from(parts));
            assert_eq!(ranges[0].first(), 0);
            assert_eq!(ranges[ranges.len() - 1].last(), SLOTS - 1);
            for pair in ranges.windows(2) {
                assert_eq!(pair[0].last() + 1, pair[1].first());
            }
            let counts = ranges.iter().map(|range| range.count());
            let (least, most) = (counts.clone().min(), counts.max());
            assert!(most.unwrap() - least.unwrap() <= 1, "{parts} parts");
        }
    }

    #[test]
    fn a_split_leaves_no_part_empty() {
        let range = SlotRange::new(10, 20).unwrap();
        assert_eq!(range.split(10), None);
        assert_eq!(range.split(21), None);
        assert_eq!(range.split(9), None);
        let (below, above) = range.split(11).unwrap();
        assert_eq!(
            (below.to_string(), above.to_string()),
            ("10".into(), "11-20".into())
        );
        assert_eq!(SlotRange::ALL.split(0), None);
        assert_eq!(SlotRange::new(5, 4), None);
        assert_eq!(SlotRange::new(0, SLOTS), None);
    }
}
