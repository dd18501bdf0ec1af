#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use cairn_engine::{Direction, ManualTime};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::*;
use crate::{Error, Hash, Patience, Store, StoreOptions, keys, legacy, testing};

const START_MS: u64 = 1_700_000_000_000;

fn open_store(path: &Path) -> (Arc<Store>, Arc<ManualTime>) {
    let time = Arc::new(ManualTime::at_millis(START_MS));
    let options = StoreOptions {
        time: Box::new(time.clone()),
        ..testing::options()
    };
    (Store::open(path, options).unwrap(), time)
}

/// Bytes without a period that a misplaced chunk could hide in.
fn text(length: usize, seed: u8) -> Vec<u8> {
    let byte = |at: usize| (at * 31 + at / 251 + usize::from(seed)) as u8;
    (0..length).map(byte).collect()
}

fn value_of(txn: &ReadTxn, name: &[u8]) -> Option<Vec<u8>> {
    let string = Str::find(txn, name).unwrap()?;
    Some(string.to_vec(txn).unwrap())
}

/// The chunks that are stored, by number.
fn chunks_of(txn: &ReadTxn, name: &[u8]) -> BTreeMap<u32, usize> {
    let key = txn.key(name);
    let version = txn.find(&key).unwrap().unwrap().version().unwrap();
    let (lower, upper) = key.version_range(version);
    let mut rows = txn
        .rows(Family::Data, &lower, &upper, Direction::Forward)
        .unwrap();
    let mut chunks = BTreeMap::new();
    while let Some((row_key, chunk)) = rows.next().unwrap() {
        let sub = cairn_encoding::chunk::decode_chunk_sub(key.sub_of(row_key));
        chunks.insert(sub.unwrap(), chunk.len());
    }
    chunks
}

#[derive(Clone, Debug)]
enum Op {
    Set { length: usize, expiry: Expiry },
    Replace(usize),
    Append(usize),
    WriteAt { offset: u64, length: usize },
    Expire(u64),
    Delete,
    BecomeHash,
}

#[derive(Clone, Debug)]
enum Step {
    Run {
        key: usize,
        op: Op,
        seed: u8,
        undone: bool,
    },
    Wait(u64),
    Commit,
    Compact,
}

fn step() -> impl Strategy<Value = Step> {
    let length = || {
        prop_oneof![
            3 => 0..40usize,
            2 => CHUNK_SIZE - 2..CHUNK_SIZE + 3,
            1 => 2 * CHUNK_SIZE - 2..3 * CHUNK_SIZE + 3,
        ]
    };
    let expiry = prop_oneof![
        Just(Expiry::Never),
        Just(Expiry::Keep),
        (START_MS - 50..START_MS + 300).prop_map(Expiry::At),
    ];
    let op = prop_oneof![
        3 => (length(), expiry).prop_map(|(length, expiry)| Op::Set { length, expiry }),
        1 => length().prop_map(Op::Replace),
        3 => length().prop_map(Op::Append),
        3 => (length(), length()).prop_map(|(offset, length)| Op::WriteAt {
            offset: offset as u64,
            length,
        }),
        1 => prop_oneof![Just(0), START_MS..START_MS + 300].prop_map(Op::Expire),
        1 => Just(Op::Delete),
        1 => Just(Op::BecomeHash),
    ];
    prop_oneof![
        30 => (0..3usize, op, any::<u8>(), prop::bool::weighted(0.1)).prop_map(
            |(key, op, seed, undone)| Step::Run { key, op, seed, undone }
        ),
        3 => (1..40u64).prop_map(Step::Wait),
        8 => Just(Step::Commit),
        1 => Just(Step::Compact),
    ]
}

/// A key as a plain value: its bytes, `None` for a hash, and its expiry.
type Model = BTreeMap<Vec<u8>, (Option<Vec<u8>>, u64)>;

fn forget_expired(model: &mut Model, now_ms: u64) {
    model.retain(|_, (_, expire_ms)| *expire_ms == 0 || now_ms <= *expire_ms);
}

fn run(txn: &mut WriteTxn, name: &[u8], op: &Op, seed: u8, model: &mut Model) {
    let before = model.get(name).cloned();
    let kept = before.as_ref().map_or(0, |(_, expire_ms)| *expire_ms);
    let is_hash = matches!(before, Some((None, _)));
    let old = before.and_then(|(value, _)| value);
    match op {
        Op::Set { length, expiry } => {
            let value = text(*length, seed);
            set(txn, name, &value, *expiry).unwrap();
            let expire_ms = match expiry {
                Expiry::Never => 0,
                Expiry::At(at_ms) => *at_ms,
                Expiry::Keep => kept,
            };
            model.insert(name.to_vec(), (Some(value), expire_ms));
        }
        Op::Delete => {
            assert_eq!(
                keys::delete(txn, name).unwrap(),
                model.remove(name).is_some()
            );
        }
        Op::BecomeHash => {
            keys::delete(txn, name).unwrap();
            let mut hash = Hash::open(txn, name).unwrap();
            hash.set(txn, b"field", &text(3, seed)).unwrap();
            hash.save(txn);
            model.insert(name.to_vec(), (None, 0));
        }
        Op::Expire(at_ms) => {
            keys::set_expiry(txn, name, *at_ms).unwrap();
            if let Some((_, expire_ms)) = model.get_mut(name) {
                *expire_ms = *at_ms;
            }
        }
        Op::Replace(_) | Op::Append(_) | Op::WriteAt { .. } if is_hash => {
            let refused = Edit::open(txn, name).err().unwrap();
            assert!(matches!(refused, Error::Reply(_)));
        }
        Op::Replace(_) | Op::Append(_) | Op::WriteAt { .. } => {
            let edit = Edit::open(txn, name).unwrap();
            assert_eq!(edit.exists(), old.is_some());
            let mut value = old.unwrap_or_default();
            assert_eq!(edit.len(), value.len() as u64);
            change(txn, edit, op, seed, &mut value);
            model.insert(name.to_vec(), (Some(value), kept));
        }
    }
}

fn change(txn: &mut WriteTxn, edit: Edit, op: &Op, seed: u8, value: &mut Vec<u8>) {
    match op {
        Op::Replace(length) => {
            *value = text(*length, seed);
            edit.replace(txn, value).unwrap();
        }
        Op::Append(length) => {
            let bytes = text(*length, seed);
            value.extend_from_slice(&bytes);
            let new_length = edit.append(txn, &bytes).unwrap();
            assert_eq!(new_length, value.len() as u64);
        }
        Op::WriteAt { offset, length } => {
            let bytes = text(*length, seed);
            let (from, to) = (*offset as usize, *offset as usize + length);
            value.resize(value.len().max(to), 0);
            value[from..to].copy_from_slice(&bytes);
            let new_length = edit.write_at(txn, *offset, &bytes).unwrap();
            assert_eq!(new_length, value.len() as u64);
        }
        _ => unreachable!("the others are no edits"),
    }
}

fn check(txn: &ReadTxn, name: &[u8], expected: Option<&(Option<Vec<u8>>, u64)>) {
    let string = Str::find_only(txn, name).unwrap();
    let Some((Some(value), expire_ms)) = expected else {
        assert!(string.is_none());
        return;
    };
    let string = string.unwrap();
    assert_eq!(string.len(), value.len() as u64);
    assert!(string.to_vec(txn).unwrap() == *value, "another value");
    assert_eq!(string.stamp().expire_ms, *expire_ms);
    if *expire_ms != 0 {
        assert!(
            txn.has_row(Family::Expiry, &txn.key(name).expiry(*expire_ms))
                .unwrap()
        );
    }
    let third = value.len() / 3;
    let part = third..value.len() - third;
    let read = string.range(txn, part.start as u64, part.end as u64);
    assert!(read.unwrap() == value[part], "another part");
    assert_eq!(string.inline().is_some(), string.stamp_is_inline());
    if string.inline().is_none() {
        for (number, length) in chunks_of(txn, name) {
            let end = u64::from(number) * CHUNK_SIZE as u64 + length as u64;
            assert!(length <= CHUNK_SIZE && end <= string.len());
        }
    }
}

impl Str<'_> {
    fn stamp_is_inline(&self) -> bool {
        matches!(self.stamp().shape, Shape::Inline { .. })
    }
}

/// Reads all keys, the first one twice, by one pair of walks.
fn read_many(txn: &ReadTxn, names: &[Vec<u8>]) -> Vec<Option<Vec<u8>>> {
    let mut wanted: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
    wanted.push(&names[0]);
    let mut strings = Strings::open(txn, &wanted).unwrap();
    let mut values = Vec::new();
    assert_eq!(strings.len(), wanted.len());
    while let Some(next) = strings.next().unwrap() {
        let mut value = Vec::new();
        match next {
            Next::Nothing => {
                values.push(None);
                continue;
            }
            Next::Value(bytes) => value.extend_from_slice(bytes),
            Next::Large(length) => {
                while strings.append_chunk(&mut value).unwrap() {}
                assert_eq!(value.len() as u64, length);
            }
        }
        values.push(Some(value));
    }
    values
}

#[test]
fn a_string_does_what_a_byte_array_does() {
    let directory = tempfile::tempdir().unwrap();
    let (store, time) = open_store(directory.path());
    let mut runner = TestRunner::new(Config {
        cases: 150,
        failure_persistence: None,
        ..Config::default()
    });
    let case = Cell::new(0);
    let outcome = runner.run(&vec(step(), 1..60), |steps| {
        case.set(case.get() + 1);
        let names: Vec<Vec<u8>> = (0..3)
            .map(|key| format!("{}:{key}", case.get()).into_bytes())
            .collect();
        let mut model = Model::new();
        let mut now_ms = store.clock().now_ms();
        let started_ms = now_ms;
        let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
        for step in &steps {
            match step {
                Step::Run {
                    key,
                    op,
                    seed,
                    undone,
                } => {
                    txn.begin(0);
                    let before = undone.then(|| model.clone());
                    let op = moved(op, started_ms);
                    run(&mut txn, &names[*key], &op, *seed, &mut model);
                    if let Some(before) = before {
                        txn.undo();
                        model = before;
                    }
                }
                Step::Wait(ms) => {
                    now_ms += ms;
                    time.set_millis(now_ms);
                    txn.begin(0);
                }
                Step::Commit => store.commit_blocking(&mut txn).unwrap(),
                Step::Compact => store.engine().compact().unwrap(),
            }
            forget_expired(&mut model, now_ms);
            for name in &names {
                check(&txn, name, model.get(name));
            }
            let mut expected: Vec<Option<Vec<u8>>> = names
                .iter()
                .map(|name| model.get(name).and_then(|(value, _)| value.clone()))
                .collect();
            expected.push(expected[0].clone());
            assert!(read_many(&txn, &names) == expected, "MGET differs");
        }
        Ok(())
    });
    outcome.unwrap();
}

/// The same operation with its times counted from another start.
fn moved(op: &Op, started_ms: u64) -> Op {
    let shift = |at_ms: u64| at_ms + started_ms - START_MS;
    match op {
        Op::Set {
            length,
            expiry: Expiry::At(at_ms),
        } => Op::Set {
            length: *length,
            expiry: Expiry::At(shift(*at_ms)),
        },
        Op::Expire(at_ms) if *at_ms != 0 => Op::Expire(shift(*at_ms)),
        other => other.clone(),
    }
}

#[test]
fn a_plain_set_writes_one_row_and_reads_none() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open_store(directory.path());
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
    let at_ms = START_MS + 1000;
    set(&mut txn, b"k", b"old", Expiry::At(at_ms)).unwrap();
    store.commit_blocking(&mut txn).unwrap();
    set(&mut txn, b"k", b"new", Expiry::Never).unwrap();
    // Had it looked, it would have dropped the old expiry row.
    let changed: Vec<Family> = txn.pending().changes().map(|(family, ..)| family).collect();
    assert_eq!(changed, [Family::Metadata]);
    assert_eq!(
        keys::expiry_of(&txn, b"k").unwrap(),
        Some(0),
        "it never expires"
    );
}

#[test]
fn writes_touch_only_the_chunks_they_fall_into() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open_store(directory.path());
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
    let far = 500 * 1024 * 1024;
    let edit = Edit::open(&txn, b"k").unwrap();
    assert_eq!(edit.write_at(&mut txn, far, b"end").unwrap(), far + 3);
    assert_eq!(chunks_of(&txn, b"k"), BTreeMap::from([(32_000, 3)]));
    store.commit_blocking(&mut txn).unwrap();

    Edit::open(&txn, b"k")
        .unwrap()
        .append(&mut txn, b"less")
        .unwrap();
    let rows = txn
        .pending()
        .changes()
        .filter(|(family, ..)| *family == Family::Data);
    assert_eq!(rows.count(), 1);
    let string = Str::find(&txn, b"k").unwrap().unwrap();
    assert_eq!(
        string.range(&txn, far - 2, far + 7).unwrap(),
        b"\0\0endless"
    );
}

#[test]
fn a_large_value_is_written_ahead_and_never_half_visible() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open_store(directory.path());
    let value = text(20 * 1024 * 1024, 7);
    let mut hasty = WriteTxn::new(store.clone(), store.home().clone(), Patience::Short);
    let refused = set(&mut hasty, b"k", &value, Expiry::Never);
    assert!(matches!(refused, Err(Error::TooLong)));

    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
    set(&mut txn, b"k", &value, Expiry::Never).unwrap();
    assert!(txn.pending().bytes() < 6 * 1024 * 1024);
    let other = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
    assert!(value_of(&other, b"k").is_none());
    store.commit_blocking(&mut txn).unwrap();
    store.engine().compact().unwrap();
    assert!(value_of(&txn, b"k").unwrap() == value);

    let edit = Edit::open(&txn, b"k").unwrap();
    let large = text(5 * 1024 * 1024, 9);
    let refused = edit.append(
        &mut WriteTxn::new(store.clone(), store.home().clone(), Patience::Short),
        &large,
    );
    assert!(matches!(refused, Err(Error::TooLong)));
}

#[test]
fn a_reader_that_left_its_transaction_sees_the_value_it_started_with() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open_store(directory.path());
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
    let value = text(5 * CHUNK_SIZE, 1);
    set(&mut txn, b"k", &value, Expiry::Never).unwrap();
    store.commit_blocking(&mut txn).unwrap();

    let string = Str::find(&txn, b"k").unwrap().unwrap();
    let mut chunks = string.chunks(&txn).unwrap().unwrap();
    let mut strings = Strings::open(&txn, &[b"k"]).unwrap();
    drop(string);
    set(&mut txn, b"k", b"small", Expiry::Never).unwrap();
    store.commit_blocking(&mut txn).unwrap();
    store.engine().compact().unwrap();
    let mut read = Vec::new();
    while chunks.append_next(&mut read).unwrap() {}
    assert!(read == value);
    assert_eq!(
        strings.next().unwrap().unwrap(),
        Next::Large(value.len() as u64)
    );
    let mut read = Vec::new();
    while strings.append_chunk(&mut read).unwrap() {}
    assert!(read == value);
}

#[test]
fn what_is_not_stored_is_passed_over_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open_store(directory.path());
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
    let chunk = CHUNK_SIZE as u64;
    // Chunks 0, 5 and 6 of ten, and a last one of which there is nothing.
    for at in [3, 5 * chunk + 7, 6 * chunk] {
        let edit = Edit::open(&txn, b"k").unwrap();
        edit.write_at(&mut txn, at, b"x").unwrap();
    }
    let edit = Edit::open(&txn, b"k").unwrap();
    edit.write_at(&mut txn, 9 * chunk + 10, b"x").unwrap();
    store.commit_blocking(&mut txn).unwrap();
    let string = Str::find(&txn, b"k").unwrap().unwrap();
    let read = |range: std::ops::Range<u64>| {
        let mut chunks = string.section(&txn, range).unwrap().unwrap();
        let mut pieces = Vec::new();
        loop {
            let gap = chunks.pass_gap().unwrap();
            let mut piece = Vec::new();
            let has_more = chunks.append_next(&mut piece).unwrap();
            let ones = piece.iter().filter(|byte| **byte == b'x').count();
            pieces.push((gap, piece.len() as u64, ones));
            if !has_more {
                return pieces;
            }
        }
    };
    let whole = [
        (0, chunk, 1),
        (4 * chunk, chunk, 1),
        (0, chunk, 1),
        (2 * chunk, 11, 1),
        (0, 0, 0),
    ];
    assert_eq!(read(0..9 * chunk + 11), whole);
    assert_eq!(read(2 * chunk + 5..3 * chunk), [(chunk - 5, 0, 0)]);
    let part = [(chunk, 8, 1), (0, 0, 0)];
    assert_eq!(read(4 * chunk..5 * chunk + 8), part);
    assert_eq!(read(8 * chunk + 1..9 * chunk), [(chunk - 1, 0, 0)]);
}

#[test]
fn strings_of_the_old_format_are_read_and_moved_with_their_expiry() {
    let directory = tempfile::tempdir().unwrap();
    let at_ms = START_MS + 1000;
    {
        let (store, _) = open_store(directory.path());
        let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
        for name in [b"a", b"b", b"c"] {
            legacy::write_legacy(&mut txn, name, b"old", at_ms);
        }
        legacy::write_legacy(&mut txn, b"d", b"gone", START_MS - 1);
        store.commit_blocking(&mut txn).unwrap();
    }
    let (store, _) = open_store(directory.path());
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
    let names = [b"a", b"b", b"c", b"d"].map(|name| name.to_vec());
    let old = || Some(b"old".to_vec());
    let expected = [old(), old(), old(), None, old()];
    assert_eq!(read_many(&txn, &names), expected);

    Edit::open(&txn, b"a")
        .unwrap()
        .append(&mut txn, b"er")
        .unwrap();
    set(&mut txn, b"b", b"new", Expiry::Keep).unwrap();
    set(&mut txn, b"c", b"new", Expiry::At(at_ms)).unwrap();
    store.commit_blocking(&mut txn).unwrap();
    for (name, value) in [(b"a", &b"older"[..]), (b"b", b"new"), (b"c", b"new")] {
        check(&txn, name, Some(&(Some(value.to_vec()), at_ms)));
        let stamp = Str::find(&txn, name).unwrap().unwrap().stamp();
        assert!(!stamp.is_legacy);
    }
}
