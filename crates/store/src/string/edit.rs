//! Writing into a string: APPEND, SETRANGE, SETBIT, INCR.

use cairn_encoding::CHUNK_SIZE;
use cairn_encoding::chunk::chunk_sub;
use cairn_encoding::metadata::{Body, Metadata, Type};
use cairn_engine::Family;
use smallvec::SmallVec;

use super::chunks::{self, chunk_of, start_of};
use super::{expiry_row, new_body};
use crate::error::{Error, Result};
use crate::fresh::Fresh;
use crate::key::Key;
use crate::txn::{ReadTxn, Shape, WriteTxn};

/// The most that is written into an existing value on a connection thread. The rows of a live version
/// cannot be written ahead, so the whole of it goes through one batch.
const SHORT_WRITE: usize = 4 * 1024 * 1024;

/// A string, absent or not, that is about to change. Its expiry stays as it is.
pub struct Edit {
    key: Key,
    content: Content,
    expire_ms: u64,
    /// The time under which the key stands in the expiry index.
    expiry_row: u64,
}

enum Content {
    Absent,
    /// A number finds room without an allocation.
    Inline(SmallVec<[u8; 24]>),
    Chunked {
        version: u64,
        length: u64,
    },
}

impl Content {
    /// A string of the old format is whole, however large: it is cut up before it is written into.
    fn cut(self, txn: &mut WriteTxn, key: &Key) -> Result<Content> {
        if let Content::Inline(value) = &self
            && let Body::Chunked { version, length } = new_body(txn, key, value)?
        {
            return Ok(Content::Chunked { version, length });
        }
        Ok(self)
    }
}

impl Edit {
    /// An error if the key holds something else than a string.
    pub fn open(txn: &ReadTxn, name: &[u8]) -> Result<Edit> {
        let key = txn.key(name);
        // Whoever is about to write does not count as one who asks.
        let Some(found) = txn.unasked(|_| txn.find_kind(&key, Type::String))? else {
            return Ok(Edit {
                key,
                content: Content::Absent,
                expire_ms: 0,
                expiry_row: 0,
            });
        };
        let content = match found.shape {
            Shape::Chunked { version, length } => Content::Chunked { version, length },
            _ => Content::Inline(SmallVec::from_slice(found.inline())),
        };
        Ok(Edit {
            content,
            expire_ms: found.expire_ms,
            expiry_row: expiry_row(&found.stamp()),
            key,
        })
    }

    pub fn exists(&self) -> bool {
        !matches!(self.content, Content::Absent)
    }

    pub fn len(&self) -> u64 {
        match &self.content {
            Content::Absent => 0,
            Content::Inline(value) => value.len() as u64,
            Content::Chunked { length, .. } => *length,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of an inline string; empty for everything else.
    pub fn inline(&self) -> &[u8] {
        match &self.content {
            Content::Inline(value) => value,
            _ => &[],
        }
    }

    /// The byte at a place: zero where there is none.
    pub fn byte(&self, txn: &ReadTxn, at: u64) -> Result<u8> {
        let byte = match self.content {
            Content::Chunked { version, length } if at < length => {
                chunks::byte(txn, &self.key, version, at)?
            }
            _ => self.inline().get(at as usize).copied(),
        };
        Ok(byte.unwrap_or(0))
    }

    /// Puts another value in its place.
    pub fn replace(self, txn: &mut WriteTxn, value: &[u8]) -> Result<()> {
        let body = new_body(txn, &self.key, value)?;
        save(txn, &self.key, self.expire_ms, self.expiry_row, body);
        if !self.exists() {
            txn.notify_new(&self.key);
        }
        Ok(())
    }

    /// Writes `bytes` at `offset`, filling a gap with zeros, and returns the new length.
    pub fn write_at(self, txn: &mut WriteTxn, offset: u64, bytes: &[u8]) -> Result<u64> {
        let end = offset + bytes.len() as u64;
        let new_length = self.len().max(end);
        let is_new = !self.exists();
        let mut value = match self.content.cut(txn, &self.key)? {
            Content::Chunked { version, length } => {
                patch(txn, &self.key, version, length, offset, bytes)?;
                let body = Body::Chunked {
                    version,
                    length: new_length,
                };
                save(txn, &self.key, self.expire_ms, self.expiry_row, body);
                return Ok(new_length);
            }
            Content::Inline(value) => value.into_vec(),
            Content::Absent => Vec::new(),
        };
        let body = if end <= CHUNK_SIZE as u64 {
            overwrite(&mut value, offset as usize, bytes);
            Body::Inline(&value)
        } else {
            spread(txn, &self.key, value, offset, bytes)?
        };
        save(txn, &self.key, self.expire_ms, self.expiry_row, body);
        if is_new {
            txn.notify_new(&self.key);
        }
        Ok(new_length)
    }

    pub fn append(self, txn: &mut WriteTxn, bytes: &[u8]) -> Result<u64> {
        let end = self.len();
        self.write_at(txn, end, bytes)
    }
}

fn save(txn: &mut WriteTxn, key: &Key, expire_ms: u64, expiry_row: u64, body: Body<'_>) {
    txn.put_metadata(key, &Metadata { expire_ms, body }, expiry_row);
}

/// The part of a write that falls into one chunk.
struct Piece<'b> {
    number: u32,
    /// Where in the chunk.
    at: usize,
    bytes: &'b [u8],
}

fn pieces(offset: u64, bytes: &[u8]) -> impl Iterator<Item = Piece<'_>> {
    let (mut position, mut rest) = (offset, bytes);
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let at = (position % CHUNK_SIZE as u64) as usize;
        let (bytes, after) = rest.split_at(rest.len().min(CHUNK_SIZE - at));
        let number = chunk_of(position);
        position += bytes.len() as u64;
        rest = after;
        Some(Piece { number, at, bytes })
    })
}

/// Writes into the chunks of a live version.
fn patch(
    txn: &mut WriteTxn,
    key: &Key,
    version: u64,
    length: u64,
    offset: u64,
    bytes: &[u8],
) -> Result<()> {
    if bytes.len() > SHORT_WRITE && !txn.is_patient() {
        return Err(Error::TooLong);
    }
    for piece in pieces(offset, bytes) {
        txn.step()?;
        let row_key = key.data(version, &chunk_sub(piece.number));
        let used = length.saturating_sub(start_of(piece.number));
        let survives = piece.at > 0 || used.min(CHUNK_SIZE as u64) > piece.bytes.len() as u64;
        let mut chunk = Vec::new();
        // A chunk that is new, or of which nothing is left, need not be read.
        if used > 0
            && survives
            && let Some(row) = txn.row(Family::Data, &row_key)?
        {
            chunk.extend_from_slice(&row);
        }
        overwrite(&mut chunk, piece.at, piece.bytes);
        txn.put(Family::Data, &row_key, chunk);
    }
    Ok(())
}

/// Writes into an inline value that outgrows the metadata row: it becomes the first chunk of a new
/// version.
fn spread(
    txn: &mut WriteTxn,
    key: &Key,
    mut value: Vec<u8>,
    offset: u64,
    bytes: &[u8],
) -> Result<Body<'static>> {
    let version = txn.next_version();
    let mut fresh = Fresh::new(key, version);
    for piece in pieces(offset, bytes) {
        txn.step()?;
        let mut chunk = match piece.number {
            0 => std::mem::take(&mut value),
            _ => Vec::new(),
        };
        overwrite(&mut chunk, piece.at, piece.bytes);
        let row_key = key.data(version, &chunk_sub(piece.number));
        fresh.put(txn, Family::Data, &row_key, chunk)?;
    }
    if !value.is_empty() {
        let row_key = key.data(version, &chunk_sub(0));
        fresh.put(txn, Family::Data, &row_key, value)?;
    }
    fresh.finish(txn);
    Ok(Body::Chunked {
        version,
        length: offset + bytes.len() as u64,
    })
}

fn overwrite(chunk: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    let end = at + bytes.len();
    chunk.resize(chunk.len().max(end), 0);
    chunk[at..end].copy_from_slice(bytes);
}
