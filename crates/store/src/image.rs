//! All keys of all databases as they were at one moment, while writes go on.
//!
//! Walks over all families that it takes are opened at that moment, and nothing later, so it needs no latch from then on
//! and is not disturbed by flushes, compactions or the reclaimer: see `Engine::at_one_moment`. Where the databases are,
//! and which functions there are, is read from the same moment. Whoever wants it to be a particular one, with all that
//! was done before and nothing else, opens it while being alone.
//!
//! One key stands before the reader at a time, and its elements come one by one (`elements`, `streams`), so that no more
//! than a row is in memory. What had expired at that moment is passed by.

mod elements;
mod streams;

use cairn_encoding::legacy::LegacyString;
use cairn_encoding::metadata::{Body, CollectionKind, Metadata, has_expired};
use cairn_encoding::row::{self, RowKey};
use cairn_encoding::stream::Head;
use cairn_encoding::system::{SystemKey, SystemKind, value};
use cairn_engine::{Family, Rows};

use crate::error::{Error, Result};
use crate::key::Key;
use crate::keyspace::LegacyRows;
use crate::store::Store;
use crate::txn::BEFORE_EXPIRY;

pub use elements::Element;
use elements::{Walk, lacking};
use streams::StreamWalk;
pub use streams::{PicturedConsumer, PicturedDelivery, PicturedGroup};

pub struct Image {
    now_ms: u64,
    metadata: Rows,
    data: Rows,
    scores: Rows,
    /// Strings of the old format, if there may be any.
    legacy: Option<LegacyRows>,
    /// Numbers and indexes, in the order of numbers.
    databases: Vec<(u32, u64)>,
    /// The one whose keys come next, and whether its rows have been sought.
    database: usize,
    is_begun: bool,
    libraries: Vec<Vec<u8>>,
    /// A metadata row that was read and whose turn has not come, if there is one.
    ahead: (Vec<u8>, Vec<u8>),
    has_ahead: bool,
    /// The key that it has come to.
    key: Key,
    version: u64,
    walk: Walk,
    stream: StreamWalk,
}

/// A key of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pictured {
    pub database: u32,
    pub name: Vec<u8>,
    /// Zero: never.
    pub expire_ms: u64,
    pub content: Content,
}

/// What a key holds, and how much of it: the elements are then to be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A string that is in one row.
    Inline(Vec<u8>),
    /// A longer one, of so many bytes.
    Chunked(u64),
    List(u64),
    Set(u64),
    Zset(u64),
    Hash {
        size: u64,
        /// A time before which no field expires; none if all of them are there for good.
        first_ms: Option<u64>,
    },
    Stream(Head),
}

impl Image {
    /// To be called before [`Image::open`] by whoever will be alone meanwhile: takes most of the time that it takes.
    pub fn prepare(store: &Store) -> Result<()> {
        Ok(store.engine().settle()?)
    }

    /// All keys as they are now. A single machine's only: a node of a cluster has some of the keys.
    pub fn open(store: &Store) -> Result<Image> {
        if store.is_replicated() {
            return Err(Error::fixed(
                "ERR a node of a cluster has no image of all keys",
            ));
        }
        let may_have_legacy = store.may_have_legacy();
        let [metadata, data, scores, mut meta, old] = store.engine().at_one_moment([
            Family::Metadata,
            Family::Data,
            Family::ZsetScore,
            Family::Meta,
            Family::Data,
        ])?;
        let region = store.home().id();
        // Others may be left of a time when there were more, and nobody sees them now.
        let mut databases = read_databases(&mut meta, region)?;
        databases.retain(|(number, _)| *number < store.database_count());
        Ok(Image {
            now_ms: store.clock().now_ms(),
            metadata,
            data,
            scores,
            legacy: may_have_legacy.then(|| LegacyRows::new(old)),
            databases,
            database: 0,
            is_begun: false,
            libraries: read_libraries(&mut meta, region)?,
            ahead: Default::default(),
            has_ahead: false,
            key: Key::new(0, b""),
            version: 0,
            walk: Walk::default(),
            stream: StreamWalk::default(),
        })
    }

    /// Shows what has expired, too: on a server that follows another, whose commands may be about it until it is told that it is gone.
    pub fn with_expired(mut self) -> Image {
        self.now_ms = BEFORE_EXPIRY;
        self
    }

    /// The codes of all libraries of functions.
    pub fn libraries(&self) -> &[Vec<u8>] {
        &self.libraries
    }

    /// The next key that lives; none at the end.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Pictured>> {
        while let Some((database, index)) = self.databases.get(self.database).copied() {
            if !self.is_begun {
                self.begin(index);
            }
            let Some(is_old) = self.find_next(index)? else {
                self.database += 1;
                self.is_begun = false;
                continue;
            };
            let found = match is_old {
                true => self.read_legacy()?,
                false => self.read_metadata()?,
            };
            if let Some((expire_ms, content)) = found {
                return Ok(Some(Pictured {
                    database,
                    name: self.key.name().to_vec(),
                    expire_ms,
                    content,
                }));
            }
        }
        Ok(None)
    }

    /// Goes to the first key of a database.
    fn begin(&mut self, index: u64) {
        let mut from = Vec::new();
        row::index_prefix(&mut from, index);
        self.metadata.seek(&from);
        self.has_ahead = false;
        if let Some(legacy) = &mut self.legacy {
            legacy.seek(&from);
        }
        self.is_begun = true;
    }

    /// Makes the next key of the database the one that it has come to, and says whether that is of the old format; none
    /// if there is no other.
    fn find_next(&mut self, index: u64) -> Result<Option<bool>> {
        if !self.has_ahead
            && let Some((key, value)) = self.metadata.next()?
        {
            let (ahead_key, ahead_value) = &mut self.ahead;
            ahead_key.clear();
            ahead_key.extend_from_slice(key);
            ahead_value.clear();
            ahead_value.extend_from_slice(value);
            self.has_ahead = true;
        }
        let is_of_database = |key: &&[u8]| row::index_of(key) == Some(index);
        let new = self.has_ahead.then_some(&self.ahead.0[..]);
        let new = new.filter(is_of_database);
        let old = match &mut self.legacy {
            Some(legacy) => legacy.peek()?.map(|(key, _)| key).filter(is_of_database),
            None => None,
        };
        let (key, is_old, passes_old) = match (new, old) {
            (None, None) => return Ok(None),
            (Some(new), None) => (new, false, false),
            (None, Some(old)) => (old, true, true),
            // A key that has both lives in the new form only.
            (Some(new), Some(old)) if new <= old => (new, false, new == old),
            (Some(_), Some(old)) => (old, true, true),
        };
        let (_, name) = RowKey::decode_metadata(key)?.index_and_key();
        self.key = Key::new(index, name);
        if passes_old && let Some(legacy) = &mut self.legacy {
            legacy.advance();
        }
        if !is_old {
            self.has_ahead = false;
        }
        Ok(Some(is_old))
    }

    /// Expiry and content of the key that it has come to, which is of the old format; none if it has expired.
    fn read_legacy(&mut self) -> Result<Option<(u64, Content)>> {
        let row_key = self.key.legacy();
        self.data.seek(&row_key);
        let Some((found, value)) = self.data.next()? else {
            return Err(lacking(&self.key));
        };
        if found != &row_key[..] {
            return Err(lacking(&self.key));
        }
        let string = LegacyString::decode(value)?;
        let content = Content::Inline(string.payload.to_vec());
        Ok((!string.is_expired(self.now_ms)).then_some((string.expire_ms, content)))
    }

    /// The same from the metadata row that was read.
    fn read_metadata(&mut self) -> Result<Option<(u64, Content)>> {
        let metadata = Metadata::decode(&self.ahead.1)?;
        if metadata.is_expired(self.now_ms) {
            return Ok(None);
        }
        let expire_ms = metadata.expire_ms;
        self.version = metadata.version().unwrap_or_default();
        let (content, walk) = match metadata.body {
            Body::Inline(bytes) => (Content::Inline(bytes.to_vec()), Walk::default()),
            Body::Chunked { length, .. } => (Content::Chunked(length), Walk::chunks(length)),
            Body::List { size, head, .. } => (Content::List(size), Walk::list(head, size)),
            Body::Stream {
                version,
                size,
                rest,
            } => {
                let head = Head::of(version, size, rest)?;
                (Content::Stream(head), Walk::default())
            }
            Body::Collection {
                kind: CollectionKind::Set,
                size,
                ..
            } => (Content::Set(size), Walk::set(size)),
            Body::Collection {
                kind: CollectionKind::ZSet,
                size,
                ..
            } => (Content::Zset(size), Walk::zset(size)),
            Body::Collection {
                size, fields: None, ..
            } => {
                let first_ms = None;
                (Content::Hash { size, first_ms }, Walk::hash(size, None))
            }
            Body::Collection {
                size,
                fields: Some(fields),
                ..
            } => {
                let due = self.count_due(fields.first_ms)?;
                let size = size.saturating_sub(due);
                if size == 0 {
                    return Ok(None);
                }
                let first_ms = fields.first_ms.max(self.now_ms);
                let first_ms = (fields.count > due).then_some(first_ms);
                let content = Content::Hash { size, first_ms };
                (content, Walk::hash(size, Some(fields.first_ms)))
            }
        };
        self.walk = walk;
        self.rewind();
        Ok(Some((expire_ms, content)))
    }

    /// How many fields of the hash were due, and not deleted yet.
    fn count_due(&mut self, first_ms: u64) -> Result<u64> {
        if !has_expired(first_ms, self.now_ms) {
            return Ok(0);
        }
        let time = |at_ms| self.key.field_time(self.version, at_ms, b"");
        let (from, end) = (time(first_ms), time(self.now_ms));
        self.scores.seek(&from);
        let mut due = 0;
        while let Some((row_key, _)) = self.scores.next()?
            && row_key < &end[..]
        {
            due += 1;
        }
        Ok(due)
    }
}

fn read_databases(meta: &mut Rows, region: u64) -> Result<Vec<(u32, u64)>> {
    let mut databases = Vec::new();
    for_each_of(meta, SystemKind::Database, region, |key, value| {
        if let SystemKey::Database { number, .. } = SystemKey::decode(key)? {
            databases.push((number, value::decode_database(value)?));
        }
        Ok(())
    })?;
    Ok(databases)
}

fn read_libraries(meta: &mut Rows, region: u64) -> Result<Vec<Vec<u8>>> {
    let mut libraries = Vec::new();
    for_each_of(meta, SystemKind::Library, region, |_, code| {
        libraries.push(code.to_vec());
        Ok(())
    })?;
    Ok(libraries)
}

/// Shows the rows of the `meta` family of one kind.
fn for_each_of(
    meta: &mut Rows,
    kind: SystemKind,
    region: u64,
    mut show: impl FnMut(&[u8], &[u8]) -> Result<()>,
) -> Result<()> {
    let prefix = kind.region_prefix(region);
    meta.seek(&prefix);
    while let Some((key, value)) = meta.next()?
        && key.starts_with(&prefix)
    {
        show(key, value)?;
    }
    Ok(())
}
