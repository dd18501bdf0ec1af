//! Hot rows, ready to be read without asking RocksDB.
//!
//! The cache shows what is committed, always: a commit puts its rows here before anyone is told of it
//! (see `young`), and a row that a reader fetched from below is kept only if no commit has touched it
//! meanwhile. That a row is absent is kept as well.
//!
//! Eviction resists scans: a row must be asked for twice to push out one that is asked for often. Walks
//! do not come through here at all.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use quick_cache::sync::{Cache, DefaultLifecycle, GuardResult, PlaceholderGuard};
use quick_cache::{DefaultHashBuilder, Equivalent, Weighter};

use crate::batch::{Bytes, Change};
use crate::family::Family;

/// What an entry takes beside the bytes of its row: the tables, two reference counts, the allocator.
const ENTRY_OVERHEAD: usize = 96;
/// The largest row that is worth keeping: above, the copy costs as much as RocksDB does.
const LARGEST: usize = 32 * 1024;
/// About what a row takes, to size the tables.
const USUAL_ENTRY: usize = 256;

/// A row's name, as it is kept.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Name {
    family: Family,
    key: Bytes,
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Sought {
            family: self.family,
            key: &self.key,
        }
        .hash(state);
    }
}

/// A row's name, as it is asked for.
#[derive(Clone, Copy, Hash)]
struct Sought<'k> {
    family: Family,
    key: &'k [u8],
}

impl Equivalent<Name> for Sought<'_> {
    fn equivalent(&self, name: &Name) -> bool {
        self.family == name.family && *self.key == *name.key
    }
}

#[derive(Clone)]
struct Bytewise;

impl Weighter<Name, Change> for Bytewise {
    fn weight(&self, name: &Name, value: &Change) -> u64 {
        let value_len = value.as_ref().map_or(0, |value| value.len());
        (ENTRY_OVERHEAD + name.key.len() + value_len) as u64
    }
}

pub(crate) struct RowCache {
    rows: Cache<Name, Change, Bytewise>,
    /// The largest row that is kept.
    largest: usize,
}

/// The right to keep a row that is being fetched, lost when a commit changes the row.
pub(crate) struct Fetch<'c> {
    guard: PlaceholderGuard<
        'c,
        Name,
        Change,
        Bytewise,
        DefaultHashBuilder,
        DefaultLifecycle<Name, Change>,
    >,
    largest: usize,
}

impl Fetch<'_> {
    pub(crate) fn keep(self, value: Option<&[u8]>) {
        if value.is_some_and(|value| value.len() > self.largest) {
            return;
        }
        let value = value.map(Bytes::from);
        // Refused if a commit came first, whose row is there now.
        let _ = self.guard.insert(value);
    }
}

pub(crate) enum Lookup<'c> {
    Known(Change),
    /// To be fetched; and kept, unless somebody else is about to.
    Unknown(Option<Fetch<'c>>),
}

impl RowCache {
    pub(crate) fn new(bytes: usize) -> Self {
        let rows = Cache::with_weighter(bytes / USUAL_ENTRY, bytes as u64, Bytewise);
        RowCache {
            largest: LARGEST.min(rows.shard_capacity() as usize / 16),
            rows,
        }
    }

    /// Rows that are only ever walked over are not kept.
    pub(crate) fn holds(family: Family) -> bool {
        matches!(family, Family::Metadata | Family::Data)
    }

    pub(crate) fn get(&self, family: Family, key: &[u8]) -> Lookup<'_> {
        if !Self::holds(family) {
            return Lookup::Unknown(None);
        }
        if let Some(known) = self.peek(family, key) {
            return Lookup::Known(known);
        }
        let name = Name {
            family,
            key: Bytes::from(key),
        };
        match self.rows.get_value_or_guard(&name, Some(Duration::ZERO)) {
            GuardResult::Value(known) => Lookup::Known(known),
            GuardResult::Guard(guard) => Lookup::Unknown(Some(Fetch {
                guard,
                largest: self.largest,
            })),
            GuardResult::Timeout => Lookup::Unknown(None),
        }
    }

    /// The row if it is known; one that is not is not going to be.
    pub(crate) fn peek(&self, family: Family, key: &[u8]) -> Option<Change> {
        self.rows.get(&Sought { family, key })
    }

    /// What a commit made of a row.
    pub(crate) fn put(&self, family: Family, key: &Bytes, value: &Change) {
        if !Self::holds(family) {
            return;
        }
        if key.len() + value.as_ref().map_or(0, |value| value.len()) > self.largest {
            // Not by inserting: what is too heavy for the cache would leave a reader its right to keep
            // what it is fetching.
            self.rows.remove(&Sought { family, key });
            return;
        }
        let name = Name {
            family,
            key: key.clone(),
        };
        self.rows.insert(name, value.clone());
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.rows.weight()
    }
}
