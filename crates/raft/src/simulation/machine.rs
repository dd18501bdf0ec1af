//! A state machine that remembers everything that was ever applied to it, and what of it a power cut would leave.

use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use cairn_encoding::raft::{Applied, Body, Entry as Row, LogId};
use parking_lot::Mutex;

use crate::machine::{Content, Entry, Machine, SnapshotReader, SnapshotWriter};
use crate::runtime::{Later, sleep};
use crate::simulation::runtime;

/// A batch that begins with this raises the region's epoch.
pub(crate) const RAISES_EPOCH: &[u8] = b"epoch";
pub(crate) const APPLIED: &[u8] = b"applied";
pub(crate) const WRONG_EPOCH: &[u8] = b"wrong epoch";

#[derive(Clone, Default)]
pub(crate) struct State {
    pub applied: Applied,
    pub epoch: u64,
    /// Every entry that was applied, from the first.
    pub history: Vec<Entry>,
}

#[derive(Default)]
pub(crate) struct Disk {
    current: BTreeMap<u64, State>,
    durable: BTreeMap<u64, State>,
    pub installed: u64,
}

impl Disk {
    /// What a power cut leaves.
    pub(crate) fn cut_power(&mut self) {
        self.current = self.durable.clone();
    }
}

#[derive(Clone, Default)]
pub(crate) struct Memory {
    pub disk: Arc<Mutex<Disk>>,
    /// Whether what it does takes time.
    pub slow: bool,
    /// openraft's own tests leave entries out.
    pub lenient: bool,
}

impl Memory {
    pub(crate) fn state(&self, region: u64) -> State {
        let disk = self.disk.lock();
        disk.current.get(&region).cloned().unwrap_or_default()
    }

    async fn pause(&self) {
        if self.slow {
            sleep(std::time::Duration::from_micros(runtime::random(0..3000))).await;
        }
    }
}

impl State {
    fn apply(&mut self, entry: Entry, lenient: bool) -> Bytes {
        let expected = self.applied.last.map_or(0, |last| last.index + 1);
        assert!(
            lenient || entry.id.index == expected,
            "applied twice, or skipped"
        );
        assert!(
            self.applied
                .last
                .is_none_or(|last| last.term <= entry.id.term)
        );
        self.applied.last = Some(entry.id);
        let answer = match &entry.content {
            Content::Batch {
                timestamp_ms,
                epoch,
                payload,
            } => {
                assert!(
                    *timestamp_ms >= self.applied.timestamp_ms,
                    "a timestamp fell"
                );
                self.applied.timestamp_ms = *timestamp_ms;
                if *epoch != self.epoch {
                    WRONG_EPOCH
                } else {
                    self.epoch += u64::from(payload.starts_with(RAISES_EPOCH));
                    APPLIED
                }
            }
            Content::Membership(membership) => {
                self.applied.membership_at = Some(entry.id);
                self.applied.membership = membership.clone();
                APPLIED
            }
            Content::Blank => APPLIED,
        };
        self.history.push(entry);
        Bytes::from_static(answer)
    }
}

impl Machine for Memory {
    fn applied(&self, region: u64) -> io::Result<Applied> {
        Ok(self.state(region).applied)
    }

    fn apply<'a>(
        &'a self,
        region: u64,
        entries: Vec<Entry>,
        applied: &'a Applied,
    ) -> Later<'a, io::Result<Vec<Bytes>>> {
        Box::pin(async move {
            self.pause().await;
            let mut disk = self.disk.lock();
            let state = disk.current.entry(region).or_default();
            let answers = entries
                .into_iter()
                .map(|entry| state.apply(entry, self.lenient))
                .collect();
            assert_eq!(&state.applied, applied);
            Ok(answers)
        })
    }

    fn durable(&self, region: u64) -> Option<u64> {
        let disk = self.disk.lock();
        let applied = &disk.durable.get(&region)?.applied;
        applied.last.map(|last| last.index)
    }

    fn sync(&self) -> Later<'_, io::Result<()>> {
        Box::pin(async move {
            self.pause().await;
            let mut disk = self.disk.lock();
            disk.durable = disk.current.clone();
            Ok(())
        })
    }

    fn snapshot(&self, region: u64) -> Later<'_, io::Result<Box<dyn SnapshotReader>>> {
        Box::pin(async move {
            let entries = self.state(region).history;
            let reader: Box<dyn SnapshotReader> = Box::new(Reader { entries, next: 0 });
            Ok(reader)
        })
    }

    fn remove(&self, region: u64) -> Later<'_, io::Result<()>> {
        Box::pin(async move {
            let mut disk = self.disk.lock();
            disk.current.remove(&region);
            disk.durable.remove(&region);
            Ok(())
        })
    }

    fn receive(&self, _: u64) -> Later<'_, io::Result<Box<dyn SnapshotWriter>>> {
        Box::pin(async move {
            let writer: Box<dyn SnapshotWriter> = Box::new(Received::default());
            Ok(writer)
        })
    }

    fn install<'a>(
        &'a self,
        region: u64,
        applied: &'a Applied,
        received: Box<dyn SnapshotWriter>,
    ) -> Later<'a, io::Result<()>> {
        Box::pin(async move {
            self.pause().await;
            let received: Box<dyn Any> = received;
            let received = received.downcast::<Received>().expect("it made the writer");
            let mut state = State::default();
            for entry in received.0 {
                state.apply(entry, self.lenient);
            }
            assert_eq!(state.applied.last, applied.last, "a snapshot is complete");
            state.applied = applied.clone();
            let mut disk = self.disk.lock();
            disk.current.insert(region, state.clone());
            disk.durable.insert(region, state);
            disk.installed += 1;
            Ok(())
        })
    }
}

struct Reader {
    entries: Vec<Entry>,
    next: usize,
}

impl SnapshotReader for Reader {
    fn next(&mut self) -> Later<'_, io::Result<Option<Bytes>>> {
        Box::pin(async move {
            let Some(entry) = self.entries.get(self.next) else {
                return Ok(None);
            };
            self.next += 1;
            let body = match &entry.content {
                Content::Blank => Body::Blank,
                Content::Batch {
                    timestamp_ms,
                    epoch,
                    payload,
                } => Body::Batch {
                    timestamp_ms: *timestamp_ms,
                    epoch: *epoch,
                    payload,
                },
                Content::Membership(membership) => Body::Membership(membership.clone()),
            };
            let mut piece = Vec::new();
            Row {
                term: entry.id.term,
                bytes: entry.id.index,
                body,
            }
            .encode(&mut piece);
            Ok(Some(Bytes::from(piece)))
        })
    }
}

#[derive(Default)]
struct Received(Vec<Entry>);

impl SnapshotWriter for Received {
    fn write(&mut self, piece: Bytes) -> Later<'_, io::Result<()>> {
        Box::pin(async move {
            let row = Row::decode(&piece).map_err(io::Error::other)?;
            let content = match row.body {
                Body::Blank => Content::Blank,
                Body::Batch {
                    timestamp_ms,
                    epoch,
                    payload,
                } => Content::Batch {
                    timestamp_ms,
                    epoch,
                    payload: piece.slice_ref(payload),
                },
                Body::Membership(membership) => Content::Membership(membership),
            };
            self.0.push(Entry {
                id: LogId {
                    term: row.term,
                    index: row.bytes,
                },
                content,
            });
            Ok(())
        })
    }
}
