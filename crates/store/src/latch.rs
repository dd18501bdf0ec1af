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
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake};
use std::thread::Thread;
use std::time::{Duration, Instant};

use cairn_engine::prefetch;
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHasher};
use smallvec::SmallVec;
use tokio::sync::oneshot;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mode {
    Shared,
    Exclusive,
}

/// The place of a latch.
type Name = u32;
type Names = SmallVec<[(Name, Mode); 16]>;

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
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
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

/// The place of somebody who waits.
struct InQueue {
    number: u64,
    grant: oneshot::Receiver<Held>,
}

/// Wakes a thread that is parked.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// What comes in time. What comes in the moment in which this gives up is dropped, and so let go.
fn receive_within(grant: oneshot::Receiver<Held>, patience: Duration) -> Option<Held> {
    let deadline = Instant::now() + patience;
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = Context::from_waker(&waker);
    let mut grant = pin!(grant);
    loop {
        if let Poll::Ready(granted) = grant.as_mut().poll(&mut context) {
            return granted.ok();
        }
        let left = deadline.checked_duration_since(Instant::now())?;
        std::thread::park_timeout(left);
    }
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

    /// Whether the latch is what was taken last: commands that follow each other are often about the same key.
    #[inline]
    fn have_just_taken(&self, name: Name) -> bool {
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
            Err(place) => place.grant.await.unwrap_or_else(|_| self.none()),
        }
    }

    /// The same, on a thread that may block.
    pub fn acquire_blocking(&self, request: Request) -> Held {
        match self.acquire_or_queue(request) {
            Ok(held) => held,
            Err(place) => place.grant.blocking_recv().unwrap_or_else(|_| self.none()),
        }
    }

    /// The same for those who do not wait for longer. Whoever gives up leaves its place in the queue, so that nobody
    /// waits behind it.
    pub fn acquire_within(&self, request: Request, patience: Duration) -> Option<Held> {
        let InQueue { number, grant } = match self.acquire_or_queue(request) {
            Ok(held) => return Some(held),
            Err(place) => place,
        };
        let granted = receive_within(grant, patience);
        if granted.is_none() {
            let mut table = self.table.lock();
            let unwanted = table.leave_queue(number, self);
            drop(table);
            self.give_back(unwanted);
        }
        granted
    }

    /// What was granted to those whose future is gone is given back at once: here, and not by recursion.
    fn give_back(&self, mut unwanted: Vec<Held>) {
        while let Some(mut held) = unwanted.pop() {
            let more = self.table.lock().release(&mut held.grips, self);
            unwanted.extend(more);
        }
    }

    fn acquire_or_queue(&self, mut request: Request) -> Result<Held, InQueue> {
        request.sort();
        let mut held = self.none();
        let mut table = self.table.lock();
        if table.try_extend(&mut held.grips, &request.wanted) {
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
        Err(InQueue { number, grant })
    }

    #[cfg(test)]
    fn are_all_free(&self) -> bool {
        self.table.lock().latches.iter().all(Latch::is_free)
    }
}

impl Held {
    /// Adds to what is held, if that needs no waiting; else changes nothing and says so.
    pub fn try_extend(&mut self, request: &Request) -> bool {
        self.try_take(&request.wanted)
    }

    /// The same for a single key, which is what most commands name.
    #[inline]
    pub fn try_extend_by(&mut self, key: &[u8], mode: Mode) -> bool {
        let name = name_of(key);
        self.grips.have_just_taken(name)
            || self.try_take(&[(EVERYTHING, Mode::Shared), (name, mode)])
    }

    fn try_take(&mut self, wanted: &[(Name, Mode)]) -> bool {
        let mut table = self.latches.table.lock();
        table.try_extend(&mut self.grips, wanted)
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
        let unwanted = latches.table.lock().release(&mut self.grips, latches);
        latches.give_back(unwanted);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.let_go();
    }
}

impl Table {
    fn try_extend(&mut self, held: &mut Grips, wanted: &[(Name, Mode)]) -> bool {
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
        if !wanted.iter().all(admits) {
            return false;
        }
        for &(name, mode) in wanted {
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
        self.let_in(candidates, latches)
    }

    /// A waiter has given up, unless it was let in meanwhile. Those behind it may have waited for nobody else.
    fn leave_queue(&mut self, number: u64, latches: &Latches) -> Vec<Held> {
        let Some(waiter) = self.waiters.remove(&number) else {
            return Vec::new();
        };
        let mut candidates = Vec::new();
        for &(name, mode) in &waiter.request.wanted {
            let latch = &mut self.latches[name as usize];
            latch.await_no_more(number, mode);
            latch.candidates(Mode::Exclusive, &mut candidates);
        }
        self.let_in(candidates, latches)
    }

    /// Hands the latches to those of the candidates whose turn has come. What nobody takes any more is returned.
    fn let_in(&mut self, mut candidates: Vec<u64>, latches: &Latches) -> Vec<Held> {
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
mod tests;
