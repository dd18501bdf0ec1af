//! Client-side caching: who keeps copies of what, and who tells them that a copy is outdated.
//!
//! A key is remembered before it is read. So whoever changes it afterwards finds the reader, and whoever changed it
//! before has been seen; at worst a reader is told of a change that it has seen already. It is told behind the reply: nothing is
//! sent to a client between what it reads and its reply, unless it waits (XREAD), and then it is looked for afterwards whether
//! the key is still remembered. What commands changed is an effect of their transaction (see `interest`), and reaches the
//! readers after its commit.

mod invalidation;
mod table;
mod tracker;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

use cairn_store::Store;
use parking_lot::Mutex;

pub use invalidation::Outdated;
pub use tracker::{Asked, Tracker};

use crate::interest::Interest;
use table::Table;

/// The clients that keep copies.
pub struct Tracking {
    clients: AtomicUsize,
    table: Mutex<Table>,
    /// Who wants to know of every key that begins like this: BCAST.
    prefixes: Mutex<BTreeMap<Box<[u8]>, Vec<u64>>>,
    interest: Arc<Interest>,
    store: Arc<Store>,
}

/// What a client has asked for, as others need to know it.
#[derive(Default)]
pub struct State {
    flags: AtomicU8,
    /// The client that gets what is meant for this one; zero if none.
    redirect: AtomicU64,
}

const ON: u8 = 1;
const BY_PREFIX: u8 = 1 << 1;
const SPARED: u8 = 1 << 2;
const BROKEN: u8 = 1 << 3;

impl State {
    fn has(&self, flag: u8) -> bool {
        self.flags.load(Ordering::Relaxed) & flag != 0
    }

    pub fn is_on(&self) -> bool {
        self.has(ON)
    }

    /// BCAST.
    pub fn is_by_prefix(&self) -> bool {
        self.has(BY_PREFIX)
    }

    /// NOLOOP: it is not told of what it changes itself.
    fn is_spared(&self) -> bool {
        self.has(SPARED)
    }

    /// Whoever should get its messages is gone.
    pub fn is_broken(&self) -> bool {
        self.has(BROKEN)
    }

    fn set_broken(&self) {
        self.flags.fetch_or(BROKEN, Ordering::Relaxed);
    }

    pub fn redirect(&self) -> u64 {
        self.redirect.load(Ordering::Relaxed)
    }

    /// As CLIENT LIST and CLIENT GETREDIR show it.
    pub fn shown_redirect(&self) -> i64 {
        if self.is_on() {
            self.redirect() as i64
        } else {
            -1
        }
    }
}

impl Tracking {
    pub fn new(interest: Arc<Interest>, store: Arc<Store>) -> Tracking {
        Tracking {
            clients: AtomicUsize::new(0),
            table: Mutex::default(),
            prefixes: Mutex::default(),
            interest,
            store,
        }
    }

    #[inline]
    pub fn is_on(&self) -> bool {
        self.clients() > 0
    }

    /// How many keep copies.
    pub fn clients(&self) -> usize {
        self.clients.load(Ordering::Relaxed)
    }

    /// How many keys are remembered.
    pub fn keys(&self) -> usize {
        self.table.lock().len()
    }

    /// The same, each as often as there are readers.
    pub fn items(&self) -> usize {
        self.table.lock().items()
    }

    pub fn prefixes(&self) -> usize {
        self.prefixes.lock().len()
    }

    /// A client keeps what it is about to read. Whether that was not known before.
    fn remember(&self, client: u64, name: &[u8]) -> bool {
        self.table.lock().add(name, client)
    }

    fn start(&self) {
        self.interest.add();
        self.clients.fetch_add(1, Ordering::Relaxed);
        self.store.listeners().keep(true);
    }

    fn stop(&self) {
        self.interest.remove();
        if self.clients.fetch_sub(1, Ordering::Relaxed) == 1 {
            // Nobody is left to be told.
            self.table.lock().clear();
            self.store.listeners().keep(false);
            // One that has come meanwhile is not to be forgotten.
            self.store.listeners().keep(self.is_on());
        }
    }

    fn add_prefix(&self, client: u64, prefix: &[u8]) {
        let mut prefixes = self.prefixes.lock();
        let clients = prefixes.entry(prefix.into()).or_default();
        if !clients.contains(&client) {
            clients.push(client);
        }
    }

    fn remove_prefix(&self, client: u64, prefix: &[u8]) {
        let mut prefixes = self.prefixes.lock();
        if let Some(clients) = prefixes.get_mut(prefix) {
            clients.retain(|other| *other != client);
            if clients.is_empty() {
                prefixes.remove(prefix);
            }
        }
    }
}
