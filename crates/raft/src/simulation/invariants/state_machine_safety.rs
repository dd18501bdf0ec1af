//! What any two replicas have applied is the same as far as both go.

use crate::simulation::cluster::{Cluster, REGION};

pub(super) fn check(cluster: &Cluster) {
    let hardware = cluster.hardware.lock();
    let states = hardware
        .values()
        .map(|hardware| hardware.machine.state(REGION));
    let machines: Vec<_> = states.map(|state| state.history).collect();
    let longest = machines.iter().max_by_key(|history| history.len());
    for history in &machines {
        let longest = &longest.expect("there is one")[..history.len()];
        if let Some(at) = (0..history.len()).find(|at| history[*at] != longest[*at]) {
            panic!(
                "two machines differ: {:?} and {:?}",
                history[at], longest[at]
            );
        }
    }
}
