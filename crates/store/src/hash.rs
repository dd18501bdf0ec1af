//! Hashes: one row per field, `prefix | version | field → value`.

#[cfg(test)]
mod tests;

use cairn_encoding::metadata::CollectionKind;
use cairn_encoding::row::RowBytes;
use cairn_engine::{Direction, Family, Rows};

use crate::collection::Collection;
use crate::error::Result;
use crate::txn::{ReadTxn, Row, WriteTxn};

pub struct Hash(Collection);

impl Hash {
    pub fn open(txn: &ReadTxn, name: &[u8]) -> Result<Hash> {
        Collection::open(txn, name, CollectionKind::Hash).map(Hash)
    }

    pub fn exists(&self) -> bool {
        self.0.exists()
    }

    pub fn len(&self) -> u64 {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn collection(&self) -> &Collection {
        &self.0
    }

    pub fn get<'t>(&self, txn: &'t ReadTxn, field: &[u8]) -> Result<Option<Row<'t>>> {
        self.0.get(txn, field)
    }

    pub fn contains(&self, txn: &ReadTxn, field: &[u8]) -> Result<bool> {
        self.0.contains(txn, field)
    }

    /// Sets a field; true if it is new.
    pub fn set(&mut self, txn: &mut WriteTxn, field: &[u8], value: &[u8]) -> Result<bool> {
        self.0.ensure_version(txn);
        let row_key = self.0.row_key(field);
        let is_new = self.0.get_row(txn, &row_key)?.is_none();
        self.put(txn, &row_key, value, is_new)?;
        Ok(is_new)
    }

    /// Sets a field unless it is there; true if it was not.
    pub fn insert(&mut self, txn: &mut WriteTxn, field: &[u8], value: &[u8]) -> Result<bool> {
        self.0.ensure_version(txn);
        let row_key = self.0.row_key(field);
        let is_new = self.0.get_row(txn, &row_key)?.is_none();
        if is_new {
            self.put(txn, &row_key, value, is_new)?;
        }
        Ok(is_new)
    }

    /// Sets a field to what `change` makes of the value it has, if it has one.
    pub fn update(
        &mut self,
        txn: &mut WriteTxn,
        field: &[u8],
        change: impl FnOnce(Option<&[u8]>) -> Result<Vec<u8>>,
    ) -> Result<()> {
        self.0.ensure_version(txn);
        let row_key = self.0.row_key(field);
        let row = self.0.get_row(txn, &row_key)?;
        let is_new = row.is_none();
        let value = change(row.as_deref())?;
        drop(row);
        self.put(txn, &row_key, value, is_new)
    }

    fn put(
        &mut self,
        txn: &mut WriteTxn,
        row_key: &[u8],
        value: impl AsRef<[u8]>,
        is_new: bool,
    ) -> Result<()> {
        txn.put(Family::Data, row_key, value);
        if is_new {
            self.0.count_in(txn, self.0.sub_of(row_key))?;
            self.0.grow(1);
        }
        Ok(())
    }

    /// Deletes a field; true if it was there.
    pub fn remove(&mut self, txn: &mut WriteTxn, field: &[u8]) -> Result<bool> {
        if self.0.is_empty() {
            return Ok(false);
        }
        let row_key = self.0.row_key(field);
        if self.0.get_row(txn, &row_key)?.is_none() {
            return Ok(false);
        }
        txn.delete(Family::Data, &row_key);
        self.0.count_out(txn, field)?;
        self.0.shrink(1);
        Ok(true)
    }

    /// All fields in byte order; [`Hash::field_of`] reads a row's key.
    pub fn rows(&self, txn: &ReadTxn) -> Rows {
        self.0.rows(txn, Direction::Forward)
    }

    pub fn field_of<'r>(&self, row_key: &'r [u8]) -> &'r [u8] {
        self.0.sub_of(row_key)
    }

    /// The values of several fields, to be read one after the other.
    pub fn values(&self, txn: &ReadTxn, fields: &[&[u8]]) -> Values {
        let row_keys: Vec<RowBytes> = fields.iter().map(|field| self.0.row_key(field)).collect();
        Values {
            rows: self.rows(txn),
            row_keys: row_keys.into_iter(),
        }
    }

    /// Writes the metadata: to be called after the last change.
    pub fn save(self, txn: &mut WriteTxn) {
        self.0.save(txn);
    }
}

/// The values of some fields as they were when this was opened: a walk that jumps from one to the next,
/// and needs neither the transaction nor room for more than one of them.
pub struct Values {
    rows: Rows,
    row_keys: std::vec::IntoIter<RowBytes>,
}

impl Values {
    /// How many fields are left.
    pub fn len(&self) -> usize {
        self.row_keys.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The next field's value, `Some(None)` if it is absent; `None` after the last.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Option<&[u8]>>> {
        let Some(wanted) = self.row_keys.next() else {
            return Ok(None);
        };
        self.rows.seek(&wanted);
        Ok(Some(match self.rows.next()? {
            Some((row_key, value)) if row_key == &*wanted => Some(value),
            _ => None,
        }))
    }
}
