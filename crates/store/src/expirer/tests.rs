#![allow(clippy::unwrap_used)]

use std::ops::Range;
use std::sync::mpsc;

use super::fields::Begun;
use super::*;
use crate::hash::Hash;
use crate::testing::open_store;
use crate::txn::Patience;

/// Hashes, each with fields that were due in these milliseconds, one in each.
fn have_due(store: &Arc<Store>, hashes: &[(&[u8], Range<u64>)]) {
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
    txn.begin(0);
    let now_ms = txn.now_ms();
    for (name, millis) in hashes {
        let mut hash = Hash::open(&txn, name).unwrap();
        for ms in millis.clone() {
            let field = ms.to_be_bytes();
            hash.set(&mut txn, &field, b"value").unwrap();
            hash.expire(&mut txn, &field, now_ms + ms).unwrap();
        }
        hash.save(&mut txn);
    }
    store.commit_blocking(&mut txn).unwrap();
    let last = hashes.iter().map(|(_, millis)| millis.end).max().unwrap();
    while store.clock().now_ms() < now_ms + last {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// To open a walk is dear while much is written to the hash: it has to look at all of that.
#[test]
fn one_walk_over_a_hash_serves_many_batches() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(directory.path());
    have_due(&store, &[(b"one", 0..100), (b"other", 0..100)]);
    let begun = || store.expirer().place.lock().begun.len();
    let opened = || {
        let place = store.expirer().place.lock();
        let mut moments: Vec<Instant> = place.begun.iter().map(Begun::since).collect();
        moments.sort();
        moments
    };
    store.expire_some(10).unwrap();
    let first = opened();
    assert_eq!(first.len(), 1);
    while begun() < 2 {
        store.expire_some(10).unwrap();
        assert_eq!(opened()[0], first[0], "it was opened anew");
    }
    let both = opened();
    for _ in 0..3 {
        store.expire_some(10).unwrap();
        assert!(opened().iter().all(|moment| both.contains(moment)));
    }
    while store.expire_some(10).unwrap() != Progress::Idle {}
    assert_eq!(store.expirer().expired_fields(), 200);
    assert_eq!(begun(), 0);
}

/// INFO is asked for by those who watch: it does not wait until the expirer has ended what it is at.
#[test]
fn how_much_is_due_is_told_while_a_batch_is_under_way() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(directory.path());
    have_due(&store, &[(b"hash", 0..100), (b"other", 99..100)]);
    store.expire_some(10).unwrap();
    let batch = store.expirer().place.lock();
    let (tell, told) = mpsc::channel();
    let asked = store.clone();
    let asker = std::thread::spawn(move || tell.send(asked.garbage().unwrap().due));
    let due = told.recv_timeout(Duration::from_secs(20));
    drop(batch);
    asker.join().unwrap().unwrap();
    // The rest of the hash counts, although the walk over the index has passed it.
    assert!(due.unwrap().lag_ms >= 90);
}
