//! The nemesis against a Redis Cluster, of which it is known what it keeps and what it loses.

use std::thread;
use std::time::Duration;

use cairn_tests::linearizability::{History, Summary};
use cairn_tests::nemesis::{Fault, Objects, Trouble, redis, run, until};
use tempfile::TempDir;

const MASTERS: usize = 3;
const CLIENTS: usize = 8;
const PATIENCE: Duration = Duration::from_millis(300);

fn objects() -> Objects {
    Objects {
        registers: 12,
        counters: 6,
        lists: 6,
        banks: 6,
        reads_replicas: false,
        prefix: String::new(),
        seed: fastrand::u64(..),
    }
}

fn judged(history: &History) -> Summary {
    let summary = history.check();
    println!("{summary}");
    assert!(summary.undecided.is_empty());
    assert!(
        summary.done > 500,
        "clients were hardly answered: {summary}"
    );
    summary
}

/// While no replica takes over, a Redis Cluster that syncs every write is linearizable, however its nodes crash and stand
/// still. Two at a time may be a master and its replica.
#[test]
fn nodes_that_come_back_lose_nothing() {
    let dir = TempDir::new().expect("a directory");
    let mut fleet = redis::cluster(MASTERS, Duration::from_secs(60), dir.path());
    let mut trouble = Trouble {
        rng: fastrand::Rng::new(),
        faults: vec![Fault::Kill, Fault::Stop],
        most: 2,
        lasts_ms: 50..300,
        // A master that comes back takes no writes for two seconds.
        rests_ms: 1000..2500,
    };
    let seeds = fleet.addresses();
    let history = run(&seeds, CLIENTS, &objects(), PATIENCE, || {
        let damage = trouble.make(&mut fleet, Duration::from_secs(6));
        println!("{damage}");
    });
    let summary = judged(&history);
    assert!(summary.anomalies.is_empty(), "{summary}");
}

/// A master acknowledges what its replica does not have, because that is away, and dies: the replica comes back, and takes
/// over. If this is not found, nothing would be.
#[test]
fn acknowledged_writes_that_are_lost_are_found() {
    let dir = TempDir::new().expect("a directory");
    let mut fleet = redis::cluster(MASTERS, Duration::from_millis(500), dir.path());
    let history = run(&fleet.addresses(), CLIENTS, &objects(), PATIENCE, || {
        thread::sleep(Duration::from_millis(500));
        fleet.kill(MASTERS);
        thread::sleep(Duration::from_millis(300));
        fleet.kill(0);
        fleet.revive(MASTERS);
        until("the replica takes over", || {
            redis::is_master(&fleet, MASTERS)
        });
        fleet.revive(0);
        thread::sleep(Duration::from_millis(500));
    });
    let summary = judged(&history);
    assert!(!summary.anomalies.is_empty(), "nothing was lost");
}
