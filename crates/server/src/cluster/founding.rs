//! How a server comes to be a node of a cluster.
//!
//! One of several servers founds it, and all regions begin there: one durable write holds who it is, the first map, and what the
//! regions begin with. So a crash at any moment leaves a whole cluster, or none. The others are only told who they are. They
//! start what the map gives them, empty, and are sent snapshots.
//!
//! A server of a single machine can be the founder: its data is that of the one region that there is then.

use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::sync::{Arc, OnceLock, Weak};

use cairn_cluster::{Addresses, Change, ClusterMap, Foundation, MAP_REGION, Peer, Region};
use cairn_encoding::system::{SystemKey, SystemKind, value};
use cairn_encoding::{SLOTS, row};
use cairn_engine::{Descriptor, EngineError, Family, Identity, LOCAL_REGION, Regions, Slots};
use cairn_raft::{Applied, Log, Membership};
use cairn_store::Store;
use parking_lot::Mutex;
use tokio::runtime::Runtime;

use super::directory::Directory;
use super::node::{ClusterNode, Parts, Signpost};
use super::settings::ClusterSettings;
use crate::config::Settings as ServerSettings;
use crate::server::Server;

/// Where the logs of the regions are, below the directory of the data.
const LOG: &str = "raft";
const THREADS_AT_LEAST: usize = 2;
/// The number of the node that founds a cluster.
const FOUNDER: u64 = 1;

/// What a server that may belong to a cluster has from the start.
pub struct Entrance {
    settings: ClusterSettings,
    regions: Arc<Regions>,
    log: Log,
    /// What tells it from any other: see [`cairn_cluster::Node`].
    directory: Directory,
    /// Taken by the node. Held while one is made.
    listener: Mutex<Option<TcpListener>>,
    runtime: Runtime,
    server: OnceLock<Weak<Server>>,
}

impl Entrance {
    pub fn open(store: &Arc<Store>, settings: &ServerSettings) -> Result<Entrance, String> {
        let settings = ClusterSettings::of(settings)?;
        let listener = TcpListener::bind(settings.listen).map_err(|error| {
            let listen = settings.listen;
            format!("cannot listen for other nodes on {listen}: {error}")
        })?;
        let (engine, clock) = (store.engine().clone(), store.clock().clone());
        let path = engine.path().join(LOG);
        let regions = Regions::open(engine, clock).map_err(|error| error.to_string())?;
        store.engine().start_filters();
        let log = Log::open(&path, &settings.raft)
            .map_err(|error| format!("cannot open the logs in {}: {error}", path.display()))?;
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads.max(THREADS_AT_LEAST))
            .thread_name("cluster")
            .enable_all()
            .build()
            .map_err(|error| format!("cannot start: {error}"))?;
        let is_node = regions.identity().map_err(|error| error.to_string())?;
        let directory = Directory::start(store.engine().path(), &log, is_node.is_some());
        let directory = runtime
            .block_on(directory)
            .map_err(|error| format!("{}: {error}", store.engine().path().display()))?;
        runtime
            .block_on(give_up_lost(&regions, &log))
            .map_err(|error| {
                format!("what is left of a lost replica cannot be removed: {error}")
            })?;
        Ok(Entrance {
            settings,
            regions: Arc::new(regions),
            log,
            directory,
            listener: Mutex::new(Some(listener)),
            runtime,
            server: OnceLock::new(),
        })
    }

    /// What others are told of this server, unless somebody says better. A host is empty if it is not known.
    pub fn addresses(&self) -> &Addresses {
        &self.settings.addresses
    }

    pub fn incarnation(&self) -> u64 {
        self.directory.incarnation()
    }

    /// Which node of which cluster it is, if any.
    pub fn identity(&self) -> Result<Option<Identity>, EngineError> {
        self.regions.identity()
    }

    /// Whether there are keys, of whatever database.
    pub fn holds_data(&self) -> Result<bool, EngineError> {
        let mut rows = self
            .regions
            .engine()
            .background_rows(Family::Metadata, &[], &[]);
        Ok(rows.next()?.is_some())
    }

    /// The databases besides the first that have keys.
    fn other_databases(&self) -> Result<Vec<String>, EngineError> {
        let engine = self.regions.engine();
        let mut found = Vec::new();
        let lower = SystemKind::Database.region_prefix(LOCAL_REGION);
        let upper = row::prefix_end(&lower).unwrap_or_default();
        let mut databases = engine.background_rows(Family::Meta, &lower, &upper);
        while let Some((key, value)) = databases.next()? {
            let SystemKey::Database { number, .. } = SystemKey::decode(key)? else {
                continue;
            };
            let index = value::decode_database(value)?;
            let (mut first, mut end) = (Vec::new(), Vec::new());
            row::slot_prefix(&mut first, index, 0);
            row::slot_prefix(&mut end, index, SLOTS);
            let mut rows = engine.background_rows(Family::Metadata, &first, &end);
            if number != 0 && rows.next()?.is_some() {
                found.push(number.to_string());
            }
        }
        Ok(found)
    }

    /// Says whose entrance it is, and goes on as the node that the server was before, if it was one.
    pub fn resume(&self, server: &Arc<Server>) -> Result<(), String> {
        self.server.set(Arc::downgrade(server)).ok();
        let listener = &mut *self.listener.lock();
        match self.identity().map_err(|error| error.to_string())? {
            Some(identity) => {
                self.check_logs()?;
                self.enter(listener, identity)
            }
            None => Ok(()),
        }
    }

    /// A replica without its log has forgotten what it promised and acknowledged: it must not take part.
    fn check_logs(&self) -> Result<(), String> {
        let failed = |error: EngineError| error.to_string();
        let replicas: BTreeMap<u64, u64> = self.log.replicas().into_iter().collect();
        for region in self.regions.list().map_err(failed)?.into_keys() {
            let applied = self.regions.applied(region).map_err(failed)?;
            // One that has just been made has none yet.
            let has_history = applied.last.is_some_and(|last| last.term > 0);
            let term = self.log.term(region).map_err(|error| error.to_string())?;
            // A replica votes, or hears of a leader, before it applies what was proposed in that term.
            let is_behind = applied.last.is_some_and(|last| last.term > term);
            let is_old = replicas.contains_key(&region) && is_behind;
            if has_history && (is_old || !self.log.knows(region)) {
                return Err(format!(
                    "the log of region {region} is missing from {}, or older than the data: this node has lost what others rely \
                     on; remove it from the cluster, and add it again with an empty directory",
                    self.regions.engine().path().join(LOG).display()
                ));
            }
        }
        Ok(())
    }

    /// Founds a cluster of which this server is the first node. Region 1 has what it holds. To do so again does no harm.
    pub fn found(&self, foundation: Foundation) -> Result<(), String> {
        let listener = &mut *self.listener.lock();
        let failed = |error: EngineError| error.to_string();
        match self.identity().map_err(failed)? {
            Some(known) if (known.cluster, known.node) == (foundation.cluster, FOUNDER) => {
                return self.runs();
            }
            Some(known) => return Err(belongs(&known)),
            None => {}
        }
        let named = foundation.nodes.first().map(|node| node.incarnation);
        if named != Some(self.incarnation()) {
            return Err("another server was to found this cluster".to_string());
        }
        let others = self.other_databases().map_err(failed)?;
        if !others.is_empty() {
            return Err(format!(
                "a cluster has one database, and there are keys in others: {}; move or flush them first",
                others.join(", ")
            ));
        }
        if foundation.regions > 1 && self.holds_data().map_err(failed)? {
            return Err(
                "there is data, which becomes one region: found the cluster with 1 region, and split it then"
                    .to_string(),
            );
        }
        let peers = foundation.nodes.iter().map(|node| &node.addresses.peers);
        let peers = peers.map(ToString::to_string).zip(FOUNDER..).skip(1);
        let identity = Identity {
            cluster: foundation.cluster,
            node: FOUNDER,
            peers: peers.map(|(address, node)| (node, address)).collect(),
        };
        let mut map = ClusterMap::default();
        map.apply(&Change::Found(foundation))
            .map_err(|refusal| refusal.to_string())?;
        let begun: Result<Vec<_>, String> = map.regions().map(beginning).collect();
        self.regions
            .found(&identity, (MAP_REGION, &map.encode()), &begun?)
            .map_err(failed)?;
        self.enter(listener, identity)
    }

    /// Takes the place of a node that others have made for this server. To be told so again does no harm.
    /// Only for the server that it was made for: one that has lost its directory must not vote as if it had not.
    pub fn join(
        &self,
        cluster: u64,
        node: u64,
        incarnation: u64,
        peers: Vec<(u64, Peer)>,
    ) -> Result<(), String> {
        let listener = &mut *self.listener.lock();
        let failed = |error: EngineError| error.to_string();
        match self.identity().map_err(failed)? {
            Some(known) if (known.cluster, known.node) == (cluster, node) => return self.runs(),
            Some(known) => return Err(belongs(&known)),
            None => {}
        }
        if incarnation != self.incarnation() {
            return Err(format!(
                "node {node} was made for another directory, which may have been lost: remove the node from the \
                 cluster, and add this server as a new one"
            ));
        }
        if self.holds_data().map_err(failed)? {
            return Err("there is data, and only the first node of a cluster may bring any".into());
        }
        let others = peers.into_iter().filter(|(peer, _)| *peer != node);
        let identity = Identity {
            cluster,
            node,
            peers: others
                .map(|(peer, address)| (peer, address.to_string()))
                .collect(),
        };
        self.regions.set_identity(&identity).map_err(failed)?;
        self.enter(listener, identity)
    }

    /// Whether the node runs that this server is.
    fn runs(&self) -> Result<(), String> {
        let server = self.server.get().and_then(Weak::upgrade);
        match server.is_some_and(|server| server.cluster.get().is_some()) {
            true => Ok(()),
            false => {
                Err("this server could not start as the node that it is: start it again".into())
            }
        }
    }

    fn enter(&self, listener: &mut Option<TcpListener>, identity: Identity) -> Result<(), String> {
        let server = self.server.get().and_then(Weak::upgrade);
        let server = server.ok_or("this server is about to end")?;
        let listener = listener.take().ok_or("this server is a node already")?;
        tracing::info!(
            "node {} of cluster {:016x}",
            identity.node,
            identity.cluster
        );
        let parts = Parts {
            settings: self.settings.clone(),
            regions: self.regions.clone(),
            log: self.log.clone(),
            incarnation: self.incarnation(),
            run: self.directory.run(),
            listener,
            runtime: self.runtime.handle().clone(),
        };
        let node = ClusterNode::start(&server, parts, identity)?;
        server.directory.set(Box::new(Signpost(node.clone()))).ok();
        server.cluster.set(node).ok();
        Ok(())
    }

    /// Hands over what is led here, and stops.
    pub fn leave(&self, server: &Server) {
        if let Some(node) = server.cluster.get() {
            self.runtime.block_on(node.shut_down());
        }
        if let Err(error) = self.runtime.block_on(self.directory.end(&self.log)) {
            tracing::warn!("that the server ended cannot be noted: {error}");
        }
    }
}

/// Destroys replicas of which a crash has left nothing whole. The log goes first: a log without its state would be taken for a
/// replica that remembers what it acknowledged. The cluster is told by whoever follows the map, and makes another replica.
async fn give_up_lost(regions: &Regions, log: &Log) -> io::Result<()> {
    for region in regions.lost() {
        log.destroy(*region).await?;
        regions.remove(*region).map_err(io::Error::other)?;
    }
    Ok(())
}

fn belongs(known: &Identity) -> String {
    format!(
        "this server is node {} of cluster {:016x} already",
        known.node, known.cluster
    )
}

/// What a region begins with.
fn beginning(region: &Region) -> Result<(u64, Descriptor, Applied), String> {
    let slots = match region.slots {
        None => Slots::NONE,
        Some(slots) => Slots::new(slots.first(), slots.last() + 1)
            .ok_or_else(|| format!("region {} has no slots", region.id))?,
    };
    let descriptor = Descriptor {
        slots,
        epoch: region.epoch,
    };
    let nodes = region.replicas.iter();
    let membership = Membership {
        configs: vec![region.voters()],
        nodes: nodes
            .map(|(replica, place)| (*replica, place.node))
            .collect(),
    };
    Ok((region.id, descriptor, Regions::beginning(membership)))
}
