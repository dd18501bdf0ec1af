//! Pops from both ends, whatever else is done between them, and taken back; and what they cost.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use cairn_engine::deletions_passed;
use fastrand::Rng;

use super::super::remove::HANDFUL;
use super::*;
use crate::Store;
use crate::queues::Nearest;
use Direction::{Backward, Forward};

const NAME: &[u8] = b"z";

/// A score as it is stored, which sorts as scores do.
type Encoded = [u8; row::SCORE_LEN];
type Element = (Encoded, Vec<u8>);

fn element(Scored { member, score }: Scored) -> Element {
    (score::encode(score), member)
}

/// The set as it has to be.
#[derive(Clone, Default)]
struct Expected {
    ordered: BTreeSet<Element>,
    scores: BTreeMap<Vec<u8>, Encoded>,
}

impl Expected {
    fn add(&mut self, (score, member): Element) {
        if let Some(before) = self.scores.insert(member.clone(), score) {
            self.ordered.remove(&(before, member.clone()));
        }
        self.ordered.insert((score, member));
    }

    fn remove(&mut self, element: &Element) {
        self.ordered.remove(element);
        self.scores.remove(&element.1);
    }

    fn nearest(&self, direction: Direction, count: usize) -> Vec<Element> {
        let ordered = self.ordered.iter();
        match direction {
            Forward => ordered.take(count).cloned().collect(),
            Backward => ordered.rev().take(count).cloned().collect(),
        }
    }
}

fn write(store: &Arc<Store>) -> WriteTxn {
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
    txn.begin(0);
    txn
}

fn add(txn: &mut WriteTxn, elements: impl Iterator<Item = Element>) {
    let mut zset = Zset::open(txn, NAME).unwrap();
    for (encoded, member) in elements {
        let decide = |_| Ok(Some(score::decode(encoded)));
        zset.update(txn, &member, decide).unwrap();
    }
    zset.save(txn);
}

fn few(popped: Popped) -> Vec<Element> {
    let Popped::Few(members) = popped else {
        panic!("they are few");
    };
    members.into_iter().map(element).collect()
}

fn pop(txn: &mut WriteTxn, direction: Direction, count: u64) -> Vec<Element> {
    let zset = Zset::open(txn, NAME).unwrap();
    if count == 1 {
        let popped = zset.pop_one(txn, direction).unwrap();
        return popped.into_iter().map(element).collect();
    }
    few(zset.pop(txn, direction, count).unwrap())
}

fn pop_together(txn: &mut WriteTxn, direction: Direction, count: u64) -> Vec<Element> {
    let zset = Zset::open(txn, NAME).unwrap();
    few(zset.pop_by_handful(txn, direction, count, HANDFUL).unwrap())
}

/// How large the set may become, how many scores there are, and how much is changed at once.
struct Story {
    members: u16,
    scores: i32,
    most: usize,
    commits: usize,
}

const STORIES: [Story; 2] = [
    Story {
        members: 40,
        scores: 4,
        most: 4,
        commits: 5000,
    },
    // A walk that looks ahead ends long before the set does, and often in the midst of a pop.
    Story {
        members: 4000,
        scores: 400,
        most: 300,
        commits: 250,
    },
];

/// Longer than an end that is remembered may be.
const TOO_LONG: usize = 1100;

impl Story {
    /// Of two members that follow each other one begins with the other.
    fn member(&self, random: &mut Rng) -> Vec<u8> {
        let number = random.u16(..self.members);
        let zeros = match number % 16 {
            0 => TOO_LONG,
            of_sixteen => usize::from(of_sixteen % 2),
        };
        let mut member = (number / 2).to_be_bytes().to_vec();
        member.resize(member.len() + zeros, 0);
        member
    }

    fn element(&self, random: &mut Rng) -> Element {
        let score = match random.u8(..20) {
            0 => f64::NEG_INFINITY,
            1 => f64::INFINITY,
            _ => f64::from(random.i32(-self.scores..self.scores)),
        };
        (score::encode(score), self.member(random))
    }

    /// Something that changes the set, also in the model.
    fn change(&self, txn: &mut WriteTxn, expected: &mut Expected, random: &mut Rng) {
        let direction = if random.bool() { Forward } else { Backward };
        let count = random.usize(1..=self.most);
        match random.u8(..10) {
            0..4 => {
                let added: Vec<Element> = (0..2 * count).map(|_| self.element(random)).collect();
                added.iter().cloned().for_each(|added| expected.add(added));
                add(txn, added.into_iter());
            }
            4 => {
                let Some(nearest) = expected.nearest(direction, 1).pop() else {
                    return;
                };
                expected.remove(&nearest);
                let mut zset = Zset::open(txn, NAME).unwrap();
                assert!(zset.remove(txn, &nearest.1).unwrap());
                zset.save(txn);
            }
            5 => remove_range(txn, expected, random, count),
            kind => {
                let nearest = expected.nearest(direction, count);
                let popped = match kind {
                    6..9 => pop(txn, direction, count as u64),
                    _ => pop_together(txn, direction, count as u64),
                };
                assert_eq!(popped, nearest);
                popped.iter().for_each(|popped| expected.remove(popped));
            }
        }
    }
}

/// Removes about so many by their ranks or their scores, often at an end; now and then by writing what stays.
fn remove_range(txn: &mut WriteTxn, expected: &mut Expected, random: &mut Rng, count: usize) {
    let zset = Zset::open(txn, NAME).unwrap();
    let size = expected.ordered.len();
    let first = match random.u8(..3) {
        0 => 0,
        1 => size.saturating_sub(count),
        _ => random.usize(..=size),
    };
    let ranked = expected.ordered.iter().skip(first).take(count);
    let mut gone: Vec<Element> = ranked.cloned().collect();
    let ranks = (first as u64, count as u64);
    let mut span = zset.span_of_ranks(txn, ranks.0, ranks.1).unwrap();
    if let (Some((lowest, _)), Some((highest, _)), true) =
        (gone.first(), gone.last(), random.bool())
    {
        let [min, max] = [lowest, highest].map(|encoded| ScoreBound {
            score: score::decode(*encoded),
            is_open: random.bool(),
        });
        let is_between = |(encoded, _): &&Element| {
            let score = score::decode(*encoded);
            let is_above = score > min.score || score == min.score && !min.is_open;
            is_above && (score < max.score || score == max.score && !max.is_open)
        };
        span = zset.span_of_scores(&ScoreRange { min, max });
        gone = expected
            .ordered
            .iter()
            .filter(is_between)
            .cloned()
            .collect();
    }
    gone.iter().for_each(|gone| expected.remove(gone));
    if random.u8(..4) == 0 {
        zset.keep_only_outside(txn, &span).unwrap();
    } else {
        zset.remove_span(txn, &span, gone.len() as u64).unwrap();
    }
}

/// Commands alone and in units, taken back or not, while what was looked up for pops gets lost now and then.
#[test]
fn the_nearest_is_popped_whatever_was_taken_back() {
    for story in STORIES {
        let directory = tempfile::tempdir().unwrap();
        let store = open_store(directory.path());
        let mut random = Rng::with_seed(11);
        let mut expected = Expected::default();
        for _ in 0..story.commits {
            let committed = expected.clone();
            let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
            assert_eq!(all(&txn), expected.nearest(Forward, usize::MAX));
            for _ in 0..random.usize(1..5) {
                let before = expected.clone();
                if random.bool() {
                    txn.begin(0);
                    story.change(&mut txn, &mut expected, &mut random);
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
                        story.change(&mut txn, &mut expected, &mut random);
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
                if random.u8(..10) == 0 {
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
    }
}

fn all(txn: &WriteTxn) -> Vec<Element> {
    let zset = Zset::open(txn, NAME).unwrap();
    let rows = zset.rows(txn, &zset.whole(), Forward).unwrap();
    let all = collect(rows, zset.score_rows());
    all.into_iter().map(element).collect()
}

const MANY: u32 = 20_000;

/// A store with a set that RocksDB has, of which so many were popped from the end since.
fn popped(path: &Path, direction: Direction, count: u32) -> Arc<Store> {
    let store = open_store(path);
    let mut txn = write(&store);
    let elements = (0..MANY).map(|n| (score::encode(n.into()), n.to_be_bytes().to_vec()));
    add(&mut txn, elements);
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
fn passed(store: &Arc<Store>, pop: impl FnOnce(&mut WriteTxn) -> Vec<Element>) -> u64 {
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
        store.queues().forget_queues();
        assert!(passed(&store, pop_one) < POPPED / 2);
        store.queues().forget_queues();
        assert!(passed(&store, pop_one) < 10);
        store.queues().clear();
        assert!(passed(&store, pop_one) > POPPED);
        store.queues().forget_queues();
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
        store.queues().forget_queues();
        for _ in 0..10 {
            assert!(passed(&store, |txn| pop(txn, direction, 100)) < 1100);
        }
        store.queues().forget_queues();
        assert!(passed(&store, |txn| pop(txn, direction, 100)) < 600);
        // All that was popped together since the last walk began.
        for _ in 0..2 {
            passed(&store, |txn| pop(txn, direction, 1000));
        }
        store.queues().forget_queues();
        assert!(passed(&store, |txn| pop(txn, direction, 1)) < 1100);
    }
}

#[test]
fn what_was_popped_before_a_walk_in_the_midst_is_there_again_when_it_is_taken_back() {
    for direction in [Forward, Backward] {
        let directory = tempfile::tempdir().unwrap();
        let store = popped(directory.path(), direction, 0);
        let mut txn = write(&store);
        pop(&mut txn, direction, 500);
        store.commit_blocking(&mut txn).unwrap();
        txn.begin(0);
        // The first walk has looked up 512.
        let taken = pop(&mut txn, direction, 500);
        txn.undo();
        txn.begin(0);
        assert_eq!(pop(&mut txn, direction, 500), taken);
    }
}

/// What stays after most are popped together has another version, of which nothing is known yet.
#[test]
fn what_was_popped_is_not_remembered_of_a_version_that_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let store = popped(directory.path(), Forward, 0);
    let mut txn = write(&store);
    let version = |txn: &WriteTxn| Zset::open(txn, NAME).unwrap().0.version();
    let before = version(&txn);
    pop_together(&mut txn, Forward, u64::from(MANY) / 4 * 3);
    assert_ne!(version(&txn), before);
    let [lowest, _] = store.queues().ends(&txn.key(NAME), before);
    assert!(!matches!(lowest, Some(Nearest::Behind(_))));
}

#[test]
fn what_a_unit_has_taken_stays_so_when_another_of_its_commands_is_taken_back() {
    for direction in [Forward, Backward] {
        let directory = tempfile::tempdir().unwrap();
        let store = popped(directory.path(), direction, 1);
        let mut txn = write(&store);
        let key = txn.key(NAME);
        let version = Zset::open(&txn, NAME).unwrap().0.version();
        let ends = || store.queues().ends(&key, version);
        txn.mark_unit(0);
        txn.mark_in_unit(0);
        let first = pop(&mut txn, direction, 1);
        let known = ends();
        // One that took nothing.
        txn.mark_in_unit(0);
        txn.undo();
        assert_eq!(ends(), known);
        txn.mark_in_unit(0);
        let second = pop(&mut txn, direction, 1);
        assert_ne!(second, first);
        txn.undo();
        assert_ne!(ends(), known);
        txn.mark_in_unit(0);
        assert_eq!(pop(&mut txn, direction, 1), second);
        txn.undo_unit();
        txn.begin(0);
        assert_eq!(pop(&mut txn, direction, 2), [first, second].concat());
    }
}
