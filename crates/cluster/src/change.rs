//! What the map is changed by. Each change is an entry in the log of region 0, and is judged where it is applied: the
//! map may have changed since it was proposed.

mod nodes;
mod replicas;
mod splits;

use thiserror::Error;

use crate::found::Foundation;
use crate::map::{ClusterMap, Settings};
use crate::node::{Addresses, NodeState};
use crate::region::{Duty, Region};

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// Makes the first map.
    Found(Foundation),
    /// Lets a node in.
    AddNode {
        addresses: Addresses,
        version: u16,
        incarnation: u64,
    },
    /// A node has other addresses, or reads another version.
    UpdateNode {
        node: u64,
        addresses: Addresses,
        version: u16,
    },
    /// A node is to have no replicas any more, and then to be removed.
    DrainNode {
        node: u64,
    },
    /// A node that drains is to stay after all.
    KeepNode {
        node: u64,
    },
    /// A node that has no replicas is gone for good.
    RemoveNode {
        node: u64,
    },
    Configure(Settings),
    /// A region gets a learner, which becomes a voter once it has caught up, in the place of another if so.
    AddReplica {
        region: u64,
        node: u64,
        replaces: Option<u64>,
    },
    /// A learner has caught up.
    Promote {
        region: u64,
        replica: u64,
    },
    /// A learner is not to become a voter after all.
    Abandon {
        region: u64,
        replica: u64,
    },
    /// A voter is to leave, and none takes its place.
    RemoveReplica {
        region: u64,
        replica: u64,
    },
    /// A replica has lost what it had, and must not take part any more, however few are left.
    Lose {
        region: u64,
        replica: u64,
    },
    /// A replica that was to leave is no member of its group any more.
    Drop {
        region: u64,
        replica: u64,
    },
    /// Who should lead, or that it does not matter.
    Prefer {
        region: u64,
        replica: Option<u64>,
    },
    /// The slots from `at` on are to become a region of their own.
    BeginSplit {
        region: u64,
        at: u16,
    },
    /// The region's log has split it, and this is its epoch since.
    FinishSplit {
        region: u64,
        epoch: u64,
    },
}

/// What a change has made, besides what it says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    Done,
    Node(u64),
    Replica(u64),
    Region(u64),
}

/// Why a change does not fit. It has changed nothing.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Refusal {
    #[error("there is no cluster yet")]
    NotFounded,
    #[error("there is a cluster already")]
    Founded,
    #[error("a cluster begins with at least one node, and with 1 to 16384 regions")]
    Foundation,
    #[error("a region can have 1 to 9 replicas, not {0}")]
    Replicas(u8),
    #[error("{0}")]
    Address(String),
    #[error("node {node} has the address {address} already")]
    AddressTaken { node: u64, address: String },
    #[error("there is no node {0}")]
    NoNode(u64),
    #[error("node {node} is {state}")]
    NodeIs { node: u64, state: NodeState },
    #[error("node {0} has replicas")]
    NodeHasReplicas(u64),
    #[error(
        "{wanted} replicas are wanted, and {left} nodes would be left: add a node first, or want fewer"
    )]
    TooFewNodes { wanted: u8, left: usize },
    #[error("there is no region {0}")]
    NoRegion(u64),
    #[error("region {region} has no replica {replica} for that")]
    NoReplica { region: u64, replica: u64 },
    #[error("region {region} has a replica on node {node}")]
    HasReplica { region: u64, node: u64 },
    #[error("region {0} is being changed")]
    Busy(u64),
    #[error("region {region} would have fewer than the {wanted} replicas that are wanted")]
    TooFewReplicas { region: u64, wanted: usize },
    #[error("region {region} cannot be split at slot {at}")]
    NoSplit { region: u64, at: u16 },
    #[error("region {0} is not being split")]
    NotSplitting(u64),
    #[error("the epoch of region {region} is {known} already, and not {told}")]
    Epoch { region: u64, known: u64, told: u64 },
    #[error("it takes version {needed}, and node {node} reads version {version} at most")]
    Version {
        needed: u16,
        node: u64,
        version: u16,
    },
}

type Applied = Result<Effect, Refusal>;

impl Change {
    /// The version of the layout that a node must read to take part: that which brought the change, whatever is the newest. What
    /// every node can read must stay possible while they are upgraded one by one, and be it to record that one has been.
    pub fn version(&self) -> u16 {
        match self {
            Change::Found(_)
            | Change::AddNode { .. }
            | Change::UpdateNode { .. }
            | Change::DrainNode { .. }
            | Change::KeepNode { .. }
            | Change::RemoveNode { .. }
            | Change::Configure(_)
            | Change::AddReplica { .. }
            | Change::Promote { .. }
            | Change::Abandon { .. }
            | Change::RemoveReplica { .. }
            | Change::Lose { .. }
            | Change::Drop { .. }
            | Change::Prefer { .. }
            | Change::BeginSplit { .. }
            | Change::FinishSplit { .. } => 1,
        }
    }
}

impl ClusterMap {
    /// Changes the map, or says why not and leaves it as it is.
    pub fn apply(&mut self, change: &Change) -> Applied {
        self.apply_in(change, change.version())
    }

    fn apply_in(&mut self, change: &Change, version: u16) -> Applied {
        let founded = self.is_founded();
        match change {
            Change::Found(_) if founded => return Err(Refusal::Founded),
            Change::Found(foundation) => {
                if let Some(fault) = foundation.fault(version) {
                    return Err(fault);
                }
                *self = foundation.map(version);
                return Ok(Effect::Done);
            }
            _ if !founded => return Err(Refusal::NotFounded),
            _ => {}
        }
        self.readable(version)?;
        let effect = self.applied(change)?;
        self.epoch += 1;
        self.version = self.version.max(version);
        Ok(effect)
    }

    /// Every node must read what is written. Whoever proposes a change looks before, too: in the log it is read before it is
    /// judged.
    pub fn readable(&self, needed: u16) -> Result<(), Refusal> {
        let mut present = self.nodes().filter(|node| node.state != NodeState::Removed);
        match present.find(|node| node.version < needed) {
            None => Ok(()),
            Some(node) => Err(Refusal::Version {
                needed,
                node: node.id,
                version: node.version,
            }),
        }
    }

    fn applied(&mut self, change: &Change) -> Applied {
        match change {
            Change::Found(_) => Err(Refusal::Founded),
            Change::AddNode {
                addresses,
                version,
                incarnation,
            } => self.add_node(addresses, *version, *incarnation),
            Change::UpdateNode {
                node,
                addresses,
                version,
            } => self.update_node(*node, addresses, *version),
            Change::DrainNode { node } => self.drain(*node),
            Change::KeepNode { node } => self.turn(*node, NodeState::Draining, NodeState::Active),
            Change::RemoveNode { node } => self.remove_node(*node),
            Change::Configure(settings) => self.configure(*settings),
            Change::AddReplica {
                region,
                node,
                replaces,
            } => self.add_replica(*region, *node, *replaces),
            Change::Promote { region, replica } => self.promote(*region, *replica),
            Change::Abandon { region, replica } => self.leave(*region, *replica, |duty| {
                matches!(duty, Duty::Learner { .. })
            }),
            Change::RemoveReplica { region, replica } => self.remove_replica(*region, *replica),
            Change::Lose { region, replica } => self.lose_replica(*region, *replica),
            Change::Drop { region, replica } => self.drop_replica(*region, *replica),
            Change::Prefer { region, replica } => self.prefer(*region, *replica),
            Change::BeginSplit { region, at } => self.begin_split(*region, *at),
            Change::FinishSplit { region, epoch } => self.finish_split(*region, *epoch),
        }
    }

    fn region_mut(&mut self, id: u64) -> Result<&mut Region, Refusal> {
        self.regions.get_mut(&id).ok_or(Refusal::NoRegion(id))
    }
}

#[cfg(test)]
mod tests;
