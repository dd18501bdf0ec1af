//! Histories whose verdict is known, and what is said of the bad ones.

use crate::linearizability::{
    Access, Anomaly, Append, Appends, Count, Counter, Model, Operation, Outcome, Register,
    Transfer, Transfers, Verdict, check,
};

fn done<A>(client: usize, begun: u64, end: u64, action: A) -> Operation<A> {
    Operation {
        client,
        begun,
        outcome: Outcome::Done(end),
        action,
    }
}

fn unknown<A>(client: usize, begun: u64, action: A) -> Operation<A> {
    Operation {
        client,
        begun,
        outcome: Outcome::Unknown,
        action,
    }
}

fn refused<A>(client: usize, begun: u64, end: u64, action: A) -> Operation<A> {
    Operation {
        client,
        begun,
        outcome: Outcome::Refused(end),
        action,
    }
}

#[track_caller]
fn good<M: Model>(operations: &[Operation<M::Action>]) {
    match check::<M>("key", operations) {
        Ok(verdict) => assert_eq!(verdict, Verdict::Linearizable),
        Err(anomaly) => panic!("{anomaly}"),
    }
}

#[track_caller]
fn bad<M: Model>(operations: &[Operation<M::Action>]) -> Anomaly {
    check::<M>("key", operations).expect_err("it cannot be")
}

use Access::{Get, Set, Swap};

#[test]
fn reads_see_what_was_written() {
    good::<Register>(&[]);
    good::<Register>(&[
        done(1, 0, 1, Get(None)),
        done(1, 2, 3, Set(7)),
        done(2, 4, 5, Get(Some(7))),
    ]);
}

#[test]
fn while_a_write_goes_on_it_may_be_seen_or_not() {
    good::<Register>(&[
        done(1, 0, 9, Set(7)),
        done(2, 1, 2, Get(None)),
        done(2, 3, 4, Get(Some(7))),
    ]);
}

#[test]
fn a_stale_read() {
    let anomaly = bad::<Register>(&[
        done(1, 0, 1, Set(7)),
        done(1, 2, 3, Set(8)),
        done(2, 4, 5, Get(Some(7))),
    ]);
    let expected = "\
key: no order of its operations explains what clients were told.
  This cannot be: client 2 (0.000 ms to 0.000 ms): GET found 7
    7 came from: client 1 (0.000 ms to 0.000 ms): SET 7
  Without it, there may have been: 8
  The last 2 of 2 operations before it:
    client 1 (0.000 ms to 0.000 ms): SET 7
    client 1 (0.000 ms to 0.000 ms): SET 8
";
    assert_eq!(anomaly.to_string(), expected);
}

#[test]
fn a_lost_write() {
    bad::<Register>(&[done(1, 0, 1, Set(7)), done(2, 2, 3, Get(None))]);
}

/// A client sent it again, and the first had been done: it undid what others had written since.
#[test]
fn a_write_done_twice() {
    bad::<Register>(&[
        done(1, 0, 4, Set(7)),
        done(2, 1, 2, Get(Some(7))),
        done(2, 5, 6, Set(8)),
        done(2, 7, 8, Get(Some(8))),
        done(3, 9, 10, Get(Some(7))),
    ]);
}

#[test]
fn reads_that_go_back_in_time() {
    bad::<Register>(&[
        done(1, 0, 9, Set(7)),
        done(2, 1, 2, Get(Some(7))),
        done(3, 3, 4, Get(None)),
    ]);
}

#[test]
fn a_write_of_which_nobody_knows() {
    let write = unknown(1, 1, Set(7));
    good::<Register>(std::slice::from_ref(&write));
    good::<Register>(&[write.clone(), done(2, 10, 11, Get(None))]);
    good::<Register>(&[write.clone(), done(2, 10, 11, Get(Some(7)))]);
    good::<Register>(&[
        write.clone(),
        done(2, 10, 11, Get(None)),
        done(2, 12, 13, Get(Some(7))),
    ]);
    let never_twice = [
        write.clone(),
        done(2, 10, 11, Get(Some(7))),
        done(2, 12, 13, Set(8)),
        done(2, 14, 15, Get(Some(7))),
    ];
    bad::<Register>(&never_twice);
    // Not before it was begun.
    bad::<Register>(&[done(2, 0, 0, Get(Some(7))), write]);
}

#[test]
fn a_write_that_was_certainly_refused_shows() {
    let anomaly = bad::<Register>(&[refused(1, 0, 1, Set(7)), done(2, 2, 3, Get(Some(7)))]);
    let origin = "7 came from: client 1 (0.000 ms to 0.000 ms, refused): SET 7";
    assert!(anomaly.explanation.contains(origin), "{anomaly}");
    let anomaly = bad::<Register>(&[done(2, 2, 3, Get(Some(7)))]);
    assert!(
        anomaly.explanation.contains("7 was never written"),
        "{anomaly}"
    );
}

#[test]
fn two_swaps_of_the_same_value() {
    let swap = |to| Swap { from: Some(1), to };
    good::<Register>(&[
        done(1, 0, 1, Set(1)),
        done(1, 2, 5, swap(2)),
        done(2, 3, 6, Get(Some(1))),
    ]);
    bad::<Register>(&[
        done(1, 0, 1, Set(1)),
        done(1, 2, 5, swap(2)),
        done(2, 3, 6, swap(3)),
    ]);
    // One of them may have failed, if nobody knows.
    good::<Register>(&[
        done(1, 0, 1, Set(1)),
        done(1, 2, 5, swap(2)),
        unknown(2, 3, swap(3)),
    ]);
    bad::<Register>(&[
        done(1, 0, 1, Set(1)),
        done(1, 2, 5, swap(2)),
        unknown(2, 3, swap(3)),
        done(1, 6, 7, Get(Some(2))),
        done(1, 8, 9, Get(Some(3))),
    ]);
}

fn increase(told: i64) -> Count {
    Count::Increase {
        by: 1,
        told: Some(told),
    }
}

#[test]
fn counters_count() {
    good::<Counter>(&[done(1, 0, 5, increase(2)), done(2, 1, 6, increase(1))]);
    good::<Counter>(&[
        done(1, 0, 1, increase(1)),
        unknown(2, 0, increase(0)),
        done(1, 2, 3, increase(3)),
        done(1, 4, 5, Count::Get(3)),
    ]);
    // Lost, done twice, told twice.
    bad::<Counter>(&[done(1, 0, 1, increase(1)), done(1, 2, 3, Count::Get(0))]);
    bad::<Counter>(&[done(1, 0, 1, increase(1)), done(1, 2, 3, increase(3))]);
    bad::<Counter>(&[done(1, 0, 5, increase(1)), done(2, 0, 5, increase(1))]);
    bad::<Counter>(&[
        done(1, 0, 1, increase(1)),
        refused(2, 0, 1, increase(0)),
        done(1, 2, 3, increase(3)),
    ]);
}

fn push(element: u64, told: usize) -> Append {
    Append::Push {
        element,
        told: Some(told),
    }
}

#[test]
fn lists_grow() {
    let read = |elements: &[u64]| Append::Read(elements.to_vec());
    good::<Appends>(&[
        done(1, 0, 9, push(7, 2)),
        done(2, 1, 8, push(8, 1)),
        done(3, 2, 3, read(&[8])),
        done(3, 10, 11, read(&[8, 7])),
    ]);
    good::<Appends>(&[
        unknown(1, 0, push(7, 0)),
        done(2, 1, 2, read(&[])),
        done(2, 3, 4, push(8, 2)),
        done(2, 5, 6, read(&[7, 8])),
    ]);
    // An append that nobody reads may be counted.
    good::<Appends>(&[unknown(1, 0, push(7, 0)), done(2, 1, 2, push(8, 2))]);
    // Lost, there twice, in two orders, gone again, never asked for.
    bad::<Appends>(&[done(1, 0, 1, push(7, 1)), done(2, 2, 3, read(&[]))]);
    bad::<Appends>(&[done(1, 0, 1, push(7, 1)), done(2, 2, 3, read(&[7, 7]))]);
    bad::<Appends>(&[
        done(1, 0, 9, push(7, 1)),
        done(2, 0, 9, push(8, 2)),
        done(3, 10, 11, read(&[7, 8])),
        done(3, 12, 13, read(&[8, 7])),
    ]);
    bad::<Appends>(&[
        unknown(1, 0, push(7, 0)),
        done(2, 1, 2, read(&[7])),
        done(2, 3, 4, read(&[])),
    ]);
    bad::<Appends>(&[done(2, 2, 3, read(&[9]))]);
    bad::<Appends>(&[refused(1, 0, 1, push(7, 0)), done(2, 1, 2, read(&[7]))]);
    bad::<Appends>(&[done(1, 0, 1, push(7, 1)), done(1, 2, 3, push(8, 3))]);
}

#[test]
fn transfers_are_seen_whole() {
    let transfer = |number, from, to, amount| Transfer::Move {
        number,
        from,
        to,
        amount,
        told: None,
    };
    let read = |balances: &[i64], log: &[u64]| Transfer::Read {
        balances: balances.to_vec(),
        log: log.to_vec(),
    };
    good::<Transfers>(&[
        done(1, 0, 5, transfer(1, 0, 1, 10)),
        done(2, 1, 6, transfer(2, 1, 2, 4)),
        done(3, 2, 3, read(&[0, -4, 4], &[2])),
        done(3, 7, 8, read(&[-10, 6, 4], &[2, 1])),
    ]);
    let anomaly = bad::<Transfers>(&[
        done(1, 0, 5, transfer(1, 0, 1, 10)),
        done(3, 2, 3, read(&[-10, 0], &[1])),
    ]);
    let half = "found [-10, 0], -10 in all, after transfers 1 elements: 1";
    assert!(anomaly.explanation.contains(half), "{anomaly}");
    bad::<Transfers>(&[
        done(1, 0, 1, transfer(1, 0, 1, 10)),
        done(3, 2, 3, read(&[-20, 20], &[1])),
    ]);
}

/// Of a long history only what matters is shown: how it was when it first could not be.
#[test]
fn the_shortest_bad_history_is_explained() {
    let mut operations = Vec::new();
    for round in 0..1000 {
        let time = round * 10_000_000;
        operations.push(done(1, time, time + 1_000_000, Set(round)));
        let found = if round == 500 { 499 } else { round };
        operations.push(done(
            2,
            time + 2_000_000,
            time + 3_000_000,
            Get(Some(found)),
        ));
    }
    let anomaly = bad::<Register>(&operations);
    let first = "This cannot be: client 2 (5002.000 ms to 5003.000 ms): GET found 499";
    assert!(anomaly.explanation.contains(first), "{anomaly}");
    assert!(
        anomaly
            .explanation
            .contains("The last 16 of 1001 operations"),
        "{anomaly}"
    );
}
