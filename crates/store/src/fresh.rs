//! Effects too large for one batch.
//!
//! RENAME or a *STORE of millions of rows writes under a version that nothing refers to yet. Such rows
//! may go ahead in several commits, because nobody can see them: a `staging` row, committed with the
//! first of them, tells the filters to keep them. The last batch, the transaction's own, writes the
//! metadata that makes them visible and deletes the staging row, at once. Should that commit fail, or
//! the transaction be thrown away, the staging row is deleted by itself, and the rows are garbage like
//! any other. A crash in between leaves rows that the next start reclaims, and a leader that is lost some that the next
//! leader does.

use std::sync::Arc;

use cairn_encoding::system::SystemKey;
use cairn_engine::{Batch, EngineError, Family};

use crate::error::{Error, Result};
use crate::key::Key;
use crate::region::Lead;
use crate::store::Store;
use crate::txn::WriteTxn;

/// How much is kept before it is written ahead.
const SPILL_BYTES: usize = 4 * 1024 * 1024;

/// The rows of one new version.
pub struct Fresh {
    batch: Batch,
    metadata_key: Vec<u8>,
    version: u64,
    staging: Option<StagingRow>,
}

/// Deletes the staging row when the rows it announced will not be used. A transaction keeps it until its
/// commit has succeeded.
pub(crate) struct StagingRow {
    key: Vec<u8>,
    /// Where it was written; none when it is dealt with.
    written_through: Option<(Arc<Store>, Arc<Lead>)>,
}

impl Drop for StagingRow {
    fn drop(&mut self) {
        if let Some((store, lead)) = self.written_through.take() {
            let mut batch = Batch::new();
            batch.delete(Family::Meta, &self.key);
            if let Err(error) = lead.commit(&mut batch).wait() {
                tracing::warn!("abandoned rows stay for now: {error}");
                store.reclaimer().abandon(std::mem::take(&mut self.key));
            }
        }
    }
}

impl StagingRow {
    /// For a version of which rows are about to be written ahead in the transaction's region.
    fn new(txn: &WriteTxn, version: u64) -> Result<StagingRow> {
        let lead = txn.lead().ok_or(EngineError::NotLeading)?;
        let region = txn.region().id();
        Ok(StagingRow {
            key: SystemKey::Staging { region, version }.encode(),
            written_through: Some((txn.store().clone(), lead.clone())),
        })
    }

    /// The commit that deletes it has succeeded.
    pub(crate) fn release(mut self) {
        self.written_through = None;
    }
}

impl Fresh {
    /// For the rows of `version`, which the caller has just allocated for `key`.
    pub fn new(key: &Key, version: u64) -> Self {
        Fresh {
            batch: Batch::new(),
            metadata_key: key.metadata().to_vec(),
            version,
            staging: None,
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
        if self.staging.is_none() {
            let staging = StagingRow::new(txn, self.version)?;
            let announced = self.metadata_key.as_slice();
            self.batch.put(Family::Meta, &staging.key, announced);
            self.staging = Some(staging);
        }
        let lead = txn.lead().ok_or(EngineError::NotLeading)?;
        let outcome = lead.commit(&mut self.batch).wait();
        self.batch.begin_again();
        Ok(outcome?)
    }

    /// Hands the rest to the transaction, whose commit makes the version visible.
    pub fn finish(self, txn: &mut WriteTxn) {
        for (family, key, value) in self.batch.changes() {
            if let Some(value) = value {
                txn.put(family, key, value);
            }
        }
        if let Some(staging) = self.staging {
            txn.delete(Family::Meta, &staging.key);
            txn.keep_staged(staging);
        }
    }
}
