//! Reading a string that lies in chunks.

use std::ops::Range;

use cairn_encoding::CHUNK_SIZE;
use cairn_encoding::chunk::{chunk_sub, decode_chunk_sub};
use cairn_engine::{Direction, Family, Rows};

use crate::error::Result;
use crate::key::Key;
use crate::txn::ReadTxn;

pub(super) fn chunk_of(position: u64) -> u32 {
    (position / CHUNK_SIZE as u64) as u32
}

pub(super) fn start_of(number: u32) -> u64 {
    u64::from(number) * CHUNK_SIZE as u64
}

/// The byte at a place inside a chunked string; `None` if no row holds it.
pub(super) fn byte(txn: &ReadTxn, key: &Key, version: u64, at: u64) -> Result<Option<u8>> {
    let number = chunk_of(at);
    let chunk = txn.row(Family::Data, &key.data(version, &chunk_sub(number)))?;
    let byte = |chunk: &[u8]| chunk.get((at - start_of(number)) as usize).copied();
    Ok(chunk.and_then(|chunk| byte(&chunk)))
}

/// A longer part of a string passes by without being kept in memory, where it would push out very much.
const PASSING: u64 = 1024 * 1024;

/// Reads a part of a chunked string in order, filling in what is absent.
pub struct Chunks {
    rows: Rows,
    cursor: Cursor,
}

impl Chunks {
    pub(super) fn open(
        txn: &ReadTxn,
        key: &Key,
        version: u64,
        range: Range<u64>,
    ) -> Result<Chunks> {
        let cursor = Cursor::new(key, version, range);
        let (_, upper) = key.version_range(version);
        let first = cursor.first_row();
        let rows = if cursor.remaining() > PASSING {
            txn.passing_rows(Family::Data, &first, &upper)?
        } else {
            txn.rows(Family::Data, &first, &upper, Direction::Forward)?
        };
        Ok(Chunks { rows, cursor })
    }

    /// Bytes still to come.
    pub fn remaining(&self) -> u64 {
        self.cursor.remaining()
    }

    /// Appends at most one chunk's worth of bytes; false when there are no more.
    pub fn append_next(&mut self, out: &mut Vec<u8>) -> Result<bool> {
        self.cursor.append_next(&mut self.rows, out)
    }

    /// Passes over the zeros up to the next chunk that is stored; returns how many they are.
    pub fn pass_gap(&mut self) -> Result<u64> {
        self.cursor.pass_gap(&mut self.rows)
    }
}

/// How far a chunked string has been read. The rows are lent to it, so that many strings can be read
/// with one walk.
pub(crate) struct Cursor {
    /// What the keys of all its chunks begin with.
    prefix: Vec<u8>,
    position: u64,
    end: u64,
    /// A chunk that was met before its turn: those between are absent.
    ahead: Option<(u32, Vec<u8>)>,
    /// There are no chunks after `ahead`.
    is_drained: bool,
}

impl Cursor {
    pub(crate) fn new(key: &Key, version: u64, range: Range<u64>) -> Cursor {
        Cursor {
            prefix: key.data(version, b"").to_vec(),
            position: range.start,
            end: range.end,
            ahead: None,
            is_drained: false,
        }
    }

    /// Where the rows must stand before the first chunk is read.
    pub(crate) fn first_row(&self) -> Vec<u8> {
        let number = chunk_sub(chunk_of(self.position));
        [self.prefix.as_slice(), &number].concat()
    }

    pub(crate) fn remaining(&self) -> u64 {
        self.end - self.position
    }

    pub(crate) fn append_next(&mut self, rows: &mut Rows, out: &mut Vec<u8>) -> Result<bool> {
        if self.position == self.end {
            return Ok(false);
        }
        let number = chunk_of(self.position);
        let until = (start_of(number) + CHUNK_SIZE as u64).min(self.end);
        let from = (self.position - start_of(number)) as usize;
        let wanted = from..(until - start_of(number)) as usize;
        let filled = out.len() + wanted.len();
        self.append_stored(number, wanted, rows, out)?;
        out.resize(filled, 0);
        self.position = until;
        Ok(true)
    }

    /// Appends what is stored of the wanted part of a chunk.
    fn append_stored(
        &mut self,
        number: u32,
        wanted: Range<usize>,
        rows: &mut Rows,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        if let Some((ahead, bytes)) = &self.ahead {
            if *ahead == number {
                out.extend_from_slice(part(bytes, wanted));
                self.ahead = None;
            }
            return Ok(());
        }
        if self.is_drained {
            return Ok(());
        }
        match self.next_stored(rows)? {
            Some((found, bytes)) if found == number => {
                out.extend_from_slice(part(bytes, wanted));
            }
            Some((found, bytes)) => self.ahead = Some((found, bytes.to_vec())),
            None => self.is_drained = true,
        }
        Ok(())
    }

    fn pass_gap(&mut self, rows: &mut Rows) -> Result<u64> {
        if self.ahead.is_none() && !self.is_drained && self.remaining() > 0 {
            let next = self.next_stored(rows)?;
            self.ahead = next.map(|(found, bytes)| (found, bytes.to_vec()));
            self.is_drained = self.ahead.is_none();
        }
        let next = match &self.ahead {
            Some((ahead, _)) => start_of(*ahead).min(self.end),
            None => self.end,
        };
        let gap = next.saturating_sub(self.position);
        self.position += gap;
        Ok(gap)
    }

    /// The next chunk that there is, and its number.
    fn next_stored<'r>(&self, rows: &'r mut Rows) -> Result<Option<(u32, &'r [u8])>> {
        match rows.next()? {
            Some((row_key, bytes)) if row_key.starts_with(&self.prefix) => {
                let number = decode_chunk_sub(&row_key[self.prefix.len()..])?;
                Ok(Some((number, bytes)))
            }
            _ => Ok(None),
        }
    }
}

/// As much of the wanted part as there is.
fn part(bytes: &[u8], wanted: Range<usize>) -> &[u8] {
    let bytes = &bytes[..bytes.len().min(wanted.end)];
    bytes.get(wanted.start..).unwrap_or_default()
}
