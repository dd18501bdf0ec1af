//! What is seen of a cluster at a moment.
//!
//! It is old as soon as it is known. What a group is must have been told by its leader, and by the one with the highest term
//! of which anybody has heard. Should it be old nevertheless, a step is refused or done in vain, or the map forgets a replica
//! early, which the next steps put right; no region loses what it has acknowledged, since only its own log changes
//! who votes.

use std::collections::{BTreeMap, BTreeSet};

/// A replica that is no more entries behind than this has caught up.
pub const CLOSE: u64 = 256;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Observed {
    /// Nodes that answer, or have been silent for a short time only.
    pub alive: BTreeSet<u64>,
    /// Those of them that have hardly any room left on their disks.
    pub short_of_disk: BTreeSet<u64>,
    /// Regions, and nodes of those that answer, which cannot start the replicas of these that they have.
    pub failed: BTreeSet<(u64, u64)>,
    /// Regions of which a leader is known.
    pub groups: BTreeMap<u64, Group>,
}

impl Observed {
    /// The node that leads a region, if the map knows it.
    pub fn leader(&self, region: &crate::Region) -> Option<u64> {
        let group = self.groups.get(&region.id)?;
        region.node_of(group.leader)
    }
}

/// A region's group, as its leader sees it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Group {
    /// The replica that leads.
    pub leader: u64,
    /// One set of voters, or two while a change is under way.
    pub configs: Vec<BTreeSet<u64>>,
    pub learners: BTreeSet<u64>,
    /// Whether this membership is committed.
    pub settled: bool,
    /// How many entries each other replica is behind, as far as it is known.
    pub lag: BTreeMap<u64, u64>,
    /// The epoch in the region's own log.
    pub epoch: u64,
}

impl Group {
    pub fn voters(&self) -> BTreeSet<u64> {
        self.configs.iter().flatten().copied().collect()
    }

    pub(crate) fn is_member(&self, replica: u64) -> bool {
        self.learners.contains(&replica) || self.voters().contains(&replica)
    }

    pub(crate) fn has_caught_up(&self, replica: u64) -> bool {
        replica == self.leader || self.lag.get(&replica).is_some_and(|lag| *lag <= CLOSE)
    }
}
