//! Opening, reading, writing and closing the database.

use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cairn_encoding::raft::Applied;
use cairn_encoding::system::{Maxima, SystemKey, SystemKind, value};
use cairn_encoding::{FORMAT_VERSION, row};
use parking_lot::{Mutex, MutexGuard};
use rust_rocksdb::perf::{PerfContext, PerfMetric};
use rust_rocksdb::statistics::Ticker;
use rust_rocksdb::{
    BottommostLevelCompaction, Cache, ColumnFamily, CompactOptions, DB, DBPinnableSlice, Options,
    ReadOptions, Snapshot, WriteBatch, WriteBufferManager, WriteOptions,
};

use crate::LOCAL_REGION;
use crate::access::Access;
use crate::batch::Batch;
use crate::drain::HALF;
use crate::error::{EngineError, Result};
use crate::expected::Expected;
use crate::family::Family;
use crate::filter::{FilterCounters, Gate};
use crate::generation::{Record, WalkedRange, collection_prefix, fact};
use crate::journal::{self, Replayed};
use crate::listener::fatal;
use crate::measure::Measure;
use crate::options::{self, EngineOptions};
use crate::overlay::Overlay;
use crate::readers::{AllReaders, Readers};
use crate::row::{Row, fetched};
use crate::rows::{Direction, OwnedIterator, Rows, Stored};
use crate::space;
use crate::survivors::{Effort, Survivors};
use crate::whole::Cursor;
use crate::young::{
    Beneath, Carried, Fetch, InMemory, Known, Reading, Said, SampledRow, Waiting, Walker, Young,
};

/// A row's value where it lies; not copied.
pub enum Value<'a> {
    /// Young, or kept for those who ask often.
    Kept(Kept),
    /// In RocksDB's memory.
    Stored(DBPinnableSlice<'a>),
}

/// The value of a row in memory.
pub struct Kept(Row);

impl Kept {
    /// None if the row says that there is none.
    #[inline]
    fn of(row: Row) -> Option<Kept> {
        row.value().is_some().then_some(Kept(row))
    }

    /// Bytes that hold the value, and where in them it begins.
    #[inline]
    pub fn share(self) -> (Arc<[u8]>, usize) {
        self.0.share()
    }
}

impl Deref for Kept {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.0.value().unwrap_or_default()
    }
}

impl Deref for Value<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Value::Kept(kept) => kept,
            Value::Stored(slice) => slice,
        }
    }
}

/// The file that says whose directory this is and which format it holds. It is read before RocksDB is
/// asked to open anything, because opening changes files.
const MARKER: &str = "CAIRN";
/// The same while it is being written.
const NEW_MARKER: &str = "CAIRN.new";

/// RocksDB and its family handles.
pub(crate) struct Database {
    // Declared before `db`, so dropped before it (the references have no destructor anyway).
    families: [&'static ColumnFamily; Family::COUNT],
    db: DB,
    gate: Arc<Gate>,
}

impl Database {
    pub(crate) fn db(&self) -> &DB {
        &self.db
    }

    pub(crate) fn family(&self, family: Family) -> &ColumnFamily {
        self.families[family as usize]
    }

    /// A sync that fails may have lost what it was to save, and a second try would not tell: there is no
    /// going on. Unless nothing was tried: a log that could not be written to for want of room stays as it
    /// is until writing is resumed, which begins with a new one.
    pub(crate) fn sync(&self) -> Result<()> {
        let Err(error) = self.db.flush_wal(true) else {
            return Ok(());
        };
        if error.to_string().contains("Writer has previous error") && self.has_no_room() {
            return Err(EngineError::DiskFull);
        }
        fatal("the write-ahead log could not be synced", &error);
    }

    /// Whether RocksDB has stopped writing for want of room. The write that failed tells the log first and
    /// us a moment later.
    fn has_no_room(&self) -> bool {
        (0..100).any(|_| {
            self.gate.has_stopped_writing() || {
                std::thread::sleep(Duration::from_millis(1));
                false
            }
        })
    }

    pub(crate) fn get(&self, family: Family, key: &[u8]) -> Result<Option<DBPinnableSlice<'_>>> {
        Ok(self.db.get_pinned_cf(&self.family(family), key)?)
    }

    fn get_quietly(&self, family: Family, key: &[u8]) -> Result<Option<DBPinnableSlice<'_>>> {
        let mut options = ReadOptions::default();
        options.fill_cache(false);
        Ok(self
            .db
            .get_pinned_cf_opt(&self.family(family), key, &options)?)
    }

    /// The keys are in order. What is fetched is kept in memory for others, or not.
    fn get_many<'k>(
        &self,
        family: Family,
        keys: impl Iterator<Item = &'k [u8]>,
        is_kept: bool,
    ) -> Vec<Result<Option<DBPinnableSlice<'_>>, rust_rocksdb::Error>> {
        let mut options = ReadOptions::default();
        options.fill_cache(is_kept);
        let family = self.family(family);
        self.db
            .batched_multi_get_pinned_cf_opt(&family, keys, true, &options)
    }
}

/// A view of the moment in which everything that it shows was durable.
pub(crate) struct DurableView {
    // Declared before `database`, so dropped before it.
    snapshot: Snapshot<'static>,
    database: Arc<Database>,
}

impl DurableView {
    pub(crate) fn take(database: Arc<Database>) -> Result<Self> {
        // The sync comes second: a write between the two is then not in the view, whereas the other way
        // round it would be, unsynced.
        let snapshot = database.db.snapshot();
        database.sync()?;
        // SAFETY: as for iterators: the snapshot borrows the DB inside `database`, whose Arc is kept
        // beside it and dropped after it.
        let snapshot = unsafe { std::mem::transmute::<Snapshot<'_>, Snapshot<'static>>(snapshot) };
        Ok(DurableView { snapshot, database })
    }

    pub(crate) fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut options = ReadOptions::default();
        // A filter looks at every key there is: that must not push out what clients ask for.
        options.fill_cache(false);
        Ok(self
            .snapshot
            .get_cf_opt(&self.database.family(family), key, options)?)
    }

    /// Every row of the family that begins with `prefix`.
    pub(crate) fn scan(&self, family: Family, prefix: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut options = ReadOptions::default();
        options.set_iterate_range(rust_rocksdb::PrefixRange(prefix));
        let mut iterator = self
            .snapshot
            .raw_iterator_cf_opt(&self.database.family(family), options);
        let mut rows = Vec::new();
        iterator.seek_to_first();
        while let Some((key, value)) = iterator.item() {
            rows.push((key.to_vec(), value.to_vec()));
            iterator.next();
        }
        iterator.status()?;
        Ok(rows)
    }
}

/// Figures about the database as a whole.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    pub sst_bytes: u64,
    pub live_data_bytes: u64,
    pub memtable_bytes: u64,
    /// Rows that are committed and not in RocksDB yet.
    pub young_bytes: u64,
    /// Those, and hot ones that are.
    pub rows_in_memory_bytes: u64,
    pub block_cache_bytes: u64,
    pub block_cache_capacity: u64,
    pub table_reader_bytes: u64,
    pub pending_compaction_bytes: u64,
    pub running_compactions: u64,
    pub running_flushes: u64,
    pub estimated_keys: u64,
    pub write_stopped: bool,
    pub delayed_write_rate: u64,
    /// What was written since the start: memtables as tables, tables merged, RocksDB's log.
    pub flushed_bytes: u64,
    pub compacted_bytes: u64,
    pub logged_bytes: u64,
    /// Blocks that were asked for since the start, and not in the cache.
    pub missed_data_blocks: u64,
    pub missed_index_blocks: u64,
    pub missed_filter_blocks: u64,
}

/// How many blocks of tables the calling thread has read from files in its life.
pub fn block_reads() -> u64 {
    PerfContext::default().metric(PerfMetric::BlockReadCount)
}

/// How many tombstones walks of the calling thread have passed over in its life.
pub fn deletions_passed() -> u64 {
    PerfContext::default().metric(PerfMetric::InternalDeleteSkippedCount)
}

pub struct Engine {
    database: Arc<Database>,
    young: Young,
    pub(crate) measure: Measure,
    readers: AllReaders,
    /// Held while draining.
    draining: Mutex<()>,
    /// The last commit that is in RocksDB.
    applied: AtomicU64,
    /// RocksDB has no row of a collection with a higher version, as far as that is known.
    stored_versions: AtomicU64,
    gate: Arc<Gate>,
    cache: Cache,
    write_buffers: WriteBufferManager,
    options: Options,
    path: PathBuf,
    /// Opened beside, or without, the process that writes.
    is_read_only: bool,
}

impl Engine {
    /// Opens the database in `path`, creating it if the directory is empty or absent. On an error
    /// nothing has been changed.
    pub fn open(path: &Path, settings: &EngineOptions) -> Result<Engine> {
        let engine = Engine::open_stored(path, settings)?;
        if engine.has_regions()? {
            return Err(EngineError::InCluster(path.to_owned()));
        }
        engine.replay()?;
        Ok(engine)
    }

    /// The same for a node of a cluster: see [`Regions`](crate::Regions). What one machine has written is taken over; the
    /// logs of the regions take the place of its journal.
    pub fn open_in_cluster(path: &Path, settings: &EngineOptions) -> Result<Engine> {
        let engine = Engine::open_stored(path, settings)?;
        engine.replay()?;
        journal::discard(path)?;
        Ok(engine)
    }

    /// As RocksDB has it, without what is in the journal only.
    fn open_stored(path: &Path, settings: &EngineOptions) -> Result<Engine> {
        let is_new = check_marker(path)?;
        if is_new {
            fs::create_dir_all(path).map_err(|error| cannot("create", path, &error))?;
            write_marker(path, CREATING)?;
        }

        if !is_new && !journal::is_empty(path)? {
            // The last run did not end in order. To open for writing changes files; if something is damaged
            // that must be found out before.
            Engine::check(path, settings)?;
        }
        let gate = Arc::new(Gate::default());
        let memory = options::Memory::new(settings);
        let mut database_options = options::database(settings, &memory, &gate);
        // Never in place of a database that has lost its files: RocksDB would clear away the rest.
        database_options.create_if_missing(is_new);
        database_options.create_missing_column_families(is_new);
        let families =
            Family::ALL.map(|family| options::family(family, settings, &memory, Some(&gate)));
        let db = DB::open_cf_descriptors(&database_options, path, families)
            .map_err(|error| explain_open(error, path))?;
        let engine = Engine::assemble(db, gate, memory, database_options, path)?;
        engine.check_format(is_new)?;
        Ok(engine)
    }

    /// Whether it belongs to a node of a cluster: what one machine takes for its own may be another region's then.
    fn has_regions(&self) -> Result<bool> {
        let kinds = [
            SystemKind::RegionDescriptor,
            SystemKind::Installing,
            SystemKind::Identity,
        ];
        for prefix in kinds.map(SystemKind::prefix) {
            let upper = row::prefix_end(&prefix).unwrap_or_default();
            let mut rows = self.background_rows(Family::Meta, &prefix, &upper);
            if rows.next()?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The engine around an open RocksDB.
    pub(crate) fn assemble(
        db: DB,
        gate: Arc<Gate>,
        memory: options::Memory,
        options: Options,
        path: &Path,
    ) -> Result<Engine> {
        let families = Family::ALL.map(|family| -> Option<&'static ColumnFamily> {
            // SAFETY: a handle lives as long as the DB, whose families are never dropped; `Database`
            // keeps both together and gives the reference out only with its own lifetime.
            db.cf_handle(family.name())
                .map(|handle| unsafe { &*std::ptr::from_ref(handle) })
        });
        let mut handles = Vec::with_capacity(Family::COUNT);
        for handle in families {
            handles.push(
                handle.ok_or_else(|| EngineError::Corrupt("a row family is missing".into()))?,
            );
        }
        let families = handles
            .try_into()
            .map_err(|_| EngineError::Corrupt("a row family is missing".into()))?;
        Ok(Engine {
            database: Arc::new(Database {
                families,
                db,
                gate: gate.clone(),
            }),
            young: Young::new(memory.row_cache, memory.young),
            measure: Measure::default(),
            readers: AllReaders::default(),
            draining: Mutex::new(()),
            applied: AtomicU64::new(0),
            stored_versions: AtomicU64::new(u64::MAX),
            gate,
            cache: memory.cache,
            write_buffers: memory.write_buffers,
            options,
            path: path.to_owned(),
            is_read_only: false,
        })
    }

    pub(crate) fn read_only(mut self) -> Engine {
        self.is_read_only = true;
        self
    }

    fn check_format(&self, is_new: bool) -> Result<()> {
        let key = SystemKey::Format.encode();
        let mut is_current = false;
        match self.get(Family::Meta, &key)? {
            Some(value) => {
                let found = value::decode_format(&value)?;
                if found > FORMAT_VERSION {
                    return Err(EngineError::NewerFormat {
                        found,
                        known: FORMAT_VERSION,
                    });
                }
                is_current = found == FORMAT_VERSION;
            }
            None if is_new => {}
            None => return Err(EngineError::Corrupt("the format version is missing".into())),
        }
        // Format 1 had no journal, format 2 one whose files had other names, formats up to 4 no functions, up to 6 no fields
        // that expire, up to 7 no regions. There is nothing to convert, but who knows only those must not open the
        // database any more.
        if is_new || !is_current {
            let mut batch = Batch::new();
            batch.put(Family::Meta, &key, value::encode_format(FORMAT_VERSION));
            self.write([&batch], true)?;
            write_marker(&self.path, "")?;
        }
        Ok(())
    }

    /// Brings what an earlier run left in the journal into RocksDB, for good, and lets compactions begin.
    fn replay(&self) -> Result<()> {
        let replayed = self.read_journal()?;
        self.drain()?;
        self.database.sync()?;
        for family in Family::ALL {
            let family = self.database.family(family);
            let begin = [("disable_auto_compactions", "false")];
            self.database.db.set_options_cf(&family, &begin)?;
        }
        if let Replayed::Gap = replayed {
            let last = self.applied();
            tracing::warn!(
                "the journal breaks off after commit {last}: what followed was not synced"
            );
        }
        Ok(())
    }

    /// Makes everything in the journal young that RocksDB does not have.
    pub(crate) fn read_journal(&self) -> Result<Replayed> {
        let applied = self.stored_index()?;
        self.applied.store(applied, Ordering::Release);
        let replayed = journal::replay(&self.path, applied, |record| {
            let batch = Batch::of_changes(record.rows())?;
            self.apply(&mut [batch], record.index, record.maxima);
            match self.is_read_only {
                true => Ok(()),
                false => self.make_room(),
            }
        })?;
        // What the last record says is to be read as well.
        self.young.close_newest();
        Ok(replayed)
    }

    /// Makes sure that it could be read.
    pub(crate) fn check_journal(&self) -> Result<Replayed> {
        journal::replay(&self.path, self.stored_index()?, |record| {
            for change in record.rows() {
                let (family, ..) = change?;
                Family::of_byte(family)?;
            }
            Ok(())
        })
    }

    /// The last commit that RocksDB has.
    fn stored_index(&self) -> Result<u64> {
        let key = SystemKey::AppliedIndex {
            region: LOCAL_REGION,
        };
        Ok(match self.database.get(Family::Meta, &key.encode())? {
            Some(index) => value::decode_applied_index(&index)?,
            None => 0,
        })
    }

    /// From now on compaction filters may drop rows. Called once the store has finished what an
    /// earlier run left half done.
    pub fn start_filters(&self) {
        self.gate.open(&self.database);
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn database(&self) -> &Arc<Database> {
        &self.database
    }

    pub(crate) fn young(&self) -> &Young {
        &self.young
    }

    #[inline]
    pub fn get(&self, family: Family, key: &[u8]) -> Result<Option<Value<'_>>> {
        self.read(family, key, Reading::Use)
    }

    /// The row, for somebody who uses it or only looks on.
    #[inline]
    pub fn read(&self, family: Family, key: &[u8], reading: Reading) -> Result<Option<Value<'_>>> {
        match self.young.get(family, key, reading) {
            Known::Row(row) => Ok(Kept::of(row).map(Value::Kept)),
            Known::Below(_) if self.is_new(collection_prefix(family, key)) => Ok(None),
            Known::Below(fetch) => self.fetch(fetch, family, key, reading),
        }
    }

    /// From now on all versions that come are higher than all that have come, as one clock gives them that goes on behind the
    /// maxima. So RocksDB need not be asked for what belongs to a version that is above all that were drained.
    pub fn trust_versions(&self, maxima: Option<Maxima>) -> Result<()> {
        let families = [Family::Data, Family::ZsetScore];
        let is_empty = || -> Result<bool> {
            let mut stored = families
                .iter()
                .map(|family| self.has_stored(*family, &[], &[]));
            stored.try_fold(true, |is_empty, stored| Ok(is_empty && !stored?))
        };
        let highest = match maxima {
            Some(maxima) => maxima.version,
            None if is_empty()? => 0,
            None => return Ok(()),
        };
        self.stored_versions.store(highest, Ordering::Release);
        Ok(())
    }

    /// Whether RocksDB has nothing of a collection, by what its rows begin with. What is young is to be looked at before that: it
    /// stays there until this is known of it no more.
    #[inline]
    fn is_new(&self, prefix: Option<&[u8]>) -> bool {
        let version = prefix.and_then(row::version_in);
        version.is_some_and(|version| version > self.stored_versions.load(Ordering::Acquire))
    }

    /// Asks RocksDB, and keeps the answer for those who come next.
    fn fetch(
        &self,
        fetch: Fetch,
        family: Family,
        key: &[u8],
        reading: Reading,
    ) -> Result<Option<Value<'_>>> {
        let stored = self.database.get(family, key)?;
        let value = stored.as_deref();
        self.young.keep(fetch, family, key, value, reading);
        Ok(stored.map(Value::Stored))
    }

    /// What is known of the last use of a key, by its metadata row; none if it is known that there is no such key.
    pub fn access(&self, metadata_key: &[u8]) -> Option<Access> {
        self.young.access(metadata_key)
    }

    /// Whether there is such a key, as far as that is known without asking RocksDB.
    pub fn is_in_memory(&self, metadata_key: &[u8]) -> Option<bool> {
        self.young.is_there(metadata_key)
    }

    pub fn set_access(&self, metadata_key: &[u8], access: Access) {
        self.young.set_access(metadata_key, access);
    }

    /// Keys of metadata rows that are in memory, some of them by chance, with what their values begin with: at most so many
    /// places are looked at, and there may be none.
    pub fn sample_in_memory(&self, places: usize) -> Vec<SampledRow> {
        self.young.sample(places)
    }

    /// The same for background work: what it fetches is not kept in memory, where it would push out what
    /// clients ask for.
    pub fn get_quietly(&self, family: Family, key: &[u8]) -> Result<Option<Value<'_>>> {
        match self.get_in_memory(family, key) {
            Some(kept) => Ok(kept.map(Value::Kept)),
            None => {
                let stored = self.database.get_quietly(family, key)?;
                Ok(stored.map(Value::Stored))
            }
        }
    }

    /// The same for many rows, in any order: a block that holds several of them is read once.
    pub fn get_many_quietly(
        &self,
        family: Family,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<Value<'_>>>> {
        let mut rows = Vec::with_capacity(keys.len());
        let mut below = Vec::new();
        for (place, key) in keys.iter().enumerate() {
            let kept = self.get_in_memory(family, key);
            if kept.is_none() {
                below.push((*key, place));
            }
            rows.push(kept.flatten().map(Value::Kept));
        }
        below.sort_unstable();
        let names = below.iter().map(|(key, _)| *key);
        let found = self.database.get_many(family, names, false);
        for (stored, (_, place)) in found.into_iter().zip(below) {
            rows[place] = stored?.map(Value::Stored);
        }
        Ok(rows)
    }

    /// Fetches rows that will be asked for and are not in memory, all of them together: a block that holds several is read
    /// once, and so is what leads to it.
    #[cold]
    pub fn fetch_many<'k>(
        &self,
        family: Family,
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> Result<()> {
        let below = keys.filter_map(|key| match self.young.get(family, key, Reading::Look) {
            Known::Row(_) => None,
            Known::Below(_) if self.is_new(collection_prefix(family, key)) => None,
            Known::Below(fetch) => Some((key, fetch)),
        });
        let mut below: Vec<_> = below.collect();
        if below.len() < 2 {
            // It is fetched when it is asked for.
            return Ok(());
        }
        below.sort_unstable_by_key(|(key, _)| *key);
        let names = below.iter().map(|(key, _)| *key);
        let found = self.database.get_many(family, names, true);
        for (stored, (key, fetch)) in found.into_iter().zip(below) {
            let (stored, reading) = (stored?, Reading::Look);
            self.young
                .keep(fetch, family, key, stored.as_deref(), reading);
        }
        Ok(())
    }

    /// The row if it is in memory, or known to be absent; RocksDB is not asked.
    #[inline]
    pub fn get_in_memory(&self, family: Family, key: &[u8]) -> Option<Option<Kept>> {
        match self.young.get(family, key, Reading::Look) {
            Known::Row(row) => Some(Kept::of(row)),
            Known::Below(_) => None,
        }
    }

    /// The same for many rows in a moment, in which no commit is made visible.
    #[inline]
    pub fn in_memory(&self) -> InMemory<'_> {
        self.young.in_memory()
    }

    /// Has rows brought near that will be asked for, if they are in memory; true if all of them seem to be.
    pub fn expect(&self, rows: &Expected) -> bool {
        rows.hashes().is_empty() || self.young.expect(rows.hashes())
    }

    /// How many rows a walk has to look at before it begins.
    pub fn before_walk(&self, family: Family, lower: &[u8], upper: &[u8]) -> usize {
        self.young
            .looked_at(&WalkedRange::new(family, lower, upper))
    }

    /// Walks the rows in `[lower, upper)`; an empty `upper` is no bound. With a batch, its changes are
    /// shown as if they were stored.
    pub fn rows(
        &self,
        batch: Option<&Batch>,
        family: Family,
        lower: &[u8],
        upper: &[u8],
        direction: Direction,
    ) -> Rows {
        let range = WalkedRange::new(family, lower, upper);
        let walker = Walker::Foreground;
        let (stored, changes) = self.open_walk(&range, batch, direction, walker, |_| {
            self.stored(&range, ReadOptions::default())
        });
        self.walk(stored, changes, lower, direction)
    }

    /// The same for rows of a collection that has no more than about [`FEW`](crate::FEW) in all: they are
    /// kept in memory, in one piece.
    pub fn rows_of_few(
        &self,
        batch: Option<&Batch>,
        family: Family,
        lower: &[u8],
        upper: &[u8],
        direction: Direction,
    ) -> Rows {
        let range = WalkedRange::new(family, lower, upper);
        let Some(prefix) = range.prefix else {
            return self.rows(batch, family, lower, upper, direction);
        };
        let batch = batch.filter(|batch| batch.has_changes_in(family));
        if let Some(whole) = self.young.whole(&range) {
            let changes = Carried {
                newest: batch.map_or_else(Vec::new, |batch| range.of_batch(batch)),
                ..Carried::default()
            };
            let cursor = Cursor::new(whole, lower, upper);
            return self.walk(Stored::Whole(cursor), changes, lower, direction);
        }
        let walker = Walker::Foreground;
        let (beneath, changes) = self.open_walk(&range, batch, direction, walker, |beneath| {
            beneath.map_err(|since| {
                let end = row::version_end(prefix);
                let all = WalkedRange::new(family, prefix, &end);
                let stored = self.stored(&all, ReadOptions::default());
                (Box::new(stored), since)
            })
        });
        let whole = match beneath {
            Ok(whole) => whole,
            Err((mut stored, since)) => {
                let Some(whole) = stored.read_whole(family, prefix) else {
                    return self.rows(batch, family, lower, upper, direction);
                };
                self.young.keep_whole(&range, since, whole.clone());
                whole
            }
        };
        // What is not committed is for nobody else to see.
        let keeping = changes.keeping.filter(|_| batch.is_none());
        let cursor = Cursor::new(whole, lower, upper);
        let mut rows = self.walk(Stored::Whole(cursor), changes, lower, direction);
        if let Some(keeping) = keeping
            && direction == Direction::Forward
            && let Some(whole) = rows.read_whole(family, prefix, keeping.reach)
        {
            self.young.keep_shown(keeping, whole);
        }
        rows
    }

    /// The same for rows that are too many to be kept: the cache is left alone.
    pub fn passing_rows(
        &self,
        batch: Option<&Batch>,
        family: Family,
        lower: &[u8],
        upper: &[u8],
    ) -> Rows {
        let range = WalkedRange::new(family, lower, upper);
        let (direction, walker) = (Direction::Forward, Walker::Foreground);
        let (stored, changes) = self.open_walk(&range, batch, direction, walker, |_| {
            let mut options = ReadOptions::default();
            options.fill_cache(false);
            self.stored(&range, options)
        });
        self.walk(stored, changes, lower, direction)
    }

    /// The same for background work, which must not push out of the cache what clients ask for.
    pub fn background_rows(&self, family: Family, lower: &[u8], upper: &[u8]) -> Rows {
        let range = WalkedRange::new(family, lower, upper);
        let (direction, walker) = (Direction::Forward, Walker::Background);
        let (stored, changes) = self.open_walk(&range, None, direction, walker, |_| {
            self.stored(&range, passing_by())
        });
        self.walk(stored, changes, lower, direction)
    }

    /// The same as RocksDB has them, without what is young.
    pub fn stored_rows(&self, family: Family, lower: &[u8], upper: &[u8]) -> Rows {
        let range = WalkedRange::new(family, lower, upper);
        let stored = self.stored(&range, passing_by());
        self.walk(stored, Carried::default(), lower, Direction::Forward)
    }

    /// Whether RocksDB has a row in `[lower, upper)`, whatever is young.
    pub fn has_stored(&self, family: Family, lower: &[u8], upper: &[u8]) -> Result<bool> {
        Ok(self.stored_rows(family, lower, upper).next()?.is_some())
    }

    fn stored(&self, range: &WalkedRange<'_>, mut options: ReadOptions) -> Stored {
        if self.is_new(range.prefix) {
            return Stored::Nothing;
        }
        options.set_iterate_lower_bound(range.from);
        if !range.to.is_empty() {
            options.set_iterate_upper_bound(range.to);
        }
        let (database, family) = (self.database.clone(), range.family);
        Stored::Iterator(OwnedIterator::new(database, family, options))
    }

    /// Opens what lies below, and gives it together with what is shown on top of it.
    fn open_walk<T>(
        &self,
        range: &WalkedRange<'_>,
        batch: Option<&Batch>,
        direction: Direction,
        mut walker: Walker,
        open: impl Fn(Beneath) -> T,
    ) -> (T, Carried) {
        let mut drains = 0;
        loop {
            let walk = self.young.open_walk(range, direction, walker, &open);
            if let Some((opened, mut changes)) = walk {
                // What comes first hides what comes later: the batch is newer than anything committed.
                if let Some(batch) = batch
                    && batch.has_changes_in(range.family)
                {
                    let committed = std::mem::replace(&mut changes.newest, range.of_batch(batch));
                    changes.newest.extend(committed);
                }
                return (opened, changes);
            }
            // After a drain that failed, or left many rows that came meanwhile, they are carried along.
            drains += 1;
            if self.is_read_only || self.drain().is_err() || drains == 2 {
                walker = Walker::BackgroundAnyway;
            }
        }
    }

    fn walk(&self, stored: Stored, changes: Carried, lower: &[u8], direction: Direction) -> Rows {
        Rows::new(stored, Overlay::new(changes, direction), lower.into())
    }

    /// Makes commits visible, all of them at once. True if whoever drains should know.
    pub(crate) fn apply(&self, batches: &mut [Batch], index: u64, maxima: Maxima) -> bool {
        let said = Said::InJournal(Record { index, maxima });
        self.young.apply(self.measured(batches), said)
    }

    /// The same for what a region of a cluster has committed; `applied` is where it is in its log afterwards.
    pub(crate) fn apply_in_region(
        &self,
        region: u64,
        mut batches: Vec<Batch>,
        applied: &Applied,
        maxima: Maxima,
    ) -> bool {
        let mut place = Vec::new();
        applied.encode(&mut place);
        let facts = [
            fact(SystemKey::Applied { region }, &place),
            fact(SystemKey::Maxima { region }, &maxima.encode()),
        ];
        self.measure_batches(region, &mut batches);
        let readers = self.readers_of(region);
        let _nobody_reads = readers.write();
        let batches = self.measured(&mut batches);
        self.young.apply(batches, Said::AsRows(facts))
    }

    /// Adds up by how much batches let the data grow that are made visible.
    fn measured<'b>(&self, batches: &'b mut [Batch]) -> impl Iterator<Item = &'b mut Batch> {
        batches.iter_mut().inspect(|batch| {
            if let Some(growth) = &batch.growth {
                self.measure.add(growth);
            }
        })
    }

    /// What a region's log commits becomes visible while nobody holds this.
    pub fn readers_of(&self, region: u64) -> Readers {
        self.readers.of(region)
    }

    /// Whether more may be committed without waiting.
    pub(crate) fn has_room(&self) -> bool {
        !self.young.is_overfull(1)
    }

    /// Makes sure that more may be committed, if need be by waiting.
    pub(crate) fn make_room(&self) -> Result<()> {
        if self.has_room() {
            return Ok(());
        }
        self.young.note_wait();
        let _waiting = self.wait_for_drain();
        // Nobody waits for more than the drain that is under way, unless there is far too much.
        let _one_at_a_time = self.draining.lock();
        if self.young.is_overfull(2) {
            self.drain_once(Effort::Hasty)?;
        }
        Ok(())
    }

    /// Whether young rows fill such a share of their room: one half, or one eighth.
    pub(crate) fn is_full_of_young(&self, share: usize) -> bool {
        self.young.fills(share)
    }

    /// How many times something was committed.
    pub(crate) fn commits(&self) -> u64 {
        self.young.commits()
    }

    /// Whether walks have come across young rows since this was last asked.
    pub(crate) fn has_walked_over_young(&self) -> bool {
        self.young.was_walked_over()
    }

    pub(crate) fn has_young(&self) -> bool {
        !self.young.is_empty()
    }

    /// The generation of young rows that the last commit is in, or an earlier one if all is drained.
    pub fn newest_generation(&self) -> u32 {
        self.young.newest()
    }

    /// Whether RocksDB has all commits of a generation.
    pub fn has_drained(&self, generation: u32) -> bool {
        self.young.last_drained() >= generation
    }

    /// The last generation of young rows that RocksDB has.
    pub fn last_drained(&self) -> u32 {
        self.young.last_drained()
    }

    /// The last commit that is in RocksDB, whether that is synced or not.
    pub(crate) fn applied(&self) -> u64 {
        self.applied.load(Ordering::Acquire)
    }

    /// Moves all rows that were young when this was called into RocksDB.
    pub(crate) fn drain(&self) -> Result<()> {
        let _waiting = self.wait_for_drain();
        self.drain_gently()
    }

    /// The same for somebody who is in no hurry.
    pub(crate) fn drain_gently(&self) -> Result<()> {
        let newest = self.young.close_newest();
        self.drain_while(|| self.young.last_drained() < newest)
    }

    /// While this is held, drains leave less of the time to readers.
    pub(crate) fn wait_for_drain(&self) -> Waiting<'_> {
        self.young.wait_for_drain()
    }

    /// Moves the oldest of them, until there are not too many. The others may be changed again, or die, before their time
    /// has come. What is committed meanwhile is for the next call, however much it is: between the two, the journal is cut.
    pub(crate) fn drain_oldest_half(&self) -> Result<()> {
        let newest = self.young.newest();
        self.drain_while(|| self.young.last_drained() < newest && self.is_full_of_young(HALF))
    }

    /// Moves as many of the oldest as are moved at once in a lull.
    pub(crate) fn drain_oldest(&self) -> Result<()> {
        let one_at_a_time = self.draining.lock();
        let drained = self.drain_once(self.effort(Effort::Unhurried));
        // Whoever waits for room comes before the next drain.
        MutexGuard::unlock_fair(one_at_a_time);
        drained
    }

    fn effort(&self, with_time: Effort) -> Effort {
        match self.young.has_time() {
            true => with_time,
            false => Effort::Hasty,
        }
    }

    fn drain_while(&self, goes_on: impl Fn() -> bool) -> Result<()> {
        let mut one_at_a_time = self.draining.lock();
        while goes_on() {
            self.drain_once(self.effort(Effort::Steady))?;
            // Whoever waits for room comes before the next drain.
            MutexGuard::bump(&mut one_at_a_time);
        }
        Ok(())
    }

    /// Called with the lock for drains held.
    fn drain_once(&self, effort: Effort) -> Result<()> {
        let generations = self.young.oldest();
        if generations.is_empty() {
            return Ok(());
        }
        let staged = self.staged_versions()?;
        let most = self.young.most_drained();
        let survivors = Survivors::of_some(&generations, &staged, most, effort);
        let rows = survivors.rows();
        let count = survivors.count();
        let last_record = generations[count - 1].last_record;
        // Of what a region of a cluster has committed nobody says up to which version it goes.
        let highest = last_record.map_or(u64::MAX, |last| last.maxima.version);
        self.stored_versions.fetch_max(highest, Ordering::AcqRel);
        let started = Instant::now();
        self.write_rows(&rows, survivors.bytes())?;
        self.young.note_drain(survivors.bytes(), started.elapsed());
        if let Some(last) = last_record {
            self.applied.store(last.index, Ordering::Release);
        }
        self.gate.counters().note_left_out(&survivors.left_out);
        self.young.drained(count, &rows, survivors.dead_rows());
        // There is room for others from now on: these must not stay for longer than they have to.
        drop((rows, survivors));
        drop(generations);
        self.young.evict_drained();
        Ok(())
    }

    /// Versions that RocksDB has rows of and no metadata yet, because that is still to come.
    fn staged_versions(&self) -> Result<HashSet<u64>> {
        let prefix = SystemKind::Staging.prefix();
        let upper = row::prefix_end(&prefix).unwrap_or_default();
        let mut rows = self.stored_rows(Family::Meta, &prefix, &upper);
        let mut staged = HashSet::new();
        while let Some((key, _)) = rows.next()? {
            if let SystemKey::Staging { version, .. } = SystemKey::decode(key)? {
                staged.insert(version);
            }
        }
        Ok(staged)
    }

    fn write_rows(&self, rows: &[&Row], bytes: usize) -> Result<()> {
        let mut writes = WriteBatch::with_capacity_bytes(bytes);
        for row in fetched(rows, |row| row) {
            let family = self.database.family(row.family());
            match row.value() {
                Some(value) => writes.put_cf(&family, row.key(), value),
                None => writes.delete_cf(&family, row.key()),
            }
        }
        Ok(self.database.db.write(&writes)?)
    }

    /// Writes batches straight to RocksDB, after what is young: for facts about the database that are set
    /// while it is being opened.
    pub(crate) fn write<'b>(
        &self,
        batches: impl IntoIterator<Item = &'b Batch> + Clone,
        sync: bool,
    ) -> Result<()> {
        self.drain()?;
        let mut writes = WriteBatch::default();
        for (family, key, value) in batches.clone().into_iter().flat_map(Batch::changes) {
            let family = self.database.family(family);
            match value {
                Some(value) => writes.put_cf(&family, key, value),
                None => writes.delete_cf(&family, key),
            }
        }
        let mut options = WriteOptions::default();
        options.set_sync(sync);
        self.young.note_stored(batches.into_iter(), || {
            Ok(self.database.db.write_opt(&writes, &options)?)
        })
    }

    /// Deletes one row at once, outside any transaction: for what is found at open.
    pub fn delete_now(&self, family: Family, key: &[u8]) -> Result<()> {
        let mut batch = Batch::new();
        batch.delete(family, key);
        self.write([&batch], true)
    }

    /// Makes everything committed so far survive a power cut. An error means that it may not, because the
    /// disk is full.
    pub fn sync(&self) -> Result<()> {
        self.drain()?;
        self.database.sync()
    }

    /// What a power cut now would leave.
    pub(crate) fn durable_view(&self) -> Result<DurableView> {
        DurableView::take(self.database.clone())
    }

    /// The same for what is in RocksDB already.
    pub fn sync_stored(&self) -> Result<()> {
        self.database.sync()
    }

    /// Drops whole dead ranges: `[from, to)` in each of the families. Rows there must be dead already,
    /// durably so; open walks keep what they pinned.
    pub fn drop_range(&self, families: &[Family], from: &[u8], to: &[u8]) -> Result<()> {
        let mut ranges = families
            .iter()
            .map(|family| WalkedRange::new(*family, from, to));
        if ranges.any(|range| self.young.may_hold(&range)) {
            self.drain()?;
        }
        let mut writes = WriteBatch::default();
        let mut files = Vec::new();
        for &family in families {
            // RocksDB counts the end in where whole files go, and a row that lives may be there: what
            // goes ends with the last row before it.
            let mut rows = self.rows(None, family, from, to, Direction::Backward);
            if let Some((last, _)) = rows.next()? {
                files.push((family, last.to_vec()));
            }
            writes.delete_range_cf(&self.database.family(family), from, to);
        }
        self.database.db.write(&writes)?;
        for (family, last) in files {
            let family = self.database.family(family);
            self.database
                .db
                .delete_file_in_range_cf(&family, from, last.as_slice())?;
        }
        Ok(())
    }

    /// Writes out the memtables, so that the next open has no log to replay.
    pub fn flush(&self) -> Result<()> {
        self.drain()?;
        for family in Family::ALL {
            self.database.db.flush_cf(&self.database.family(family))?;
        }
        Ok(())
    }

    /// Writes out the memtables and compacts every level of every family, filters included.
    pub fn compact(&self) -> Result<()> {
        self.drain()?;
        let mut options = CompactOptions::default();
        options.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
        // Metadata first: what it loses, the rows lose in the same go.
        for family in Family::ALL {
            let family = self.database.family(family);
            self.database.db.flush_cf(&family)?;
            self.database
                .db
                .compact_range_cf_opt(&family, None::<&[u8]>, None::<&[u8]>, &options);
        }
        Ok(())
    }

    /// Has the rows in `[from, to)` written anew, and what is dead among them left out; others of the same files
    /// too. Takes its time, and lets other compactions run beside.
    pub fn compact_range(&self, family: Family, from: &[u8], to: &[u8]) {
        let mut options = CompactOptions::default();
        options.set_exclusive_manual_compaction(false);
        // One core is enough for what nobody waits for: two would leave a small machine none for its clients.
        options.set_max_subcompactions(1);
        let family = self.database.family(family);
        self.database
            .db
            .compact_range_cf_opt(&family, Some(from), Some(to), &options);
    }

    /// Gives up the compactions that were asked for and are under way, and takes on no more.
    pub fn pause_compactions(&self) {
        self.database.db.disable_manual_compaction();
    }

    /// Takes on compactions again.
    pub fn go_on_compacting(&self) {
        self.database.db.enable_manual_compaction();
    }

    /// About how many bytes of files the rows in `[from, to)` take.
    pub fn approximate_bytes(&self, family: Family, from: &[u8], to: &[u8]) -> u64 {
        let ranges = [rust_rocksdb::Range::new(from, to)];
        let family = self.database.family(family);
        self.database
            .db
            .get_approximate_sizes_cf(&family, &ranges)
            .map_or(0, |sizes| sizes.iter().sum())
    }

    pub fn filter_counters(&self) -> &FilterCounters {
        self.gate.counters()
    }

    /// Lets RocksDB write again after it stopped for want of room.
    pub fn resume(&self) -> Result<()> {
        self.database.db.resume()?;
        self.gate.writes_again();
        Ok(())
    }

    /// Whether RocksDB refuses writes for want of room.
    pub fn has_stopped_writing(&self) -> bool {
        self.gate.has_stopped_writing()
    }

    /// Bytes free on the disk that holds the database.
    pub fn free_disk_bytes(&self) -> Option<space::Disk> {
        space::of(&self.path)
    }

    /// What of the data is in memory: as much as there is room for. Generations that wait to be drained have rows that were
    /// changed since, and are not among all that can be read, so young rows are counted by themselves too.
    pub fn cached_bytes(&self) -> u64 {
        (self.young.bytes_in_all() + self.young.bytes() + self.cache.get_usage()) as u64
    }

    pub fn statistics(&self) -> Statistics {
        let sum = |property: &str| -> u64 {
            Family::ALL
                .iter()
                .filter_map(|&family| {
                    let family = self.database.family(family);
                    self.database
                        .db
                        .property_int_value_cf(&family, property)
                        .ok()?
                })
                .sum()
        };
        let whole = |property: &str| {
            let value = self.database.db.property_int_value(property);
            value.ok().flatten().unwrap_or(0)
        };
        Statistics {
            sst_bytes: sum("rocksdb.total-sst-files-size"),
            live_data_bytes: sum("rocksdb.estimate-live-data-size"),
            memtable_bytes: self.write_buffers.get_usage() as u64,
            young_bytes: self.young.bytes() as u64,
            rows_in_memory_bytes: self.young.bytes_in_all() as u64,
            block_cache_bytes: self.cache.get_usage() as u64,
            block_cache_capacity: self.cache.get_capacity() as u64,
            table_reader_bytes: sum("rocksdb.estimate-table-readers-mem"),
            pending_compaction_bytes: sum("rocksdb.estimate-pending-compaction-bytes"),
            running_compactions: whole("rocksdb.num-running-compactions"),
            running_flushes: whole("rocksdb.num-running-flushes"),
            estimated_keys: {
                let family = self.database.family(Family::Metadata);
                let value = self
                    .database
                    .db
                    .property_int_value_cf(&family, "rocksdb.estimate-num-keys");
                value.ok().flatten().unwrap_or(0)
            },
            write_stopped: whole("rocksdb.is-write-stopped") != 0,
            delayed_write_rate: whole("rocksdb.actual-delayed-write-rate"),
            flushed_bytes: self.options.get_ticker_count(Ticker::FlushWriteBytes),
            compacted_bytes: self.options.get_ticker_count(Ticker::CompactWriteBytes),
            logged_bytes: self.options.get_ticker_count(Ticker::WalFileBytes),
            missed_data_blocks: self.options.get_ticker_count(Ticker::BlockCacheDataMiss),
            missed_index_blocks: self.options.get_ticker_count(Ticker::BlockCacheIndexMiss),
            missed_filter_blocks: self.options.get_ticker_count(Ticker::BlockCacheFilterMiss),
        }
    }

    /// RocksDB's own tickers, as text, for diagnosis.
    pub fn rocksdb_statistics(&self) -> String {
        self.options.get_statistics().unwrap_or_default()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Filters first stop deciding, and then stop existing: waiting for the background work means
        // that no filter can hold the last reference to the database.
        self.gate.close();
        if !self.is_read_only
            && let Err(error) = self.database.sync()
        {
            tracing::error!("the last writes may not be on the disk: {error}");
        }
        self.database.db.cancel_all_background_work(true);
    }
}

/// How background work reads.
fn passing_by() -> ReadOptions {
    let mut options = ReadOptions::default();
    options.fill_cache(false);
    options.set_auto_readahead_size(true);
    options
}

/// Whether the directory is new; an error if it is not Cairn's, or of a newer format.
pub(crate) fn check_marker(path: &Path) -> Result<bool> {
    let text = match fs::read_to_string(path.join(MARKER)) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            // Nothing may be there: RocksDB clears away the files that it does not know.
            let is_empty = match fs::read_dir(path) {
                Ok(mut entries) => entries.all(|entry| {
                    // What a creation that was cut short leaves first.
                    entry.is_ok_and(|entry| entry.file_name() == NEW_MARKER)
                }),
                Err(error) if error.kind() == ErrorKind::NotFound => true,
                Err(error) => return Err(cannot("read", path, &error)),
            };
            if is_empty {
                return Ok(true);
            }
            return Err(EngineError::Corrupt(format!(
                "{} is not empty, and not a data directory of Cairn's",
                path.display()
            )));
        }
        Err(error) => return Err(cannot("read", &path.join(MARKER), &error)),
    };
    let damaged = || EngineError::Corrupt(format!("{} is damaged", path.join(MARKER).display()));
    let text = text.strip_prefix("cairn format ").ok_or_else(damaged)?;
    let (number, is_new) = match text.trim_end().strip_suffix(CREATING) {
        Some(number) => (number, true),
        None => (text.trim_end(), false),
    };
    let found: u32 = number.trim_end().parse().map_err(|_| damaged())?;
    if found > FORMAT_VERSION {
        return Err(EngineError::NewerFormat {
            found,
            known: FORMAT_VERSION,
        });
    }
    Ok(is_new)
}

/// Stands in the marker until the database behind it is complete.
const CREATING: &str = "creating";

fn write_marker(path: &Path, state: &str) -> Result<()> {
    let temporary = path.join(NEW_MARKER);
    let marker = path.join(MARKER);
    let write = || -> std::io::Result<()> {
        fs::write(
            &temporary,
            format!("cairn format {FORMAT_VERSION} {state}").trim_end(),
        )?;
        fs::File::open(&temporary)?.sync_all()?;
        fs::rename(&temporary, &marker)?;
        fs::File::open(path)?.sync_all()
    };
    write().map_err(|error| cannot("write", &marker, &error))
}

pub(crate) fn cannot(what: &str, path: &Path, error: &std::io::Error) -> EngineError {
    EngineError::Storage(format!("cannot {what} {}: {error}", path.display()))
}

fn explain_open(error: rust_rocksdb::Error, path: &Path) -> EngineError {
    let text = error.to_string();
    let is_held_here = text.contains("lock hold by current process");
    let is_held_elsewhere =
        text.contains("While lock file") && text.contains("temporarily unavailable");
    if is_held_here || is_held_elsewhere {
        return EngineError::InUse(path.to_owned());
    }
    error.into()
}
