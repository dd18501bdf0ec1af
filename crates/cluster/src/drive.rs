//! The next step towards what the map wants of a region. It follows from the map and from what the group is, and from
//! nothing that anybody has to remember: see the story in `lib.rs`.

use std::collections::{BTreeMap, BTreeSet};

use crate::change::Change;
use crate::observed::{Group, Observed};
use crate::region::{Duty, Region, Split};

/// What to do next. To do it twice, or when it no longer fits, does no harm.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// To be proposed to region 0.
    Propose(Change),
    /// The leader adds a replica that learns. Its node has started it, or will.
    AddLearner {
        region: u64,
        replica: u64,
        node: u64,
    },
    RemoveLearner {
        region: u64,
        replica: u64,
    },
    /// The leader makes these the voters, by a joint change.
    ChangeVoters {
        region: u64,
        voters: BTreeSet<u64>,
    },
    /// The leader hands over.
    Transfer {
        region: u64,
        to: u64,
    },
    /// The leader proposes to its own log that the region is split.
    Split {
        region: u64,
        split: Split,
    },
}

impl Step {
    pub fn region(&self) -> Option<u64> {
        match self {
            Step::Propose(_) => None,
            Step::AddLearner { region, .. }
            | Step::RemoveLearner { region, .. }
            | Step::ChangeVoters { region, .. }
            | Step::Transfer { region, .. }
            | Step::Split { region, .. } => Some(*region),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Progress {
    /// The group is what the map wants.
    Settled,
    Waiting(Waiting),
    Next(Step),
}

/// What there is to wait for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Waiting {
    /// Nobody leads, as far as is known.
    Leader,
    /// The members were changed, and that is not committed.
    Membership,
    /// A learner has not caught up. By how many entries, if that is known.
    CatchUp { replica: u64, lag: Option<u64> },
    /// The node of a learner does not answer.
    Node(u64),
    /// Too few of the voters that there will be answer: a change would leave the region without a leader.
    Majority,
    /// No voter that stays has caught up, so that it could lead.
    Successor,
}

/// Compares a region with its group. `leading` is how many regions each node leads, to choose who takes over.
pub fn drive(region: &Region, observed: &Observed, leading: &BTreeMap<u64, usize>) -> Progress {
    let Some(group) = observed.groups.get(&region.id) else {
        return match region.is_settled() {
            true => Progress::Settled,
            false => Progress::Waiting(Waiting::Leader),
        };
    };
    if !group.settled {
        return Progress::Waiting(Waiting::Membership);
    }
    let drive = Drive {
        region,
        group,
        observed,
        leading,
    };
    drive
        .voters()
        .or_else(|| drive.members())
        .or_else(|| drive.split())
        .unwrap_or(Progress::Settled)
}

struct Drive<'a> {
    region: &'a Region,
    group: &'a Group,
    observed: &'a Observed,
    leading: &'a BTreeMap<u64, usize>,
}

impl Drive<'_> {
    /// Makes the voters of the group those of the map.
    fn voters(&self) -> Option<Progress> {
        let wanted = self.region.voters();
        if self.group.configs == [wanted.clone()] {
            return None;
        }
        // The map made it a voter after it was a member; if it is none now, it begins again.
        if let Some(missing) = wanted
            .iter()
            .find(|replica| !self.group.is_member(**replica))
        {
            return Some(self.add_learner(*missing));
        }
        let alive = wanted
            .iter()
            .filter(|replica| self.is_alive(**replica))
            .count();
        if alive * 2 <= wanted.len() {
            return Some(Progress::Waiting(Waiting::Majority));
        }
        if wanted.contains(&self.group.leader) {
            return Some(self.change_voters(wanted));
        }
        // It is to leave, and hands over first: to one who can vote now, and stays.
        let voters = self.group.voters();
        let stay: BTreeSet<u64> = wanted.intersection(&voters).copied().collect();
        if stay.is_empty() {
            return Some(self.change_voters(voters.union(&wanted).copied().collect()));
        }
        Some(
            match successor(self.region, self.group, self.observed, self.leading, &stay) {
                Some(to) => Progress::Next(Step::Transfer {
                    region: self.region.id,
                    to,
                }),
                None => Progress::Waiting(Waiting::Successor),
            },
        )
    }

    /// Lets go who is to leave, and takes in who is to learn.
    fn members(&self) -> Option<Progress> {
        let region = self.region.id;
        let learners = self.region.learners();
        if let Some(replica) = self.group.learners.difference(&learners).next() {
            let replica = *replica;
            return Some(Progress::Next(Step::RemoveLearner { region, replica }));
        }
        if let Some(replica) = self.region.leaving().first() {
            let replica = *replica;
            return Some(Progress::Next(Step::Propose(Change::Drop {
                region,
                replica,
            })));
        }
        let replica = *learners.first()?;
        if !self.group.is_member(replica) {
            return Some(self.add_learner(replica));
        }
        if !self.group.has_caught_up(replica) {
            let lag = self.group.lag.get(&replica).copied();
            return Some(Progress::Waiting(Waiting::CatchUp { replica, lag }));
        }
        Some(Progress::Next(Step::Propose(Change::Promote {
            region,
            replica,
        })))
    }

    fn split(&self) -> Option<Progress> {
        let split = self.region.split.clone()?;
        let region = self.region.id;
        let epoch = self.group.epoch;
        Some(Progress::Next(match epoch > self.region.epoch {
            true => Step::Propose(Change::FinishSplit { region, epoch }),
            false => Step::Split { region, split },
        }))
    }

    fn add_learner(&self, replica: u64) -> Progress {
        let Some(node) = self.region.node_of(replica) else {
            return Progress::Settled;
        };
        match self.observed.alive.contains(&node) {
            true => Progress::Next(Step::AddLearner {
                region: self.region.id,
                replica,
                node,
            }),
            false => Progress::Waiting(Waiting::Node(node)),
        }
    }

    fn change_voters(&self, voters: BTreeSet<u64>) -> Progress {
        Progress::Next(Step::ChangeVoters {
            region: self.region.id,
            voters,
        })
    }

    fn is_alive(&self, replica: u64) -> bool {
        let node = self.region.node_of(replica);
        node.is_some_and(|node| self.observed.alive.contains(&node))
    }
}

/// Who of these takes over: one that answers and has caught up, on the node that leads the fewest regions.
pub(crate) fn successor(
    region: &Region,
    group: &Group,
    observed: &Observed,
    leading: &BTreeMap<u64, usize>,
    among: &BTreeSet<u64>,
) -> Option<u64> {
    let candidates = among.iter().filter_map(|replica| {
        let place = region.replicas.get(replica)?;
        let can = *replica != group.leader
            && place.duty == Duty::Voter
            && observed.alive.contains(&place.node)
            && group.has_caught_up(*replica);
        can.then(|| (leading.get(&place.node).copied().unwrap_or(0), *replica))
    });
    candidates.min().map(|(_, replica)| replica)
}

#[cfg(test)]
mod tests;
