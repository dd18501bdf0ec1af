//! Looks for an order of operations that explains what everybody was told.

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use fastrand::Rng;

use super::operation::{Model, NEVER, Timed};

/// How many situations are remembered before the search is given up: some hundred megabytes.
pub const MEMORY: usize = 4_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is an order.
    Linearizable,
    /// There is none.
    Impossible,
    /// It would take more memory to find out.
    Undecided,
}

pub(super) fn search<M: Model>(
    model: &M,
    operations: &[Timed<M::Action>],
    memory: usize,
) -> Verdict {
    Search::new(model, operations, memory).run(&mut |_| true)
}

/// Some states that the object may be in after all these operations.
pub(super) fn states<M: Model>(
    model: &M,
    operations: &[Timed<M::Action>],
    most: usize,
) -> Vec<M::State> {
    let mut found = Vec::new();
    Search::new(model, operations, 100_000).run(&mut |state| {
        if !found.contains(state) {
            found.push(state.clone());
        }
        found.len() == most
    });
    found.sort();
    found
}

/// Begins and ends that are left, in the order of time, as a ring of indexes. The one in the middle is no event.
///
/// An operation that has been put in order is taken out, and put back when the search has to go back.
struct Events {
    next: Vec<u32>,
    previous: Vec<u32>,
    /// The operation of each event, and whether it is its end.
    what: Vec<(u32, bool)>,
    begin: Vec<u32>,
    /// 0 if it has no end.
    end: Vec<u32>,
}

impl Events {
    fn new<A>(operations: &[Timed<A>]) -> Events {
        let mut order: Vec<(u64, bool, u32)> = Vec::new();
        for (place, operation) in operations.iter().enumerate() {
            order.push((operation.begin, false, place as u32));
            if operation.end != NEVER {
                order.push((operation.end, true, place as u32));
            }
        }
        // At the same time, what begins comes first: then either order is possible.
        order.sort();
        let count = order.len() as u32 + 1;
        let mut events = Events {
            next: (1..=count).map(|event| event % count).collect(),
            previous: (0..count)
                .map(|event| (event + count - 1) % count)
                .collect(),
            what: vec![(0, false)],
            begin: vec![0; operations.len()],
            end: vec![0; operations.len()],
        };
        for (event, (_, is_end, operation)) in (1..).zip(order) {
            events.what.push((operation, is_end));
            match is_end {
                true => events.end[operation as usize] = event,
                false => events.begin[operation as usize] = event,
            }
        }
        events
    }

    fn take_out(&mut self, operation: u32) {
        for event in [self.begin[operation as usize], self.end[operation as usize]] {
            if event != 0 {
                let (before, after) = (self.previous[event as usize], self.next[event as usize]);
                self.next[before as usize] = after;
                self.previous[after as usize] = before;
            }
        }
    }

    /// In the reverse order of taking out.
    fn put_back(&mut self, operation: u32) {
        for event in [self.end[operation as usize], self.begin[operation as usize]] {
            if event != 0 {
                let (before, after) = (self.previous[event as usize], self.next[event as usize]);
                self.next[before as usize] = event;
                self.previous[after as usize] = event;
            }
        }
    }

    /// Operations that may be the next: they begin before the first end.
    fn candidates(&self) -> impl Iterator<Item = u32> {
        let mut event = 0;
        std::iter::from_fn(move || {
            event = self.next[event as usize];
            let (operation, is_end) = self.what[event as usize];
            (event != 0 && !is_end).then_some(operation)
        })
    }
}

/// A point of the search: what may come next, and what has been tried.
struct Frame<S> {
    state: S,
    candidates: Vec<u32>,
    tried: usize,
    /// Reads that were taken on the way here.
    reads: Vec<u32>,
    /// Which operations have been put in order, as a number.
    done: u128,
}

struct Search<'a, M: Model> {
    model: &'a M,
    operations: &'a [Timed<M::Action>],
    events: Events,
    /// How many of those that certainly were done have no place yet.
    left: usize,
    /// A random number for each operation: those of a set, added bit by bit, stand for the set.
    numbers: Vec<u128>,
    memory: usize,
    seen: HashSet<u128, BuildHasherDefault<AsIs>>,
}

impl<'a, M: Model> Search<'a, M> {
    fn new(model: &'a M, operations: &'a [Timed<M::Action>], memory: usize) -> Self {
        let mut rng = Rng::with_seed(1);
        Search {
            model,
            operations,
            events: Events::new(operations),
            left: operations
                .iter()
                .filter(|operation| operation.end != NEVER)
                .count(),
            numbers: operations.iter().map(|_| rng.u128(..)).collect(),
            memory,
            seen: HashSet::default(),
        }
    }

    /// Tells each state in which everything that was done has its place; `enough` says whether to go on.
    fn run(mut self, enough: &mut dyn FnMut(&M::State) -> bool) -> Verdict {
        let mut found = false;
        let mut frames = vec![self.frame(self.model.initial(), 0)];
        while let Some(frame) = frames.last() {
            if self.left == 0 && frame.tried == 0 {
                found = true;
                if enough(&frame.state) {
                    return Verdict::Linearizable;
                }
            }
            if self.seen.len() > self.memory {
                return Verdict::Undecided;
            }
            match self.advance(&mut frames) {
                Some(next) => frames.push(next),
                None => self.go_back(&mut frames),
            }
        }
        match found {
            true => Verdict::Linearizable,
            false => Verdict::Impossible,
        }
    }

    /// Tries the next candidate that leads somewhere new.
    fn advance(&mut self, frames: &mut [Frame<M::State>]) -> Option<Frame<M::State>> {
        let frame = frames.last_mut()?;
        while let Some(operation) = frame.candidates.get(frame.tried).copied() {
            frame.tried += 1;
            let action = &self.operations[operation as usize].action;
            let Some(state) = self.model.step(&frame.state, action) else {
                continue;
            };
            let done = frame.done ^ self.numbers[operation as usize];
            if self.seen.insert(done ^ fingerprint(&state)) {
                self.take_out(operation);
                return Some(self.frame(state, done));
            }
        }
        None
    }

    fn go_back(&mut self, frames: &mut Vec<Frame<M::State>>) {
        if let Some(frame) = frames.pop() {
            frame
                .reads
                .iter()
                .rev()
                .for_each(|read| self.put_back(*read));
        }
        if let Some(frame) = frames.last() {
            self.put_back(frame.candidates[frame.tried - 1]);
        }
    }

    /// Takes the reads that fit: it is never better to take them later, since they change nothing.
    fn frame(&mut self, state: M::State, mut done: u128) -> Frame<M::State> {
        let mut reads = Vec::new();
        while let Some(read) = self.fitting_read(&state) {
            self.take_out(read);
            done ^= self.numbers[read as usize];
            reads.push(read);
        }
        Frame {
            state,
            candidates: self.candidates(),
            tried: 0,
            reads,
            done,
        }
    }

    fn fitting_read(&self, state: &M::State) -> Option<u32> {
        self.events.candidates().find(|operation| {
            let action = &self.operations[*operation as usize].action;
            M::is_read(action) && self.model.step(state, action).is_some()
        })
    }

    /// What was certainly done comes first. Of other operations that are all alike, the one that began first will do.
    fn candidates(&self) -> Vec<u32> {
        let (certain, unknown): (Vec<u32>, Vec<u32>) = self
            .events
            .candidates()
            .filter(|operation| !M::is_read(&self.operations[*operation as usize].action))
            .partition(|operation| self.operations[*operation as usize].end != NEVER);
        let mut candidates = certain;
        let firm = candidates.len();
        for operation in unknown {
            let action = &self.operations[operation as usize].action;
            let mut others = candidates[firm..].iter();
            if !others.any(|other| self.operations[*other as usize].action == *action) {
                candidates.push(operation);
            }
        }
        candidates
    }

    fn take_out(&mut self, operation: u32) {
        self.events.take_out(operation);
        self.left -= usize::from(self.operations[operation as usize].end != NEVER);
    }

    fn put_back(&mut self, operation: u32) {
        self.events.put_back(operation);
        self.left += usize::from(self.operations[operation as usize].end != NEVER);
    }
}

/// So long that no two states share one.
fn fingerprint(state: &impl Hash) -> u128 {
    let half = |salt: u64| {
        let mut hasher = DefaultHasher::new();
        salt.hash(&mut hasher);
        state.hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(0) << 64 | half(1)
}

/// What is remembered is random already.
#[derive(Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 ^= u64::from_ne_bytes(word);
        }
    }
}
