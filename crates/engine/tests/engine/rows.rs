//! A walk shows a pending batch as if it were stored: against a map that holds both.

use std::collections::BTreeMap;
use std::sync::Arc;

use cairn_encoding::row;
use cairn_engine::{Batch, Committer, Direction, Engine, Family, SyncMode};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::support::{commit, committer, open};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

const FAMILY: Family = Family::Data;

/// What happens to a batch.
#[derive(Clone, Debug)]
enum Edit {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    Savepoint,
    Rollback,
}

/// What happens to a walk.
#[derive(Clone, Debug)]
enum Move {
    Next,
    Seek(Vec<u8>),
    Rewind,
}

#[derive(Clone, Debug)]
struct Case {
    stored: Vec<(Vec<u8>, Vec<u8>)>,
    flushed: bool,
    stored_later: Vec<(Vec<u8>, Vec<u8>)>,
    edits: Vec<Edit>,
    lower: Vec<u8>,
    upper: Vec<u8>,
    direction: Direction,
    moves: Vec<Move>,
}

/// Few and short, so that they meet; with the bytes at the ends, where bounds go wrong.
fn key() -> impl Strategy<Value = Vec<u8>> {
    vec(
        prop_oneof![Just(0), Just(b'a'), Just(b'b'), Just(u8::MAX)],
        0..4,
    )
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..3)
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        4 => (key(), value()).prop_map(|(key, value)| Edit::Put(key, value)),
        4 => key().prop_map(Edit::Delete),
        1 => Just(Edit::Savepoint),
        1 => Just(Edit::Rollback),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    let next = || Just(Move::Next);
    let walk_move =
        prop_oneof![6 => next(), 2 => key().prop_map(Move::Seek), 1 => Just(Move::Rewind)];
    let direction = prop_oneof![Just(Direction::Forward), Just(Direction::Backward)];
    let rows = || vec((key(), value()), 0..12);
    (
        (rows(), any::<bool>(), rows()),
        vec(edit(), 0..16),
        (key(), key()),
        direction,
        vec(walk_move, 0..40),
    )
        .prop_map(
            |((stored, flushed, stored_later), edits, (lower, upper), direction, moves)| Case {
                stored,
                flushed,
                stored_later,
                edits,
                lower,
                upper,
                direction,
                moves,
            },
        )
}

#[test]
fn a_walk_shows_batch_and_store_as_one() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let mut runner = TestRunner::new(Config::with_cases(1500));
    runner
        .run(&case(), |case| {
            let stored = store(&engine, &case);
            let (batch, expected) = edited(&case.edits, stored.clone());
            let outcome = check_walk(&engine, &batch, &expected, &case);
            commit(&engine, |batch| {
                stored.keys().for_each(|key| batch.delete(FAMILY, key));
            });
            outcome
        })
        .unwrap();
}

/// Stores the case's rows, some perhaps in a file and some above it in memory.
fn store(engine: &Arc<Engine>, case: &Case) -> Map {
    let put = |rows: &[(Vec<u8>, Vec<u8>)]| {
        commit(engine, |batch| {
            for (key, value) in rows {
                batch.put(FAMILY, key, value.as_slice());
            }
        });
    };
    put(&case.stored);
    if case.flushed {
        engine.flush().unwrap();
    }
    put(&case.stored_later);
    let rows = case.stored.iter().chain(&case.stored_later);
    rows.cloned().collect()
}

/// The batch that the edits make, and what rows there are with it.
fn edited(edits: &[Edit], mut rows: Map) -> (Batch, Map) {
    let mut batch = Batch::new();
    let mut saved = None;
    for edit in edits {
        match edit {
            Edit::Put(key, value) => {
                batch.put(FAMILY, key, value.as_slice());
                rows.insert(key.clone(), value.clone());
            }
            Edit::Delete(key) => {
                batch.delete(FAMILY, key);
                rows.remove(key);
            }
            Edit::Savepoint => {
                batch.savepoint();
                saved = Some(rows.clone());
            }
            Edit::Rollback => {
                batch.rollback();
                rows = saved.clone().unwrap_or(rows);
            }
        }
    }
    (batch, rows)
}

fn check_walk(
    engine: &Engine,
    batch: &Batch,
    expected: &Map,
    case: &Case,
) -> Result<(), TestCaseError> {
    let inside = |key: &Vec<u8>| *key >= case.lower && (case.upper.is_empty() || *key < case.upper);
    let mut expected: Vec<_> = expected.iter().filter(|(key, _)| inside(key)).collect();
    if case.direction == Direction::Backward {
        expected.reverse();
    }
    let mut rows = engine.rows(
        Some(batch),
        FAMILY,
        &case.lower,
        &case.upper,
        case.direction,
    );
    let mut place = 0;
    // However the moves left it, the walk goes on to its end.
    let rest = vec![Move::Next; expected.len() + 2];
    for walk_move in case.moves.iter().chain(&rest) {
        match walk_move {
            Move::Rewind => {
                rows.rewind();
                place = 0;
            }
            Move::Seek(to) => {
                rows.seek(to);
                place = expected.partition_point(|(key, _)| match case.direction {
                    Direction::Forward => *key < to,
                    Direction::Backward => *key > to,
                });
            }
            Move::Next => {
                let row = rows.next().unwrap();
                let wanted = expected
                    .get(place)
                    .map(|(k, v)| (k.as_slice(), v.as_slice()));
                prop_assert_eq!(row, wanted);
                place += 1;
            }
        }
    }
    Ok(())
}

#[test]
fn a_walk_shows_one_moment_however_long_it_lasts() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    commit(&engine, |batch| {
        for n in 0..100u8 {
            batch.put(FAMILY, &[n], *b"then");
        }
    });
    let mut rows = engine.rows(None, FAMILY, &[], &[], Direction::Forward);
    assert_eq!(rows.next().unwrap(), Some((&[0][..], &b"then"[..])));
    commit(&engine, |batch| {
        for n in 0..100u8 {
            batch.delete(FAMILY, &[n]);
        }
        batch.put(FAMILY, &[200], *b"now");
    });
    engine.compact().unwrap();
    for n in 1..100u8 {
        assert_eq!(rows.next().unwrap(), Some((&[n][..], &b"then"[..])));
    }
    assert_eq!(rows.next().unwrap(), None);
}

#[test]
fn a_walk_outlives_the_batch_that_it_shows() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    commit(&engine, |batch| batch.put(FAMILY, b"k", *b"v"));
    let mut batch = Batch::new();
    batch.put(FAMILY, b"l", *b"w");
    let mut rows = engine.rows(Some(&batch), FAMILY, &[], &[], Direction::Forward);
    batch.delete(FAMILY, b"l");
    drop(batch);
    commit(&engine, |batch| batch.delete(FAMILY, b"k"));
    assert_eq!(rows.next().unwrap(), Some((&b"k"[..], &b"v"[..])));
    assert_eq!(rows.next().unwrap(), Some((&b"l"[..], &b"w"[..])));
    assert_eq!(rows.next().unwrap(), None);
}

/// So many young rows that walks have them put in order, in generations that are closed for it and drained meanwhile.
#[test]
fn walks_over_very_many_young_rows_show_them_as_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let committer = committer(&engine, SyncMode::No);
    let mut random = fastrand::Rng::with_seed(11);
    let (mut prefix, mut model) = (Vec::new(), Map::new());
    row::metadata_key(&mut prefix, 1, b"large");
    let row_key = |number: u32| {
        let mut key = Vec::new();
        row::append_data(&mut key, &prefix, 7, &number.to_be_bytes());
        key
    };
    for round in 0..60_u32 {
        let mut batch = Batch::new();
        for _ in 0..3000 {
            let key = row_key(random.u32(..40_000));
            if random.u8(..4) == 0 {
                batch.delete(FAMILY, &key);
                model.remove(&key);
            } else {
                let value = round.to_be_bytes();
                batch.put(FAMILY, &key, value);
                model.insert(key, value.to_vec());
            }
        }
        committer.commit(&mut batch).wait().unwrap();
        // Some walks go on from where others have been, and some show a batch on top.
        let mut pending = Batch::new();
        let changed = row_key(random.u32(..40_000));
        pending.put(FAMILY, &changed, b"pending");
        let mut shown = model.clone();
        shown.insert(changed, b"pending".to_vec());
        let from = row_key(random.u32(..40_000));
        let to = row_key(u32::MAX);
        let expected = shown.range(from.clone()..to.clone());
        for direction in [Direction::Forward, Direction::Backward] {
            let mut rows = engine.rows(Some(&pending), FAMILY, &from, &to, direction);
            let expected: Vec<_> = match direction {
                Direction::Forward => expected.clone().collect(),
                Direction::Backward => expected.clone().rev().collect(),
            };
            for (key, value) in expected {
                assert_eq!(rows.next().unwrap(), Some((&key[..], &value[..])));
            }
            assert_eq!(rows.next().unwrap(), None);
        }
    }
}
