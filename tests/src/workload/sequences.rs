//! The model's ordered types, lists and sorted sets by score, and what is read back.

use std::collections::{BTreeMap, VecDeque};

use super::model::{Bytes, Model, Object, by_score, int, number};
use crate::client::Value;

impl Model {
    pub(super) fn read_command(&self, words: &[&[u8]]) -> Option<Value> {
        let [name, key, ..] = words else {
            return None;
        };
        Some(match (*name, self.object(key)) {
            (b"GET", Some(Object::String(value))) => Value::bulk(value),
            (b"HLEN" | b"LLEN" | b"SCARD" | b"ZCARD", Some(object)) => int(object.len()),
            (b"LRANGE", Some(Object::List(list))) => {
                Value::Array(list.iter().map(Value::bulk).collect())
            }
            (b"ZRANGE", Some(Object::Zset(zset))) => {
                let flat = |(member, score): (&Bytes, f64)| {
                    [Value::bulk(member), Value::bulk(score.to_string())]
                };
                Value::Array(by_score(zset).into_iter().flat_map(flat).collect())
            }
            _ => return None,
        })
    }

    pub(super) fn list_command(&mut self, words: &[&[u8]]) -> Option<Value> {
        Some(match words {
            [b"LPUSH", key, elements @ ..] => {
                let list = self.list(key);
                elements
                    .iter()
                    .for_each(|element| list.push_front(element.to_vec()));
                int(list.len())
            }
            [b"RPUSH", key, elements @ ..] => {
                let list = self.list(key);
                list.extend(elements.iter().map(|element| element.to_vec()));
                int(list.len())
            }
            [pop @ (b"LPOP" | b"RPOP"), key, count] => {
                let list = self.list(key);
                let count = number::<usize>(count).min(list.len());
                let popped = (0..count).filter_map(|_| take(list, *pop == b"LPOP"));
                let popped = popped.map(Value::Bulk).collect();
                self.drop_if_empty(key);
                Value::Array(popped)
            }
            [b"LMOVE", from, to, side, other_side] => {
                let element = take(self.list(from), *side == b"LEFT")?;
                let list = self.list(to);
                match *other_side {
                    b"LEFT" => list.push_front(element.clone()),
                    _ => list.push_back(element.clone()),
                }
                self.drop_if_empty(from);
                Value::Bulk(element)
            }
            [b"LTRIM", key, first, last] => {
                let list = self.list(key);
                list.truncate(number::<usize>(last) + 1);
                list.drain(..number::<usize>(first).min(list.len()));
                self.drop_if_empty(key);
                Value::ok()
            }
            [b"LSET", key, index, element] => {
                *self.list(key).get_mut(number::<usize>(index))? = element.to_vec();
                Value::ok()
            }
            [b"LREM", key, b"0", element] => {
                let list = self.list(key);
                let before = list.len();
                list.retain(|other| other != element);
                let gone = before - list.len();
                self.drop_if_empty(key);
                int(gone)
            }
            [b"LINSERT", key, b"BEFORE", pivot, element] => {
                let list = self.list(key);
                match list.iter().position(|other| other == pivot) {
                    Some(at) => {
                        list.insert(at, element.to_vec());
                        int(list.len())
                    }
                    None => Value::Int(-1),
                }
            }
            _ => return None,
        })
    }

    pub(super) fn zset_command(&mut self, words: &[&[u8]]) -> Option<Value> {
        Some(match words {
            [b"ZADD", key, pairs @ ..] => {
                let zset = self.zset(key);
                let before = zset.len();
                for pair in pairs.chunks_exact(2) {
                    zset.insert(pair[1].to_vec(), number(pair[0]));
                }
                int(zset.len() - before)
            }
            [b"ZINCRBY", key, by, member] => {
                let score = self.zset(key).entry(member.to_vec()).or_default();
                *score += number::<f64>(by);
                Value::bulk(score.to_string())
            }
            [b"ZREM", key, members @ ..] => {
                let zset = self.zset(key);
                let gone = members
                    .iter()
                    .filter(|member| zset.remove(**member).is_some());
                let gone = gone.count();
                self.drop_if_empty(key);
                int(gone)
            }
            [b"ZPOPMIN", key, count] => self.pop_scores(key, number(count), |_| {}),
            [b"ZPOPMAX", key, count] => {
                self.pop_scores(key, number(count), |order| order.reverse())
            }
            [b"ZREMRANGEBYRANK", key, first, last] => {
                let (first, last) = (number::<usize>(first), number::<usize>(last));
                self.retain_ranks(key, |rank, _| rank < first || rank > last)
            }
            [b"ZREMRANGEBYSCORE", key, min, max] => {
                let (min, max) = (number::<f64>(min), number::<f64>(max));
                self.retain_ranks(key, |_, score| score < min || score > max)
            }
            [b"ZRANGESTORE", to, from, first, last] => {
                let (first, last) = (number::<usize>(first), number::<usize>(last));
                let mut result = self.zset_copy(from);
                retain(&mut result, |rank, _| (first..=last).contains(&rank));
                self.store_zset(to, result)
            }
            [b"ZUNIONSTORE", to, b"2", a, b] => {
                let mut result = self.zset_copy(a);
                for (member, score) in self.zset_copy(b) {
                    *result.entry(member).or_default() += score;
                }
                self.store_zset(to, result)
            }
            [b"ZINTERSTORE", to, b"2", a, b] => {
                let (a, b) = (self.zset_copy(a), self.zset_copy(b));
                let common = a.into_iter().filter_map(|(member, score)| {
                    let sum = score + b.get(&member)?;
                    Some((member, sum))
                });
                let common = common.collect();
                self.store_zset(to, common)
            }
            _ => return None,
        })
    }

    fn pop_scores(&mut self, key: &[u8], count: usize, turn: fn(&mut Vec<(&Bytes, f64)>)) -> Value {
        let zset = self.zset(key);
        let mut order = by_score(zset);
        turn(&mut order);
        order.truncate(count);
        let popped: Vec<(Bytes, f64)> = order.into_iter().map(|(m, s)| (m.clone(), s)).collect();
        let mut reply = Vec::new();
        for (member, score) in popped {
            zset.remove(&member);
            reply.extend([Value::Bulk(member), Value::bulk(score.to_string())]);
        }
        self.drop_if_empty(key);
        Value::Array(reply)
    }

    fn retain_ranks(&mut self, key: &[u8], keep: impl Fn(usize, f64) -> bool) -> Value {
        let gone = retain(self.zset(key), keep);
        self.drop_if_empty(key);
        int(gone)
    }

    fn zset_copy(&self, key: &[u8]) -> BTreeMap<Bytes, f64> {
        match self.object(key) {
            Some(Object::Zset(zset)) => zset.clone(),
            _ => BTreeMap::new(),
        }
    }

    fn store_zset(&mut self, key: &[u8], zset: BTreeMap<Bytes, f64>) -> Value {
        let size = zset.len();
        self.store(key, Object::Zset(zset));
        int(size)
    }
}

fn take(list: &mut VecDeque<Bytes>, left: bool) -> Option<Bytes> {
    if left {
        list.pop_front()
    } else {
        list.pop_back()
    }
}

/// Keeps what `keep` says of rank and score; returns how many went.
fn retain(zset: &mut BTreeMap<Bytes, f64>, keep: impl Fn(usize, f64) -> bool) -> usize {
    let order = by_score(zset).into_iter().enumerate();
    let gone = order.filter(|(rank, (_, score))| !keep(*rank, *score));
    let gone: Vec<Bytes> = gone.map(|(_, (member, _))| member.clone()).collect();
    gone.iter().for_each(|member| {
        zset.remove(member);
    });
    gone.len()
}
