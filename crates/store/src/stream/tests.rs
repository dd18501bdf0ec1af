#![allow(clippy::unwrap_used)]

mod model;

use std::sync::atomic::Ordering;

use super::*;
use crate::testing::open_store;
use crate::{Error, Patience};

fn id(ms: u64) -> Id {
    Id::new(ms, 0)
}

fn ids(txn: &ReadTxn, stream: &Stream) -> Vec<u64> {
    let mut rows = stream
        .rows(txn, Id::MIN..=Id::MAX, Direction::Forward)
        .unwrap();
    let mut found = Vec::new();
    while let Some((row_key, _)) = rows.next().unwrap() {
        found.push(stream.id_of(row_key).unwrap().ms);
    }
    found
}

fn add(txn: &mut WriteTxn, name: &[u8], ids: std::ops::RangeInclusive<u64>) {
    let mut stream = Stream::open(txn, name).unwrap();
    for ms in ids {
        stream.append(txn, id(ms), b"");
    }
    stream.save(txn);
}

fn trim_to(txn: &mut WriteTxn, name: &[u8], kept: u64, unit: u64) -> u64 {
    let mut stream = Stream::open(txn, name).unwrap();
    let trim = Trim {
        until: Until::Length(kept),
        unit,
        at_most: u64::MAX,
    };
    let gone = stream.trim(txn, trim).unwrap();
    stream.save(txn);
    gone
}

#[test]
fn what_is_trimmed_leaves_no_tombstones_and_is_dropped_by_filters() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(directory.path());
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
    txn.begin(0);
    add(&mut txn, b"s", 1..=1000);
    store.commit_blocking(&mut txn).unwrap();
    store.engine().flush().unwrap();

    txn.begin(0);
    assert_eq!(trim_to(&mut txn, b"s", 10, 1), 990);
    assert_eq!(txn.pending().len(), 1, "only the metadata is written");
    store.commit_blocking(&mut txn).unwrap();

    txn.begin(0);
    let stream = Stream::open(&txn, b"s").unwrap();
    assert_eq!(ids(&txn, &stream), (991..=1000).collect::<Vec<_>>());
    assert_eq!(stream.first(), Some(id(991)));
    drop(stream);
    store.engine().flush().unwrap();
    store.engine().compact().unwrap();
    let cut_off = &store.engine().filter_counters().cut_off;
    assert_eq!(cut_off.load(Ordering::Relaxed), 990);
    let stream = Stream::open(&txn, b"s").unwrap();
    assert_eq!(ids(&txn, &stream).len(), 10);
}

#[test]
fn what_was_trimmed_stays_dead_when_ids_begin_again() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(directory.path());
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
    txn.begin(0);
    add(&mut txn, b"s", 1..=9);
    assert_eq!(trim_to(&mut txn, b"s", 0, 1), 9);
    let mut stream = Stream::open(&txn, b"s").unwrap();
    assert!(stream.exists() && stream.is_empty());
    stream.set_last(&mut txn, id(3)).unwrap();
    stream.append(&mut txn, id(4), b"");
    stream.save(&mut txn);
    let stream = Stream::open(&txn, b"s").unwrap();
    assert_eq!(ids(&txn, &stream), [4]);
    assert_eq!(stream.last(), id(4));
}

#[test]
fn blocks_are_counted_from_the_first_entry_that_ever_was() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(directory.path());
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
    txn.begin(0);
    add(&mut txn, b"s", 1..=100);
    assert_eq!(trim_to(&mut txn, b"s", 55, 1), 45);
    // Five are left of the block that was begun.
    assert_eq!(trim_to(&mut txn, b"s", 51, 10), 0);
    assert_eq!(trim_to(&mut txn, b"s", 50, 10), 5);
    assert_eq!(trim_to(&mut txn, b"s", 31, 10), 10);
    assert_eq!(trim_to(&mut txn, b"s", 0, 1000), 40, "or all of them");
}

#[test]
fn an_entry_at_the_end_of_all_ids_can_be_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(directory.path());
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
    txn.begin(0);
    let mut stream = Stream::open(&txn, b"s").unwrap();
    stream.append(&mut txn, Id::MAX, b"");
    assert!(stream.delete(&mut txn, Id::MAX).unwrap());
    assert!(!stream.delete(&mut txn, Id::MAX).unwrap());
    assert!(ids(&txn, &stream).is_empty());
    assert_eq!(stream.next_id(1), None);
}

#[test]
fn low_follows_what_is_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(directory.path());
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
    txn.begin(0);
    add(&mut txn, b"s", 1..=9);
    let mut stream = Stream::open(&txn, b"s").unwrap();
    let mut group = stream.create_group(&mut txn, b"g", Id::MIN, None);
    group.see(&stream, &txn, b"c").unwrap();
    let delivery = Delivery {
        consumer: b"c".to_vec(),
        at_ms: 1,
        count: 1,
    };
    for ms in 3..=6 {
        stream
            .deliver(&mut txn, &mut group, id(ms), &delivery)
            .unwrap();
    }
    assert_eq!(group.low(), id(3));
    assert!(stream.acknowledge(&mut txn, &mut group, id(5)).unwrap());
    assert_eq!(group.low(), id(3));
    assert!(stream.acknowledge(&mut txn, &mut group, id(3)).unwrap());
    assert_eq!(group.low(), Id::new(3, 1));
    assert!(stream.delivery(&txn, &group, id(4)).unwrap().is_some());
    // An older one may become pending later.
    stream
        .deliver(&mut txn, &mut group, id(2), &delivery)
        .unwrap();
    assert_eq!(group.low(), id(2));
    assert!(stream.delivery(&txn, &group, id(2)).unwrap().is_some());
}

/// How many entries a group has pending, by what it says, what its consumer says, and by its rows of both kinds.
fn pending(txn: &ReadTxn, consumer: &[u8]) -> [u64; 4] {
    let stream = Stream::open(txn, b"s").unwrap();
    let mut group = stream.group(txn, b"g").unwrap().unwrap();
    let counted = |owner| {
        let all = Id::MIN..=Id::MAX;
        let mut rows = stream
            .pending_rows(txn, &group, owner, all, Direction::Forward)
            .unwrap();
        let mut count = 0;
        while rows.next().unwrap().is_some() {
            count += 1;
        }
        count
    };
    let rows = [counted(None), counted(Some(consumer))];
    let owner = group.consumer(&stream, txn, consumer).unwrap();
    let owned = owner.map_or(0, |owner| owner.pending);
    [group.pending(), rows[0], owned, rows[1]]
}

/// With very many, a part is committed ahead, unless it may have to be taken back; what a crash leaves makes sense.
#[test]
fn what_is_pending_is_deleted_in_bounded_memory() {
    const MANY: u64 = 25_000;
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(directory.path());
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
    txn.begin(0);
    add(&mut txn, b"s", 1..=MANY + 10);
    let mut stream = Stream::open(&txn, b"s").unwrap();
    let mut group = stream.create_group(&mut txn, b"g", Id::MIN, None);
    for (name, ids) in [("many", 1..=MANY), ("few", MANY + 1..=MANY + 10)] {
        group.see(&stream, &txn, name.as_bytes()).unwrap();
        let delivery = Delivery {
            consumer: name.into(),
            at_ms: 1,
            count: 1,
        };
        for ms in ids {
            let group = &mut group;
            stream.deliver(&mut txn, group, id(ms), &delivery).unwrap();
        }
    }
    group.save(&mut txn, &stream);
    stream.save(&mut txn);
    store.commit_blocking(&mut txn).unwrap();
    assert_eq!(pending(&txn, b"many"), [MANY + 10, MANY + 10, MANY, MANY]);

    let delete = |txn: &mut WriteTxn| {
        let stream = Stream::open(txn, b"s").unwrap();
        let mut group = stream.group(txn, b"g").unwrap().unwrap();
        let deleted = stream.delete_consumer(txn, &mut group, b"many");
        group.save(txn, &stream);
        deleted.unwrap()
    };
    txn.mark_unit(0);
    assert_eq!(delete(&mut txn), Some(MANY));
    txn.undo_unit();
    assert_eq!(pending(&txn, b"many"), [MANY + 10, MANY + 10, MANY, MANY]);

    txn.begin(0);
    assert_eq!(delete(&mut txn), Some(MANY));
    assert!(txn.pending().len() < 20_000);
    // As if it ended here.
    let after_crash = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
    assert_eq!(pending(&after_crash, b"many"), [5010, 5010, 5000, 5000]);
    store.commit_blocking(&mut txn).unwrap();
    assert_eq!(pending(&txn, b"many"), [10, 10, 0, 0]);
    assert_eq!(pending(&txn, b"few"), [10, 10, 10, 10]);
}

/// What was changed just now has to be looked at before a walk begins: that is work like any other.
#[test]
fn a_walk_past_many_young_rows_is_not_for_a_connections_thread() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(directory.path());
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
    txn.begin(0);
    add(&mut txn, b"s", 1..=25_000);
    let mut stream = Stream::open(&txn, b"s").unwrap();
    for ms in 2..25_000 {
        stream.delete(&mut txn, id(ms)).unwrap();
    }
    stream.save(&mut txn);
    store.commit_blocking(&mut txn).unwrap();
    let mut short = WriteTxn::new(store.clone(), store.home().clone(), Patience::Short);
    short.begin(0);
    let stream = Stream::open(&short, b"s").unwrap();
    let walk = |txn: &WriteTxn| stream.rows(txn, Id::MIN..=Id::MAX, Direction::Forward);
    assert!(matches!(walk(&short), Err(Error::TooLong)));
    assert!(walk(&txn).is_ok());
    store.engine().flush().unwrap();
    assert!(walk(&short).is_ok());
    assert_eq!(ids(&short, &stream), [1, 25_000]);
}
