//! Rows at random, found by walking.
//!
//! Every row is as likely as any other, and memory does not grow with the number of rows that are wanted:
//! a [`Lottery`] decides row by row on one walk, where none may come twice; [`Draws`] are made some at a
//! time and looked up in one walk each, where they may.

use std::collections::VecDeque;

use fastrand::Rng;

/// How many draws one walk looks up.
pub const ROUND: usize = 65_536;
/// How much memory the rows that one walk looks up may take.
pub const ROUND_BYTES: usize = 8 * 1024 * 1024;

/// Decides, row by row, which of `left` rows belong to a random subset of `wanted`: every subset of that
/// size is as likely as any other. A copy decides the same again, so that what was chosen need not be kept.
#[derive(Clone)]
pub struct Lottery {
    random: Rng,
    wanted: u64,
    left: u64,
}

impl Lottery {
    /// `wanted` is at most `size`.
    pub fn new(wanted: u64, size: u64) -> Self {
        Lottery {
            random: Rng::new(),
            wanted,
            left: size,
        }
    }

    /// How many rows are still to be chosen.
    pub fn wanted(&self) -> u64 {
        self.wanted
    }

    /// How many rows are still to be left out.
    pub fn unwanted(&self) -> u64 {
        self.left - self.wanted
    }

    /// Whether the next row is in the subset; there must be one left.
    pub fn draw(&mut self) -> bool {
        let is_chosen = self.random.u64(..self.left) < self.wanted;
        self.left -= 1;
        self.wanted -= u64::from(is_chosen);
        is_chosen
    }
}

/// Rows drawn one after the other, each time any of them: some come several times, in no order.
///
/// Many draws are made at once and looked up in one walk, in the order of the rows; they are given in the
/// order of the draws. Their number and the memory that they take bound a round: draws that did not find
/// room stay drawn, and wait for the next walk.
#[derive(Clone)]
pub struct Draws {
    random: Rng,
    size: u64,
    undrawn: u64,
    /// Ranks that were drawn and not looked up yet.
    drawn: VecDeque<u64>,
    /// What the current walk looks for: rank and place in `found`, the lowest rank last.
    sought: Vec<(u64, usize)>,
    /// The rank of the row that the walk comes to next.
    rank: u64,
    /// What it has found, in the order of the draws. As many as there is room for.
    found: Vec<Box<[u8]>>,
    found_bytes: usize,
    ready: VecDeque<Box<[u8]>>,
}

impl Draws {
    /// So many draws from `size` rows, which are not none.
    pub fn new(count: u64, size: u64) -> Self {
        Draws {
            random: Rng::new(),
            size,
            undrawn: count,
            drawn: VecDeque::new(),
            sought: Vec::new(),
            rank: 0,
            found: Vec::new(),
            found_bytes: 0,
            ready: VecDeque::new(),
        }
    }

    /// The next of what was drawn, if a walk has found it.
    pub fn pop(&mut self) -> Option<Box<[u8]>> {
        self.ready.pop_front()
    }

    /// Whether a walk is under way.
    pub fn is_looking(&self) -> bool {
        !self.sought.is_empty()
    }

    /// Draws for a walk from the first row; false if nothing is left to draw.
    pub fn start_walk(&mut self) -> bool {
        while self.undrawn > 0 && self.drawn.len() < ROUND {
            self.drawn.push_back(self.random.u64(..self.size));
            self.undrawn -= 1;
        }
        self.sought.extend(self.drawn.iter().copied().zip(0..));
        self.sought.sort_unstable_by(|a, b| b.cmp(a));
        self.rank = 0;
        self.found = vec![Box::default(); self.drawn.len()];
        self.found_bytes = 0;
        self.is_looking()
    }

    /// The walk has come to its next row; `copy` gives what to keep of it, should it have been drawn.
    pub fn meet(&mut self, copy: impl FnOnce() -> Vec<u8>) {
        let is_sought = |(rank, _): &mut (u64, usize)| *rank == self.rank;
        if let Some((_, place)) = self.sought.pop_if(is_sought) {
            let copy = copy();
            self.keep(place, &copy);
            while let Some((_, place)) = self.sought.pop_if(|(rank, _)| *rank == self.rank) {
                self.keep(place, &copy);
            }
        }
        self.rank += 1;
        if !self.is_looking() {
            self.drawn.drain(..self.found.len());
            self.ready = std::mem::take(&mut self.found).into();
        }
    }

    /// Keeps what was found. If that is too much, the latest draws are given up for this round; the first
    /// never is, so every round gives something.
    fn keep(&mut self, place: usize, copy: &[u8]) {
        let Some(slot) = self.found.get_mut(place) else {
            return;
        };
        *slot = copy.into();
        self.found_bytes += copy.len();
        while self.found_bytes > ROUND_BYTES && self.found.len() > 1 {
            let dropped = self.found.pop().unwrap_or_default();
            self.found_bytes -= dropped.len();
        }
    }
}
