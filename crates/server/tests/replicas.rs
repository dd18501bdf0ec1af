//! Three nodes in one process, with real engines and logs, and sockets between them.
// All of it is a test, and a panic is how it fails.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cairn_encoding::metadata::{Body, Metadata};
use cairn_encoding::row::RowKey;
use cairn_encoding::system::{SystemKey, value as system_value};
use cairn_engine::{
    Batch, Checksum, Clock, Descriptor, Engine, EngineOptions, Family, Maxima, Regions, Slots,
    SystemTime,
};
use cairn_raft::{
    Applied, Config, Identity, Log, Member, Membership, Node, Outcome, Role, Run, Tcp,
};
use cairn_server::cluster::{RegionMachine, WRONG_EPOCH};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::sleep;

const NODES: u64 = 3;
const REGION: u64 = 1;
const EPOCH: u64 = 5;
const INDEX: u64 = 1;

fn key(number: u64) -> Vec<u8> {
    let name = format!("key:{number}");
    let key = name.as_bytes();
    RowKey::Metadata { index: INDEX, key }.encode()
}

fn value(number: u64) -> Vec<u8> {
    let body = Body::Inline(&[number as u8; 1000]);
    Metadata { expire_ms: 0, body }.encode()
}

/// Replica and node have the same number.
fn members() -> Membership {
    Membership {
        configs: vec![(1..=NODES).collect()],
        nodes: (1..=NODES).map(|id| (id, id)).collect(),
    }
}

fn region(epoch: u64) -> Descriptor {
    let slots = Slots::ALL;
    Descriptor { slots, epoch }
}

struct Running {
    node: Arc<Node>,
    regions: Arc<Regions>,
    serving: JoinHandle<()>,
}

/// Each start of a node is one more.
fn a_run() -> Run {
    static STARTS: AtomicU64 = AtomicU64::new(1);
    let starts = STARTS.fetch_add(1, Ordering::Relaxed);
    Run {
        starts,
        number: starts,
    }
}

struct Cluster {
    dirs: Vec<TempDir>,
    addresses: Vec<String>,
    running: Vec<Option<Running>>,
}

/// Little log is kept, so that whoever was away needs a snapshot.
fn config() -> Config {
    Config {
        log_bytes: 64 * 1024,
        log_bytes_limit: 128 * 1024,
        failure: Arc::new(|reason| panic!("{reason}")),
        ..Config::default()
    }
}

impl Cluster {
    /// Some nodes, of which the first have a replica of the region.
    async fn new(nodes: u64) -> Cluster {
        let mut cluster = Cluster {
            dirs: (0..nodes).map(|_| TempDir::new().unwrap()).collect(),
            addresses: Vec::new(),
            running: (0..nodes).map(|_| None).collect(),
        };
        let mut listeners = Vec::new();
        for _ in 0..nodes {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            cluster
                .addresses
                .push(listener.local_addr().unwrap().to_string());
            listeners.push(listener);
        }
        for (id, listener) in (1..).zip(listeners) {
            cluster.start(id, listener);
            if id > NODES {
                continue;
            }
            let running = cluster.running(id);
            let new = (REGION, region(EPOCH), Regions::beginning(members()));
            running.regions.create(&[new]).unwrap();
            running.node.start(REGION, id).await.unwrap();
        }
        cluster
    }

    fn start(&mut self, id: u64, listener: TcpListener) {
        let at = id as usize - 1;
        let tcp = Tcp::new(Identity {
            cluster: 7,
            node: id,
            incarnation: id,
            run: a_run(),
            secret: b"secret".to_vec(),
            tls: None,
        });
        for (other, address) in (1..).zip(&self.addresses) {
            tcp.set_address(other, address.clone());
        }
        let settings = EngineOptions {
            memory: 64 << 20,
            ..EngineOptions::default()
        };
        let path = self.dirs[at].path();
        let engine = Engine::open_in_cluster(&path.join("data"), &settings).unwrap();
        let engine = Arc::new(engine);
        let clock = Arc::new(Clock::new(Box::<SystemTime>::default()));
        let regions = Arc::new(Regions::open(engine, clock).unwrap());
        regions.engine().start_filters();
        let log = Log::open(&path.join("raft"), &config()).unwrap();
        let machine = Arc::new(RegionMachine::new(regions.clone()));
        let node = Node::new(id, config(), log, machine, tcp.clone());
        let service = node.clone();
        let serving = tokio::spawn(async move {
            tcp.serve(listener, service).await.unwrap();
        });
        self.running[at] = Some(Running {
            node,
            regions,
            serving,
        });
    }

    fn running(&self, id: u64) -> &Running {
        self.running[id as usize - 1].as_ref().unwrap()
    }

    async fn stop(&mut self, id: u64) {
        if let Some(running) = self.running[id as usize - 1].take() {
            running.serving.abort();
            running.node.shut_down().await;
            // Tasks that are about to end hold the engine and the log.
            let (node, regions) = (
                Arc::downgrade(&running.node),
                Arc::downgrade(&running.regions),
            );
            drop(running);
            while node.strong_count() + regions.strong_count() > 0 {
                sleep(Duration::from_millis(10)).await;
            }
        }
    }

    async fn restart(&mut self, id: u64) {
        let address = self.addresses[id as usize - 1].clone();
        let listener = TcpListener::bind(address).await.unwrap();
        let raft = self.dirs[id as usize - 1].path().join("raft");
        while Log::open(&raft, &config()).is_err() {
            sleep(Duration::from_millis(10)).await;
        }
        self.start(id, listener);
        self.running(id).node.start(REGION, id).await.unwrap();
    }

    async fn leader(&self) -> (u64, u64) {
        loop {
            for running in self.running.iter().flatten() {
                let node = &running.node;
                if let Role::Leader { term, ready: true } = node.role(REGION)
                    && node.read_barrier(REGION).await.is_ok()
                {
                    return (node.id(), term);
                }
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    async fn propose(&self, epoch: u64, batch: &Batch) -> Bytes {
        loop {
            let (leader, term) = self.leader().await;
            let payload = Bytes::from(batch.encode(Maxima::default()));
            let node = &self.running(leader).node;
            match node.propose(REGION, term, epoch, payload).await {
                Outcome::Applied { response, .. } => return response,
                Outcome::Unknown => panic!("nothing failed in between"),
                _ => {}
            }
        }
    }

    /// Keys by number, with values of a kilobyte.
    async fn commit(&self, numbers: std::ops::Range<u64>) {
        for number in numbers {
            let mut batch = Batch::new();
            batch.put(Family::Metadata, &key(number), value(number));
            assert_eq!(self.propose(EPOCH, &batch).await, Bytes::new());
        }
    }

    /// What each node with a replica holds, once all are at the same place.
    async fn agreed(&self) -> Checksum {
        loop {
            let with_replica = self.running.iter().flatten();
            let sums = with_replica.filter(|running| !running.node.regions().is_empty());
            let sums = sums.map(|running| running.regions.checksum(REGION).unwrap());
            let sums: Vec<(Applied, Checksum)> = sums.collect();
            if sums
                .iter()
                .all(|(applied, _)| applied.last == sums[0].0.last)
            {
                assert!(sums.iter().all(|sum| *sum == sums[0]), "{sums:?}");
                return sums[0].1;
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    fn count_shown(&self, number: u64) -> usize {
        let shown = (1..=NODES).filter(|id| self.shown(*id, number).is_some());
        shown.count()
    }

    fn shown(&self, id: u64, number: u64) -> Option<Vec<u8>> {
        let engine = self.running(id).regions.engine();
        let value = engine.get(Family::Metadata, &key(number)).unwrap();
        value.map(|value| value.to_vec())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_that_was_away_for_longer_than_the_log_comes_back_by_snapshot() {
    let mut cluster = Cluster::new(NODES).await;
    let mut first = Batch::new();
    let database = SystemKey::Database {
        region: REGION,
        number: 0,
    };
    let index = system_value::encode_database(INDEX);
    first.put(Family::Meta, &database.encode(), index);
    assert_eq!(cluster.propose(EPOCH, &first).await, Bytes::new());
    cluster.commit(0..20).await;
    cluster.agreed().await;

    let (leader, _) = cluster.leader().await;
    let away = leader % NODES + 1;
    let left_at = cluster.running(away).regions.applied(REGION).unwrap().last;
    cluster.stop(away).await;
    // Some that it has are deleted, and many come that it has not: more than the log keeps.
    let mut deleted = Batch::new();
    (0..10).for_each(|number| deleted.delete(Family::Metadata, &key(number)));
    assert_eq!(cluster.propose(EPOCH, &deleted).await, Bytes::new());
    cluster.commit(20..400).await;
    let expected = cluster.agreed().await;
    let (leader, _) = cluster.leader().await;
    let status = || cluster.running(leader).node.status(REGION).unwrap();
    while status().purged <= left_at {
        sleep(Duration::from_millis(50)).await;
    }
    cluster.restart(away).await;
    assert_eq!(cluster.agreed().await, expected);
    assert_eq!(cluster.shown(away, 5), None);
    assert_eq!(cluster.shown(away, 15), Some(value(15)));
    assert_eq!(cluster.shown(away, 399), Some(value(399)));
    // And it takes part again: with another one gone it is needed.
    let other = (1..=NODES).find(|id| *id != away && *id != leader).unwrap();
    cluster.stop(other).await;
    cluster.commit(400..410).await;
    assert_eq!(cluster.agreed().await.rows, expected.rows + 10);
    cluster.restart(other).await;
    assert_eq!(cluster.agreed().await.rows, expected.rows + 10);
}

/// The log of the region is short and whole, but what the region was before it is in none.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_new_replica_gets_what_the_region_began_with() {
    let cluster = Cluster::new(NODES + 1).await;
    cluster.commit(0..3).await;
    let new = Member {
        replica: NODES + 1,
        node: NODES + 1,
    };
    let running = cluster.running(NODES + 1);
    running.node.start(REGION, new.replica).await.unwrap();
    let (leader, _) = cluster.leader().await;
    let leader = &cluster.running(leader).node;
    leader.add_learner(REGION, new).await.unwrap();
    leader
        .change_voters(REGION, (2..=NODES + 1).collect())
        .await
        .unwrap();
    cluster.commit(3..5).await;
    while cluster.shown(NODES + 1, 4).is_none() {
        sleep(Duration::from_millis(10)).await;
    }
    let held = running.regions.descriptor(REGION).unwrap();
    assert_eq!(held, Some(region(EPOCH)));
    for number in 0..3 {
        assert_eq!(cluster.shown(NODES + 1, number), Some(value(number)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_batch_of_another_epoch_changes_nothing() {
    let cluster = Cluster::new(NODES).await;
    let mut batch = Batch::new();
    batch.put(Family::Metadata, &key(1), value(1));
    assert_eq!(cluster.propose(EPOCH + 1, &batch).await, WRONG_EPOCH);
    // The region becomes another, by its own log.
    let mut change = Batch::new();
    let descriptor = SystemKey::RegionDescriptor { region: REGION };
    change.put(
        Family::Meta,
        &descriptor.encode(),
        region(EPOCH + 1).encode(),
    );
    assert_eq!(cluster.propose(EPOCH, &change).await, Bytes::new());
    assert_eq!(cluster.propose(EPOCH, &batch).await, WRONG_EPOCH);
    cluster.agreed().await;
    assert_eq!(cluster.count_shown(1), 0);
    assert_eq!(cluster.propose(EPOCH + 1, &batch).await, Bytes::new());
    cluster.agreed().await;
    assert_eq!(cluster.count_shown(1), 3);
}
