//! Effects too large for one batch: written ahead, seen all at once, and cleared away if nobody finishes.

use cairn_encoding::system::{SystemKey, SystemKind, value};
use cairn_engine::LOCAL_REGION;
use cairn_store::{Family, Fresh, Patience, WriteTxn, keys};

use crate::support::*;

const MANY: usize = 300_000;
const MEBIBYTE: usize = 1024 * 1024;

/// A store with a hash so large that a copy of it does not fit in one batch.
fn with_large_hash() -> Fixture {
    let fixture = Fixture::new();
    fixture.write(|txn| hset(txn, "large", fields(MANY)));
    fixture
}

fn assert_whole(txn: &cairn_store::ReadTxn, name: &str) {
    assert!(hgetall(txn, name).into_iter().eq(fields(MANY)), "{name}");
}

#[test]
fn a_large_rename_takes_little_memory_and_happens_at_once() {
    let mut fixture = with_large_hash();
    let mut txn = fixture.txn();
    let (from, to) = (txn.key(b"large"), txn.key(b"renamed"));
    assert!(keys::rename(&mut txn, &from, &to).unwrap());
    assert!(txn.pending().bytes() < 5 * MEBIBYTE);

    // Written, for the larger part, and kept by the filters, but not to be seen.
    assert_eq!(fixture.count_of(SystemKind::Staging), 1);
    assert!(fixture.count_in(Family::Data) > MANY + MANY / 2);
    let written = fixture.count_in(Family::Data);
    fixture.compact();
    assert_eq!(fixture.count_in(Family::Data), written);
    assert_eq!(fixture.keys(), ["large"]);
    fixture.read(|txn| assert_whole(txn, "large"));

    fixture.commit(txn);
    assert_eq!(fixture.count_of(SystemKind::Staging), 0);
    assert_eq!(fixture.keys(), ["renamed"]);
    fixture.read(|txn| assert_whole(txn, "renamed"));
    fixture.compact();
    assert_eq!(fixture.count_in(Family::Data), MANY);
    fixture.restart();
    fixture.read(|txn| assert_whole(txn, "renamed"));
}

#[test]
fn a_large_copy_replaces_what_was_there_and_leaves_the_source() {
    let fixture = with_large_hash();
    fixture.write(|txn| {
        set_until(txn, "copy", "replaced", START + 5);
        let (from, to) = (txn.key(b"large"), txn.key(b"copy"));
        assert!(keys::copy(txn, &from, &to).unwrap());
    });
    assert_eq!(fixture.keys(), ["copy", "large"]);
    fixture.read(|txn| {
        assert_whole(txn, "copy");
        assert_whole(txn, "large");
    });
    assert_eq!(fixture.count_in(Family::Expiry), 0);
    // Each is a hash of its own.
    fixture.write(|txn| hset(txn, "copy", [("new".into(), "field".into())]));
    fixture.compact();
    fixture.read(|txn| {
        assert_eq!(hgetall(txn, "copy").len(), MANY + 1);
        assert_whole(txn, "large");
    });
}

#[test]
fn a_crash_before_the_commit_is_cleared_away_at_the_next_start() {
    let fixture = with_large_hash();
    let mut txn = fixture.txn();
    let (from, to) = (txn.key(b"large"), txn.key(b"renamed"));
    assert!(keys::rename(&mut txn, &from, &to).unwrap());
    let crashed = crash_image(fixture.path());
    drop(txn);

    let store = open(crashed.path(), fixture.time.clone());
    assert_eq!(raw(&store, Family::Data).len(), MANY);
    let facts = raw(&store, Family::Meta);
    let staging = SystemKind::Staging.prefix();
    assert!(!facts.iter().any(|(key, _)| key.starts_with(&staging)));
    let txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
    assert_eq!(keys(&txn), ["large"]);
    assert_whole(&txn, "large");
}

#[test]
fn a_transaction_thrown_away_at_the_last_moment_leaves_garbage_only() {
    let fixture = with_large_hash();
    let copy = |txn: &mut WriteTxn| {
        let (from, to) = (txn.key(b"large"), txn.key(b"copy"));
        assert!(keys::copy(txn, &from, &to).unwrap());
        assert_eq!(fixture.count_of(SystemKind::Staging), 1);
    };
    let assert_cleared = || {
        assert_eq!(fixture.count_of(SystemKind::Staging), 0);
        assert!(fixture.count_in(Family::Data) > MANY);
        fixture.compact();
        assert_eq!(fixture.count_in(Family::Data), MANY);
        assert_eq!(fixture.keys(), ["large"]);
    };
    let mut txn = fixture.txn();
    copy(&mut txn);
    drop(txn);
    assert_cleared();

    // The same for one command among others.
    let mut txn = fixture.txn();
    set(&mut txn, "before", "value");
    txn.begin(0);
    copy(&mut txn);
    txn.undo();
    assert_cleared();
    fixture.commit(txn);
    assert_eq!(fixture.keys(), ["before", "large"]);
}

/// Writes rows of a version of `key` until some of them are written ahead.
fn write_ahead(txn: &WriteTxn, fresh: &mut Fresh, key: &cairn_store::Key, version: u64) {
    for n in 0..6u8 {
        let (data, score) = (key.data(version, &[n]), key.score(version, n.into(), &[n]));
        for (family, row) in [(Family::Data, data), (Family::ZsetScore, score)] {
            fresh.put(txn, family, &row, vec![0; MEBIBYTE]).unwrap();
        }
    }
}

#[test]
fn rows_of_a_command_that_fails_are_dead_at_once() {
    let fixture = Fixture::new();
    let txn = fixture.txn();
    let (key, version) = (txn.key(b"key"), txn.next_version());
    let mut fresh = Fresh::new(&key, version);
    write_ahead(&txn, &mut fresh, &key, version);
    assert_eq!(fixture.count_of(SystemKind::Staging), 1);
    assert!(fixture.count_in(Family::ZsetScore) > 0);
    drop(fresh);
    assert_eq!(fixture.count_of(SystemKind::Staging), 0);
    fixture.compact();
    assert_eq!(fixture.count_in(Family::Data), 0);
    assert_eq!(fixture.count_in(Family::ZsetScore), 0);
}

#[test]
fn a_start_clears_both_families_and_nothing_beside_them() {
    let mut fixture = Fixture::new();
    fixture.write(|txn| {
        // Neighbours: the same key before and after, and keys on both sides.
        for name in ["kez", "key", "kex"] {
            hset(txn, name, fields(3));
        }
    });
    let before = fixture.raw(Family::Data);
    let txn = fixture.txn();
    let (key, version) = (txn.key(b"key"), txn.next_version());
    let mut fresh = Fresh::new(&key, version);
    write_ahead(&txn, &mut fresh, &key, version);
    let crashed = crash_image(fixture.path());
    drop((fresh, txn));
    fixture.stop();
    let store = open(crashed.path(), fixture.time.clone());
    assert_eq!(raw(&store, Family::Data), before);
    assert_eq!(raw(&store, Family::ZsetScore), []);
}

/// The row of an empty member is the first of its version: the very end of the range before it.
#[test]
fn a_start_spares_the_version_after_the_one_it_clears() {
    let mut fixture = Fixture::new();
    let version = fixture.write(|txn| {
        sadd(txn, "set", &[""]);
        txn.find(&txn.key(b"set"))
            .unwrap()
            .unwrap()
            .version()
            .unwrap()
    });
    fixture.compact();
    fixture.write(|txn| {
        let mut staged_for = Vec::new();
        value::encode_staging(&mut staged_for, txn.index(), b"set");
        let staging = SystemKey::Staging {
            region: LOCAL_REGION,
            version: version - 1,
        };
        txn.put(Family::Meta, &staging.encode(), staged_for);
    });
    fixture.restart();
    assert_eq!(fixture.count_of(SystemKind::Staging), 0);
    assert_eq!(fixture.count_in(Family::Data), 1);
    fixture.read(|txn| {
        let set = cairn_store::Set::open(txn, b"set").unwrap();
        assert!(set.contains(txn, b"").unwrap());
    });
}
