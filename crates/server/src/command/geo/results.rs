//! What a search finds, in the order that was asked for, from bounded memory.
//!
//! What fits into a window is gathered and sorted. More is counted, and then found a second time while it is sent; if
//! it is to be sorted, again and again on the same pinned rows, each time the next by distance, as many as fit.

#[cfg(test)]
mod tests;

use cairn_store::zset::{ScoreBound, ScoreRange, ScoreRows, Scored};
use cairn_store::{Direction, ReadTxn, Result, Rows, Zset};

use super::hash::{Cell, Position};
use super::shape::{Shape, distance};
use crate::command::partial_sort::partial_sort;
use crate::command::piecewise::ROWS_PER_PIECE;
use crate::command::zset::{OVERHEAD, WINDOW, Window};

/// How many bytes of members are found ahead of those that are sent, besides the last of them.
const PIECE: usize = 256 * 1024;

/// A member that was found.
pub struct Found {
    pub member: Vec<u8>,
    pub score: f64,
    /// In meters.
    pub distance: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    Nearest,
    Farthest,
}

/// How much is wanted of what there is.
#[derive(Clone, Copy, Default)]
pub struct Wanted {
    pub order: Option<Order>,
    pub count: Option<u64>,
    /// Whichever are found first will do.
    pub is_any: bool,
}

/// A walk over the cells of a search.
struct Walk {
    shape: Shape,
    keys: ScoreRows,
    cells: Vec<Rows>,
    /// The cell it is in.
    at: usize,
}

enum Met<'r> {
    Inside {
        member: &'r [u8],
        score: f64,
        distance: f64,
    },
    Nothing,
    End,
}

impl Walk {
    fn open(txn: &ReadTxn, zset: &Zset, shape: Shape) -> Result<Walk> {
        let rows = |cell: Cell| {
            let (from, below) = cell.scores();
            let bound = |score, is_open| ScoreBound { score, is_open };
            let range = ScoreRange {
                min: bound(from, false),
                max: bound(below, true),
            };
            zset.rows(txn, &zset.span_of_scores(&range), Direction::Forward)
        };
        let cells: Result<_> = shape.cells().into_iter().map(rows).collect();
        Ok(Walk {
            keys: zset.score_rows(),
            cells: cells?,
            shape,
            at: 0,
        })
    }

    /// Looks at one row.
    fn next(&mut self) -> Result<Met<'_>> {
        let Some(rows) = self.cells.get_mut(self.at) else {
            return Ok(Met::End);
        };
        let Some((key, _)) = rows.next()? else {
            self.at += 1;
            return Ok(Met::Nothing);
        };
        let score = self.keys.score(key);
        Ok(
            match self.shape.distance_inside(Position::of_score(score)) {
                Some(distance) => Met::Inside {
                    member: self.keys.member(key),
                    score,
                    distance,
                },
                None => Met::Nothing,
            },
        )
    }

    fn rewind(&mut self) {
        self.at = 0;
        self.cells.iter_mut().for_each(Rows::rewind);
    }
}

pub struct Results {
    left: u64,
    ready: std::vec::IntoIter<Found>,
    /// Where the others come from, if not all are ready.
    beyond: Option<Beyond>,
}

pub enum Next {
    Found(Found),
    /// It has to be looked for, and something else may be done before.
    Onward,
    End,
}

impl Results {
    pub fn search(txn: &ReadTxn, zset: &Zset, shape: Shape, wanted: Wanted) -> Result<Results> {
        if zset.is_empty() {
            return Ok(Results::ready(Vec::new()));
        }
        Results::by_window(txn, Walk::open(txn, zset, shape)?, wanted, WINDOW)
    }

    fn by_window(txn: &ReadTxn, mut walk: Walk, wanted: Wanted, size: usize) -> Result<Results> {
        let Wanted {
            order,
            count,
            is_any,
        } = wanted;
        let most = count.unwrap_or(u64::MAX);
        let enough = if is_any { most } else { u64::MAX };
        let (mut found, mut bytes, mut total) = (Vec::new(), 0, 0);
        while total < enough {
            txn.step()?;
            match walk.next()? {
                Met::Inside {
                    member,
                    score,
                    distance,
                } => {
                    total += 1;
                    bytes += member.len() + OVERHEAD;
                    if bytes <= size {
                        let member = member.to_vec();
                        found.push(Found {
                            member,
                            score,
                            distance,
                        });
                    } else {
                        found = Vec::new();
                    }
                }
                Met::Nothing => {}
                Met::End => break,
            }
        }
        let left = total.min(most);
        if bytes <= size {
            sort(&mut found, order, left as usize);
            found.truncate(left as usize);
            return Ok(Results::ready(found));
        }
        walk.rewind();
        let beyond = Beyond {
            walk,
            order,
            window: Window::new(size),
            passed: 0,
        };
        Ok(Results {
            left,
            ready: Vec::new().into_iter(),
            beyond: Some(beyond),
        })
    }

    fn ready(found: Vec<Found>) -> Results {
        Results {
            left: found.len() as u64,
            ready: found.into_iter(),
            beyond: None,
        }
    }

    /// How many are still to come.
    pub fn left(&self) -> u64 {
        self.left
    }

    pub fn next(&mut self) -> Result<Next> {
        if self.left == 0 {
            return Ok(Next::End);
        }
        if let Some(found) = self.ready.next() {
            self.left -= 1;
            return Ok(Next::Found(found));
        }
        match &mut self.beyond {
            Some(beyond) => match beyond.look()? {
                Some(found) => {
                    self.ready = found.into_iter();
                    Ok(Next::Onward)
                }
                None => Ok(Next::End),
            },
            None => Ok(Next::End),
        }
    }
}

fn sort(found: &mut [Found], order: Option<Order>, wanted: usize) {
    match order {
        None => {}
        Some(Order::Nearest) => {
            partial_sort(found, 0..wanted, |a, b| a.distance.total_cmp(&b.distance));
        }
        Some(Order::Farthest) => {
            partial_sort(found, 0..wanted, |a, b| b.distance.total_cmp(&a.distance));
        }
    }
}

/// More than a window holds. Of equal distances the one comes first here that is met first.
struct Beyond {
    walk: Walk,
    order: Option<Order>,
    window: Window,
    /// How many were met since the walk began.
    passed: u64,
}

impl Beyond {
    /// Goes on for a while, and gives what came of it; nothing once there is no more.
    fn look(&mut self) -> Result<Option<Vec<Found>>> {
        let (mut found, mut bytes) = (Vec::new(), 0);
        for _ in 0..ROWS_PER_PIECE {
            match self.walk.next()? {
                Met::Inside {
                    member,
                    score,
                    distance,
                } => match self.order {
                    None => {
                        bytes += member.len();
                        let member = member.to_vec();
                        found.push(Found {
                            member,
                            score,
                            distance,
                        });
                        if bytes > PIECE {
                            break;
                        }
                    }
                    Some(order) => {
                        self.passed += 1;
                        let place = Place {
                            passed: self.passed,
                            score,
                            member,
                        };
                        // No distance is none at all: what is farther than the far side of the earth.
                        let distance = if distance.is_nan() {
                            f64::INFINITY
                        } else {
                            distance
                        };
                        let rank = match order {
                            Order::Nearest => distance,
                            Order::Farthest => -distance,
                        };
                        self.window.offer(&place.encode(), rank);
                    }
                },
                Met::Nothing => {}
                Met::End if self.order.is_none() => return Ok((!found.is_empty()).then_some(found)),
                Met::End => return Ok(self.turn()),
            }
        }
        Ok(Some(found))
    }

    /// The end of a walk: what it found, and back to the beginning.
    fn turn(&mut self) -> Option<Vec<Found>> {
        self.walk.rewind();
        self.passed = 0;
        let center = self.walk.shape.center;
        let found = |scored: Scored| {
            let Place { score, member, .. } = Place::decode(&scored.member);
            Found {
                member: member.to_vec(),
                score,
                distance: distance(center, Position::of_score(score)),
            }
        };
        let window: Vec<Found> = self.window.take().into_iter().map(found).collect();
        (!window.is_empty()).then_some(window)
    }
}

/// A member as the window keeps it: behind a number that decides between equal distances.
struct Place<'m> {
    passed: u64,
    score: f64,
    member: &'m [u8],
}

impl<'m> Place<'m> {
    fn encode(&self) -> Vec<u8> {
        let (passed, score) = (self.passed.to_be_bytes(), self.score.to_be_bytes());
        [&passed, &score, self.member].concat()
    }

    fn decode(bytes: &'m [u8]) -> Place<'m> {
        let number = |at: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&bytes[at..at + 8]);
            number
        };
        Place {
            passed: u64::from_be_bytes(number(0)),
            score: f64::from_be_bytes(number(8)),
            member: &bytes[16..],
        }
    }
}
