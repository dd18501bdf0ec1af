//! Those who read a region that this node does not lead.
//!
//! Where a region is led, latches keep its rows in place while a command reads several of them. What its log commits on
//! other replicas knows no latches, so it waits for those who read, who must not take long, and they for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

/// Shared by those who read a region, and held alone by whoever changes it.
pub type Readers = Arc<RwLock<()>>;

#[derive(Default)]
pub(crate) struct AllReaders(Mutex<BTreeMap<u64, Readers>>);

impl AllReaders {
    pub(crate) fn of(&self, region: u64) -> Readers {
        self.0.lock().entry(region).or_default().clone()
    }
}
