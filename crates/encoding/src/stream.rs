//! The rows of a stream.
//!
//! ```text
//!   metadata   version u64 | size u64 | added u64 | groups u64 | floor id | last id | deleted id
//!
//!   sub-key                                                      value
//!   00 | id                                                      field and value, one after the other
//!   01 | group                                                   a group, see `Group`
//!   02 | group_len u32 | group | consumer                        seen_ms u64 | pending u64
//!   03 | group_len u32 | group | id                              delivered_ms u64 | deliveries u64 | consumer
//!   04 | group_len u32 | group | consumer_len u32 | consumer | id   (empty)
//!
//!   id         ms u64 | seq u64
//!   entry      (length u32 | bytes) ...
//!   group      last id | read u64 | consumers u64 | pending u64 | low id
//! ```
//!
//! Entries come first, in the order of their IDs. No entry lies below the *floor*: what is trimmed away in front is
//! dead by lying there, as the elements of a list are outside of its bounds, and leaves no tombstones. Entries
//! that are deleted behind the first are deleted row by row.
//!
//! What a group has delivered and nobody has acknowledged is *pending*. It has a row in the order of IDs, which says
//! who has it, and another in the order of its consumer's. No pending entry of a group lies below its *low* ID.

mod row;

pub use row::{EntryRow, Fields, Sub, append_field, entry_sub, is_entry};

use std::fmt;

use crate::DecodeError;
use crate::reader::Reader;

pub const ID_LEN: usize = 16;

/// The ID of an entry. IDs sort as they are stored.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Id {
    pub ms: u64,
    pub seq: u64,
}

impl Id {
    pub const MIN: Id = Id { ms: 0, seq: 0 };
    pub const MAX: Id = Id {
        ms: u64::MAX,
        seq: u64::MAX,
    };

    pub const fn new(ms: u64, seq: u64) -> Id {
        Id { ms, seq }
    }

    /// The ID after this one; none after the last.
    pub fn next(self) -> Option<Id> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(Id { ms: self.ms, seq }),
            None => Some(Id::new(self.ms.checked_add(1)?, 0)),
        }
    }

    /// The ID before this one; none before the first.
    pub fn previous(self) -> Option<Id> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(Id { ms: self.ms, seq }),
            None => Some(Id::new(self.ms.checked_sub(1)?, u64::MAX)),
        }
    }

    pub fn encode(self) -> [u8; ID_LEN] {
        let mut bytes = [0; ID_LEN];
        bytes[..8].copy_from_slice(&self.ms.to_be_bytes());
        bytes[8..].copy_from_slice(&self.seq.to_be_bytes());
        bytes
    }

    pub(crate) fn read(reader: &mut Reader<'_>, field: &'static str) -> Result<Id, DecodeError> {
        Ok(Id {
            ms: reader.u64(field)?,
            seq: reader.u64(field)?,
        })
    }
}

/// As Redis prints it.
impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

/// What the metadata of a stream says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    pub version: u64,
    /// Entries that are there.
    pub size: u64,
    /// Entries that were ever added.
    pub added: u64,
    pub groups: u64,
    /// The first entry, if there is one. Rows of entries below are dead.
    pub floor: Id,
    /// The last ID that was given out.
    pub last: Id,
    /// The largest ID that was deleted, trimming aside.
    pub deleted: Id,
}

/// What follows version and size in the metadata of a stream.
pub type HeadRest = [u8; 2 * 8 + 3 * ID_LEN];

impl Head {
    /// What follows version and size.
    pub fn rest(&self) -> HeadRest {
        let mut rest = [0; 2 * 8 + 3 * ID_LEN];
        rest[..8].copy_from_slice(&self.added.to_be_bytes());
        rest[8..16].copy_from_slice(&self.groups.to_be_bytes());
        let ids = [self.floor, self.last, self.deleted];
        for (room, id) in rest[16..].chunks_exact_mut(ID_LEN).zip(ids) {
            room.copy_from_slice(&id.encode());
        }
        rest
    }

    pub fn of(version: u64, size: u64, rest: &[u8]) -> Result<Head, DecodeError> {
        let mut reader = Reader::new("stream metadata", rest);
        let head = Head {
            version,
            size,
            added: reader.u64("added")?,
            groups: reader.u64("groups")?,
            floor: Id::read(&mut reader, "floor")?,
            last: Id::read(&mut reader, "last")?,
            deleted: Id::read(&mut reader, "deleted")?,
        };
        reader.finish()?;
        Ok(head)
    }
}

/// A consumer group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    /// The last entry that was delivered.
    pub last: Id,
    /// How many entries up to that one were ever added, if it is known.
    pub read: Option<u64>,
    pub consumers: u64,
    pub pending: u64,
    /// No pending entry lies below.
    pub low: Id,
}

impl Group {
    /// What stands for a number that is not known: -1, as in Redis.
    const UNKNOWN: u64 = u64::MAX;

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(2 * ID_LEN + 3 * 8);
        out.extend_from_slice(&self.last.encode());
        out.extend_from_slice(&self.read.unwrap_or(Self::UNKNOWN).to_be_bytes());
        out.extend_from_slice(&self.consumers.to_be_bytes());
        out.extend_from_slice(&self.pending.to_be_bytes());
        out.extend_from_slice(&self.low.encode());
        out
    }

    pub fn decode(value: &[u8]) -> Result<Group, DecodeError> {
        let mut reader = Reader::new("stream group", value);
        let group = Group {
            last: Id::read(&mut reader, "last")?,
            read: Some(reader.u64("read")?).filter(|read| *read != Self::UNKNOWN),
            consumers: reader.u64("consumers")?,
            pending: reader.u64("pending")?,
            low: Id::read(&mut reader, "low")?,
        };
        reader.finish()?;
        Ok(group)
    }
}

/// A consumer of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Consumer {
    /// When it was last heard of.
    pub seen_ms: u64,
    pub pending: u64,
}

impl Consumer {
    pub fn encode(&self) -> [u8; 16] {
        let mut out = [0; 16];
        out[..8].copy_from_slice(&self.seen_ms.to_be_bytes());
        out[8..].copy_from_slice(&self.pending.to_be_bytes());
        out
    }

    pub fn decode(value: &[u8]) -> Result<Consumer, DecodeError> {
        let mut reader = Reader::new("stream consumer", value);
        let consumer = Consumer {
            seen_ms: reader.u64("seen_ms")?,
            pending: reader.u64("pending")?,
        };
        reader.finish()?;
        Ok(consumer)
    }
}

/// An entry that was delivered and not acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pending<'a> {
    pub delivered_ms: u64,
    pub deliveries: u64,
    pub consumer: &'a [u8],
}

impl<'a> Pending<'a> {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16 + self.consumer.len());
        out.extend_from_slice(&self.delivered_ms.to_be_bytes());
        out.extend_from_slice(&self.deliveries.to_be_bytes());
        out.extend_from_slice(self.consumer);
        out
    }

    pub fn decode(value: &'a [u8]) -> Result<Pending<'a>, DecodeError> {
        let mut reader = Reader::new("pending stream entry", value);
        Ok(Pending {
            delivered_ms: reader.u64("delivered_ms")?,
            deliveries: reader.u64("deliveries")?,
            consumer: reader.rest(),
        })
    }
}

#[cfg(test)]
mod tests;
