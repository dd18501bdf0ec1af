//! Expiry: hidden at the right millisecond, deleted when due, and rows of the index that went stale.

use cairn_encoding::metadata::Type;
use cairn_encoding::system::SystemKind;
use cairn_store::{Expiry, Family, Progress, databases, keys, string};

use crate::support::*;

fn expire(txn: &mut cairn_store::WriteTxn, name: &str, at_ms: u64) {
    keys::set_expiry(txn, name.as_bytes(), at_ms).unwrap();
}

/// Lets the expirer work until it has nothing left to do.
fn expire_all(fixture: &Fixture) -> (u64, u64) {
    let expirer = fixture.store().expirer();
    let before = (expirer.expired_keys(), expirer.stale_rows());
    while fixture.store().expire_some(7).unwrap() != Progress::Idle {}
    (
        expirer.expired_keys() - before.0,
        expirer.stale_rows() - before.1,
    )
}

#[test]
fn a_key_lives_through_its_last_millisecond() {
    let fixture = Fixture::new();
    fixture.write(|txn| {
        set_until(txn, "string", "value", START + 100);
        for name in ["hash", "set", "zset", "list"] {
            match name {
                "hash" => hset(txn, name, fields(2)),
                "set" => sadd(txn, name, &["a"]),
                "zset" => zadd(txn, name, 1.0, "a"),
                _ => rpush(txn, name, &["a"]),
            }
            expire(txn, name, START + 100);
        }
    });
    for (millis, expected) in [(99, 5), (100, 5), (101, 0), (5_000, 0)] {
        fixture.time.set_millis(START + millis);
        assert_eq!(fixture.keys().len(), expected, "after {millis} ms");
        let count = fixture.store().count_keys(0).unwrap();
        assert_eq!(count.keys, expected as u64);
        assert_eq!(count.expires, expected as u64);
        fixture.read(|txn| {
            assert_eq!(get(txn, "string").is_some(), expected > 0);
            assert_eq!(hgetall(txn, "hash").is_empty(), expected == 0);
        });
    }
    // Hidden, not deleted: reading does not write.
    assert_eq!(fixture.count_in(Family::Metadata), 5);
}

#[test]
fn a_key_that_has_expired_can_be_anything_again() {
    let fixture = Fixture::new();
    fixture.write(|txn| {
        hset(txn, "key", fields(3));
        expire(txn, "key", START + 1);
    });
    fixture.time.set_millis(START + 2);
    fixture.write(|txn| {
        assert!(!del(txn, "key"));
        rpush(txn, "key", &["element"]);
    });
    assert_eq!(expire_all(&fixture), (0, 1));
    let kind = fixture.read(|txn| txn.find(&txn.key(b"key")).unwrap().unwrap().kind());
    assert_eq!(kind, Type::List);
    assert_eq!(
        fixture.read(|txn| keys::expiry_of(txn, b"key").unwrap()),
        Some(0)
    );
}

#[test]
fn the_expirer_deletes_exactly_what_is_due() {
    let fixture = Fixture::new();
    fixture.write(|txn| {
        set(txn, "forever", "value");
        for n in 0..100 {
            set_until(txn, &format!("due:{n}"), "value", START + n);
        }
        hset(txn, "due:hash", fields(50));
        expire(txn, "due:hash", START + 20);
    });
    fixture.time.set_millis(START + 50);
    assert_eq!(expire_all(&fixture), (51, 0));
    let mut left: Vec<String> = (50..100).map(|n| format!("due:{n}")).collect();
    left.push("forever".into());
    left.sort();
    assert_eq!(fixture.keys(), left);
    assert_eq!(fixture.count_in(Family::Metadata), 51);
    assert_eq!(fixture.count_in(Family::Expiry), 50);
    // Nothing more to do, and it says so.
    assert_eq!(expire_all(&fixture), (0, 0));
    assert_eq!(fixture.store().expire_some(7).unwrap(), Progress::Idle);
}

#[test]
fn a_limit_is_kept_and_more_is_announced() {
    let fixture = Fixture::new();
    fixture.write(|txn| {
        for n in 0..10 {
            set_until(txn, &format!("due:{n}"), "value", START + n);
        }
    });
    fixture.time.set_millis(START + 1_000);
    for left in [6, 2] {
        assert_ne!(fixture.store().expire_some(4).unwrap(), Progress::Idle);
        assert_eq!(fixture.count_in(Family::Metadata), left);
        assert_eq!(fixture.count_of(SystemKind::Watermark), 0);
    }
    assert_eq!(fixture.store().expire_some(4).unwrap(), Progress::Idle);
    assert_eq!(fixture.count_in(Family::Metadata), 0);
    assert_eq!(fixture.count_of(SystemKind::Watermark), 1);
}

#[test]
fn a_batch_that_takes_the_very_last_leaves_the_watermark_to_the_next() {
    let fixture = Fixture::new();
    fixture.write(|txn| {
        for n in 0..8 {
            set_until(txn, &format!("due:{n}"), "value", START + n);
        }
    });
    fixture.time.set_millis(START + 1_000);
    for left in [4, 0] {
        assert_ne!(fixture.store().expire_some(4).unwrap(), Progress::Idle);
        assert_eq!(fixture.count_in(Family::Metadata), left);
        assert_eq!(fixture.count_of(SystemKind::Watermark), 0);
    }
    assert_eq!(fixture.store().expire_some(4).unwrap(), Progress::Idle);
    assert_eq!(fixture.count_of(SystemKind::Watermark), 1);
}

/// Nobody waits for the expirer, and it waits for nobody.
#[test]
fn a_key_that_somebody_works_on_is_left_for_the_next_time() {
    let fixture = Fixture::new();
    fixture.write(|txn| {
        set_until(txn, "busy", "value", START + 5);
        // Several batches, in the first of which it is.
        for n in 0..20 {
            set_until(txn, &format!("due:{n}"), "value", START + n);
        }
    });
    fixture.time.set_millis(START + 21);
    let held = fixture
        .store()
        .latches()
        .acquire_blocking(exclusive(&["busy"]));
    assert_eq!(expire_all(&fixture), (20, 0));
    assert_eq!(fixture.keys_in(Family::Metadata), ["busy"]);
    assert_eq!(fixture.count_of(SystemKind::Watermark), 0);
    drop(held);
    assert_eq!(expire_all(&fixture), (1, 0));
    assert_eq!(fixture.count_in(Family::Metadata), 0);
    assert_eq!(fixture.count_of(SystemKind::Watermark), 1);
}

/// A long command works with the time it began at, so what it commits may be due already, and earlier
/// than what the expirer has dealt with.
#[test]
fn a_row_that_comes_late_is_found_too() {
    let mut fixture = Fixture::new();
    fixture.write(|txn| set_until(txn, "in time", "value", START + 10));
    fixture.time.set_millis(START + 100);
    assert_eq!(expire_all(&fixture), (1, 0));
    fixture.write(|txn| set_until(txn, "late", "value", START + 5));
    assert_eq!(fixture.keys(), [""; 0]);
    fixture.restart();
    assert_eq!(expire_all(&fixture), (1, 0));
    assert_eq!(fixture.count_in(Family::Metadata), 0);
}

#[test]
fn a_paused_expirer_deletes_nothing() {
    let fixture = Fixture::new();
    fixture.write(|txn| set_until(txn, "due", "value", START + 1));
    fixture.time.set_millis(START + 2);
    fixture.store().expirer().pause(true);
    assert_eq!(expire_all(&fixture), (0, 0));
    assert_eq!(fixture.count_in(Family::Metadata), 1);
    fixture.store().expirer().pause(false);
    assert_eq!(expire_all(&fixture), (1, 0));
}

/// Each of these leaves the row for `START + 10` behind, or moves it; none may cost the key its life.
#[test]
fn stale_rows_of_the_index_do_no_harm_and_go() {
    let fixture = Fixture::new();
    let names = [
        "blind set",
        "blind set, moved",
        "persisted",
        "moved later",
        "recreated",
        "kept",
    ];
    fixture.write(|txn| {
        for name in names {
            set_until(txn, name, "value", START + 10);
        }
    });
    fixture.write(|txn| {
        set(txn, "blind set", "again");
        set(txn, "blind set, moved", "again");
        expire(txn, "blind set, moved", START + 1_000);
        expire(txn, "persisted", 0);
        expire(txn, "moved later", START + 1_000);
        del(txn, "recreated");
        hset(txn, "recreated", fields(1));
        string::set(txn, b"kept", b"again", Expiry::Keep).unwrap();
    });
    // A plain SET reads nothing, so it alone leaves its row: two of these six.
    assert_eq!(fixture.count_in(Family::Expiry), 2 + 3);
    fixture.time.set_millis(START + 500);
    assert_eq!(expire_all(&fixture), (1, 2));
    let mut left = names.to_vec();
    left.retain(|name| *name != "kept");
    left.sort_unstable();
    assert_eq!(fixture.keys(), left);
    assert_eq!(fixture.count_in(Family::Expiry), 2);
    fixture.time.set_millis(START + 1_500);
    assert_eq!(expire_all(&fixture), (2, 0));
    assert_eq!(fixture.keys(), ["blind set", "persisted", "recreated"]);
    assert_eq!(fixture.count_in(Family::Expiry), 0);
}

/// What it asks for are keys that nobody else may ever ask for again.
#[test]
fn the_expirer_does_not_keep_the_values_that_it_looks_at() {
    const KEYS: u64 = 100;
    let mut fixture = Fixture::new();
    let value = "x".repeat(2000);
    fixture.write(|txn| {
        for n in 0..KEYS {
            set_until(txn, &n.to_string(), &value, START + 10);
        }
    });
    // Without a TTL nothing is read, and the row of the index stays.
    fixture.write(|txn| (0..KEYS).for_each(|n| set(txn, &n.to_string(), &value)));
    fixture.compact();
    fixture.restart();
    fixture.time.set_millis(START + 11);
    let kept = || fixture.store().engine().statistics().rows_in_memory_bytes;
    let before = kept();
    assert_eq!(expire_all(&fixture), (0, KEYS));
    assert!(kept() - before < KEYS * value.len() as u64 / 2);
}

#[test]
fn a_key_made_again_with_the_same_expiry_is_due_once() {
    let fixture = Fixture::new();
    fixture.write(|txn| set_until(txn, "key", "value", START + 10));
    fixture.write(|txn| set(txn, "key", "blind"));
    fixture.write(|txn| expire(txn, "key", START + 10));
    assert_eq!(fixture.count_in(Family::Expiry), 1);
    fixture.time.set_millis(START + 11);
    assert_eq!(expire_all(&fixture), (1, 0));
}

#[test]
fn a_thousand_expires_of_one_key_leave_one_row() {
    let fixture = Fixture::new();
    fixture.write(|txn| hset(txn, "hash", fields(3)));
    for n in 1..=1_000 {
        fixture.write(|txn| expire(txn, "hash", START + n));
    }
    assert_eq!(fixture.count_in(Family::Expiry), 1);
    let mut txn = fixture.txn();
    for n in 1..=1_000 {
        set_until(&mut txn, "string", "value", START + n);
    }
    fixture.commit(txn);
    assert_eq!(fixture.count_in(Family::Expiry), 2);
    fixture.time.set_millis(START + 1_000);
    assert_eq!(expire_all(&fixture), (0, 0));
    fixture.time.set_millis(START + 1_001);
    assert_eq!(expire_all(&fixture), (2, 0));
    assert_eq!(fixture.count_in(Family::Expiry), 0);
}

#[test]
fn an_expiry_does_not_touch_what_the_key_holds() {
    let fixture = Fixture::new();
    fixture.write(|txn| {
        set(txn, "large", &"x".repeat(100_000));
        hset(txn, "hash", fields(1_000));
    });
    let mut txn = fixture.txn();
    expire(&mut txn, "large", START + 1);
    expire(&mut txn, "hash", START + 1);
    assert_eq!(txn.pending().len(), 4);
    assert!(!txn.pending().has_changes_in(Family::Data));
    fixture.commit(txn);
    fixture.read(|txn| {
        assert_eq!(get(txn, "large").unwrap().len(), 100_000);
        assert_eq!(hgetall(txn, "hash").len(), 1_000);
    });
}

#[test]
fn renamed_and_copied_keys_take_their_expiry_along() {
    let fixture = Fixture::new();
    fixture.write(|txn| {
        set_until(txn, "from", "value", START + 10);
        set_until(txn, "over", "value", START + 20);
        hset(txn, "hash", fields(2));
        expire(txn, "hash", START + 30);
    });
    fixture.write(|txn| {
        let [from, over, hash, copy] =
            ["from", "over", "hash", "copy"].map(|n| txn.key(n.as_bytes()));
        assert!(keys::rename(txn, &from, &over).unwrap());
        assert!(keys::copy(txn, &hash, &copy).unwrap());
    });
    let index = fixture.keys_in(Family::Expiry);
    assert_eq!(index.len(), 3);
    fixture.time.set_millis(START + 11);
    assert_eq!(expire_all(&fixture), (1, 0));
    assert_eq!(fixture.keys(), ["copy", "hash"]);
    fixture.time.set_millis(START + 31);
    assert_eq!(expire_all(&fixture), (2, 0));
}

#[test]
fn a_flushed_database_has_nothing_left_to_expire() {
    let fixture = Fixture::new();
    fixture.write(|txn| set_until(txn, "key", "old", START + 10));
    fixture.write(|txn| databases::flush(txn, [0]));
    fixture.write(|txn| set(txn, "key", "new"));
    fixture.time.set_millis(START + 100);
    expire_all(&fixture);
    assert_eq!(fixture.read(|txn| get(txn, "key")).as_deref(), Some("new"));
    assert_eq!(fixture.count_in(Family::Expiry), 0);
}

#[test]
fn a_collection_that_becomes_empty_takes_its_expiry_row_along() {
    let fixture = Fixture::new();
    fixture.write(|txn| {
        rpush(txn, "list", &["a"]);
        hset(txn, "hash", fields(1));
        expire(txn, "list", START + 10);
        expire(txn, "hash", START + 10);
    });
    fixture.write(|txn| {
        let mut list = cairn_store::List::open(txn, b"list").unwrap();
        list.pop(txn, cairn_store::End::Left).unwrap();
        list.save(txn);
        let mut hash = cairn_store::Hash::open(txn, b"hash").unwrap();
        assert!(hash.remove(txn, b"field:000000").unwrap());
        hash.save(txn);
    });
    assert_eq!(fixture.keys(), [""; 0]);
    assert_eq!(fixture.count_in(Family::Expiry), 0);
}
