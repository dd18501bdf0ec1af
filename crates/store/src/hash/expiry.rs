//! Fields that expire. `encoding::field_expiry` draws the rows.
//!
//! What is kept true by every command that changes a field: one that expires has its row by name and its row by time, the
//! metadata counts it, and the row in `expiry` stands at the metadata's `first_ms`, which is not above any of their times.
//! When the field that expires first is deleted or set anew, `first_ms` stays, and is found to be early by the expirer.
//!
//! A command that asks before `first_ms` need not look at any of that. After it, until the expirer has been there, it
//! looks up the times of the fields that it is about, and how many are due is counted by time.

use cairn_encoding::field_expiry::{self, FieldTimes};
use cairn_encoding::metadata::has_expired;
use cairn_engine::{Family, Rows};

use super::Hash;
use crate::collection::Collection;
use crate::effects::Effect;
use crate::error::Result;
use crate::txn::{ReadTxn, WriteTxn};

impl Hash {
    /// When a field expires, zero for never; none if it is absent, or due.
    pub fn expiry_of(&self, txn: &ReadTxn, field: &[u8]) -> Result<Option<u64>> {
        let at_ms = self.0.time_of(txn, field)?.unwrap_or(0);
        let is_there = !has_expired(at_ms, txn.now_ms()) && self.0.contains(txn, field)?;
        Ok(is_there.then_some(at_ms))
    }

    /// When the first field expires that is not due, or at a time before that; none if all of them are there for good.
    pub fn first_expiry(&self, txn: &ReadTxn) -> Result<Option<u64>> {
        let Some(fields) = self.0.fields() else {
            return Ok(None);
        };
        let due = self.0.len() - self.0.live_len(txn)?;
        let first_ms = fields.first_ms.max(txn.now_ms());
        Ok((fields.count > due).then_some(first_ms))
    }

    /// Sets when a field expires that is there, and not due: in the future.
    pub fn expire(&mut self, txn: &mut WriteTxn, field: &[u8], at_ms: u64) -> Result<()> {
        let hash = &mut self.0;
        hash.forget_time(txn, field)?;
        let (key, version) = (hash.key(), hash.version());
        let time = field_expiry::encode(at_ms);
        txn.put(Family::ZsetScore, &key.field(version, field), time);
        txn.put(
            Family::ZsetScore,
            &key.field_time(version, at_ms, field),
            [],
        );
        hash.set_fields(Some(match hash.fields() {
            Some(fields) => fields.with(at_ms),
            None => FieldTimes::of(at_ms),
        }));
        Ok(())
    }

    /// A field that is there, and not due, never expires from now on; true if it did.
    pub fn persist(&mut self, txn: &mut WriteTxn, field: &[u8]) -> Result<bool> {
        let expires = self.0.time_of(txn, field)?.is_some();
        self.0.forget_time(txn, field)?;
        Ok(expires)
    }
}

impl Collection {
    /// Whether something may be due, and not deleted yet.
    #[inline]
    pub(crate) fn may_hide(&self, txn: &ReadTxn) -> bool {
        self.fields()
            .is_some_and(|fields| has_expired(fields.first_ms, txn.now_ms()))
    }

    /// When a field expires, if it does; be it due or not.
    fn time_of(&self, txn: &ReadTxn, field: &[u8]) -> Result<Option<u64>> {
        let Some(fields) = self.fields() else {
            return Ok(None);
        };
        let row_key = self.key().field(self.version(), field);
        let Some(row) = txn.row(Family::ZsetScore, &row_key)? else {
            return Ok(None);
        };
        let at_ms = field_expiry::decode(&row)?;
        // What is said of a time before the first is not true any more.
        Ok((at_ms >= fields.first_ms).then_some(at_ms))
    }

    #[cold]
    pub(crate) fn is_due(&self, txn: &ReadTxn, field: &[u8]) -> Result<bool> {
        let at_ms = self.time_of(txn, field)?;
        Ok(at_ms.is_some_and(|at_ms| has_expired(at_ms, txn.now_ms())))
    }

    /// The field does not expire any more, for it is set, or deleted; true if it was due.
    #[cold]
    pub(super) fn forget_time(&mut self, txn: &mut WriteTxn, field: &[u8]) -> Result<bool> {
        let Some(at_ms) = self.time_of(txn, field)? else {
            return Ok(false);
        };
        self.delete_times(txn, at_ms, field);
        self.set_fields(self.fields().and_then(|fields| fields.without(1)));
        let was_due = has_expired(at_ms, txn.now_ms());
        if was_due && txn.is_followed() {
            // Followers still have it, and would do something else with it than is done here.
            let database = txn.database();
            let (key, fields) = (self.key().name().into(), vec![field.into()]);
            txn.add_effect(Effect::FieldsGone {
                database,
                key,
                fields,
            });
        }
        Ok(was_due)
    }

    /// The same if it is due.
    #[inline]
    pub(super) fn forget_if_due(&mut self, txn: &mut WriteTxn, field: &[u8]) -> Result<bool> {
        Ok(self.may_hide(txn) && self.is_due(txn, field)? && self.forget_time(txn, field)?)
    }

    pub(super) fn delete_times(&self, txn: &mut WriteTxn, at_ms: u64, field: &[u8]) {
        let (key, version) = (self.key(), self.version());
        txn.delete(Family::ZsetScore, &key.field(version, field));
        txn.delete(Family::ZsetScore, &key.field_time(version, at_ms, field));
    }

    /// How many elements there are, without fields that are due.
    pub fn live_len(&self, txn: &ReadTxn) -> Result<u64> {
        match self.fields() {
            Some(fields) if self.may_hide(txn) => {
                let due = self.count_times(txn, fields.first_ms, txn.now_ms())?;
                Ok(self.len().saturating_sub(due))
            }
            _ => Ok(self.len()),
        }
    }

    /// How many fields expire in `[from_ms, to_ms)`.
    fn count_times(&self, txn: &ReadTxn, from_ms: u64, to_ms: u64) -> Result<u64> {
        let mut rows = self.rows_by_time(txn, from_ms, to_ms)?;
        let mut count = 0;
        while rows.next()?.is_some() {
            txn.step()?;
            count += 1;
        }
        Ok(count)
    }

    /// Whether a field has become due since that moment, and is not deleted yet.
    pub(crate) fn has_hidden_since(&self, txn: &ReadTxn, since_ms: u64) -> Result<bool> {
        let Some(fields) = self.fields() else {
            return Ok(false);
        };
        let from_ms = fields.first_ms.max(since_ms);
        let now_ms = txn.now_ms();
        Ok(from_ms < now_ms && self.rows_by_time(txn, from_ms, now_ms)?.next()?.is_some())
    }

    fn rows_by_time(&self, txn: &ReadTxn, from_ms: u64, to_ms: u64) -> Result<Rows> {
        let [lower, upper] =
            [from_ms, to_ms].map(|at_ms| self.key().field_time(self.version(), at_ms, b""));
        self.times_within(txn, &lower, &upper)
    }

    /// For looking up when fields expire, from one to the next.
    pub(super) fn times(&self, txn: &ReadTxn) -> Result<Times> {
        Ok(Times {
            rows: self.rows_by_name(txn)?,
            prefix: self.key().field(self.version(), b"").to_vec(),
            sub_at: self.sub_offset(),
            first_ms: self.fields().map_or(0, |fields| fields.first_ms),
            now_ms: txn.now_ms(),
        })
    }
}

/// When fields expire, as it was when this was opened.
pub(super) struct Times {
    rows: Rows,
    /// What the keys of the rows begin with.
    prefix: Vec<u8>,
    /// Where the field begins in the key of its own row.
    sub_at: usize,
    first_ms: u64,
    now_ms: u64,
}

impl Times {
    /// Whether the field is due whose own row this is.
    pub(super) fn is_due(&mut self, row_key: &[u8]) -> Result<bool> {
        let wanted = [&self.prefix, &row_key[self.sub_at..]].concat();
        self.rows.seek(&wanted);
        Ok(match self.rows.next()? {
            Some((found, value)) if found == wanted => {
                let at_ms = field_expiry::decode(value)?;
                at_ms >= self.first_ms && has_expired(at_ms, self.now_ms)
            }
            _ => false,
        })
    }
}
