//! The state machines of a node's regions: what their logs commit goes into the engine.
//!
//! To apply is done where it is asked for, since it takes no longer than to change memory. Whatever waits for the disk is done
//! on a thread that may.

use std::any::Any;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cairn_cluster::{ClusterMap, MAP_REGION};
use cairn_engine::{Batch, EngineError, Incoming, Maxima, Regions, Snapshot};
use cairn_raft::{Applied, Content, Entry, Later, Machine, SnapshotReader, SnapshotWriter};

/// The answer to a batch that has changed nothing: it was evaluated when the region was another.
pub const WRONG_EPOCH: &[u8] = &[1];
/// To every other one.
const DONE: &[u8] = &[];

/// What the log of the map's region holds: rows, as any region's, or a change of the map.
const ROWS: u8 = 0;
const CHANGE: u8 = 1;

/// A change of the map, as it stands in the log.
pub fn change_entry(change: &[u8]) -> Bytes {
    [&[CHANGE], change].concat().into()
}

/// Batches, as they stand in the log of a region: as one.
pub fn rows_entry<'b>(
    region: u64,
    batches: impl Iterator<Item = &'b Batch> + Clone,
    maxima: Maxima,
) -> Bytes {
    let rows = Batch::encode_all(batches, maxima);
    match region {
        MAP_REGION => [&[ROWS], &rows[..]].concat().into(),
        _ => rows.into(),
    }
}

/// Who has to know what becomes of a region before anybody can see it.
pub trait Attendant: Send + Sync {
    /// Something that was proposed in this term is about to be applied.
    fn note_term(&self, region: u64, term: u64);

    /// Slots have changed hands: a region was split.
    fn recut(&self);

    /// A region is about to be replaced or removed, and must not be read until it is back.
    fn take_away(&self, region: u64);

    /// It is there, if it is.
    fn bring_back(&self, region: u64);

    fn learn(&self, map: ClusterMap);
}

/// Nobody reads what is only replicated.
struct Unattended;

impl Attendant for Unattended {
    fn note_term(&self, _: u64, _: u64) {}
    fn recut(&self) {}
    fn take_away(&self, _: u64) {}
    fn bring_back(&self, _: u64) {}
    fn learn(&self, _: ClusterMap) {}
}

/// How long to wait before it is tried again to move something to a disk that is full.
const DISK_FULL: Duration = Duration::from_millis(500);

pub struct RegionMachine {
    regions: Arc<Regions>,
    attendant: Arc<dyn Attendant>,
}

impl RegionMachine {
    pub fn new(regions: Arc<Regions>) -> Self {
        Self::attended(regions, Arc::new(Unattended))
    }

    pub fn attended(regions: Arc<Regions>, attendant: Arc<dyn Attendant>) -> Self {
        RegionMachine { regions, attendant }
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
        if let Some(last) = entries.last() {
            self.attendant.note_term(region, last.id.term);
        }
        let mut applying = Applying {
            region,
            epoch: descriptor.epoch,
            map: None,
            maxima: Maxima::default(),
            batches: Vec::new(),
        };
        let mut answers = Vec::with_capacity(entries.len());
        for entry in entries {
            answers.push(match entry.content {
                Content::Batch {
                    timestamp_ms,
                    epoch,
                    payload,
                } => {
                    let maxima = &mut applying.maxima;
                    maxima.timestamp_ms = maxima.timestamp_ms.max(timestamp_ms);
                    applying.batch(&self.regions, epoch, &payload)?
                }
                Content::Blank | Content::Membership(_) => Bytes::from_static(DONE),
            });
        }
        let is_recut = applying.epoch != descriptor.epoch;
        let map = applying.map;
        if let Some(map) = &map {
            let row = Regions::map_batch(MAP_REGION, &map.encode());
            applying.batches.push(row);
        }
        self.regions
            .apply(region, applying.batches, applied, applying.maxima)?;
        if is_recut {
            self.attendant.recut();
        }
        if let Some(map) = map {
            self.attendant.learn(map);
        }
        Ok(answers)
    }
}

/// What entries come to.
struct Applying {
    region: u64,
    epoch: u64,
    /// The map, if it is changed.
    map: Option<ClusterMap>,
    maxima: Maxima,
    batches: Vec<Batch>,
}

impl Applying {
    fn batch(
        &mut self,
        regions: &Regions,
        evaluated_in: u64,
        payload: &[u8],
    ) -> Result<Bytes, EngineError> {
        if evaluated_in != self.epoch {
            return Ok(Bytes::from_static(WRONG_EPOCH));
        }
        let rows = match (self.region, payload) {
            (MAP_REGION, [CHANGE, change @ ..]) => return self.change(regions, change),
            (MAP_REGION, [ROWS, rows @ ..]) => rows,
            (MAP_REGION, _) => return Err(EngineError::Corrupt("an entry of the map".into())),
            (_, rows) => rows,
        };
        let (batch, maxima) = Batch::decode(rows)?;
        self.maxima.version = self.maxima.version.max(maxima.version);
        self.maxima.timestamp_ms = self.maxima.timestamp_ms.max(maxima.timestamp_ms);
        // The next one has to know of it.
        if let Some(descriptor) = batch.descriptor(self.region)? {
            self.epoch = descriptor.epoch;
        }
        self.batches.push(batch);
        Ok(Bytes::from_static(DONE))
    }

    /// The answer says what came of it. A change that cannot be read must not be passed over.
    fn change(&mut self, regions: &Regions, change: &[u8]) -> Result<Bytes, EngineError> {
        let map = match &mut self.map {
            Some(map) => map,
            none => none.insert(stored_map(regions)?.unwrap_or_default()),
        };
        let answer = map.apply_entry(change);
        let answer = answer.map_err(|error| EngineError::Corrupt(error.to_string()))?;
        Ok(answer.into())
    }
}

/// The map as the log of its region has it here, if there is a replica of that.
pub fn stored_map(regions: &Regions) -> Result<Option<ClusterMap>, EngineError> {
    let Some(bytes) = regions.map(MAP_REGION)? else {
        return Ok(None);
    };
    let map = ClusterMap::decode(&bytes);
    map.map(Some)
        .map_err(|error| EngineError::Corrupt(error.to_string()))
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

    fn sync_stored(&self) -> Later<'_, io::Result<()>> {
        let regions = self.regions.clone();
        Box::pin(on_a_thread(move || regions.sync_stored()))
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
        let (regions, attendant) = (self.regions.clone(), self.attendant.clone());
        Box::pin(on_a_thread(move || {
            attendant.take_away(region);
            regions.remove(region)?;
            attendant.bring_back(region);
            Ok(())
        }))
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
        region: u64,
        applied: &'a Applied,
        received: Box<dyn SnapshotWriter>,
    ) -> Later<'a, io::Result<()>> {
        let (regions, applied) = (self.regions.clone(), applied.clone());
        let attendant = self.attendant.clone();
        let received: Box<dyn Any> = received;
        let incoming = received.downcast::<Writer>().ok();
        let incoming = incoming.and_then(|writer| writer.0);
        Box::pin(async move {
            let incoming = incoming
                .ok_or_else(|| io::Error::other("a snapshot that was not received here"))?;
            on_a_thread(move || {
                attendant.take_away(region);
                // If it fails, what there is of the region is neither the old nor the new: it stays away.
                regions.install(&applied, incoming)?;
                attendant.bring_back(region);
                tracing::info!("region {region}: a snapshot was put in place");
                if let (MAP_REGION, Some(map)) = (region, stored_map(&regions)?) {
                    attendant.learn(map);
                }
                Ok(())
            })
            .await
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
