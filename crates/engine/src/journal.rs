//! The journal: every commit, appended to a file before anyone is told of it.
//!
//! A commit is done when its record is here (and synced, as `--sync` has it). Its rows are young then (see
//! `young`): they are moved into RocksDB later, many commits at once. The journal holds what a crash would
//! otherwise take: the commits since the last one that RocksDB is known to hold for good.
//!
//! It is a directory of segments, named by the index of their first record. A segment is only ever
//! appended to, by the process that made it; it goes once RocksDB has all of it. Opening a database first
//! brings everything that is here into RocksDB, and begins anew.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cairn_encoding::journal::{self, Encoder, Record};
use cairn_encoding::system::Maxima;

use crate::batch::Batch;
use crate::error::{EngineError, Result};
use crate::listener::fatal;

const DIRECTORY: &str = "journal";
const EXTENSION: &str = "journal";
/// A segment that has grown to this is followed by another.
const SEGMENT_BYTES: u64 = 32 << 20;
/// What is kept of the buffer that records are built in.
const KEPT_BUFFER: usize = 4 << 20;

pub(crate) struct Journal {
    directory: PathBuf,
    /// The oldest first; the last is appended to.
    segments: Vec<Segment>,
    /// The index of the last record.
    last: u64,
    /// The last that is known to be on the disk for good.
    synced: u64,
    buffer: Vec<u8>,
}

struct Segment {
    path: PathBuf,
    file: Arc<File>,
    length: u64,
    /// The index of its last record.
    last: u64,
}

/// Files that hold records up to an index, to be synced.
pub(crate) struct Unsynced {
    files: Vec<Arc<File>>,
    last: u64,
}

impl Unsynced {
    /// Brings them to the disk. A sync that fails may have lost what it was to save, and a second try
    /// would not tell: there is no going on.
    pub(crate) fn sync(&self) {
        for file in &self.files {
            if let Err(error) = file.sync_data() {
                fatal("the journal could not be synced", &error);
            }
        }
    }
}

impl Journal {
    /// Begins a new journal, whose first record comes after `last`. What was there before must be in
    /// RocksDB for good, and goes.
    pub(crate) fn begin(database: &Path, last: u64) -> Result<Journal> {
        let directory = database.join(DIRECTORY);
        let begin = || -> std::io::Result<()> {
            fs::create_dir_all(&directory)?;
            for (_, path) in list(database)? {
                fs::remove_file(path)?;
            }
            File::open(database)?.sync_all()
        };
        begin().map_err(|error| cannot("begin", &directory, &error))?;
        let mut journal = Journal {
            directory,
            segments: Vec::new(),
            last,
            synced: last,
            buffer: Vec::new(),
        };
        journal.add_segment()?;
        Ok(journal)
    }

    fn add_segment(&mut self) -> Result<()> {
        let path = self
            .directory
            .join(format!("{:020}.{EXTENSION}", self.last + 1));
        let create = || -> std::io::Result<File> {
            let file = File::create_new(&path)?;
            // A file that nobody can find after a power cut would be of no use, synced as it is.
            File::open(&self.directory)?.sync_all()?;
            Ok(file)
        };
        let file = create().map_err(|error| cannot("create", &path, &error))?;
        self.segments.push(Segment {
            path,
            file: Arc::new(file),
            length: 0,
            last: self.last,
        });
        Ok(())
    }

    /// Appends the batches as one record, whose index is returned. On an error nothing was appended.
    pub(crate) fn append<'b>(
        &mut self,
        batches: impl Iterator<Item = &'b Batch>,
        maxima: Maxima,
    ) -> Result<u64> {
        if self.current().length >= SEGMENT_BYTES {
            self.add_segment()?;
        }
        self.buffer.clear();
        let mut record = Encoder::begin(&mut self.buffer, self.last + 1, self.synced, maxima);
        for (family, key, value) in batches.flat_map(Batch::changes) {
            record.row(family as u8, key, value);
        }
        record.finish();
        let last = self.last + 1;
        let buffer = std::mem::take(&mut self.buffer);
        let segment = self.current();
        if let Err(error) = segment.file.write_all_at(&buffer, segment.length) {
            // What was written of it would be taken for a damaged record once others follow.
            if let Err(error) = segment.file.set_len(segment.length) {
                fatal("the journal could not be cut back", &error);
            }
            return Err(cannot("write", &segment.path, &error));
        }
        segment.length += buffer.len() as u64;
        segment.last = last;
        self.last = last;
        self.buffer = buffer;
        self.buffer.shrink_to(KEPT_BUFFER);
        Ok(last)
    }

    fn current(&mut self) -> &mut Segment {
        let at = self.segments.len() - 1;
        &mut self.segments[at]
    }

    /// What must be synced to have all records so far on the disk; none if they are.
    pub(crate) fn unsynced(&self) -> Option<Unsynced> {
        let synced = self.synced;
        let files = self
            .segments
            .iter()
            .filter(|segment| segment.last > synced)
            .map(|segment| segment.file.clone());
        (self.last > synced).then(|| Unsynced {
            files: files.collect(),
            last: self.last,
        })
    }

    pub(crate) fn note_synced(&mut self, unsynced: &Unsynced) {
        self.synced = self.synced.max(unsynced.last);
    }

    /// Lets go of what RocksDB holds for good: all records up to `applied`.
    pub(crate) fn retire(&mut self, applied: u64) {
        while self.segments.len() > 1 && self.segments[0].last <= applied {
            let segment = self.segments.remove(0);
            if let Err(error) = fs::remove_file(&segment.path) {
                tracing::warn!("cannot remove {}: {error}", segment.path.display());
            }
        }
    }

    /// Lets go of everything: RocksDB holds it for good.
    pub(crate) fn clear(&mut self) {
        for segment in self.segments.drain(..) {
            if let Err(error) = fs::remove_file(&segment.path) {
                tracing::warn!("cannot remove {}: {error}", segment.path.display());
            }
        }
    }

    /// Whether [`Journal::retire`] could let go of something if all of it were applied.
    pub(crate) fn is_long(&self) -> bool {
        self.segments.len() > 1
    }
}

/// Whether there is nothing to be replayed.
pub(crate) fn is_empty(database: &Path) -> Result<bool> {
    let is_empty = || -> std::io::Result<bool> {
        for (_, path) in list(database)? {
            if fs::metadata(path)?.len() > 0 {
                return Ok(false);
            }
        }
        Ok(true)
    };
    is_empty().map_err(|error| cannot("list", database, &error))
}

/// Whether all records were there.
pub(crate) enum Replayed {
    Whole,
    /// Some are missing, and those behind them were passed over.
    Gap,
}

/// Shows every record after `applied`, in order.
///
/// The journal of a process that was killed ends with a whole record or a part of one. After a power cut
/// any of what was not synced may be missing, but what follows a gap is then not synced either, and is
/// passed over: the state is one that existed. If it had been synced, the file is damaged.
pub(crate) fn replay(
    database: &Path,
    applied: u64,
    mut visit: impl FnMut(&Record<'_>) -> Result<()>,
) -> Result<Replayed> {
    let mut last = applied;
    let mut replayed = Replayed::Whole;
    let mut damaged: Option<PathBuf> = None;
    let segments = list(database).map_err(|error| cannot("list", database, &error))?;
    for (_, path) in segments {
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            // The server that uses it has let go of it.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Replayed::Gap),
            Err(error) => return Err(cannot("read", &path, &error)),
        };
        let mut rest = bytes.as_slice();
        if damaged.is_none() {
            while let Some((record, after)) = Record::read(rest) {
                if record.index > last + 1 {
                    break;
                }
                if record.index == last + 1 {
                    visit(&record)?;
                    last = record.index;
                }
                rest = after;
            }
        }
        if rest.is_empty() {
            continue;
        }
        let damaged = damaged.get_or_insert(path);
        if let Some((record, _)) = journal::find(rest)
            && record.index > last
        {
            if record.synced > last {
                return Err(EngineError::Corrupt(format!(
                    "{} is damaged: commit {} was synced, and is missing or unreadable",
                    damaged.display(),
                    last + 1
                )));
            }
            replayed = Replayed::Gap;
        }
    }
    Ok(replayed)
}

/// The segments, in order. None if there is no journal.
pub(crate) fn list(database: &Path) -> std::io::Result<Vec<(u64, PathBuf)>> {
    let entries = match fs::read_dir(database.join(DIRECTORY)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut segments = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == EXTENSION)
            && let Some(first) = path
                .file_stem()
                .and_then(|stem| stem.to_str()?.parse().ok())
        {
            segments.push((first, path));
        }
    }
    segments.sort();
    Ok(segments)
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> EngineError {
    if error.kind() == ErrorKind::StorageFull {
        return EngineError::DiskFull;
    }
    crate::engine::cannot(what, path, error)
}
