//! The journal: every commit, appended to a file before anyone is told of it.
//!
//! A commit is done when its record is here (and synced, as `--sync` has it). Its rows are young then (see
//! `young`): they are moved into RocksDB later, many commits at once. The journal holds what a crash would
//! otherwise take: the commits since the last one that RocksDB is known to hold for good.
//!
//! It is a directory of segments, each appended to by the process that made it; one goes once RocksDB has
//! all of it. Opening a database first brings everything that is here into RocksDB, and begins anew.
//!
//! Where each commit is synced, most of the time goes into that, and half of it into what the file system
//! writes because the file has grown. So segments are written over bytes that are on the disk already:
//!
//! ```text
//!     new file, grows ──▶ full ──▶ in RocksDB ──▶ new name ──┐
//!                                      ▲                     ▼
//!     new file, of zeros ─────────▶ spare ◀──────────────────┘
//!                                      └──▶ written over, full ──▶ in RocksDB ...
//! ```
//!
//! A segment's name is the mark of its records, chosen anew for every use: what an earlier use has left in
//! the file is not taken for its records. The name is on the disk before the first record is, so that no
//! record can come back under another one. All that is done where no commit waits for it; a commit that
//! finds no spare begins a new file. Several segments are full before RocksDB has the first of them, so there is
//! more than one spare.

use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cairn_encoding::journal::{self, Encoder, Mark, Record};
use cairn_encoding::system::Maxima;

use crate::batch::Batch;
use crate::error::{EngineError, Result};
use crate::listener::fatal;
use crate::space;

#[cfg(test)]
mod tests;

const DIRECTORY: &str = "journal";
const EXTENSION: &str = "journal";
/// What is kept of the buffer that records are built in.
const KEPT_BUFFER: usize = 4 << 20;
/// How much of a spare is written and synced at a time: commits are synced in between.
const ZEROS: usize = 256 << 10;
/// How many segments are kept to be written over, at most.
const MOST_SPARES: usize = 8;

/// How segments are laid out.
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    /// A segment that has grown to this is followed by another.
    segment: u64,
    /// If segments are written over existing bytes: how long the first must be for that to be worth it.
    spare_after: Option<u64>,
}

impl Layout {
    /// For files that are synced now and then.
    pub(crate) const GROWING: Layout = Layout {
        segment: 32 << 20,
        spare_after: None,
    };
    /// For files that are synced with each record.
    pub(crate) const WRITTEN_OVER: Layout = Layout {
        segment: 16 << 20,
        spare_after: Some(1 << 20),
    };
}

pub(crate) struct Journal {
    directory: PathBuf,
    layout: Layout,
    /// The oldest first; the last is appended to.
    segments: Vec<Segment>,
    /// What comes next.
    spares: Vec<Segment>,
    /// The index of the last record.
    last: u64,
    /// The last that is known to be on the disk for good.
    synced: u64,
    buffer: Vec<u8>,
}

/// A file of the journal.
pub(crate) struct Segment {
    path: PathBuf,
    mark: Mark,
    file: Arc<File>,
    /// Up to the end of its last record.
    length: u64,
    /// The index of its last record.
    last: u64,
    /// Whether there is something to be written over.
    is_filled: bool,
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

impl Segment {
    /// A new file, and its name on the disk: a file that nobody can find after a power cut would be of no
    /// use, synced as it is.
    fn create(directory: &Path) -> Result<Segment> {
        let (path, mark) = new_name(directory);
        let create = || -> std::io::Result<File> {
            let file = File::create_new(&path)?;
            File::open(directory)?.sync_all()?;
            Ok(file)
        };
        let file = create().map_err(|error| cannot("create", &path, &error))?;
        Ok(Segment {
            path,
            mark,
            file: Arc::new(file),
            length: 0,
            last: 0,
            is_filled: false,
        })
    }

    /// A new file, filled with zeros.
    fn create_filled(directory: &Path, bytes: u64) -> Result<Segment> {
        // What is left of a disk that is nearly full is for commits.
        if space::of(directory).is_some_and(|disk| disk.free / 16 < bytes) {
            return Err(EngineError::DiskFull);
        }
        let mut segment = Segment::create(directory)?;
        if let Err(error) = segment.fill(bytes) {
            let error = cannot("fill", &segment.path, &error);
            segment.remove();
            return Err(error);
        }
        segment.is_filled = true;
        Ok(segment)
    }

    fn fill(&self, bytes: u64) -> std::io::Result<()> {
        let zeros = vec![0; ZEROS.min(bytes as usize)];
        for at in (0..bytes).step_by(zeros.len()) {
            self.file.write_all_at(&zeros, at)?;
            self.file.sync_data()?;
        }
        Ok(())
    }

    /// The same file for new records. Nobody may need the old ones.
    pub(crate) fn renew(self) -> Result<Segment> {
        let directory = self.path.parent().unwrap_or(&self.path);
        let (path, mark) = new_name(directory);
        let rename = || -> std::io::Result<()> {
            fs::rename(&self.path, &path)?;
            File::open(directory)?.sync_all()
        };
        rename().map_err(|error| cannot("rename", &self.path, &error))?;
        Ok(Segment {
            path,
            mark,
            length: 0,
            is_filled: true,
            ..self
        })
    }

    /// Lets go of a file that nobody needs.
    pub(crate) fn remove(self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!("cannot remove {}: {error}", self.path.display());
        }
    }
}

/// A spare to be made, by a thread that may take its time.
pub(crate) struct SpareWanted {
    directory: PathBuf,
    bytes: u64,
}

impl SpareWanted {
    pub(crate) fn make(&self) -> Result<Segment> {
        Segment::create_filled(&self.directory, self.bytes)
    }
}

impl Journal {
    /// Begins a new journal, whose first record comes after `last`. What was there before must be in
    /// RocksDB for good, and goes.
    pub(crate) fn begin(database: &Path, last: u64, layout: Layout) -> Result<Journal> {
        let directory = database.join(DIRECTORY);
        let begin = || -> std::io::Result<()> {
            fs::create_dir_all(&directory)?;
            File::open(database)?.sync_all()
        };
        begin().map_err(|error| cannot("begin", &directory, &error))?;
        discard(database)?;
        Ok(Journal {
            // It also makes last that the others are gone. Their indexes may be taken again.
            segments: vec![Segment::create(&directory)?],
            directory,
            layout,
            spares: Vec::new(),
            last,
            synced: last,
            buffer: Vec::new(),
        })
    }

    /// Appends the batches as one record, whose index is returned. On an error nothing was appended.
    pub(crate) fn append<'b>(
        &mut self,
        batches: impl Iterator<Item = &'b Batch>,
        maxima: Maxima,
    ) -> Result<u64> {
        if self.is_time_for_next_segment() {
            self.begin_next_segment()?;
        }
        let (last, synced) = (self.last + 1, self.synced);
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let segment = self.current();
        let mut record = Encoder::begin(&mut buffer, segment.mark, last, synced, maxima);
        for (family, key, value) in batches.flat_map(Batch::changes) {
            record.row(family as u8, key, value);
        }
        record.finish();
        if let Err(error) = segment.file.write_all_at(&buffer, segment.length) {
            // The room is needed; and if that fails too, the next record is written over what is there.
            if !segment.is_filled {
                let _ = segment.file.set_len(segment.length);
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

    /// A file that grows is left as soon as there is a better one.
    fn is_time_for_next_segment(&mut self) -> bool {
        let has_spare = !self.spares.is_empty();
        let full = self.layout.segment;
        let current = self.current();
        current.length >= full || has_spare && !current.is_filled
    }

    fn begin_next_segment(&mut self) -> Result<()> {
        let next = match self.spares.pop() {
            Some(spare) => spare,
            None => Segment::create(&self.directory)?,
        };
        self.segments.push(next);
        Ok(())
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

    /// Takes out what RocksDB holds for good: the segments of records up to `applied`.
    pub(crate) fn retire(&mut self, applied: u64) -> Vec<Segment> {
        let is_over = |segment: &&Segment| segment.last <= applied;
        let others = &self.segments[..self.segments.len() - 1];
        let count = others.iter().take_while(is_over).count();
        self.segments.drain(..count).collect()
    }

    /// Lets go of everything: RocksDB holds it for good.
    pub(crate) fn clear(&mut self) {
        let segments = self.segments.drain(..).chain(self.spares.drain(..));
        segments.for_each(Segment::remove);
    }

    /// Whether [`Journal::retire`] could let go of something if all of it were applied.
    pub(crate) fn is_long(&self) -> bool {
        self.segments.len() > 1
    }

    /// Whether it is time to make a spare: there is none, and none will come from what is retired.
    pub(crate) fn wanted_spare(&self) -> Option<SpareWanted> {
        self.wants_spare().then(|| SpareWanted {
            directory: self.directory.clone(),
            bytes: self.layout.segment,
        })
    }

    #[inline]
    pub(crate) fn wants_spare(&self) -> bool {
        let is_worth_it = |current: &Segment| {
            current.is_filled
                || self
                    .layout
                    .spare_after
                    .is_some_and(|after| current.length >= after)
        };
        self.spares.is_empty() && self.segments.last().is_some_and(is_worth_it)
    }

    pub(crate) fn take_spare(&mut self, spare: Segment) {
        self.spares.push(spare);
    }

    /// How many retired segments may become spares.
    pub(crate) fn room_for_spares(&self) -> usize {
        match self.layout.spare_after {
            Some(_) => MOST_SPARES.saturating_sub(self.spares.len()),
            None => 0,
        }
    }

    /// Whether a retired segment is worth being written over: one of about the right size.
    pub(crate) fn can_renew(&self, retired: &Segment) -> bool {
        let full = self.layout.segment;
        (full..full * 2).contains(&retired.length)
    }
}

fn new_name(directory: &Path) -> (PathBuf, Mark) {
    // Hashers have keys from the system's source of randomness.
    let mark = Mark::new(RandomState::new().build_hasher().finish());
    (directory.join(format!("{mark}.{EXTENSION}")), mark)
}

/// Removes what is there, which RocksDB has for good: no more of it will come.
pub(crate) fn discard(database: &Path) -> Result<()> {
    let discard = || -> std::io::Result<()> {
        for (_, path) in list(database)? {
            fs::remove_file(path)?;
        }
        Ok(())
    };
    discard().map_err(|error| cannot("remove", &database.join(DIRECTORY), &error))
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
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Replayed {
    Whole,
    /// Some are missing, and those behind them were passed over.
    Gap,
}

/// Shows every record after `applied`, in order.
///
/// The journal of a process that was killed ends with a whole record or a part of one. After a power cut
/// any of what was not synced may be missing, but what follows a gap is then not synced either, and is
/// passed over: the state is one that existed. If it had been synced, the journal is damaged.
///
/// A server may be appending meanwhile. So a first look finds out how far the journal goes, and the second
/// must come as far: a record that was there at the first look has all before it at the second.
pub(crate) fn replay(
    database: &Path,
    applied: u64,
    mut visit: impl FnMut(&Record<'_>) -> Result<()>,
) -> Result<Replayed> {
    let Some(extent) = survey(database)? else {
        return Ok(Replayed::Gap);
    };
    let mut last = applied;
    for (_, mark, path) in &extent.segments {
        let Some(bytes) = read(path)? else {
            return Ok(Replayed::Gap);
        };
        let mut rest = bytes.as_slice();
        while let Some((record, after)) = Record::read(rest, *mark)
            && record.index <= last + 1
        {
            if record.index > last {
                visit(&record)?;
                last = record.index;
            }
            rest = after;
        }
    }
    if extent.synced > last {
        return Err(EngineError::Corrupt(format!(
            "{} is damaged: commit {} was synced, and is missing or unreadable",
            database.join(DIRECTORY).display(),
            last + 1
        )));
    }
    match extent.last > last {
        true => Ok(Replayed::Gap),
        false => Ok(Replayed::Whole),
    }
}

/// How far the journal goes.
#[derive(Default)]
struct Extent {
    /// The segments that have records, in order, each with the index of its first.
    segments: Vec<(u64, Mark, PathBuf)>,
    /// The index of the last record, whether or not all before it are there.
    last: u64,
    /// The last that had been synced, as far as the records tell.
    synced: u64,
}

/// Looks for records everywhere. None if a segment went meanwhile.
fn survey(database: &Path) -> Result<Option<Extent>> {
    let mut extent = Extent::default();
    for (mark, path) in list(database).map_err(|error| cannot("list", database, &error))? {
        let Some(bytes) = read(&path)? else {
            return Ok(None);
        };
        let mut first = None;
        for record in journal::find(&bytes, mark) {
            first.get_or_insert(record.index);
            extent.last = extent.last.max(record.index);
            extent.synced = extent.synced.max(record.synced);
        }
        if let Some(first) = first {
            extent.segments.push((first, mark, path));
        }
    }
    extent.segments.sort_by_key(|(first, ..)| *first);
    Ok(Some(extent))
}

/// What is in a segment. None if the server that uses it has let go of it: what was read of it may have
/// been written over. It is given another name before that is done.
fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    let read = || -> std::io::Result<Option<Vec<u8>>> {
        let bytes = fs::read(path)?;
        Ok(path.try_exists()?.then_some(bytes))
    };
    match read() {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        result => result.map_err(|error| cannot("read", path, &error)),
    }
}

/// The segments and their marks, in no order. None if there is no journal.
pub(crate) fn list(database: &Path) -> std::io::Result<Vec<(Mark, PathBuf)>> {
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
            && let Some(mark) = path
                .file_stem()
                .and_then(|stem| Mark::of_name(stem.to_str()?))
        {
            segments.push((mark, path));
        }
    }
    Ok(segments)
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> EngineError {
    if error.kind() == ErrorKind::StorageFull {
        return EngineError::DiskFull;
    }
    crate::engine::cannot(what, path, error)
}
