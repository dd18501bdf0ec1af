//! The server that this one follows: REPLICAOF. A Redis, or another Cairn.
//!
//! A thread calls it, says who is there, and is sent everything, which is loaded into databases that were emptied before (`rdb_load`);
//! or what was missed. From then on the connection belongs to a thread that serves clients: what comes is
//! run as commands of a client that gets no answers, may do everything, and from which nothing is hidden that has
//! expired, since the other server decides about that. How much of the stream has been run is told to it every second.
//!
//! Meanwhile other clients only read, and nothing is deleted because its time has come.

mod link;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

pub use link::Handover;

use crate::client::Client;
use crate::propagation::{decimal, request};
use crate::server::Server;
use crate::shortage;

/// How long it takes until it is tried again.
const PAUSE: Duration = Duration::from_secs(1);

pub struct Upstream {
    state: Mutex<State>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// How many bytes of its stream have been run.
    applied: AtomicU64,
    /// The database that the stream is about there.
    database: AtomicU32,
}

struct State {
    master: Option<Master>,
    /// Rises with each decision whom to follow: who has begun with another one is to end.
    number: u64,
    stage: Stage,
    /// The name of the stream, if some of it is known.
    id: Option<String>,
    down_since: Instant,
    client: Option<Arc<Client>>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Master {
    pub host: String,
    pub port: u16,
}

/// How far it is with following.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    Waiting,
    Connecting,
    Loading,
    Connected,
}

impl Stage {
    /// As ROLE calls it.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Waiting => "connect",
            Stage::Connecting => "connecting",
            Stage::Loading => "sync",
            Stage::Connected => "connected",
        }
    }
}

/// What INFO and ROLE tell.
pub struct Overview {
    pub master: Master,
    pub stage: Stage,
    pub applied: u64,
    pub heard_ago: Duration,
    pub down_for: Duration,
}

impl Default for Upstream {
    fn default() -> Self {
        let now = Instant::now();
        Upstream {
            state: Mutex::new(State {
                master: None,
                number: 0,
                stage: Stage::Waiting,
                id: None,
                down_since: now,
                client: None,
            }),
            thread: Mutex::default(),
            applied: AtomicU64::new(0),
            database: AtomicU32::new(0),
        }
    }
}

impl Upstream {
    /// None if this server follows no other.
    pub fn overview(&self) -> Option<Overview> {
        let state = self.state.lock();
        Some(Overview {
            master: state.master.clone()?,
            stage: state.stage,
            applied: self.applied.load(Ordering::Relaxed),
            heard_ago: state.client.as_ref().map_or(Duration::ZERO, |client| {
                Duration::from_millis(client.idle_ms())
            }),
            down_for: state.down_since.elapsed(),
        })
    }

    pub fn is_any(&self) -> bool {
        self.state.lock().master.is_some()
    }

    /// Whether what this server has may be of the past.
    pub fn is_stale(&self) -> bool {
        let state = self.state.lock();
        state.master.is_some() && state.stage != Stage::Connected
    }

    /// Whether a part of what it should have is on its way.
    pub fn is_loading(&self) -> bool {
        let state = self.state.lock();
        state.master.is_some() && state.stage == Stage::Loading
    }

    /// So much of the stream has been run, and what comes next is about this database.
    pub fn note_applied(&self, bytes: u64, database: u32) {
        self.applied.fetch_add(bytes, Ordering::Relaxed);
        self.database.store(database, Ordering::Relaxed);
    }

    /// How the other server is told how much that is.
    pub fn acknowledgement(&self) -> Vec<u8> {
        let applied = self.applied.load(Ordering::Relaxed);
        request(&[b"REPLCONF", b"ACK", &decimal(applied)])
    }

    /// Once a second: the other server is told how much has been run, or given up on if it has been silent for long.
    pub fn tick(&self, server: &Server) {
        let Some(client) = self.state.lock().client.clone() else {
            return;
        };
        let patience: u64 = server.config.text("repl-timeout").parse().unwrap_or(60);
        // While something of it runs, nothing is read.
        if client.idle_ms() > patience * 1000 && !client.is_at_work() {
            tracing::warn!(
                "{}: closed, it is followed and has been silent",
                client.peer
            );
            client.kill();
            return;
        }
        let told = self.acknowledgement();
        client.outbox.push(|out| out.extend_from_slice(&told));
    }

    /// Waits for its end, when the server stops.
    pub fn join(&self) {
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that follows another server panicked");
        }
    }

    fn is_wanted(&self, number: u64) -> bool {
        self.state.lock().number == number
    }

    fn enter(&self, number: u64, stage: Stage) {
        let mut state = self.state.lock();
        if state.number != number {
            return;
        }
        if state.stage == Stage::Connected && stage != Stage::Connected {
            state.down_since = Instant::now();
            state.client = None;
        }
        state.stage = stage;
    }
}

/// REPLICAOF: follows that server from now on. False if it does so already.
pub fn follow(server: &Arc<Server>, master: Master) -> Result<bool, std::io::Error> {
    let upstream = &server.upstream;
    let number = {
        let mut state = upstream.state.lock();
        if state.master.as_ref() == Some(&master) {
            return Ok(false);
        }
        state.end();
        state.master = Some(master.clone());
        let Master { host, port } = &master;
        server.config.note_master(&format!("{host} {port}"));
        state.number
    };
    // What those who follow this one were told so far is not what they will be told.
    server.replication.cut();
    server.store.expirer().pause(true);
    shortage::look(server);
    server.blocked.refuse_writers();
    let shared = server.clone();
    let mut thread = upstream.thread.lock();
    let before = thread.take();
    let begun = std::thread::Builder::new().name("upstream".into());
    *thread = Some(begun.spawn(move || {
        // Two must not write at once. If it panicked, that has been told.
        if let Some(before) = before {
            let _ = before.join();
        }
        keep_following(&shared, &master, number);
    })?);
    Ok(true)
}

/// Something that came from the server that is followed could not be committed. What there is differs from there by now, so
/// everything is asked for again.
pub fn lose(server: &Server, reason: &str) {
    tracing::error!("what the server that is followed has said could not be done: {reason}");
    let mut state = server.upstream.state.lock();
    state.id = None;
    if let Some(client) = &state.client {
        client.kill();
    }
}

/// REPLICAOF NO ONE: what there is stays, and clients may write.
pub fn follow_nobody(server: &Server) {
    let mut state = server.upstream.state.lock();
    if state.master.is_none() {
        return;
    }
    state.end();
    server.config.note_master("");
    drop(state);
    server.store.expirer().pause(false);
    shortage::look(server);
    tracing::info!("this server follows no other from now on");
}

impl State {
    fn end(&mut self) {
        self.number += 1;
        self.master = None;
        self.stage = Stage::Waiting;
        self.id = None;
        self.down_since = Instant::now();
        if let Some(client) = self.client.take() {
            client.kill();
        }
    }
}

fn keep_following(server: &Arc<Server>, master: &Master, number: u64) {
    let upstream = &server.upstream;
    while upstream.is_wanted(number) && !server.is_stopping() {
        let Master { host, port } = master;
        match link::follow_once(server, master, number) {
            Ok(()) => tracing::warn!(
                "the connection to {host}:{port}, which this server follows, has ended"
            ),
            Err(reason) => tracing::warn!("this server cannot follow {host}:{port}: {reason}"),
        }
        upstream.enter(number, Stage::Waiting);
        shortage::look(server);
        let until = Instant::now() + PAUSE;
        while Instant::now() < until && upstream.is_wanted(number) && !server.is_stopping() {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
