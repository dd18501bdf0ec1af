//! The shim's journal, and what follows from it: which bytes last, which names last, and how to take
//! back those that do not.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::{Damage, FileId, identify};

/// What the kernel writes back at a time.
const PAGE: u64 = 4096;

/// What the shim wrote down, each list in order of time.
#[derive(Default)]
pub struct Journal {
    changes: Vec<Change>,
    sizes: Vec<(u64, FileId, Size)>,
    overwrites: Vec<(FileId, Overwrite)>,
    /// When the last sync of each file began.
    synced_files: HashMap<FileId, u64>,
    /// When the last sync of each directory began.
    synced_dirs: HashMap<PathBuf, u64>,
    /// When a directory of this name was removed last.
    removed_dirs: HashMap<PathBuf, u64>,
}

/// A change to which names there are.
pub struct Change {
    time: u64,
    what: What,
    path: PathBuf,
}

enum What {
    Created(FileId),
    /// A file that was there has a further name.
    Linked(FileId),
    DirectoryRemoved,
    Unlinked {
        kept: Option<PathBuf>,
    },
    RenamedFrom {
        from: PathBuf,
        displaced: Option<PathBuf>,
    },
}

/// Bytes of one page that were written over.
#[derive(Clone, Copy)]
pub struct Overwrite {
    time: u64,
    at: u64,
    length: u64,
    /// Where the old ones are kept.
    kept: u64,
}

/// Overwrites by page, in order of time.
pub type Pages = BTreeMap<u64, Vec<Overwrite>>;

enum Size {
    Synced(u64),
    Truncated(u64),
    Born,
}

impl Journal {
    pub fn read(path: &Path) -> io::Result<Journal> {
        let mut journal = Journal::default();
        let text = fs::read_to_string(path)?;
        // The kill may have torn the last line. What it was to promise, nobody has heard.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        for line in whole.lines() {
            let fields: Vec<&str> = line.split('\t').collect();
            journal.take(&fields).ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidData, format!("journal line {line:?}"))
            })?;
        }
        journal.changes.sort_by_key(|change| change.time);
        journal.sizes.sort_by_key(|(time, ..)| *time);
        journal.overwrites.sort_by_key(|(_, one)| one.time);
        Ok(journal)
    }

    fn take(&mut self, fields: &[&str]) -> Option<()> {
        let time = fields.get(1)?.parse().ok()?;
        match *fields {
            ["create", _, id, path] => {
                self.sizes.push((time, id.to_owned(), Size::Born));
                self.change(time, What::Created(id.to_owned()), path);
            }
            ["unlink", _, kept, path] => {
                let kept = attic_entry(kept);
                self.change(time, What::Unlinked { kept }, path);
            }
            ["rename", _, displaced, from, path] => {
                let displaced = attic_entry(displaced);
                let from = normal(from);
                self.change(time, What::RenamedFrom { from, displaced }, path);
            }
            ["link", _, id, path] => self.change(time, What::Linked(id.to_owned()), path),
            ["rmdir", _, path] => {
                let latest = self.removed_dirs.entry(normal(path)).or_default();
                *latest = time.max(*latest);
                self.change(time, What::DirectoryRemoved, path);
            }
            ["truncate", _, id, size, _] => {
                let size = Size::Truncated(size.parse().ok()?);
                self.sizes.push((time, id.to_owned(), size));
            }
            ["overwrite", _, id, at, length, kept, _] => {
                let (at, length, kept) =
                    (at.parse().ok()?, length.parse().ok()?, kept.parse().ok()?);
                let whole = Overwrite {
                    time,
                    at,
                    length,
                    kept,
                };
                let pages = whole.split().map(|page| (id.to_owned(), page));
                self.overwrites.extend(pages);
            }
            ["sync", _, id, size, _] => {
                let size = Size::Synced(size.parse().ok()?);
                let latest = self.synced_files.entry(id.to_owned()).or_default();
                *latest = time.max(*latest);
                self.sizes.push((time, id.to_owned(), size));
            }
            ["syncdir", _, path] => {
                let latest = self.synced_dirs.entry(normal(path)).or_default();
                *latest = time.max(*latest);
            }
            _ => return None,
        }
        Some(())
    }

    fn change(&mut self, time: u64, what: What, path: &str) {
        let path = normal(path);
        self.changes.push(Change { time, what, path });
    }

    /// How much of each file lasts. A file that the shim saw come into being and that was never
    /// synced lasts empty, should its name last.
    pub fn durable_sizes(&self, before: &HashMap<FileId, u64>) -> HashMap<FileId, u64> {
        let mut durable = before.clone();
        for (_, id, size) in &self.sizes {
            match size {
                Size::Synced(size) => durable.insert(id.clone(), *size),
                Size::Born => durable.insert(id.clone(), 0),
                Size::Truncated(to) => durable
                    .get_mut(id)
                    .map(|size| std::mem::replace(size, (*size).min(*to))),
            };
        }
        durable
    }

    /// How many bytes were written over.
    pub fn written_over(&self) -> u64 {
        self.overwrites.iter().map(|(_, one)| one.length).sum()
    }

    /// The overwritten bytes that no sync has made last, by file.
    pub fn unsettled_overwrites(&self) -> HashMap<FileId, Pages> {
        let mut files: HashMap<FileId, Pages> = HashMap::new();
        for (id, overwrite) in &self.overwrites {
            let synced = self.synced_files.get(id);
            if synced.is_none_or(|&began| began <= overwrite.time) {
                let pages = files.entry(id.clone()).or_default();
                let page = pages.entry(overwrite.at / PAGE).or_default();
                page.push(*overwrite);
            }
        }
        files
    }

    /// The changes that no sync has made last. In each directory, these are the latest ones.
    pub fn unsettled_changes(&self) -> impl Iterator<Item = &Change> {
        self.changes.iter().filter(|change| !self.settled(change))
    }

    fn settled(&self, change: &Change) -> bool {
        self.names_last(&change.path, change.time)
            || matches!(&change.what, What::Created(id) if self.synced_files.contains_key(id))
    }

    /// Whether what became of this name at that time lasts: its directory was synced since, or is gone for good.
    fn names_last(&self, path: &Path, time: u64) -> bool {
        let Some(dir) = path.parent() else {
            return false;
        };
        let since =
            |events: &HashMap<PathBuf, u64>| events.get(dir).copied().filter(|at| *at > time);
        since(&self.synced_dirs).is_some()
            || since(&self.removed_dirs).is_some_and(|removed| self.names_last(dir, removed))
    }
}

impl Overwrite {
    fn split(self) -> impl Iterator<Item = Overwrite> {
        let end = self.at + self.length;
        let mut at = self.at;
        std::iter::from_fn(move || {
            let length = (PAGE - at % PAGE).min(end - at);
            let kept = self.kept + (at - self.at);
            let page = Overwrite {
                at,
                length,
                kept,
                ..self
            };
            at += length;
            (length > 0).then_some(page)
        })
    }

    /// Brings back what is kept of the bytes, as far as the file has that place.
    pub fn undo(&self, kept: &File, file: &File, damage: &mut Damage) -> io::Result<()> {
        let length = file
            .metadata()?
            .len()
            .saturating_sub(self.at)
            .min(self.length);
        let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        kept.read_exact_at(&mut bytes, self.kept)?;
        damage.bytes += length;
        file.write_all_at(&bytes, self.at)
    }
}

impl Change {
    /// A name that a newer, lasting file has taken since stays with that file.
    pub fn undo(&self, damage: &mut Damage) -> io::Result<()> {
        match &self.what {
            What::Created(id) | What::Linked(id) => {
                let Ok(info) = fs::metadata(&self.path) else {
                    return Ok(());
                };
                if identify(&info)? == *id {
                    damage.files += 1;
                    if matches!(self.what, What::Created(_)) {
                        damage.bytes += info.len();
                    }
                    fs::remove_file(&self.path)?;
                }
            }
            What::DirectoryRemoved => {
                if !self.path.exists() {
                    damage.names += 1;
                    fs::create_dir(&self.path)?;
                }
            }
            What::Unlinked { kept } => {
                if let Some(kept) = kept
                    && !self.path.exists()
                {
                    damage.names += 1;
                    fs::hard_link(kept, &self.path)?;
                }
            }
            What::RenamedFrom { from, displaced } => {
                if self.path.exists() && !from.exists() {
                    damage.names += 1;
                    fs::rename(&self.path, from)?;
                    if let Some(displaced) = displaced {
                        fs::hard_link(displaced, &self.path)?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn attic_entry(field: &str) -> Option<PathBuf> {
    (field != "-").then(|| PathBuf::from(field))
}

/// Without doubled slashes and `.`, so that equal places compare equal.
fn normal(path: &str) -> PathBuf {
    Path::new(path).components().collect()
}
