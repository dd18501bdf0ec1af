//! A transaction sees its own changes, and nobody else does before its commit.

use cairn_engine::Direction;
use cairn_store::{Error, Family, Hash, Patience, Str, WriteTxn, Zset, keys};

use crate::support::*;

#[test]
fn a_transaction_reads_what_it_wrote() {
    let fixture = Fixture::new();
    fixture.write(|txn| {
        set(txn, "string", "before");
        hset(txn, "hash", fields(3));
    });
    let mut txn = fixture.txn();
    set(&mut txn, "string", "after");
    hset(
        &mut txn,
        "hash",
        [("field:000001".into(), "changed".into())],
    );
    assert_eq!(get(&txn, "string").as_deref(), Some("after"));
    let changed = [
        ("field:000000", "value of 0"),
        ("field:000001", "changed"),
        ("field:000002", "value of 2"),
    ];
    let changed = changed.map(|(field, value)| (field.to_owned(), value.to_owned()));
    assert_eq!(hgetall(&txn, "hash"), changed);
    // Everyone else reads what is committed.
    assert_eq!(
        fixture.read(|txn| get(txn, "string")).as_deref(),
        Some("before")
    );
    assert!(del(&mut txn, "hash"));
    assert_eq!(hgetall(&txn, "hash"), []);
    assert!(!del(&mut txn, "hash"));
    assert_eq!(keys(&txn), ["string"]);
    // A hash of the same name is another one, without the fields of the first.
    hset(&mut txn, "hash", [("field:000009".into(), "new".into())]);
    let fresh = [("field:000009".to_owned(), "new".to_owned())];
    assert_eq!(hgetall(&txn, "hash"), fresh);
    fixture.commit(txn);
    assert_eq!(fixture.read(|txn| hgetall(txn, "hash")), fresh);
    assert_eq!(
        fixture.read(|txn| get(txn, "string")).as_deref(),
        Some("after")
    );
}

#[test]
fn a_command_that_fails_takes_back_its_own_changes_only() {
    let fixture = Fixture::new();
    let mut txn = fixture.txn();
    set(&mut txn, "first", "1");
    hset(&mut txn, "hash", fields(1));
    txn.begin(0);
    set(&mut txn, "first", "2");
    set(&mut txn, "second", "2");
    hset(&mut txn, "hash", fields(5));
    del(&mut txn, "hash");
    txn.undo();
    assert_eq!(get(&txn, "first").as_deref(), Some("1"));
    assert_eq!(hgetall(&txn, "hash").len(), 1);
    txn.begin(0);
    set(&mut txn, "third", "3");
    fixture.commit(txn);
    assert_eq!(fixture.keys(), ["first", "hash", "third"]);
    assert_eq!(fixture.read(|txn| hgetall(txn, "hash")).len(), 1);
}

#[test]
fn a_transaction_that_is_dropped_leaves_nothing() {
    let fixture = Fixture::new();
    let rows = |fixture: &Fixture| Family::ALL.map(|family| fixture.raw(family));
    let before = rows(&fixture);
    let mut txn = fixture.txn();
    set(&mut txn, "string", "value");
    zadd(&mut txn, "zset", 1.0, "member");
    drop(txn);
    assert_eq!(rows(&fixture), before);
}

#[test]
fn after_its_commit_a_transaction_is_as_new() {
    let fixture = Fixture::new();
    let mut txn = fixture.txn();
    for n in 0..3 {
        txn.begin(0);
        set(&mut txn, &format!("key:{n}"), "value");
        assert!(!txn.is_clean());
        fixture.store().commit_blocking(&mut txn).unwrap();
        assert!(txn.is_clean());
        assert_eq!(keys(&txn).len(), n + 1);
    }
}

#[test]
fn a_long_command_gives_up_on_a_connection_thread_and_changes_nothing() {
    let fixture = Fixture::new();
    fixture.write(|txn| hset(txn, "hash", fields(30_000)));
    let mut txn = WriteTxn::new(
        fixture.store().clone(),
        fixture.store().home().clone(),
        Patience::Short,
    );
    txn.begin(0);
    set(&mut txn, "string", "kept");
    txn.begin(0);
    let (from, to) = (txn.key(b"hash"), txn.key(b"copy"));
    let error = keys::rename(&mut txn, &from, &to).unwrap_err();
    assert!(matches!(error, cairn_store::Error::TooLong), "{error}");
    txn.undo();
    // The next command has its full allowance again.
    txn.begin(0);
    for _ in 0..10_000 {
        txn.step().unwrap();
    }
    fixture.commit(txn);
    assert_eq!(fixture.keys(), ["hash", "string"]);
    assert_eq!(fixture.read(|txn| hgetall(txn, "hash")).len(), 30_000);
    assert_eq!(fixture.count_in(Family::Data), 30_000);
}

/// A value of many bytes is too long too, however few its rows.
#[test]
fn a_large_value_gives_up_on_a_connection_thread_and_changes_nothing() {
    let fixture = Fixture::new();
    let mut txn = WriteTxn::new(
        fixture.store().clone(),
        fixture.store().home().clone(),
        Patience::Short,
    );
    txn.begin(0);
    let value = vec![b'x'; 8 * 1024 * 1024];
    let error = cairn_store::string::set(&mut txn, b"large", &value, cairn_store::Expiry::Never);
    assert!(matches!(error, Err(cairn_store::Error::TooLong)));
    txn.undo();
    assert!(txn.is_clean());
    fixture.commit(txn);
    assert_eq!(fixture.count_in(Family::Data), 0);
}

#[test]
fn both_indexes_of_a_sorted_set_agree_inside_a_transaction() {
    let fixture = Fixture::new();
    fixture.write(|txn| {
        for (score, member) in [(1.0, "a"), (2.0, "b"), (3.0, "c")] {
            zadd(txn, "zset", score, member);
        }
    });
    let mut txn = fixture.txn();
    zadd(&mut txn, "zset", 9.0, "a");
    zadd(&mut txn, "zset", 0.5, "d");
    let zset = Zset::open(&txn, b"zset").unwrap();
    let mut rows = zset.rows(&txn, &zset.whole(), Direction::Backward).unwrap();
    let mut order = Vec::new();
    while let Some((key, _)) = rows.next().unwrap() {
        let member = zset.score_rows().member(key);
        order.push(String::from_utf8(member.to_vec()).unwrap());
    }
    assert_eq!(order, ["a", "c", "b", "d"]);
    assert_eq!(zset.score(&txn, b"a").unwrap(), Some(9.0));
    assert_eq!(zset.len(), 4);
}

#[test]
fn another_type_is_an_error_and_an_absent_key_is_empty() {
    let fixture = Fixture::new();
    fixture.write(|txn| set(txn, "string", "value"));
    fixture.read(|txn| {
        assert!(Hash::open(txn, b"string").is_err());
        assert!(!Hash::open(txn, b"absent").unwrap().exists());
        assert!(Str::find(txn, b"absent").unwrap().is_none());
    });
}

/// What room is left is kept for deleting, in whatever way.
#[test]
fn a_full_disk_refuses_what_is_not_a_deletion() {
    use cairn_store::{End, List};
    let fixture = Fixture::new();
    fixture.write(|txn| {
        set(txn, "string", "value");
        rpush(txn, "list", &["a", "b", "c", "b", "a"]);
        sadd(txn, "set", &["a", "b"]);
        hset(txn, "hash", fields(3));
    });
    assert!(!fixture.store().note_disk_full(true));
    let refused = |result: cairn_store::Result<bool>| {
        let error = result.expect_err("no room").to_string();
        assert!(error.starts_with("MISCONF"), "{error}");
    };
    for name in ["string", "list", "hash"] {
        let mut txn = fixture.txn();
        let (from, to) = (txn.key(name.as_bytes()), txn.key(b"other"));
        refused(keys::rename(&mut txn, &from, &to));
    }
    let mut txn = fixture.txn();
    let mut list = List::open(&txn, b"list").unwrap();
    let removed = list.remove(&mut txn, b"c", End::Left, 1);
    refused(removed.map(|_| true));
    drop(txn);
    fixture.write(|txn| {
        let mut list = List::open(txn, b"list").unwrap();
        assert_eq!(list.remove(txn, b"a", End::Left, 1).unwrap(), 1);
        list.pop(txn, End::Right).unwrap();
        list.save(txn);
        let mut set = cairn_store::Set::open(txn, b"set").unwrap();
        assert!(set.remove(txn, b"a").unwrap());
        set.save(txn);
        keys::set_expiry(txn, b"hash", START + 10).unwrap();
        assert!(del(txn, "string"));
    });
    fixture.time.set_millis(START + 100);
    fixture.store().expire_some(10).unwrap();
    assert_eq!(fixture.keys(), ["list", "set"]);
    fixture.write(|txn| cairn_store::databases::flush(txn, [0]));
    assert_eq!(fixture.keys(), [""; 0]);
}

#[test]
fn a_walk_that_has_much_to_put_in_order_is_not_for_a_thread_of_connections() {
    let fixture = Fixture::new();
    fixture.write(|txn| hset(txn, "large", fields(22_000)));
    fixture.write(|txn| hset(txn, "small", fields(1_000)));
    let open = |name: &str, patience| {
        let store = fixture.store();
        let mut txn = WriteTxn::new(store.clone(), store.home().clone(), patience);
        txn.begin(0);
        let hash = Hash::open(&txn, name.as_bytes()).unwrap();
        let mut rows = hash.collection().rows(&txn, Direction::Forward)?;
        Ok(rows.next().unwrap().is_some())
    };
    assert!(matches!(open("small", Patience::Short), Ok(true)));
    assert!(matches!(
        open("large", Patience::Short),
        Err(Error::TooLong)
    ));
    assert!(matches!(open("large", Patience::Long), Ok(true)));
    // It is in order now, for everybody.
    assert!(matches!(open("large", Patience::Short), Ok(true)));
}
