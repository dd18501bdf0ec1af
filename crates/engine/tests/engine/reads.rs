//! Reading single rows, and what is kept of them.

use std::path::Path;
use std::sync::Arc;

use cairn_engine::{Engine, Family, block_reads};

use crate::support::{commit, open};

const FAMILY: Family = Family::Metadata;

#[test]
fn background_work_reads_what_is_there_and_keeps_none_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let key = |n: u32| n.to_be_bytes();
    commit(&engine, |batch| {
        for n in 0..1000 {
            batch.put(FAMILY, &key(n), [7; 500]);
        }
    });
    engine.flush().unwrap();
    drop(engine);
    let engine = open(directory.path());
    let in_memory = || {
        let statistics = engine.statistics();
        (
            statistics.rows_in_memory_bytes,
            statistics.block_cache_bytes,
        )
    };
    let before = in_memory();
    for n in 0..1000 {
        let value = engine.get_quietly(FAMILY, &key(n)).unwrap();
        assert_eq!(value.as_deref(), Some(&[7; 500][..]));
    }
    assert!(engine.get_quietly(FAMILY, &key(1000)).unwrap().is_none());
    assert_eq!(in_memory(), before);
    engine.get(FAMILY, &key(0)).unwrap();
    let after = in_memory();
    assert!(after.0 > before.0 && after.1 > before.1);

    commit(&engine, |batch| {
        batch.put(FAMILY, &key(1), *b"young");
        batch.delete(FAMILY, &key(2));
    });
    let value = engine.get_quietly(FAMILY, &key(1)).unwrap();
    assert_eq!(value.as_deref(), Some(&b"young"[..]));
    assert!(engine.get_quietly(FAMILY, &key(2)).unwrap().is_none());
}

/// A hundred rows that nobody has asked for yet.
fn with_numbers(path: &Path) -> Arc<Engine> {
    let engine = open(path);
    commit(&engine, |batch| {
        for n in 0..100_u32 {
            batch.put(FAMILY, &n.to_be_bytes(), n.to_string());
        }
    });
    engine.flush().unwrap();
    drop(engine);
    open(path)
}

#[test]
fn many_rows_are_read_at_once_wherever_they_lie_and_each_block_once() {
    let directory = tempfile::tempdir().unwrap();
    let engine = with_numbers(directory.path());
    let key = |n: u32| n.to_be_bytes();
    commit(&engine, |batch| {
        batch.put(FAMILY, &key(1), *b"young");
        batch.delete(FAMILY, &key(2));
    });
    let asked = [70, 2, 3, 1, 1000, 3, 90].map(key);
    let asked: Vec<&[u8]> = asked.iter().map(|key| &key[..]).collect();
    let before = block_reads();
    let found = engine.get_many_quietly(FAMILY, &asked).unwrap();
    let found: Vec<_> = found.iter().map(|value| value.as_deref()).collect();
    let stored = |text: &'static str| Some(text.as_bytes());
    assert_eq!(
        found,
        [
            stored("70"),
            None,
            stored("3"),
            stored("young"),
            None,
            stored("3"),
            stored("90")
        ]
    );
    // The filter, the index and the one block of rows, none of which was kept.
    assert!(block_reads() - before <= 3);
}

#[test]
fn blocks_are_counted_that_this_thread_reads_from_files() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    commit(&engine, |batch| {
        for n in 0..100_u32 {
            batch.put(FAMILY, &n.to_be_bytes(), [7; 1000]);
        }
    });
    engine.flush().unwrap();
    drop(engine);
    let engine = open(directory.path());
    let reads_of = |n: u32| {
        let before = block_reads();
        engine.get(FAMILY, &n.to_be_bytes()).unwrap();
        block_reads() - before
    };
    assert!(reads_of(50) > 0);
    assert_eq!(reads_of(50), 0);
    let missed = engine.statistics().missed_data_blocks;
    std::thread::scope(|scope| scope.spawn(|| assert!(reads_of(90) > 0)).join()).unwrap();
    assert_eq!(reads_of(90), 0);
    assert_eq!(engine.statistics().missed_data_blocks, missed + 1);
    assert!(engine.statistics().flushed_bytes == 0, "since the start");
}

#[test]
fn rows_that_will_be_asked_for_are_fetched_together_and_kept() {
    let directory = tempfile::tempdir().unwrap();
    let engine = with_numbers(directory.path());
    let key = |n: u32| n.to_be_bytes();
    commit(&engine, |batch| batch.put(FAMILY, &key(7), b"young"));
    let names: Vec<_> = [5, 99, 7, 100, 5].map(key).into();
    let fetch = || engine.fetch_many(FAMILY, names.iter().map(|name| &name[..]));
    fetch().unwrap();
    let reads = block_reads();
    for (n, expected) in [
        (5, Some("5")),
        (99, Some("99")),
        (7, Some("young")),
        (100, None),
    ] {
        let value = engine.get(FAMILY, &key(n)).unwrap();
        assert_eq!(value.as_deref(), expected.map(str::as_bytes), "{n}");
    }
    fetch().unwrap();
    assert_eq!(block_reads(), reads, "they are in memory");
}
