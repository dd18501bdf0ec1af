//! What must hold in every story, whatever happens: each in a file of its own.

mod log_matching;
mod nothing_is_lost;
mod one_leader_per_term;
mod reads_are_not_stale;
mod state_machine_safety;
mod timestamps_never_fall;

use crate::simulation::cluster::Cluster;

pub(crate) use nothing_is_lost::Acknowledged;
pub(crate) use one_leader_per_term::Leaders;
pub(crate) use reads_are_not_stale::Reads;

/// What can be seen of the replicas at any moment.
pub(crate) fn check(cluster: &Cluster) {
    log_matching::check(cluster);
    state_machine_safety::check(cluster);
    timestamps_never_fall::check(cluster);
}
