//! What can be wrong with stored bytes.
//!
//! These bytes were written by this crate, so an error here means corruption, a foreign format or a bug,
//! and none is for a client to repair. Each message therefore names the layout and the place, in one
//! line, for whoever reads the log.

use crate::KEYSPACE_ID;
use thiserror::Error;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DecodeError {
    #[error("{layout}: {field} at byte {offset} takes {needed} bytes, {left} are left")]
    Truncated {
        layout: &'static str,
        field: &'static str,
        offset: usize,
        needed: usize,
        left: usize,
    },

    #[error("{layout}: complete at byte {offset}, yet {extra} bytes follow")]
    Trailing {
        layout: &'static str,
        offset: usize,
        extra: usize,
    },

    #[error("{layout}: keyspace_id is {found}, not {KEYSPACE_ID}")]
    ForeignKeyspace { layout: &'static str, found: u64 },

    #[error("{layout}: slot {stored} is stored, but the key belongs to slot {expected}")]
    WrongSlot {
        layout: &'static str,
        stored: u16,
        expected: u16,
    },

    #[error("{layout}: there is no range of slots from {first} to {end}")]
    NoSlotRange {
        layout: &'static str,
        first: u16,
        end: u16,
    },

    #[error("{layout}: unknown kind {kind}")]
    UnknownKind { layout: &'static str, kind: u8 },

    #[error("{layout}: the checksum is wrong")]
    WrongChecksum { layout: &'static str },

    #[error("{layout}: {bytes:02x?} encodes NaN or -0, which are never stored")]
    NotAScore {
        layout: &'static str,
        bytes: [u8; 8],
    },

    #[error("metadata value: bit 7 of flags {flags:#04x} is not set")]
    UnmarkedFlags { flags: u8 },

    #[error("metadata value: unknown type {code} in flags")]
    UnknownType { code: u8 },

    #[error("metadata value: flags mark a {kind} as a chunked string")]
    ChunkedNonString { kind: &'static str },

    #[error("metadata value: flags say that the elements of a {kind} are counted")]
    CountedOther { kind: &'static str },

    #[error("metadata value: flags say that a {kind} has fields that expire")]
    ExpiringOther { kind: &'static str },

    #[error("stream sub-key: unknown tag {tag:#04x}")]
    UnknownStreamRow { tag: u8 },

    #[error("system key: unknown tag {tag:#04x}")]
    UnknownTag { tag: u8 },

    #[error("{layout}: unknown tag {tag:#04x}")]
    UnknownRaftTag { layout: &'static str, tag: u8 },
}
