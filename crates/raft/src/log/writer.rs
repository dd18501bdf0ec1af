//! The one who writes: what all regions of a node have queued goes to the disk in one write with one sync.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use cairn_encoding::raft::{Entry, Key, LogId};
use openraft::storage::IOFlushed;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use super::region::{Kept, Region};
use super::rows::{Change, Rows};
use crate::config::Failure;
use crate::consensus::{Types, body, size};

/// One write of one region.
pub(crate) struct Op {
    pub region: u64,
    pub state: Arc<Mutex<Region>>,
    /// Rises from write to write of a region.
    pub number: u64,
    pub work: Work,
}

pub(crate) enum Work {
    Append(Vec<Kept>, IOFlushed<Types>),
    /// Must be on the disk before somebody is told.
    Synced(Vec<Change>, oneshot::Sender<io::Result<()>>),
    /// May be lost, if all that comes after it is lost too.
    Unsynced(Vec<Change>),
}

pub(crate) struct Writer {
    pub rows: Arc<dyn Rows>,
    pub queue: mpsc::UnboundedReceiver<Op>,
    /// What the entries of a region may take in memory once they are written.
    pub room: u64,
    pub failure: Failure,
}

impl Writer {
    pub(crate) fn spawn(mut self) -> io::Result<JoinHandle<()>> {
        std::thread::Builder::new()
            .name("raft-log".to_string())
            .spawn(move || {
                let guard = Guard(self.failure.clone());
                while let Some(first) = self.queue.blocking_recv() {
                    self.write(first);
                }
                drop(guard);
            })
    }

    /// Writes this and all that is queued behind it.
    pub(crate) fn write(&mut self, first: Op) {
        let mut ops = vec![first];
        while let Ok(op) = self.queue.try_recv() {
            ops.push(op);
        }
        let mut changes = Vec::with_capacity(ops.len());
        let mut sync = false;
        for op in &mut ops {
            match &mut op.work {
                Work::Append(entries, _) => {
                    sync = true;
                    changes.extend(entries.iter().map(|kept| put(op.region, kept)));
                }
                Work::Synced(own, _) => {
                    sync = true;
                    changes.append(own);
                }
                Work::Unsynced(own) => changes.append(own),
            }
            let committed = op.state.lock().committed_news();
            changes.extend(committed.map(|committed| put_committed(op.region, committed)));
        }
        let result = self.rows.write(changes, sync);
        if let Err(error) = &result {
            (self.failure)(&format!("the log cannot be written: {error}"));
        }
        for op in ops {
            let result = match &result {
                Ok(()) => Ok(()),
                Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
            };
            match op.work {
                Work::Append(_, flushed) => {
                    op.state.lock().written(op.number, self.room);
                    flushed.io_completed(result);
                }
                Work::Synced(_, told) => drop(told.send(result)),
                Work::Unsynced(_) => {}
            }
        }
    }
}

fn put(region: u64, kept: &Kept) -> Change {
    let mut value = Vec::with_capacity(size(&kept.entry) as usize);
    Entry {
        term: kept.entry.log_id.leader_id.term,
        bytes: kept.bytes,
        body: body(&kept.entry),
    }
    .encode(&mut value);
    let index = kept.entry.log_id.index;
    Change::Put(Key::Entry { region, index }, value)
}

fn put_committed(region: u64, committed: Option<LogId>) -> Change {
    let key = Key::Committed { region };
    match committed {
        Some(id) => {
            let mut value = Vec::new();
            id.encode(&mut value);
            Change::Put(key, value)
        }
        None => Change::Delete(key),
    }
}

/// A writer that is gone would let everybody wait for ever.
struct Guard(Failure);

impl Drop for Guard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            (self.0)("the log's thread has panicked");
        }
    }
}
