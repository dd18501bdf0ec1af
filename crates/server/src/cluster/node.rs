//! A server as a node of a cluster: what belongs together, and who is told what.
//!
//! Below lie the Raft groups (`cairn_raft`) over the engine's regions (`machine`). `replicas` has those run here that the map
//! says, and tells the store which regions it has (`placements`) and leads; what the store commits becomes a proposal
//! (`committer`). `sightings` is what nodes see of each other, from which follows where a client is sent, and whom to
//! ask. Region 0's leader decides what is moved where, and each region's leader does it (`director`).
//!
//! A server becomes a node when it founds a cluster or is told that it belongs to one (`founding`).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

use cairn_cluster::{ClusterMap, NodeState, Observed};
use cairn_engine::{Identity, Regions};
use cairn_raft::{Config, Identity as Introduction, Log, Node as RaftNode, Run, Tcp};
use cairn_store::Store;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::directory;
use super::known_map::KnownMap;
use super::machine::{RegionMachine, stored_map};
use super::placements::Placements;
use super::post::{Mailroom, Post};
use super::proxy::Proxy;
use super::publish::Publisher;
use super::settings::ClusterSettings;
use super::sightings::Sightings;
use crate::config::Values;
use crate::route::Directory;
use crate::server::Server;
use crate::tls;

pub struct ClusterNode {
    id: u64,
    cluster: u64,
    pub(super) settings: ClusterSettings,
    server: Weak<Server>,
    pub(super) store: Arc<Store>,
    pub(super) regions: Arc<Regions>,
    pub(super) log: Log,
    pub(super) raft: Arc<RaftNode>,
    pub(super) map: Arc<KnownMap>,
    pub(super) placements: Arc<Placements>,
    pub(super) sightings: Sightings,
    pub(super) publisher: Publisher,
    pub(super) proxy: Proxy,
    /// The place in the log of region 0 at which the functions were as they are known here.
    pub(super) functions_at: Mutex<u64>,
    /// Held while others are taken over.
    pub(super) taking_functions: tokio::sync::Mutex<()>,
    post: Post,
    pub(super) runtime: Handle,
    /// Told when a command may go elsewhere than just now.
    news: watch::Sender<()>,
    /// Where other nodes are, as it is remembered on the disk.
    peers: Mutex<BTreeMap<u64, String>>,
    /// Whether the disk of this node is almost full: see `sightings`.
    pub(super) short_of_disk: Arc<AtomicBool>,
    /// Regions whose replicas should run here, and cannot be started.
    pub(super) failed: Mutex<BTreeSet<u64>>,
    /// Regions for which this node takes a step just now.
    pub(super) steps: Mutex<BTreeSet<u64>>,
    tasks: Mutex<JoinSet<()>>,
}

/// What a node is made of.
pub(super) struct Parts {
    pub settings: ClusterSettings,
    pub regions: Arc<Regions>,
    pub log: Log,
    pub incarnation: u64,
    pub run: Run,
    pub listener: std::net::TcpListener,
    pub runtime: Handle,
}

impl ClusterNode {
    /// Starts what runs here, and talks to the others from now on.
    pub(super) fn start(
        server: &Arc<Server>,
        parts: Parts,
        identity: Identity,
    ) -> Result<Arc<ClusterNode>, String> {
        let Parts {
            settings,
            regions,
            log,
            incarnation,
            run,
            listener,
            runtime,
        } = parts;
        let store = server.store.clone();
        let map = Arc::new(KnownMap::default());
        let stored = stored_map(&regions).map_err(|error| error.to_string())?;
        stored.into_iter().for_each(|stored| {
            map.learn(stored);
        });
        let placements = Placements::new(store.clone(), regions.clone(), map.clone());
        placements.update().map_err(|error| error.to_string())?;
        let placements = Arc::new(placements);
        let introduction = Introduction {
            cluster: identity.cluster,
            node: identity.node,
            incarnation,
            run,
            secret: settings.secret.clone(),
            tls: settings.tls.clone(),
        };
        let tcp = Tcp::remembering(introduction, log.clone());
        let (path, failure) = (
            store.engine().path().to_owned(),
            settings.raft.failure.clone(),
        );
        tcp.when_outdated(move |why| match directory::refuse(&path) {
            Ok(()) => failure(why),
            Err(error) => failure(&format!("{why}; and that cannot be noted: {error}")),
        });
        tcp.know(map.get().epoch());
        for (peer, address) in &identity.peers {
            tcp.set_address(*peer, address.clone());
        }
        let _context = runtime.enter();
        let machine = RegionMachine::attended(regions.clone(), placements.clone());
        let clock = store.clock().clone();
        let heard = clock.clone();
        // One clock for what is read and for what is written.
        let short_of_disk: Arc<AtomicBool> = Arc::default();
        let config = Config {
            short_of_disk: short_of_disk.clone(),
            wall_clock: Arc::new(move || clock.now_ms()),
            hear_time: Arc::new(move |time| heard.advance_to(0, time)),
            ..settings.raft.clone()
        };
        let raft = RaftNode::new(
            identity.node,
            config,
            log.clone(),
            Arc::new(machine),
            tcp.clone(),
        );
        let mailroom = Mailroom::new(raft.clone());
        let node = Arc::new(ClusterNode {
            id: identity.node,
            cluster: identity.cluster,
            settings,
            server: Arc::downgrade(server),
            store,
            regions,
            log,
            raft,
            map,
            placements,
            sightings: Sightings::default(),
            publisher: Publisher::default(),
            proxy: Proxy::default(),
            functions_at: Mutex::default(),
            taking_functions: tokio::sync::Mutex::default(),
            post: Post::new(tcp.clone()),
            runtime: runtime.clone(),
            news: watch::Sender::default(),
            peers: Mutex::new(identity.peers),
            short_of_disk,
            failed: Mutex::default(),
            steps: Mutex::default(),
            tasks: Mutex::default(),
        });
        mailroom.open(&node);
        listener.set_nonblocking(true).map_err(cannot_listen)?;
        let listener = TcpListener::from_std(listener).map_err(cannot_listen)?;
        node.spawn(async move {
            if let Err(error) = tcp.serve(listener, mailroom).await {
                tracing::error!("other nodes cannot reach this one: {error}");
            }
        });
        node.refresh();
        node.spawn(node.clone().keep_replicas());
        node.spawn(node.clone().tell_others());
        node.spawn(node.clone().direct());
        node.spawn(node.clone().follow_functions());
        Ok(node)
    }

    pub fn id(&self) -> u64 {
        self.id
    }

    /// What tells the cluster from others.
    pub fn cluster(&self) -> u64 {
        self.cluster
    }

    /// The newest that is known here; empty if none has come yet.
    pub fn map(&self) -> Arc<ClusterMap> {
        self.map.get()
    }

    /// What is seen of the cluster: who answers, and who leads what.
    pub fn observed(&self) -> Arc<Observed> {
        self.sightings.observed()
    }

    pub fn raft(&self) -> &Arc<RaftNode> {
        &self.raft
    }

    pub fn regions(&self) -> &Arc<Regions> {
        &self.regions
    }

    pub fn post(&self) -> &Post {
        &self.post
    }

    pub fn settings(&self) -> &ClusterSettings {
        &self.settings
    }

    /// Shows other nodes the certificate that the files hold now, if it shows any.
    pub fn renew_tls(&self, values: &Values) -> Result<(), String> {
        if self.settings.tls.is_some() {
            self.post.renew(tls::between_nodes(values)?);
        }
        Ok(())
    }

    /// None while the server ends.
    pub fn server(&self) -> Option<Arc<Server>> {
        self.server.upgrade()
    }

    /// The node that leads the region of a slot, as far as is known.
    pub fn leader_of(&self, slot: u16) -> Option<u64> {
        let map = self.map();
        self.observed().leader(map.region_of(slot)?)
    }

    /// On which everything of the cluster runs. Who asks others from elsewhere does it there.
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Runs beside everything else, until the node stops.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn_on(task, &self.runtime);
    }

    /// Something has changed on which it depends where commands go.
    pub(super) fn tell_news(&self) {
        self.news.send_replace(());
    }

    pub(super) fn follow_news(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    /// Takes over where the map says that nodes are, and remembers it.
    pub(super) fn learn_addresses(&self, map: &ClusterMap) {
        if !map.is_founded() {
            return;
        }
        self.post.know(map.epoch());
        let others = map
            .nodes()
            .filter(|node| node.id != self.id && node.state != NodeState::Removed);
        let found: BTreeMap<u64, String> = others
            .map(|node| (node.id, node.addresses.peers.to_string()))
            .collect();
        let mut peers = self.peers.lock();
        if *peers == found {
            return;
        }
        for (peer, address) in &found {
            self.post.set_address(*peer, address.clone());
        }
        for gone in peers.keys().filter(|peer| !found.contains_key(peer)) {
            self.post.forget(*gone);
        }
        let identity = Identity {
            cluster: self.cluster,
            node: self.id,
            peers: found.clone(),
        };
        match self.regions.set_identity(&identity) {
            Ok(()) => *peers = found,
            Err(error) => tracing::warn!("where other nodes are cannot be remembered: {error}"),
        }
    }

    /// Other nodes that may answer.
    pub(super) fn others(&self) -> Vec<u64> {
        self.peers.lock().keys().copied().collect()
    }

    /// Hands over what it leads, and stops everything. Commits that are under way come to an end.
    pub async fn shut_down(&self) {
        self.hand_over().await;
        self.placements.clear();
        self.raft.shut_down().await;
        let mut tasks = std::mem::take(&mut *self.tasks.lock());
        tasks.shutdown().await;
    }
}

fn cannot_listen(error: io::Error) -> String {
    format!("cannot listen for other nodes: {error}")
}

/// Tells clients where to go.
pub struct Signpost(pub Arc<ClusterNode>);

impl Directory for Signpost {
    fn leader_of(&self, slot: u16, by_tls: bool) -> Option<String> {
        let map = self.0.map();
        let leader = self.0.leader_of(slot).filter(|node| *node != self.0.id)?;
        let endpoint = map.node(leader)?.endpoint();
        Some(format!("{}:{}", endpoint.host, endpoint.port_for(by_tls)))
    }
}
