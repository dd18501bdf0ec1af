//! RocksDB is not asked for what belongs to a version that is newer than all that it has been given.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use cairn_encoding::row;
use cairn_encoding::system::SystemKey;
use cairn_engine::{
    Batch, Clock, Committer, Direction, Engine, Family, LOCAL_REGION, LocalCommitter, Maxima,
    SyncMode, SystemTime,
};

use crate::support::{open, ticker};

struct Bench {
    engine: Arc<Engine>,
    clock: Arc<Clock>,
    committer: LocalCommitter,
}

impl Bench {
    /// As the store opens it.
    fn open(path: &Path) -> Bench {
        let engine = open(path);
        let clock = Arc::new(Clock::new(Box::<SystemTime>::default()));
        let region = LOCAL_REGION;
        let maxima = engine.get(Family::Meta, &SystemKey::Maxima { region }.encode());
        let maxima = maxima.unwrap().map(|row| Maxima::decode(&row).unwrap());
        if let Some(maxima) = maxima {
            clock.advance_to(maxima.version, maxima.timestamp_ms);
        }
        engine.trust_versions(maxima).unwrap();
        let committer = LocalCommitter::new(engine.clone(), clock.clone(), SyncMode::No).unwrap();
        Bench {
            engine,
            clock,
            committer,
        }
    }

    fn change(&self, version: u64, sub: u8, value: Option<u8>) {
        let mut batch = Batch::new();
        match value {
            Some(value) => batch.put(Family::Data, &row_key(version, sub), [value]),
            None => batch.delete(Family::Data, &row_key(version, sub)),
        }
        self.committer.commit(&mut batch).wait().unwrap();
    }

    fn get(&self, version: u64, sub: u8) -> Option<u8> {
        let row = self.engine.get(Family::Data, &row_key(version, sub));
        row.unwrap().map(|value| value[0])
    }

    fn walk(&self, version: u64, direction: Direction, are_few: bool) -> Vec<(u8, u8)> {
        let (lower, upper) = (prefix(version), row::version_end(&prefix(version)));
        let (engine, family) = (&self.engine, Family::Data);
        let mut rows = match are_few {
            true => engine.rows_of_few(None, family, &lower, &upper, direction),
            false => engine.rows(None, family, &lower, &upper, direction),
        };
        let mut found = Vec::new();
        while let Some((key, value)) = rows.next().unwrap() {
            found.push((key[key.len() - 1], value[0]));
        }
        found
    }

    /// How often RocksDB was asked for a row.
    fn asked(&self) -> u64 {
        ticker(&self.engine, "rocksdb.number.keys.read")
    }
}

fn prefix(version: u64) -> Vec<u8> {
    let mut prefix = Vec::new();
    row::version_prefix(&mut prefix, 1, b"key", version);
    prefix
}

fn row_key(version: u64, sub: u8) -> Vec<u8> {
    [prefix(version).as_slice(), &[sub]].concat()
}

#[test]
fn what_is_new_costs_no_look_until_it_is_drained() {
    let directory = tempfile::tempdir().unwrap();
    let mut version = 0;
    // An empty database, and one that has versions.
    for _ in 0..2 {
        let bench = Bench::open(directory.path());
        version = bench.clock.next_version().max(version);
        bench.change(version, 0, Some(7));
        let before = bench.asked();
        assert!((1..100).all(|sub| bench.get(version, sub).is_none()));
        assert_eq!(bench.asked(), before);
        bench.engine.settle().unwrap();
        let before = bench.asked();
        assert!((1..100).all(|sub| bench.get(version, sub).is_none()));
        assert_eq!(bench.asked() - before, 99);
        assert_eq!(bench.get(version, 0), Some(7));
    }
}

/// Collections that are changed, replaced, drained, dropped from memory and opened again, against a model.
#[test]
fn all_that_was_committed_is_found_whatever_its_version() {
    let directory = tempfile::tempdir().unwrap();
    let mut random = fastrand::Rng::with_seed(4);
    let mut model: BTreeMap<u64, BTreeMap<u8, u8>> = BTreeMap::new();
    for _ in 0..6 {
        let bench = Bench::open(directory.path());
        for _ in 0..600 {
            if model.is_empty() || random.u8(..12) == 0 {
                model.insert(bench.clock.next_version(), BTreeMap::new());
            }
            let newest = model.len() - 1;
            let any = newest - random.usize(..=newest.min(3));
            let (&version, rows) = model.iter_mut().nth(any).unwrap();
            let sub = random.u8(..8);
            match random.u8(..20) {
                0 => bench.engine.settle().unwrap(),
                1 => bench.engine.flush().unwrap(),
                2..9 => {
                    let value = random.bool().then(|| random.u8(..));
                    bench.change(version, sub, value);
                    match value {
                        Some(value) => rows.insert(sub, value),
                        None => rows.remove(&sub),
                    };
                }
                9..14 => assert_eq!(bench.get(version, sub), rows.get(&sub).copied()),
                other => {
                    let mut expected: Vec<_> =
                        rows.iter().map(|(sub, value)| (*sub, *value)).collect();
                    let direction = match other.is_multiple_of(2) {
                        true => Direction::Forward,
                        false => Direction::Backward,
                    };
                    if direction == Direction::Backward {
                        expected.reverse();
                    }
                    assert_eq!(bench.walk(version, direction, random.bool()), expected);
                }
            }
        }
    }
}
