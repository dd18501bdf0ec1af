//! Cutting logs off at the front.
//!
//! A log is purged no further than its state machine is durable: a power cut takes the machine back to there, and the
//! log has to lead it on. Machines become durable by themselves, and write what changes often once; so a log is left to
//! grow for a while before one is made to. It is kept for members that are behind, but not without end: past a limit, or when
//! the disk is almost full, they get a snapshot.

use std::io;
use std::sync::Arc;

use crate::group::{Group, Role};
use crate::machine::Machine;

/// A log that is so many times as long as it should be makes its machine durable.
const PATIENCE: u64 = 4;

impl Group {
    pub(crate) async fn purge(&self, machine: &Arc<dyn Machine>) -> io::Result<()> {
        let bytes = self.log.bytes();
        if bytes <= self.config.log_bytes {
            return Ok(());
        }
        // To the half, so that it is some time until it has to be done again.
        let excess = bytes - self.config.log_bytes / 2;
        let Some(mut wanted) = self.log.index_at(excess)? else {
            return Ok(());
        };
        if bytes <= self.config.log_bytes_limit && !self.config.is_short_of_disk() {
            match self.needed() {
                Some(needed) => wanted = wanted.min(needed),
                None => return Ok(()),
            }
        }
        if wanted < self.log.indexes().start {
            return Ok(());
        }
        let is_behind = || machine.durable(self.region) < Some(wanted);
        if is_behind() {
            machine.sync_stored().await?;
        }
        if is_behind() && bytes > self.longest_without_sync() {
            machine.sync().await?;
        }
        let Some(durable) = machine.durable(self.region) else {
            return Ok(());
        };
        let upto = wanted.min(durable);
        if upto < self.log.indexes().start {
            return Ok(());
        }
        // openraft wants to know of a snapshot first. If this one comes too late for it, there is a next time.
        let trigger = self.raft.trigger();
        trigger.snapshot().await.map_err(io::Error::other)?;
        trigger.purge_log(upto).await.map_err(io::Error::other)
    }

    fn longest_without_sync(&self) -> u64 {
        let (wanted, limit) = (self.config.log_bytes, self.config.log_bytes_limit);
        let half_way = wanted + limit.saturating_sub(wanted) / 2;
        wanted.saturating_mul(PATIENCE).min(half_way)
    }

    /// The last entry that all members have; none if one has nothing. A follower does not know, and does not send.
    fn needed(&self) -> Option<u64> {
        if !matches!(self.role(), Role::Leader { .. }) {
            return Some(u64::MAX);
        }
        let matched = self.status().matched;
        matched.into_values().min().unwrap_or(Some(u64::MAX))
    }
}
