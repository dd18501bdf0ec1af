//! Hashes and sets, and whether random picks are fair.

use std::collections::BTreeMap;

use super::model::member;
use super::*;
use crate::set::Popped;

const SIZE: u64 = 3000;
const ALL: [&[u8]; 3] = [b"set", b"hash", b"zset"];

fn collection(txn: &WriteTxn, name: &[u8]) -> Collection {
    Collection::find(txn, txn.key(name)).unwrap().unwrap()
}

/// One of each kind, with elements that end in their number.
fn fill(store: &Arc<Store>) {
    let mut txn = write(store);
    let mut set = Set::open(&txn, b"set").unwrap();
    let mut hash = Hash::open(&txn, b"hash").unwrap();
    for number in 0..SIZE {
        let name = format!("m{number}");
        set.add(&mut txn, name.as_bytes()).unwrap();
        hash.set(&mut txn, name.as_bytes(), b"value").unwrap();
    }
    set.save(&mut txn);
    hash.save(&mut txn);
    store.commit_blocking(&mut txn).unwrap();
    add_scored(store, b"zset", 0..SIZE as u32);
    let txn = write(store);
    for name in ALL {
        collection(&txn, name).nth(&txn, SIZE / 2).unwrap();
    }
    keep_all(store);
    assert!(ALL.iter().all(|name| is_counted(store, name)));
}

#[test]
fn hashes_and_sets_are_counted_as_they_change() {
    for seed in 0..6 {
        let mut random = Rng::with_seed(seed);
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path(), options(random.u64(1..6), 20));
        let mut models = [BTreeMap::new(), BTreeMap::new()];
        for _ in 0..120 {
            let before = models.clone();
            let mut txn = write(&store);
            change_both(&mut txn, &mut models, &mut random);
            if random.u8(..5) == 0 {
                txn.undo();
                models = before;
            }
            for (name, model) in ALL.iter().zip(&models) {
                check_order(&txn, name, model);
            }
            store.commit_blocking(&mut txn).unwrap();
            store.keep_ranks().unwrap();
            check_rows(&store);
            ALL.iter().for_each(|name| check_memory(&store, name));
        }
        assert!(is_counted(&store, b"hash"));
    }
}

/// Adds members to the set and fields to the hash, or removes them; or pops some.
fn change_both(txn: &mut WriteTxn, models: &mut [BTreeMap<Vec<u8>, ()>; 2], random: &mut Rng) {
    let mut set = Set::open(txn, b"set").unwrap();
    let mut hash = Hash::open(txn, b"hash").unwrap();
    for _ in 0..random.usize(..10) {
        let name = member(random);
        if random.u8(..3) > 0 {
            set.add(txn, &name).unwrap();
            hash.set(txn, &name, b"v").unwrap();
            for model in models.iter_mut() {
                model.insert(name.clone(), ());
            }
        } else {
            set.remove(txn, &name).unwrap();
            hash.remove(txn, &name).unwrap();
            for model in models.iter_mut() {
                model.remove(&name);
            }
        }
    }
    let pops = set.len() > 30 && random.u8(..4) == 0;
    set.save(txn);
    hash.save(txn);
    if pops {
        let set = Set::open(txn, b"set").unwrap();
        let Popped::Few(gone) = set.pop(txn, random.u64(1..4)).unwrap() else {
            unreachable!("a few");
        };
        for gone in gone {
            models[0].remove(&gone).unwrap();
        }
    }
}

fn check_order(txn: &WriteTxn, name: &[u8], model: &BTreeMap<Vec<u8>, ()>) {
    let Some(collection) = Collection::find(txn, txn.key(name)).unwrap() else {
        assert!(model.is_empty());
        return;
    };
    assert_eq!(collection.len(), model.len() as u64);
    for (rank, element) in model.keys().enumerate() {
        let row_key = collection.nth(txn, rank as u64).unwrap().unwrap();
        assert_eq!(collection.sub_of(&row_key), element);
    }
}

/// The sum of squared deviations from what is expected, in units of it. For fair draws it is about the number of
/// outcomes, and in one case of millions more than six standard deviations above it.
fn check_chi_square(seen: &[u64], expected: f64) {
    let square = |seen: &u64| (*seen as f64 - expected).powi(2) / expected;
    let sum: f64 = seen.iter().map(square).sum();
    let freedom = seen.len() as f64 - 1.0;
    let limit = freedom + 6.0 * (2.0 * freedom).sqrt();
    assert!(sum < limit, "{sum} where {freedom} is expected");
}

fn number_of(name: &[u8]) -> usize {
    let at = name.iter().rposition(|byte| *byte == b'm').unwrap();
    let digits = std::str::from_utf8(&name[at + 1..]);
    digits.unwrap().parse().unwrap()
}

#[test]
fn every_element_is_picked_as_often_as_any_other() {
    fastrand::seed(11);
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), options(16, 64));
    fill(&store);
    let txn = write(&store);
    const PICKS: u64 = 20 * SIZE;
    for name in ALL {
        let collection = collection(&txn, name);
        let mut one_by_one = vec![0; SIZE as usize];
        for _ in 0..PICKS {
            let row_key = collection.any(&txn).unwrap().unwrap();
            one_by_one[number_of(&row_key)] += 1;
        }
        check_chi_square(&one_by_one, 20.0);
        for may_repeat in [false, true] {
            let mut at_once = vec![0; SIZE as usize];
            for _ in 0..PICKS / 60 {
                let jumps = collection.jumps(&txn, 60, may_repeat).unwrap();
                let mut jumps = jumps.unwrap();
                let mut last = Vec::new();
                while let Some((row_key, _)) = jumps.next().unwrap() {
                    at_once[number_of(row_key)] += 1;
                    assert!(may_repeat || *last < *row_key, "different ones, in order");
                    last = row_key.to_vec();
                }
            }
            assert_eq!(at_once.iter().sum::<u64>(), PICKS);
            check_chi_square(&at_once, 20.0);
        }
    }
}

#[test]
fn every_member_is_popped_as_often_as_any_other() {
    fastrand::seed(12);
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), options(16, 64));
    fill(&store);
    let mut popped = vec![0; SIZE as usize];
    for _ in 0..10 * SIZE / 60 {
        let mut txn = write(&store);
        let mut set = Set::open(&txn, b"set").unwrap();
        for _ in 0..60 {
            let member = set.take_by_rank(&mut txn).unwrap().unwrap();
            popped[number_of(&member)] += 1;
        }
        // All of them come back.
        txn.undo();
    }
    check_chi_square(&popped, 10.0);
    check_memory(&store, b"set");
}

#[test]
fn different_numbers_are_drawn_fairly() {
    let mut random = Rng::with_seed(13);
    let mut seen = BTreeMap::new();
    for _ in 0..10_000 {
        let pair = counted::different(&mut random, 2, 5);
        assert!(pair[0] < pair[1] && pair[1] < 5);
        *seen.entry(pair).or_insert(0) += 1;
    }
    check_chi_square(&seen.into_values().collect::<Vec<u64>>(), 1000.0);
    assert_eq!(counted::different(&mut random, 5, 5), [0, 1, 2, 3, 4]);
}
