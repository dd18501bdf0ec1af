//! Has the replicas run here that belong here, and tells the store what it leads.
//!
//! What runs follows from three things: what the log remembers, which is started again whatever the map says; what a split
//! has made here; and what the map gives to this node. A replica is destroyed when the map has given it up, which only a map can
//! say that is new enough to know its number. The other way round, the map is told of a replica that was destroyed here since a
//! crash had left it neither its old state nor the one that was to replace it.
//!
//! One task follows each replica, and it alone tells the store that the region is led, or no more. So two never do at
//! once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cairn_cluster::{Change, ClusterMap, MAP_REGION};
use cairn_engine::{EngineError, Maxima};
use cairn_raft::{Outcome, Role};
use cairn_store::Region;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::committer::{Doubt, Proposer, RaftCommitter};
use super::machine::rows_entry;
use super::node::ClusterNode;

/// How often it is looked at what should run, though nothing has changed.
const UPKEEP: Duration = Duration::from_secs(1);
/// How soon it is tried again to lead.
const AGAIN: Duration = Duration::from_millis(50);

impl ClusterNode {
    pub(super) async fn keep_replicas(self: Arc<Self>) {
        let (mut maps, mut placed) = (self.map.follow(), self.placements.follow());
        loop {
            maps.borrow_and_update();
            placed.borrow_and_update();
            let map = self.map();
            self.learn_addresses(&map);
            if let Err(error) = self.reconcile(&map).await {
                tracing::error!("replicas cannot be looked after: {error}");
            }
            self.tell_news();
            // That a sender is gone is for later: the node ends then.
            tokio::select! {
                _ = maps.changed() => {}
                _ = placed.changed() => {}
                () = sleep(UPKEEP) => {}
            }
        }
    }

    async fn reconcile(self: &Arc<Self>, map: &ClusterMap) -> Result<(), EngineError> {
        for (region, replica) in self.log.replicas() {
            if map.is_gone(region, replica) {
                tracing::info!("region {region}: replica {replica} is given up");
                if let Err(error) = self.raft.destroy(region).await {
                    tracing::error!("region {region}: {error}");
                }
            }
        }
        let mut failed = BTreeSet::new();
        for (region, replica) in self.wanted(map).await? {
            if self.raft.status(region).is_none() && !self.start_replica(region, replica).await {
                failed.insert(region);
            }
        }
        *self.failed.lock() = failed;
        Ok(())
    }

    /// Which replicas should run here.
    async fn wanted(&self, map: &ClusterMap) -> Result<BTreeMap<u64, u64>, EngineError> {
        let mut wanted: BTreeMap<u64, u64> = self.log.replicas().into_iter().collect();
        let stored = self.placements.stored();
        for region in stored.keys() {
            if wanted.contains_key(region) {
                continue;
            }
            // It was made from outside, or by a split, and says who belongs to it.
            let members = self.regions.applied(*region)?.membership.nodes;
            let born = members.iter().find(|(_, node)| **node == self.id());
            let born = born.map(|(replica, _)| *replica);
            let living = born.filter(|replica| !map.is_gone(*region, *replica));
            let Some(replica) = living else {
                // The split came here after its replica had been moved away, or a crash came before all was removed.
                let (placements, region) = (self.placements.clone(), *region);
                let removed = tokio::task::spawn_blocking(move || placements.remove(region)).await;
                removed.map_err(|error| EngineError::Storage(error.to_string()))??;
                continue;
            };
            wanted.insert(*region, replica);
        }
        for (region, replica) in map.replicas_on(self.id()) {
            // A region that is about to be split has these slots here. Its log will make the replica.
            let slots = map.region(region).and_then(|region| region.slots);
            let is_taken = slots.is_some_and(|slots| {
                stored.iter().any(|(other, held)| {
                    let (first, end) = (held.slots.first(), held.slots.end());
                    *other != region && first <= slots.last() && slots.first() < end
                })
            });
            // One that has lost what it had does not come back: see `tell_losses`.
            if !is_taken && !self.log.is_removed(region, replica) {
                wanted.entry(region).or_insert(replica);
            }
        }
        Ok(wanted)
    }

    /// Tells the map of replicas that it counts on and that are no more: others take their place, under numbers of their own.
    pub(super) async fn tell_losses(&self) {
        let map = self.map();
        for (region, replica) in map.replicas_on(self.id()) {
            let known = map.region(region);
            let is_leaving = known.is_some_and(|known| known.leaving().contains(&replica));
            if is_leaving || !self.log.is_removed(region, replica) {
                continue;
            }
            match self.change(Change::Lose { region, replica }).await {
                Ok(_) => tracing::warn!("region {region}: replica {replica} is lost"),
                // The map may be newer than what is known of it here, or the region is busy.
                Err(error) => tracing::debug!("region {region}: replica {replica}: {error}"),
            }
        }
    }

    /// Returns whether it runs.
    async fn start_replica(self: &Arc<Self>, region: u64, replica: u64) -> bool {
        match self.raft.start(region, replica).await {
            Ok(()) => {
                tracing::debug!("region {region}: replica {replica} runs");
                self.spawn(self.clone().follow(region));
                true
            }
            Err(error) => {
                tracing::warn!("region {region}: replica {replica} cannot be started: {error}");
                false
            }
        }
    }

    /// Tells the store what a replica is, for as long as it runs.
    async fn follow(self: Arc<Self>, region: u64) {
        let Some(mut roles) = self.raft.watch(region) else {
            return;
        };
        let mut placed = self.placements.follow();
        let mut doubt = Arc::new(Doubt::default());
        loop {
            let role = *roles.borrow_and_update();
            placed.borrow_and_update();
            let is_done = self.lead(region, role, &mut doubt).await;
            self.note_role();
            if role == Role::Stopped {
                return;
            }
            tokio::select! {
                // It tells that it has stopped before it goes.
                _ = roles.changed() => {}
                _ = placed.changed() => {}
                () = doubt.raised() => {}
                () = sleep(AGAIN), if !is_done => {}
            }
        }
    }

    /// Has the store lead a region if its replica does, and is ready to; false if it is to be tried again.
    async fn lead(&self, region: u64, role: Role, doubt: &mut Arc<Doubt>) -> bool {
        let Some(placed) = self.placed(region) else {
            return true;
        };
        let led = placed.lead().map(|lead| lead.term());
        let Role::Leader { term, ready: true } = role else {
            if led.is_some() {
                self.store.lost_leadership(region);
            }
            return true;
        };
        if led == Some(term) && !doubt.is_raised() {
            return true;
        }
        let Some(epoch) = self.epoch(region, &placed) else {
            return false;
        };
        if doubt.is_raised() {
            self.store.lost_leadership(region);
            if !self.settle(region, term, epoch).await {
                return false;
            }
        }
        *doubt = Arc::default();
        let Some(lease) = self.raft.lease(region) else {
            return true;
        };
        let proposer = Proposer {
            raft: self.raft.clone(),
            region,
            term,
            epoch,
            clock: self.store.clock().clone(),
            doubt: doubt.clone(),
            gathering: Mutex::default(),
            come: Notify::new(),
        };
        let committer = RaftCommitter::new(proposer, lease, self.runtime.clone());
        let store = self.store.clone();
        let became = tokio::task::spawn_blocking(move || {
            store.became_leader(region, term, Box::new(committer))
        });
        match became.await {
            Ok(Ok(())) => {
                // It may have been placed anew just before.
                let is_it = |placed: Arc<Region>| self.epoch(region, &placed) == Some(epoch);
                let is_led = self.placed(region).is_some_and(is_it);
                if !is_led {
                    self.store.lost_leadership(region);
                }
                is_led
            }
            Ok(Err(error)) => {
                tracing::debug!("region {region} is not led yet: {error}");
                false
            }
            Err(error) => {
                tracing::error!("region {region} is not led: {error}");
                false
            }
        }
    }

    /// The region in the store, if it is placed.
    pub(super) fn placed(&self, region: u64) -> Option<Arc<Region>> {
        match region {
            MAP_REGION => Some(self.store.home().clone()),
            _ => self.store.regions().with_id(region).cloned(),
        }
    }

    fn epoch(&self, region: u64, placed: &Region) -> Option<u64> {
        match region {
            // It is there in any case, and its epoch is that of the descriptor.
            MAP_REGION => Some(self.regions.descriptor(region).ok()??.epoch),
            _ => Some(placed.epoch()),
        }
    }

    /// Waits until all that was proposed before has been applied, or never will be; false if that is not known.
    async fn settle(&self, region: u64, term: u64, epoch: u64) -> bool {
        let nothing = rows_entry(region, std::iter::empty(), Maxima::default());
        let outcome = self.raft.propose(region, term, epoch, nothing).await;
        matches!(outcome, Outcome::Applied { .. })
    }

    /// Has others lead what this node leads, as far as they can, before it goes.
    pub(super) async fn hand_over(&self) {
        let observed = self.observed();
        let mut left = Vec::new();
        for region in self.raft.regions() {
            let Some(status) = self.raft.status(region) else {
                continue;
            };
            if !matches!(status.role, Role::Leader { .. }) {
                continue;
            }
            let voters = status.membership.configs.iter().flatten();
            let heirs = voters.filter(|replica| {
                let node = status.membership.nodes.get(replica);
                **replica != status.replica
                    && node.is_some_and(|node| observed.alive.contains(node))
            });
            let heir = heirs.max_by_key(|replica| status.matched.get(replica).copied().flatten());
            if let Some(heir) = heir
                && self.raft.transfer(region, *heir).await.is_ok()
            {
                left.push(region);
            }
        }
        let all = async {
            for region in left {
                while matches!(self.raft.role(region), Role::Leader { .. }) {
                    sleep(Duration::from_millis(10)).await;
                }
            }
        };
        // Others will find out by themselves.
        timeout(self.settings.raft.election_timeout, all).await.ok();
    }
}
