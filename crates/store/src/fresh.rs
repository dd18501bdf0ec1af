//! Effects too large for one batch.
//!
//! RENAME or a *STORE of millions of rows writes under a version that nothing refers to yet. Such rows
//! may go ahead in several commits, because nobody can see them: a `staging` row, committed with the
//! first of them, tells the filters to keep them. The last batch, the transaction's own, writes the
//! metadata that makes them visible and deletes the staging row, at once. Should that commit fail, or
//! the transaction be thrown away, the staging row is deleted by itself, and the rows are garbage like
//! any other. A crash in between leaves rows that the next start reclaims.

use cairn_encoding::system::SystemKey;
use cairn_engine::{Batch, Family, LOCAL_REGION};

use crate::error::{Error, Result};
use crate::key::Key;
use crate::store::Store;
use crate::txn::WriteTxn;

/// How much is kept before it is written ahead.
const SPILL_BYTES: usize = 4 * 1024 * 1024;

/// The rows of one new version.
pub struct Fresh {
    batch: Batch,
    staging: StagingRow,
}

/// Deletes the staging row when the rows it announced will not be used. A transaction keeps it until its
/// commit has succeeded.
pub(crate) struct StagingRow {
    key: Vec<u8>,
    value: Vec<u8>,
    written_through: Option<std::sync::Arc<Store>>,
}

impl Drop for StagingRow {
    fn drop(&mut self) {
        if let Some(store) = self.written_through.take() {
            let mut batch = Batch::new();
            batch.delete(Family::Meta, &self.key);
            if let Err(error) = store.committer().commit(batch).wait() {
                tracing::warn!("abandoned rows stay for now: {error}");
                store.reclaimer().abandon(std::mem::take(&mut self.key));
            }
        }
    }
}

impl StagingRow {
    /// The commit that deletes it has succeeded.
    pub(crate) fn release(mut self) {
        self.written_through = None;
    }
}

impl Fresh {
    /// For the rows of `version`, which the caller has just allocated for `key`.
    pub fn new(key: &Key, version: u64) -> Self {
        let staging = SystemKey::Staging {
            region: LOCAL_REGION,
            version,
        };
        Fresh {
            batch: Batch::new(),
            staging: StagingRow {
                key: staging.encode(),
                value: key.metadata().to_vec(),
                written_through: None,
            },
        }
    }

    pub fn put(
        &mut self,
        txn: &WriteTxn,
        family: Family,
        key: &[u8],
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        // Also where this serves to take something out: what stays would be written a second time.
        txn.store().check_room()?;
        self.batch.put(family, key, value);
        if self.batch.bytes() < SPILL_BYTES {
            return Ok(());
        }
        if !txn.is_patient() {
            return Err(Error::TooLong);
        }
        if self.staging.written_through.is_none() {
            let StagingRow { key, value, .. } = &self.staging;
            self.batch.put(Family::Meta, key, value.as_slice());
            self.staging.written_through = Some(txn.store().clone());
        }
        let batch = std::mem::take(&mut self.batch);
        Ok(txn.store().committer().commit(batch).wait()?)
    }

    /// Hands the rest to the transaction, whose commit makes the version visible.
    pub fn finish(self, txn: &mut WriteTxn) {
        for (family, key, value) in self.batch.changes() {
            if let Some(value) = value {
                txn.put(family, key, value);
            }
        }
        if self.staging.written_through.is_some() {
            txn.delete(Family::Meta, &self.staging.key);
            txn.keep_staged(self.staging);
        }
    }
}
