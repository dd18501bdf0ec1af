//! The sub-keys of a stream's rows, and the values of entries.

use super::{ID_LEN, Id};
use crate::DecodeError;
use crate::reader::Reader;

const ENTRY: u8 = 0;
const GROUP: u8 = 1;
const CONSUMER: u8 = 2;
const PENDING: u8 = 3;
const OWNED: u8 = 4;

/// What follows the version in the key of a stream's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sub<'a> {
    Entry(Id),
    Group(&'a [u8]),
    Consumer {
        group: &'a [u8],
        consumer: &'a [u8],
    },
    Pending {
        group: &'a [u8],
        id: Id,
    },
    Owned {
        group: &'a [u8],
        consumer: &'a [u8],
        id: Id,
    },
}

/// The sub-key of an entry, whose length is known.
pub type EntryRow = [u8; 1 + ID_LEN];

pub fn entry_sub(id: Id) -> EntryRow {
    let mut sub = [ENTRY; 1 + ID_LEN];
    sub[1..].copy_from_slice(&id.encode());
    sub
}

/// Whether a sub-key is that of an entry.
pub fn is_entry(sub: &[u8]) -> bool {
    sub.first() == Some(&ENTRY)
}

impl<'a> Sub<'a> {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match *self {
            Sub::Entry(id) => out.extend_from_slice(&entry_sub(id)),
            Sub::Group(group) => {
                out.push(GROUP);
                out.extend_from_slice(group);
            }
            Sub::Consumer { group, consumer } => {
                out = Sub::consumers_of(group);
                out.extend_from_slice(consumer);
            }
            Sub::Pending { group, id } => {
                out = Sub::pending_of(group);
                out.extend_from_slice(&id.encode());
            }
            Sub::Owned {
                group,
                consumer,
                id,
            } => {
                out = Sub::owned_by(group, consumer);
                out.extend_from_slice(&id.encode());
            }
        }
        out
    }

    /// What the sub-keys of all groups begin with.
    pub fn groups() -> Vec<u8> {
        vec![GROUP]
    }

    /// What those of a group's consumers begin with.
    pub fn consumers_of(group: &[u8]) -> Vec<u8> {
        with_name(vec![CONSUMER], group)
    }

    /// What those of a group's pending entries begin with.
    pub fn pending_of(group: &[u8]) -> Vec<u8> {
        with_name(vec![PENDING], group)
    }

    /// What those of a consumer's pending entries begin with.
    pub fn owned_by(group: &[u8], consumer: &[u8]) -> Vec<u8> {
        with_name(with_name(vec![OWNED], group), consumer)
    }

    pub fn decode(sub: &'a [u8]) -> Result<Sub<'a>, DecodeError> {
        let mut reader = Reader::new("stream sub-key", sub);
        let tag = reader.u8("tag")?;
        let sub = match tag {
            ENTRY => Sub::Entry(Id::read(&mut reader, "id")?),
            GROUP => return Ok(Sub::Group(reader.rest())),
            CONSUMER => {
                let group = read_name(&mut reader, "group")?;
                return Ok(Sub::Consumer {
                    group,
                    consumer: reader.rest(),
                });
            }
            PENDING => Sub::Pending {
                group: read_name(&mut reader, "group")?,
                id: Id::read(&mut reader, "id")?,
            },
            OWNED => Sub::Owned {
                group: read_name(&mut reader, "group")?,
                consumer: read_name(&mut reader, "consumer")?,
                id: Id::read(&mut reader, "id")?,
            },
            tag => return Err(DecodeError::UnknownStreamRow { tag }),
        };
        reader.finish()?;
        Ok(sub)
    }
}

fn with_name(mut out: Vec<u8>, name: &[u8]) -> Vec<u8> {
    append_field(&mut out, name);
    out
}

/// Appends a field, or its value, to an entry.
///
/// # Panics
///
/// If it is longer than `u32::MAX` bytes; the protocol ends at 512 MB.
pub fn append_field(out: &mut Vec<u8>, bytes: &[u8]) {
    assert!(bytes.len() <= u32::MAX as usize, "a field is too long");
    out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    out.extend_from_slice(bytes);
}

fn read_name<'a>(reader: &mut Reader<'a>, field: &'static str) -> Result<&'a [u8], DecodeError> {
    let length = reader.u32(field)?;
    // A length that this machine cannot even address is as truncated as any other that is too long.
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    reader.bytes(field, length)
}

/// The fields of an entry and their values, one after the other.
pub struct Fields<'a>(Reader<'a>);

impl<'a> Fields<'a> {
    pub fn of(entry: &'a [u8]) -> Fields<'a> {
        Fields(Reader::new("stream entry", entry))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<&'a [u8], DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.peek().is_empty() {
            return None;
        }
        Some(read_name(&mut self.0, "field"))
    }
}
