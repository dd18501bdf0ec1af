//! Splitting a region at a slot: descriptors change, and no row of a key is written.

use cairn_encoding::raft::Membership;
use cairn_encoding::row;
use cairn_encoding::system::{Descriptor, SystemKey, SystemKind};

use super::{Regions, begin, walk};
use crate::batch::Batch;
use crate::error::{EngineError, Result};
use crate::family::Family;

impl Regions {
    /// The batch by which `region` keeps the slots below `at`, and `new` begins with the others. To be committed by the
    /// region's own log, evaluated while nothing else is. From then on `new` has a log of its own, with these members,
    /// which begins with what every replica has made of this batch.
    pub fn split(&self, region: u64, at: u16, new: u64, members: Membership) -> Result<Batch> {
        let refuse = |why: &str| EngineError::Refused(format!("region {region}: {why}"));
        let descriptor = self.descriptor(region)?;
        let descriptor = descriptor.ok_or_else(|| refuse("it is not here"))?;
        let (below, above) = descriptor
            .slots
            .split_at(at)
            .ok_or_else(|| refuse("one part would have no slots"))?;
        if new == region || self.descriptor(new)?.is_some() {
            return Err(refuse("the number of the other part is taken"));
        }
        let epoch = descriptor.epoch + 1;
        let mut batch = Batch::new();
        let (below, above) = (
            Descriptor {
                slots: below,
                epoch,
            },
            Descriptor {
                slots: above,
                epoch,
            },
        );
        let key = SystemKey::RegionDescriptor { region }.encode();
        batch.put(Family::Meta, &key, below.encode());
        begin(&mut batch, new, above, &Regions::beginning(members));
        for kind in SystemKind::OF_REGION {
            self.take_along(kind, region, new, at, &mut batch)?;
        }
        Ok(batch)
    }

    /// What the other part begins with of this kind.
    fn take_along(
        &self,
        kind: SystemKind,
        region: u64,
        new: u64,
        at: u16,
        batch: &mut Batch,
    ) -> Result<()> {
        let lower = kind.region_prefix(region);
        let upper = row::prefix_end(&lower).unwrap_or_default();
        let mut rows = self.engine.background_rows(Family::Meta, &lower, &upper);
        while let Some((key, value)) = rows.next()? {
            match kind {
                SystemKind::RegionDescriptor => continue,
                // It goes to whoever has the key that it is for.
                SystemKind::Staging if walk::slot_of(Family::Metadata, value)? < at => continue,
                SystemKind::Staging => batch.delete(Family::Meta, key),
                _ => {}
            }
            let mut renamed = kind.region_prefix(new).to_vec();
            renamed.extend_from_slice(&key[lower.len()..]);
            batch.put(Family::Meta, &renamed, value);
        }
        Ok(())
    }
}
