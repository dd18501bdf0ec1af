//! What is done to sorted sets, and asked of them, in a random order.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::super::*;
use crate::Builder;

pub const KEYS: [&[u8]; 3] = [b"a", b"b", b"ab"];

const MEMBERS: [&[u8]; 12] = [
    b"",
    b"\0",
    b"a",
    b"a\0",
    b"a\0\xff",
    b"ab",
    b"b",
    b"c",
    b"d",
    b"m",
    b"\xff",
    b"\xff\xff",
];

const SCORES: [f64; 9] = [
    f64::NEG_INFINITY,
    -1.5,
    -1.0,
    -0.0,
    0.0,
    5e-324,
    1.0,
    1e17,
    f64::INFINITY,
];

#[derive(Clone, Debug)]
pub enum Op {
    Set(usize, &'static [u8], f64),
    Remove(usize, &'static [u8]),
    RemoveScores(usize, ScoreRange, Way),
    RemoveRanks(usize, u64, u64, Way),
    RemoveMembers(usize, LexRange<'static>, Way),
    Pop(usize, Direction, u64),
    /// The same by what is known to come next.
    PopOneByOne(usize, Direction, u64),
    Store(usize, Operation, Aggregate, Vec<(usize, f64)>),
    Commit,
}

/// How a range is removed: as its size decides, or by writing what stays.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    AsDecided,
    ByCopying,
}

fn key() -> impl Strategy<Value = usize> {
    0..KEYS.len()
}

fn member() -> impl Strategy<Value = &'static [u8]> {
    select(&MEMBERS[..])
}

fn score() -> impl Strategy<Value = f64> {
    // Equal scores must be frequent, or members would hardly ever decide an order.
    prop_oneof![2 => Just(1.0), 1 => select(&SCORES[..])]
}

fn score_range() -> impl Strategy<Value = ScoreRange> {
    let bound = || {
        (select(&SCORES[..]), any::<bool>())
            .prop_map(|(score, is_open)| ScoreBound { score, is_open })
    };
    (bound(), bound()).prop_map(|(min, max)| ScoreRange { min, max })
}

fn lex_range() -> impl Strategy<Value = LexRange<'static>> {
    let bound = || {
        prop_oneof![
            1 => Just(LexBound::Lowest),
            1 => Just(LexBound::Highest),
            3 => member().prop_map(LexBound::Included),
            3 => member().prop_map(LexBound::Excluded),
        ]
    };
    (bound(), bound()).prop_map(|(min, max)| LexRange { min, max })
}

fn direction() -> impl Strategy<Value = Direction> {
    select(vec![Direction::Forward, Direction::Backward])
}

pub fn op() -> impl Strategy<Value = Op> {
    let way = || select(vec![Way::AsDecided, Way::ByCopying]);
    let operation = select(vec![
        Operation::Union,
        Operation::Intersection,
        Operation::Difference,
    ]);
    let aggregate = select(vec![Aggregate::Sum, Aggregate::Min, Aggregate::Max]);
    let sources = vec((key(), select(&SCORES[..])), 1..4);
    prop_oneof![
        24 => (key(), member(), score()).prop_map(|(k, m, s)| Op::Set(k, m, s)),
        4 => (key(), member()).prop_map(|(k, m)| Op::Remove(k, m)),
        1 => (key(), score_range(), way()).prop_map(|(k, r, w)| Op::RemoveScores(k, r, w)),
        1 => (key(), 0..6u64, 0..6u64, way()).prop_map(|(k, f, c, w)| Op::RemoveRanks(k, f, c, w)),
        1 => (key(), lex_range(), way()).prop_map(|(k, r, w)| Op::RemoveMembers(k, r, w)),
        1 => (key(), direction(), 0..4u64).prop_map(|(k, d, c)| Op::Pop(k, d, c)),
        4 => (key(), direction(), 0..4u64).prop_map(|(k, d, c)| Op::PopOneByOne(k, d, c)),
        2 => (key(), operation, aggregate, sources).prop_map(|(k, o, a, s)| Op::Store(k, o, a, s)),
        3 => Just(Op::Commit),
    ]
}

pub fn apply(txn: &mut WriteTxn, op: &Op) {
    match op {
        Op::Set(key, member, score) => {
            let mut zset = Zset::open(txn, KEYS[*key]).unwrap();
            zset.update(txn, member, |_| Ok(Some(*score))).unwrap();
            zset.save(txn);
        }
        Op::Remove(key, member) => {
            let mut zset = Zset::open(txn, KEYS[*key]).unwrap();
            zset.remove(txn, member).unwrap();
            zset.save(txn);
        }
        Op::RemoveScores(key, range, way) => {
            let zset = Zset::open(txn, KEYS[*key]).unwrap();
            let span = zset.span_of_scores(range);
            remove(txn, zset, &span, *way);
        }
        Op::RemoveRanks(key, first, count, way) => {
            let zset = Zset::open(txn, KEYS[*key]).unwrap();
            let span = zset.span_of_ranks(txn, *first, *count).unwrap();
            remove(txn, zset, &span, *way);
        }
        Op::RemoveMembers(key, range, way) => {
            let zset = Zset::open(txn, KEYS[*key]).unwrap();
            let span = zset.span_of_members(txn, range).unwrap();
            remove(txn, zset, &span, *way);
        }
        Op::Pop(key, direction, count) => {
            let zset = Zset::open(txn, KEYS[*key]).unwrap();
            zset.pop_by_handful(txn, *direction, *count, 300).unwrap();
        }
        Op::PopOneByOne(key, direction, count) => {
            let zset = Zset::open(txn, KEYS[*key]).unwrap();
            zset.pop(txn, *direction, *count).unwrap();
        }
        Op::Store(key, operation, aggregate, sources) => {
            let mut result = Builder::new(txn, KEYS[*key]);
            let mut algebra = merge(txn, *operation, *aggregate, sources);
            while let Some((member, score)) = algebra.next_member(txn).unwrap() {
                result.scored(txn, member, score).unwrap();
            }
            drop(algebra);
            result.finish_zset(txn, 0).unwrap();
        }
        Op::Commit => {
            let store = txn.store().clone();
            store.commit_blocking(txn).unwrap();
        }
    }
}

fn remove(txn: &mut WriteTxn, zset: Zset, span: &Span, way: Way) {
    match way {
        Way::AsDecided => {
            let count = zset.count(txn, span).unwrap();
            zset.remove_span(txn, span, count).unwrap();
        }
        Way::ByCopying => zset.keep_only_outside(txn, span).unwrap(),
    }
}

pub fn merge(
    txn: &ReadTxn,
    operation: Operation,
    aggregate: Aggregate,
    sources: &[(usize, f64)],
) -> Algebra {
    let open = |&(key, weight): &(usize, f64)| {
        let mut source = Source::open(txn, KEYS[key]).unwrap();
        source.weight = weight;
        source
    };
    Algebra::new(
        txn,
        operation,
        aggregate,
        sources.iter().map(open).collect(),
    )
    .unwrap()
}

#[derive(Clone, Debug)]
pub struct Question {
    pub scores: ScoreRange,
    pub members: LexRange<'static>,
    pub direction: Direction,
    pub offset: u64,
    pub limit: u64,
}

pub fn question() -> impl Strategy<Value = Question> {
    let limit = prop_oneof![0..5u64, Just(u64::MAX)];
    (score_range(), lex_range(), direction(), 0..4u64, limit).prop_map(
        |(scores, members, direction, offset, limit)| Question {
            scores,
            members,
            direction,
            offset,
            limit,
        },
    )
}
