//! What the reclaimer drops without waiting for a compaction to meet it.

use std::sync::atomic::Ordering;

use cairn_encoding::system::{SystemKey, SystemKind, value};
use cairn_engine::LOCAL_REGION;
use cairn_store::{
    Background, End, Expiry, Family, List, Pace, Set, WriteTxn, databases, legacy, string,
};

use crate::support::*;

/// Goes through a family in steps, as the background does.
fn reclaim(fixture: &Fixture, family: Family, limit: usize) {
    let mut place = Some(Vec::new());
    while let Some(from) = place {
        place = fixture
            .store()
            .reclaim_versions(family, &from, limit)
            .unwrap();
    }
}

fn version_of(txn: &WriteTxn, name: &str) -> u64 {
    let found = txn.find(&txn.key(name.as_bytes())).unwrap().unwrap();
    found.version().unwrap()
}

#[test]
fn a_flushed_database_is_dropped_whole_and_then_forgotten() {
    let fixture = Fixture::new();
    let sow = |txn: &mut WriteTxn| {
        set_until(txn, "string", "value", START + 1_000_000);
        hset(txn, "hash", fields(1_000));
        zadd(txn, "zset", 1.0, "member");
    };
    fixture.write(|txn| {
        sow(txn);
        txn.begin(1);
        sow(txn);
        txn.begin(2);
        sow(txn);
    });
    fixture.write(|txn| databases::flush(txn, [0, 2]));
    fixture.store().reclaim_databases().unwrap();
    assert_eq!(fixture.count_of(SystemKind::DeadIndex), 0);
    let families = [
        Family::Metadata,
        Family::Data,
        Family::ZsetScore,
        Family::Expiry,
    ];
    let counts = families.map(|family| fixture.count_in(family));
    // Expiry rows wait for their time.
    assert_eq!(counts, [3, 1_001, 1, 3]);
    assert_eq!(fixture.store().reclaimer().databases(), 2);
    let mut txn = fixture.txn();
    txn.begin(1);
    assert_eq!(hgetall(&txn, "hash").len(), 1_000);
    assert_eq!(get(&txn, "string").as_deref(), Some("value"));
    fixture.time.set_millis(START + 1_000_001);
    fixture.store().expire_some(10).unwrap();
    assert_eq!(fixture.count_in(Family::Expiry), 0);
}

#[test]
fn large_dead_versions_are_dropped_and_small_ones_beside_them_go_too() {
    let fixture = Fixture::new();
    fixture.write(|txn| {
        for (name, count) in [("large", 600), ("small", 500), ("alive", 700)] {
            hset(txn, name, fields(count));
        }
        for n in 0..600 {
            zadd(txn, "zset", f64::from(n), &format!("member {n}"));
        }
    });
    fixture.store().engine().flush().unwrap();
    fixture.write(|txn| {
        for name in ["large", "small", "zset"] {
            del(txn, name);
        }
        hset(txn, "large", fields(3));
    });
    for limit in [1, 1_000] {
        reclaim(&fixture, Family::Data, limit);
        reclaim(&fixture, Family::ZsetScore, limit);
        assert_eq!(fixture.count_in(Family::Data), 3 + 700);
        assert_eq!(fixture.count_in(Family::ZsetScore), 0);
        // What a compaction meets on its way it drops by itself.
        assert!(fixture.store().reclaimer().versions() >= 2);
    }
    fixture.read(|txn| {
        assert_eq!(hgetall(txn, "alive").len(), 700);
        assert_eq!(hgetall(txn, "large").len(), 3);
    });
}

#[test]
fn a_staged_version_is_not_dead_yet() {
    let fixture = Fixture::new();
    let staging = fixture.write(|txn| {
        hset(txn, "key", fields(600));
        let version = version_of(txn, "key");
        del(txn, "key");
        let mut staged_for = Vec::new();
        value::encode_staging(&mut staged_for, txn.index(), b"key");
        let staging = SystemKey::Staging {
            region: LOCAL_REGION,
            version,
        };
        txn.put(Family::Meta, &staging.encode(), staged_for);
        staging.encode()
    });
    fixture.store().engine().flush().unwrap();
    reclaim(&fixture, Family::Data, 10);
    assert_eq!(fixture.count_in(Family::Data), 600);
    fixture.write(|txn| txn.delete(Family::Meta, &staging));
    reclaim(&fixture, Family::Data, 10);
    assert_eq!(fixture.count_in(Family::Data), 0);
}

/// Dropping is for good. A deletion that a power cut could take back must not be acted upon.
#[test]
fn the_log_is_synced_before_anything_is_dropped() {
    let fixture = Fixture::new();
    let synced = || ticker(fixture.store(), "rocksdb.wal.synced");
    let try_out = |what: &str, kill: fn(&mut WriteTxn), reclaim: fn(&Fixture)| {
        fixture.write(|txn| hset(txn, "hash", fields(600)));
        fixture.store().engine().flush().unwrap();
        fixture.write(kill);
        let before = synced();
        reclaim(&fixture);
        assert!(synced() > before, "{what} was dropped unsynced");
        assert_eq!(fixture.count_in(Family::Data), 0);
    };
    try_out(
        "a version",
        |txn| assert!(del(txn, "hash")),
        |fixture| reclaim(fixture, Family::Data, 10),
    );
    try_out(
        "a database",
        |txn| databases::flush(txn, [0]),
        |fixture| fixture.store().reclaim_databases().unwrap(),
    );
}

/// A large dead version and a living one with the next number, in one file: the living row that ends the
/// file is the end of the dropped range.
#[test]
fn the_living_version_next_to_a_dead_one_stays() {
    let fixture = Fixture::new();
    let dead = fixture.write(|txn| {
        let mut set = Set::open(txn, b"set").unwrap();
        for n in 0..600u32 {
            set.add(txn, &n.to_be_bytes()).unwrap();
        }
        set.save(txn);
        version_of(txn, "set")
    });
    // A clock that stands still makes neighbours of the two. Staged, the first survives a compaction.
    let staging = SystemKey::Staging {
        region: LOCAL_REGION,
        version: dead,
    };
    fixture.write(|txn| {
        del(txn, "set");
        sadd(txn, "set", &[""]);
        assert_eq!(version_of(txn, "set"), dead + 1);
        txn.put(Family::Meta, &staging.encode(), []);
    });
    fixture.compact();
    assert_eq!(fixture.count_in(Family::Data), 601);
    fixture.write(|txn| txn.delete(Family::Meta, &staging.encode()));
    reclaim(&fixture, Family::Data, 10);
    assert_eq!(fixture.count_in(Family::Data), 1);
    fixture.read(|txn| {
        let set = Set::open(txn, b"set").unwrap();
        assert!(set.contains(txn, b"").unwrap());
    });
}

#[test]
fn strings_of_the_old_format_do_not_end_the_search() {
    let mut fixture = Fixture::new();
    fixture.write(|txn| {
        for n in 0..20 {
            legacy::write_legacy(txn, format!("old:{n}").as_bytes(), b"value", 0);
        }
        for n in 0..5 {
            hset(txn, &format!("hash:{n}"), fields(600));
        }
    });
    fixture.restart();
    fixture.write(|txn| (0..5).for_each(|n| assert!(del(txn, &format!("hash:{n}")))));
    reclaim(&fixture, Family::Data, 1);
    assert_eq!(fixture.count_in(Family::Data), 20);
}

#[test]
fn the_search_keeps_nothing_in_memory() {
    let mut fixture = Fixture::new();
    fixture.write(|txn| (0..50).for_each(|n| hset(txn, &format!("hash:{n}"), fields(3))));
    fixture.compact();
    fixture.restart();
    let kept = || fixture.store().engine().statistics().rows_in_memory_bytes;
    let before = kept();
    reclaim(&fixture, Family::Data, 10);
    assert_eq!(kept(), before);
}

#[test]
fn large_dead_versions_that_someone_told_of_are_dropped_without_a_search() {
    let fixture = Fixture::new();
    fixture.write(|txn| {
        hset(txn, "large", fields(600));
        hset(txn, "small", fields(500));
        hset(txn, "undone", fields(600));
        for n in 0..600 {
            zadd(txn, "zset", f64::from(n), &format!("member {n}"));
        }
    });
    fixture.store().engine().flush().unwrap();
    fixture.write(|txn| {
        for name in ["large", "small", "zset"] {
            del(txn, name);
        }
        txn.begin(0);
        del(txn, "undone");
        txn.undo();
    });
    // That they are dead has to be in RocksDB first.
    assert!(!fixture.store().reclaim_noted().unwrap());
    fixture.store().engine().sync().unwrap();
    while fixture.store().reclaim_noted().unwrap() {}
    // The small one lies in the file that is compacted.
    assert_eq!(fixture.count_in(Family::Data), 600);
    assert_eq!(fixture.count_in(Family::ZsetScore), 0);
    assert_eq!(fixture.store().reclaimer().versions(), 3);
    fixture.read(|txn| assert_eq!(hgetall(txn, "undone").len(), 600));
}

/// Neither a drain nor the reclaimer brings to RocksDB what has died before its time had come.
#[test]
fn what_dies_young_is_never_written() {
    let mut fixture = Fixture::new();
    fixture.write(|txn| {
        hset(txn, "deleted", fields(600));
        hset(txn, "replaced", fields(600));
        hset(txn, "kept", fields(5));
        push(txn, 100);
    });
    fixture.write(|txn| {
        del(txn, "deleted");
        string::set(txn, b"replaced", b"value", Expiry::Never).unwrap();
        let mut list = List::open(txn, b"list").unwrap();
        list.trim(10..30);
        list.save(txn);
    });
    assert!(!fixture.store().reclaim_noted().unwrap());
    assert_eq!(fixture.count_in(Family::Data), 600 + 600 + 5 + 100);
    fixture.store().engine().sync().unwrap();
    assert_eq!(fixture.count_in(Family::Data), 5 + 20);
    while fixture.store().reclaim_noted().unwrap() {}
    assert_eq!(fixture.store().reclaimer().versions(), 0);
    // The indexes are used again.
    fixture.write(|txn| push(txn, 100));
    fixture.restart();
    fixture.read(|txn| {
        let list = List::open(txn, b"list").unwrap();
        assert_eq!(&*list.get(txn, 0).unwrap(), b"10");
        assert_eq!(&*list.get(txn, 20).unwrap(), b"0");
        assert_eq!(hgetall(txn, "kept").len(), 5);
    });
}

fn push(txn: &mut WriteTxn, count: u32) {
    let mut list = List::open(txn, b"list").unwrap();
    (0..count).for_each(|n| list.push(txn, End::Right, n.to_string().as_bytes()));
    list.save(txn);
}

/// Whoever cuts off most of a list tells of it.
#[test]
fn what_is_left_of_a_list_that_lost_most_of_it_need_not_be_searched_for() {
    let fixture = Fixture::new();
    let trim = |range: std::ops::Range<u64>| {
        fixture.write(|txn| {
            let mut list = List::open(txn, b"list").unwrap();
            list.trim(range);
            list.save(txn);
        });
        fixture.store().engine().sync().unwrap();
        let is_noted = fixture.store().reclaim_noted().unwrap();
        (is_noted, fixture.count_in(Family::Data))
    };
    fixture.write(|txn| push(txn, 4_000));
    fixture.store().engine().flush().unwrap();
    // A compaction writes what is left anew: more than it would remove.
    assert_eq!(trim(1_000..4_000), (false, 4_000));
    assert_eq!(trim(500..1_100), (true, 600));
    assert_eq!(trim(0..10), (true, 10));
    fixture.write(|txn| push(txn, 3_000));
    assert_eq!(trim(5..10), (true, 5));
    fixture.read(|txn| {
        let list = List::open(txn, b"list").unwrap();
        assert_eq!(&*list.get(txn, 0).unwrap(), b"1505");
    });
    let counters = fixture.store().engine().filter_counters();
    let dropped = counters.cut_off.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(dropped, 4_000 + 3_000 - 5);
}

/// That it was cut is on the disk, and that it was deleted afterwards is not: a power cut brings it back.
#[test]
fn a_list_that_was_cut_and_then_deleted_is_not_dropped_before_that_is_durable() {
    let fixture = Fixture::new();
    fixture.write(|txn| push(txn, 4_000));
    fixture.store().engine().flush().unwrap();
    fixture.write(|txn| {
        let mut list = List::open(txn, b"list").unwrap();
        list.trim(0..100);
        list.save(txn);
    });
    fixture.store().engine().sync().unwrap();
    fixture.write(|txn| assert!(del(txn, "list")));
    assert!(fixture.store().reclaim_noted().unwrap());
    assert_eq!(fixture.count_in(Family::Data), 4_000);
    reclaim(&fixture, Family::Data, 10);
    assert_eq!(fixture.count_in(Family::Data), 0);
}

#[test]
fn what_was_cut_off_from_a_list_is_compacted_away() {
    let fixture = Fixture::new();
    fixture.write(|txn| push(txn, 2_000));
    fixture.store().engine().flush().unwrap();
    fixture.write(|txn| {
        let mut list = List::open(txn, b"list").unwrap();
        list.trim(700..1_300);
        list.save(txn);
    });
    assert_eq!(fixture.count_in(Family::Data), 2_000);
    reclaim(&fixture, Family::Data, 10);
    assert_eq!(fixture.count_in(Family::Data), 600);
    // The indexes are used again.
    fixture.write(|txn| push(txn, 700));
    reclaim(&fixture, Family::Data, 10);
    fixture.read(|txn| {
        let list = List::open(txn, b"list").unwrap();
        assert_eq!(list.len(), 1_300);
        assert_eq!(&*list.get(txn, 0).unwrap(), b"700");
        assert_eq!(&*list.get(txn, 1_299).unwrap(), b"699");
    });
}

/// Whoever ends the background does not wait for a compaction, and those who come later get theirs.
#[test]
fn a_compaction_is_given_up_when_the_background_ends() {
    let fixture = Fixture::new();
    let store = fixture.store();
    fixture.write(|txn| hset(txn, "hash", fields(600)));
    store.engine().flush().unwrap();
    fixture.write(|txn| del(txn, "hash"));
    store.engine().flush().unwrap();
    let compact = || {
        let engine = store.engine();
        engine.compact_range(Family::Data, &[], &[0xff]);
        let dropped = &engine.filter_counters().dead_versions;
        dropped.load(Ordering::Relaxed)
    };
    store.engine().pause_compactions();
    assert_eq!(compact(), 0);
    // It leaves things as it has found them.
    drop(Background::start(store, Pace::default()).unwrap());
    assert_eq!(compact(), 0);
    store.engine().go_on_compacting();
    assert_eq!(compact(), 600);
}
