//! What the replicas of a region compare: a checksum of what the region holds at a place of its log.
//!
//! Replicas that are at the same place have been told the same, but not all of them still have all of it: filters drop what
//! is dead when compactions come by. So only what lives is summed up: rows of databases that are in use, of keys that are not
//! due before the watermark, of the versions that live, without what was cut off from them, and expiry rows that are true.

use std::collections::HashSet;

use cairn_encoding::checksum::Checksum;
use cairn_encoding::metadata::{self, Body, Metadata};
use cairn_encoding::raft::Applied;
use cairn_encoding::row::{self, RowKey};
use cairn_encoding::system::{SystemKey, SystemKind, value};

use super::Regions;
use super::walk::SlotWalk;
use crate::error::{EngineError, Result};
use crate::family::Family;
use crate::liveness::{Fate, Liveness, Part};

/// What the `meta` family says that all replicas must agree on. Which databases are still to be reclaimed, and whether
/// there are old strings left, each may know better than others.
const COMPARED: [SystemKind; 7] = [
    SystemKind::RegionDescriptor,
    SystemKind::Database,
    SystemKind::NextIndex,
    SystemKind::Maxima,
    SystemKind::Watermark,
    SystemKind::Library,
    SystemKind::ClusterMap,
];

impl Regions {
    /// The checksum of a region as it is now, and the place in its log that it is of. Takes as long as to read all of it.
    pub fn checksum(&self, region: u64) -> Result<(Applied, Checksum)> {
        let mut snapshot = self.snapshot(region)?;
        let mut summing = Summing::default();
        for (key, value) in snapshot.system() {
            summing.add_system_row(key, value)?;
        }
        let mut walks = snapshot.walks_mut();
        let (Some(metadata), Some(data), Some(scores), Some(expiry)) =
            (walks.next(), walks.next(), walks.next(), walks.next())
        else {
            return Err(EngineError::Corrupt("a snapshot lacks a family".into()));
        };
        drop(walks);
        summing.add_metadata(metadata)?;
        summing.add_contents(metadata, data)?;
        summing.add_contents(metadata, scores)?;
        summing.add_expiry(metadata, expiry)?;
        Ok((snapshot.applied().clone(), summing.checksum))
    }
}

#[derive(Default)]
struct Summing {
    checksum: Checksum,
    /// The databases in use.
    indexes: HashSet<u64>,
    watermark_ms: u64,
}

impl Summing {
    fn add_system_row(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let row = SystemKey::decode(key)?;
        match row {
            SystemKey::Database { .. } => {
                self.indexes.insert(value::decode_database(value)?);
            }
            SystemKey::Watermark { .. } => self.watermark_ms = value::decode_watermark(value)?,
            _ => {}
        }
        if COMPARED.contains(&row.kind()) {
            self.checksum.add(Family::Meta as u8, key, value);
        }
        Ok(())
    }

    fn is_in_use(&self, key: &[u8]) -> bool {
        row::index_of(key).is_some_and(|index| self.indexes.contains(&index))
    }

    fn lives(&self, metadata: &SlotWalk) -> Result<bool> {
        let expire_ms = metadata::expire_of(metadata.value())?;
        let is_due = expire_ms != 0 && expire_ms < self.watermark_ms;
        Ok(!is_due && self.is_in_use(metadata.key()))
    }

    fn add(&mut self, walk: &SlotWalk) {
        let family = walk.family() as u8;
        self.checksum.add(family, walk.key(), walk.value());
    }

    fn add_metadata(&mut self, metadata: &mut SlotWalk) -> Result<()> {
        while metadata.advance()? {
            if self.lives(metadata)? {
                self.add(metadata);
            }
        }
        Ok(())
    }

    /// Both walks are in the order of keys, so one goes along with the other.
    fn add_contents(&mut self, metadata: &mut SlotWalk, contents: &mut SlotWalk) -> Result<()> {
        metadata.rewind();
        let mut has_metadata = metadata.advance()?;
        let mut last: Option<(Vec<u8>, Liveness)> = None;
        while contents.advance()? {
            let row = match contents.family() {
                Family::Data => RowKey::decode_data(contents.key())?,
                _ => RowKey::decode_score(contents.key())?,
            };
            let Some((version, part)) = Part::of(&row, contents.value())? else {
                // A string of the old format stands for itself.
                if self.is_in_use(contents.key()) {
                    self.add(contents);
                }
                continue;
            };
            let owner = row::metadata_key_of(contents.key())?;
            let liveness = match &last {
                Some((key, liveness)) if key == owner => *liveness,
                _ => {
                    while has_metadata && metadata.key() < owner {
                        has_metadata = metadata.advance()?;
                    }
                    let is_there = has_metadata && metadata.key() == owner;
                    let liveness = match is_there && self.lives(metadata)? {
                        true => Liveness::of(Some(metadata.value()))?,
                        false => Liveness::None,
                    };
                    last = Some((owner.to_vec(), liveness));
                    liveness
                }
            };
            if liveness.judge(version, part) == Fate::Lives {
                self.add(contents);
            }
        }
        Ok(())
    }

    /// These are in the order of time: the metadata of each is looked for.
    fn add_expiry(&mut self, metadata: &mut SlotWalk, expiry: &mut SlotWalk) -> Result<()> {
        while expiry.advance()? {
            let owner = row::metadata_key_of_expiry(expiry.key())?;
            metadata.seek(owner);
            let is_there = metadata.advance()? && metadata.key() == owner;
            if is_there && self.lives(metadata)? && is_true(expiry.key(), metadata.value())? {
                self.add(expiry);
            }
        }
        Ok(())
    }
}

/// Whether the key, or a field of it, expires when the row says so.
fn is_true(expiry: &[u8], metadata: &[u8]) -> Result<bool> {
    let metadata = Metadata::decode(metadata)?;
    Ok(match RowKey::decode_expiry(expiry)? {
        RowKey::FieldsExpiry {
            at_ms, version: of, ..
        } => matches!(
            metadata.body,
            Body::Collection { version, fields: Some(fields), .. }
                if version == of && fields.first_ms == at_ms
        ),
        RowKey::Expiry { at_ms, .. } => metadata.expire_ms == at_ms,
        _ => false,
    })
}
