//! A cluster of real processes, clients that write down all they do, and somebody who kills, stops and cuts off nodes
//! meanwhile.
//!
//! [`Fleet`] runs the nodes, each as its [`Launch`](crate::server::Launch) says; a [`Proxy`] stands before one and loses or
//! delays what callers and it say to each other, and a [`Mesh`] of them between all nodes. [`Trouble`] hurts all of these at
//! random. [`ClusterClient`] follows a cluster as client libraries do,
//! and says of each request whether it was done, certainly not done, or whether nobody knows. [`run`] has many of
//! these work on a few [`objects`](Objects), and returns their [`History`], for `linearizability` to judge.
//!
//! `cairn` sets up a cluster of Cairn, of which everything can be hurt: processes, links, disks, clocks and power. A [`Ledger`]
//! holds what such a cluster has acknowledged. [`churn`] keeps it busy, so that logs are purged and tables compacted.
//!
//! `redis` sets up a Redis Cluster. It acknowledges before its replicas know, so it loses writes when a master dies: this is
//! how the whole is checked, see `tests/nemesis.rs`.

pub mod administrator;
pub mod cairn;
mod callers;
pub mod churn;
mod cluster_client;
mod fleet;
pub mod ledger;
mod mesh;
mod proxy;
pub mod redis;
mod slot;
mod trouble;
mod work;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub use cluster_client::{ClusterClient, Reached};
pub use fleet::Fleet;
pub use ledger::Ledger;
pub use mesh::Mesh;
pub use proxy::{Proxy, Sky, Weather};
pub use slot::slot;
pub use trouble::{Damage, Fault, Target, Trouble};
pub use work::Objects;

use crate::ending::Ending;
use crate::linearizability::History;
use work::Worker;

/// How long a cluster may take to be well again, once nobody hurts it any more.
const RECOVERY: Duration = Duration::from_secs(30);

/// Waits for something that takes a cluster a while, and panics if it takes too long.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + RECOVERY;
    while !holds() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Lets clients work while `trouble` lasts, and reads everything once more at the end.
///
/// Clients come by the addresses that `seeds` names. Each waits for an answer no longer than `patience`.
pub fn run(
    seeds: &[String],
    clients: usize,
    objects: &Objects,
    patience: Duration,
    trouble: impl FnOnce(),
) -> History {
    let over = AtomicBool::new(false);
    let begun = Instant::now();
    let worker = |number: usize| {
        let client = ClusterClient::new(seeds.to_vec(), patience);
        Worker::new(number, client, objects.clone(), begun)
    };
    let mut history = thread::scope(|scope| {
        let workers = (0..clients).map(|number| {
            let (mut worker, over) = (worker(number), &over);
            scope.spawn(move || {
                fastrand::seed(objects.seed.wrapping_add(number as u64));
                while !over.load(Ordering::Relaxed) {
                    worker.step();
                }
                worker.history
            })
        });
        let workers: Vec<_> = workers.collect();
        {
            let _end = Ending(&over);
            trouble();
        }
        let mut history = History::default();
        for worker in workers {
            history.merge(worker.join().expect("a client does not panic"));
        }
        history
    });
    let mut last = worker(clients);
    last.read_everything(Instant::now() + RECOVERY);
    history.merge(last.history);
    history
}
