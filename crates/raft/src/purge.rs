//! Cutting logs off at the front.
//!
//! A log is purged no further than its state machine is durable: a power cut takes the machine back to there, and the
//! log has to lead it on. It is kept for members that are behind, but not without end: past a limit they
//! get a snapshot.

use std::io;
use std::sync::Arc;

use crate::group::{Group, Role};
use crate::machine::Machine;

impl Group {
    pub(crate) async fn purge(&self, machine: &Arc<dyn Machine>) -> io::Result<()> {
        let bytes = self.log.bytes();
        if bytes <= self.config.log_bytes {
            return Ok(());
        }
        // To the half, so that it is some time until it has to be done again.
        let excess = bytes - self.config.log_bytes / 2;
        let Some(wanted) = self.log.index_at(excess)? else {
            return Ok(());
        };
        if machine.durable(self.region) < Some(wanted) {
            machine.sync().await?;
        }
        let Some(durable) = machine.durable(self.region) else {
            return Ok(());
        };
        let mut upto = wanted.min(durable);
        if bytes <= self.config.log_bytes_limit {
            match self.needed() {
                Some(needed) => upto = upto.min(needed),
                None => return Ok(()),
            }
        }
        // openraft wants to know of a snapshot first. If this one comes too late for it, there is a next time.
        let trigger = self.raft.trigger();
        trigger.snapshot().await.map_err(io::Error::other)?;
        trigger.purge_log(upto).await.map_err(io::Error::other)
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
