//! Keys that all connections change at once. No model can say what they hold, but every command on
//! them keeps an invariant, and a command applied by halves would break it.
//!
//! | keys | commands | always true |
//! |---|---|---|
//! | `pair:left`, `pair:right` | MSET, DEL of both; SET, DEL of each in a unit | equal, or both absent |
//! | `hash` fields a, b; `zset` members a, b | HSET, HDEL, ZADD, ZREM of both, or of each in a unit | the same |
//! | `set:0..3` | SMOVE | each element in exactly one |
//! | `union`, `common` | SUNIONSTORE, SINTERSTORE of these | all elements; none |
//! | `list:0..3` | LMOVE | each element in exactly one |
//! | `baton:0..3` | RENAME | exactly one exists |
//! | `count:ROUND` | INCR, GET | as many as were done, and never less than anyone has seen |
//! | `journal:ROUND` | RPUSH of connection:number | each connection's numbers in order |
//!
//! Those that are large are in [`counted`].

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use fastrand::Rng;

use super::counted;
use super::model::{Argv, Bytes, Entry, Expected, Object};
use crate::check::Dump;
use crate::client::{Client, Value};

const PLACES: usize = 3;
const ELEMENTS: usize = 300;
pub const PREFIX: &str = "shared:";

/// What to count of a shared command when it comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracked {
    Counted,
    /// Someone looked at the count.
    Observed,
    Journaled,
    Nothing,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Shared {
    /// Counts from 1; 0 before the first [`Shared::prepare`].
    pub round: u64,
}

/// How many commands of one connection came back, at least and at most.
pub type Bounds = RangeInclusive<usize>;

/// What all connections found of their commands on shared keys.
#[derive(Debug, Default)]
pub struct Survived {
    pub counted: Vec<Bounds>,
    pub journaled: Vec<Bounds>,
    /// The highest count that a reply showed which the server must stand by.
    pub seen: usize,
}

fn words(line: &str) -> Argv {
    let word = |word: &str| match word.strip_prefix('@') {
        Some(key) => format!("{PREFIX}{key}").into_bytes(),
        None => word.as_bytes().to_vec(),
    };
    line.split(' ').map(word).collect()
}

fn one_of<const N: usize>(values: [i64; N]) -> Expected {
    Expected::OneOf(values.map(Value::Int).to_vec())
}

impl Shared {
    /// Begins a round, and sets up what the invariants are about if the server does not have it yet.
    pub fn prepare(&mut self, client: &mut Client) {
        let previous = self.round;
        self.round += 1;
        client.command(&words(&format!(
            "DEL @count:{previous} @journal:{previous}"
        )));
        if client.command(&words("EXISTS @seeded")) == Value::Int(1) {
            return;
        }
        let elements: String = (0..ELEMENTS).map(|n| format!(" e{n}")).collect();
        let [board, crowd] = counted::seeds();
        for line in [
            board,
            crowd,
            format!("SADD @set:0{elements}"),
            format!("RPUSH @list:0{elements}"),
            "SET @baton:0 baton".into(),
            "SET @seeded yes".into(),
        ] {
            client.command(&words(&line));
        }
    }

    /// Any of the commands, and what a server that keeps the invariants answers.
    pub fn command(
        &self,
        rng: &mut Rng,
        connection: usize,
        journaled: usize,
    ) -> (Argv, Expected, Tracked) {
        let (from, to) = (rng.usize(..PLACES), rng.usize(..PLACES));
        let element = rng.usize(..ELEMENTS);
        let n = rng.u32(..);
        let all = "@set:0 @set:1 @set:2";
        let (line, expected) = match rng.u8(..20) {
            0 => {
                let line = format!("INCR @count:{}", self.round);
                return (words(&line), Expected::NoError, Tracked::Counted);
            }
            1 => {
                let line = format!("RPUSH @journal:{} {connection}:{journaled}", self.round);
                return (words(&line), Expected::NoError, Tracked::Journaled);
            }
            2 => {
                let line = format!("GET @count:{}", self.round);
                return (words(&line), Expected::NoError, Tracked::Observed);
            }
            3 | 14 => (
                format!("MSET @pair:left {n} @pair:right {n}"),
                Expected::Exactly(Value::ok()),
            ),
            4 => ("DEL @pair:left @pair:right".into(), one_of([0, 2])),
            5 => (format!("HSET @hash a {n} b {n}"), one_of([0, 2])),
            6 => ("HDEL @hash a b".into(), one_of([0, 2])),
            7 => (format!("ZADD @zset {n} a {n} b"), one_of([0, 2])),
            8 => ("ZREM @zset a b".into(), one_of([0, 2])),
            9 => (
                format!("SUNIONSTORE @union {all}"),
                one_of([ELEMENTS as i64]),
            ),
            10 => ("SINTERSTORE @common @set:0 @set:1".into(), one_of([0])),
            11 => (
                format!("LMOVE @list:{from} @list:{to} LEFT RIGHT"),
                Expected::NoError,
            ),
            12 => {
                let absent = Value::error("ERR no such key");
                let line = format!("RENAME @baton:{from} @baton:{to}");
                (line, Expected::OneOf(vec![Value::ok(), absent]))
            }
            13 => (
                format!("SMOVE @set:{from} @set:{to} e{element}"),
                one_of([0, 1]),
            ),
            _ => counted::command(rng),
        };
        (words(&line), expected, Tracked::Nothing)
    }

    /// A unit whose commands keep an invariant together and break it alone, and what a server answers.
    pub fn unit(&self, rng: &mut Rng) -> (Vec<Argv>, Expected) {
        let commands = match rng.u8(..8) {
            6.. => {
                let (commands, expected) = counted::unit(rng);
                return (commands.map(|line| words(&line)).to_vec(), expected);
            }
            0 => ["SET @pair:left N", "SET @pair:right N"],
            1 => ["DEL @pair:left", "DEL @pair:right"],
            2 => ["HSET @hash a N", "HSET @hash b N"],
            3 => ["HDEL @hash a", "HDEL @hash b"],
            4 => ["ZADD @zset N a", "ZADD @zset N b"],
            _ => ["ZREM @zset a", "ZREM @zset b"],
        };
        let n = rng.u32(..).to_string();
        let commands = commands.map(|line| words(&line.replace('N', &n)));
        let reply = Expected::OneOf(vec![Value::ok(), Value::Int(0), Value::Int(1)]);
        let expected = Expected::Each(vec![reply.clone(), reply]);
        (commands.to_vec(), expected)
    }

    /// Which invariants a server broke.
    pub fn violations(&self, found: &Dump, survived: &Survived) -> Vec<String> {
        let found = Found(found);
        let mut violations = Vec::new();
        let mut expect = |holds: bool, what: String| {
            if !holds {
                violations.push(format!("shared keys: {what}"));
            }
        };

        let (left, right) = (found.string("pair:left"), found.string("pair:right"));
        expect(
            left == right,
            format!("MSET and DEL of a pair left {left:?} and {right:?}"),
        );
        let fields = found.hash_pair();
        expect(
            fields.0 == fields.1,
            format!("HSET and HDEL of a pair left {fields:?}"),
        );
        let scores = found.zset_pair();
        expect(
            scores.0 == scores.1,
            format!("ZADD and ZREM of a pair left {scores:?}"),
        );

        let prepared = self.round > 0;
        let elements = if prepared { ELEMENTS } else { 0 };
        for kind in ["set", "list"] {
            let places = found.places(kind);
            let whole = places.len() == elements && places.values().all(|&times| times == 1);
            let odd = || {
                places
                    .iter()
                    .filter(|(_, times)| **times != 1)
                    .collect::<Vec<_>>()
            };
            expect(
                whole,
                format!("{} elements in {kind}:*, twice: {:?}", places.len(), odd()),
            );
        }
        let union = found.object("union").map_or(0, Object::len);
        expect(
            [0, ELEMENTS].contains(&union),
            format!("a union of {union} elements"),
        );
        expect(
            found.object("common").is_none(),
            "an intersection of disjoint sets".into(),
        );
        let batons = (0..PLACES)
            .filter(|n| found.string(&format!("baton:{n}")).is_some())
            .count();
        expect(batons == usize::from(prepared), format!("{batons} batons"));

        let count = found
            .string(&format!("count:{}", self.round))
            .unwrap_or(b"0");
        let count: usize = super::model::number(count);
        let least: usize = survived.counted.iter().map(Bounds::start).sum();
        let most: usize = survived.counted.iter().map(Bounds::end).sum();
        let within = (least..=most).contains(&count);
        expect(
            within,
            format!("INCR counted {count}, done {least} to {most} times"),
        );
        let seen = survived.seen;
        expect(
            count >= seen,
            format!("INCR counted {count}, but {seen} has been seen"),
        );

        for name in ["board", "crowd"].into_iter().filter(|_| prepared) {
            let violation = counted::violation(name, found.object(name));
            violations.extend(violation.map(|what| format!("shared keys: {what}")));
        }
        violations.extend(self.journal_violations(&found, &survived.journaled));
        violations
    }

    fn journal_violations(&self, found: &Found, journaled: &[Bounds]) -> Vec<String> {
        let mut next = vec![0; journaled.len()];
        let mut violations = Vec::new();
        for entry in found.list(&format!("journal:{}", self.round)) {
            let entry = String::from_utf8_lossy(&entry).into_owned();
            let parsed = entry.split_once(':');
            let parsed =
                parsed.and_then(|(c, n)| Some((c.parse::<usize>().ok()?, n.parse().ok()?)));
            match parsed {
                Some((connection, n)) if next.get(connection) == Some(&n) => next[connection] += 1,
                _ => violations.push(format!("shared keys: {entry} is out of order in journal")),
            }
        }
        for (connection, (&count, bounds)) in next.iter().zip(journaled).enumerate() {
            if !bounds.contains(&count) {
                violations.push(format!(
                    "shared keys: the journal holds {count} entries of connection {connection}, done {bounds:?} times"
                ));
            }
        }
        violations
    }
}

/// A dump, seen as the shared keys.
struct Found<'a>(&'a Dump);

impl Found<'_> {
    fn object(&self, key: &str) -> Option<&Object> {
        let entry: Option<&Entry> = self.0.entries.get(format!("{PREFIX}{key}").as_bytes());
        entry.map(|entry| &entry.object)
    }

    fn string(&self, key: &str) -> Option<&[u8]> {
        match self.object(key)? {
            Object::String(value) => Some(value),
            _ => None,
        }
    }

    fn hash_pair(&self) -> (Option<&Bytes>, Option<&Bytes>) {
        match self.object("hash") {
            Some(Object::Hash(hash)) => (hash.get(&b"a"[..]), hash.get(&b"b"[..])),
            _ => (None, None),
        }
    }

    fn zset_pair(&self) -> (Option<&f64>, Option<&f64>) {
        match self.object("zset") {
            Some(Object::Zset(zset)) => (zset.get(&b"a"[..]), zset.get(&b"b"[..])),
            _ => (None, None),
        }
    }

    fn list(&self, key: &str) -> Vec<Bytes> {
        match self.object(key) {
            Some(Object::List(list)) => list.iter().cloned().collect(),
            Some(Object::Set(set)) => set.iter().cloned().collect(),
            _ => Vec::new(),
        }
    }

    /// How often each element is somewhere in the places of a kind.
    fn places(&self, kind: &str) -> BTreeMap<Bytes, usize> {
        let mut times = BTreeMap::new();
        for n in 0..PLACES {
            for element in self.list(&format!("{kind}:{n}")) {
                *times.entry(element).or_default() += 1;
            }
        }
        times
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::workload::model::Model;

    /// A server in good order after some commands, and `change` done to it by no rule.
    fn violations(change: &[&str]) -> Vec<String> {
        let elements: String = (1..ELEMENTS).map(|n| format!(" e{n}")).collect();
        let [board, crowd] = counted::seeds();
        let good = [
            &board,
            &crowd,
            &format!("SADD @set:0{elements}"),
            "SADD @set:2 e0",
            &format!("RPUSH @list:1{elements} e0"),
            "SET @baton:1 baton",
            "MSET @pair:left 5 @pair:right 5",
            "HSET @hash a 7 b 7",
            "ZADD @zset 8 a 8 b",
            "SET @count:1 3",
            "RPUSH @journal:1 0:0 1:0 0:1",
        ];
        let mut state = Model::default();
        for line in good.iter().chain(change) {
            state.execute(&words(line));
        }
        let entry = |key: &Bytes| (key.clone(), state.get(key).unwrap().clone());
        let dump = Dump {
            entries: state.keys().map(entry).collect(),
            began: 0,
            ended: 0,
        };
        let survived = Survived {
            counted: vec![1..=2, 2..=2],
            journaled: vec![1..=2, 1..=1],
            seen: 3,
        };
        Shared { round: 1 }.violations(&dump, &survived)
    }

    #[test]
    fn good_order_is_accepted() {
        assert_eq!(violations(&[]), [""; 0]);
        let other_good_order = [
            "DEL @pair:left @pair:right @hash @zset",
            "SMOVE @set:0 @set:1 e5",
            "LMOVE @list:1 @list:0 LEFT LEFT",
            "RENAME @baton:1 @baton:2",
            "SET @count:1 4",
            "SUNIONSTORE @union @set:0 @set:2",
            "SADD @union e5",
        ];
        assert_eq!(violations(&other_good_order), [""; 0]);
    }

    #[test]
    fn each_broken_invariant_is_noticed() {
        for change in [
            "SET @pair:left 6",
            "DEL @pair:right",
            "HSET @hash b 8",
            "HDEL @hash a",
            "ZINCRBY @zset 1 a",
            "ZREM @zset b",
            "SREM @set:2 e0",
            "SADD @set:1 e9",
            "LPOP @list:1 1",
            "RPUSH @list:0 e9",
            "DEL @baton:1",
            "SET @baton:0 baton",
            "SADD @common e0",
            "SADD @union e0",
            "SET @count:1 2",
            "SET @count:1 5",
            "LPOP @journal:1 1",
            "RPOP @journal:1 2",
            "RPUSH @journal:1 1:1",
            "RPUSH @journal:1 0:3",
            "DEL @journal:1",
            "ZREM @board m5",
            "ZADD @board 1 new",
            "SREM @crowd m5",
            "DEL @crowd",
        ] {
            assert!(!violations(&[change]).is_empty(), "{change}");
        }
    }
}
