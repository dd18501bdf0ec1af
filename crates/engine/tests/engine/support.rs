//! What the tests of the engine share: directories, commits, and rows as plain values.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use cairn_engine::{
    Batch, Clock, Committer, Direction, Engine, EngineOptions, Family, LocalCommitter, Result,
    SyncMode, SystemTime,
};

pub type Row = (Vec<u8>, Vec<u8>);

pub fn settings() -> EngineOptions {
    EngineOptions {
        memory: 64 * 1024 * 1024,
        ..EngineOptions::default()
    }
}

pub fn open(path: &Path) -> Arc<Engine> {
    Arc::new(Engine::open(path, &settings()).unwrap())
}

pub fn committer(engine: &Arc<Engine>, mode: SyncMode) -> LocalCommitter {
    let clock = Arc::new(Clock::new(Box::new(SystemTime)));
    LocalCommitter::new(engine.clone(), clock, mode).unwrap()
}

/// Commits what `fill` puts into a batch.
pub fn commit(engine: &Arc<Engine>, fill: impl FnOnce(&mut Batch)) {
    let mut batch = Batch::new();
    fill(&mut batch);
    committer(engine, SyncMode::No)
        .commit(batch)
        .wait()
        .unwrap();
}

/// Every row of the family.
pub fn all_rows(engine: &Engine, family: Family) -> Result<Vec<Row>> {
    let mut rows = engine.rows(None, family, &[], &[], Direction::Forward);
    let mut all = Vec::new();
    while let Some((key, value)) = rows.next()? {
        all.push((key.to_vec(), value.to_vec()));
    }
    Ok(all)
}

/// What the files of a directory hold, by name.
pub fn files(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(path).unwrap().map(|entry| {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        (name, fs::read(entry.path()).unwrap())
    });
    entries.collect()
}

/// A copy of the directory as it is now: what a process that dies at this moment leaves behind.
pub fn image(path: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    copy
}

/// One of RocksDB's counters.
pub fn ticker(engine: &Engine, name: &str) -> u64 {
    let text = engine.rocksdb_statistics();
    let mut lines = text.lines().map(|line| line.split(' '));
    let mut words = lines
        .find(|words| words.clone().next() == Some(name))
        .unwrap();
    words.next_back().unwrap().parse().unwrap()
}
