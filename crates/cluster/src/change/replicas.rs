//! Changes of replicas.

use super::{Applied, Effect, Refusal};
use crate::map::ClusterMap;
use crate::node::NodeState;
use crate::region::{Duty, Region, Replica};

impl ClusterMap {
    pub(super) fn add_replica(&mut self, id: u64, node: u64, replaces: Option<u64>) -> Applied {
        let state = self.existing(node)?.state;
        if state != NodeState::Active {
            return Err(Refusal::NodeIs { node, state });
        }
        let replica = self.next_replica;
        let region = self.region_mut(id)?;
        if !region.is_settled() {
            return Err(Refusal::Busy(id));
        }
        if region.replica_on(node).is_some() {
            return Err(Refusal::HasReplica { region: id, node });
        }
        if let Some(replaced) = replaces
            && !region.replicas.contains_key(&replaced)
        {
            return Err(no_replica(id, replaced));
        }
        let duty = Duty::Learner { replaces };
        region.replicas.insert(replica, Replica { node, duty });
        self.next_replica += 1;
        Ok(Effect::Replica(replica))
    }

    pub(super) fn promote(&mut self, id: u64, replica: u64) -> Applied {
        let region = self.region_mut(id)?;
        let Some(found) = region.replicas.get_mut(&replica) else {
            return Err(no_replica(id, replica));
        };
        let Duty::Learner { replaces } = found.duty else {
            return Err(no_replica(id, replica));
        };
        found.duty = Duty::Voter;
        if let Some(old) = replaces {
            region.sent_away(old);
        }
        Ok(Effect::Done)
    }

    pub(super) fn leave(&mut self, id: u64, replica: u64, may: impl Fn(Duty) -> bool) -> Applied {
        let region = self.region_mut(id)?;
        if !region
            .replicas
            .get(&replica)
            .is_some_and(|found| may(found.duty))
        {
            return Err(no_replica(id, replica));
        }
        region.sent_away(replica);
        Ok(Effect::Done)
    }

    pub(super) fn remove_replica(&mut self, id: u64, replica: u64) -> Applied {
        let wanted = self.wanted_replicas(id);
        let region = self.region_mut(id)?;
        if !region.is_settled() {
            return Err(Refusal::Busy(id));
        }
        if region.replicas.len() <= wanted {
            return Err(Refusal::TooFewReplicas { region: id, wanted });
        }
        self.leave(id, replica, |duty| duty == Duty::Voter)
    }

    pub(super) fn lose_replica(&mut self, id: u64, replica: u64) -> Applied {
        let region = self.region_mut(id)?;
        if region.split.is_some() {
            return Err(Refusal::Busy(id));
        }
        if region.voters().iter().all(|voter| *voter == replica) {
            return Err(Refusal::TooFewReplicas {
                region: id,
                wanted: 1,
            });
        }
        let lost = self.leave(id, replica, |duty| duty != Duty::Leaving)?;
        // Who was to take its place is one more now.
        for other in self.region_mut(id)?.replicas.values_mut() {
            if other.duty
                == (Duty::Learner {
                    replaces: Some(replica),
                })
            {
                other.duty = Duty::Learner { replaces: None };
            }
        }
        Ok(lost)
    }

    pub(super) fn drop_replica(&mut self, id: u64, replica: u64) -> Applied {
        let region = self.region_mut(id)?;
        if !region.leaving().contains(&replica) {
            return Err(no_replica(id, replica));
        }
        region.replicas.remove(&replica);
        Ok(Effect::Done)
    }

    pub(super) fn prefer(&mut self, id: u64, replica: Option<u64>) -> Applied {
        let region = self.region_mut(id)?;
        if let Some(replica) = replica
            && !region.voters().contains(&replica)
        {
            return Err(no_replica(id, replica));
        }
        region.preferred = replica;
        Ok(Effect::Done)
    }
}

fn no_replica(region: u64, replica: u64) -> Refusal {
    Refusal::NoReplica { region, replica }
}

impl Region {
    fn sent_away(&mut self, replica: u64) {
        if let Some(found) = self.replicas.get_mut(&replica) {
            found.duty = Duty::Leaving;
        }
        self.preferred = self.preferred.filter(|preferred| *preferred != replica);
    }
}
