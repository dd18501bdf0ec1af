//! How many replicas have what a client has written: WAIT.
//!
//! What was acknowledged is on a majority; so much is certain of every region. The leader of a region knows more: up to where
//! the log of each replica agrees with its own.

use std::time::{Duration, Instant};

use cairn_raft::Role;
use tokio::time::sleep;

use super::node::ClusterNode;

const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// A region, and the last entry of its log that counts, if this node leads it.
struct Place {
    region: u64,
    index: Option<u64>,
}

impl ClusterNode {
    /// Waits until so many replicas, besides the leader's, have all that was committed so far to these regions, or the time
    /// is up; returns how many are known to.
    pub async fn acknowledged(
        &self,
        regions: &[u64],
        wanted: usize,
        until: Option<Instant>,
    ) -> usize {
        let places = self.places(regions);
        loop {
            let known = self.replicas_at_all(&places);
            let is_over = until.is_some_and(|until| Instant::now() >= until);
            if known >= wanted || is_over {
                return known;
            }
            sleep(BETWEEN_LOOKS).await;
        }
    }

    /// The same without waiting.
    pub fn acknowledged_now(&self, regions: &[u64]) -> usize {
        self.replicas_at_all(&self.places(regions))
    }

    fn places(&self, regions: &[u64]) -> Vec<Place> {
        regions.iter().map(|region| self.place(*region)).collect()
    }

    fn replicas_at_all(&self, places: &[Place]) -> usize {
        let known = places.iter().map(|place| self.replicas_at(place));
        known.min().unwrap_or(0)
    }

    fn place(&self, region: u64) -> Place {
        let status = self.raft.status(region);
        let led = status.filter(|status| matches!(status.role, Role::Leader { .. }));
        Place {
            region,
            // What was acknowledged was appended long before it is said to be applied.
            index: led.and_then(|status| status.last),
        }
    }

    fn replicas_at(&self, place: &Place) -> usize {
        let status = self.raft.status(place.region);
        let led = status.filter(|status| matches!(status.role, Role::Leader { .. }));
        match (led, place.index) {
            (Some(status), Some(index)) => {
                let others = status.matched.iter();
                let others = others.filter(|(replica, _)| **replica != status.replica);
                others.filter(|(_, at)| **at >= Some(index)).count()
            }
            // Another leads: a majority has it, one of which leads.
            _ => {
                let map = self.map();
                let voters = map.region(place.region).map(|region| region.voters().len());
                voters.unwrap_or(1) / 2
            }
        }
    }
}
