//! What commands leave behind, and what compactions make of it: the filters, end to end.

use std::sync::atomic::Ordering;

use cairn_store::{End, Family, List, Progress, Set, databases, keys};

use crate::support::*;

/// Dead versions, list gaps, expired metadata, dead databases: dropped since the start.
fn dropped(fixture: &Fixture) -> [u64; 4] {
    let counters = fixture.store().engine().filter_counters();
    [
        &counters.dead_versions,
        &counters.cut_off,
        &counters.expired_metadata,
        &counters.dead_databases,
    ]
    .map(|counter| counter.load(Ordering::Relaxed))
}

#[test]
fn a_deleted_key_writes_one_row_and_its_own_go_later() {
    let fixture = Fixture::new();
    fixture.write(|txn| {
        hset(txn, "hash", fields(1_000));
        zadd(txn, "zset", 1.0, "member");
        set(txn, "large", &"x".repeat(40_000));
        hset(txn, "survivor", fields(10));
    });
    let mut txn = fixture.txn();
    for name in ["hash", "zset", "large"] {
        assert!(del(&mut txn, name));
    }
    assert_eq!(txn.pending().len(), 3);
    fixture.commit(txn);
    assert_eq!(fixture.count_in(Family::Data), 1_000 + 1 + 3 + 10);
    fixture.compact();
    assert_eq!(fixture.count_in(Family::Data), 10);
    assert_eq!(fixture.count_in(Family::ZsetScore), 0);
    assert_eq!(dropped(&fixture), [1_000 + 1 + 3 + 1, 0, 0, 0]);
    assert_eq!(fixture.read(|txn| hgetall(txn, "survivor")).len(), 10);
}

#[test]
fn what_a_set_overwrites_and_what_is_made_again_lose_their_old_rows_only() {
    let fixture = Fixture::new();
    fixture.write(|txn| {
        hset(txn, "overwritten", fields(20));
        hset(txn, "recreated", fields(30));
        set(txn, "large", &"x".repeat(100_000));
    });
    fixture.write(|txn| {
        set(txn, "overwritten", "string");
        del(txn, "recreated");
        hset(txn, "recreated", fields(5));
        set(txn, "large", &"y".repeat(50_000));
    });
    fixture.compact();
    assert_eq!(dropped(&fixture), [20 + 30 + 7, 0, 0, 0]);
    assert_eq!(fixture.count_in(Family::Data), 5 + 4);
    fixture.read(|txn| {
        assert_eq!(get(txn, "overwritten").as_deref(), Some("string"));
        assert_eq!(hgetall(txn, "recreated").len(), 5);
        assert_eq!(get(txn, "large").unwrap(), "y".repeat(50_000));
    });
}

#[test]
fn a_list_loses_the_rows_it_was_narrowed_by_and_keeps_those_inside() {
    let fixture = Fixture::new();
    let elements: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    let elements: Vec<&str> = elements.iter().map(String::as_str).collect();
    fixture.write(|txn| rpush(txn, "list", &elements));
    let mut txn = fixture.txn();
    let mut list = List::open(&txn, b"list").unwrap();
    for _ in 0..10 {
        list.pop(&txn, End::Left).unwrap();
        list.pop(&txn, End::Right).unwrap();
    }
    list.trim(20..60);
    list.save(&mut txn);
    // Popping writes the metadata, and no tombstones.
    assert_eq!(txn.pending().len(), 1);
    fixture.commit(txn);
    assert_eq!(fixture.count_in(Family::Data), 100);
    fixture.compact();
    assert_eq!(dropped(&fixture), [0, 60, 0, 0]);
    let left = |fixture: &Fixture| {
        fixture.read(|txn| {
            let list = List::open(txn, b"list").unwrap();
            let elements = (0..list.len()).map(|n| list.get(txn, n).unwrap().to_vec());
            let texts = elements.map(|bytes| String::from_utf8(bytes).unwrap());
            texts.collect::<Vec<String>>()
        })
    };
    assert_eq!(left(&fixture), elements[30..70]);
    // Back over the indexes whose rows are gone.
    fixture.write(|txn| {
        let mut list = List::open(txn, b"list").unwrap();
        for element in ["new", "newer"] {
            list.push(txn, End::Left, element.as_bytes());
        }
        list.push(txn, End::Right, b"newest");
        list.save(txn);
    });
    fixture.compact();
    let mut expected = vec!["newer", "new"];
    expected.extend(&elements[30..70]);
    expected.push("newest");
    assert_eq!(left(&fixture), expected);
}

#[test]
fn what_expired_goes_when_the_expirer_has_passed_and_not_before() {
    let fixture = Fixture::new();
    fixture.write(|txn| {
        set_until(txn, "string", "value", START + 10);
        hset(txn, "hash", fields(5));
        keys::set_expiry(txn, b"hash", START + 10).unwrap();
    });
    fixture.time.set_millis(START + 1_000);
    fixture.compact();
    // Hidden by the clock, but a filter reads none.
    assert_eq!(fixture.keys(), [""; 0]);
    assert_eq!(fixture.count_in(Family::Metadata), 2);
    assert_eq!(dropped(&fixture), [0; 4]);

    assert_eq!(fixture.store().expire_some(100).unwrap(), Progress::Idle);
    fixture.compact();
    assert_eq!(fixture.count_in(Family::Data), 0);
    assert_eq!(dropped(&fixture), [5, 0, 0, 0]);
}

/// The index row may be lost to a blind SET's successor; the watermark alone must do.
#[test]
fn metadata_that_the_expirer_never_met_goes_by_the_watermark() {
    let fixture = Fixture::new();
    fixture.write(|txn| {
        hset(txn, "unindexed", fields(4));
        keys::set_expiry(txn, b"unindexed", START + 10).unwrap();
        let row = txn.key(b"unindexed").expiry(START + 10);
        txn.delete(Family::Expiry, &row);
        set_until(txn, "indexed", "value", START + 20);
        set_until(txn, "later", "value", START + 5_000);
    });
    fixture.time.set_millis(START + 1_000);
    fixture.store().expire_some(100).unwrap();
    fixture.compact();
    assert_eq!(fixture.keys_in(Family::Metadata), ["later"]);
    assert_eq!(dropped(&fixture), [4, 0, 1, 0]);
}

#[test]
fn a_flushed_database_goes_from_every_family() {
    let fixture = Fixture::new();
    let sow = |txn: &mut cairn_store::WriteTxn| {
        set_until(txn, "string", "value", START + 1_000_000);
        hset(txn, "hash", fields(10));
        zadd(txn, "zset", 1.0, "member");
    };
    fixture.write(|txn| {
        sow(txn);
        txn.begin(1);
        sow(txn);
    });
    fixture.write(|txn| databases::flush(txn, [1]));
    fixture.compact();
    let rows = [
        Family::Metadata,
        Family::Data,
        Family::ZsetScore,
        Family::Expiry,
    ];
    assert_eq!(rows.map(|family| fixture.count_in(family)), [3, 11, 1, 1]);
    assert_eq!(dropped(&fixture), [0, 0, 0, 3 + 11 + 1 + 1]);
    fixture.read(|txn| assert_eq!(hgetall(txn, "hash").len(), 10));
}

#[test]
fn a_store_that_was_stopped_forgets_nothing_that_is_alive() {
    let mut fixture = Fixture::new();
    fixture.write(|txn| {
        hset(txn, "dead", fields(100));
        hset(txn, "alive", fields(100));
    });
    fixture.store().engine().flush().unwrap();
    fixture.write(|txn| del(txn, "dead"));
    fixture.restart();
    assert_eq!(fixture.count_in(Family::Data), 200);
    fixture.compact();
    assert_eq!(fixture.count_in(Family::Data), 100);
    assert_eq!(dropped(&fixture), [100, 0, 0, 0]);
    fixture.restart();
    assert_eq!(fixture.read(|txn| hgetall(txn, "alive")).len(), 100);
}

#[test]
fn many_lives_of_one_key_and_only_the_last_remains() {
    let fixture = Fixture::new();
    for life in 1..=50usize {
        fixture.write(|txn| {
            del(txn, "key");
            let mut set = Set::open(txn, b"key").unwrap();
            for member in 0..life {
                set.add(txn, &member.to_be_bytes()).unwrap();
            }
            set.save(txn);
        });
        if life % 20 == 0 {
            fixture.compact();
        }
    }
    fixture.compact();
    assert_eq!(fixture.count_in(Family::Data), 50);
    assert_eq!(dropped(&fixture)[0], (1..50).sum::<u64>());
}
