//! Fields that are due go batch by batch, while others work on the hash.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cairn_store::{Error, Family, Hash, Patience, Progress, ReadTxn, WriteTxn};

use crate::field_expiry::{expire_all, hexpire, violations};
use crate::support::*;

/// Many of the same millisecond: they go batch by batch, and in between everything agrees.
#[test]
fn fields_go_in_batches_and_every_batch_leaves_whole_rows() {
    let mut fixture = Fixture::new();
    fixture.write(|txn| {
        hset(txn, "large", fields(100));
        hset(txn, "other", fields(1));
        for n in 0..100 {
            let at_ms = START + if n < 60 { 10 } else { 11 + n };
            hexpire(txn, "large", &format!("field:{n:06}"), at_ms);
        }
        hexpire(txn, "other", "field:000000", START + 12);
    });
    fixture.time.set_millis(START + 80);
    let mut batches = 0;
    while fixture.store().expire_some(7).unwrap() != Progress::Idle {
        batches += 1;
        assert_eq!(violations(&fixture), [""; 0]);
        let hash = fixture.read(|txn| hgetall(txn, "large").len());
        assert_eq!(hash, 31);
        if batches == 5 {
            // What is due is found again after a restart, without a place to go on from.
            fixture.restart();
        }
    }
    assert!(batches >= 9, "{batches}");
    assert_eq!(fixture.count_in(Family::Data), 31);
    assert_eq!(fixture.keys(), ["large"]);
    fixture.compact();
    assert_eq!(fixture.count_in(Family::ZsetScore), 62);
    assert_eq!(violations(&fixture), [""; 0]);
}

/// Nobody waits for the expirer, and it waits for nobody.
#[test]
fn a_hash_that_somebody_works_on_is_left_for_the_next_time() {
    let fixture = Fixture::new();
    fixture.write(|txn| {
        for name in ["busy", "idle"] {
            hset(txn, name, fields(2));
            hexpire(txn, name, "field:000000", START + 5);
        }
    });
    fixture.time.set_millis(START + 21);
    let latches = fixture.store().latches();
    let held = latches.acquire_blocking(exclusive(&["busy"]));
    assert_eq!(expire_all(&fixture), (1, 0));
    drop(held);
    assert_eq!(expire_all(&fixture), (1, 0));
    assert_eq!(fixture.count_in(Family::Expiry), 0);
}

/// There is always somebody who has the latch, and somebody who is next.
#[test]
fn a_hash_that_is_worked_on_without_pause_gets_its_turn() {
    let fixture = Fixture::new();
    fixture.write(|txn| {
        hset(txn, "busy", fields(30));
        for n in 0..30 {
            hexpire(txn, "busy", &format!("field:{n:06}"), START + 5);
        }
    });
    fixture.time.set_millis(START + 21);
    let has_ended = AtomicBool::new(false);
    let latches = fixture.store().latches();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !has_ended.load(Ordering::Relaxed) {
                    let held = latches.acquire_blocking(exclusive(&["busy"]));
                    std::thread::sleep(Duration::from_millis(1));
                    drop(held);
                }
            });
        }
        // Each of them may come at a moment at which a thread is held up for long.
        let expired = (0..100).any(|_| expire_all(&fixture).0 > 0);
        has_ended.store(true, Ordering::Relaxed);
        assert!(expired);
    });
}

/// One walk serves many batches, and others change the hash between them: what it names may not be true any more.
#[test]
fn what_is_changed_between_two_batches_is_left_alone() {
    let fixture = Fixture::new();
    let name = |n: u64| format!("field:{n:06}");
    fixture.write(|txn| {
        hset(txn, "hash", fields(40));
        for n in 0..40 {
            hexpire(txn, "hash", &name(n), START + 100 + n / 4);
        }
    });
    fixture.time.set_millis(START + 50);
    fixture.write(|txn| hexpire(txn, "hash", &name(39), START + 1000));
    fixture.time.set_millis(START + 120);
    assert_ne!(fixture.store().expire_some(7).unwrap(), Progress::Idle);
    assert_eq!(violations(&fixture), [""; 0]);
    // The next batches would come to these.
    fixture.write(|txn| {
        let mut hash = Hash::open(txn, b"hash").unwrap();
        for n in [8, 9, 10] {
            assert!(hash.set(txn, name(n).as_bytes(), b"anew").unwrap());
        }
        hash.expire(txn, name(9).as_bytes(), START + 130).unwrap();
        // The first one from now on, by the time.
        hash.expire(txn, name(10).as_bytes(), START + 120).unwrap();
        hash.save(txn);
    });
    let mut batches = 0;
    while fixture.store().expire_some(7).unwrap() != Progress::Idle {
        assert_eq!(violations(&fixture), [""; 0]);
        batches += 1;
    }
    assert!(batches >= 3, "{batches}");
    let left = fixture.read(|txn| hgetall(txn, "hash"));
    let left: Vec<&str> = left.iter().map(|(field, _)| field.as_str()).collect();
    assert_eq!(left, [8, 9, 10, 39].map(name));
    assert_eq!(fixture.count_in(Family::Data), 4);
    // What came after the walk was opened is found by the next.
    fixture.time.set_millis(START + 125);
    assert_eq!(expire_all(&fixture), (1, 0));
    fixture.time.set_millis(START + 131);
    assert_eq!(expire_all(&fixture), (1, 0));
    fixture.read(|txn| assert_eq!(hgetall(txn, "hash").len(), 2));
    assert_eq!(violations(&fixture), [""; 0]);
    fixture.compact();
    assert_eq!(violations(&fixture), [""; 0]);
    // Once all that is due is gone the time of the first is exact again, so that nobody looks for what is due.
    let first = |txn: &ReadTxn| Hash::open(txn, b"hash").unwrap().first_expiry(txn);
    assert_eq!(fixture.read(first).unwrap(), Some(START + 1000));
}

/// Their fields are due in turns, so that a batch of one comes between batches of the other.
#[test]
fn fields_of_several_hashes_go_in_the_order_of_time() {
    let fixture = Fixture::new();
    let names = ["a", "b", "c"];
    fixture.write(|txn| {
        for name in names {
            hset(txn, name, fields(60));
            for n in 0..60 {
                hexpire(txn, name, &format!("field:{n:06}"), START + 10 + n);
            }
        }
    });
    fixture.time.set_millis(START + 50);
    fixture.store().expire_some(4).unwrap();
    fixture.write(|txn| {
        for name in names {
            hset(txn, name, vec![("field:000020".into(), "anew".into())]);
        }
    });
    assert_eq!(expire_all(&fixture).0, 3 * 39 - 4);
    assert_eq!(fixture.count_in(Family::Data), 3 * 21);
    assert_eq!(violations(&fixture), [""; 0]);
    fixture.time.set_millis(START + 100);
    assert_eq!(expire_all(&fixture), (3 * 20, 0));
    fixture.compact();
    assert_eq!(fixture.count_in(Family::ZsetScore), 0);
    assert_eq!(fixture.count_in(Family::Expiry), 0);
    assert_eq!(violations(&fixture), [""; 0]);
}

fn short(fixture: &Fixture) -> WriteTxn {
    let mut txn = WriteTxn::new(
        fixture.store().clone(),
        fixture.store().home().clone(),
        Patience::Short,
    );
    txn.begin(0);
    txn
}

fn is_too_long<T>(result: cairn_store::Result<T>) -> bool {
    matches!(result, Err(Error::TooLong))
}

/// They may be as many as the fields, and all of them young: to begin a walk is to look at them.
#[test]
fn walks_over_very_many_that_are_due_are_not_for_the_thread_of_a_connection() {
    let fixture = Fixture::new();
    fixture.write(|txn| {
        hset(txn, "hash", fields(15_000));
        let mut hash = Hash::open(txn, b"hash").unwrap();
        for (field, _) in fields(15_000) {
            hash.expire(txn, field.as_bytes(), START + 10).unwrap();
        }
        hash.set(txn, b"kept", b"value").unwrap();
        hash.save(txn);
    });
    let asked = |txn: &ReadTxn| {
        let hash = Hash::open(txn, b"hash").unwrap();
        [
            is_too_long(hash.len(txn)),
            is_too_long(hash.rows(txn)),
            is_too_long(hash.values(txn, &[b"kept"])),
            is_too_long(hash.collection().any(txn)),
        ]
    };
    // Nothing is due, and nobody looks.
    assert_eq!(asked(&short(&fixture)), [false; 4]);
    fixture.time.set_millis(START + 11);
    assert_eq!(asked(&short(&fixture)), [true; 4]);
    fixture.read(|txn| assert_eq!(asked(txn), [false; 4]));
}

/// Without ranks each draw would be a walk.
#[test]
fn one_walk_finds_the_only_field_that_is_not_due() {
    let fixture = Fixture::new();
    fixture.write(|txn| {
        hset(txn, "hash", fields(4000));
        let mut hash = Hash::open(txn, b"hash").unwrap();
        for (field, _) in fields(4000).filter(|(field, _)| field != "field:001234") {
            hash.expire(txn, field.as_bytes(), START + 10).unwrap();
        }
        hash.save(txn);
    });
    fixture.time.set_millis(START + 11);
    let txn = short(&fixture);
    let hash = Hash::open(&txn, b"hash").unwrap();
    let found = hash.collection().any(&txn).unwrap().unwrap();
    assert_eq!(hash.field_of(&found), b"field:001234");
}

/// What said when they expire is there until a compaction comes by.
#[test]
fn what_fields_that_are_gone_have_left_behind_is_passed_by() {
    let fixture = Fixture::new();
    fixture.write(|txn| {
        hset(txn, "hash", fields(200));
        for n in 0..200 {
            let at_ms = if n % 50 == 7 {
                START + 1000 + n
            } else {
                START + 10
            };
            hexpire(txn, "hash", &format!("field:{n:06}"), at_ms);
        }
        hset(txn, "hash", vec![("field:000100x".into(), "kept".into())]);
    });
    fixture.time.set_millis(START + 11);
    assert_eq!(expire_all(&fixture).0, 196);
    // They have no time any more, although rows say that they had one.
    fixture.write(|txn| {
        for n in [30, 130] {
            hset(txn, "hash", vec![(format!("field:{n:06}"), "anew".into())]);
        }
    });
    fixture.read(|txn| {
        let hash = Hash::open(txn, b"hash").unwrap();
        let mut rows = hash.rows_with_times(txn).unwrap();
        let mut times = Vec::new();
        while let Some(row) = rows.next().unwrap() {
            assert!(!row.is_due);
            let field = String::from_utf8(hash.field_of(row.row_key).to_vec()).unwrap();
            times.push((field, row.expire_ms));
        }
        let expiring = |n: u64| (format!("field:{n:06}"), START + 1000 + n);
        let kept = |name: &str| (name.to_owned(), 0);
        let expected = [
            expiring(7),
            kept("field:000030"),
            expiring(57),
            kept("field:000100x"),
            expiring(107),
            kept("field:000130"),
            expiring(157),
        ];
        assert_eq!(times, expected);
    });
}
