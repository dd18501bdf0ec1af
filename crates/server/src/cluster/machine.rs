//! The state machines of a node's regions: what their logs commit goes into the engine.
//!
//! To apply is done where it is asked for, since it takes no longer than to change memory. Whatever waits for the disk is done
//! on a thread that may.

use std::any::Any;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cairn_engine::{Batch, EngineError, Incoming, Maxima, Regions, Snapshot};
use cairn_raft::{Applied, Content, Entry, Later, Machine, SnapshotReader, SnapshotWriter};

/// The answer to a batch that has changed nothing: it was evaluated when the region was another.
pub const WRONG_EPOCH: &[u8] = &[1];
/// To every other one.
const DONE: &[u8] = &[];

/// How long to wait before it is tried again to move something to a disk that is full.
const DISK_FULL: Duration = Duration::from_millis(500);

pub struct RegionMachine {
    regions: Arc<Regions>,
}

impl RegionMachine {
    pub fn new(regions: Arc<Regions>) -> Self {
        RegionMachine { regions }
    }

    /// Waits until there is room for more. That the disk is full is no reason to give up a replica: it waits, and what is
    /// there can be read meanwhile.
    async fn make_room(&self) -> io::Result<()> {
        while !self.regions.has_room() {
            let regions = self.regions.clone();
            match on_a_thread(move || Ok(regions.make_room())).await? {
                Ok(()) => return Ok(()),
                Err(EngineError::DiskFull) => tokio::time::sleep(DISK_FULL).await,
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        Ok(())
    }

    fn apply_now(
        &self,
        region: u64,
        entries: Vec<Entry>,
        applied: &Applied,
    ) -> Result<Vec<Bytes>, EngineError> {
        let Some(descriptor) = self.regions.descriptor(region)? else {
            // It would have no slots, and filters would drop its rows. Whoever has nothing of a region is sent a snapshot.
            return Err(EngineError::Refused(format!(
                "the log of region {region} comes before its state"
            )));
        };
        let mut epoch = descriptor.epoch;
        let mut maxima = Maxima::default();
        let mut batches = Vec::new();
        let mut answers = Vec::with_capacity(entries.len());
        for entry in entries {
            let mut answer = DONE;
            if let Content::Batch {
                timestamp_ms,
                epoch: evaluated_in,
                payload,
            } = entry.content
            {
                maxima.timestamp_ms = maxima.timestamp_ms.max(timestamp_ms);
                if evaluated_in == epoch {
                    let (batch, its_maxima) = Batch::decode(&payload)?;
                    maxima.version = maxima.version.max(its_maxima.version);
                    maxima.timestamp_ms = maxima.timestamp_ms.max(its_maxima.timestamp_ms);
                    // The next one has to know of it.
                    if let Some(descriptor) = batch.descriptor(region)? {
                        epoch = descriptor.epoch;
                    }
                    batches.push(batch);
                } else {
                    answer = WRONG_EPOCH;
                }
            }
            answers.push(Bytes::from_static(answer));
        }
        self.regions.apply(region, batches, applied, maxima)?;
        Ok(answers)
    }
}

impl Machine for RegionMachine {
    fn applied(&self, region: u64) -> io::Result<Applied> {
        self.regions.applied(region).map_err(io::Error::other)
    }

    fn apply<'a>(
        &'a self,
        region: u64,
        entries: Vec<Entry>,
        applied: &'a Applied,
    ) -> Later<'a, io::Result<Vec<Bytes>>> {
        Box::pin(async move {
            self.make_room().await?;
            self.apply_now(region, entries, applied)
                .map_err(io::Error::other)
        })
    }

    fn durable(&self, region: u64) -> Option<u64> {
        self.regions.durable(region)
    }

    fn sync(&self) -> Later<'_, io::Result<()>> {
        let regions = self.regions.clone();
        Box::pin(on_a_thread(move || regions.sync()))
    }

    fn snapshot(&self, region: u64) -> Later<'_, io::Result<Box<dyn SnapshotReader>>> {
        let regions = self.regions.clone();
        Box::pin(async move {
            let snapshot = on_a_thread(move || regions.snapshot(region)).await?;
            Ok(Box::new(Reader(Some(snapshot))) as Box<dyn SnapshotReader>)
        })
    }

    fn remove(&self, region: u64) -> Later<'_, io::Result<()>> {
        let regions = self.regions.clone();
        Box::pin(on_a_thread(move || regions.remove(region)))
    }

    fn receive(&self, region: u64) -> Later<'_, io::Result<Box<dyn SnapshotWriter>>> {
        let regions = self.regions.clone();
        Box::pin(async move {
            let incoming = on_a_thread(move || regions.receive(region)).await?;
            Ok(Box::new(Writer(Some(incoming))) as Box<dyn SnapshotWriter>)
        })
    }

    fn install<'a>(
        &'a self,
        _: u64,
        applied: &'a Applied,
        received: Box<dyn SnapshotWriter>,
    ) -> Later<'a, io::Result<()>> {
        let (regions, applied) = (self.regions.clone(), applied.clone());
        let received: Box<dyn Any> = received;
        let incoming = received.downcast::<Writer>().ok();
        let incoming = incoming.and_then(|writer| writer.0);
        Box::pin(async move {
            let incoming = incoming
                .ok_or_else(|| io::Error::other("a snapshot that was not received here"))?;
            on_a_thread(move || regions.install(&applied, incoming)).await
        })
    }
}

/// Gone while a thread has it.
struct Reader(Option<Snapshot>);

impl SnapshotReader for Reader {
    fn next(&mut self) -> Later<'_, io::Result<Option<Bytes>>> {
        Box::pin(async {
            let mut snapshot = self.0.take().ok_or_else(interrupted)?;
            let (snapshot, piece) = on_a_thread(move || {
                let piece = snapshot.next_piece()?;
                Ok((snapshot, piece))
            })
            .await?;
            self.0 = Some(snapshot);
            Ok(piece.map(Bytes::from))
        })
    }
}

/// Gone while a thread has it.
struct Writer(Option<Incoming>);

impl SnapshotWriter for Writer {
    fn write(&mut self, piece: Bytes) -> Later<'_, io::Result<()>> {
        Box::pin(async move {
            let mut incoming = self.0.take().ok_or_else(interrupted)?;
            let incoming = on_a_thread(move || {
                incoming.write(&piece)?;
                Ok(incoming)
            })
            .await?;
            self.0 = Some(incoming);
            Ok(())
        })
    }
}

fn interrupted() -> io::Error {
    io::Error::other("the transfer of a snapshot was interrupted")
}

/// Does what may wait for the disk.
async fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, EngineError> + Send + 'static,
) -> io::Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(io::Error::other)?.map_err(io::Error::other)
}
