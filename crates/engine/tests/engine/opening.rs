//! Which directories are opened, which are refused, and that a refusal leaves no trace.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use cairn_encoding::FORMAT_VERSION;
use cairn_encoding::system::{SystemKey, value};
use cairn_engine::{Engine, EngineError, Family};
use rust_rocksdb::{DB, Options};

use crate::support::{all_rows, commit, files, image, open, settings};

fn refusal(path: &Path) -> EngineError {
    Engine::open(path, &settings()).err().expect("a refusal")
}

/// Opens a directory with one row in it, and closes it again.
fn create(path: &Path) {
    commit(&open(path), |batch| batch.put(Family::Data, b"k", *b"v"));
}

fn data_rows(path: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    all_rows(&open(path), Family::Data).unwrap()
}

#[test]
fn reopening_keeps_everything_and_the_last_change_wins() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..4u8 {
        let engine = open(directory.path());
        for (place, family) in Family::ALL.into_iter().enumerate() {
            if family == Family::Meta {
                continue;
            }
            let rows = all_rows(&engine, family).unwrap();
            let expected: Vec<_> = (0..round)
                .map(|n| (vec![n, place as u8], vec![round - 1]))
                .collect();
            assert_eq!(rows, expected, "{family:?} in round {round}");
            commit(&engine, |batch| {
                for n in 0..=round {
                    batch.put(family, &[n, place as u8], [round]);
                }
            });
        }
        // In files, in the log, and in both.
        match round {
            0 => engine.flush().unwrap(),
            1 => engine.compact().unwrap(),
            _ => {}
        }
    }
}

/// Not a test of its own: the process that the next one runs beside itself.
#[test]
fn hold_the_directory_named_by_the_environment() {
    let Ok(path) = std::env::var("CAIRN_HOLD_DIRECTORY") else {
        return;
    };
    let _engine = open(Path::new(&path));
    println!("\nholding");
    std::io::stdout().flush().unwrap();
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn a_directory_in_use_by_another_process_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    create(directory.path());
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture"])
        .arg("opening::hold_the_directory_named_by_the_environment")
        .env("CAIRN_HOLD_DIRECTORY", directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(holder.stdout.take().unwrap()).lines();
    assert!(output.any(|line| line.unwrap() == "holding"));

    match refusal(directory.path()) {
        EngineError::InUse(path) => assert_eq!(path, directory.path()),
        other => panic!("{other:?}"),
    }
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
    assert_eq!(data_rows(directory.path()).len(), 1);
}

#[test]
fn a_directory_in_use_by_this_process_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    assert!(matches!(refusal(directory.path()), EngineError::InUse(_)));
    drop(engine);
    open(directory.path());
}

#[test]
fn what_is_wrong_with_the_lock_is_not_always_another_process() {
    let directory = tempfile::tempdir().unwrap();
    create(directory.path());
    fs::remove_file(directory.path().join("LOCK")).unwrap();
    fs::create_dir(directory.path().join("LOCK")).unwrap();
    let error = refusal(directory.path());
    assert!(matches!(error, EngineError::Storage(_)), "{error:?}");
}

#[test]
fn a_newer_format_is_refused_and_not_one_byte_is_changed() {
    let directory = tempfile::tempdir().unwrap();
    create(directory.path());
    let newer = FORMAT_VERSION + 1;
    let marker = directory.path().join("CAIRN");
    fs::write(&marker, format!("cairn format {newer}\n")).unwrap();
    let before = files(directory.path());
    match refusal(directory.path()) {
        EngineError::NewerFormat { found, known } => {
            assert_eq!((found, known), (newer, FORMAT_VERSION));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(files(directory.path()), before);

    fs::write(&marker, format!("cairn format {FORMAT_VERSION}\n")).unwrap();
    assert_eq!(data_rows(directory.path()).len(), 1);
}

#[test]
fn a_newer_format_behind_the_marker_is_refused_too() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    commit(&engine, |batch| {
        let newer = value::encode_format(FORMAT_VERSION + 1);
        batch.put(Family::Meta, &SystemKey::Format.encode(), newer);
    });
    drop(engine);
    let error = refusal(directory.path());
    assert!(
        matches!(error, EngineError::NewerFormat { .. }),
        "{error:?}"
    );
}

#[test]
fn a_marker_that_cannot_be_read_is_damage() {
    let directory = tempfile::tempdir().unwrap();
    create(directory.path());
    for text in ["", "cairn format", "cairn format x\n", "something else"] {
        fs::write(directory.path().join("CAIRN"), text).unwrap();
        let before = files(directory.path());
        let error = refusal(directory.path());
        assert!(matches!(error, EngineError::Corrupt(_)), "{error:?}");
        assert_eq!(files(directory.path()), before);
    }
}

/// RocksDB clears away files that it does not know, so nothing is opened where something else may be.
#[test]
fn what_is_not_marked_as_ours_is_left_alone() {
    let theirs = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.create_if_missing(true);
    drop(DB::open(&options, theirs.path()).unwrap());
    let unmarked = tempfile::tempdir().unwrap();
    create(unmarked.path());
    fs::remove_file(unmarked.path().join("CAIRN")).unwrap();
    let photographs = tempfile::tempdir().unwrap();
    fs::write(photographs.path().join("summer.jpg"), "sun").unwrap();

    for directory in [theirs, unmarked, photographs] {
        let before = files(directory.path());
        let error = refusal(directory.path());
        assert!(matches!(error, EngineError::Corrupt(_)), "{error:?}");
        assert_eq!(files(directory.path()), before);
    }
}

fn marker(path: &Path) -> String {
    fs::read_to_string(path.join("CAIRN")).unwrap()
}

/// A first open may die at any moment: the next one begins again, and comes to the end.
#[test]
fn a_creation_that_was_cut_short_is_finished() {
    let complete = tempfile::tempdir().unwrap();
    let engine = open(complete.path());
    let in_the_middle = image(complete.path());
    drop(engine);
    let finished = marker(complete.path());
    let creating = format!("cairn format {FORMAT_VERSION} creating");
    fs::write(in_the_middle.path().join("CAIRN"), &creating).unwrap();
    let marked = tempfile::tempdir().unwrap();
    fs::write(marked.path().join("CAIRN"), &creating).unwrap();
    let begun = tempfile::tempdir().unwrap();
    fs::write(begun.path().join("CAIRN.new"), "cairn for").unwrap();

    for directory in [in_the_middle, marked, begun] {
        create(directory.path());
        assert_eq!(marker(directory.path()), finished);
        assert_eq!(data_rows(directory.path()).len(), 1);
    }
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    fs::write(&path, "not a directory").unwrap();
    let error = refusal(&path.join("below")).to_string();
    assert!(error.contains(path.to_str().unwrap()), "{error}");
}

#[test]
fn an_open_walk_keeps_the_database_and_its_lock() {
    let directory = tempfile::tempdir().unwrap();
    create(directory.path());
    let engine = open(directory.path());
    let direction = cairn_engine::Direction::Forward;
    let mut rows = engine.rows(None, Family::Data, &[], &[], direction);
    drop(engine);
    assert!(matches!(refusal(directory.path()), EngineError::InUse(_)));
    assert_eq!(rows.next().unwrap(), Some((&b"k"[..], &b"v"[..])));
    drop(rows);
    open(directory.path());
}
