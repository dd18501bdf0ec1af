#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::*;
use crate::testing::open_store;
use crate::{Error, Expiry, Patience, keys, string};

type Field = &'static str;
type Model = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Debug)]
enum Op {
    Set(Vec<(Field, Field)>),
    Insert(Field, Field),
    Extend(Field, Field),
    Remove(Vec<Field>),
    Delete,
}

#[derive(Clone, Debug)]
enum Step {
    Run { hash: usize, op: Op, undone: bool },
    Commit,
    Compact,
}

fn field() -> impl Strategy<Value = Field> {
    prop_oneof![
        Just(""),
        Just("a"),
        Just("aa"),
        Just("b"),
        Just("\0"),
        Just("z\u{ff}")
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let op = prop_oneof![
        3 => vec((field(), field()), 1..5).prop_map(Op::Set),
        1 => (field(), field()).prop_map(|(field, value)| Op::Insert(field, value)),
        1 => (field(), field()).prop_map(|(field, value)| Op::Extend(field, value)),
        3 => vec(field(), 1..5).prop_map(Op::Remove),
        1 => Just(Op::Delete),
    ];
    prop_oneof![
        30 => (0..2usize, op, prop::bool::weighted(0.1))
            .prop_map(|(hash, op, undone)| Step::Run { hash, op, undone }),
        8 => Just(Step::Commit),
        1 => Just(Step::Compact),
    ]
}

/// Runs an operation on both sides and compares what it returns.
fn run(txn: &mut WriteTxn, name: &[u8], op: &Op, model: &mut Model) {
    let mut hash = Hash::open(txn, name).unwrap();
    match op {
        Op::Set(pairs) => {
            for (field, value) in pairs {
                let is_new = model.insert(field.as_bytes().to_vec(), value.as_bytes().to_vec());
                let set = hash.set(txn, field.as_bytes(), value.as_bytes());
                assert_eq!(set.unwrap(), is_new.is_none());
            }
        }
        Op::Insert(field, value) => {
            let is_new = !model.contains_key(field.as_bytes());
            let inserted = hash.insert(txn, field.as_bytes(), value.as_bytes());
            assert_eq!(inserted.unwrap(), is_new);
            let entry = model.entry(field.as_bytes().to_vec());
            entry.or_insert(value.as_bytes().to_vec());
        }
        Op::Extend(field, more) => {
            let extend = |old: Option<&[u8]>| Ok([old.unwrap_or(b"+"), more.as_bytes()].concat());
            let before = model.get(field.as_bytes());
            let after = extend(before.map(Vec::as_slice)).unwrap();
            hash.update(txn, field.as_bytes(), extend).unwrap();
            model.insert(field.as_bytes().to_vec(), after);
        }
        Op::Remove(fields) => {
            for field in fields {
                let was_there = model.remove(field.as_bytes()).is_some();
                assert_eq!(hash.remove(txn, field.as_bytes()).unwrap(), was_there);
            }
        }
        Op::Delete => {
            assert_eq!(keys::delete(txn, name).unwrap(), !model.is_empty());
            model.clear();
            return;
        }
    }
    hash.save(txn);
}

fn check(txn: &ReadTxn, name: &[u8], model: &Model) {
    let hash = Hash::open(txn, name).unwrap();
    assert_eq!(hash.exists(), !model.is_empty());
    assert_eq!(hash.len(txn).unwrap(), model.len() as u64);
    let mut rows = hash.rows(txn).unwrap();
    let mut found = Model::new();
    while let Some(row) = rows.next().unwrap() {
        found.insert(hash.field_of(row.row_key).to_vec(), row.value.to_vec());
    }
    assert_eq!(&found, model);

    let wanted: [&[u8]; 5] = [b"b", b"", b"absent", b"a", b"b"];
    let mut values = hash.values(txn, &wanted).unwrap();
    for field in wanted {
        let expected = model.get(field).map(Vec::as_slice);
        assert_eq!(hash.get(txn, field).unwrap().as_deref(), expected);
        assert_eq!(values.next().unwrap(), Some(expected));
    }
    assert!(values.next().unwrap().is_none());
}

#[test]
fn a_hash_does_what_a_map_does() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(directory.path());
    let mut runner = TestRunner::new(Config {
        cases: 200,
        failure_persistence: None,
        ..Config::default()
    });
    let case = Cell::new(0);
    let outcome = runner.run(&vec(step(), 1..80), |steps| {
        case.set(case.get() + 1);
        let names = [0, 1].map(|hash| format!("{}:{hash}", case.get()).into_bytes());
        let mut models = [Model::new(), Model::new()];
        let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
        for step in &steps {
            match step {
                Step::Run { hash, op, undone } => {
                    txn.begin(0);
                    let before = undone.then(|| models[*hash].clone());
                    run(&mut txn, &names[*hash], op, &mut models[*hash]);
                    if let Some(before) = before {
                        txn.undo();
                        models[*hash] = before;
                    }
                }
                Step::Commit => store.commit_blocking(&mut txn).unwrap(),
                Step::Compact => store.engine().compact().unwrap(),
            }
            for (name, model) in names.iter().zip(&models) {
                check(&txn, name, model);
            }
        }
        Ok(())
    });
    outcome.unwrap();
}

#[test]
fn a_change_that_fails_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(directory.path());
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
    let mut hash = Hash::open(&txn, b"k").unwrap();
    let refused = hash.update(&mut txn, b"f", |_| Err(Error::NOT_INTEGER));
    assert!(refused.is_err());
    assert_eq!(hash.len(&txn).unwrap(), 0);
    assert!(txn.is_clean());
}

#[test]
fn a_hash_is_no_string_and_keeps_its_expiry() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(directory.path());
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
    string::set(&mut txn, b"s", b"v", Expiry::Never).unwrap();
    assert!(matches!(Hash::open(&txn, b"s"), Err(Error::Reply(_))));

    let mut hash = Hash::open(&txn, b"k").unwrap();
    hash.set(&mut txn, b"f", b"v").unwrap();
    hash.save(&mut txn);
    let at_ms = txn.now_ms() + 100_000;
    keys::set_expiry(&mut txn, b"k", at_ms).unwrap();
    store.commit_blocking(&mut txn).unwrap();

    let mut hash = Hash::open(&txn, b"k").unwrap();
    hash.set(&mut txn, b"g", b"v").unwrap();
    hash.save(&mut txn);
    assert_eq!(keys::expiry_of(&txn, b"k").unwrap(), Some(at_ms));

    let mut hash = Hash::open(&txn, b"k").unwrap();
    for field in [b"f", b"g"] {
        assert!(hash.remove(&mut txn, field).unwrap());
    }
    hash.save(&mut txn);
    store.commit_blocking(&mut txn).unwrap();
    let expiry_row = txn.key(b"k").expiry(at_ms);
    assert!(!txn.has_row(Family::Expiry, &expiry_row).unwrap());
}
