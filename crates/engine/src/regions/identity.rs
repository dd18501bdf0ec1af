//! What a node knows of its cluster, besides its regions.

use cairn_encoding::raft::Applied;
use cairn_encoding::system::{Descriptor, Identity, SystemKey, SystemKind};

use super::Regions;
use crate::LOCAL_REGION;
use crate::batch::Batch;
use crate::error::Result;
use crate::family::Family;

impl Regions {
    /// Which node of which cluster this is; none if it belongs to none.
    pub fn identity(&self) -> Result<Option<Identity>> {
        let value = self.system_row(SystemKey::Identity)?;
        Ok(value.as_deref().map(Identity::decode).transpose()?)
    }

    /// Sets that, durably.
    pub fn set_identity(&self, identity: &Identity) -> Result<()> {
        self.engine.write([&named(identity)], true)
    }

    /// Makes this the first node of a cluster that begins with these regions: all of it, or nothing. The map is a row of one
    /// of them.
    pub fn found(
        &self,
        identity: &Identity,
        (map_region, map): (u64, &[u8]),
        regions: &[(u64, Descriptor, Applied)],
    ) -> Result<()> {
        let mut batch = named(identity);
        batch.put(Family::Meta, &map_key(map_region), map);
        self.hand_over_libraries(map_region, &mut batch)?;
        self.create_beside(batch, regions)
    }

    /// Functions are those of the whole cluster, and so of the map's region.
    fn hand_over_libraries(&self, to: u64, batch: &mut Batch) -> Result<()> {
        let own = SystemKind::Library.region_prefix(LOCAL_REGION);
        for (key, value) in self.system_rows(SystemKind::Library)? {
            if let Some(name) = key.strip_prefix(&own[..]) {
                let renamed = [&SystemKind::Library.region_prefix(to)[..], name].concat();
                batch.put(Family::Meta, &renamed, value);
                batch.delete(Family::Meta, &key);
            }
        }
        Ok(())
    }

    /// The map of the cluster, as the log of its region has it here; none if there is none here.
    pub fn map(&self, region: u64) -> Result<Option<Vec<u8>>> {
        self.system_row(SystemKey::ClusterMap { region })
    }

    /// A batch of that region by which the map becomes this.
    pub fn map_batch(region: u64, map: &[u8]) -> Batch {
        let mut batch = Batch::new();
        batch.put(Family::Meta, &map_key(region), map);
        batch
    }
}

fn map_key(region: u64) -> Vec<u8> {
    SystemKey::ClusterMap { region }.encode()
}

fn named(identity: &Identity) -> Batch {
    let mut batch = Batch::new();
    let key = SystemKey::Identity.encode();
    batch.put(Family::Meta, &key, identity.encode());
    batch
}
