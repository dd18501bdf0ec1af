//! The row families: RocksDB calls them column families.

use crate::error::{EngineError, Result};

/// Where a row lives. The discriminant indexes arrays of per-family things, and stands for the family in the
/// journal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
#[repr(u8)]
pub enum Family {
    /// One row per key: type, expiry, version, size; small strings inline.
    Metadata,
    /// Hash fields, list elements, set members, zset member → score, chunks of large strings.
    Data,
    /// Members of sorted sets in score order.
    ZsetScore,
    /// What expires next, in time order.
    Expiry,
    /// Facts about the database itself.
    Meta,
}

impl Family {
    pub const COUNT: usize = 5;
    pub const ALL: [Family; Self::COUNT] = [
        Family::Metadata,
        Family::Data,
        Family::ZsetScore,
        Family::Expiry,
        Family::Meta,
    ];

    /// The families that hold keys and their contents, whose rows all begin with
    /// `keyspace_id | index_id`.
    pub const KEYED: [Family; 3] = [Family::Metadata, Family::Data, Family::ZsetScore];

    pub(crate) fn of_byte(byte: u8) -> Result<Family> {
        let family = Self::ALL.get(usize::from(byte)).copied();
        family.ok_or_else(|| EngineError::Corrupt(format!("there is no row family {byte}")))
    }

    pub const fn name(self) -> &'static str {
        match self {
            Family::Metadata => "metadata",
            Family::Data => "data",
            Family::ZsetScore => "zset_score",
            Family::Expiry => "expiry",
            Family::Meta => "meta",
        }
    }
}
