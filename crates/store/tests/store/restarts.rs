//! What a restart keeps: everything, and that versions and time only rise.

use cairn_store::{Family, databases, keys};

use crate::support::*;

#[test]
fn a_restart_keeps_everything() {
    let mut fixture = Fixture::new();
    fixture.write(|txn| {
        set(txn, "string", "value");
        set_until(txn, "with a ttl", "value", START + 5_000);
        hset(txn, "hash", fields(100));
        sadd(txn, "set", &["", "a", "b"]);
        zadd(txn, "zset", -1.5, "member");
        rpush(txn, "list", &["x", "y"]);
    });
    fixture.write(|txn| {
        txn.begin(3);
        set(txn, "elsewhere", &"large".repeat(10_000));
    });
    let before = Family::ALL.map(|family| fixture.raw(family));
    fixture.restart();
    assert_eq!(Family::ALL.map(|family| fixture.raw(family)), before);
    assert_eq!(fixture.keys().len(), 6);
    assert_eq!(fixture.read(|txn| hgetall(txn, "hash")).len(), 100);
    let expiry = fixture.read(|txn| keys::expiry_of(txn, b"with a ttl").unwrap());
    assert_eq!(expiry, Some(START + 5_000));
    let mut txn = fixture.txn();
    txn.begin(3);
    assert_eq!(get(&txn, "elsewhere").unwrap().len(), 50_000);
}

#[test]
fn versions_rise_across_restarts_with_the_clock_stepped_back() {
    let mut fixture = Fixture::new();
    let mut last = 0;
    for millis in [
        START,
        START + 1,
        START - 1_000_000,
        0,
        START - 500,
        START + 10,
    ] {
        fixture.time.set_millis(millis);
        for _ in 0..3 {
            let version = fixture.write(|txn| {
                hset(txn, "hash", fields(1));
                let version = txn.find(&txn.key(b"hash")).unwrap().unwrap().version();
                del(txn, "hash");
                version.unwrap()
            });
            assert!(version > last);
            last = version;
        }
        fixture.restart();
    }
}

#[test]
fn time_never_falls_below_what_a_commit_has_carried() {
    let mut fixture = Fixture::new();
    fixture.write(|txn| {
        set_until(txn, "due", "value", START + 999);
        set_until(txn, "not due", "value", START + 1_000);
    });
    fixture.time.set_millis(START + 1_000);
    // The key is gone: seen by somebody, and with a commit on the disk.
    assert_eq!(fixture.keys(), ["not due"]);
    fixture.write(|txn| set(txn, "other", "value"));
    fixture.time.set_millis(START - 50_000);
    for _ in 0..2 {
        assert_eq!(fixture.read(|txn| txn.now_ms()), START + 1_000);
        assert_eq!(fixture.read(|txn| get(txn, "due")), None);
        assert_eq!(fixture.keys(), ["not due", "other"]);
        fixture.restart();
    }
    fixture.time.set_millis(START + 1_001);
    assert_eq!(fixture.keys(), ["other"]);
}

/// With the clock stepped back two lives of a key have neighbouring versions, and an empty member's row
/// is the first of its version.
#[test]
fn neighbouring_versions_stay_apart() {
    let mut fixture = Fixture::new();
    fixture.time.set_millis(START - 100_000);
    fixture.write(|txn| sadd(txn, "set", &["", "a"]));
    fixture.time.set_millis(0);
    fixture.restart();
    for members in [&["", "b"][..], &["c"], &[""]] {
        fixture.write(|txn| {
            del(txn, "set");
            sadd(txn, "set", members);
        });
        fixture.compact();
        let found = fixture.read(|txn| {
            let set = cairn_store::Set::open(txn, b"set").unwrap();
            let mut rows = set.rows(txn).unwrap();
            let mut found = Vec::new();
            while let Some((key, _)) = rows.next().unwrap() {
                found.push(String::from_utf8(set.member_of(key).to_vec()).unwrap());
            }
            found
        });
        assert_eq!(found, members);
        assert_eq!(fixture.count_in(Family::Data), members.len());
    }
}

#[test]
fn a_process_that_dies_leaves_whole_commits() {
    let fixture = Fixture::new();
    for n in 0..50 {
        fixture.write(|txn| {
            hset(txn, "hash", fields(n + 1));
            set(txn, "size", &(n + 1).to_string());
        });
        if n % 10 == 9 {
            let crashed = crash_image(fixture.path());
            let store = open(crashed.path(), fixture.time.clone());
            let txn = cairn_store::WriteTxn::new(
                store.clone(),
                store.home().clone(),
                cairn_store::Patience::Long,
            );
            assert_eq!(hgetall(&txn, "hash").len(), n + 1);
            assert_eq!(get(&txn, "size"), Some((n + 1).to_string()));
        }
    }
}

#[test]
fn databases_that_were_never_opened_get_an_index_of_their_own() {
    let mut fixture = Fixture::new();
    fixture.write(|txn| {
        databases::flush(txn, [1]);
        set(txn, "key", "value");
    });
    fixture.restart();
    let databases = fixture.store().home().databases();
    let mut indexes: Vec<u64> = (0..4).map(|n| databases.index_of(n)).collect();
    indexes.sort_unstable();
    indexes.dedup();
    assert_eq!(indexes.len(), 4);
    assert!(indexes[0] > 0);
}
