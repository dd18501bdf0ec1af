//! Ranges of scores and of members, as ranges of score rows.
//!
//! A bound on a score is a prefix of row keys, taken before or after all rows that begin with it. A
//! bound on a member makes sense only among members of equal score, and then it too is a row key. Redis
//! leaves open what happens when the scores differ, but does answer: it walks in score order from the
//! end it starts at, to the first member within the bounds, and from there to the first that is not.
//! Clients see that, so it is done here too.

use cairn_encoding::score;
use cairn_engine::{Direction, Rows};

use super::{Scored, Zset};
use crate::error::Result;
use crate::txn::ReadTxn;

/// Score rows of one sorted set: those whose keys lie in `[lower, upper)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    pub(super) lower: Vec<u8>,
    pub(super) upper: Vec<u8>,
}

impl Span {
    /// Bounds that cross, as a client may well give them, hold nothing.
    pub(super) fn new(lower: Vec<u8>, upper: Vec<u8>) -> Span {
        Span {
            upper: upper.max(lower.clone()),
            lower,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.lower == self.upper
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoreBound {
    pub score: f64,
    /// Whether the score itself is out of the range.
    pub is_open: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoreRange {
    pub min: ScoreBound,
    pub max: ScoreBound,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LexBound<'a> {
    /// Below every member.
    Lowest,
    Included(&'a [u8]),
    Excluded(&'a [u8]),
    /// Above every member.
    Highest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LexRange<'a> {
    pub min: LexBound<'a>,
    pub max: LexBound<'a>,
}

impl LexRange<'_> {
    fn admits_from_below(&self, member: &[u8]) -> bool {
        match self.min {
            LexBound::Lowest => true,
            LexBound::Included(bound) => member >= bound,
            LexBound::Excluded(bound) => member > bound,
            LexBound::Highest => false,
        }
    }

    fn admits_from_above(&self, member: &[u8]) -> bool {
        match self.max {
            LexBound::Lowest => false,
            LexBound::Included(bound) => member <= bound,
            LexBound::Excluded(bound) => member < bound,
            LexBound::Highest => true,
        }
    }

    /// Whether a walk that comes to this member may enter the range there, and whether it leaves it.
    fn passage(&self, member: &[u8], direction: Direction) -> (bool, bool) {
        let (above, below) = (
            self.admits_from_below(member),
            self.admits_from_above(member),
        );
        match direction {
            Direction::Forward => (above, !below),
            Direction::Backward => (below, !above),
        }
    }
}

impl Zset {
    /// All rows.
    pub fn whole(&self) -> Span {
        Span {
            lower: self.before_score(f64::NEG_INFINITY),
            upper: self.after_score(f64::INFINITY),
        }
    }

    /// No row at all.
    pub(super) fn nothing(&self) -> Span {
        let anywhere = self.before_score(0.0);
        Span::new(anywhere.clone(), anywhere)
    }

    pub fn span_of_scores(&self, range: &ScoreRange) -> Span {
        let lower = match range.min.is_open {
            true => self.after_score(range.min.score),
            false => self.before_score(range.min.score),
        };
        let upper = match range.max.is_open {
            true => self.before_score(range.max.score),
            false => self.after_score(range.max.score),
        };
        Span::new(lower, upper)
    }

    pub fn span_of_members(&self, txn: &ReadTxn, range: &LexRange<'_>) -> Result<Span> {
        match self.common_score(txn)? {
            Some(score) => Ok(self.span_of_equal_scores(score, range)),
            None => self.walk_members(txn, range, Direction::Forward, 0),
        }
    }

    /// At most `limit` members of a range, after the first `offset` of the walk; and how many they are.
    pub fn window_of_members(
        &self,
        txn: &ReadTxn,
        range: &LexRange<'_>,
        direction: Direction,
        offset: u64,
        limit: u64,
    ) -> Result<(Rows, u64)> {
        match self.common_score(txn)? {
            Some(score) => {
                let span = self.span_of_equal_scores(score, range);
                self.window(txn, &span, direction, offset, limit)
            }
            None => {
                let span = self.walk_members(txn, range, direction, offset)?;
                self.window(txn, &span, direction, 0, limit)
            }
        }
    }

    /// The score of all members, if it is the same.
    fn common_score(&self, txn: &ReadTxn) -> Result<Option<f64>> {
        let lowest = self.first(txn, Direction::Forward)?;
        let highest = self.first(txn, Direction::Backward)?;
        Ok(match (lowest, highest) {
            (Some(lowest), Some(highest)) if lowest.score == highest.score => Some(lowest.score),
            _ => None,
        })
    }

    /// The first member of a walk over the whole.
    fn first(&self, txn: &ReadTxn, direction: Direction) -> Result<Option<Scored>> {
        if self.is_empty() {
            return Ok(None);
        }
        let mut rows = self.rows(txn, &self.whole(), direction)?;
        let keys = self.score_rows();
        Ok(rows.next()?.map(|(key, _)| keys.scored(key)))
    }

    fn span_of_equal_scores(&self, score: f64, range: &LexRange<'_>) -> Span {
        let edge = |bound, side| match (bound, side) {
            (LexBound::Lowest, _) => self.before_score(score),
            (LexBound::Highest, _) => self.after_score(score),
            (LexBound::Included(member), Side::Lower)
            | (LexBound::Excluded(member), Side::Upper) => self.score_key(score, member).to_vec(),
            (LexBound::Included(member), Side::Upper)
            | (LexBound::Excluded(member), Side::Lower) => {
                successor(&self.score_key(score, member))
            }
        };
        Span::new(edge(range.min, Side::Lower), edge(range.max, Side::Upper))
    }

    /// What Redis finds when scores differ. It looks at both ends first, though that proves little here;
    /// and an offset passes over members whether they lie within or not.
    fn walk_members(
        &self,
        txn: &ReadTxn,
        range: &LexRange<'_>,
        direction: Direction,
        mut offset: u64,
    ) -> Result<Span> {
        let keys = self.score_rows();
        let lowest = self.first(txn, Direction::Forward)?;
        let highest = self.first(txn, Direction::Backward)?;
        let may_have_any = lowest.is_some_and(|lowest| range.admits_from_above(&lowest.member))
            && highest.is_some_and(|highest| range.admits_from_below(&highest.member));
        if !may_have_any {
            return Ok(self.nothing());
        }
        let (mut first, mut last) = (None, Vec::new());
        let mut is_inside = false;
        let mut rows = self.rows(txn, &self.whole(), direction)?;
        while let Some((key, _)) = rows.next()? {
            txn.step()?;
            let (is_entry, is_exit) = range.passage(keys.member(key), direction);
            if !is_inside && !is_entry {
                continue;
            }
            let is_passed_over = is_inside && offset > 0;
            if is_exit && !is_passed_over {
                break;
            }
            is_inside = true;
            if offset > 0 {
                offset -= 1;
                continue;
            }
            first.get_or_insert_with(|| key.to_vec());
            last.clear();
            last.extend_from_slice(key);
        }
        Ok(match (first, direction) {
            (None, _) => self.nothing(),
            (Some(first), Direction::Forward) => Span::new(first, successor(&last)),
            (Some(first), Direction::Backward) => Span::new(last, successor(&first)),
        })
    }

    /// Below every row of this score.
    fn before_score(&self, score: f64) -> Vec<u8> {
        self.0.row_key(&score::encode(score)).to_vec()
    }

    /// Above every row of this score. What lies above infinity is not a score, and not this module's.
    fn after_score(&self, score: f64) -> Vec<u8> {
        let next = u64::from_be_bytes(score::encode(score)) + 1;
        self.0.row_key(&next.to_be_bytes()).to_vec()
    }
}

#[derive(Clone, Copy)]
enum Side {
    Lower,
    Upper,
}

/// The least key above this one.
pub(super) fn successor(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}
