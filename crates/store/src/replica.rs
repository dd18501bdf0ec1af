//! Reading a region that another node leads.
//!
//! Rows are as current as what this node has applied; whether that will do is the caller's question. Two things tie a read
//! to a lead, and are seen to here: nobody's latches keep the rows in place between one read and the next, and where the
//! databases are is known to the leader alone. What memory derives from rows (`ranks`) is not asked, since whoever
//! changes these rows does so elsewhere.

use std::sync::Arc;

use cairn_engine::Family;
use parking_lot::RwLockReadGuard;

use crate::databases;
use crate::error::Result;
use crate::region::Region;
use crate::store::Store;

/// The region does not change for as long as this is held, which must not be long.
pub type Still<'r> = RwLockReadGuard<'r, ()>;

impl Store {
    /// Keeps a region that another node leads as it is, to be read; none if it is no longer placed here.
    pub fn read_replica<'r>(&self, region: &'r Arc<Region>) -> Result<Option<Still<'r>>> {
        let still = region.readers().read();
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
        Ok(Some(still))
    }
}
