//! Reading single rows, and what is kept of them.

use cairn_engine::{Family, block_reads};

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
