//! Servers that follow this one, by Redis' protocol: a Redis whose REPLICAOF names it, or a tool that reads the stream.
//!
//! A follower begins with everything as it was at one moment, and from then on is told each command that changes something
//! (`propagation`). The moment is one at which the latch of everything is held: whatever was done before is in the
//! snapshot, and whatever is done later is told. The snapshot is sent from iterators that were opened then, and holds up nobody;
//! what is told meanwhile waits in the follower's outbox. One for which too much waits is given up on.
//!
//! All that is told is one stream of bytes, by whose length everybody knows how far a follower has come. Its end is kept
//! in a backlog, so that one that was cut off can go on where it was. From the first follower on, until the last has been
//! away for `repl-backlog-ttl`, commands are propagated; before and after that nobody pays for it.

mod backlog;
mod follower;
mod spool;
mod told;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cairn_store::Store;
use parking_lot::Mutex;
use tokio::sync::Notify;

pub use follower::{Follower, Following, Introduction, Stage};
pub use spool::Spool;
pub use told::Told;

use backlog::Backlog;

use crate::client::Client;
use crate::interest::Interest;
use crate::output_limits::OutputLimits;
use crate::propagation::request;
use crate::server::{Server, random_id};

/// Everyone who follows, and what they were told.
pub struct Replication {
    state: Mutex<State>,
    store: Arc<Store>,
    interest: Arc<Interest>,
    /// A follower has told how far it has come.
    acknowledged: Notify,
    pub counts: Counts,
}

/// How followers have begun.
#[derive(Default)]
pub struct Counts {
    pub full: AtomicU64,
    pub partial: AtomicU64,
    /// They could not go on where they were.
    pub refused: AtomicU64,
}

struct State {
    /// That of the stream: what has another name is another stream.
    id: String,
    /// How many bytes of the stream there have been.
    offset: u64,
    /// The database that the stream is about, where followers know it.
    selected: Option<u32>,
    /// None while commands are not propagated.
    backlog: Option<Backlog>,
    followers: Vec<Arc<Follower>>,
    alone_since: Instant,
    told_at: Instant,
}

/// What INFO tells.
pub struct Overview {
    pub id: String,
    pub offset: u64,
    /// The number of its first byte, and how many there are.
    pub backlog: Option<(u64, u64)>,
    pub followers: Vec<Arc<Follower>>,
}

impl Replication {
    pub fn new(store: Arc<Store>, interest: Arc<Interest>) -> Replication {
        let now = Instant::now();
        Replication {
            state: Mutex::new(State {
                id: random_id(),
                offset: 0,
                selected: None,
                backlog: None,
                followers: Vec::new(),
                alone_since: now,
                told_at: now,
            }),
            store,
            interest,
            acknowledged: Notify::new(),
            counts: Counts::default(),
        }
    }

    pub fn overview(&self) -> Overview {
        let state = self.state.lock();
        let backlog = state.backlog.as_ref();
        Overview {
            id: state.id.clone(),
            offset: state.offset,
            backlog: backlog.map(|backlog| (backlog.first(state.offset), backlog.len() as u64)),
            followers: state.followers.clone(),
        }
    }

    /// From the moment at which this is called on, with the latch of everything held, the client is told what others do.
    pub fn attach(
        self: &Arc<Self>,
        client: &Arc<Client>,
        introduction: &Introduction,
        backlog_size: usize,
    ) -> (Following, String, u64) {
        let mut state = self.state.lock();
        if state.backlog.is_none() {
            // Nobody knows what was done before.
            state.id = random_id();
            state.backlog = Some(Backlog::new(backlog_size));
            self.interest.add();
            self.store.listeners().follow(true);
        }
        state.selected = None;
        let (id, offset) = (state.id.clone(), state.offset);
        let following = self.enter(&mut state, client, introduction, Stage::Copying, offset);
        self.counts.full.fetch_add(1, Ordering::Relaxed);
        (following, id, offset)
    }

    /// Goes on where the client was, if all that it has missed is known: it is told that, and what others do from now on. Tells
    /// the name of the stream.
    pub fn resume(
        self: &Arc<Self>,
        client: &Arc<Client>,
        introduction: &Introduction,
        (id, next): (&[u8], u64),
    ) -> Option<(Following, String)> {
        let mut state = self.state.lock();
        let offset = state.offset;
        let missed = match &state.backlog {
            Some(backlog) if state.id.as_bytes() == id => backlog.since(offset, next),
            _ => None,
        };
        let Some(missed) = missed else {
            self.counts.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        self.counts.partial.fetch_add(1, Ordering::Relaxed);
        let following = self.enter(&mut state, client, introduction, Stage::Online, next - 1);
        client.outbox.push(|out| out.extend_from_slice(&missed));
        Some((following, state.id.clone()))
    }

    fn enter(
        self: &Arc<Self>,
        state: &mut State,
        client: &Arc<Client>,
        introduction: &Introduction,
        stage: Stage,
        offset: u64,
    ) -> Following {
        client.is_replica.store(true, Ordering::Relaxed);
        let follower = Arc::new(Follower::new(client, introduction, stage, offset));
        state.followers.push(follower.clone());
        Following::new(self.clone(), follower)
    }

    fn leave(&self, follower: &Arc<Follower>) {
        let mut state = self.state.lock();
        state
            .followers
            .retain(|other| !Arc::ptr_eq(other, follower));
        if state.followers.is_empty() {
            state.alone_since = Instant::now();
        }
        drop(state);
        self.acknowledged.notify_waiters();
    }

    /// Tells followers what has been done, by a commit whose latches are still held.
    pub fn tell(&self, told: &Told, limits: &OutputLimits) {
        let mut state = self.state.lock();
        if state.backlog.is_some() {
            let bytes = told.write(&mut state.selected);
            state.add(&bytes, limits);
        }
    }

    /// A follower says how much of the stream it has.
    pub fn note_acknowledged(&self, follower: &Follower, offset: u64) {
        follower.note_acknowledged(offset);
        self.acknowledged.notify_waiters();
    }

    /// How many followers have all that was told up to here.
    pub fn count_acknowledged(&self, offset: u64) -> usize {
        let state = self.state.lock();
        let followers = state.followers.iter();
        followers.filter(|it| it.has_acknowledged(offset)).count()
    }

    /// The same, once they are so many, or the time is up.
    pub async fn wait_acknowledged(
        &self,
        wanted: usize,
        until: Option<Instant>,
        limits: &OutputLimits,
    ) -> usize {
        let offset = self.state.lock().offset;
        let mut has_asked = false;
        loop {
            let heard = self.acknowledged.notified();
            tokio::pin!(heard);
            heard.as_mut().enable();
            let count = self.count_acknowledged(offset);
            if count >= wanted {
                return count;
            }
            if !std::mem::replace(&mut has_asked, true) {
                self.state.lock().ask(limits);
            }
            match until {
                None => heard.await,
                Some(until) => {
                    if tokio::time::timeout_at(until.into(), heard).await.is_err() {
                        return self.count_acknowledged(offset);
                    }
                }
            }
        }
    }

    /// What followers were told is not true any more, or will not be: they have to begin again.
    pub fn cut(&self) {
        let mut state = self.state.lock();
        state.id = random_id();
        if let Some(backlog) = &mut state.backlog {
            backlog.clear();
        }
        for follower in &state.followers {
            follower.client.kill();
        }
    }

    /// How many followers have everything that there was when they came.
    pub fn count_online(&self) -> usize {
        self.count_acknowledged(0)
    }

    /// How many followers have been heard of in so many seconds.
    pub fn count_good(&self, most_lag: u64) -> usize {
        let state = self.state.lock();
        let is_good = |it: &&Arc<Follower>| it.is_online() && it.lag().as_secs() <= most_lag;
        state.followers.iter().filter(is_good).count()
    }

    /// What is done once a second: followers are shown that this server is there, those that are silent are given up on, and if
    /// there have been none for long they are not waited for any more.
    pub fn tick(&self, server: &Server) {
        if !self.store.listeners().are_followed() {
            return;
        }
        // Asked for before the lock, which whoever changes them may want.
        let number = |name: &'static str| server.config.text(name).parse().unwrap_or(0);
        let (size, longest) = (number("repl-backlog-size"), number("repl-backlog-ttl"));
        let period = Duration::from_secs(number("repl-ping-replica-period"));
        let patience = Duration::from_secs(number("repl-timeout"));
        let mut state = self.state.lock();
        let Some(backlog) = &mut state.backlog else {
            return;
        };
        backlog.resize(size as usize);
        if state.followers.is_empty() {
            if longest > 0 && state.alone_since.elapsed() >= Duration::from_secs(longest) {
                state.backlog = None;
                self.store.listeners().follow(false);
                self.interest.remove();
                tracing::info!(
                    "nobody has followed for {longest} seconds: commands are told to nobody from now on"
                );
            }
            return;
        }
        if state.told_at.elapsed() >= period {
            state.add(&request(&[b"PING"]), &server.live.output_limits);
            state.told_at = Instant::now();
        }
        for follower in &state.followers {
            if follower.is_silent_for(patience) {
                tracing::warn!(
                    "{}: closed, it follows and has been silent",
                    follower.client.peer
                );
                follower.client.kill();
            }
        }
    }
}

impl State {
    fn add(&mut self, bytes: &[u8], limits: &OutputLimits) {
        let Some(backlog) = &mut self.backlog else {
            return;
        };
        backlog.add(bytes);
        self.offset += bytes.len() as u64;
        for follower in self.followers.iter().filter(|it| it.is_told()) {
            let client = &follower.client;
            client.push(limits, |out| out.extend_from_slice(bytes));
        }
    }

    /// Has followers tell how far they have come.
    fn ask(&mut self, limits: &OutputLimits) {
        self.add(&request(&[b"REPLCONF", b"GETACK", b"*"]), limits);
    }
}
