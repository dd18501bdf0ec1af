//! Pops, whatever else is done between them, and taken back, while what was drawn for them gets lost; and what they cost.

use std::collections::BTreeSet;

use cairn_engine::deletions_passed;
use fastrand::Rng;

use super::super::*;
use super::{Bench, all_of, numbered, rows_of};
use crate::check::check;
use crate::{Error, Patience};

const NAME: &[u8] = b"set";

type Members = BTreeSet<Vec<u8>>;

/// A set that RocksDB has, of which so many were popped since.
fn popped(members: u64, count: u64) -> Bench {
    let mut bench = Bench::new();
    bench.add(NAME, numbered(0..members));
    bench.commit();
    bench.store.engine().sync().unwrap();
    pop_more(&mut bench, count);
    bench.store.engine().sync().unwrap();
    bench
}

fn pop_more(bench: &mut Bench, count: u64) {
    for _ in 0..count {
        bench.txn.begin(0);
        pop(&mut bench.txn);
    }
    bench.commit();
}

fn pop(txn: &mut WriteTxn) {
    let popped = Set::open(txn, NAME).unwrap().pop_one(txn).unwrap();
    assert!(popped.is_some());
}

/// More than are popped one by one.
fn pop_together(txn: &mut WriteTxn) {
    let popped = Set::open(txn, NAME).unwrap().pop(txn, 200).unwrap();
    assert!(matches!(popped, Popped::Few(members) if members.len() == 200));
}

fn version(txn: &ReadTxn) -> u64 {
    Set::open(txn, NAME).unwrap().collection().version()
}

/// How many tombstones it passes over that this is done.
fn passed(bench: &mut Bench, act: impl FnOnce(&mut WriteTxn)) -> u64 {
    let before = deletions_passed();
    bench.txn.begin(0);
    act(&mut bench.txn);
    bench.commit();
    bench.store.engine().sync().unwrap();
    deletions_passed() - before
}

fn impatient(bench: &Bench) -> WriteTxn {
    let (store, region) = (bench.store.clone(), bench.store.home().clone());
    let mut txn = WriteTxn::new(store, region, Patience::Short);
    txn.begin(0);
    txn
}

fn assert_sound(bench: &Bench) {
    let mut faults = Vec::new();
    check(bench.store.engine(), &mut |fault| {
        faults.push(fault.to_string());
    })
    .unwrap();
    assert_eq!(faults, Vec::<String>::new());
}

#[test]
fn what_was_popped_is_passed_over_once_however_often_its_pool_is_lost() {
    const POPPED: u64 = 19_000;
    let mut bench = popped(20_000, POPPED);
    bench.store.queues().forget_queues();
    // It is found out on one walk, and written on another.
    let first = passed(&mut bench, pop);
    assert!((POPPED..=2 * POPPED + 100).contains(&first), "{first}");
    for _ in 0..10 {
        bench.store.queues().forget_queues();
        assert!(passed(&mut bench, pop) < 100);
    }
    assert_eq!(rows_of(&bench.txn, NAME).len(), 989);
    assert_sound(&bench);
}

/// From the first member to the last.
#[test]
fn no_pool_is_drawn_past_many_more_than_there_are_members() {
    const AT_ONCE: u64 = 2000;
    let mut bench = popped(40_000, 0);
    for left in (1..=40_000 / AT_ONCE).rev() {
        let left = left * AT_ONCE;
        bench.store.queues().forget_queues();
        let passed = passed(&mut bench, |txn| (0..AT_ONCE).for_each(|_| pop(txn)));
        // What did not matter the last time, and what was popped then.
        let most = (left + AT_ONCE).max(10_000) + AT_ONCE;
        assert!(passed <= 2 * most + 100, "{passed} of {left}");
    }
    assert!(!bench.open(NAME).exists());
}

#[test]
fn what_was_popped_and_is_young_counts_too() {
    let mut bench = popped(20_000, 0);
    pop_more(&mut bench, 19_000);
    let before = version(&bench.txn);
    bench.store.queues().forget_queues();
    pop_more(&mut bench, 1);
    let after = version(&bench.txn);
    assert_ne!(after, before);
    bench.store.queues().forget_queues();
    pop_more(&mut bench, 1);
    assert_eq!(version(&bench.txn), after);
    // The same before it is committed.
    let mut bench = popped(20_000, 0);
    let before = version(&bench.txn);
    (0..19_000).for_each(|_| pop(&mut bench.txn));
    bench.store.queues().forget_queues();
    pop(&mut bench.txn);
    assert_ne!(version(&bench.txn), before);
    bench.commit();
    assert_eq!(rows_of(&bench.txn, NAME).len(), 999);
    assert_sound(&bench);
}

#[test]
fn a_set_of_which_little_was_popped_stays_where_it_is() {
    for (members, count) in [(10_000, 9000), (40_000, 18_000)] {
        let mut bench = popped(members, count);
        let before = version(&bench.txn);
        for _ in 0..3 {
            bench.store.queues().forget_queues();
            pop_more(&mut bench, 1);
            passed(&mut bench, pop_together);
        }
        assert_eq!(version(&bench.txn), before);
    }
}

#[test]
fn what_was_popped_is_passed_over_once_by_pops_of_many() {
    let mut bench = popped(24_000, 20_000);
    // Such a walk ends with the last one that it looks for.
    assert!(passed(&mut bench, pop_together) > 15_000);
    for _ in 0..10 {
        assert!(passed(&mut bench, pop_together) < 5000);
    }
    assert_eq!(rows_of(&bench.txn, NAME).len(), 1800);
    assert_sound(&bench);
}

#[test]
fn a_set_that_is_written_anew_is_as_before_when_that_is_taken_back() {
    let mut bench = popped(20_000, 19_000);
    let (members, before) = (rows_of(&bench.txn, NAME), version(&bench.txn));
    bench.store.queues().forget_queues();
    let txn = &mut bench.txn;
    txn.mark_unit(0);
    txn.sample_time();
    // A command of the unit first, and then the unit.
    txn.mark_in_unit(0);
    pop(txn);
    assert_ne!(version(txn), before);
    txn.undo();
    assert_eq!(version(txn), before);
    for _ in 0..2 {
        txn.mark_in_unit(0);
        pop(txn);
        assert_ne!(version(txn), before);
    }
    txn.undo_unit();
    assert_eq!(version(txn), before);
    assert_eq!(rows_of(txn, NAME), members);
    let mut left: Members = members.into_iter().collect();
    while !left.is_empty() {
        bench.txn.begin(0);
        let popped = bench.open(NAME).pop_one(&mut bench.txn).unwrap();
        assert!(left.remove(&popped.unwrap()));
    }
    bench.commit();
    assert!(!bench.open(NAME).exists());
}

#[test]
fn a_set_that_is_written_anew_expires_when_it_would_have() {
    let mut bench = popped(20_000, 19_000);
    let key = bench.txn.key(NAME);
    let expire_ms = bench.txn.now_ms() + 1_000_000;
    let before = version(&bench.txn);
    let metadata = Metadata {
        expire_ms,
        body: Body::Collection {
            kind: CollectionKind::Set,
            version: before,
            size: 1000,
            is_counted: false,
            fields: None,
        },
    };
    bench.txn.put_metadata(&key, &metadata, 0);
    bench.commit();
    bench.store.queues().forget_queues();
    pop_more(&mut bench, 1);
    assert_ne!(version(&bench.txn), before);
    let found = bench.txn.find(&key).unwrap().unwrap();
    assert_eq!(found.expire_ms, expire_ms);
    let expiry = key.expiry(expire_ms);
    assert!(bench.txn.has_row(Family::Expiry, &expiry).unwrap());
    assert_sound(&bench);
}

#[test]
fn a_set_is_written_anew_on_a_thread_of_its_own() {
    for act in [pop, pop_together] {
        let mut bench = popped(20_000, 19_000);
        let before = version(&bench.txn);
        bench.store.queues().forget_queues();
        let mut txn = impatient(&bench);
        let set = Set::open(&txn, NAME).unwrap();
        let popped = set.pop_one(&mut txn);
        assert!(matches!(popped, Err(Error::TooLong)));
        txn.undo();
        txn.begin(0);
        let popped = Set::open(&txn, NAME).unwrap().pop(&mut txn, 200);
        assert!(matches!(popped, Err(Error::TooLong)));
        txn.undo();
        assert_eq!(version(&txn), before);
        passed(&mut bench, act);
        assert_ne!(version(&txn), before);
        for _ in 0..3 {
            bench.store.queues().forget_queues();
            for act in [pop, pop_together] {
                txn.begin(0);
                act(&mut txn);
                bench.store.commit_blocking(&mut txn).unwrap();
            }
        }
    }
}

#[test]
fn a_set_is_not_written_anew_where_there_is_no_room() {
    let mut bench = popped(24_000, 20_000);
    let before = version(&bench.txn);
    bench.store.note_disk_full(true);
    for act in [pop, pop_together] {
        bench.store.queues().forget_queues();
        passed(&mut bench, act);
        assert_eq!(version(&bench.txn), before);
    }
    bench.store.note_disk_full(false);
    bench.store.queues().forget_queues();
    passed(&mut bench, pop);
    assert_ne!(version(&bench.txn), before);
    assert_sound(&bench);
}

#[test]
fn a_set_that_is_written_anew_is_counted_anew_when_that_is_asked_for() {
    let mut bench = popped(20_000, 0);
    let count = |bench: &Bench| {
        let set = bench.open(NAME);
        set.collection().has_ranks(&bench.txn).unwrap();
        while bench.store.keep_ranks().unwrap() {}
        bench.open(NAME).collection().is_counted()
    };
    assert!(count(&bench));
    pop_more(&mut bench, 17_000);
    assert!(bench.open(NAME).collection().is_counted());
    bench.store.queues().forget_queues();
    pop_more(&mut bench, 1);
    assert!(!bench.open(NAME).collection().is_counted());
    assert!(count(&bench));
    bench.txn.begin(0);
    let mut set = bench.open(NAME);
    assert!(set.take_by_rank(&mut bench.txn).unwrap().is_some());
    set.save(&mut bench.txn);
    bench.commit();
    assert_eq!(rows_of(&bench.txn, NAME).len(), 2998);
    assert_sound(&bench);
}

fn member(random: &mut Rng) -> Vec<u8> {
    format!("{:06}", random.u32(..1_000_000)).into_bytes()
}

/// Something that changes the set, also in the model. So much comes and goes that the set has to be written anew often.
fn change(txn: &mut WriteTxn, expected: &mut Members, random: &mut Rng) {
    const MOST: usize = 3000;
    let count = random.usize(1..MOST);
    let kind = match expected.len() {
        0..MOST => 0,
        _ => random.u8(..8),
    };
    let mut set = Set::open(txn, NAME).unwrap();
    let popped = match kind {
        0 | 1 => {
            for _ in 0..2 * count {
                let member = member(random);
                let is_new = set.add(txn, &member).unwrap();
                assert_eq!(is_new, expected.insert(member));
            }
            return set.save(txn);
        }
        2 => {
            let step = random.usize(2..20);
            let removed: Vec<_> = expected.iter().step_by(step).cloned().collect();
            for member in removed {
                assert!(set.remove(txn, &member).unwrap());
                expected.remove(&member);
            }
            return set.save(txn);
        }
        3..6 => {
            for _ in 0..count {
                let set = Set::open(txn, NAME).unwrap();
                let popped = set.pop_one(txn).unwrap().unwrap();
                assert!(expected.remove(&popped));
            }
            return;
        }
        6 => set.pop(txn, random.u64(1..=128)).unwrap(),
        _ => {
            let few = usize::MAX;
            set.pop_by_handful(txn, count as u64, few).unwrap()
        }
    };
    let popped = match popped {
        Popped::Few(popped) => popped,
        Popped::Many { members, .. } => all_of(members),
    };
    assert!(popped.iter().all(|member| expected.remove(member)));
}

/// Commands alone and in units, taken back or not, while pools get lost now and then.
#[test]
fn what_is_popped_was_there_and_is_gone_whatever_was_taken_back() {
    let bench = Bench::new();
    let store = &bench.store;
    let mut random = Rng::with_seed(11);
    let mut expected = Members::new();
    let mut versions = BTreeSet::new();
    for _ in 0..30 {
        let committed = expected.clone();
        let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
        assert!(rows_of(&txn, NAME).iter().eq(&expected));
        let set = Set::open(&txn, NAME).unwrap();
        assert_eq!(set.len(), expected.len() as u64);
        versions.insert(version(&txn));
        for _ in 0..random.usize(1..5) {
            let before = expected.clone();
            if random.bool() {
                txn.begin(0);
                change(&mut txn, &mut expected, &mut random);
                if random.u8(..4) == 0 {
                    txn.undo();
                    expected = before;
                }
            } else {
                txn.mark_unit(0);
                txn.sample_time();
                for _ in 0..random.usize(1..5) {
                    let before = expected.clone();
                    txn.mark_in_unit(0);
                    change(&mut txn, &mut expected, &mut random);
                    if random.u8(..4) == 0 {
                        txn.undo();
                        expected = before;
                    }
                }
                if random.u8(..3) == 0 {
                    txn.undo_unit();
                    expected = before;
                }
            }
            if random.u8(..4) == 0 {
                store.queues().forget_queues();
            }
        }
        if random.u8(..10) == 0 {
            drop(txn);
            expected = committed;
        } else {
            store.commit_blocking(&mut txn).unwrap();
        }
    }
    assert!(versions.len() > 2);
    assert_sound(&bench);
}
