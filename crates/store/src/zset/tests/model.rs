//! What sorted sets do, said as simply as possible.

use std::collections::BTreeMap;

use super::ops::{KEYS, Op};
use super::{Aggregate, Direction, LexBound, LexRange, Operation, ScoreRange, Scored};

type Test<'a> = &'a dyn Fn(&Scored) -> bool;

/// One sorted set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Model(BTreeMap<Vec<u8>, f64>);

/// One for each key.
#[derive(Default)]
pub struct Models(pub [Model; KEYS.len()]);

impl Model {
    pub fn len(&self) -> u64 {
        self.0.len() as u64
    }

    pub fn by_member(&self) -> Vec<(Vec<u8>, f64)> {
        self.0.clone().into_iter().collect()
    }

    pub fn ordered(&self) -> Vec<Scored> {
        let mut all: Vec<Scored> = self
            .0
            .iter()
            .map(|(member, &score)| Scored {
                member: member.clone(),
                score,
            })
            .collect();
        all.sort_by(|a, b| {
            let by_score = a.score.partial_cmp(&b.score).unwrap();
            by_score.then_with(|| a.member.cmp(&b.member))
        });
        all
    }

    pub fn walked(&self, direction: Direction) -> Vec<Scored> {
        let mut all = self.ordered();
        if direction == Direction::Backward {
            all.reverse();
        }
        all
    }

    pub fn between_scores(&self, range: &ScoreRange, direction: Direction) -> Vec<Scored> {
        let mut all = self.walked(direction);
        all.retain(|Scored { score, .. }| {
            let above = if range.min.is_open {
                *score > range.min.score
            } else {
                *score >= range.min.score
            };
            let below = if range.max.is_open {
                *score < range.max.score
            } else {
                *score <= range.max.score
            };
            above && below
        });
        all
    }

    /// As Redis does on its compact encoding: a look at both ends; a walk to the first member within, from
    /// there past as many as are to be left out, and on to the first that is not within.
    pub fn between_members(
        &self,
        range: &LexRange<'_>,
        direction: Direction,
        offset: usize,
    ) -> Vec<Scored> {
        let above = |scored: &Scored| match range.min {
            LexBound::Lowest => true,
            LexBound::Highest => false,
            LexBound::Included(bound) => *scored.member >= *bound,
            LexBound::Excluded(bound) => *scored.member > *bound,
        };
        let below = |scored: &Scored| match range.max {
            LexBound::Lowest => false,
            LexBound::Highest => true,
            LexBound::Included(bound) => *scored.member <= *bound,
            LexBound::Excluded(bound) => *scored.member < *bound,
        };
        let all = self.ordered();
        if !all.last().is_some_and(above) || !all.first().is_some_and(below) {
            return Vec::new();
        }
        let (enters, stays): (Test<'_>, Test<'_>) = match direction {
            Direction::Forward => (&above, &below),
            Direction::Backward => (&below, &above),
        };
        let mut all = self.walked(direction);
        all.drain(..all.iter().take_while(|scored| !enters(scored)).count());
        if !all.first().is_some_and(stays) {
            return Vec::new();
        }
        all.into_iter().skip(offset).take_while(stays).collect()
    }

    fn remove_all(&mut self, gone: &[Scored]) {
        self.0
            .retain(|member, _| gone.iter().all(|scored| scored.member != *member));
    }
}

impl Models {
    pub fn apply(&mut self, op: &Op) {
        match op {
            Op::Set(key, member, score) => {
                // Equal scores change nothing, so that a -0 never shows.
                self.0[*key].0.insert(member.to_vec(), score + 0.0);
            }
            Op::Remove(key, member) => {
                self.0[*key].0.remove(*member);
            }
            Op::RemoveScores(key, range, _) => {
                let gone = self.0[*key].between_scores(range, Direction::Forward);
                self.0[*key].remove_all(&gone);
            }
            Op::RemoveRanks(key, first, count, _) => {
                let all = self.0[*key].ordered().into_iter();
                let gone: Vec<_> = all.skip(*first as usize).take(*count as usize).collect();
                self.0[*key].remove_all(&gone);
            }
            Op::RemoveMembers(key, range, _) => {
                let gone = self.0[*key].between_members(range, Direction::Forward, 0);
                self.0[*key].remove_all(&gone);
            }
            Op::Pop(key, direction, count) | Op::PopOneByOne(key, direction, count) => {
                let mut gone = self.0[*key].walked(*direction);
                gone.truncate(*count as usize);
                self.0[*key].remove_all(&gone);
            }
            Op::Store(key, operation, aggregate, sources) => {
                self.0[*key] = self.merge(*operation, *aggregate, sources);
            }
            Op::Commit => {}
        }
    }

    fn merge(&self, operation: Operation, aggregate: Aggregate, sources: &[(usize, f64)]) -> Model {
        let mut sources: Vec<(&Model, f64)> = sources
            .iter()
            .map(|&(key, weight)| (&self.0[key], weight))
            .collect();
        if operation == Operation::Difference {
            let (first, others) = sources.split_first().unwrap();
            let mut left = first.0.clone();
            left.0.retain(|member, _| {
                others
                    .iter()
                    .all(|(other, _)| !other.0.contains_key(member))
            });
            return left;
        }
        sources.sort_by_key(|(source, _)| source.len());
        let mut totals: BTreeMap<Vec<u8>, (usize, f64)> = BTreeMap::new();
        for (source, weight) in &sources {
            for (member, score) in &source.0 {
                let score = weight * score;
                let first = (1, or_zero(score));
                let score = match operation {
                    Operation::Intersection => score,
                    _ => or_zero(score),
                };
                let total = totals.get(member).map_or(first, |&(seen, total)| {
                    let total = match aggregate {
                        Aggregate::Sum => or_zero(total + score),
                        Aggregate::Min => total.min(score),
                        Aggregate::Max => total.max(score),
                    };
                    (seen + 1, total)
                });
                totals.insert(member.clone(), total);
            }
        }
        if operation == Operation::Intersection {
            totals.retain(|_, (seen, _)| *seen == sources.len());
        }
        let totals = totals.into_iter();
        Model(
            totals
                .map(|(member, (_, total))| (member, total + 0.0))
                .collect(),
        )
    }
}

fn or_zero(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}
