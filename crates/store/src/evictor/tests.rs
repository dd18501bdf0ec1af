#![allow(clippy::unwrap_used)]

use cairn_engine::Access;

use super::*;
use crate::latch::{Mode, Request};
use crate::txn::{Patience, WriteTxn};
use crate::{Expiry, keys, string, testing};

fn demand(policy: &str, keys: usize) -> Demand {
    Demand {
        policy: Policy::named(policy).unwrap(),
        samples: 20,
        keys,
        bytes: u64::MAX,
    }
}

fn set(store: &Arc<Store>, name: &str, expiry: Expiry) {
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
    txn.begin(0);
    string::set(&mut txn, name.as_bytes(), b"value", expiry).unwrap();
    store.commit_blocking(&mut txn).unwrap();
}

fn exists(store: &Arc<Store>, name: &str) -> bool {
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Background);
    txn.begin(0);
    let key = txn.key(name.as_bytes());
    txn.exists(&key).unwrap()
}

fn set_idle(store: &Arc<Store>, name: &str, seconds: u64) {
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Background);
    txn.begin(0);
    let key = txn.key(name.as_bytes());
    let access = Access::idle_for(seconds);
    store.engine().set_access(key.metadata(), access);
}

#[test]
fn every_name_of_redis_is_known() {
    let of = |among, first| Some(Policy { among, first });
    assert_eq!(
        Policy::named("allkeys-lru"),
        of(Among::All, First::LeastRecentlyUsed)
    );
    assert_eq!(
        Policy::named("volatile-ttl"),
        of(Among::Volatile, First::Soonest)
    );
    assert_eq!(Policy::named("noeviction"), None);
}

#[test]
fn those_go_first_that_were_not_used_for_longest_wherever_they_lie() {
    let dir = tempfile::tempdir().unwrap();
    let store = testing::open_store(dir.path());
    let name = |number: u64| format!("key:{number}");
    for is_stored in [false, true] {
        for number in 0..100 {
            set(&store, &name(number), Expiry::Never);
            set_idle(&store, &name(number), number * 10);
        }
        if is_stored {
            store.engine().settle().unwrap();
        }
        let mut gone = 0;
        while gone < 30 {
            gone += store.evict_some(&demand("allkeys-lru", 6)).unwrap();
        }
        let left: u64 = (0..100)
            .filter(|number| exists(&store, &name(*number)))
            .sum();
        // Those that are left are the lower numbers, mostly: by chance it would be 4950 * 0.7 = 3465.
        assert!(left < 2850, "{left}");
    }
}

#[test]
fn nothing_goes_that_somebody_works_on_or_that_is_to_stay() {
    let dir = tempfile::tempdir().unwrap();
    let store = testing::open_store(dir.path());
    let far = Expiry::At(store.clock().now_ms() + 1_000_000);
    for number in 0..50 {
        set(&store, &format!("kept:{number}"), Expiry::Never);
    }
    set(&store, "due", far);
    let mut request = Request::default();
    request.add(b"due", Mode::Exclusive);
    let held = store.latches().acquire_blocking(request);
    for policy in ["volatile-lru", "volatile-ttl", "volatile-random"] {
        assert_eq!(store.evict_some(&demand(policy, 100)).unwrap(), 0);
    }
    drop(held);
    assert_eq!(store.evict_some(&demand("volatile-lfu", 100)).unwrap(), 1);
    assert!(!exists(&store, "due"));
    assert_eq!(store.evict_some(&demand("volatile-lfu", 100)).unwrap(), 0);
    // One that expires no more is not volatile any more, whatever the index says.
    set(&store, "kept:0", far);
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
    txn.begin(0);
    keys::delete(&mut txn, b"kept:0").unwrap();
    store.commit_blocking(&mut txn).unwrap();
    set(&store, "kept:0", Expiry::Never);
    assert_eq!(store.evict_some(&demand("volatile-ttl", 100)).unwrap(), 0);
    let mut gone = 0;
    while gone < 50 {
        gone += store.evict_some(&demand("allkeys-random", 100)).unwrap();
    }
    assert_eq!(store.evict_some(&demand("allkeys-random", 1)).unwrap(), 0);
    assert_eq!(store.evictor().evicted_keys(), 51);
}
