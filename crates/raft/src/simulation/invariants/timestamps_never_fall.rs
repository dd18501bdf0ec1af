//! The times of batches rise, or stay, whoever leads and whatever the clocks of nodes say.

use crate::machine::Content;
use crate::simulation::cluster::{Cluster, REGION};

pub(super) fn check(cluster: &Cluster) {
    for hardware in cluster.hardware.lock().values() {
        let history = hardware.machine.state(REGION).history;
        let times = history.iter().filter_map(|entry| match entry.content {
            Content::Batch { timestamp_ms, .. } => Some(timestamp_ms),
            _ => None,
        });
        assert!(times.is_sorted(), "a timestamp fell");
    }
}
