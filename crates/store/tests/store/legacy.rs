//! Strings of the old format: read where they are, moved when they are written, and in the end gone.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cairn_encoding::metadata::Type;
use cairn_encoding::system::SystemKind;
use cairn_store::legacy::write_legacy;
use cairn_store::{Expiry, Family, Point, databases, keys, keyspace, string};

use crate::support::*;

const LARGE: usize = 100_000;

/// A database as the old program left it, opened by this one.
fn inherited() -> Fixture {
    let mut fixture = Fixture::new();
    fixture.write(|txn| {
        write_legacy(txn, b"plain", b"value", 0);
        write_legacy(txn, b"with a ttl", b"value", START + 100);
        write_legacy(txn, b"large", "x".repeat(LARGE).as_bytes(), 0);
        hset(txn, "hash", fields(3));
        set(txn, "new", "value");
    });
    fixture.restart();
    fixture
}

const ALL: [&str; 5] = ["hash", "large", "new", "plain", "with a ttl"];

/// The keys that are still stored the old way.
fn old_keys(fixture: &Fixture) -> Vec<String> {
    use cairn_encoding::row::RowKey;
    let rows = fixture.raw(Family::Data);
    let old = rows
        .iter()
        .filter_map(|(key, _)| match RowKey::decode_data(key) {
            Ok(RowKey::Legacy { key, .. }) => Some(String::from_utf8(key.to_vec()).unwrap()),
            _ => None,
        });
    let mut old: Vec<String> = old.collect();
    old.sort();
    old
}

#[test]
fn they_are_read_like_any_other() {
    let fixture = inherited();
    assert!(fixture.store().may_have_legacy());
    fixture.read(|txn| {
        assert_eq!(get(txn, "plain").as_deref(), Some("value"));
        assert_eq!(get(txn, "large").unwrap().len(), LARGE);
        let found = txn.find(&txn.key(b"with a ttl")).unwrap().unwrap();
        assert_eq!((found.kind(), found.expire_ms), (Type::String, START + 100));
        assert!(found.is_legacy);
        assert!(cairn_store::Hash::open(txn, b"plain").is_err());
        let string = Point::unlatched(txn).string(b"plain").unwrap().unwrap();
        assert_eq!(string.len(), 5);
    });
    assert_eq!(fixture.keys(), ALL);
    let count = fixture.store().count_keys(0).unwrap();
    assert_eq!((count.keys, count.expires), (5, 1));
    // Reading moves nothing.
    assert_eq!(old_keys(&fixture), ["large", "plain", "with a ttl"]);
}

#[test]
fn they_expire_at_their_millisecond() {
    let fixture = inherited();
    fixture.time.set_millis(START + 100);
    assert_eq!(fixture.keys(), ALL);
    fixture.time.set_millis(START + 101);
    assert_eq!(fixture.keys(), ["hash", "large", "new", "plain"]);
    assert_eq!(fixture.read(|txn| get(txn, "with a ttl")), None);
    assert_eq!(fixture.store().count_keys(0).unwrap().keys, 4);
    // Expired, it may become something else, and does not come back.
    fixture.write(|txn| {
        assert!(!del(txn, "with a ttl"));
        rpush(txn, "with a ttl", &["element"]);
    });
    assert_eq!(old_keys(&fixture), ["large", "plain"]);
    fixture.write(|txn| assert!(del(txn, "with a ttl")));
    assert_eq!(fixture.keys(), ["hash", "large", "new", "plain"]);
}

#[test]
fn a_scan_meets_each_of_them_and_ends() {
    let fixture = inherited();
    for count in [1, 2, 10] {
        let (mut cursor, mut met) = (0, Vec::new());
        for step in 0.. {
            assert!(step < 20, "a scan with COUNT {count} goes round in circles");
            cursor = fixture.read(|txn| {
                keyspace::scan(txn, cursor, count, |key| {
                    met.push(String::from_utf8(key.name.to_vec()).unwrap());
                })
                .unwrap()
            });
            if cursor == 0 {
                break;
            }
        }
        met.sort();
        assert_eq!(met, ALL);
    }
    let mut picked: Vec<String> = (0..2_000)
        .map(|_| fixture.read(|txn| keyspace::random_key(txn).unwrap().unwrap()))
        .map(|name| String::from_utf8(name).unwrap())
        .collect();
    picked.sort();
    picked.dedup();
    assert_eq!(picked, ALL);
}

#[test]
fn every_kind_of_write_moves_or_removes_them() {
    type Write = fn(&mut cairn_store::WriteTxn);
    let writes: [(&str, Write); 6] = [
        ("SET", |txn| set(txn, "plain", "new")),
        ("SET with a TTL", |txn| {
            set_until(txn, "plain", "new", START + 9)
        }),
        ("SET KEEPTTL", |txn| {
            string::set(txn, b"plain", b"new", Expiry::Keep).unwrap();
        }),
        ("EXPIRE", |txn| {
            keys::set_expiry(txn, b"plain", START + 9).unwrap();
        }),
        ("RENAME over it", |txn| {
            let (from, to) = (txn.key(b"hash"), txn.key(b"plain"));
            assert!(keys::rename(txn, &from, &to).unwrap());
        }),
        ("DEL and a new one", |txn| {
            assert!(del(txn, "plain"));
            sadd(txn, "plain", &["member"]);
        }),
    ];
    for (name, write) in writes {
        let mut fixture = inherited();
        fixture.write(write);
        let check = |fixture: &Fixture| {
            assert_eq!(old_keys(fixture), ["large", "with a ttl"], "{name}");
            assert!(fixture.keys_in(Family::Metadata).contains(&"plain".into()));
            assert!(fixture.keys().contains(&"plain".into()), "{name}");
        };
        check(&fixture);
        fixture.restart();
        check(&fixture);
        // Whatever took its place: once deleted, the old one does not shine through.
        fixture.write(|txn| assert!(del(txn, "plain")));
        assert!(!fixture.keys().contains(&"plain".into()), "{name}");
    }
}

#[test]
fn a_large_one_is_cut_into_chunks_when_it_moves() {
    type Write = fn(&mut cairn_store::WriteTxn);
    let writes: [(&str, Write); 3] = [
        ("large", |txn| {
            keys::set_expiry(txn, b"large", START + 9_000).unwrap();
        }),
        ("renamed", |txn| {
            let (from, to) = (txn.key(b"large"), txn.key(b"renamed"));
            assert!(keys::rename(txn, &from, &to).unwrap());
        }),
        ("copied", |txn| {
            let (from, to) = (txn.key(b"large"), txn.key(b"copied"));
            assert!(keys::copy(txn, &from, &to).unwrap());
            assert!(del(txn, "large"));
        }),
    ];
    for (name, write) in writes {
        let fixture = inherited();
        fixture.write(write);
        assert!(!old_keys(&fixture).contains(&"large".into()));
        fixture.read(|txn| {
            assert_eq!(get(txn, name).unwrap().len(), LARGE);
            let found = txn.find(&txn.key(name.as_bytes())).unwrap().unwrap();
            assert!(found.version().is_some(), "{name} is not in chunks");
        });
    }
}

#[test]
fn writing_into_a_large_one_changes_what_it_writes_and_nothing_else() {
    let writes: [(usize, &[u8]); 5] = [
        (LARGE, b"appended"),
        (0, b"first"),
        (20_000, b"in the middle"),
        (LARGE - 2, b"over the end"),
        (LARGE + 50_000, b"beyond the end"),
    ];
    for (offset, bytes) in writes {
        let fixture = inherited();
        let length = fixture.write(|txn| {
            let edit = string::Edit::open(txn, b"large").unwrap();
            edit.write_at(txn, offset as u64, bytes).unwrap()
        });
        let mut expected = vec![b'x'; LARGE];
        let end = offset + bytes.len();
        expected.resize(LARGE.max(end), 0);
        expected[offset..end].copy_from_slice(bytes);
        assert_eq!(length, expected.len() as u64);
        let found = fixture.read(|txn| get(txn, "large")).unwrap().into_bytes();
        assert!(
            found == expected,
            "{} at {offset}",
            String::from_utf8_lossy(bytes)
        );
        assert!(!old_keys(&fixture).contains(&"large".into()));
    }
}

#[test]
fn a_renamed_one_keeps_its_expiry() {
    let fixture = inherited();
    fixture.write(|txn| {
        let (from, to) = (txn.key(b"with a ttl"), txn.key(b"renamed"));
        assert!(keys::rename(txn, &from, &to).unwrap());
    });
    assert_eq!(old_keys(&fixture), ["large", "plain"]);
    assert_eq!(fixture.keys_in(Family::Expiry), ["renamed"]);
    fixture.time.set_millis(START + 101);
    fixture.store().expire_some(10).unwrap();
    assert_eq!(fixture.keys(), ["hash", "large", "new", "plain"]);
}

#[test]
fn a_flush_covers_them() {
    let mut fixture = inherited();
    fixture.write(|txn| databases::flush(txn, [0]));
    assert_eq!(fixture.keys(), [""; 0]);
    fixture.compact();
    assert_eq!(fixture.count_in(Family::Data), 0);
    fixture.restart();
    assert_eq!(fixture.keys(), [""; 0]);
}

#[test]
fn a_compaction_keeps_them() {
    let fixture = inherited();
    fixture.compact();
    assert_eq!(old_keys(&fixture), ["large", "plain", "with a ttl"]);
    assert_eq!(
        fixture.read(|txn| get(txn, "plain")).as_deref(),
        Some("value")
    );
}

fn move_all(fixture: &Fixture, limit: usize) {
    let mut place = Some(Vec::new());
    while let Some(from) = place {
        place = fixture.store().move_legacy(&from, limit).unwrap();
    }
}

#[test]
fn the_background_moves_what_nobody_writes_and_then_nobody_asks_any_more() {
    for limit in [1, 2, 100] {
        let mut fixture = inherited();
        fixture.write(|txn| {
            txn.begin(2);
            write_legacy(txn, b"elsewhere", b"value", 0);
            write_legacy(txn, b"long expired", b"value", 5);
        });
        move_all(&fixture, limit);
        for _ in 0..2 {
            assert!(!fixture.store().may_have_legacy());
            assert_eq!(fixture.count_of(SystemKind::LegacyMayExist), 0);
            assert_eq!(old_keys(&fixture), [""; 0]);
            assert_eq!(fixture.keys(), ALL);
            fixture.read(|txn| {
                assert_eq!(get(txn, "plain").as_deref(), Some("value"));
                assert_eq!(get(txn, "large").unwrap().len(), LARGE);
                let expiry = keys::expiry_of(txn, b"with a ttl").unwrap();
                assert_eq!(expiry, Some(START + 100));
            });
            let mut txn = fixture.txn();
            txn.begin(2);
            assert_eq!(keys(&txn), ["elsewhere"]);
            drop(txn);
            fixture.restart();
        }
        // From now on the expirer knows of it.
        fixture.time.set_millis(START + 101);
        fixture.store().expire_some(10).unwrap();
        assert!(
            !fixture
                .keys_in(Family::Metadata)
                .contains(&"with a ttl".into())
        );
    }
}

#[test]
fn those_of_databases_that_are_not_open_are_moved_too() {
    let mut fixture = inherited();
    fixture.write(|txn| {
        txn.begin(3);
        write_legacy(txn, b"beyond", b"value", 0);
        txn.begin(2);
        write_legacy(txn, b"flushed", b"value", 0);
    });
    fixture.write(|txn| databases::flush(txn, [2]));
    fixture.restart_with(1);
    move_all(&fixture, 2);
    assert!(!fixture.store().may_have_legacy());
    fixture.restart();
    let mut txn = fixture.txn();
    txn.begin(3);
    assert_eq!(get(&txn, "beyond").as_deref(), Some("value"));
    txn.begin(2);
    assert_eq!(keys(&txn), [""; 0]);
    assert_eq!(old_keys(&fixture), [""; 0]);
    assert!(
        !fixture
            .keys_in(Family::Metadata)
            .contains(&"flushed".into())
    );
}

#[test]
fn a_database_without_them_pays_nothing() {
    let reads = |fixture: &Fixture| ticker(fixture.store(), "rocksdb.number.keys.read");
    let cost = |fixture: &Fixture, name: &str| {
        let before = reads(fixture);
        fixture.read(|txn| txn.exists(&txn.key(name.as_bytes())).unwrap());
        reads(fixture) - before
    };
    let with = inherited();
    assert_eq!(cost(&with, "new"), 1);
    assert_eq!(cost(&with, "absent"), 2);
    move_all(&with, 100);
    assert_eq!(cost(&with, "also absent"), 1);
    let without = Fixture::new();
    assert!(!without.store().may_have_legacy());
    assert_eq!(cost(&without, "absent"), 1);
}

/// Strings of the old format, in the order in which they are moved.
fn many_old(count: usize) -> (Fixture, Vec<String>) {
    let mut fixture = Fixture::new();
    let mut names: Vec<String> = (0..count).map(|n| format!("key:{n}")).collect();
    fixture.write(|txn| {
        for name in &names {
            write_legacy(txn, name.as_bytes(), b"value", 0);
        }
    });
    fixture.restart();
    names.sort_by_key(|name| fixture.read(|txn| txn.key(name.as_bytes()).legacy().to_vec()));
    (fixture, names)
}

/// Moves one key after the other while another thread does nothing but `read`; it is told which key is
/// the next to be moved.
fn move_while_reading(fixture: &Fixture, count: usize, read: impl Fn(usize) + Sync) {
    let (next, reads) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                read(next.load(Ordering::SeqCst));
                reads.fetch_add(1, Ordering::SeqCst);
            }
        });
        let mut place = Vec::new();
        for n in 0..count {
            next.store(n, Ordering::SeqCst);
            let before = reads.load(Ordering::SeqCst);
            while reads.load(Ordering::SeqCst) < before + 2 && !reader.is_finished() {}
            place = fixture.store().move_legacy(&place, 1).unwrap().unwrap();
        }
        is_over.store(true, Ordering::SeqCst);
    });
}

/// Point reads take no latch, and a move takes a key from one family to another under their eyes.
#[test]
fn no_point_read_misses_a_key_that_is_being_moved() {
    let (fixture, names) = many_old(200);
    move_while_reading(&fixture, names.len(), |next| {
        fixture.read(|txn| {
            let found = Point::unlatched(txn).find(names[next].as_bytes()).unwrap();
            assert!(found.is_some(), "{} is missing", names[next]);
        });
    });
    assert_eq!(old_keys(&fixture), [""; 0]);
}

#[test]
fn no_walk_misses_a_key_that_is_being_moved() {
    for _ in 0..8 {
        let (fixture, mut names) = many_old(40);
        names.sort();
        move_while_reading(&fixture, names.len(), |_| assert_eq!(fixture.keys(), names));
        assert_eq!(old_keys(&fixture), [""; 0]);
    }
}
