//! Compaction filters: how dead rows go without anyone looking for them.
//!
//! Deleting a key writes its metadata row only (see the store). The rows it leaves behind are dropped
//! here, when a compaction meets them. Since this is the one place where data disappears for good, it
//! follows three rules:
//!
//! - It decides from **durable** state only. When a compaction starts, a snapshot is taken and then the
//!   log is synced; metadata, dead databases and the watermark are read through that snapshot alone.
//!   A filter that believed unsynced metadata would drop rows that a power cut brings back to life.
//! - It never reads a clock. What has expired is decided by the watermark: everything due before it has
//!   been dealt with by the expirer. For the fields of a hash its metadata has a mark of its own: what says that fields
//!   expire before it is dropped. The fields themselves are deleted by the expirer, since each counts in the size.
//! - It keeps everything while the database is opening or closing, and everything in the slots of a region while a snapshot is
//!   put in its place.
//!
//! Databases, watermarks and what is dead are those of a region, so the region that holds a row's slot is found first
//! (`holders`). Rows of slots that no region of this node holds are dropped.
//!
//! Every row that a compaction reads was written before the snapshot, so a row whose metadata the
//! snapshot does not show is dead, unless a `staging` row announces that its metadata is still to come.

mod holders;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use cairn_encoding::row::{self, RowKey};
use cairn_encoding::system::{SystemKey, SystemKind};
use parking_lot::Mutex;
use rust_rocksdb::CompactionDecision;
use rust_rocksdb::compaction_filter::CompactionFilter;
use rust_rocksdb::compaction_filter_factory::{CompactionFilterContext, CompactionFilterFactory};

use crate::engine::{Database, DurableView};
use crate::error::Result;
use crate::family::Family;
use crate::liveness::{Fate, Liveness, Part};
use crate::survivors::LeftOut;
use holders::Holders;

/// Rows dropped since the start, by reason.
#[derive(Default, Debug)]
pub struct FilterCounters {
    pub dead_versions: AtomicU64,
    /// Elements that were popped from lists, entries that were trimmed from streams, and what said when fields of hashes
    /// expire that have expired.
    pub cut_off: AtomicU64,
    pub expired_metadata: AtomicU64,
    pub dead_databases: AtomicU64,
    /// Rows of slots that this node of a cluster no longer holds.
    pub foreign: AtomicU64,
    /// Keys and values of all these, before compression.
    pub dropped_bytes: AtomicU64,
    /// Those of dead versions and of what was cut off among them.
    pub orphaned_bytes: AtomicU64,
}

impl FilterCounters {
    /// Rows that were dead before RocksDB was given them count as if they had been dropped there.
    pub(crate) fn note_left_out(&self, rows: &LeftOut) {
        self.dead_versions
            .fetch_add(rows.dead_versions, Ordering::Relaxed);
        self.cut_off.fetch_add(rows.cut_off, Ordering::Relaxed);
        self.dropped_bytes.fetch_add(rows.bytes, Ordering::Relaxed);
        self.orphaned_bytes.fetch_add(rows.bytes, Ordering::Relaxed);
    }
}

/// Lets filters reach the database once it is open, and no longer when it closes.
#[derive(Default)]
pub(crate) struct Gate {
    database: Mutex<Weak<Database>>,
    closing: AtomicBool,
    stopped_writing: AtomicBool,
    counters: FilterCounters,
}

impl Gate {
    pub(crate) fn open(&self, database: &Arc<Database>) {
        *self.database.lock() = Arc::downgrade(database);
    }

    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
        *self.database.lock() = Weak::new();
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// RocksDB met an error in the background, and refuses writes since.
    pub(crate) fn stop_writing(&self) {
        self.stopped_writing.store(true, Ordering::SeqCst);
    }

    pub(crate) fn has_stopped_writing(&self) -> bool {
        self.stopped_writing.load(Ordering::SeqCst)
    }

    pub(crate) fn writes_again(&self) {
        self.stopped_writing.store(false, Ordering::SeqCst);
    }

    pub(crate) fn counters(&self) -> &FilterCounters {
        &self.counters
    }

    fn knowledge(&self) -> Option<Knowledge> {
        let database = self.database.lock().upgrade()?;
        match Knowledge::gather(database) {
            Ok(knowledge) => Some(knowledge),
            Err(error) => {
                tracing::warn!("a compaction keeps dead rows, for want of a durable view: {error}");
                None
            }
        }
    }
}

pub(crate) struct FilterFactory {
    family: Family,
    gate: Arc<Gate>,
}

impl FilterFactory {
    pub(crate) fn new(family: Family, gate: Arc<Gate>) -> Self {
        FilterFactory { family, gate }
    }
}

impl CompactionFilterFactory for FilterFactory {
    type Filter = Filter;

    fn create(&mut self, _: CompactionFilterContext) -> Filter {
        Filter {
            family: self.family,
            gate: self.gate.clone(),
            knowledge: self.gate.knowledge(),
        }
    }

    fn name(&self) -> &CStr {
        c"cairn.garbage"
    }
}

/// What one compaction knows: read once, used until it ends, then forgotten.
struct Knowledge {
    view: DurableView,
    holders: Holders,
    /// Of all regions: while one is split, what it has staged may be for a key of the other.
    staged_versions: HashSet<u64>,
    /// The metadata of the key whose rows are passing by.
    last: Option<(Vec<u8>, Liveness)>,
}

impl Knowledge {
    fn gather(database: Arc<Database>) -> Result<Self> {
        let view = DurableView::take(database)?;
        let holders = Holders::read(&view)?;
        let mut staged_versions = HashSet::new();
        for (key, _) in view.scan(Family::Meta, &SystemKind::Staging.prefix())? {
            if let SystemKey::Staging { version, .. } = SystemKey::decode(&key)? {
                staged_versions.insert(version);
            }
        }
        Ok(Knowledge {
            view,
            holders,
            staged_versions,
            last: None,
        })
    }

    fn liveness(&mut self, metadata_key: &[u8]) -> Result<Liveness> {
        if let Some((key, liveness)) = &self.last
            && key == metadata_key
        {
            return Ok(*liveness);
        }
        let metadata = self.view.get(Family::Metadata, metadata_key)?;
        let liveness = Liveness::of(metadata.as_deref())?;
        self.last = Some((metadata_key.to_vec(), liveness));
        Ok(liveness)
    }
}

pub(crate) struct Filter {
    family: Family,
    gate: Arc<Gate>,
    /// Absent while opening and closing: then everything is kept.
    knowledge: Option<Knowledge>,
}

/// Why a row may go.
enum Verdict {
    Keep,
    DeadVersion,
    CutOff,
    Expired,
    DeadDatabase,
    Foreign,
}

impl Filter {
    fn judge(&mut self, key: &[u8], value: &[u8]) -> Result<Verdict> {
        let Some(knowledge) = &mut self.knowledge else {
            return Ok(Verdict::Keep);
        };
        let row = match self.family {
            Family::Metadata => RowKey::decode_metadata(key)?,
            Family::Data => RowKey::decode_data(key)?,
            Family::ZsetScore => RowKey::decode_score(key)?,
            Family::Expiry => RowKey::decode_expiry(key)?,
            Family::Meta => return Ok(Verdict::Keep),
        };
        let prefix = match self.family {
            Family::Expiry => row::metadata_key_of_expiry(key)?,
            _ => key,
        };
        let slot = row::slot_of(prefix).unwrap_or_default();
        if knowledge.holders.is_unsettled(slot) {
            return Ok(Verdict::Keep);
        }
        let Some(region) = knowledge.holders.of(slot) else {
            return Ok(Verdict::Foreign);
        };
        if region.dead_indexes.contains(&row.index_and_key().0) {
            return Ok(Verdict::DeadDatabase);
        }
        match row {
            RowKey::Metadata { .. } => {
                let expire_ms = cairn_encoding::metadata::expire_of(value)?;
                let is_due = expire_ms != 0 && expire_ms < region.watermark_ms;
                // This need not be the newest row of the key. An older one is kept although it is due:
                // a filter of the key's rows may be looking at it through its view at this moment.
                let is_newest = || -> Result<bool> {
                    let newest = knowledge.view.get(Family::Metadata, key)?;
                    Ok(newest.as_deref() == Some(value))
                };
                Ok(if is_due && is_newest()? {
                    Verdict::Expired
                } else {
                    Verdict::Keep
                })
            }
            // Legacy strings have no metadata; expiry rows are the expirer's.
            _ => match Part::of(&row, value)? {
                Some((version, part)) => {
                    judge_version(knowledge, row::metadata_key_of(key)?, version, part)
                }
                None => Ok(Verdict::Keep),
            },
        }
    }
}

fn judge_version(
    knowledge: &mut Knowledge,
    metadata_key: &[u8],
    version: u64,
    part: Part<'_>,
) -> Result<Verdict> {
    if knowledge.staged_versions.contains(&version) {
        return Ok(Verdict::Keep);
    }
    Ok(
        match knowledge.liveness(metadata_key)?.judge(version, part) {
            Fate::Lives => Verdict::Keep,
            Fate::DeadVersion => Verdict::DeadVersion,
            Fate::CutOff => Verdict::CutOff,
        },
    )
}

impl CompactionFilter for Filter {
    fn filter(&mut self, _level: u32, key: &[u8], value: &[u8]) -> CompactionDecision {
        if self.gate.is_closing() {
            return CompactionDecision::Keep;
        }
        // What cannot be understood is kept: a filter is not the place to judge damage.
        let verdict = self.judge(key, value).unwrap_or(Verdict::Keep);
        let counters = self.gate.counters();
        let bytes = (key.len() + value.len()) as u64;
        if matches!(verdict, Verdict::DeadVersion | Verdict::CutOff) {
            counters.orphaned_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        let counter = match verdict {
            Verdict::Keep => return CompactionDecision::Keep,
            Verdict::DeadVersion => &counters.dead_versions,
            Verdict::CutOff => &counters.cut_off,
            Verdict::Expired => &counters.expired_metadata,
            Verdict::DeadDatabase => &counters.dead_databases,
            Verdict::Foreign => &counters.foreign,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        counters.dropped_bytes.fetch_add(bytes, Ordering::Relaxed);
        CompactionDecision::Remove
    }

    fn name(&self) -> &CStr {
        c"cairn.garbage"
    }
}
