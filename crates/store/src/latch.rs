//! Latches: who may work on a key now, and who is next.
//!
//! A request names all the keys it needs at once, each shared or exclusive, and gets all of them or
//! none; so nobody waits while holding, and there is no deadlock. Requests that cannot be granted queue
//! up at every latch they name, in the order of their arrival; a later request never overtakes an
//! earlier one that it conflicts with, so nobody starves, and passes by those it does not conflict with.
//! Waiting is a future: no thread is blocked.
//!
//! There is a fixed number of latches, and a hash of the key says which is its own. Two keys may share one,
//! which costs a wait and nothing else; so do keys of the same name in two databases. To take a latch that is
//! free is to write a number into its place.

use std::collections::BTreeSet;
use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cairn_engine::prefetch;
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHasher};
use smallvec::SmallVec;
use tokio::sync::oneshot;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Mode {
    Shared,
    Exclusive,
}

/// The place of a latch.
type Name = u32;
type Names = SmallVec<[(Name, Mode); 8]>;

/// How many bits of the hash name a latch: so many latches that few keys of few thousand share one.
const NAME_BITS: u32 = 18;

/// The latch that everyone holds, shared; to hold it exclusively is to be alone.
const EVERYTHING: Name = 1 << NAME_BITS;

fn name_of(key: &[u8]) -> Name {
    let mut hasher = FxHasher::default();
    hasher.write(key);
    (hasher.finish() >> (u64::BITS - NAME_BITS)) as Name
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

    /// Wants what the other does, too.
    pub fn join(&mut self, other: Request) {
        self.wanted.extend(other.wanted);
        self.is_sorted = false;
    }

    /// The same request with each latch once: worth it for one that was joined from many.
    pub fn sorted(mut self) -> Request {
        self.sort();
        self
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

/// Who holds something: no two at the same time have the same number, and none has zero.
type Holder = u64;
const NOBODY: Holder = 0;

#[derive(Default)]
struct Latch {
    shared: u32,
    exclusive: Holder,
    waiting: Option<Box<Waiting>>,
}

/// Who waits, by number; the numbers rise with the time of arrival.
#[derive(Default)]
struct Waiting {
    shared: BTreeSet<u64>,
    exclusive: BTreeSet<u64>,
}

impl Waiting {
    fn of(&mut self, mode: Mode) -> &mut BTreeSet<u64> {
        match mode {
            Mode::Shared => &mut self.shared,
            Mode::Exclusive => &mut self.exclusive,
        }
    }
}

impl Latch {
    /// Whether someone who came before this number waits for what conflicts with the mode.
    fn is_awaited_before(&self, number: u64, mode: Mode) -> bool {
        let Some(waiting) = &self.waiting else {
            return false;
        };
        let comes_first = |waiting: &BTreeSet<u64>| waiting.first().is_some_and(|n| *n < number);
        comes_first(&waiting.exclusive) || mode == Mode::Exclusive && comes_first(&waiting.shared)
    }

    fn admits(&self, number: u64, mode: Mode) -> bool {
        let is_free = match mode {
            Mode::Shared => self.exclusive == NOBODY,
            Mode::Exclusive => self.exclusive == NOBODY && self.shared == 0,
        };
        is_free && !self.is_awaited_before(number, mode)
    }

    fn take(&mut self, holder: Holder, mode: Mode) {
        match mode {
            Mode::Shared => self.shared += 1,
            Mode::Exclusive => self.exclusive = holder,
        }
    }

    fn release(&mut self, mode: Mode) {
        match mode {
            Mode::Shared => self.shared -= 1,
            Mode::Exclusive => self.exclusive = NOBODY,
        }
    }

    fn await_turn(&mut self, number: u64, mode: Mode) {
        self.waiting.get_or_insert_default().of(mode).insert(number);
    }

    fn await_no_more(&mut self, number: u64, mode: Mode) {
        if let Some(waiting) = &mut self.waiting {
            waiting.of(mode).remove(&number);
            if waiting.shared.is_empty() && waiting.exclusive.is_empty() {
                self.waiting = None;
            }
        }
    }

    /// Those whom the release of this mode may let in.
    fn candidates(&self, released: Mode, out: &mut Vec<u64>) {
        let Some(waiting) = &self.waiting else {
            return;
        };
        let next_exclusive = waiting.exclusive.first().copied();
        // Sharers were not kept out by one of their kind.
        if released == Mode::Exclusive {
            let behind = next_exclusive.unwrap_or(u64::MAX);
            out.extend(waiting.shared.range(..behind));
        }
        out.extend(next_exclusive.filter(|_| self.shared == 0));
    }

    #[cfg(test)]
    fn is_free(&self) -> bool {
        self.shared == 0 && self.exclusive == NOBODY && self.waiting.is_none()
    }
}

struct Waiter {
    request: Request,
    holder: Holder,
    granted: oneshot::Sender<Held>,
}

struct Table {
    latches: Box<[Latch]>,
    waiters: FxHashMap<u64, Waiter>,
    next_number: u64,
}

impl Default for Table {
    fn default() -> Self {
        Table {
            latches: (0..=EVERYTHING).map(|_| Latch::default()).collect(),
            waiters: FxHashMap::default(),
            next_number: 0,
        }
    }
}

#[derive(Clone, Default)]
pub struct Latches {
    table: Arc<Mutex<Table>>,
    holders: Arc<AtomicU64>,
}

/// Latches that are held; dropping it lets go of them.
pub struct Held {
    latches: Latches,
    grips: Grips,
}

/// Which latches somebody holds.
struct Grips {
    holder: Holder,
    /// One that is shared may be there several times.
    held: Vec<(Name, Mode)>,
    /// Beside those, so that it is quickly seen: how the latch of everything is held.
    everything: Option<Mode>,
}

impl Grips {
    fn none(holder: Holder) -> Self {
        Grips {
            holder,
            held: Vec::new(),
            everything: None,
        }
    }

    fn is_empty(&self) -> bool {
        self.held.is_empty() && self.everything.is_none()
    }

    /// Whether what is wanted is what was taken last: commands that follow each other are often about the same key.
    #[inline]
    fn have_just_taken(&self, request: &Request) -> bool {
        let [(EVERYTHING, Mode::Shared), (name, _)] = request.wanted[..] else {
            return false;
        };
        self.everything.is_some() && self.held.last() == Some(&(name, Mode::Exclusive))
    }

    /// How many times a latch is held, shared.
    fn times_shared(&self, name: Name) -> u32 {
        let times = self
            .held
            .iter()
            .filter(|held| **held == (name, Mode::Shared));
        times.count() as u32
            + u32::from(name == EVERYTHING && self.everything == Some(Mode::Shared))
    }
}

impl Latches {
    pub fn new() -> Self {
        Self::default()
    }

    /// Holds nothing, to be extended.
    pub fn none(&self) -> Held {
        let holder = self.holders.fetch_add(1, Ordering::Relaxed) + 1;
        Held {
            latches: self.clone(),
            grips: Grips::none(holder),
        }
    }

    /// Has the latches of these keys brought near.
    pub(crate) fn expect<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        let table = self.table.lock();
        for key in keys {
            prefetch(&raw const table.latches[name_of(key) as usize]);
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
        if table.try_extend(&mut held.grips, &request) {
            return Ok(held);
        }
        let number = table.next_number;
        table.next_number += 1;
        for &(name, mode) in &request.wanted {
            table.latches[name as usize].await_turn(number, mode);
        }
        let (granted, grant) = oneshot::channel();
        let waiter = Waiter {
            request,
            holder: held.grips.holder,
            granted,
        };
        table.waiters.insert(number, waiter);
        Err(grant)
    }

    #[cfg(test)]
    fn are_all_free(&self) -> bool {
        self.table.lock().latches.iter().all(Latch::is_free)
    }
}

impl Held {
    /// Adds to what is held, if that needs no waiting; else changes nothing and says so.
    pub fn try_extend(&mut self, request: &Request) -> bool {
        if self.grips.have_just_taken(request) {
            return true;
        }
        self.latches
            .table
            .lock()
            .try_extend(&mut self.grips, request)
    }

    /// Takes over what another holds.
    pub fn adopt(&mut self, mut other: Held) {
        let mut table = self.latches.table.lock();
        let (own, other) = (&mut self.grips, &mut other.grips);
        for (name, mode) in other.held.drain(..) {
            if mode == Mode::Exclusive {
                table.latches[name as usize].exclusive = own.holder;
            }
            own.held.push((name, mode));
        }
        let everything = &mut table.latches[EVERYTHING as usize];
        match (own.everything, other.everything.take()) {
            // Held twice, it is counted twice.
            (Some(_), Some(mode)) => everything.release(mode),
            (None, Some(mode)) => {
                if mode == Mode::Exclusive {
                    everything.exclusive = own.holder;
                }
                own.everything = Some(mode);
            }
            (_, None) => {}
        }
    }

    pub fn is_empty(&self) -> bool {
        self.grips.is_empty()
    }

    /// Lets go of everything; to be extended again.
    pub fn let_go(&mut self) {
        if self.is_empty() {
            return;
        }
        let latches = &self.latches;
        let mut unwanted = latches.table.lock().release(&mut self.grips, latches);
        // Those whose future is gone give back at once: here, and not by recursion.
        while let Some(mut held) = unwanted.pop() {
            let more = latches.table.lock().release(&mut held.grips, latches);
            unwanted.extend(more);
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
        // Whoever is alone holds every latch; those who queue up for one wait for it to end.
        if held.everything == Some(Mode::Exclusive) {
            return true;
        }
        let admits = |&(name, mode): &(Name, Mode)| {
            if name == EVERYTHING && held.everything >= Some(mode) {
                return true;
            }
            let latch = &self.latches[name as usize];
            if latch.exclusive == held.holder || latch.admits(u64::MAX, mode) {
                return true;
            }
            if latch.shared == 0 {
                return false;
            }
            let own = held.times_shared(name);
            match mode {
                Mode::Shared => own > 0,
                // An upgrade: possible for the only holder, if nobody has been waiting longer.
                Mode::Exclusive => own == latch.shared && !latch.is_awaited_before(u64::MAX, mode),
            }
        };
        if !request.wanted.iter().all(admits) {
            return false;
        }
        for &(name, mode) in &request.wanted {
            self.take(held, name, mode);
        }
        true
    }

    fn take(&mut self, held: &mut Grips, name: Name, mode: Mode) {
        let latch = &mut self.latches[name as usize];
        if latch.exclusive == held.holder {
            return;
        }
        if mode == Mode::Exclusive && latch.shared > 0 {
            // All of them are its own.
            latch.shared = 0;
            held.held.retain(|(other, _)| *other != name);
        } else if name == EVERYTHING && held.everything.is_some() {
            return;
        }
        latch.take(held.holder, mode);
        if name == EVERYTHING {
            held.everything = Some(mode);
        } else {
            held.held.push((name, mode));
        }
    }

    /// Lets go, and hands the latches to those whose turn has come. What nobody takes any more is returned.
    fn release(&mut self, held: &mut Grips, latches: &Latches) -> Vec<Held> {
        let everything = held.everything.take().map(|mode| (EVERYTHING, mode));
        let mut candidates = Vec::new();
        for (name, mode) in held.held.drain(..).chain(everything) {
            let latch = &mut self.latches[name as usize];
            latch.release(mode);
            latch.candidates(mode, &mut candidates);
        }
        // Who came first is let in first.
        candidates.sort_unstable();
        candidates.dedup();
        let mut unwanted = Vec::new();
        for number in candidates {
            if let Some(waiter) = self.waiters.get(&number)
                && self.is_next(number, &waiter.request)
                && let Some(waiter) = self.waiters.remove(&number)
            {
                let mut grips = Grips::none(waiter.holder);
                for &(name, mode) in &waiter.request.wanted {
                    self.latches[name as usize].await_no_more(number, mode);
                    self.take(&mut grips, name, mode);
                }
                let latches = latches.clone();
                let granted = Held { latches, grips };
                unwanted.extend(waiter.granted.send(granted).err());
            }
        }
        unwanted
    }

    fn is_next(&self, number: u64, request: &Request) -> bool {
        request
            .wanted
            .iter()
            .all(|(name, mode)| self.latches[*name as usize].admits(number, *mode))
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
        assert!(first.try_extend(&request(&[("a", Shared)])));
        let mut second = latches.none();
        assert!(second.try_extend(&request(&[("a", Shared)])));
        assert!(!second.try_extend(&request(&[("a", Exclusive), ("b", Exclusive)])));
        drop(first);
        assert!(second.try_extend(&request(&[("a", Exclusive), ("b", Exclusive)])));
        let mut third = latches.none();
        assert!(!third.try_extend(&request(&[("b", Shared)])));
        assert!(!third.try_extend(&Request::everything()));
        drop(second);
        assert!(third.try_extend(&Request::everything()));
        assert!(!latches.none().try_extend(&request(&[])));
        drop(third);
        assert!(latches.are_all_free());
    }

    #[test]
    fn a_waiter_is_not_overtaken_and_gets_all_or_nothing() {
        let latches = Latches::new();
        let mut holder = latches.none();
        assert!(holder.try_extend(&request(&[("a", Exclusive)])));
        let waiting = latches
            .acquire_or_queue(request(&[("a", Exclusive), ("b", Exclusive)]))
            .err()
            .unwrap();
        // b is free, but the waiter came first.
        assert!(!latches.none().try_extend(&request(&[("b", Shared)])));
        drop(holder);
        let held = waiting.blocking_recv().unwrap();
        assert!(!latches.none().try_extend(&request(&[("b", Shared)])));
        drop(held);
        assert!(latches.none().try_extend(&request(&[("b", Exclusive)])));
    }

    #[test]
    fn those_who_do_not_conflict_with_a_waiter_pass_it_by() {
        let latches = Latches::new();
        let mut holder = latches.none();
        assert!(holder.try_extend(&request(&[("a", Exclusive), ("s", Shared)])));
        let _waiting = latches
            .acquire_or_queue(request(&[("a", Exclusive), ("s", Shared)]))
            .err()
            .unwrap();
        let mut other = latches.none();
        assert!(other.try_extend(&request(&[("c", Exclusive), ("s", Shared)])));
        assert!(!other.try_extend(&request(&[("s", Exclusive)])));
    }

    #[test]
    fn to_be_alone_waits_for_all_and_then_lets_all_in() {
        let latches = Latches::new();
        let mut holder = latches.none();
        assert!(holder.try_extend(&request(&[("a", Exclusive)])));
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
        let mut alone = alone.blocking_recv().unwrap();
        // Whoever waits for this key waits for the one who is alone.
        assert!(alone.try_extend(&request(&[("b", Exclusive), ("c", Shared)])));
        drop(alone);
        for grant in behind {
            drop(grant.blocking_recv().unwrap());
        }
        assert!(latches.are_all_free());
    }

    #[test]
    fn ten_thousand_waiters_that_went_away_are_passed_over() {
        let latches = Latches::new();
        let mut holder = latches.none();
        assert!(holder.try_extend(&request(&[("a", Exclusive)])));
        for _ in 0..10_000 {
            drop(latches.acquire_or_queue(request(&[("a", Exclusive)])).err());
        }
        drop(holder);
        assert!(latches.are_all_free());
        assert!(latches.table.lock().waiters.is_empty());
    }

    #[test]
    fn a_waiter_that_went_away_blocks_nobody() {
        let latches = Latches::new();
        let mut holder = latches.none();
        assert!(holder.try_extend(&request(&[("a", Exclusive)])));
        let gone = latches.acquire_or_queue(request(&[("a", Exclusive)])).err();
        let next = latches
            .acquire_or_queue(request(&[("a", Shared)]))
            .err()
            .unwrap();
        drop(gone);
        drop(holder);
        drop(next.blocking_recv().unwrap());
        assert!(latches.are_all_free());
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
        assert!(latches.are_all_free());
    }
}
