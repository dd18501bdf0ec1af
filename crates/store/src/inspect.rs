//! The rows that a key is made of, printed for a person.
//!
//! One key of Redis lies on the LSM tree as rows in several families: a metadata row, the rows of its
//! present version, rows of versions that are dead and wait to be reclaimed, and the row that says when
//! it expires. `cairn inspect` and DEBUG ROWS show all of them, field by field, in the order in which
//! they lie, and tell what lives from what does not.
//!
//! ```text
//!   key         "user:7" in database 0: a hash of 2 fields
//!   prefix      keyspace 1 | index 1 | slot 2780 | key_len 6 | key "user:7"
//!
//!   metadata    prefix → flags | expire_ms | version | size
//!     live      flags      1000 0010            bit 7: 64-bit counters; bits 3-0: type 2, hash
//!               expire_ms  0                    never
//!               version    3481600000000000000  2023-11-14 22:13:20.000000 UTC
//!               size       2
//!
//!   data        prefix | version 3481600000000000000 | field → value
//!     live      "age"   →  "36"
//!     live      "name"  →  "Ada"
//! ```
//!
//! It is the tool for a damaged database too, so nothing here takes the bytes for granted: what does not
//! decode is shown as it is.

mod describe;
mod expiry;
mod page;
mod text;
mod versions;

use cairn_encoding::DecodeError;
use cairn_encoding::legacy::LegacyString;
use cairn_encoding::metadata::{Body, Metadata, has_expired};
use cairn_encoding::row::{self, RowKey};
use cairn_encoding::system::{self, Maxima, SystemKey, SystemKind};
use cairn_encoding::{KEYSPACE_ID, slot::slot};
use cairn_engine::{Direction, Engine, Family, Rows};

use crate::error::{Error, Result};
use crate::holdings::Holdings;
use crate::key::Key;
use crate::txn::{ReadTxn, Row};
use page::{Entry, Page, Raw, Standing};

pub(crate) use text::quoted;

/// How much is shown.
#[derive(Clone, Copy, Debug)]
pub struct Detail {
    /// The most rows of each kind: live and dead ones of each family.
    pub limit: usize,
    /// Show the bytes of each row too.
    pub hex: bool,
}

/// Whether a client would find the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Presence {
    Present,
    /// It is past its time or deleted, and some rows of it are left.
    Remains,
    Absent,
}

/// A key's rows, line by line.
#[derive(Debug)]
pub struct Inspection {
    pub lines: Vec<String>,
    pub presence: Presence,
}

/// Shows a key as a transaction sees it, changes of its own included.
pub fn inspect(txn: &ReadTxn, name: &[u8], detail: Detail) -> Result<Inspection> {
    let key = txn.key(name);
    Subject {
        source: txn,
        region: txn.region().id(),
        key: &key,
        database: txn.database(),
        now_ms: txn.now_ms(),
        detail,
    }
    .inspect()
}

/// Shows a key without a server, of a database that was opened read-only.
pub fn inspect_stored(
    engine: &Engine,
    database: u32,
    name: &[u8],
    wall_ms: u64,
    detail: Detail,
) -> Result<Inspection> {
    let Some(region) = Holdings::read(engine)?.region_of(slot(name)) else {
        let text = "no region here has the slot of the key: another node of the cluster holds it";
        return Err(Error::fixed(text));
    };
    let number = SystemKey::Database {
        region,
        number: database,
    };
    let Some(index) = engine.get(Family::Meta, &number.encode())? else {
        return Err(Error::reply(format!("there is no database {database}")));
    };
    let maxima = SystemKey::Maxima { region }.encode();
    let latest_ms = match engine.get(Family::Meta, &maxima)? {
        Some(value) => Maxima::decode(&value)?.timestamp_ms,
        None => 0,
    };
    let key = Key::new(system::value::decode_database(&index)?, name);
    Subject {
        source: engine,
        region,
        key: &key,
        database,
        now_ms: wall_ms.max(latest_ms),
        detail,
    }
    .inspect()
}

/// Where the rows are read: in a transaction, or in the engine alone.
trait RowSource {
    fn row(&self, family: Family, key: &[u8]) -> Result<Option<Row<'_>>>;
    fn rows(&self, family: Family, lower: &[u8], upper: &[u8]) -> Result<Rows>;
    /// See [`ReadTxn::step`].
    fn step(&self) -> Result<()>;
}

impl RowSource for ReadTxn {
    fn row(&self, family: Family, key: &[u8]) -> Result<Option<Row<'_>>> {
        self.row(family, key)
    }

    fn rows(&self, family: Family, lower: &[u8], upper: &[u8]) -> Result<Rows> {
        self.rows(family, lower, upper, Direction::Forward)
    }

    fn step(&self) -> Result<()> {
        self.step()
    }
}

impl RowSource for Engine {
    fn row(&self, family: Family, key: &[u8]) -> Result<Option<Row<'_>>> {
        Ok(self.get(family, key)?.map(Row::Stored))
    }

    fn rows(&self, family: Family, lower: &[u8], upper: &[u8]) -> Result<Rows> {
        Ok(self.rows(None, family, lower, upper, Direction::Forward))
    }

    fn step(&self) -> Result<()> {
        Ok(())
    }
}

/// What is to be shown, and how.
struct Subject<'a, S> {
    source: &'a S,
    region: u64,
    key: &'a Key,
    database: u32,
    now_ms: u64,
    detail: Detail,
}

/// What the key's metadata row says: it decides which of the other rows live.
enum Life<'m> {
    None,
    Damaged(DecodeError),
    Known(Metadata<'m>),
}

impl<'m> Life<'m> {
    fn of(stored: Option<&'m [u8]>) -> Life<'m> {
        match stored.map(Metadata::decode) {
            None => Life::None,
            Some(Err(error)) => Life::Damaged(error),
            Some(Ok(metadata)) => Life::Known(metadata),
        }
    }

    /// The body, if it is about this version.
    fn body_of(&self, version: u64) -> Option<&Body<'m>> {
        match self {
            Life::Known(metadata) if metadata.version() == Some(version) => Some(&metadata.body),
            _ => None,
        }
    }
}

impl<S: RowSource> Subject<'_, S> {
    fn inspect(&self) -> Result<Inspection> {
        let stored = self.stored(Family::Metadata, self.key.metadata())?;
        let life = Life::of(stored.as_deref());
        let holds = self.holds(&life)?;
        let staged = self.staged_versions()?;

        let mut page = Page::default();
        if let Some(value) = &stored {
            self.print_metadata(&mut page, &life, value);
        }
        for family in [Family::Data, Family::ZsetScore] {
            self.print_versions(&mut page, family, &life, &staged)?;
        }
        self.print_expiry(&mut page, &life)?;
        self.print_staging(&mut page, &staged);
        page.print_total();

        let presence = match holds {
            Some((_, expire_ms)) if !has_expired(expire_ms, self.now_ms) => Presence::Present,
            _ if page.has_rows() => Presence::Remains,
            _ => Presence::Absent,
        };
        let mut sheet = Page::default();
        self.print_heading(&mut sheet, holds, presence);
        if presence != Presence::Absent {
            sheet.append(page);
        }
        Ok(Inspection {
            lines: sheet.into_lines(),
            presence,
        })
    }

    fn stored(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let row = self.source.row(family, key)?;
        Ok(row.map(|row| row.to_vec()))
    }

    /// What the key holds, in words, and when it expires.
    fn holds(&self, life: &Life<'_>) -> Result<Option<(String, u64)>> {
        if let Life::Known(metadata) = life {
            return Ok(Some((describe::summary(metadata), metadata.expire_ms)));
        }
        if let Life::Damaged(_) = life {
            let unknown = "what it holds is not known, its metadata row is damaged";
            return Ok(Some((unknown.into(), 0)));
        }
        let Some(value) = self.stored(Family::Data, &self.key.legacy())? else {
            return Ok(None);
        };
        Ok(Some(match LegacyString::decode(&value) {
            Ok(legacy) => {
                let length = legacy.payload.len();
                let what = format!("a string of {length} bytes, in the old format");
                (what, legacy.expire_ms)
            }
            Err(_) => ("a string in the old format, damaged".into(), 0),
        }))
    }

    /// Versions that are being written ahead for this key.
    fn staged_versions(&self) -> Result<Vec<u64>> {
        let prefix = SystemKind::Staging.prefix();
        let end = row::prefix_end(&prefix).unwrap_or_default();
        let mut rows = self.source.rows(Family::Meta, &prefix, &end)?;
        let mut staged = Vec::new();
        while let Some((row_key, value)) = rows.next()? {
            self.source.step()?;
            if value == self.key.metadata()
                && let Ok(SystemKey::Staging { version, .. }) = SystemKey::decode(row_key)
            {
                staged.push(version);
            }
        }
        Ok(staged)
    }

    fn print_heading(&self, sheet: &mut Page, holds: Option<(String, u64)>, presence: Presence) {
        let key = describe::short(self.key.name());
        let what = match (holds, presence) {
            (Some((what, 0)), _) => format!(": {what}"),
            (Some((what, at_ms)), _) => {
                let is_past = has_expired(at_ms, self.now_ms);
                let verb = if is_past { "expired" } else { "expires" };
                format!(": {what}; {verb} {}", text::distance(self.now_ms, at_ms))
            }
            (None, Presence::Absent) => " does not exist".into(),
            (None, _) => " does not exist, but rows of it do".into(),
        };
        sheet.line("key", &format!("{key} in database {}{what}", self.database));
        if presence != Presence::Absent {
            self.print_prefix(sheet);
        }
    }

    fn print_prefix(&self, sheet: &mut Page) {
        let index = match RowKey::decode_metadata(self.key.metadata()) {
            Ok(row) => row.index_and_key().0.to_string(),
            Err(error) => error.to_string(),
        };
        let name = self.key.name();
        let fields = [
            format!("keyspace {KEYSPACE_ID}"),
            format!("index {index}"),
            format!("slot {}", slot(name)),
            format!("key_len {}", name.len()),
            format!("key {}", describe::short(name)),
        ];
        sheet.line("prefix", &fields.join(" | "));
        if self.detail.hex {
            sheet.line(
                "",
                &page::fields(self.key.metadata(), &self.prefix_fields()),
            );
        }
    }

    fn print_metadata(&self, page: &mut Page, life: &Life<'_>, value: &[u8]) {
        page.gap();
        let (Life::Known(metadata), Some(&flags)) = (life, value.first()) else {
            page.line("metadata", "prefix → flags | expire_ms | ...");
            let mut cells = vec![text::hex(value, page::LONG)];
            if let Life::Damaged(error) = life {
                cells.push(error.to_string());
            }
            page.entries(&[Entry {
                standing: Standing::Damaged,
                cells,
                raw: self.raw((self.key.metadata(), &self.prefix_fields()), (value, &[])),
            }]);
            return;
        };
        let layout = describe::metadata_layout(&metadata.body);
        page.line("metadata", &format!("prefix → {layout}"));
        let standing = self.standing_at(metadata.expire_ms);
        let raw = self.raw(
            (self.key.metadata(), &self.prefix_fields()),
            (value, describe::metadata_fields(&metadata.body)),
        );
        page.facts(
            standing,
            &describe::facts(metadata, flags, self.now_ms),
            raw,
        );
    }

    fn print_staging(&self, page: &mut Page, staged: &[u64]) {
        if staged.is_empty() {
            return;
        }
        page.gap();
        page.line("meta", "staging | region | version → prefix");
        let entries = staged.iter().map(|&version| {
            let region = self.region;
            let row_key = SystemKey::Staging { region, version }.encode();
            Entry {
                standing: Standing::Staged,
                cells: vec![format!("version {version}"), text::date_of_version(version)],
                raw: self.raw(
                    (&row_key, &[1, 8]),
                    (self.key.metadata(), &self.prefix_fields()),
                ),
            }
        });
        page.entries(&entries.collect::<Vec<_>>());
    }

    fn standing_at(&self, expire_ms: u64) -> Standing {
        if has_expired(expire_ms, self.now_ms) {
            Standing::Expired
        } else {
            Standing::Live
        }
    }

    /// Where the fields of the prefix end.
    fn prefix_fields(&self) -> Vec<usize> {
        vec![8, 8, 2, 4, self.key.name().len()]
    }

    /// The bytes of a row, if they are asked for.
    fn raw(
        &self,
        (row_key, key_fields): (&[u8], &[usize]),
        (value, value_fields): (&[u8], &[usize]),
    ) -> Option<Raw> {
        let is_asked_for = self.detail.hex;
        is_asked_for.then(|| Raw {
            key: page::fields(row_key, key_fields),
            value: page::fields(value, value_fields),
        })
    }
}
