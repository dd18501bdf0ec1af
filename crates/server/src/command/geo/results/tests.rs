#![allow(clippy::unwrap_used)]

use cairn_engine::{EngineOptions, SystemTime};
use cairn_store::{Patience, Store, StoreOptions, SyncMode, WriteTxn};

use super::super::shape::Extent;
use super::*;

const CENTER: Position = Position {
    longitude: 15.0,
    latitude: 37.0,
};
const SHAPE: Shape = Shape {
    center: CENTER,
    extent: Extent::Circle { radius: 150.0 },
    unit: 1000.0,
};

/// A few hundred members around the center, many of them at the same place.
fn fill(txn: &mut WriteTxn) {
    let mut random = fastrand::Rng::with_seed(3);
    let mut zset = Zset::open(txn, b"g").unwrap();
    for number in 0..600 {
        let position = Position {
            longitude: 15.0 + f64::from(random.i32(-20..20)) / 10.0,
            latitude: 37.0 + f64::from(random.i32(-20..20)) / 10.0,
        };
        let member = format!("member {number}").into_bytes();
        let score = position.score();
        zset.update(txn, &member, |_| Ok(Some(score))).unwrap();
    }
    zset.save(txn);
}

fn names(mut results: Results) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    loop {
        match results.next().unwrap() {
            Next::Found(found) => names.push(found.member),
            Next::Onward => {}
            Next::End => break,
        }
    }
    assert_eq!(results.left(), 0);
    names
}

#[test]
fn what_does_not_fit_into_a_window_comes_in_the_same_order() {
    let directory = tempfile::tempdir().unwrap();
    let options = StoreOptions {
        engine: EngineOptions {
            memory: 64 * 1024 * 1024,
            ..EngineOptions::default()
        },
        sync: SyncMode::No,
        databases: 1,
        time: Box::<SystemTime>::default(),
        ranks: Default::default(),
    };
    let store = Store::open(directory.path(), options).unwrap();
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
    fill(&mut txn);
    let zset = Zset::open(&txn, b"g").unwrap();
    let found = |order, size| {
        let wanted = Wanted {
            order,
            ..Wanted::default()
        };
        let walk = Walk::open(&txn, &zset, SHAPE).unwrap();
        names(Results::by_window(&txn, walk, wanted, size).unwrap())
    };
    for order in [None, Some(Order::Nearest), Some(Order::Farthest)] {
        let all = found(order, WINDOW);
        assert!(all.len() > 200 && all.len() < 600, "{}", all.len());
        for size in [0, 1000, 10_000] {
            assert_eq!(found(order, size), all, "{order:?} {size}");
        }
        for (is_any, size) in [(false, 1000), (true, 1000), (true, 10)] {
            let wanted = Wanted {
                order: Some(order.unwrap_or(Order::Nearest)),
                count: Some(50),
                is_any,
            };
            let walk = Walk::open(&txn, &zset, SHAPE).unwrap();
            let some = names(Results::by_window(&txn, walk, wanted, size).unwrap());
            assert_eq!(some.len(), 50);
            if !is_any && order.is_some() {
                assert_eq!(some, all[..50]);
            }
        }
    }
}
