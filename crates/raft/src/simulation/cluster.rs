//! The nodes of a story, and what can happen to them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::config::Config;
use crate::group::{Member, Role};
use crate::log::Log;
use crate::node::Node;
use crate::runtime::{now, sleep};
use crate::simulation::machine::Memory;
use crate::simulation::net::{Net, Port};
use crate::simulation::rows::MemoryRows;
use crate::simulation::runtime::{kill, random, spawn_on};

pub(crate) const REGION: u64 = 1;

/// What outlives a crash of a node.
#[derive(Clone, Default)]
pub(crate) struct Hardware {
    pub rows: Arc<MemoryRows>,
    pub machine: Memory,
    /// By how many milliseconds its clock is wrong.
    skew: Arc<AtomicI64>,
    /// The most milliseconds that a write takes.
    disk: Arc<AtomicU64>,
    /// Whether its disk is almost full.
    pub is_short: Arc<AtomicBool>,
}

#[derive(Clone, Default)]
pub(crate) struct Cluster {
    pub net: Net,
    pub hardware: Arc<Mutex<BTreeMap<u64, Hardware>>>,
    /// The last number that a replica was given.
    replicas: Arc<AtomicU64>,
}

impl Cluster {
    /// So many nodes with a replica each, and so many without.
    pub(crate) async fn new(nodes: u64, spare: u64) -> Cluster {
        let cluster = Cluster::default();
        cluster.net.heal();
        let mut members = Vec::new();
        for node in 1..=nodes + spare {
            cluster.add(node);
            cluster.boot(node).await;
            if node <= nodes {
                let replica = cluster.new_replica();
                cluster.start(node, replica).await.unwrap();
                members.push(Member { replica, node });
            }
        }
        let first = cluster.net.node(1).unwrap();
        first.initialize(REGION, &members).await.unwrap();
        // Before, a power cut may take the region back to what it was.
        cluster.wait_for_leader().await;
        cluster
    }

    /// A number that no replica has had.
    pub(crate) fn new_replica(&self) -> u64 {
        self.replicas.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Starts a replica on a node; none if the node is down.
    pub(crate) async fn start(&self, node: u64, replica: u64) -> Option<()> {
        let on = self.net.node(node)?;
        let (told, started) = tokio::sync::oneshot::channel();
        spawn_on(node, async move {
            if on.start(REGION, replica).await.is_ok() {
                told.send(()).ok();
            }
        });
        started.await.ok()
    }

    /// Snapshots that were installed, by all.
    pub(crate) fn installed(&self) -> u64 {
        let hardware = self.hardware.lock();
        let installed = hardware
            .values()
            .map(|hardware| hardware.machine.disk.lock().installed);
        installed.sum()
    }

    fn add(&self, node: u64) {
        let machine = Memory {
            slow: true,
            ..Memory::default()
        };
        let hardware = Hardware {
            machine,
            ..Hardware::default()
        };
        self.hardware.lock().insert(node, hardware);
    }

    pub(crate) fn hardware(&self, node: u64) -> Hardware {
        self.hardware.lock()[&node].clone()
    }

    /// Starts a node, with the replica that it had.
    pub(crate) async fn boot(&self, node: u64) {
        let (told, started) = tokio::sync::oneshot::channel();
        let cluster = self.clone();
        // All that it ever spawns belongs to it.
        spawn_on(node, async move {
            let hardware = cluster.hardware(node);
            let skew = hardware.skew.clone();
            let config = Config {
                // So short that logs are purged, and those who were away need snapshots.
                log_bytes: 2000,
                log_bytes_limit: 6000,
                cached_bytes: 500,
                message_bytes: 1000,
                install_timeout: Duration::from_secs(20),
                short_of_disk: hardware.is_short.clone(),
                failure: Arc::new(move |reason| panic!("node {node}: {reason}")),
                wall_clock: Arc::new(move || {
                    let skew = skew.load(Ordering::Relaxed);
                    now().millis().saturating_add_signed(skew)
                }),
                ..Config::default()
            };
            let (queue, receiver) = mpsc::unbounded_channel();
            let mut writer = Log::writer(hardware.rows.clone(), receiver, &config);
            let log = Log::new(hardware.rows, queue, None).unwrap();
            let disk = hardware.disk.clone();
            spawn_on(node, async move {
                while let Some(op) = writer.queue.recv().await {
                    let slowest = disk.load(Ordering::Relaxed);
                    sleep(Duration::from_micros(random(100..slowest * 1000 + 1000))).await;
                    writer.write(op);
                }
            });
            let replicas = log.replicas();
            let port = Arc::new(Port {
                node,
                net: cluster.net.clone(),
            });
            let started = Node::new(node, config, log, Arc::new(hardware.machine), port);
            for (region, replica) in replicas {
                started.start(region, replica).await.unwrap();
            }
            cluster.net.join(started);
            told.send(()).ok();
        });
        started.await.unwrap();
    }

    /// Ends a node, as a crash of its process does or, with `power`, a power cut.
    pub(crate) fn crash(&self, node: u64, power: bool) {
        let down = self.net.leave(node);
        kill(node);
        drop(down);
        let hardware = self.hardware(node);
        if power {
            hardware.rows.cut_power();
            hardware.machine.disk.lock().cut_power();
        }
    }

    pub(crate) fn is_up(&self, node: u64) -> bool {
        self.net.node(node).is_some()
    }

    /// Whether it has not crashed since.
    pub(crate) fn runs(&self, node: &Arc<Node>) -> bool {
        let current = self.net.node(node.id());
        current.is_some_and(|current| Arc::ptr_eq(&current, node))
    }

    pub(crate) fn skew(&self, node: u64, millis: i64) {
        self.hardware(node).skew.store(millis, Ordering::Relaxed);
    }

    pub(crate) fn slow_disk(&self, node: u64, millis: u64) {
        self.hardware(node).disk.store(millis, Ordering::Relaxed);
    }

    /// A node that says that it leads, and is ready to; there may be others who say so.
    pub(crate) fn leader(&self) -> Option<(Arc<Node>, u64)> {
        let leads = |node: Arc<Node>| match node.role(REGION) {
            Role::Leader { term, ready: true } => Some((node, term)),
            _ => None,
        };
        let leaders: Vec<_> = self.net.nodes().into_iter().filter_map(leads).collect();
        let picked = random(0..leaders.len().max(1) as u64) as usize;
        leaders.into_iter().nth(picked)
    }

    pub(crate) async fn wait_for_leader(&self) -> (Arc<Node>, u64) {
        loop {
            // The latest: others may not know yet that they are none.
            let leads = |node: Arc<Node>| match node.role(REGION) {
                Role::Leader { term, ready: true } => Some((node, term)),
                _ => None,
            };
            let leaders = self.net.nodes().into_iter().filter_map(leads);
            if let Some(leader) = leaders.max_by_key(|(_, term)| *term) {
                return leader;
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}
