//! How much memory the process uses, as its allocator counts.

use tikv_jemalloc_ctl::{epoch, stats, version};

/// Bytes, each figure holding the one before it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Memory {
    /// Asked for and not given back.
    pub allocated: u64,
    /// In pages that hold any of it.
    pub active: u64,
    /// Kept from the system.
    pub resident: u64,
}

impl Memory {
    /// As of now; zeroes if the allocator does not tell.
    pub fn now() -> Memory {
        // The allocator gathers its figures when it is told that a new epoch has begun.
        let read = || -> tikv_jemalloc_ctl::Result<Memory> {
            epoch::advance()?;
            Ok(Memory {
                allocated: stats::allocated::read()? as u64,
                active: stats::active::read()? as u64,
                resident: stats::resident::read()? as u64,
            })
        };
        read().unwrap_or_default()
    }

    /// The allocator's name and version, as INFO prints it.
    pub fn allocator() -> String {
        let whole = version::read().unwrap_or("unknown");
        let number = whole.split('-').next().unwrap_or(whole);
        format!("jemalloc-{number}")
    }
}
