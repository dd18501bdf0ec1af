//! What the key before the reader holds, element by element.

use cairn_encoding::chunk::index_sub;
use cairn_encoding::field_expiry;
use cairn_encoding::metadata::has_expired;
use cairn_engine::{EngineError, Rows};

use super::Image;
use crate::error::{Error, Result};
use crate::key::Key;
use crate::string::Cursor;

/// An element of a collection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Element<'r> {
    /// Of a list or a set.
    Plain(&'r [u8]),
    Scored(&'r [u8], f64),
    Field {
        field: &'r [u8],
        value: &'r [u8],
        /// Zero: never.
        expire_ms: u64,
    },
}

/// How far the elements have been read.
#[derive(Default)]
pub(super) struct Walk {
    kind: Kind,
    size: u64,
    left: u64,
    /// What the keys of the rows begin with.
    prefix: Vec<u8>,
    chunks: Option<Cursor>,
    times: Option<Times>,
    /// A copy of the last field and its value, where there are times.
    field: Vec<u8>,
    value: Vec<u8>,
}

#[derive(Clone, Copy, Default)]
enum Kind {
    #[default]
    Nothing,
    Chunks,
    /// From this index on.
    List(u64),
    Set,
    Zset,
    /// No field of it expires before that, if one does.
    Hash(Option<u64>),
}

/// When fields of a hash expire, in the order of the fields.
struct Times {
    prefix: Vec<u8>,
    first_ms: u64,
    /// The field that comes next, and its time; before the first, none is known.
    field: Option<Vec<u8>>,
    at_ms: u64,
    is_at_end: bool,
}

impl Walk {
    fn new(kind: Kind, size: u64) -> Walk {
        Walk {
            kind,
            size,
            ..Walk::default()
        }
    }

    pub(super) fn chunks(length: u64) -> Walk {
        Walk::new(Kind::Chunks, length)
    }

    pub(super) fn list(head: u64, size: u64) -> Walk {
        Walk::new(Kind::List(head), size)
    }

    pub(super) fn set(size: u64) -> Walk {
        Walk::new(Kind::Set, size)
    }

    pub(super) fn zset(size: u64) -> Walk {
        Walk::new(Kind::Zset, size)
    }

    /// What the keys of its rows of `data` begin with.
    pub(super) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// Of so many fields that are not due.
    pub(super) fn hash(size: u64, first_ms: Option<u64>) -> Walk {
        Walk::new(Kind::Hash(first_ms), size)
    }
}

impl Image {
    /// The next element is the first again.
    pub fn rewind(&mut self) {
        let walk = &mut self.walk;
        walk.left = walk.size;
        walk.prefix = self.key.data(self.version, b"").to_vec();
        match walk.kind {
            Kind::Nothing => {}
            Kind::Chunks => {
                let cursor = Cursor::new(&self.key, self.version, 0..walk.size);
                self.data.seek(&cursor.first_row());
                walk.chunks = Some(cursor);
            }
            Kind::List(head) => {
                let first = self.key.data(self.version, &index_sub(head));
                self.data.seek(&first);
            }
            Kind::Set | Kind::Hash(None) => self.data.seek(&walk.prefix),
            Kind::Zset => self.scores.seek(&walk.prefix),
            Kind::Hash(Some(first_ms)) => {
                self.data.seek(&walk.prefix);
                let prefix = self.key.field(self.version, b"").to_vec();
                self.scores.seek(&prefix);
                walk.times = Some(Times {
                    prefix,
                    first_ms,
                    field: None,
                    at_ms: 0,
                    is_at_end: false,
                });
            }
        }
    }

    /// The next part of a long string, appended; false at the end.
    pub fn append_chunk(&mut self, out: &mut Vec<u8>) -> Result<bool> {
        match &mut self.walk.chunks {
            Some(chunks) => chunks.append_next(&mut self.data, out),
            None => Ok(false),
        }
    }

    /// The next element of a list, a set, a sorted set (by score) or a hash.
    pub fn next_element(&mut self) -> Result<Option<Element<'_>>> {
        let Some(left) = self.walk.left.checked_sub(1) else {
            return Ok(None);
        };
        self.walk.left = left;
        Ok(match self.walk.kind {
            Kind::Nothing | Kind::Chunks => None,
            Kind::List(_) => Some(Element::Plain(self.next_row()?.1)),
            Kind::Set => Some(Element::Plain(self.next_row()?.0)),
            Kind::Zset => Some(self.next_scored()?),
            Kind::Hash(None) => {
                let (field, value) = self.next_row()?;
                Some(Element::Field {
                    field,
                    value,
                    expire_ms: 0,
                })
            }
            Kind::Hash(Some(_)) => Some(self.next_timed()?),
        })
    }

    /// The next row of `data`, where there must be one: sub-key and value.
    fn next_row(&mut self) -> Result<(&[u8], &[u8])> {
        match self.data.next()? {
            Some((row_key, value)) if row_key.starts_with(&self.walk.prefix) => {
                Ok((&row_key[self.walk.prefix.len()..], value))
            }
            _ => Err(lacking(&self.key)),
        }
    }

    fn next_scored(&mut self) -> Result<Element<'_>> {
        match self.scores.next()? {
            Some((row_key, _)) if row_key.starts_with(&self.walk.prefix) => {
                let (score, member) = self.key.member_of(row_key);
                Ok(Element::Scored(member, score))
            }
            _ => Err(lacking(&self.key)),
        }
    }

    /// The next field that is not due, of a hash where some expire.
    fn next_timed(&mut self) -> Result<Element<'_>> {
        let walk = &mut self.walk;
        let Some(times) = &mut walk.times else {
            return Err(lacking(&self.key));
        };
        let expire_ms = loop {
            let (row_key, value) = match self.data.next()? {
                Some((row_key, value)) if row_key.starts_with(&walk.prefix) => (row_key, value),
                _ => return Err(lacking(&self.key)),
            };
            walk.field.clear();
            walk.field.extend_from_slice(&row_key[walk.prefix.len()..]);
            let at_ms = times.find(&mut self.scores, &walk.field)?;
            if !has_expired(at_ms, self.now_ms) {
                walk.value.clear();
                walk.value.extend_from_slice(value);
                break at_ms;
            }
        };
        Ok(Element::Field {
            field: &walk.field,
            value: &walk.value,
            expire_ms,
        })
    }
}

impl Times {
    /// When a field expires, zero for never. Fields are asked for in their order.
    fn find(&mut self, rows: &mut Rows, field: &[u8]) -> Result<u64> {
        while !self.is_at_end && self.field.as_deref().is_none_or(|ahead| ahead < field) {
            match rows.next()? {
                Some((row_key, value)) if row_key.starts_with(&self.prefix) => {
                    self.field = Some(row_key[self.prefix.len()..].to_vec());
                    self.at_ms = field_expiry::decode(value)?;
                }
                _ => self.is_at_end = true,
            }
        }
        // What is said of a time before the first is not true any more.
        let is_same = !self.is_at_end && self.field.as_deref() == Some(field);
        let is_told = is_same && self.at_ms >= self.first_ms;
        Ok(if is_told { self.at_ms } else { 0 })
    }
}

/// The rows say less than the metadata.
pub(super) fn lacking(key: &Key) -> Error {
    let name = String::from_utf8_lossy(key.name()).into_owned();
    EngineError::Corrupt(format!("rows of the key {name:?} are missing")).into()
}
