//! Pops from both ends, whatever else is done between them, and taken back; and what they cost.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use cairn_engine::deletions_passed;
use fastrand::Rng;

use super::super::remove::HANDFUL;
use super::*;
use crate::Store;
use Direction::{Backward, Forward};

const NAME: &[u8] = b"z";

/// Scores and members, as they sort.
type Elements = BTreeSet<(u32, Vec<u8>)>;

fn write(store: &Arc<Store>) -> WriteTxn {
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
    txn.begin(0);
    txn
}

fn add(txn: &mut WriteTxn, elements: impl Iterator<Item = (u32, Vec<u8>)>) {
    let mut zset = Zset::open(txn, NAME).unwrap();
    for (score, member) in elements {
        let decide = |_| Ok(Some(f64::from(score)));
        zset.update(txn, &member, decide).unwrap();
    }
    zset.save(txn);
}

fn few(popped: Popped) -> Vec<(u32, Vec<u8>)> {
    let Popped::Few(members) = popped else {
        panic!("they are few");
    };
    let members = members.into_iter();
    members.map(|it| (it.score as u32, it.member)).collect()
}

fn pop(txn: &mut WriteTxn, direction: Direction, count: u64) -> Vec<(u32, Vec<u8>)> {
    let zset = Zset::open(txn, NAME).unwrap();
    few(zset.pop(txn, direction, count).unwrap())
}

fn pop_together(txn: &mut WriteTxn, direction: Direction, count: u64) -> Vec<(u32, Vec<u8>)> {
    let zset = Zset::open(txn, NAME).unwrap();
    few(zset.pop_by_handful(txn, direction, count, HANDFUL).unwrap())
}

fn nearest(elements: &Elements, direction: Direction, count: usize) -> Vec<(u32, Vec<u8>)> {
    match direction {
        Forward => elements.iter().take(count).cloned().collect(),
        Backward => elements.iter().rev().take(count).cloned().collect(),
    }
}

/// Something that changes the set, also in the model.
fn change(txn: &mut WriteTxn, elements: &mut Elements, random: &mut Rng) {
    let direction = if random.bool() { Forward } else { Backward };
    let count = random.usize(1..4);
    match random.u8(..8) {
        0..3 => {
            let (score, member) = (random.u32(..50), vec![random.u8(..)]);
            elements.retain(|(_, other)| *other != member);
            elements.insert((score, member.clone()));
            add(txn, std::iter::once((score, member)));
        }
        3 => {
            let Some((_, member)) = nearest(elements, direction, 1).pop() else {
                return;
            };
            elements.retain(|(_, other)| *other != member);
            let mut zset = Zset::open(txn, NAME).unwrap();
            assert!(zset.remove(txn, &member).unwrap());
            zset.save(txn);
        }
        kind => {
            let expected = nearest(elements, direction, count);
            let popped = match kind {
                4..7 => pop(txn, direction, count as u64),
                _ => pop_together(txn, direction, count as u64),
            };
            assert_eq!(popped, expected);
            expected.iter().for_each(|gone| _ = elements.remove(gone));
        }
    }
}

/// Commands alone and in units, taken back or not, while what was looked up for pops gets lost now and then.
#[test]
fn the_nearest_is_popped_whatever_was_taken_back() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(directory.path());
    let mut random = Rng::with_seed(11);
    let mut elements = Elements::new();
    for _ in 0..10_000 {
        let committed = elements.clone();
        let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
        for _ in 0..random.usize(1..5) {
            let before = elements.clone();
            if random.bool() {
                txn.begin(0);
                change(&mut txn, &mut elements, &mut random);
                if random.u8(..4) == 0 {
                    txn.undo();
                    elements = before;
                }
            } else {
                txn.mark_unit(0);
                txn.sample_time();
                for _ in 0..random.usize(1..5) {
                    let before = elements.clone();
                    txn.mark_in_unit(0);
                    change(&mut txn, &mut elements, &mut random);
                    if random.u8(..4) == 0 {
                        txn.undo();
                        elements = before;
                    }
                }
                if random.u8(..3) == 0 {
                    txn.undo_unit();
                    elements = before;
                }
            }
            if random.u8(..10) == 0 {
                store.queues().forget_taken();
            }
        }
        if random.u8(..10) == 0 {
            drop(txn);
            elements = committed;
        } else {
            store.commit_blocking(&mut txn).unwrap();
        }
    }
}

const MANY: u32 = 20_000;

/// A store with a set that RocksDB has, of which so many were popped from the end since.
fn popped(path: &Path, direction: Direction, count: u32) -> Arc<Store> {
    let store = open_store(path);
    let mut txn = write(&store);
    add(&mut txn, (0..MANY).map(|n| (n, n.to_be_bytes().into())));
    store.commit_blocking(&mut txn).unwrap();
    store.engine().sync().unwrap();
    for _ in 0..count {
        txn.begin(0);
        pop(&mut txn, direction, 1);
        store.commit_blocking(&mut txn).unwrap();
    }
    store.engine().sync().unwrap();
    store
}

/// How many tombstones it passes over that so many are popped.
fn passed(store: &Arc<Store>, pop: impl FnOnce(&mut WriteTxn) -> Vec<(u32, Vec<u8>)>) -> u64 {
    let before = deletions_passed();
    let mut txn = write(store);
    assert!(!pop(&mut txn).is_empty());
    store.commit_blocking(&mut txn).unwrap();
    store.engine().sync().unwrap();
    deletions_passed() - before
}

#[test]
fn what_was_popped_is_passed_over_once_and_not_again_when_its_queue_is_lost() {
    const POPPED: u64 = 10_000;
    for direction in [Forward, Backward] {
        let directory = tempfile::tempdir().unwrap();
        let pop_one = |txn: &mut WriteTxn| pop(txn, direction, 1);
        let store = popped(directory.path(), direction, POPPED as u32);
        assert!(passed(&store, pop_one) < 10);
        // From where the last walk began, which is not long ago.
        store.queues().forget_taken();
        assert!(passed(&store, pop_one) < POPPED / 2);
        store.queues().forget_taken();
        assert!(passed(&store, pop_one) < 10);
        store.queues().clear();
        assert!(passed(&store, pop_one) > POPPED);
        store.queues().forget_taken();
        assert!(passed(&store, pop_one) < 10);
    }
}

#[test]
fn what_was_popped_together_is_not_passed_over() {
    for direction in [Forward, Backward] {
        let directory = tempfile::tempdir().unwrap();
        let store = popped(directory.path(), direction, 5000);
        for _ in 0..5 {
            let pop_many = |txn: &mut WriteTxn| pop(txn, direction, 1000);
            assert!(passed(&store, pop_many) < 10);
            assert!(passed(&store, |txn| pop(txn, direction, 1)) < 10);
        }
        // A walk in the midst of a command that pops some.
        store.queues().forget_taken();
        for _ in 0..10 {
            assert!(passed(&store, |txn| pop(txn, direction, 100)) < 1100);
        }
        store.queues().forget_taken();
        assert!(passed(&store, |txn| pop(txn, direction, 100)) < 600);
        // All that was popped together since the last walk began.
        for _ in 0..2 {
            passed(&store, |txn| pop(txn, direction, 1000));
        }
        store.queues().forget_taken();
        assert!(passed(&store, |txn| pop(txn, direction, 1)) < 1100);
    }
}
