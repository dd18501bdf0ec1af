//! The engine: RocksDB as Cairn uses it.
//!
//! A write reaches the disk in one way only. A transaction leaves a [`Batch`] of row changes; a
//! [`Committer`] makes it durable and visible at once; nobody else writes. A read is a point lookup
//! ([`Engine::get`]) or a walk over [`Rows`], which shows a batch that is not yet committed on top of
//! what is stored, so that a transaction sees its own writes.
//!
//! In a cluster a node has replicas of several regions, and what their logs have committed comes here through [`Regions`].
//!
//! What this crate does not know: Redis. It knows row families and the few facts about rows that the
//! compaction filters need, and those it takes from `cairn-encoding`.

mod access;
mod batch;
mod clock;
mod commit;
mod drain;
mod engine;
mod error;
mod expected;
mod family;
mod filter;
mod generation;
mod journal;
mod listener;
mod liveness;
mod lull;
mod measure;
mod memory;
mod options;
mod ordered;
mod overlay;
mod priority;
mod read_only;
mod readers;
mod regions;
mod row;
mod rows;
mod space;
mod still;
mod survivors;
mod table;
mod whole;
mod young;

/// A single machine is one region with all slots, and this is its number.
pub const LOCAL_REGION: u64 = 1;

pub use access::{Access, advance_access_clock, count_uses, set_count_decay, set_count_growth};
pub use batch::Batch;
pub use cairn_encoding::checksum::Checksum;
pub use cairn_encoding::system::{Descriptor, Identity, Maxima, Slots};
pub use clock::{Clock, ManualTime, Moment, SystemTime, TimeSource};
pub use commit::{Commit, Committer, LocalCommitter, SyncMode, Underway};
pub use engine::{Engine, Kept, Statistics, Value, block_reads, deletions_passed};
pub use error::{EngineError, Result};
pub use expected::{Expected, prefetch};
pub use family::Family;
pub use filter::FilterCounters;
pub use measure::{Bytes, Extent, Measure, Place};
pub use memory::Memory;
pub use options::EngineOptions;
pub use priority::{give_way, let_finish};
pub use readers::Readers;
pub use regions::{Incoming, Regions, Snapshot};
pub use rows::{Direction, Rows};
pub use whole::FEW;
pub use young::{InMemory, Reading, SampledRow};
