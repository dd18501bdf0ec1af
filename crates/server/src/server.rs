//! What all connections share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use cairn_store::Store;
use tokio::sync::{Semaphore, watch};

use crate::acl::Acl;
use crate::address::Moves;
use crate::audience::Audience;
use crate::blocked::Blocked;
use crate::client::Clients;
use crate::cluster::{ClusterNode, Entrance};
use crate::config::{Config, Live, Settings};
use crate::guest::Visit;
use crate::interest::Interest;
use crate::monitors::Monitors;
use crate::pause::Pause;
use crate::pubsub::PubSub;
use crate::replication::Replication;
use crate::room::Room;
use crate::route::Directory;
use crate::script::Scripts;
use crate::shortage::Shortages;
use crate::slowlog::Slowlog;
use crate::spikes::Spikes;
use crate::stats::Stats;
use crate::tracking::Tracking;
use crate::upstream::{Handover, Upstream};
use crate::watches::Watches;

/// How many may wait for another server at once: each keeps a thread, of which there are not many more for all that
/// takes its time.
const MOST_MIGRATIONS: usize = 64;

pub struct Server {
    pub store: Arc<Store>,
    pub settings: Settings,
    pub config: Config,
    pub live: Live,
    pub acl: Arc<Acl>,
    pub clients: Arc<Clients>,
    pub pause: Pause,
    pub shortages: Shortages,
    pub room: Room,
    /// How many want to know which keys commands change: see the three that follow.
    pub interest: Arc<Interest>,
    pub watches: Arc<Watches>,
    pub blocked: Arc<Blocked>,
    pub tracking: Arc<Tracking>,
    /// Those who follow, which are one of those who want to know.
    pub replication: Arc<Replication>,
    /// Whom this server follows, if anybody.
    pub upstream: Upstream,
    pub monitors: Arc<Monitors>,
    pub slowlog: Slowlog,
    pub spikes: Spikes,
    pub pubsub: Arc<PubSub>,
    pub scripts: Scripts,
    /// Room for commands that wait for another server.
    pub migrations: Semaphore,
    pub moves: Moves,
    /// Where other regions are led; none unless this is a node of a cluster.
    pub directory: OnceLock<Box<dyn Directory>>,
    /// Takes guests to a thread that serves them; none before there are such threads.
    pub reception: OnceLock<Box<dyn Fn(Visit) + Send + Sync>>,
    /// Takes the connection to the server that this one follows to a thread that runs what comes from there.
    pub door: OnceLock<Box<dyn Fn(Handover) + Send + Sync>>,
    /// By which this server comes to be a node of a cluster; none unless it may.
    pub entrance: OnceLock<Entrance>,
    /// The node that it is, once it belongs to a cluster.
    pub cluster: OnceLock<Arc<ClusterNode>>,
    pub stats: Stats,
    pub started: Instant,
    /// Forty hexadecimal digits that no other run has.
    pub run_id: String,
    /// When everything was last written out, in seconds since 1970.
    pub last_save: AtomicU64,
    /// Becomes true when the server shall stop.
    stop: watch::Sender<bool>,
}

impl Server {
    /// A server that is told what commits to the store did.
    pub fn new(store: Arc<Store>, settings: Settings) -> Arc<Server> {
        let classes = store.listeners().classes().clone();
        let live = Live::new(store.max_value_len().clone(), classes);
        let interest: Arc<Interest> = Arc::default();
        let depending = store.listeners().depending().clone();
        let scripts = Scripts::new(settings.memory);
        let tracking = Tracking::new(interest.clone(), store.clone());
        let replication = Replication::new(store.clone(), interest.clone());
        let server = Arc::new(Server {
            store,
            config: Config::new(&settings, &live),
            settings,
            acl: live.acl.clone(),
            live,
            clients: Arc::default(),
            pause: Pause::default(),
            shortages: Shortages::default(),
            room: Room::default(),
            watches: Arc::new(Watches::new(interest.clone())),
            blocked: Arc::new(Blocked::new(interest.clone(), depending)),
            tracking: Arc::new(tracking),
            replication: Arc::new(replication),
            upstream: Upstream::default(),
            monitors: Arc::default(),
            slowlog: Slowlog::default(),
            spikes: Spikes::default(),
            pubsub: Arc::default(),
            scripts,
            migrations: Semaphore::new(MOST_MIGRATIONS),
            interest,
            moves: Moves::default(),
            directory: OnceLock::new(),
            reception: OnceLock::new(),
            door: OnceLock::new(),
            entrance: OnceLock::new(),
            cluster: OnceLock::new(),
            stats: Stats::default(),
            started: Instant::now(),
            run_id: random_id(),
            last_save: AtomicU64::new(unix_seconds()),
            stop: watch::Sender::new(false),
        });
        let audience = Box::new(Audience::of(&server));
        server.store.listeners().observe(audience);
        server
    }

    /// As INFO and HELLO call it.
    pub fn mode(&self) -> &'static str {
        match self.settings.cluster_enabled {
            true => "cluster",
            false => "standalone",
        }
    }

    /// Writes everything out, so that a start has no log to replay.
    pub fn save(&self) -> cairn_store::Result<()> {
        self.store.engine().flush()?;
        self.last_save.store(unix_seconds(), Ordering::Relaxed);
        Ok(())
    }

    /// Keeps what is remembered of clients' copies within `tracking-table-max-keys`.
    pub fn shrink_tracking(&self) {
        let most = self.live.tracked_keys.load(Ordering::Relaxed);
        self.tracking.shrink(self, most);
    }

    /// Asks every part to stop.
    pub fn stop(&self) {
        self.store.stop();
        self.stop.send_replace(true);
    }

    pub fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }

    pub fn stopping(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }
}

pub fn unix_seconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Forty hexadecimal digits, as Redis has them.
pub fn random_id() -> String {
    (0..40).map(|_| fastrand::digit(16)).collect()
}
