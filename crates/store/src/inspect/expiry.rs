//! The rows of `expiry` that name a key.
//!
//! They lie in the order of time, so the one that the metadata speaks of is found at once, but those that
//! a plain SET left behind are anywhere. The family is searched for them as far as that is reasonable.

use cairn_encoding::KEYSPACE_ID;
use cairn_encoding::metadata::Body;
use cairn_encoding::row::{self, RowBytes, RowKey};
use cairn_engine::Family;

use super::page::{Entry, Page, Standing};
use super::{Life, RowSource, Subject, describe};
use crate::error::Result;

/// How many expiry rows, of all keys, are looked at: about a second's work.
const SEARCHED: usize = 1_000_000;

/// What a search found: the times at which rows say that the key expires, or with a version that fields do.
struct Found {
    times: Vec<(u64, Option<u64>)>,
    is_whole: bool,
}

impl<S: RowSource> Subject<'_, S> {
    pub(super) fn print_expiry(&self, page: &mut Page, life: &Life<'_>) -> Result<()> {
        let named = named_times(life);
        let mut found = self.find_expiry_rows()?;
        let mut missing = Vec::new();
        for time in named.iter().flatten() {
            if !self.has_expiry_row(*time)? {
                missing.push(*time);
            } else if !found.times.contains(time) {
                found.times.push(*time);
            }
        }
        if found.times.is_empty() && missing.is_empty() && found.is_whole {
            return Ok(());
        }
        page.gap();
        let layout = format!("keyspace {KEYSPACE_ID} | expire_ms | prefix → (empty)");
        page.line("expiry", &layout);
        let limit = self.detail.limit;
        let times = found.times.iter().take(limit);
        let entries = times.map(|&time| self.expiry_entry(time, &named, life));
        page.entries(&entries.collect::<Vec<_>>());
        if found.times.len() > limit {
            page.more(limit);
        }
        for (at_ms, _) in missing {
            let date = describe::expiry(at_ms, self.now_ms);
            page.line(
                "  missing",
                &format!("{at_ms}  {date}: the metadata says so, no row does"),
            );
        }
        if !found.is_whole {
            let searched = format!("only the first {SEARCHED} rows of the family were searched");
            page.line("  ...", &searched);
        }
        Ok(())
    }

    fn find_expiry_rows(&self) -> Result<Found> {
        let mut rows = self.source.rows(Family::Expiry, &[], &[])?;
        let mut times = Vec::new();
        for _ in 0..SEARCHED {
            self.source.step()?;
            let Some((row_key, _)) = rows.next()? else {
                let is_whole = true;
                return Ok(Found { times, is_whole });
            };
            if row::metadata_key_of_expiry(row_key) == Ok(self.key.metadata()) {
                match RowKey::decode_expiry(row_key) {
                    Ok(RowKey::Expiry { at_ms, .. }) => times.push((at_ms, None)),
                    Ok(RowKey::FieldsExpiry { at_ms, version, .. }) => {
                        times.push((at_ms, Some(version)));
                    }
                    _ => {}
                }
            }
        }
        let is_whole = rows.next()?.is_none();
        Ok(Found { times, is_whole })
    }

    fn has_expiry_row(&self, time: (u64, Option<u64>)) -> Result<bool> {
        let row = self.source.row(Family::Expiry, &self.expiry_row(time))?;
        Ok(row.is_some())
    }

    fn expiry_row(&self, (at_ms, version): (u64, Option<u64>)) -> RowBytes {
        match version {
            None => self.key.expiry(at_ms),
            Some(version) => self.key.fields_expiry(at_ms, version),
        }
    }

    fn expiry_entry(
        &self,
        time: (u64, Option<u64>),
        named: &[Option<(u64, Option<u64>)>; 2],
        life: &Life<'_>,
    ) -> Entry {
        let (at_ms, version) = time;
        let standing = match life {
            Life::Damaged(_) => Standing::Unknown,
            _ if named.contains(&Some(time)) => self.standing_at(at_ms),
            // The key has another expiry by now, or none, or is gone.
            _ => Standing::Dead,
        };
        let row_key = self.expiry_row(time);
        let mut fields = vec![8, 8];
        fields.extend(self.prefix_fields());
        let mut cells = vec![at_ms.to_string(), describe::expiry(at_ms, self.now_ms)];
        if let Some(version) = version {
            cells.push(format!("fields of version {version}"));
        }
        Entry {
            standing,
            cells,
            raw: self.raw((&row_key, &fields), (&[], &[])),
        }
    }
}

/// When the metadata says that the key expires, and its fields.
fn named_times(life: &Life<'_>) -> [Option<(u64, Option<u64>)>; 2] {
    let Life::Known(metadata) = life else {
        return [None; 2];
    };
    let fields = match metadata.body {
        Body::Collection {
            version,
            fields: Some(fields),
            ..
        } => Some((fields.first_ms, Some(version))),
        _ => None,
    };
    let at_ms = metadata.expire_ms;
    [(at_ms != 0).then_some((at_ms, None)), fields]
}
