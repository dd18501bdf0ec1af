//! Strings of the old format: moved to the new one.
//!
//! Reads fall back to them and writes move them (see `txn`); what nobody writes is moved here, in the
//! background. When none is left, the fact is recorded, and from then on nobody asks any more. Only a single machine can
//! have any: they are never replicated.

use std::sync::Arc;

use cairn_encoding::row::{self, RowKey};
use cairn_encoding::system::SystemKey;
use cairn_engine::Family;

use crate::error::Result;
use crate::key::Key;
use crate::latch::{Mode, Request};
use crate::store::Store;
use crate::string::{self, Expiry};
use crate::txn::{Patience, WriteTxn};

impl Store {
    /// Moves the next old-format strings at or after `from`, at most `limit` of them; returns where to
    /// go on, or `None` when all are moved.
    pub fn move_legacy(self: &Arc<Self>, from: &[u8], limit: usize) -> Result<Option<Vec<u8>>> {
        let found = self.find_legacy(from, limit)?;
        for (index, name) in &found {
            self.move_one(*index, name)?;
        }
        if found.len() == limit
            && let Some((index, name)) = found.last()
        {
            return Ok(Some(Key::new(*index, name).legacy().to_vec()));
        }
        if from.is_empty() {
            self.record_no_legacy()?;
            return Ok(None);
        }
        // Once more from the start: only a pass that began at the beginning proves that none is left.
        Ok(Some(Vec::new()))
    }

    fn find_legacy(&self, from: &[u8], limit: usize) -> Result<Vec<(u64, Vec<u8>)>> {
        let mut rows = self.engine().background_rows(Family::Data, from, &[]);
        let mut found = Vec::new();
        while found.len() < limit
            && let Some((row_key, _)) = rows.next()?
        {
            match RowKey::decode_data(row_key)? {
                RowKey::Legacy { index, key } => found.push((index, key.to_vec())),
                _ => {
                    // Past all versions of this key, to where its old-format row would be.
                    let mut next = Vec::new();
                    row::append_legacy(&mut next, row::metadata_key_of(row_key)?);
                    if row_key < next.as_slice() {
                        rows.seek(&next);
                    }
                }
            }
        }
        Ok(found)
    }

    fn move_one(self: &Arc<Self>, index: u64, name: &[u8]) -> Result<()> {
        let mut request = Request::default();
        request.add(name, Mode::Exclusive);
        let _held = self.latches().acquire_blocking(request);
        let mut txn = WriteTxn::new(self.clone(), self.home().clone(), Patience::Background);
        let key = Key::new(index, name);
        // A database that is not listed as dead may be one beyond `--databases`, to be opened again.
        let region = txn.region().id();
        let dead = SystemKey::DeadIndex { region, index };
        let is_dead = txn.has_row(Family::Meta, &dead.encode())?;
        let found = txn.find(&key)?;
        let moves = found.filter(|found| found.is_legacy && !is_dead);
        match moves.map(|found| (found.inline().to_vec(), found.expire_ms)) {
            Some((value, expire_ms)) => {
                string::put(&mut txn, &key, &value, Expiry::At(expire_ms))?;
            }
            // Expired, flushed, or long since written in the new form.
            None => txn.delete(Family::Data, &key.legacy()),
        }
        self.commit_blocking(&mut txn)
    }

    fn record_no_legacy(self: &Arc<Self>) -> Result<()> {
        // Alone, so that no transaction under way relies on the old answer.
        let _held = self.latches().acquire_blocking(Request::everything());
        let mut txn = WriteTxn::new(self.clone(), self.home().clone(), Patience::Background);
        let region = txn.region().id();
        let key = SystemKey::LegacyMayExist { region };
        txn.delete(Family::Meta, &key.encode());
        self.commit_blocking(&mut txn)?;
        self.legacy_is_gone();
        Ok(())
    }
}

/// Writes an old-format string, as an earlier program would have. For tests and imports.
pub fn write_legacy(txn: &mut WriteTxn, name: &[u8], payload: &[u8], expire_ms: u64) {
    let key = txn.key(name);
    let value = cairn_encoding::legacy::LegacyString { expire_ms, payload }.encode();
    txn.put(Family::Data, &key.legacy(), value);
    let region = txn.region().id();
    let flag = SystemKey::LegacyMayExist { region };
    txn.put(Family::Meta, &flag.encode(), []);
}
