//! Splits of regions.

use std::collections::BTreeMap;

use super::{Applied, Effect, Refusal};
use crate::map::ClusterMap;
use crate::region::{Region, Split};

impl ClusterMap {
    pub(super) fn begin_split(&mut self, id: u64, at: u16) -> Applied {
        let (next_region, mut next_replica) = (self.next_region, self.next_replica);
        let region = self.region_mut(id)?;
        if !region.is_settled() {
            return Err(Refusal::Busy(id));
        }
        if region.slots.and_then(|slots| slots.split(at)).is_none() {
            return Err(Refusal::NoSplit { region: id, at });
        }
        let mut replicas = BTreeMap::new();
        for old in region.replicas.keys() {
            replicas.insert(*old, next_replica);
            next_replica += 1;
        }
        region.split = Some(Split {
            at,
            region: next_region,
            replicas,
        });
        self.next_region += 1;
        self.next_replica = next_replica;
        Ok(Effect::Region(next_region))
    }

    pub(super) fn finish_split(&mut self, id: u64, epoch: u64) -> Applied {
        let region = self.region_mut(id)?;
        let known = region.epoch;
        if epoch <= known {
            return Err(Refusal::Epoch {
                region: id,
                known,
                told: epoch,
            });
        }
        let Some(split) = region.split.take() else {
            return Err(Refusal::NotSplitting(id));
        };
        let Some((below, above)) = region.slots.and_then(|slots| slots.split(split.at)) else {
            let at = split.at;
            region.split = Some(split);
            return Err(Refusal::NoSplit { region: id, at });
        };
        region.slots = Some(below);
        region.epoch = epoch;
        let replicas = split.replicas.iter().filter_map(|(old, new)| {
            let replica = *region.replicas.get(old)?;
            Some((*new, replica))
        });
        let new = Region {
            id: split.region,
            slots: Some(above),
            epoch,
            replicas: replicas.collect(),
            preferred: None,
            split: None,
        };
        self.regions.insert(new.id, new);
        Ok(Effect::Region(split.region))
    }
}
