//! Which rows of a key live, by what its metadata says: the few facts about types that the engine needs.

use cairn_encoding::field_expiry;
use cairn_encoding::metadata::{Body, CollectionKind, Metadata};
use cairn_encoding::row::RowKey;
use cairn_encoding::stream::{self, Id};

use crate::error::Result;

#[derive(Clone, Copy)]
pub(crate) enum Liveness {
    None,
    Version(u64),
    /// What says that a field expires before `first_ms` is dead; without, whatever says that one does.
    Hash {
        version: u64,
        first_ms: Option<u64>,
    },
    List {
        version: u64,
        head: u64,
        tail: u64,
    },
    Stream {
        version: u64,
        floor: Id,
    },
}

/// What a row of a version is about.
pub(crate) enum Part<'r> {
    /// An element.
    Sub(&'r [u8]),
    /// That a field expires at this time.
    FieldTime(u64),
    Other,
}

impl<'r> Part<'r> {
    /// With the version; none for rows that have none.
    pub(crate) fn of(row: &RowKey<'r>, value: &[u8]) -> Result<Option<(u64, Part<'r>)>> {
        Ok(match *row {
            RowKey::Data { version, sub, .. } => Some((version, Part::Sub(sub))),
            RowKey::Score { version, .. } | RowKey::Count { version, .. } => {
                Some((version, Part::Other))
            }
            RowKey::Field { version, .. } => {
                Some((version, Part::FieldTime(field_expiry::decode(value)?)))
            }
            RowKey::FieldTime { version, at_ms, .. } => Some((version, Part::FieldTime(at_ms))),
            RowKey::Metadata { .. }
            | RowKey::Legacy { .. }
            | RowKey::Expiry { .. }
            | RowKey::FieldsExpiry { .. } => None,
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Lives,
    DeadVersion,
    /// The version lives, and this is no longer part of it.
    CutOff,
}

impl Liveness {
    /// By the value of the metadata row, if there is one.
    pub(crate) fn of(metadata: Option<&[u8]>) -> Result<Liveness> {
        let Some(value) = metadata else {
            return Ok(Liveness::None);
        };
        Ok(match Metadata::decode(value)?.body {
            Body::Inline(_) => Liveness::None,
            Body::Collection {
                kind: CollectionKind::Hash,
                version,
                fields,
                ..
            } => Liveness::Hash {
                version,
                first_ms: fields.map(|fields| fields.first_ms),
            },
            Body::Chunked { version, .. } | Body::Collection { version, .. } => {
                Liveness::Version(version)
            }
            Body::List {
                version,
                head,
                tail,
                ..
            } => Liveness::List {
                version,
                head,
                tail,
            },
            Body::Stream {
                version,
                size,
                rest,
            } => Liveness::Stream {
                version,
                floor: stream::Head::of(version, size, rest)?.floor,
            },
        })
    }

    /// Whether all elements of a version live, for all that is known without a look at them.
    pub(crate) fn spares(self, version: u64) -> bool {
        match self {
            Liveness::Version(live) | Liveness::Hash { version: live, .. } => live == version,
            Liveness::None | Liveness::List { .. } | Liveness::Stream { .. } => false,
        }
    }

    pub(crate) fn judge(self, version: u64, part: Part<'_>) -> Fate {
        let is_cut_off = match self {
            Liveness::Version(live) if live == version => false,
            Liveness::Hash {
                version: live,
                first_ms,
            } if live == version => match part {
                Part::FieldTime(at_ms) => first_ms.is_none_or(|first_ms| at_ms < first_ms),
                _ => false,
            },
            Liveness::List {
                version: live,
                head,
                tail,
            } if live == version => match part {
                Part::Sub(sub) => sub
                    .try_into()
                    .map(u64::from_be_bytes)
                    .is_ok_and(|index| index < head || index >= tail),
                _ => false,
            },
            Liveness::Stream {
                version: live,
                floor,
            } if live == version => match part {
                Part::Sub(sub) => stream::is_entry(sub) && sub < &stream::entry_sub(floor)[..],
                _ => false,
            },
            _ => return Fate::DeadVersion,
        };
        match is_cut_off {
            true => Fate::CutOff,
            false => Fate::Lives,
        }
    }
}
