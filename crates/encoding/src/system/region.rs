//! What the rows of a cluster's regions say.
//!
//! ```text
//!   RegionDescriptor   first u16 | end u16 | epoch u64
//!   Installing         first u16 | end u16
//! ```
//!
//! A region has the slots from `first` up to, and without, `end`; none if the two are the same, as the region that holds
//! the cluster's map. `epoch` rises whenever its slots change, so that a batch that was evaluated before is
//! known by it. The mark `Installing` has the slots of the snapshot that is being put in the place of the region.

use std::fmt;

use crate::reader::Reader;
use crate::{DecodeError, SLOTS};

/// A range of slots: `[first, end)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slots {
    first: u16,
    end: u16,
}

impl Slots {
    pub const ALL: Slots = Slots {
        first: 0,
        end: SLOTS,
    };
    pub const NONE: Slots = Slots { first: 0, end: 0 };

    /// None if there is no such range.
    pub fn new(first: u16, end: u16) -> Option<Slots> {
        (first <= end && end <= SLOTS).then_some(Slots { first, end })
    }

    pub fn first(self) -> u16 {
        self.first
    }

    pub fn end(self) -> u16 {
        self.end
    }

    pub fn is_empty(self) -> bool {
        self.first == self.end
    }

    #[inline]
    pub fn contains(self, slot: u16) -> bool {
        self.first <= slot && slot < self.end
    }

    pub fn overlaps(self, other: Slots) -> bool {
        self.first.max(other.first) < self.end.min(other.end)
    }

    /// Those below `slot`, and those from it on; none unless both are some.
    pub fn split_at(self, slot: u16) -> Option<(Slots, Slots)> {
        let (below, above) = (Slots::new(self.first, slot)?, Slots::new(slot, self.end)?);
        (!below.is_empty() && !above.is_empty()).then_some((below, above))
    }

    pub fn encode(self) -> [u8; 4] {
        let ([a, b], [c, d]) = (self.first.to_be_bytes(), self.end.to_be_bytes());
        [a, b, c, d]
    }

    fn read(reader: &mut Reader<'_>) -> Result<Slots, DecodeError> {
        let (first, end) = (reader.u16("first")?, reader.u16("end")?);
        let layout = reader.layout();
        Slots::new(first, end).ok_or(DecodeError::NoSlotRange { layout, first, end })
    }

    /// The value of the mark `Installing`.
    pub fn decode(value: &[u8]) -> Result<Slots, DecodeError> {
        let mut reader = Reader::new("installing value", value);
        let slots = Slots::read(&mut reader)?;
        reader.finish()?;
        Ok(slots)
    }
}

impl fmt::Display for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.end.checked_sub(1).filter(|_| !self.is_empty()) {
            Some(last) => write!(f, "{}-{last}", self.first),
            None => write!(f, "none"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor {
    pub slots: Slots,
    pub epoch: u64,
}

impl Descriptor {
    pub fn encode(self) -> [u8; 12] {
        let mut value = [0; 12];
        value[..4].copy_from_slice(&self.slots.encode());
        value[4..].copy_from_slice(&self.epoch.to_be_bytes());
        value
    }

    pub fn decode(value: &[u8]) -> Result<Descriptor, DecodeError> {
        let mut reader = Reader::new("region descriptor value", value);
        let descriptor = Descriptor {
            slots: Slots::read(&mut reader)?,
            epoch: reader.u64("epoch")?,
        };
        reader.finish()?;
        Ok(descriptor)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::golden::assert_bytes;

    fn slots(first: u16, end: u16) -> Slots {
        Slots::new(first, end).unwrap()
    }

    #[test]
    fn golden_bytes() {
        let descriptor = Descriptor {
            slots: slots(0x0102, 0x0304),
            epoch: 5,
        };
        assert_bytes(&descriptor.encode(), "0102 0304 0000000000000005");
        assert_bytes(&descriptor.slots.encode(), "0102 0304");
        assert_bytes(&Slots::ALL.encode(), "0000 4000");
        assert_eq!(Descriptor::decode(&descriptor.encode()), Ok(descriptor));
        assert_eq!(Slots::decode(&Slots::NONE.encode()), Ok(Slots::NONE));
    }

    #[test]
    fn what_is_no_range_and_every_other_length_is_an_error() {
        for no_range in [[0, 2, 0, 1], [0, 0, 0x40, 1]] {
            assert!(Slots::decode(&no_range).is_err());
            let descriptor = [&no_range[..], &[0; 8]].concat();
            assert!(Descriptor::decode(&descriptor).is_err());
        }
        for length in (0..20).filter(|length| *length != 12) {
            assert!(Descriptor::decode(&vec![0; length]).is_err());
        }
        assert!(Slots::decode(&[0; 3]).is_err());
        assert!(Slots::decode(&[0; 5]).is_err());
    }

    #[test]
    fn ranges_meet_and_part_at_their_bounds() {
        let (low, high) = slots(0, 100).split_at(40).unwrap();
        assert_eq!((low, high), (slots(0, 40), slots(40, 100)));
        assert!(low.contains(39) && !low.contains(40) && high.contains(40) && !high.contains(100));
        assert!(!low.overlaps(high) && !high.overlaps(low));
        assert!(slots(0, 41).overlaps(high) && high.overlaps(slots(0, 41)));
        assert!(!Slots::NONE.overlaps(Slots::ALL) && !Slots::NONE.contains(0));
        for slot in [0, 100, 101] {
            assert_eq!(slots(0, 100).split_at(slot), None);
        }
        assert_eq!(
            (high.to_string(), Slots::NONE.to_string()),
            ("40-99".into(), "none".into())
        );
    }
}
