#![allow(clippy::unwrap_used)]
use super::*;
use std::sync::atomic::{AtomicI64, Ordering};

fn request(keys: &[(&str, Mode)]) -> Request {
    let mut request = Request::default();
    for (key, mode) in keys {
        request.add(key.as_bytes(), *mode);
    }
    request
}

use Mode::{Exclusive, Shared};

#[test]
fn readers_share_and_writers_exclude() {
    let latches = Latches::new();
    let mut first = latches.none();
    assert!(first.try_extend(&request(&[("a", Shared)])));
    let mut second = latches.none();
    assert!(second.try_extend(&request(&[("a", Shared)])));
    assert!(!second.try_extend(&request(&[("a", Exclusive), ("b", Exclusive)])));
    drop(first);
    assert!(second.try_extend(&request(&[("a", Exclusive), ("b", Exclusive)])));
    let mut third = latches.none();
    assert!(!third.try_extend(&request(&[("b", Shared)])));
    assert!(!third.try_extend(&Request::everything()));
    drop(second);
    assert!(third.try_extend(&Request::everything()));
    assert!(!latches.none().try_extend(&request(&[])));
    drop(third);
    assert!(latches.are_all_free());
}

#[test]
fn a_waiter_is_not_overtaken_and_gets_all_or_nothing() {
    let latches = Latches::new();
    let mut holder = latches.none();
    assert!(holder.try_extend(&request(&[("a", Exclusive)])));
    let waiting = latches
        .acquire_or_queue(request(&[("a", Exclusive), ("b", Exclusive)]))
        .err()
        .unwrap();
    // b is free, but the waiter came first.
    assert!(!latches.none().try_extend(&request(&[("b", Shared)])));
    drop(holder);
    let held = waiting.grant.blocking_recv().unwrap();
    assert!(!latches.none().try_extend(&request(&[("b", Shared)])));
    drop(held);
    assert!(latches.none().try_extend(&request(&[("b", Exclusive)])));
}

#[test]
fn those_who_do_not_conflict_with_a_waiter_pass_it_by() {
    let latches = Latches::new();
    let mut holder = latches.none();
    assert!(holder.try_extend(&request(&[("a", Exclusive), ("s", Shared)])));
    let _waiting = latches
        .acquire_or_queue(request(&[("a", Exclusive), ("s", Shared)]))
        .err()
        .unwrap();
    let mut other = latches.none();
    assert!(other.try_extend(&request(&[("c", Exclusive), ("s", Shared)])));
    assert!(!other.try_extend(&request(&[("s", Exclusive)])));
}

#[test]
fn to_be_alone_waits_for_all_and_then_lets_all_in() {
    let latches = Latches::new();
    let mut holder = latches.none();
    assert!(holder.try_extend(&request(&[("a", Exclusive)])));
    let alone = latches
        .acquire_or_queue(Request::everything())
        .err()
        .unwrap();
    let behind: Vec<_> = ["b", "c"]
        .iter()
        .map(|key| latches.acquire_or_queue(request(&[(key, Exclusive)])))
        .map(|place| place.err().unwrap())
        .collect();
    drop(holder);
    let mut alone = alone.grant.blocking_recv().unwrap();
    // Whoever waits for this key waits for the one who is alone.
    assert!(alone.try_extend(&request(&[("b", Exclusive), ("c", Shared)])));
    drop(alone);
    for place in behind {
        drop(place.grant.blocking_recv().unwrap());
    }
    assert!(latches.are_all_free());
}

#[test]
fn ten_thousand_waiters_that_went_away_are_passed_over() {
    let latches = Latches::new();
    let mut holder = latches.none();
    assert!(holder.try_extend(&request(&[("a", Exclusive)])));
    for _ in 0..10_000 {
        drop(latches.acquire_or_queue(request(&[("a", Exclusive)])).err());
    }
    drop(holder);
    assert!(latches.are_all_free());
    assert!(latches.table.lock().waiters.is_empty());
}

#[test]
fn a_waiter_that_went_away_blocks_nobody() {
    let latches = Latches::new();
    let mut holder = latches.none();
    assert!(holder.try_extend(&request(&[("a", Exclusive)])));
    let gone = latches.acquire_or_queue(request(&[("a", Exclusive)])).err();
    let next = latches
        .acquire_or_queue(request(&[("a", Shared)]))
        .err()
        .unwrap();
    drop(gone);
    drop(holder);
    drop(next.grant.blocking_recv().unwrap());
    assert!(latches.are_all_free());
    assert!(latches.table.lock().waiters.is_empty());
}

#[test]
fn who_gives_up_leaves_the_queue_and_lets_those_behind_pass() {
    let latches = Latches::new();
    let mut reader = latches.none();
    assert!(reader.try_extend(&request(&[("a", Shared)])));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let patience = Duration::from_millis(200);
            latches.acquire_within(request(&[("a", Exclusive)]), patience)
        });
        while latches.table.lock().waiters.is_empty() {
            std::thread::yield_now();
        }
        // Behind the writer, who comes first, and then only beside the reader, who stays.
        let behind = latches
            .acquire_or_queue(request(&[("a", Shared)]))
            .err()
            .unwrap();
        drop(behind.grant.blocking_recv().unwrap());
        assert!(writer.join().unwrap().is_none());
    });
    assert!(latches.none().try_extend(&request(&[("a", Shared)])));
    drop(reader);
    assert!(latches.are_all_free());
    assert!(latches.table.lock().waiters.is_empty());
}

#[test]
fn who_waits_for_a_while_gets_its_turn_between_those_who_never_pause() {
    let latches = Latches::new();
    let has_ended = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        // There is always one who holds it and one who is next.
        for _ in 0..2 {
            scope.spawn(|| {
                while !has_ended.load(Ordering::Relaxed) {
                    let held = latches.acquire_blocking(request(&[("a", Exclusive)]));
                    std::thread::sleep(Duration::from_millis(1));
                    drop(held);
                }
            });
        }
        let patience = Duration::from_secs(60);
        for _ in 0..10 {
            let held = latches.acquire_within(request(&[("a", Exclusive)]), patience);
            assert!(held.is_some());
        }
        has_ended.store(true, Ordering::Relaxed);
    });
    assert!(latches.are_all_free());
}

#[test]
fn many_threads_never_meet_under_an_exclusive_latch() {
    let latches = Latches::new();
    let inside: Vec<AtomicI64> = (0..4).map(|_| AtomicI64::new(0)).collect();
    std::thread::scope(|scope| {
        for seed in 0..8 {
            let (latches, inside) = (latches.clone(), &inside);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                for _ in 0..2000 {
                    let mut request = Request::default();
                    let keys: Vec<(usize, Mode)> = (0..random.usize(1..4))
                        .map(|_| {
                            let mode = if random.bool() { Shared } else { Exclusive };
                            (random.usize(0..4), mode)
                        })
                        .collect();
                    let exclusive: Vec<usize> = (0..4)
                        .filter(|key| keys.contains(&(*key, Exclusive)))
                        .collect();
                    for (key, mode) in &keys {
                        request.add(&[*key as u8], *mode);
                    }
                    let held = latches.acquire_blocking(request);
                    for &key in &exclusive {
                        assert_eq!(inside[key].fetch_add(1, Ordering::SeqCst), 0);
                    }
                    for &key in &exclusive {
                        inside[key].fetch_sub(1, Ordering::SeqCst);
                    }
                    drop(held);
                }
            });
        }
    });
    assert!(latches.are_all_free());
}
