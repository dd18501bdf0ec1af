//! The stored keys of everything that belongs to a user's key.
//!
//! ```text
//!   prefix       keyspace_id u64 | index_id u64 | slot u16 | key_len u32 | key
//!
//!   family       row
//!   metadata     prefix
//!   data         prefix | version u64 | sub
//!   data         prefix | 'S'                                     (a string of the old format)
//!   zset_score   prefix | version u64 | score 8 | member
//!   zset_score   prefix | version u64 | ff × 8 | first            (a count, of any collection)
//!   zset_score   prefix | version u64 | ff × 7 fe | field         (when a field of a hash expires)
//!   zset_score   prefix | version u64 | ff × 7 fd | expire_ms u64 | field
//!   expiry       keyspace_id u64 | expire_ms u64 | prefix
//!   expiry       keyspace_id u64 | expire_ms u64 | prefix | version u64     (for the fields of a hash)
//! ```
//!
//! Read from the left, each field narrows a range. A database (`index_id`) is contiguous, so dropping its
//! number drops it whole; inside it a slot is contiguous, so a region can hand it over; inside it a key;
//! and inside that one version of the key. `key_len` stands before the key, so no key's rows lie among
//! those of a key that it is a prefix of, and key and sub-key, both arbitrary bytes, cannot be cut apart
//! in two ways. The functions that end in `_prefix` bound these ranges.
//!
//! An old string row cannot be taken for a versioned row, nor fall into a version's range: what follows
//! its prefix is one byte long, and a version is eight.
//!
//! What a count row has where others have a score is none: those of a version sort behind all its scores.
//! `count` tells what they count. The same holds for the rows of fields, which `field_expiry` explains.
//!
//! An expiry row holds the whole metadata key, its keyspace_id included: the expirer looks a key up
//! with a slice of the row it found it by.

mod append;
mod bounds;
mod bytes;

pub use append::{
    SCORE_LEN, VERSION_LEN, append_count, append_data, append_expiry, append_field,
    append_field_time, append_fields_expiry, append_legacy, append_score,
};
pub use bounds::{
    PREFIX_HEAD, ends_within_version, essence, essence_of_metadata, expiry_prefix, index_of,
    index_prefix, metadata_key, metadata_key_of, metadata_key_of_expiry, prefix_end, slot_of,
    slot_prefix, version_end, version_in, version_prefix, version_prefix_of,
};

pub use bytes::{Append, RowBytes};

use crate::reader::Reader;
use crate::slot::slot;
use crate::{DecodeError, KEYSPACE_ID, score};
use bounds::EXPIRY_HEAD;

const LEGACY_STRING: u8 = b'S';
const TIME_LEN: usize = 8;

/// A stored key of any of the row families. One encoder, one decoder per family.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RowKey<'a> {
    Metadata {
        index: u64,
        key: &'a [u8],
    },
    Data {
        index: u64,
        key: &'a [u8],
        version: u64,
        sub: &'a [u8],
    },
    Score {
        index: u64,
        key: &'a [u8],
        version: u64,
        score: f64,
        member: &'a [u8],
    },
    Count {
        index: u64,
        key: &'a [u8],
        version: u64,
        first: &'a [u8],
    },
    Field {
        index: u64,
        key: &'a [u8],
        version: u64,
        field: &'a [u8],
    },
    FieldTime {
        index: u64,
        key: &'a [u8],
        version: u64,
        at_ms: u64,
        field: &'a [u8],
    },
    Expiry {
        at_ms: u64,
        index: u64,
        key: &'a [u8],
    },
    FieldsExpiry {
        at_ms: u64,
        index: u64,
        key: &'a [u8],
        version: u64,
    },
    Legacy {
        index: u64,
        key: &'a [u8],
    },
}

impl<'a> RowKey<'a> {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode_into(&mut out);
        out
    }

    /// Appends the row key to `out`.
    ///
    /// # Panics
    ///
    /// If the user's key is longer than `u32::MAX` bytes; the protocol ends at 512 MB.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        out.reserve(self.encoded_len());
        if let RowKey::Expiry { at_ms, .. } | RowKey::FieldsExpiry { at_ms, .. } = *self {
            expiry_prefix(out, at_ms);
        }
        let (index, key) = self.index_and_key();
        metadata_key(out, index, key);
        match *self {
            RowKey::Metadata { .. } | RowKey::Expiry { .. } => {}
            RowKey::Data { version, sub, .. } => append::data_tail(out, version, sub),
            RowKey::Score {
                version,
                score,
                member,
                ..
            } => append::score_tail(out, version, score, member),
            RowKey::Count { version, first, .. } => append::count_tail(out, version, first),
            RowKey::Field { version, field, .. } => append::field_tail(out, version, field),
            RowKey::FieldTime {
                version,
                at_ms,
                field,
                ..
            } => append::field_time_tail(out, version, at_ms, field),
            RowKey::FieldsExpiry { version, .. } => append::data_tail(out, version, b""),
            RowKey::Legacy { .. } => append::legacy_tail(out),
        }
    }

    /// Which database's key this row belongs to.
    pub fn index_and_key(&self) -> (u64, &'a [u8]) {
        match *self {
            RowKey::Metadata { index, key }
            | RowKey::Data { index, key, .. }
            | RowKey::Score { index, key, .. }
            | RowKey::Count { index, key, .. }
            | RowKey::Field { index, key, .. }
            | RowKey::FieldTime { index, key, .. }
            | RowKey::Expiry { index, key, .. }
            | RowKey::FieldsExpiry { index, key, .. }
            | RowKey::Legacy { index, key } => (index, key),
        }
    }

    fn encoded_len(&self) -> usize {
        let around_key = match self {
            RowKey::Metadata { .. } => 0,
            RowKey::Data { sub, .. } => VERSION_LEN + sub.len(),
            RowKey::Score { member, .. } => VERSION_LEN + SCORE_LEN + member.len(),
            RowKey::Count { first, .. } => VERSION_LEN + SCORE_LEN + first.len(),
            RowKey::Field { field, .. } => VERSION_LEN + SCORE_LEN + field.len(),
            RowKey::FieldTime { field, .. } => VERSION_LEN + SCORE_LEN + TIME_LEN + field.len(),
            RowKey::Expiry { .. } => EXPIRY_HEAD,
            RowKey::FieldsExpiry { .. } => EXPIRY_HEAD + VERSION_LEN,
            RowKey::Legacy { .. } => 1,
        };
        PREFIX_HEAD + self.index_and_key().1.len() + around_key
    }

    /// A row of the `metadata` family.
    pub fn decode_metadata(row: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new("metadata row", row);
        let (index, key) = read_prefix(&mut reader)?;
        reader.finish()?;
        Ok(RowKey::Metadata { index, key })
    }

    /// A row of the `data` family: `Data` or `Legacy`.
    pub fn decode_data(row: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new("data row", row);
        let (index, key) = read_prefix(&mut reader)?;
        if reader.peek() == [LEGACY_STRING] {
            return Ok(RowKey::Legacy { index, key });
        }
        Ok(RowKey::Data {
            index,
            key,
            version: reader.u64("version")?,
            sub: reader.rest(),
        })
    }

    /// A row of the `zset_score` family: `Score`, `Count`, `Field` or `FieldTime`.
    pub fn decode_score(row: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new("score row", row);
        let (index, key) = read_prefix(&mut reader)?;
        let version = reader.u64("version")?;
        if let Some(first) = reader.peek().strip_prefix(&append::COUNT_MARK) {
            return Ok(RowKey::Count {
                index,
                key,
                version,
                first,
            });
        }
        if let Some(field) = reader.peek().strip_prefix(&append::FIELD_MARK) {
            return Ok(RowKey::Field {
                index,
                key,
                version,
                field,
            });
        }
        if reader.peek().starts_with(&append::FIELD_TIME_MARK) {
            reader.bytes("mark", SCORE_LEN)?;
            return Ok(RowKey::FieldTime {
                index,
                key,
                version,
                at_ms: reader.u64("expire_ms")?,
                field: reader.rest(),
            });
        }
        Ok(RowKey::Score {
            index,
            key,
            version,
            score: score::read(&mut reader)?,
            member: reader.rest(),
        })
    }

    /// A row of the `expiry` family: `Expiry` or `FieldsExpiry`.
    pub fn decode_expiry(row: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new("expiry row", row);
        read_keyspace(&mut reader)?;
        let at_ms = reader.u64("expire_ms")?;
        let (index, key) = read_prefix(&mut reader)?;
        if reader.peek().is_empty() {
            return Ok(RowKey::Expiry { at_ms, index, key });
        }
        let version = reader.u64("version")?;
        reader.finish()?;
        Ok(RowKey::FieldsExpiry {
            at_ms,
            index,
            key,
            version,
        })
    }
}

fn read_prefix<'a>(reader: &mut Reader<'a>) -> Result<(u64, &'a [u8]), DecodeError> {
    read_keyspace(reader)?;
    let index = reader.u64("index_id")?;
    let stored = reader.u16("slot")?;
    let key = read_key(reader)?;
    let expected = slot(key);
    if stored != expected {
        return Err(DecodeError::WrongSlot {
            layout: reader.layout(),
            stored,
            expected,
        });
    }
    Ok((index, key))
}

fn read_keyspace(reader: &mut Reader<'_>) -> Result<(), DecodeError> {
    let found = reader.u64("keyspace_id")?;
    if found != KEYSPACE_ID {
        return Err(DecodeError::ForeignKeyspace {
            layout: reader.layout(),
            found,
        });
    }
    Ok(())
}

fn read_key<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
    let length = reader.u32("key_len")?;
    // A length that this machine cannot even address is as truncated as any other that is too long.
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    reader.bytes("key", length)
}

#[cfg(test)]
mod tests;
