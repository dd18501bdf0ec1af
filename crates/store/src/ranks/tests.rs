//! Ranks with blocks of a few elements: whatever is done to a collection, and whatever the background has got to,
//! every answer and every count row is right.

#![allow(clippy::unwrap_used)]

mod model;
mod picks;

use std::path::Path;
use std::sync::Arc;

use cairn_engine::Direction;
use fastrand::Rng;

use super::*;
use crate::collection::Collection;
use crate::{Hash, Patience, Set, Store, StoreOptions, WriteTxn, Zset, check, keys, testing};

fn options(block: u64, least: u64) -> RankOptions {
    RankOptions {
        is_enabled: true,
        least,
        block,
    }
}

fn open(path: &Path, ranks: RankOptions) -> Arc<Store> {
    let options = StoreOptions {
        ranks,
        ..testing::options()
    };
    Store::open(path, options).unwrap()
}

fn write(store: &Arc<Store>) -> WriteTxn {
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
    txn.begin(0);
    txn
}

/// Until nothing is left to do.
fn keep_all(store: &Arc<Store>) {
    while store.keep_ranks().unwrap() {}
}

fn is_counted(store: &Arc<Store>, name: &[u8]) -> bool {
    let txn = write(store);
    let found = Collection::find(&txn, txn.key(name)).unwrap();
    found.is_some_and(|collection| collection.is_counted())
}

/// Every row of the database, the count rows included.
fn check_rows(store: &Store) {
    let mut faults = Vec::new();
    check::check(store.engine(), &mut |fault| faults.push(fault.to_string())).unwrap();
    assert_eq!(faults, Vec::<String>::new());
}

/// What is in memory says what a new look at the rows says.
fn check_memory(store: &Arc<Store>, name: &[u8]) {
    let txn = write(store);
    let Some(collection) = Collection::find(&txn, txn.key(name)).unwrap() else {
        return;
    };
    if !collection.is_counted() {
        return;
    }
    let blocks = |ranking: &Ranking| {
        let directory = ranking.directory.read();
        let blocks = directory.blocks();
        blocks.map(|(_, block)| block.clone()).collect::<Vec<_>>()
    };
    let known = collection.ranking(&txn).unwrap();
    store.ranks().forget(&known.key);
    let read = collection.ranking(&txn).unwrap();
    assert_eq!(blocks(&known), blocks(&read));
    store.ranks().keep(&known, || true);
}

fn add_scored(store: &Arc<Store>, name: &[u8], numbers: impl Iterator<Item = u32>) {
    let mut txn = write(store);
    let mut zset = Zset::open(&txn, name).unwrap();
    for number in numbers {
        let decide = |_| Ok(Some(f64::from(number)));
        let member = format!("m{number}");
        zset.update(&mut txn, member.as_bytes(), decide).unwrap();
    }
    zset.save(&mut txn);
    store.commit_blocking(&mut txn).unwrap();
}

fn rank(store: &Arc<Store>, name: &[u8], number: u32) -> Option<u64> {
    let txn = write(store);
    let zset = Zset::open(&txn, name).unwrap();
    let member = format!("m{number}");
    let rank = zset.rank_of(&txn, member.as_bytes(), Direction::Forward);
    rank.unwrap()
}

/// The keeper's steps, with writers between them that change what is covered and what is not.
#[test]
fn a_large_set_is_counted_while_it_changes() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), options(128, 1024));
    add_scored(&store, b"z", (0..60_000).map(|number| number * 2));
    assert_eq!(rank(&store, b"z", 100_000), Some(50_000));
    let mut random = Rng::with_seed(7);
    let mut steps = 0;
    while store.keep_ranks().unwrap() {
        steps += 1;
        let mut txn = write(&store);
        txn.mark(0);
        for round in 0..2 {
            let mut zset = Zset::open(&txn, b"z").unwrap();
            for _ in 0..50 {
                let number = random.u32(..120_000);
                let member = format!("m{number}");
                let member = member.as_bytes();
                let decide = |_| Ok(Some(f64::from(number)));
                if !zset.remove(&mut txn, member).unwrap() {
                    zset.update(&mut txn, member, decide).unwrap();
                }
            }
            zset.save(&mut txn);
            // The second round is taken back.
            match round {
                0 => txn.mark(0),
                _ => txn.undo(),
            }
        }
        store.commit_blocking(&mut txn).unwrap();
    }
    assert!(steps >= 6, "{steps}");
    assert!(is_counted(&store, b"z"));
    check_rows(&store);
    check_memory(&store, b"z");
}

#[test]
fn a_build_whose_key_is_replaced_is_given_up() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), options(128, 1024));
    add_scored(&store, b"z", 0..30_000);
    rank(&store, b"z", 15_000);
    assert!(store.keep_ranks().unwrap());
    assert!(store.ranks().is_building());
    let mut txn = write(&store);
    keys::delete(&mut txn, b"z").unwrap();
    store.commit_blocking(&mut txn).unwrap();
    add_scored(&store, b"z", 0..2000);
    keep_all(&store);
    assert!(!is_counted(&store, b"z"));
    assert_eq!(rank(&store, b"z", 1000), Some(1000));
    keep_all(&store);
    assert!(is_counted(&store, b"z"));
    check_rows(&store);
}

#[test]
fn blocks_are_cut_as_they_grow_and_merged_as_they_shrink() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), options(16, 64));
    add_scored(&store, b"z", 0..100);
    rank(&store, b"z", 50);
    keep_all(&store);
    // All of it in one command, and in one block.
    add_scored(&store, b"z", 1000..21_000);
    keep_all(&store);
    check_rows(&store);
    let largest = |store: &Arc<Store>| {
        let txn = write(store);
        let zset = Zset::open(&txn, b"z").unwrap();
        let ranking = zset.collection().ranking(&txn).unwrap();
        let directory = ranking.directory.read();
        let counts = directory.blocks().map(|(_, block)| block.count);
        (directory.blocks().count(), counts.max().unwrap())
    };
    let (count, most) = largest(&store);
    assert!(count > 500 && most <= 32, "{count} blocks, {most} at most");
    let mut txn = write(&store);
    let mut zset = Zset::open(&txn, b"z").unwrap();
    for number in (1000..21_000).filter(|number| number % 64 != 0) {
        let member = format!("m{number}");
        zset.remove(&mut txn, member.as_bytes()).unwrap();
    }
    zset.save(&mut txn);
    store.commit_blocking(&mut txn).unwrap();
    keep_all(&store);
    check_rows(&store);
    check_memory(&store, b"z");
    let (count, _) = largest(&store);
    assert!(count < 120, "{count}");
    assert_eq!(rank(&store, b"z", 1024), Some(100));
}

#[test]
fn a_set_that_becomes_small_is_not_counted_any_more() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), options(16, 400));
    add_scored(&store, b"z", 0..500);
    rank(&store, b"z", 250);
    keep_all(&store);
    assert!(is_counted(&store, b"z"));
    let mut txn = write(&store);
    let zset = Zset::open(&txn, b"z").unwrap();
    zset.pop(&mut txn, Direction::Forward, 450).unwrap();
    store.commit_blocking(&mut txn).unwrap();
    keep_all(&store);
    assert!(!is_counted(&store, b"z"));
    check_rows(&store);
    assert_eq!(rank(&store, b"z", 475), Some(25));
}

#[test]
fn without_the_index_nothing_is_counted_but_what_is_stays_true() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), options(16, 64));
    add_scored(&store, b"z", 0..1000);
    rank(&store, b"z", 500);
    keep_all(&store);
    assert!(is_counted(&store, b"z"));
    store.close();
    drop(store);
    let disabled = RankOptions {
        is_enabled: false,
        ..options(16, 64)
    };
    let store = open(directory.path(), disabled);
    add_scored(&store, b"z", 1000..1500);
    add_scored(&store, b"new", 0..1000);
    assert_eq!(rank(&store, b"new", 500), Some(500));
    assert_eq!(rank(&store, b"z", 1200), Some(1200));
    keep_all(&store);
    assert!(!is_counted(&store, b"new"));
    check_rows(&store);
}

/// Enough directories that they do not all find room.
#[test]
fn directories_are_forgotten_when_there_is_no_more_room() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), options(1, 10));
    let names: Vec<String> = (0..40).map(|number| format!("z{number}")).collect();
    for name in &names {
        add_scored(&store, name.as_bytes(), 0..50);
        rank(&store, name.as_bytes(), 25);
    }
    keep_all(&store);
    let known = || store.ranks().known.lock().rankings.len();
    assert_eq!(known(), 40);
    let memory: usize = {
        let known = store.ranks().known.lock();
        let all = known.rankings.values();
        let memory = all.map(|(ranking, _)| ranking.directory.read().memory());
        assert_eq!(known.memory, memory.clone().sum::<usize>());
        memory.sum()
    };
    assert!(memory < LEAST_BUDGET);
    store.ranks().known.lock().forget_half();
    assert_eq!(known(), 20);
    for name in &names {
        assert_eq!(rank(&store, name.as_bytes(), 25), Some(25));
    }
    assert_eq!(known(), 40);
    check_rows(&store);
}
