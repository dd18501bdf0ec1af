//! Looking at a database without taking part in it.
//!
//! RocksDB's read-only mode takes no lock, replays the log into memory and writes nothing. So it works
//! beside a running server too, and shows one moment: the open. But it does not expect that somebody
//! deletes files meanwhile. A table that goes before it could be opened fails the open, which is plain
//! to see. A log that goes after the manifest was read, and before it could be replayed, is not: its rows
//! are in a table that this open knows nothing of, and they would be missing without a word. Logs go in
//! the order in which they came, so if all that were there before the open are there after it, none was
//! missed; otherwise the open is done again. What the journal holds beyond that is kept in memory.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use rust_rocksdb::DB;

use crate::engine::{Engine, cannot, check_marker};
use crate::error::{EngineError, Result};
use crate::family::Family;
use crate::filter::Gate;
use crate::journal::{self, Replayed};
use crate::options::{self, EngineOptions};

/// A log goes once in some seconds even under heavy writes.
const ATTEMPTS: usize = 8;

impl Engine {
    /// Opens the database in `path` as it is now, whether or not a server has it open. Nothing is
    /// changed, not even a file created; writes are refused.
    pub fn open_read_only(path: &Path, settings: &EngineOptions) -> Result<Engine> {
        Engine::look_at(path, settings, Engine::read_journal)
    }

    /// Whether the database in `path` is whole, as far as an open will need all of it. Nothing is changed.
    pub(crate) fn check(path: &Path, settings: &EngineOptions) -> Result<()> {
        Engine::look_at(path, settings, Engine::check_journal).map(drop)
    }

    fn look_at(
        path: &Path,
        settings: &EngineOptions,
        read_journal: fn(&Engine) -> Result<Replayed>,
    ) -> Result<Engine> {
        let is_absent = check_marker(path)?;
        if is_absent {
            return Err(EngineError::Storage(format!(
                "{} holds no database",
                path.display()
            )));
        }
        for _ in 0..ATTEMPTS {
            let before = files(path)?;
            // The journal second: what is missing there is in RocksDB, unless it was moved in between, which
            // leaves a gap.
            let opened = open_as_it_is(path, settings).and_then(|engine| {
                let replayed = read_journal(&engine)?;
                Ok((engine, replayed))
            });
            let after = files(path)?;
            match opened {
                // A gap where nothing has changed is what a power cut has left.
                Ok((engine, Replayed::Whole)) if logs(&before).all(|log| after.contains(log)) => {
                    return Ok(engine);
                }
                Ok((engine, Replayed::Gap)) if before == after => return Ok(engine),
                Err(error) if before == after => return Err(error),
                _ => {}
            }
        }
        Err(EngineError::Storage(format!(
            "the server that uses {} replaces its files too quickly to be watched; try again",
            path.display()
        )))
    }
}

/// Without what only the journal has.
fn open_as_it_is(path: &Path, settings: &EngineOptions) -> Result<Engine> {
    let gate = Arc::new(Gate::default());
    let memory = options::Memory::new(settings);
    let database_options = options::database(settings, &memory, &gate);
    let families = Family::ALL.map(|family| options::family(family, settings, &memory, None));
    let refuse_logs = false;
    let db = DB::open_cf_descriptors_read_only(&database_options, path, families, refuse_logs)?;
    Ok(Engine::assemble(db, gate, memory, database_options, path)?.read_only())
}

fn files(path: &Path) -> Result<BTreeSet<OsString>> {
    let list = || -> std::io::Result<BTreeSet<OsString>> {
        let segments = journal::list(path)?.into_iter();
        let segments = segments.map(|(_, path)| Ok(path.into_os_string()));
        let entries = fs::read_dir(path)?.map(|entry| Ok(entry?.file_name()));
        entries.chain(segments).collect()
    };
    list().map_err(|error| cannot("list", path, &error))
}

/// Write-ahead logs; RocksDB's own messages are in LOG.
fn logs(files: &BTreeSet<OsString>) -> impl Iterator<Item = &OsString> {
    files
        .iter()
        .filter(|name| Path::new(name).extension().is_some_and(|ext| ext == "log"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Batch;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::time::{Duration, SystemTime};

    fn settings() -> EngineOptions {
        EngineOptions {
            memory: 64 << 20,
            ..EngineOptions::default()
        }
    }

    fn put(engine: &Engine, key: &[u8], value: &[u8]) -> Result<()> {
        let mut batch = Batch::new();
        batch.put(Family::Data, key, value);
        engine.write([&batch], false)
    }

    fn value(engine: &Engine, key: &[u8]) -> Option<Vec<u8>> {
        let value = engine.get(Family::Data, key).unwrap();
        value.map(|value| value.to_vec())
    }

    fn traces(path: &Path) -> Vec<(OsString, u64, SystemTime)> {
        let traces = files(path).unwrap().into_iter().map(|name| {
            let metadata = fs::metadata(path.join(&name)).unwrap();
            (name, metadata.len(), metadata.modified().unwrap())
        });
        traces.collect()
    }

    #[test]
    fn it_shows_the_moment_of_the_open_beside_the_writer_and_leaves_no_trace() {
        let dir = tempfile::tempdir().unwrap();
        let writer = Engine::open(dir.path(), &settings()).unwrap();
        put(&writer, b"in a table", b"1").unwrap();
        writer.flush().unwrap();
        put(&writer, b"in the log", b"2").unwrap();
        let before = traces(dir.path());

        let reader = Engine::open_read_only(dir.path(), &settings()).unwrap();
        assert_eq!(value(&reader, b"in a table").unwrap(), b"1");
        assert_eq!(value(&reader, b"in the log").unwrap(), b"2");
        assert_eq!(traces(dir.path()), before);

        put(&writer, b"in the log", b"3").unwrap();
        writer.compact().unwrap();
        assert_eq!(value(&reader, b"in the log").unwrap(), b"2");
        assert_eq!(value(&reader, b"in a table").unwrap(), b"1");
        assert!(put(&reader, b"in the log", b"4").is_err());
        drop(reader);
        assert_eq!(value(&writer, b"in the log").unwrap(), b"3");
    }

    #[test]
    fn a_database_that_nobody_has_open_is_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let writer = Engine::open(dir.path(), &settings()).unwrap();
        put(&writer, b"k", b"v").unwrap();
        drop(writer);
        let before = traces(dir.path());
        let reader = Engine::open_read_only(dir.path(), &settings()).unwrap();
        assert_eq!(value(&reader, b"k").unwrap(), b"v");
        drop(reader);
        assert_eq!(traces(dir.path()), before);
    }

    /// The numbers from 1 on that are there as rows, up to the first that is not; and all rows.
    fn unbroken_and_all(engine: &Engine) -> (u32, u32) {
        let mut rows = engine.background_rows(Family::Data, &[], &[]);
        let (mut unbroken, mut all) = (0, 0);
        while let Some((key, _)) = rows.next().unwrap() {
            all += 1;
            if key == (unbroken + 1_u32).to_be_bytes() {
                unbroken += 1;
            }
        }
        (unbroken, all)
    }

    /// Without the second look at the logs, some of these opens miss rows.
    #[test]
    fn no_row_is_missed_while_the_writer_replaces_its_logs() {
        let dir = tempfile::tempdir().unwrap();
        let writer = Engine::open(dir.path(), &settings()).unwrap();
        let (written, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
        let mut shown = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    let next = written.load(Ordering::SeqCst) + 1;
                    put(&writer, &next.to_be_bytes(), b"x").unwrap();
                    written.store(next, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(1));
                    if next.is_multiple_of(10) {
                        writer.flush().unwrap();
                    }
                }
            });
            for _ in 0..100 {
                let least = written.load(Ordering::SeqCst);
                if let Ok(reader) = Engine::open_read_only(dir.path(), &settings()) {
                    let (unbroken, all) = unbroken_and_all(&reader);
                    shown.push((least, unbroken, all));
                }
            }
            is_over.store(true, Ordering::SeqCst);
        });
        assert!(!shown.is_empty());
        for (least, unbroken, all) in shown {
            assert_eq!(unbroken, all, "a row is missing among others");
            assert!(all >= least, "{all} of {least} rows are there");
        }
    }

    #[test]
    fn what_is_no_database_is_not_made_one() {
        let dir = tempfile::tempdir().unwrap();
        let absent = dir.path().join("absent");
        for path in [dir.path(), &absent] {
            let error = Engine::open_read_only(path, &settings()).err().unwrap();
            assert!(error.to_string().ends_with("holds no database"), "{error}");
        }
        assert!(!absent.exists());
        assert!(files(dir.path()).unwrap().is_empty());
    }
}
