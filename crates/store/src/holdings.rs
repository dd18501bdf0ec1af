//! Which region of a directory holds a slot, for whoever looks at its rows without the store.

use std::collections::BTreeMap;

use cairn_encoding::row;
use cairn_encoding::system::{Descriptor, Slots, SystemKey, SystemKind};
use cairn_engine::{Engine, Family, LOCAL_REGION};

use crate::error::Result;

/// Regions that hold slots, by number.
pub(crate) struct Holdings(BTreeMap<u64, Slots>);

impl Holdings {
    /// Of regions with these descriptors. As long as none has slots, one machine has all of them.
    pub(crate) fn new(described: impl IntoIterator<Item = (u64, Slots)>) -> Holdings {
        let described = described.into_iter();
        let mut held: BTreeMap<u64, Slots> =
            described.filter(|(_, slots)| !slots.is_empty()).collect();
        if held.is_empty() {
            held.insert(LOCAL_REGION, Slots::ALL);
        }
        Holdings(held)
    }

    pub(crate) fn read(engine: &Engine) -> Result<Holdings> {
        let lower = SystemKind::RegionDescriptor.prefix();
        let upper = row::prefix_end(&lower).unwrap_or_default();
        let mut rows = engine.background_rows(Family::Meta, &lower, &upper);
        let mut described = Vec::new();
        while let Some((key, value)) = rows.next()? {
            if let SystemKey::RegionDescriptor { region } = SystemKey::decode(key)? {
                described.push((region, Descriptor::decode(value)?.slots));
            }
        }
        Ok(Holdings::new(described))
    }

    /// None if the slot is nobody's here.
    pub(crate) fn region_of(&self, slot: u16) -> Option<u64> {
        let mut held = self.0.iter();
        held.find(|(_, slots)| slots.contains(slot))
            .map(|(region, _)| *region)
    }

    pub(crate) fn regions(&self) -> impl Iterator<Item = u64> {
        self.0.keys().copied()
    }

    /// Two that share slots.
    pub(crate) fn overlap(&self) -> Option<(u64, u64)> {
        let pairs = self.0.iter().flat_map(|(one, slots)| {
            let others = self.0.range(one + 1..);
            others.map(move |(other, theirs)| (*one, *other, slots.overlaps(*theirs)))
        });
        let mut shared = pairs.filter(|(_, _, overlaps)| *overlaps);
        shared.next().map(|(one, other, _)| (one, other))
    }
}
