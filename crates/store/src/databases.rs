//! The numbered databases, and why emptying one is cheap.
//!
//! SELECT's number is mapped to an index that never returns. FLUSHDB gives the number a new index and
//! lists the old one as dead, SWAPDB exchanges two: a few rows are written, whatever the size. The rows
//! of a dead index are invisible from then on; the reclaimer and the compaction filters remove them.

use std::sync::atomic::{AtomicU64, Ordering};

use cairn_encoding::row;
use cairn_encoding::system::{self, SystemKey};
use cairn_engine::{Engine, Family, LOCAL_REGION};

use crate::error::Result;
use crate::txn::WriteTxn;

const REGION: u64 = LOCAL_REGION;

/// Which index each database has. Changed under the exclusive latch only, after the commit that says so.
pub struct Databases {
    indexes: Vec<AtomicU64>,
    /// Rises when a commit that changes them begins, and when it has ended: odd in between. Whoever reads without
    /// a latch looks at it before and after, since rows and indexes do not become visible at the same moment.
    moves: AtomicU64,
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

    /// Reads the map, as far as it is stored: `None` for a database that was never opened.
    pub(crate) fn load(engine: &Engine, count: u32) -> Result<(Databases, Vec<u32>)> {
        let mut indexes = Vec::new();
        let mut missing = Vec::new();
        for number in 0..count {
            let key = database_key(number);
            let index = match engine.get(Family::Meta, &key)? {
                Some(value) => system::value::decode_database(&value)?,
                None => {
                    missing.push(number);
                    0
                }
            };
            indexes.push(AtomicU64::new(index));
        }
        let moves = AtomicU64::new(0);
        Ok((Databases { indexes, moves }, missing))
    }
}

fn database_key(number: u32) -> Vec<u8> {
    SystemKey::Database {
        region: REGION,
        number,
    }
    .encode()
}

/// Gives each of the databases a new index; what they held is dead. FLUSHDB, FLUSHALL.
pub fn flush(txn: &mut WriteTxn, numbers: impl IntoIterator<Item = u32>) -> Result<()> {
    let mut indexes = txn.databases_now();
    let next_key = SystemKey::NextIndex { region: REGION }.encode();
    let mut next = match txn.row(Family::Meta, &next_key)? {
        Some(value) => system::value::decode_next_index(&value)?,
        None => 1,
    };
    for number in numbers {
        let slot = &mut indexes[number as usize];
        if *slot != 0 {
            if is_empty(txn, *slot)? {
                continue;
            }
            let dead = SystemKey::DeadIndex {
                region: REGION,
                index: *slot,
            };
            txn.put(Family::Meta, &dead.encode(), system::value::EMPTY);
        }
        *slot = next;
        next += 1;
        txn.put(
            Family::Meta,
            &database_key(number),
            system::value::encode_database(*slot),
        );
    }
    txn.put(
        Family::Meta,
        &next_key,
        system::value::encode_next_index(next),
    );
    txn.move_databases(indexes);
    Ok(())
}

/// Whether a database certainly has no keys: then it need not be replaced. Not much is done to find out.
fn is_empty(txn: &WriteTxn, index: u64) -> Result<bool> {
    if txn.store().may_have_legacy() {
        return Ok(false);
    }
    let (mut lower, mut upper) = (Vec::new(), Vec::new());
    row::index_prefix(&mut lower, index);
    row::index_prefix(&mut upper, index + 1);
    let engine = txn.store().engine();
    Ok(!engine.may_have_rows(txn.pending(), Family::Metadata, &lower, &upper)?)
}

/// Exchanges two databases. SWAPDB.
pub fn swap(txn: &mut WriteTxn, one: u32, other: u32) {
    let mut indexes = txn.databases_now();
    indexes.swap(one as usize, other as usize);
    for number in [one, other] {
        let index = indexes[number as usize];
        txn.put(
            Family::Meta,
            &database_key(number),
            system::value::encode_database(index),
        );
    }
    txn.move_databases(indexes);
}
