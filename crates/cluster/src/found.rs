//! The first map of a cluster.

use std::collections::{BTreeMap, BTreeSet};

use cairn_encoding::SLOTS;

use crate::change::Refusal;
use crate::map::{ClusterMap, MAX_REPLICAS, Settings};
use crate::node::{Addresses, Node, NodeState};
use crate::region::{Duty, MAP_REGION, Region, Replica};
use crate::slots::SlotRange;

/// How a cluster begins.
///
/// A server that was standalone is the one founder of a cluster with one region, which has all slots and the number of
/// the standalone region. So its data is that of the region, as it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Foundation {
    pub cluster: u64,
    pub settings: Settings,
    /// They are numbered from 1, in this order. The first makes the regions, and has a replica of each.
    pub nodes: Vec<Founder>,
    /// How many regions share the slots. They are numbered from 1, in the order of slots.
    pub regions: u16,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Founder {
    pub addresses: Addresses,
    pub version: u16,
    pub incarnation: u64,
}

impl Foundation {
    pub(crate) fn fault(&self, needed: u16) -> Option<Refusal> {
        let mut peers = BTreeSet::new();
        for (founder, node) in self.nodes.iter().zip(1..) {
            let version = founder.version;
            if version < needed {
                return Some(Refusal::Version {
                    needed,
                    node,
                    version,
                });
            }
            if let Some(fault) = founder.addresses.fault() {
                return Some(Refusal::Address(fault));
            }
            if !peers.insert(founder.addresses.peers.to_string()) {
                let twice = format!("{} is named twice", founder.addresses.peers);
                return Some(Refusal::Address(twice));
            }
        }
        if self.nodes.is_empty() || self.regions == 0 || self.regions > SLOTS {
            return Some(Refusal::Foundation);
        }
        (self.settings.replicas == 0 || self.settings.replicas > MAX_REPLICAS)
            .then_some(Refusal::Replicas(self.settings.replicas))
    }

    pub(crate) fn map(&self, version: u16) -> ClusterMap {
        let nodes = self.nodes.iter().zip(1..).map(|(founder, id)| {
            let node = Node {
                id,
                addresses: founder.addresses.clone(),
                state: NodeState::Active,
                version: founder.version,
                incarnation: founder.incarnation,
            };
            (id, node)
        });
        let nodes: BTreeMap<u64, Node> = nodes.collect();
        let next_node = nodes.len() as u64 + 1;
        let mut map = ClusterMap {
            cluster: self.cluster,
            // At least the number of nodes that were ever let in: see `View`.
            epoch: nodes.len() as u64,
            version,
            settings: self.settings,
            nodes,
            regions: BTreeMap::new(),
            next_node,
            next_region: MAP_REGION,
            next_replica: 1,
        };
        map.add_region(None, 0);
        for (turn, slots) in SlotRange::divide(self.regions).into_iter().enumerate() {
            map.add_region(Some(slots), turn);
        }
        map
    }
}

impl ClusterMap {
    /// Adds a region with replicas on nodes in a row, which begins elsewhere at each turn, so that all nodes have about the
    /// same number. But the first node has one of each: it makes them all. If there are more nodes than
    /// replicas, the planner evens that out.
    fn add_region(&mut self, slots: Option<SlotRange>, turn: usize) {
        let id = self.next_region;
        self.next_region += 1;
        let wanted = self.wanted_replicas(id);
        let nodes: Vec<u64> = self.nodes.keys().copied().collect();
        let row = (0..wanted).map(|place| nodes[(turn * wanted + place) % nodes.len()]);
        let mut row: Vec<u64> = row.collect();
        if !row.contains(&nodes[0]) {
            row[0] = nodes[0];
        }
        let mut replicas = BTreeMap::new();
        for node in row {
            let duty = Duty::Voter;
            replicas.insert(self.next_replica, Replica { node, duty });
            self.next_replica += 1;
        }
        let region = Region {
            id,
            slots,
            epoch: 1,
            replicas,
            preferred: None,
            split: None,
        };
        self.regions.insert(id, region);
    }
}
