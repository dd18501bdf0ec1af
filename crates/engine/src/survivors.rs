//! Which young rows RocksDB is given.
//!
//! A drain takes the oldest generations, and leaves RocksDB in the state after the last commit of them. Of a row that was
//! changed in several only the last change counts. And what is dead in that state is left out: a list that was filled and
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
use crate::row::{Row, sorted};
use crate::young::ROW_OVERHEAD;

pub(crate) struct Survivors<'g> {
    parts: Vec<PartOfDrain<'g>>,
    pub(crate) left_out: LeftOut,
}

/// The rows of one generation.
struct PartOfDrain<'g> {
    generation: &'g Generation,
    /// By place, which of its rows are left out; empty if none is.
    dead: Vec<bool>,
    /// Those of the others.
    bytes: usize,
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
        let parts = generations.iter().map(|generation| {
            let mut part = PartOfDrain {
                generation,
                dead: Vec::new(),
                bytes: generation.bytes(),
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

    /// How many bytes there are to write, in rows that are changed in several generations more than once.
    pub(crate) fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.bytes).sum()
    }

    /// How many generations, at least one, leave no more than so much.
    pub(crate) fn count_within(&self, most: usize) -> usize {
        let mut sum = 0;
        let fitting = self.parts.iter().take_while(|part| {
            sum += part.bytes;
            sum <= most
        });
        fitting.count().max(1)
    }

    /// Each once, in the order in which RocksDB takes them best: family by family, by key.
    pub(crate) fn rows(&self) -> Vec<&'g Row> {
        let in_order = |family: Family| {
            let newest_first = self.parts.iter().rev();
            let rows = newest_first.flat_map(|part| part.rows(family, false));
            let mut rows: Vec<_> = sorted(rows.collect()).collect();
            if self.parts.len() > 1 {
                rows.dedup_by(|older, newer| older.key() == newer.key());
            }
            rows
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
        places.map(|place| self.generation.row(*place))
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
        for place in places {
            let row = generation.row(*place);
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
            self.bytes -= ROW_OVERHEAD + row.size();
        }
    }
}

/// The key that rows of a collection belong to, and their version.
fn owner_of<'g>(generation: &'g Generation, places: &[u32]) -> Option<(&'g [u8], u64)> {
    let row = generation.row(*places.first()?);
    let prefix = collection_of(row)?;
    let metadata_key = stored::metadata_key_of(row.key()).ok()?;
    let version = prefix.get(metadata_key.len()..)?.try_into().ok()?;
    Some((metadata_key, u64::from_be_bytes(version)))
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
    use std::collections::{BTreeMap, BTreeSet};

    use cairn_encoding::metadata::{Body, CollectionKind, Metadata};
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn generations(rows: Vec<Vec<Row>>) -> Vec<Arc<Generation>> {
        let generations = rows.into_iter().map(|rows| {
            let mut generation = Generation::default();
            for row in rows {
                generation.add(row);
            }
            Arc::new(generation)
        });
        generations.collect()
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
            vec![metadata(key, list(5, 10, 20))],
            elements(20).collect(),
        ]);
        let survivors = Survivors::of(&rows, &HashSet::new());
        let of_ten = rows[0].bytes();
        assert_eq!(survivors.count_within(0), 1);
        assert_eq!(survivors.count_within(of_ten), 2);
        assert_eq!(survivors.count_within(of_ten + rows[2].bytes()), 4);
        assert_eq!(survivors.bytes(), of_ten + rows[2].bytes());
    }

    proptest! {
        #[test]
        fn each_row_comes_once_in_order_as_it_was_last(
            changes in vec(vec((0..2_usize, vec(0..3_u8, 0..4)), 0..30), 1..4),
        ) {
            let mut expected = BTreeMap::new();
            let mut rows = Vec::new();
            for (number, changes) in changes.into_iter().enumerate() {
                let changes: BTreeSet<_> = changes.into_iter().collect();
                let value = [number as u8];
                rows.push(changes.iter().map(|(family, key)| {
                    Row::new(Family::ALL[*family], key, Some(&value))
                }).collect());
                expected.extend(changes.into_iter().map(|change| (change, value.to_vec())));
            }
            let rows = generations(rows);
            let survivors = Survivors::of(&rows, &HashSet::new());
            let written = survivors.rows().into_iter().map(|row| {
                let family = Family::ALL.iter().position(|family| *family == row.family());
                ((family.unwrap(), row.key().to_vec()), row.value().unwrap().to_vec())
            });
            let written: Vec<_> = written.collect();
            prop_assert_eq!(written, expected.into_iter().collect::<Vec<_>>());
        }
    }
}
