//! Reading a region that another node leads.
//!
//! Rows are as current as what this node has applied; whether that will do is the caller's question. Three things tie a read
//! to a lead, and are seen to here: nobody's latches keep the rows in place between one read and the next, where the
//! databases are is known to the leader alone, and what has expired by its clock is not there, whatever time it is here. What memory derives from rows (`ranks`) is not asked, since whoever
//! changes these rows does so elsewhere.

use std::sync::Arc;

use cairn_encoding::system::{Maxima, SystemKey};
use cairn_engine::Family;
use parking_lot::RwLockReadGuard;

use crate::databases;
use crate::error::Result;
use crate::region::Region;
use crate::store::Store;

/// The region does not change for as long as this is held, which must not be long.
pub struct Still<'r> {
    _readers: RwLockReadGuard<'r, ()>,
    /// Of what was last applied.
    timestamp_ms: u64,
}

impl Still<'_> {
    /// The time for a read, if it was this for the leader when it said what has to be applied here. More may be, by which time
    /// has gone on.
    pub fn time(&self, leaders: u64) -> u64 {
        leaders.max(self.timestamp_ms)
    }
}

impl Store {
    /// Keeps a region that another node leads as it is, to be read; none if it is no longer placed here.
    pub fn read_replica<'r>(&self, region: &'r Arc<Region>) -> Result<Option<Still<'r>>> {
        let readers = region.readers().read();
        let regions = self.regions();
        if !regions.all().any(|placed| Arc::ptr_eq(placed, region)) {
            return Ok(None);
        }
        // If this node is about to lead, they are the same: what moves them is not applied meanwhile.
        let databases = region.databases();
        for number in 0..databases.count() {
            let row = databases::database_key(region.id(), number);
            if let Some(value) = self.engine().get(Family::Meta, &row)? {
                databases.follow(number, &value)?;
            }
        }
        let maxima = SystemKey::Maxima {
            region: region.id(),
        };
        let maxima = self.engine().get(Family::Meta, &maxima.encode())?;
        let maxima = maxima.map(|row| Maxima::decode(&row)).transpose()?;
        Ok(Some(Still {
            _readers: readers,
            timestamp_ms: maxima.map_or(0, |maxima| maxima.timestamp_ms),
        }))
    }
}
