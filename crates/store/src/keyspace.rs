//! Walking the keys of a database: KEYS, SCAN, RANDOMKEY, DBSIZE.
//!
//! Keys lie in the order of their slots, and within a slot by length and bytes. A SCAN cursor is a
//! decimal number that must say where to go on, so it holds the slot and a hash of the last key seen.
//! The key itself is remembered for a while; should it be forgotten (a restart, or too many scans at
//! once), the slot is searched for a key with that hash, and if it has been deleted meanwhile, the slot
//! is started again. So whatever stays for the whole scan is returned at least once.

pub mod everywhere;

use std::collections::VecDeque;
use std::hash::Hasher;
use std::ops::Range;

use cairn_encoding::SLOTS;
use cairn_encoding::legacy::LegacyString;
use cairn_encoding::metadata::{Type, ends_of, expire_of, has_expired, type_of};
use cairn_encoding::row::{self, RowKey};
use cairn_encoding::slot::slot;
use cairn_engine::{Direction, Family, Rows};
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHasher};

use crate::error::Result;
use crate::live::LiveRow;
use crate::region::Region;
use crate::store::Store;
use crate::txn::ReadTxn;

/// A key met on the walk.
pub struct Met<'r> {
    pub name: &'r [u8],
    pub kind: Type,
    /// Zero: never.
    pub expire_ms: u64,
    /// When there is nothing left of it, zero for never.
    ends_ms: u64,
}

impl Met<'_> {
    pub fn has_expired(&self, now_ms: u64) -> bool {
        has_expired(self.ends_ms, now_ms)
    }
}

/// What the metadata tells of a key.
#[derive(Clone, Copy)]
struct Told {
    kind: Type,
    expire_ms: u64,
    ends_ms: u64,
}

impl Told {
    /// Before the first key.
    const NOTHING: Told = Told {
        kind: Type::String,
        expire_ms: 0,
        ends_ms: 0,
    };

    fn of_metadata(value: &[u8]) -> Result<Told> {
        Ok(Told {
            kind: type_of(value)?,
            expire_ms: expire_of(value)?,
            ends_ms: ends_of(value)?,
        })
    }
}

/// A walk over the keys of one database in one region; expired ones included.
pub struct Walk {
    metadata: Rows,
    legacy: Option<LegacyRows>,
    /// The key last met, as its metadata row, and what it told.
    current: Vec<u8>,
    told: Told,
    /// A metadata row that was read but comes after the next legacy row.
    ahead: Option<(Vec<u8>, Told)>,
}

impl Walk {
    /// Over all keys of the selected database.
    pub fn whole(txn: &ReadTxn) -> Result<Walk> {
        let (lower, upper) = txn.region().bounds(txn.index());
        Walk::between(txn, &lower, &upper)
    }

    /// Over those of one slot.
    pub fn in_slot(txn: &ReadTxn, slot: u16) -> Result<Walk> {
        let (mut lower, mut upper) = (Vec::new(), Vec::new());
        row::slot_prefix(&mut lower, txn.index(), slot);
        row::slot_prefix(&mut upper, txn.index(), slot + 1);
        Walk::between(txn, &lower, &upper)
    }

    /// Starts at the first key whose metadata row is not below `from`, up to the end of the database.
    fn open(txn: &ReadTxn, from: &[u8]) -> Result<Walk> {
        let (lower, upper) = txn.region().bounds(txn.index());
        Walk::between(txn, from.max(&lower).min(&upper), &upper)
    }

    fn between(txn: &ReadTxn, from: &[u8], upper: &[u8]) -> Result<Walk> {
        // The old form is opened first: a key that is moved meanwhile is then met twice, and not missed.
        let rows = |family| txn.rows(family, from, upper, Direction::Forward);
        let legacy = match txn.store().may_have_legacy() {
            true => Some(LegacyRows::new(rows(Family::Data)?)),
            false => None,
        };
        Ok(Walk {
            metadata: rows(Family::Metadata)?,
            legacy,
            current: Vec::new(),
            told: Told::NOTHING,
            ahead: None,
        })
    }

    /// The same from a slot on, for background work: no transaction, and the cache is left alone.
    pub(crate) fn in_background(store: &Store, region: &Region, index: u64, slot: u16) -> Walk {
        let (_, upper) = region.bounds(index);
        let mut lower = Vec::new();
        row::slot_prefix(&mut lower, index, slot);
        Walk::over(store, |family| {
            store.engine().background_rows(family, &lower, &upper)
        })
    }

    /// The same as RocksDB has them: what was changed in the last seconds does not show, and need not be drained first.
    pub(crate) fn of_stored(store: &Store, region: &Region, index: u64) -> Walk {
        let (lower, upper) = region.bounds(index);
        Walk::over(store, |family| {
            store.engine().stored_rows(family, &lower, &upper)
        })
    }

    fn over(store: &Store, rows: impl Fn(Family) -> Rows) -> Walk {
        let legacy = store
            .may_have_legacy()
            .then(|| LegacyRows::new(rows(Family::Data)));
        Walk {
            metadata: rows(Family::Metadata),
            legacy,
            current: Vec::new(),
            told: Told::NOTHING,
            ahead: None,
        }
    }

    /// Back to where it started.
    pub fn rewind(&mut self) {
        self.metadata.rewind();
        self.ahead = None;
        if let Some(legacy) = &mut self.legacy {
            legacy.rows.rewind();
            legacy.current = None;
            legacy.is_drained = false;
        }
    }

    /// The next key.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Met<'_>>> {
        match self.advance()? {
            true => self.met().map(Some),
            false => Ok(None),
        }
    }

    /// Goes on to the next key; false at the end.
    fn advance(&mut self) -> Result<bool> {
        if self.legacy.is_some() {
            let told = self.next_merged()?;
            self.told = told.unwrap_or(self.told);
            return Ok(told.is_some());
        }
        // The ordinary case: one kind of rows.
        let Some((key, value)) = self.metadata.next()? else {
            return Ok(false);
        };
        self.current.clear();
        self.current.extend_from_slice(key);
        self.told = Told::of_metadata(value)?;
        Ok(true)
    }

    /// The key that it has come to.
    fn met(&self) -> Result<Met<'_>> {
        let (_, name) = RowKey::decode_metadata(&self.current)?.index_and_key();
        Ok(Met {
            name,
            kind: self.told.kind,
            expire_ms: self.told.expire_ms,
            ends_ms: self.told.ends_ms,
        })
    }

    fn next_merged(&mut self) -> Result<Option<Told>> {
        if self.ahead.is_none()
            && let Some((key, value)) = self.metadata.next()?
        {
            self.ahead = Some((key.to_vec(), Told::of_metadata(value)?));
        }
        let Some(legacy) = &mut self.legacy else {
            return Ok(None);
        };
        let old = legacy.peek()?;
        match (&self.ahead, old) {
            (None, None) => Ok(None),
            // A key that has both lives in the new form only.
            (Some((new, ..)), old) if old.is_none_or(|(old, _)| new.as_slice() <= old) => {
                if old.is_some_and(|(old, _)| new.as_slice() == old) {
                    legacy.advance();
                }
                let Some((key, told)) = self.ahead.take() else {
                    return Ok(None);
                };
                self.current = key;
                Ok(Some(told))
            }
            (_, Some((key, expire_ms))) => {
                self.current.clear();
                self.current.extend_from_slice(key);
                legacy.advance();
                Ok(Some(Told {
                    kind: Type::String,
                    expire_ms,
                    ends_ms: expire_ms,
                }))
            }
            (Some(_), None) => Ok(None),
        }
    }
}

/// The old-format strings of a range, found by skipping from key to key.
pub(crate) struct LegacyRows {
    rows: Rows,
    /// Metadata key and expiry of the string under the cursor.
    current: Option<(Vec<u8>, u64)>,
    is_drained: bool,
}

impl LegacyRows {
    pub(crate) fn new(rows: Rows) -> Self {
        LegacyRows {
            rows,
            current: None,
            is_drained: false,
        }
    }

    /// Moves so that the next is the first at or after a row.
    pub(crate) fn seek(&mut self, row: &[u8]) {
        self.rows.seek(row);
        self.current = None;
        self.is_drained = false;
    }

    pub(crate) fn peek(&mut self) -> Result<Option<(&[u8], u64)>> {
        while self.current.is_none() && !self.is_drained {
            let Some((key, value)) = self.rows.next()? else {
                self.is_drained = true;
                break;
            };
            let metadata_key = row::metadata_key_of(key)?.to_vec();
            if let RowKey::Legacy { .. } = RowKey::decode_data(key)? {
                let expire_ms = LegacyString::decode(value)?.expire_ms;
                self.current = Some((metadata_key, expire_ms));
            } else {
                // Past all versions of this key, where its old-format row would be.
                let mut next = Vec::new();
                row::append_legacy(&mut next, &metadata_key);
                if key < next.as_slice() {
                    self.rows.seek(&next);
                }
            }
        }
        let current = self.current.as_ref();
        Ok(current.map(|(key, expire_ms)| (key.as_slice(), *expire_ms)))
    }

    pub(crate) fn advance(&mut self) {
        self.current = None;
    }
}

const HASH_BITS: u32 = 48;

fn hash_of(bytes: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(bytes);
    // Never zero, which is the cursor of a new scan.
    (hasher.finish() >> (64 - HASH_BITS)) | 1
}

/// The places where recent scans stopped.
pub(crate) struct Cursors {
    places: Mutex<Places>,
}

#[derive(Default)]
struct Places {
    by_cursor: FxHashMap<(u64, u64), Vec<u8>>,
    in_order: VecDeque<(u64, u64)>,
}

/// How many places are remembered, and how long a key may be to be one of them.
const REMEMBERED: usize = 4096;
const LONGEST_REMEMBERED: usize = 4096;

impl Cursors {
    pub(crate) fn new() -> Self {
        Cursors {
            places: Mutex::default(),
        }
    }

    fn remember(&self, scan: u64, cursor: u64, place: &[u8]) {
        if place.len() > LONGEST_REMEMBERED {
            return;
        }
        let mut places = self.places.lock();
        let id = (scan, cursor);
        if places.by_cursor.insert(id, place.to_vec()).is_none() {
            places.in_order.push_back(id);
        }
        if places.in_order.len() > REMEMBERED
            && let Some(oldest) = places.in_order.pop_front()
        {
            places.by_cursor.remove(&oldest);
        }
    }

    fn recall(&self, scan: u64, cursor: u64) -> Option<Vec<u8>> {
        self.places.lock().by_cursor.get(&(scan, cursor)).cloned()
    }
}

/// The most that one step of a scan looks at, whatever count it was asked for: what it finds stands in
/// memory, and others wait meanwhile.
pub const STEP_ROWS: u64 = 10_000;
pub const STEP_BYTES: usize = 1024 * 1024;

/// How much of a step is left.
struct Step {
    rows: u64,
    bytes: usize,
}

impl Step {
    fn new(count: u64) -> Step {
        Step {
            rows: count.min(STEP_ROWS),
            bytes: STEP_BYTES,
        }
    }

    /// Takes a row in; true if it was the last.
    fn ends_with(&mut self, bytes: usize) -> bool {
        self.rows = self.rows.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
        self.rows == 0 || self.bytes == 0
    }
}

/// One step of SCAN: looks at about `count` keys of the region from the cursor on, or fewer if they are very many or
/// very large, hands those that live to `visit`, and returns the cursor to go on with; zero at the end. A cursor of
/// another region than the transaction's is for its caller to see: [`slot_of_cursor`].
pub fn scan(
    txn: &ReadTxn,
    cursor: u64,
    count: u64,
    mut visit: impl FnMut(&Met<'_>),
) -> Result<u64> {
    let cursors = txn.store().cursors();
    let place = find_place(txn, cursors, cursor)?;
    let mut walk = Walk::open(txn, &place)?;
    let mut step = Step::new(count);
    while let Some(met) = walk.next()? {
        txn.step()?;
        if !met.has_expired(txn.now_ms()) {
            visit(&met);
        }
        if step.ends_with(met.name.len()) {
            let cursor = u64::from(slot(met.name)) << HASH_BITS | hash_of(met.name);
            cursors.remember(txn.index(), cursor, met.name);
            return Ok(cursor);
        }
    }
    Ok(0)
}

/// The slot where a scan goes on.
pub fn slot_of_cursor(cursor: u64) -> u16 {
    (cursor >> HASH_BITS).min(u64::from(SLOTS)) as u16
}

/// The cursor of a scan that goes on with the first key of a slot.
pub fn cursor_at_slot(slot: u16) -> u64 {
    u64::from(slot) << HASH_BITS
}

/// The metadata row to go on from.
fn find_place(txn: &ReadTxn, cursors: &Cursors, cursor: u64) -> Result<Vec<u8>> {
    let index = txn.index();
    let mut place = Vec::new();
    let (slot, hash) = (slot_of_cursor(cursor), cursor & ((1 << HASH_BITS) - 1));
    if hash == 0 {
        row::slot_prefix(&mut place, index, slot);
        return Ok(place);
    }
    if let Some(name) = cursors.recall(index, cursor) {
        return Ok(after(txn, &name));
    }
    row::slot_prefix(&mut place, index, slot);
    let mut walk = Walk::open(txn, &place)?;
    while let Some(met) = walk.next()? {
        txn.step()?;
        if cairn_encoding::slot::slot(met.name) != slot {
            break;
        }
        if hash_of(met.name) == hash {
            return Ok(after(txn, met.name));
        }
    }
    Ok(place)
}

/// The smallest row key above all of this key's, in every family.
fn after(txn: &ReadTxn, name: &[u8]) -> Vec<u8> {
    // There always is one: a row key begins with the keyspace's number, and not with all ones.
    row::prefix_end(txn.key(name).metadata()).unwrap_or_default()
}

/// One step of HSCAN, SSCAN, ZSCAN: like [`scan`], over the elements of one collection in the order of
/// their sub-keys. `visit` gets an element's sub-key and value.
pub fn scan_collection(
    txn: &ReadTxn,
    collection: &crate::Collection,
    cursor: u64,
    count: u64,
    mut visit: impl FnMut(&[u8], &[u8]) -> Result<()>,
) -> Result<u64> {
    let cursors = txn.store().cursors();
    let mut rows = collection.live_rows(txn)?;
    if cursor != 0 {
        let place = match cursors.recall(collection.version(), cursor) {
            Some(sub) => Some(sub),
            None => search(txn, collection, cursor)?,
        };
        if let Some(mut sub) = place {
            sub.push(0);
            rows.seek(collection, &sub);
        }
    }
    let mut step = Step::new(count);
    while let Some(LiveRow {
        row_key,
        value,
        is_due,
        ..
    }) = rows.next()?
    {
        txn.step()?;
        let sub = collection.sub_of(row_key);
        if !is_due {
            visit(sub, value)?;
        }
        if step.ends_with(sub.len() + value.len()) {
            let cursor = hash_of(sub);
            cursors.remember(collection.version(), cursor, sub);
            return Ok(cursor);
        }
    }
    Ok(0)
}

/// The element that a forgotten cursor stands for, if it is still there.
fn search(txn: &ReadTxn, collection: &crate::Collection, cursor: u64) -> Result<Option<Vec<u8>>> {
    let mut rows = collection.rows(txn, Direction::Forward)?;
    while let Some((row_key, _)) = rows.next()? {
        txn.step()?;
        let sub = collection.sub_of(row_key);
        if hash_of(sub) == cursor {
            return Ok(Some(sub.to_vec()));
        }
    }
    Ok(None)
}

/// How many keys RANDOMKEY draws one from, at least.
const RANDOM_WINDOW: usize = 64;

/// A random key of the region: one by lot of those at and after a random slot, and on from the first slot if there are
/// few. The fairer, the more evenly keys lie over the slots; a small database is drawn from as a whole.
pub fn random_key(txn: &ReadTxn) -> Result<Option<Vec<u8>>> {
    let slots = txn.region().slots();
    if slots.is_empty() {
        return Ok(None);
    }
    let first = fastrand::u16(slots.clone());
    let mut draw = Draw::default();
    draw.add_slots(txn, first..slots.end)?;
    draw.add_slots(txn, slots.start..first)?;
    Ok(draw.chosen)
}

#[derive(Default)]
struct Draw {
    candidates: usize,
    last_slot: u16,
    chosen: Option<Vec<u8>>,
}

impl Draw {
    fn add_slots(&mut self, txn: &ReadTxn, slots: Range<u16>) -> Result<()> {
        let mut from = Vec::new();
        row::slot_prefix(&mut from, txn.index(), slots.start);
        let mut walk = Walk::open(txn, &from)?;
        while let Some(met) = walk.next()? {
            txn.step()?;
            let slot = slot(met.name);
            // A slot is taken whole: with hash tags it may be that there is no other.
            let is_enough = self.candidates >= RANDOM_WINDOW && slot != self.last_slot;
            if is_enough || slot >= slots.end {
                break;
            }
            if met.has_expired(txn.now_ms()) {
                continue;
            }
            self.last_slot = slot;
            self.candidates += 1;
            if fastrand::usize(..self.candidates) == 0 {
                self.chosen = Some(met.name.to_vec());
            }
        }
        Ok(())
    }
}
