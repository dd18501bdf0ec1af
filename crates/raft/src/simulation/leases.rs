//! Stories about leaders that read without asking, while others may have been elected.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::error::Outcome;
use crate::group::Role;
use crate::node::Node;
use crate::runtime::sleep;
use crate::simulation::cluster::{Cluster, REGION};
use crate::simulation::history::History;
use crate::simulation::runtime::{random, run, spawn_on};

/// Lets others write as soon as one of them leads, and the old leader read as long as it believes that it may.
async fn write_and_read(cluster: &Cluster, old: &Arc<Node>) {
    let history = History::default();
    for _ in 0..400 {
        for node in cluster.net.nodes() {
            if let Role::Leader { term, ready: true } = node.role(REGION)
                && node.id() != old.id()
            {
                let history = history.clone();
                spawn_on(0, async move {
                    let payload = Bytes::from(format!("{}", random(0..u64::MAX)));
                    let proposed = node.propose(REGION, term, 0, payload.clone()).await;
                    if let Outcome::Applied { index, .. } = proposed {
                        history.applied(index, payload);
                    }
                });
            }
        }
        if old.holds_lease(REGION) {
            let machine = cluster.hardware(old.id()).machine;
            let seen = machine.state(REGION).applied.last.map(|last| last.index);
            history.read(history.highest(), seen);
        }
        sleep(Duration::from_millis(5)).await;
    }
}

fn others(node: &Arc<Node>) -> (u64, u64) {
    (node.id() % 3 + 1, (node.id() + 1) % 3 + 1)
}

/// It has forgotten that it owes the leader to elect nobody else for a while.
#[test]
fn a_replica_that_comes_back_does_not_break_a_lease() {
    for seed in 0..40 {
        run(seed, Duration::from_secs(60), async {
            let cluster = Cluster::new(3, 0).await;
            let (leader, _) = cluster.wait_for_leader().await;
            let (forgets, cut_off) = others(&leader);
            // One hears nothing of the leader, and is about to ask for votes.
            cluster.net.cut(leader.id(), cut_off);
            cluster.net.cut(cut_off, leader.id());
            sleep(Duration::from_millis(random(1000..1700))).await;
            cluster.crash(forgets, false);
            cluster.boot(forgets).await;
            // From now on the leader is alone.
            cluster.net.cut(leader.id(), forgets);
            cluster.net.cut(forgets, leader.id());
            write_and_read(&cluster, &leader).await;
        });
    }
}

/// Those to whom it hands over elect at once, and it may be the last to know.
#[test]
fn a_leader_that_hands_over_reads_no_more() {
    for seed in 0..40 {
        run(seed, Duration::from_secs(60), async {
            let cluster = Cluster::new(3, 0).await;
            let (leader, _) = cluster.wait_for_leader().await;
            let (takes_over, other) = others(&leader);
            sleep(Duration::from_millis(random(0..500))).await;
            cluster.net.cut(takes_over, leader.id());
            cluster.net.cut(other, leader.id());
            let replica = cluster.net.node(takes_over).unwrap();
            let replica = replica.status(REGION).unwrap().replica;
            leader.transfer(REGION, replica).await.unwrap();
            write_and_read(&cluster, &leader).await;
        });
    }
}
