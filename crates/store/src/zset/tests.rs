//! Sorted sets against a model: a map from member to score, asked the same questions.

#![allow(clippy::unwrap_used)]

mod model;
mod ops;
mod pops;

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::test_runner::{Config, TestRunner};

use super::*;
use crate::testing::open_store;
use crate::{Builder, Patience};
use model::{Model, Models};
use ops::{KEYS, Question, apply, merge, op, question};

fn collect(mut rows: Rows, keys: ScoreRows) -> Vec<Scored> {
    let mut all = Vec::new();
    while let Some((key, value)) = rows.next().unwrap() {
        assert!(value.is_empty());
        all.push(keys.scored(key));
    }
    all
}

/// Both indexes, the size and the existence of the key tell the same, and what the model tells.
fn check_rows(txn: &ReadTxn, name: &[u8], model: &Model) {
    let zset = Zset::open(txn, name).unwrap();
    let ordered = zset.rows(txn, &zset.whole(), Direction::Forward).unwrap();
    assert_eq!(collect(ordered, zset.score_rows()), model.ordered());
    let mut rows = zset.0.rows(txn, Direction::Forward).unwrap();
    let mut by_member = Vec::new();
    while let Some((key, value)) = rows.next().unwrap() {
        by_member.push((
            zset.0.sub_of(key).to_vec(),
            score::decode_value(value).unwrap(),
        ));
    }
    assert_eq!(by_member, model.by_member());
    assert_eq!(zset.len(), model.len());
    assert_eq!(zset.exists(), model.len() > 0);
}

/// Every question about places, at every place.
fn check_ranks(txn: &ReadTxn, name: &[u8], model: &Model) {
    let zset = Zset::open(txn, name).unwrap();
    let keys = zset.score_rows();
    for direction in [Direction::Forward, Direction::Backward] {
        let walked = model.walked(direction);
        for (rank, scored) in walked.iter().enumerate() {
            let found = zset.rank_of(txn, &scored.member, direction).unwrap();
            assert_eq!(found, Some(rank as u64));
            let rows = zset.rows_from(txn, rank as u64, direction).unwrap();
            assert_eq!(collect(rows, keys), walked[rank..]);
        }
    }
    assert_eq!(
        zset.rank_of(txn, b"absent", Direction::Forward).unwrap(),
        None
    );
}

fn check_ranges(txn: &ReadTxn, name: &[u8], model: &Model, question: &Question) {
    let zset = Zset::open(txn, name).unwrap();
    let &Question {
        direction,
        offset,
        limit,
        ..
    } = question;
    let in_window = |all: Vec<Scored>| -> Vec<Scored> {
        let all = all.into_iter().skip(offset as usize);
        all.take(limit.min(1000) as usize).collect()
    };
    let by_score = zset.span_of_scores(&question.scores);
    let expected = [
        (by_score, model.between_scores(&question.scores, direction)),
        (zset.whole(), model.walked(direction)),
    ];
    for (span, expected) in expected {
        assert_eq!(zset.count(txn, &span).unwrap(), expected.len() as u64);
        let window = zset.window(txn, &span, direction, offset, limit).unwrap();
        check_window(window, zset.score_rows(), &in_window(expected));
    }

    let range = &question.members;
    let span = zset.span_of_members(txn, range).unwrap();
    let expected = model.between_members(range, Direction::Forward, 0);
    assert_eq!(zset.count(txn, &span).unwrap(), expected.len() as u64);
    let window = zset
        .window_of_members(txn, range, direction, offset, limit)
        .unwrap();
    let mut expected = model.between_members(range, direction, offset as usize);
    expected.truncate(limit.min(1000) as usize);
    check_window(window, zset.score_rows(), &expected);
}

fn check_window((mut rows, count): (Rows, u64), keys: ScoreRows, expected: &[Scored]) {
    assert_eq!(count, expected.len() as u64);
    for scored in expected {
        let (key, _) = rows.next().unwrap().unwrap();
        assert_eq!(keys.scored(key), *scored);
    }
}

#[test]
fn behaves_as_the_model_does() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(directory.path());
    let mut runner = TestRunner::new(Config::with_cases(400));
    let case = (vec(op(), 1..60), vec(question(), 4));
    runner
        .run(&case, |(ops, questions)| {
            let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
            crate::databases::flush(&mut txn, [0]);
            let mut models = Models::default();
            for op in &ops {
                apply(&mut txn, op);
                models.apply(op);
            }
            for (name, model) in KEYS.iter().zip(&models.0) {
                check_rows(&txn, name, model);
                check_ranks(&txn, name, model);
                for question in &questions {
                    check_ranges(&txn, name, model, question);
                }
            }
            Ok(())
        })
        .unwrap();
}

fn texts(scored: &[Scored]) -> Vec<String> {
    let text = |s: &Scored| format!("{}={}", s.member.escape_ascii(), s.score);
    scored.iter().map(text).collect()
}

fn put(txn: &mut WriteTxn, name: &[u8], members: &[(&str, f64)]) {
    let mut zset = Zset::open(txn, name).unwrap();
    for (member, score) in members {
        zset.update(txn, member.as_bytes(), |_| Ok(Some(*score)))
            .unwrap();
    }
    zset.save(txn);
}

#[test]
fn a_set_takes_part_with_scores_of_one() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(directory.path());
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
    put(&mut txn, b"a", &[("x", 5.0), ("y", 6.0)]);
    let mut set = Collection::open(&txn, b"b", CollectionKind::Set).unwrap();
    set.ensure_version(&txn);
    for member in [b"y", b"z"] {
        txn.put(Family::Data, &set.row_key(member), []);
    }
    set.grow(2);
    set.save(&mut txn);
    let mut union = merge(
        &txn,
        Operation::Union,
        Aggregate::Sum,
        &[(0, 1.0), (1, 10.0)],
    );
    let mut all = Vec::new();
    while let Some((member, score)) = union.next_member(&txn).unwrap() {
        all.push(Scored {
            member: member.to_vec(),
            score,
        });
    }
    assert_eq!(texts(&all), ["x=5", "y=16", "z=10"]);
}

#[test]
fn what_is_neither_takes_no_part() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(directory.path());
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
    let mut hash = Collection::open(&txn, b"a", CollectionKind::Hash).unwrap();
    hash.ensure_version(&txn);
    txn.put(Family::Data, &hash.row_key(b"field"), []);
    hash.grow(1);
    hash.save(&mut txn);
    assert!(Source::open(&txn, b"a").is_err());
    assert!(Zset::open(&txn, b"a").is_err());
}

/// Walks that are far behind seek.
#[test]
fn small_sets_meet_large_ones() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(directory.path());
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
    let names: Vec<String> = (0..1000).map(|n| format!("{n:04}")).collect();
    let large: Vec<(&str, f64)> = names.iter().map(|name| (name.as_str(), 1.0)).collect();
    put(&mut txn, b"a", &large);
    put(
        &mut txn,
        b"b",
        &[
            ("0000", 10.0),
            ("0500", 20.0),
            ("0500x", 30.0),
            ("0999", 40.0),
        ],
    );
    let result = |operation, sources: &[(usize, f64)]| {
        let mut algebra = merge(&txn, operation, Aggregate::Sum, sources);
        let mut all = Vec::new();
        while let Some((member, score)) = algebra.next_member(&txn).unwrap() {
            all.push(Scored {
                member: member.to_vec(),
                score,
            });
        }
        texts(&all)
    };
    let common = result(Operation::Intersection, &[(0, 1.0), (1, 1.0)]);
    assert_eq!(common, ["0000=11", "0500=21", "0999=41"]);
    let left = result(Operation::Difference, &[(1, 1.0), (0, 1.0)]);
    assert_eq!(left, ["0500x=30"]);
    let most = result(Operation::Difference, &[(0, 1.0), (1, 1.0)]);
    assert_eq!(most.len(), 997);
}

/// A result too large for one batch is written ahead, and is whole afterwards; what most members leave
/// is rewritten, and keeps its expiry.
#[test]
fn large_results_spill_and_large_removals_keep_the_expiry() {
    const SIZE: u64 = 60_000;
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(directory.path());
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
    let expire_ms = txn.now_ms() + 1_000_000;
    let mut large = Builder::new(&txn, b"large");
    for n in 0..SIZE {
        let member = format!("member:{n:020}");
        large
            .scored(&txn, member.as_bytes(), (n % 1000) as f64)
            .unwrap();
    }
    assert!(txn.is_clean());
    assert_eq!(large.finish_zset(&mut txn, expire_ms).unwrap(), SIZE);
    assert!(
        txn.pending().len() < SIZE as usize,
        "nothing was written ahead"
    );
    store.commit_blocking(&mut txn).unwrap();

    let zset = Zset::open(&txn, b"large").unwrap();
    let version = zset.0.version();
    let range = ScoreRange {
        min: ScoreBound {
            score: 1.0,
            is_open: false,
        },
        max: ScoreBound {
            score: 998.0,
            is_open: false,
        },
    };
    let span = zset.span_of_scores(&range);
    let count = zset.count(&txn, &span).unwrap();
    assert_eq!(count, SIZE / 1000 * 998);
    zset.remove_span(&mut txn, &span, count).unwrap();
    store.commit_blocking(&mut txn).unwrap();

    let left = Zset::open(&txn, b"large").unwrap();
    assert_eq!(left.len(), SIZE / 1000 * 2);
    assert_ne!(left.0.version(), version);
    let found = txn.find(left.0.key()).unwrap().unwrap();
    assert_eq!(found.expire_ms, expire_ms);
    assert!(
        txn.has_row(Family::Expiry, &left.0.key().expiry(expire_ms))
            .unwrap()
    );
    let rows = left.rows(&txn, &left.whole(), Direction::Forward).unwrap();
    let scores: Vec<f64> = collect(rows, left.score_rows())
        .iter()
        .map(|s| s.score)
        .collect();
    assert!(scores.iter().all(|score| [0.0, 999.0].contains(score)));
    assert_eq!(scores.len() as u64, left.len());
}

#[test]
fn an_impatient_transaction_gives_long_walks_up() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(directory.path());
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
    let mut large = Builder::new(&txn, b"large");
    for n in 0..30_000u32 {
        large.scored(&txn, &n.to_be_bytes(), 0.0).unwrap();
    }
    large.finish_zset(&mut txn, 0).unwrap();
    store.commit_blocking(&mut txn).unwrap();
    // Nothing is young, which alone would be a reason.
    store.engine().flush().unwrap();

    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Short);
    txn.begin(0);
    let zset = Zset::open(&txn, b"large").unwrap();
    let last = 29_999u32.to_be_bytes();
    let walked = zset.rank_of(&txn, &last, Direction::Forward);
    assert!(matches!(walked, Err(crate::Error::TooLong)), "{walked:?}");
    txn.begin(0);
    assert_eq!(
        zset.rank_of(&txn, &last, Direction::Backward).unwrap(),
        Some(0)
    );
    assert!(zset.rows_from(&txn, 29_990, Direction::Forward).is_ok());
    assert_eq!(zset.count(&txn, &zset.whole()).unwrap(), 30_000);
}

/// A result can be made again, also when its transaction is gone and so are the keys.
#[test]
fn a_result_can_be_made_again() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(directory.path());
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
    put(&mut txn, b"a", &[("x", 1.0), ("y", 2.0)]);
    put(&mut txn, b"b", &[("y", 10.0), ("z", 20.0)]);
    store.commit_blocking(&mut txn).unwrap();
    for (operation, expected) in [
        (Operation::Union, vec!["x=1", "y=12", "z=20"]),
        (Operation::Intersection, vec!["y=12"]),
        (Operation::Difference, vec!["x=1"]),
    ] {
        let sources = [(0, 1.0), (1, 1.0)];
        let mut made = merge(&txn, operation, Aggregate::Sum, &sources);
        made.step().unwrap();
        for _ in 0..2 {
            made.rewind().unwrap();
            let mut all = Vec::new();
            while let Some((member, score)) = made.next_member(&txn).unwrap() {
                let member = member.to_vec();
                all.push(Scored { member, score });
            }
            assert_eq!(texts(&all), expected);
        }
    }
}

/// Too many to collect: they are read from rows that are gone by then.
#[test]
fn many_popped_members_outlive_their_deletion() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(directory.path());
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
    let names: Vec<String> = (0..1000).map(|n| format!("{n:04}")).collect();
    let all: Vec<(&str, f64)> = names.iter().map(|name| (name.as_str(), 1.0)).collect();
    for (direction, count, expected) in [
        (Direction::Forward, 700, ["0000", "0699"]),
        (Direction::Backward, 10, ["0999", "0990"]),
        (Direction::Backward, u64::MAX, ["0999", "0000"]),
    ] {
        put(&mut txn, b"a", &all);
        store.commit_blocking(&mut txn).unwrap();
        let zset = Zset::open(&txn, b"a").unwrap();
        let popped = zset.pop_by_handful(&mut txn, direction, count, 500);
        let Popped::Many { count, rows, keys } = popped.unwrap() else {
            panic!("they are many");
        };
        store.commit_blocking(&mut txn).unwrap();
        store.engine().compact().unwrap();
        let popped: Vec<Scored> = collect(*rows, keys)
            .into_iter()
            .take(count as usize)
            .collect();
        assert_eq!(popped.len() as u64, count);
        let ends = [&popped[0], &popped[popped.len() - 1]];
        assert_eq!(
            ends.map(|scored| scored.member.as_slice()),
            expected.map(str::as_bytes)
        );
        let left = Zset::open(&txn, b"a").unwrap();
        let rows = left.rows(&txn, &left.whole(), Direction::Forward).unwrap();
        let kept = collect(rows, keys);
        assert_eq!(left.len(), 1000 - count);
        assert_eq!(kept.len() as u64, left.len());
        assert!(kept.iter().all(|scored| !popped.contains(scored)));
    }
}

#[test]
fn a_walk_too_long_for_a_connection_thread_is_not_popped_there() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(directory.path());
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Short);
    put(&mut txn, b"a", &[("x", 1.0), ("y", 2.0)]);
    let zset = Zset::open(&txn, b"a").unwrap();
    let popped = zset.pop_by_handful(&mut txn, Direction::Forward, 2, 1);
    assert!(matches!(popped, Err(crate::Error::TooLong)));
}

/// Members come, go and change their scores, and some of that is taken back, while both ends are popped.
#[test]
fn what_is_popped_one_by_one_is_always_the_nearest() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(directory.path());
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Short);
    let mut random = fastrand::Rng::with_seed(7);
    let mut model = BTreeMap::new();
    txn.begin(0);
    for number in 0..6000 {
        let (member, score) = (format!("{number:05}"), f64::from(random.u16(..)));
        update(&mut txn, &member, score);
        model.insert(member, score);
    }
    store.commit_blocking(&mut txn).unwrap();
    while !model.is_empty() {
        txn.begin(0);
        let mut after = model.clone();
        for _ in 0..random.usize(..100) {
            let (number, score) = (random.u16(..8000), f64::from(random.u16(..)));
            let member = format!("{number:05}");
            match random.u8(..8) {
                0 => {
                    update(&mut txn, &member, score);
                    after.insert(member, score);
                }
                1 => {
                    let mut zset = Zset::open(&txn, b"zset").unwrap();
                    zset.remove(&mut txn, member.as_bytes()).unwrap();
                    zset.save(&mut txn);
                    after.remove(&member);
                }
                choice => {
                    let direction = match choice % 2 {
                        0 => Direction::Forward,
                        _ => Direction::Backward,
                    };
                    let nearest = nearest(&after, direction);
                    assert_eq!(pop_one(&mut txn, direction), nearest);
                    nearest.map(|(member, _)| after.remove(&member));
                }
            }
        }
        match random.u8(..20) {
            0 => txn.undo(),
            _ => model = after,
        }
        if random.bool() {
            store.commit_blocking(&mut txn).unwrap();
        }
    }
    assert!(!Zset::open(&txn, b"zset").unwrap().exists());
}

fn nearest(model: &BTreeMap<String, f64>, direction: Direction) -> Option<(String, f64)> {
    // The scores are natural numbers; of equal ones the member decides.
    let by_score = |(_, score): &(&String, &f64)| **score as u64;
    let nearest = match direction {
        Direction::Forward => model.iter().min_by_key(by_score),
        Direction::Backward => model.iter().max_by_key(by_score),
    };
    nearest.map(|(member, score)| (member.clone(), *score))
}

fn pop_one(txn: &mut WriteTxn, direction: Direction) -> Option<(String, f64)> {
    let zset = Zset::open(txn, b"zset").unwrap();
    let Popped::Few(popped) = zset.pop(txn, direction, 1).unwrap() else {
        panic!("it is one");
    };
    let Scored { member, score } = popped.into_iter().next()?;
    Some((String::from_utf8(member).unwrap(), score))
}

fn update(txn: &mut WriteTxn, member: &str, score: f64) {
    let mut zset = Zset::open(txn, b"zset").unwrap();
    let member = member.as_bytes();
    zset.update(txn, member, |_| Ok(Some(score))).unwrap();
    zset.save(txn);
}
