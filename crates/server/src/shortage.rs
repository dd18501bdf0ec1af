//! What the server is short of, so that it refuses commands: room on the disk, memory, replicas.
//!
//! Every command looks whether there is anything of the kind, by one load. Whom it concerns is asked only then.

use std::sync::atomic::{AtomicU8, Ordering};

use cairn_store::{Error, Result};

use crate::room;
use crate::server::Server;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Shortage {
    /// See `space`.
    Disk = 1,
    /// More is used than `maxmemory`, and nothing can be evicted.
    Memory = 1 << 1,
    /// There are not `min-replicas-to-write` of them.
    Replicas = 1 << 2,
    /// Another server is followed, and decides what there is.
    Decision = 1 << 3,
    /// It is not heard of, and what there is may be of the past.
    News = 1 << 4,
    /// What it has is on its way, and a part of it is here.
    Whole = 1 << 5,
    /// More is used than `maxmemory`, and keys are being evicted: see `room`.
    Room = 1 << 6,
}

#[derive(Default)]
pub struct Shortages(AtomicU8);

impl Shortages {
    #[inline]
    pub fn are_any(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    pub fn note(&self, shortage: Shortage, is_short: bool) {
        let bit = shortage as u8;
        match is_short {
            true => self.0.fetch_or(bit, Ordering::Relaxed),
            false => self.0.fetch_and(!bit, Ordering::Relaxed),
        };
    }

    fn has(&self, shortage: Shortage) -> bool {
        self.0.load(Ordering::Relaxed) & shortage as u8 != 0
    }

    /// Whether keys are being evicted, which commands wait for.
    #[inline]
    pub fn is_making_room(&self) -> bool {
        self.has(Shortage::Room)
    }

    /// For what needs memory, be it only to be queued.
    pub fn check_memory(&self) -> Result<()> {
        match self.has(Shortage::Memory) && !self.is_making_room() {
            true => Err(Error::fixed(
                "OOM command not allowed when used memory > 'maxmemory'.",
            )),
            false => Ok(()),
        }
    }

    /// For what may let the data grow.
    pub fn check_room(&self) -> Result<()> {
        self.check_memory()?;
        match self.has(Shortage::Disk) {
            true => Err(Error::DISK_FULL),
            false => Ok(()),
        }
    }

    /// For what writes.
    pub fn check_replicas(&self) -> Result<()> {
        match self.has(Shortage::Replicas) {
            true => Err(Error::fixed(
                "NOREPLICAS Not enough good replicas to write.",
            )),
            false => Ok(()),
        }
    }
}

impl Shortages {
    /// For what writes, unless the server that is followed does.
    pub fn check_read_only(&self) -> Result<()> {
        match self.has(Shortage::Decision) {
            true => Err(Error::fixed(
                "READONLY You can't write against a read only replica.",
            )),
            false => Ok(()),
        }
    }

    /// For what is about the data, or about whom to follow.
    pub fn check_loading(&self) -> Result<()> {
        match self.has(Shortage::Whole) {
            true => Err(Error::fixed(
                "LOADING Redis is loading the dataset in memory",
            )),
            false => Ok(()),
        }
    }

    /// For what is about the data.
    pub fn check_stale(&self) -> Result<()> {
        match self.has(Shortage::News) {
            true => Err(Error::fixed(
                "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
            )),
            false => Ok(()),
        }
    }
}

/// Looks whether the server is short of what the configuration asks for: now and then, and when that has changed.
pub fn look(server: &Server) {
    let shortages = &server.shortages;
    room::look(server);
    shortages.note(Shortage::Replicas, lacks_replicas(server));
    let is_no = |parameter| server.config.text(parameter) == "no";
    let upstream = &server.upstream;
    let is_read_only = upstream.is_any() && !is_no("replica-read-only");
    shortages.note(Shortage::Decision, is_read_only);
    let is_stale = upstream.is_stale() && is_no("replica-serve-stale-data");
    shortages.note(Shortage::News, is_stale);
    shortages.note(Shortage::Whole, upstream.is_loading());
}

fn number(server: &Server, parameter: &'static str) -> u64 {
    server.config.text(parameter).parse().unwrap_or(0)
}

/// How many have to follow, and within how many seconds they have to have been heard of.
pub struct WantedReplicas {
    pub count: u64,
    pub most_lag: u64,
}

/// In a cluster a majority has whatever is acknowledged, and there is nothing to be asked for.
pub fn wanted_replicas(server: &Server) -> Option<WantedReplicas> {
    let count = number(server, "min-replicas-to-write");
    let most_lag = number(server, "min-replicas-max-lag");
    let is_any = !server.store.is_replicated() && count > 0 && most_lag > 0;
    is_any.then_some(WantedReplicas { count, most_lag })
}

fn lacks_replicas(server: &Server) -> bool {
    let lacks = |WantedReplicas { count, most_lag }| {
        (server.replication.count_good(most_lag) as u64) < count
    };
    wanted_replicas(server).is_some_and(lacks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_told_by_its_own_word() {
        let shortages = Shortages::default();
        let told = |result: Result<()>| result.err().map(|error| error.to_string());
        assert!(!shortages.are_any());
        shortages.note(Shortage::Disk, true);
        shortages.note(Shortage::Replicas, true);
        assert!(shortages.are_any());
        assert_eq!(told(shortages.check_memory()), None);
        assert_eq!(
            told(shortages.check_room()),
            Some(Error::DISK_FULL.to_string())
        );
        let replicas = "NOREPLICAS Not enough good replicas to write.";
        assert_eq!(told(shortages.check_replicas()), Some(replicas.into()));
        shortages.note(Shortage::Replicas, false);
        assert_eq!(told(shortages.check_replicas()), None);
        shortages.note(Shortage::Memory, true);
        let memory = "OOM command not allowed when used memory > 'maxmemory'.";
        assert_eq!(told(shortages.check_room()), Some(memory.into()));
        // While keys are being evicted nothing is refused.
        shortages.note(Shortage::Room, true);
        assert_eq!(told(shortages.check_memory()), None);
        shortages.note(Shortage::Room, false);
        shortages.note(Shortage::Memory, false);
        shortages.note(Shortage::Disk, false);
        assert!(!shortages.are_any());
    }
}
