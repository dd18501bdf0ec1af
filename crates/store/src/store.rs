//! Opening a store, and what belongs to it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use cairn_encoding::row;
use cairn_encoding::system::{self, Maxima, SystemKey, SystemKind};
use cairn_engine::{
    Clock, Engine, EngineError, EngineOptions, Family, LOCAL_REGION, LocalCommitter, SyncMode,
    TimeSource,
};
use parking_lot::Mutex;

use crate::count::Counts;
use crate::databases::{self, Databases};
use crate::effects::Listeners;
use crate::error::{Error, Result};
use crate::evictor::Evictor;
use crate::excerpts::Excerpts;
use crate::expirer::Expirer;
use crate::keyspace::Cursors;
use crate::latch::Latches;
use crate::queues::Queues;
use crate::ranks::{RankOptions, Ranks};
use crate::reclaimer::Reclaimer;
use crate::region::{ALL_SLOTS, Lead, Region, Regions};
use crate::txn::{Patience, WriteTxn};

pub struct StoreOptions {
    pub engine: EngineOptions,
    pub sync: SyncMode,
    pub databases: u32,
    pub time: Box<dyn TimeSource>,
    pub ranks: RankOptions,
}

/// Redis' limit, unless it is changed.
const MAX_VALUE_LEN: usize = 512 << 20;

/// A node of a cluster has this many databases.
const REPLICATED_DATABASES: u32 = 1;
/// The region that replicates the map of a cluster, and holds no keys.
const CLUSTER_MAP: u64 = 0;
/// Why a single machine's directory cannot be that of a node yet.
const OLD_FORMAT: &str = "the directory holds strings of an old format: they are moved to the new one while it is served \
                          by a single machine";
/// A single machine leads its region in one term.
const ONLY_TERM: u64 = 1;

pub struct Store {
    // Committers have threads that use the engine: dropped first.
    regions: ArcSwap<Regions>,
    home: Arc<Region>,
    is_replicated: bool,
    /// Held by whoever changes the regions, or who leads them.
    leadership: Mutex<()>,
    engine: Arc<Engine>,
    clock: Arc<Clock>,
    latches: Latches,
    may_have_legacy: AtomicBool,
    cursors: Cursors,
    queues: Queues,
    excerpts: Excerpts,
    ranks: Ranks,
    counts: Counts,
    expirer: Expirer,
    evictor: Evictor,
    reclaimer: Reclaimer,
    max_value_len: Arc<AtomicUsize>,
    memory: usize,
    disk_is_full: AtomicBool,
    is_stopping: AtomicBool,
    listeners: Listeners,
}

impl Store {
    /// Opens the store of a single machine and finishes what an earlier run left half done.
    pub fn open(path: &Path, options: StoreOptions) -> Result<Arc<Store>> {
        let sync = options.sync;
        let engine = Arc::new(Engine::open(path, &options.engine)?);
        let databases = Databases::new(options.databases);
        let missing = databases.reload(&engine, LOCAL_REGION)?;
        let readers = engine.readers_of(LOCAL_REGION);
        let home = Region::new(LOCAL_REGION, ALL_SLOTS, 0, databases, readers);
        let store = Store::assemble(engine, options, home, false);
        let maxima_key = SystemKey::Maxima {
            region: LOCAL_REGION,
        };
        let maxima = store.engine.get(Family::Meta, &maxima_key.encode())?;
        let maxima = maxima.map(|value| Maxima::decode(&value)).transpose()?;
        if let Some(maxima) = maxima {
            store.clock.advance_to(maxima.version, maxima.timestamp_ms);
        }
        store.engine.trust_versions(maxima)?;
        reclaim_staged(&store.engine)?;
        let legacy_key = SystemKey::LegacyMayExist {
            region: LOCAL_REGION,
        };
        if store
            .engine
            .get(Family::Meta, &legacy_key.encode())?
            .is_some()
        {
            store.may_have_legacy.store(true, Ordering::Release);
        }
        let committer = LocalCommitter::new(store.engine.clone(), store.clock.clone(), sync)?;
        let lead = Lead::new(ONLY_TERM, Box::new(committer));
        store.home.set_lead(Some(lead));
        store.set_regions(Regions::of([store.home.clone()]));
        let store = Arc::new(store);
        if !missing.is_empty() {
            let mut txn = WriteTxn::new(store.clone(), store.home.clone(), Patience::Long);
            databases::flush(&mut txn, missing);
            store.commit_blocking(&mut txn)?;
        }
        store.engine.start_filters();
        Ok(store)
    }

    /// Opens the store of a node of a cluster. Its regions come later, and their committers from outside: see
    /// [`Store::place_regions`] and [`Store::became_leader`]. What `options` says of databases and syncs does not count.
    /// Filters rest until the caller starts them, when it has placed the regions whose rows there are.
    ///
    /// The directory may be that of a single machine, whose region goes on under its number. Strings of the old format
    /// are not replicated: such a directory is refused until the single machine has moved them.
    pub fn open_replicated(path: &Path, options: StoreOptions) -> Result<Arc<Store>> {
        let engine = Arc::new(Engine::open_in_cluster(path, &options.engine)?);
        let legacy_key = SystemKey::LegacyMayExist {
            region: LOCAL_REGION,
        };
        if engine.get(Family::Meta, &legacy_key.encode())?.is_some() {
            return Err(EngineError::Storage(OLD_FORMAT.into()).into());
        }
        let databases = Databases::new(REPLICATED_DATABASES);
        let readers = engine.readers_of(CLUSTER_MAP);
        let home = Region::new(CLUSTER_MAP, 0..0, 0, databases, readers);
        Ok(Arc::new(Store::assemble(engine, options, home, true)))
    }

    fn assemble(
        engine: Arc<Engine>,
        options: StoreOptions,
        home: Arc<Region>,
        is_replicated: bool,
    ) -> Store {
        Store {
            regions: ArcSwap::default(),
            home,
            is_replicated,
            leadership: Mutex::default(),
            engine,
            clock: Arc::new(Clock::new(options.time)),
            latches: Latches::new(),
            may_have_legacy: AtomicBool::new(false),
            cursors: Cursors::new(),
            queues: Queues::new(options.engine.memory),
            excerpts: Excerpts::new(options.engine.memory),
            ranks: Ranks::new(options.ranks, options.engine.memory),
            counts: Counts::default(),
            expirer: Expirer::default(),
            evictor: Evictor::default(),
            reclaimer: Reclaimer::default(),
            max_value_len: Arc::new(AtomicUsize::new(MAX_VALUE_LEN)),
            memory: options.engine.memory,
            disk_is_full: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            listeners: Listeners::default(),
        }
    }

    /// The region of what is about no key in particular. On a single machine it is that of all keys; in a cluster it is
    /// that of the cluster map, and has none.
    #[inline]
    pub fn home(&self) -> &Arc<Region> {
        &self.home
    }

    /// Whether it is one of several nodes.
    #[inline]
    pub fn is_replicated(&self) -> bool {
        self.is_replicated
    }

    /// The regions that this node has, as they are now.
    pub fn regions(&self) -> Arc<Regions> {
        self.regions.load_full()
    }

    pub(crate) fn set_regions(&self, regions: Regions) {
        self.regions.store(Arc::new(regions));
    }

    pub(crate) fn leadership(&self) -> &Mutex<()> {
        &self.leadership
    }

    /// How many numbered databases there are.
    pub fn database_count(&self) -> u32 {
        self.home.databases().count()
    }

    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    pub fn clock(&self) -> &Arc<Clock> {
        &self.clock
    }

    pub fn latches(&self) -> &Latches {
        &self.latches
    }

    /// How long a string may become; it can be changed at any time.
    pub fn max_value_len(&self) -> &Arc<AtomicUsize> {
        &self.max_value_len
    }

    /// What the process may use in all, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.memory
    }

    /// Whether so little room is left that it is kept for deleting.
    pub fn disk_is_full(&self) -> bool {
        self.disk_is_full.load(Ordering::Relaxed)
    }

    /// Says whether the disk is almost full; returns what it was before.
    pub fn note_disk_full(&self, is_full: bool) -> bool {
        self.disk_is_full.swap(is_full, Ordering::Relaxed)
    }

    /// For whatever writes rows that are not about a deletion.
    pub fn check_room(&self) -> Result<()> {
        if self.disk_is_full() {
            return Err(Error::DISK_FULL);
        }
        Ok(())
    }

    /// Who wants to know of changes.
    #[inline]
    pub fn listeners(&self) -> &Listeners {
        &self.listeners
    }

    pub fn expirer(&self) -> &Expirer {
        &self.expirer
    }

    pub fn evictor(&self) -> &Evictor {
        &self.evictor
    }

    pub fn reclaimer(&self) -> &Reclaimer {
        &self.reclaimer
    }

    pub(crate) fn cursors(&self) -> &Cursors {
        &self.cursors
    }

    pub(crate) fn excerpts(&self) -> &Excerpts {
        &self.excerpts
    }

    pub(crate) fn queues(&self) -> &Queues {
        &self.queues
    }

    #[inline]
    pub(crate) fn ranks(&self) -> &Ranks {
        &self.ranks
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Whether a key may still be stored in the old format. A database that has none pays nothing.
    pub fn may_have_legacy(&self) -> bool {
        self.may_have_legacy.load(Ordering::Acquire)
    }

    pub(crate) fn legacy_is_gone(&self) {
        self.may_have_legacy.store(false, Ordering::Release);
    }

    /// The store will be closed soon: whoever waits for something outside is to give up.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// Makes everything durable, for a quick start next time. The last user of the store calls this.
    pub fn close(&self) {
        if let Err(error) = self.engine.flush() {
            tracing::error!("could not write everything out: {error}");
        }
    }
}

/// Removes the rows of versions that were being written ahead when the server stopped.
fn reclaim_staged(engine: &Engine) -> Result<()> {
    let prefix = SystemKind::Staging.prefix();
    let upper = row::prefix_end(&prefix).unwrap_or_default();
    let mut rows = engine.background_rows(Family::Meta, &prefix, &upper);
    while let Some((key, value)) = rows.next()? {
        let SystemKey::Staging { version, .. } = SystemKey::decode(key)? else {
            continue;
        };
        // Checks that the value is a metadata key.
        system::value::decode_staging(value)?;
        let (mut lower, mut upper) = (Vec::new(), Vec::new());
        row::append_data(&mut lower, value, version, b"");
        row::append_data(&mut upper, value, version + 1, b"");
        engine.drop_range(&[Family::Data, Family::ZsetScore], &lower, &upper)?;
        engine.delete_now(Family::Meta, key)?;
    }
    Ok(())
}
