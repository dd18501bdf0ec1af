//! A hundred thousand operations take seconds, not hours.

use std::time::{Duration, Instant};

use fastrand::Rng;

use super::draw::{Drawn, Shape, history};
use crate::linearizability::{
    Appends, Counter, History, Model, Register, Transfers, Verdict, check,
};

#[test]
fn a_hundred_thousand_operations_on_a_hundred_keys() {
    let mut rng = Rng::with_seed(1);
    let mut whole = History::default();
    let shape = Shape {
        clients: 16,
        operations: 1000,
        unknown: 1,
        refused: 1,
    };
    for key in 0..25 {
        let name = format!("key:{key}");
        whole
            .registers
            .insert(name.clone(), history(&mut rng, &shape));
        whole
            .counters
            .insert(name.clone(), history(&mut rng, &shape));
        whole.lists.insert(name.clone(), history(&mut rng, &shape));
        whole.transfers.insert(name, history(&mut rng, &shape));
    }
    let begun = Instant::now();
    let summary = whole.check();
    println!("{:?}: {summary}", begun.elapsed());
    assert!(
        summary.anomalies.is_empty() && summary.undecided.is_empty(),
        "{summary}"
    );
    assert!(summary.done + summary.unknown + summary.refused >= 100_000);
    assert!(begun.elapsed() < Duration::from_secs(30));
}

/// All clients at one key, and much that nobody knows.
fn crowd<M: Model>(unknown: u8)
where
    M::Action: Drawn,
{
    let mut rng = Rng::with_seed(2);
    let shape = Shape {
        clients: 16,
        operations: 5000,
        unknown,
        refused: 1,
    };
    let operations = history(&mut rng, &shape);
    let begun = Instant::now();
    let verdict = check::<M>("crowded", &operations);
    println!(
        "{unknown} % unknown: {verdict:?} after {:?}",
        begun.elapsed()
    );
    assert_eq!(verdict.expect("it is good"), Verdict::Linearizable);
}

#[test]
fn a_crowded_register() {
    crowd::<Register>(20);
}

/// Fewer, since two increases by one look like one by two.
#[test]
fn a_crowded_counter() {
    crowd::<Counter>(1);
}

#[test]
fn a_crowded_list() {
    crowd::<Appends>(20);
}

#[test]
fn crowded_accounts() {
    crowd::<Transfers>(20);
}
