//! The Raft logs of all regions of a node: one database, one writer, one sync for all that waits.
//!
//! An append is in memory at once, where it can be read, and in the queue of the writer (`writer`), which tells
//! openraft when it is on the disk. Votes go the same way, and whoever casts one waits. What is written comes in the
//! order in which it was queued, all of one turn of the writer or nothing of it. So a crash at any moment
//! leaves every log as it was after some write, and holding all that anybody was told is durable.
//!
//! `rows` are the rows, `region` is what is known of a log without asking them, and `storage` is what
//! openraft sees.

mod region;
mod rows;
mod storage;
mod writer;

#[cfg(test)]
mod suite;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use bytes::Bytes;
use cairn_encoding::raft::{Entry, Key, LogId, Purged, Replica, Vote};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use self::region::Region;
pub(crate) use self::rows::{Change, Rows};
pub(crate) use self::storage::RegionLog;
pub(crate) use self::writer::{Op, Work, Writer};
use crate::config::Config;
use crate::tcp::Run;

/// The logs of a node. Clones are handles of the same.
#[derive(Clone)]
pub struct Log {
    inner: Arc<Inner>,
}

struct Inner {
    rows: Arc<dyn Rows>,
    /// None once it closes.
    queue: Option<mpsc::UnboundedSender<Op>>,
    writes: AtomicU64,
    replicas: Mutex<BTreeMap<u64, Replica>>,
    writer: Option<JoinHandle<()>>,
}

/// The writer may hold the last write. Whoever drops the last handle waits for it.
impl Drop for Inner {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(writer) = self.writer.take() {
            // It has told why it failed.
            drop(writer.join());
        }
    }
}

impl Log {
    pub fn open(path: &Path, config: &Config) -> io::Result<Log> {
        let rows: Arc<dyn Rows> = Arc::new(rows::RocksRows::open(path)?);
        let (queue, receiver) = mpsc::unbounded_channel();
        let writer = Log::writer(rows.clone(), receiver, config).spawn()?;
        Log::new(rows, queue, Some(writer))
    }

    pub(crate) fn writer(
        rows: Arc<dyn Rows>,
        queue: mpsc::UnboundedReceiver<Op>,
        config: &Config,
    ) -> Writer {
        Writer {
            rows,
            queue,
            room: config.cached_bytes as u64,
            failure: config.failure.clone(),
        }
    }

    pub(crate) fn new(
        rows: Arc<dyn Rows>,
        queue: mpsc::UnboundedSender<Op>,
        writer: Option<JoinHandle<()>>,
    ) -> io::Result<Log> {
        let replicas = rows.replicas()?.into_iter().collect();
        Ok(Log {
            inner: Arc::new(Inner {
                rows,
                queue: Some(queue),
                writes: AtomicU64::new(0),
                replicas: Mutex::new(replicas),
                writer,
            }),
        })
    }

    /// The regions of which this node has a replica, each with the replica's number.
    pub fn replicas(&self) -> Vec<(u64, u64)> {
        self.inner
            .replicas
            .lock()
            .iter()
            .filter(|(_, replica)| !replica.removed)
            .map(|(region, replica)| (*region, replica.replica))
            .collect()
    }

    /// How often the directory of the node was started, as far as these logs know.
    pub fn starts(&self) -> io::Result<u64> {
        let row = self.inner.rows.get(Key::Starts)?;
        let count = row.map(|row| <[u8; 8]>::try_from(&row[..]).map(u64::from_be_bytes));
        count
            .transpose()
            .map_err(io::Error::other)
            .map(|count| count.unwrap_or(0))
    }

    /// Sets that, for good.
    pub async fn note_starts(&self, starts: u64) -> io::Result<()> {
        let row = Change::Put(Key::Starts, starts.to_be_bytes().to_vec());
        self.synced(0, &Arc::default(), vec![row]).await
    }

    /// The last process of another node that was met.
    pub(crate) fn peer(&self, node: u64) -> io::Result<Option<Run>> {
        let row = self.inner.rows.get(Key::Peer { node })?;
        let damaged = || io::Error::other("what is remembered of another node cannot be read");
        row.map(|row| run(&row).ok_or_else(damaged)).transpose()
    }

    /// Sets that, for good.
    pub(crate) async fn note_peer(&self, node: u64, run: Run) -> io::Result<()> {
        let row = [run.starts.to_be_bytes(), run.number.to_be_bytes()].concat();
        let row = Change::Put(Key::Peer { node }, row);
        self.synced(0, &Arc::default(), vec![row]).await
    }

    /// The last term in which a replica has voted, or heard of a leader.
    pub fn term(&self, region: u64) -> io::Result<u64> {
        let vote = decoded(self.inner.rows.get(Key::Vote { region })?, Vote::decode)?;
        Ok(vote.map_or(0, |vote| vote.term))
    }

    /// Whether there is, or was, a replica of a region.
    pub fn knows(&self, region: u64) -> bool {
        self.inner.replicas.lock().contains_key(&region)
    }

    /// Whether a replica was here and is not any more. Nothing of it is left but its number, which is never used again.
    pub fn is_removed(&self, region: u64, replica: u64) -> bool {
        let replicas = self.inner.replicas.lock();
        let known = replicas.get(&region);
        known.is_some_and(|known| known.removed && replica <= known.replica)
    }

    /// Whether there was a replica of a region that is gone.
    pub(crate) fn had_another(&self, region: u64) -> bool {
        let replicas = self.inner.replicas.lock();
        replicas.get(&region).is_some_and(|known| known.removed)
    }

    /// The log of a replica, which is made if there is none. A number that was used before is refused: numbers rise.
    pub(crate) async fn region(&self, region: u64, replica: u64) -> io::Result<RegionLog> {
        let known = self.inner.replicas.lock().get(&region).copied();
        match known {
            Some(known) if !known.removed && known.replica == replica => {}
            Some(known) if !known.removed => {
                return Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    format!("region {region} has replica {} here", known.replica),
                ));
            }
            Some(known) if known.replica >= replica => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("replica {replica} of region {region} is not new"),
                ));
            }
            _ => {
                let made = Replica {
                    replica,
                    removed: false,
                };
                self.save_replica(region, made, Vec::new()).await?;
            }
        }
        let state = Arc::new(Mutex::new(self.load(region)?));
        Ok(RegionLog::new(self.clone(), region, state))
    }

    /// Drops all that is known of a replica, but for its number. It must not be running.
    pub async fn destroy(&self, region: u64) -> io::Result<()> {
        let Some(known) = self.inner.replicas.lock().get(&region).copied() else {
            return Ok(());
        };
        let removed = Replica {
            removed: true,
            ..known
        };
        let changes = vec![
            Change::DeleteEntries {
                region,
                from: 0,
                to: u64::MAX,
            },
            Change::Delete(Key::Vote { region }),
            Change::Delete(Key::Committed { region }),
            Change::Delete(Key::Purged { region }),
        ];
        self.save_replica(region, removed, changes).await
    }

    async fn save_replica(
        &self,
        region: u64,
        replica: Replica,
        mut changes: Vec<Change>,
    ) -> io::Result<()> {
        let mut value = Vec::new();
        replica.encode(&mut value);
        changes.push(Change::Put(Key::Replica { region }, value));
        self.synced(region, &Arc::default(), changes).await?;
        self.inner.replicas.lock().insert(region, replica);
        Ok(())
    }

    fn load(&self, region: u64) -> io::Result<Region> {
        let get = |key| self.inner.rows.get(key);
        let vote = decoded(get(Key::Vote { region })?, Vote::decode)?;
        let committed = decoded(get(Key::Committed { region })?, LogId::decode)?;
        let purged = decoded(get(Key::Purged { region })?, Purged::decode)?;
        let first = self.inner.rows.entries(region, 0, u64::MAX, 0)?;
        let first = match (first.first().map(|(index, _)| *index), purged) {
            (Some(first), Some(purged)) if first != purged.id.index + 1 => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!(
                        "the log of region {region} begins with entry {first}, but was purged up to {}",
                        purged.id.index
                    ),
                ));
            }
            (Some(first), _) => first,
            (None, Some(purged)) => purged.id.index + 1,
            (None, None) => 0,
        };
        let last = match self.inner.rows.last_entry(region)? {
            None => None,
            Some((index, value)) => {
                let entry = Entry::decode(&value).map_err(io::Error::other)?;
                Some(Purged {
                    id: LogId {
                        term: entry.term,
                        index,
                    },
                    bytes: entry.bytes,
                })
            }
        };
        Ok(Region::new(vote, committed, purged, first, last))
    }

    /// Entries on the disk, without a gap between them.
    fn read(
        &self,
        region: u64,
        from: u64,
        to: u64,
        enough: usize,
    ) -> io::Result<Vec<(LogId, Bytes)>> {
        let rows = self.inner.rows.entries(region, from, to, enough)?;
        let mut entries: Vec<(LogId, Bytes)> = Vec::with_capacity(rows.len());
        for (index, value) in rows {
            if let Some((before, _)) = entries.last()
                && index != before.index + 1
            {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("a gap before entry {index} in the log of region {region}"),
                ));
            }
            let term = Entry::decode(&value).map_err(io::Error::other)?.term;
            entries.push((LogId { term, index }, Bytes::from(value)));
        }
        Ok(entries)
    }

    fn next_write(&self) -> u64 {
        self.inner.writes.fetch_add(1, Ordering::Relaxed)
    }

    /// Queues a write. Those of one region come in order, because the caller holds its state, or is the only one.
    fn queue(&self, op: Op) -> io::Result<()> {
        let queue = self.inner.queue.as_ref();
        queue
            .and_then(|queue| queue.send(op).ok())
            .ok_or_else(|| io::Error::other("the log is closed"))
    }

    /// Queues a write that has to be on the disk, at once; whoever awaits the rest knows that it is.
    fn synced(
        &self,
        region: u64,
        state: &Arc<Mutex<Region>>,
        changes: Vec<Change>,
    ) -> impl Future<Output = io::Result<()>> + use<> {
        let (told, done) = oneshot::channel();
        let queued = self.queue(Op {
            region,
            state: state.clone(),
            number: self.next_write(),
            work: Work::Synced(changes, told),
        });
        async move {
            queued?;
            done.await
                .map_err(|_| io::Error::other("the log is closed"))?
        }
    }
}

fn run(row: &[u8]) -> Option<Run> {
    let (starts, rest) = row.split_first_chunk()?;
    Some(Run {
        starts: u64::from_be_bytes(*starts),
        number: u64::from_be_bytes(rest.try_into().ok()?),
    })
}

fn decoded<T>(
    row: Option<Vec<u8>>,
    decode: impl FnOnce(&[u8]) -> Result<T, cairn_encoding::DecodeError>,
) -> io::Result<Option<T>> {
    row.map(|row| decode(&row).map_err(io::Error::other))
        .transpose()
}
