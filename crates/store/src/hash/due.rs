//! What is due of a hash, for the expirer.
//!
//! One walk over the rows by time serves many batches: to open one means to carry the young rows of the hash along, or
//! to wait until they are drained. It is opened under the key's latch, and the latch is let go of after each batch. What
//! others change meanwhile it does not see: a field that was set anew, or deleted, is still named, so what is named is
//! looked up when its turn comes. But none is missing that was due when the walk was opened: a time that was set since was
//! in the future under the same latch. So the moment of the opening is a time before which nothing is left, once all that
//! was due then has been dealt with; what comes next is found by another walk.

use cairn_encoding::field_expiry::FieldTimes;
use cairn_encoding::metadata::has_expired;
use cairn_encoding::row::{RowBytes, SCORE_LEN};
use cairn_engine::{Family, Rows};

use crate::collection::Collection;
use crate::error::Result;
use crate::key::Key;
use crate::txn::{ReadTxn, WriteTxn};

/// The fields of a hash in the order in which they expire, as they were when this was opened.
pub(crate) struct DueWalk {
    rows: Rows,
    /// The moment at which it was opened.
    until_ms: u64,
    /// The latch has been let go of since.
    is_old: bool,
    /// Read, and not taken yet; none behind the last.
    ahead: Option<(u64, Box<[u8]>)>,
}

/// How much of a hash is looked at at once, in bytes of fields.
const MOST_BYTES: usize = 1024 * 1024;

impl DueWalk {
    /// Opens it, with the key's latch held.
    pub(crate) fn open(
        hash: &Collection,
        first_ms: u64,
        now_ms: u64,
        open: impl FnOnce(&[u8], &[u8]) -> Rows,
    ) -> Result<DueWalk> {
        let (key, version) = (hash.key(), hash.version());
        let beginning = key.field_time(version, first_ms, b"");
        let mut walk = DueWalk {
            rows: open(&beginning, &key.field(version, b"")),
            until_ms: now_ms,
            is_old: false,
            ahead: None,
        };
        walk.advance(key)?;
        Ok(walk)
    }

    /// The latch is let go of; the same walk if more of it is due.
    pub(crate) fn keep(mut self) -> Option<DueWalk> {
        self.is_old = true;
        self.next_due_ms().is_some().then_some(self)
    }

    fn advance(&mut self, key: &Key) -> Result<()> {
        let row = self.rows.next()?;
        self.ahead = row.map(|(row_key, _)| {
            let (at_ms, field) = time_and_field(key, row_key);
            (at_ms, field.into())
        });
        Ok(())
    }

    /// The time of the next, if it is due.
    fn next_due_ms(&self) -> Option<u64> {
        let next_ms = self.ahead.as_ref().map(|(at_ms, _)| *at_ms);
        next_ms.filter(|at_ms| has_expired(*at_ms, self.until_ms))
    }

    /// What comes next is due, or expires not before this; none if nothing does.
    fn next_ms(&self) -> Option<u64> {
        match self.is_old {
            // Others may have set times since.
            true => self.next_due_ms().or(Some(self.until_ms)),
            false => self.ahead.as_ref().map(|(at_ms, _)| *at_ms),
        }
    }

    /// Takes what is due; no more than `limit` of them.
    pub(crate) fn take(
        &mut self,
        txn: &ReadTxn,
        hash: &Collection,
        limit: usize,
    ) -> Result<DueFields> {
        let mut due = Vec::new();
        let mut bytes = 0;
        while due.len() < limit
            && bytes <= MOST_BYTES
            && self.next_due_ms().is_some()
            && let Some(field) = self.ahead.take()
        {
            bytes += field.1.len();
            due.push(field);
            self.advance(hash.key())?;
        }
        if self.is_old {
            due = still_expiring(txn, hash, due)?;
        }
        Ok(DueFields {
            due,
            next_ms: self.next_ms(),
        })
    }
}

/// Those of the fields that still expire at these times. Their rows by time lie side by side, so they are read quickly.
fn still_expiring(
    txn: &ReadTxn,
    hash: &Collection,
    named: Vec<(u64, Box<[u8]>)>,
) -> Result<Vec<(u64, Box<[u8]>)>> {
    let (key, version) = (hash.key(), hash.version());
    let first_ms = hash.fields().map_or(u64::MAX, |fields| fields.first_ms);
    let row_keys: Vec<RowBytes> = named
        .iter()
        .map(|(at_ms, field)| key.field_time(version, *at_ms, field))
        .collect();
    let row_keys: Vec<&[u8]> = row_keys.iter().map(|row_key| &**row_key).collect();
    let engine = txn.store().engine();
    let rows = engine.get_many_quietly(Family::ZsetScore, &row_keys)?;
    let found = named.into_iter().zip(rows);
    // What is said of a time before the first is not true any more.
    Ok(found
        .filter(|((at_ms, _), row)| row.is_some() && *at_ms >= first_ms)
        .map(|(field, _)| field)
        .collect())
}

/// What the expirer finds of a hash, under its latch.
pub(crate) struct DueFields {
    /// In the order of time.
    due: Vec<(u64, Box<[u8]>)>,
    /// Whatever else expires does so then, or later.
    next_ms: Option<u64>,
}

impl DueFields {
    /// Deletes them from the hash, to be saved then. What says that they expire is left to the compactions, unless it is
    /// of the very time that is the first from now on.
    pub(crate) fn remove(self, txn: &mut WriteTxn, hash: &mut Collection) -> Result<Removed> {
        let next_ms = self.next_ms;
        for (at_ms, field) in &self.due {
            txn.delete(Family::Data, &hash.row_key(field));
            hash.count_out(txn, field)?;
            if next_ms.is_some_and(|next_ms| *at_ms >= next_ms) {
                hash.delete_times(txn, *at_ms, field);
            }
        }
        let count = self.due.len() as u64;
        hash.shrink(count);
        let rest = hash.fields().and_then(|fields| fields.without(count));
        // It never falls: what lies before it is dead, and is not to come back.
        hash.set_fields(rest.zip(next_ms).map(|(rest, next_ms)| FieldTimes {
            first_ms: next_ms.max(rest.first_ms),
            ..rest
        }));
        let last_ms = self.due.last().map(|(at_ms, _)| *at_ms);
        let fields = match txn.is_followed() {
            true => self.due.into_iter().map(|(_, field)| field).collect(),
            false => Vec::new(),
        };
        Ok(Removed {
            count,
            last_ms,
            fields,
        })
    }
}

/// What became of it.
pub(crate) struct Removed {
    pub(crate) count: u64,
    /// When the last of them was due.
    pub(crate) last_ms: Option<u64>,
    /// Their names, if others follow.
    pub(crate) fields: Vec<Box<[u8]>>,
}

fn time_and_field<'r>(key: &Key, row_key: &'r [u8]) -> (u64, &'r [u8]) {
    let behind_mark = &row_key[key.sub_offset() + SCORE_LEN..];
    match behind_mark.split_first_chunk() {
        Some((at_ms, field)) => (u64::from_be_bytes(*at_ms), field),
        // No such row is ever written.
        None => (0, behind_mark),
    }
}
