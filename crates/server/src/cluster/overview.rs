//! The map as it is now, for whoever asks what became of a change. What a node has heard of it may be a moment old.

use std::sync::Arc;
use std::time::Duration;

use cairn_cluster::{ClusterMap, MAP_REGION};
use cairn_raft::Role;
use tokio::time::{sleep, timeout};

use super::node::ClusterNode;
use super::post::{Answer, Letter};

/// How long it is tried to reach whoever leads region 0.
const PATIENCE: Duration = Duration::from_secs(5);
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(50);
/// How long one node may take to answer.
const ANSWER: Duration = Duration::from_secs(2);

impl ClusterNode {
    /// With all changes that were acknowledged before the call; or, if nobody leads the map, what is known of it here, and
    /// false.
    pub async fn latest_map(&self) -> (Arc<ClusterMap>, bool) {
        let found = timeout(PATIENCE, async {
            while !self.catch_up().await {
                sleep(BETWEEN_ATTEMPTS).await;
            }
        });
        let is_latest = found.await.is_ok();
        (self.map(), is_latest)
    }

    async fn catch_up(&self) -> bool {
        if matches!(self.raft.role(MAP_REGION), Role::Leader { .. }) {
            return self.raft.read_barrier(MAP_REGION).await.is_ok();
        }
        for node in self.keepers_of_map() {
            if let Ok(Answer::Map(bytes)) = self.post().call(node, &Letter::ShowMap, ANSWER).await {
                self.learn(&bytes);
                return true;
            }
        }
        false
    }

    /// Whom to ask about the map, where another node leads it: that one, or everybody if it is not known. A node that nobody
    /// reaches hears of no leader, but may find one; its address may be what has changed.
    pub(super) fn keepers_of_map(&self) -> Vec<u64> {
        let map = self.map();
        let region = map.region(MAP_REGION);
        let leader = region.and_then(|region| self.observed().leader(region));
        match leader.filter(|leader| *leader != self.id()) {
            Some(leader) => vec![leader],
            None => self.others(),
        }
    }

    /// What another node is shown.
    pub(super) async fn show_map(&self) -> Answer {
        match self.raft.read_barrier(MAP_REGION).await {
            Ok(()) => Answer::Map(self.map().encode()),
            Err(_) => Answer::NotHere,
        }
    }
}
