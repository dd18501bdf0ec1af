//! Whether it is known of the fields of a hash when they expire: by name, by time, and in the metadata.

use std::hash::Hasher;

use cairn_encoding::field_expiry::FieldTimes;
use cairn_encoding::metadata::Type;
use cairn_encoding::row;
use cairn_engine::{Engine, Family};
use rustc_hash::FxHasher;

use super::fault::{Fault, Place};
use super::log::Log;
use crate::error::Result;

/// Fields with their times, regardless of order.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Sum {
    rows: u64,
    hashes: u64,
}

impl Sum {
    fn add(&mut self, field: &[u8], at_ms: u64) {
        let mut hasher = FxHasher::default();
        hasher.write(field);
        hasher.write_u64(at_ms);
        self.rows += 1;
        self.hashes = self.hashes.wrapping_add(hasher.finish());
    }
}

#[derive(Default)]
pub struct FieldRows {
    by_name: Sum,
    by_time: Sum,
}

/// The hash that a row belongs to.
pub struct Of<'a> {
    pub engine: &'a Engine,
    pub metadata_key: &'a [u8],
    pub version: u64,
    pub fields: Option<FieldTimes>,
    pub place: &'a Place,
}

impl Of<'_> {
    /// Whether it is true that something expires at this time; else it is garbage.
    fn is_told(&self, at_ms: u64, log: &mut Log<'_>) -> bool {
        let is_told = self.fields.is_some_and(|fields| at_ms >= fields.first_ms);
        if !is_told {
            log.summary.orphans.cut_off += 1;
        }
        is_told
    }
}

impl FieldRows {
    pub fn add_by_name(
        &mut self,
        of: &Of<'_>,
        field: &[u8],
        at_ms: u64,
        log: &mut Log<'_>,
    ) -> Result<()> {
        if !of.is_told(at_ms, log) {
            return Ok(());
        }
        self.by_name.add(field, at_ms);
        let mut own = Vec::new();
        row::append_data(&mut own, of.metadata_key, of.version, field);
        if of.engine.get(Family::Data, &own)?.is_none() {
            let field = field.to_vec();
            log.fault(of.place, Fault::ExpiringFieldMissing { field });
        }
        match of.fields {
            Some(FieldTimes { last_ms, .. }) if at_ms > last_ms => {
                let fault = Fault::FieldTimeAfterLast {
                    field: field.to_vec(),
                    at_ms,
                    last_ms,
                };
                log.fault(of.place, fault);
            }
            _ => {}
        }
        Ok(())
    }

    pub fn add_by_time(&mut self, of: &Of<'_>, field: &[u8], at_ms: u64, log: &mut Log<'_>) {
        if of.is_told(at_ms, log) {
            self.by_time.add(field, at_ms);
        }
    }

    /// A row of something that is no hash.
    pub fn add_stray(&mut self) {
        self.by_name.rows += 1;
    }

    /// After the last row.
    pub fn finish(&self, kind: Type, fields: Option<FieldTimes>, place: &Place, log: &mut Log<'_>) {
        let rows = self.by_name.rows;
        if kind != Type::Hash {
            if rows > 0 {
                log.fault(place, Fault::StrayFieldTimes { kind, rows });
            }
            return;
        }
        let told = fields.map_or(0, |fields| fields.count);
        if told != rows || fields.is_some_and(|fields| fields.count == 0) {
            log.fault(place, Fault::FieldTimes { told, rows });
        }
        if self.by_name != self.by_time {
            log.fault(place, Fault::FieldTimesDiffer);
        }
    }
}
