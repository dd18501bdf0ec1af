//! The reclaimer: gives back what no compaction would meet soon.
//!
//! Dead rows cost nothing but space, and compaction filters drop those they meet. What they would not
//! meet for long is found here: databases that were flushed, which go as a whole, and large dead
//! versions of keys, found by looking at one row per version. Everything is made durable before anything
//! is dropped: a power cut must not bring back a key whose rows are gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cairn_encoding::metadata::Metadata;
use cairn_encoding::row::{self, RowKey};
use cairn_encoding::system::{SystemKey, SystemKind};
use cairn_engine::{Family, LOCAL_REGION};
use parking_lot::Mutex;

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
}

impl Reclaimer {
    pub(crate) fn abandon(&self, staging_row: Vec<u8>) {
        self.abandoned.lock().push(staging_row);
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
        let mut txn = WriteTxn::new(self.clone(), Patience::Long);
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
        let mut txn = WriteTxn::new(self.clone(), Patience::Long);
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
        for _ in 0..limit {
            let Some((row_key, _)) = rows.next()? else {
                place = None;
                break;
            };
            let version = match family {
                Family::Data => RowKey::decode_data(row_key)?,
                _ => RowKey::decode_score(row_key)?,
            };
            let metadata_key = row::metadata_key_of(row_key)?.to_vec();
            let (RowKey::Data { version, .. } | RowKey::Score { version, .. }) = version else {
                // A string of the old format, which has none.
                place = Some([row_key, &[0]].concat());
                continue;
            };
            let (mut lower, mut upper) = (Vec::new(), Vec::new());
            row::append_data(&mut lower, &metadata_key, version, b"");
            row::append_data(&mut upper, &metadata_key, version + 1, b"");
            if self.is_dead(&metadata_key, version)? {
                let mut count = 1;
                while count < LARGE
                    && let Some((key, _)) = rows.next()?
                    && key < upper.as_slice()
                {
                    count += 1;
                }
                if count == LARGE {
                    dead.push((lower, upper.clone()));
                }
            }
            rows.seek(&upper);
            place = Some(upper);
        }
        drop(rows);
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
        if self
            .engine()
            .get(Family::Meta, &staging.encode())?
            .is_some()
        {
            return Ok(false);
        }
        match self.engine().get(Family::Metadata, metadata_key)? {
            Some(value) => Ok(Metadata::decode(&value)?.version() != Some(version)),
            None => Ok(true),
        }
    }
}
