//! Members at random, found by walking.

use std::collections::VecDeque;

use fastrand::Rng;

use super::algebra::replace;
use super::cursor::Cursor;
use super::selection::Step;
use crate::error::Result;

/// How many draws one walk looks up.
const ROUND: usize = 65_536;
/// How much memory the members that one walk looks up may take.
const ROUND_BYTES: usize = 8 * 1024 * 1024;

/// Decides, row by row, which of `left` rows belong to a random subset of `wanted`: every subset of that
/// size is as likely as any other. A copy decides the same again, so that what was chosen need not be kept.
#[derive(Clone)]
pub(super) struct Lottery {
    random: Rng,
    wanted: u64,
    left: u64,
}

impl Lottery {
    /// `wanted` is at most `size`.
    pub(super) fn new(wanted: u64, size: u64) -> Self {
        Lottery {
            random: Rng::new(),
            wanted,
            left: size,
        }
    }

    /// Whether the next row is in the subset; there must be one left.
    fn draw(&mut self) -> bool {
        let is_chosen = self.random.u64(..self.left) < self.wanted;
        self.left -= 1;
        self.wanted -= u64::from(is_chosen);
        is_chosen
    }
}

/// The members that a lottery chooses, or those that it does not.
#[derive(Clone)]
pub(super) struct Sample {
    pub(super) lottery: Lottery,
    pub(super) gives_chosen: bool,
}

impl Sample {
    pub(super) fn step(&mut self, cursor: &mut Cursor<'_>, member: &mut Vec<u8>) -> Result<Step> {
        let undecided = if self.gives_chosen {
            self.lottery.wanted
        } else {
            self.lottery.left - self.lottery.wanted
        };
        if undecided == 0 || !cursor.advance()? {
            return Ok(Step::End);
        }
        if self.lottery.draw() != self.gives_chosen {
            return Ok(Step::Onward);
        }
        replace(member, cursor.member());
        Ok(Step::Member)
    }
}

/// Members drawn one after the other, each time any of them: some come several times, in no order.
///
/// Many draws are made at once and looked up in one walk, in the order of the members; they are given in
/// the order of the draws. Their number and the memory that they take bound a round: draws that did not
/// find room stay drawn, and wait for the next walk.
#[derive(Clone)]
pub(super) struct Repeats {
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

impl Repeats {
    /// `size` is not zero.
    pub(super) fn new(count: u64, size: u64) -> Self {
        Repeats {
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

    pub(super) fn step(&mut self, cursor: &mut Cursor<'_>, member: &mut Vec<u8>) -> Result<Step> {
        if let Some(next) = self.ready.pop_front() {
            *member = next.into();
            return Ok(Step::Member);
        }
        if self.sought.is_empty() {
            if !self.start_round() {
                return Ok(Step::End);
            }
            cursor.rewind();
        }
        if !cursor.advance()? {
            return Ok(Step::End);
        }
        while let Some((_, place)) = self.sought.pop_if(|(rank, _)| *rank == self.rank) {
            self.keep(place, cursor.member());
        }
        self.rank += 1;
        if self.sought.is_empty() {
            self.drawn.drain(..self.found.len());
            self.ready = std::mem::take(&mut self.found).into();
        }
        Ok(Step::Onward)
    }

    /// Draws, and prepares a walk from the first member; false if nothing is left to draw.
    fn start_round(&mut self) -> bool {
        while self.undrawn > 0 && self.drawn.len() < ROUND {
            self.drawn.push_back(self.random.u64(..self.size));
            self.undrawn -= 1;
        }
        self.sought.extend(self.drawn.iter().copied().zip(0..));
        self.sought.sort_unstable_by(|a, b| b.cmp(a));
        self.rank = 0;
        self.found = vec![Box::default(); self.drawn.len()];
        self.found_bytes = 0;
        !self.sought.is_empty()
    }

    /// Keeps a member that was found. If that is too much, the latest draws are given up for this round;
    /// the first never is, so every round gives something.
    fn keep(&mut self, place: usize, member: &[u8]) {
        let Some(slot) = self.found.get_mut(place) else {
            return;
        };
        *slot = member.into();
        self.found_bytes += member.len();
        while self.found_bytes > ROUND_BYTES && self.found.len() > 1 {
            let dropped = self.found.pop().unwrap_or_default();
            self.found_bytes -= dropped.len();
        }
    }
}
