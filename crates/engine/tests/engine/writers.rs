//! Many write at once, each to rows of its own, as latches have it; and nobody reads what is not so any more.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cairn_engine::{Batch, Committer, Engine, Family, LocalCommitter, SyncMode};
use proptest::prelude::*;

use crate::support::{all_rows, committer, open};

const FAMILY: Family = Family::Data;
const COMMITS: u64 = 150;
/// A change of this kind deletes the row.
const DELETED_EVERY: u64 = 5;

/// A row, and the numbers of the changes that were made to it: the value tells by which.
#[derive(Default)]
struct Changes {
    begun: AtomicU64,
    acknowledged: AtomicU64,
}

#[derive(Clone, Debug)]
struct Setting {
    writers: usize,
    rows_each: usize,
    value_bytes: usize,
    /// How many other rows are committed now and then, to push these out of memory.
    crowd: usize,
    sync: SyncMode,
    seed: u64,
}

fn setting() -> impl Strategy<Value = Setting> {
    let sync = prop_oneof![Just(SyncMode::No), Just(SyncMode::EverySecond)];
    (
        2..5_usize,
        1..40_usize,
        8..600_usize,
        0..3000_usize,
        sync,
        any::<u64>(),
    )
        .prop_map(
            |(writers, rows_each, value_bytes, crowd, sync, seed)| Setting {
                writers,
                rows_each,
                value_bytes,
                crowd,
                sync,
                seed,
            },
        )
}

fn key(row: usize) -> Vec<u8> {
    format!("row {row:04}").into_bytes()
}

/// What a row holds after a change.
fn value_after(change: u64, bytes: usize) -> Option<Vec<u8>> {
    let mut value = change.to_be_bytes().to_vec();
    value.resize(bytes, b'.');
    (change > 0 && !change.is_multiple_of(DELETED_EVERY)).then_some(value)
}

/// Whether a reader may have seen this, if these changes were the last at some moment meanwhile.
fn may_be(value: Option<&[u8]>, mut changes: RangeInclusive<u64>, bytes: usize) -> bool {
    changes.any(|change| value_after(change, bytes).as_deref() == value)
}

struct Trial {
    setting: Setting,
    engine: Arc<Engine>,
    committer: LocalCommitter,
    rows: Vec<Changes>,
    is_over: AtomicBool,
}

impl Trial {
    fn write(&self, writer: usize) {
        let Setting {
            rows_each,
            value_bytes,
            crowd,
            seed,
            ..
        } = self.setting;
        let mut random = fastrand::Rng::with_seed(seed ^ writer as u64);
        for number in 0..COMMITS {
            let mut batch = Batch::new();
            let mut changed = Vec::new();
            for row in writer * rows_each..(writer + 1) * rows_each {
                if random.bool() {
                    let change = 1 + self.rows[row].begun.fetch_add(1, Ordering::SeqCst);
                    match value_after(change, value_bytes) {
                        Some(value) => batch.put(FAMILY, &key(row), value),
                        None => batch.delete(FAMILY, &key(row)),
                    }
                    changed.push((row, change));
                }
            }
            self.committer.commit(&mut batch).wait().unwrap();
            for (row, change) in changed {
                self.rows[row].acknowledged.store(change, Ordering::SeqCst);
            }
            if number % 50 == 0 {
                let mut batch = Batch::new();
                for other in 0..crowd {
                    let name = format!("other {writer} {other}");
                    batch.put(FAMILY, name.as_bytes(), [0; 1000]);
                }
                self.committer.commit(&mut batch).wait().unwrap();
            }
        }
    }

    fn read(&self, reader: u64) {
        let mut random = fastrand::Rng::with_seed(self.setting.seed.wrapping_add(reader));
        while !self.is_over.load(Ordering::SeqCst) {
            let row = random.usize(..self.rows.len());
            let changes = &self.rows[row];
            let first = changes.acknowledged.load(Ordering::SeqCst);
            if random.u8(..4) == 0 {
                let names: Vec<_> = (row..self.rows.len()).take(16).map(key).collect();
                let names = names.iter().map(|name| &name[..]);
                self.engine.fetch_many(FAMILY, names).unwrap();
            }
            let value = self.engine.get(FAMILY, &key(row)).unwrap();
            let last = changes.begun.load(Ordering::SeqCst);
            assert!(
                may_be(value.as_deref(), first..=last, self.setting.value_bytes),
                "{:?} of {} after changes {first} to {last}",
                value.as_deref(),
                String::from_utf8_lossy(&key(row))
            );
        }
    }

    fn flush(&self) {
        while !self.is_over.load(Ordering::SeqCst) {
            self.engine.flush().unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn what_is_read_was_so_at_that_moment(setting in setting()) {
        let directory = tempfile::tempdir().unwrap();
        let engine = open(directory.path());
        let trial = Trial {
            committer: committer(&engine, setting.sync),
            engine,
            rows: (0..setting.writers * setting.rows_each).map(|_| Changes::default()).collect(),
            is_over: AtomicBool::new(false),
            setting,
        };
        std::thread::scope(|scope| {
            let trial = &trial;
            scope.spawn(|| trial.flush());
            for reader in 0..2 {
                scope.spawn(move || trial.read(reader));
            }
            let writers: Vec<_> = (0..trial.setting.writers)
                .map(|writer| scope.spawn(move || trial.write(writer)))
                .collect();
            let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
            trial.is_over.store(true, Ordering::SeqCst);
            assert!(ended.into_iter().all(|ended| ended.is_ok()));
        });
        let bytes = trial.setting.value_bytes;
        let is_as_left = |engine: &Engine| {
            let rows = trial.rows.iter().enumerate();
            let left = rows.filter_map(|(row, changes)| {
                Some((key(row), value_after(changes.begun.load(Ordering::SeqCst), bytes)?))
            });
            let left: Vec<_> = left.collect();
            let walked = all_rows(engine, FAMILY).unwrap().into_iter();
            let walked: Vec<_> = walked.filter(|(key, _)| key.starts_with(b"row")).collect();
            let is_read = |(row, _): (usize, &Changes)| {
                let value = engine.get(FAMILY, &key(row)).unwrap();
                let expected = left.iter().find(|(name, _)| *name == key(row));
                value.as_deref() == expected.map(|(_, value)| &value[..])
            };
            walked == left && trial.rows.iter().enumerate().all(is_read)
        };
        prop_assert!(is_as_left(&trial.engine));
    }
}
