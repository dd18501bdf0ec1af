#![allow(clippy::unwrap_used)]

use cairn_encoding::SLOTS;
use cairn_engine::{LocalCommitter, SyncMode};

use super::*;
use crate::testing::{open_store, options};
use crate::{Expiry, Placement, string};

fn open() -> (tempfile::TempDir, Arc<Store>) {
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(directory.path());
    (directory, store)
}

fn sow(store: &Arc<Store>, names: impl Iterator<Item = String>) {
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
    txn.begin(0);
    for name in names {
        let key = txn.key(name.as_bytes());
        string::put(&mut txn, &key, b"value", Expiry::At(0)).unwrap();
    }
    store.commit_blocking(&mut txn).unwrap();
}

fn kept(store: &Store) -> u64 {
    let (total, _) = store.counts().kept(place(store)).unwrap();
    total.keys
}

fn place(store: &Store) -> Place {
    Place::of(store.home(), store.home().databases().index_of(0))
}

fn count_all(store: &Store) -> Result<KeyCount> {
    store.count_all(store.home(), place(store).index)
}

#[test]
fn a_round_finds_what_became_of_any_slot_and_rests_when_nothing_changes() {
    let (_directory, store) = open();
    sow(&store, (0..3000).map(|n| format!("key:{n}")));
    assert_eq!(count_all(&store).unwrap().keys, 3000);
    assert!(!store.recount(Duration::ZERO).unwrap());

    // All in one slot: no other shows anything of it.
    sow(&store, (0..5000).map(|n| format!("{{tag}}{n}")));
    let mut runs = 1;
    while store.recount(Duration::ZERO).unwrap() {
        runs += 1;
    }
    assert_eq!(kept(&store), 8000);
    assert!(runs > 100, "each run was to count a slot: {runs}");
    assert!(!store.recount(Duration::ZERO).unwrap());

    // What is small enough is counted anew whenever someone asks, and not kept any more.
    assert_eq!(store.count_keys(0).unwrap().keys, 8000);
    assert_eq!(store.counts().kept(place(&store)), None);
}

/// Others may have changed everything meanwhile, without a word.
#[test]
fn what_was_counted_is_forgotten_when_the_lead_ends() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open_replicated(directory.path(), options()).unwrap();
    let placement = Placement {
        id: 5,
        slots: 0..SLOTS,
        epoch: 0,
    };
    store.place_regions(&[placement], &[]).unwrap();
    let lead = |term| {
        let (engine, clock) = (store.engine().clone(), store.clock().clone());
        let log = LocalCommitter::new(engine, clock, SyncMode::No).unwrap();
        store.became_leader(5, term, Box::new(log)).unwrap();
    };
    lead(1);
    let region = store.regions().with_id(5).unwrap().clone();
    let place = Place::of(&region, region.databases().index_of(0));
    store.count_all(&region, place.index).unwrap();
    assert!(store.counts().kept(place).is_some());
    store.lost_leadership(5);
    assert_eq!(store.counts().kept(place), None);
    // What was begun before is not kept either.
    let (begun, count) = (
        store.counts().outdated.load(Ordering::Relaxed),
        Kept::new(0..SLOTS, 0),
    );
    lead(2);
    store.counts().keep(place, count, begun);
    assert_eq!(store.counts().kept(place), None);
    store.count_all(&region, place.index).unwrap();
    assert!(store.counts().kept(place).is_some());
}

#[test]
fn those_who_ask_together_get_one_count() {
    let (_directory, store) = open();
    sow(&store, (0..2000).map(|n| format!("key:{n}")));
    let place = place(&store);
    std::thread::scope(|scope| {
        let under_way = UnderWay::enter(store.counts(), place);
        assert!(under_way.is_some());
        let asking: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| count_all(&store).unwrap().keys))
            .collect();
        std::thread::sleep(Duration::from_millis(50));
        let mut count = Kept::new(store.home().slots(), 0);
        while count.add(
            store
                .count_run(store.home(), place.index, count.round.next, RUN, || ())
                .unwrap(),
        ) {}
        // One that only the first count knows of.
        count.total.keys += 1;
        store.counts().kept.lock().insert(place, count);
        drop(under_way);
        for asked in asking {
            assert_eq!(asked.join().unwrap(), 2001);
        }
    });
    // When the one who counts fails, another one does it.
    store.counts().forget(place);
    std::thread::scope(|scope| {
        let under_way = UnderWay::enter(store.counts(), place);
        let asking = scope.spawn(|| count_all(&store).unwrap().keys);
        std::thread::sleep(Duration::from_millis(20));
        drop(under_way);
        assert_eq!(asking.join().unwrap(), 2000);
    });
}

#[test]
fn a_flushed_database_is_forgotten() {
    let (_directory, store) = open();
    sow(&store, (0..10).map(|n| format!("key:{n}")));
    let before = place(&store);
    count_all(&store).unwrap();
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
    crate::databases::flush(&mut txn, [0]);
    store.commit_blocking(&mut txn).unwrap();
    store.recount(RUN).unwrap();
    assert_eq!(store.counts().kept(before), None);
    assert_eq!(store.count_keys(0).unwrap().keys, 0);
}

#[test]
fn a_count_is_given_up_when_the_store_stops() {
    let (_directory, store) = open();
    sow(&store, (0..2000).map(|n| format!("key:{n}")));
    store.counts().stop();
    assert!(count_all(&store).is_err());
}
