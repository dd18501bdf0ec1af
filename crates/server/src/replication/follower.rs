//! One who follows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::Replication;
use crate::address::Endpoint;
use crate::client::Client;

/// What a client has said of itself before it follows: REPLCONF.
#[derive(Clone, Default)]
pub struct Introduction {
    pub port: u16,
    pub address: Option<String>,
    /// It knows where a snapshot ends by a mark, and need not be told its length.
    pub knows_mark: bool,
    /// It wants to know the name of the stream that it goes on with.
    pub knows_names: bool,
    /// It wants the snapshot, and nothing more.
    pub only_snapshot: bool,
    /// It was asked for by SYNC: such a one does not tell how far it has come.
    pub is_mute: bool,
}

/// How far a follower is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Stage {
    /// It gets the snapshot; what it is told meanwhile waits.
    Copying,
    /// It has the snapshot, and has yet to say so: until then nothing may come behind its end.
    Copied,
    Online,
}

pub struct Follower {
    pub client: Arc<Client>,
    introduction: Introduction,
    stage: AtomicU8,
    acknowledged: AtomicU64,
    heard_at: Mutex<Instant>,
}

impl Follower {
    pub(super) fn new(
        client: &Arc<Client>,
        introduction: &Introduction,
        stage: Stage,
        offset: u64,
    ) -> Follower {
        Follower {
            client: client.clone(),
            introduction: introduction.clone(),
            stage: AtomicU8::new(stage as u8),
            acknowledged: AtomicU64::new(offset),
            heard_at: Mutex::new(Instant::now()),
        }
    }

    pub fn is_online(&self) -> bool {
        self.is_at(Stage::Online)
    }

    fn is_at(&self, stage: Stage) -> bool {
        self.stage.load(Ordering::Relaxed) == stage as u8
    }

    pub fn has_to_confirm(&self) -> bool {
        self.is_at(Stage::Copied)
    }

    pub fn enter(&self, stage: Stage) {
        *self.heard_at.lock() = Instant::now();
        self.stage.store(stage as u8, Ordering::Relaxed);
    }

    /// Whether what others do is for it.
    pub(super) fn is_told(&self) -> bool {
        !self.introduction.only_snapshot
    }

    pub(super) fn note_acknowledged(&self, offset: u64) {
        *self.heard_at.lock() = Instant::now();
        self.acknowledged.fetch_max(offset, Ordering::Relaxed);
    }

    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    pub(super) fn has_acknowledged(&self, offset: u64) -> bool {
        self.is_online() && self.acknowledged() >= offset
    }

    /// How long ago it was heard of.
    pub fn lag(&self) -> Duration {
        self.heard_at.lock().elapsed()
    }

    pub(super) fn is_silent_for(&self, patience: Duration) -> bool {
        // While it gets the snapshot, that is looked after by whoever sends it.
        let speaks = !self.introduction.is_mute && !self.is_at(Stage::Copying);
        // One that loads what it was sent says nothing but empty lines.
        let silent = Duration::from_millis(self.client.idle_ms());
        speaks && self.lag().min(silent) > patience
    }

    /// Where it serves clients of its own.
    pub fn address(&self) -> (String, u16) {
        let known = match &self.client.peer {
            Endpoint::Ip(peer) => peer.ip().to_canonical().to_string(),
            other => other.to_string(),
        };
        let address = self.introduction.address.clone();
        (address.unwrap_or(known), self.introduction.port)
    }

    /// As INFO calls its stage.
    pub fn state(&self) -> &'static str {
        match self.is_at(Stage::Copying) {
            true => "send_bulk",
            false => "online",
        }
    }
}

/// A client follows for as long as this exists.
pub struct Following {
    all: Arc<Replication>,
    pub follower: Arc<Follower>,
}

impl Following {
    pub(super) fn new(all: Arc<Replication>, follower: Arc<Follower>) -> Following {
        Following { all, follower }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.follower
            .client
            .is_replica
            .store(false, Ordering::Relaxed);
        self.all.leave(&self.follower);
    }
}
