//! Hashes: one row per field, `prefix | version | field → value`.
//!
//! Fields may expire ([`expiry`]). One that is due is nobody's to see, from that moment on; its row stays, and counts in
//! the size, until the expirer has come by.

mod due;
mod expiry;
mod pick;
#[cfg(test)]
mod tests;

pub(crate) use due::{DueWalk, Removed};
use expiry::Times;

use cairn_encoding::metadata::CollectionKind;
use cairn_encoding::row::RowBytes;
use cairn_engine::{Direction, Family, Rows};

use crate::collection::Collection;
use crate::error::Result;
use crate::live::LiveRows;
use crate::txn::{ReadTxn, Row, WriteTxn};

pub struct Hash(Collection);

impl Hash {
    #[inline]
    pub fn open(txn: &ReadTxn, name: &[u8]) -> Result<Hash> {
        Collection::open(txn, name, CollectionKind::Hash).map(Hash)
    }

    pub fn exists(&self) -> bool {
        self.0.exists()
    }

    /// How many fields there are, without those that are due.
    pub fn len(&self, txn: &ReadTxn) -> Result<u64> {
        self.0.live_len(txn)
    }

    /// Whether nothing is left of it, not even what is due.
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

    /// Sets a field, which then never expires; true if it is new.
    pub fn set(&mut self, txn: &mut WriteTxn, field: &[u8], value: &[u8]) -> Result<bool> {
        self.0.ensure_version(txn);
        let row_key = self.0.row_key(field);
        let is_new = self.0.get_row(txn, &row_key)?.is_none();
        let was_due = !is_new && self.0.fields().is_some() && self.0.forget_time(txn, field)?;
        self.put(txn, &row_key, value, is_new)?;
        Ok(is_new || was_due)
    }

    /// Sets a field unless it is there; true if it was not.
    pub fn insert(&mut self, txn: &mut WriteTxn, field: &[u8], value: &[u8]) -> Result<bool> {
        self.0.ensure_version(txn);
        let row_key = self.0.row_key(field);
        let is_new = self.0.get_row(txn, &row_key)?.is_none();
        let was_due = !is_new && self.0.forget_if_due(txn, field)?;
        if is_new || was_due {
            self.put(txn, &row_key, value, is_new)?;
        }
        Ok(is_new || was_due)
    }

    /// Sets a field to what `change` makes of the value it has, if it has one. It expires when it did before.
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
        let is_due = self.0.may_hide(txn) && self.0.is_due(txn, field)?;
        let value = change(row.as_deref().filter(|_| !is_due))?;
        drop(row);
        if is_due {
            self.0.forget_time(txn, field)?;
        }
        self.put(txn, &row_key, value, is_new)
    }

    fn put(
        &mut self,
        txn: &mut WriteTxn,
        row_key: &[u8],
        value: impl AsRef<[u8]>,
        is_new: bool,
    ) -> Result<()> {
        if is_new {
            txn.put_new(Family::Data, row_key, value);
            self.0.count_in(txn, self.0.sub_of(row_key))?;
            self.0.grow(1);
        } else {
            txn.put(Family::Data, row_key, value);
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
        if self.0.fields().is_some() {
            // What is due is left to the expirer, who tells of it.
            if self.0.is_due(txn, field)? {
                return Ok(false);
            }
            self.0.forget_time(txn, field)?;
        }
        txn.delete(Family::Data, &row_key);
        self.0.count_out(txn, field)?;
        self.0.shrink(1);
        Ok(true)
    }

    /// All fields in byte order; [`Hash::field_of`] reads a row's key.
    pub fn rows(&self, txn: &ReadTxn) -> Result<LiveRows> {
        self.0.live_rows(txn)
    }

    /// The same with the times at which they expire.
    pub fn rows_with_times(&self, txn: &ReadTxn) -> Result<LiveRows> {
        self.0.rows_with_times(txn)
    }

    pub fn field_of<'r>(&self, row_key: &'r [u8]) -> &'r [u8] {
        self.0.sub_of(row_key)
    }

    /// The values of several fields, to be read one after the other.
    pub fn values(&self, txn: &ReadTxn, fields: &[&[u8]]) -> Result<Values> {
        let row_keys: Vec<RowBytes> = fields.iter().map(|field| self.0.row_key(field)).collect();
        let times = match self.0.may_hide(txn) {
            true => Some(self.0.times(txn)?),
            false => None,
        };
        Ok(Values {
            rows: self.0.rows(txn, Direction::Forward)?,
            row_keys: row_keys.into_iter(),
            times,
        })
    }

    /// Writes the metadata: to be called after the last change.
    #[inline]
    pub fn save(self, txn: &mut WriteTxn) {
        self.0.save(txn);
    }
}

/// The values of some fields as they were when this was opened: a walk that jumps from one to the next,
/// and needs neither the transaction nor room for more than one of them.
pub struct Values {
    rows: Rows,
    row_keys: std::vec::IntoIter<RowBytes>,
    /// When they expire, if one of them may be due.
    times: Option<Times>,
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
        if let Some(times) = &mut self.times
            && times.is_due(&wanted)?
        {
            return Ok(Some(None));
        }
        self.rows.seek(&wanted);
        Ok(Some(match self.rows.next()? {
            Some((row_key, value)) if row_key == &*wanted => Some(value),
            _ => None,
        }))
    }
}
