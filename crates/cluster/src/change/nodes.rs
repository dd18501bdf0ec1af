//! Changes of nodes and of settings.

use super::{Applied, Effect, Refusal};
use crate::map::{ClusterMap, MAX_REPLICAS, Settings};
use crate::node::{Addresses, Node, NodeState};

impl ClusterMap {
    pub(super) fn add_node(
        &mut self,
        addresses: &Addresses,
        version: u16,
        incarnation: u64,
    ) -> Applied {
        let id = self.next_node;
        self.admit(id, addresses, version)?;
        let node = Node {
            id,
            addresses: addresses.clone(),
            state: NodeState::Active,
            version,
            incarnation,
        };
        self.nodes.insert(id, node);
        self.next_node += 1;
        Ok(Effect::Node(id))
    }

    pub(super) fn update_node(&mut self, id: u64, addresses: &Addresses, version: u16) -> Applied {
        if self.existing(id)?.state == NodeState::Removed {
            let state = NodeState::Removed;
            return Err(Refusal::NodeIs { node: id, state });
        }
        self.admit(id, addresses, version)?;
        if let Some(node) = self.nodes.get_mut(&id) {
            node.addresses = addresses.clone();
            node.version = version;
        }
        Ok(Effect::Done)
    }

    /// Whether a node can be let in, or stay, with these addresses and this version.
    fn admit(&self, id: u64, addresses: &Addresses, version: u16) -> Result<(), Refusal> {
        if let Some(fault) = addresses.fault() {
            return Err(Refusal::Address(fault));
        }
        let needed = self.version;
        if version < needed {
            return Err(Refusal::Version {
                needed,
                node: id,
                version,
            });
        }
        let mut others = self.nodes().filter(|node| node.id != id);
        match others.find(|node| {
            node.state != NodeState::Removed && node.addresses.peers == addresses.peers
        }) {
            None => Ok(()),
            Some(node) => Err(Refusal::AddressTaken {
                node: node.id,
                address: addresses.peers.to_string(),
            }),
        }
    }

    pub(super) fn existing(&self, id: u64) -> Result<&Node, Refusal> {
        self.node(id).ok_or(Refusal::NoNode(id))
    }

    pub(super) fn turn(&mut self, id: u64, from: NodeState, to: NodeState) -> Applied {
        let node = self.nodes.get_mut(&id).ok_or(Refusal::NoNode(id))?;
        if node.state != from {
            let state = node.state;
            return Err(Refusal::NodeIs { node: id, state });
        }
        node.state = to;
        Ok(Effect::Done)
    }

    pub(super) fn drain(&mut self, id: u64) -> Applied {
        let is_active = self.existing(id)?.state == NodeState::Active;
        let left = self.active_nodes().count() - usize::from(is_active);
        let wanted = self.settings.replicas;
        if is_active && left < usize::from(wanted) {
            return Err(Refusal::TooFewNodes { wanted, left });
        }
        self.turn(id, NodeState::Active, NodeState::Draining)
    }

    pub(super) fn remove_node(&mut self, id: u64) -> Applied {
        if self.replicas_on(id).next().is_some() {
            return Err(Refusal::NodeHasReplicas(id));
        }
        self.turn(id, NodeState::Draining, NodeState::Removed)
    }

    pub(super) fn configure(&mut self, settings: Settings) -> Applied {
        if settings.replicas == 0 || settings.replicas > MAX_REPLICAS {
            return Err(Refusal::Replicas(settings.replicas));
        }
        self.settings = settings;
        Ok(Effect::Done)
    }
}
