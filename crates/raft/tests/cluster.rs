//! Three real nodes: RocksDB, sockets, threads.
// All of it is a test, and a panic is how it fails.
#![allow(clippy::unwrap_used)]

mod machine;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use cairn_raft::{
    CallError, Caller, Config, Identity, Later, Log, Member, Node, Outcome, Role, Run, Service,
    Tcp, Transport,
};
use machine::Memory;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::sleep;

const NODES: u64 = 3;

struct Running {
    node: Arc<Node>,
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

/// What a node of the next version says: all messages end with something of which this version knows nothing, but for those
/// whose length is open.
fn newer(message: Bytes, open: &[u8]) -> Bytes {
    match open.contains(&message[0]) {
        true => message,
        false => [&message[..], b"of the next version"].concat().into(),
    }
}

struct Newer<T>(Arc<T>);

impl Transport for Newer<Tcp> {
    fn call(
        &self,
        node: u64,
        request: Bytes,
        limit: Duration,
    ) -> Later<'static, Result<Bytes, CallError>> {
        // The beginning of a snapshot, and a piece of it.
        self.0.call(node, newer(request, &[5, 6]), limit)
    }
}

impl Service for Newer<Node> {
    fn admits(&self, caller: &Caller) -> Result<(), String> {
        self.0.admits(caller)
    }

    fn serve(&self, from: u64, request: Bytes) -> Later<'static, Bytes> {
        let answer = self.0.serve(from, request);
        // A refusal is text.
        Box::pin(async move { newer(answer.await, &[0]) })
    }
}

struct Cluster {
    /// Those that are of the next version.
    newer: Vec<u64>,
    dirs: Vec<TempDir>,
    machines: Vec<Arc<Memory>>,
    addresses: Vec<String>,
    running: Vec<Option<Running>>,
}

fn config() -> Config {
    Config {
        failure: Arc::new(|reason| panic!("{reason}")),
        ..Config::default()
    }
}

impl Cluster {
    /// Three nodes, each with a replica of each region.
    async fn new(regions: u64) -> Cluster {
        Cluster::with_newer(regions, &[]).await
    }

    async fn with_newer(regions: u64, newer: &[u64]) -> Cluster {
        let mut cluster = Cluster {
            newer: newer.to_vec(),
            dirs: (0..NODES).map(|_| TempDir::new().unwrap()).collect(),
            machines: (0..NODES).map(|_| Arc::default()).collect(),
            addresses: Vec::new(),
            running: (0..NODES).map(|_| None).collect(),
        };
        let mut listeners = Vec::new();
        for _ in 0..NODES {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap().to_string();
            cluster.addresses.push(address);
            listeners.push(listener);
        }
        for (id, listener) in (1..=NODES).zip(listeners) {
            let (node, _) = cluster.start(id, listener);
            for region in 0..regions {
                node.start(region, id).await.unwrap();
            }
        }
        let members: Vec<Member> = (1..=NODES)
            .map(|id| Member {
                replica: id,
                node: id,
            })
            .collect();
        for region in 0..regions {
            let node = cluster.node(region % NODES + 1);
            node.initialize(region, &members).await.unwrap();
        }
        cluster
    }

    /// Starts a node; returns it, and the replicas that it had.
    fn start(&mut self, id: u64, listener: TcpListener) -> (Arc<Node>, Vec<(u64, u64)>) {
        let at = id as usize - 1;
        let identity = Identity {
            cluster: 7,
            node: id,
            incarnation: id,
            run: a_run(),
            secret: b"secret".to_vec(),
            tls: None,
        };
        let is_newer = self.newer.contains(&id);
        let tcp = match is_newer {
            true => Tcp::of_next_version(identity),
            false => Tcp::new(identity),
        };
        for (other, address) in (1..).zip(&self.addresses) {
            tcp.set_address(other, address.clone());
        }
        let log = Log::open(self.dirs[at].path(), &config()).unwrap();
        let replicas = log.replicas();
        let machine = self.machines[at].clone();
        let transport: Arc<dyn Transport> = match is_newer {
            true => Arc::new(Newer(tcp.clone())),
            false => tcp.clone(),
        };
        let node = Node::new(id, config(), log, machine, transport);
        let service: Arc<dyn Service> = match is_newer {
            true => Arc::new(Newer(node.clone())),
            false => node.clone(),
        };
        let serving = tokio::spawn(async move {
            tcp.serve(listener, service).await.unwrap();
        });
        self.running[at] = Some(Running {
            node: node.clone(),
            serving,
        });
        (node, replicas)
    }

    fn node(&self, id: u64) -> Arc<Node> {
        let running = self.running[id as usize - 1].as_ref();
        running.expect("it is running").node.clone()
    }

    async fn stop(&mut self, id: u64) {
        if let Some(running) = self.running[id as usize - 1].take() {
            running.serving.abort();
            running.node.shut_down().await;
        }
    }

    /// Starts a node again, on the port that it had.
    async fn restart(&mut self, id: u64) {
        let address = self.addresses[id as usize - 1].clone();
        let listener = TcpListener::bind(address).await.unwrap();
        // Tasks that are about to end may hold the log.
        while Log::open(self.dirs[id as usize - 1].path(), &config()).is_err() {
            sleep(Duration::from_millis(10)).await;
        }
        let (node, replicas) = self.start(id, listener);
        for (region, replica) in replicas {
            node.start(region, replica).await.unwrap();
        }
    }

    async fn leader(&self, region: u64) -> (Arc<Node>, u64) {
        loop {
            for running in self.running.iter().flatten() {
                if let Role::Leader { term, ready: true } = running.node.role(region)
                    && running.node.read_barrier(region).await.is_ok()
                {
                    return (running.node.clone(), term);
                }
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Commits a batch, by whoever leads.
    async fn commit(&self, region: u64, text: String) {
        loop {
            let (leader, term) = self.leader(region).await;
            match leader
                .propose(region, term, 0, Bytes::from(text.clone()))
                .await
            {
                Outcome::Applied { .. } => return,
                Outcome::Unknown => panic!("nothing failed in between"),
                _ => {}
            }
        }
    }

    async fn until_all_have(&self, region: u64, count: usize) {
        for (machine, running) in self.machines.iter().zip(&self.running) {
            while running.is_some() && machine.batches(region).len() < count {
                sleep(Duration::from_millis(10)).await;
            }
        }
        let all: Vec<_> = self
            .machines
            .iter()
            .zip(&self.running)
            .filter(|(_, running)| running.is_some())
            .map(|(machine, _)| machine.batches(region))
            .collect();
        assert!(all.iter().all(|batches| *batches == all[0]));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn batches_reach_all_nodes() {
    let cluster = Arc::new(Cluster::new(16).await);
    let writers: Vec<_> = (0..16)
        .map(|region| {
            let cluster = cluster.clone();
            tokio::spawn(async move {
                for number in 0..20 {
                    cluster.commit(region, format!("{region}.{number}")).await;
                }
                cluster.until_all_have(region, 20).await;
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    // A follower reads what was acknowledged.
    let (leader, _) = cluster.leader(0).await;
    let follower = cluster.node(leader.id() % NODES + 1);
    cluster.commit(0, "last".to_string()).await;
    follower.follower_barrier(0).await.unwrap();
    let machine = &cluster.machines[follower.id() as usize - 1];
    assert_eq!(machine.batches(0).len(), 21);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_that_was_away_comes_back() {
    let mut cluster = Cluster::new(2).await;
    cluster.commit(0, "before".to_string()).await;
    let (leader, _) = cluster.leader(0).await;
    let away = leader.id();
    drop(leader);
    cluster.stop(away).await;
    let began = Instant::now();
    cluster.commit(0, "without it".to_string()).await;
    println!("writes went on after {:?}", began.elapsed());
    cluster.restart(away).await;
    cluster.commit(0, "with it".to_string()).await;
    cluster.until_all_have(0, 3).await;
    let (leader, _) = cluster.leader(0).await;
    let began = Instant::now();
    let to = leader.id() % NODES + 1;
    leader.transfer(0, to).await.unwrap();
    while !matches!(cluster.node(to).role(0), Role::Leader { ready: true, .. }) {
        sleep(Duration::from_millis(1)).await;
    }
    println!("handed over after {:?}", began.elapsed());
    cluster.commit(0, "by another".to_string()).await;
    cluster.until_all_have(0, 4).await;
}

/// While nodes are upgraded one by one: each kind leads the other, and each is away for a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nodes_of_two_versions_are_one_cluster() {
    let mut cluster = Cluster::with_newer(1, &[1]).await;
    let mut count = 0;
    for lead in [1, 2, 1, 3] {
        let (leader, _) = cluster.leader(0).await;
        if leader.id() != lead {
            leader.transfer(0, lead).await.unwrap();
        }
        while !matches!(cluster.node(lead).role(0), Role::Leader { ready: true, .. }) {
            sleep(Duration::from_millis(1)).await;
        }
        for _ in 0..20 {
            cluster.commit(0, format!("{count}")).await;
            count += 1;
        }
        cluster.until_all_have(0, count).await;
        let follower = cluster.node(lead % NODES + 1);
        follower.follower_barrier(0).await.unwrap();
    }
    for away in [1, 2] {
        cluster.stop(away).await;
        cluster.commit(0, format!("{count}")).await;
        count += 1;
        cluster.restart(away).await;
        cluster.until_all_have(0, count).await;
    }
}

/// Not a test but a measurement: `cargo test --release -p cairn-raft --test cluster -- --ignored --nocapture`.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore]
async fn throughput() {
    let cluster = Arc::new(Cluster::new(16).await);
    for region in 0..16 {
        cluster.leader(region).await;
    }
    for clients in [1, 64, 256] {
        let began = Instant::now();
        let duration = Duration::from_secs(5);
        let writers: Vec<_> = (0..clients)
            .map(|client| {
                let cluster = cluster.clone();
                tokio::spawn(async move {
                    let region = client % 16;
                    let (leader, term) = cluster.leader(region).await;
                    let payload = Bytes::from(vec![b'x'; 256]);
                    let mut count = 0;
                    while began.elapsed() < duration {
                        let outcome = leader.propose(region, term, 0, payload.clone()).await;
                        assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        let mut count = 0;
        for writer in writers {
            count += writer.await.unwrap();
        }
        let rate = f64::from(count) / began.elapsed().as_secs_f64();
        println!("{clients} clients: {rate:.0} batches a second, synced on every node");
    }
}
