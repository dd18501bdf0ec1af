//! What tells a node's directory from any other, from a copy of it, and from what it was earlier.
//!
//! ```text
//!   incarnation   a file: the number that was made up for the directory, and how often it was started, a line each; and
//!                 "refused", if others have found that it is a copy of the past
//!   raft/         the logs, which count the starts too
//! ```
//!
//! A voter that has forgotten what it promised can elect two leaders, and lose what it acknowledged. So a node does not start with
//! logs that are older than its data: they are counted first, the data second, at each start and each end in good
//! order. Other nodes see to the rest, who are told the count (`cairn_raft::Run`): they refuse a node that comes back with an earlier one,
//! or that is there twice. A process that hears that its directory is of the past notes that there, and ends. It is not started
//! from there again, however often that is tried: each start would count, until it seemed newer than the node's own.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use cairn_raft::{Log, Run};
use thiserror::Error;

const FILE: &str = "incarnation";
const REFUSED: &str = "refused";

#[derive(Debug, Error)]
pub enum Unfit {
    #[error(
        "the logs are missing, or older than the data beside them (of start {logs}, and the data of start {data}): this node has \
         lost what others rely on; remove it from the cluster, and add it again with an empty directory"
    )]
    OldLogs { logs: u64, data: u64 },
    #[error(
        "the data is older than the logs beside it (of start {data}, and the logs of start {logs}): it was put there from \
         elsewhere; remove this node from the cluster, and add it again with an empty directory"
    )]
    OldData { logs: u64, data: u64 },
    #[error(
        "the other nodes have refused this directory, since it is an old copy of the node's: remove it; the node goes on with \
         the latest one, or is removed from the cluster and added again with an empty directory"
    )]
    Refused,
    #[error("cannot be read or written: {0}")]
    Failed(#[from] io::Error),
}

pub struct Directory {
    path: PathBuf,
    incarnation: u64,
    run: Run,
}

impl Directory {
    /// Begins a run. Before the server belongs to a cluster, nobody relies on its logs.
    pub async fn start(path: &Path, log: &Log, is_node: bool) -> Result<Directory, Unfit> {
        let (incarnation, data) = match read(path)? {
            Some(known) if known.is_refused => return Err(Unfit::Refused),
            Some(known) => (known.incarnation, known.starts),
            None => (fastrand::u64(1..), 0),
        };
        let logs = log.starts()?;
        if is_node {
            judge(logs, data)?;
        }
        let directory = Directory {
            path: path.to_owned(),
            incarnation,
            run: Run {
                starts: data.max(logs) + u64::from(logs <= data),
                number: fastrand::u64(..),
            },
        };
        directory.count(log, directory.run.starts).await?;
        Ok(directory)
    }

    /// Ends it in good order: a copy of the logs that was made meanwhile is older from now on.
    pub async fn end(&self, log: &Log) -> io::Result<()> {
        self.count(log, self.run.starts + 1).await
    }

    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    pub fn run(&self) -> Run {
        self.run
    }

    async fn count(&self, log: &Log, starts: u64) -> io::Result<()> {
        log.note_starts(starts).await?;
        write(&self.path, &format!("{}\n{starts}\n", self.incarnation))
    }
}

/// Others have found that the directory is an old copy: nobody starts from it any more.
pub fn refuse(path: &Path) -> io::Result<()> {
    let known = fs::read_to_string(path.join(FILE))?;
    write(path, &format!("{known}{REFUSED}\n"))
}

struct Known {
    incarnation: u64,
    starts: u64,
    is_refused: bool,
}

/// A crash may have come after the logs were counted, and before the data was.
fn judge(logs: u64, data: u64) -> Result<(), Unfit> {
    match () {
        () if logs < data => Err(Unfit::OldLogs { logs, data }),
        () if logs > data + 1 => Err(Unfit::OldData { logs, data }),
        () => Ok(()),
    }
}

fn read(dir: &Path) -> io::Result<Option<Known>> {
    let text = match fs::read_to_string(dir.join(FILE)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut lines = text.lines().map(|line| line.parse::<u64>());
    let mut next = || lines.next().unwrap_or(Ok(0)).map_err(io::Error::other);
    Ok(Some(Known {
        incarnation: next()?,
        starts: next()?,
        is_refused: text.lines().nth(2) == Some(REFUSED),
    }))
}

fn write(dir: &Path, text: &str) -> io::Result<()> {
    let temporary = dir.join(format!("{FILE}.new"));
    let mut file = fs::File::create(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, dir.join(FILE))?;
    fs::File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use cairn_raft::Config;
    use tempfile::TempDir;

    use super::*;

    fn wait<T>(work: impl Future<Output = T>) -> T {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.build().unwrap().block_on(work)
    }

    fn log(dir: &TempDir, name: &str) -> Log {
        Log::open(&dir.path().join(name), &Config::default()).unwrap()
    }

    #[test]
    fn a_directory_stays_the_same_and_counts_its_starts() {
        let dir = TempDir::new().unwrap();
        let logs = log(&dir, "raft");
        let first = wait(Directory::start(dir.path(), &logs, false)).unwrap();
        let second = wait(Directory::start(dir.path(), &logs, true)).unwrap();
        assert_eq!(first.incarnation(), second.incarnation());
        assert_eq!((first.run().starts, second.run().starts), (1, 2));
        assert_ne!(first.run().number, second.run().number);
        wait(second.end(&logs)).unwrap();
        let third = wait(Directory::start(dir.path(), &logs, true)).unwrap();
        assert_eq!(third.run().starts, 4);
        // A crash has come between the two.
        wait(logs.note_starts(5)).unwrap();
        let fourth = wait(Directory::start(dir.path(), &logs, true)).unwrap();
        assert_eq!(fourth.run().starts, 5);
    }

    #[test]
    fn a_directory_that_was_refused_does_not_start_and_does_not_count() {
        let dir = TempDir::new().unwrap();
        let logs = log(&dir, "raft");
        wait(Directory::start(dir.path(), &logs, true)).unwrap();
        refuse(dir.path()).unwrap();
        for _ in 0..3 {
            let refused = wait(Directory::start(dir.path(), &logs, true)).err();
            assert!(matches!(refused, Some(Unfit::Refused)));
        }
        assert_eq!(logs.starts().unwrap(), 1);
    }

    #[test]
    fn logs_and_data_that_do_not_belong_together_do_not_start() {
        let dir = TempDir::new().unwrap();
        let logs = log(&dir, "raft");
        wait(Directory::start(dir.path(), &logs, false)).unwrap();
        wait(Directory::start(dir.path(), &logs, true)).unwrap();
        let old = log(&dir, "old");
        let refused = wait(Directory::start(dir.path(), &old, true)).err();
        assert!(matches!(refused, Some(Unfit::OldLogs { logs: 0, data: 2 })));
        wait(old.note_starts(4)).unwrap();
        let refused = wait(Directory::start(dir.path(), &old, true)).err();
        assert!(matches!(refused, Some(Unfit::OldData { logs: 4, data: 2 })));
        // Nobody relies on what no cluster knows of.
        let free = wait(Directory::start(dir.path(), &old, false)).unwrap();
        assert_eq!(free.run().starts, 4);
    }
}
