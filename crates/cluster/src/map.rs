//! The cluster map: what there is, and what always holds of it.

use std::collections::{BTreeMap, BTreeSet};

use cairn_encoding::SLOTS;

use crate::node::{Node, NodeState};
use crate::region::{MAP_REGION, Region};

/// The most replicas that a region of slots can be asked to have.
pub const MAX_REPLICAS: u8 = 9;

/// The most replicas that the region of the map has.
const MAP_REPLICAS: usize = 5;

/// Empty until it is founded.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClusterMap {
    pub(crate) cluster: u64,
    /// One more with every change.
    pub(crate) epoch: u64,
    /// The newest layout of all changes so far. A node that does not read it cannot join.
    pub(crate) version: u16,
    pub(crate) settings: Settings,
    pub(crate) nodes: BTreeMap<u64, Node>,
    pub(crate) regions: BTreeMap<u64, Region>,
    /// Numbers are given out once, for ever.
    pub(crate) next_node: u64,
    pub(crate) next_region: u64,
    pub(crate) next_replica: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// How many replicas each region of slots should have, as far as there are nodes.
    pub replicas: u8,
    /// Whether replicas and leaders are moved until all nodes have about the same number.
    pub balance: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            replicas: 3,
            balance: true,
        }
    }
}

impl ClusterMap {
    pub fn is_founded(&self) -> bool {
        !self.regions.is_empty()
    }

    /// What tells this cluster from others.
    pub fn cluster(&self) -> u64 {
        self.cluster
    }

    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    pub fn settings(&self) -> Settings {
        self.settings
    }

    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    pub fn node(&self, id: u64) -> Option<&Node> {
        self.nodes.get(&id)
    }

    pub fn active_nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes().filter(|node| node.state == NodeState::Active)
    }

    pub fn is_active(&self, node: u64) -> bool {
        self.node(node)
            .is_some_and(|node| node.state == NodeState::Active)
    }

    /// All regions, that of the map included.
    pub fn regions(&self) -> impl Iterator<Item = &Region> {
        self.regions.values()
    }

    pub fn region(&self, id: u64) -> Option<&Region> {
        self.regions.get(&id)
    }

    /// The region that has a slot.
    pub fn region_of(&self, slot: u16) -> Option<&Region> {
        self.regions()
            .find(|region| region.slots.is_some_and(|slots| slots.contains(slot)))
    }

    /// The region of each slot, for whoever looks it up for every command. None while there is no cluster.
    pub fn regions_by_slot(&self) -> Option<Vec<u64>> {
        let mut regions = vec![None; usize::from(SLOTS)];
        for region in self.regions() {
            if let Some(slots) = region.slots {
                let range = usize::from(slots.first())..=usize::from(slots.last());
                regions[range].fill(Some(region.id));
            }
        }
        regions.into_iter().collect()
    }

    /// The replicas that a node is to have running, of any duty: region and replica.
    pub fn replicas_on(&self, node: u64) -> impl Iterator<Item = (u64, u64)> {
        self.regions().filter_map(move |region| {
            let replica = region.replica_on(node)?;
            Some((region.id, replica))
        })
    }

    /// Whether a replica was given up: its number has been given out, and no region has it, nor is about to. This stays
    /// so, however the map changes; and a map that is too old to know the replica does not say so.
    pub fn is_gone(&self, region: u64, replica: u64) -> bool {
        let has = self
            .region(region)
            .is_some_and(|region| region.replicas.contains_key(&replica));
        let will_have = self
            .regions()
            .filter_map(|region| region.split.as_ref())
            .any(|split| split.replicas.values().any(|new| *new == replica));
        replica < self.next_replica && !has && !will_have
    }

    /// How many voters a region should have, with the nodes that there are.
    pub fn wanted_replicas(&self, region: u64) -> usize {
        let active = self.active_nodes().count();
        match region {
            // An even number fails as soon as the odd one below it.
            MAP_REGION => match active.min(MAP_REPLICAS) {
                0 => 1,
                most if most % 2 == 0 => most - 1,
                most => most,
            },
            _ => usize::from(self.settings.replicas).min(active.max(1)),
        }
    }

    /// What does not hold, although it always should.
    pub fn faults(&self) -> Vec<String> {
        if !self.is_founded() {
            return Vec::new();
        }
        let mut faults = self.slot_faults();
        let mut replicas = BTreeSet::new();
        for region in self.regions() {
            self.region_faults(region, &mut replicas, &mut faults);
        }
        if !self.regions.contains_key(&MAP_REGION) {
            faults.push("the map has no region".to_string());
        }
        for node in self.nodes() {
            if node.id >= self.next_node {
                faults.push(format!("node {} was not given out", node.id));
            }
            if node.state == NodeState::Removed && self.replicas_on(node.id).next().is_some() {
                faults.push(format!("node {} is removed and has replicas", node.id));
            }
        }
        faults
    }

    fn slot_faults(&self) -> Vec<String> {
        let mut ranges: Vec<_> = self.regions().filter_map(|region| region.slots).collect();
        ranges.sort();
        let mut next = 0;
        for range in &ranges {
            if range.first() != next {
                return vec![format!(
                    "slot {} is not covered once",
                    next.min(range.first())
                )];
            }
            next = range.last() + 1;
        }
        match next == SLOTS {
            true => Vec::new(),
            false => vec![format!("slot {next} is not covered")],
        }
    }

    fn region_faults(
        &self,
        region: &Region,
        replicas: &mut BTreeSet<u64>,
        faults: &mut Vec<String>,
    ) {
        let id = region.id;
        let mut fault = |what: String| faults.push(format!("region {id}: {what}"));
        if (id == MAP_REGION) != region.slots.is_none() {
            fault("only that of the map has no slots".to_string());
        }
        if id >= self.next_region {
            fault("it was not given out".to_string());
        }
        if region.voters().is_empty() {
            fault("it has no voters".to_string());
        }
        let mut nodes = BTreeSet::new();
        for (replica, place) in &region.replicas {
            if !nodes.insert(place.node) {
                fault(format!("node {} has two replicas", place.node));
            }
            if !self.nodes.contains_key(&place.node) {
                fault(format!("node {} is unknown", place.node));
            }
            if !replicas.insert(*replica) || *replica >= self.next_replica {
                fault(format!("replica {replica} is not unique"));
            }
        }
        if let Some(preferred) = region.preferred
            && !region.voters().contains(&preferred)
        {
            fault(format!("replica {preferred} should lead, and has no vote"));
        }
        for replaced in region.replaced() {
            if !region.voters().contains(&replaced) {
                fault(format!("replica {replaced} is replaced, and has no vote"));
            }
        }
        if let Some(split) = &region.split {
            if region
                .slots
                .and_then(|slots| slots.split(split.at))
                .is_none()
            {
                fault(format!("it cannot be split at {}", split.at));
            }
            if split.region >= self.next_region || self.regions.contains_key(&split.region) {
                fault(format!("region {} is not free", split.region));
            }
            for new in split.replicas.values() {
                if !replicas.insert(*new) || *new >= self.next_replica {
                    fault(format!("replica {new} is not unique"));
                }
            }
        }
    }
}
