//! A snapshot that comes in: its pieces become tables in a directory beside RocksDB's files.
//!
//! ```text
//!   incoming/<region>/<family>-<number>.sst   rows, in order
//!                     installation            what else belongs to it: see the encoding of that name
//! ```
//!
//! The `installation` is written last. Without it, the rest is what an interrupted transfer has left.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cairn_encoding::changes;
use cairn_encoding::installation::{self, Installation};
use cairn_encoding::raft::Applied;
use cairn_encoding::system::{Descriptor, Slots, SystemKey, SystemKind};
use parking_lot::Mutex;
use rust_rocksdb::{Options, SstFileWriter};

use super::Regions;
use super::walk::slot_of;
use crate::batch::Batch;
use crate::engine::{Engine, cannot};
use crate::error::{EngineError, Result};
use crate::family::Family;
use crate::options;

const DIRECTORY: &str = "incoming";
const INSTALLATION: &str = "installation";
/// A table that has grown to this is followed by another.
const TABLE: u64 = 64 << 20;

/// Slots that are not free, although no descriptor says so: of snapshots that come in, and of regions that go.
#[derive(Clone, Default)]
pub(super) struct Taken(Arc<Mutex<Vec<(u64, Slots)>>>);

impl Taken {
    /// Takes slots for a region, whoever has them.
    pub(super) fn take(&self, region: u64, slots: Slots) -> Reservation {
        self.0.lock().push((region, slots));
        Reservation {
            taken: self.clone(),
            region,
        }
    }

    /// Takes slots that no other region has here.
    fn reserve(&self, engine: &Engine, region: u64, slots: Slots) -> Result<Reservation> {
        let mut taken = self.0.lock();
        // Read while nobody can let go of what he has taken. Once he does, the descriptor is there.
        let held = super::list(engine)?;
        let held = held.iter().map(|(other, held)| (*other, held.slots));
        let mut others = held.chain(taken.iter().copied());
        if let Some((other, _)) =
            others.find(|(other, others)| *other != region && others.overlaps(slots))
        {
            return Err(EngineError::SlotsTaken {
                region,
                slots,
                other,
            });
        }
        drop(others);
        taken.push((region, slots));
        Ok(Reservation {
            taken: self.clone(),
            region,
        })
    }
}

/// Slots that are taken for as long as it exists.
pub(super) struct Reservation {
    taken: Taken,
    region: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.taken
            .0
            .lock()
            .retain(|(region, _)| *region != self.region);
    }
}

pub(super) fn directory(database: &Path, region: u64) -> PathBuf {
    database.join(DIRECTORY).join(region.to_string())
}

pub struct Incoming {
    region: u64,
    directory: PathBuf,
    engine: Arc<Engine>,
    taken: Taken,
    /// Once its slots are known.
    reservation: Option<Reservation>,
    slots: Slots,
    /// The region's rows of the `meta` family.
    system: Batch,
    table: Option<Table>,
    files: Vec<installation::File>,
    is_kept: bool,
}

impl Regions {
    /// A place for a snapshot of the region. What an interrupted one has left is removed; there is one at a time.
    pub fn receive(&self, region: u64) -> Result<Incoming> {
        let directory = directory(self.engine.path(), region);
        remove_all(&directory)?;
        fs::create_dir_all(&directory).map_err(|error| cannot("create", &directory, &error))?;
        Ok(Incoming {
            region,
            directory,
            engine: self.engine.clone(),
            taken: self.taken.clone(),
            reservation: None,
            slots: Slots::NONE,
            system: Batch::new(),
            table: None,
            files: Vec::new(),
            is_kept: false,
        })
    }
}

impl Incoming {
    /// Takes the next piece. An error means that the transfer has to begin anew: what was received is no snapshot of the
    /// region, or its slots are still those of another region here.
    pub fn write(&mut self, piece: &[u8]) -> Result<()> {
        for change in changes::read_piece(piece)? {
            let (family, key, value) = change?;
            let family = Family::of_byte(family)?;
            let value = value.ok_or_else(|| wrong("a deletion"))?;
            match family {
                Family::Meta => self.take_system_row(key, value)?,
                _ => self.take_row(family, key, value)?,
            }
        }
        Ok(())
    }

    fn take_system_row(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let row = SystemKey::decode(key)?;
        if row.region() != Some(self.region) || !SystemKind::OF_REGION.contains(&row.kind()) {
            return Err(wrong("a row of the database itself"));
        }
        if row.kind() == SystemKind::RegionDescriptor {
            self.reserve(Descriptor::decode(value)?.slots)?;
        }
        self.system.put(Family::Meta, key, value);
        Ok(())
    }

    /// Two regions have the same slots here while one of them has not yet learnt that it was split. To take the other in
    /// would mix their rows: it has to wait.
    fn reserve(&mut self, slots: Slots) -> Result<()> {
        self.reservation = None;
        let reservation = self.taken.reserve(&self.engine, self.region, slots)?;
        self.reservation = Some(reservation);
        self.slots = slots;
        Ok(())
    }

    fn take_row(&mut self, family: Family, key: &[u8], value: &[u8]) -> Result<()> {
        if !self.slots.contains(slot_of(family, key)?) {
            return Err(wrong("a row of another region"));
        }
        if let Some(table) = &self.table
            && (table.family != family || table.writer.file_size() >= TABLE)
        {
            self.end_table()?;
        }
        let table = match &mut self.table {
            Some(table) => table,
            none => {
                let number = self.files.len() as u32;
                none.insert(Table::begin(&self.directory, family, number)?)
            }
        };
        Ok(table.writer.put(key, value)?)
    }

    fn end_table(&mut self) -> Result<()> {
        if let Some(table) = self.table.take() {
            self.files.push(table.end()?);
        }
        Ok(())
    }

    pub(super) fn region(&self) -> u64 {
        self.region
    }

    pub(super) fn slots(&self) -> Slots {
        self.slots
    }

    /// All pieces are there: brings them to the disk. From now on they stay until they are in their place.
    pub(super) fn keep(mut self, applied: &Applied) -> Result<Received> {
        self.end_table()?;
        let installation = Installation {
            region: self.region,
            applied: applied.clone(),
            files: std::mem::take(&mut self.files),
        };
        let system = std::mem::take(&mut self.system);
        let changes = system
            .changes()
            .map(|(family, key, value)| (family as u8, key, value));
        let bytes = installation.encode(changes);
        let path = self.directory.join(INSTALLATION);
        let write = || -> std::io::Result<()> {
            fs::write(&path, bytes)?;
            File::open(&path)?.sync_all()?;
            // The names of all files, and of the directories themselves.
            for directory in path.ancestors().skip(1).take(3) {
                File::open(directory)?.sync_all()?;
            }
            Ok(())
        };
        write().map_err(|error| cannot("write", &path, &error))?;
        self.is_kept = true;
        Ok(Received {
            directory: self.directory.clone(),
            _reservation: self.reservation.take(),
            slots: self.slots,
            installation,
            system,
        })
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if !self.is_kept
            && let Err(error) = remove_all(&self.directory)
        {
            tracing::warn!("what is left of a snapshot stays for now: {error}");
        }
    }
}

/// A table that is being written.
struct Table {
    family: Family,
    number: u32,
    path: PathBuf,
    // Declared before `_options`, so dropped before it.
    writer: SstFileWriter<'static>,
    _options: Box<Options>,
}

impl Table {
    fn begin(directory: &Path, family: Family, number: u32) -> Result<Table> {
        let options = Box::new(options::foreign_tables(family));
        // SAFETY: the writer borrows the options, which stand at a fixed address in their Box. The Box is kept beside the
        // writer, not touched, and dropped after it (field order).
        let mut writer = SstFileWriter::create(unsafe { &*std::ptr::from_ref(&*options) });
        let path = table_path(directory, family, number);
        writer.open(&path)?;
        Ok(Table {
            family,
            number,
            path,
            writer,
            _options: options,
        })
    }

    fn end(mut self) -> Result<installation::File> {
        self.writer.finish()?;
        let sync = || -> std::io::Result<u64> {
            let file = File::open(&self.path)?;
            file.sync_all()?;
            Ok(file.metadata()?.len())
        };
        let bytes = sync().map_err(|error| cannot("sync", &self.path, &error))?;
        Ok(installation::File {
            family: self.family as u8,
            number: self.number,
            bytes,
        })
    }
}

fn table_path(directory: &Path, family: Family, number: u32) -> PathBuf {
    directory.join(format!("{}-{number:06}.sst", family.name()))
}

/// A snapshot that is there as a whole, for good.
pub(super) struct Received {
    directory: PathBuf,
    _reservation: Option<Reservation>,
    pub(super) slots: Slots,
    pub(super) installation: Installation,
    pub(super) system: Batch,
}

impl Received {
    /// What a run that has ended has received; none if it is not whole.
    pub(super) fn open(database: &Path, region: u64) -> Result<Option<Received>> {
        let directory = directory(database, region);
        let Ok(bytes) = fs::read(directory.join(INSTALLATION)) else {
            return Ok(None);
        };
        let Ok((installation, rows)) = Installation::decode(&bytes) else {
            return Ok(None);
        };
        let system = Batch::of_changes(rows.into_iter().map(Ok))?;
        let key = SystemKey::RegionDescriptor { region }.encode();
        let slots = match system.get(Family::Meta, &key).flatten() {
            Some(value) => Descriptor::decode(value)?.slots,
            None => Slots::NONE,
        };
        let received = Received {
            directory,
            _reservation: None,
            slots,
            installation,
            system,
        };
        let mut is_whole = received.installation.region == region;
        for file in &received.installation.files {
            let path = received.path(file)?;
            is_whole &= fs::metadata(path).is_ok_and(|metadata| metadata.len() == file.bytes);
        }
        Ok(is_whole.then_some(received))
    }

    fn path(&self, file: &installation::File) -> Result<PathBuf> {
        let family = Family::of_byte(file.family)?;
        Ok(table_path(&self.directory, family, file.number))
    }

    /// The tables of a family, by other names: RocksDB takes those away.
    pub(super) fn links(&self, family: Family) -> Result<Vec<PathBuf>> {
        let mut links = Vec::new();
        let files = self.installation.files.iter();
        for file in files.filter(|file| file.family == family as u8) {
            let path = self.path(file)?;
            let link = path.with_extension("link");
            let make = || -> std::io::Result<()> {
                if link.try_exists()? {
                    fs::remove_file(&link)?;
                }
                fs::hard_link(&path, &link)
            };
            make().map_err(|error| cannot("link", &path, &error))?;
            links.push(link);
        }
        Ok(links)
    }

    pub(super) fn remove(self) {
        // The next one begins with that.
        if let Err(error) = remove_all(&self.directory) {
            tracing::warn!("the files of a snapshot stay for now: {error}");
        }
    }
}

/// Removes what transfers have left that did not come to their end.
pub(super) fn remove_leftovers(database: &Path) -> Result<()> {
    remove_all(&database.join(DIRECTORY))
}

pub(super) fn remove_all(directory: &Path) -> Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(cannot("remove", directory, &error))
        }
        _ => Ok(()),
    }
}

fn wrong(what: &str) -> EngineError {
    EngineError::Corrupt(format!("a snapshot of a region holds {what}"))
}
