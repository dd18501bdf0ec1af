//! Clients that wait for an element: BLPOP and its like.
//!
//! A client that finds nothing is entered here while the latches of its keys are still held, so nothing can have
//! come between. A command that makes one of these keys serves those who wait for it, in the order in which they
//! came, over its own transaction: the push and the pops that it causes are one batch, and no other command comes
//! between them. The clients' replies are sent when that is committed.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Poll, Waker};

use cairn_resp::{Protocol, Reply};
use cairn_store::{Error, Held, Key, Reading, Result, Type, WriteTxn};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::client::Client;
use crate::command::{Blocking, Command, OwnedArgs};
use crate::interest::{Changed, Interest, note_changes};
use crate::server::Server;
use crate::turn::{Call, error_text, try_blocking};

/// Everyone who waits.
pub struct Blocked {
    next: AtomicU64,
    /// By key, and for each key by the order of arrival.
    waiting: Mutex<HashMap<Changed, BTreeMap<u64, Arc<Waiter>>>>,
    /// Clients for whom another node waits.
    elsewhere: Mutex<HashMap<u64, oneshot::Sender<Unblock>>>,
    interest: Arc<Interest>,
    /// How many of them cannot do without their keys; whoever lets keys expire looks at it.
    depending: Arc<AtomicUsize>,
}

/// A client that waits.
pub struct Waiter {
    client: Arc<Client>,
    command: &'static Command,
    blocking: Blocking,
    args: OwnedArgs,
    database: u32,
    protocol: Protocol,
    state: Mutex<State>,
}

struct State {
    stage: Stage,
    waker: Option<Waker>,
}

impl State {
    fn end(&mut self, ending: Ending) {
        self.stage = Stage::Ended(ending);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

#[derive(Debug)]
enum Stage {
    Waiting,
    /// Served by a transaction that is not committed yet.
    Claimed,
    Ended(Ending),
}

/// CLIENT UNBLOCK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unblock {
    pub with_error: bool,
}

impl Unblock {
    pub fn reply(self) -> Reply {
        match self.with_error {
            true => Reply::error("UNBLOCKED client unblocked via CLIENT UNBLOCK"),
            false => Reply::NullArray,
        }
    }
}

/// How waiting ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ending {
    /// With this reply, as it goes over the wire.
    Served(Vec<u8>),
    /// There is something, but not for whoever made it to hand out: the command is to be run again.
    Retry,
    Unblocked(Unblock),
    /// The client is gone, or its time is up.
    Left,
}

/// A client that was served, and what it gets if the transaction is committed.
pub struct Served {
    waiter: Arc<Waiter>,
    reply: Vec<u8>,
}

impl Served {
    /// The transaction has ended.
    pub fn settle(self, result: &Result<(), String>) {
        let reply = match result {
            Ok(()) => self.reply,
            Err(reason) => format!("-{reason}\r\n").into_bytes(),
        };
        self.waiter.end(Ending::Served(reply));
    }
}

impl Waiter {
    fn end(&self, ending: Ending) {
        self.state.lock().end(ending);
    }

    /// The same if it still waits; tells whether it did.
    fn end_waiting(&self, ending: Ending) -> bool {
        let mut state = self.state.lock();
        let is_waiting = matches!(state.stage, Stage::Waiting);
        if is_waiting {
            state.end(ending);
        }
        is_waiting
    }

    /// Whether nobody has anything for it yet.
    pub fn is_waiting(&self) -> bool {
        matches!(self.state.lock().stage, Stage::Waiting)
    }

    /// Nobody else can serve it from now on.
    fn claim(&self) -> bool {
        let mut state = self.state.lock();
        let is_here = matches!(state.stage, Stage::Waiting) && !self.client.is_killed();
        if is_here {
            state.stage = Stage::Claimed;
        }
        is_here
    }

    /// There was nothing for it after all. Its time may have come meanwhile, or its client have gone: it is to look again.
    fn give_back(&self) {
        let mut state = self.state.lock();
        state.stage = Stage::Waiting;
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }

    fn keys(&self) -> Vec<Changed> {
        self.args.with(|args| {
            let mut keys = Vec::new();
            let sources = (self.blocking.sources)(args);
            sources
                .iter()
                .for_each(|name| keys.push((self.database, Box::from(*name))));
            keys
        })
    }

    pub fn poll(&self, context: &mut std::task::Context<'_>) -> Poll<Ending> {
        let mut state = self.state.lock();
        match &state.stage {
            Stage::Ended(ending) => Poll::Ready(ending.clone()),
            _ => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// Waits for as long as it exists.
pub struct Place {
    all: Arc<Blocked>,
    /// Rises with the time of arrival.
    pub order: u64,
    pub waiter: Arc<Waiter>,
}

impl Place {
    /// The time is up, unless it has been served meanwhile: then that is still to come.
    pub fn give_up(&self) -> bool {
        self.waiter.end_waiting(Ending::Left)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.waiter.end_waiting(Ending::Left);
        let mut waiting = self.all.waiting.lock();
        for key in self.waiter.keys() {
            if let Some(here) = waiting.get_mut(&key) {
                here.remove(&self.order);
                if here.is_empty() {
                    waiting.remove(&key);
                }
            }
        }
        self.all.interest.remove();
        if self.waiter.blocking.gone.is_some() {
            self.all.depending.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A client for whom another node waits, for as long as this exists.
pub struct Absent {
    all: Arc<Blocked>,
    client: u64,
    /// Told if it is not to wait any more.
    pub unblocked: oneshot::Receiver<Unblock>,
}

impl Drop for Absent {
    fn drop(&mut self) {
        self.all.elsewhere.lock().remove(&self.client);
    }
}

impl Blocked {
    pub fn new(interest: Arc<Interest>, depending: Arc<AtomicUsize>) -> Blocked {
        Blocked {
            next: AtomicU64::new(0),
            waiting: Mutex::default(),
            elsewhere: Mutex::default(),
            interest,
            depending,
        }
    }

    /// Enters a client whose command found nothing. The latches of its keys are held. `order` is that of its
    /// earlier place, if it had one.
    pub fn enter(
        self: &Arc<Self>,
        client: &Arc<Client>,
        call: &Call<'_>,
        blocking: Blocking,
        order: Option<u64>,
    ) -> Place {
        let waiter = Arc::new(Waiter {
            client: client.clone(),
            command: call.command,
            blocking,
            args: OwnedArgs::new(&call.args),
            database: call.database,
            protocol: call.protocol,
            state: Mutex::new(State {
                stage: Stage::Waiting,
                waker: None,
            }),
        });
        let order = order.unwrap_or_else(|| self.next.fetch_add(1, Ordering::Relaxed));
        self.interest.add();
        if blocking.gone.is_some() {
            self.depending.fetch_add(1, Ordering::Relaxed);
        }
        let mut waiting = self.waiting.lock();
        for key in waiter.keys() {
            waiting
                .entry(key)
                .or_default()
                .insert(order, waiter.clone());
        }
        drop(waiting);
        Place {
            all: self.clone(),
            order,
            waiter,
        }
    }

    /// Enters a client for whom another node waits.
    pub fn enter_elsewhere(self: &Arc<Self>, client: u64) -> Absent {
        let (told, unblocked) = oneshot::channel();
        self.elsewhere.lock().insert(client, told);
        Absent {
            all: self.clone(),
            client,
            unblocked,
        }
    }

    /// CLIENT UNBLOCK: whether this client was waiting.
    pub fn unblock(&self, client: u64, unblock: Unblock) -> bool {
        if let Some(absent) = self.elsewhere.lock().remove(&client) {
            return absent.send(unblock).is_ok();
        }
        let waiter = {
            let waiting = self.waiting.lock();
            let mut all = waiting.values().flat_map(BTreeMap::values);
            all.find(|waiter| waiter.client.id == client).cloned()
        };
        waiter.is_some_and(|waiter| waiter.end_waiting(Ending::Unblocked(unblock)))
    }

    /// The keys of a database that somebody waits for.
    pub fn keys_of(&self, database: u32) -> Vec<Changed> {
        let waiting = self.waiting.lock();
        let here = waiting.keys().filter(|key| key.0 == database);
        here.cloned().collect()
    }

    /// The next who waits for an element of this type, or cannot do without, after those that were passed over.
    fn next(
        &self,
        key: &Changed,
        kind: Option<Type>,
        after: &mut Option<u64>,
    ) -> Option<Arc<Waiter>> {
        let waiting = self.waiting.lock();
        let here = waiting.get(key)?;
        let from = after.map_or(0, |after| after + 1);
        for (order, waiter) in here.range(from..) {
            *after = Some(*order);
            let Blocking {
                kind: wanted, gone, ..
            } = waiter.blocking;
            if (kind == Some(wanted) || gone.is_some()) && waiter.claim() {
                return Some(waiter.clone());
            }
        }
        None
    }

    fn is_awaited(&self, key: &Changed) -> bool {
        self.waiting.lock().contains_key(key)
    }

    /// Serves those who wait for keys that may have come to be.
    pub fn serve(
        &self,
        server: &Server,
        txn: &mut WriteTxn,
        held: &mut Held,
        changed: Vec<Changed>,
        served: &mut Vec<Served>,
    ) {
        let mut ready = VecDeque::from(changed);
        while let Some(key) = ready.pop_front() {
            if !self.is_awaited(&key) {
                continue;
            }
            let mut after = None;
            loop {
                let stored = Key::new(txn.index_of(key.0), &key.1);
                let found = txn.uncounted(|txn| Ok(txn.peek(&stored)?.map(|found| found.kind())));
                let kind = match found {
                    Ok(kind) => kind,
                    Err(error) => {
                        let error: Error = error;
                        tracing::error!("those who wait for a key could not be served: {error}");
                        break;
                    }
                };
                let Some(waiter) = self.next(&key, kind, &mut after) else {
                    break;
                };
                let reply = match waiter.blocking.gone {
                    Some(gone) if kind != Some(waiter.blocking.kind) => {
                        Some(format!("-{gone}\r\n").into_bytes())
                    }
                    _ => waiter.serve(txn, held, &key.1),
                };
                if let Some(reply) = reply {
                    served.push(Served { waiter, reply });
                    // Those who wait for this key have their turn anyway.
                    let changed = note_changes(server, txn, None, None).into_iter();
                    ready.extend(changed.filter(|other| *other != key));
                }
            }
        }
    }

    /// A key has expired, and its latch is still held: those who cannot do without it are told.
    pub fn expired(&self, key: Changed) {
        let waiting = self.waiting.lock();
        let here = waiting.get(&key).into_iter().flat_map(BTreeMap::values);
        for waiter in here {
            if let Some(gone) = waiter.blocking.gone {
                let reply = format!("-{gone}\r\n").into_bytes();
                waiter.end_waiting(Ending::Served(reply));
            }
        }
    }

    /// Tells all who wait to write that they cannot: another server decides what there is from now on.
    pub fn refuse_writers(&self) {
        const REFUSAL: &[u8] = b"-UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)\r\n";
        let waiting = self.waiting.lock();
        let all = waiting.values().flat_map(BTreeMap::values);
        for waiter in all.filter(|waiter| waiter.command.is_write()) {
            waiter.end_waiting(Ending::Served(REFUSAL.to_vec()));
        }
    }

    /// Has everyone try again.
    pub fn retry_all(&self) {
        let waiting = self.waiting.lock();
        for waiter in waiting.values().flat_map(BTreeMap::values) {
            waiter.end_waiting(Ending::Retry);
        }
    }
}

impl Waiter {
    /// Runs the command on this key alone; its reply, unless it has to wait on.
    fn serve(&self, txn: &mut WriteTxn, held: &mut Held, key: &[u8]) -> Option<Vec<u8>> {
        self.args.with(|args| {
            let call = Call {
                command: self.command,
                args: *args,
                database: self.database,
                protocol: self.protocol,
                client: self.client.id,
                by_tls: self.client.is_encrypted,
                by_master: false,
                reading: Reading::Use,
                from_replica: None,
            };
            if !call.take_latches(held) {
                self.end(Ending::Retry);
                return None;
            }
            txn.mark(self.database);
            let blocking = self.blocking;
            let attempt = AssertUnwindSafe(|| try_blocking(txn, &call, blocking, Some(key)));
            let result = catch_unwind(attempt).unwrap_or_else(|_| {
                tracing::error!("{} panicked, and was undone", self.command.name);
                Err(Error::fixed("ERR internal error: see the server's log"))
            });
            if result.is_err() {
                txn.undo();
            }
            if txn.is_followed() {
                txn.propagate_together();
            }
            let reply = match result {
                Ok(Some(reply)) => reply,
                Ok(None) => {
                    self.give_back();
                    return None;
                }
                Err(Error::TooLong) => {
                    self.end(Ending::Retry);
                    return None;
                }
                Err(error) => Reply::error(error_text(&error)),
            };
            let written = reply.to_bytes(self.protocol);
            Some(written.unwrap_or_else(|error| format!("-ERR {error}\r\n").into_bytes()))
        })
    }
}
