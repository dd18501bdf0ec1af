//! How much data there is, kept while it is known that somebody wants to know (`maxmemory`).
//!
//! Counted are the bytes of the rows that live, wherever they lie, uncompressed: metadata, elements and times of expiry.
//! A string that lies in chunks counts by its length, holes included. Rows that only help to find others (counts, the
//! times of fields) do not count. By how much a batch lets the data grow is found out before it is committed, from the
//! rows that it changes and what they were: nobody else changes them meanwhile.
//!
//! What dies as a whole is not looked at row by row: of a collection with more than [`LOOKED_AT`] elements that is deleted, or
//! of which as many are cut off, some are, and stand for the others. So the sum drifts, the further the more of that happens.
//! Whoever keeps it asks now and then how much was [guessed](Measure::is_doubtful), counts all rows anew, and
//! [sets it right](Measure::correct). A database that is emptied is subtracted as a whole: there is a sum for each.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use cairn_encoding::CHUNK_SIZE;
use cairn_encoding::chunk::index_sub;
use cairn_encoding::metadata::{Body, CollectionKind, Metadata};
use cairn_encoding::row::{self, RowKey};
use cairn_encoding::stream::{Head, entry_sub};
use cairn_encoding::system::SystemKey;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::batch::Batch;
use crate::engine::Engine;
use crate::error::Result;
use crate::family::Family;
use crate::liveness::{Fate, Liveness, Part};
use crate::rows::Direction;

/// How many elements are looked at, of which others are then guessed.
const LOOKED_AT: u64 = 64;
/// What the key of a chunk's row has beside the key's name.
const CHUNK_KEY: u64 = 12;
/// What was guessed is doubtful when it is more than such a part of the whole, and more than that by itself.
const DOUBTFUL_PART: u64 = 8;
const LEAST_DOUBTFUL: u64 = 1 << 20;

/// A database of a region.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Place {
    pub region: u64,
    pub index: u64,
}

/// The bytes of each database.
pub type Bytes = FxHashMap<Place, i64>;

/// By how much a batch lets the data grow.
#[derive(Default)]
pub(crate) struct Growth {
    by_place: Vec<(Place, i64)>,
    /// Databases that are gone.
    dead: Vec<Place>,
    guessed: u64,
    /// It cannot be told.
    is_unknown: bool,
}

impl Growth {
    fn add(&mut self, place: Place, bytes: i64) {
        match self.by_place.iter_mut().find(|(known, _)| *known == place) {
            Some((_, sum)) => *sum += bytes,
            None => self.by_place.push((place, bytes)),
        }
    }
}

type Alarm = Box<dyn Fn() + Send + Sync>;

#[derive(Default)]
pub struct Measure {
    is_on: AtomicBool,
    total: AtomicI64,
    by_place: Mutex<Bytes>,
    guessed: AtomicU64,
    is_counted: AtomicBool,
    is_unknown: AtomicBool,
    /// The most there may be before somebody is told.
    limit: AtomicI64,
    alarm: OnceLock<Alarm>,
}

impl Measure {
    /// Whether batches are measured.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Batches that are committed from now on are measured, or not. What was there before is to be added when it is counted.
    pub fn switch(&self, is_on: bool) {
        let mut by_place = self.by_place.lock();
        by_place.clear();
        self.total.store(0, Ordering::Relaxed);
        self.is_counted.store(false, Ordering::Relaxed);
        self.is_unknown.store(true, Ordering::Relaxed);
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    /// Whether what was there before has been counted.
    pub fn is_counted(&self) -> bool {
        self.is_counted.load(Ordering::Relaxed)
    }

    /// Whoever is told, while rows are made visible, that there is more than may be. He must not take his time.
    pub fn tell(&self, alarm: Alarm) {
        // There is one server to an engine.
        let _ = self.alarm.set(alarm);
    }

    pub fn limit(&self, bytes: i64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    pub fn total(&self) -> i64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Whether there is more than may be.
    pub fn is_exceeded(&self) -> bool {
        self.is_on() && self.total() > self.limit.load(Ordering::Relaxed)
    }

    /// By how much.
    pub fn excess(&self) -> u64 {
        let limit = self.limit.load(Ordering::Relaxed);
        let excess = self.total().saturating_sub(limit);
        match self.is_on() {
            true => u64::try_from(excess).unwrap_or(0),
            false => 0,
        }
    }

    /// Whether so much of the sum is guessed that all should be counted anew.
    pub fn is_doubtful(&self) -> bool {
        let guessed = self.guessed.load(Ordering::Relaxed);
        let total = self.total().unsigned_abs();
        let is_much = guessed > LEAST_DOUBTFUL && guessed > total / DOUBTFUL_PART;
        self.is_unknown.load(Ordering::Relaxed) || is_much
    }

    /// To be called before all is counted: what it was then.
    pub fn before_count(&self) -> Bytes {
        let by_place = self.by_place.lock();
        self.is_unknown.store(false, Ordering::Relaxed);
        self.guessed.store(0, Ordering::Relaxed);
        by_place.clone()
    }

    /// What was `before` should have been `counted`.
    pub fn correct(&self, before: &Bytes, counted: &Bytes) {
        let mut by_place = self.by_place.lock();
        for (place, bytes) in before {
            *by_place.entry(*place).or_default() -= bytes;
        }
        for (place, bytes) in counted {
            *by_place.entry(*place).or_default() += bytes;
        }
        by_place.retain(|_, bytes| *bytes != 0);
        let total = by_place.values().sum();
        self.total.store(total, Ordering::Relaxed);
        self.is_counted.store(true, Ordering::Relaxed);
    }

    /// It cannot be told any more: rows came or went that were in no batch.
    pub fn doubt(&self) {
        self.is_unknown.store(true, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, growth: &Growth) {
        let mut by_place = self.by_place.lock();
        let mut total = 0;
        for (place, bytes) in &growth.by_place {
            *by_place.entry(*place).or_default() += bytes;
            total += bytes;
        }
        for place in &growth.dead {
            total -= by_place.remove(place).unwrap_or(0);
        }
        let before = self.total.fetch_add(total, Ordering::Relaxed);
        drop(by_place);
        self.guessed.fetch_add(growth.guessed, Ordering::Relaxed);
        if growth.is_unknown {
            self.doubt();
        }
        if before + total > self.limit.load(Ordering::Relaxed)
            && let Some(alarm) = self.alarm.get()
        {
            alarm();
        }
    }
}

/// What a key takes, by its metadata; nothing if it is absent.
#[derive(Clone, Default)]
pub struct Extent {
    /// The metadata itself, and a string.
    pub own: u64,
    pub elements: Option<Elements>,
}

/// The rows of the elements of a key.
#[derive(Clone)]
pub struct Elements {
    pub lower: Vec<u8>,
    pub upper: Vec<u8>,
    count: u64,
    /// How many rows each has that are about as large.
    pub rows_each: u64,
    version: u64,
}

impl Extent {
    pub fn of(metadata_key: &[u8], value: &[u8]) -> Result<Extent> {
        let own = (metadata_key.len() + value.len()) as u64;
        let next = |version: u64| data_key(metadata_key, version + 1, b"");
        let (count, version, first, upper, rows_each) = match Metadata::decode(value)?.body {
            Body::Inline(_) => {
                return Ok(Extent {
                    own,
                    elements: None,
                });
            }
            Body::Chunked { length, .. } => {
                let chunks = length.div_ceil(CHUNK_SIZE as u64);
                let of_keys = chunks * (metadata_key.len() as u64 + CHUNK_KEY);
                return Ok(Extent {
                    own: own + length + of_keys,
                    elements: None,
                });
            }
            // A member of a sorted set is stored by name and by score.
            Body::Collection {
                kind: CollectionKind::ZSet,
                version,
                size,
                ..
            } => (size, version, Vec::new(), next(version), 2),
            Body::Collection { version, size, .. } => (size, version, Vec::new(), next(version), 1),
            Body::List {
                version,
                size,
                head,
                tail,
            } => {
                // What was cut off behind it may still be there.
                let upper = data_key(metadata_key, version, &index_sub(tail));
                (size, version, index_sub(head).to_vec(), upper, 1)
            }
            Body::Stream {
                version,
                size,
                rest,
            } => {
                let floor = Head::of(version, size, rest)?.floor;
                (size, version, entry_sub(floor).to_vec(), next(version), 1)
            }
        };
        let elements = Elements {
            lower: data_key(metadata_key, version, &first),
            upper,
            count,
            rows_each,
            version,
        };
        Ok(Extent {
            own,
            elements: Some(elements),
        })
    }
}

fn data_key(metadata_key: &[u8], version: u64, sub: &[u8]) -> Vec<u8> {
    let mut key = Vec::new();
    row::append_data(&mut key, metadata_key, version, sub);
    key
}

/// What a key is.
#[derive(Clone)]
struct State {
    liveness: Liveness,
    extent: Extent,
}

impl State {
    fn of(metadata_key: &[u8], value: Option<&[u8]>) -> Result<State> {
        let extent = match value {
            Some(value) => Extent::of(metadata_key, value)?,
            None => Extent::default(),
        };
        Ok(State {
            liveness: Liveness::of(value)?,
            extent,
        })
    }

    fn version(&self) -> Option<u64> {
        self.extent
            .elements
            .as_ref()
            .map(|elements| elements.version)
    }

    /// Whether an element counts by itself; a chunk does not.
    fn counts(&self, version: u64, part: Part<'_>) -> bool {
        self.version() == Some(version) && self.liveness.judge(version, part) == Fate::Lives
    }

    /// The elements that `after` has no more although it is the same collection: at most two ranges.
    fn cut_off(&self, after: &State, metadata_key: &[u8]) -> Vec<Elements> {
        let (Some(elements), Some(left)) = (&self.extent.elements, &after.extent.elements) else {
            return Vec::new();
        };
        let between = |from: &[u8], to: &[u8], count: u64| Elements {
            lower: data_key(metadata_key, elements.version, from),
            upper: data_key(metadata_key, elements.version, to),
            count,
            ..elements.clone()
        };
        match (self.liveness, after.liveness) {
            (
                Liveness::List { head, tail, .. },
                Liveness::List {
                    head: next_head,
                    tail: next_tail,
                    ..
                },
            ) => {
                let front = head..next_head.min(tail);
                let back = next_tail.max(head)..tail;
                let ranges = [front, back].into_iter().filter(|range| !range.is_empty());
                ranges
                    .map(|range| {
                        let count = range.end - range.start;
                        between(&index_sub(range.start), &index_sub(range.end), count)
                    })
                    .collect()
            }
            (Liveness::Stream { floor, .. }, Liveness::Stream { floor: next, .. })
                if floor < next =>
            {
                // As many as there are less, and one that came.
                let count = elements.count.saturating_sub(left.count) + 1;
                vec![between(&entry_sub(floor), &entry_sub(next), count)]
            }
            _ => Vec::new(),
        }
    }
}

/// What becomes of a key by a batch.
struct Change {
    place: Place,
    before: State,
    after: State,
    /// How many elements the batch puts in their place.
    puts: u64,
}

impl Engine {
    pub fn measure(&self) -> &Measure {
        &self.measure
    }

    /// Finds out by how much batches let the data grow that are committed in this order, if anybody wants to know. Their rows
    /// stand still until then.
    #[inline]
    pub(crate) fn measure_batches(&self, region: u64, batches: &mut [Batch]) {
        if self.measure.is_on() {
            self.note_growth(region, batches);
        }
    }

    #[cold]
    fn note_growth(&self, region: u64, batches: &mut [Batch]) {
        for number in 0..batches.len() {
            let (earlier, rest) = batches.split_at_mut(number);
            let before = Before {
                engine: self,
                earlier,
            };
            let growth = before.growth(region, &rest[0]);
            let growth = growth.unwrap_or_else(|_| Growth {
                is_unknown: true,
                ..Growth::default()
            });
            rest[0].growth = Some(Box::new(growth));
        }
    }
}

/// What was before a batch.
struct Before<'b> {
    engine: &'b Engine,
    /// Those that are committed together with it, and come first.
    earlier: &'b [Batch],
}

impl Before<'_> {
    fn row<T>(
        &self,
        family: Family,
        key: &[u8],
        read: impl FnOnce(Option<&[u8]>) -> Result<T>,
    ) -> Result<T> {
        let mut newest_first = self.earlier.iter().rev();
        match newest_first.find_map(|batch| batch.get(family, key)) {
            Some(pending) => read(pending),
            None => read(self.engine.get_quietly(family, key)?.as_deref()),
        }
    }

    fn growth(&self, region: u64, batch: &Batch) -> Result<Growth> {
        let mut growth = Growth::default();
        let mut changes: FxHashMap<&[u8], Change> = FxHashMap::default();
        for (family, key, value) in batch.changes() {
            match family {
                Family::Metadata => {
                    self.change_of(&mut changes, batch, region, key)?;
                }
                Family::Data | Family::ZsetScore => {
                    let owner = row::metadata_key_of(key)?;
                    let change = self.change_of(&mut changes, batch, region, owner)?;
                    let bytes = self.growth_of_element(change, family, key, value)?;
                    growth.add(change.place, bytes);
                }
                Family::Expiry => {
                    let owner = row::metadata_key_of_expiry(key)?;
                    // A batch may well delete what it has put itself.
                    let was_there = self.row(family, key, |before| Ok(before.is_some()))?;
                    let change = i64::from(value.is_some()) - i64::from(was_there);
                    growth.add(place_of(region, owner), change * key.len() as i64);
                }
                Family::Meta => note_fact(&mut growth, key, value)?,
            }
        }
        for (metadata_key, change) in &changes {
            let bytes = self.growth_of_key(metadata_key, change, &mut growth)?;
            growth.add(change.place, bytes);
        }
        Ok(growth)
    }

    /// What becomes of a key, found out once.
    fn change_of<'b, 'c>(
        &self,
        changes: &'c mut FxHashMap<&'b [u8], Change>,
        batch: &Batch,
        region: u64,
        metadata_key: &'b [u8],
    ) -> Result<&'c mut Change> {
        use std::collections::hash_map::Entry;
        Ok(match changes.entry(metadata_key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                let state = |value: Option<&[u8]>| State::of(metadata_key, value);
                let before = self.row(Family::Metadata, metadata_key, state)?;
                let after = match batch.get(Family::Metadata, metadata_key) {
                    Some(value) => State::of(metadata_key, value)?,
                    None => before.clone(),
                };
                unknown.insert(Change {
                    place: place_of(region, metadata_key),
                    before,
                    after,
                    puts: 0,
                })
            }
        })
    }

    fn growth_of_element(
        &self,
        change: &mut Change,
        family: Family,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<i64> {
        let row_key = match family {
            Family::Data => RowKey::decode_data(key)?,
            _ => RowKey::decode_score(key)?,
        };
        let length = |value: &[u8]| (key.len() + value.len()) as i64;
        match row_key {
            RowKey::Data { version, sub, .. } => {
                if !change.after.counts(version, Part::Sub(sub)) {
                    return Ok(0);
                }
                change.puts += u64::from(value.is_some());
                let before = match change.before.counts(version, Part::Sub(sub)) {
                    true => self.row(family, key, |before| Ok(before.map_or(0, length)))?,
                    false => 0,
                };
                Ok(value.map_or(0, length) - before)
            }
            RowKey::Score { version, .. } if change.after.version() == Some(version) => {
                let before = match change.before.version() == Some(version) {
                    true => self.row(family, key, |before| Ok(before.map_or(0, length)))?,
                    false => 0,
                };
                Ok(value.map_or(0, length) - before)
            }
            _ => Ok(0),
        }
    }

    /// The metadata, and elements that are not named by the batch: those that die, or were written ahead.
    fn growth_of_key(
        &self,
        metadata_key: &[u8],
        change: &Change,
        growth: &mut Growth,
    ) -> Result<i64> {
        let Change { before, after, .. } = change;
        let mut bytes = after.extent.own as i64 - before.extent.own as i64;
        if before.version() == after.version() {
            for cut_off in before.cut_off(after, metadata_key) {
                bytes -= self.bytes_of(&cut_off, growth)?;
            }
            return Ok(bytes);
        }
        if let Some(dead) = &before.extent.elements {
            bytes -= self.bytes_of(dead, growth)?;
        }
        if let Some(made) = &after.extent.elements
            && made.count > change.puts
        {
            let ahead = Elements {
                count: made.count - change.puts,
                ..made.clone()
            };
            bytes += self.bytes_of(&ahead, growth)?;
        }
        Ok(bytes)
    }

    /// The bytes of elements as they are stored; guessed if they are many.
    fn bytes_of(&self, elements: &Elements, growth: &mut Growth) -> Result<i64> {
        let Elements { lower, upper, .. } = elements;
        let engine = self.engine;
        let mut rows = engine.rows(None, Family::Data, lower, upper, Direction::Forward);
        let (mut seen, mut bytes) = (0, 0);
        while seen < LOOKED_AT
            && let Some((key, value)) = rows.next()?
        {
            seen += 1;
            bytes += (key.len() + value.len()) as u64;
        }
        if seen == LOOKED_AT && elements.count > seen {
            bytes = (bytes as f64 / seen as f64 * elements.count as f64) as u64;
            growth.guessed += bytes;
        }
        Ok((bytes * elements.rows_each) as i64)
    }
}

fn place_of(region: u64, row: &[u8]) -> Place {
    Place {
        region,
        index: row::index_of(row).unwrap_or(0),
    }
}

/// What a batch says about databases and regions.
fn note_fact(growth: &mut Growth, key: &[u8], value: Option<&[u8]>) -> Result<()> {
    match SystemKey::decode(key)? {
        SystemKey::DeadIndex { region, index } if value.is_some() => {
            growth.dead.push(Place { region, index });
        }
        SystemKey::RegionDescriptor { .. } => growth.is_unknown = true,
        _ => {}
    }
    Ok(())
}
