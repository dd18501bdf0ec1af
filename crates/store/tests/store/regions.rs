//! Several regions in one store: each is committed, flushed, expired and led by itself.

mod model;
mod node;

use std::time::{Duration, Instant};

use cairn_encoding::row;
use cairn_encoding::slot::slot;
use cairn_encoding::system::{SystemKey, SystemKind, value};
use cairn_engine::{EngineError, LOCAL_REGION};
use cairn_store::databases::flush;
use cairn_store::{
    Begun, Error, Family, Fresh, Patience, Placement, Progress, Store, WriteTxn, keyspace,
};

use crate::support::*;
use node::{Fate, Node};

const SECOND: u16 = 5000;
const THIRD: u16 = 11_000;

/// Three regions that have all slots.
fn three() -> [(u64, std::ops::Range<u16>); 3] {
    [(7, 0..SECOND), (8, SECOND..THIRD), (9, THIRD..16384)]
}

/// The `n`-th name whose slot lies in a region of [`three`].
fn name_in(region: u64, n: usize) -> String {
    let (_, slots) = three().into_iter().find(|(id, _)| *id == region).unwrap();
    let names = (0..).map(|n| format!("key:{n}"));
    let mut inside = names.filter(|name| slots.contains(&slot(name.as_bytes())));
    inside.nth(n).unwrap()
}

fn sow(node: &Node, region: u64, count: usize) -> Vec<String> {
    let mut names: Vec<_> = (0..count).map(|n| name_in(region, n)).collect();
    node.write(region, |txn| {
        for name in &names {
            set(txn, name, name);
        }
    });
    names.sort();
    names
}

fn expire_all(store: &std::sync::Arc<Store>) {
    while store.expire_some(7).unwrap() != Progress::Idle {}
}

fn watermark(store: &Store, region: u64) -> Option<u64> {
    let row = SystemKey::Watermark { region }.encode();
    let stored = store.engine().get(Family::Meta, &row).unwrap()?;
    Some(value::decode_watermark(&stored).unwrap())
}

fn staged(store: &Store, region: u64) -> usize {
    let prefix = SystemKind::Staging.region_prefix(region);
    let rows = raw(store, Family::Meta);
    rows.iter()
        .filter(|(key, _)| key.starts_with(&prefix))
        .count()
}

fn is_refused(result: cairn_store::Result<()>) -> bool {
    matches!(
        result,
        Err(Error::Engine(
            EngineError::Outdated | EngineError::NotLeading
        ))
    )
}

#[test]
fn each_region_shows_its_own_keys() {
    let node = Node::new(&three());
    let [seven, eight] = [7, 8].map(|region| sow(&node, region, 30));
    assert_eq!(node.read(7, keys), seven);
    assert_eq!(node.read(8, keys), eight);
    assert_eq!(node.read(9, keys), [""; 0]);
    // The index is the same, and the rows are others.
    assert_eq!(
        node.read(7, |txn| txn.index()),
        node.read(8, |txn| txn.index())
    );
    assert_eq!(node.store().count_keys(0).unwrap().keys, 60);
    node.lose(7);
    assert_eq!(node.store().count_keys(0).unwrap().keys, 30);
    assert!(node.read(9, |txn| keyspace::random_key(txn).unwrap().is_none()));
    for _ in 0..50 {
        let drawn = node.read(8, |txn| keyspace::random_key(txn).unwrap().unwrap());
        assert!(eight.contains(&String::from_utf8(drawn).unwrap()));
    }
    assert!(node.store().home().slots().is_empty());
}

#[test]
fn a_scan_stays_in_its_region_and_tells_the_slot_where_it_goes_on() {
    let node = Node::new(&three());
    let [_, eight, _] = [7, 8, 9].map(|region| sow(&node, region, 40));
    let (mut found, mut cursor) = (Vec::new(), 0);
    loop {
        cursor = node.read(8, |txn| {
            let visit = |met: &keyspace::Met<'_>| {
                found.push(String::from_utf8(met.name.to_vec()).unwrap());
            };
            keyspace::scan(txn, cursor, 7, visit).unwrap()
        });
        if cursor == 0 {
            break;
        }
        assert!((SECOND..THIRD).contains(&keyspace::slot_of_cursor(cursor)));
    }
    found.sort();
    assert_eq!(found, eight);
    // From the first slot of a region on, as whoever comes from the one before begins.
    let first = keyspace::cursor_at_slot(SECOND);
    let mut count = 0;
    let end = node.read(8, |txn| keyspace::scan(txn, first, 1000, |_| count += 1));
    assert_eq!((end.unwrap(), count), (0, 40));
}

#[test]
fn a_flush_of_one_region_leaves_the_others() {
    let mut node = Node::new(&three());
    let [_, eight, nine] = [7, 8, 9].map(|region| sow(&node, region, 30));
    node.write(7, |txn| flush(txn, [0]));
    let assert_left = |node: &Node| {
        assert_eq!(node.read(7, keys), [""; 0]);
        assert_eq!(node.read(8, keys), eight);
        assert_eq!(node.read(9, keys), nine);
    };
    assert_left(&node);
    // Its rows lie under an index that the others live under.
    node.store().reclaim_databases().unwrap();
    assert_eq!(raw(node.store(), Family::Metadata).len(), 60);
    assert_left(&node);
    node.restart(&three());
    assert_left(&node);
    // Other replicas may not have dropped their rows: it stays listed for a while.
    let garbage = node.store().garbage().unwrap();
    assert_eq!(garbage.dead_databases, 1);
    node.lead(7).unwrap();
    node.write(7, |txn| set(txn, &name_in(7, 0), "new"));
    assert_eq!(node.read(7, keys).len(), 1);
}

#[test]
fn what_was_evaluated_in_a_term_that_has_ended_leaves_nothing() {
    let mut node = Node::new(&three());
    let name = name_in(7, 0);
    let evaluated = |node: &Node| {
        let mut txn = node.txn(7);
        set(&mut txn, &name, "late");
        txn
    };
    // The store knows.
    let txn = evaluated(&node);
    node.lose(7);
    assert!(is_refused(node.commit(txn)));
    // Nor is there a way for what begins now, or if the node leads again by then.
    assert!(is_refused(node.commit(evaluated(&node))));
    node.lead(7).unwrap();
    let txn = evaluated(&node);
    node.lose(7);
    node.lead(7).unwrap();
    assert!(is_refused(node.commit(txn)));
    // The store does not know yet.
    let txn = evaluated(&node);
    node.forget(7);
    assert!(is_refused(node.commit(txn)));
    assert_eq!(node.read(7, keys), [""; 0]);
    assert_eq!(raw(node.store(), Family::Metadata), []);
    // Others go on.
    node.write(8, |txn| set(txn, &name_in(8, 0), "value"));
}

#[test]
fn a_new_leader_finds_what_became_of_a_flush_that_nobody_could_tell_of() {
    let mut node = Node::new(&three());
    let names = sow(&node, 7, 5);
    for (fate, left) in [(Fate::LostInSecret, names), (Fate::AppliedInSecret, vec![])] {
        node.decide(7, fate);
        let flushed = node.try_write(7, |txn| flush(txn, [0]));
        assert!(matches!(flushed, Err(Error::Engine(EngineError::InDoubt))));
        node.lose(7);
        node.lead(7).unwrap();
        assert_eq!(node.read(7, keys), left);
    }
    node.write(7, |txn| set(txn, &name_in(7, 0), "new"));
    assert_eq!(node.read(7, keys).len(), 1);
}

#[test]
fn a_flush_that_is_told_of_late_does_not_undo_a_later_one() {
    let mut node = Node::new(&three());
    sow(&node, 7, 5);
    let index = |node: &Node| node.region(7).databases().index_of(0);
    let mut txn = node.txn(7);
    flush(&mut txn, [0]);
    let Begun::Pending(late) = node.store().begin_commit(&mut txn) else {
        panic!("others have to agree");
    };
    let row = SystemKey::DeadIndex {
        region: 7,
        index: index(&node),
    };
    while node
        .store()
        .engine()
        .get(Family::Meta, &row.encode())
        .unwrap()
        .is_none()
    {
        std::thread::yield_now();
    }
    node.lose(7);
    node.lead(7).unwrap();
    sow(&node, 7, 3);
    node.write(7, |txn| flush(txn, [0]));
    let flushed = index(&node);
    late.wait(node.store()).unwrap();
    assert_eq!(index(&node), flushed);
    assert_eq!(node.read(7, keys), [""; 0]);
}

#[test]
fn a_single_machine_becomes_a_node() {
    let mut fixture = Fixture::new();
    fixture.write(|txn| set(txn, "key", "value"));
    fixture.write(|txn| cairn_store::legacy::write_legacy(txn, b"old", b"value", 0));
    let time = fixture.time.clone();
    let open = |path: &std::path::Path| Store::open_replicated(path, options(time.clone(), 16));
    let refused = open(fixture.stop());
    assert!(refused.is_err_and(|error| error.to_string().contains("old format")));
    fixture.restart();
    let mut place = Vec::new();
    while let Some(next) = fixture.store().move_legacy(&place, 10).unwrap() {
        place = next;
    }
    let store = open(fixture.stop()).unwrap();
    let placed = Placement {
        id: LOCAL_REGION,
        slots: 0..16384,
        epoch: 0,
    };
    store.place_regions(&[placed], &[]).unwrap();
    let region = store.regions().with_slot(0).unwrap().clone();
    let mut txn = WriteTxn::new(store.clone(), region, Patience::Long);
    txn.begin(0);
    assert_eq!(keys(&txn), ["key", "old"]);
}

#[test]
fn keys_expire_where_they_are_led_and_watermarks_rise_alone() {
    let mut node = Node::new(&three());
    node.time.set_millis(START);
    // Each has one by now, as nothing was due.
    expire_all(node.store());
    let idle = [7, 8, 9].map(|region| watermark(node.store(), region));
    assert_eq!(idle, [Some(START); 3]);
    for region in [7, 8, 9] {
        node.write(region, |txn| {
            for n in 0..20 {
                set_until(txn, &name_in(region, n), "value", START + 100);
            }
        });
    }
    node.lose(8);
    node.time.set_millis(START + 1000);
    expire_all(node.store());
    assert_eq!(node.store().expirer().expired_keys(), 40);
    assert_eq!(raw(node.store(), Family::Expiry).len(), 20);
    let raised = Some(START + 1000);
    let marks = [7, 8, 9].map(|region| watermark(node.store(), region));
    assert_eq!(marks, [raised, Some(START), raised]);
    // What was passed over is found at once by the node that leads it next.
    node.lead(8).unwrap();
    expire_all(node.store());
    assert_eq!(raw(node.store(), Family::Expiry), []);
    assert_eq!(raw(node.store(), Family::Metadata), []);
    assert_eq!(watermark(node.store(), 8), raised);
}

#[test]
fn a_key_that_is_held_keeps_back_the_watermark_of_its_region_only() {
    let node = Node::new(&three());
    let names = [7, 8].map(|region| name_in(region, 0));
    for (region, name) in [7, 8].into_iter().zip(&names) {
        node.write(region, |txn| set_until(txn, name, "value", START + 100));
    }
    node.time.set_millis(START + 1000);
    let held = node
        .store()
        .latches()
        .acquire_blocking(exclusive(&[&names[0]]));
    expire_all(node.store());
    let marks = || [7, 8, 9].map(|region| watermark(node.store(), region));
    let raised = Some(START + 1000);
    assert_eq!(marks(), [None, raised, raised]);
    drop(held);
    expire_all(node.store());
    assert_eq!(marks(), [raised; 3]);
    assert_eq!(node.store().expirer().expired_keys(), 2);
}

#[test]
fn the_expirer_survives_the_loss_of_a_region_that_it_does_not_know_of() {
    let mut node = Node::new(&three());
    for region in [7, 8] {
        node.write(region, |txn| {
            for n in 0..20 {
                set_until(txn, &name_in(region, n), "value", START + 100);
            }
        });
    }
    node.time.set_millis(START + 1000);
    node.forget(7);
    expire_all(node.store());
    assert_eq!(node.store().expirer().expired_keys(), 20);
    assert_eq!(watermark(node.store(), 7), None);
    node.lead(7).unwrap();
    expire_all(node.store());
    assert_eq!(node.store().expirer().expired_keys(), 40);
}

/// Whether nobody holds the latch of any of these.
fn are_free(node: &Node, names: &[String]) -> bool {
    let latches = node.store().latches();
    let is_free = |name: &String| latches.none().try_extend(&exclusive(&[name.as_str()]));
    names.iter().all(is_free)
}

/// Too few replicas of one region are there: its commits take as long as that lasts.
#[test]
fn a_region_that_cannot_commit_keeps_no_other_from_expiring() {
    let node = Node::new(&three());
    let names = |region| -> Vec<String> { (0..20).map(|n| name_in(region, n)).collect() };
    for region in [7, 8, 9] {
        node.write(region, |txn| {
            for name in names(region) {
                set_until(txn, &name, "value", START + 100);
            }
        });
    }
    node.time.set_millis(START + 1000);
    node.decide(7, Fate::Delayed);
    let began = Instant::now();
    expire_all(node.store());
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!(node.store().expirer().expired_keys(), 40);
    assert!(are_free(&node, &names(8)) && are_free(&node, &names(9)));
    assert!(!are_free(&node, &names(7)), "what is under way is held");
    // What comes meanwhile expires, too.
    let later = name_in(8, 30);
    node.write(8, |txn| set_until(txn, &later, "value", START + 1100));
    node.time.set_millis(START + 2000);
    expire_all(node.store());
    assert_eq!(node.store().expirer().expired_keys(), 41);
    node.decide(7, Fate::Applied);
    while node.store().expirer().expired_keys() < 61 {
        assert!(began.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(20));
        expire_all(node.store());
    }
    assert!(are_free(&node, &names(7)));
    assert_eq!(raw(node.store(), Family::Expiry), []);
}

#[test]
fn what_was_written_ahead_is_cleared_away_by_the_next_leader() {
    let mut node = Node::new(&three());
    let write_ahead = |node: &Node| {
        let txn = node.txn(7);
        let (key, version) = (txn.key(name_in(7, 0).as_bytes()), txn.next_version());
        let mut fresh = Fresh::new(&key, version);
        for n in 0..6u8 {
            let row = key.data(version, &[n]);
            fresh
                .put(&txn, Family::Data, &row, vec![0; 1024 * 1024])
                .unwrap();
        }
        assert_eq!(staged(node.store(), 7), 1);
        fresh
    };
    // Thrown away while the region is led: it clears away after itself.
    drop(write_ahead(&node));
    assert_eq!(staged(node.store(), 7), 0);
    // Later, it cannot.
    let fresh = write_ahead(&node);
    node.lose(7);
    drop(fresh);
    assert_eq!(staged(node.store(), 7), 1);
    node.store().reclaim_abandoned().unwrap();
    assert_eq!(staged(node.store(), 7), 1);
    node.lead(7).unwrap();
    assert_eq!(staged(node.store(), 7), 0);
}

#[test]
fn a_region_that_is_cut_in_two_keeps_its_keys() {
    let mut node = Node::new(&[(7, 0..16384)]);
    let names: Vec<_> = (0..40).map(|n| format!("key:{n}")).collect();
    node.write(7, |txn| {
        for name in &names {
            set(txn, name, "value");
        }
        // What the cut writes: the new region goes on with the databases of the old one.
        let database = |region| SystemKey::Database { region, number: 0 }.encode();
        let next = |region| SystemKey::NextIndex { region }.encode();
        for row_of in [&database as &dyn Fn(u64) -> Vec<u8>, &next] {
            let value = txn.row(Family::Meta, &row_of(7)).unwrap().unwrap().to_vec();
            txn.put(Family::Meta, &row_of(8), value);
        }
    });
    let stale = {
        let mut txn = node.txn(7);
        set(&mut txn, "stale", "value");
        txn
    };
    node.place(&[(7, 0..8000), (8, 8000..16384)], 1);
    assert!(is_refused(node.commit(stale)));
    node.lead(7).unwrap();
    node.lead(8).unwrap();
    for name in &names {
        let region = if slot(name.as_bytes()) < 8000 { 7 } else { 8 };
        let other = 15 - region;
        assert!(node.read(region, keys).contains(name));
        assert!(!node.read(other, keys).contains(name));
    }
    node.write(8, |txn| flush(txn, [0]));
    let left = node.read(7, keys).len();
    assert!((1..40).contains(&left));
    assert_eq!(node.store().count_keys(0).unwrap().keys, left as u64);
}

#[test]
fn regions_that_share_a_slot_are_not_placed() {
    let node = Node::new(&three());
    let placed = Placement {
        id: 10,
        slots: 4999..5000,
        epoch: 0,
    };
    assert!(node.store().place_regions(&[placed], &[]).is_err());
    assert!(node.store().regions().with_id(10).is_none());
    assert!(node.region(7).is_led());
    node.store().place_regions(&[], &[7, 8]).unwrap();
    assert!(node.store().regions().with_slot(4999).is_none());
    assert_eq!(node.store().regions().with_slot(THIRD).unwrap().id(), 9);
    // Their rows are left alone: others may be about to come in their place.
    let mut prefix = Vec::new();
    row::index_prefix(&mut prefix, 1);
    let searched = node.store().reclaim_versions(Family::Data, &prefix, 100);
    assert_eq!(searched.unwrap(), None);
}
