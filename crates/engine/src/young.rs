//! Rows in memory: young ones, which are committed and not in RocksDB yet, and hot ones, which are.
//!
//! To put a row into RocksDB costs as much as everything else that a small command does. So a commit that
//! is in the journal leaves its rows here, and they are moved (*drained*) many at a time, sorted, each once
//! however often it changed meanwhile. Reads look here first, and walks show young rows on top of
//! RocksDB's.
//!
//! Young rows belong to generations: the active one, which commits add to, and full ones, whose rows stand still, and of which
//! the oldest are drained together. A drain carries the index of their last commit into RocksDB in the same write, so RocksDB
//! holds exactly the state after some commit, at every moment.
//!
//! A row that is drained stays for those who ask for it, until its room is needed: the hot rows are a
//! cache. It shows what is committed, always: a commit changes it while no reader looks, so it is seen
//! whole or not at all; and a row that a reader has fetched from below is kept only if nothing was
//! committed meanwhile. That a row is absent is kept as well. Eviction resists scans: what is asked for once
//! goes before what is asked for often, and walks do not come through here, but for those over small
//! collections (see `whole`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::access::{Access, Faded, Now};
use crate::batch::Batch;
use crate::clock::Moment;
use crate::error::Result;
use crate::family::Family;
use crate::generation::{Generation, Record, Run, WalkedRange, collection_of};
use crate::ordered::Change;
use crate::row::{Kind, Row, fetched, hash, long_hash};
use crate::rows::Direction;
use crate::table::{Evicted, Slot, Table};
use crate::whole::{self, Reach};

/// What a row takes beside its bytes: slots, the reference count, the allocator.
pub(crate) const ROW_OVERHEAD: usize = 80;
/// If a walk would have to look at more young rows to find those of its range, they are put in order first, for all
/// walks that follow.
const FEW_LOOKED_AT: usize = 1024;
/// How often it is tried to have all of them in generations that are full, while others add to them.
const MOST_TRIES: usize = 4;
/// Walks that nobody waits for look at no more: they may stay open for long, and wait for a drain instead.
const FEW_LOOKED_AT_IN_BACKGROUND: usize = 16 * 1024;
/// When walks have merged so many runs, rows are drained earlier, for the sake of the walks that follow.
const MANY_RUNS: usize = 8192;
/// The largest row that is worth keeping when it is drained: above, the copy costs what RocksDB does.
const LARGEST: usize = 32 * 1024;
/// How many slots are looked at for a row that may be evicted.
const EVICTION_EFFORT: usize = 256;
/// How many are evicted at once by whoever puts a row, and by a drain.
const EVICTED_BY_WRITER: usize = 16;
const EVICTED_BY_DRAIN: usize = 256;
/// Tables grow at once; many small ones do so without being noticed.
const SHARDS: usize = 64;
/// What is known of the last use of rows that are in memory no more takes so small a part of what hot rows do.
const FADED_SHARE: usize = 16;
/// How much of the values that are sampled is shown: enough to tell when a key expires.
const SAMPLED_VALUE: usize = 16;
/// How long a drain should take at most: the larger a generation, the more changes of the same row it takes in.
const DRAIN_TIME: Duration = Duration::from_millis(250);
/// The same while commits have to wait for it.
const SHORT_DRAIN_TIME: Duration = Duration::from_millis(60);
/// A generation is never full before it has grown to this.
const LEAST_FULL: usize = 256 * 1024;
/// How many generations there is room for, at least, and how large they may become.
const GENERATIONS: usize = 8;
/// So many of these are a little more than those with which a drain begins.
const MUCH: usize = 5;
pub(crate) const LARGEST_GENERATION: usize = 64 * 1024 * 1024;
/// How many rows or collections a drain forgets before readers get their turn. To be put to sleep and woken takes those who wait for
/// it as long as some hundred of them.
const FORGOTTEN_AT_ONCE: usize = 1024;
/// And so many times as long as that took their turn lasts, while nobody waits for the end of the drain: who needs the lock for each
/// row must not wait for it again and again, until all is forgotten.
const TURN_OF_READERS: u32 = 4;
/// However long it took by the clock: whoever drains may have been kept from the processor meanwhile.
const LONGEST_TURN_OF_READERS: Duration = Duration::from_millis(4);
/// A shorter turn than this holds up nobody.
const SHORT_TURN: Duration = Duration::from_micros(20);
/// So far ahead of the change that a commit makes are slots, and rows, brought near.
const SLOTS_AHEAD: usize = 24;
const ROWS_AHEAD: usize = 12;

/// Who walks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Walker {
    /// Somebody for whom a client waits.
    Foreground,
    /// Nobody waits for it: it is no reason to drain earlier, and has young rows drained if there are many.
    Background,
    /// The same, when that is of no use.
    BackgroundAnyway,
}

/// The key of a row, and what its value begins with.
pub type SampledRow = (Box<[u8]>, Box<[u8]>);

/// What somebody asks for a row for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reading {
    /// It is used, which is noted.
    Use,
    /// Somebody looks on.
    Look,
}

/// The young rows of a walk.
#[derive(Default)]
pub(crate) struct Carried {
    /// Those that were changed last, the newest first.
    pub(crate) newest: Vec<Row>,
    /// The others, the newest first.
    pub(crate) runs: Vec<Run>,
    /// If they are few, all of a collection, and did not change between two walks: the right to keep what is shown.
    pub(crate) keeping: Option<Keeping>,
}

/// The right to keep a collection with its young rows in one piece.
#[derive(Clone, Copy)]
pub(crate) struct Keeping {
    pub(crate) reach: Reach,
    replaced: u32,
}

struct State {
    /// Young rows and hot ones.
    rows: [Table; SHARDS],
    /// Bytes of each table.
    bytes: [usize; SHARDS],
    active: Generation,
    /// The oldest first: it is drained next, or just now.
    full: VecDeque<Arc<Generation>>,
    /// What they take.
    full_bytes: usize,
    /// The last generation that is in RocksDB.
    drained: u32,
    /// The last generation that is there already, or whose rows are being made to count as RocksDB's.
    settled: u32,
    /// How many times something was committed.
    commits: u64,
    /// How many times rows were forgotten because others were put in their place below.
    replaced: u32,
    /// What is known of the last use of keys whose rows are in memory no more.
    faded: Faded,
}

/// How rows are changed.
#[derive(Clone, Copy)]
struct Writing {
    now: Now,
    /// Somebody uses what he changes; nobody does whose work is in the background.
    is_use: bool,
}

impl Writing {
    /// Whoever changes a row has read it before, which was counted.
    #[cold]
    fn note_beside(self, slot: &Slot, was_there: bool, faded: impl FnOnce() -> Option<Access>) {
        if !was_there {
            slot.set_access(faded().unwrap_or_else(|| Access::of_new(self.now)));
        }
    }
}

/// What commits say about themselves.
pub(crate) enum Said {
    /// All of them, where all are in one journal.
    InJournal(Record),
    /// Those of one region among many.
    AsRows([Row; 2]),
}

/// What a walk that keeps what it finds must find unchanged.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Since {
    /// The last generation that was in RocksDB.
    drained: u32,
    replaced: u32,
}

impl State {
    fn since(&self) -> Since {
        Since {
            drained: self.drained,
            replaced: self.replaced,
        }
    }

    /// The newest first.
    fn generations(&self) -> impl Iterator<Item = &Generation> {
        let full = self.full.iter().rev().map(|full| &**full);
        std::iter::once(&self.active).chain(full)
    }

    /// How many rows may be in the range, for all that is known without a look at them.
    fn looked_at(&self, range: &WalkedRange<'_>) -> usize {
        let looked_at = self.generations().map(|rows| rows.looked_at(range));
        looked_at.sum()
    }

    /// The generations that have rows of the collection, the newest first, and how far they reach.
    fn generations_with(&self, owner: u64) -> impl Iterator<Item = (&Generation, Reach)> {
        self.generations().filter_map(move |rows| {
            let reach = Reach {
                generation: rows.number,
                changes: rows.changes(owner)?,
            };
            Some((rows, reach))
        })
    }

    /// Notes that all of a collection is walked over.
    fn note_walk(&self, range: &WalkedRange<'_>) -> Option<Keeping> {
        let owner = range.owner().filter(|_| range.is_whole)?;
        let (newest, reach) = self.generations_with(owner).next()?;
        newest.note_walk(owner).then_some(Keeping {
            reach,
            replaced: self.replaced,
        })
    }

    fn has_young(&self) -> bool {
        !self.active.is_empty() || !self.full.is_empty()
    }

    /// Commits go to a new generation from now on.
    fn begin_generation(&mut self, limit: usize) {
        let (now, is_use) = (Now::read(), true);
        for row in self.active.unwritten() {
            self.put_young(Change::of(row), limit, Writing { now, is_use });
            // Whoever fetches such a row from below has what was there before.
            self.commits += 1;
        }
        let next = self.active.successor();
        let full = std::mem::replace(&mut self.active, next);
        self.full_bytes += full.bytes();
        self.full.push_back(Arc::new(full));
    }

    fn young_bytes(&self) -> usize {
        self.active.bytes() + self.full_bytes
    }

    fn table(&self, hash: u32) -> &Table {
        &self.rows[shard_of(hash)]
    }

    /// Has rows brought near: to wait for one after the other takes longer than all else that is done with
    /// them. True if all of them are surely there.
    fn expect(&self, hashes: impl Iterator<Item = u32> + Clone) -> bool {
        for hash in hashes.clone() {
            self.table(hash).expect_slot(hash);
        }
        let mut are_there = true;
        for hash in hashes {
            are_there &= self.table(hash).expect_row(hash).is_some();
        }
        are_there
    }

    /// Has brought near what will be changed before long by those who put rows one after the other, of which these are left:
    /// slots first, and when these are there the rows in them.
    fn expect_changes(&self, left: &[Change]) {
        if let Some(change) = left.get(SLOTS_AHEAD) {
            self.table(change.hash).expect_slot(change.hash);
        }
        if let Some(change) = left.get(ROWS_AHEAD) {
            self.expect_change(change.hash);
        }
    }

    /// The same for the first of them.
    fn expect_first_changes(&self, changes: &[Change]) {
        for change in changes.iter().take(SLOTS_AHEAD) {
            self.table(change.hash).expect_slot(change.hash);
        }
        for change in changes.iter().take(ROWS_AHEAD) {
            self.expect_change(change.hash);
        }
    }

    fn expect_change(&self, hash: u32) {
        if let Some(slot) = self.table(hash).expect_row(hash)
            && slot.generation > self.drained
        {
            match self.full.get(self.place_among_full(slot.generation)) {
                Some(full) => full.expect_mark(slot.place),
                None => self.active.expect_place(slot.place),
            }
        }
    }

    /// Of a generation that is young, by its number. The active one comes behind them.
    fn place_among_full(&self, generation: u32) -> usize {
        (generation - self.drained - 1) as usize
    }

    /// Puts a row that was committed; it is young now.
    fn put_young(&mut self, change: Change, limit: usize, writing: Writing) {
        let Change { hash, is_new, row } = change;
        let shard = shard_of(hash);
        self.bytes[shard] += ROW_OVERHEAD + row.size();
        let (slot, before) = self.rows[shard].put(hash, row.clone());
        if writing.is_use && !writing.now.counts_uses() {
            slot.set_access(writing.now.second());
        } else {
            let was_there = before.as_ref().is_some_and(|row| row.value().is_some());
            let faded = || self.faded.get(hash);
            writing.note_beside(slot, was_there, faded);
        }
        let active = self.active.number;
        if slot.generation == active {
            self.active.replace(slot.place, row);
        } else {
            let earlier = std::mem::replace(&mut slot.generation, active);
            let young = before.as_ref().filter(|_| earlier > self.drained);
            let changed = young.map(|row| (row, &self.full[(earlier - self.drained - 1) as usize]));
            let born = match (changed, &before) {
                // What is drained is below from now on.
                (Some((_, changed)), _) => match changed.born(slot.place) {
                    born if born > self.drained => born,
                    _ => 0,
                },
                // That there is no such row below is known here, or whoever puts it knows.
                (None, Some(known)) if known.value().is_none() => active,
                (None, None) if is_new => active,
                (None, _) => 0,
            };
            let place = std::mem::replace(&mut slot.place, self.active.add(row, born));
            if let Some((before, changed)) = changed {
                debug_assert_eq!(changed.number, earlier);
                self.active.supersede(changed, place, before);
            }
        }
        self.make_room(shard, before, limit);
    }

    /// Puts a row that RocksDB has.
    fn put_hot(&mut self, hash: u32, row: Row, limit: usize) {
        let shard = shard_of(hash);
        self.bytes[shard] += ROW_OVERHEAD + row.size();
        let (slot, before) = self.rows[shard].put(hash, row);
        slot.generation = 0;
        if before.is_none() {
            let access = self.faded.get(hash);
            slot.set_access(access.unwrap_or_else(Access::unknown));
        }
        self.make_room(shard, before, limit);
    }

    /// A row of this table was put in place of another: evicts what there is no more room for. Not all of it at once:
    /// after a drain there may be very much, and whoever puts a row waits for this.
    fn make_room(&mut self, shard: usize, replaced: Option<Row>, limit: usize) {
        if let Some(before) = replaced {
            self.bytes[shard] -= ROW_OVERHEAD + before.size();
        }
        self.evict_some(shard, limit, EVICTED_BY_WRITER);
    }

    /// Evicts a few rows if there is no room for them; true if that may not have been all. Young rows take no room from
    /// the hot ones: many of them come at once, and most are never asked for.
    fn evict_some(&mut self, shard: usize, limit: usize, most: usize) -> bool {
        for _ in 0..most {
            if self.bytes[shard] <= limit + self.young_bytes() / SHARDS {
                return false;
            }
            let drained = self.drained;
            let may_go = |slot: &Slot| slot.generation <= drained;
            // If few may go, the table grows until the next drain.
            let Some(evicted) = self.rows[shard].evict(EVICTION_EFFORT, may_go) else {
                return false;
            };
            let Evicted { row, hash, access } = evicted;
            self.bytes[shard] -= ROW_OVERHEAD + row.size();
            if row.family() == Family::Metadata {
                self.faded.note(hash, access);
            }
        }
        true
    }

    /// What is known of a collection without asking RocksDB.
    fn beneath(&self, range: &WalkedRange<'_>) -> Beneath {
        let known = range.prefix.and_then(|prefix| {
            let kind = Kind::Whole(range.family);
            let hash = hash(kind, prefix);
            let slot = self.table(hash).get(hash, kind, prefix)?;
            slot.warm();
            slot.row.clone()
        });
        // What RocksDB has of young rows is what has survived of them.
        let is_true = |whole: &Row| match Reach::of(whole).generation {
            0 => true,
            generation => generation > self.drained,
        };
        known.filter(is_true).ok_or(self.since())
    }

    /// A key was used whose row was fetched from below.
    fn note_use(&self, hash: u32, key: &[u8]) {
        match self.table(hash).get(hash, Family::Metadata, key) {
            Some(slot) => slot.touch(),
            None => {
                let now = Now::read();
                let before = self.faded.get(hash).unwrap_or_else(Access::unknown);
                let access = match now.counts_uses() {
                    true => before.count(now),
                    false => now.second(),
                };
                self.faded.note(hash, access);
            }
        }
    }

    /// Forgets a row unless it has changed after this generation.
    fn forget_until(&mut self, generation: u32, hash: u32, row: &Row) {
        let shard = shard_of(hash);
        let may_go = |slot: &Slot| slot.generation <= generation;
        if let Some(forgotten) = self.rows[shard].remove_if(hash, row.kind(), row.key(), may_go) {
            self.bytes[shard] -= ROW_OVERHEAD + forgotten.size();
        }
    }

    /// RocksDB has what is left of a collection in the generations that settle. If all of it is kept in one piece, and all of
    /// these are in it and no later ones, that is what RocksDB has from now on.
    fn settle_whole(&mut self, family: Family, prefix: &[u8]) {
        let kind = Kind::Whole(family);
        let hash = hash(kind, prefix);
        let slot = self.table(hash).get(hash, kind, prefix);
        let Some(reach) = slot.and_then(|slot| slot.row.as_ref()).map(Reach::of) else {
            return;
        };
        if reach.generation > self.settled {
            return;
        }
        let mut reaches = self.generations_with(long_hash(family, prefix));
        let drained = reaches.find(|(_, reach)| reach.generation <= self.settled);
        let has_all = drained.is_some_and(|(_, drained)| drained == reach);
        drop(reaches);
        if !has_all {
            self.forget_whole(family, prefix);
        } else if let Some(whole) = self.rows[shard_of(hash)].get_mut(hash, kind, prefix) {
            whole::settle(whole);
        }
    }

    fn forget_whole(&mut self, family: Family, prefix: &[u8]) {
        let kind = Kind::Whole(family);
        let hash = hash(kind, prefix);
        let shard = shard_of(hash);
        if let Some(whole) = self.rows[shard].remove(hash, kind, prefix) {
            self.bytes[shard] -= ROW_OVERHEAD + whole.size();
        }
    }
}

fn shard_of(hash: u32) -> usize {
    // The low bits say where in the table.
    (hash >> 26) as usize % SHARDS
}

pub(crate) struct Young {
    state: RwLock<State>,
    /// The most bytes of hot rows in a table.
    shard_limit: usize,
    /// A generation that has grown to so many bytes is full.
    full: AtomicUsize,
    /// The most that this may be; it is less while RocksDB is slow.
    most: usize,
    /// How many bytes may be young in all before commits have to wait.
    room: usize,
    /// A commit has waited for the drain that is under way, or for the last one.
    waited_for: AtomicBool,
    was_waited_for: AtomicBool,
    /// How many wait for the end of a drain.
    waiting: AtomicUsize,
    /// How many runs walks had to merge since somebody asked whether they were many.
    merged: AtomicUsize,
}

/// The right to keep a row that is being fetched from below.
pub(crate) struct Fetch {
    hash: u32,
    commits: u64,
}

/// The rows in memory. While somebody holds it, nothing is committed.
pub struct InMemory<'y>(RwLockReadGuard<'y, State>);

impl InMemory<'_> {
    /// None if only RocksDB knows; and none in that if there is no such row.
    #[inline]
    pub fn get(&self, family: Family, key: &[u8]) -> Option<Option<&[u8]>> {
        let hash = hash(family, key);
        let slot = self.0.table(hash).get(hash, family, key)?;
        let row = slot.row.as_ref()?;
        slot.warm();
        Some(row.value())
    }
}

/// What is known of a row without asking RocksDB.
pub(crate) enum Known {
    Row(Row),
    /// RocksDB has it, or nobody.
    Below(Fetch),
}

/// All that lies below the young rows of a collection; or, if that is not known, the right to keep it.
pub(crate) type Beneath = std::result::Result<Row, Since>;

/// Somebody waits for the end of a drain.
pub(crate) struct Waiting<'y>(&'y Young);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Young {
    pub(crate) fn new(hot_bytes: usize, room: usize) -> Self {
        let most = (room / GENERATIONS).min(LARGEST_GENERATION);
        Young {
            state: RwLock::new(State {
                rows: std::array::from_fn(|_| Table::default()),
                bytes: [0; SHARDS],
                active: Generation::first(),
                full: VecDeque::new(),
                full_bytes: 0,
                drained: 0,
                settled: 0,
                commits: 0,
                replaced: 0,
                faded: Faded::new(hot_bytes / FADED_SHARE),
            }),
            shard_limit: hot_bytes / SHARDS,
            full: AtomicUsize::new(most),
            most,
            room,
            waited_for: AtomicBool::new(false),
            was_waited_for: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            merged: AtomicUsize::new(0),
        }
    }

    #[inline]
    pub(crate) fn get(&self, family: Family, key: &[u8], reading: Reading) -> Known {
        let hash = hash(family, key);
        let state = self.state.read();
        let slot = state.table(hash).get(hash, family, key);
        if let Some(slot) = slot
            && let Some(row) = &slot.row
        {
            match reading {
                Reading::Use => slot.touch(),
                Reading::Look => slot.warm(),
            }
            return Known::Row(row.clone());
        }
        Known::Below(Fetch {
            hash,
            commits: state.commits,
        })
    }

    #[inline]
    pub(crate) fn in_memory(&self) -> InMemory<'_> {
        InMemory(self.state.read())
    }

    /// Has rows brought near that will be asked for. True if all of them are in memory, for all that their hashes tell.
    pub(crate) fn expect(&self, hashes: &[u32]) -> bool {
        self.state.read().expect(hashes.iter().copied())
    }

    fn is_worth_keeping(&self, size: usize) -> bool {
        size <= LARGEST.min(self.shard_limit / 16)
    }

    /// Keeps what a reader found below, unless it may have changed since, and that it was asked for.
    pub(crate) fn keep(
        &self,
        fetch: Fetch,
        family: Family,
        key: &[u8],
        value: Option<&[u8]>,
        reading: Reading,
    ) {
        if self.is_worth_keeping(key.len() + value.map_or(0, <[u8]>::len)) {
            let row = Row::new(family, key, value);
            let mut state = self.state.write();
            if state.commits == fetch.commits {
                state.put_hot(fetch.hash, row, self.shard_limit);
            }
        }
        if reading == Reading::Use && family == Family::Metadata {
            self.state.read().note_use(fetch.hash, key);
        }
    }

    /// What is known of the last use of a key, by its metadata row; none if it is known that there is no such key.
    pub(crate) fn access(&self, key: &[u8]) -> Option<Access> {
        let hash = hash(Family::Metadata, key);
        let state = self.state.read();
        match state.table(hash).get(hash, Family::Metadata, key) {
            Some(slot) => {
                let is_there = slot.row.as_ref().is_some_and(|row| row.value().is_some());
                is_there.then(|| slot.access())
            }
            None => Some(state.faded.get(hash).unwrap_or_else(Access::unknown)),
        }
    }

    /// Whether there is such a key, by its metadata row; none if that is not in memory.
    pub(crate) fn is_there(&self, key: &[u8]) -> Option<bool> {
        let hash = hash(Family::Metadata, key);
        let state = self.state.read();
        let slot = state.table(hash).get(hash, Family::Metadata, key)?;
        let row = slot.row.as_ref();
        Some(row.is_some_and(|row| row.value().is_some()))
    }

    pub(crate) fn set_access(&self, key: &[u8], access: Access) {
        let hash = hash(Family::Metadata, key);
        let state = self.state.read();
        match state.table(hash).get(hash, Family::Metadata, key) {
            Some(slot) => slot.set_access(access),
            None => state.faded.note(hash, access),
        }
    }

    /// Keys of metadata rows that are in memory, some of them by chance, with what their values begin with: at most so many
    /// slots are looked at.
    pub(crate) fn sample(&self, slots: usize) -> Vec<SampledRow> {
        let place = fastrand::usize(..);
        let state = self.state.read();
        let table = &state.rows[place % SHARDS];
        let rows = table.some_from(place / SHARDS, slots).map(|(_, row)| row);
        let keys = rows.filter(|row| row.kind() == Kind::One(Family::Metadata));
        let beginning = |value: &[u8]| value[..value.len().min(SAMPLED_VALUE)].into();
        keys.filter_map(|row| Some((row.key().into(), beginning(row.value()?))))
            .collect()
    }

    /// Makes commits visible, all of them at once, and with them what they say about themselves. True if whoever drains should
    /// have a look: there was nothing to drain before, or a generation is full now.
    pub(crate) fn apply<'b>(
        &self,
        batches: impl Iterator<Item = &'b mut Batch>,
        said: Said,
    ) -> bool {
        let mut state = self.state.write();
        let state = &mut *state;
        let had_young = state.has_young();
        let now = Now::read();
        for batch in batches {
            let is_use = batch.is_use();
            let writing = Writing { now, is_use };
            let mut rows = batch.drain_rows();
            state.expect_first_changes(rows.as_slice());
            while let Some(change) = rows.next() {
                state.expect_changes(rows.as_slice());
                state.put_young(change, self.shard_limit, writing);
            }
        }
        match said {
            Said::InJournal(record) => state.active.last_record = Some(record),
            Said::AsRows(facts) => {
                let writing = Writing { now, is_use: true };
                for row in facts {
                    state.put_young(Change::of(row), self.shard_limit, writing);
                }
            }
        }
        state.commits += 1;
        let is_full = state.active.bytes() >= self.full.load(Ordering::Relaxed);
        if is_full {
            state.begin_generation(self.shard_limit);
        }
        is_full || !had_young
    }

    /// Shows what is written to RocksDB itself.
    pub(crate) fn note_stored<'b>(
        &self,
        batches: impl Iterator<Item = &'b Batch>,
        write: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let mut state = self.state.write();
        state.commits += 1;
        state.replaced += 1;
        write()?;
        for row in batches.flat_map(Batch::rows) {
            let hash = hash(row.family(), row.key());
            state.put_hot(hash, row.clone(), self.shard_limit);
            if let Some(prefix) = collection_of(row) {
                state.forget_whole(row.family(), prefix);
            }
        }
        Ok(())
    }

    /// How many young rows a walk over the range has to look at before it begins: those that are not in order yet.
    pub(crate) fn looked_at(&self, range: &WalkedRange<'_>) -> usize {
        let state = self.state.read();
        let unordered = state.generations().filter(|rows| !rows.is_ordered(range));
        unordered.map(|rows| rows.looked_at(range)).sum()
    }

    /// Finds the young rows of a range, and opens what lies below at the same moment. None if there are too many to
    /// carry along: they should be drained first.
    pub(crate) fn open_walk<T>(
        &self,
        range: &WalkedRange<'_>,
        direction: Direction,
        walker: Walker,
        open: impl FnOnce(Beneath) -> T,
    ) -> Option<(T, Carried)> {
        let mut tries = 0;
        loop {
            let state = self.state.read();
            let looked_at = state.looked_at(range);
            if looked_at > FEW_LOOKED_AT_IN_BACKGROUND && walker == Walker::Background {
                return None;
            }
            let mut carried = Carried::default();
            if range.family == Family::Meta {
                let unwritten = state.active.unwritten();
                carried
                    .newest
                    .extend(unwritten.filter(|row| range.contains(row)));
            }
            if looked_at <= FEW_LOOKED_AT {
                for generation in state.generations() {
                    generation.gather(range, &mut carried.newest);
                }
                carried.keeping = state.note_walk(range);
            } else if tries < MOST_TRIES && state.active.looked_at(range) > FEW_LOOKED_AT {
                drop(state);
                self.close_active(range);
                tries += 1;
                continue;
            } else {
                let full = state.full.iter();
                let unordered: Vec<_> = full
                    .filter(|rows| !rows.is_ordered(range))
                    .cloned()
                    .collect();
                if !unordered.is_empty() {
                    // Commits need not wait for this.
                    drop(state);
                    unordered.iter().for_each(|rows| rows.order(range));
                    continue;
                }
                state.active.gather(range, &mut carried.newest);
                let newest_first = state.full.iter().rev();
                carried.runs = newest_first
                    .filter_map(|rows| rows.run(range, direction))
                    .collect();
                if walker == Walker::Foreground {
                    self.merged.fetch_add(carried.runs.len(), Ordering::Relaxed);
                }
            }
            // While the lock is held no drain can end, and take away what it has brought below.
            return Some((open(state.beneath(range)), carried));
        }
    }

    /// Has commits go to a new generation, so that what there is in the range can be put in order.
    fn close_active(&self, range: &WalkedRange<'_>) {
        let mut state = self.state.write();
        if state.active.looked_at(range) > FEW_LOOKED_AT {
            state.begin_generation(self.shard_limit);
        }
    }

    /// All that there is of a collection, if it is known in one piece, to which nothing has to be added.
    pub(crate) fn whole(&self, range: &WalkedRange<'_>) -> Option<Row> {
        let owner = range.owner()?;
        let state = self.state.read();
        let whole = state.beneath(range).ok()?;
        let newest = state.generations_with(owner).next();
        let reach = newest.map(|(_, reach)| reach).unwrap_or_default();
        (Reach::of(&whole) == reach).then_some(whole)
    }

    /// Keeps what a walk over a small collection has shown.
    pub(crate) fn keep_shown(&self, keeping: Keeping, whole: Row) {
        if !self.is_worth_keeping(whole.size()) {
            return;
        }
        let hash = hash(whole.kind(), whole.key());
        let mut state = self.state.write();
        // It would take the place of one that has settled, and be good for nothing when the drain is over.
        let is_settled = keeping.reach.generation <= state.settled;
        if keeping.replaced == state.replaced && !is_settled {
            state.put_hot(hash, whole, self.shard_limit);
        }
    }

    /// Keeps all that a walk over a collection has found below, unless it may have changed since.
    pub(crate) fn keep_whole(&self, range: &WalkedRange<'_>, since: Since, whole: Row) {
        let Some(owner) = range.owner() else {
            return;
        };
        let hash = hash(whole.kind(), whole.key());
        let mut state = self.state.write();
        // Some of these are being drained.
        let may_change = state.full.iter().any(|rows| rows.has_collection(owner));
        if self.is_worth_keeping(whole.size()) && state.since() == since && !may_change {
            state.put_hot(hash, whole, self.shard_limit);
        }
    }

    /// All young rows, the newest first, and what lies below, opened at the same moment. None if there are more than
    /// `most`.
    pub(crate) fn open_all<T>(
        &self,
        most: usize,
        open: impl FnOnce() -> T,
    ) -> Option<(Vec<Row>, T)> {
        let state = self.state.read();
        let count: usize = state.generations().map(|rows| rows.rows().len()).sum();
        if count > most {
            return None;
        }
        let rows = state.generations().flat_map(Generation::rows).cloned();
        let rows = state.active.unwritten().chain(rows).collect();
        // While the lock is held no drain can end, and take away what it has brought below.
        Some((rows, open()))
    }

    /// Forgets hot rows in whose place others were put below. None of them may be young.
    pub(crate) fn forget(&self, is_replaced: impl Fn(&Row) -> bool) {
        let mut state = self.state.write();
        let state = &mut *state;
        state.commits += 1;
        state.replaced += 1;
        let drained = state.drained;
        for (table, bytes) in state.rows.iter_mut().zip(&mut state.bytes) {
            table.remove_where(
                |slot, row| slot.generation <= drained && is_replaced(row),
                |row| *bytes -= ROW_OVERHEAD + row.size(),
            );
        }
    }

    /// Whether walks had to merge many runs since this was last so.
    pub(crate) fn was_walked_over(&self) -> bool {
        let are_many = self.merged.load(Ordering::Relaxed) >= MANY_RUNS;
        if are_many {
            self.merged.store(0, Ordering::Relaxed);
        }
        are_many
    }

    /// The generations that can be drained, the oldest first.
    pub(crate) fn oldest(&self) -> Vec<Arc<Generation>> {
        let mut state = self.state.write();
        if state.full.is_empty() && !state.active.is_empty() {
            state.begin_generation(self.shard_limit);
        }
        state.full.iter().cloned().collect()
    }

    /// How much RocksDB is given at once, unless a single generation is more.
    pub(crate) fn most_drained(&self) -> usize {
        self.full.load(Ordering::Relaxed)
    }

    /// Somebody waits for the end of a drain, until this is dropped.
    pub(crate) fn wait_for_drain(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(self)
    }

    /// Changes rows for a drain, and lets readers have their turn then; a long one while nobody waits for the drain.
    fn in_turn(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.write();
        let began = Moment::now();
        change(&mut state);
        let took = Moment::now().since(began);
        RwLockWriteGuard::unlock_fair(state);
        if took > SHORT_TURN && self.waiting.load(Ordering::Relaxed) == 0 {
            thread::sleep((took * TURN_OF_READERS).min(LONGEST_TURN_OF_READERS));
        }
    }

    /// RocksDB has what is left of so many generations, the oldest: these rows, in order, and not those that are dead.
    pub(crate) fn drained<'r>(
        &self,
        count: usize,
        rows: &[&Row],
        dead: impl Iterator<Item = &'r Row>,
    ) {
        // While they count as being drained nobody keeps anew what is forgotten here, and what they have is shown on top of what
        // settles here, where it is already.
        let collections =
            fetched(rows, |row| row).filter_map(|row| Some((row.family(), collection_of(row)?)));
        let mut collections: Vec<_> = collections.collect();
        collections.dedup();
        self.in_turn(|state| state.settled = state.drained + count as u32);
        for some in collections.chunks(FORGOTTEN_AT_ONCE) {
            self.in_turn(|state| {
                for (family, prefix) in some {
                    state.settle_whole(*family, prefix);
                }
            });
        }
        self.forget_dead(count, dead);
        let mut state = self.state.write();
        state.drained += count as u32;
        let drained: Vec<_> = state.full.drain(..count).collect();
        state.full_bytes -= drained.iter().map(|rows| rows.bytes()).sum::<usize>();
        // Whoever drains may have the last reference to them, and nobody should wait while they are freed.
        drop(state);
    }

    /// Forgets rows that RocksDB was not given: a hot row is as RocksDB has it.
    fn forget_dead<'r>(&self, count: usize, dead: impl Iterator<Item = &'r Row>) {
        let mut dead = dead.peekable();
        while dead.peek().is_some() {
            let some: Vec<&Row> = dead.by_ref().take(FORGOTTEN_AT_ONCE).collect();
            some.iter().for_each(|row| row.expect());
            let hashes = some.iter().map(|row| hash(row.kind(), row.key()));
            let hashes: Vec<u32> = hashes.collect();
            // They are brought near while others still read.
            self.state.read().expect(hashes.iter().copied());
            self.in_turn(|state| {
                let last = state.drained + count as u32;
                for (row, hash) in some.into_iter().zip(hashes) {
                    state.forget_until(last, hash, row);
                }
            });
        }
    }

    /// What was young takes room from the hot rows from now on: evicts what there is too much of. Those who put rows do the same
    /// for each, so it is to be over soon.
    pub(crate) fn evict_drained(&self) {
        for shard in 0..SHARDS {
            let mut is_over = false;
            while !is_over {
                let mut state = self.state.write();
                is_over = !state.evict_some(shard, self.shard_limit, EVICTED_BY_DRAIN);
                RwLockWriteGuard::unlock_fair(state);
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.state.read().has_young()
    }

    /// Whether such a share of the room is taken: one half, or one eighth.
    pub(crate) fn fills(&self, share: usize) -> bool {
        self.state.read().young_bytes() >= self.room / share
    }

    /// Whether a drain may take its time: commits have not waited for the last one, and will not soon.
    pub(crate) fn has_time(&self) -> bool {
        let much = self.room / GENERATIONS * MUCH;
        let is_waited_for = [&self.waited_for, &self.was_waited_for];
        let is_waited_for = is_waited_for.iter().any(|it| it.load(Ordering::Relaxed));
        !is_waited_for && self.bytes() < much
    }

    /// How many times something was committed.
    pub(crate) fn commits(&self) -> u64 {
        self.state.read().commits
    }

    /// Whether there are so many times as many young rows as there is room for.
    pub(crate) fn is_overfull(&self, times: usize) -> bool {
        self.state.read().young_bytes() >= self.room * times
    }

    /// The number of the last generation that is in RocksDB.
    pub(crate) fn last_drained(&self) -> u32 {
        self.state.read().drained
    }

    /// The number of the last generation that holds something.
    pub(crate) fn newest(&self) -> u32 {
        let state = self.state.read();
        state.active.number - u32::from(state.active.is_empty())
    }

    /// The same. All that there is can be drained together from now on.
    pub(crate) fn close_newest(&self) -> u32 {
        let mut state = self.state.write();
        if !state.active.is_empty() {
            state.begin_generation(self.shard_limit);
        }
        state.active.number - 1
    }

    /// Whether there may be rows in the range, for all that is known without a look at them.
    pub(crate) fn may_hold(&self, range: &WalkedRange<'_>) -> bool {
        self.state.read().looked_at(range) > 0
    }

    /// A commit has to wait for a drain.
    pub(crate) fn note_wait(&self) {
        self.waited_for.store(true, Ordering::Relaxed);
    }

    /// Notes how long it took RocksDB to take a generation. Those to come are to be as large as it takes in the
    /// time that a drain may take.
    pub(crate) fn note_drain(&self, bytes: usize, took: Duration) {
        let was_waited_for = self.waited_for.swap(false, Ordering::Relaxed);
        self.was_waited_for.store(was_waited_for, Ordering::Relaxed);
        let wanted = match was_waited_for {
            true => SHORT_DRAIN_TIME,
            false => DRAIN_TIME,
        };
        let full = self.full.load(Ordering::Relaxed);
        // A small one tells nothing: much of its time does not depend on its size.
        if bytes >= full / 2 {
            let in_time = bytes as f64 * wanted.as_secs_f64() / took.as_secs_f64();
            let next = (in_time as usize).clamp(full / 4, full * 2);
            let least = LEAST_FULL.min(self.most);
            self.full
                .store(next.clamp(least, self.most), Ordering::Relaxed);
        }
    }

    /// Bytes of young rows.
    pub(crate) fn bytes(&self) -> usize {
        self.state.read().young_bytes()
    }

    /// Bytes of rows in memory, young or hot.
    pub(crate) fn bytes_in_all(&self) -> usize {
        self.state.read().bytes.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overlay::Overlay;
    use crate::rows::{Rows, Stored};
    use crate::survivors::Survivors;
    use crate::whole::{Builder, Cursor};
    use cairn_encoding::row::{RowKey, version_end, version_prefix};
    use cairn_encoding::system::Maxima;
    use std::collections::{BTreeMap, BTreeSet, HashSet};

    fn apply(young: &Young, mut batch: Batch, index: u64) {
        let maxima = Maxima::default();
        let said = Said::InJournal(Record { index, maxima });
        young.apply(std::iter::once(&mut batch), said);
    }

    fn drain(young: &Young, oldest: &[Arc<Generation>]) {
        let survivors = Survivors::of(oldest, &HashSet::new());
        young.drained(oldest.len(), &survivors.rows(), survivors.dead_rows());
        young.evict_drained();
    }

    fn put(young: &Young, index: u64, value: &[u8]) {
        let mut batch = Batch::new();
        batch.put(Family::Metadata, &index.to_be_bytes(), value);
        apply(young, batch, index);
    }

    #[test]
    fn the_slower_the_drains_the_sooner_a_generation_is_full() {
        let (quick, slow) = (Duration::from_millis(1), Duration::from_millis(200));
        let young = Young::new(1 << 20, 8 << 20);
        let mut index = 0;
        let mut full_at = || {
            while !young.is_empty() {
                young.drained(young.oldest().len(), &[], std::iter::empty());
            }
            while young.state.read().full.is_empty() {
                index += 1;
                put(&young, index, &[0; 1000]);
            }
            young.bytes()
        };
        let is_about = |bytes: usize, expected: usize| bytes.abs_diff(expected) < expected / 10;
        let most = full_at();
        assert!(is_about(most, (8 << 20) / GENERATIONS));
        // Nobody minds, until somebody has to wait.
        young.note_drain(most, slow);
        assert_eq!(full_at(), most);
        young.note_wait();
        young.note_drain(most, slow);
        let less = full_at();
        assert!(is_about(less, most * 3 / 10));
        // A drain takes its time again once nobody has waited for the last one.
        assert!(!young.has_time());
        young.note_drain(1000, quick);
        assert!(young.has_time());
        // What is too small to tell does not count, and there is a least.
        assert_eq!(full_at(), less);
        (0..10).for_each(|_| young.note_drain(most, slow * 100));
        assert!(is_about(full_at(), LEAST_FULL));
        (0..10).for_each(|_| young.note_drain(most, quick));
        assert_eq!(full_at(), most);
    }

    #[test]
    fn the_newest_generation_shows_first_and_the_oldest_is_drained_first() {
        let young = Young::new(1 << 20, 4 << 20);
        let mut batches = 0_u64;
        while !young.is_overfull(1) {
            batches += 1;
            let mut batch = Batch::new();
            batch.put(Family::Metadata, b"same", batches.to_be_bytes());
            batch.put(Family::Metadata, &batches.to_be_bytes(), [0; 10_000]);
            apply(&young, batch, batches);
        }
        let newest = young.newest();
        assert!(newest >= GENERATIONS as u32);
        let shown = |young: &Young| {
            let range = WalkedRange::new(Family::Metadata, b"same", b"samf");
            let walker = Walker::Foreground;
            let walk = young.open_walk(&range, Direction::Forward, walker, |_| ());
            let rows = walk.unwrap().1.newest;
            rows.first().map(|row| row.value().map(<[u8]>::to_vec))
        };
        let expected = batches.to_be_bytes().to_vec();
        let mut applied = 0;
        while young.last_drained() < newest {
            assert_eq!(shown(&young), Some(Some(expected.clone())));
            let oldest = &young.oldest()[..1];
            let last = oldest[0].last_record.unwrap().index;
            assert!(last > applied);
            applied = last;
            drain(&young, oldest);
        }
        assert_eq!(applied, batches);
        assert_eq!(shown(&young), None);
        assert!(young.is_empty());
    }

    /// What RocksDB was not given must not be shown as if it had been; what came later must.
    #[test]
    fn rows_that_are_left_out_are_not_remembered() {
        let young = Young::new(1 << 20, 16 << 20);
        let element = |version: u64| RowKey::Data {
            index: 1,
            key: b"key",
            version,
            sub: b"element",
        };
        let metadata = RowKey::Metadata {
            index: 1,
            key: b"key",
        };
        let mut batch = Batch::new();
        batch.put(Family::Data, &element(1).encode(), b"value");
        batch.put(Family::Data, &element(2).encode(), b"value");
        batch.delete(Family::Metadata, &metadata.encode());
        apply(&young, batch, 1);
        let oldest = young.oldest();
        let mut batch = Batch::new();
        batch.put(Family::Data, &element(2).encode(), b"new");
        apply(&young, batch, 2);
        drain(&young, &oldest);
        let known =
            |version| match young.get(Family::Data, &element(version).encode(), Reading::Use) {
                Known::Row(row) => row.value().map(<[u8]>::to_vec),
                Known::Below(_) => None,
            };
        assert_eq!(known(1), None);
        assert_eq!(known(2).as_deref(), Some(&b"new"[..]));
        let kept: usize = young.state.read().rows.iter().map(Table::len).sum();
        // That element, the metadata, and the facts about the commits.
        assert_eq!(kept, 4);
    }

    /// A lock that is taken and let go again and again is always young, and came to be long ago.
    #[test]
    fn what_was_born_long_ago_is_not_kept_account_of() {
        let young = Young::new(1 << 20, 16 << 20);
        let mut batch = Batch::new();
        batch.put_new(Family::Data, b"lock", b"taken");
        apply(&young, batch, 1);
        for index in 2..1000 {
            let oldest = young.oldest();
            let mut batch = Batch::new();
            match index % 2 {
                0 => batch.delete(Family::Data, b"lock"),
                _ => batch.put(Family::Data, b"lock", b"taken"),
            }
            apply(&young, batch, index);
            drain(&young, &oldest);
            assert!(young.state.read().active.accounts() <= 3);
        }
    }

    type Model = BTreeMap<Vec<u8>, Vec<u8>>;

    fn walk_over(whole: Row, carried: Carried, lower: &[u8], upper: &[u8]) -> Rows {
        let cursor = Cursor::new(whole, lower, upper);
        let overlay = Overlay::new(carried, Direction::Forward);
        Rows::new(Stored::Whole(cursor), overlay, lower.into())
    }

    fn shown(rows: &mut Rows) -> Model {
        let mut shown = Model::new();
        while let Some((key, value)) = rows.next().unwrap() {
            shown.insert(key.to_vec(), value.to_vec());
        }
        shown
    }

    /// Commits a few changes of a collection.
    fn change(
        young: &Young,
        lower: &[u8],
        all: &mut Model,
        random: &mut fastrand::Rng,
        index: u64,
    ) {
        let mut batch = Batch::new();
        for _ in 0..random.u8(1..3) {
            let row_key = [lower, &[random.u8(..4)]].concat();
            if random.u8(..3) == 0 {
                batch.delete(Family::Data, &row_key);
                all.remove(&row_key);
                continue;
            }
            let value = index.to_be_bytes();
            match all.contains_key(&row_key) || random.bool() {
                true => batch.put(Family::Data, &row_key, value),
                false => batch.put_new(Family::Data, &row_key, value),
            }
            all.insert(row_key, value.to_vec());
        }
        apply(young, batch, index);
    }

    /// Walks over small collections, which are kept at once or late, while these are changed, go to new generations, and are
    /// drained one generation after the other; against a model of all rows and one of what RocksDB has.
    #[test]
    fn what_is_kept_of_small_collections_is_what_was_committed() {
        let mut random = fastrand::Rng::with_seed(17);
        let (mut at_once, mut late) = (0, 0);
        for _ in 0..300 {
            let young = Young::new(1 << 20, 4 << 20);
            let (mut all, mut below) = (Model::new(), Model::new());
            let mut unkept = Vec::new();
            for index in 1..=150_u64 {
                let mut lower = Vec::new();
                version_prefix(&mut lower, 1, &[random.u8(..2)], 7);
                let upper = version_end(&lower);
                match random.u8(..10) {
                    0..3 => change(&young, &lower, &mut all, &mut random, index),
                    3 => {
                        young.close_newest();
                    }
                    4 if !young.is_empty() => {
                        let oldest = young.oldest();
                        let oldest = &oldest[..random.usize(1..=oldest.len())];
                        let survivors = Survivors::of(oldest, &HashSet::new());
                        let rows = survivors.rows();
                        let keys: BTreeSet<_> = rows.iter().map(|row| row.key()).collect();
                        assert_eq!(keys.len(), rows.len());
                        let bytes = rows.iter().map(|row| ROW_OVERHEAD + row.size());
                        assert_eq!(survivors.bytes(), bytes.sum::<usize>());
                        for row in rows {
                            match row.value() {
                                Some(value) => below.insert(row.key().into(), value.into()),
                                None => below.remove(row.key()),
                            };
                        }
                        // Commits come while RocksDB is given rows, too.
                        for _ in 0..random.usize(..3) {
                            change(&young, &lower, &mut all, &mut random, index);
                        }
                        young.drained(oldest.len(), &survivors.rows(), survivors.dead_rows());
                        young.evict_drained();
                    }
                    5 => {
                        for (keeping, whole) in unkept.drain(..) {
                            young.keep_shown(keeping, whole);
                        }
                    }
                    _ => {
                        let range = WalkedRange::new(Family::Data, &lower, &upper);
                        let expected = all.range(lower.clone()..upper.clone());
                        let expected: Model = expected
                            .map(|(key, value)| (key.clone(), value.clone()))
                            .collect();
                        if let Some(whole) = young.whole(&range) {
                            at_once += usize::from(Reach::of(&whole) != Reach::default());
                            let mut rows = walk_over(whole, Carried::default(), &lower, &upper);
                            assert_eq!(shown(&mut rows), expected);
                            continue;
                        }
                        let walk =
                            young
                                .open_walk(&range, Direction::Forward, Walker::Foreground, |it| it);
                        let (beneath, carried) = walk.unwrap();
                        let whole = beneath.unwrap_or_else(|since| {
                            let mut whole = Builder::default();
                            for (key, value) in below.range(lower.clone()..upper.clone()) {
                                assert!(whole.add(key, value));
                            }
                            let whole = whole.build(Family::Data, &lower, Reach::default());
                            young.keep_whole(&range, since, whole.clone());
                            whole
                        });
                        let keeping = carried.keeping;
                        let mut rows = walk_over(whole, carried, &lower, &upper);
                        if let Some(keeping) = keeping {
                            let whole = rows.read_whole(Family::Data, &lower, keeping.reach);
                            if random.bool() {
                                young.keep_shown(keeping, whole.unwrap());
                            } else {
                                unkept.push((keeping, whole.unwrap()));
                                late += 1;
                            }
                        }
                        assert_eq!(shown(&mut rows), expected);
                    }
                }
            }
        }
        assert!(at_once > 500 && late > 100, "{at_once} {late}");
    }

    /// What was walked over while it was young need not be looked up again when it is drained.
    #[test]
    fn what_was_kept_of_young_rows_settles_with_them() {
        let young = Young::new(1 << 20, 4 << 20);
        let mut lower = Vec::new();
        version_prefix(&mut lower, 1, b"key", 7);
        let upper = version_end(&lower);
        let range = WalkedRange::new(Family::Data, &lower, &upper);
        let row_key = |sub: u8| [&lower[..], &[sub]].concat();
        let change = |sub: u8| {
            let mut batch = Batch::new();
            batch.put(Family::Data, &row_key(sub), [sub]);
            apply(&young, batch, sub.into());
        };
        // The second walk over what has not changed may have it kept.
        let walk = || {
            loop {
                let (direction, walker) = (Direction::Forward, Walker::Foreground);
                let walk = young.open_walk(&range, direction, walker, |it| it);
                let (beneath, carried) = walk.unwrap();
                let nothing = Builder::default();
                let nothing = nothing.build(Family::Data, &lower, Reach::default());
                let keeping = carried.keeping;
                let mut rows = walk_over(beneath.unwrap_or(nothing), carried, &lower, &upper);
                if let Some(keeping) = keeping {
                    let whole = rows.read_whole(Family::Data, &lower, keeping.reach);
                    break (keeping, whole.unwrap());
                }
            }
        };
        let keep = |(keeping, whole)| young.keep_shown(keeping, whole);
        let known = || {
            let beneath = young.state.read().beneath(&range).ok()?;
            let mut rows = walk_over(beneath, Carried::default(), &lower, &upper);
            Some(shown(&mut rows).into_keys().collect::<Vec<_>>())
        };
        change(1);
        change(2);
        let (keeping, walked_over) = walk();
        keep((keeping, walked_over.clone()));
        drain(&young, &young.oldest());
        // It was not changed under the hands of those who walk over it, and one that comes late is not kept instead.
        assert_eq!(Reach::of(&walked_over), keeping.reach);
        keep((keeping, walked_over));
        assert_eq!(known(), Some(vec![row_key(1), row_key(2)]));
        assert!(young.whole(&range).is_some());
        // What a later generation has changed too stays as it is.
        change(3);
        let oldest = young.oldest();
        change(4);
        keep(walk());
        drain(&young, &oldest);
        assert_eq!(known(), Some((1..=4).map(row_key).collect()));
        // What has changed again before the drain is looked up anew.
        change(5);
        drain(&young, &young.oldest());
        assert_eq!(known(), None);
    }

    #[test]
    fn young_rows_take_no_room_from_hot_ones() {
        let young = Young::new(4 << 20, 1 << 20);
        let keys = || (0..2000_u64).map(|number| [&b"hot"[..], &number.to_be_bytes()].concat());
        let is_kept = |key: &[u8]| match young.get(Family::Data, key, Reading::Use) {
            Known::Row(_) => true,
            Known::Below(fetch) => {
                young.keep(fetch, Family::Data, key, Some(&[0; 100]), Reading::Use);
                false
            }
        };
        keys().for_each(|key| assert!(!is_kept(&key)));
        // More than all the room that hot rows have.
        (1..=30_000).for_each(|index| put(&young, index, &[0; 100]));
        assert!(young.bytes() > 5 << 20);
        keys().for_each(|key| assert!(is_kept(&key)));
    }

    #[test]
    fn a_drain_leaves_no_more_in_memory_than_hot_rows_may_take() {
        let young = Young::new(1 << 20, 16 << 20);
        (1..=30_000).for_each(|index| put(&young, index, &[0; 100]));
        assert!(young.bytes_in_all() > 5 << 20);
        while !young.is_empty() {
            drain(&young, &young.oldest());
        }
        assert!(young.bytes_in_all() <= 1 << 20);
    }
}
