//! Members at random.

use super::algebra::replace;
use super::cursor::Cursor;
use super::selection::Step;
use crate::error::Result;
use crate::random::{Draws, Lottery};

/// The members that a lottery chooses, or those that it does not.
#[derive(Clone)]
pub(super) struct Sample {
    pub(super) lottery: Lottery,
    pub(super) gives_chosen: bool,
}

impl Sample {
    pub(super) fn step(&mut self, cursor: &mut Cursor, member: &mut Vec<u8>) -> Result<Step> {
        let undecided = if self.gives_chosen {
            self.lottery.wanted()
        } else {
            self.lottery.unwanted()
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

/// Members of which any may come several times.
#[derive(Clone)]
pub(super) struct Repeats(pub(super) Draws);

impl Repeats {
    pub(super) fn step(&mut self, cursor: &mut Cursor, member: &mut Vec<u8>) -> Result<Step> {
        let Repeats(draws) = self;
        if let Some(next) = draws.pop() {
            *member = next.into();
            return Ok(Step::Member);
        }
        if !draws.is_looking() {
            if !draws.start_walk() {
                return Ok(Step::End);
            }
            cursor.rewind();
        }
        if !cursor.advance()? {
            return Ok(Step::End);
        }
        draws.meet(|| cursor.member().to_vec());
        Ok(Step::Onward)
    }
}
