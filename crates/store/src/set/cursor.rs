//! A walk over one set that stands on a member, so that several can be compared.

use super::Set;
use crate::error::Result;
use crate::walks::{ElementRows, Walks};

/// How many rows are stepped over before the walk jumps. A jump searches every level of the tree, and
/// costs about as much as this many steps.
const NEAR: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    BeforeFirst,
    OnMember,
    BehindLast,
}

pub(super) struct Cursor {
    rows: ElementRows,
    place: Place,
    /// The member it stands on. A copy: the row itself is lost as soon as the walk moves.
    member: Vec<u8>,
    member_at: usize,
    /// The part that the keys of all rows share, and behind it room for the member to jump to.
    jump: Vec<u8>,
}

impl Cursor {
    pub(super) fn new(walks: &Walks<'_>, set: &Set) -> Result<Self> {
        let jump = set.0.row_key(b"").to_vec();
        Ok(Cursor {
            rows: walks.open(&set.0)?,
            place: Place::BeforeFirst,
            member: Vec::new(),
            member_at: jump.len(),
            jump,
        })
    }

    pub(super) fn member(&self) -> &[u8] {
        &self.member
    }

    /// Moves to the next member; false if there is none.
    pub(super) fn advance(&mut self) -> Result<bool> {
        let (member, member_at) = (&mut self.member, self.member_at);
        let read = self.rows.read_next(|row_key, _| {
            member.clear();
            member.extend_from_slice(&row_key[member_at..]);
        })?;
        self.place = match read {
            Some(()) => Place::OnMember,
            None => Place::BehindLast,
        };
        Ok(self.place == Place::OnMember)
    }

    /// Moves to the first member at or after this one, unless it stands there or further already; false
    /// if there is none.
    pub(super) fn advance_to(&mut self, member: &[u8]) -> Result<bool> {
        if self.place == Place::OnMember {
            for _ in 0..NEAR {
                if self.member.as_slice() >= member {
                    return Ok(true);
                }
                if !self.advance()? {
                    return Ok(false);
                }
            }
        }
        match self.place {
            Place::BehindLast => Ok(false),
            Place::OnMember if self.member.as_slice() >= member => Ok(true),
            Place::OnMember | Place::BeforeFirst => {
                self.jump.truncate(self.member_at);
                self.jump.extend_from_slice(member);
                self.rows.seek(&self.jump);
                self.advance()
            }
        }
    }

    pub(super) fn rewind(&mut self) {
        self.rows.rewind();
        self.place = Place::BeforeFirst;
    }
}
