//! Damaged files: a clear error, or all that came before the damage. Never a panic, a gap or another
//! value, and never more damage than there was.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use cairn_engine::{Engine, EngineError, Family};
use tempfile::TempDir;

use crate::support::{all_rows, commit, files, image, open, settings};

const IN_FILES: u32 = 300;
const IN_ALL: u32 = 400;

/// Commits as a numbered history, the larger part of it in tables and the rest in the log.
fn history() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    for n in 0..IN_ALL {
        commit(&engine, |batch| {
            let key = n.to_be_bytes();
            batch.put(Family::Metadata, &key, metadata_value(n));
            batch.put(Family::Data, &key, data_value(n));
        });
        if n + 1 == IN_FILES {
            engine.flush().unwrap();
        }
    }
    drop(engine);
    directory
}

fn metadata_value(n: u32) -> Vec<u8> {
    n.to_le_bytes().repeat(5)
}

fn data_value(n: u32) -> Vec<u8> {
    (!n).to_le_bytes().repeat(25)
}

/// Opens the directory and reads it all: how much of the history there is.
fn read_history(path: &Path) -> Result<u32, EngineError> {
    let engine = Engine::open(path, &settings())?;
    let metadata = all_rows(&engine, Family::Metadata)?;
    let data = all_rows(&engine, Family::Data)?;
    assert_eq!(metadata.len(), data.len(), "half a commit");
    for (n, (metadata, data)) in (0..).zip(metadata.into_iter().zip(data)) {
        let key = u32::to_be_bytes(n).to_vec();
        assert_eq!(metadata, (key.clone(), metadata_value(n)));
        assert_eq!(data, (key, data_value(n)));
    }
    let rows = all_rows(&engine, Family::Data)?;
    Ok(rows.len() as u32)
}

/// Ways to damage a file.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Flip { at: usize },
    Cut { to: usize },
    Remove,
}

impl Damage {
    fn inflict(self, file: &Path) {
        let mut bytes = fs::read(file).unwrap();
        match self {
            Damage::Flip { at } => bytes[at] ^= 0x40,
            Damage::Cut { to } => bytes.truncate(to),
            Damage::Remove => return fs::remove_file(file).unwrap(),
        }
        fs::write(file, bytes).unwrap();
    }
}

fn files_named(path: &Path, matches: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    let mut files: Vec<PathBuf> = entries.filter(|path| matches(&name(path))).collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

/// About `count` places, from one end of the file to the other.
fn places(file: &Path, count: usize) -> Vec<usize> {
    let length = fs::metadata(file).unwrap().len() as usize;
    let step = (length / count).max(1);
    (0..length).step_by(step).collect()
}

/// Damages the file in a copy of the directory and reads that.
fn damaged(directory: &Path, file: &Path, damage: Damage) -> (TempDir, Result<u32, EngineError>) {
    let copy = image(directory);
    damage.inflict(&copy.path().join(file.file_name().unwrap()));
    let outcome = read_history(copy.path());
    (copy, outcome)
}

/// The same; and if it is refused, putting the file back must bring everything back: a refusal may not
/// make it worse.
fn outcome(directory: &Path, file: &Path, damage: Damage) -> Result<u32, EngineError> {
    let (copy, outcome) = damaged(directory, file, damage);
    if outcome.is_err() {
        fs::copy(file, copy.path().join(file.file_name().unwrap())).unwrap();
        let again = read_history(copy.path());
        let is_whole = matches!(again, Ok(IN_ALL));
        assert!(is_whole, "{damage:?} of {file:?}, undone: {again:?}");
    }
    outcome
}

#[test]
fn the_history_is_read_whole_from_a_sound_directory() {
    assert_eq!(read_history(history().path()).unwrap(), IN_ALL);
}

#[test]
fn a_damaged_log_leaves_a_clean_beginning() {
    let directory = history();
    let logs = files_named(directory.path(), |name| name.ends_with(".log"));
    let mut lengths = Vec::new();
    for log in &logs {
        let damages = places(log, 24).into_iter().flat_map(|at| {
            let flip = Damage::Flip { at };
            [flip, Damage::Cut { to: at }]
        });
        for damage in damages {
            match outcome(directory.path(), log, damage) {
                Ok(length) => lengths.push(length),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
    }
    assert!(lengths.iter().all(|length| *length >= IN_FILES));
    assert!(lengths.iter().any(|length| *length < IN_ALL));
}

#[test]
fn a_damaged_table_is_reported_and_never_read_as_something_else() {
    let directory = history();
    let tables = files_named(directory.path(), |name| name.ends_with(".sst"));
    for table in &tables {
        let cuts = [0, 1, 100].map(|to| Damage::Cut { to });
        let flips = places(table, 40).into_iter().map(|at| Damage::Flip { at });
        for damage in flips.chain(cuts).chain([Damage::Remove]) {
            match outcome(directory.path(), table, damage) {
                // A byte that nothing depends on, such as padding.
                Ok(length) => assert_eq!(length, IN_ALL, "{damage:?} of {table:?}"),
                Err(EngineError::Corrupt(text) | EngineError::Storage(text)) => {
                    assert!(!text.is_empty());
                }
                Err(other) => panic!("{damage:?} of {table:?}: {other:?}"),
            }
        }
    }
    let missing = outcome(directory.path(), &tables[0], Damage::Remove);
    assert!(missing.is_err());
}

#[test]
fn a_damaged_manifest_is_reported() {
    let directory = history();
    for manifest in files_named(directory.path(), |name| name.starts_with("MANIFEST")) {
        // Not `outcome`: what RocksDB makes of a beginning of its manifest, it also writes down.
        for at in places(&manifest, 30) {
            for damage in [Damage::Flip { at }, Damage::Cut { to: at }] {
                let (_, outcome) = damaged(directory.path(), &manifest, damage);
                assert_reported(outcome, damage);
            }
        }
        let missing = outcome(directory.path(), &manifest, Damage::Remove);
        assert_reported(missing, Damage::Remove);
    }
}

fn assert_reported(outcome: Result<u32, EngineError>, damage: Damage) {
    let is_clear = matches!(
        outcome,
        Err(EngineError::Corrupt(_) | EngineError::Storage(_))
    );
    assert!(is_clear, "{damage:?}: {outcome:?}");
}

/// CURRENT names the manifest. Without it RocksDB would make a new database, and clear away the files of
/// the old one.
#[test]
fn a_damaged_or_missing_current_is_reported() {
    let directory = history();
    let current = directory.path().join("CURRENT");
    let damages = [
        Damage::Remove,
        Damage::Cut { to: 0 },
        Damage::Cut { to: 8 },
        Damage::Flip { at: 3 },
    ];
    for damage in damages {
        assert_reported(outcome(directory.path(), &current, damage), damage);
    }
    fs::remove_file(&current).unwrap();
    let before = rows_and_history(directory.path());
    assert!(read_history(directory.path()).is_err());
    assert_eq!(rows_and_history(directory.path()), before);
}

/// Every file but the messages and the lock.
fn rows_and_history(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = files(path);
    files.retain(|name, _| !name.starts_with("LO"));
    files
}
