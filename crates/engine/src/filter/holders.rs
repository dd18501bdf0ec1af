//! Which region of this node holds a slot, and what it says of the rows in it.

use std::collections::{BTreeMap, HashSet};

use cairn_encoding::system::{Descriptor, Slots, SystemKey, SystemKind, value};

use crate::LOCAL_REGION;
use crate::engine::DurableView;
use crate::error::Result;
use crate::family::Family;

/// A region that holds slots.
pub(super) struct Held {
    slots: Slots,
    pub(super) watermark_ms: u64,
    pub(super) dead_indexes: HashSet<u64>,
}

pub(super) struct Holders {
    regions: Vec<Held>,
    /// The one that was asked for last: rows come in order.
    last: usize,
    /// Where a snapshot is put in the place of a region: neither what goes nor what comes is judged.
    unsettled: Vec<Slots>,
}

impl Holders {
    pub(super) fn read(view: &DurableView) -> Result<Holders> {
        let mut regions = BTreeMap::new();
        for (key, value) in view.scan(Family::Meta, &SystemKind::RegionDescriptor.prefix())? {
            if let SystemKey::RegionDescriptor { region } = SystemKey::decode(&key)? {
                regions.insert(region, Descriptor::decode(&value)?.slots);
            }
        }
        let mut unsettled = Vec::new();
        for (key, value) in view.scan(Family::Meta, &SystemKind::Installing.prefix())? {
            if let SystemKey::Installing { region } = SystemKey::decode(&key)? {
                unsettled.push(Slots::decode(&value)?);
                unsettled.extend(regions.get(&region));
            }
        }
        // The region of the cluster's map has no slots, and says nothing about who has them.
        regions.retain(|_, slots| !slots.is_empty());
        if regions.is_empty() {
            regions.insert(LOCAL_REGION, Slots::ALL);
        }
        let regions = regions
            .into_iter()
            .map(|(region, slots)| Held::read(view, region, slots));
        Ok(Holders {
            regions: regions.collect::<Result<_>>()?,
            last: 0,
            unsettled,
        })
    }

    pub(super) fn is_unsettled(&self, slot: u16) -> bool {
        self.unsettled.iter().any(|slots| slots.contains(slot))
    }

    /// None if it is nobody's.
    pub(super) fn of(&mut self, slot: u16) -> Option<&Held> {
        if !self.regions[self.last].slots.contains(slot) {
            let holds = |region: &Held| region.slots.contains(slot);
            self.last = self.regions.iter().position(holds)?;
        }
        self.regions.get(self.last)
    }
}

impl Held {
    fn read(view: &DurableView, region: u64, slots: Slots) -> Result<Held> {
        let mut dead_indexes = HashSet::new();
        let prefix = SystemKind::DeadIndex.region_prefix(region);
        for (key, _) in view.scan(Family::Meta, &prefix)? {
            if let SystemKey::DeadIndex { index, .. } = SystemKey::decode(&key)? {
                dead_indexes.insert(index);
            }
        }
        let watermark = SystemKey::Watermark { region }.encode();
        let watermark_ms = match view.get(Family::Meta, &watermark)? {
            Some(value) => value::decode_watermark(&value)?,
            None => 0,
        };
        Ok(Held {
            slots,
            watermark_ms,
            dead_indexes,
        })
    }
}
