//! What an acknowledged commit promises, and that one fsync serves many of them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use cairn_encoding::journal::Record;
use cairn_encoding::system::{Maxima, SystemKey};
use cairn_engine::{
    Batch, Clock, Commit, Committer, Engine, Family, LOCAL_REGION, LocalCommitter, ManualTime,
    SyncMode,
};

use crate::support::{all_rows, committer, image, mark, open, paths, ticker};

const THREADS: usize = 8;
const COMMITS: usize = 60;

/// A batch of two rows, which belong together.
fn pair(name: &[u8]) -> Batch {
    let mut batch = Batch::new();
    batch.put(Family::Metadata, name, *b"whole");
    batch.put(Family::Data, name, *b"batch");
    batch
}

fn names(engine: &Engine, family: Family) -> BTreeSet<Vec<u8>> {
    let rows = all_rows(engine, family).unwrap();
    rows.into_iter().map(|(key, _)| key).collect()
}

#[test]
fn a_crash_at_any_moment_keeps_what_was_acknowledged_and_no_half_of_a_batch() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let committer = committer(&engine, SyncMode::Always);
    let acknowledged = Mutex::new(BTreeSet::new());
    let done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (committer, acknowledged, done) = (&committer, &acknowledged, &done);
            scope.spawn(move || {
                for n in 0..COMMITS {
                    let name = format!("{thread}:{n}").into_bytes();
                    committer.commit(&mut pair(&name)).wait().unwrap();
                    acknowledged.lock().unwrap().insert(name);
                }
                done.fetch_add(1, Ordering::SeqCst);
            });
        }
        while done.load(Ordering::SeqCst) < THREADS {
            let promised = acknowledged.lock().unwrap().clone();
            let crashed = image(directory.path());
            let found = open(crashed.path());
            let whole = names(&found, Family::Metadata);
            assert!(whole.is_superset(&promised));
            assert_eq!(whole, names(&found, Family::Data));
        }
    });
    assert_eq!(names(&engine, Family::Data).len(), THREADS * COMMITS);
}

/// Index and synced index of every record in the journal.
fn records(path: &Path) -> Vec<(u64, u64)> {
    let mut records = Vec::new();
    for name in paths(path) {
        if name.starts_with("journal") {
            let bytes = fs::read(path.join(&name)).unwrap();
            let mut rest = bytes.as_slice();
            while let Some((record, after)) = Record::read(rest, mark(&name)) {
                records.push((record.index, record.synced));
                rest = after;
            }
            assert!(rest.is_empty());
        }
    }
    records
}

/// Has all threads hand in their commits without waiting for any, and returns those.
fn commit_at_once(committer: &LocalCommitter) -> Vec<Commit> {
    let committing = |thread: usize| {
        let name = move |n: usize| format!("{thread}:{n}").into_bytes();
        (0..COMMITS).map(move |n| committer.commit(&mut pair(&name(n))))
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || committing(thread).collect::<Vec<Commit>>()))
            .collect();
        let commits = threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap());
        commits.collect()
    })
}

#[test]
fn commits_that_wait_together_share_one_record_and_one_fsync() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let committer = committer(&engine, SyncMode::Always);
    for commit in commit_at_once(&committer) {
        commit.wait().unwrap();
    }
    assert_eq!(names(&engine, Family::Data).len(), THREADS * COMMITS);
    let records = records(directory.path());
    let fewer = 1..THREADS * COMMITS / 2;
    assert!(fewer.contains(&records.len()), "{} syncs", records.len());
    for (index, synced) in records {
        assert_eq!(synced, index - 1);
    }
}

/// Nobody else is woken for it, and so it costs no more than the disk does.
#[test]
fn a_commit_that_finds_nobody_else_at_it_is_synced_when_it_returns() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let committer = committer(&engine, SyncMode::Always);
    // Before the first sync no disk is slow.
    let first = committer.commit(&mut pair(b"first"));
    assert!(matches!(first, Commit::Done(Ok(()))));
    assert_eq!(records(directory.path()), [(1, 0)]);
    committer.commit(&mut pair(b"second")).wait().unwrap();
    assert_eq!(records(directory.path()), [(1, 0), (2, 1)]);
}

/// Commits that touch one row are applied in the order in which they were handed in.
#[test]
fn the_later_commit_wins() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    for mode in [SyncMode::Always, SyncMode::EverySecond, SyncMode::No] {
        let committer = committer(&engine, mode);
        let commits: Vec<Commit> = (0..200u8)
            .map(|n| {
                let mut batch = Batch::new();
                batch.put(Family::Data, b"k", [n]);
                committer.commit(&mut batch)
            })
            .collect();
        for commit in commits {
            commit.wait().unwrap();
        }
        let value = engine.get(Family::Data, b"k").unwrap().unwrap();
        assert_eq!(&*value, [199], "{mode:?}");
    }
}

#[test]
fn without_sync_nothing_is_synced_and_an_empty_batch_is_not_even_written() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let committer = committer(&engine, SyncMode::No);
    committer.commit(&mut pair(b"k")).wait().unwrap();
    committer.commit(&mut Batch::new()).wait().unwrap();
    committer.commit(&mut pair(b"l")).wait().unwrap();
    assert_eq!(records(directory.path()), [(1, 0), (2, 0)]);
}

#[test]
fn every_second_means_within_a_second_and_at_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let committer = committer(&engine, SyncMode::EverySecond);
    let started = std::time::Instant::now();
    loop {
        committer.commit(&mut pair(b"k")).wait().unwrap();
        if records(directory.path())
            .iter()
            .any(|(_, synced)| *synced > 0)
        {
            break;
        }
        assert!(started.elapsed().as_secs() < 10, "not synced");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    committer.commit(&mut pair(b"l")).wait().unwrap();
    let synced = || ticker(&engine, "rocksdb.wal.synced");
    let before = synced();
    drop(committer);
    assert!(synced() > before);
}

#[test]
fn the_maxima_of_the_clock_go_with_each_commit_and_never_fall() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let time = Arc::new(ManualTime::at_millis(5_000));
    let clock = Arc::new(Clock::new(Box::new(time.clone())));
    let committer = LocalCommitter::new(engine.clone(), clock.clone(), SyncMode::No).unwrap();
    let region = LOCAL_REGION;
    let stored = || {
        engine.settle().unwrap();
        let key = SystemKey::Maxima { region }.encode();
        Maxima::decode(&engine.get(Family::Meta, &key).unwrap().unwrap()).unwrap()
    };
    let (version, timestamp_ms) = (clock.next_version(), clock.now_ms());
    committer.commit(&mut pair(b"k")).wait().unwrap();
    let first = Maxima {
        version,
        timestamp_ms,
    };
    assert_eq!(stored(), first);
    time.set_millis(1_000);
    let version = clock.next_version();
    clock.now_ms();
    committer.commit(&mut pair(b"k")).wait().unwrap();
    assert_eq!(stored(), Maxima { version, ..first });
    assert_eq!(version, first.version + 1);
}

#[test]
fn what_is_queued_when_the_committer_goes_is_still_committed() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let committer = committer(&engine, SyncMode::Always);
    let commits = commit_at_once(&committer);
    let is_pending = |commit: &&Commit| matches!(commit, Commit::Pending(_));
    assert!(commits.iter().filter(is_pending).count() > 0);
    drop(committer);
    for commit in commits {
        commit.wait().unwrap();
    }
    assert_eq!(names(&engine, Family::Data).len(), THREADS * COMMITS);
}
