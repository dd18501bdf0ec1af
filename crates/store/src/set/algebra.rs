//! Union, intersection and difference of sorted walks.
//!
//! Each is a small machine that moves one cursor per step, so that a long search can be left and taken up
//! again after any of them.

use super::cursor::Cursor;
use super::selection::Step;
use crate::error::Result;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    Union,
    Intersection,
    /// What the first set has and no other.
    Difference,
}

/// Merges: the least of the members that the cursors stand on comes next.
#[derive(Clone, Default)]
pub(super) struct Union {
    /// Cursors brought to their first member so far.
    entered: usize,
    /// The cursors that have not ended, the one on the least member last.
    order: Vec<usize>,
    /// The least member has been given, and its cursor must move on first.
    is_given: bool,
}

impl Union {
    pub(super) fn step(&mut self, cursors: &mut [Cursor], member: &mut Vec<u8>) -> Result<Step> {
        if self.entered < cursors.len() {
            self.entered += 1;
            self.advance(cursors, self.entered - 1)?;
            return Ok(Step::Onward);
        }
        if self.is_given
            && let Some(least) = self.order.pop()
        {
            self.advance(cursors, least)?;
        }
        let Some(&least) = self.order.last() else {
            return Ok(Step::End);
        };
        let is_repeated = self.is_given && cursors[least].member() == member.as_slice();
        self.is_given = true;
        if is_repeated {
            return Ok(Step::Onward);
        }
        replace(member, cursors[least].member());
        Ok(Step::Member)
    }

    /// Moves a cursor that is not in the order, and puts it where it belongs now.
    fn advance(&mut self, cursors: &mut [Cursor], moved: usize) -> Result<()> {
        if cursors[moved].advance()? {
            let member = cursors[moved].member();
            let at = self
                .order
                .partition_point(|&other| cursors[other].member() > member);
            self.order.insert(at, moved);
        }
        Ok(())
    }
}

/// Leapfrog: each cursor in turn jumps to the furthest member that another stands on, until all stand on
/// the same. No more jumps are made than the smallest set has members, for each of the sets.
#[derive(Clone, Default)]
pub(super) struct Intersection {
    /// Whose turn it is to jump.
    turn: usize,
    /// How many cursors stand on the furthest member.
    agreed: usize,
}

impl Intersection {
    pub(super) fn step(&mut self, cursors: &mut [Cursor], furthest: &mut Vec<u8>) -> Result<Step> {
        let is_new_search = self.agreed == 0 || self.agreed == cursors.len();
        let Some(cursor) = cursors.get_mut(self.turn) else {
            return Ok(Step::End);
        };
        let stands = if is_new_search {
            cursor.advance()?
        } else {
            cursor.advance_to(furthest)?
        };
        if !stands {
            return Ok(Step::End);
        }
        if !is_new_search && cursor.member() == furthest.as_slice() {
            self.agreed += 1;
        } else {
            replace(furthest, cursor.member());
            self.agreed = 1;
        }
        self.turn = (self.turn + 1) % cursors.len();
        Ok(if self.agreed == cursors.len() {
            Step::Member
        } else {
            Step::Onward
        })
    }
}

/// Each member of the first set is looked for in the others, which move along with it.
#[derive(Clone, Default)]
pub(super) struct Difference {
    /// How many of the others are known not to have the member that the first cursor stands on; none
    /// while it has yet to move on.
    missed: Option<usize>,
}

impl Difference {
    pub(super) fn step(&mut self, cursors: &mut [Cursor], member: &mut Vec<u8>) -> Result<Step> {
        let Some((first, others)) = cursors.split_first_mut() else {
            return Ok(Step::End);
        };
        let missed = match self.missed {
            Some(missed) => missed,
            None if first.advance()? => 0,
            None => return Ok(Step::End),
        };
        if let Some(other) = others.get_mut(missed)
            && other.advance_to(first.member())?
            && other.member() == first.member()
        {
            self.missed = None;
            return Ok(Step::Onward);
        }
        if missed + 1 < others.len() {
            self.missed = Some(missed + 1);
            return Ok(Step::Onward);
        }
        self.missed = None;
        replace(member, first.member());
        Ok(Step::Member)
    }
}

pub(super) fn replace(member: &mut Vec<u8>, by: &[u8]) {
    member.clear();
    member.extend_from_slice(by);
}
