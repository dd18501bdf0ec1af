//! Readers against writers and compactions.
//!
//! A reader opens its walk under a shared latch, lets go, and reads on for as long as it takes. Meanwhile
//! the key is deleted and made again, over and over, compactions drop the rows of its earlier lives, and
//! the reclaimer drops them by the range. No walk may ever be short, or show two lives at once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cairn_engine::{Direction, Rows};
use cairn_store::{CollectionKind, End, Family, Hash, List, Point, Set, WriteTxn, Zset};

use crate::support::*;

/// How long the readers are tried, and how long at most if the machine is busy.
const TRIAL: Duration = Duration::from_secs(4);
const LONGEST: Duration = Duration::from_secs(60);

const KINDS: [&str; 4] = ["hash", "set", "list", "zset"];

/// Each life has a size of its own, large enough for the reclaimer.
fn size_of(life: u64) -> u64 {
    600 + life % 7 * 100
}

/// Every element tells its life and its number.
fn element(life: u64, n: u64) -> String {
    format!("{n:04} of {life}")
}

/// Replaces what the key holds by a new life of it.
fn recreate(txn: &mut WriteTxn, kind: &str, life: u64) {
    del(txn, kind);
    let elements = (0..size_of(life)).map(|n| element(life, n));
    match kind {
        "hash" => hset(txn, kind, elements.map(|text| (text.clone(), text))),
        "set" => {
            let mut set = Set::open(txn, kind.as_bytes()).unwrap();
            elements.for_each(|text| assert!(set.add(txn, text.as_bytes()).unwrap()));
            set.add(txn, b"always").unwrap();
            set.save(txn);
        }
        "list" => {
            let mut list = List::open(txn, kind.as_bytes()).unwrap();
            list.push(txn, End::Right, b"to be popped");
            elements.for_each(|text| list.push(txn, End::Right, text.as_bytes()));
            list.pop(txn, End::Left).unwrap();
            list.save(txn);
        }
        _ => {
            let mut zset = Zset::open(txn, kind.as_bytes()).unwrap();
            for (n, text) in elements.enumerate() {
                let update = zset.update(txn, text.as_bytes(), |_| Ok(Some(n as f64)));
                update.unwrap();
            }
            zset.save(txn);
        }
    }
}

/// What a row says, from its key and value.
type RowText = Box<dyn Fn(&[u8], &[u8]) -> String>;

/// What a reader took along when it let go of the latch.
struct Walk {
    rows: Rows,
    size: u64,
    text: RowText,
}

fn utf8(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn open_walk(txn: &WriteTxn, kind: &str) -> Walk {
    let name = kind.as_bytes();
    match kind {
        "hash" => {
            let hash = Hash::open(txn, name).unwrap();
            Walk {
                rows: hash
                    .collection()
                    .rows(txn, cairn_store::Direction::Forward)
                    .unwrap(),
                size: hash.len(txn).unwrap(),
                text: Box::new(move |key, value| {
                    assert_eq!(hash.field_of(key), value);
                    utf8(value)
                }),
            }
        }
        "set" => {
            let set = Set::open(txn, name).unwrap();
            Walk {
                rows: set.rows(txn).unwrap(),
                size: set.len(),
                text: Box::new(move |key, _| utf8(set.member_of(key))),
            }
        }
        "list" => {
            let list = List::open(txn, name).unwrap();
            Walk {
                rows: list.rows(txn, 0..list.len(), Direction::Forward).unwrap(),
                size: list.len(),
                text: Box::new(|_, value| utf8(value)),
            }
        }
        _ => {
            let zset = Zset::open(txn, name).unwrap();
            let reader = zset.score_rows();
            Walk {
                rows: zset.rows(txn, &zset.whole(), Direction::Forward).unwrap(),
                size: zset.len(),
                text: Box::new(move |key, _| utf8(reader.member(key))),
            }
        }
    }
}

/// Reads the walk to its end: exactly one life, and all of it.
fn check(mut walk: Walk, kind: &str) {
    let mut met = Vec::new();
    while let Some((key, value)) = walk.rows.next().unwrap() {
        met.push((walk.text)(key, value));
    }
    assert_eq!(met.len() as u64, walk.size, "a short {kind}");
    if kind == "set" {
        assert_eq!(met.pop().as_deref(), Some("always"));
    }
    let (_, life) = met[0].split_once(" of ").unwrap();
    let life = life.parse().unwrap();
    let whole = (0..size_of(life)).map(|n| element(life, n));
    assert!(met.into_iter().eq(whole), "a torn {kind}");
}

struct Trial {
    fixture: Fixture,
    started: Instant,
    failed: AtomicBool,
    lives: AtomicU64,
    walks: AtomicU64,
    compactions: AtomicU64,
}

impl Trial {
    fn goes_on(&self) -> bool {
        let elapsed = self.started.elapsed();
        let is_over = elapsed > LONGEST || elapsed > TRIAL && self.is_enough();
        !is_over && !self.failed.load(Ordering::Relaxed)
    }

    /// Whether it was a trial: much was read, and dropped under the readers' feet.
    fn is_enough(&self) -> bool {
        let counters = self.fixture.store().engine().filter_counters();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        count(&self.walks) > 100
            && count(&self.compactions) > 3
            && count(&counters.dead_versions) > 10_000
    }

    /// Runs a part of the trial; should it panic, the others stop too.
    fn run(&self, part: impl Fn(&Trial)) {
        let stop = StopOthers(self);
        while self.goes_on() {
            part(self);
        }
        std::mem::forget(stop);
    }

    fn write(&self, kind: &str) {
        let life = self.lives.fetch_add(1, Ordering::Relaxed);
        let store = self.fixture.store();
        let held = store.latches().acquire_blocking(exclusive(&[kind]));
        self.fixture.write(|txn| recreate(txn, kind, life));
        drop(held);
    }

    fn read(&self, kind: &str) {
        let store = self.fixture.store();
        let held = store.latches().acquire_blocking(shared(&[kind]));
        let txn = self.fixture.txn();
        let walk = open_walk(&txn, kind);
        drop(held);
        drop(txn);
        std::thread::sleep(Duration::from_micros(fastrand::u64(0..5_000)));
        check(walk, kind);
        self.walks.fetch_add(1, Ordering::Relaxed);
    }

    /// A point read takes no latch at all.
    fn look_up(&self) {
        let txn = self.fixture.txn();
        let point = Point::unlatched(&txn);
        let found = point.element(b"set", CollectionKind::Set, b"always");
        assert!(found.unwrap().is_some(), "a member that every life has");
    }

    fn compact(&self) {
        self.fixture.compact();
        for family in [Family::Data, Family::ZsetScore] {
            let store = self.fixture.store();
            store.reclaim_versions(family, &[], 1_000).unwrap();
        }
        self.compactions.fetch_add(1, Ordering::Relaxed);
    }
}

struct StopOthers<'t>(&'t Trial);

impl Drop for StopOthers<'_> {
    fn drop(&mut self) {
        self.0.failed.store(true, Ordering::Relaxed);
    }
}

#[test]
fn no_walk_is_ever_short_or_torn() {
    let trial = Trial {
        fixture: Fixture::new(),
        started: Instant::now(),
        failed: AtomicBool::new(false),
        lives: AtomicU64::new(0),
        walks: AtomicU64::new(0),
        compactions: AtomicU64::new(0),
    };
    for kind in KINDS {
        trial.write(kind);
    }
    std::thread::scope(|scope| {
        let trial = &trial;
        for kind in KINDS {
            scope.spawn(move || trial.run(|trial| trial.write(kind)));
            scope.spawn(move || trial.run(|trial| trial.read(kind)));
        }
        scope.spawn(move || trial.run(Trial::look_up));
        scope.spawn(move || trial.run(Trial::compact));
    });
    assert!(trial.is_enough());
}
