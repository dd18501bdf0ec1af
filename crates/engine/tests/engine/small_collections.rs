//! Small collections are kept in memory whole: what is walked there is what RocksDB and the young rows
//! would show, at every moment.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cairn_encoding::row;
use cairn_engine::{Batch, Committer, Direction, Engine, FEW, Family, LocalCommitter, SyncMode};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::support::{committer, open};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn bounds(key: &[u8], version: u64) -> (Vec<u8>, Vec<u8>) {
    let (mut lower, mut upper) = (Vec::new(), Vec::new());
    row::version_prefix(&mut lower, 0, key, version);
    row::version_prefix(&mut upper, 0, key, version + 1);
    (lower, upper)
}

fn row_key(key: &[u8], version: u64, sub: &[u8]) -> Vec<u8> {
    [bounds(key, version).0.as_slice(), sub].concat()
}

fn commit(committer: &LocalCommitter, mut batch: Batch) {
    committer.commit(&mut batch).wait().unwrap();
}

#[derive(Clone, Debug)]
enum Step {
    /// Sets or deletes rows of a collection, in one commit.
    Commit(u8, Vec<(Vec<u8>, Option<Vec<u8>>)>),
    /// Walks a collection with these changes on top, and seeks.
    Walk(
        u8,
        Direction,
        Vec<(Vec<u8>, Option<Vec<u8>>)>,
        Option<Vec<u8>>,
    ),
    /// Walks it over and over, with nothing on top.
    WalkAgain(u8),
    Drain,
}

fn sub() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![Just(0), Just(b'a'), Just(u8::MAX)], 0..3)
}

fn changes() -> impl Strategy<Value = Vec<(Vec<u8>, Option<Vec<u8>>)>> {
    let value = prop::option::weighted(0.7, vec(any::<u8>(), 0..3));
    vec((sub(), value), 0..4)
}

fn step() -> impl Strategy<Value = Step> {
    let direction = prop_oneof![Just(Direction::Forward), Just(Direction::Backward)];
    prop_oneof![
        3 => (0..3_u8, changes()).prop_map(|(key, changes)| Step::Commit(key, changes)),
        4 => (0..3_u8, direction, changes(), prop::option::of(sub()))
            .prop_map(|(key, direction, changes, seek)| Step::Walk(key, direction, changes, seek)),
        2 => (0..3_u8).prop_map(Step::WalkAgain),
        1 => Just(Step::Drain),
    ]
}

fn batch_of(key: u8, changes: &[(Vec<u8>, Option<Vec<u8>>)], rows: &mut Map) -> Batch {
    let mut batch = Batch::new();
    for (sub, value) in changes {
        let row_key = row_key(&[key], 7, sub);
        match value {
            Some(value) => {
                batch.put(Family::Data, &row_key, value);
                rows.insert(row_key, value.clone());
            }
            None => {
                batch.delete(Family::Data, &row_key);
                rows.remove(&row_key);
            }
        }
    }
    batch
}

fn check_walk(
    engine: &Engine,
    key: u8,
    direction: Direction,
    (batch, rows): (&Batch, &Map),
    seek: Option<&Vec<u8>>,
) -> Result<(), TestCaseError> {
    let (lower, upper) = bounds(&[key], 7);
    let mut expected: Vec<_> = rows.range(lower.clone()..upper.clone()).collect();
    let mut walk = engine.rows_of_few(Some(batch), Family::Data, &lower, &upper, direction);
    if direction == Direction::Backward {
        expected.reverse();
    }
    if let Some(sub) = seek {
        let to = row_key(&[key], 7, sub);
        walk.seek(&to);
        expected.retain(|(key, _)| match direction {
            Direction::Forward => **key >= to,
            Direction::Backward => **key <= to,
        });
    }
    for (key, value) in expected {
        prop_assert_eq!(
            walk.next().unwrap(),
            Some((key.as_slice(), value.as_slice()))
        );
    }
    prop_assert_eq!(walk.next().unwrap(), None);
    Ok(())
}

#[test]
fn a_walk_shows_what_was_committed_and_what_is_pending() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let committer = committer(&engine, SyncMode::No);
    let mut runner = TestRunner::new(Config::with_cases(150));
    runner
        .run(&vec(step(), 1..60), |steps| {
            let mut rows = Map::new();
            for step in &steps {
                match step {
                    Step::Commit(key, changes) => {
                        commit(&committer, batch_of(*key, changes, &mut rows));
                    }
                    Step::Walk(key, direction, changes, seek) => {
                        let mut shown = rows.clone();
                        let batch = batch_of(*key, changes, &mut shown);
                        let shown = (&batch, &shown);
                        check_walk(&engine, *key, *direction, shown, seek.as_ref())?;
                    }
                    Step::WalkAgain(key) => {
                        let shown = (&Batch::new(), &rows);
                        for _ in 0..4 {
                            check_walk(&engine, *key, Direction::Forward, shown, None)?;
                        }
                    }
                    Step::Drain => engine.flush().unwrap(),
                }
            }
            let mut batch = Batch::new();
            rows.keys().for_each(|key| batch.delete(Family::Data, key));
            commit(&committer, batch);
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_part_of_it_is_walked_within_its_bounds() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let committer = committer(&engine, SyncMode::No);
    let sub = |text: &str| row_key(b"key", 7, text.as_bytes());
    for (round, subs) in [["b", "d"], ["c", "e"]].iter().enumerate() {
        let mut batch = Batch::new();
        for text in subs {
            batch.put(Family::Data, &sub(text), b"");
        }
        commit(&committer, batch);
        if round == 0 {
            engine.flush().unwrap();
        }
    }
    for (direction, expected) in [
        (Direction::Forward, ["c", "d"]),
        (Direction::Backward, ["d", "c"]),
    ] {
        // The first walk looks it up, the second one finds it.
        for _ in 0..2 {
            let mut walk = engine.rows_of_few(None, Family::Data, &sub("c"), &sub("e"), direction);
            for text in expected {
                assert_eq!(walk.next().unwrap().unwrap().0, sub(text));
            }
            assert_eq!(walk.next().unwrap(), None);
        }
    }
}

/// Walks a collection of many rows as if they were few.
#[test]
fn what_is_not_small_is_walked_all_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let committer = committer(&engine, SyncMode::No);
    let (lower, upper) = bounds(b"many", 7);
    let mut batch = Batch::new();
    for number in 0..2 * FEW as u32 {
        let row_key = row_key(b"many", 7, &number.to_be_bytes());
        batch.put(Family::Data, &row_key, b"value");
    }
    commit(&committer, batch);
    engine.flush().unwrap();
    for direction in [Direction::Forward, Direction::Backward] {
        let mut walk = engine.rows_of_few(None, Family::Data, &lower, &upper, direction);
        let mut count = 0;
        while walk.next().unwrap().is_some() {
            count += 1;
        }
        assert_eq!(count, 2 * FEW);
    }
}

/// One thread changes all rows of a collection at once, and drains them; others walk.
#[test]
fn a_walk_never_shows_half_of_a_commit_nor_what_was_before_it() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let committer = committer(&engine, SyncMode::No);
    let is_over = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let (lower, upper) = bounds(b"key", 7);
                let mut last = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let direction = Direction::Forward;
                    let mut walk =
                        engine.rows_of_few(None, Family::Data, &lower, &upper, direction);
                    let mut seen = Vec::new();
                    while let Some((_, value)) = walk.next().unwrap() {
                        seen.push(u32::from_be_bytes(value.try_into().unwrap()));
                    }
                    // A number that is a multiple of three deletes the row in the middle.
                    if let Some(&number) = seen.first() {
                        let count = if number.is_multiple_of(3) { 2 } else { 3 };
                        assert_eq!(seen, vec![number; count]);
                        assert!(number >= last, "{number} after {last}");
                        last = number;
                    }
                }
            });
        }
        for number in 1..2000_u32 {
            let mut batch = Batch::new();
            for sub in [b"a", b"b", b"c"] {
                let row_key = row_key(b"key", 7, sub);
                match sub == b"b" && number.is_multiple_of(3) {
                    true => batch.delete(Family::Data, &row_key),
                    false => batch.put(Family::Data, &row_key, number.to_be_bytes()),
                }
            }
            commit(&committer, batch);
            if number.is_multiple_of(20) {
                // From here on nothing is young, and what the walks see has been kept.
                engine.flush().unwrap();
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
}
