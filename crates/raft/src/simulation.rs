//! Thousands of stories in which everything goes wrong, each told by its seed.

pub(crate) mod cluster;
pub(crate) mod history;
pub(crate) mod invariants;
mod leases;
pub(crate) mod machine;
pub(crate) mod net;
pub(crate) mod rows;
pub(crate) mod runtime;
pub(crate) mod story;

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;

use self::cluster::{Cluster, Hardware, REGION};
use self::history::{Counts, History};
use crate::error::Outcome;

/// `CAIRN_SEEDS=from..to` tells others than the first.
fn seeds() -> std::ops::Range<u64> {
    let Ok(seeds) = std::env::var("CAIRN_SEEDS") else {
        return 0..60;
    };
    let (from, to) = seeds.split_once("..").expect("CAIRN_SEEDS=from..to");
    from.parse().unwrap()..to.parse().unwrap()
}

/// `RUST_LOG=openraft=info` shows what a story is about.
fn narrate() {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    let narrator = tracing_subscriber::fmt().with_env_filter(filter);
    narrator.without_time().with_ansi(false).try_init().ok();
}

fn tell_one(seed: u64) -> Counts {
    let (told, mut counts) = tokio::sync::oneshot::channel();
    runtime::run(seed, Duration::from_secs(900), async move {
        let (nodes, spare) = match seed % 4 {
            0 => (5, 0),
            1 => (3, 2),
            _ => (3, 0),
        };
        told.send(story::tell(nodes, spare, 25).await).ok();
    });
    counts.try_recv().unwrap()
}

#[test]
fn nothing_acknowledged_is_lost() {
    narrate();
    let mut all = Counts::default();
    for seed in seeds() {
        let counts = tell_one(seed);
        println!("seed {seed}: {counts:?}");
        all.add(counts);
    }
    println!("in all: {all:?}");
    assert!(all.everything_happened(), "{all:?}");
}

/// What a leader evaluated before it lost its term and won another is refused, whatever the state looks like by then.
#[test]
fn leadership_that_comes_back_commits_nothing_stale() {
    for seed in 0..20 {
        runtime::run(seed, Duration::from_secs(600), async {
            let cluster = Cluster::new(3, 0).await;
            let (first, stale_term) = cluster.wait_for_leader().await;
            let payload = |text: String| Bytes::from(text);
            // Some are on their way while it is handed over.
            let mut flying = Vec::new();
            for number in 0..10 {
                let (node, text) = (first.clone(), payload(format!("flying {number}")));
                let (told, outcome) = tokio::sync::oneshot::channel();
                runtime::spawn_on(0, async move {
                    let wait = Duration::from_millis(runtime::random(0..20));
                    crate::runtime::sleep(wait).await;
                    let outcome = node.propose(REGION, stale_term, 0, text.clone()).await;
                    told.send((text, outcome)).ok();
                });
                flying.push(outcome);
            }
            let away = first.id() % 3 + 1;
            hand_over(&cluster, away).await;
            hand_over(&cluster, first.id()).await;
            let (leader, term) = cluster.wait_for_leader().await;
            assert_eq!(leader.id(), first.id());
            assert!(term > stale_term);
            let stale = payload("stale".to_string());
            let outcome = first.propose(REGION, stale_term, 0, stale.clone()).await;
            assert_eq!(outcome, Outcome::Stale);
            let fresh = payload("fresh".to_string());
            let outcome = first.propose(REGION, term, 0, fresh.clone()).await;
            assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");

            let history = History::default();
            history.refused(stale);
            for outcome in flying {
                match outcome.await.unwrap() {
                    (text, Outcome::Applied { index, .. }) => history.applied(index, text),
                    (text, Outcome::NotLeader(_) | Outcome::Stale) => history.refused(text),
                    (_, Outcome::Unknown) => history.unknown(),
                    (_, Outcome::TooLarge) => panic!("it is small"),
                }
            }
            let state = cluster.hardware(first.id()).machine.state(REGION);
            history.check_against(&state.history);
        });
    }
}

/// Has a node lead.
async fn hand_over(cluster: &Cluster, to: u64) {
    loop {
        let (leader, _) = cluster.wait_for_leader().await;
        if leader.id() == to {
            return;
        }
        let replica = cluster.net.node(to).and_then(|node| node.status(REGION));
        let replica = replica.expect("it is up").replica;
        leader.transfer(REGION, replica).await.ok();
        crate::runtime::sleep(Duration::from_millis(500)).await;
    }
}

#[test]
fn a_batch_of_another_epoch_changes_nothing() {
    runtime::run(1, Duration::from_secs(60), async {
        let cluster = Cluster::new(3, 0).await;
        let (leader, term) = cluster.wait_for_leader().await;
        let propose = async |epoch, text: &'static [u8]| match leader
            .propose(REGION, term, epoch, Bytes::from(text))
            .await
        {
            Outcome::Applied { response, .. } => response,
            other => panic!("{other:?}"),
        };
        assert_eq!(propose(0, machine::RAISES_EPOCH).await, machine::APPLIED);
        assert_eq!(propose(0, b"late").await, machine::WRONG_EPOCH);
        assert_eq!(propose(1, b"now").await, machine::APPLIED);
    });
}

/// Commits batches, without those who are away, and waits until what can be purged has been.
async fn write_without(cluster: &Cluster, batches: usize) {
    for number in 0..batches {
        let (leader, term) = cluster.wait_for_leader().await;
        let payload = Bytes::from(format!("{number:0100}"));
        let outcome = leader.propose(REGION, term, 0, payload).await;
        assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
    }
    crate::runtime::sleep(Duration::from_secs(5)).await;
}

/// The log is kept for who is away while there is room for it, and no longer.
#[test]
fn a_node_that_is_short_of_disk_keeps_its_log_for_nobody() {
    runtime::run(1, Duration::from_secs(600), async {
        let cluster = Cluster::new(3, 0).await;
        let (leader, _) = cluster.wait_for_leader().await;
        let away = leader.id() % 3 + 1;
        cluster.crash(away, false);
        write_without(&cluster, 30).await;
        let status = || leader.status(REGION).unwrap();
        let kept = status().log_bytes;
        assert!((3000..6000).contains(&kept), "{kept} bytes");
        let is_short = cluster.hardware(leader.id()).is_short;
        is_short.store(true, Ordering::Relaxed);
        crate::runtime::sleep(Duration::from_secs(5)).await;
        let kept = status().log_bytes;
        assert!(kept < 2000, "{kept} bytes");
        cluster.boot(away).await;
        let last = status().last;
        let behind = cluster.hardware(away).machine;
        while behind.state(REGION).applied.last.map(|last| last.index) < last {
            crate::runtime::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(cluster.installed(), 1);
    });
}

#[test]
fn a_node_that_is_short_of_disk_takes_no_snapshot_in() {
    runtime::run(1, Duration::from_secs(600), async {
        let cluster = Cluster::new(3, 0).await;
        let (leader, _) = cluster.wait_for_leader().await;
        let away = leader.id() % 3 + 1;
        cluster.crash(away, false);
        write_without(&cluster, 100).await;
        let Hardware {
            is_short, machine, ..
        } = cluster.hardware(away);
        is_short.store(true, Ordering::Relaxed);
        let before = machine.state(REGION).applied.last;
        cluster.boot(away).await;
        crate::runtime::sleep(Duration::from_secs(30)).await;
        assert_eq!(machine.state(REGION).applied.last, before);
        assert_eq!(cluster.installed(), 0);
        is_short.store(false, Ordering::Relaxed);
        let last = leader.status(REGION).unwrap().last;
        while machine.state(REGION).applied.last.map(|last| last.index) < last {
            crate::runtime::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(cluster.installed(), 1);
    });
}

/// The same seed tells the same story.
#[test]
fn a_story_can_be_told_again() {
    for seed in 0..3 {
        let first = format!("{:?}", tell_one(seed));
        assert_eq!(first, format!("{:?}", tell_one(seed)));
    }
}
