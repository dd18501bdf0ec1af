//! Whether the rows of a database agree with each other.
//!
//! A key lies in several rows of several families, and every command changes them together. This module
//! is the other side of that promise: it walks all rows once, in order, the families side by side, and
//! reports each place where they disagree. It knows no commands and takes no shortcuts, so a fault of the
//! store, of recovery or of the disk has nowhere to hide. It runs on a database that was opened
//! read-only, holds one row of each family at a time, and reports as it goes.
//!
//! What it holds the rows to:
//!
//! - every row decodes, and belongs to a database that is in use, or listed as dead, in the region of its slot;
//! - a collection has as many rows as its metadata says, a list no gaps between head and tail, a sorted
//!   set the same members in both orders, a chunked string no chunk beyond its length;
//! - a collection whose elements are counted has in each block as many as its count row says;
//! - a hash has as many fields that expire as it says, and it is known of each by name and by time;
//! - a key that expires has its expiry row, and so has a hash with fields that expire;
//! - no version is above the recorded maximum, and none in use is announced as staged.
//!
//! Rows of dead versions, of flushed databases and of lists that were popped are garbage that waits to be
//! reclaimed; so are expiry rows of an earlier time, and, on a node of a cluster, rows of slots that it has given away.
//! They are counted, and are no fault. What a snapshot is being installed over is not judged.

mod catalog;
mod contents;
mod counts;
mod cursor;
mod fault;
mod fields;
mod log;
mod stream;
mod summary;

pub use fault::{Fault, Place, Violation};
pub use summary::{Orphans, Summary};

use cairn_encoding::legacy::LegacyString;
use cairn_encoding::metadata::{Body, Metadata, Type};
use cairn_encoding::row::{self, RowKey};
use cairn_encoding::slot::slot;
use cairn_engine::{Engine, Family};

use crate::error::Result;
use catalog::{Catalog, Holder, Index, Region};
use contents::Contents;
use cursor::Cursor;
use log::Log;

/// Walks the whole database; each violation is reported as it is found.
pub fn check(engine: &Engine, report: &mut dyn FnMut(&Violation)) -> Result<Summary> {
    let mut log = Log::new(report);
    let catalog = Catalog::read(engine, &mut log)?;
    let mut walk = Walk {
        metadata: Cursor::open(engine, Family::Metadata, &mut log)?,
        data: Cursor::open(engine, Family::Data, &mut log)?,
        scores: Cursor::open(engine, Family::ZsetScore, &mut log)?,
        engine,
        catalog: &catalog,
        log,
        last_unknown: None,
        expiries: 0,
    };
    walk.keys()?;
    walk.expiry_rows()?;
    Ok(walk.log.summary)
}

struct Walk<'e, 'r> {
    engine: &'e Engine,
    catalog: &'e Catalog,
    metadata: Cursor,
    data: Cursor,
    scores: Cursor,
    log: Log<'r>,
    /// Keys come in the order of their index and slot: an index that belongs to nobody is reported once for each region.
    last_unknown: Option<(u64, u64)>,
    /// Keys that have the expiry row they need.
    expiries: u64,
}

/// One key while its rows pass by.
struct KeyRows<'k> {
    metadata_key: &'k [u8],
    place: &'k Place,
    region: &'k Region,
    /// The version that its metadata names; none if there is none.
    live: Option<u64>,
    has_metadata: bool,
    /// The last version that was compared with the maximum.
    compared: Option<u64>,
}

impl Walk<'_, '_> {
    /// Keys in order, each with its rows of all families.
    fn keys(&mut self) -> Result<()> {
        let mut key = Vec::new();
        loop {
            let cursors = [&self.metadata, &self.data, &self.scores];
            let Some(first) = cursors.into_iter().filter_map(Cursor::metadata_key).min() else {
                return Ok(());
            };
            key.clear();
            key.extend_from_slice(first);
            let (index, name) = RowKey::decode_metadata(&key)?.index_and_key();
            let (region, said) = match self.catalog.holder(slot(name)) {
                Holder::Region(number, region) => (number, region),
                Holder::Nobody => {
                    let rows = self.pass(&key)?;
                    self.log.summary.orphans.of_other_nodes += rows;
                    continue;
                }
                Holder::Unsettled => {
                    let rows = self.pass(&key)?;
                    self.log.summary.staged_rows += rows;
                    continue;
                }
            };
            match said.index(index) {
                Index::Database(database) => {
                    let name = name.to_vec();
                    self.key(&key, &Place::Key { database, name }, said)?;
                }
                Index::Dead => {
                    let rows = self.pass(&key)?;
                    self.log.summary.orphans.of_flushed_databases += rows;
                }
                Index::Unknown => {
                    let unknown = Some((region, index));
                    if std::mem::replace(&mut self.last_unknown, unknown) != unknown {
                        let fault = Fault::UnknownIndex { index };
                        self.log.fault_in(Family::Metadata, fault);
                    }
                    self.pass(&key)?;
                }
            }
        }
    }

    /// Passes over all rows of a key, and says how many they were.
    fn pass(&mut self, key: &[u8]) -> Result<u64> {
        let mut rows = 0;
        for cursor in [&mut self.metadata, &mut self.data, &mut self.scores] {
            while cursor.is_at(key) {
                cursor.advance(&mut self.log)?;
                rows += 1;
            }
        }
        Ok(rows)
    }

    fn key(&mut self, key: &[u8], place: &Place, region: &Region) -> Result<()> {
        let mut stored = None;
        if self.metadata.is_at(key) {
            stored = Some(self.metadata.take_value());
            self.metadata.advance(&mut self.log)?;
        }
        let metadata = match stored.as_deref().map(Metadata::decode).transpose() {
            Ok(metadata) => metadata,
            Err(error) => {
                self.log.fault(place, Fault::Metadata(error));
                // Which of its rows live, only the metadata could tell.
                self.pass(key)?;
                return Ok(());
            }
        };
        let mut rows = KeyRows {
            metadata_key: key,
            place,
            region,
            live: metadata.and_then(|metadata| metadata.version()),
            has_metadata: metadata.is_some(),
            compared: None,
        };
        if let Some(metadata) = &metadata {
            self.metadata_row(metadata, &mut rows)?;
        }
        let mut contents = metadata.map(|metadata| Contents::new(metadata, place));
        self.data_rows(&mut rows, contents.as_mut())?;
        self.score_rows(&mut rows, contents.as_mut())?;
        match contents {
            Some(contents) => contents.finish(self.engine, key, &mut self.log),
            None => Ok(()),
        }
    }

    fn metadata_row(&mut self, metadata: &Metadata<'_>, rows: &mut KeyRows<'_>) -> Result<()> {
        self.log.summary.count_key(metadata.kind());
        if let Some(version) = metadata.version() {
            self.compare_with_maximum(version, rows);
            if rows.region.is_staged(version) {
                let fault = Fault::StagedInUse { version };
                self.log.fault(rows.place, fault);
            }
        }
        if let Body::Collection {
            version,
            fields: Some(fields),
            ..
        } = metadata.body
        {
            let at_ms = fields.first_ms;
            let mut expiry_row = Vec::new();
            row::append_fields_expiry(&mut expiry_row, rows.metadata_key, at_ms, version);
            if self.engine.get(Family::Expiry, &expiry_row)?.is_some() {
                self.expiries += 1;
            } else {
                let fault = Fault::FieldsExpiryRowMissing { at_ms };
                self.log.fault(rows.place, fault);
            }
        }
        let at_ms = metadata.expire_ms;
        if at_ms == 0 {
            return Ok(());
        }
        let mut expiry_row = Vec::new();
        row::append_expiry(&mut expiry_row, rows.metadata_key, at_ms);
        if self.engine.get(Family::Expiry, &expiry_row)?.is_some() {
            self.expiries += 1;
        } else {
            let fault = Fault::ExpiryRowMissing { at_ms };
            self.log.fault(rows.place, fault);
        }
        Ok(())
    }

    fn data_rows(
        &mut self,
        rows: &mut KeyRows<'_>,
        mut contents: Option<&mut Contents<'_>>,
    ) -> Result<()> {
        while self.data.is_at(rows.metadata_key) {
            let (version, sub) = match self.data.row()? {
                RowKey::Data { version, sub, .. } => (version, sub),
                _ => {
                    self.legacy_row(rows);
                    self.data.advance(&mut self.log)?;
                    continue;
                }
            };
            match &mut contents {
                Some(contents) if rows.live == Some(version) => {
                    contents.data_row(sub, self.data.value(), &mut self.log);
                }
                _ => self.other_version(version, rows),
            }
            self.data.advance(&mut self.log)?;
        }
        Ok(())
    }

    fn score_rows(
        &mut self,
        rows: &mut KeyRows<'_>,
        mut contents: Option<&mut Contents<'_>>,
    ) -> Result<()> {
        while self.scores.is_at(rows.metadata_key) {
            let (row, value) = (self.scores.row()?, self.scores.value());
            if let RowKey::Score { version, .. }
            | RowKey::Count { version, .. }
            | RowKey::Field { version, .. }
            | RowKey::FieldTime { version, .. } = row
            {
                match (&mut contents, row) {
                    (Some(contents), RowKey::Score { score, member, .. })
                        if rows.live == Some(version) =>
                    {
                        contents.score_row(score, member, value, &mut self.log);
                    }
                    (Some(contents), RowKey::Count { first, .. }) if rows.live == Some(version) => {
                        contents.count_row(first, value, &mut self.log);
                    }
                    (Some(contents), RowKey::Field { .. } | RowKey::FieldTime { .. })
                        if rows.live == Some(version) =>
                    {
                        let key = rows.metadata_key;
                        contents.field_row(self.engine, key, row, value, &mut self.log)?;
                    }
                    _ => self.other_version(version, rows),
                }
            }
            self.scores.advance(&mut self.log)?;
        }
        Ok(())
    }

    /// A row of a version that no metadata names.
    fn other_version(&mut self, version: u64, rows: &mut KeyRows<'_>) {
        self.compare_with_maximum(version, rows);
        if rows.region.is_staged(version) {
            self.log.summary.staged_rows += 1;
        } else {
            self.log.summary.orphans.of_dead_versions += 1;
        }
    }

    fn compare_with_maximum(&mut self, version: u64, rows: &mut KeyRows<'_>) {
        if rows.compared.replace(version) == Some(version) {
            return;
        }
        if let Some(maximum) = rows.region.exceeded_by(version) {
            let fault = Fault::VersionAboveMaximum { version, maximum };
            self.log.fault(rows.place, fault);
        }
    }

    fn legacy_row(&mut self, rows: &KeyRows<'_>) {
        if let Err(error) = LegacyString::decode(self.data.value()) {
            let sub = Vec::new();
            self.log.fault(rows.place, Fault::Element { sub, error });
        }
        if rows.has_metadata {
            self.log.summary.orphans.superseded += 1;
            return;
        }
        self.log.summary.count_key(Type::String);
        if !rows.region.may_have_legacy() {
            self.log.fault(rows.place, Fault::LegacyHidden);
        }
    }

    /// Each must decode; those that no metadata names are stale.
    fn expiry_rows(&mut self) -> Result<()> {
        let mut rows = self.engine.background_rows(Family::Expiry, &[], &[]);
        let mut whole = 0_u64;
        while let Some((row, value)) = rows.next()? {
            self.log.summary.count_row(Family::Expiry);
            match RowKey::decode_expiry(row) {
                Ok(_) if value.is_empty() => whole += 1,
                Ok(_) => {
                    let (sub, length) = (row.to_vec(), value.len());
                    let fault = Fault::ValueNotEmpty { sub, length };
                    self.log.fault_in(Family::Expiry, fault);
                    whole += 1;
                }
                Err(error) => {
                    let row = row.to_vec();
                    self.log.fault_in(Family::Expiry, Fault::Row { row, error });
                }
            }
        }
        self.log.summary.stale_expiry_rows = whole.saturating_sub(self.expiries);
        Ok(())
    }
}
