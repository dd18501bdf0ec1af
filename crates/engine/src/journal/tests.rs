//! Journals of small segments: what a power cut, damage, or a server at work leaves of them for a reader.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use proptest::test_runner::TestRng;

use super::*;
use crate::family::Family;

const SMALL: Layout = Layout {
    segment: 16 << 10,
    spare_after: Some(4 << 10),
};
const SMALL_GROWING: Layout = Layout {
    spare_after: None,
    ..SMALL
};
const NO_MAXIMA: Maxima = Maxima {
    version: 0,
    timestamp_ms: 0,
};

impl Journal {
    fn append_value(&mut self, value: &[u8]) -> Result<u64> {
        let mut batch = Batch::new();
        batch.put(Family::Data, b"key", value);
        self.append(std::iter::once(&batch), NO_MAXIMA)
    }

    fn sync(&mut self) -> Vec<Arc<File>> {
        let Some(unsynced) = self.unsynced() else {
            return Vec::new();
        };
        unsynced.sync();
        self.note_synced(&unsynced);
        unsynced.files
    }

    /// What the drain thread does once RocksDB has everything up to `applied`.
    fn tend(&mut self, applied: u64) {
        for segment in self.retire(applied) {
            match self.room_for_spares() > 0 && self.can_renew(&segment) {
                true => self.take_spare(segment.renew().unwrap()),
                false => segment.remove(),
            }
        }
        if let Some(wanted) = self.wanted_spare() {
            self.take_spare(wanted.make().unwrap());
        }
    }
}

fn value_of<'r>(record: &Record<'r>) -> &'r [u8] {
    record.rows().next().unwrap().unwrap().2.unwrap()
}

/// The records after `applied`, which have no gap, and how the replay ended.
fn replayed(database: &Path, applied: u64) -> Result<(Vec<Vec<u8>>, Replayed)> {
    let mut values = Vec::new();
    let outcome = replay(database, applied, |record| {
        assert_eq!(record.index, applied + 1 + values.len() as u64);
        values.push(value_of(record).to_vec());
        Ok(())
    })?;
    Ok((values, outcome))
}

fn paths(database: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = list(database)
        .unwrap()
        .into_iter()
        .map(|one| one.1)
        .collect();
    paths.sort();
    paths
}

#[derive(Clone, Debug)]
enum Step {
    Append(usize),
    Sync,
    /// RocksDB has more, for good.
    Drain,
    PowerCut,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => (1..3000_usize).prop_map(Step::Append),
        1 => (20_000..40_000_usize).prop_map(Step::Append),
        6 => Just(Step::Sync),
        3 => Just(Step::Drain),
        1 => Just(Step::PowerCut),
    ];
    prop::collection::vec(step, 1..60)
}

/// A journal, and what must be left of it.
struct Model {
    database: tempfile::TempDir,
    layout: Layout,
    journal: Journal,
    rng: TestRng,
    /// All commits; the index of the first is 1.
    values: Vec<Vec<u8>>,
    /// What RocksDB has.
    applied: u64,
    /// Of each file by inode, what is on the disk for good.
    durable: HashMap<u64, Vec<u8>>,
    /// Keeps inodes from being used again.
    files: Vec<File>,
    /// Files as they were at the last drain. Those that are removed may come back.
    seen: BTreeMap<PathBuf, Vec<u8>>,
}

impl Model {
    fn new(layout: Layout, rng: TestRng) -> Model {
        let database = tempfile::tempdir().unwrap();
        Model {
            journal: Journal::begin(database.path(), 0, layout).unwrap(),
            database,
            layout,
            rng,
            values: Vec::new(),
            applied: 0,
            durable: HashMap::new(),
            files: Vec::new(),
            seen: BTreeMap::new(),
        }
    }

    fn random(&mut self, bound: usize) -> usize {
        self.rng.next_u64() as usize % bound
    }

    fn perform(&mut self, step: &Step) {
        match step {
            Step::Append(length) => {
                let mut value = vec![0; *length];
                self.rng.fill_bytes(&mut value);
                let index = self.journal.append_value(&value).unwrap();
                self.values.push(value);
                assert_eq!(index, self.values.len() as u64);
            }
            Step::Sync => {
                for file in self.journal.sync() {
                    self.note_durable(&file);
                }
            }
            Step::Drain => self.drain(),
            Step::PowerCut => self.cut_power(),
        }
    }

    fn note_durable(&mut self, file: &File) {
        let metadata = file.metadata().unwrap();
        let mut bytes = vec![0; metadata.len() as usize];
        let reader = File::open(format!(
            "/proc/self/fd/{}",
            std::os::fd::AsRawFd::as_raw_fd(file)
        ));
        reader
            .as_ref()
            .unwrap()
            .read_exact_at(&mut bytes, 0)
            .unwrap();
        self.files.push(reader.unwrap());
        self.durable.insert(metadata.ino(), bytes);
    }

    fn drain(&mut self) {
        for path in paths(self.database.path()) {
            let bytes = fs::read(&path).unwrap();
            self.files.push(File::open(&path).unwrap());
            self.seen.insert(path, bytes);
        }
        let young = self.values.len() - self.applied as usize;
        self.applied += self.random(young + 1) as u64;
        self.journal.tend(self.applied);
        let spares = self.journal.spares.iter().map(|spare| spare.file.clone());
        for file in spares.collect::<Vec<_>>() {
            // If it is a new one: the zeros. If it has been used, it may have bytes that were never synced.
            if !self.durable.contains_key(&file.metadata().unwrap().ino()) {
                self.note_durable(&file);
            }
        }
    }

    /// Of all that was not synced, any part may be lost.
    fn cut_power(&mut self) {
        for path in paths(self.database.path()) {
            let after = self.cut_file(&path);
            fs::write(&path, after).unwrap();
        }
        for (path, bytes) in std::mem::take(&mut self.seen) {
            if !path.exists() && self.random(2) == 0 {
                fs::write(path, bytes).unwrap();
            }
        }
        let promised = self.journal.synced.max(self.applied);
        let left = self.verify(promised);
        self.damage(left);
        self.values.truncate(left as usize);
        self.applied = left;
        self.durable.clear();
        self.journal = Journal::begin(self.database.path(), left, self.layout).unwrap();
    }

    /// Each page as it is, or as it was.
    fn cut_file(&mut self, path: &Path) -> Vec<u8> {
        let now = fs::read(path).unwrap();
        let inode = fs::metadata(path).unwrap().ino();
        let was = self.durable.get(&inode).cloned().unwrap_or_default();
        let page = [512, 4096][self.random(2)];
        let kept_of_tail = self.random(now.len().saturating_sub(was.len()) + 1);
        let mut after = vec![0; was.len().min(now.len()).max(was.len() + kept_of_tail)];
        for at in (0..after.len()).step_by(page) {
            let source = match self.random(3) {
                0 => &was,
                _ => &now,
            };
            let end = (at + page).min(after.len()).min(source.len());
            if at < end {
                after[at..end].copy_from_slice(&source[at..end]);
            }
        }
        after
    }

    /// Nothing that was promised is missing, and what is there is what was committed, in order.
    fn verify(&self, promised: u64) -> u64 {
        let path = self.database.path();
        let (found, outcome) = replayed(path, self.applied).unwrap();
        let left = self.applied + found.len() as u64;
        assert!(left >= promised, "{left} of {promised}");
        let committed = &self.values[self.applied as usize..];
        assert!(committed.starts_with(&found));
        assert_eq!(replayed(path, self.applied).unwrap(), (found, outcome));
        left
    }

    /// Damage to a record that the last one says was synced is found out.
    fn damage(&mut self, left: u64) {
        let mut places = BTreeMap::new();
        let mut synced = 0;
        for (mark, path) in list(self.database.path()).unwrap() {
            let bytes = fs::read(&path).unwrap();
            let mut rest = bytes.as_slice();
            while let Some((record, after)) = Record::read(rest, mark) {
                let at = bytes.len() - rest.len()..bytes.len() - after.len();
                places.insert(record.index, (path.clone(), at));
                if record.index <= left {
                    synced = synced.max(record.synced);
                }
                rest = after;
            }
        }
        if synced <= self.applied {
            return;
        }
        let span = synced - self.applied;
        let index = self.applied + 1 + self.random(span as usize) as u64;
        let (path, place) = &places[&index];
        let at = place.start + self.random(place.len());
        let mut bytes = fs::read(path).unwrap();
        bytes[at] ^= 1 << self.random(8);
        fs::write(path, &bytes).unwrap();
        let outcome = replayed(self.database.path(), self.applied);
        let message = outcome.unwrap_err().to_string();
        assert!(
            message.contains(&format!("commit {index} was synced")),
            "{message}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_power_cut_takes_nothing_that_was_synced_and_brings_nothing_back(
        steps in steps(),
        grows in any::<bool>(),
        rng in any::<u64>().prop_perturb(|_, rng| rng),
    ) {
        let layout = if grows { SMALL_GROWING } else { SMALL };
        let mut model = Model::new(layout, rng);
        for step in &steps {
            model.perform(step);
        }
        model.cut_power();
    }
}

#[test]
fn a_retired_segment_is_written_over_under_a_new_name() {
    let database = tempfile::tempdir().unwrap();
    let mut journal = Journal::begin(database.path(), 0, SMALL).unwrap();
    let inodes = || -> Vec<u64> {
        let inode = |path| fs::metadata(path).unwrap().ino();
        paths(database.path()).into_iter().map(inode).collect()
    };
    journal.append_value(&[1; 100]).unwrap();
    journal.tend(1);
    assert_eq!(inodes().len(), 1, "one commit is not worth a spare");
    let mut fill_segment = || {
        while !journal.is_long() {
            let last = journal.append_value(&[1; 1000]).unwrap();
            journal.sync();
            if !journal.is_long() {
                journal.tend(last - 1);
            }
        }
        journal.tend(journal.last - 1);
        assert!(!journal.is_long());
    };
    // The first grows until there is a spare, and is of no use afterwards.
    fill_segment();
    fill_segment();
    let (names, in_use) = (paths(database.path()), inodes());
    assert_eq!(in_use.len(), 2);
    for _ in 0..5 {
        fill_segment();
        let mut again = inodes();
        again.sort_unstable();
        let mut before = in_use.clone();
        before.sort_unstable();
        assert_eq!(again, before);
    }
    let still_there = |path: &&PathBuf| path.exists();
    assert_eq!(names.iter().filter(still_there).count(), 0);
    let last = journal.last;
    let (found, outcome) = replayed(database.path(), last - 1).unwrap();
    assert_eq!((found.len(), outcome), (1, Replayed::Whole));
}

/// Who stores a record of its own making, even with the mark of that day, does so in vain.
#[test]
fn a_value_that_looks_like_a_record_is_not_taken_for_one() {
    let database = tempfile::tempdir().unwrap();
    let mut journal = Journal::begin(database.path(), 0, SMALL).unwrap();
    while journal.last < 300 {
        // Of many lengths, so that a record ends in the middle of an earlier one.
        let mut forged = vec![0; journal.last as usize * 7 % 50];
        let mark = journal.current().mark;
        for index in [journal.last + 30, journal.last + 1_000_000] {
            let mut record = Encoder::begin(&mut forged, mark, index, index - 1, NO_MAXIMA);
            record.row(Family::Data as u8, b"key", Some(&[9; 200]));
            record.finish();
        }
        let last = journal.append_value(&forged).unwrap();
        journal.sync();
        if last.is_multiple_of(5) {
            journal.tend(last - 3);
            let (found, outcome) = replayed(database.path(), last - 3).unwrap();
            assert_eq!((found.len(), outcome), (3, Replayed::Whole));
        }
    }
    assert!(journal.current().is_filled);
}

#[test]
fn a_record_longer_than_a_segment_does_not_become_a_spare() {
    let database = tempfile::tempdir().unwrap();
    let mut journal = Journal::begin(database.path(), 0, SMALL).unwrap();
    journal.append_value(&vec![1; 100 << 10]).unwrap();
    journal.append_value(b"next").unwrap();
    journal.tend(1);
    for path in paths(database.path()) {
        assert!(fs::metadata(path).unwrap().len() <= SMALL.segment);
    }
    let (found, outcome) = replayed(database.path(), 1).unwrap();
    assert_eq!((found, outcome), (vec![b"next".to_vec()], Replayed::Whole));
}

/// It finds all that was acknowledged before, unless a segment has gone meanwhile, which the names tell.
#[test]
fn a_reader_beside_the_writer_sees_a_journal_without_gaps() {
    const COMMITS: u64 = 15_000;
    let database = tempfile::tempdir().unwrap();
    let path = database.path();
    let mut journal = Journal::begin(path, 0, SMALL).unwrap();
    let (applied, acknowledged) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 0..COMMITS {
                let length = 1 + number * 7919 % 701;
                let last = journal.append_value(&vec![7; length as usize]).unwrap();
                // As if it were synced: that takes too long to be read at an unhappy moment.
                journal.synced = last;
                acknowledged.store(last, Ordering::SeqCst);
                if last.is_multiple_of(30) {
                    applied.store(last - 10, Ordering::SeqCst);
                    journal.tend(last - 10);
                }
            }
        });
        let mut whole = 0;
        while !writer.is_finished() {
            let names = paths(path);
            let applied = applied.load(Ordering::SeqCst);
            let acknowledged = acknowledged.load(Ordering::SeqCst);
            match replayed(path, applied) {
                Ok((found, Replayed::Whole)) => {
                    whole += 1;
                    assert!(applied + found.len() as u64 >= acknowledged);
                }
                other => assert_ne!(paths(path), names, "{:?}", other.err()),
            }
        }
        assert!(whole > 0);
    });
}
