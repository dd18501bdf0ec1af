//! A power cut, simulated: after the server is killed, all that it never made durable is taken back.
//!
//! A shim loaded into the server (`powercut-shim/powercut.c`, which explains the journal) writes down
//! every change to the data directory and every fsync. [`PowerCut::cut`] replays that journal against
//! the directory. The rules are those of POSIX, and of ext4 where POSIX is silent:
//!
//! - a file keeps the bytes it had when its last fsync began, also those that were written over since;
//! - creating, linking, renaming and unlinking last once their directory has been fsynced; creating, also once
//!   the file itself has been. What did not last is undone, latest first;
//! - what was there when the server started lasts: it survived the cut before.
//!
//! All of that may be lost, and none of it need be: a real disk writes back what it likes. So a cut
//! has a [`Severity`].

mod journal;

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::UNIX_EPOCH;

use fastrand::Rng;
use tempfile::TempDir;

use journal::{Change, Journal};

const SHIM: &str = include_str!("../powercut-shim/powercut.c");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Whatever may be lost is lost.
    Total,
    /// Each file keeps some part of its unsynced tail, torn anywhere, each page that was written over is as
    /// it was at some moment since, and the changes to directories last up to some moment.
    Torn,
}

/// What a cut took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Damage {
    pub bytes: u64,
    pub files: usize,
    /// Renames, unlinks and removals of directories undone.
    pub names: usize,
    /// Bytes that had been written over, whether they came back or not.
    pub written_over: u64,
}

impl std::ops::AddAssign for Damage {
    fn add_assign(&mut self, other: Damage) {
        self.bytes += other.bytes;
        self.files += other.files;
        self.names += other.names;
        self.written_over += other.written_over;
    }
}

pub struct PowerCut {
    root: PathBuf,
    scratch: TempDir,
    /// The files that lasted so far, and how much of each.
    durable: HashMap<FileId, u64>,
}

/// Inode and birth, as the shim spells them.
type FileId = String;

impl PowerCut {
    /// Gets ready to cut the power of whoever writes to `root`.
    pub fn over(root: &Path) -> io::Result<PowerCut> {
        let root = root.canonicalize()?;
        // Beside the data, for the attic has to be on the same file system.
        let beside = root.parent().unwrap_or(&root);
        let scratch = TempDir::with_prefix_in("powercut-", beside)?;
        compile(SHIM, &["-shared", "-fPIC"], &scratch.path().join("shim.so"))?;
        let mut power = PowerCut {
            root,
            scratch,
            durable: HashMap::new(),
        };
        power.arm()?;
        Ok(power)
    }

    /// The environment of a process whose power can be cut.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        vec![
            ("LD_PRELOAD", self.scratch.path().join("shim.so").into()),
            ("POWERCUT_ROOT", self.root.clone().into()),
            ("POWERCUT_JOURNAL", self.journal().into()),
            ("POWERCUT_ATTIC", self.attic().into()),
        ]
    }

    /// Takes back what the process, which has ended, did not make durable.
    pub fn cut(&mut self, severity: Severity, rng: &mut Rng) -> io::Result<Damage> {
        let journal = Journal::read(&self.journal())?;
        let mut damage = Damage {
            written_over: journal.written_over(),
            ..Damage::default()
        };
        self.undo_names(&journal, severity, rng, &mut damage)?;
        self.undo_overwrites(&journal, severity, rng, &mut damage)?;
        self.cut_tails(&journal, severity, rng, &mut damage)?;
        Ok(damage)
    }

    /// Begins anew: all that is there now lasts.
    pub fn arm(&mut self) -> io::Result<()> {
        File::create(self.journal())?;
        if self.attic().exists() {
            fs::remove_dir_all(self.attic())?;
        }
        fs::create_dir(self.attic())?;
        self.durable.clear();
        for path in files_below(&self.root)? {
            let info = fs::metadata(&path)?;
            self.durable.insert(identify(&info)?, info.len());
        }
        Ok(())
    }

    fn undo_names(
        &self,
        journal: &Journal,
        severity: Severity,
        rng: &mut Rng,
        damage: &mut Damage,
    ) -> io::Result<()> {
        let unsettled: Vec<&Change> = journal.unsettled_changes().collect();
        let lasting = match severity {
            Severity::Total => 0,
            Severity::Torn => rng.usize(..=unsettled.len()),
        };
        for change in unsettled[lasting..].iter().rev() {
            change.undo(damage)?;
        }
        Ok(())
    }

    fn undo_overwrites(
        &self,
        journal: &Journal,
        severity: Severity,
        rng: &mut Rng,
        damage: &mut Damage,
    ) -> io::Result<()> {
        let mut unsettled = journal.unsettled_overwrites();
        if unsettled.is_empty() {
            return Ok(());
        }
        let kept = File::open(self.attic().join("overwritten"))?;
        for path in files_below(&self.root)? {
            let pages = unsettled.remove(&identify(&fs::metadata(&path)?)?);
            let file = File::options().write(true).open(&path)?;
            for overwrites in pages.iter().flat_map(|pages| pages.values()) {
                let lasting = match severity {
                    Severity::Total => 0,
                    Severity::Torn => rng.usize(..=overwrites.len()),
                };
                for overwrite in overwrites[lasting..].iter().rev() {
                    overwrite.undo(&kept, &file, damage)?;
                }
            }
        }
        Ok(())
    }

    fn cut_tails(
        &self,
        journal: &Journal,
        severity: Severity,
        rng: &mut Rng,
        damage: &mut Damage,
    ) -> io::Result<()> {
        let durable = journal.durable_sizes(&self.durable);
        for path in files_below(&self.root)? {
            let info = fs::metadata(&path)?;
            let id = identify(&info)?;
            let Some(&synced) = durable.get(&id) else {
                damage.files += 1;
                damage.bytes += info.len();
                fs::remove_file(&path)?;
                continue;
            };
            let kept = match severity {
                _ if synced >= info.len() => continue,
                Severity::Total => synced,
                Severity::Torn => rng.u64(synced..=info.len()),
            };
            damage.bytes += info.len() - kept;
            File::options().write(true).open(&path)?.set_len(kept)?;
        }
        Ok(())
    }

    fn journal(&self) -> PathBuf {
        self.scratch.path().join("journal")
    }

    fn attic(&self) -> PathBuf {
        self.scratch.path().join("attic")
    }
}

fn identify(info: &fs::Metadata) -> io::Result<FileId> {
    let born = info.created()?.duration_since(UNIX_EPOCH);
    let born = born.map_err(io::Error::other)?;
    Ok(format!("{}:{}", info.ino(), born.as_nanos()))
}

fn files_below(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            files.extend(files_below(&entry.path())?);
        } else if entry.file_type()?.is_file() {
            files.push(entry.path());
        }
    }
    Ok(files)
}

/// Compiles C with the compiler that RocksDB needs anyway.
pub fn compile(source: &str, flags: &[&str], output: &Path) -> io::Result<()> {
    let input = output.with_extension("c");
    fs::write(&input, source)?;
    let status = Command::new("cc")
        .args(["-O2", "-Wall"])
        .args(flags)
        .arg("-o")
        .args([output, &input])
        .status()?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!("cc ended with {status}")))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const PROBE: &str = include_str!("../powercut-shim/probe.c");

    /// Runs the probe, which says beside each file what is to become of it.
    fn run_probe(dir: &Path) -> (PowerCut, PathBuf) {
        let root = dir.join("data");
        fs::create_dir(&root).unwrap();
        let program = dir.join("probe");
        compile(PROBE, &[], &program).unwrap();
        let power = PowerCut::over(&root).unwrap();
        let mut probe = Command::new(program);
        let status = probe.arg(&root).envs(power.environment()).status().unwrap();
        assert!(status.success());
        (power, root)
    }

    fn contents(root: &Path) -> Vec<(String, String)> {
        let mut files: Vec<_> = files_below(root)
            .unwrap()
            .iter()
            .map(|path| {
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                (name, fs::read_to_string(path).unwrap())
            })
            .collect();
        files.sort();
        files
    }

    #[test]
    fn only_what_was_synced_is_left() {
        let dir = TempDir::new().unwrap();
        let (mut power, root) = run_probe(dir.path());
        let damage = power.cut(Severity::Total, &mut Rng::with_seed(1)).unwrap();
        let expected = [
            ("CURRENT", "old"),
            ("CURRENT.tmp", "new"),
            ("cut-back", "0123"),
            ("first-name", "two names"),
            ("inside-removed", "back with its directory"),
            ("linked-durably", "two names"),
            ("log", "synced"),
            ("only-its-name-is-synced", ""),
            ("overwritten", "FIRST second"),
            ("renamed-durably", "new name"),
            ("unlinked", "back again"),
        ];
        let expected = expected.map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(contents(&root), expected);
        assert_eq!(damage.names, 4);
    }

    #[test]
    fn a_second_cut_takes_nothing_more() {
        let dir = TempDir::new().unwrap();
        let (mut power, root) = run_probe(dir.path());
        let mut rng = Rng::with_seed(1);
        power.cut(Severity::Total, &mut rng).unwrap();
        let left = contents(&root);
        power.arm().unwrap();
        let damage = power.cut(Severity::Total, &mut rng).unwrap();
        assert_eq!(contents(&root), left);
        assert_eq!(damage.bytes, 0);
    }

    #[test]
    fn a_torn_cut_never_takes_what_was_synced() {
        for seed in 0..6 {
            let dir = TempDir::new().unwrap();
            let (mut power, root) = run_probe(dir.path());
            power
                .cut(Severity::Torn, &mut Rng::with_seed(seed))
                .unwrap();
            let left: HashMap<String, String> = contents(&root).into_iter().collect();
            assert!("synced and more".starts_with(&left["log"]) && left["log"].len() >= 6);
            assert!(["old", "new"].contains(&left["CURRENT"].as_str()));
            let over = &left["overwritten"];
            let (written_over, appended) = over["FIRST ".len()..].split_at(6);
            assert!(over.starts_with("FIRST "), "{over}");
            assert!(["second", "third!", "FOURTH"].contains(&written_over));
            assert!(" and longer".starts_with(appended));
            assert_eq!(left["renamed-durably"], "new name");
            assert_eq!(left["linked-durably"], "two names");
            assert!(!left.contains_key("unlinked-durably"));
            assert!(!left.contains_key("inside"));
        }
    }
}
