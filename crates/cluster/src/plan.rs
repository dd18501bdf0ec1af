//! What to do next in the whole cluster.

use std::collections::{BTreeMap, BTreeSet};

use crate::balance::{handover, leader_counts, relocation, replica_counts};
use crate::change::Change;
use crate::drive::{Progress, Step, Waiting, drive, successor};
use crate::map::ClusterMap;
use crate::node::NodeState;
use crate::observed::Observed;
use crate::region::{Duty, Region};

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// In how many regions replicas are moved at once. Each copies a region's data.
    pub moves: usize,
    /// How many regions are handed over at once to even out leaders. Each is without one for a moment.
    pub handovers: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            moves: 4,
            handovers: 8,
        }
    }
}

/// What to do, and what there is to wait for. Both are empty when all is well.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    pub steps: Vec<Step>,
    pub waiting: Vec<(u64, Waiting)>,
}

/// Decides from the map and what is seen of the cluster alone, so it can be asked again at any time. What it has asked
/// for before, and nobody has done, it asks for again.
pub fn plan(map: &ClusterMap, observed: &Observed, limits: Limits) -> Plan {
    let mut planner = Planner {
        map,
        observed,
        leading: leader_counts(map, observed),
        counts: replica_counts(map),
        busy: 0,
        plan: Plan::default(),
    };
    let settled = planner.go_on();
    let settled = planner.repair(settled, limits);
    let settled = planner.even_out(settled, limits);
    planner.lead(&settled, limits);
    planner.remove_drained();
    planner.plan
}

struct Planner<'a> {
    map: &'a ClusterMap,
    observed: &'a Observed,
    leading: BTreeMap<u64, usize>,
    counts: BTreeMap<u64, usize>,
    /// Regions in which a replica is on the move.
    busy: usize,
    plan: Plan,
}

impl<'a> Planner<'a> {
    /// Goes on with what has been begun, and returns the regions in which nothing is to be done.
    fn go_on(&mut self) -> Vec<&'a Region> {
        let mut settled = Vec::new();
        for region in self.map.regions() {
            if let Some(replica) = self.hopeless(region) {
                let region = region.id;
                self.busy += 1;
                self.propose(Change::Abandon { region, replica });
                continue;
            }
            match drive(region, self.observed, &self.leading) {
                Progress::Settled => settled.push(region),
                Progress::Waiting(waiting) => {
                    self.busy += 1;
                    self.plan.waiting.push((region.id, waiting));
                    self.leave_draining(region);
                }
                Progress::Next(step) => {
                    self.busy += 1;
                    self.plan.steps.push(step);
                }
            }
        }
        settled
    }

    /// A learner that will not catch up: its node is gone, or is to go, or has no room.
    fn hopeless(&self, region: &Region) -> Option<u64> {
        let learners = region.learners();
        learners.into_iter().find(|replica| {
            let node = region.node_of(*replica);
            node.is_some_and(|node| !self.is_target(node))
        })
    }

    /// Whether replicas may be put on a node.
    fn is_target(&self, node: u64) -> bool {
        let observed = self.observed;
        let has_room = !observed.short_of_disk.contains(&node);
        self.map.is_active(node) && observed.alive.contains(&node) && has_room
    }

    /// Adds replicas that are missing, moves those away that must not stay, and removes what is too much.
    fn repair(&mut self, settled: Vec<&'a Region>, limits: Limits) -> Vec<&'a Region> {
        let mut left = Vec::new();
        for region in settled {
            let change = (self.busy < limits.moves).then(|| self.repaired(region));
            match change.flatten() {
                Some(change) => {
                    self.busy += 1;
                    self.propose(change);
                    self.leave_draining(region);
                }
                None => left.push(region),
            }
        }
        left
    }

    fn repaired(&mut self, region: &Region) -> Option<Change> {
        // Nothing is begun that the region could not carry out.
        self.observed.groups.get(&region.id)?;
        let id = region.id;
        let wanted = self.map.wanted_replicas(id);
        let misplaced = region
            .replicas
            .iter()
            .find_map(|(replica, place)| (!self.map.is_active(place.node)).then_some(*replica));
        if region.replicas.len() > wanted {
            let replica = misplaced.or_else(|| self.superfluous(region))?;
            return Some(Change::RemoveReplica {
                region: id,
                replica,
            });
        }
        if region.replicas.len() == wanted && misplaced.is_none() {
            return None;
        }
        let node = self.room_for(region)?;
        *self.counts.entry(node).or_default() += usize::from(region.slots.is_some());
        Some(Change::AddReplica {
            region: id,
            node,
            replaces: misplaced.filter(|_| region.replicas.len() == wanted),
        })
    }

    /// The replica on the node that has the most; rather one that does not lead.
    fn superfluous(&self, region: &Region) -> Option<u64> {
        let leader = self.observed.leader(region);
        let replicas = region.replicas.iter();
        let chosen = replicas.max_by_key(|(_, place)| {
            let count = self.counts.get(&place.node).copied().unwrap_or(0);
            (
                !self.observed.alive.contains(&place.node),
                count,
                leader != Some(place.node),
            )
        });
        chosen.map(|(replica, _)| *replica)
    }

    /// The node with the fewest replicas of those that have none of this region.
    fn room_for(&self, region: &Region) -> Option<u64> {
        let counts = self.counts.iter();
        counts
            .filter(|(node, _)| self.is_target(**node) && region.replica_on(**node).is_none())
            .min_by_key(|(node, count)| (**count, **node))
            .map(|(node, _)| *node)
    }

    fn even_out(&mut self, mut settled: Vec<&'a Region>, limits: Limits) -> Vec<&'a Region> {
        if !self.map.settings().balance {
            return settled;
        }
        let movable = |region: &&Region| {
            region.slots.is_some() && self.observed.groups.contains_key(&region.id)
        };
        let mut regions: Vec<&Region> = settled.iter().copied().filter(movable).collect();
        while self.busy < limits.moves {
            let Some(found) = relocation(&regions, &self.counts, self.observed) else {
                break;
            };
            let from = self
                .map
                .region(found.region)
                .and_then(|region| region.node_of(found.replica));
            if let Some(count) = from.and_then(|from| self.counts.get_mut(&from)) {
                *count -= 1;
            }
            *self.counts.entry(found.to).or_default() += 1;
            regions.retain(|region| region.id != found.region);
            settled.retain(|region| region.id != found.region);
            self.busy += 1;
            self.propose(Change::AddReplica {
                region: found.region,
                node: found.to,
                replaces: Some(found.replica),
            });
        }
        settled
    }

    /// Has regions led by who should lead them.
    fn lead(&mut self, settled: &[&Region], limits: Limits) {
        let mut free = Vec::new();
        for region in settled {
            if self.leave_draining(region) || self.prefer(region) {
                continue;
            }
            if region.preferred.is_none() && region.slots.is_some() {
                free.push(*region);
            }
        }
        let transfers = self.plan.steps.iter();
        let is_under_way = transfers
            .into_iter()
            .any(|step| matches!(step, Step::Transfer { .. }));
        // What is seen of leaders is a moment old: what is asked for is done first.
        if is_under_way || !self.map.settings().balance {
            return;
        }
        let mut counts = self.leading.clone();
        counts.retain(|node, _| self.observed.alive.contains(node));
        for _ in 0..limits.handovers {
            let Some(found) = handover(&free, &counts, self.observed) else {
                return;
            };
            // As if it were done already.
            let region = self.map.region(found.region);
            let from = region.and_then(|region| self.observed.leader(region));
            let to = region.and_then(|region| region.node_of(found.to));
            if let Some(count) = from.and_then(|from| counts.get_mut(&from)) {
                *count = count.saturating_sub(1);
            }
            if let Some(count) = to.and_then(|to| counts.get_mut(&to)) {
                *count += 1;
            }
            free.retain(|region| region.id != found.region);
            self.plan.steps.push(Step::Transfer {
                region: found.region,
                to: found.to,
            });
        }
    }

    /// A node that drains gives away what it leads at once, before its replicas go.
    fn leave_draining(&mut self, region: &Region) -> bool {
        let Some(leader) = self.observed.leader(region) else {
            return false;
        };
        if self.map.is_active(leader) {
            return false;
        }
        let stay: BTreeSet<u64> = region
            .replicas
            .iter()
            .filter(|(_, place)| place.duty == Duty::Voter && self.map.is_active(place.node))
            .map(|(replica, _)| *replica)
            .collect();
        self.transfer(region, &stay)
    }

    /// Who should lead does, unless its node is to leave: it has just been sent away from there.
    fn prefer(&mut self, region: &Region) -> bool {
        let node = region.preferred.and_then(|replica| region.node_of(replica));
        match region.preferred {
            Some(preferred) if node.is_some_and(|node| self.map.is_active(node)) => {
                self.transfer(region, &BTreeSet::from([preferred]))
            }
            _ => false,
        }
    }

    /// Has one of these lead, if one of them can.
    fn transfer(&mut self, region: &Region, among: &BTreeSet<u64>) -> bool {
        let Some(group) = self.observed.groups.get(&region.id) else {
            return false;
        };
        let voters: BTreeSet<u64> = among.intersection(&group.voters()).copied().collect();
        if voters.contains(&group.leader) {
            return false;
        }
        let Some(to) = successor(region, group, self.observed, &self.leading, &voters) else {
            return false;
        };
        if let Some(count) = region
            .node_of(to)
            .and_then(|node| self.leading.get_mut(&node))
        {
            *count += 1;
        }
        let region = region.id;
        self.plan.steps.push(Step::Transfer { region, to });
        true
    }

    fn remove_drained(&mut self) {
        for node in self.map.nodes() {
            let is_empty = self.map.replicas_on(node.id).next().is_none();
            if node.state == NodeState::Draining && is_empty {
                self.propose(Change::RemoveNode { node: node.id });
            }
        }
    }

    fn propose(&mut self, change: Change) {
        self.plan.steps.push(Step::Propose(change));
    }
}
