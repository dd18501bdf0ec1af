//! Putting a snapshot in the place of what a region was, and removing a region.
//!
//! To install is a row of steps, and a crash may come between any two:
//!
//! 1. what was received is brought to the disk;
//! 2. the mark `Installing` is written, synced;
//! 3. all rows of the region are deleted, of its old slots and of the new ones;
//! 4. the tables are taken in, family by family;
//! 5. one synced write sets what the snapshot says of the region, and its place in the log, and clears the mark;
//! 6. the hot rows of the region are forgotten, and the files are removed.
//!
//! An open that finds the mark does it again from the third step on. So nothing in between has to be synced, or atomic. The
//! region is not served meanwhile, and compaction filters keep everything in its slots.
//!
//! If an open finds the mark and not all of the files, the region is [lost](Regions::lost): neither what it was nor what it was to
//! be is here, while its log may say that it has acknowledged both. The mark stays until whoever has the log has destroyed that,
//! and removes the region.

use std::collections::BTreeSet;

use cairn_encoding::raft::Applied;
use cairn_encoding::row;
use cairn_encoding::system::{Slots, SystemKey, SystemKind};
use rust_rocksdb::{IngestExternalFileOptions, WriteBatch, WriteOptions};

use super::Regions;
use super::incoming::{self, Incoming, Received};
use super::walk::{SlotWalk, slot_of};
use crate::batch::Batch;
use crate::error::Result;
use crate::family::Family;
use crate::row::Row;

/// How many expiry rows are deleted in one write.
const AT_ONCE: usize = 10_000;

impl Regions {
    /// Puts what was received in the place of what the region is, with `applied` for its place in the log; it is durable
    /// then. Nothing may be applied to the region meanwhile, and nobody may begin to read it.
    pub fn install(&self, applied: &Applied, incoming: Incoming) -> Result<()> {
        let (region, slots) = (incoming.region(), incoming.slots());
        // Those who have begun come to their end.
        drop(self.engine.readers_of(region).write());
        let received = incoming.keep(applied)?;
        self.done(region, "kept")?;
        let mut mark = Batch::new();
        let key = SystemKey::Installing { region }.encode();
        mark.put(Family::Meta, &key, slots.encode());
        self.write(&mark, WriteBatch::default())?;
        self.done(region, "marked")?;
        self.put_in_place(region, received)
    }

    /// The steps from the mark on.
    fn put_in_place(&self, region: u64, received: Received) -> Result<()> {
        let old = self.slots(region)?;
        self.engine.drain()?;
        for slots in [old, received.slots] {
            self.clear(slots)?;
        }
        self.done(region, "cleared")?;
        for family in [
            Family::Metadata,
            Family::Data,
            Family::ZsetScore,
            Family::Expiry,
        ] {
            self.ingest(family, &received)?;
            self.done(region, "ingested")?;
        }
        let mut batch = self.without_system_rows(region)?;
        for (family, key, value) in received.system.changes() {
            batch.put(family, key, value.unwrap_or_default());
        }
        let mut place = Vec::new();
        received.installation.applied.encode(&mut place);
        batch.put(Family::Meta, &SystemKey::Applied { region }.encode(), place);
        self.write(&batch, WriteBatch::default())?;
        self.done(region, "set")?;
        self.forget(region, &[old, received.slots]);
        self.done(region, "forgotten")?;
        received.remove();
        self.sync()
    }

    /// Does again what a crash has interrupted, and returns the regions for which that cannot be done.
    pub(super) fn finish_installing(&self) -> Result<BTreeSet<u64>> {
        let mut lost = BTreeSet::new();
        for (key, _) in self.system_rows(SystemKind::Installing)? {
            let SystemKey::Installing { region } = SystemKey::decode(&key)? else {
                continue;
            };
            match Received::open(self.engine.path(), region)? {
                Some(received) => self.put_in_place(region, received)?,
                None => {
                    tracing::error!(
                        "the snapshot of region {region} is not whole, and what it was to replace is gone: this replica is lost"
                    );
                    lost.insert(region);
                }
            }
        }
        incoming::remove_leftovers(self.engine.path())?;
        Ok(lost)
    }

    /// Forgets a region, for good: its rows, and all that is known of it. Nothing may be applied to it meanwhile, and
    /// nobody may read it.
    pub fn remove(&self, region: u64) -> Result<()> {
        drop(self.engine.readers_of(region).write());
        let mut all = vec![self.slots(region)?];
        let mark = SystemKey::Installing { region }.encode();
        let marks = self.system_rows(SystemKind::Installing)?.into_iter();
        for (_, slots) in marks.filter(|(key, _)| *key == mark) {
            all.push(Slots::decode(&slots)?);
        }
        // Until all is gone nobody else may come there.
        let taken = all.iter().map(|slots| self.taken.take(region, *slots));
        let _taken: Vec<_> = taken.collect();
        self.engine.drain()?;
        // Nobody notes what was durable of it afterwards.
        let syncing = self.syncing.lock();
        self.durable.lock().remove(&region);
        // What it is and what it has goes at once. Its expiry rows follow: they name keys that are not there.
        let batch = self.without_system_rows(region)?;
        let mut ranges = WriteBatch::default();
        for slots in &all {
            self.delete_ranges(*slots, &mut ranges)?;
        }
        self.write(&batch, ranges)?;
        drop(syncing);
        self.forget(region, &all);
        for slots in all {
            self.clear(slots)?;
        }
        incoming::remove_all(&incoming::directory(self.engine.path(), region))
    }

    /// Deletes all that the `meta` family says of a region.
    fn without_system_rows(&self, region: u64) -> Result<Batch> {
        let mut batch = Batch::new();
        let others = [SystemKind::Applied, SystemKind::Installing];
        for kind in SystemKind::OF_REGION.into_iter().chain(others) {
            let lower = kind.region_prefix(region);
            let upper = row::prefix_end(&lower).unwrap_or_default();
            let mut rows = self.engine.background_rows(Family::Meta, &lower, &upper);
            while let Some((key, _)) = rows.next()? {
                batch.delete(Family::Meta, key);
            }
        }
        Ok(batch)
    }

    /// Writes to RocksDB itself, synced. Whoever does must forget what is known of the rows from before.
    fn write(&self, batch: &Batch, mut writes: WriteBatch) -> Result<()> {
        let database = self.engine.database();
        for (family, key, value) in batch.changes() {
            let family = database.family(family);
            match value {
                Some(value) => writes.put_cf(&family, key, value),
                None => writes.delete_cf(&family, key),
            }
        }
        let mut options = WriteOptions::default();
        options.set_sync(true);
        Ok(database.db().write_opt(&writes, &options)?)
    }

    /// Rows in memory are of the time before.
    fn forget(&self, region: u64, all: &[Slots]) {
        let region = region.to_be_bytes();
        self.engine.measure().doubt();
        self.engine.young().forget(|row: &Row| match row.family() {
            Family::Meta => row.key().get(1..9) == Some(&region),
            family => slot_of(family, row.key())
                .is_ok_and(|slot| all.iter().any(|slots| slots.contains(slot))),
        });
    }

    /// Deletes all rows in a range of slots.
    fn clear(&self, slots: Slots) -> Result<()> {
        let database = self.engine.database();
        let mut ranges = WriteBatch::default();
        self.delete_ranges(slots, &mut ranges)?;
        database.db().write(&ranges)?;
        let mut writes = WriteBatch::default();
        let mut expiry = self.walk(Family::Expiry, slots);
        while expiry.advance()? {
            writes.delete_cf(&database.family(Family::Expiry), expiry.key());
            if writes.len() == AT_ONCE {
                database.db().write(&writes)?;
                writes.clear();
            }
        }
        Ok(database.db().write(&writes)?)
    }

    /// Deletes what the slots have of keys and their contents, in whatever database.
    fn delete_ranges(&self, slots: Slots, writes: &mut WriteBatch) -> Result<()> {
        let mut indexes = BTreeSet::new();
        for family in Family::KEYED {
            let mut walk = self.walk(family, slots);
            while walk.advance()? {
                let index = row::index_of(walk.key()).unwrap_or_default();
                indexes.insert(index);
                if !walk.skip_database(index) {
                    break;
                }
            }
        }
        for index in indexes {
            let (mut from, mut to) = (Vec::new(), Vec::new());
            row::slot_prefix(&mut from, index, slots.first());
            row::slot_prefix(&mut to, index, slots.end());
            for family in Family::KEYED {
                let family = self.engine.database().family(family);
                writes.delete_range_cf(&family, &from, &to);
            }
        }
        Ok(())
    }

    fn walk(&self, family: Family, slots: Slots) -> SlotWalk {
        let rows = self.engine.background_rows(family, &[], &[]);
        SlotWalk::new(family, rows, slots)
    }

    fn ingest(&self, family: Family, received: &Received) -> Result<()> {
        let links = received.links(family)?;
        if links.is_empty() {
            return Ok(());
        }
        let mut options = IngestExternalFileOptions::default();
        options.set_move_files(true);
        let database = self.engine.database();
        let family = database.family(family);
        Ok(database
            .db()
            .ingest_external_file_cf_opts(&family, &options, links)?)
    }

    /// A step of an installation is done. Tests may let it end there.
    fn done(&self, region: u64, step: &str) -> Result<()> {
        tracing::debug!("the snapshot of region {region}: {step}");
        #[cfg(test)]
        if let Some(after_step) = &*self.after_step.lock() {
            return after_step(step);
        }
        Ok(())
    }
}
