//! The rows of a region in a family.

use cairn_encoding::row;
use cairn_encoding::system::Slots;

use crate::error::{EngineError, Result};
use crate::family::Family;
use crate::rows::Rows;

/// A database's rows are in the order of their slots, so that what other regions have is passed over. Only the expiry rows
/// are in the order of time, and all of them have to be looked at.
pub(super) struct SlotWalk {
    family: Family,
    rows: Rows,
    slots: Slots,
    key: Vec<u8>,
    value: Vec<u8>,
}

/// Where a row is.
enum Place {
    Within,
    Elsewhere,
    /// The rows of the region begin there, at the earliest.
    Before(Vec<u8>),
    End,
}

impl SlotWalk {
    pub(super) fn new(family: Family, rows: Rows, slots: Slots) -> Self {
        SlotWalk {
            family,
            rows,
            slots,
            key: Vec::new(),
            value: Vec::new(),
        }
    }

    pub(super) fn family(&self) -> Family {
        self.family
    }

    /// Moves to the next row, which `key` and `value` are then of; false if there is none.
    pub(super) fn advance(&mut self) -> Result<bool> {
        if self.slots.is_empty() {
            return Ok(false);
        }
        loop {
            let Some((key, value)) = self.rows.next()? else {
                return Ok(false);
            };
            match place(self.family, self.slots, key)? {
                Place::Within => {
                    self.key.clear();
                    self.key.extend_from_slice(key);
                    self.value.clear();
                    self.value.extend_from_slice(value);
                    return Ok(true);
                }
                Place::Elsewhere => {}
                Place::Before(begin) => self.rows.seek(&begin),
                Place::End => return Ok(false),
            }
        }
    }

    /// Goes on behind the rows of this database.
    pub(super) fn skip_database(&mut self, index: u64) -> bool {
        match begin_after(index, self.slots) {
            Place::Before(begin) => {
                self.rows.seek(&begin);
                true
            }
            _ => false,
        }
    }

    /// Moves back: the next row is the first again.
    pub(super) fn rewind(&mut self) {
        self.rows.rewind();
    }

    /// Moves so that the next row is the first that is not before `key`.
    pub(super) fn seek(&mut self, key: &[u8]) {
        self.rows.seek(key);
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    pub(super) fn value(&self) -> &[u8] {
        &self.value
    }
}

fn place(family: Family, slots: Slots, key: &[u8]) -> Result<Place> {
    let slot = slot_of(family, key)?;
    if slots.contains(slot) {
        return Ok(Place::Within);
    }
    if family == Family::Expiry {
        return Ok(Place::Elsewhere);
    }
    let index = row::index_of(key).unwrap_or_default();
    if slot >= slots.first() {
        return Ok(begin_after(index, slots));
    }
    let mut begin = Vec::new();
    row::slot_prefix(&mut begin, index, slots.first());
    Ok(Place::Before(begin))
}

fn begin_after(index: u64, slots: Slots) -> Place {
    let Some(index) = index.checked_add(1) else {
        return Place::End;
    };
    let mut begin = Vec::new();
    row::slot_prefix(&mut begin, index, slots.first());
    Place::Before(begin)
}

/// The slot that a row of a key belongs to.
pub(super) fn slot_of(family: Family, key: &[u8]) -> Result<u16> {
    let prefix = match family {
        Family::Expiry => row::metadata_key_of_expiry(key)?,
        _ => key,
    };
    row::slot_of(prefix).ok_or_else(|| EngineError::Corrupt("a row has no slot".into()))
}
