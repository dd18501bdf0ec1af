//! The `meta` family: what the database knows about itself.
//!
//! ```text
//!   Format             01                                  the layouts this database is written in
//!   Database           02 | region u64 | number u32        which index_id SELECT number means
//!   NextIndex          03 | region u64                     the next index_id to give out
//!   DeadIndex          04 | region u64 | index_id u64      a flushed database, to be reclaimed
//!   Staging            05 | region u64 | version u64       rows written ahead of their metadata
//!   Maxima             06 | region u64                     the highest version and time committed
//!   Watermark          07 | region u64                     all that was due before this is dealt with
//!   LegacyMayExist     08 | region u64                     strings of the old format may be left
//!   AppliedIndex       09 | region u64                     how far the journal of one machine is applied
//!   RegionDescriptor   0a | region u64                     slots and epoch of the region
//!   Library            0b | region u64 | length u32 | name of functions: a library of them
//!   Applied            0c | region u64                     how far the region's log is applied, and who belongs to it
//!   Installing         0d | region u64                     a snapshot is being put in the place of the region
//!   ClusterMap         0e | region u64                     who belongs to the cluster, and has what: of region 0
//!   Identity           0f                                  which node of which cluster this is
//! ```
//!
//! The tag comes first: a start-up lists all regions, or all staged versions, with one scan of a kind
//! ([`SystemKind::prefix`]), and a region finds its own with a narrower one
//! ([`SystemKind::region_prefix`]). Format and Identity belong to no region, and are one byte, so that every later
//! format can find the first.
//!
//! On one machine there is one region, without a descriptor: it has all slots. As soon as a region with slots has one, those
//! that no region names are nobody's.
//!
//! Tags are on disk and never used again for another kind. [`value`] holds what the rows say, [`region`] what
//! those of a cluster's regions do, and [`identity`] what a node remembers of itself. What a map is made of is known to whoever
//! keeps it.

pub mod identity;
pub mod region;
pub mod value;

use crate::DecodeError;
use crate::reader::Reader;
pub use identity::Identity;
pub use region::{Descriptor, Slots};
pub use value::Maxima;

/// The first byte of a key of the `meta` family.
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SystemKind {
    Format = 0x01,
    Database = 0x02,
    NextIndex = 0x03,
    DeadIndex = 0x04,
    Staging = 0x05,
    Maxima = 0x06,
    Watermark = 0x07,
    LegacyMayExist = 0x08,
    AppliedIndex = 0x09,
    RegionDescriptor = 0x0a,
    Library = 0x0b,
    Applied = 0x0c,
    Installing = 0x0d,
    ClusterMap = 0x0e,
    Identity = 0x0f,
}

impl SystemKind {
    /// What a region takes along when it moves to another node, in this order: first what it is. (Where it is in its log is
    /// told beside.)
    pub const OF_REGION: [SystemKind; 10] = [
        SystemKind::RegionDescriptor,
        SystemKind::Database,
        SystemKind::NextIndex,
        SystemKind::DeadIndex,
        SystemKind::Staging,
        SystemKind::Maxima,
        SystemKind::Watermark,
        SystemKind::LegacyMayExist,
        SystemKind::Library,
        SystemKind::ClusterMap,
    ];

    /// Bounds the rows of this kind, of all regions.
    pub fn prefix(self) -> [u8; 1] {
        [self as u8]
    }

    /// Bounds the rows of this kind that belong to one region.
    pub fn region_prefix(self, region: u64) -> [u8; 9] {
        let mut prefix = [self as u8; 9];
        prefix[1..].copy_from_slice(&region.to_be_bytes());
        prefix
    }

    fn of_tag(tag: u8) -> Result<SystemKind, DecodeError> {
        Ok(match tag {
            0x01 => SystemKind::Format,
            0x02 => SystemKind::Database,
            0x03 => SystemKind::NextIndex,
            0x04 => SystemKind::DeadIndex,
            0x05 => SystemKind::Staging,
            0x06 => SystemKind::Maxima,
            0x07 => SystemKind::Watermark,
            0x08 => SystemKind::LegacyMayExist,
            0x09 => SystemKind::AppliedIndex,
            0x0a => SystemKind::RegionDescriptor,
            0x0b => SystemKind::Library,
            0x0c => SystemKind::Applied,
            0x0d => SystemKind::Installing,
            0x0e => SystemKind::ClusterMap,
            0x0f => SystemKind::Identity,
            _ => return Err(DecodeError::UnknownTag { tag }),
        })
    }
}

/// A stored key of the `meta` family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SystemKey<'a> {
    Format,
    Database { region: u64, number: u32 },
    NextIndex { region: u64 },
    DeadIndex { region: u64, index: u64 },
    Staging { region: u64, version: u64 },
    Maxima { region: u64 },
    Watermark { region: u64 },
    LegacyMayExist { region: u64 },
    AppliedIndex { region: u64 },
    RegionDescriptor { region: u64 },
    Library { region: u64, name: &'a [u8] },
    Applied { region: u64 },
    Installing { region: u64 },
    ClusterMap { region: u64 },
    Identity,
}

impl<'a> SystemKey<'a> {
    pub fn kind(&self) -> SystemKind {
        match self {
            SystemKey::Format => SystemKind::Format,
            SystemKey::Database { .. } => SystemKind::Database,
            SystemKey::NextIndex { .. } => SystemKind::NextIndex,
            SystemKey::DeadIndex { .. } => SystemKind::DeadIndex,
            SystemKey::Staging { .. } => SystemKind::Staging,
            SystemKey::Maxima { .. } => SystemKind::Maxima,
            SystemKey::Watermark { .. } => SystemKind::Watermark,
            SystemKey::LegacyMayExist { .. } => SystemKind::LegacyMayExist,
            SystemKey::AppliedIndex { .. } => SystemKind::AppliedIndex,
            SystemKey::RegionDescriptor { .. } => SystemKind::RegionDescriptor,
            SystemKey::Library { .. } => SystemKind::Library,
            SystemKey::Applied { .. } => SystemKind::Applied,
            SystemKey::Installing { .. } => SystemKind::Installing,
            SystemKey::ClusterMap { .. } => SystemKind::ClusterMap,
            SystemKey::Identity => SystemKind::Identity,
        }
    }

    /// The region that the row belongs to, if it belongs to one.
    pub fn region(&self) -> Option<u64> {
        match *self {
            SystemKey::Format | SystemKey::Identity => None,
            SystemKey::Database { region, .. }
            | SystemKey::NextIndex { region }
            | SystemKey::DeadIndex { region, .. }
            | SystemKey::Staging { region, .. }
            | SystemKey::Maxima { region }
            | SystemKey::Watermark { region }
            | SystemKey::LegacyMayExist { region }
            | SystemKey::AppliedIndex { region }
            | SystemKey::RegionDescriptor { region }
            | SystemKey::Library { region, .. }
            | SystemKey::Applied { region }
            | SystemKey::Installing { region }
            | SystemKey::ClusterMap { region } => Some(region),
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        // Each commit says two things about itself.
        let mut out = Vec::with_capacity(24);
        self.encode_into(&mut out);
        out
    }

    /// Appends the key to `out`.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        let kind = self.kind();
        match *self {
            SystemKey::Format | SystemKey::Identity => out.extend_from_slice(&kind.prefix()),
            SystemKey::Database { region, number } => {
                out.extend_from_slice(&kind.region_prefix(region));
                out.extend_from_slice(&number.to_be_bytes());
            }
            SystemKey::DeadIndex {
                region,
                index: number,
            }
            | SystemKey::Staging {
                region,
                version: number,
            } => {
                out.extend_from_slice(&kind.region_prefix(region));
                out.extend_from_slice(&number.to_be_bytes());
            }
            SystemKey::Library { region, name } => {
                out.extend_from_slice(&kind.region_prefix(region));
                out.extend_from_slice(&(name.len() as u32).to_be_bytes());
                out.extend_from_slice(name);
            }
            SystemKey::NextIndex { region }
            | SystemKey::Maxima { region }
            | SystemKey::Watermark { region }
            | SystemKey::LegacyMayExist { region }
            | SystemKey::AppliedIndex { region }
            | SystemKey::RegionDescriptor { region }
            | SystemKey::Applied { region }
            | SystemKey::Installing { region }
            | SystemKey::ClusterMap { region } => {
                out.extend_from_slice(&kind.region_prefix(region));
            }
        }
    }

    pub fn decode(key: &'a [u8]) -> Result<SystemKey<'a>, DecodeError> {
        let mut reader = Reader::new("system key", key);
        let kind = SystemKind::of_tag(reader.u8("tag")?)?;
        let key = Self::read(kind, &mut reader)?;
        reader.finish()?;
        Ok(key)
    }

    fn read(kind: SystemKind, reader: &mut Reader<'a>) -> Result<SystemKey<'a>, DecodeError> {
        let region = |reader: &mut Reader<'a>| reader.u64("region");
        Ok(match kind {
            SystemKind::Format => SystemKey::Format,
            SystemKind::Database => SystemKey::Database {
                region: region(reader)?,
                number: reader.u32("number")?,
            },
            SystemKind::NextIndex => SystemKey::NextIndex {
                region: region(reader)?,
            },
            SystemKind::DeadIndex => SystemKey::DeadIndex {
                region: region(reader)?,
                index: reader.u64("index_id")?,
            },
            SystemKind::Staging => SystemKey::Staging {
                region: region(reader)?,
                version: reader.u64("version")?,
            },
            SystemKind::Maxima => SystemKey::Maxima {
                region: region(reader)?,
            },
            SystemKind::Watermark => SystemKey::Watermark {
                region: region(reader)?,
            },
            SystemKind::LegacyMayExist => SystemKey::LegacyMayExist {
                region: region(reader)?,
            },
            SystemKind::AppliedIndex => SystemKey::AppliedIndex {
                region: region(reader)?,
            },
            SystemKind::RegionDescriptor => SystemKey::RegionDescriptor {
                region: region(reader)?,
            },
            SystemKind::Applied => SystemKey::Applied {
                region: region(reader)?,
            },
            SystemKind::Installing => SystemKey::Installing {
                region: region(reader)?,
            },
            SystemKind::ClusterMap => SystemKey::ClusterMap {
                region: region(reader)?,
            },
            SystemKind::Identity => SystemKey::Identity,
            SystemKind::Library => SystemKey::Library {
                region: region(reader)?,
                name: {
                    let length = reader.u32("length")?;
                    reader.bytes("name", length as usize)?
                },
            },
        })
    }
}

#[cfg(test)]
mod tests;
