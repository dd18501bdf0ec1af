//! The state of a region at one place in its log, to be sent to another node.
//!
//! Iterators on all families are opened at one moment, together with the rows that are young then. They pin what they were
//! opened on: whatever is committed, drained, compacted or dropped later does not show, however long the reader takes.
//! Compaction filters need not be held up for it, since nothing is opened afterwards.

use std::collections::VecDeque;

use cairn_encoding::changes;
use cairn_encoding::raft::Applied;
use cairn_encoding::system::{Descriptor, Slots, SystemKey, SystemKind};

use super::Regions;
use super::walk::SlotWalk;
use crate::error::Result;
use crate::family::Family;
use crate::rows::Rows;

/// How long a piece gets, give or take a row.
const PIECE: usize = 512 * 1024;

pub struct Snapshot {
    applied: Applied,
    system: VecDeque<(Vec<u8>, Vec<u8>)>,
    walks: VecDeque<SlotWalk>,
}

impl Regions {
    /// The state of a region as it is now.
    pub fn snapshot(&self, region: u64) -> Result<Snapshot> {
        let [metadata, data, scores, expiry, meta] = self.engine.at_one_moment(Family::ALL)?;
        let system = System::read(meta, region)?;
        let slots = system.slots()?;
        let walks = [
            SlotWalk::new(Family::Metadata, metadata, slots),
            SlotWalk::new(Family::Data, data, slots),
            SlotWalk::new(Family::ZsetScore, scores, slots),
            SlotWalk::new(Family::Expiry, expiry, slots),
        ];
        Ok(Snapshot {
            applied: system.applied,
            system: system.rows.into(),
            walks: walks.into(),
        })
    }
}

impl Snapshot {
    /// The place in the log.
    pub fn applied(&self) -> &Applied {
        &self.applied
    }

    pub(super) fn system(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let rows = self.system.iter();
        rows.map(|(key, value)| (&key[..], &value[..]))
    }

    pub(super) fn walks_mut(&mut self) -> impl Iterator<Item = &mut SlotWalk> {
        self.walks.iter_mut()
    }

    /// The next piece; none at the end.
    pub fn next_piece(&mut self) -> Result<Option<Vec<u8>>> {
        let mut piece = Vec::new();
        changes::begin_piece(&mut piece);
        let empty = piece.len();
        while piece.len() < PIECE
            && let Some((key, value)) = self.system.pop_front()
        {
            changes::append(&mut piece, Family::Meta as u8, &key, Some(&value));
        }
        while piece.len() < PIECE
            && let Some(walk) = self.walks.front_mut()
        {
            if walk.advance()? {
                let family = walk.family() as u8;
                changes::append(&mut piece, family, walk.key(), Some(walk.value()));
            } else {
                // What it has pinned can go.
                self.walks.pop_front();
            }
        }
        Ok((piece.len() > empty).then_some(piece))
    }
}

/// What the `meta` family says of a region.
struct System {
    applied: Applied,
    rows: Vec<(Vec<u8>, Vec<u8>)>,
}

impl System {
    fn slots(&self) -> Result<Slots> {
        let key = [SystemKind::RegionDescriptor as u8];
        let mut descriptors = self.rows.iter().filter(|(row, _)| row.starts_with(&key));
        match descriptors.next() {
            Some((_, value)) => Ok(Descriptor::decode(value)?.slots),
            None => Ok(Slots::NONE),
        }
    }

    fn read(mut meta: Rows, region: u64) -> Result<System> {
        let mut rows = Vec::new();
        for kind in SystemKind::OF_REGION {
            let prefix = kind.region_prefix(region);
            meta.seek(&prefix);
            while let Some((key, value)) = meta.next()?
                && key.starts_with(&prefix)
            {
                rows.push((key.to_vec(), value.to_vec()));
            }
        }
        let place = SystemKey::Applied { region }.encode();
        meta.seek(&place);
        let applied = match meta.next()? {
            Some((key, value)) if key == place => Applied::decode(value)?,
            _ => Applied::default(),
        };
        Ok(System { applied, rows })
    }
}
