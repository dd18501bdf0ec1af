//! Who is connected: what CLIENT LIST shows and CLIENT KILL ends.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use cairn_engine::Moment;
use cairn_resp::Protocol;
use parking_lot::Mutex;
use tokio::task::AbortHandle;

use crate::acl::User;
use crate::address::Endpoint;
use crate::command::{self, Command};
use crate::outbox::Outbox;
use crate::output_limits::{Excess, OutputLimits};
use crate::pubsub::Kind;
use crate::tracking::State;

/// One connection, as the rest of the server sees it. Its own task writes here; anyone may read.
pub struct Client {
    pub id: u64,
    pub peer: Endpoint,
    pub local: Endpoint,
    /// It came by a port for encrypted connections, and is to go to such ports of other nodes.
    pub is_encrypted: bool,
    pub fd: i32,
    pub connected: Moment,
    pub name: Mutex<Vec<u8>>,
    pub user: ArcSwap<User>,
    pub database: AtomicU32,
    pub resp3: AtomicBool,
    pub no_evict: AtomicBool,
    /// What it reads does not count as used.
    pub no_touch: AtomicBool,
    pub input: Buffer,
    pub output: Buffer,
    pub outbox: Outbox,
    pub is_monitor: AtomicBool,
    /// It follows this server.
    pub is_replica: AtomicBool,
    /// This server follows it.
    pub is_master: AtomicBool,
    /// How many commands it has queued since MULTI; negative if it has not begun a transaction.
    pub queued: AtomicI64,
    excess: Excess,
    pub tracking: State,
    /// The channels of slots that it listens to. Others take it off them when the slot goes to another node.
    pub shards: Mutex<HashSet<Box<[u8]>>>,
    /// How many channels, patterns and shard channels it listens to.
    subscriptions: [AtomicUsize; 3],
    /// Milliseconds since `connected` at the last command.
    last_active_ms: AtomicU64,
    /// The number of the last command; `NO_COMMAND` before the first.
    last_command: AtomicUsize,
    is_blocked: AtomicBool,
    is_busy: AtomicBool,
    is_killed: AtomicBool,
    task: Mutex<Option<AbortHandle>>,
}

/// The client's end of a connection, and ours.
pub struct Ends {
    pub peer: Endpoint,
    pub local: Endpoint,
    pub is_encrypted: bool,
}

const NO_COMMAND: usize = usize::MAX;

/// How large one of a connection's buffers is, and how much of it is used.
#[derive(Default)]
pub struct Buffer {
    used: AtomicUsize,
    capacity: AtomicUsize,
    most_used: AtomicUsize,
}

impl Buffer {
    pub fn note(&self, used: usize, capacity: usize) {
        self.used.store(used, Ordering::Relaxed);
        self.capacity.store(capacity, Ordering::Relaxed);
        // Only the connection's own task writes, so nothing comes between these two.
        let most = self.most_used.load(Ordering::Relaxed);
        self.most_used.store(most.max(used), Ordering::Relaxed);
    }

    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    pub fn capacity(&self) -> usize {
        self.capacity.load(Ordering::Relaxed)
    }

    pub fn most_used(&self) -> usize {
        self.most_used.load(Ordering::Relaxed)
    }
}

impl Client {
    pub fn touch(&self, now: Moment) {
        let since = now.since(self.connected).as_millis() as u64;
        self.last_active_ms.store(since, Ordering::Relaxed);
    }

    pub fn idle_ms(&self) -> u64 {
        let now = self.connected.elapsed().as_millis() as u64;
        now.saturating_sub(self.last_active_ms.load(Ordering::Relaxed))
    }

    /// Remembers which command runs.
    pub fn runs(&self, command: &Command) {
        self.last_command.store(command.number(), Ordering::Relaxed);
    }

    pub fn is_user(&self, user: &Arc<User>) -> bool {
        Arc::ptr_eq(&self.user.load(), user)
    }

    fn last_command(&self) -> &'static str {
        let number = self.last_command.load(Ordering::Relaxed);
        command::by_number(number).map_or("NULL", |command| command.full_name)
    }

    /// Whether it waits for something other than its client.
    pub fn is_blocked(&self) -> bool {
        self.is_blocked.load(Ordering::Relaxed)
    }

    /// It waits until the mark is dropped.
    pub fn block(&self) -> Mark<'_> {
        Mark::set(&self.is_blocked)
    }

    /// A command of its runs for long, until the mark is dropped.
    pub fn work(&self) -> Mark<'_> {
        Mark::set(&self.is_busy)
    }

    /// Whether a command of its runs for long.
    pub fn is_at_work(&self) -> bool {
        self.is_busy.load(Ordering::Relaxed)
    }

    /// Whether it is up to the client that nothing happens, and has been for so long.
    pub fn is_idle(&self, milliseconds: u64) -> bool {
        let is_waited_for = self.is_blocked()
            || self.is_at_work()
            || self.is_subscriber()
            || self.is_replica()
            || self.is_master();
        !is_waited_for && self.idle_ms() > milliseconds
    }

    pub fn is_replica(&self) -> bool {
        self.is_replica.load(Ordering::Relaxed)
    }

    pub fn is_master(&self) -> bool {
        self.is_master.load(Ordering::Relaxed)
    }

    pub fn protocol(&self) -> Protocol {
        if self.resp3.load(Ordering::Relaxed) {
            Protocol::Resp3
        } else {
            Protocol::Resp2
        }
    }

    pub fn note_subscriptions(&self, kind: Kind, count: usize) {
        self.subscriptions[kind as usize].store(count, Ordering::Relaxed);
    }

    fn subscriptions(&self, kind: Kind) -> usize {
        self.subscriptions[kind as usize].load(Ordering::Relaxed)
    }

    /// Whether it listens to anything.
    pub fn is_subscriber(&self) -> bool {
        let mut counts = self.subscriptions.iter();
        counts.any(|count| count.load(Ordering::Relaxed) > 0)
    }

    /// Has it sent what `write` appends, unless too much waits for it already: then it is given up on.
    pub fn push(&self, limits: &OutputLimits, write: impl FnOnce(&mut Vec<u8>)) {
        let waiting = self.outbox.push(write) + self.output.used();
        self.check_output(limits, waiting);
    }

    /// Gives up on it if too much waits to be sent, or much for too long.
    pub fn check_output(&self, limits: &OutputLimits, waiting: usize) {
        if self.excess.is_too_much(limits, self, waiting) {
            let mut line = Vec::new();
            self.describe(&mut line);
            // What is lost now would have come out of order if it were sent after all.
            if self.outbox.close() {
                let line = String::from_utf8_lossy(line.trim_ascii_end());
                tracing::warn!(
                    "Client {line} scheduled to be closed ASAP for overcoming of output buffer limits."
                );
                self.kill();
            }
        }
    }

    pub fn set_task(&self, task: AbortHandle) {
        *self.task.lock() = Some(task);
    }

    /// Ends the connection from outside.
    pub fn kill(&self) {
        self.is_killed.store(true, Ordering::Relaxed);
        // Nothing that comes from now on is for it.
        self.outbox.close();
        if let Some(task) = &*self.task.lock() {
            task.abort();
        }
    }

    /// Whether it is about to end.
    pub fn is_killed(&self) -> bool {
        self.is_killed.load(Ordering::Relaxed)
    }

    /// Whether what it reads does not count as used.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.no_touch.load(Ordering::Relaxed)
    }

    /// Its state in Redis' letters.
    fn flags(&self) -> String {
        let flags = [
            ('S', self.is_replica()),
            ('M', self.is_master()),
            ('O', self.is_monitor.load(Ordering::Relaxed)),
            ('P', self.is_subscriber()),
            ('x', self.queued.load(Ordering::Relaxed) >= 0),
            ('b', self.is_blocked()),
            ('t', self.tracking.is_on()),
            ('R', self.tracking.is_broken()),
            ('B', self.tracking.is_by_prefix()),
            ('U', matches!(self.peer, Endpoint::Unix(_))),
            ('e', self.no_evict.load(Ordering::Relaxed)),
            ('T', self.is_quiet()),
        ];
        let set: String = flags
            .iter()
            .filter_map(|(letter, is_set)| is_set.then_some(*letter))
            .collect();
        if set.is_empty() { "N".into() } else { set }
    }

    /// Its line in CLIENT LIST. What a connection of ours does not have is shown as a connection of Redis shows
    /// that it has none.
    pub fn describe(&self, line: &mut Vec<u8>) {
        let (input, output) = (&self.input, &self.output);
        let pushed = self.outbox.len();
        let memory = input.capacity() + output.capacity() + pushed + size_of::<Client>();
        let mut head = String::new();
        let mut tail = String::new();
        // Writing to a string cannot fail.
        let _ = write!(
            head,
            "id={} addr={} laddr={} fd={} name=",
            self.id, self.peer, self.local, self.fd
        );
        let _ = write!(
            tail,
            " age={} idle={} flags={} db={} sub={} psub={} ssub={} multi={} qbuf={} qbuf-free={} \
             argv-mem=0 multi-mem=0 rbs={} rbp={} obl={} oll={} omem={pushed} tot-mem={memory} events={} \
             cmd={} user={} redir={} resp={}",
            self.connected.elapsed().as_secs(),
            self.idle_ms() / 1000,
            self.flags(),
            self.database.load(Ordering::Relaxed),
            self.subscriptions(Kind::Channel),
            self.subscriptions(Kind::Pattern),
            self.subscriptions(Kind::Shard),
            self.queued.load(Ordering::Relaxed),
            input.used(),
            input.capacity().saturating_sub(input.used()),
            output.capacity(),
            output.most_used(),
            output.used(),
            usize::from(pushed > 0),
            if output.used() + pushed > 0 {
                "rw"
            } else {
                "r"
            },
            self.last_command(),
            String::from_utf8_lossy(&self.user.load().name),
            self.tracking.shown_redirect(),
            if self.resp3.load(Ordering::Relaxed) {
                3
            } else {
                2
            },
        );
        line.extend_from_slice(head.as_bytes());
        line.extend_from_slice(&self.name.lock());
        line.extend_from_slice(tail.as_bytes());
        line.push(b'\n');
    }
}

/// True for as long as it exists.
pub struct Mark<'a>(&'a AtomicBool);

impl<'a> Mark<'a> {
    fn set(mark: &'a AtomicBool) -> Self {
        mark.store(true, Ordering::Relaxed);
        Mark(mark)
    }
}

impl Drop for Mark<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

#[derive(Default)]
pub struct Clients {
    next_id: AtomicU64,
    connected: Mutex<BTreeMap<u64, Arc<Client>>>,
    count: AtomicUsize,
}

impl Clients {
    /// How many are connected.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// All clients by id.
    pub fn all(&self) -> Vec<Arc<Client>> {
        self.connected.lock().values().cloned().collect()
    }

    pub fn get(&self, id: u64) -> Option<Arc<Client>> {
        self.connected.lock().get(&id).cloned()
    }

    /// Makes room for one more connection, unless there are `limit` already.
    pub fn reserve(self: &Arc<Self>, limit: usize) -> Option<Place> {
        let one_more = |count: usize| (count < limit).then_some(count + 1);
        let reserved = self
            .count
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        reserved.ok().map(|_| Place(self.clone()))
    }

    /// Enters a new connection in its place; it is listed until the guard is dropped.
    pub fn enter(&self, place: Place, ends: Ends, fd: i32, user: Arc<User>) -> Entered {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed) + 1;
        let client = Arc::new(Client {
            id,
            peer: ends.peer,
            local: ends.local,
            is_encrypted: ends.is_encrypted,
            fd,
            connected: Moment::now(),
            name: Mutex::default(),
            user: ArcSwap::new(user),
            database: AtomicU32::new(0),
            resp3: AtomicBool::new(false),
            no_evict: AtomicBool::new(false),
            no_touch: AtomicBool::new(false),
            input: Buffer::default(),
            output: Buffer::default(),
            outbox: Outbox::default(),
            is_monitor: AtomicBool::new(false),
            is_replica: AtomicBool::new(false),
            is_master: AtomicBool::new(false),
            queued: AtomicI64::new(-1),
            excess: Excess::default(),
            tracking: State::default(),
            shards: Mutex::default(),
            subscriptions: Default::default(),
            last_active_ms: AtomicU64::new(0),
            last_command: AtomicUsize::new(NO_COMMAND),
            is_blocked: AtomicBool::new(false),
            is_busy: AtomicBool::new(false),
            is_killed: AtomicBool::new(false),
            task: Mutex::new(None),
        });
        self.connected.lock().insert(id, client.clone());
        Entered { place, client }
    }
}

/// Room for one connection, taken before it is served so that no more come in than may.
pub struct Place(Arc<Clients>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A listed connection.
pub struct Entered {
    place: Place,
    pub client: Arc<Client>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.place.0.connected.lock().remove(&self.client.id);
    }
}
