//! What garbage there is: what has expired and is still there, what is dead and takes room.
//!
//! Nothing here looks for garbage. What is due stands at the front of the expiry index, and is counted as far as that
//! is quick; dead rows are what transactions have told of (see [`crate::remains`]) less what has been removed.

use std::sync::Arc;
use std::time::Duration;

use cairn_encoding::metadata::has_expired;
use cairn_engine::Family;

use crate::count::KeyCount;
use crate::error::Result;
use crate::expirer::DueRow;
use crate::reclaimer::Orphans;
use crate::region::Region;
use crate::store::Store;
use crate::txn::{Found, Row};

/// Keys that have expired and are not deleted yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// At most [`MOST_COUNTED`]. Exact if they are few, and otherwise an estimate: an index row may be about a key that
    /// has changed since.
    pub keys: u64,
    /// For how long the first of them has been due.
    pub lag_ms: u64,
}

/// How many index rows are counted, and how many of these are compared with their keys.
const MOST_COUNTED: usize = 10_000;
const COMPARED: usize = 1000;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Garbage {
    /// All keys that live.
    pub keys: KeyCount,
    pub due: Due,
    /// Rows of dead versions, and elements cut off from lists: an estimate.
    pub orphaned_rows: u64,
    pub orphaned_bytes: u64,
    /// Large dead versions that are known, and wait to be dropped.
    pub waiting_versions: u64,
    /// Flushed databases that have not been dropped yet, and about how many bytes of files they take.
    pub dead_databases: u64,
    pub dead_database_bytes: u64,
    /// What the last search for dead rows found and left to the filters, and how long ago it ended; `None` before the
    /// first.
    pub last_search: Option<(Orphans, Duration)>,
    pub sst_bytes: u64,
}

impl Garbage {
    /// How many of all keys have expired and are still there.
    pub fn expired_share(&self) -> f64 {
        share(self.due.keys, self.keys.keys + self.due.keys)
    }

    /// Which part of the files is garbage, as far as is known. What is dead in memory only counts as if it were there.
    pub fn byte_share(&self) -> f64 {
        share(
            self.orphaned_bytes + self.dead_database_bytes,
            self.sst_bytes,
        )
    }
}

fn share(part: u64, whole: u64) -> f64 {
    (part as f64 / whole.max(1) as f64).min(1.0)
}

impl Store {
    pub fn garbage(self: &Arc<Self>) -> Result<Garbage> {
        let mut keys = KeyCount::default();
        for database in 0..self.database_count() {
            keys.add(self.count_keys(database)?);
        }
        let (mut dead_databases, mut dead_database_bytes) = (0, 0);
        for region in self.regions().all() {
            for index in self.dead_indexes(region)? {
                dead_databases += 1;
                dead_database_bytes += self.bytes_of_database(region, index);
            }
        }
        let ledger = self.reclaimer().ledger();
        let (orphaned_rows, orphaned_bytes) = ledger.estimate(self.engine().filter_counters());
        Ok(Garbage {
            keys,
            due: self.due()?,
            orphaned_rows,
            orphaned_bytes,
            waiting_versions: ledger.waiting(),
            dead_databases,
            dead_database_bytes,
            last_search: self.reclaimer().orphans(),
            sst_bytes: self.engine().statistics().sst_bytes,
        })
    }

    fn bytes_of_database(&self, region: &Region, index: u64) -> u64 {
        let (lower, upper) = region.bounds(index);
        let families = Family::KEYED.into_iter();
        families
            .map(|family| self.engine().approximate_bytes(family, &lower, &upper))
            .sum()
    }

    fn due(&self) -> Result<Due> {
        let now_ms = self.clock().now_ms();
        let mut walk = self.left_due(now_ms);
        let mut rows = Vec::new();
        while rows.len() < MOST_COUNTED
            && let Some((row, _)) = walk.next()?
        {
            rows.push(row.to_vec());
        }
        let mut due = Due::default();
        let (mut compared, mut expired) = (0, 0);
        for row in rows.iter().take(COMPARED) {
            let Some(DueRow {
                at_ms,
                key,
                version,
            }) = DueRow::decode(row)
            else {
                continue;
            };
            compared += 1;
            let stored = self
                .engine()
                .get_quietly(Family::Metadata, key.metadata())?;
            let Some(stored) = stored else {
                continue;
            };
            let stamp = Found::of_metadata(Row::Stored(stored))?.stamp();
            let is_current = match version {
                None => stamp.expire_ms == at_ms,
                Some(version) => stamp.fields_expiry() == Some((at_ms, version)),
            };
            if is_current && has_expired(at_ms, now_ms) {
                expired += u64::from(version.is_none());
                due.lag_ms = due.lag_ms.max(now_ms.saturating_sub(at_ms));
            }
        }
        due.keys = match rows.len() > COMPARED {
            true => rows.len() as u64 * expired / compared.max(1),
            false => expired,
        };
        Ok(due)
    }
}
