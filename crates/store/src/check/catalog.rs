//! What the `meta` family says, and whether it agrees with itself.

use std::collections::{BTreeMap, BTreeSet};

use cairn_encoding::DecodeError;
use cairn_encoding::raft::Applied;
use cairn_encoding::system::{Descriptor, Maxima, Slots, SystemKey, value};
use cairn_engine::{Engine, Family};

use super::fault::Fault;
use super::log::Log;
use crate::error::Result;

#[derive(Default)]
pub struct Catalog {
    /// Database numbers by index.
    databases: BTreeMap<u64, u32>,
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

impl Catalog {
    pub fn read(engine: &Engine, log: &mut Log<'_>) -> Result<Catalog> {
        let mut catalog = Catalog::default();
        let mut rows = engine.background_rows(Family::Meta, &[], &[]);
        while let Some((row, value)) = rows.next()? {
            log.summary.count_row(Family::Meta);
            if let Err(error) = catalog.learn(row, value, log) {
                let row = row.to_vec();
                log.fault_in(Family::Meta, Fault::Row { row, error });
            }
        }
        catalog.check_itself(log);
        Ok(catalog)
    }

    fn learn(&mut self, row: &[u8], value: &[u8], log: &mut Log<'_>) -> Result<(), DecodeError> {
        match SystemKey::decode(row)? {
            SystemKey::Format => {
                value::decode_format(value)?;
            }
            SystemKey::Database { number, .. } => {
                let index = value::decode_database(value)?;
                if let Some(one) = self.databases.insert(index, number) {
                    let other = number;
                    log.fault_in(Family::Meta, Fault::SharedIndex { index, one, other });
                }
            }
            SystemKey::NextIndex { .. } => {
                let next = value::decode_next_index(value)?;
                self.next_index = self.next_index.max(Some(next));
            }
            SystemKey::DeadIndex { index, .. } => {
                value::decode_dead_index(value)?;
                self.dead.insert(index);
            }
            SystemKey::Staging { version, .. } => {
                value::decode_staging(value)?;
                self.staged.insert(version);
            }
            SystemKey::Maxima { .. } => {
                let highest = Maxima::decode(value)?.version;
                self.highest_version = self.highest_version.max(Some(highest));
            }
            SystemKey::Watermark { .. } => {
                value::decode_watermark(value)?;
            }
            SystemKey::LegacyMayExist { .. } => {
                value::decode_legacy_may_exist(value)?;
                self.may_have_legacy = true;
            }
            SystemKey::RegionDescriptor { .. } => {
                Descriptor::decode(value)?;
            }
            SystemKey::Applied { .. } => {
                Applied::decode(value)?;
            }
            SystemKey::Installing { .. } => {
                Slots::decode(value)?;
            }
            // How far the journal is applied, and the code of functions, which is for those who run it.
            SystemKey::AppliedIndex { .. } | SystemKey::Library { .. } => {}
        }
        Ok(())
    }

    fn check_itself(&self, log: &mut Log<'_>) {
        if self.highest_version.is_none() {
            log.fault_in(Family::Meta, Fault::NoMaxima);
        }
        for (&index, &database) in &self.databases {
            if self.dead.contains(&index) {
                log.fault_in(Family::Meta, Fault::DeadInUse { index, database });
            }
        }
        let next = self.next_index.unwrap_or(0);
        for &index in self.databases.keys().chain(&self.dead) {
            if index >= next {
                log.fault_in(Family::Meta, Fault::IndexNotBelowNext { index, next });
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
