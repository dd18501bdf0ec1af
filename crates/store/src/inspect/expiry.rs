//! The rows of `expiry` that name a key.
//!
//! They lie in the order of time, so the one that the metadata speaks of is found at once, but those that
//! a plain SET left behind are anywhere. The family is searched for them as far as that is reasonable.

use cairn_encoding::KEYSPACE_ID;
use cairn_encoding::row::{self, RowKey};
use cairn_engine::Family;

use super::page::{Entry, Page, Standing};
use super::{Life, RowSource, Subject, describe};
use crate::error::Result;

/// How many expiry rows, of all keys, are looked at: about a second's work.
const SEARCHED: usize = 1_000_000;

/// What a search found: the times at which rows say that the key expires.
struct Found {
    times: Vec<u64>,
    is_whole: bool,
}

impl<S: RowSource> Subject<'_, S> {
    pub(super) fn print_expiry(&self, page: &mut Page, life: &Life<'_>) -> Result<()> {
        let named = match life {
            Life::Known(metadata) => metadata.expire_ms,
            _ => 0,
        };
        let mut found = self.find_expiry_rows()?;
        let has_named = named != 0 && self.has_expiry_row(named)?;
        if has_named && !found.times.contains(&named) {
            found.times.push(named);
        }
        if found.times.is_empty() && named == 0 && found.is_whole {
            return Ok(());
        }
        page.gap();
        let layout = format!("keyspace {KEYSPACE_ID} | expire_ms | prefix → (empty)");
        page.line("expiry", &layout);
        let limit = self.detail.limit;
        let times = found.times.iter().take(limit);
        let entries = times.map(|&at_ms| self.expiry_entry(at_ms, named, life));
        page.entries(&entries.collect::<Vec<_>>());
        if found.times.len() > limit {
            page.more(limit);
        }
        if named != 0 && !has_named {
            let date = describe::expiry(named, self.now_ms);
            page.line(
                "  missing",
                &format!("{named}  {date}: the metadata says so, no row does"),
            );
        }
        if !found.is_whole {
            let searched = format!("only the first {SEARCHED} rows of the family were searched");
            page.line("  ...", &searched);
        }
        Ok(())
    }

    fn find_expiry_rows(&self) -> Result<Found> {
        let mut rows = self.source.rows(Family::Expiry, &[], &[]);
        let mut times = Vec::new();
        for _ in 0..SEARCHED {
            self.source.step()?;
            let Some((row_key, _)) = rows.next()? else {
                let is_whole = true;
                return Ok(Found { times, is_whole });
            };
            if row::metadata_key_of_expiry(row_key) == Ok(self.key.metadata())
                && let Ok(RowKey::Expiry { at_ms, .. }) = RowKey::decode_expiry(row_key)
            {
                times.push(at_ms);
            }
        }
        let is_whole = rows.next()?.is_none();
        Ok(Found { times, is_whole })
    }

    fn has_expiry_row(&self, at_ms: u64) -> Result<bool> {
        let row = self.source.row(Family::Expiry, &self.key.expiry(at_ms))?;
        Ok(row.is_some())
    }

    fn expiry_entry(&self, at_ms: u64, named: u64, life: &Life<'_>) -> Entry {
        let standing = match life {
            Life::Damaged(_) => Standing::Unknown,
            _ if at_ms == named => self.standing_at(at_ms),
            // The key has another expiry by now, or none, or is gone.
            _ => Standing::Dead,
        };
        let row_key = self.key.expiry(at_ms);
        let mut fields = vec![8, 8];
        fields.extend(self.prefix_fields());
        Entry {
            standing,
            cells: vec![at_ms.to_string(), describe::expiry(at_ms, self.now_ms)],
            raw: self.raw((&row_key, &fields), (&[], &[])),
        }
    }
}
