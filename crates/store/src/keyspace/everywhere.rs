//! The same over all keys of a node: region by region, of those that it leads.
//!
//! A single machine has one, and the transaction that asks is about it. In a cluster the others are read beside it. A
//! cursor of SCAN says by its slot which region comes next.

use std::sync::Arc;

use cairn_encoding::SLOTS;

use super::{Met, Walk, cursor_at_slot, random_key, scan, slot_of_cursor};
use crate::count::{KeyCount, count_keys};
use crate::error::Result;
use crate::region::Region;
use crate::txn::ReadTxn;

/// A walk over the keys of one database.
pub struct Walks {
    walks: Vec<Walk>,
    current: usize,
}

impl Walks {
    pub fn open(txn: &ReadTxn) -> Result<Walks> {
        let mut walks = Vec::new();
        for region in regions(txn) {
            walks.push(txn.beside(&region, Walk::whole)?);
        }
        Ok(Walks { walks, current: 0 })
    }

    /// Back to where it started.
    pub fn rewind(&mut self) {
        self.walks.iter_mut().for_each(Walk::rewind);
        self.current = 0;
    }

    /// The next key.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Met<'_>>> {
        while let Some(walk) = self.walks.get_mut(self.current) {
            if walk.advance()? {
                return self.walks[self.current].met().map(Some);
            }
            self.current += 1;
        }
        Ok(None)
    }
}

/// The number of keys that live in the selected database, or nearly so for a large one.
pub fn count(txn: &ReadTxn) -> Result<KeyCount> {
    let mut total = KeyCount::default();
    for region in regions(txn) {
        total.add(txn.beside(&region, count_keys)?);
    }
    Ok(total)
}

/// One step of SCAN: see [`scan`].
pub fn scan_step(
    txn: &ReadTxn,
    cursor: u64,
    count: u64,
    visit: impl FnMut(&Met<'_>),
) -> Result<u64> {
    let from = slot_of_cursor(cursor);
    let mut ahead = regions(txn).into_iter();
    let Some(region) = ahead.find(|region| region.slots().end > from) else {
        return Ok(0);
    };
    // The region where it stopped may be led elsewhere by now.
    let first = region.slots().start;
    let cursor = if first > from {
        cursor_at_slot(first)
    } else {
        cursor
    };
    let next = txn.beside(&region, |txn| scan(txn, cursor, count, visit))?;
    Ok(match (next, ahead.next()) {
        (0, Some(next)) => cursor_at_slot(next.slots().start),
        (next, _) => next,
    })
}

/// A random key, of the region of a random slot if there is one.
pub fn random(txn: &ReadTxn) -> Result<Option<Vec<u8>>> {
    let mut regions = regions(txn);
    let drawn = fastrand::u16(..SLOTS);
    let first = regions.partition_point(|region| region.slots().end <= drawn);
    regions.rotate_left(first);
    for region in regions {
        if let Some(name) = txn.beside(&region, random_key)? {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

fn regions(txn: &ReadTxn) -> Vec<Arc<Region>> {
    if !txn.store().is_replicated() {
        return vec![txn.region().clone()];
    }
    txn.store().regions().led().cloned().collect()
}
