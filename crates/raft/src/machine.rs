//! What a region's log is applied to: given to this crate from outside, and asked for no more than Raft needs.

use std::io;

use bytes::Bytes;
use cairn_encoding::raft::{Applied, LogId, Membership};

use crate::runtime::Later;

/// An entry that is committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub id: LogId,
    pub content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// The first entry of a leader. It changes nothing but the place.
    Blank,
    /// What was proposed. `timestamp_ms` is the leader's, and never lower than that of an entry before.
    Batch {
        timestamp_ms: u64,
        epoch: u64,
        payload: Bytes,
    },
    Membership(Membership),
}

/// The state machines of all regions of a node.
///
/// For one region, `apply`, `snapshot` and `install` are never called while another of them is still at work, nor
/// `receive` while `install` is. An error of any of the first three stops the region and calls `Config::failure`.
pub trait Machine: Send + Sync + 'static {
    /// Where a region is; the default if nothing was ever applied to it.
    fn applied(&self, region: u64) -> io::Result<Applied>;

    /// Applies entries in their order, each whole, and stores `applied`, which is the place behind them, in the same
    /// write. One answer per entry goes to whoever proposed it. The epoch of a batch is checked here: if it
    /// is not that of the region, the batch changes nothing, and the answer says so.
    ///
    /// It need not be durable. After a crash the region may be at any place between `durable` and the last.
    fn apply<'a>(
        &'a self,
        region: u64,
        entries: Vec<Entry>,
        applied: &'a Applied,
    ) -> Later<'a, io::Result<Vec<Bytes>>>;

    /// The index up to which a power cut takes nothing back; none if nothing is certain. The log is purged no further.
    fn durable(&self, region: u64) -> Option<u64>;

    /// Makes durable what it has on its disk already, if there is such a difference: that costs little.
    fn sync_stored(&self) -> Later<'_, io::Result<()>> {
        Box::pin(async { Ok(()) })
    }

    /// Makes durable all that has been applied, of all regions.
    fn sync(&self) -> Later<'_, io::Result<()>>;

    /// The state of a region as it is now; what is applied later does not show in it.
    fn snapshot(&self, region: u64) -> Later<'_, io::Result<Box<dyn SnapshotReader>>>;

    /// Forgets a region, for good: its replica is gone. Another may come, and finds nothing of it.
    fn remove(&self, region: u64) -> Later<'_, io::Result<()>>;

    /// A place for a snapshot that is about to come in. What an interrupted one has left is in the way no more.
    fn receive(&self, region: u64) -> Later<'_, io::Result<Box<dyn SnapshotWriter>>>;

    /// Puts what was received in the place of what the region is now, with `applied`, crash-safe and durable: afterwards
    /// the log up to there is dropped.
    fn install<'a>(
        &'a self,
        region: u64,
        applied: &'a Applied,
        received: Box<dyn SnapshotWriter>,
    ) -> Later<'a, io::Result<()>>;
}

/// Reads the state of a region piece by piece, at most as long as a message.
pub trait SnapshotReader: Send + 'static {
    /// None at the end.
    fn next(&mut self) -> Later<'_, io::Result<Option<Bytes>>>;
}

/// Takes the pieces in, in their order. One that is dropped before it is installed was interrupted.
pub trait SnapshotWriter: Send + std::any::Any {
    fn write(&mut self, piece: Bytes) -> Later<'_, io::Result<()>>;
}
