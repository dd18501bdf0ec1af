//! What the `meta` family says, and whether it agrees with itself. It says it of each region, and a slot tells whose word
//! counts: two regions may have given out the same index.

use std::collections::{BTreeMap, BTreeSet};

use cairn_encoding::DecodeError;
use cairn_encoding::raft::Applied;
use cairn_encoding::system::{Descriptor, Identity, Maxima, Slots, SystemKey, value};
use cairn_engine::{Engine, Family};

use super::fault::{Fault, Place};
use super::log::Log;
use crate::error::Result;
use crate::holdings::Holdings;

pub struct Catalog {
    regions: BTreeMap<u64, Region>,
    holdings: Holdings,
    /// Regions in whose place a snapshot is put, and the slots that this is about.
    installing: BTreeSet<u64>,
    unsettled: Vec<Slots>,
    is_of_cluster: bool,
}

/// What is said of one region.
#[derive(Default)]
pub struct Region {
    /// Database numbers by index.
    databases: BTreeMap<u64, u32>,
    /// Indexes that two databases have.
    shared: Vec<(u64, u32, u32)>,
    dead: BTreeSet<u64>,
    staged: BTreeSet<u64>,
    next_index: Option<u64>,
    highest_version: Option<u64>,
    may_have_legacy: bool,
}

/// What an index stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Index {
    Database(u32),
    Dead,
    Unknown,
}

/// Who answers for the rows of a slot.
pub enum Holder<'c> {
    Region(u64, &'c Region),
    /// Another node, if any. The rows are left over.
    Nobody,
    /// Nobody can tell yet: they are being replaced.
    Unsettled,
}

/// What is read of the family, before it is known who holds what.
#[derive(Default)]
struct Reading {
    regions: BTreeMap<u64, Region>,
    described: BTreeMap<u64, Slots>,
    installing: BTreeMap<u64, Slots>,
}

impl Catalog {
    pub fn read(engine: &Engine, log: &mut Log<'_>) -> Result<Catalog> {
        let mut reading = Reading::default();
        let mut rows = engine.background_rows(Family::Meta, &[], &[]);
        while let Some((row, value)) = rows.next()? {
            log.summary.count_row(Family::Meta);
            if let Err(error) = reading.learn(row, value) {
                let row = row.to_vec();
                log.fault_in(Family::Meta, Fault::Row { row, error });
            }
        }
        let catalog = reading.finish();
        catalog.check_itself(log);
        Ok(catalog)
    }

    fn check_itself(&self, log: &mut Log<'_>) {
        if let Some((one, other)) = self.holdings.overlap() {
            log.fault_in(Family::Meta, Fault::SharedSlots { one, other });
        }
        for number in self.holdings.regions() {
            let place = match self.is_of_cluster {
                true => Place::Region(number),
                false => Place::Family(Family::Meta),
            };
            if let Some(region) = self.regions.get(&number)
                && !self.installing.contains(&number)
            {
                region.check_itself(&place, log);
            }
        }
    }

    pub fn holder(&self, slot: u16) -> Holder<'_> {
        if self.unsettled.iter().any(|slots| slots.contains(slot)) {
            return Holder::Unsettled;
        }
        let number = self.holdings.region_of(slot);
        match number.and_then(|number| self.regions.get_key_value(&number)) {
            Some((number, region)) => Holder::Region(*number, region),
            None => Holder::Nobody,
        }
    }
}

impl Reading {
    fn learn(&mut self, row: &[u8], value: &[u8]) -> Result<(), DecodeError> {
        match SystemKey::decode(row)? {
            SystemKey::Format => {
                value::decode_format(value)?;
            }
            SystemKey::Database { region, number } => {
                let index = value::decode_database(value)?;
                let region = self.region(region);
                if let Some(other) = region.databases.insert(index, number) {
                    region.shared.push((index, other, number));
                }
            }
            SystemKey::NextIndex { region } => {
                let next = value::decode_next_index(value)?;
                self.region(region).next_index = Some(next);
            }
            SystemKey::DeadIndex { region, index } => {
                value::decode_dead_index(value)?;
                self.region(region).dead.insert(index);
            }
            SystemKey::Staging { region, version } => {
                value::decode_staging(value)?;
                self.region(region).staged.insert(version);
            }
            SystemKey::Maxima { region } => {
                let highest = Maxima::decode(value)?.version;
                self.region(region).highest_version = Some(highest);
            }
            SystemKey::Watermark { .. } => {
                value::decode_watermark(value)?;
            }
            SystemKey::LegacyMayExist { region } => {
                value::decode_legacy_may_exist(value)?;
                self.region(region).may_have_legacy = true;
            }
            SystemKey::RegionDescriptor { region } => {
                let slots = Descriptor::decode(value)?.slots;
                self.described.insert(region, slots);
            }
            SystemKey::Applied { .. } => {
                Applied::decode(value)?;
            }
            SystemKey::Installing { region } => {
                self.installing.insert(region, Slots::decode(value)?);
            }
            SystemKey::Identity => {
                Identity::decode(value)?;
            }
            // How far the journal is applied, and what is for others to read: the code of functions, and the map of
            // a cluster.
            SystemKey::AppliedIndex { .. }
            | SystemKey::Library { .. }
            | SystemKey::ClusterMap { .. } => {}
        }
        Ok(())
    }

    fn region(&mut self, number: u64) -> &mut Region {
        self.regions.entry(number).or_default()
    }

    fn finish(mut self) -> Catalog {
        let mut unsettled = Vec::new();
        for (region, slots) in &self.installing {
            unsettled.push(*slots);
            unsettled.extend(self.described.get(region));
        }
        let is_of_cluster = !self.described.is_empty();
        let holdings = Holdings::new(std::mem::take(&mut self.described));
        // One that has just begun says nothing yet.
        for region in holdings.regions() {
            self.region(region);
        }
        Catalog {
            regions: self.regions,
            holdings,
            installing: self.installing.into_keys().collect(),
            unsettled,
            is_of_cluster,
        }
    }
}

impl Region {
    fn check_itself(&self, place: &Place, log: &mut Log<'_>) {
        // Both come with the first commit.
        if self.highest_version.is_none() && !self.databases.is_empty() {
            log.fault(place, Fault::NoMaxima);
        }
        for &(index, one, other) in &self.shared {
            log.fault(place, Fault::SharedIndex { index, one, other });
        }
        for (&index, &database) in &self.databases {
            if self.dead.contains(&index) {
                log.fault(place, Fault::DeadInUse { index, database });
            }
        }
        let next = self.next_index.unwrap_or(0);
        for &index in self.databases.keys().chain(&self.dead) {
            if index >= next {
                log.fault(place, Fault::IndexNotBelowNext { index, next });
            }
        }
    }

    pub fn index(&self, index: u64) -> Index {
        match self.databases.get(&index) {
            Some(&number) => Index::Database(number),
            None if self.dead.contains(&index) => Index::Dead,
            None => Index::Unknown,
        }
    }

    pub fn is_staged(&self, version: u64) -> bool {
        self.staged.contains(&version)
    }

    /// The highest version that was recorded, if this one is above it.
    pub fn exceeded_by(&self, version: u64) -> Option<u64> {
        self.highest_version.filter(|&highest| version > highest)
    }

    pub fn may_have_legacy(&self) -> bool {
        self.may_have_legacy
    }
}
