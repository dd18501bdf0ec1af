//! Room: what becomes of commands while more is used than `maxmemory`.
//!
//! What is used is what the data takes, wherever it lies, and what clients' buffers and scripts take. The former is known
//! after each commit (`cairn_engine::Measure`), the latter is looked at several times in a second. What else the process
//! allocates goes up and down with its caches and its background work, and says nothing about the data. Whoever finds that it is too much wakes a thread that evicts keys, and notes it among the shortages. The next
//! commands then wait: those that may let the data grow until there is room, or nothing more can go, since otherwise a quick
//! writer would be ahead of the thread for good; all others for the next keys to go only, so that clients are told what has gone
//! before they are answered, and a limit that is far below what there is holds up nobody who reads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use cairn_store::{Demand, Policy};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::info::memory::client_buffers;
use crate::server::Server;
use crate::shortage::Shortage;

/// How many keys go in one commit: whoever wants one of their latches waits no longer than for these.
const KEYS_AT_ONCE: usize = 16;
/// The same in a cluster, where others have to agree to each commit.
const KEYS_AT_ONCE_REPLICATED: usize = 256;
/// How long a command waits for room before it runs without: as in Redis, to evict is then left to the background.
const MOST_WAIT: Duration = Duration::from_secs(1);
/// By how much what is used beside the data has to change to count as changed.
const STEADY: u64 = 1 << 20;
/// A little more goes than has to, so that not every write has to wait for a commit of the evictor: such a part of what may
/// be, and no more than so much.
const SLACK_PART: u64 = 256;
const MOST_SLACK: u64 = 64 << 10;
/// How long the thread sleeps if nobody wakes it.
const SLEEP: Duration = Duration::from_secs(1);
/// How long it rests if keys cannot be deleted.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

#[derive(Default)]
pub struct Room {
    /// How often some keys have gone, or it was given up.
    rounds: watch::Sender<u64>,
    thread: OnceLock<Thread>,
    exceeded: Mutex<Exceeded>,
    /// What is used beside the data, as it was when that last changed by much; zero before it was looked.
    beside: AtomicU64,
    evicted_before: AtomicU64,
}

/// For how long there was too much.
#[derive(Default)]
struct Exceeded {
    since: Option<Instant>,
    before: Duration,
}

impl Room {
    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    fn end_round(&self) {
        self.rounds.send_modify(|round| *round += 1);
    }

    fn note(&self, is_exceeded: bool) {
        let mut exceeded = self.exceeded.lock();
        match (exceeded.since, is_exceeded) {
            (None, true) => exceeded.since = Some(Instant::now()),
            (Some(since), false) => {
                exceeded.before += since.elapsed();
                exceeded.since = None;
            }
            _ => {}
        }
    }

    /// What is used beside the data, to within a megabyte: buffers grow and shrink with every command, which is no reason to
    /// evict anything.
    pub fn bytes_beside_data(&self, server: &Server) -> u64 {
        let kept = self.beside.load(Ordering::Relaxed);
        let scripts = server.scripts.figures();
        let of_scripts = scripts.lua_bytes + scripts.script_bytes + scripts.library_bytes;
        let now = (client_buffers(server) + of_scripts) as u64;
        if kept > 0 && now.abs_diff(kept) <= STEADY {
            return kept;
        }
        self.beside.store(now, Ordering::Relaxed);
        now
    }

    /// For how long there was too much in all, and for how long there has been now.
    pub fn exceeded(&self) -> (Duration, Duration) {
        let exceeded = self.exceeded.lock();
        let current = exceeded
            .since
            .map_or(Duration::ZERO, |since| since.elapsed());
        (exceeded.before + current, current)
    }

    /// Keys evicted since the figures were last reset.
    pub fn evicted_keys(&self, server: &Server) -> u64 {
        let ever = server.store.evictor().evicted_keys();
        ever.saturating_sub(self.evicted_before.load(Ordering::Relaxed))
    }

    pub fn reset_figures(&self, server: &Server) {
        let ever = server.store.evictor().evicted_keys();
        self.evicted_before.store(ever, Ordering::Relaxed);
        *self.exceeded.lock() = Exceeded::default();
    }

    /// Waits for keys to go: those who need room until there is some, or there can be none.
    pub async fn wait(&self, server: &Server, needs_room: bool) {
        let mut rounds = self.rounds.subscribe();
        let wait = async {
            // The thread says that it has ended only after that can be seen.
            while server.shortages.is_making_room() {
                if rounds.changed().await.is_err() || !needs_room {
                    return;
                }
            }
        };
        // Whoever has waited for so long runs, and others evict.
        let _ = tokio::time::timeout(MOST_WAIT, wait).await;
    }
}

/// More is used than may be. Called while rows are made visible, and must not take its time.
fn raise_alarm(server: &Server) {
    match policy(server) {
        Some(_) => {
            server.shortages.note(Shortage::Room, true);
            server.room.wake();
        }
        None => server.shortages.note(Shortage::Memory, true),
    }
}

/// None if nothing may be evicted.
fn policy(server: &Server) -> Option<Policy> {
    *server.live.eviction.policy.lock()
}

/// Whether it is for this server, now, to keep to `maxmemory`. What it follows decides what there is; and while clients are
/// paused, nothing changes.
fn is_limited(server: &Server) -> bool {
    !server.upstream.is_any() && !server.pause.is_on()
}

/// Looks whether more is used than `maxmemory`.
pub fn look(server: &Server) {
    let limit = server.live.eviction.max_memory.load(Ordering::Relaxed);
    let measure = server.store.engine().measure();
    if limit == 0 && !measure.is_on() {
        return;
    }
    if limit > 0 && !measure.is_on() {
        // Nothing is too much before it is known how much there is.
        measure.limit(i64::MAX);
    }
    server.store.measure_data(limit > 0);
    let beside = server.room.bytes_beside_data(server);
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    measure.limit(match limit > 0 && is_limited(server) {
        true => signed(limit).saturating_sub(signed(beside)),
        false => i64::MAX,
    });
    if measure.is_exceeded() {
        raise_alarm(server);
    } else {
        server.shortages.note(Shortage::Memory, false);
    }
    server.room.note(measure.is_exceeded());
}

/// Looks whether what was too much has gone since, before anything is refused for it.
pub fn look_again(server: &Server) {
    if !server.store.engine().measure().is_exceeded() {
        server.shortages.note(Shortage::Memory, false);
    }
}

/// Starts the thread that evicts, which ends when the server does.
pub fn start(server: &Arc<Server>) -> std::io::Result<JoinHandle<()>> {
    let told = Arc::downgrade(server);
    let alarm = move || {
        if let Some(server) = told.upgrade() {
            raise_alarm(&server);
        }
    };
    server.store.engine().measure().tell(Box::new(alarm));
    let watched = Arc::downgrade(server);
    let thread = std::thread::Builder::new()
        .name("evictor".into())
        .spawn(move || run(&watched))?;
    // It is started once.
    let _ = server.room.thread.set(thread.thread().clone());
    Ok(thread)
}

fn run(server: &Weak<Server>) {
    while let Some(server) = server.upgrade().filter(|server| !server.is_stopping()) {
        if server.shortages.is_making_room() {
            make_room(&server);
        } else {
            drop(server);
            std::thread::park_timeout(SLEEP);
        }
    }
}

/// Evicts keys until there is room, or nothing more can go.
fn make_room(server: &Server) {
    let started = Instant::now();
    let is_exhausted = loop {
        let excess = server.store.engine().measure().excess();
        let Some(policy) = policy(server).filter(|_| excess > 0 && is_limited(server)) else {
            break excess > 0 && is_limited(server);
        };
        match server.store.evict_some(&demand(server, policy, excess)) {
            Ok(0) => break true,
            Ok(_) => server.room.end_round(),
            Err(error) => {
                tracing::error!("keys could not be evicted: {error}");
                std::thread::sleep(AFTER_FAILURE);
                break true;
            }
        }
        if server.is_stopping() {
            break false;
        }
    };
    server.shortages.note(Shortage::Memory, is_exhausted);
    server.shortages.note(Shortage::Room, false);
    server.room.end_round();
    server.room.note(is_exhausted);
    // Somebody may have raised the alarm after the last look, and before it was ended.
    let is_exceeded = server.store.engine().measure().is_exceeded();
    if is_exceeded && !is_exhausted && is_limited(server) {
        raise_alarm(server);
    }
    let spike_ms = server.live.spike_ms.load(Ordering::Relaxed);
    let took = started.elapsed();
    if spike_ms > 0 && took >= Duration::from_millis(spike_ms) {
        server.spikes.add("eviction-cycle", took);
    }
}

fn demand(server: &Server, policy: Policy, excess: u64) -> Demand {
    let limit = server.live.eviction.max_memory.load(Ordering::Relaxed);
    let slack = (limit / SLACK_PART).min(MOST_SLACK);
    Demand {
        policy,
        samples: server.live.eviction.samples.load(Ordering::Relaxed),
        keys: match server.store.is_replicated() {
            true => KEYS_AT_ONCE_REPLICATED,
            false => KEYS_AT_ONCE,
        },
        bytes: excess.saturating_add(slack),
    }
}
