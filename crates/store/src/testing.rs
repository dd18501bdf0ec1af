//! A store for the tests of this crate.

use std::path::Path;
use std::sync::Arc;

use cairn_engine::{EngineOptions, SyncMode, SystemTime};

use crate::{Store, StoreOptions};

/// Small, with one database, by the clock of the system.
pub(crate) fn options() -> StoreOptions {
    StoreOptions {
        engine: EngineOptions {
            memory: 64 * 1024 * 1024,
            ..EngineOptions::default()
        },
        sync: SyncMode::No,
        databases: 1,
        time: Box::<SystemTime>::default(),
        ranks: Default::default(),
    }
}

pub(crate) fn open_store(path: &Path) -> Arc<Store> {
    Store::open(path, options()).unwrap()
}
