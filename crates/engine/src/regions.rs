//! The regions of a cluster's node, of which each is a range of slots with a log of its own.
//!
//! A log is Raft's, and known here by its effects alone. What it has committed becomes young together with the place in the
//! log behind it, and is drained like all that one machine commits: so RocksDB holds, at every moment, the state of each
//! region at the place that it says. There is no journal. After a crash each log is applied again from there, and
//! it must not be purged beyond what is [`durable`](Regions::durable).
//!
//! What a region is (its slots and epoch) is a row, the descriptor, and changes by its own log like any other: a split is a
//! batch. Only what has no log yet is made from outside ([`Regions::create`]).

mod checksum;
mod identity;
mod incoming;
mod install;
mod snapshot;
mod split;
#[cfg(test)]
mod tests;
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::thread::JoinHandle;

use cairn_encoding::raft::{Applied, LogId, Membership};
use cairn_encoding::row;
use cairn_encoding::system::{Descriptor, Maxima, Slots, SystemKey, SystemKind};
use parking_lot::Mutex;

use crate::batch::Batch;
use crate::clock::Clock;
use crate::drain::Drain;
use crate::engine::Engine;
use crate::error::{EngineError, Result};
use crate::family::Family;
pub use incoming::Incoming;
use incoming::Taken;
pub use snapshot::Snapshot;

pub struct Regions {
    engine: Arc<Engine>,
    clock: Arc<Clock>,
    drain: Arc<Drain>,
    drainer: Option<JoinHandle<()>>,
    /// The last entry of each region's log that a power cut does not take back.
    durable: Mutex<BTreeMap<u64, u64>>,
    /// Held while that is found out.
    syncing: Mutex<()>,
    taken: Taken,
    /// What an open has found to be gone.
    lost: BTreeSet<u64>,
    #[cfg(test)]
    after_step: Mutex<Option<tests::AfterStep>>,
}

impl Regions {
    /// There is one for an engine that was opened in a cluster, and nobody else commits.
    pub fn open(engine: Arc<Engine>, clock: Arc<Clock>) -> Result<Regions> {
        let drain = Arc::new(Drain::new(engine.clone()));
        let mut regions = Regions {
            engine,
            clock,
            drain: drain.clone(),
            drainer: None,
            durable: Mutex::default(),
            syncing: Mutex::default(),
            taken: Taken::default(),
            lost: BTreeSet::new(),
            #[cfg(test)]
            after_step: Mutex::default(),
        };
        regions.lost = regions.finish_installing()?;
        for (_, value) in regions.system_rows(SystemKind::Maxima)? {
            let maxima = Maxima::decode(&value)?;
            regions
                .clock
                .advance_to(maxima.version, maxima.timestamp_ms);
        }
        regions.sync()?;
        let drainer = std::thread::Builder::new()
            .name("drain".into())
            .spawn(move || drain.run(|| ()))
            .map_err(|error| EngineError::Storage(format!("cannot start a thread: {error}")))?;
        regions.drainer = Some(drainer);
        Ok(regions)
    }

    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Regions whose rows were gone when it was opened, since a snapshot of them was half put in place and its files have
    /// vanished. Their logs are to be destroyed first, and then they are to be [removed](Regions::remove): a replica that has
    /// forgotten what it acknowledged must not take part.
    pub fn lost(&self) -> &BTreeSet<u64> {
        &self.lost
    }

    /// All regions that there are on this node, with what they are.
    pub fn list(&self) -> Result<BTreeMap<u64, Descriptor>> {
        list(&self.engine)
    }

    pub fn descriptor(&self, region: u64) -> Result<Option<Descriptor>> {
        let value = self.system_row(SystemKey::RegionDescriptor { region })?;
        Ok(value.as_deref().map(Descriptor::decode).transpose()?)
    }

    /// The slots that a region has here.
    fn slots(&self, region: u64) -> Result<Slots> {
        let descriptor = self.descriptor(region)?;
        Ok(descriptor.map_or(Slots::NONE, |descriptor| descriptor.slots))
    }

    /// Makes regions from outside, all or none, for good; each begins at a place in its log ([`Regions::beginning`]). With
    /// the first that has slots, the slots that nobody is given are nobody's: what one machine has left in them is
    /// dropped.
    pub fn create(&self, regions: &[(u64, Descriptor, Applied)]) -> Result<()> {
        self.create_beside(Batch::new(), regions)
    }

    /// The same, together with other rows.
    fn create_beside(
        &self,
        mut batch: Batch,
        regions: &[(u64, Descriptor, Applied)],
    ) -> Result<()> {
        let mut all = self.list()?;
        for (region, descriptor, beginning) in regions {
            let (region, descriptor) = (*region, *descriptor);
            all.remove(&region);
            let taken = |other: &Descriptor| other.slots.overlaps(descriptor.slots);
            if let Some((&other, _)) = all.iter().find(|(_, other)| taken(other)) {
                return Err(EngineError::SlotsTaken {
                    region,
                    slots: descriptor.slots,
                    other,
                });
            }
            all.insert(region, descriptor);
            begin(&mut batch, region, descriptor, beginning);
        }
        self.engine.write([&batch], true)?;
        self.sync_stored()
    }

    /// The place at which a region begins that is made from outside, or by a split. What it holds there is in no log. So it
    /// is not the first place: who has nothing of the region is behind it, and is sent a snapshot. And it knows
    /// who belongs to the region, since nobody will tell.
    pub fn beginning(membership: Membership) -> Applied {
        // No leader's: terms begin with 1.
        let first = LogId { term: 0, index: 1 };
        Applied {
            last: Some(first),
            timestamp_ms: 0,
            membership_at: Some(first),
            membership,
        }
    }

    /// Where a region is in its log; the default if nothing was ever applied to it.
    pub fn applied(&self, region: u64) -> Result<Applied> {
        match self.system_row(SystemKey::Applied { region })? {
            Some(value) => Ok(Applied::decode(&value)?),
            None => Ok(Applied::default()),
        }
    }

    /// The highest version and time that the region has seen.
    pub fn maxima(&self, region: u64) -> Result<Maxima> {
        match self.system_row(SystemKey::Maxima { region })? {
            Some(value) => Ok(Maxima::decode(&value)?),
            None => Ok(Maxima::default()),
        }
    }

    /// Whether more may be applied; otherwise [`Regions::make_room`] comes first.
    pub fn has_room(&self) -> bool {
        self.engine.has_room()
    }

    /// Waits until more may be applied. An error means that what there is could not be moved into RocksDB.
    pub fn make_room(&self) -> Result<()> {
        self.engine.make_room()
    }

    /// Shows what a region's log has committed, all of it at once, with the place behind it. Never waits. For one region
    /// this is not called while it is at work. An error means that nothing has changed.
    pub fn apply(
        &self,
        region: u64,
        batches: Vec<Batch>,
        applied: &Applied,
        maxima: Maxima,
    ) -> Result<()> {
        let before = self.maxima(region)?;
        let maxima = Maxima {
            version: maxima.version.max(before.version),
            timestamp_ms: maxima
                .timestamp_ms
                .max(before.timestamp_ms)
                .max(applied.timestamp_ms),
        };
        // First: whoever reads what is shown must not find it to be of the future.
        self.clock.advance_to(maxima.version, maxima.timestamp_ms);
        if self
            .engine
            .apply_in_region(region, batches, applied, maxima)
        {
            self.drain.wake();
        }
        Ok(())
    }

    /// The last entry of the region's log that a power cut does not take back; none if that is not known of any.
    pub fn durable(&self, region: u64) -> Option<u64> {
        self.durable.lock().get(&region).copied()
    }

    /// Makes durable all that has been applied, of all regions.
    pub fn sync(&self) -> Result<()> {
        self.engine.drain()?;
        self.sync_stored()
    }

    /// Makes durable all that is in RocksDB, and notes up to where that is.
    pub fn sync_stored(&self) -> Result<()> {
        let _one_at_a_time = self.syncing.lock();
        let view = self.engine.durable_view()?;
        let mut durable = BTreeMap::new();
        for (key, value) in view.scan(Family::Meta, &SystemKind::Applied.prefix())? {
            let last = Applied::decode(&value)?.last;
            if let (SystemKey::Applied { region }, Some(last)) = (SystemKey::decode(&key)?, last) {
                durable.insert(region, last.index);
            }
        }
        *self.durable.lock() = durable;
        Ok(())
    }

    fn system_row(&self, key: SystemKey<'_>) -> Result<Option<Vec<u8>>> {
        let value = self.engine.get(Family::Meta, &key.encode())?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn system_rows(&self, kind: SystemKind) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        system_rows(&self.engine, kind)
    }
}

/// What a region is at its beginning.
fn begin(batch: &mut Batch, region: u64, descriptor: Descriptor, beginning: &Applied) {
    let key = SystemKey::RegionDescriptor { region }.encode();
    batch.put(Family::Meta, &key, descriptor.encode());
    let mut place = Vec::new();
    beginning.encode(&mut place);
    batch.put(Family::Meta, &SystemKey::Applied { region }.encode(), place);
}

fn list(engine: &Engine) -> Result<BTreeMap<u64, Descriptor>> {
    let mut regions = BTreeMap::new();
    for (key, value) in system_rows(engine, SystemKind::RegionDescriptor)? {
        if let SystemKey::RegionDescriptor { region } = SystemKey::decode(&key)? {
            regions.insert(region, Descriptor::decode(&value)?);
        }
    }
    Ok(regions)
}

/// All rows of a kind.
fn system_rows(engine: &Engine, kind: SystemKind) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let lower = kind.prefix();
    let upper = row::prefix_end(&lower).unwrap_or_default();
    let mut rows = engine.background_rows(Family::Meta, &lower, &upper);
    let mut all = Vec::new();
    while let Some((key, value)) = rows.next()? {
        all.push((key.to_vec(), value.to_vec()));
    }
    Ok(all)
}

impl Drop for Regions {
    fn drop(&mut self) {
        let _waiting = self.engine.wait_for_drain();
        self.drain.close();
        if self
            .drainer
            .take()
            .is_some_and(|drainer| drainer.join().is_err())
        {
            tracing::error!("the thread that drains panicked");
        }
        if let Err(error) = self.engine.sync() {
            tracing::error!("what is young is left to the logs of the regions: {error}");
        }
    }
}
