//! What is said of garbage, beside what is counted row by row.

use cairn_store::{Due, End, Expiry, Family, Garbage, List, WriteTxn, databases, string};

use crate::support::*;

fn garbage(fixture: &Fixture) -> Garbage {
    fixture.store().garbage().unwrap()
}

fn search(fixture: &Fixture) {
    for family in [Family::Data, Family::ZsetScore] {
        let mut place = Some(Vec::new());
        while let Some(from) = place {
            place = fixture.store().reclaim_versions(family, &from, 10).unwrap();
        }
    }
}

fn rows(fixture: &Fixture) -> u64 {
    let families = [Family::Data, Family::ZsetScore];
    families
        .map(|family| fixture.count_in(family))
        .iter()
        .sum::<usize>() as u64
}

fn push(txn: &mut WriteTxn, count: u32) {
    let mut list = List::open(txn, b"list").unwrap();
    (0..count).for_each(|n| list.push(txn, End::Right, n.to_string().as_bytes()));
    list.save(txn);
}

#[test]
fn nothing_is_garbage_at_first() {
    let fixture = Fixture::new();
    assert_eq!(garbage(&fixture), Garbage::default());
}

#[test]
fn dead_rows_are_counted_when_they_die_and_when_they_go() {
    let fixture = Fixture::new();
    fixture.write(|txn| {
        hset(txn, "kept", fields(5));
        hset(txn, "hash", fields(100));
        hset(txn, "large", fields(700));
        (0..30).for_each(|n| zadd(txn, "zset", f64::from(n), &n.to_string()));
        string::set(txn, b"string", &[1; 100_000], Expiry::Never).unwrap();
        push(txn, 50);
    });
    fixture.store().engine().sync().unwrap();
    let living = rows(&fixture);
    assert_eq!(living, 5 + 100 + 700 + 2 * 30 + 7 + 50);
    fixture.write(|txn| {
        for name in ["hash", "large", "zset", "string"] {
            assert!(del(txn, name));
        }
        let mut list = List::open(txn, b"list").unwrap();
        list.trim(10..30);
        list.save(txn);
        // What is taken back has killed nothing.
        txn.begin(0);
        assert!(del(txn, "kept"));
        txn.undo();
    });
    let dead = living - 5 - 20;
    let seen = garbage(&fixture);
    assert_eq!((seen.orphaned_rows, seen.waiting_versions), (dead, 1));
    assert!(seen.orphaned_bytes > 100_000 + (dead - 7) * 30);

    // Others may lie in the same files, and go with it.
    fixture.store().engine().sync().unwrap();
    fixture.store().reclaim_noted().unwrap();
    let seen = garbage(&fixture);
    let left = rows(&fixture) - 5 - 20;
    assert!(left <= dead - 700);
    assert_eq!((seen.orphaned_rows, seen.waiting_versions), (left, 0));
    // A search finds what there is, the same.
    search(&fixture);
    let seen = garbage(&fixture);
    assert_eq!(seen.orphaned_rows, left);
    assert_eq!(seen.last_search.unwrap().0.rows, left);

    fixture.compact();
    let seen = garbage(&fixture);
    assert_eq!((seen.orphaned_rows, seen.orphaned_bytes), (0, 0));
    assert_eq!(rows(&fixture), 5 + 20);
}

#[test]
fn what_a_plain_set_leaves_behind_is_found_by_a_search() {
    let fixture = Fixture::new();
    fixture.write(|txn| hset(txn, "hash", fields(100)));
    fixture.store().engine().flush().unwrap();
    fixture.write(|txn| string::set(txn, b"hash", b"value", Expiry::Never).unwrap());
    assert_eq!(garbage(&fixture).orphaned_rows, 0);
    search(&fixture);
    let seen = garbage(&fixture);
    assert_eq!(seen.orphaned_rows, 100);
    assert!(seen.orphaned_bytes > 100 * 20);
    fixture.compact();
    assert_eq!(garbage(&fixture).orphaned_rows, 0);
}

#[test]
fn what_is_due_is_counted_until_it_is_deleted() {
    let fixture = Fixture::new();
    fixture.write(|txn| {
        for n in 0..30 {
            set_until(txn, &format!("due:{n}"), "value", START + 10 + n);
            set_until(txn, &format!("later:{n}"), "value", START + 100_000);
        }
        set_until(txn, "replaced", "value", START + 10);
    });
    // Leaves its old index row behind, which is about nothing.
    fixture.write(|txn| string::set(txn, b"replaced", b"value", Expiry::Never).unwrap());
    let seen = garbage(&fixture);
    assert_eq!((seen.keys.keys, seen.keys.expires), (61, 60));
    assert_eq!(seen.due, Due::default());
    fixture.time.set_millis(START + 25);
    let seen = garbage(&fixture);
    assert_eq!(
        seen.due,
        Due {
            keys: 15,
            lag_ms: 15
        }
    );
    assert_eq!((seen.keys.keys, seen.keys.expires), (46, 45));
    let share = 15.0 / 61.0;
    assert!((seen.expired_share() - share).abs() < 1e-9);
    fixture.store().expire_some(100).unwrap();
    assert_eq!(garbage(&fixture).due, Due::default());
    assert_eq!(fixture.store().expirer().expired_keys(), 15);
    assert_eq!(fixture.store().expirer().stale_rows(), 1);
}

#[test]
fn flushed_databases_wait_with_their_bytes() {
    let fixture = Fixture::new();
    fixture.write(|txn| {
        txn.begin(1);
        hset(txn, "large", fields(1000));
    });
    fixture.store().engine().flush().unwrap();
    fixture.write(|txn| databases::flush(txn, [1]));
    let seen = garbage(&fixture);
    assert_eq!(seen.dead_databases, 1);
    assert!(seen.dead_database_bytes > 0);
    assert!(seen.byte_share() > 0.0 && seen.byte_share() <= 1.0);
    fixture.store().reclaim_databases().unwrap();
    let seen = garbage(&fixture);
    assert_eq!((seen.dead_databases, seen.dead_database_bytes), (0, 0));
}

#[test]
fn a_time_that_is_moved_leaves_no_trail() {
    let fixture = Fixture::new();
    fixture.write(|txn| set_until(txn, "key", "value", START + 50_000));
    for n in 0..1000 {
        fixture.write(|txn| {
            cairn_store::keys::set_expiry(txn, b"key", START + 60_000 + n).unwrap();
        });
        fixture.write(|txn| set_until(txn, "key", "value", START + 90_000 + n));
    }
    assert_eq!(fixture.count_in(Family::Expiry), 1);
}
