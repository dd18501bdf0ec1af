//! Young rows: committed, in the journal, and not in RocksDB yet.
//!
//! To put a row into RocksDB costs as much as everything else that a small command does, so commits leave
//! their rows here, and they are moved (*drained*) many at a time, sorted, each once however often it
//! changed meanwhile. Reads look here first, and walks show these rows on top of RocksDB's.
//!
//! There are two generations: the active one, which commits add to, and the one that is being drained,
//! which stands still. A drain carries the index of the generation's last commit into RocksDB in the same
//! write, so RocksDB holds exactly the state after some commit, at every moment.
//!
//! The cache of hot rows stands under the same lock. A commit changes both while no reader looks, so it is
//! seen whole or not at all.

use std::ops::Bound;
use std::sync::Arc;

use cairn_encoding::row;
use cairn_encoding::system::{Maxima, SystemKey, value};
use parking_lot::RwLock;
use rustc_hash::{FxHashMap, FxHasher};

use crate::LOCAL_REGION;
use crate::batch::{Batch, Bytes, Change, Changes, in_range};
use crate::cache::{Fetch, Lookup, RowCache};
use crate::family::Family;

/// What a row takes beside its bytes: tables, reference counts, the allocator.
const ROW_OVERHEAD: usize = 128;
/// The most young rows that a walk shows by itself; it waits for a drain if there are more.
const MOST_IN_A_WALK: usize = 1024;

#[derive(Default)]
pub(crate) struct Generation {
    families: [Changes; Family::COUNT],
    /// The rows of each key, by a hash of it, for the families that are walked key by key.
    by_owner: [FxHashMap<u64, Vec<Bytes>>; Family::COUNT],
    bytes: usize,
    /// The index of the last commit.
    pub(crate) applied: u64,
}

impl Generation {
    fn is_empty(&self) -> bool {
        self.applied == 0
    }

    fn get(&self, family: Family, key: &[u8]) -> Option<&Change> {
        self.families[family as usize].get(key)
    }

    fn put(&mut self, family: Family, key: Bytes, change: Change) {
        let rows = &mut self.families[family as usize];
        let value_len = change.as_ref().map_or(0, |value| value.len());
        match rows.get_mut(&*key) {
            Some(known) => {
                self.bytes += value_len;
                self.bytes -= known.as_ref().map_or(0, |value| value.len());
                *known = change;
            }
            None => {
                self.bytes += ROW_OVERHEAD + key.len() + value_len;
                if let Some(owner) = owner(family, &key) {
                    let rows = &mut self.by_owner[family as usize];
                    rows.entry(owner).or_default().push(key.clone());
                }
                rows.insert(key, change);
            }
        }
    }

    /// Adds the changes of a range; false if they are more than a walk should carry.
    fn gather(&self, range: &WalkedRange<'_>, most: usize, out: &mut Vec<(Bytes, Change)>) -> bool {
        let rows = &self.families[range.family as usize];
        match range.owner {
            Some(owner) => {
                let Some(keys) = self.by_owner[range.family as usize].get(&owner) else {
                    return true;
                };
                let changes = keys.iter().filter(|key| range.contains(key));
                out.extend(changes.filter_map(|key| Some((key.clone(), rows.get(key)?.clone()))));
                keys.len() <= most
            }
            None => {
                let changes = in_range(rows, range.lower(), range.upper());
                out.extend(changes.map(|(key, change)| (key.clone(), change.clone())));
                rows.len() <= most
            }
        }
    }

    /// Every change of a family, in key order.
    pub(crate) fn sorted(&self, family: Family) -> Vec<(&Bytes, &Change)> {
        let mut rows: Vec<_> = self.families[family as usize].iter().collect();
        rows.sort_unstable_by_key(|(key, _)| *key);
        rows
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// What every commit says about itself.
fn facts(index: u64, maxima: Maxima) -> [(Bytes, Bytes); 2] {
    let region = LOCAL_REGION;
    [
        (
            SystemKey::AppliedIndex { region }.encode().into(),
            value::encode_applied_index(index).into(),
        ),
        (
            SystemKey::Maxima { region }.encode().into(),
            maxima.encode().into(),
        ),
    ]
}

/// Which key a row belongs to, if its family is walked key by key.
fn owner(family: Family, row_key: &[u8]) -> Option<u64> {
    use std::hash::Hasher;
    if !matches!(family, Family::Data | Family::ZsetScore) {
        return None;
    }
    let mut hasher = FxHasher::default();
    hasher.write(row::metadata_key_of(row_key).ok()?);
    Some(hasher.finish())
}

/// The range of a walk: `[from, to)`, without an end if `to` is empty.
pub(crate) struct WalkedRange<'r> {
    family: Family,
    from: &'r [u8],
    to: &'r [u8],
    /// The key that all rows of the range belong to, if it is one.
    owner: Option<u64>,
}

impl<'r> WalkedRange<'r> {
    pub(crate) fn new(family: Family, from: &'r [u8], to: &'r [u8]) -> Self {
        let is_of_one_key = row::metadata_key_of(from).is_ok_and(|key| to.starts_with(key));
        WalkedRange {
            family,
            from,
            to,
            owner: owner(family, from).filter(|_| is_of_one_key),
        }
    }

    fn lower(&self) -> Bound<&'r [u8]> {
        Bound::Included(self.from)
    }

    fn upper(&self) -> Bound<&'r [u8]> {
        match self.to {
            [] => Bound::Unbounded,
            to => Bound::Excluded(to),
        }
    }

    fn contains(&self, key: &[u8]) -> bool {
        key >= self.from && (self.to.is_empty() || key < self.to)
    }

    /// What a batch that is not committed makes of the range.
    pub(crate) fn of_batch(&self, batch: &Batch) -> Vec<(Bytes, Change)> {
        let changes = batch.range(self.family, self.lower(), self.upper());
        changes
            .map(|(key, change)| (key.clone(), change.clone()))
            .collect()
    }
}

#[derive(Default)]
struct State {
    active: Generation,
    draining: Option<Arc<Generation>>,
}

impl State {
    /// The newest first.
    fn generations(&self) -> impl Iterator<Item = &Generation> {
        [Some(&self.active), self.draining.as_deref()]
            .into_iter()
            .flatten()
    }
}

pub(crate) struct Young {
    state: RwLock<State>,
    cache: RowCache,
}

/// What is known of a row without asking RocksDB.
pub(crate) enum Known<'y> {
    Row(Change),
    /// RocksDB has it, or nobody. It may be kept for the next reader.
    Below(Option<Fetch<'y>>),
}

impl Young {
    pub(crate) fn new(cache_bytes: usize) -> Self {
        Young {
            state: RwLock::default(),
            cache: RowCache::new(cache_bytes),
        }
    }

    pub(crate) fn get(&self, family: Family, key: &[u8]) -> Known<'_> {
        let state = self.state.read();
        // The right to keep a row is taken before anyone is asked for it: a commit that comes later
        // takes it back.
        let fetch = match self.cache.get(family, key) {
            Lookup::Known(change) => return Known::Row(change),
            Lookup::Unknown(fetch) => fetch,
        };
        let young = state.generations().find_map(|rows| rows.get(family, key));
        match young {
            Some(change) => Known::Row(change.clone()),
            None => Known::Below(fetch),
        }
    }

    /// Makes commits visible, all of them at once. True if there was nothing to drain before.
    pub(crate) fn apply(
        &self,
        batches: impl Iterator<Item = Batch>,
        index: u64,
        maxima: Maxima,
    ) -> bool {
        let mut state = self.state.write();
        let was_empty = state.active.is_empty();
        for (family, key, change) in batches.flat_map(Batch::into_changes) {
            self.cache.put(family, &key, &change);
            state.active.put(family, key, change);
        }
        for (key, value) in facts(index, maxima) {
            state.active.put(Family::Meta, key, Some(value));
        }
        state.active.applied = index;
        was_empty
    }

    /// Shows what was written to RocksDB itself.
    pub(crate) fn note_stored<'b>(
        &self,
        batches: impl Iterator<Item = &'b Batch>,
        write: impl FnOnce() -> crate::error::Result<()>,
    ) -> crate::error::Result<()> {
        let _state = self.state.write();
        write()?;
        for (family, key, value) in batches.flat_map(Batch::changes) {
            self.cache.put(family, &key.into(), &value.map(Bytes::from));
        }
        Ok(())
    }

    /// Adds the young rows of a range to `changes`, the newest first, and opens what lies below at the
    /// same moment. None if there are too many to carry along: they should be drained first.
    pub(crate) fn open_walk<T>(
        &self,
        range: &WalkedRange<'_>,
        has_limit: bool,
        changes: &mut Vec<(Bytes, Change)>,
        open: impl FnOnce() -> T,
    ) -> Option<T> {
        let most = if has_limit {
            MOST_IN_A_WALK
        } else {
            usize::MAX
        };
        let length = changes.len();
        let state = self.state.read();
        let mut generations = state.generations();
        if generations.all(|rows| rows.gather(range, most, changes)) {
            // While the lock is held no drain can end, and take away what it has brought below.
            return Some(open());
        }
        changes.truncate(length);
        None
    }

    /// The generation to be drained next: one that a failed drain has left, or the active one.
    pub(crate) fn rotate(&self) -> Option<Arc<Generation>> {
        let mut state = self.state.write();
        if state.draining.is_none() && !state.active.is_empty() {
            state.draining = Some(Arc::new(std::mem::take(&mut state.active)));
        }
        state.draining.clone()
    }

    /// RocksDB has the generation that was being drained.
    pub(crate) fn drained(&self) {
        // The rows are freed after the lock is let go.
        let _drained = self.state.write().draining.take();
    }

    pub(crate) fn is_empty(&self) -> bool {
        let state = self.state.read();
        state.active.is_empty() && state.draining.is_none()
    }

    /// Bytes that wait for the next drain.
    pub(crate) fn active_bytes(&self) -> usize {
        self.state.read().active.bytes
    }

    pub(crate) fn bytes(&self) -> usize {
        self.state.read().generations().map(|rows| rows.bytes).sum()
    }

    pub(crate) fn cache(&self) -> &RowCache {
        &self.cache
    }
}
