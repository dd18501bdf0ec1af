//! A region's state machine, as openraft wants to see it.
//!
//! openraft purges a log only as far as it has a snapshot. Here a snapshot costs nothing: the state machine is
//! durable by itself, so its place is a snapshot, and the bytes are read when a member needs them. What is really
//! purged is decided in `purge`.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cairn_encoding::raft::{Applied, LogId};
use openraft::storage::{ApplyResponder, EntryResponder, RaftStateMachine, Snapshot};
use openraft::{EntryPayload, OptionalSend, RaftSnapshotBuilder};

use crate::config::Failure;
use crate::consensus::{
    RaftEntry, RaftLogId, RaftSnapshotMeta, RaftStoredMembership, Types, log_id, membership,
    raft_log_id, raft_membership, size,
};
use crate::lease::Places;
use crate::machine::{Content, Entry, Machine, SnapshotReader, SnapshotWriter};

/// The bytes of a snapshot, on their way out or in.
pub(crate) enum SnapshotData {
    /// Nobody asked for them.
    Virtual,
    Read {
        applied: Applied,
        reader: Box<dyn SnapshotReader>,
    },
    Received {
        applied: Applied,
        writer: Box<dyn SnapshotWriter>,
    },
}

pub(crate) struct StateMachine {
    region: u64,
    machine: Arc<dyn Machine>,
    applied: Applied,
    /// The most payload that is applied at once.
    enough: u64,
    failure: Failure,
    /// Whether the group runs. Before, openraft asks for a snapshot only to know that there is one.
    running: Arc<AtomicBool>,
    places: Arc<Places>,
}

impl StateMachine {
    pub(crate) fn open(
        region: u64,
        machine: Arc<dyn Machine>,
        enough: u64,
        failure: Failure,
        running: Arc<AtomicBool>,
        places: Arc<Places>,
    ) -> io::Result<StateMachine> {
        let applied = machine.applied(region)?;
        applied.last.inspect(|last| places.note_applied(last.index));
        Ok(StateMachine {
            region,
            machine,
            applied,
            enough,
            failure,
            running,
            places,
        })
    }

    fn failed(&self, what: &str, error: io::Error) -> io::Error {
        (self.failure)(&format!("region {}: {what}: {error}", self.region));
        error
    }

    /// Turns an entry into what the machine is given, and moves the place behind it.
    fn next(&mut self, entry: RaftEntry) -> Entry {
        let id = log_id(&entry.log_id);
        self.applied.last = Some(id);
        let content = match entry.payload {
            EntryPayload::Blank => Content::Blank,
            EntryPayload::Normal(batch) => {
                // Leaders' clocks differ. All replicas see the same entries, so all come to the same result.
                let timestamp_ms = batch.timestamp_ms.max(self.applied.timestamp_ms);
                self.applied.timestamp_ms = timestamp_ms;
                Content::Batch {
                    timestamp_ms,
                    epoch: batch.epoch,
                    payload: batch.payload,
                }
            }
            EntryPayload::Membership(raft) => {
                self.applied.membership_at = Some(id);
                self.applied.membership = membership(&raft);
                Content::Membership(self.applied.membership.clone())
            }
        };
        Entry { id, content }
    }

    async fn apply_all(
        &mut self,
        entries: Vec<Entry>,
        waiting: Vec<Option<ApplyResponder<Types>>>,
    ) -> io::Result<()> {
        let count = entries.len();
        let applied = self
            .machine
            .apply(self.region, entries, &self.applied)
            .await
            .and_then(|answers| match answers.len() == count {
                true => Ok(answers),
                false => Err(io::Error::other("one answer per entry is expected")),
            });
        let answers = applied.map_err(|error| self.failed("cannot apply", error))?;
        // Before anybody learns that it is.
        self.applied
            .last
            .inspect(|last| self.places.note_applied(last.index));
        for (waiting, answer) in waiting.into_iter().zip(answers) {
            if let Some(waiting) = waiting {
                waiting.send(answer);
            }
        }
        Ok(())
    }
}

pub(crate) fn snapshot_meta(applied: &Applied) -> io::Result<RaftSnapshotMeta> {
    Ok(RaftSnapshotMeta {
        last_log_id: applied.last.map(raft_log_id),
        last_membership: stored_membership(applied)?,
    })
}

fn stored_membership(applied: &Applied) -> io::Result<RaftStoredMembership> {
    let membership = raft_membership(&applied.membership)?;
    Ok(RaftStoredMembership::new(
        applied.membership_at.map(raft_log_id),
        membership,
    ))
}

impl RaftStateMachine<Types> for StateMachine {
    type SnapshotData = SnapshotData;
    type SnapshotBuilder = Place;

    async fn applied_state(&mut self) -> io::Result<(Option<RaftLogId>, RaftStoredMembership)> {
        let last: Option<LogId> = self.applied.last;
        Ok((last.map(raft_log_id), stored_membership(&self.applied)?))
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: openraft_stream::Stream<Item = io::Result<EntryResponder<Types>>> + Unpin + OptionalSend,
    {
        let mut gathered = Vec::new();
        let mut waiting = Vec::new();
        let mut bytes = 0;
        while let Some(next) = openraft_stream::next(&mut entries).await {
            let (entry, responder) = next?;
            bytes += size(&entry);
            gathered.push(self.next(entry));
            waiting.push(responder);
            if bytes >= self.enough {
                self.apply_all(std::mem::take(&mut gathered), std::mem::take(&mut waiting))
                    .await?;
                bytes = 0;
            }
        }
        if gathered.is_empty() {
            return Ok(());
        }
        self.apply_all(gathered, waiting).await
    }

    async fn get_snapshot_builder(&mut self) -> Place {
        Place(self.applied.clone())
    }

    async fn install_snapshot(
        &mut self,
        meta: &RaftSnapshotMeta,
        snapshot: SnapshotData,
    ) -> io::Result<()> {
        let SnapshotData::Received { applied, writer } = snapshot else {
            let error = io::Error::other("a snapshot that was not received");
            return Err(self.failed("cannot install", error));
        };
        debug_assert_eq!(meta.last_log_id.as_ref().map(log_id), applied.last);
        self.machine
            .install(self.region, &applied, writer)
            .await
            .map_err(|error| self.failed("cannot install a snapshot", error))?;
        applied
            .last
            .inspect(|last| self.places.note_applied(last.index));
        self.applied = applied;
        Ok(())
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> io::Result<Option<openraft::alias::SnapshotOf<Types, SnapshotData>>> {
        if !self.running.load(Ordering::Acquire) || self.applied.last.is_none() {
            return Ok(None);
        }
        let reader = self
            .machine
            .snapshot(self.region)
            .await
            .map_err(|error| self.failed("cannot read a snapshot", error))?;
        Ok(Some(Snapshot {
            meta: snapshot_meta(&self.applied)?,
            snapshot: SnapshotData::Read {
                applied: self.applied.clone(),
                reader,
            },
        }))
    }
}

/// A snapshot that is nothing but a place.
pub(crate) struct Place(Applied);

impl RaftSnapshotBuilder<Types> for Place {
    type SnapshotData = SnapshotData;

    async fn build_snapshot(
        &mut self,
    ) -> io::Result<openraft::alias::SnapshotOf<Types, SnapshotData>> {
        Ok(Snapshot {
            meta: snapshot_meta(&self.0)?,
            snapshot: SnapshotData::Virtual,
        })
    }
}

/// What openraft hands entries over in.
mod openraft_stream {
    use std::future::poll_fn;
    use std::pin::Pin;

    pub(crate) use futures_core::Stream;

    pub(crate) async fn next<S: Stream + Unpin>(stream: &mut S) -> Option<S::Item> {
        poll_fn(|context| Pin::new(&mut *stream).poll_next(context)).await
    }
}
