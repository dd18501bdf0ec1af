//! Dropping and compacting ranges: what lies beside the range stays.

use cairn_engine::Family;

use crate::support::{all_rows, commit, open};

fn keys_of(engine: &cairn_engine::Engine, family: Family) -> Vec<String> {
    let rows = all_rows(engine, family).unwrap();
    let text = |key: Vec<u8>| String::from_utf8(key).unwrap();
    rows.into_iter().map(|(key, _)| text(key)).collect()
}

/// Whole files are dropped with the range. One whose last row is the first behind the range must not be.
#[test]
fn a_dropped_range_ends_before_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    commit(&engine, |batch| {
        for key in ["b", "ba", "bz", "c"] {
            batch.put(Family::Data, key.as_bytes(), []);
            batch.put(Family::ZsetScore, key.as_bytes(), []);
        }
    });
    engine.compact().unwrap();
    engine.drop_range(&[Family::Data], b"b", b"c").unwrap();
    assert_eq!(keys_of(&engine, Family::Data), ["c"]);
    assert_eq!(keys_of(&engine, Family::ZsetScore), ["b", "ba", "bz", "c"]);
    engine.compact().unwrap();
    drop(engine);
    assert_eq!(keys_of(&open(directory.path()), Family::Data), ["c"]);
}

#[test]
fn a_range_is_dropped_from_files_and_from_memory() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    for (keys, is_last) in [(["a1", "b1", "c1"], false), (["a2", "b2", "c2"], true)] {
        commit(&engine, |batch| {
            for key in keys {
                batch.put(Family::Data, key.as_bytes(), []);
            }
        });
        if !is_last {
            engine.compact().unwrap();
        }
    }
    engine.drop_range(&[Family::Data], b"b", b"c").unwrap();
    let left = ["a1", "a2", "c1", "c2"];
    assert_eq!(keys_of(&engine, Family::Data), left);
    // A row that is written again is not under the range that was dropped before.
    commit(&engine, |batch| batch.put(Family::Data, b"b1", []));
    engine.compact().unwrap();
    assert_eq!(
        keys_of(&engine, Family::Data),
        ["a1", "a2", "b1", "c1", "c2"]
    );
}

#[test]
fn a_walk_that_is_under_way_keeps_the_rows_of_a_dropped_range() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    commit(&engine, |batch| {
        for n in 0..200u8 {
            batch.put(Family::Data, &[n], [n]);
        }
    });
    engine.compact().unwrap();
    let direction = cairn_engine::Direction::Forward;
    let mut rows = engine.rows(None, Family::Data, &[], &[], direction);
    engine.drop_range(&[Family::Data], &[0], &[200]).unwrap();
    engine.compact().unwrap();
    for n in 0..200u8 {
        assert_eq!(rows.next().unwrap(), Some((&[n][..], &[n][..])));
    }
    assert_eq!(rows.next().unwrap(), None);
    assert!(all_rows(&engine, Family::Data).unwrap().is_empty());
}
