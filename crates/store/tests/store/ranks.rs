//! Ranks under latches, with the background at work: several threads, crashes, and what is left behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cairn_engine::ManualTime;
use cairn_store::check::check;
use cairn_store::{
    Background, Direction, Error, Family, Hash, Pace, Patience, RankOptions, Set, Store,
    StoreOptions, WriteTxn, Zset, keys, set::Popped,
};
use fastrand::Rng;

use crate::support::{crash_image, exclusive, options, raw, shared};

fn small_blocks() -> StoreOptions {
    let time = Arc::new(ManualTime::at_millis(1_700_000_000_000));
    StoreOptions {
        ranks: RankOptions {
            is_enabled: true,
            least: 50,
            block: 4,
        },
        ..options(time, 1)
    }
}

fn begin(store: &Arc<Store>) -> WriteTxn {
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
    txn.begin(0);
    txn
}

fn check_rows(store: &Store) {
    let mut faults = Vec::new();
    check(store.engine(), &mut |fault| faults.push(fault.to_string())).unwrap();
    assert_eq!(faults, Vec::<String>::new());
}

/// Adds, removes or pops some elements of one of the three keys.
fn change(store: &Arc<Store>, random: &mut Rng) {
    let name = random.choice(["zset", "set", "hash"]).unwrap();
    let _held = store.latches().acquire_blocking(exclusive(&[name]));
    let mut txn = begin(store);
    for _ in 0..random.usize(1..10) {
        let element = random.u32(..400).to_string();
        let element = element.as_bytes();
        let adds = random.u8(..5) > 1;
        match name {
            "zset" => {
                let mut zset = Zset::open(&txn, b"zset").unwrap();
                let score = f64::from(random.u8(..20));
                match adds {
                    true => drop(zset.update(&mut txn, element, |_| Ok(Some(score))).unwrap()),
                    false => drop(zset.remove(&mut txn, element).unwrap()),
                }
                zset.save(&mut txn);
            }
            "set" => {
                let mut set = Set::open(&txn, b"set").unwrap();
                match adds {
                    true => set.add(&mut txn, element).unwrap(),
                    false => set.remove(&mut txn, element).unwrap(),
                };
                set.save(&mut txn);
            }
            _ => {
                let mut hash = Hash::open(&txn, b"hash").unwrap();
                match adds {
                    true => hash.set(&mut txn, element, b"value").unwrap(),
                    false => hash.remove(&mut txn, element).unwrap(),
                };
                hash.save(&mut txn);
            }
        }
    }
    if random.u8(..50) == 0 {
        keys::delete(&mut txn, name.as_bytes()).unwrap();
    }
    if random.u8(..10) == 0 {
        txn.undo();
    }
    store.commit_blocking(&mut txn).unwrap();
}

/// Every member stands where its rank says, and random ones are there.
fn ask(store: &Arc<Store>, random: &mut Rng) {
    let _held = store
        .latches()
        .acquire_blocking(shared(&["zset", "set", "hash"]));
    let txn = begin(store);
    let set = Set::open(&txn, b"set").unwrap();
    if let Some(member) = set.random(&txn).unwrap() {
        assert!(set.contains(&txn, &member).unwrap());
    }
    let hash = Hash::open(&txn, b"hash").unwrap();
    if let Some(row_key) = hash.collection().any(&txn).unwrap() {
        assert!(hash.contains(&txn, hash.field_of(&row_key)).unwrap());
    }
    let zset = Zset::open(&txn, b"zset").unwrap();
    if zset.is_empty() {
        return;
    }
    let rank = random.u64(..zset.len());
    let mut rows = zset.rows_from(&txn, rank, Direction::Forward).unwrap();
    let (row_key, _) = rows.next().unwrap().unwrap();
    let member = zset.score_rows().member(row_key);
    let found = zset.rank_of(&txn, member, Direction::Forward).unwrap();
    assert_eq!(found, Some(rank));
}

#[test]
fn threads_that_write_and_ask_while_the_background_counts() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), small_blocks()).unwrap();
    let background = Background::start(&store, Pace::default()).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let (store, is_over) = (&store, &is_over);
            scope.spawn(move || {
                let mut random = Rng::with_seed(seed);
                while !is_over.load(Ordering::Relaxed) {
                    match random.bool() {
                        true => change(store, &mut random),
                        false => ask(store, &mut random),
                    }
                }
            });
        }
        std::thread::sleep(Duration::from_secs(3));
        is_over.store(true, Ordering::Relaxed);
    });
    drop(background);
    check_rows(&store);
}

/// The process dies between any two of its steps.
#[test]
fn a_crash_leaves_counts_that_are_right() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), small_blocks()).unwrap();
    let mut random = Rng::with_seed(5);
    let mut counted = 0;
    for round in 0..400 {
        change(&store, &mut random);
        ask(&store, &mut random);
        store.keep_ranks().unwrap();
        if round % 20 == 0 {
            let image = crash_image(directory.path());
            let store = Store::open(image.path(), small_blocks()).unwrap();
            check_rows(&store);
            counted += count_rows(&store);
            // Life goes on there.
            for _ in 0..10 {
                change(&store, &mut random);
                ask(&store, &mut random);
                store.keep_ranks().unwrap();
            }
            check_rows(&store);
        }
    }
    assert!(counted > 0);
}

/// More than are popped one by one, and so few that they are found by their ranks.
#[test]
fn many_are_popped_by_their_ranks() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), small_blocks()).unwrap();
    let mut txn = begin(&store);
    let mut set = Set::open(&txn, b"set").unwrap();
    for number in 0..4000 {
        let member = format!("{number:04}");
        set.add(&mut txn, member.as_bytes()).unwrap();
    }
    set.save(&mut txn);
    store.commit_blocking(&mut txn).unwrap();
    let set = || Set::open(&begin(&store), b"set").unwrap();
    // The first finds no counts, and asks for them.
    set().pop(&mut begin(&store), 200).map(drop).unwrap();
    while store.keep_ranks().unwrap() {}
    let mut hasty = WriteTxn::new(store.clone(), store.home().clone(), Patience::Short);
    hasty.begin(0);
    let popped = set().pop(&mut hasty, 200);
    assert!(matches!(popped, Err(Error::TooLong)));
    let mut left = 4000;
    for count in [200, 129, 400] {
        let mut txn = begin(&store);
        let Popped::Few(members) = set().pop(&mut txn, count).unwrap() else {
            panic!("they are few");
        };
        store.commit_blocking(&mut txn).unwrap();
        left -= count;
        // In order, and each once.
        assert!(members.is_sorted_by(|a, b| a < b));
        assert_eq!(members.len() as u64, count);
        assert_eq!(set().len(), left);
        for member in &members {
            assert!(!set().contains(&txn, member).unwrap());
        }
        check_rows(&store);
        assert!(count_rows(&store) > 0);
    }
}

fn count_rows(store: &Store) -> usize {
    let rows = raw(store, Family::ZsetScore);
    let is_count = |row: &[u8]| {
        let decoded = cairn_encoding::row::RowKey::decode_score(row);
        matches!(decoded, Ok(cairn_encoding::row::RowKey::Count { .. }))
    };
    rows.iter().filter(|(row, _)| is_count(row)).count()
}

/// The count rows of a dead hash are all that it has in `zset_score`.
#[test]
fn counts_go_with_what_they_count() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), small_blocks()).unwrap();
    let mut txn = begin(&store);
    let mut hash = Hash::open(&txn, b"hash").unwrap();
    for number in 0..5000 {
        let field = number.to_string();
        hash.set(&mut txn, field.as_bytes(), b"value").unwrap();
    }
    hash.save(&mut txn);
    store.commit_blocking(&mut txn).unwrap();
    ask(&store, &mut Rng::with_seed(1));
    let hash = Hash::open(&txn, b"hash").unwrap();
    hash.collection().jumps(&txn, 1, false).unwrap();
    while store.keep_ranks().unwrap() {}
    assert!(count_rows(&store) > 512);
    store.engine().flush().unwrap();
    let mut txn = begin(&store);
    keys::delete(&mut txn, b"hash").unwrap();
    store.commit_blocking(&mut txn).unwrap();
    for family in [Family::Data, Family::ZsetScore] {
        let next = store.reclaim_versions(family, b"", 1000).unwrap();
        assert_eq!(next, None);
    }
    assert_eq!(raw(&store, Family::ZsetScore), []);
    assert_eq!(raw(&store, Family::Data), []);
}
