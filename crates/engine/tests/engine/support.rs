//! What the tests of the engine share: directories, commits, and rows as plain values.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cairn_encoding::journal::Mark;
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
    let clock = Arc::new(Clock::new(Box::<SystemTime>::default()));
    LocalCommitter::new(engine.clone(), clock, mode).unwrap()
}

/// Commits what `fill` puts into a batch.
pub fn commit(engine: &Arc<Engine>, fill: impl FnOnce(&mut Batch)) {
    let mut batch = Batch::new();
    fill(&mut batch);
    committer(engine, SyncMode::No)
        .commit(&mut batch)
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

/// The files of a directory and of those inside it, by their paths from there.
pub fn paths(directory: &Path) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = PathBuf::from(path.file_name().unwrap());
        if path.is_dir() {
            paths.extend(self::paths(&path).iter().map(|inner| name.join(inner)));
        } else {
            paths.push(name);
        }
    }
    paths.sort();
    paths
}

/// The mark of the records in a segment of the journal.
pub fn mark(segment: &Path) -> Mark {
    Mark::of_name(segment.file_stem().unwrap().to_str().unwrap()).unwrap()
}

/// What the files of a directory hold, by name.
pub fn files(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = paths(path).into_iter().map(|name| {
        let content = fs::read(path.join(&name)).unwrap();
        (name.into_os_string().into_string().unwrap(), content)
    });
    files.collect()
}

/// A copy of the directory as it is now: what a process that dies at this moment leaves behind. It is taken
/// again if RocksDB wrote meanwhile; the journal is copied last, so that it is behind nothing.
pub fn image(path: &Path) -> tempfile::TempDir {
    loop {
        let before = sizes_in_rocksdb(path);
        let copy = tempfile::tempdir().unwrap();
        fs::create_dir_all(copy.path().join("journal")).unwrap();
        for name in paths(path) {
            // A segment of the journal that has gone meanwhile is not needed.
            if let Ok(content) = fs::read(path.join(&name)) {
                let to = copy.path().join(&name);
                fs::create_dir_all(to.parent().unwrap()).unwrap();
                fs::write(to, content).unwrap();
            }
        }
        if sizes_in_rocksdb(path) == before {
            return copy;
        }
    }
}

/// The sizes of the files that RocksDB reads when it opens.
fn sizes_in_rocksdb(path: &Path) -> Vec<(PathBuf, Option<u64>)> {
    let names = paths(path).into_iter();
    let read = names.filter(|name| !name.starts_with("journal") && !name.starts_with("LOG"));
    let sizes = read.map(|name| {
        let size = fs::metadata(path.join(&name)).map(|metadata| metadata.len());
        (name, size.ok())
    });
    sizes.collect()
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
