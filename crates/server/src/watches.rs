//! WATCH: who wants to know whether a key changes.
//!
//! A change is noted when the command that makes it has run, under the latches of its keys and before its commit.
//! WATCH and EXEC hold the latches of the watched keys too, shared: so whatever happened to a key before WATCH is
//! not held against it, and whatever happens after is known when EXEC looks. In a cluster others may change a key while
//! they lead its region, so a watch holds only as long as this node has led it without a break.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cairn_store::{Key, ReadTxn, Reign, Result, keys, slot};
use parking_lot::Mutex;

use crate::interest::Interest;

type Watched = (u32, Box<[u8]>);

/// Everything that is watched.
pub struct Watches {
    watchers: Mutex<HashMap<Watched, Vec<Watcher>>>,
    interest: Arc<Interest>,
}

struct Watcher {
    dirty: Arc<AtomicBool>,
    /// The key had expired already: that it is deleted is no change.
    was_expired: bool,
    /// When the watch began.
    since_ms: u64,
}

/// What one client watches, until it is dropped.
pub struct Watch {
    all: Arc<Watches>,
    dirty: Arc<AtomicBool>,
    keys: Vec<WatchedKey>,
}

struct WatchedKey {
    database: u32,
    name: Box<[u8]>,
    existed: bool,
    since_ms: u64,
    /// None on a single machine.
    reign: Option<Reign>,
}

impl Watches {
    pub fn new(interest: Arc<Interest>) -> Watches {
        Watches {
            watchers: Mutex::default(),
            interest,
        }
    }

    /// A watch of nothing yet.
    pub fn begin(self: &Arc<Self>) -> Watch {
        Watch {
            all: self.clone(),
            dirty: Arc::default(),
            keys: Vec::new(),
        }
    }

    /// A key has changed.
    pub fn touch(&self, txn: &ReadTxn, database: u32, name: &[u8]) {
        let mut watchers = self.watchers.lock();
        if watchers.is_empty() {
            return;
        }
        let Some(watchers) = watchers.get_mut(&(database, Box::from(name))) else {
            return;
        };
        let is_gone = watchers.iter().any(|watcher| watcher.was_expired) && {
            let key = Key::new(txn.index_of(database), name);
            // What cannot be read counts as changed.
            txn.uncounted(|txn| matches!(txn.find_even_expired(&key), Ok(None)))
        };
        for watcher in watchers {
            if is_gone && std::mem::take(&mut watcher.was_expired) {
                continue;
            }
            watcher.dirty.store(true, Ordering::Relaxed);
        }
    }

    /// Fields of a hash have expired, and are deleted; the last of them expired at that time. Those that had done so before
    /// somebody began to watch are no change.
    pub fn lose_fields(&self, database: u32, name: Box<[u8]>, last_ms: u64) {
        let watchers = self.watchers.lock();
        let watchers = watchers.get(&(database, name));
        for watcher in watchers.into_iter().flatten() {
            if last_ms >= watcher.since_ms {
                watcher.dirty.store(true, Ordering::Relaxed);
            }
        }
    }

    /// A database is not what it was: every key of it has changed that exists, or did.
    pub fn touch_all(&self, txn: &ReadTxn, database: u32, index_before: u64) {
        let watchers = self.watchers.lock();
        let here = watchers.iter().filter(|((of, _), _)| *of == database);
        for ((_, name), watchers) in here {
            for index in [index_before, txn.index_of(database)] {
                let key = Key::new(index, name);
                // What cannot be read counts as changed.
                if txn.uncounted(|txn| !matches!(txn.peek(&key), Ok(None))) {
                    let dirty = watchers.iter().map(|watcher| &watcher.dirty);
                    dirty.for_each(|dirty| dirty.store(true, Ordering::Relaxed));
                }
            }
        }
    }
}

impl Watch {
    /// Watches one more key, whose latch is held.
    pub fn add(&mut self, txn: &ReadTxn, name: &[u8]) -> Result<()> {
        let database = txn.database();
        let is_known = |key: &WatchedKey| key.database == database && *key.name == *name;
        if self.keys.iter().any(is_known) {
            return Ok(());
        }
        let key = txn.key(name);
        let existed = txn.peek(&key)?.is_some();
        let was_expired = !existed && txn.find_even_expired(&key)?.is_some();
        self.all.interest.add();
        let mut watchers = self.all.watchers.lock();
        let watchers = watchers.entry((database, name.into())).or_default();
        watchers.push(Watcher {
            dirty: self.dirty.clone(),
            was_expired,
            since_ms: txn.now_ms(),
        });
        self.keys.push(WatchedKey {
            database,
            name: name.into(),
            existed,
            since_ms: txn.now_ms(),
            reign: txn.reign(),
        });
        Ok(())
    }

    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().map(|key| &*key.name)
    }

    /// Whether one of the keys has changed, or expired, since. Their latches are held.
    pub fn has_changed(&self, txn: &ReadTxn) -> Result<bool> {
        if self.dirty.load(Ordering::Relaxed) {
            return Ok(true);
        }
        let regions = txn.store().regions();
        for watched in self.keys.iter().filter(|key| key.reign.is_some()) {
            let region = regions.with_slot(slot(&watched.name));
            if region.and_then(|region| region.reign()) != watched.reign {
                return Ok(true);
            }
        }
        // That a key expires, or a field, is nobody's command.
        for watched in self.keys.iter().filter(|key| key.existed) {
            // That of a region that is led elsewhere by now may have changed there.
            let Some(key) = txn.key_of_any_region(watched.database, &watched.name) else {
                return Ok(true);
            };
            let is_gone = txn.peek(&key)?.is_none();
            if is_gone || keys::has_lost_fields(txn, &key, watched.since_ms)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut all = self.all.watchers.lock();
        for WatchedKey { database, name, .. } in self.keys.drain(..) {
            let key = (database, name);
            if let Some(watchers) = all.get_mut(&key) {
                watchers.retain(|watcher| !Arc::ptr_eq(&watcher.dirty, &self.dirty));
                if watchers.is_empty() {
                    all.remove(&key);
                }
            }
            self.all.interest.remove();
        }
    }
}
