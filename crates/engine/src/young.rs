//! Rows in memory: young ones, which are committed and not in RocksDB yet, and hot ones, which are.
//!
//! To put a row into RocksDB costs as much as everything else that a small command does. So a commit that
//! is in the journal leaves its rows here, and they are moved (*drained*) many at a time, sorted, each once
//! however often it changed meanwhile. Reads look here first, and walks show young rows on top of
//! RocksDB's.
//!
//! Young rows belong to one of two generations: the active one, which commits add to, and the one that is
//! being drained, which stands still. A drain carries the index of the generation's last commit into
//! RocksDB in the same write, so RocksDB holds exactly the state after some commit, at every moment.
//!
//! A row that is drained stays for those who ask for it, until its room is needed: the hot rows are a
//! cache. It shows what is committed, always: a commit changes it while no reader looks, so it is seen
//! whole or not at all; and a row that a reader has fetched from below is kept only if nothing was
//! committed meanwhile. That a row is absent is kept as well. Eviction resists scans: what is asked for once
//! goes before what is asked for often, and walks do not come through here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cairn_encoding::row as stored;
use cairn_encoding::system::{Maxima, SystemKey, value};
use parking_lot::RwLock;
use rustc_hash::{FxHashMap, FxHasher};

use crate::LOCAL_REGION;
use crate::batch::Batch;
use crate::error::Result;
use crate::family::Family;
use crate::row::{Row, hash};
use crate::table::{Slot, Table};

/// What a row takes beside its bytes: slots, the reference count, the allocator.
const ROW_OVERHEAD: usize = 80;
/// The most young rows that a walk shows by itself; it waits for a drain if there are more.
const MOST_IN_A_WALK: usize = 1024;
/// The largest row that is worth keeping when it is drained: above, the copy costs what RocksDB does.
const LARGEST: usize = 32 * 1024;
/// How many slots are looked at for a row that may be evicted.
const EVICTION_EFFORT: usize = 256;
/// Tables grow at once; many small ones do so without being noticed.
const SHARDS: usize = 64;

/// The rows of commits that are drained together.
#[derive(Default)]
pub(crate) struct Generation {
    /// In the order of the commits: of several changes of a row the last counts.
    rows: Vec<Row>,
    /// Where the rows of each key are, by a hash of it, for the families that are walked key by key.
    by_owner: FxHashMap<(Family, u64), Vec<u32>>,
    counts: [usize; Family::COUNT],
    bytes: usize,
    /// The index of the last commit.
    pub(crate) applied: u64,
}

impl Generation {
    fn is_empty(&self) -> bool {
        self.applied == 0
    }

    fn add(&mut self, row: Row) {
        let family = row.family();
        if let Some(owner) = owner(family, row.key()) {
            let rows = self.by_owner.entry((family, owner)).or_default();
            rows.push(self.rows.len() as u32);
        }
        self.counts[family as usize] += 1;
        self.bytes += ROW_OVERHEAD + row.size();
        self.rows.push(row);
    }

    /// Adds the changes of a range, the latest first; false if they are more than a walk should carry.
    fn gather(&self, range: &WalkedRange<'_>, most: usize, out: &mut Vec<Row>) -> bool {
        let is_within = |row: &&Row| range.contains(row);
        match range.owner {
            Some(owner) => {
                let Some(places) = self.by_owner.get(&(range.family, owner)) else {
                    return true;
                };
                if places.len() > most {
                    return false;
                }
                let rows = places.iter().rev().map(|at| &self.rows[*at as usize]);
                out.extend(rows.filter(is_within).cloned());
            }
            None if self.counts[range.family as usize] > 0 => {
                if self.rows.len() > most {
                    return false;
                }
                out.extend(self.rows.iter().rev().filter(is_within).cloned());
            }
            None => {}
        }
        true
    }

    /// Every change, each row once, in the order in which RocksDB takes them best.
    pub(crate) fn sorted(&self) -> Vec<&Row> {
        let mut rows: Vec<&Row> = self.rows.iter().rev().collect();
        rows.sort_by(|a, b| (a.family(), a.key()).cmp(&(b.family(), b.key())));
        rows.dedup_by(|later, kept| later.is(kept.family(), kept.key()));
        rows
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// What every commit says about itself.
fn facts(index: u64, maxima: Maxima) -> [Row; 2] {
    let region = LOCAL_REGION;
    let fact = |key: SystemKey, value: &[u8]| Row::new(Family::Meta, &key.encode(), Some(value));
    let applied = value::encode_applied_index(index);
    [
        fact(SystemKey::AppliedIndex { region }, &applied),
        fact(SystemKey::Maxima { region }, &maxima.encode()),
    ]
}

/// Which key a row belongs to, if its family is walked key by key.
fn owner(family: Family, row_key: &[u8]) -> Option<u64> {
    use std::hash::Hasher;
    if !matches!(family, Family::Data | Family::ZsetScore) {
        return None;
    }
    let mut hasher = FxHasher::default();
    hasher.write(stored::metadata_key_of(row_key).ok()?);
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
        let is_of_one_key = stored::metadata_key_of(from).is_ok_and(|key| to.starts_with(key));
        WalkedRange {
            family,
            from,
            to,
            owner: owner(family, from).filter(|_| is_of_one_key),
        }
    }

    fn contains(&self, row: &Row) -> bool {
        let key = row.key();
        row.family() == self.family && key >= self.from && (self.to.is_empty() || key < self.to)
    }

    /// What a batch that is not committed makes of the range.
    pub(crate) fn of_batch(&self, batch: &Batch) -> Vec<Row> {
        if !batch.has_changes_in(self.family) {
            return Vec::new();
        }
        let rows = batch.rows().filter(|row| self.contains(row));
        rows.cloned().collect()
    }
}

struct State {
    /// Young rows and hot ones.
    rows: [Table; SHARDS],
    /// Bytes of each table.
    bytes: [usize; SHARDS],
    active: Generation,
    draining: Option<Arc<Generation>>,
    /// The number of the active generation; the first is 1.
    number: u32,
    /// The last generation that is in RocksDB.
    drained: u32,
    /// How many times something was committed.
    commits: u64,
}

impl State {
    /// The newest first.
    fn generations(&self) -> impl Iterator<Item = &Generation> {
        [Some(&self.active), self.draining.as_deref()]
            .into_iter()
            .flatten()
    }

    /// Puts a row, young in the generation of this number, and evicts what there is no more room for.
    fn put(&mut self, hash: u64, row: Row, generation: u32, limit: usize) {
        let shard = shard_of(hash);
        self.bytes[shard] += ROW_OVERHEAD + row.size();
        if let Some(before) = self.rows[shard].put(hash, row, generation) {
            self.bytes[shard] -= ROW_OVERHEAD + before.size();
        }
        while self.bytes[shard] > limit {
            let drained = self.drained;
            let may_go = |slot: &Slot| slot.generation <= drained;
            // If few may go, the table grows until the next drain.
            let Some(evicted) = self.rows[shard].evict(EVICTION_EFFORT, may_go) else {
                break;
            };
            self.bytes[shard] -= ROW_OVERHEAD + evicted.size();
        }
    }
}

fn shard_of(hash: u64) -> usize {
    // The low bits say where in the table.
    (hash >> 58) as usize % SHARDS
}

pub(crate) struct Young {
    state: RwLock<State>,
    /// The most bytes of hot rows in a table.
    shard_limit: usize,
    /// A walk has come across young rows.
    walked_over: AtomicBool,
}

/// The right to keep a row that is being fetched from below.
pub(crate) struct Fetch {
    hash: u64,
    commits: u64,
}

/// What is known of a row without asking RocksDB.
pub(crate) enum Known {
    Row(Row),
    /// RocksDB has it, or nobody.
    Below(Fetch),
}

impl Young {
    pub(crate) fn new(hot_bytes: usize) -> Self {
        Young {
            state: RwLock::new(State {
                rows: std::array::from_fn(|_| Table::default()),
                bytes: [0; SHARDS],
                active: Generation::default(),
                draining: None,
                number: 1,
                drained: 0,
                commits: 0,
            }),
            shard_limit: hot_bytes / SHARDS,
            walked_over: AtomicBool::new(false),
        }
    }

    pub(crate) fn get(&self, family: Family, key: &[u8]) -> Known {
        let hash = hash(family, key);
        let state = self.state.read();
        let slot = state.rows[shard_of(hash)].get(hash, family, key);
        if let Some(slot) = slot
            && let Some(row) = &slot.row
        {
            slot.warm();
            return Known::Row(row.clone());
        }
        Known::Below(Fetch {
            hash,
            commits: state.commits,
        })
    }

    /// Keeps what a reader found below, unless it may have changed since.
    pub(crate) fn keep(&self, fetch: Fetch, family: Family, key: &[u8], value: Option<&[u8]>) {
        if key.len() + value.map_or(0, <[u8]>::len) > LARGEST.min(self.shard_limit / 16) {
            return;
        }
        let row = Row::new(family, key, value);
        let mut state = self.state.write();
        if state.commits == fetch.commits {
            state.put(fetch.hash, row, 0, self.shard_limit);
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
        let state = &mut *state;
        let was_empty = state.active.is_empty();
        let facts = facts(index, maxima).map(|row| (hash(row.family(), row.key()), row));
        for (hash, row) in batches.flat_map(Batch::into_rows).chain(facts) {
            state.active.add(row.clone());
            state.put(hash, row, state.number, self.shard_limit);
        }
        state.active.applied = index;
        state.commits += 1;
        was_empty
    }

    /// Shows what is written to RocksDB itself.
    pub(crate) fn note_stored<'b>(
        &self,
        batches: impl Iterator<Item = &'b Batch>,
        write: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let mut state = self.state.write();
        state.commits += 1;
        write()?;
        for row in batches.flat_map(Batch::rows) {
            let hash = hash(row.family(), row.key());
            state.put(hash, row.clone(), 0, self.shard_limit);
        }
        Ok(())
    }

    /// Adds the young rows of a range to `rows`, the newest first, and opens what lies below at the same
    /// moment. None if there are too many to carry along: they should be drained first.
    pub(crate) fn open_walk<T>(
        &self,
        range: &WalkedRange<'_>,
        has_limit: bool,
        rows: &mut Vec<Row>,
        open: impl FnOnce() -> T,
    ) -> Option<T> {
        let most = if has_limit {
            MOST_IN_A_WALK
        } else {
            usize::MAX
        };
        let length = rows.len();
        let state = self.state.read();
        let mut generations = state.generations();
        let are_few = generations.all(|generation| generation.gather(range, most, rows));
        if !are_few || rows.len() > length {
            self.walked_over.store(true, Ordering::Relaxed);
        }
        if are_few {
            // While the lock is held no drain can end, and take away what it has brought below.
            return Some(open());
        }
        rows.truncate(length);
        None
    }

    /// Whether walks have come across young rows since this was last asked.
    pub(crate) fn was_walked_over(&self) -> bool {
        self.walked_over.swap(false, Ordering::Relaxed)
    }

    /// The generation to be drained next: one that a failed drain has left, or the active one.
    pub(crate) fn rotate(&self) -> Option<Arc<Generation>> {
        let mut state = self.state.write();
        if state.draining.is_none() && !state.active.is_empty() {
            let next = Generation {
                rows: Vec::with_capacity(state.active.rows.len()),
                ..Generation::default()
            };
            state.draining = Some(Arc::new(std::mem::replace(&mut state.active, next)));
            state.number += 1;
        }
        state.draining.clone()
    }

    /// RocksDB has the generation that was being drained.
    pub(crate) fn drained(&self) {
        let mut state = self.state.write();
        state.drained = state.number - 1;
        let drained = state.draining.take();
        drop(state);
        drop(drained);
    }

    pub(crate) fn is_empty(&self) -> bool {
        let state = self.state.read();
        state.active.is_empty() && state.draining.is_none()
    }

    /// Bytes that wait for the next drain.
    pub(crate) fn active_bytes(&self) -> usize {
        self.state.read().active.bytes
    }

    /// Bytes of young rows.
    pub(crate) fn bytes(&self) -> usize {
        self.state.read().generations().map(|rows| rows.bytes).sum()
    }

    /// Bytes of rows in memory, young or hot.
    pub(crate) fn bytes_in_all(&self) -> usize {
        self.state.read().bytes.iter().sum()
    }
}
