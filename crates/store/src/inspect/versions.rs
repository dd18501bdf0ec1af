//! The rows that a key has in `data` and `zset_score`, version by version, in the order in which they lie.
//!
//! Live and dead rows are counted apart: a key that was overwritten a thousand times must not hide its
//! present life behind the rows of earlier ones, which sort before it. What is over the limit is not
//! walked either, but passed by a seek.

use cairn_encoding::field_expiry;
use cairn_encoding::legacy::LegacyString;
use cairn_encoding::metadata::Body;
use cairn_encoding::row::{self, RowKey, SCORE_LEN, VERSION_LEN};
use cairn_encoding::stream::{self, Head};
use cairn_encoding::{DecodeError, chunk};
use cairn_engine::Family;

use super::page::{self, Entry, Page, Standing};
use super::{Life, RowSource, Subject, describe, text};
use crate::error::Result;

/// Rows that share a heading.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Version(u64),
    /// The count rows of a version.
    Counts(u64),
    /// What says when fields expire, by name and by time.
    Fields(u64),
    FieldTimes(u64),
    Legacy,
    Damaged,
}

struct Section {
    part: Part,
    entries: Vec<Entry>,
    is_cut: bool,
}

/// How many rows may still be shown.
struct Allowance {
    live: usize,
    others: usize,
}

impl Allowance {
    fn take(&mut self, standing: Standing) -> bool {
        let left = match standing {
            Standing::Live | Standing::Expired => &mut self.live,
            _ => &mut self.others,
        };
        let has_some = *left > 0;
        *left = left.saturating_sub(1);
        has_some
    }
}

impl<S: RowSource> Subject<'_, S> {
    pub(super) fn print_versions(
        &self,
        page: &mut Page,
        family: Family,
        life: &Life<'_>,
        staged: &[u64],
    ) -> Result<()> {
        let lower = self.key.metadata();
        let upper = row::prefix_end(lower).unwrap_or_default();
        let mut rows = self.source.rows(family, lower, &upper)?;
        let mut allowance = Allowance {
            live: self.detail.limit,
            others: self.detail.limit,
        };
        let mut section: Option<Section> = None;
        while let Some((row_key, value)) = rows.next()? {
            self.source.step()?;
            let decoded = match family {
                Family::ZsetScore => RowKey::decode_score(row_key),
                _ => RowKey::decode_data(row_key),
            };
            let part = part_of(&decoded);
            if section.as_ref().is_none_or(|open| open.part != part)
                && let Some(full) = section.replace(Section::new(part))
            {
                self.print_section(page, family, life, full);
            }
            let Some(open) = &mut section else { continue };
            let standing = self.standing(&decoded, value, life, staged);
            if allowance.take(standing) {
                let entry = self.entry(standing, decoded, life, row_key, value);
                open.entries.push(entry);
                continue;
            }
            open.is_cut = true;
            if let Some(beyond) = self.beyond(&decoded, life) {
                rows.seek(&beyond);
            }
        }
        if let Some(last) = section {
            self.print_section(page, family, life, last);
        }
        Ok(())
    }

    fn standing(
        &self,
        row: &Result<RowKey<'_>, DecodeError>,
        value: &[u8],
        life: &Life<'_>,
        staged: &[u64],
    ) -> Standing {
        match *row {
            Ok(RowKey::Data { version, sub, .. }) => {
                let is_outside = life
                    .body_of(version)
                    .is_some_and(|body| is_cut_off(body, sub));
                if is_outside {
                    Standing::Dead
                } else {
                    self.standing_of_version(version, life, staged)
                }
            }
            Ok(RowKey::Score { version, .. } | RowKey::Count { version, .. }) => {
                self.standing_of_version(version, life, staged)
            }
            Ok(RowKey::Field { version, .. }) => {
                let at_ms = field_expiry::decode(value).unwrap_or(0);
                self.standing_of_time(version, at_ms, life, staged)
            }
            Ok(RowKey::FieldTime { version, at_ms, .. }) => {
                self.standing_of_time(version, at_ms, life, staged)
            }
            Ok(RowKey::Legacy { .. }) => match life {
                Life::None => Standing::Live,
                // The key has been written since, in the new form.
                Life::Known(_) => Standing::Dead,
                Life::Damaged(_) => Standing::Unknown,
            },
            Ok(_) | Err(_) => Standing::Damaged,
        }
    }

    fn standing_of_version(&self, version: u64, life: &Life<'_>, staged: &[u64]) -> Standing {
        match life {
            _ if staged.contains(&version) => Standing::Staged,
            Life::Damaged(_) => Standing::Unknown,
            Life::Known(metadata) if metadata.version() == Some(version) => {
                self.standing_at(metadata.expire_ms)
            }
            _ => Standing::Dead,
        }
    }

    /// What says that a field expires before the first of them is not true any more.
    fn standing_of_time(
        &self,
        version: u64,
        at_ms: u64,
        life: &Life<'_>,
        staged: &[u64],
    ) -> Standing {
        match life.body_of(version) {
            Some(Body::Collection { fields, .. })
                if fields.is_none_or(|fields| at_ms < fields.first_ms) =>
            {
                Standing::Dead
            }
            _ => self.standing_of_version(version, life, staged),
        }
    }

    fn entry(
        &self,
        standing: Standing,
        row: Result<RowKey<'_>, DecodeError>,
        life: &Life<'_>,
        row_key: &[u8],
        value: &[u8],
    ) -> Entry {
        let mut fields = self.prefix_fields();
        let mut standing = standing;
        let cells = match row {
            Ok(RowKey::Data { version, sub, .. }) => {
                fields.push(VERSION_LEN);
                describe::data(life.body_of(version), sub, value)
            }
            Ok(RowKey::Score { score, member, .. }) => {
                fields.extend([VERSION_LEN, SCORE_LEN]);
                describe::score_row(score, member)
            }
            Ok(RowKey::Count { first, .. }) => {
                fields.extend([VERSION_LEN, SCORE_LEN]);
                describe::count_row(first, value)
            }
            Ok(RowKey::Field { field, .. }) => {
                fields.extend([VERSION_LEN, SCORE_LEN]);
                describe::field_row(field, value, self.now_ms)
            }
            Ok(RowKey::FieldTime { at_ms, field, .. }) => {
                fields.extend([VERSION_LEN, SCORE_LEN, 8]);
                describe::field_time_row(at_ms, field, self.now_ms)
            }
            Ok(RowKey::Legacy { .. }) => match LegacyString::decode(value) {
                Ok(legacy) => {
                    if standing == Standing::Live {
                        standing = self.standing_at(legacy.expire_ms);
                    }
                    let expiry = describe::expiry(legacy.expire_ms, self.now_ms);
                    let expire_ms = legacy.expire_ms.to_string();
                    vec![expire_ms, expiry, describe::long(legacy.payload)]
                }
                Err(error) => vec![text::hex(value, page::LONG), error.to_string()],
            },
            Ok(_) => Vec::new(),
            Err(error) => {
                let after_prefix = row_key.get(self.key.metadata().len()..).unwrap_or(row_key);
                vec![text::hex(after_prefix, page::SHORT), error.to_string()]
            }
        };
        let value_fields: &[usize] = match row {
            Ok(RowKey::Legacy { .. }) => &[8],
            _ => &[],
        };
        let raw = self.raw((row_key, &fields), (value, value_fields));
        Entry {
            standing,
            cells,
            raw,
        }
    }

    /// Where to go on when no more rows like this one are to be shown.
    fn beyond(&self, row: &Result<RowKey<'_>, DecodeError>, life: &Life<'_>) -> Option<Vec<u8>> {
        let (version, sub) = match *row {
            Ok(RowKey::Data { version, sub, .. }) => (version, sub),
            Ok(RowKey::Score { version, .. }) => {
                return Some(self.key.count(version, b"").to_vec());
            }
            // Some of each kind are shown.
            Ok(RowKey::FieldTime { version, .. }) => {
                return Some(self.key.field(version, b"").to_vec());
            }
            Ok(RowKey::Field { version, .. }) => {
                return Some(self.key.count(version, b"").to_vec());
            }
            Ok(RowKey::Count { version, .. }) => (version, &[][..]),
            _ => return None,
        };
        if let Some(Body::List { head, .. }) = life.body_of(version)
            && chunk::decode_index_sub(sub).is_ok_and(|index| index < *head)
        {
            return Some(self.key.data(version, &chunk::index_sub(*head)).to_vec());
        }
        if let Some(Body::Stream { .. }) = life.body_of(version)
            && let [kind, ..] = sub
        {
            // Some of each kind are shown.
            return Some(self.key.data(version, &[kind + 1]).to_vec());
        }
        Some(self.key.data(version.checked_add(1)?, b"").to_vec())
    }

    fn print_section(&self, page: &mut Page, family: Family, life: &Life<'_>, section: Section) {
        page.gap();
        let layout = match (section.part, family) {
            (Part::Version(version), Family::ZsetScore) => {
                format!("prefix | version {version} | score | member → (empty)")
            }
            (Part::Counts(version), _) => {
                format!("prefix | version {version} | ff × 8 | first → count")
            }
            (Part::Fields(version), _) => {
                format!("prefix | version {version} | ff × 7 fe | field → expire_ms")
            }
            (Part::FieldTimes(version), _) => {
                format!("prefix | version {version} | ff × 7 fd | expire_ms | field → (empty)")
            }
            (Part::Version(version), _) => {
                let layout = describe::data_layout(life.body_of(version));
                format!("prefix | version {version} | {layout}")
            }
            (Part::Legacy, _) => "prefix | 'S' → expire_ms | payload".into(),
            (Part::Damaged, _) => "prefix | what follows, and why it is no row".into(),
        };
        page.line(family.name(), &layout);
        if let Part::Version(version) = section.part
            && life.body_of(version).is_none()
        {
            let began = text::date_of_version(version);
            page.line(
                "",
                &format!("a version of {began}, which no metadata names"),
            );
        }
        page.entries(&section.entries);
        if section.is_cut {
            page.more(self.detail.limit);
        }
    }
}

impl Section {
    fn new(part: Part) -> Self {
        Section {
            part,
            entries: Vec::new(),
            is_cut: false,
        }
    }
}

fn part_of(row: &Result<RowKey<'_>, DecodeError>) -> Part {
    match *row {
        Ok(RowKey::Data { version, .. } | RowKey::Score { version, .. }) => Part::Version(version),
        Ok(RowKey::Count { version, .. }) => Part::Counts(version),
        Ok(RowKey::Field { version, .. }) => Part::Fields(version),
        Ok(RowKey::FieldTime { version, .. }) => Part::FieldTimes(version),
        Ok(RowKey::Legacy { .. }) => Part::Legacy,
        Ok(_) | Err(_) => Part::Damaged,
    }
}

/// Whether the row is one of a list's, outside of it, or one that was trimmed from a stream.
fn is_cut_off(body: &Body<'_>, sub: &[u8]) -> bool {
    match *body {
        Body::List { head, tail, .. } => {
            chunk::decode_index_sub(sub).is_ok_and(|index| index < head || index >= tail)
        }
        Body::Stream {
            version,
            size,
            rest,
        } => Head::of(version, size, rest)
            .is_ok_and(|head| stream::is_entry(sub) && sub < &stream::entry_sub(head.floor)[..]),
        _ => false,
    }
}
