//! Strings: small ones inside the metadata row, large ones in chunks.
//!
//! Up to [`CHUNK_SIZE`] a value stands in the metadata row: GET is one row read, SET one row written.
//! Above it the value is cut into chunks of that size, each a row, and the metadata holds the length. A
//! chunk that is absent, or shorter than what the length implies, reads as zeros. So APPEND touches the
//! last chunk, SETRANGE the chunks it writes, and EXPIRE none.
//!
//! A value that is replaced ([`set`]) gets a version of its own, and the chunks of the old one are dead
//! rows; one that is written to ([`Edit`]) keeps its version. Nothing ever makes a value shorter without
//! replacing it, so no chunk holds more than the length admits.

mod chunks;
mod edit;
mod many;
#[cfg(test)]
mod tests;

use std::ops::Range;

pub use cairn_encoding::CHUNK_SIZE;
use cairn_encoding::chunk::chunk_sub;
use cairn_encoding::metadata::{Body, Metadata, Type};
use cairn_engine::Family;

pub use chunks::Chunks;
pub(crate) use chunks::Cursor;
pub use edit::Edit;
pub use many::{Next, Strings};

use crate::effects::EventClass;
use crate::error::Result;
use crate::fresh::Fresh;
use crate::key::Key;
use crate::txn::{Found, ReadTxn, Shape, Shared, Stamp, WriteTxn};

/// What a write does to the key's expiry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expiry {
    Never,
    At(u64),
    Keep,
}

/// A string that exists.
pub struct Str<'t> {
    name: &'t [u8],
    found: Found<'t>,
}

impl<'t> Str<'t> {
    /// `None` if the key is absent; an error if it holds something else.
    #[inline]
    pub fn find(txn: &'t ReadTxn, name: &'t [u8]) -> Result<Option<Str<'t>>> {
        let found = txn.find_kind(&txn.key(name), Type::String)?;
        Ok(found.map(|found| Str { name, found }))
    }

    /// `None` also if the key holds something else.
    pub fn find_only(txn: &'t ReadTxn, name: &'t [u8]) -> Result<Option<Str<'t>>> {
        let found = txn.find(&txn.key(name))?;
        let found = found.filter(|found| found.kind() == Type::String);
        Ok(found.map(|found| Str { name, found }))
    }

    pub fn len(&self) -> u64 {
        match self.found.shape {
            Shape::Chunked { length, .. } => length,
            _ => self.found.inline().len() as u64,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn stamp(&self) -> Stamp {
        self.found.stamp()
    }

    /// The whole value, if it is in one piece.
    #[inline]
    pub fn inline(&self) -> Option<&[u8]> {
        match self.found.shape {
            Shape::Inline { .. } => Some(self.found.inline()),
            _ => None,
        }
    }

    pub fn is_inline(&self) -> bool {
        matches!(self.found.shape, Shape::Inline { .. })
    }

    /// The same as [`Str::inline`], to outlive the transaction.
    #[inline]
    pub fn share_inline(self) -> Option<Shared> {
        self.found.share_inline()
    }

    /// The value piece by piece; for a value that is not inline.
    pub fn chunks(&self, txn: &ReadTxn) -> Result<Option<Chunks>> {
        self.section(txn, 0..self.len())
    }

    /// The same for a part of it, which must lie inside the value.
    pub fn section(&self, txn: &ReadTxn, range: Range<u64>) -> Result<Option<Chunks>> {
        let Shape::Chunked { version, .. } = self.found.shape else {
            return Ok(None);
        };
        Chunks::open(txn, &txn.key(self.name), version, range).map(Some)
    }

    /// The bytes in `[start, end)`, which must lie inside the value, in memory.
    pub fn range(&self, txn: &ReadTxn, start: u64, end: u64) -> Result<Vec<u8>> {
        let Shape::Chunked { version, .. } = self.found.shape else {
            return Ok(self.found.inline()[start as usize..end as usize].to_vec());
        };
        let mut out = Vec::with_capacity((end - start) as usize);
        let mut chunks = Chunks::open(txn, &txn.key(self.name), version, start..end)?;
        while chunks.append_next(&mut out)? {
            txn.step()?;
        }
        Ok(out)
    }

    /// The byte at a place, as far as a row holds it: behind the end and in gaps there is none, and it is zero.
    pub fn byte(&self, txn: &ReadTxn, at: u64) -> Result<Option<u8>> {
        match self.found.shape {
            Shape::Chunked { version, length } if at < length => {
                chunks::byte(txn, &txn.key(self.name), version, at)
            }
            Shape::Chunked { .. } => Ok(None),
            _ => Ok(self.found.inline().get(at as usize).copied()),
        }
    }

    /// The version of a value that lies in chunks.
    pub fn version(&self) -> Option<u64> {
        self.found.version()
    }

    /// The whole value in memory.
    pub fn to_vec(&self, txn: &ReadTxn) -> Result<Vec<u8>> {
        self.range(txn, 0, self.len())
    }
}

/// Sets the key to a string, whatever it held. Without a TTL this reads nothing, unless somebody wants to know of
/// new keys.
pub fn set(txn: &mut WriteTxn, name: &[u8], value: &[u8], expiry: Expiry) -> Result<()> {
    let key = txn.key(name);
    put(txn, &key, value, expiry)
}

/// The same for a key of any database.
pub fn put(txn: &mut WriteTxn, key: &Key, value: &[u8], expiry: Expiry) -> Result<()> {
    if expiry == Expiry::Never && !txn.store().listeners().hear(EventClass::New) {
        let body = new_body(txn, key, value)?;
        let expire_ms = 0;
        txn.put_metadata(key, &Metadata { expire_ms, body }, expire_ms);
        return Ok(());
    }
    let live = txn.peek(key)?.map(|found| found.stamp());
    replace(txn, key, live.as_ref(), value, expiry)
}

/// The same for a caller that has looked the key up: `live` is what it found. The expiry row of a key
/// that has expired stays behind, to be dropped by the expirer.
pub fn replace(
    txn: &mut WriteTxn,
    key: &Key,
    live: Option<&Stamp>,
    value: &[u8],
    expiry: Expiry,
) -> Result<()> {
    let expire_ms = match expiry {
        Expiry::Never => 0,
        Expiry::At(at_ms) => at_ms,
        Expiry::Keep => live.map_or(0, |stamp| stamp.expire_ms),
    };
    let body = new_body(txn, key, value)?;
    if let Some(replaced) = live {
        txn.remains().add(key, replaced.shape);
    }
    let before = live.map_or(0, expiry_row);
    txn.put_metadata(key, &Metadata { expire_ms, body }, before);
    if live.is_none() {
        txn.notify_new(key);
    }
    Ok(())
}

/// The time under which the key stands in the expiry index, which does not know strings of the old
/// format.
fn expiry_row(stamp: &Stamp) -> u64 {
    if stamp.is_legacy { 0 } else { stamp.expire_ms }
}

/// The metadata of a new value, whose chunks, if it needs any, are written.
fn new_body<'v>(txn: &mut WriteTxn, key: &Key, value: &'v [u8]) -> Result<Body<'v>> {
    if value.len() <= CHUNK_SIZE {
        return Ok(Body::Inline(value));
    }
    let version = txn.next_version();
    let mut fresh = Fresh::new(key, version);
    for (number, chunk) in value.chunks(CHUNK_SIZE).enumerate() {
        txn.step()?;
        let row_key = key.data(version, &chunk_sub(number as u32));
        fresh.put(txn, Family::Data, &row_key, chunk)?;
    }
    fresh.finish(txn);
    Ok(Body::Chunked {
        version,
        length: value.len() as u64,
    })
}
