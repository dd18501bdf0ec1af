//! Latches: who may work on a key now, and who is next.
//!
//! A request names all the keys it needs at once, each shared or exclusive, and gets all of them or
//! none; so nobody waits while holding, and there is no deadlock. Requests that cannot be granted queue
//! up at every latch they name, in the order of their arrival; a later request never overtakes an
//! earlier one that it conflicts with, so nobody starves, and passes by those it does not conflict with.
//! Waiting is a future: no thread is blocked.
//!
//! A latch is named by a hash of the key. Two keys that share a hash share a latch, which costs a wait
//! and nothing else; so do keys of the same name in two databases.

use std::collections::BTreeSet;
use std::collections::hash_map::Entry as MapEntry;
use std::hash::Hasher;
use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHasher};
use smallvec::SmallVec;
use tokio::sync::oneshot;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Mode {
    Shared,
    Exclusive,
}

type Name = u64;
type Names = SmallVec<[(Name, Mode); 8]>;

/// The latch that everyone holds, shared; to hold it exclusively is to be alone.
const EVERYTHING: Name = 0;

fn name_of(key: &[u8]) -> Name {
    let mut hasher = FxHasher::default();
    hasher.write(key);
    hasher.finish() | 1
}

/// Which latches are wanted.
#[derive(Clone, Debug)]
pub struct Request {
    wanted: Names,
    is_sorted: bool,
}

impl Default for Request {
    fn default() -> Self {
        Request {
            wanted: SmallVec::from_slice(&[(EVERYTHING, Mode::Shared)]),
            is_sorted: true,
        }
    }
}

impl Request {
    /// For what needs no latch at all.
    pub fn nothing() -> Self {
        Request {
            wanted: SmallVec::new(),
            is_sorted: true,
        }
    }

    /// To be alone.
    pub fn everything() -> Self {
        Request {
            wanted: SmallVec::from_slice(&[(EVERYTHING, Mode::Exclusive)]),
            is_sorted: true,
        }
    }

    pub fn add(&mut self, key: &[u8], mode: Mode) {
        self.wanted.push((name_of(key), mode));
        self.is_sorted = false;
    }

    /// Each latch once, in the stronger of the modes asked for, in the order of the names.
    fn sort(&mut self) {
        if !self.is_sorted {
            self.wanted
                .sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
            self.wanted.dedup_by_key(|(name, _)| *name);
            self.is_sorted = true;
        }
    }
}

#[derive(Default)]
struct Latch {
    shared: u32,
    exclusive: bool,
    /// Who waits, by number; the numbers rise with the time of arrival.
    waiting_shared: BTreeSet<u64>,
    waiting_exclusive: BTreeSet<u64>,
}

impl Latch {
    fn is_free_for(&self, mode: Mode) -> bool {
        match mode {
            Mode::Shared => !self.exclusive,
            Mode::Exclusive => !self.exclusive && self.shared == 0,
        }
    }

    /// Whether someone who came before this number waits for what conflicts with the mode.
    fn is_awaited_before(&self, number: u64, mode: Mode) -> bool {
        let comes_first = |waiting: &BTreeSet<u64>| waiting.first().is_some_and(|n| *n < number);
        comes_first(&self.waiting_exclusive)
            || mode == Mode::Exclusive && comes_first(&self.waiting_shared)
    }

    fn admits(&self, number: u64, mode: Mode) -> bool {
        self.is_free_for(mode) && !self.is_awaited_before(number, mode)
    }

    fn waiting(&mut self, mode: Mode) -> &mut BTreeSet<u64> {
        match mode {
            Mode::Shared => &mut self.waiting_shared,
            Mode::Exclusive => &mut self.waiting_exclusive,
        }
    }

    fn take(&mut self, mode: Mode) {
        match mode {
            Mode::Shared => self.shared += 1,
            Mode::Exclusive => self.exclusive = true,
        }
    }

    /// Those whom the release of this mode may let in.
    fn candidates(&self, released: Mode) -> impl Iterator<Item = u64> {
        let next_exclusive = self.waiting_exclusive.first().copied();
        let sharers = match released {
            // They were not kept out by one of their kind.
            Mode::Shared => None,
            Mode::Exclusive => Some(
                self.waiting_shared
                    .range(..next_exclusive.unwrap_or(u64::MAX)),
            ),
        };
        let next_exclusive = next_exclusive.filter(|_| self.shared == 0);
        next_exclusive
            .into_iter()
            .chain(sharers.into_iter().flatten().copied())
    }

    fn is_idle(&self) -> bool {
        self.shared == 0
            && !self.exclusive
            && self.waiting_shared.is_empty()
            && self.waiting_exclusive.is_empty()
    }
}

struct Waiter {
    request: Request,
    granted: oneshot::Sender<Held>,
}

#[derive(Default)]
struct Table {
    latches: FxHashMap<Name, Latch>,
    waiters: FxHashMap<u64, Waiter>,
    next_number: u64,
}

#[derive(Clone, Default)]
pub struct Latches {
    table: Arc<Mutex<Table>>,
}

/// Latches that are held; dropping it lets go of them.
pub struct Held {
    latches: Latches,
    held: Grips,
}

/// How a latch is held.
#[derive(Clone, Copy)]
struct Grip {
    mode: Mode,
    /// One that was adopted may be held several times, shared.
    times: u32,
}

type Grips = FxHashMap<Name, Grip>;

impl Latches {
    pub fn new() -> Self {
        Self::default()
    }

    /// Holds nothing, to be extended.
    pub fn none(&self) -> Held {
        Held {
            latches: self.clone(),
            held: Grips::default(),
        }
    }

    /// Waits for its turn and then holds all that was asked for.
    pub async fn acquire(&self, request: Request) -> Held {
        match self.acquire_or_queue(request) {
            Ok(held) => held,
            // The sender lives in the table until the grant, and the table as long as `self`.
            Err(grant) => grant.await.unwrap_or_else(|_| self.none()),
        }
    }

    /// The same, on a thread that may block.
    pub fn acquire_blocking(&self, request: Request) -> Held {
        match self.acquire_or_queue(request) {
            Ok(held) => held,
            Err(grant) => grant.blocking_recv().unwrap_or_else(|_| self.none()),
        }
    }

    fn acquire_or_queue(&self, mut request: Request) -> Result<Held, oneshot::Receiver<Held>> {
        request.sort();
        let mut held = self.none();
        let mut table = self.table.lock();
        if table.try_extend(&mut held.held, &request) {
            return Ok(held);
        }
        let number = table.next_number;
        table.next_number += 1;
        for &(name, mode) in &request.wanted {
            let latch = table.latches.entry(name).or_default();
            latch.waiting(mode).insert(number);
        }
        let (granted, grant) = oneshot::channel();
        table.waiters.insert(number, Waiter { request, granted });
        Err(grant)
    }
}

impl Held {
    /// Adds to what is held, if that needs no waiting; else changes nothing and says so.
    pub fn try_extend(&mut self, request: &mut Request) -> bool {
        let is_held = |(name, mode): &(Name, Mode)| {
            let grip = self.held.get(name);
            grip.is_some_and(|grip| grip.mode >= *mode)
        };
        if request.wanted.iter().all(is_held) {
            return true;
        }
        request.sort();
        self.latches
            .table
            .lock()
            .try_extend(&mut self.held, request)
    }

    /// Takes over what another holds.
    pub fn adopt(&mut self, mut other: Held) {
        for (name, grip) in other.held.drain() {
            let own = self.held.entry(name);
            own.and_modify(|own| own.times += grip.times)
                .or_insert(grip);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// How many latches are held.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Lets go of everything; to be extended again.
    pub fn let_go(&mut self) {
        let mut unwanted: Vec<Held> = Vec::new();
        let mut released = std::mem::take(&mut self.held);
        loop {
            if !released.is_empty() {
                let grants = self.latches.table.lock().release(&released);
                for (waiter, names) in grants {
                    let held = names.into_iter().map(|(name, mode)| {
                        let grip = Grip { mode, times: 1 };
                        (name, grip)
                    });
                    let held = Held {
                        latches: self.latches.clone(),
                        held: held.collect(),
                    };
                    // One whose future is gone gives back at once: here, and not by recursion.
                    unwanted.extend(waiter.send(held).err());
                }
            }
            released.clear();
            // Keeps the room for the next time.
            if self.held.capacity() < released.capacity() {
                self.held = std::mem::take(&mut released);
            }
            match unwanted.pop() {
                Some(mut held) => released = std::mem::take(&mut held.held),
                None => break,
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.let_go();
    }
}

impl Table {
    fn try_extend(&mut self, held: &mut Grips, request: &Request) -> bool {
        let admits = |&(name, mode): &(Name, Mode)| {
            let latch = self.latches.get(&name);
            match (held.get(&name), latch) {
                (Some(grip), _) if grip.mode >= mode => true,
                // An upgrade: possible for the only holder, if nobody has been waiting longer.
                (Some(grip), Some(latch)) => {
                    latch.shared == grip.times && !latch.is_awaited_before(u64::MAX, mode)
                }
                (_, None) => true,
                (None, Some(latch)) => latch.admits(u64::MAX, mode),
            }
        };
        if !request.wanted.iter().all(admits) {
            return false;
        }
        for &(name, mode) in &request.wanted {
            match held.entry(name) {
                MapEntry::Occupied(grip) if grip.get().mode >= mode => {}
                MapEntry::Occupied(mut grip) => {
                    if let Some(latch) = self.latches.get_mut(&name) {
                        latch.shared -= grip.get().times;
                        latch.take(mode);
                    }
                    *grip.get_mut() = Grip { mode, times: 1 };
                }
                MapEntry::Vacant(grip) => {
                    self.latches.entry(name).or_default().take(mode);
                    grip.insert(Grip { mode, times: 1 });
                }
            }
        }
        true
    }

    /// Lets go, and returns those whose turn has come.
    fn release(&mut self, held: &Grips) -> Vec<(oneshot::Sender<Held>, Names)> {
        let mut candidates = Vec::new();
        for (&name, &Grip { mode, times }) in held {
            if let MapEntry::Occupied(mut entry) = self.latches.entry(name) {
                match mode {
                    Mode::Shared => entry.get_mut().shared -= times,
                    Mode::Exclusive => entry.get_mut().exclusive = false,
                }
                candidates.extend(entry.get().candidates(mode));
                if entry.get().is_idle() {
                    entry.remove();
                }
            }
        }
        // Who came first is let in first.
        candidates.sort_unstable();
        candidates.dedup();
        let mut grants = Vec::new();
        for number in candidates {
            if let Some(waiter) = self.waiters.get(&number)
                && self.is_next(number, &waiter.request)
                && let Some(waiter) = self.waiters.remove(&number)
            {
                for &(name, mode) in &waiter.request.wanted {
                    if let Some(latch) = self.latches.get_mut(&name) {
                        latch.waiting(mode).remove(&number);
                        latch.take(mode);
                    }
                }
                grants.push((waiter.granted, waiter.request.wanted));
            }
        }
        grants
    }

    fn is_next(&self, number: u64, request: &Request) -> bool {
        request.wanted.iter().all(|(name, mode)| {
            let latch = self.latches.get(name);
            latch.is_some_and(|latch| latch.admits(number, *mode))
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::atomic::{AtomicI64, Ordering};

    fn request(keys: &[(&str, Mode)]) -> Request {
        let mut request = Request::default();
        for (key, mode) in keys {
            request.add(key.as_bytes(), *mode);
        }
        request
    }

    use Mode::{Exclusive, Shared};

    #[test]
    fn readers_share_and_writers_exclude() {
        let latches = Latches::new();
        let mut first = latches.none();
        assert!(first.try_extend(&mut request(&[("a", Shared)])));
        let mut second = latches.none();
        assert!(second.try_extend(&mut request(&[("a", Shared)])));
        assert!(!second.try_extend(&mut request(&[("a", Exclusive), ("b", Exclusive)])));
        drop(first);
        assert!(second.try_extend(&mut request(&[("a", Exclusive), ("b", Exclusive)])));
        let mut third = latches.none();
        assert!(!third.try_extend(&mut request(&[("b", Shared)])));
        assert!(!third.try_extend(&mut Request::everything()));
        drop(second);
        assert!(third.try_extend(&mut Request::everything()));
        assert!(!latches.none().try_extend(&mut request(&[])));
        drop(third);
        assert!(latches.table.lock().latches.is_empty());
    }

    #[test]
    fn a_waiter_is_not_overtaken_and_gets_all_or_nothing() {
        let latches = Latches::new();
        let mut holder = latches.none();
        assert!(holder.try_extend(&mut request(&[("a", Exclusive)])));
        let waiting = latches
            .acquire_or_queue(request(&[("a", Exclusive), ("b", Exclusive)]))
            .err()
            .unwrap();
        // b is free, but the waiter came first.
        assert!(!latches.none().try_extend(&mut request(&[("b", Shared)])));
        drop(holder);
        let held = waiting.blocking_recv().unwrap();
        assert!(!latches.none().try_extend(&mut request(&[("b", Shared)])));
        drop(held);
        assert!(latches.none().try_extend(&mut request(&[("b", Exclusive)])));
    }

    #[test]
    fn those_who_do_not_conflict_with_a_waiter_pass_it_by() {
        let latches = Latches::new();
        let mut holder = latches.none();
        assert!(holder.try_extend(&mut request(&[("a", Exclusive), ("s", Shared)])));
        let _waiting = latches
            .acquire_or_queue(request(&[("a", Exclusive), ("s", Shared)]))
            .err()
            .unwrap();
        let mut other = latches.none();
        assert!(other.try_extend(&mut request(&[("c", Exclusive), ("s", Shared)])));
        assert!(!other.try_extend(&mut request(&[("s", Exclusive)])));
    }

    #[test]
    fn to_be_alone_waits_for_all_and_then_lets_all_in() {
        let latches = Latches::new();
        let mut holder = latches.none();
        assert!(holder.try_extend(&mut request(&[("a", Exclusive)])));
        let alone = latches
            .acquire_or_queue(Request::everything())
            .err()
            .unwrap();
        let behind: Vec<_> = ["b", "c"]
            .iter()
            .map(|key| latches.acquire_or_queue(request(&[(key, Exclusive)])))
            .map(|grant| grant.err().unwrap())
            .collect();
        drop(holder);
        drop(alone.blocking_recv().unwrap());
        for grant in behind {
            drop(grant.blocking_recv().unwrap());
        }
        assert!(latches.table.lock().latches.is_empty());
    }

    #[test]
    fn ten_thousand_waiters_that_went_away_are_passed_over() {
        let latches = Latches::new();
        let mut holder = latches.none();
        assert!(holder.try_extend(&mut request(&[("a", Exclusive)])));
        for _ in 0..10_000 {
            drop(latches.acquire_or_queue(request(&[("a", Exclusive)])).err());
        }
        drop(holder);
        assert!(latches.table.lock().latches.is_empty());
        assert!(latches.table.lock().waiters.is_empty());
    }

    #[test]
    fn a_waiter_that_went_away_blocks_nobody() {
        let latches = Latches::new();
        let mut holder = latches.none();
        assert!(holder.try_extend(&mut request(&[("a", Exclusive)])));
        let gone = latches.acquire_or_queue(request(&[("a", Exclusive)])).err();
        let next = latches
            .acquire_or_queue(request(&[("a", Shared)]))
            .err()
            .unwrap();
        drop(gone);
        drop(holder);
        drop(next.blocking_recv().unwrap());
        assert!(latches.table.lock().latches.is_empty());
        assert!(latches.table.lock().waiters.is_empty());
    }

    #[test]
    fn many_threads_never_meet_under_an_exclusive_latch() {
        let latches = Latches::new();
        let inside: Vec<AtomicI64> = (0..4).map(|_| AtomicI64::new(0)).collect();
        std::thread::scope(|scope| {
            for seed in 0..8 {
                let (latches, inside) = (latches.clone(), &inside);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed);
                    for _ in 0..2000 {
                        let mut request = Request::default();
                        let keys: Vec<(usize, Mode)> = (0..random.usize(1..4))
                            .map(|_| {
                                let mode = if random.bool() { Shared } else { Exclusive };
                                (random.usize(0..4), mode)
                            })
                            .collect();
                        let exclusive: Vec<usize> = (0..4)
                            .filter(|key| keys.contains(&(*key, Exclusive)))
                            .collect();
                        for (key, mode) in &keys {
                            request.add(&[*key as u8], *mode);
                        }
                        let held = latches.acquire_blocking(request);
                        for &key in &exclusive {
                            assert_eq!(inside[key].fetch_add(1, Ordering::SeqCst), 0);
                        }
                        for &key in &exclusive {
                            inside[key].fetch_sub(1, Ordering::SeqCst);
                        }
                        drop(held);
                    }
                });
            }
        });
        assert!(latches.table.lock().latches.is_empty());
    }
}
