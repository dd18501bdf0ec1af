//! What is known of one region's log without asking the disk: where it begins and ends, and its latest entries.
//!
//! The *tail* is the end of the log in memory, without gaps. All that is not written yet is in it, so an entry can be
//! read as soon as it has been appended, and replication and apply seldom read from the disk.

use std::collections::VecDeque;
use std::io;

use cairn_encoding::raft::{LogId, Purged, Vote};

use crate::consensus::{RaftEntry, log_id, size};

/// An entry of the tail.
#[derive(Clone)]
pub(crate) struct Kept {
    pub entry: RaftEntry,
    /// All payloads of the log up to this one.
    pub bytes: u64,
    /// The write that takes it to the disk. An entry that took the place of another has a later one.
    write: u64,
}

#[derive(Default)]
pub(crate) struct Region {
    pub vote: Option<Vote>,
    committed: Option<LogId>,
    /// Whether the disk has another place for that.
    is_committed_news: bool,
    purged: Option<Purged>,
    /// The index of the first entry that there is, or that will come.
    first: u64,
    /// The last entry, or the last that was purged, and the bytes up to it.
    last: Option<Purged>,
    tail: VecDeque<Kept>,
    tail_bytes: u64,
}

impl Region {
    pub(crate) fn new(
        vote: Option<Vote>,
        committed: Option<LogId>,
        purged: Option<Purged>,
        first: u64,
        last: Option<Purged>,
    ) -> Region {
        Region {
            vote,
            committed,
            purged,
            first,
            last: last.or(purged),
            ..Region::default()
        }
    }

    pub(crate) fn purged(&self) -> Option<LogId> {
        self.purged.map(|purged| purged.id)
    }

    pub(crate) fn last(&self) -> Option<LogId> {
        self.last.map(|last| last.id)
    }

    pub(crate) fn committed(&self) -> Option<LogId> {
        self.committed
    }

    pub(crate) fn note_committed(&mut self, committed: Option<LogId>) {
        self.committed = committed;
        self.is_committed_news = true;
    }

    /// Up to where the log is committed, if that is to be written.
    pub(crate) fn committed_news(&mut self) -> Option<Option<LogId>> {
        std::mem::take(&mut self.is_committed_news).then_some(self.committed)
    }

    /// The bytes of the log that have not been purged.
    pub(crate) fn bytes(&self) -> u64 {
        let up_to = |place: Option<Purged>| place.map_or(0, |place| place.bytes);
        up_to(self.last).saturating_sub(up_to(self.purged))
    }

    pub(crate) fn first_index(&self) -> u64 {
        self.first
    }

    /// The index that the next append must have.
    pub(crate) fn next_index(&self) -> u64 {
        self.last.map_or(self.first, |last| last.id.index + 1)
    }

    /// The index of the first entry of the tail.
    fn tail_index(&self) -> u64 {
        self.next_index() - self.tail.len() as u64
    }

    /// Takes entries in, and returns them with what is to be written.
    pub(crate) fn append(
        &mut self,
        entries: impl Iterator<Item = RaftEntry>,
        write: u64,
    ) -> io::Result<Vec<Kept>> {
        let mut appended = Vec::new();
        for entry in entries {
            let id = log_id(&entry.log_id);
            if self.last.is_none() {
                self.first = id.index;
            }
            if id.index != self.next_index() {
                return Err(io::Error::other(format!(
                    "entry {} was appended where {} is next",
                    id.index,
                    self.next_index()
                )));
            }
            let bytes = self.last.map_or(0, |last| last.bytes) + size(&entry);
            let kept = Kept {
                entry,
                bytes,
                write,
            };
            self.last = Some(Purged { id, bytes });
            self.tail_bytes += size(&kept.entry);
            self.tail.push_back(kept.clone());
            appended.push(kept);
        }
        Ok(appended)
    }

    /// Forgets entries behind `last`. The caller has looked its bytes up.
    pub(crate) fn truncate(&mut self, last: Option<Purged>) {
        let next = last.map_or(self.first, |last| last.id.index + 1);
        if self.next_index() <= next {
            return;
        }
        while let Some(kept) = self
            .tail
            .pop_back_if(|kept| kept.entry.log_id.index >= next)
        {
            self.tail_bytes -= size(&kept.entry);
        }
        self.last = last;
    }

    /// Forgets entries up to `upto`. If the log ends before, it ends there afterwards.
    pub(crate) fn purge(&mut self, upto: Purged) {
        self.purged = Some(upto);
        self.first = upto.id.index + 1;
        while let Some(first) = self.tail.front() {
            if first.entry.log_id.index > upto.id.index {
                break;
            }
            self.tail_bytes -= size(&first.entry);
            self.tail.pop_front();
        }
        if self.next_index() <= self.first {
            self.last = Some(upto);
            self.tail.clear();
            self.tail_bytes = 0;
        }
    }

    /// Forgets the front of the tail, as far as it has been written and there is no room for it.
    pub(crate) fn written(&mut self, write: u64, room: u64) {
        while self.tail_bytes > room {
            match self.tail.front() {
                Some(first) if first.write <= write => {
                    self.tail_bytes -= size(&first.entry);
                    self.tail.pop_front();
                }
                _ => break,
            }
        }
    }

    /// The bytes up to an entry, if that is known without the disk.
    pub(crate) fn bytes_at(&self, index: u64) -> Option<u64> {
        let ends = [self.last, self.purged];
        if let Some(end) = ends.iter().flatten().find(|end| end.id.index == index) {
            return Some(end.bytes);
        }
        let at = index.checked_sub(self.tail_index())?;
        self.tail
            .get(usize::try_from(at).ok()?)
            .map(|kept| kept.bytes)
    }

    /// Where to find the entries from `from` up to and without `to`: first those that are on the disk alone, then these.
    pub(crate) fn find(
        &self,
        from: u64,
        to: u64,
        enough: u64,
    ) -> (std::ops::Range<u64>, Vec<RaftEntry>) {
        let from = from.max(self.first_index());
        let to = to.min(self.next_index());
        if from >= to {
            return (from..from, Vec::new());
        }
        let tail = self.tail_index();
        let on_disk = from..to.min(tail).max(from);
        let mut bytes = 0;
        let skipped = on_disk.end.max(tail) - tail;
        let kept = self
            .tail
            .iter()
            .skip(skipped as usize)
            .take((to - on_disk.end) as usize)
            .take_while(|kept| {
                let first = bytes == 0;
                bytes += size(&kept.entry);
                first || bytes <= enough
            })
            .map(|kept| kept.entry.clone())
            .collect();
        (on_disk, kept)
    }
}
