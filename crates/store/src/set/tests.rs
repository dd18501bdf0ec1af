#![allow(clippy::unwrap_used)]

mod model;
mod pops;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::*;
use crate::testing::open_store;
use crate::{Error, Expiry, Patience, Store, string};

/// A store, and a transaction that may take its time.
struct Bench {
    store: Arc<Store>,
    txn: WriteTxn,
    _directory: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = open_store(directory.path());
        Bench {
            txn: WriteTxn::new(store.clone(), store.home().clone(), Patience::Long),
            store,
            _directory: directory,
        }
    }

    fn commit(&mut self) {
        self.store.commit_blocking(&mut self.txn).unwrap();
    }

    fn add(&mut self, name: &[u8], members: impl IntoIterator<Item = String>) {
        let mut set = Set::open(&self.txn, name).unwrap();
        for member in members {
            set.add(&mut self.txn, member.as_bytes()).unwrap();
        }
        set.save(&mut self.txn);
    }

    fn open(&self, name: &[u8]) -> Set {
        Set::open(&self.txn, name).unwrap()
    }
}

fn numbered(numbers: impl Iterator<Item = u64>) -> impl Iterator<Item = String> {
    numbers.map(|number| format!("{number:06}"))
}

fn rows_of(txn: &ReadTxn, name: &[u8]) -> Vec<Vec<u8>> {
    let set = Set::open(txn, name).unwrap();
    let mut rows = set.rows(txn).unwrap();
    let mut members = Vec::new();
    while let Some((row_key, value)) = rows.next().unwrap() {
        assert!(value.is_empty());
        members.push(set.member_of(row_key).to_vec());
    }
    members
}

fn drain(selection: &mut Selection) -> Vec<Vec<u8>> {
    let mut members = Vec::new();
    loop {
        match selection.step().unwrap() {
            Step::Member => members.push(selection.member().to_vec()),
            Step::Onward => {}
            Step::End => return members,
        }
    }
}

/// Everything a selection gives, which must be the same when it starts again.
fn all_of(mut selection: Selection) -> Vec<Vec<u8>> {
    let members = drain(&mut selection);
    selection.rewind();
    assert_eq!(drain(&mut selection), members);
    if let Some(len) = selection.known_len() {
        assert_eq!(len, members.len() as u64);
    }
    members
}

#[test]
fn walks_that_jump_meet_every_common_member() {
    let mut bench = Bench::new();
    bench.add(b"all", numbered(0..5000));
    bench.add(b"few", numbered((0..5000).step_by(613)));
    bench.add(b"odd", numbered((1..5000).step_by(2)));
    bench.add(b"late", numbered(4990..6000));
    bench.commit();
    let texts = |operation, names: &[&[u8]]| {
        let members = all_of(Selection::of(&bench.txn, operation, names).unwrap());
        let texts = members
            .into_iter()
            .map(|member| String::from_utf8(member).unwrap());
        texts.collect::<Vec<_>>()
    };
    let few: Vec<u64> = (0..5000).step_by(613).collect();
    let is_odd = |number: &&u64| **number % 2 == 1;
    assert_eq!(
        texts(Operation::Intersection, &[b"all", b"few"]),
        numbered(few.iter().copied()).collect::<Vec<_>>()
    );
    assert_eq!(
        texts(Operation::Intersection, &[b"odd", b"all", b"few"]),
        numbered(few.iter().filter(is_odd).copied()).collect::<Vec<_>>()
    );
    assert_eq!(
        texts(Operation::Intersection, &[b"all", b"late"]),
        numbered(4990..5000).collect::<Vec<_>>()
    );
    assert_eq!(
        texts(Operation::Difference, &[b"few", b"late", b"odd"]),
        numbered(few.iter().filter(|n| !is_odd(n)).copied()).collect::<Vec<_>>()
    );
    assert_eq!(
        texts(Operation::Union, &[b"odd", b"late", b"all"]).len(),
        6000
    );
}

/// Asserts that each of `kinds` outcomes came up about equally often: within five standard deviations.
fn assert_even(counts: &BTreeMap<Vec<Vec<u8>>, u64>, kinds: u64, trials: u64) {
    assert_eq!(counts.len() as u64, kinds);
    let mean = trials as f64 / kinds as f64;
    let deviation = (mean * (1.0 - 1.0 / kinds as f64)).sqrt();
    for (outcome, &count) in counts {
        let distance = (count as f64 - mean).abs();
        assert!(
            distance < 5.0 * deviation,
            "{outcome:?}: {count} of {trials}"
        );
    }
}

#[test]
fn every_member_and_every_subset_is_as_likely_as_any_other() {
    const TRIALS: u64 = 6000;
    let mut bench = Bench::new();
    bench.add(b"set", ["a", "b", "c", "d"].map(String::from));
    bench.commit();
    let set = bench.open(b"set");
    let (mut singles, mut pairs, mut draws) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for _ in 0..TRIALS {
        let single = set.random(&bench.txn).unwrap().unwrap();
        *singles.entry(vec![single]).or_default() += 1;
        let pair = drain(&mut Selection::sample(&bench.txn, &set, 2).unwrap());
        *pairs.entry(pair).or_default() += 1;
        let draw = drain(&mut Selection::repeats(&bench.txn, &set, 2).unwrap());
        *draws.entry(draw).or_default() += 1;
    }
    assert_even(&singles, 4, TRIALS);
    assert_even(&pairs, 6, TRIALS);
    assert_even(&draws, 16, TRIALS);
}

#[test]
fn more_draws_than_one_walk_looks_up() {
    const DRAWS: u64 = 200_000;
    let mut bench = Bench::new();
    bench.add(b"set", ["a", "b", "c"].map(String::from));
    let set = bench.open(b"set");
    let drawn = drain(&mut Selection::repeats(&bench.txn, &set, DRAWS).unwrap());
    assert_eq!(drawn.len() as u64, DRAWS);
    let mut counts = BTreeMap::new();
    for member in drawn {
        *counts.entry(vec![member]).or_default() += 1;
    }
    assert_even(&counts, 3, DRAWS);
}

#[test]
fn draws_of_large_members_come_in_several_walks() {
    let mut bench = Bench::new();
    let large = "x".repeat(1024 * 1024);
    bench.add(b"set", (0..20).map(|number| format!("{number:02}{large}")));
    bench.commit();
    let set = bench.open(b"set");
    let drawn = all_of(Selection::repeats(&bench.txn, &set, 50).unwrap());
    assert_eq!(drawn.len(), 50);
    let distinct: BTreeSet<_> = drawn.iter().collect();
    // 20 * (19/20)^50 are missed on average: 1.5.
    assert!(distinct.len() > 8);
    assert!(
        drawn
            .iter()
            .all(|member| set.contains(&bench.txn, member).unwrap())
    );
    assert!(!drawn.is_sorted());
}

#[test]
fn members_popped_by_the_thousand_can_be_read_after_the_commit() {
    let mut bench = Bench::new();
    bench.add(b"set", numbered(0..1000));
    let key = bench.txn.key(b"set");
    let expire_ms = bench.txn.now_ms() + 1_000_000;
    let metadata = Metadata {
        expire_ms,
        body: Body::Collection {
            kind: CollectionKind::Set,
            version: bench.open(b"set").collection().version(),
            size: 1000,
            is_counted: false,
            fields: None,
        },
    };
    bench.txn.put_metadata(&key, &metadata, 0);
    bench.commit();

    let popped = bench
        .open(b"set")
        .pop_by_handful(&mut bench.txn, 700, 10_000);
    let Popped::Many { count, members } = popped.unwrap() else {
        panic!("they are many");
    };
    assert_eq!(count, 700);
    bench.commit();
    bench.store.engine().compact().unwrap();
    let mut all = all_of(members);
    assert_eq!(all.len(), 700);
    let rest = rows_of(&bench.txn, b"set");
    assert_eq!(rest.len(), 300);
    let found = bench.txn.find(&key).unwrap().unwrap();
    assert_eq!(found.expire_ms, expire_ms);
    all.extend(rest);
    all.sort();
    let expected: Vec<_> = numbered(0..1000).map(String::into_bytes).collect();
    assert_eq!(all, expected);
}

#[test]
fn popping_everything_writes_the_metadata_only() {
    let mut bench = Bench::new();
    bench.add(b"set", numbered(0..10));
    bench.commit();
    for handful in [0, usize::MAX] {
        bench.txn.begin(0);
        let set = bench.open(b"set");
        set.pop_by_handful(&mut bench.txn, u64::MAX, handful)
            .unwrap();
        let changes = bench.txn.pending().changes();
        let changed: Vec<Family> = changes.map(|(family, ..)| family).collect();
        assert_eq!(changed, [Family::Metadata]);
        assert!(!bench.open(b"set").exists());
        bench.txn.undo();
    }
}

#[test]
fn a_large_result_goes_ahead_of_its_commit() {
    let mut bench = Bench::new();
    let filler = "x".repeat(1000);
    for (name, numbers) in [(b"a", 0..6000), (b"b", 3000..9000)] {
        bench.add(name, numbers.map(|number| format!("{number:06}{filler}")));
        bench.commit();
    }
    let size = store(&mut bench.txn, Operation::Union, b"a", &[b"a", b"b"]).unwrap();
    assert_eq!(size, 9000);
    assert!(bench.txn.pending().bytes() < 6 * 1024 * 1024);
    bench.commit();
    bench.store.engine().compact().unwrap();
    assert_eq!(rows_of(&bench.txn, b"a").len(), 9000);
    assert_eq!(rows_of(&bench.txn, b"b").len(), 6000);
}

#[test]
fn a_result_takes_the_place_of_a_string_and_of_its_expiry() {
    let mut bench = Bench::new();
    bench.add(b"source", numbered(0..3));
    let at = bench.txn.now_ms() + 1_000_000;
    string::set(&mut bench.txn, b"target", b"v", Expiry::At(at)).unwrap();
    bench.commit();
    let key = bench.txn.key(b"target");
    assert!(bench.txn.has_row(Family::Expiry, &key.expiry(at)).unwrap());
    assert_eq!(
        store(&mut bench.txn, Operation::Union, b"target", &[b"source"]).unwrap(),
        3
    );
    bench.commit();
    assert!(!bench.txn.has_row(Family::Expiry, &key.expiry(at)).unwrap());
    assert_eq!(bench.txn.find(&key).unwrap().unwrap().expire_ms, 0);
    assert_eq!(rows_of(&bench.txn, b"target").len(), 3);
}

#[test]
fn long_walks_are_refused_on_a_connection_thread() {
    let mut bench = Bench::new();
    bench.add(b"a", numbered(0..30_000));
    bench.add(b"b", numbered(0..30_000));
    bench.commit();
    let mut txn = WriteTxn::new(
        bench.store.clone(),
        bench.store.home().clone(),
        Patience::Short,
    );
    txn.begin(0);
    let stored = store(&mut txn, Operation::Intersection, b"c", &[b"a", b"b"]);
    assert!(matches!(stored, Err(Error::TooLong)));
    txn.begin(0);
    let popped = Set::open(&txn, b"a").unwrap().pop(&mut txn, 29_000);
    assert!(matches!(popped, Err(Error::TooLong)));
    // What is too much to collect is left to a thread of its own, even if the walk is short.
    txn.begin(0);
    let popped = Set::open(&txn, b"a")
        .unwrap()
        .pop_by_handful(&mut txn, 20, 0);
    assert!(matches!(popped, Err(Error::TooLong)));
}

/// Some 8 MB of members, of which a pool holds few, are popped; meanwhile others come, go and move, and some
/// of that is taken back.
#[test]
fn what_is_popped_one_by_one_was_there_and_is_gone() {
    let mut bench = Bench::new();
    let filler = "x".repeat(1000);
    let name = |number: u64| format!("{number:06}{filler}");
    bench.add(b"set", (0..8000).map(name));
    bench.commit();
    let mut model: BTreeSet<u64> = (0..8000).collect();
    let mut random = fastrand::Rng::with_seed(7);
    while !model.is_empty() {
        bench.txn.begin(0);
        let mut after = model.clone();
        for _ in 0..random.usize(..200) {
            let number = random.u64(..10_000);
            let mut set = bench.open(b"set");
            match random.u8(..8) {
                0 => {
                    let is_new = set.add(&mut bench.txn, name(number).as_bytes());
                    assert_eq!(is_new.unwrap(), after.insert(number));
                    set.save(&mut bench.txn);
                }
                1 | 2 => {
                    let was_there = set.remove(&mut bench.txn, name(number).as_bytes());
                    assert_eq!(was_there.unwrap(), after.remove(&number));
                    set.save(&mut bench.txn);
                }
                _ => {
                    let popped = set.pop_one(&mut bench.txn).unwrap();
                    assert_eq!(popped.is_some(), !after.is_empty());
                    let number = popped.map(|member| number_of(&member));
                    assert!(number.is_none_or(|number| after.remove(&number)));
                }
            }
            assert_eq!(bench.open(b"set").len(), after.len() as u64);
        }
        match random.u8(..20) {
            0 => bench.txn.undo(),
            _ => model = after,
        }
        if random.bool() {
            bench.commit();
        }
    }
    assert!(!bench.open(b"set").exists());
}

fn number_of(member: &[u8]) -> u64 {
    std::str::from_utf8(&member[..6]).unwrap().parse().unwrap()
}

#[test]
fn a_set_that_takes_the_place_of_another_has_its_own_pool() {
    let mut bench = Bench::new();
    bench.add(b"set", numbered(0..10));
    bench.commit();
    bench.open(b"set").pop_one(&mut bench.txn).unwrap();
    bench.commit();
    let key = bench.txn.key(b"set");
    let stamp = bench.txn.find(&key).unwrap().unwrap().stamp();
    bench.txn.remove(&key, &stamp);
    bench.add(b"set", numbered(100..105));
    bench.commit();
    let mut popped = Vec::new();
    while let Some(member) = bench.open(b"set").pop_one(&mut bench.txn).unwrap() {
        popped.push(String::from_utf8(member).unwrap());
    }
    popped.sort();
    assert_eq!(popped, numbered(100..105).collect::<Vec<_>>());
}

#[test]
fn a_pool_of_a_large_set_is_drawn_on_a_thread_of_its_own() {
    let mut bench = Bench::new();
    bench.add(b"large", numbered(0..20_000));
    bench.commit();
    let mut txn = WriteTxn::new(
        bench.store.clone(),
        bench.store.home().clone(),
        Patience::Short,
    );
    txn.begin(0);
    let popped = Set::open(&txn, b"large").unwrap().pop_one(&mut txn);
    assert!(matches!(popped, Err(Error::TooLong)));
    txn.undo();
    bench.open(b"large").pop_one(&mut bench.txn).unwrap();
    bench.commit();
    // From here on it is known.
    for _ in 0..1000 {
        txn.begin(0);
        let popped = Set::open(&txn, b"large").unwrap().pop_one(&mut txn);
        assert!(popped.unwrap().is_some());
        bench.store.commit_blocking(&mut txn).unwrap();
    }
}
