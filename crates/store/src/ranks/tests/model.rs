//! Two sorted sets beside a model of them: any mix of changes, undone, thrown away and committed, with restarts and
//! the background's work in between.

use std::collections::BTreeMap;

use super::*;
use crate::Builder;
use crate::zset::{ScoreBound, ScoreRange};

/// Two sorted sets as they should be.
#[derive(Clone, Default)]
struct Model([BTreeMap<Vec<u8>, i32>; 2]);

const NAMES: [&[u8]; 2] = [b"one", b"other"];

impl Model {
    fn ordered(&self, at: usize) -> Vec<(i32, Vec<u8>)> {
        let members = self.0[at].iter();
        let mut all: Vec<_> = members.map(|(m, score)| (*score, m.clone())).collect();
        all.sort();
        all
    }

    fn remove(&mut self, at: usize, gone: &[(i32, Vec<u8>)]) {
        gone.iter().for_each(|(_, member)| {
            self.0[at].remove(member);
        });
    }
}

fn scores(min: i32, max: i32) -> ScoreRange {
    let bound = |score: i32| ScoreBound {
        score: f64::from(score),
        is_open: false,
    };
    ScoreRange {
        min: bound(min),
        max: bound(max),
    }
}

pub(super) fn member(random: &mut Rng) -> Vec<u8> {
    let length = random.usize(..4);
    (0..length).map(|_| random.u8(b'a'..=b'd')).collect()
}

/// One change, of any kind, to the store and to the model.
fn change(txn: &mut WriteTxn, model: &mut Model, random: &mut Rng) {
    let at = random.usize(..2);
    let name = NAMES[at];
    let mut zset = Zset::open(txn, name).unwrap();
    let size = zset.len();
    match random.u8(..20) {
        0..9 => {
            for _ in 0..random.usize(1..12) {
                let (member, score) = (member(random), random.i32(-9..9));
                let decide = |_| Ok(Some(f64::from(score)));
                zset.update(txn, &member, decide).unwrap();
                model.0[at].insert(member, score);
            }
            zset.save(txn);
        }
        9..13 => {
            for _ in 0..random.usize(1..6) {
                let member = member(random);
                let was_there = model.0[at].remove(&member).is_some();
                assert_eq!(zset.remove(txn, &member).unwrap(), was_there);
            }
            zset.save(txn);
        }
        13..15 => {
            let (count, is_lowest) = (random.u64(..5), random.bool());
            let mut gone = model.ordered(at);
            if !is_lowest {
                gone.reverse();
            }
            gone.truncate(count as usize);
            model.remove(at, &gone);
            let direction = match is_lowest {
                true => Direction::Forward,
                false => Direction::Backward,
            };
            zset.pop(txn, direction, count).unwrap();
        }
        15 => {
            let (first, count) = (random.u64(..=size), random.u64(..6));
            let count = count.min(size - first);
            let span = zset.span_of_ranks(txn, first, count).unwrap();
            zset.remove_span(txn, &span, count).unwrap();
            let gone: Vec<_> = model.ordered(at);
            model.remove(at, &gone[first as usize..(first + count) as usize]);
        }
        16 => {
            let min = random.i32(-9..9);
            let span = zset.span_of_scores(&scores(min, min + 1));
            let count = zset.count(txn, &span).unwrap();
            zset.remove_span(txn, &span, count).unwrap();
            model.0[at].retain(|_, score| !(min..=min + 1).contains(score));
        }
        17 => {
            let (from, to) = (txn.key(name), txn.key(NAMES[1 - at]));
            let is_rename = random.bool();
            let is_done = match is_rename {
                true => keys::rename(txn, &from, &to).unwrap(),
                false => keys::copy(txn, &from, &to).unwrap(),
            };
            if is_done {
                model.0[1 - at] = model.0[at].clone();
            }
            if is_rename && is_done {
                model.0[at].clear();
            }
        }
        18 => {
            if random.u8(..4) == 0 {
                keys::delete(txn, name).unwrap();
                model.0[at].clear();
            }
        }
        _ => {
            let mut builder = Builder::new(txn, name);
            model.0[at].retain(|member, _| member.len() != 1);
            for (member, score) in &model.0[at] {
                let score = f64::from(*score);
                builder.scored(txn, member, score).unwrap();
            }
            builder.finish_zset(txn, 0).unwrap();
        }
    }
}

/// Ranks, places and counts are the model's.
fn ask(txn: &WriteTxn, model: &Model, at: usize, random: &mut Rng) {
    let zset = Zset::open(txn, NAMES[at]).unwrap();
    let ordered = model.ordered(at);
    assert_eq!(zset.len(), ordered.len() as u64);
    for (rank, (_, member)) in ordered.iter().enumerate() {
        let forward = zset.rank_of(txn, member, Direction::Forward).unwrap();
        assert_eq!(forward, Some(rank as u64));
        let backward = zset.rank_of(txn, member, Direction::Backward).unwrap();
        assert_eq!(backward, Some((ordered.len() - 1 - rank) as u64));
        let row_key = zset.collection().nth(txn, rank as u64).unwrap().unwrap();
        assert_eq!(zset.score_rows().member(&row_key), member);
    }
    let reversed: Vec<_> = ordered.iter().rev().cloned().collect();
    for _ in 0..8 {
        let (min, max) = (random.i32(-10..10), random.i32(-10..10));
        let (offset, limit) = (random.u64(..30), random.u64(..30));
        let span = zset.span_of_scores(&scores(min, max));
        let within = |(score, _): &&(i32, Vec<u8>)| (min..=max).contains(score);
        let count = ordered.iter().filter(within).count();
        assert_eq!(zset.count(txn, &span).unwrap(), count as u64);
        for (direction, all) in [
            (Direction::Forward, &ordered),
            (Direction::Backward, &reversed),
        ] {
            let window = zset.window(txn, &span, direction, offset, limit);
            let (mut rows, count) = window.unwrap();
            let wanted = all.iter().filter(within).skip(offset as usize);
            let wanted: Vec<_> = wanted.take(limit as usize).collect();
            assert_eq!(count, wanted.len() as u64);
            for (_, member) in wanted {
                let (row_key, _) = rows.next().unwrap().unwrap();
                assert_eq!(zset.score_rows().member(row_key), member);
            }
        }
    }
}

fn run(seed: u64, steps: usize) {
    let mut random = Rng::with_seed(seed);
    let directory = tempfile::tempdir().unwrap();
    let ranks = options(random.u64(1..5), random.u64(0..20));
    let mut store = open(directory.path(), ranks);
    let mut model = Model::default();
    let mut committed = model.clone();
    let mut txn = write(&store);
    for _ in 0..steps {
        let before = model.clone();
        txn.mark(0);
        change(&mut txn, &mut model, &mut random);
        if random.u8(..4) == 0 {
            txn.undo();
            model = before;
        }
        if random.u8(..3) == 0 {
            ask(&txn, &model, random.usize(..2), &mut random);
        }
        if random.u8(..8) == 0 {
            // Thrown away without a commit, all of it.
            drop(txn);
            model = committed.clone();
            txn = write(&store);
        }
        if random.u8(..3) > 0 {
            continue;
        }
        store.commit_blocking(&mut txn).unwrap();
        committed = model.clone();
        for _ in 0..random.usize(..3) {
            store.keep_ranks().unwrap();
        }
        match random.u8(..30) {
            0 => {
                drop(txn);
                drop(store);
                store = open(directory.path(), ranks);
                txn = write(&store);
            }
            1 => store.ranks().clear(),
            _ => {}
        }
        check_rows(&store);
        NAMES.iter().for_each(|name| check_memory(&store, name));
    }
}

#[test]
fn ranks_are_those_of_the_model_whatever_happens() {
    for seed in 0..24 {
        run(seed, 150);
    }
}

#[test]
#[ignore = "the same for long: run by hand after changes"]
fn ranks_are_those_of_the_model_for_long() {
    for seed in 100..1100 {
        run(seed, 300);
    }
}
