//! What OBJECT ENCODING calls a value.
//!
//! Cairn keeps every collection as rows, but clients and their tests ask which of Redis' structures
//! holds a value, and Redis decides by limits that CONFIG SET can change. Handlers see a transaction and
//! nothing of the server, so these few numbers stand for the whole process. No stored byte depends on
//! them, but for the form of a HyperLogLog.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[derive(Debug)]
pub struct Encodings {
    pub hash_entries: AtomicU64,
    pub hash_value: AtomicU64,
    pub intset_entries: AtomicU64,
    pub zset_entries: AtomicU64,
    pub zset_value: AtomicU64,
    pub stream_entries: AtomicU64,
    /// The longest sparse HyperLogLog.
    pub sparse_hyperloglog: AtomicU64,
    /// An LFU policy is selected, under which Redis counts uses instead of idle time.
    pub counts_uses: AtomicBool,
}

pub static ENCODINGS: Encodings = Encodings {
    hash_entries: AtomicU64::new(512),
    hash_value: AtomicU64::new(64),
    intset_entries: AtomicU64::new(512),
    zset_entries: AtomicU64::new(128),
    zset_value: AtomicU64::new(64),
    stream_entries: AtomicU64::new(100),
    sparse_hyperloglog: AtomicU64::new(3000),
    counts_uses: AtomicBool::new(false),
};

/// Up to how many elements, and up to which length of each, a collection is small.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Small {
    pub entries: u64,
    pub value: u64,
}

impl Small {
    /// Whether an element of a small collection may have these bytes.
    pub fn takes(&self, bytes: &[u8]) -> bool {
        bytes.len() as u64 <= self.value
    }
}

impl Encodings {
    pub fn small_hash(&self) -> Small {
        Small {
            entries: self.hash_entries.load(Ordering::Relaxed),
            value: self.hash_value.load(Ordering::Relaxed),
        }
    }

    pub fn small_zset(&self) -> Small {
        Small {
            entries: self.zset_entries.load(Ordering::Relaxed),
            value: self.zset_value.load(Ordering::Relaxed),
        }
    }

    pub fn intset_entries(&self) -> u64 {
        self.intset_entries.load(Ordering::Relaxed)
    }

    /// How many entries of a stream go together when it is trimmed approximately; zero: all.
    pub fn stream_entries(&self) -> u64 {
        self.stream_entries.load(Ordering::Relaxed)
    }

    pub fn sparse_hyperloglog(&self) -> usize {
        self.sparse_hyperloglog.load(Ordering::Relaxed) as usize
    }

    pub fn counts_uses(&self) -> bool {
        self.counts_uses.load(Ordering::Relaxed)
    }
}
