//! The way of a commit from the journal to RocksDB, cut off at every point, and what readers see on it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cairn_encoding::journal::{Encoder, Record};
use cairn_encoding::system::Maxima;
use cairn_engine::{Batch, Committer, Direction, Engine, EngineError, Family, SyncMode};

use crate::support::{all_rows, committer, files, image, mark, open, paths, settings};

fn put(key: &[u8], value: &[u8]) -> Batch {
    let mut batch = Batch::new();
    batch.put(Family::Data, key, value);
    batch
}

/// Commits 0, 1, 2... as a process that dies leaves them: synced before each, or never.
fn died_after(commits: u32, mode: SyncMode) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let committer = committer(&engine, mode);
    for n in 0..commits {
        let key = n.to_be_bytes();
        committer.commit(&mut put(&key, &key)).wait().unwrap();
    }
    image(directory.path())
}

fn segments(path: &Path) -> Vec<PathBuf> {
    let names = paths(path).into_iter();
    let segments = names.filter(|name| name.starts_with("journal"));
    segments.map(|name| path.join(name)).collect()
}

/// How many of the commits are there: the first ones, without a gap.
fn count(path: &Path) -> Result<u32, EngineError> {
    let rows = all_rows(&Engine::open(path, &settings())?, Family::Data)?;
    for (n, (key, value)) in (0_u32..).zip(&rows) {
        assert_eq!((&key[..], &value[..]), (&n.to_be_bytes()[..], &key[..]));
    }
    Ok(rows.len() as u32)
}

#[test]
fn what_is_in_the_journal_only_is_there_after_a_crash() {
    for mode in [SyncMode::Always, SyncMode::EverySecond, SyncMode::No] {
        let died = died_after(300, mode);
        assert_eq!(count(died.path()).unwrap(), 300, "{mode:?}");
        // It has been replayed, and is not in the journal any more.
        assert_eq!(count(died.path()).unwrap(), 300, "{mode:?}");
    }
}

#[test]
fn a_journal_that_is_cut_short_anywhere_ends_with_a_whole_commit() {
    let died = died_after(20, SyncMode::No);
    let [segment] = &segments(died.path())[..] else {
        panic!("one segment expected");
    };
    let whole = fs::read(segment).unwrap();
    let mut counts = Vec::new();
    for length in (0..=whole.len()).step_by(37) {
        let copy = image(died.path());
        let name = Path::new("journal").join(segment.file_name().unwrap());
        fs::write(copy.path().join(name), &whole[..length]).unwrap();
        counts.push(count(copy.path()).unwrap());
    }
    assert!(counts.is_sorted());
    assert!(counts[0] < 20 && *counts.last().unwrap() >= 19);
}

/// Flips a bit in the record of the fifth commit that RocksDB does not have.
fn damage_the_fifth_record(path: &Path) {
    let segment = &segments(path)[0];
    let mut bytes = fs::read(segment).unwrap();
    let mut rest = bytes.as_slice();
    for _ in 0..4 {
        rest = Record::read(rest, mark(segment)).unwrap().1;
    }
    let at = bytes.len() - rest.len() + 30;
    bytes[at] ^= 4;
    fs::write(segment, bytes).unwrap();
}

/// None of these is moved into RocksDB before the process dies.
fn died_at_once(mode: SyncMode) -> tempfile::TempDir {
    for _ in 0..100 {
        let died = died_after(9, mode);
        let segment = &segments(died.path())[0];
        let bytes = fs::read(segment).unwrap();
        let moved = Engine::open_read_only(died.path(), &settings()).unwrap();
        let is_young = moved.statistics().young_bytes > 0;
        if is_young
            && Record::read(&bytes, mark(segment)).is_some_and(|(first, _)| first.index == 1)
        {
            return died;
        }
    }
    panic!("the machine is too slow for this test");
}

#[test]
fn damage_to_what_was_synced_is_refused_and_nothing_is_changed() {
    let died = died_at_once(SyncMode::Always);
    damage_the_fifth_record(died.path());
    let before = files(died.path());
    // If the first commits are in RocksDB already, the damaged one may not be needed.
    if let Err(error) = count(died.path()) {
        assert!(error.to_string().contains("was synced"), "{error}");
        let mut after = files(died.path());
        after.retain(|name, _| !name.starts_with("LOG"));
        let mut before = before;
        before.retain(|name, _| !name.starts_with("LOG"));
        assert_eq!(after, before);
    } else {
        assert_eq!(count(died.path()).unwrap(), 9);
    }
}

#[test]
fn what_follows_a_hole_in_what_was_not_synced_is_passed_over() {
    let died = died_at_once(SyncMode::No);
    damage_the_fifth_record(died.path());
    let left = count(died.path()).unwrap();
    assert!(left == 4 || left == 9, "{left}");
    // The commits that come next take the places of those that were lost.
    let engine = open(died.path());
    let committer = committer(&engine, SyncMode::No);
    for n in left..20 {
        let key = n.to_be_bytes();
        committer.commit(&mut put(&key, &key)).wait().unwrap();
    }
    drop((committer, engine));
    assert_eq!(count(died.path()).unwrap(), 20);
}

#[test]
fn a_long_journal_is_cut_into_segments_and_let_go_when_rocksdb_has_it() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let committer = committer(&engine, SyncMode::No);
    let value = vec![7; 1 << 20];
    for n in 0..100_u32 {
        committer
            .commit(&mut put(&n.to_be_bytes(), &value))
            .wait()
            .unwrap();
    }
    let size = |path: PathBuf| fs::metadata(path).map_or(0, |metadata| metadata.len());
    let started = std::time::Instant::now();
    loop {
        committer.commit(&mut put(b"more", b"")).wait().unwrap();
        let segments = segments(directory.path());
        assert!(!segments.is_empty());
        let bytes: u64 = segments.into_iter().map(size).sum();
        if bytes < 40 << 20 {
            break;
        }
        assert!(started.elapsed().as_secs() < 30, "{bytes} bytes are left");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    drop((committer, engine));
    let engine = open(directory.path());
    assert_eq!(all_rows(&engine, Family::Data).unwrap().len(), 101);
}

#[test]
fn a_clean_end_leaves_an_empty_journal() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let committer = committer(&engine, SyncMode::No);
    committer.commit(&mut put(b"k", b"v")).wait().unwrap();
    drop((committer, engine));
    assert!(segments(directory.path()).is_empty());
    let engine = open(directory.path());
    let rows = all_rows(&engine, Family::Data).unwrap();
    assert_eq!(rows, [(b"k".to_vec(), b"v".to_vec())]);
}

/// A batch of the same number under many keys, so that any two rows tell whether a commit was seen in part.
/// Rows of a little memory: they are evicted, fetched and drained all the time.
#[test]
fn readers_see_commits_whole_and_never_an_older_one_again() {
    const KEYS: u64 = 64;
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let committer = committer(&engine, SyncMode::No);
    let key = |n: u64| [&n.to_be_bytes()[..], &[b'.'; 200]].concat();
    let commit = |number: u64| {
        let mut batch = Batch::new();
        for n in 0..KEYS {
            batch.put(Family::Data, &key(n), number.to_be_bytes());
        }
        committer.commit(&mut batch).wait().unwrap();
    };
    let get = |engine: &Engine, n: u64| {
        let value = engine.get(Family::Data, &key(n)).unwrap().unwrap();
        u64::from_be_bytes((*value).try_into().unwrap())
    };
    commit(0);
    let (is_over, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let engine: &Arc<Engine> = &engine;
        let (is_over, acknowledged) = (&is_over, &acknowledged);
        for thread in 0..2_u64 {
            scope.spawn(move || {
                let mut last = 0;
                let mut n = thread;
                while !is_over.load(Ordering::SeqCst) {
                    let promised = acknowledged.load(Ordering::SeqCst);
                    n = (n * 7 + 1) % KEYS;
                    let first = get(engine, n);
                    let second = get(engine, (n + 11) % KEYS);
                    assert!(
                        first >= promised.max(last),
                        "{first} after {promised}, {last}"
                    );
                    assert!(second >= first, "{second} after {first}");
                    last = second;
                }
            });
        }
        scope.spawn(move || {
            while !is_over.load(Ordering::SeqCst) {
                let promised = acknowledged.load(Ordering::SeqCst);
                let mut rows = engine.rows(None, Family::Data, &[], &[], Direction::Forward);
                let mut seen = BTreeMap::new();
                while let Some((key, value)) = rows.next().unwrap() {
                    if key.len() == 208 {
                        *seen.entry(value.to_vec()).or_insert(0) += 1;
                    }
                }
                assert_eq!(seen.len(), 1, "a walk shows parts of two commits");
                let (value, rows) = seen.pop_first().unwrap();
                assert_eq!(rows, KEYS);
                assert!(u64::from_be_bytes(value.try_into().unwrap()) >= promised);
            }
        });
        for number in 1..3000 {
            commit(number);
            acknowledged.store(number, Ordering::SeqCst);
            // Pushes the others out of memory.
            if number % 50 == 0 {
                let mut batch = Batch::new();
                for n in 0..2000_u64 {
                    let other = [b"other".to_vec(), (number + n).to_be_bytes().to_vec()].concat();
                    batch.put(Family::Data, &other, vec![1; 4000]);
                }
                committer.commit(&mut batch).wait().unwrap();
            }
        }
        is_over.store(true, Ordering::SeqCst);
    });
}

/// Its records had no mark, and its segments were named by the index of their first one.
#[test]
fn what_format_2_left_in_its_journal_is_replayed() {
    let directory = tempfile::tempdir().unwrap();
    drop(open(directory.path()));
    fs::create_dir_all(directory.path().join("journal")).unwrap();
    for first in [1, 11_u32] {
        let name = format!("{first:020}.journal");
        let segment = directory.path().join("journal").join(name);
        let mut bytes = Vec::new();
        for n in first..first + 10 {
            let maxima = Maxima {
                version: 0,
                timestamp_ms: 0,
            };
            let mut record = Encoder::begin(&mut bytes, mark(&segment), n.into(), 0, maxima);
            let key = (n - 1).to_be_bytes();
            record.row(Family::Data as u8, &key, Some(&key));
            record.finish();
        }
        fs::write(segment, bytes).unwrap();
    }
    assert_eq!(count(directory.path()).unwrap(), 20);
    let engine = open(directory.path());
    drop(committer(&engine, SyncMode::Always));
    assert!(segments(directory.path()).is_empty());
}

#[test]
fn segments_that_are_written_over_hold_what_was_committed_last() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let committer = committer(&engine, SyncMode::Always);
    let value = vec![7; 1 << 20];
    for n in 0..150_u32 {
        let mut batch = put(&n.to_be_bytes(), &n.to_be_bytes());
        batch.put(Family::Metadata, b"bulk", value.clone());
        committer.commit(&mut batch).wait().unwrap();
    }
    let bytes: u64 = segments(directory.path())
        .into_iter()
        .map(|path| fs::metadata(path).map_or(0, |metadata| metadata.len()))
        .sum();
    assert!(
        bytes < 150 << 20,
        "{bytes} bytes: all that was ever written"
    );
    assert_eq!(count(image(directory.path()).path()).unwrap(), 150);
}
