//! Rows that will be asked for soon.
//!
//! Most of what a lookup in memory costs is waiting for memory: first for the slot, then for the row. Whoever
//! knows several rows that it will ask for says so, and the waits overlap.

use crate::family::Family;
use crate::row::{hash, metadata_hash};

/// The most that are worth naming at once: what is brought near must still be there when it is needed.
const MOST: usize = 16;

/// Names rows; it is only a hint, and what does not fit is left out.
#[derive(Default)]
pub struct Expected {
    hashes: [u32; MOST],
    len: usize,
}

impl Expected {
    pub fn add(&mut self, family: Family, key: &[u8]) {
        self.add_hash(hash(family, key));
    }

    /// The metadata row of a user's key.
    #[inline]
    pub fn add_key(&mut self, index: u64, name: &[u8]) {
        self.add_hash(metadata_hash(index, name));
    }

    #[inline]
    fn add_hash(&mut self, hash: u32) {
        if let Some(place) = self.hashes.get_mut(self.len) {
            *place = hash;
            self.len += 1;
        }
    }

    pub(crate) fn hashes(&self) -> &[u32] {
        &self.hashes[..self.len]
    }
}

/// Has the processor bring what lies there into its cache, without waiting for it.
#[inline]
pub fn prefetch<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint to the processor. It changes nothing that the program can see, and
        // is ignored if there is nothing at the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
