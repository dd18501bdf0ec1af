//! Random histories, good ones and spoilt ones: the checker finds what trying everything finds, no more and no less.

use fastrand::Rng;

use super::brute::{Plain, is_linearizable};
use super::draw::{Drawn, Shape, history};
use crate::linearizability::{
    Access, Append, Appends, Count, Counter, Model, Operation, Outcome, Register, Transfer,
    Transfers, Verdict, check,
};

/// So few operations that everything can be tried.
fn small(rng: &mut Rng) -> Shape {
    Shape {
        clients: rng.usize(2..=4),
        operations: rng.usize(2..=7),
        unknown: 20,
        refused: 10,
    }
}

fn spoil<A: Drawn>(operations: &mut [Operation<A>], rng: &mut Rng) {
    let numbers = 3 * operations.len() as u64;
    let place = rng.usize(..operations.len());
    let operation = &mut operations[place];
    match (rng.u8(0..6), operation.outcome) {
        // It did not happen when it was said to.
        (0, Outcome::Done(end)) => {
            let later = rng.u64(0..8);
            operation.begun += later;
            operation.outcome = Outcome::Done(end + later);
        }
        (1, Outcome::Done(end)) => {
            operation.begun = operation.begun.saturating_sub(rng.u64(0..8));
            operation.outcome = Outcome::Done(operation.begun.max(end.saturating_sub(8)));
        }
        // It was done, or not, although somebody was told otherwise.
        (2, Outcome::Refused(end)) => operation.outcome = Outcome::Done(end),
        (2, Outcome::Done(end)) => operation.outcome = Outcome::Refused(end),
        (2, Outcome::Unknown) => operation.outcome = Outcome::Refused(operation.begun + 1),
        _ => operation.action.spoil(rng, numbers),
    }
}

/// How many of the spoilt ones are bad.
fn compare<M: Model>(rounds: u64) -> usize
where
    M::Action: Drawn + Plain,
{
    let mut bad = 0;
    for seed in 0..rounds {
        let mut rng = Rng::with_seed(seed);
        let shape = small(&mut rng);
        let mut operations: Vec<Operation<M::Action>> = history(&mut rng, &shape);
        let verdict = check::<M>("good", &operations);
        let good = verdict.unwrap_or_else(|anomaly| panic!("seed {seed}: {anomaly}"));
        assert_eq!(good, Verdict::Linearizable, "seed {seed}");
        for _ in 0..rng.usize(1..=3) {
            spoil(&mut operations, &mut rng);
        }
        let expected = is_linearizable(&operations);
        let found = check::<M>("spoilt", &operations);
        assert_eq!(found.is_ok(), expected, "seed {seed}: {operations:#?}");
        bad += usize::from(!expected);
    }
    bad
}

#[test]
fn registers() {
    assert!(compare::<Register>(30_000) > 5_000);
}

#[test]
fn counters() {
    assert!(compare::<Counter>(30_000) > 5_000);
}

#[test]
fn lists() {
    assert!(compare::<Appends>(30_000) > 5_000);
}

#[test]
fn transfers() {
    assert!(compare::<Transfers>(30_000) > 5_000);
}

/// Long histories, in which one answer is wrong: it is found, unless it might have been right.
fn find_one<A: Drawn, M: Model<Action = A>>() -> usize {
    let mut found = 0;
    for seed in 0..200 {
        let mut rng = Rng::with_seed(seed);
        let shape = Shape {
            clients: 8,
            operations: 300,
            unknown: 5,
            refused: 5,
        };
        let mut operations = history(&mut rng, &shape);
        spoil(&mut operations, &mut rng);
        if let Err(anomaly) = check::<M>("spoilt", &operations) {
            assert!(anomaly.explanation.contains("This cannot be"), "{anomaly}");
            found += 1;
        }
    }
    found
}

#[test]
fn one_wrong_answer_in_hundreds() {
    let found = [
        find_one::<Access, Register>(),
        find_one::<Count, Counter>(),
        find_one::<Append, Appends>(),
        find_one::<Transfer, Transfers>(),
    ];
    assert!(found.iter().all(|found| *found > 60), "{found:?}");
}
