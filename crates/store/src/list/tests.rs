#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::edit::Edit;
use super::*;
use crate::testing::open_store;
use crate::{Patience, Store};

fn elements(txn: &ReadTxn, name: &[u8]) -> Vec<Vec<u8>> {
    let list = List::open(txn, name).unwrap();
    let mut rows = list.rows(txn, 0..list.len(), Direction::Forward).unwrap();
    let mut elements = Vec::new();
    while let Some((_, element)) = rows.next().unwrap() {
        elements.push(element.to_vec());
    }
    elements
}

fn texts(txn: &ReadTxn, name: &[u8]) -> String {
    let elements = elements(txn, name);
    let texts: Vec<_> = elements
        .iter()
        .map(|e| String::from_utf8_lossy(e))
        .collect();
    texts.join(" ")
}

fn version_of(txn: &ReadTxn, name: &[u8]) -> Option<u64> {
    txn.find(&txn.key(name)).unwrap()?.version()
}

fn push_all(txn: &mut WriteTxn, name: &[u8], elements: &str) {
    let mut list = List::open(txn, name).unwrap();
    for element in elements.split(' ') {
        list.push(txn, End::Right, element.as_bytes());
    }
    list.save(txn);
}

#[derive(Clone, Debug)]
enum Op {
    Push(End, Vec<&'static str>),
    Pop(End),
    PopSeveral(End, u64),
    Set(usize, &'static str),
    Trim(usize, usize),
    Insert {
        pivot: &'static str,
        place: Place,
        element: &'static str,
        copies: bool,
    },
    Remove {
        element: &'static str,
        from: End,
        limit: u64,
        copies: bool,
    },
    Move(End, End),
}

/// A step over one of two lists: an operation, which may be undone, or what happens between commands.
#[derive(Clone, Debug)]
enum Step {
    Run { list: usize, op: Op, undone: bool },
    Commit,
    Compact,
}

fn step() -> impl Strategy<Value = Step> {
    let element = || prop_oneof![Just("a"), Just("b"), Just("c"), Just("")];
    let end = || prop_oneof![Just(End::Left), Just(End::Right)];
    let place = prop_oneof![Just(Place::Before), Just(Place::After)];
    let op = prop_oneof![
        4 => (end(), vec(element(), 1..6)).prop_map(|(end, elements)| Op::Push(end, elements)),
        2 => end().prop_map(Op::Pop),
        1 => (end(), 0..8u64).prop_map(|(end, count)| Op::PopSeveral(end, count)),
        1 => (any::<usize>(), element()).prop_map(|(at, element)| Op::Set(at, element)),
        1 => (0..6usize, 0..6usize).prop_map(|(left, right)| Op::Trim(left, right)),
        2 => (element(), place, element(), any::<bool>()).prop_map(
            |(pivot, place, element, copies)| Op::Insert { pivot, place, element, copies }
        ),
        2 => (element(), end(), prop_oneof![1..4u64, Just(u64::MAX)], any::<bool>()).prop_map(
            |(element, from, limit, copies)| Op::Remove { element, from, limit, copies }
        ),
        1 => (end(), end()).prop_map(|(from, to)| Op::Move(from, to)),
    ];
    prop_oneof![
        40 => (0..2usize, op, prop::bool::weighted(0.1))
            .prop_map(|(list, op, undone)| Step::Run { list, op, undone }),
        8 => Just(Step::Commit),
        1 => Just(Step::Compact),
    ]
}

type Model = [VecDeque<Vec<u8>>; 2];

fn push_to(model: &mut VecDeque<Vec<u8>>, end: End, element: &[u8]) {
    match end {
        End::Left => model.push_front(element.to_vec()),
        End::Right => model.push_back(element.to_vec()),
    }
}

fn pop_from(model: &mut VecDeque<Vec<u8>>, end: End) -> Option<Vec<u8>> {
    match end {
        End::Left => model.pop_front(),
        End::Right => model.pop_back(),
    }
}

/// Removes as the words say: one after the other, from an end.
fn remove_from(model: &mut VecDeque<Vec<u8>>, element: &[u8], from: End, limit: u64) -> u64 {
    let mut removed = 0;
    while removed < limit {
        let mut positions = 0..model.len();
        let found = match from {
            End::Left => positions.find(|&at| model[at] == element),
            End::Right => positions.rfind(|&at| model[at] == element),
        };
        let Some(at) = found else { break };
        model.remove(at);
        removed += 1;
    }
    removed
}

/// Runs an operation on both sides and compares what it returns.
fn run(txn: &mut WriteTxn, names: &[Vec<u8>; 2], at: usize, op: &Op, model: &mut Model) {
    let mut list = List::open(txn, &names[at]).unwrap();
    let expected = &mut model[at];
    match op {
        Op::Push(end, elements) => {
            for element in elements {
                list.push(txn, *end, element.as_bytes());
                push_to(expected, *end, element.as_bytes());
            }
        }
        Op::Pop(end) => {
            let popped = list.pop(txn, *end).unwrap();
            assert_eq!(popped.as_deref(), pop_from(expected, *end).as_deref());
        }
        Op::PopSeveral(end, count) => {
            list.drop_outermost(*end, *count);
            for _ in 0..*count {
                pop_from(expected, *end);
            }
        }
        Op::Set(position, element) if !expected.is_empty() => {
            let position = position % expected.len();
            assert_eq!(
                &*list.get(txn, position as u64).unwrap(),
                expected[position]
            );
            list.set(txn, position as u64, element.as_bytes());
            expected[position] = element.as_bytes().to_vec();
        }
        Op::Set(..) => {}
        Op::Trim(left, right) => {
            let left = *left.min(&expected.len());
            let kept = left..expected.len().saturating_sub(*right).max(left);
            list.trim(kept.start as u64..kept.end as u64);
            *expected = expected.range(kept).cloned().collect();
        }
        Op::Insert {
            pivot,
            place,
            element,
            copies,
        } => {
            let (pivot, element) = (pivot.as_bytes(), element.as_bytes());
            let found = expected.iter().position(|other| other == pivot);
            match found {
                Some(pivot) if *copies => {
                    let edit = Edit::Insert {
                        pivot: pivot as u64,
                        place: *place,
                        element,
                    };
                    list.edit(txn, &edit, 0).unwrap();
                }
                _ => {
                    let inserted = list.insert(txn, pivot, *place, element).unwrap();
                    assert_eq!(inserted, found.is_some());
                }
            }
            if let Some(pivot) = found {
                let at = pivot + usize::from(*place == Place::After);
                expected.insert(at, element.to_vec());
            }
        }
        Op::Remove {
            element,
            from,
            limit,
            copies,
        } => {
            let element = element.as_bytes();
            let removed = if *copies {
                let (span, count) = list.span_of(txn, element, *from, *limit).unwrap();
                if count > 0 {
                    list.edit(txn, &Edit::Remove { span, element }, 0).unwrap();
                }
                count
            } else {
                list.remove(txn, element, *from, *limit).unwrap()
            };
            assert_eq!(removed, remove_from(expected, element, *from, *limit));
        }
        Op::Move(from, to) => {
            let popped = list.pop(txn, *from).unwrap();
            assert_eq!(popped.as_deref(), pop_from(expected, *from).as_deref());
            if let Some(element) = popped {
                let mut other = List::open(txn, &names[1 - at]).unwrap();
                other.push(txn, *to, &element);
                other.save(txn);
                push_to(&mut model[1 - at], *to, &element);
            }
        }
    }
    list.save(txn);
}

fn check(txn: &ReadTxn, name: &[u8], model: &VecDeque<Vec<u8>>) {
    assert_eq!(model, &elements(txn, name));
    match txn.find(&txn.key(name)).unwrap().map(|found| found.shape) {
        None => assert!(model.is_empty()),
        Some(Shape::List {
            size, head, tail, ..
        }) => {
            assert!(size > 0);
            assert_eq!(size, tail - head);
        }
        Some(other) => panic!("{other:?}"),
    }
}

#[test]
fn a_list_does_what_a_deque_does() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(directory.path());
    let mut runner = TestRunner::new(Config {
        cases: 200,
        failure_persistence: None,
        ..Config::default()
    });
    let case = std::cell::Cell::new(0);
    let outcome = runner.run(&vec(step(), 1..80), |steps| {
        case.set(case.get() + 1);
        let names = [0, 1].map(|list| format!("{}:{list}", case.get()).into_bytes());
        let mut model = Model::default();
        let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
        for step in &steps {
            match step {
                Step::Run { list, op, undone } => {
                    txn.begin(0);
                    let before = undone.then(|| model.clone());
                    run(&mut txn, &names, *list, op, &mut model);
                    if let Some(before) = before {
                        txn.undo();
                        model = before;
                    }
                }
                Step::Commit => store.commit_blocking(&mut txn).unwrap(),
                Step::Compact => store.engine().compact().unwrap(),
            }
            for (name, model) in names.iter().zip(&model) {
                check(&txn, name, model);
            }
        }
        Ok(())
    });
    outcome.unwrap();
}

#[test]
fn popping_and_trimming_write_the_metadata_only() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(directory.path());
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
    push_all(&mut txn, b"k", "a b c d e f");
    store.commit_blocking(&mut txn).unwrap();

    let mut list = List::open(&txn, b"k").unwrap();
    assert_eq!(*list.pop(&txn, End::Left).unwrap().unwrap(), *b"a");
    assert_eq!(*list.pop(&txn, End::Right).unwrap().unwrap(), *b"f");
    list.trim(1..3);
    list.save(&mut txn);
    let changed: Vec<Family> = txn.pending().changes().map(|(family, ..)| family).collect();
    assert_eq!(changed, [Family::Metadata]);
    assert_eq!(texts(&txn, b"k"), "c d");

    store.commit_blocking(&mut txn).unwrap();
    store.engine().compact().unwrap();
    let dropped = &store.engine().filter_counters().cut_off;
    assert_eq!(dropped.load(Ordering::Relaxed), 4);
    assert_eq!(texts(&txn, b"k"), "c d");
    push_all(&mut txn, b"k", "E F");
    assert_eq!(texts(&txn, b"k"), "c d E F");
}

#[test]
fn the_shorter_side_moves() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(directory.path());
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
    push_all(&mut txn, b"k", "a b c d e f g h");
    store.commit_blocking(&mut txn).unwrap();
    let rows_written = |txn: &WriteTxn| {
        let changes = txn.pending().changes();
        changes
            .filter(|(family, ..)| *family == Family::Data)
            .count()
    };

    let mut list = List::open(&txn, b"k").unwrap();
    assert!(list.insert(&mut txn, b"b", Place::After, b"B").unwrap());
    list.save(&mut txn);
    assert_eq!(texts(&txn, b"k"), "a b B c d e f g h");
    assert_eq!(rows_written(&txn), 3);
    store.commit_blocking(&mut txn).unwrap();

    let mut list = List::open(&txn, b"k").unwrap();
    assert_eq!(list.remove(&mut txn, b"f", End::Left, 1).unwrap(), 1);
    list.save(&mut txn);
    assert_eq!(texts(&txn, b"k"), "a b B c d e g h");
    assert_eq!(rows_written(&txn), 2);
    store.commit_blocking(&mut txn).unwrap();

    let mut list = List::open(&txn, b"k").unwrap();
    assert_eq!(list.remove(&mut txn, b"a", End::Left, u64::MAX).unwrap(), 1);
    list.save(&mut txn);
    assert_eq!(rows_written(&txn), 0);
    assert_eq!(texts(&txn, b"k"), "b B c d e g h");
}

#[test]
fn a_side_too_long_to_move_makes_a_copy_and_keeps_the_expiry() {
    const LENGTH: u64 = 4000;
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(directory.path());
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
    let filler = "x".repeat(3000);
    let mut list = List::open(&txn, b"k").unwrap();
    for number in 0..LENGTH {
        list.push(&mut txn, End::Right, format!("{number}{filler}").as_bytes());
    }
    list.expire_ms = txn.now_ms() + 1_000_000;
    list.save(&mut txn);
    store.commit_blocking(&mut txn).unwrap();
    let before = version_of(&txn, b"k").unwrap();

    let pivot = format!("{}{filler}", LENGTH / 2);
    let mut list = List::open(&txn, b"k").unwrap();
    assert!(
        list.insert(&mut txn, pivot.as_bytes(), Place::Before, b"new")
            .unwrap()
    );
    list.save(&mut txn);
    assert!(txn.pending().bytes() < 6 * 1024 * 1024);
    store.commit_blocking(&mut txn).unwrap();
    let inserted = version_of(&txn, b"k").unwrap();
    assert!(inserted > before);

    store.engine().compact().unwrap();
    let mut list = List::open(&txn, b"k").unwrap();
    assert_eq!(list.len(), LENGTH + 1);
    assert_eq!(&*list.get(&txn, LENGTH / 2).unwrap(), b"new");
    assert_eq!(&*list.get(&txn, LENGTH / 2 + 1).unwrap(), pivot.as_bytes());
    assert_eq!(
        list.remove(&mut txn, b"new", End::Right, u64::MAX).unwrap(),
        1
    );
    list.save(&mut txn);
    store.commit_blocking(&mut txn).unwrap();
    assert!(version_of(&txn, b"k").unwrap() > inserted);

    store.engine().compact().unwrap();
    let elements = elements(&txn, b"k");
    assert_eq!(elements.len() as u64, LENGTH);
    for (number, element) in elements.iter().enumerate() {
        assert_eq!(element, format!("{number}{filler}").as_bytes());
    }
    assert_ne!(txn.find(&txn.key(b"k")).unwrap().unwrap().expire_ms, 0);
}

#[test]
fn a_list_that_was_emptied_comes_back_as_another() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(directory.path());
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
    push_all(&mut txn, b"k", "a");
    let first = version_of(&txn, b"k").unwrap();
    let mut list = List::open(&txn, b"k").unwrap();
    assert_eq!(*list.pop(&txn, End::Left).unwrap().unwrap(), *b"a");
    assert!(list.pop(&txn, End::Left).unwrap().is_none());
    list.save(&mut txn);
    assert_eq!(version_of(&txn, b"k"), None);
    push_all(&mut txn, b"k", "b");
    assert!(version_of(&txn, b"k").unwrap() > first);
    assert_eq!(texts(&txn, b"k"), "b");
}

#[test]
fn a_list_that_turns_on_itself_stays_the_same_list() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(directory.path());
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
    push_all(&mut txn, b"k", "a");
    let version = version_of(&txn, b"k");
    let mut list = List::open(&txn, b"k").unwrap();
    let element = list.pop(&txn, End::Right).unwrap().unwrap();
    list.push(&mut txn, End::Left, &element);
    list.save(&mut txn);
    assert_eq!(version_of(&txn, b"k"), version);
    assert_eq!(texts(&txn, b"k"), "a");
}

#[test]
fn a_long_walk_is_refused_on_a_connection_thread() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(directory.path());
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Short);
    txn.begin(0);
    let mut list = List::open(&txn, b"k").unwrap();
    for _ in 0..30_000 {
        list.push(&mut txn, End::Right, b"x");
    }
    list.save(&mut txn);
    store.commit_blocking(&mut txn).unwrap();
    txn.begin(0);
    let mut list = List::open(&txn, b"k").unwrap();
    let outcome = list.remove(&mut txn, b"y", End::Left, 1);
    assert!(matches!(outcome, Err(crate::Error::TooLong)));
}

/// What LRANGE shows of a list that is read again and again, while others write to it.
#[test]
fn what_is_read_again_is_what_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(directory.path());
    let mut rng = fastrand::Rng::with_seed(7);
    let mut model: VecDeque<Vec<u8>> = VecDeque::new();
    let mut kept = 0;
    for round in 0..3000u32 {
        let mut txn = reader(&store);
        let mut list = List::open(&txn, b"k").unwrap();
        let element = format!("element {round}").into_bytes();
        match rng.u8(..12) {
            0 => {
                list.push(&mut txn, End::Left, &element);
                model.push_front(element);
            }
            1 => {
                list.push(&mut txn, End::Right, &element);
                model.push_back(element);
            }
            2 if model.len() > 40 => {
                list.pop(&txn, End::Left).unwrap();
                model.pop_front();
            }
            3 if model.len() > 40 => {
                list.pop(&txn, End::Right).unwrap();
                model.pop_back();
            }
            4 if !model.is_empty() => {
                let at = rng.usize(..model.len());
                list.set(&mut txn, at as u64, &element);
                model[at] = element;
            }
            5 if model.len() > 40 => {
                let at = rng.usize(..model.len());
                let removed = model.remove(at).unwrap();
                list.remove(&mut txn, &removed, End::Left, 1).unwrap();
            }
            _ => {}
        }
        // In the middle of a transaction, and after its commit, or after it was given up.
        check_part(&txn, &list, &model, &mut rng);
        if rng.u8(..8) == 0 {
            drop(txn);
            model = elements(&reader(&store), b"k").into();
        } else {
            list.save(&mut txn);
            store.commit_blocking(&mut txn).unwrap();
        }
        let txn = reader(&store);
        let list = List::open(&txn, b"k").unwrap();
        for _ in 0..3 {
            check_part(&txn, &list, &model, &mut rng);
        }
        let all = list.head..list.tail;
        let asked = store.excerpts().ask(&list.key, list.version, &all);
        kept += usize::from(matches!(asked, crate::excerpts::Asked::Found(_)));
    }
    assert!(kept > 300, "only {kept} were found again");
}

/// A transaction that has changed nothing.
fn reader(store: &Arc<Store>) -> WriteTxn {
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
    txn.begin(0);
    txn
}

/// Mostly all of the list, and now and then a part of it.
fn check_part(txn: &ReadTxn, list: &List, model: &VecDeque<Vec<u8>>, rng: &mut fastrand::Rng) {
    let len = model.len();
    let part = match rng.u8(..4) {
        0 if len > 0 => {
            let start = rng.usize(..len);
            start..rng.usize(start..=len)
        }
        _ => 0..len,
    };
    let mut shown = Vec::new();
    let positions = part.start as u64..part.end as u64;
    assert!(list.show_part(txn, positions, |element| shown.push(element.to_vec())));
    assert_eq!(shown, model.range(part).cloned().collect::<Vec<_>>());
}
