//! The reclaimer: gives back what no compaction would meet soon.
//!
//! Dead rows cost nothing but space, and compaction filters drop those they meet. What they would not
//! meet for long is dealt with here: databases that were flushed, which go as a whole; large dead versions of
//! keys and large pieces of lists, of which whoever killed them has told (see [`crate::remains`]), or which are found by
//! looking at one row per version. Files that hold nothing else go at once, the rest is compacted
//! away. Everything is made durable before anything is dropped: a power cut must not bring back a key whose rows
//! are gone.
//!
//! Cut-off elements are never dropped by range. A push may come back to their indexes at any moment; filters judge
//! each row by a state in which it cannot have.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cairn_encoding::chunk::index_sub;
use cairn_encoding::metadata::{Body, Metadata};
use cairn_encoding::row::{self, RowKey};
use cairn_encoding::stream::{self, Id};
use cairn_encoding::system::{SystemKey, SystemKind};
use cairn_engine::{EngineError, Family, Rows};
use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;

use crate::error::Result;
use crate::region::{Region, Regions};
use crate::remains::{Ledger, Reading};
use crate::store::Store;
use crate::turns::Turns;
use crate::txn::{Patience, WriteTxn};

/// What was reclaimed since the start.
#[derive(Default)]
pub struct Reclaimer {
    databases: AtomicU64,
    versions: AtomicU64,
    /// Staging rows that could not be deleted when they should have been.
    abandoned: Mutex<Vec<Vec<u8>>>,
    /// Since when this node has seen flushed databases of its regions listed, in a cluster.
    listed_since: Mutex<FxHashMap<u64, Instant>>,
    ledger: Ledger,
    quiet: Mutex<Quiet>,
    /// The search for dead versions in `data`, and in `zset_score`.
    searches: [Mutex<Search>; 2],
}

/// Rows of dead versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Orphans {
    pub versions: u64,
    pub rows: u64,
    /// Keys and values, before compression.
    pub bytes: u64,
}

impl Orphans {
    pub(crate) fn add(&mut self, other: Orphans) {
        self.versions += other.versions;
        self.rows += other.rows;
        self.bytes += other.bytes;
    }
}

/// What a search through a family has met, and left to the filters, so far; and the last one in all.
#[derive(Default)]
struct Search {
    met: Orphans,
    began_at: Reading,
    last: Option<(Orphans, Instant)>,
}

impl Reclaimer {
    pub(crate) fn abandon(&self, staging_row: Vec<u8>) {
        self.abandoned.lock().push(staging_row);
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    fn search(&self, family: Family) -> MutexGuard<'_, Search> {
        self.searches[usize::from(family != Family::Data)].lock()
    }

    pub(crate) fn orphans(&self) -> Option<(Orphans, Duration)> {
        let (data, data_end) = self.search(Family::Data).last?;
        let (score, score_end) = self.search(Family::ZsetScore).last?;
        let both = Orphans {
            versions: data.versions + score.versions,
            rows: data.rows + score.rows,
            bytes: data.bytes + score.bytes,
        };
        Some((both, data_end.min(score_end).elapsed()))
    }

    pub fn databases(&self) -> u64 {
        self.databases.load(Ordering::Relaxed)
    }

    pub fn versions(&self) -> u64 {
        self.versions.load(Ordering::Relaxed)
    }
}

/// A dead version with fewer rows is left to the filters: dropping a range has a price for later reads.
pub(crate) const LARGE: usize = 512;

/// How many of them are dropped together, if they are known already.
const AT_ONCE: usize = 64;
/// Dead ranges with no more than so much between them are compacted together.
const NEAR_BYTES: u64 = 8 * 1024 * 1024;

/// How long flushed databases stay listed in a cluster.
const LISTED: Duration = Duration::from_secs(60);

/// When so many rows have changed and then none for some time, they are written out: RocksDB's log can go,
/// and tombstones come to where they take effect.
const MANY_CHANGES: u64 = 10_000;
const QUIET: Duration = Duration::from_secs(5);

/// Since when nothing has changed.
#[derive(Default)]
struct Quiet {
    changes: u64,
    since: Option<Instant>,
    /// What had changed when everything was last written out.
    written_out: u64,
}

/// Rows that are to go: what lies in these bounds.
struct DeadRange {
    family: Family,
    lower: Vec<u8>,
    upper: Vec<u8>,
    /// Whether no row in it will ever live again.
    is_whole_version: bool,
}

/// Which rows of a version live.
#[derive(Clone, Copy)]
enum Living {
    None,
    All,
    Indexes {
        head: u64,
        tail: u64,
    },
    /// The entries of a stream from this one on, and whatever is no entry.
    From(Id),
}

impl Store {
    /// Deletes staging rows that were left behind: what they announced becomes garbage. Those of regions that another
    /// node leads are that node's to find.
    pub fn reclaim_abandoned(self: &Arc<Self>) -> Result<()> {
        let abandoned = self.reclaimer().abandoned.lock().clone();
        if abandoned.is_empty() {
            return Ok(());
        }
        for region in self.regions().led() {
            let mut txn = WriteTxn::new(self.clone(), region.clone(), Patience::Background);
            for key in &abandoned {
                if key.starts_with(&SystemKind::Staging.region_prefix(region.id())) {
                    txn.delete(Family::Meta, key);
                }
            }
            self.commit_blocking(&mut txn)?;
        }
        // Others may have been added meanwhile, behind these.
        self.reclaimer().abandoned.lock().drain(..abandoned.len());
        Ok(())
    }

    /// Drops the rows of flushed databases, and has those that this node leads listed no more.
    pub fn reclaim_databases(self: &Arc<Self>) -> Result<()> {
        for region in self.regions().all() {
            let dead = self.dead_indexes(region)?;
            if dead.is_empty() {
                continue;
            }
            self.drop_databases(region, &dead)?;
            if region.is_led() && self.may_unlist(region) {
                self.unlist_databases(region, &dead)?;
            }
        }
        Ok(())
    }

    fn drop_databases(&self, region: &Region, dead: &[u64]) -> Result<()> {
        let mut is_synced = false;
        for index in dead {
            let (lower, upper) = region.bounds(*index);
            for family in Family::KEYED {
                if !self.has_rows(family, &lower, &upper)? {
                    continue;
                }
                if !std::mem::replace(&mut is_synced, true) {
                    self.engine().sync()?;
                }
                let dropped = self.while_placed(region, || {
                    self.engine().drop_range(&[family], &lower, &upper)
                });
                if !dropped? {
                    return Ok(());
                }
                self.engine().compact_range(family, &lower, &upper);
            }
        }
        Ok(())
    }

    /// Does something that was decided by a region, unless that has been taken away or cut since: rows that come in its place
    /// are not what was judged. False if it was not done.
    fn while_placed(
        &self,
        region: &Region,
        act: impl FnOnce() -> Result<(), EngineError>,
    ) -> Result<bool> {
        // Before rows are replaced their region is taken away, and that has to wait.
        let _alone = self.leadership().lock();
        let regions = self.regions();
        let placed = regions.with_id(region.id());
        let is_placed = placed.is_some_and(|placed| std::ptr::eq(&**placed, region));
        if is_placed {
            act()?;
        }
        Ok(is_placed)
    }

    /// What is not listed any more is not dropped by anybody. So other replicas get some time to see it: each drops its
    /// own rows.
    fn may_unlist(&self, region: &Region) -> bool {
        let mut listed_since = self.reclaimer().listed_since.lock();
        if !self.is_replicated() {
            return true;
        }
        let since = listed_since.entry(region.id()).or_insert_with(Instant::now);
        let is_long = since.elapsed() >= LISTED;
        if is_long {
            listed_since.remove(&region.id());
        }
        is_long
    }

    fn unlist_databases(self: &Arc<Self>, region: &Arc<Region>, dead: &[u64]) -> Result<()> {
        // Expiry rows lie among those of other databases, and finding them would mean to go through all
        // of these: the expirer drops them in their time.
        let mut txn = WriteTxn::new(self.clone(), region.clone(), Patience::Background);
        for index in dead {
            let listed = SystemKey::DeadIndex {
                region: region.id(),
                index: *index,
            };
            txn.delete(Family::Meta, &listed.encode());
        }
        self.commit_blocking(&mut txn)?;
        region.databases().forget(dead);
        let count = dead.len() as u64;
        self.reclaimer()
            .databases
            .fetch_add(count, Ordering::Relaxed);
        Ok(())
    }

    fn has_rows(&self, family: Family, lower: &[u8], upper: &[u8]) -> Result<bool> {
        let mut rows = self.engine().background_rows(family, lower, upper);
        Ok(rows.next()?.is_some())
    }

    /// The flushed databases of a region that are not dropped yet.
    pub(crate) fn dead_indexes(&self, region: &Region) -> Result<Vec<u64>> {
        let prefix = SystemKind::DeadIndex.region_prefix(region.id());
        let upper = row::prefix_end(&prefix).unwrap_or_default();
        let mut rows = self.engine().background_rows(Family::Meta, &prefix, &upper);
        let mut dead = Vec::new();
        while let Some((key, _)) = rows.next()? {
            if let SystemKey::DeadIndex { index, .. } = SystemKey::decode(key)? {
                dead.push(index);
            }
        }
        Ok(dead)
    }

    /// Drops large dead versions that someone has told of, and has compacted what was cut off from lists; false if
    /// there are none. Nothing is drained for it: what has died young never comes to RocksDB if it is left in peace.
    pub fn reclaim_noted(self: &Arc<Self>) -> Result<bool> {
        let regions = self.regions();
        let noted = self.reclaimer().ledger.take_large(AT_ONCE, self.engine());
        let mut ranges = Vec::new();
        let mut dropped = Orphans::default();
        for dead in &noted {
            let living = self.living(&regions, &dead.metadata_key, dead.version)?;
            let is_whole_version = matches!(living, Living::None);
            if is_whole_version && !dead.is_whole {
                // Something was cut off from it, which RocksDB knows of, and it has died since, which may be in no file yet.
                continue;
            }
            let before = ranges.len();
            for (lower, upper) in dead_bounds(&dead.metadata_key, dead.version, living) {
                for family in [Family::Data, Family::ZsetScore] {
                    if self.engine().has_stored(family, &lower, &upper)? {
                        ranges.push(DeadRange {
                            family,
                            lower: lower.clone(),
                            upper: upper.clone(),
                            is_whole_version,
                        });
                    }
                }
            }
            // What filters drop is counted there: they may have been quicker, and what is cut off is theirs.
            if is_whole_version && ranges.len() > before {
                dropped.add(dead.orphans);
            }
        }
        if !ranges.is_empty() {
            self.engine().sync_stored()?;
            self.drop_ranges(&regions, ranges)?;
            self.reclaimer().ledger.note_dropped(dropped);
        }
        Ok(!noted.is_empty())
    }

    /// Looks at the versions that RocksDB has of at most `limit` keys in the family, from `from` on, and drops what is dead
    /// if it is large; returns where to go on, or `None` at the end.
    pub fn reclaim_versions(
        self: &Arc<Self>,
        family: Family,
        from: &[u8],
        limit: usize,
    ) -> Result<Option<Vec<u8>>> {
        let regions = self.regions();
        let mut rows = self.engine().stored_rows(family, from, &[]);
        let mut dead = Vec::new();
        let mut place = None;
        let filters = self.engine().filter_counters();
        if from.is_empty() {
            let mut search = self.reclaimer().search(family);
            search.met = Orphans::default();
            search.began_at = self.reclaimer().ledger.read(filters);
        }
        let mut met = self.reclaimer().search(family).met;
        let mut turns = Turns::begin();
        for _ in 0..limit {
            turns.go_on();
            let Some((row_key, _)) = rows.next()? else {
                place = None;
                break;
            };
            let decoded = match family {
                Family::Data => RowKey::decode_data(row_key)?,
                _ => RowKey::decode_score(row_key)?,
            };
            let (RowKey::Data { version, .. }
            | RowKey::Score { version, .. }
            | RowKey::Count { version, .. }
            | RowKey::Field { version, .. }
            | RowKey::FieldTime { version, .. }) = decoded
            else {
                // A string of the old format, which has none.
                place = Some([row_key, &[0]].concat());
                continue;
            };
            let metadata_key = row::metadata_key_of(row_key)?.to_vec();
            let (_, end) = version_bounds(&metadata_key, version);
            let living = self.living(&regions, &metadata_key, version)?;
            for (lower, upper) in dead_bounds(&metadata_key, version, living) {
                rows.seek(&lower);
                let found = look(&mut rows, &upper)?;
                if found.rows < LARGE as u64 {
                    met.add(found);
                } else {
                    dead.push(DeadRange {
                        family,
                        lower,
                        upper,
                        is_whole_version: matches!(living, Living::None),
                    });
                }
            }
            rows.seek(&end);
            place = Some(end);
        }
        drop(rows);
        self.reclaimer().search(family).met = met;
        if place.is_none() {
            self.end_search(family, met);
        }
        if !dead.is_empty() {
            self.engine().sync()?;
            self.drop_ranges(&regions, dead)?;
        }
        Ok(place)
    }

    fn end_search(&self, family: Family, met: Orphans) {
        let reclaimer = self.reclaimer();
        reclaimer.search(family).last = Some((met, Instant::now()));
        // The family that is searched last completes the count.
        if family == Family::ZsetScore
            && let Some((all, _)) = reclaimer.orphans()
        {
            let began_at = reclaimer.search(Family::Data).began_at;
            reclaimer.ledger.note_counted(all, began_at);
        }
    }

    /// That they are dead has been made durable.
    fn drop_ranges(&self, regions: &Regions, mut ranges: Vec<DeadRange>) -> Result<()> {
        let engine = self.engine();
        let is_whole = |range: &&DeadRange| range.is_whole_version;
        for range in ranges.iter().filter(is_whole) {
            let Some(region) = regions.of_row(&range.lower) else {
                continue;
            };
            self.while_placed(region, || {
                engine.drop_range(&[range.family], &range.lower, &range.upper)
            })?;
        }
        let versions = ranges.iter().filter(is_whole).count() as u64;
        // A compaction costs something however little it has to do: those that are near each other share one.
        ranges.sort_by(|a, b| (a.family as usize, &a.lower).cmp(&(b.family as usize, &b.lower)));
        let are_near = |one: &DeadRange, next: &DeadRange| {
            one.family == next.family
                && engine.approximate_bytes(one.family, &one.upper, &next.lower) <= NEAR_BYTES
        };
        for some in ranges.chunk_by(are_near) {
            if let (Some(first), Some(last)) = (some.first(), some.last()) {
                engine.compact_range(first.family, &first.lower, &last.upper);
            }
        }
        self.reclaimer()
            .versions
            .fetch_add(versions, Ordering::Relaxed);
        Ok(())
    }

    /// Writes everything out if much has changed, and then nothing for a while.
    pub fn write_out_when_quiet(&self) -> Result<()> {
        let changes = self.counts().changes();
        let mut quiet = self.reclaimer().quiet.lock();
        if quiet.changes != changes || quiet.since.is_none() {
            quiet.changes = changes;
            quiet.since = Some(Instant::now());
        }
        let is_quiet = quiet.since.is_some_and(|since| since.elapsed() >= QUIET);
        if is_quiet && changes - quiet.written_out >= MANY_CHANGES {
            quiet.written_out = changes;
            self.engine().flush()?;
        }
        Ok(())
    }

    /// Which rows of this version anyone will ever see. The staging row is read first: it goes in the same
    /// commit in which the metadata comes. Rows of slots that this node has no region for are left alone: they may be
    /// about to be replaced.
    fn living(&self, regions: &Regions, metadata_key: &[u8], version: u64) -> Result<Living> {
        let Some(region) = regions.of_row(metadata_key) else {
            return Ok(Living::All);
        };
        let staging = SystemKey::Staging {
            region: region.id(),
            version,
        };
        let engine = self.engine();
        if engine
            .get_quietly(Family::Meta, &staging.encode())?
            .is_some()
        {
            return Ok(Living::All);
        }
        let Some(value) = engine.get_quietly(Family::Metadata, metadata_key)? else {
            return Ok(Living::None);
        };
        Ok(match Metadata::decode(&value)?.body {
            Body::List {
                version: live,
                head,
                tail,
                ..
            } if live == version => Living::Indexes { head, tail },
            Body::Stream {
                version: live,
                size,
                rest,
            } if live == version => Living::From(stream::Head::of(live, size, rest)?.floor),
            Body::Chunked { version: live, .. } | Body::Collection { version: live, .. }
                if live == version =>
            {
                Living::All
            }
            _ => Living::None,
        })
    }
}

fn version_bounds(metadata_key: &[u8], version: u64) -> (Vec<u8>, Vec<u8>) {
    let (mut lower, mut upper) = (Vec::new(), Vec::new());
    row::append_data(&mut lower, metadata_key, version, b"");
    row::append_data(&mut upper, metadata_key, version + 1, b"");
    (lower, upper)
}

/// Where rows of the version may lie that are dead.
fn dead_bounds(metadata_key: &[u8], version: u64, living: Living) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (lower, upper) = version_bounds(metadata_key, version);
    match living {
        Living::All => Vec::new(),
        Living::None => vec![(lower, upper)],
        Living::Indexes { head, tail } => {
            let [first, end] = [head, tail].map(|index| {
                let mut bound = Vec::new();
                row::append_data(&mut bound, metadata_key, version, &index_sub(index));
                bound
            });
            vec![(lower, first), (end, upper)]
        }
        Living::From(floor) => {
            let mut first = Vec::new();
            row::append_data(&mut first, metadata_key, version, &stream::entry_sub(floor));
            vec![(lower, first)]
        }
    }
}

/// The rows up to a bound; no more than are many.
fn look(rows: &mut Rows, upper: &[u8]) -> Result<Orphans> {
    let mut found = Orphans::default();
    while found.rows < LARGE as u64
        && let Some((key, value)) = rows.next()?
        && key < upper
    {
        found.versions = 1;
        found.rows += 1;
        found.bytes += (key.len() + value.len()) as u64;
    }
    Ok(found)
}
