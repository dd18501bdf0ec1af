//! Young rows that are drained together, and how walks find theirs among them.
//!
//! The rows of a generation that is full do not change any more. What a walk needs of it in order is put in order once, for the
//! walks that follow too.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering as Memory};
use std::sync::{Arc, OnceLock};

use cairn_encoding::row as stored;
use cairn_encoding::system::{Maxima, SystemKey, value};
use rustc_hash::FxHashMap;

use crate::LOCAL_REGION;
use crate::batch::Batch;
use crate::expected::prefetch;
use crate::family::Family;
use crate::row::{FETCHED_AHEAD, Row, common_prefix, fetched, long_hash, number_at};
use crate::rows::Direction;
use crate::young::ROW_OVERHEAD;

/// A walk takes along so few rows by themselves. For more it keeps the generation in memory until it ends, as it does with
/// RocksDB's tables.
const FEW_COPIED: usize = 256;
/// So many keys, or fewer, tell most likely what all begin with.
const SAMPLED: usize = 64;

/// The rows of commits that are drained together.
#[derive(Default)]
pub(crate) struct Generation {
    /// They are numbered in the order in which they begin.
    pub(crate) number: u32,
    /// Each once, as it was changed last.
    rows: Vec<Row>,
    /// For each of them, what is known of those before and after it.
    marks: Vec<Mark>,
    /// What need not be written if so many generations before this one are drained with it: rows that it has changed again, and
    /// its own that delete what nobody else ever had.
    freed: Vec<isize>,
    /// Where the rows of collections are.
    collections: Vec<Places>,
    /// The collections, by a hash of what their rows begin with.
    by_owner: FxHashMap<u64, u32>,
    /// The collection of the last row that belongs to one, and the length of what its rows begin with.
    last: Option<(u32, usize)>,
    /// Where the rows of each family are.
    by_family: [Places; Family::COUNT],
    /// Somebody has walked over all of a small collection: it is worth knowing from now on when one changes.
    is_walked: AtomicBool,
    bytes: usize,
    /// That of the last commit; none where there is no journal.
    pub(crate) last_record: Option<Record>,
}

/// What is known of a row's place in the course of changes of its key.
struct Mark {
    /// The number of the generation in which it was changed again; zero if it was not.
    superseded: AtomicU32,
    /// The number of the generation in which the key came to be, while there was nothing of it below; zero if that is not known.
    born: u32,
}

/// What the record of a commit in the journal says about it. Of all commits that are drained together, what the last one says
/// is left, so it becomes rows only when the generation is full.
#[derive(Clone, Copy)]
pub(crate) struct Record {
    pub(crate) index: u64,
    pub(crate) maxima: Maxima,
}

impl Record {
    fn rows(self) -> [Row; 2] {
        let region = LOCAL_REGION;
        let index = value::encode_applied_index(self.index);
        [
            fact(SystemKey::AppliedIndex { region }, &index),
            fact(SystemKey::Maxima { region }, &self.maxima.encode()),
        ]
    }
}

/// What a row takes in memory.
fn size_in_all(row: &Row) -> usize {
    ROW_OVERHEAD + row.size()
}

/// A row that says something about what was committed.
pub(crate) fn fact(key: SystemKey<'_>, value: &[u8]) -> Row {
    Row::new(Family::Meta, &key.encode(), Some(value))
}

/// Where some of its rows are.
#[derive(Default)]
struct Places {
    /// In the order in which they came.
    as_they_came: Vec<u32>,
    /// The lowest and the highest row by score of a collection: those that were popped from an end all lie before what is
    /// popped next, and no walk for that has to put them in order.
    ends: Option<(u32, u32)>,
    /// In the order of their keys, if that was ever needed, and the generation was full.
    order: OnceLock<Order>,
    /// How often a row of the collection was changed, as far as anybody wanted to know.
    changes: u32,
    /// One more than this was when somebody walked over all of it.
    walked_at: AtomicU32,
}

/// Places in the order of their keys.
struct Order {
    /// How many bytes all keys begin with.
    common: usize,
    /// Each with the part of its key that follows: most are told apart by it, and no row has to be fetched for that.
    places: Box<[(KeyPart, u32)]>,
}

/// Sixteen bytes of a key, which sort as they do.
type KeyPart = [u64; 2];

fn part_at(key: &[u8], at: usize) -> KeyPart {
    [at, at + 8].map(|at| number_at(key, at.min(key.len())))
}

impl Order {
    fn place(&self, number: usize) -> u32 {
        self.places[number].1
    }

    /// How many keys come before this one.
    fn count_before(&self, rows: &Generation, key: &[u8]) -> usize {
        let Some((_, first)) = self.places.first() else {
            return 0;
        };
        let common = &rows.row(*first).key()[..self.common];
        match key[..key.len().min(self.common)].cmp(common) {
            Ordering::Less => 0,
            Ordering::Greater => self.places.len(),
            Ordering::Equal => {
                let part = part_at(key, self.common);
                let is_before = |(other, place): &(KeyPart, u32)| {
                    let by_part = other.cmp(&part);
                    by_part
                        .then_with(|| rows.row(*place).key().cmp(key))
                        .is_lt()
                };
                // What grows at an end has most generations wholly before or behind.
                match self.places.last().is_some_and(is_before) {
                    true => self.places.len(),
                    false => self.places.partition_point(is_before),
                }
            }
        }
    }
}

/// Some of its rows, in the order of their keys.
enum Ordered {
    /// All rows of a range, by their places among those of a collection or family.
    Shared {
        generation: Arc<Generation>,
        part: Part,
        range: Range<usize>,
    },
    Copied(Vec<Row>),
}

impl Ordered {
    fn len(&self) -> usize {
        match self {
            Ordered::Shared { range, .. } => range.len(),
            Ordered::Copied(rows) => rows.len(),
        }
    }

    fn row(&self, number: usize) -> &Row {
        match self {
            Ordered::Shared {
                generation,
                part,
                range,
            } => {
                let order = generation.order_of(*part);
                generation.row(order.place(range.start + number))
            }
            Ordered::Copied(rows) => &rows[number],
        }
    }

    /// Has what leads to a row brought near; the row itself can be expected once that is there.
    fn expect_place(&self, number: usize) {
        if let Ordered::Shared {
            generation,
            part,
            range,
        } = self
        {
            let order = generation.order_of(*part);
            prefetch(generation.row(order.place(range.start + number)));
        }
    }

    fn count_before(&self, key: &[u8]) -> usize {
        match self {
            Ordered::Shared {
                generation,
                part,
                range,
            } => {
                let before = generation.order_of(*part).count_before(generation, key);
                before.clamp(range.start, range.end) - range.start
            }
            Ordered::Copied(rows) => rows.partition_point(|row| row.key() < key),
        }
    }
}

#[derive(Clone, Copy)]
enum Part {
    Collection(u32),
    Family(Family),
}

impl Generation {
    /// The one before which none was.
    pub(crate) fn first() -> Generation {
        Generation {
            number: 1,
            ..Generation::default()
        }
    }

    /// An empty one that will be about as large as this.
    pub(crate) fn successor(&self) -> Generation {
        Generation {
            number: self.number + 1,
            rows: Vec::with_capacity(self.rows.len()),
            marks: Vec::with_capacity(self.rows.len()),
            ..Generation::default()
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.last_record.is_none()
    }

    /// What its commits say about themselves, as far as that is not among its rows yet.
    pub(crate) fn unwritten(&self) -> impl Iterator<Item = Row> + use<> {
        self.last_record.into_iter().flat_map(Record::rows)
    }

    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Adds a row that is not there; its place is returned. If it is known in which generation its key came to be, it is born in
    /// that, and otherwise in none.
    pub(crate) fn add(&mut self, row: Row, born: u32) -> u32 {
        let place = self.rows.len() as u32;
        if let Some(collection) = self.collection(&row) {
            if row.family() == Family::ZsetScore {
                self.widen(collection, &row, place);
            }
            let places = &mut self.collections[collection as usize];
            places.as_they_came.push(place);
            places.changes += 1;
        }
        self.by_family[row.family() as usize]
            .as_they_came
            .push(place);
        self.bytes += size_in_all(&row);
        self.free_deletion(&row, born, 1);
        self.rows.push(row);
        self.marks.push(Mark {
            superseded: AtomicU32::new(0),
            born,
        });
        place
    }

    /// A row of this one is a change of that which an earlier generation has at this place: `before`. What is drained up to here
    /// does without the earlier one.
    pub(crate) fn supersede(&mut self, earlier: &Generation, place: u32, before: &Row) {
        let mark = &earlier.marks[place as usize];
        mark.superseded.store(self.number, Memory::Relaxed);
        self.free(earlier.number, size_in_all(before) as isize);
        // That was counted already.
        self.free_deletion(before, mark.born, -1);
    }

    /// So much need not be written if that generation is drained with this one.
    fn free(&mut self, earlier: u32, bytes: isize) {
        let distance = (self.number - earlier) as usize;
        if self.freed.len() <= distance {
            self.freed.resize(distance + 1, 0);
        }
        self.freed[distance] += bytes;
    }

    /// A row that deletes need not be written if the key came to be in what is drained with it.
    fn free_deletion(&mut self, row: &Row, born: u32, times: isize) {
        if born != 0 && row.value().is_none() {
            self.free(born, times * size_in_all(row) as isize);
        }
    }

    /// How much more is left if it is drained with all that come before it, of which the first has this number, than if these are
    /// drained without it. Negative if it has changed large rows to small ones.
    pub(crate) fn growth(&self, first: u32) -> isize {
        let before = (self.number - first) as usize;
        let freed: isize = self.freed.iter().take(before + 1).sum();
        self.bytes as isize - freed
    }

    /// For how many generations there is an account of what was freed.
    #[cfg(test)]
    pub(crate) fn accounts(&self) -> usize {
        self.freed.len()
    }

    /// Whether the row at this place need not be written if generations are drained from the first of these to the last, which
    /// are full: it has changed again up to there, or deletes what has come to be in them.
    pub(crate) fn is_spared(&self, place: u32, first: u32, last: u32) -> bool {
        let mark = &self.marks[place as usize];
        let later = mark.superseded.load(Memory::Relaxed);
        let is_superseded = (1..=last).contains(&later);
        is_superseded || mark.born >= first && self.row(place).value().is_none()
    }

    /// The generation in which the key of the row at this place has come to be, if that is known, and zero otherwise.
    pub(crate) fn born(&self, place: u32) -> u32 {
        self.marks[place as usize].born
    }

    /// A collection has one more row by score, which will be at this place.
    fn widen(&mut self, collection: u32, row: &Row, place: u32) {
        let ends = &mut self.collections[collection as usize].ends;
        let (lowest, highest) = ends.get_or_insert((place, place));
        if *lowest == place {
            return;
        }
        let key_at = |place: u32| self.rows[place as usize].key();
        if row.key() < key_at(*lowest) {
            *lowest = place;
        } else if row.key() > key_at(*highest) {
            *highest = place;
        }
    }

    /// Where the rows of the same collection are, if it belongs to one.
    fn collection(&mut self, row: &Row) -> Option<u32> {
        if let Some((collection, length)) = self.last
            && self.is_in(row, collection, length)
        {
            return Some(collection);
        }
        let prefix = collection_of(row)?;
        let owner = long_hash(row.family(), prefix);
        let next = self.collections.len() as u32;
        let collection = *self.by_owner.entry(owner).or_insert(next);
        if collection == next {
            self.collections.push(Places::default());
        }
        self.last = Some((collection, prefix.len()));
        Some(collection)
    }

    /// Whether a row begins with as many bytes as the last of the collection.
    fn is_in(&self, row: &Row, collection: u32, length: usize) -> bool {
        let rows = &self.collections[collection as usize].as_they_came;
        rows.last().is_some_and(|last| {
            let last = &self.rows[*last as usize];
            row.family() == last.family() && row.key().get(..length) == last.key().get(..length)
        })
    }

    /// The row at this place has changed again.
    pub(crate) fn replace(&mut self, place: u32, row: Row) {
        if *self.is_walked.get_mut()
            && let Some(collection) = self.collection(&row)
        {
            self.collections[collection as usize].changes += 1;
        }
        let deletes = row.value().is_none();
        self.bytes += row.size();
        let before = std::mem::replace(&mut self.rows[place as usize], row);
        self.bytes -= before.size();
        // Otherwise neither deletes, or both are as large: no need to look up where the key came to be.
        if deletes != before.value().is_none() {
            let (row, born) = (self.row(place).clone(), self.born(place));
            self.free_deletion(&row, born, 1);
            self.free_deletion(&before, born, -1);
        }
    }

    /// The part that all rows of the range are in; none if there is no such row.
    fn part(&self, range: &WalkedRange<'_>) -> Option<Part> {
        let Some(owner) = range.owner() else {
            return Some(Part::Family(range.family));
        };
        let collection = *self.by_owner.get(&owner)?;
        let may_hold = self.reaches(collection, range);
        may_hold.then_some(Part::Collection(collection))
    }

    /// Whether rows of a collection may lie in the range.
    fn reaches(&self, collection: u32, range: &WalkedRange<'_>) -> bool {
        let ends = self.collections[collection as usize].ends;
        // Two collections of different families are taken for one if their hashes are the same.
        let Some((lowest, highest)) = ends.filter(|_| range.family == Family::ZsetScore) else {
            return true;
        };
        let is_before_end = range.to.is_empty() || self.row(lowest).key() < range.to;
        is_before_end && self.row(highest).key() >= range.from
    }

    fn places(&self, part: Part) -> &Places {
        match part {
            Part::Collection(collection) => &self.collections[collection as usize],
            Part::Family(family) => &self.by_family[family as usize],
        }
    }

    fn places_of(&self, range: &WalkedRange<'_>) -> Option<&Places> {
        self.part(range).map(|part| self.places(part))
    }

    /// How many rows may be in the range, for all that is known without a look at them.
    pub(crate) fn looked_at(&self, range: &WalkedRange<'_>) -> usize {
        let places = self.places_of(range);
        places.map_or(0, |places| places.as_they_came.len())
    }

    /// Whether it has rows of the collection that the range belongs to.
    pub(crate) fn has_collection(&self, owner: u64) -> bool {
        self.by_owner.contains_key(&owner)
    }

    /// How often rows of the collection have changed; none if it has none of them.
    pub(crate) fn changes(&self, owner: u64) -> Option<u32> {
        let collection = *self.by_owner.get(&owner)?;
        Some(self.collections[collection as usize].changes)
    }

    /// Somebody walks over all of the collection. True if that was done before, and nothing has changed since.
    pub(crate) fn note_walk(&self, owner: u64) -> bool {
        let Some(collection) = self.by_owner.get(&owner) else {
            return false;
        };
        let places = &self.collections[*collection as usize];
        let now = places.changes + 1;
        if places.walked_at.load(Memory::Relaxed) == now {
            return true;
        }
        // Whoever changes something sees this: that is not done while somebody walks.
        self.is_walked.store(true, Memory::Relaxed);
        places.walked_at.store(now, Memory::Relaxed);
        false
    }

    pub(crate) fn row(&self, place: u32) -> &Row {
        &self.rows[place as usize]
    }

    /// Has what leads to a row brought near.
    pub(crate) fn expect_place(&self, place: u32) {
        if let Some(row) = self.rows.get(place as usize) {
            prefetch(row);
        }
    }

    /// The same for what is known of it.
    pub(crate) fn expect_mark(&self, place: u32) {
        if let Some(mark) = self.marks.get(place as usize) {
            prefetch(mark);
        }
    }

    /// Where the rows of each collection are.
    pub(crate) fn collections(&self) -> impl Iterator<Item = &[u32]> {
        let collections = self.collections.iter();
        collections.map(|places| &places.as_they_came[..])
    }

    /// Where the rows of a family are.
    pub(crate) fn places_in(&self, family: Family) -> &[u32] {
        &self.by_family[family as usize].as_they_came
    }

    /// Adds the changes of a range.
    pub(crate) fn gather(&self, range: &WalkedRange<'_>, out: &mut Vec<Row>) {
        let Some(places) = self.places_of(range) else {
            return;
        };
        let places = &places.as_they_came;
        if range.is_whole {
            out.reserve(places.len());
        }
        let rows = fetched(places, |place| self.row(*place));
        out.extend(rows.filter(|row| range.contains(row)).cloned());
    }

    /// Whether what a range lies in is in order. It may be put in order if the generation is full.
    pub(crate) fn is_ordered(&self, range: &WalkedRange<'_>) -> bool {
        let places = self.places_of(range);
        places.is_none_or(|places| places.order.get().is_some())
    }

    pub(crate) fn order(&self, range: &WalkedRange<'_>) {
        if let Some(part) = self.part(range) {
            self.order_of(part);
        }
    }

    fn order_of(&self, part: Part) -> &Order {
        let places = self.places(part);
        places.order.get_or_init(|| {
            let (common, mut places) = self.parts(&places.as_they_came);
            // By numbers alone first: to have that done without a branch is worth a second look at those that are alike.
            places.sort_unstable_by_key(|([high, low], _)| {
                u128::from(*high) << 64 | u128::from(*low)
            });
            for alike in places.chunk_by_mut(|(one, _), (other, _)| one == other) {
                if alike.len() > 1 {
                    alike.sort_unstable_by_key(|(_, place)| self.row(*place).key());
                }
            }
            Order { common, places }
        })
    }

    /// How many bytes the keys of all these rows begin with, and each place with the part of its key that follows.
    fn parts(&self, places: &[u32]) -> (usize, Box<[(KeyPart, u32)]>) {
        let keys = || fetched(places, |place| self.row(*place)).map(Row::key);
        let sample = places.iter().step_by(places.len() / SAMPLED + 1);
        let likely = common_prefix(sample.map(|place| self.row(*place).key()));
        let mut parts = Vec::with_capacity(places.len());
        // To fetch the rows takes longest, and if the guess is right that is done once.
        let looked_at = keys().zip(places).map(|(key, place)| {
            parts.push((part_at(key, likely), *place));
            key
        });
        let common = common_prefix(looked_at);
        if common < likely {
            for (key, (part, _)) in keys().zip(&mut parts) {
                *part = part_at(key, common);
            }
        }
        (common, parts.into_boxed_slice())
    }

    /// The changes of a range in order.
    pub(crate) fn run(
        self: &Arc<Self>,
        range: &WalkedRange<'_>,
        direction: Direction,
    ) -> Option<Run> {
        let part = self.part(range)?;
        let order = self.order_of(part);
        let end = match range.to {
            [] => order.places.len(),
            to => order.count_before(self, to),
        };
        let start = order.count_before(self, range.from).min(end);
        let length = end - start;
        if length == 0 {
            return None;
        }
        let rows = if length <= FEW_COPIED {
            let places = (start..end).map(|number| order.place(number));
            Ordered::Copied(places.map(|place| self.row(place).clone()).collect())
        } else {
            Ordered::Shared {
                generation: self.clone(),
                part,
                range: start..end,
            }
        };
        Some(Run {
            rows,
            direction,
            passed: 0,
        })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The changes of a range in one generation, in the order of a walk.
pub(crate) struct Run {
    rows: Ordered,
    direction: Direction,
    /// How many the walk has passed.
    passed: usize,
}

impl Run {
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Which one in the order of keys a walk comes to when it has passed so many.
    fn number(&self, passed: usize) -> Option<usize> {
        let last = self.len().checked_sub(1)?;
        match self.direction {
            Direction::Forward => (passed <= last).then_some(passed),
            Direction::Backward => last.checked_sub(passed),
        }
    }

    fn get(&self, passed: usize) -> Option<&Row> {
        let number = self.number(passed)?;
        Some(self.rows.row(number))
    }

    /// The change that the walk comes to next.
    pub(crate) fn peek(&self) -> Option<&Row> {
        self.get(self.passed)
    }

    pub(crate) fn advance(&mut self) {
        self.passed += 1;
        // In two steps: rows lie in the order in which they came, so where one is has to be fetched as well.
        if let Some(later) = self.number(self.passed + 2 * FETCHED_AHEAD) {
            self.rows.expect_place(later);
        }
        if let Some(ahead) = self.get(self.passed + FETCHED_AHEAD) {
            ahead.expect();
        }
    }

    /// The change that was passed last.
    pub(crate) fn last(&self) -> Option<&Row> {
        self.get(self.passed.checked_sub(1)?)
    }

    pub(crate) fn rewind(&mut self) {
        self.passed = 0;
    }

    pub(crate) fn seek(&mut self, to: &[u8]) {
        let before = self.rows.count_before(to);
        self.passed = match self.direction {
            Direction::Forward => before,
            Direction::Backward => {
                let last = self.len().checked_sub(before + 1);
                let is_there = last.and_then(|number| self.get(number));
                let is_at = is_there.is_some_and(|row| row.key() == to);
                self.len() - before - usize::from(is_at)
            }
        };
    }
}

/// What the rows of the collection that a row belongs to begin with, if it belongs to one.
pub(crate) fn collection_of(row: &Row) -> Option<&[u8]> {
    collection_prefix(row.family(), row.key())
}

pub(crate) fn collection_prefix(family: Family, row_key: &[u8]) -> Option<&[u8]> {
    match family {
        Family::Data | Family::ZsetScore => stored::version_prefix_of(row_key),
        Family::Metadata | Family::Expiry | Family::Meta => None,
    }
}

/// The range of a walk: `[from, to)`, without an end if `to` is empty.
pub(crate) struct WalkedRange<'r> {
    pub(crate) family: Family,
    pub(crate) from: &'r [u8],
    pub(crate) to: &'r [u8],
    /// What the rows of the collection begin with that all rows of the range belong to, if it is one.
    pub(crate) prefix: Option<&'r [u8]>,
    /// A hash of that.
    owner: Option<u64>,
    /// It is all of the collection.
    pub(crate) is_whole: bool,
}

impl<'r> WalkedRange<'r> {
    pub(crate) fn new(family: Family, from: &'r [u8], to: &'r [u8]) -> Self {
        let prefix = collection_prefix(family, from);
        let prefix = prefix.filter(|prefix| stored::ends_within_version(prefix, to));
        let is_all = |prefix: &[u8]| from.len() == prefix.len() && !to.starts_with(prefix);
        WalkedRange {
            family,
            from,
            to,
            prefix,
            owner: prefix.map(|prefix| long_hash(family, prefix)),
            is_whole: prefix.is_some_and(is_all),
        }
    }

    pub(crate) fn owner(&self) -> Option<u64> {
        self.owner
    }

    pub(crate) fn contains(&self, row: &Row) -> bool {
        let key = row.key();
        let is_within = match self.is_whole {
            true => key.starts_with(self.from),
            false => key >= self.from && (self.to.is_empty() || key < self.to),
        };
        is_within && row.family() == self.family
    }

    /// What a batch that is not committed makes of the range.
    pub(crate) fn of_batch(&self, batch: &Batch) -> Vec<Row> {
        let rows = batch.rows().filter(|row| self.contains(row));
        rows.cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(generation: &Arc<Generation>, range: &WalkedRange<'_>) -> Vec<Vec<u8>> {
        let mut run = generation.run(range, Direction::Forward);
        let next = || {
            let run = run.as_mut()?;
            let key = run.peek()?.key().to_vec();
            run.advance();
            Some(key)
        };
        std::iter::from_fn(next).collect()
    }

    /// Keys that begin alike but for a few, which a sample finds or not; some are as long as what the others begin with, or
    /// shorter.
    #[test]
    fn what_few_keys_begin_with_does_not_matter() {
        let mut random = fastrand::Rng::with_seed(9);
        for others in [0, 1, 3, 400] {
            let mut expected: Vec<Vec<u8>> = (0..1000_u32)
                .map(|number| [&b"all begin with this"[..], &number.to_be_bytes()].concat())
                .collect();
            for number in 0..others {
                let length = random.usize(..19);
                let key = &b"all begin with this"[..length];
                expected.push([key, b"x", &[number as u8; 3]].concat());
            }
            if others > 0 {
                expected.push(b"all begin".to_vec());
                expected.push(b"all begin with this".to_vec());
            }
            expected.sort();
            expected.dedup();
            random.shuffle(&mut expected);
            let mut generation = Generation::default();
            for key in &expected {
                generation.add(Row::new(Family::Metadata, key, Some(b"value")), 0);
            }
            expected.sort();
            let range = WalkedRange::new(Family::Metadata, b"", b"");
            assert_eq!(keys(&Arc::new(generation), &range), expected);
        }
    }

    /// Members of some scores in any order, and ranges that begin and end before them, among them and behind them.
    #[test]
    fn what_lies_before_or_behind_a_range_is_not_looked_at() {
        let mut random = fastrand::Rng::with_seed(11);
        let row_key = |score: f64, member: &[u8]| {
            let row_key = stored::RowKey::Score {
                index: 1,
                key: b"key",
                version: 7,
                score,
                member,
            };
            row_key.encode()
        };
        for count in [1, 2, 50, 1000] {
            let mut expected: Vec<Vec<u8>> = (0..count)
                .map(|number: u32| row_key(f64::from(100 + number / 2), &number.to_be_bytes()))
                .collect();
            random.shuffle(&mut expected);
            let mut generation = Generation::default();
            for key in &expected {
                generation.add(Row::new(Family::ZsetScore, key, None), 0);
            }
            expected.sort();
            let generation = Arc::new(generation);
            let (lowest, highest) = (100.0, f64::from(100 + (count - 1) / 2));
            for from in [0.0, lowest, 105.0, highest, highest + 1.0] {
                for to in [1.0, lowest, lowest + 1.0, 110.0, highest + 2.0] {
                    let (from_key, to_key) = (row_key(from, b""), row_key(to, b""));
                    let range = WalkedRange::new(Family::ZsetScore, &from_key, &to_key);
                    let within = expected
                        .iter()
                        .filter(|key| **key >= from_key && **key < to_key);
                    let within: Vec<Vec<u8>> = within.cloned().collect();
                    assert_eq!(keys(&generation, &range), within);
                    if from > highest || to <= lowest {
                        assert_eq!(generation.looked_at(&range), 0);
                    }
                }
            }
        }
    }
}
