//! Which young rows RocksDB is given.
//!
//! A drain takes the oldest generations, and leaves RocksDB in the state after the last commit of them. Of a row that was
//! changed in several only the last change is written. A row that came to be and was deleted in these is not written at
//! all, nor that it was deleted: RocksDB never had it. And what is dead in that state is left out: a list that was filled and
//! deleted, or elements that were pushed and popped again, are never written if all of that was young.
//!
//! What is dead is judged as a compaction filter does, but by metadata rows that are drained too, since all of them become
//! durable at once. Metadata that only RocksDB has cannot have killed what came after it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use cairn_encoding::row::{self as stored, RowKey};
use cairn_encoding::system::SystemKey;
use foldhash::fast::RandomState;

use crate::error::Result;
use crate::family::Family;
use crate::generation::{Generation, collection_of};
use crate::liveness::{Fate, Liveness, Part};
use crate::row::{Row, fetched, sorted};
use crate::young::{LARGEST_GENERATION, ROW_OVERHEAD};

/// How many times as much as is written at once a drain looks at: much of it may have died while it was young.
const LOOKED_AT: usize = 4;
/// More than usual is written at once only if that frees so many times as much.
const WORTH: usize = 2;

/// How much a drain may do at once if the same rows were changed again and again, so that one write does for many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effort {
    /// Somebody waits, or will soon: no more than usual.
    Hasty,
    /// Nobody waits yet.
    Steady,
    /// Nobody has written of late.
    Unhurried,
}

impl Effort {
    /// How many times as much as usual is written.
    fn at_once(self) -> usize {
        match self {
            Effort::Hasty => 1,
            Effort::Steady => 2,
            Effort::Unhurried => 4,
        }
    }
}

pub(crate) struct Survivors<'g> {
    parts: Vec<PartOfDrain<'g>>,
    pub(crate) left_out: LeftOut,
}

/// The rows of one generation.
struct PartOfDrain<'g> {
    generation: &'g Generation,
    /// The first and the last one that are drained with it.
    first: u32,
    last: u32,
    /// By place, which of its rows are left out because they are dead; empty if none is.
    dead: Vec<bool>,
    /// How much more there is to write with its rows than with those before them alone; negative if they delete, say.
    growth: isize,
}

/// Rows that RocksDB is never given, by reason.
#[derive(Default)]
pub(crate) struct LeftOut {
    pub(crate) dead_versions: u64,
    pub(crate) cut_off: u64,
    /// Keys and values.
    pub(crate) bytes: u64,
}

/// Keys that have rows of collections among those that are drained, and what their metadata rows make of these, if they
/// are drained too.
type Owners<'g> = HashMap<&'g [u8], Option<Liveness>, RandomState>;

impl<'g> Survivors<'g> {
    /// Of these generations, the oldest first. Rows of staged versions wait for their metadata: `staged` are those that
    /// RocksDB knows of.
    pub(crate) fn of(generations: &'g [Arc<Generation>], staged: &HashSet<u64>) -> Self {
        let owners = owners(generations);
        let newly_staged = newly_staged(generations);
        let is_staged = |version| staged.contains(&version) || newly_staged.contains(&version);
        let mut left_out = LeftOut::default();
        let first = generations.first().map_or(0, |first| first.number);
        let last = generations.last().map_or(0, |last| last.number);
        let parts = generations.iter().zip(growths(generations));
        let parts = parts.map(|(generation, growth)| {
            let mut part = PartOfDrain {
                generation,
                first,
                last,
                dead: Vec::new(),
                growth,
            };
            for places in generation.collections() {
                part.judge(places, &owners, is_staged, &mut left_out);
            }
            part
        });
        Survivors {
            parts: parts.collect(),
            left_out,
        }
    }

    /// Of as many of them as leave no more than so many bytes to write; or a few times as many, if most of what is drained need
    /// not be written then.
    pub(crate) fn of_some(
        generations: &'g [Arc<Generation>],
        staged: &HashSet<u64>,
        most: usize,
        effort: Effort,
    ) -> Self {
        let at_once = (most * effort.at_once()).min(LARGEST_GENERATION);
        let sizes = generations.iter().map(|rows| rows.bytes() as isize);
        let looked_at = count_within(sizes, most * LOOKED_AT);
        let worth = |generations| count_worth(generations, at_once);
        let mut count = looked_at.max(worth(generations));
        loop {
            let survivors = Survivors::of(&generations[..count], staged);
            let bytes = survivors.bytes();
            let drained = generations[..count].iter().map(|rows| rows.bytes());
            let pays = bytes <= at_once && bytes * WORTH <= drained.sum();
            if count == 1 || bytes <= most || pays {
                return survivors;
            }
            // What killed a row may not be drained with it then. It is not looked at many times.
            let growths = survivors.parts.iter().map(|part| part.growth);
            let fewer = count_within(growths, most).min(count - count.div_ceil(4));
            count = fewer.max(worth(&generations[..count - 1]));
        }
    }

    /// Of how many generations.
    pub(crate) fn count(&self) -> usize {
        self.parts.len()
    }

    /// How many bytes there are to write.
    pub(crate) fn bytes(&self) -> usize {
        let bytes: isize = self.parts.iter().map(|part| part.growth).sum();
        bytes.max(0) as usize
    }

    /// In the order in which RocksDB takes them best: family by family, by key. None comes twice, since what a later generation has
    /// changed again is marked.
    pub(crate) fn rows(&self) -> Vec<&'g Row> {
        let in_order = |family: Family| {
            let rows = self.parts.iter().flat_map(|part| part.rows(family, false));
            sorted(rows.collect())
        };
        Family::ALL.into_iter().flat_map(in_order).collect()
    }

    /// The others.
    pub(crate) fn dead_rows(&self) -> impl Iterator<Item = &'g Row> {
        let parts = self.parts.iter().filter(|part| !part.dead.is_empty());
        parts.flat_map(|part| {
            let families = [Family::Data, Family::ZsetScore].into_iter();
            families.flat_map(|family| part.rows(family, true))
        })
    }
}

impl<'g> PartOfDrain<'g> {
    fn rows(&self, family: Family, are_dead: bool) -> impl Iterator<Item = &'g Row> {
        let is_dead = |place: &u32| self.dead.get(*place as usize) == Some(&true);
        let places = self.generation.places_in(family).iter();
        let places = places.filter(move |place| is_dead(place) == are_dead);
        let places = places.filter(|place| !self.is_spared(**place));
        places.map(|place| self.generation.row(*place))
    }

    fn is_spared(&self, place: u32) -> bool {
        self.generation.is_spared(place, self.first, self.last)
    }

    /// Marks what is dead of a collection.
    fn judge(
        &mut self,
        places: &[u32],
        owners: &Owners<'_>,
        is_staged: impl Fn(u64) -> bool,
        left_out: &mut LeftOut,
    ) {
        let generation = self.generation;
        let Some((metadata_key, version)) = owner_of(generation, places) else {
            return;
        };
        let Some(Some(liveness)) = owners.get(metadata_key) else {
            return;
        };
        if liveness.spares(version) || is_staged(version) {
            return;
        }
        let rows = fetched(places, |place| generation.row(*place));
        for (place, row) in places.iter().zip(rows) {
            if self.is_spared(*place) {
                continue;
            }
            // Two collections are taken for one if their hashes are the same.
            let is_of_it = stored::metadata_key_of(row.key()).is_ok_and(|key| key == metadata_key);
            let fate = match is_of_it {
                true => fate_of(row, *liveness).unwrap_or(Fate::Lives),
                false => Fate::Lives,
            };
            let count = match fate {
                Fate::Lives => continue,
                Fate::DeadVersion => &mut left_out.dead_versions,
                Fate::CutOff => &mut left_out.cut_off,
            };
            if let Some(value) = row.value() {
                *count += 1;
                left_out.bytes += (row.key().len() + value.len()) as u64;
            }
            self.dead.resize(generation.rows().len(), false);
            self.dead[*place as usize] = true;
            self.growth -= (ROW_OVERHEAD + row.size()) as isize;
        }
    }
}

/// How many generations, at least one, leave no more than so much to write, if what there is to write grows so with each.
fn count_within(growths: impl IntoIterator<Item = isize>, most: usize) -> usize {
    let (mut sum, mut count) = (0, 1);
    for (before, growth) in growths.into_iter().enumerate() {
        sum += growth;
        if sum <= most as isize {
            count = before + 1;
        }
    }
    count
}

/// How many generations are worth to be drained together for what was changed again in them: the most that leave no more than
/// so much to write, and free a multiple of it. None may be.
fn count_worth(generations: &[Arc<Generation>], at_once: usize) -> usize {
    let (mut left, mut drained, mut count) = (0, 0, 0);
    let growths = growths(generations).zip(generations);
    for (before, (growth, rows)) in growths.enumerate() {
        left += growth;
        drained += rows.bytes() as isize;
        if left <= at_once as isize && left * WORTH as isize <= drained {
            count = before + 1;
        }
    }
    count
}

/// How much more there is to write with each of these generations, the oldest first, than with those before it alone: a row that
/// is changed again in a later one is written once.
fn growths(generations: &[Arc<Generation>]) -> impl Iterator<Item = isize> {
    let first = generations.first().map_or(0, |first| first.number);
    generations.iter().map(move |rows| rows.growth(first))
}

/// The key that rows of a collection belong to, and their version.
fn owner_of<'g>(generation: &'g Generation, places: &[u32]) -> Option<(&'g [u8], u64)> {
    let row = generation.row(*places.first()?);
    let prefix = collection_of(row)?;
    let metadata_key = stored::metadata_key_of(row.key()).ok()?;
    Some((metadata_key, stored::version_in(prefix)?))
}

fn owners<'g>(generations: &'g [Arc<Generation>]) -> Owners<'g> {
    let mut owners = Owners::default();
    for generation in generations {
        let of_collections = generation
            .collections()
            .filter_map(|places| owner_of(generation, places));
        owners.extend(of_collections.map(|(key, _)| (key, None)));
    }
    if owners.is_empty() {
        return owners;
    }
    // The newest comes last.
    for generation in generations {
        for place in generation.places_in(Family::Metadata) {
            let row = generation.row(*place);
            if let Some(liveness) = owners.get_mut(row.key()) {
                // Of what cannot be understood nothing is left out.
                *liveness = Liveness::of(row.value()).ok();
            }
        }
    }
    owners
}

/// Versions whose rows come before their metadata, as far as these generations tell.
fn newly_staged(generations: &[Arc<Generation>]) -> HashSet<u64> {
    let rows = generations.iter().flat_map(|generation| {
        let places = generation.places_in(Family::Meta).iter();
        places.map(|place| generation.row(*place))
    });
    let announced = rows.filter(|row| row.value().is_some());
    let versions = announced.filter_map(|row| match SystemKey::decode(row.key()) {
        Ok(SystemKey::Staging { version, .. }) => Some(version),
        _ => None,
    });
    versions.collect()
}

/// Only what the row's key says counts: an older row of the same key, which RocksDB may have, must not live if this
/// one does not. What deletes a row of a version that lives is never left out: XSETID can lower a stream's floor again, and
/// deletes what it sees above that, which is not what is deleted already.
fn fate_of(row: &Row, liveness: Liveness) -> Result<Fate> {
    let key = match row.family() {
        Family::ZsetScore => RowKey::decode_score(row.key())?,
        _ => RowKey::decode_data(row.key())?,
    };
    let Some((version, part)) = Part::of(&key, row.value().unwrap_or_default())? else {
        return Ok(Fate::Lives);
    };
    let is_by_key = matches!(part, Part::Sub(_));
    Ok(match liveness.judge(version, part) {
        Fate::CutOff if !is_by_key || row.value().is_none() => Fate::Lives,
        fate => fate,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;

    use cairn_encoding::metadata::{Body, CollectionKind, Metadata};
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// In a generation no row comes twice. Those that RocksDB has may have come to be before these.
    fn generations(rows: Vec<Vec<Row>>) -> Vec<Arc<Generation>> {
        generations_over(rows, |_| true)
    }

    fn generations_over(
        rows: Vec<Vec<Row>>,
        is_stored: impl Fn(&Row) -> bool,
    ) -> Vec<Arc<Generation>> {
        let mut generations: Vec<Generation> = Vec::new();
        let mut places = HashMap::new();
        for rows in rows {
            let before = generations.last();
            let mut generation = before.map_or_else(Generation::first, Generation::successor);
            for row in rows {
                let key = (row.family() as usize, row.key().to_vec());
                let Some((before, place)) = places.get(&key).copied() else {
                    let born = if is_stored(&row) {
                        0
                    } else {
                        generation.number
                    };
                    places.insert(key, (generations.len(), generation.add(row, born)));
                    continue;
                };
                let before: &Generation = &generations[before];
                let at = generation.add(row, before.born(place));
                generation.supersede(before, place, before.row(place));
                places.insert(key, (generations.len(), at));
            }
            generations.push(generation);
        }
        generations.into_iter().map(Arc::new).collect()
    }

    fn metadata(key: &[u8], body: Option<Body<'_>>) -> Row {
        let row = RowKey::Metadata { index: 1, key }.encode();
        let value = body.map(|body| Metadata { expire_ms: 0, body }.encode());
        Row::new(Family::Metadata, &row, value.as_deref())
    }

    fn list(version: u64, head: u64, tail: u64) -> Option<Body<'static>> {
        Some(Body::List {
            version,
            size: tail - head,
            head,
            tail,
        })
    }

    fn hash(version: u64) -> Option<Body<'static>> {
        Some(Body::Collection {
            kind: CollectionKind::Hash,
            version,
            size: 1,
            is_counted: false,
            fields: None,
        })
    }

    fn element(key: &[u8], version: u64, number: u64) -> Row {
        let sub = &number.to_be_bytes();
        let row = RowKey::Data {
            index: 1,
            key,
            version,
            sub,
        };
        Row::new(Family::Data, &row.encode(), Some(b"value"))
    }

    fn staging(version: u64, is_there: bool) -> Row {
        let key = SystemKey::Staging { region: 1, version }.encode();
        Row::new(Family::Meta, &key, is_there.then_some(b"key"))
    }

    /// Version and number of the elements that are written.
    fn written(generations: &[Arc<Generation>], staged: &[u64]) -> Vec<(u64, u64)> {
        let survivors = Survivors::of(generations, &staged.iter().copied().collect());
        let rows = survivors.rows();
        let all = generations
            .iter()
            .map(|rows| rows.places_in(Family::Data).len());
        let elements = rows.iter().filter(|row| row.family() == Family::Data);
        let dead = survivors.dead_rows().count();
        assert_eq!(elements.clone().count() + dead, all.sum::<usize>());
        let read = elements.map(|row| match RowKey::decode_data(row.key()).unwrap() {
            RowKey::Data { version, sub, .. } => {
                (version, u64::from_be_bytes(sub.try_into().unwrap()))
            }
            other => panic!("{other:?}"),
        });
        let mut read: Vec<_> = read.collect();
        read.sort_unstable();
        read
    }

    #[test]
    fn what_is_deleted_or_replaced_while_it_is_young_is_left_out() {
        let key = b"key";
        for killer in [None, hash(6), list(6, 0, 9), Some(Body::Inline(b"string"))] {
            let rows = generations(vec![
                vec![
                    metadata(key, hash(5)),
                    element(key, 5, 1),
                    element(key, 5, 2),
                ],
                vec![metadata(key, killer), element(key, 6, 3)],
            ]);
            let lives = matches!(killer, Some(Body::Collection { .. } | Body::List { .. }));
            let expected: &[(u64, u64)] = if lives { &[(6, 3)] } else { &[] };
            assert_eq!(written(&rows, &[]), expected);
            // What killed it is not there yet.
            assert_eq!(written(&rows[..1], &[]), [(5, 1), (5, 2)]);
            // Nobody knows who lives.
            assert_eq!(written(&rows[1..], &[]).len(), expected.len());
        }
    }

    #[test]
    fn what_is_popped_while_it_is_young_is_left_out() {
        let key = b"list";
        let elements = (0..10).map(|number| element(key, 5, number)).collect();
        let rows = generations(vec![elements, vec![metadata(key, list(5, 3, 6))]]);
        assert_eq!(written(&rows, &[]), [(5, 3), (5, 4), (5, 5)]);
        let survivors = Survivors::of(&rows, &HashSet::new());
        assert_eq!(
            (survivors.left_out.cut_off, survivors.left_out.dead_versions),
            (7, 0)
        );
        assert_eq!(written(&rows[..1], &[]).len(), 10);
    }

    /// RocksDB may have what it deletes, and a stream's floor can fall again.
    #[test]
    fn what_deletes_a_row_that_is_cut_off_is_written() {
        let key = b"key";
        let deleted = |version| Row::new(Family::Data, element(key, version, 1).key(), None);
        let rows = generations(vec![vec![
            metadata(key, list(5, 3, 6)),
            deleted(4),
            deleted(5),
            element(key, 5, 2),
        ]]);
        assert_eq!(written(&rows, &[]), [(5, 1)]);
    }

    #[test]
    fn rows_that_wait_for_their_metadata_are_written() {
        let (key, other) = (b"key", b"other");
        let ahead = vec![
            metadata(key, hash(4)),
            element(key, 5, 1),
            element(other, 4, 2),
        ];
        let rows = generations(vec![ahead.clone(), vec![metadata(other, None)]]);
        assert_eq!(written(&rows, &[]), []);
        assert_eq!(written(&rows, &[5]), [(5, 1)]);
        let announced = |is_there| {
            let mut rows = ahead.clone();
            rows.push(staging(5, is_there));
            written(&generations(vec![rows]), &[])
        };
        assert_eq!(announced(true), [(4, 2), (5, 1)]);
        assert_eq!(announced(false), [(4, 2)]);
    }

    #[test]
    fn as_many_generations_are_drained_as_leave_little() {
        let key = b"list";
        let elements = |from: u64| (from..from + 10).map(|number| element(key, 5, number));
        let rows = generations(vec![
            elements(0).collect(),
            elements(10).collect(),
            vec![metadata(key, list(5, 10, 30))],
            elements(20).collect(),
        ]);
        let count = |most| {
            let survivors = Survivors::of_some(&rows, &HashSet::new(), most, Effort::Hasty);
            survivors.count()
        };
        let of_ten = rows[0].bytes();
        let of_metadata = rows[2].bytes();
        // Ten of the thirty are dead if their metadata is drained too.
        assert_eq!(count(0), 1);
        assert_eq!(count(of_ten - 1), 1);
        assert_eq!(count(of_ten), 1);
        assert_eq!(count(of_ten + of_metadata), 3);
        assert_eq!(count(2 * of_ten + of_metadata), 4);
    }

    /// The same rows are changed in each of many generations.
    #[test]
    fn what_is_changed_again_and_again_is_written_once() {
        let row = |number: u32, value: u8| {
            Row::new(Family::Metadata, &number.to_be_bytes(), Some(&[value]))
        };
        let part = |from, value| {
            (from..from + 50)
                .map(move |number| row(number, value))
                .collect()
        };
        // Half of them in each, so that what there is to write grows up to the second.
        let rows = (0..20).map(|number| part(50 * u32::from(number % 2), number));
        let rows = generations(rows.collect());
        let of_all = 2 * rows[0].bytes();
        let some = |most, effort| {
            let survivors = Survivors::of_some(&rows, &HashSet::new(), most, effort);
            (survivors.count(), survivors.bytes(), survivors.rows().len())
        };
        // All of it is written at once if that is no more than may be.
        assert_eq!(some(of_all, Effort::Hasty), (20, of_all, 100));
        assert_eq!(some(of_all / 2, Effort::Steady), (20, of_all, 100));
        assert_eq!(some(of_all / 4, Effort::Unhurried), (20, of_all, 100));
        // And otherwise no more than usual.
        let one = (1, of_all / 2, 50);
        assert_eq!(some(of_all / 2, Effort::Hasty), one);
        assert_eq!(some(of_all / 2 - 1, Effort::Steady), one);
        assert_eq!(some(of_all / 4 - 1, Effort::Unhurried), one);
        // What is worth it is not given up for what comes behind it, and is not.
        let with_others = generations(vec![part(0, 0), part(0, 1), part(50, 2)]);
        let most = of_all / 2 - 1;
        let survivors = Survivors::of_some(&with_others, &HashSet::new(), most, Effort::Steady);
        assert_eq!(survivors.count(), 2);
        // Nor is more written if that frees little.
        let of_first = |count| {
            let first = &rows[..count];
            let survivors =
                Survivors::of_some(first, &HashSet::new(), of_all / 2, Effort::Unhurried);
            survivors.count()
        };
        assert_eq!(of_first(3), 1);
        assert_eq!(of_first(4), 4);
        // Up to there they are changed once.
        assert_eq!(Survivors::of(&rows[..2], &HashSet::new()).rows().len(), 100);
        let first = Survivors::of(&rows[..1], &HashSet::new());
        assert_eq!(first.rows()[0].value(), Some(&[0][..]));
    }

    proptest! {
        /// Elements of two lists, what is left of these, strings, and deletions of all, in values of any size.
        #[test]
        fn each_row_that_lives_comes_once_in_order_as_it_was_last(
            changes in vec(vec((0..3_u8, 0..2_u8, 0..6_u64, 0..40_usize), 0..30), 1..8),
            drained in 1..8_usize,
            drained_before in 0..4_usize,
            stored in any::<u64>(),
        ) {
            const VERSION: u64 = 5;
            let lists = [&b"one"[..], b"other"];
            let row = |(kind, key, number, size): (u8, u8, u64, usize)| {
                let key = lists[usize::from(key)];
                match kind {
                    0 => metadata(key, list(VERSION, number, number + 3).filter(|_| size > 5)),
                    1 => {
                        let element = element(key, VERSION, number);
                        let value = vec![0; size];
                        Row::new(Family::Data, element.key(), (size > 5).then_some(&value))
                    }
                    _ => {
                        let string = metadata(&[key, &[number as u8]].concat(), None);
                        let value = vec![1; size];
                        Row::new(Family::Metadata, string.key(), (size > 5).then_some(&value))
                    }
                }
            };
            let parts = changes.into_iter().map(|changes| {
                let rows = changes.into_iter().map(row);
                let rows = rows.map(|row| ((row.family() as usize, row.key().to_vec()), row));
                rows.collect::<BTreeMap<_, _>>().into_values().collect()
            });
            let parts: Vec<Vec<Row>> = parts.collect();
            let is_stored = |row: &Row| stored >> (crate::row::hash(row.kind(), row.key()) % 64) & 1 == 1;
            let generations = generations_over(parts.clone(), is_stored);
            let drained = drained.min(parts.len());
            let drained = drained_before.min(drained - 1)..drained;
            let mut expected = BTreeMap::new();
            for row in parts[drained.clone()].iter().flatten() {
                expected.insert((row.family() as usize, row.key()), row.value());
            }
            // What came to be in these generations, and was deleted in them.
            let was_there = |row: &Row| {
                is_stored(row) || parts[..drained.start].iter().flatten().any(|before| before.family() == row.family() && before.key() == row.key())
            };
            let deleted = |row: &&Row| expected.get(&(row.family() as usize, row.key())) == Some(&None);
            let rows = parts[drained.clone()].iter().flatten();
            let spared: Vec<_> = rows.filter(deleted).filter(|row| !was_there(row)).collect();
            let metadata_of = expected.clone();
            for row in spared {
                expected.remove(&(row.family() as usize, row.key()));
            }
            for key in lists {
                let metadata = metadata(key, None);
                let Some(left) = metadata_of.get(&(Family::Metadata as usize, metadata.key())) else {
                    continue;
                };
                let range = left.map(|left| match Metadata::decode(left).unwrap().body {
                    Body::List { head, tail, .. } => head..tail,
                    other => panic!("{other:?}"),
                });
                for number in 0..6 {
                    let element = element(key, VERSION, number);
                    let element = (Family::Data as usize, element.key().to_vec());
                    let Some((_, value)) = expected.iter().find(|(row, _)| (row.0, row.1) == (element.0, &element.1[..])) else {
                        continue;
                    };
                    // What deletes is written if its version lives.
                    let lives = match &range {
                        Some(range) => value.is_none() || range.contains(&number),
                        None => false,
                    };
                    if !lives {
                        expected.retain(|row, _| (row.0, row.1) != (element.0, &element.1[..]));
                    }
                }
            }
            let survivors = Survivors::of(&generations[drained], &HashSet::new());
            let rows = survivors.rows();
            let bytes = rows.iter().map(|row| ROW_OVERHEAD + row.size());
            prop_assert_eq!(survivors.bytes(), bytes.sum::<usize>());
            let written = rows.iter().map(|row| ((row.family() as usize, row.key()), row.value()));
            let written: Vec<_> = written.collect();
            prop_assert_eq!(written, expected.into_iter().collect::<Vec<_>>());
        }
    }
}
