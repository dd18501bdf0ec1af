//! Regions, as the map knows them.

use std::collections::{BTreeMap, BTreeSet};

use crate::slots::SlotRange;

/// The region that replicates the map. It has no slots.
pub const MAP_REGION: u64 = 0;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Region {
    pub id: u64,
    /// None for the region of the map alone.
    pub slots: Option<SlotRange>,
    /// As the region's own log had it when it was last told. It never falls.
    pub epoch: u64,
    pub replicas: BTreeMap<u64, Replica>,
    /// The replica that should lead, if somebody has asked for one.
    pub preferred: Option<u64>,
    /// A split that the region's log is to carry out.
    pub split: Option<Split>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Replica {
    pub node: u64,
    pub duty: Duty,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Duty {
    Voter,
    /// It is to become a voter once it has caught up, in the place of another.
    Learner {
        replaces: Option<u64>,
    },
    /// The group is to forget it, and then the map.
    Leaving,
}

/// The slots from `at` on become a region of their own, with a replica beside each that there is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Split {
    pub at: u16,
    pub region: u64,
    /// By the replica of the region that is split.
    pub replicas: BTreeMap<u64, u64>,
}

impl Region {
    pub fn voters(&self) -> BTreeSet<u64> {
        self.with_duty(|duty| duty == Duty::Voter)
    }

    pub fn learners(&self) -> BTreeSet<u64> {
        self.with_duty(|duty| matches!(duty, Duty::Learner { .. }))
    }

    pub fn leaving(&self) -> BTreeSet<u64> {
        self.with_duty(|duty| duty == Duty::Leaving)
    }

    fn with_duty(&self, wanted: impl Fn(Duty) -> bool) -> BTreeSet<u64> {
        let replicas = self.replicas.iter();
        replicas
            .filter(|(_, replica)| wanted(replica.duty))
            .map(|(id, _)| *id)
            .collect()
    }

    /// Whether nothing is to be done: all replicas are voters, and it is not split.
    pub fn is_settled(&self) -> bool {
        self.split.is_none()
            && self
                .replicas
                .values()
                .all(|replica| replica.duty == Duty::Voter)
    }

    pub fn node_of(&self, replica: u64) -> Option<u64> {
        self.replicas.get(&replica).map(|replica| replica.node)
    }

    pub fn replica_on(&self, node: u64) -> Option<u64> {
        let mut replicas = self.replicas.iter();
        replicas
            .find(|(_, replica)| replica.node == node)
            .map(|(id, _)| *id)
    }

    /// Replicas that a learner is to replace.
    pub fn replaced(&self) -> BTreeSet<u64> {
        let replicas = self.replicas.values();
        replicas
            .filter_map(|replica| match replica.duty {
                Duty::Learner { replaces } => replaces,
                Duty::Voter | Duty::Leaving => None,
            })
            .collect()
    }
}
