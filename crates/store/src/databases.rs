//! The numbered databases, and why emptying one is cheap.
//!
//! SELECT's number is mapped to an index that never returns. FLUSHDB gives the number a new index and
//! lists the old one as dead, SWAPDB exchanges two: a few rows are written, whatever the size. The rows
//! of a dead index are invisible from then on; the reclaimer and the compaction filters remove them.
//!
//! A database that no key was written to need not be replaced. To look whether there are keys would take the longer
//! the more there are, so it is known which indexes were written to: whoever writes a key says so.

use std::sync::atomic::{AtomicU64, Ordering};

use cairn_encoding::row;
use cairn_encoding::system::{self, SystemKey};
use cairn_engine::{Engine, Family};
use parking_lot::Mutex;
use rustc_hash::FxHashSet;

use crate::error::Result;
use crate::txn::WriteTxn;

/// Which index each database of a region has. Changed under the exclusive latch only, after the commit that says so.
pub struct Databases {
    indexes: Vec<AtomicU64>,
    /// The index that is given out next. In memory too, because a flush shall not have to look for it on the disk.
    next: AtomicU64,
    written: Written,
    /// Rises when a commit that changes them begins, and when it has ended: odd in between. Whoever reads without
    /// a latch looks at it before and after, since rows and indexes do not become visible at the same moment.
    moves: AtomicU64,
}

/// The indexes that keys may have been written to.
#[derive(Default)]
struct Written {
    all: Mutex<FxHashSet<u64>>,
    /// Some of them, each at a place of its own, to be asked without a lock.
    some: [AtomicU64; 8],
}

impl Written {
    #[inline]
    fn note(&self, index: u64) {
        let place = &self.some[index as usize % self.some.len()];
        if place.load(Ordering::Relaxed) != index {
            self.note_first(place, index);
        }
    }

    #[cold]
    fn note_first(&self, place: &AtomicU64, index: u64) {
        self.all.lock().insert(index);
        // Only now: whoever sees it here relies on its being there. Both happen under the writer's latches, and who
        // flushes holds them all.
        place.store(index, Ordering::Relaxed);
    }
}

impl Databases {
    /// How often they have moved; none while they do.
    #[inline]
    pub fn moves(&self) -> Option<u64> {
        let moves = self.moves.load(Ordering::Acquire);
        moves.is_multiple_of(2).then_some(moves)
    }

    /// A commit that changes them begins, or has ended.
    pub(crate) fn note_move(&self) {
        self.moves.fetch_add(1, Ordering::AcqRel);
    }

    /// A key of this metadata row is about to be written.
    #[inline]
    pub(crate) fn note_written(&self, metadata_key: &[u8]) {
        if let Some(index) = row::index_of(metadata_key) {
            self.written.note(index);
        }
    }

    fn may_have_keys(&self, index: u64) -> bool {
        self.written.all.lock().contains(&index)
    }

    /// Nobody will write to these any more.
    pub(crate) fn forget(&self, dead: &[u64]) {
        let mut written = self.written.all.lock();
        dead.iter().for_each(|index| {
            written.remove(index);
        });
    }

    pub fn count(&self) -> u32 {
        self.indexes.len() as u32
    }

    #[inline]
    pub fn index_of(&self, database: u32) -> u64 {
        self.indexes[database as usize].load(Ordering::Acquire)
    }

    pub(crate) fn all(&self) -> Vec<u64> {
        (0..self.count()).map(|n| self.index_of(n)).collect()
    }

    pub(crate) fn set(&self, indexes: &[u64]) {
        for (slot, index) in self.indexes.iter().zip(indexes) {
            slot.store(*index, Ordering::Release);
        }
    }

    /// Another node has moved a database to where its row says.
    pub(crate) fn follow(&self, number: u32, row: &[u8]) -> Result<()> {
        let index = system::value::decode_database(row)?;
        self.indexes[number as usize].store(index, Ordering::Release);
        Ok(())
    }

    /// So many that are not known yet.
    pub(crate) fn new(count: u32) -> Databases {
        Databases {
            indexes: (0..count).map(|_| AtomicU64::new(0)).collect(),
            next: AtomicU64::new(1),
            written: Written::default(),
            moves: AtomicU64::new(0),
        }
    }

    /// Reads the map, as far as it is stored, and returns the numbers of those that were never opened. Nobody works on
    /// the region's keys meanwhile.
    pub(crate) fn reload(&self, engine: &Engine, region: u64) -> Result<Vec<u32>> {
        let next_key = SystemKey::NextIndex { region }.encode();
        if let Some(value) = engine.get(Family::Meta, &next_key)? {
            let next = system::value::decode_next_index(&value)?;
            self.next.store(next, Ordering::Relaxed);
        }
        let mut missing = Vec::new();
        for (number, place) in (0..).zip(&self.indexes) {
            match engine.get(Family::Meta, &database_key(region, number))? {
                Some(value) => {
                    let index = system::value::decode_database(&value)?;
                    // By whom, is not known.
                    self.written.note(index);
                    place.store(index, Ordering::Release);
                }
                None => missing.push(number),
            }
        }
        Ok(missing)
    }
}

pub(crate) fn database_key(region: u64, number: u32) -> Vec<u8> {
    SystemKey::Database { region, number }.encode()
}

/// Gives each of the databases a new index; what they held is dead. FLUSHDB, FLUSHALL. An index that was given out is
/// not given out again, although the command may be undone.
pub fn flush(txn: &mut WriteTxn, numbers: impl IntoIterator<Item = u32>) {
    let mut indexes = txn.databases_now();
    let region = txn.region().clone();
    let (id, databases) = (region.id(), region.databases());
    let may_have_legacy = txn.store().may_have_legacy();
    for number in numbers {
        let slot = &mut indexes[number as usize];
        if *slot != 0 {
            if !may_have_legacy && !databases.may_have_keys(*slot) {
                continue;
            }
            let dead = SystemKey::DeadIndex {
                region: id,
                index: *slot,
            };
            txn.put(Family::Meta, &dead.encode(), system::value::EMPTY);
        }
        *slot = databases.next.fetch_add(1, Ordering::Relaxed);
        txn.put(
            Family::Meta,
            &database_key(id, number),
            system::value::encode_database(*slot),
        );
    }
    let next = databases.next.load(Ordering::Relaxed);
    txn.put(
        Family::Meta,
        &SystemKey::NextIndex { region: id }.encode(),
        system::value::encode_next_index(next),
    );
    txn.move_databases(indexes);
}

/// Exchanges two databases. SWAPDB.
pub fn swap(txn: &mut WriteTxn, one: u32, other: u32) {
    let region = txn.region().id();
    let mut indexes = txn.databases_now();
    indexes.swap(one as usize, other as usize);
    for number in [one, other] {
        let index = indexes[number as usize];
        txn.put(
            Family::Meta,
            &database_key(region, number),
            system::value::encode_database(index),
        );
    }
    txn.move_databases(indexes);
}
