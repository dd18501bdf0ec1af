//! The reclaimer: gives back what no compaction would meet soon.
//!
//! Dead rows cost nothing but space, and compaction filters drop those they meet. What they would not
//! meet for long is found here: databases that were flushed, which go as a whole, and large dead
//! versions of keys, found by looking at one row per version. Everything is made durable before anything
//! is dropped: a power cut must not bring back a key whose rows are gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cairn_encoding::metadata::Metadata;
use cairn_encoding::row::{self, RowKey};
use cairn_encoding::system::{SystemKey, SystemKind};
use cairn_engine::{Family, LOCAL_REGION};
use parking_lot::{Mutex, MutexGuard};

use crate::error::Result;
use crate::store::Store;
use crate::txn::{Patience, WriteTxn};

/// What was reclaimed since the start.
#[derive(Default)]
pub struct Reclaimer {
    databases: AtomicU64,
    versions: AtomicU64,
    /// Staging rows that could not be deleted when they should have been.
    abandoned: Mutex<Vec<Vec<u8>>>,
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

/// What a search through a family has met, and left to the filters, so far; and the last one in all.
#[derive(Default)]
struct Search {
    met: Orphans,
    last: Option<(Orphans, Instant)>,
}

/// Garbage that is known of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Flushed databases that have not been dropped yet, and about how many bytes of files they take.
    pub dead_databases: u64,
    pub dead_database_bytes: u64,
    /// For how long the key that is due first has been so: how far behind the expirer is.
    pub expiry_lag_ms: u64,
    /// What the last search for dead versions found and left to the filters, and how long ago it ended;
    /// `None` before the first.
    pub orphans: Option<(Orphans, Duration)>,
}

impl Reclaimer {
    pub(crate) fn abandon(&self, staging_row: Vec<u8>) {
        self.abandoned.lock().push(staging_row);
    }

    fn search(&self, family: Family) -> MutexGuard<'_, Search> {
        self.searches[usize::from(family != Family::Data)].lock()
    }

    fn orphans(&self) -> Option<(Orphans, Duration)> {
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
const LARGE: usize = 512;

impl Store {
    /// Deletes staging rows that were left behind: what they announced becomes garbage.
    pub fn reclaim_abandoned(self: &Arc<Self>) -> Result<()> {
        let abandoned = self.reclaimer().abandoned.lock().clone();
        if abandoned.is_empty() {
            return Ok(());
        }
        let mut txn = WriteTxn::new(self.clone(), Patience::Background);
        for key in &abandoned {
            txn.delete(Family::Meta, key);
        }
        self.commit_blocking(&mut txn)?;
        // Others may have been added meanwhile, behind these.
        self.reclaimer().abandoned.lock().drain(..abandoned.len());
        Ok(())
    }

    /// Drops the rows of flushed databases.
    pub fn reclaim_databases(self: &Arc<Self>) -> Result<()> {
        let dead = self.dead_indexes()?;
        if dead.is_empty() {
            return Ok(());
        }
        self.engine().sync()?;
        for index in &dead {
            let (mut lower, mut upper) = (Vec::new(), Vec::new());
            row::index_prefix(&mut lower, *index);
            row::index_prefix(&mut upper, *index + 1);
            for family in Family::KEYED {
                if self.has_rows(family, &lower, &upper)? {
                    self.engine().drop_range(&[family], &lower, &upper)?;
                }
            }
        }
        // Expiry rows lie among those of other databases, and finding them would mean to go through all
        // of these: the expirer drops them in their time.
        let mut txn = WriteTxn::new(self.clone(), Patience::Background);
        for index in &dead {
            let listed = SystemKey::DeadIndex {
                region: LOCAL_REGION,
                index: *index,
            };
            txn.delete(Family::Meta, &listed.encode());
        }
        self.commit_blocking(&mut txn)?;
        let count = dead.len() as u64;
        self.reclaimer()
            .databases
            .fetch_add(count, Ordering::Relaxed);
        Ok(())
    }

    /// The garbage that is known of, without looking for any.
    pub fn backlog(&self) -> Result<Backlog> {
        let dead = self.dead_indexes()?;
        let mut bytes = 0;
        for index in &dead {
            let (mut lower, mut upper) = (Vec::new(), Vec::new());
            row::index_prefix(&mut lower, *index);
            row::index_prefix(&mut upper, *index + 1);
            let engine = self.engine();
            let families = Family::KEYED.into_iter();
            bytes += families
                .map(|family| engine.approximate_bytes(family, &lower, &upper))
                .sum::<u64>();
        }
        Ok(Backlog {
            dead_databases: dead.len() as u64,
            dead_database_bytes: bytes,
            expiry_lag_ms: self.expiry_lag_ms()?,
            orphans: self.reclaimer().orphans(),
        })
    }

    fn has_rows(&self, family: Family, lower: &[u8], upper: &[u8]) -> Result<bool> {
        let mut rows = self.engine().background_rows(family, lower, upper);
        Ok(rows.next()?.is_some())
    }

    fn dead_indexes(&self) -> Result<Vec<u64>> {
        let prefix = SystemKind::DeadIndex.prefix();
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

    /// Looks at the versions of at most `limit` keys in the family, from `from` on, and drops large dead
    /// ones; returns where to go on, or `None` at the end.
    pub fn reclaim_versions(
        self: &Arc<Self>,
        family: Family,
        from: &[u8],
        limit: usize,
    ) -> Result<Option<Vec<u8>>> {
        let mut rows = self.engine().background_rows(family, from, &[]);
        let mut dead = Vec::new();
        let mut place = None;
        let mut met = if from.is_empty() {
            Orphans::default()
        } else {
            self.reclaimer().search(family).met
        };
        for _ in 0..limit {
            let Some((row_key, value)) = rows.next()? else {
                place = None;
                break;
            };
            let version = match family {
                Family::Data => RowKey::decode_data(row_key)?,
                _ => RowKey::decode_score(row_key)?,
            };
            let metadata_key = row::metadata_key_of(row_key)?.to_vec();
            let (RowKey::Data { version, .. }
            | RowKey::Score { version, .. }
            | RowKey::Count { version, .. }) = version
            else {
                // A string of the old format, which has none.
                place = Some([row_key, &[0]].concat());
                continue;
            };
            let mut bytes = row_key.len() + value.len();
            let (mut lower, mut upper) = (Vec::new(), Vec::new());
            row::append_data(&mut lower, &metadata_key, version, b"");
            row::append_data(&mut upper, &metadata_key, version + 1, b"");
            if self.is_dead(&metadata_key, version)? {
                let mut count = 1;
                while count < LARGE
                    && let Some((key, value)) = rows.next()?
                    && key < upper.as_slice()
                {
                    count += 1;
                    bytes += key.len() + value.len();
                }
                if count == LARGE {
                    dead.push((lower, upper.clone()));
                } else {
                    met.versions += 1;
                    met.rows += count as u64;
                    met.bytes += bytes as u64;
                }
            }
            rows.seek(&upper);
            place = Some(upper);
        }
        drop(rows);
        let mut search = self.reclaimer().search(family);
        search.met = met;
        if place.is_none() {
            search.last = Some((met, Instant::now()));
        }
        drop(search);
        if !dead.is_empty() {
            self.engine().sync()?;
            for (lower, upper) in &dead {
                self.engine().drop_range(&[family], lower, upper)?;
            }
            let count = dead.len() as u64;
            self.reclaimer()
                .versions
                .fetch_add(count, Ordering::Relaxed);
        }
        Ok(place)
    }

    /// Whether no one will ever see this version. The staging row is read first: it goes in the same
    /// commit in which the metadata comes.
    fn is_dead(&self, metadata_key: &[u8], version: u64) -> Result<bool> {
        let staging = SystemKey::Staging {
            region: LOCAL_REGION,
            version,
        };
        let engine = self.engine();
        if engine
            .get_quietly(Family::Meta, &staging.encode())?
            .is_some()
        {
            return Ok(false);
        }
        match engine.get_quietly(Family::Metadata, metadata_key)? {
            Some(value) => Ok(Metadata::decode(&value)?.version() != Some(version)),
            None => Ok(true),
        }
    }
}
