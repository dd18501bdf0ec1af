//! Many strings in one reply: MGET.
//!
//! Looking keys up one by one needs the transaction, which is gone while a long reply is still being
//! sent. So all are read with two walks, one over metadata rows and one over chunks, which pin the moment
//! they were opened at and hold no value in memory.

use cairn_encoding::legacy::LegacyString;
use cairn_encoding::metadata::{Body, Metadata, has_expired};
use cairn_engine::{Direction, Family, Rows};

use super::chunks::Cursor;
use crate::error::Result;
use crate::key::Key;
use crate::txn::ReadTxn;

/// Strings one after the other, as they were when this was opened.
pub struct Strings {
    keys: std::vec::IntoIter<Key>,
    metadata: Rows,
    data: Rows,
    now_ms: u64,
    may_have_legacy: bool,
    /// The large string that is being read.
    large: Option<Cursor>,
}

/// What the next key holds.
#[derive(Debug, PartialEq, Eq)]
pub enum Next<'s> {
    /// Nothing, or something else than a string.
    Nothing,
    Value(&'s [u8]),
    /// That many bytes, to be read by [`Strings::append_chunk`].
    Large(u64),
}

impl Strings {
    /// The latches of all keys are held until this returns, and no longer needed afterwards.
    pub fn open(txn: &ReadTxn, names: &[&[u8]]) -> Result<Strings> {
        let keys: Vec<Key> = names.iter().map(|name| txn.key(name)).collect();
        let walk = |family| txn.rows(family, &[], &[], Direction::Forward);
        Ok(Strings {
            keys: keys.into_iter(),
            metadata: walk(Family::Metadata)?,
            data: walk(Family::Data)?,
            now_ms: txn.now_ms(),
            may_have_legacy: txn.store().may_have_legacy(),
            large: None,
        })
    }

    /// How many keys are left.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Goes on to the next key; `None` after the last.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Next<'_>>> {
        self.large = None;
        let Some(key) = self.keys.next() else {
            return Ok(None);
        };
        self.metadata.seek(key.metadata());
        if let Some((row_key, value)) = self.metadata.next()?
            && row_key == key.metadata()
        {
            let metadata = Metadata::decode(value)?;
            if metadata.is_expired(self.now_ms) {
                return Ok(Some(Next::Nothing));
            }
            return Ok(Some(match metadata.body {
                Body::Inline(value) => Next::Value(value),
                Body::Chunked { version, length } => {
                    let cursor = Cursor::new(&key, version, 0..length);
                    self.data.seek(&cursor.first_row());
                    self.large = Some(cursor);
                    Next::Large(length)
                }
                _ => Next::Nothing,
            }));
        }
        if self.may_have_legacy {
            let legacy_key = key.legacy();
            self.data.seek(&legacy_key);
            if let Some((row_key, value)) = self.data.next()?
                && row_key == &*legacy_key
            {
                let legacy = LegacyString::decode(value)?;
                if !has_expired(legacy.expire_ms, self.now_ms) {
                    return Ok(Some(Next::Value(legacy.payload)));
                }
            }
        }
        Ok(Some(Next::Nothing))
    }

    /// Appends some bytes of the large string that `next` has met; false when there are no more.
    pub fn append_chunk(&mut self, out: &mut Vec<u8>) -> Result<bool> {
        match &mut self.large {
            Some(cursor) => cursor.append_next(&mut self.data, out),
            None => Ok(false),
        }
    }
}
