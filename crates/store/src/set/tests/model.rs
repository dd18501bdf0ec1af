//! Sets against sets in memory: random commands, several to a transaction, committed and undone at random.

use std::collections::BTreeSet;

use cairn_encoding::metadata::{CollectionKind, Type};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::super::*;
use super::{Bench, all_of, rows_of};
use crate::txn::Shape;
use crate::{Expiry, Patience, string};

type Members = BTreeSet<Vec<u8>>;

fn expected(operation: Operation, sets: &[&Members]) -> Members {
    let (first, others) = sets.split_first().unwrap();
    let mut result = (*first).clone();
    for other in others {
        match operation {
            Operation::Union => result.extend(other.iter().cloned()),
            Operation::Intersection => result.retain(|member| other.contains(member)),
            Operation::Difference => result.retain(|member| !other.contains(member)),
        }
    }
    result
}

#[derive(Clone, Debug)]
enum Op {
    Add(Vec<Vec<u8>>),
    Remove(Vec<Vec<u8>>),
    PopOne,
    PopOneByOne(u64),
    Pop { count: u64, handful: usize },
    Sample(u64),
    Repeats(u64),
    Combine(Operation, Vec<usize>),
    Store(Operation, Vec<usize>),
    BecomeString,
}

/// A step over some sets: an operation, which may be undone, or what happens between commands.
#[derive(Clone, Debug)]
enum Action {
    Run { at: usize, op: Op, undone: bool },
    Commit,
    Compact,
}

const SETS: usize = 4;

fn member() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        20 => (0..60u8).prop_map(|number| format!("{number:02}").into_bytes()),
        2 => (0..10u8).prop_map(|digit| vec![b'0' + digit]),
        1 => Just(Vec::new()),
        1 => Just(vec![0xff, 0xff]),
    ]
}

fn action() -> impl Strategy<Value = Action> {
    let operation = || {
        prop_oneof![
            Just(Operation::Union),
            Just(Operation::Intersection),
            Just(Operation::Difference),
        ]
    };
    let handful = prop_oneof![Just(0), Just(300), Just(usize::MAX)];
    let op = prop_oneof![
        6 => vec(member(), 1..30).prop_map(Op::Add),
        2 => vec(member(), 1..10).prop_map(Op::Remove),
        3 => Just(Op::PopOne),
        1 => (0..10u64).prop_map(Op::PopOneByOne),
        2 => (0..40u64, handful).prop_map(|(count, handful)| Op::Pop { count, handful }),
        1 => (0..40u64).prop_map(Op::Sample),
        1 => (1..40u64).prop_map(Op::Repeats),
        6 => (operation(), vec(0..SETS, 1..5)).prop_map(|(op, sets)| Op::Combine(op, sets)),
        2 => (operation(), vec(0..SETS, 1..5)).prop_map(|(op, sets)| Op::Store(op, sets)),
        1 => Just(Op::BecomeString),
    ];
    prop_oneof![
        40 => (0..SETS, op, prop::bool::weighted(0.1))
            .prop_map(|(at, op, undone)| Action::Run { at, op, undone }),
        8 => Just(Action::Commit),
        1 => Just(Action::Compact),
    ]
}

/// What the keys hold: a set, or nothing of the kind if it is none.
type Model = [Option<Members>; SETS];

/// Runs an operation on both sides and compares what it returns.
fn run(txn: &mut WriteTxn, names: &[Vec<u8>], at: usize, op: &Op, model: &mut Model) {
    let name = &names[at];
    match op {
        Op::Combine(operation, sources) => {
            let sources_names: Vec<&[u8]> = sources.iter().map(|&at| &*names[at]).collect();
            let selection = Selection::of(txn, *operation, &sources_names);
            match sets_of(model, sources) {
                None => assert!(selection.is_err()),
                Some(sets) => {
                    let members: Vec<_> = expected(*operation, &sets).into_iter().collect();
                    assert_eq!(all_of(selection.unwrap()), members);
                }
            }
            return;
        }
        Op::Store(operation, sources) => {
            let sources_names: Vec<&[u8]> = sources.iter().map(|&at| &*names[at]).collect();
            let stored = store(txn, *operation, name, &sources_names);
            match sets_of(model, sources) {
                None => assert!(stored.is_err()),
                Some(sets) => {
                    let members = expected(*operation, &sets);
                    assert_eq!(stored.unwrap(), members.len() as u64);
                    model[at] = Some(members);
                }
            }
            return;
        }
        Op::BecomeString => {
            string::set(txn, name, b"v", Expiry::Never).unwrap();
            model[at] = None;
            return;
        }
        _ => {}
    }
    let Some(members) = &mut model[at] else {
        assert!(Set::open(txn, name).is_err());
        return;
    };
    run_on_set(txn, name, op, members);
}

/// None if one of the keys holds something else.
fn sets_of<'m>(model: &'m Model, sources: &[usize]) -> Option<Vec<&'m Members>> {
    sources.iter().map(|&at| model[at].as_ref()).collect()
}

fn run_on_set(txn: &mut WriteTxn, name: &[u8], op: &Op, members: &mut Members) {
    let mut set = Set::open(txn, name).unwrap();
    match op {
        Op::Add(added) => {
            for member in added {
                assert_eq!(
                    set.add(txn, member).unwrap(),
                    members.insert(member.clone())
                );
            }
            set.save(txn);
        }
        Op::Remove(removed) => {
            for member in removed {
                assert_eq!(set.contains(txn, member).unwrap(), members.contains(member));
                assert_eq!(set.remove(txn, member).unwrap(), members.remove(member));
            }
            set.save(txn);
        }
        Op::PopOne => {
            let member = set.pop_one(txn).unwrap();
            assert_eq!(member.is_some(), !members.is_empty());
            assert!(member.is_none_or(|member| members.remove(&member)));
        }
        Op::PopOneByOne(count) => {
            let wanted = (*count).min(members.len() as u64);
            let Popped::Few(popped) = set.pop(txn, *count).unwrap() else {
                panic!("they are few");
            };
            assert_eq!(popped.len() as u64, wanted);
            assert!(popped.iter().all(|member| members.remove(member)));
        }
        Op::Pop { count, handful } => {
            let wanted = (*count).min(members.len() as u64);
            let popped = match set.pop_by_handful(txn, *count, *handful).unwrap() {
                Popped::Few(popped) => popped,
                Popped::Many { count, members } => {
                    assert_eq!(count, wanted);
                    all_of(members)
                }
            };
            assert_eq!(popped.len() as u64, wanted);
            for member in popped {
                assert!(members.remove(&member));
            }
        }
        Op::Sample(count) => {
            let sample = all_of(Selection::sample(txn, &set, *count).unwrap());
            let distinct: Members = sample.iter().cloned().collect();
            assert_eq!(distinct.len() as u64, (*count).min(members.len() as u64));
            assert_eq!(distinct.len(), sample.len());
            assert!(distinct.is_subset(members));
        }
        Op::Repeats(count) if !members.is_empty() => {
            let drawn = all_of(Selection::repeats(txn, &set, *count).unwrap());
            assert_eq!(drawn.len() as u64, *count);
            assert!(drawn.iter().all(|member| members.contains(member)));
        }
        _ => {}
    }
}

fn check(txn: &ReadTxn, name: &[u8], model: &Option<Members>) {
    let found = txn.find(&txn.key(name)).unwrap();
    let Some(members) = model else {
        assert_eq!(found.unwrap().kind(), Type::String);
        return;
    };
    assert!(rows_of(txn, name).iter().eq(members));
    match found.map(|found| found.shape) {
        None => assert!(members.is_empty()),
        Some(Shape::Collection { kind, size, .. }) => {
            assert_eq!(kind, CollectionKind::Set);
            assert_eq!(size, members.len() as u64);
            assert!(size > 0);
        }
        Some(other) => panic!("{other:?}"),
    }
}

#[test]
fn sets_do_what_sorted_sets_in_memory_do() {
    let Bench { store, .. } = &Bench::new();
    let mut runner = TestRunner::new(Config {
        cases: 300,
        failure_persistence: None,
        ..Config::default()
    });
    let case = std::cell::Cell::new(0);
    let outcome = runner.run(&vec(action(), 1..60), |actions| {
        case.set(case.get() + 1);
        let names = [0; SETS].map(|_| fastrand::u64(..));
        let names = names.map(|name| format!("{}:{name}", case.get()).into_bytes());
        let mut model: Model = std::array::from_fn(|_| Some(Members::new()));
        let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
        for action in &actions {
            match action {
                Action::Run { at, op, undone } => {
                    txn.begin(0);
                    let before = undone.then(|| model.clone());
                    run(&mut txn, &names, *at, op, &mut model);
                    if let Some(before) = before {
                        txn.undo();
                        model = before;
                    }
                }
                Action::Commit => store.commit_blocking(&mut txn).unwrap(),
                Action::Compact => store.engine().compact().unwrap(),
            }
            for (name, model) in names.iter().zip(&model) {
                check(&txn, name, model);
            }
        }
        Ok(())
    });
    outcome.unwrap();
}
