//! One region's log, as openraft wants to see it.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cairn_encoding::raft::{Entry, Key, LogId, Purged};
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::{OptionalSend, RaftLogReader};
use parking_lot::Mutex;

use super::region::Region;
use super::{Change, Log, Op, Work};
use crate::consensus::{
    RaftEntry, RaftLogId, RaftVote, Types, log_id, raft_entry, raft_log_id, raft_vote, vote,
};
use crate::lease::Places;
use crate::machine::Machine;
use crate::runtime::sleep;

/// How often it is looked whether a snapshot is installed.
const INSTALLING: Duration = Duration::from_millis(5);

#[derive(Clone)]
pub(crate) struct RegionLog {
    log: Log,
    region: u64,
    state: Arc<Mutex<Region>>,
    /// The most bytes that are read at once, where openraft takes as many as there are.
    enough: usize,
    /// To what the log is applied.
    machine: Option<Arc<dyn Machine>>,
    places: Arc<Places>,
}

impl RegionLog {
    pub(super) fn new(log: Log, region: u64, state: Arc<Mutex<Region>>) -> RegionLog {
        RegionLog {
            log,
            region,
            state,
            enough: usize::MAX,
            machine: None,
            places: Arc::default(),
        }
    }

    pub(crate) fn places(&self) -> &Arc<Places> {
        &self.places
    }

    pub(crate) fn bounded(mut self, enough: usize) -> RegionLog {
        self.enough = enough;
        self
    }

    pub(crate) fn applied_to(mut self, machine: Arc<dyn Machine>) -> RegionLog {
        self.machine = Some(machine);
        self
    }

    /// Waits until a power cut would not take the state machine back behind `index`.
    async fn durable(&self, index: u64) -> io::Result<()> {
        let Some(machine) = &self.machine else {
            return Ok(());
        };
        while machine.durable(self.region) < Some(index) {
            let applied = machine.applied(self.region)?.last;
            if applied.is_some_and(|applied| applied.index >= index) {
                machine.sync().await?;
            }
            // A snapshot is being installed, or has just been.
            if machine.durable(self.region) < Some(index) {
                sleep(INSTALLING).await;
            }
        }
        Ok(())
    }

    /// The bytes of the log that have not been purged.
    pub(crate) fn bytes(&self) -> u64 {
        self.state.lock().bytes()
    }

    /// The first entry that there is, and the one behind the last.
    pub(crate) fn indexes(&self) -> std::ops::Range<u64> {
        let state = self.state.lock();
        state.first_index()..state.next_index()
    }

    /// All payloads up to an entry, counted as the log counts them; none if there is no such entry.
    pub(crate) fn bytes_at(&self, index: u64) -> io::Result<Option<u64>> {
        let known = self.state.lock().bytes_at(index);
        match known {
            Some(bytes) => Ok(Some(bytes)),
            None => Ok(self.stored(index)?.map(|stored| stored.bytes)),
        }
    }

    /// The last entry before which, and with which, the log has no more than so many bytes.
    pub(crate) fn index_at(&self, bytes: u64) -> io::Result<Option<u64>> {
        let indexes = self.indexes();
        let before = match indexes.start.checked_sub(1) {
            Some(before) => self.bytes_at(before)?.unwrap_or(0),
            None => 0,
        };
        let (mut low, mut high) = (indexes.start, indexes.end);
        while low < high {
            let middle = low + (high - low) / 2;
            // One that was purged meanwhile is small enough.
            let up_to = self.bytes_at(middle)?.unwrap_or(0);
            match up_to.saturating_sub(before) <= bytes {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        Ok((low > indexes.start).then(|| low - 1))
    }

    /// Whether this replica has ever promised anything.
    pub(crate) fn has_voted(&self) -> bool {
        self.state.lock().vote.is_some()
    }

    /// What the row of an entry says about it.
    fn stored(&self, index: u64) -> io::Result<Option<Purged>> {
        let region = self.region;
        let row = self.log.inner.rows.get(Key::Entry { region, index })?;
        row.map(|row| {
            let entry = Entry::decode(&row).map_err(io::Error::other)?;
            Ok(Purged {
                id: LogId {
                    term: entry.term,
                    index,
                },
                bytes: entry.bytes,
            })
        })
        .transpose()
    }

    /// A place in the log with the bytes up to it. Of one that lies behind its end they are as many as it has now.
    fn place(&self, id: LogId) -> io::Result<Purged> {
        let bytes = match self.bytes_at(id.index)? {
            Some(bytes) => bytes,
            None => {
                let state = self.state.lock();
                let last = state.last().and_then(|last| state.bytes_at(last.index));
                last.unwrap_or(0)
            }
        };
        Ok(Purged { id, bytes })
    }

    fn read(&self, from: u64, to: u64, enough: usize) -> io::Result<Vec<RaftEntry>> {
        let (on_disk, kept) = self.state.lock().find(from, to, enough as u64);
        if on_disk.is_empty() {
            return Ok(kept);
        }
        let rows = self
            .log
            .read(self.region, on_disk.start, on_disk.end, enough)?;
        let complete = rows.len() as u64 == on_disk.end - on_disk.start;
        let starts = rows
            .first()
            .is_some_and(|(id, _)| id.index == on_disk.start);
        if !starts || (enough == usize::MAX && !complete) {
            // They may have been purged since it was asked where they are, and nothing else may be missing.
            let first = self.state.lock().first_index();
            if first <= on_disk.start {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("entries of region {} are missing from the log", self.region),
                ));
            }
            return self.read(first, to, enough);
        }
        let mut entries = Vec::with_capacity(rows.len());
        for (id, row) in rows {
            entries.push(entry(id, row)?);
        }
        if enough == usize::MAX {
            entries.extend(kept);
        }
        Ok(entries)
    }

    fn unsynced(&self, state: &Region, changes: Vec<Change>) -> io::Result<()> {
        let _held = state;
        self.log.queue(Op {
            region: self.region,
            state: self.state.clone(),
            number: self.log.next_write(),
            work: Work::Unsynced(changes),
        })
    }
}

fn entry(id: LogId, row: Bytes) -> io::Result<RaftEntry> {
    let decoded = Entry::decode(&row).map_err(io::Error::other)?;
    raft_entry(id, decoded.body, &row)
}

fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out);
    out
}

impl RaftLogReader<Types> for RegionLog {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> io::Result<Vec<RaftEntry>> {
        let from = match range.start_bound() {
            Bound::Included(index) => *index,
            Bound::Excluded(index) => index + 1,
            Bound::Unbounded => 0,
        };
        let to = match range.end_bound() {
            Bound::Included(index) => index + 1,
            Bound::Excluded(index) => *index,
            Bound::Unbounded => u64::MAX,
        };
        self.read(from, to, usize::MAX)
    }

    async fn read_vote(&mut self) -> io::Result<Option<RaftVote>> {
        Ok(self.state.lock().vote.map(raft_vote))
    }

    async fn limited_get_log_entries(&mut self, from: u64, to: u64) -> io::Result<Vec<RaftEntry>> {
        self.read(from, to, self.enough)
    }
}

impl RaftLogStorage<Types> for RegionLog {
    type LogReader = RegionLog;

    async fn get_log_state(&mut self) -> io::Result<LogState<Types>> {
        let state = self.state.lock();
        Ok(LogState {
            last_purged_log_id: state.purged().map(raft_log_id),
            last_log_id: state.last().map(raft_log_id),
        })
    }

    async fn get_log_reader(&mut self) -> RegionLog {
        self.clone()
    }

    /// The vote is on the disk before anybody learns of it, also before those who read it here.
    async fn save_vote(&mut self, new: &RaftVote) -> io::Result<()> {
        let new = vote(new);
        let region = self.region;
        let row = Change::Put(Key::Vote { region }, encoded(|out| new.encode(out)));
        self.log.synced(region, &self.state, vec![row]).await?;
        self.state.lock().vote = Some(new);
        Ok(())
    }

    /// It only says how far a restarted replica may apply before it has heard of a leader. So it goes to the disk with the next
    /// write of the region: to wake the writer for it would cost as much as to write entries does.
    async fn save_committed(&mut self, committed: Option<RaftLogId>) -> io::Result<()> {
        if let Some(committed) = &committed {
            self.places.note_committed(committed.index);
        }
        let committed = committed.as_ref().map(log_id);
        self.state.lock().note_committed(committed);
        Ok(())
    }

    async fn read_committed(&mut self) -> io::Result<Option<RaftLogId>> {
        Ok(self.state.lock().committed().map(raft_log_id))
    }

    async fn append<I>(&mut self, entries: I, flushed: IOFlushed<Types>) -> io::Result<()>
    where
        I: IntoIterator<Item = RaftEntry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut state = self.state.lock();
        let number = self.log.next_write();
        let appended = state.append(entries.into_iter(), number)?;
        self.log.queue(Op {
            region: self.region,
            state: self.state.clone(),
            number,
            work: Work::Append(appended, flushed),
        })
    }

    async fn truncate_after(&mut self, last: Option<RaftLogId>) -> io::Result<()> {
        let last = match last {
            None => None,
            Some(last) => Some(self.place(log_id(&last))?),
        };
        let truncated = {
            let mut state = self.state.lock();
            let change = Change::DeleteEntries {
                region: self.region,
                from: last.map_or(state.first_index(), |last| last.id.index + 1),
                to: state.next_index(),
            };
            state.truncate(last);
            // What takes the place of these entries may be applied before it is on the disk itself, and a state that a log
            // contradicts cannot be started again. A state that is ahead of its log can.
            self.log.synced(self.region, &self.state, vec![change])
        };
        truncated.await
    }

    /// openraft purges also when it has only begun to install a snapshot. A crash before that is done must find the log.
    async fn purge(&mut self, upto: RaftLogId) -> io::Result<()> {
        self.durable(upto.index).await?;
        let upto = self.place(log_id(&upto))?;
        let region = self.region;
        let mut state = self.state.lock();
        let changes = vec![
            Change::DeleteEntries {
                region,
                from: state.first_index(),
                to: upto.id.index + 1,
            },
            Change::Put(Key::Purged { region }, encoded(|out| upto.encode(out))),
        ];
        state.purge(upto);
        self.unsynced(&state, changes)
    }
}
