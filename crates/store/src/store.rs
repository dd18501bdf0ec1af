//! Opening a store, and committing to it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cairn_encoding::row;
use cairn_encoding::system::{self, Maxima, SystemKey, SystemKind};
use cairn_engine::{
    Batch, Clock, Commit, Committer, Engine, EngineError, EngineOptions, Family, LOCAL_REGION,
    LocalCommitter, SyncMode, TimeSource,
};

use crate::count::Counts;
use crate::databases::{self, Databases};
use crate::effects::{Effect, Listeners};
use crate::error::{Error, Result};
use crate::expirer::Expirer;
use crate::fresh::StagingRow;
use crate::keyspace::Cursors;
use crate::latch::Latches;
use crate::queues::Queues;
use crate::ranks::{RankOptions, Ranks};
use crate::reclaimer::Reclaimer;
use crate::remains::Remains;
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

pub struct Store {
    // The committer's thread uses the engine: dropped first.
    committer: Box<dyn Committer>,
    engine: Arc<Engine>,
    clock: Arc<Clock>,
    latches: Latches,
    databases: Databases,
    may_have_legacy: AtomicBool,
    cursors: Cursors,
    queues: Queues,
    ranks: Ranks,
    counts: Counts,
    expirer: Expirer,
    reclaimer: Reclaimer,
    max_value_len: Arc<AtomicUsize>,
    memory: usize,
    disk_is_full: AtomicBool,
    is_stopping: AtomicBool,
    listeners: Listeners,
}

impl Store {
    /// Opens the store and finishes what an earlier run left half done.
    pub fn open(path: &Path, options: StoreOptions) -> Result<Arc<Store>> {
        let engine = Arc::new(Engine::open(path, &options.engine)?);
        let clock = Arc::new(Clock::new(options.time));
        let maxima_key = SystemKey::Maxima {
            region: LOCAL_REGION,
        };
        if let Some(value) = engine.get(Family::Meta, &maxima_key.encode())? {
            let maxima = Maxima::decode(&value)?;
            clock.advance_to(maxima.version, maxima.timestamp_ms);
        }
        reclaim_staged(&engine)?;
        let legacy_key = SystemKey::LegacyMayExist {
            region: LOCAL_REGION,
        };
        let may_have_legacy = engine.get(Family::Meta, &legacy_key.encode())?.is_some();
        let (databases, missing) = Databases::load(&engine, options.databases)?;
        let committer = LocalCommitter::new(engine.clone(), clock.clone(), options.sync)?;
        let store = Arc::new(Store {
            committer: Box::new(committer),
            engine,
            clock,
            latches: Latches::new(),
            databases,
            may_have_legacy: AtomicBool::new(may_have_legacy),
            cursors: Cursors::new(),
            queues: Queues::new(options.engine.memory),
            ranks: Ranks::new(options.ranks, options.engine.memory),
            counts: Counts::default(),
            expirer: Expirer::default(),
            reclaimer: Reclaimer::default(),
            max_value_len: Arc::new(AtomicUsize::new(MAX_VALUE_LEN)),
            memory: options.engine.memory,
            disk_is_full: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            listeners: Listeners::default(),
        });
        if !missing.is_empty() {
            let mut txn = WriteTxn::new(store.clone(), Patience::Long);
            databases::flush(&mut txn, missing);
            store.commit_blocking(&mut txn)?;
        }
        store.engine.start_filters();
        Ok(store)
    }

    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    pub fn latches(&self) -> &Latches {
        &self.latches
    }

    pub fn databases(&self) -> &Databases {
        &self.databases
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

    pub fn reclaimer(&self) -> &Reclaimer {
        &self.reclaimer
    }

    pub(crate) fn cursors(&self) -> &Cursors {
        &self.cursors
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

    pub(crate) fn committer(&self) -> &dyn Committer {
        &*self.committer
    }

    /// Whether a key may still be stored in the old format. A database that has none pays nothing.
    pub fn may_have_legacy(&self) -> bool {
        self.may_have_legacy.load(Ordering::Acquire)
    }

    pub(crate) fn legacy_is_gone(&self) {
        self.may_have_legacy.store(false, Ordering::Release);
    }

    /// Starts to commit what the transaction has collected; the transaction is empty afterwards. The
    /// caller keeps its latches until the commit is done.
    pub fn begin_commit(&self, txn: &mut WriteTxn) -> Begun {
        let (batch, after) = AfterCommit::of(txn);
        if batch.is_empty() {
            return Begun::Done(self.finish_commit(Ok(()), after));
        }
        self.counts.note_changes(batch.len());
        match self.committer.commit(batch) {
            Commit::Done(result) => Begun::Done(self.finish_commit(result, after)),
            commit => Begun::Pending(Committing { commit, after }),
        }
    }

    /// The same, to the end, on a thread that may block.
    pub fn commit_blocking(&self, txn: &mut WriteTxn) -> Result<()> {
        let (batch, after) = AfterCommit::of(txn);
        if batch.is_empty() {
            return Ok(self.finish_commit(Ok(()), after)?);
        }
        self.counts.note_changes(batch.len());
        let result = self.committer.commit(batch).wait();
        Ok(self.finish_commit(result, after)?)
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

    /// To be called before the latches are let go.
    fn finish_commit(
        &self,
        result: Result<(), EngineError>,
        after: AfterCommit,
    ) -> Result<(), EngineError> {
        if let (Ok(()), Some(indexes)) = (&result, &after.moved) {
            self.databases.set(indexes);
        }
        if after.moved.is_some() {
            self.databases.note_move();
        }
        if result.is_err() {
            self.queues.clear();
            self.ranks.clear();
        }
        result?;
        after.staged.into_iter().for_each(StagingRow::release);
        self.reclaimer.ledger().note(after.remains);
        if !after.effects.is_empty() {
            self.listeners.show(after.effects);
        }
        Ok(())
    }
}

/// A commit that was started.
pub enum Begun {
    Done(Result<(), EngineError>),
    /// Waiting for the disk.
    Pending(Committing),
}

pub struct Committing {
    commit: Commit,
    after: AfterCommit,
}

/// What follows from a commit that has succeeded.
struct AfterCommit {
    moved: Option<Vec<u64>>,
    staged: Vec<StagingRow>,
    remains: Remains,
    effects: Vec<Effect>,
}

impl AfterCommit {
    fn of(txn: &mut WriteTxn) -> (Batch, AfterCommit) {
        let (batch, moved) = txn.take_batch();
        if moved.is_some() {
            txn.store().databases().note_move();
        }
        let after = AfterCommit {
            moved,
            staged: txn.take_staged(),
            remains: txn.take_remains(),
            effects: txn.take_effects(),
        };
        (batch, after)
    }
}

impl Committing {
    pub async fn finish(self, store: &Store) -> Result<(), EngineError> {
        let result = self.commit.await;
        store.finish_commit(result, self.after)
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
