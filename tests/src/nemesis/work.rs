//! What a client does, and what it writes down about it.

use std::time::Instant;

use super::cluster_client::{ClusterClient, Reached};
use crate::client::Value;
use crate::linearizability::{Access, Append, Count, History, Operation, Outcome, Transfer};

const ACCOUNTS: usize = 3;

/// How many there are of each kind. With few, clients get into each other's way.
#[derive(Clone, Debug)]
pub struct Objects {
    pub registers: usize,
    pub counters: usize,
    pub lists: usize,
    pub banks: usize,
    /// Whether some reads go to any node that has a replica: never stale, where replicas ask their leader first.
    pub reads_replicas: bool,
    /// What their names begin with.
    pub prefix: String,
    /// What clients draw lots by.
    pub seed: u64,
}

pub(super) struct Worker {
    number: usize,
    client: ClusterClient,
    objects: Objects,
    begun: Instant,
    /// What it has written: no other client writes the same.
    written: u64,
    pub history: History,
}

fn command(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

fn account(bank: &str, number: usize) -> String {
    format!("{{{bank}}}:{number}")
}

fn log(bank: &str) -> String {
    format!("{{{bank}}}:log")
}

impl Worker {
    pub fn new(number: usize, client: ClusterClient, objects: Objects, begun: Instant) -> Worker {
        Worker {
            number,
            client,
            objects,
            begun,
            written: 0,
            history: History::default(),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).expect("five hundred years are enough")
    }

    fn named(&self, kind: &str, number: usize) -> String {
        format!("{}{kind}:{number}", self.objects.prefix)
    }

    fn fresh(&mut self) -> u64 {
        self.written += 1;
        self.number as u64 * 1_000_000_000 + self.written
    }

    /// Does something to some object.
    pub fn step(&mut self) {
        let Objects {
            registers,
            counters,
            lists,
            banks,
            ..
        } = self.objects;
        let object = fastrand::usize(..registers + counters + lists + banks);
        let is_read = fastrand::u8(..3) == 0;
        if object < registers {
            let key = self.named("register", object);
            match fastrand::u8(..6) {
                0 | 1 => self.get(&key),
                2 => self.swap(&key),
                _ => self.set(&key),
            };
        } else if object < registers + counters {
            let key = self.named("counter", object - registers);
            if is_read {
                self.count(&key)
            } else {
                self.increase(&key)
            };
        } else if object < registers + counters + lists {
            let key = self.named("list", object - registers - counters);
            if is_read {
                self.read_list(&key)
            } else {
                self.push(&key)
            };
        } else {
            let bank = self.named("bank", object - registers - counters - lists);
            match fastrand::u8(..6) {
                0 | 1 => self.read_bank(&bank),
                2 | 3 => self.watched_transfer(&bank),
                _ => self.transfer(&bank),
            };
        }
    }

    /// Reads all objects, each until it is answered.
    pub fn read_everything(&mut self, deadline: Instant) {
        let Objects {
            registers,
            counters,
            lists,
            banks,
            ..
        } = self.objects;
        type Read = fn(&mut Worker, &str) -> bool;
        let insist = |worker: &mut Worker, kind: &str, number: usize, read: Read| {
            let name = worker.named(kind, number);
            while !read(worker, &name) {
                assert!(Instant::now() < deadline, "nobody answers for {name}");
            }
        };
        (0..registers).for_each(|n| insist(self, "register", n, Worker::get));
        (0..counters).for_each(|n| insist(self, "counter", n, Worker::count));
        (0..lists).for_each(|n| insist(self, "list", n, Worker::read_list));
        (0..banks).for_each(|n| insist(self, "bank", n, Worker::read_bank));
    }

    /// Calls, and has what was told written down by `action`, which gets the last reply if there was one. Returns
    /// whether there was.
    fn record<A>(
        &mut self,
        name: &str,
        key: &str,
        commands: &[Vec<String>],
        action: impl Fn(Option<&Value>) -> A,
        objects: fn(&mut History) -> &mut std::collections::BTreeMap<String, Vec<Operation<A>>>,
    ) -> bool {
        let begun = self.now();
        let reached = self.client.call(key, commands);
        let end = self.now();
        let (outcome, action) = match &reached {
            Reached::Answered(replies) => (Outcome::Done(end), action(replies.last())),
            Reached::Unknown(_) => (Outcome::Unknown, action(None)),
            Reached::Refused(_) => (Outcome::Refused(end), action(None)),
        };
        let operation = Operation {
            client: self.number,
            begun,
            outcome,
            action,
        };
        objects(&mut self.history)
            .entry(name.to_string())
            .or_default()
            .push(operation);
        matches!(outcome, Outcome::Done(_))
    }

    /// The same for a command that reads, which any replica may answer.
    fn record_read<A>(
        &mut self,
        key: &str,
        read: Vec<String>,
        found: impl Fn(Option<&Value>) -> A,
        objects: fn(&mut History) -> &mut std::collections::BTreeMap<String, Vec<Operation<A>>>,
    ) -> bool {
        let begun = self.now();
        if !self.objects.reads_replicas || fastrand::u8(..3) > 0 {
            return self.record(key, key, &[read], found, objects);
        }
        let Some(reply) = self.client.read_anywhere(&read) else {
            return false;
        };
        let operation = Operation {
            client: self.number,
            begun,
            outcome: Outcome::Done(self.now()),
            action: found(Some(&reply)),
        };
        objects(&mut self.history)
            .entry(key.to_string())
            .or_default()
            .push(operation);
        true
    }

    /// Ends what was watched on this connection; none if somebody else was quicker. Tells since when it may have been done.
    fn exchange(&mut self, home: &str, commands: &[Vec<String>]) -> Option<(u64, Outcome)> {
        let begun = self.now();
        let reached = self.client.go_on(home, commands);
        let end = self.now();
        let outcome = match reached {
            Reached::Answered(replies) if replies.last().is_some_and(Value::is_null) => {
                return None;
            }
            Reached::Answered(_) => Outcome::Done(end),
            Reached::Unknown(_) => Outcome::Unknown,
            Reached::Refused(_) => Outcome::Refused(end),
        };
        Some((begun, outcome))
    }

    fn set(&mut self, key: &str) -> bool {
        let value = self.fresh();
        let set = command(&["SET", key, &value.to_string()]);
        self.record(
            key,
            key,
            &[set],
            |_| Access::Set(value),
            |all| &mut all.registers,
        )
    }

    fn get(&mut self, key: &str) -> bool {
        let found = |reply: Option<&Value>| Access::Get(reply.and_then(number));
        self.record_read(key, command(&["GET", key]), found, |all| &mut all.registers)
    }

    /// WATCH and GET, then MULTI, SET and EXEC on the same connection.
    fn swap(&mut self, key: &str) -> bool {
        let begun = self.now();
        let look = [command(&["WATCH", key]), command(&["GET", key])];
        let (home, looked) = self.client.call_at(key, &look);
        let Reached::Answered(replies) = looked else {
            return false;
        };
        let from = replies.last().and_then(number);
        let (seen, client) = (self.now(), self.number);
        let operations = self.history.registers.entry(key.to_string()).or_default();
        operations.push(Operation {
            client,
            begun,
            outcome: Outcome::Done(seen),
            action: Access::Get(from),
        });
        if replies[0] != Value::ok() {
            return false;
        }
        let to = self.fresh();
        let exchange = [
            command(&["MULTI"]),
            command(&["SET", key, &to.to_string()]),
            command(&["EXEC"]),
        ];
        let Some((begun, outcome)) = self.exchange(&home, &exchange) else {
            return false;
        };
        let operations = self.history.registers.entry(key.to_string()).or_default();
        operations.push(Operation {
            client,
            begun,
            outcome,
            action: Access::Swap { from, to },
        });
        matches!(outcome, Outcome::Done(_))
    }

    fn increase(&mut self, key: &str) -> bool {
        let told = |reply: Option<&Value>| Count::Increase {
            by: 1,
            told: reply.and_then(Value::as_int),
        };
        self.record(key, key, &[command(&["INCR", key])], told, |all| {
            &mut all.counters
        })
    }

    fn count(&mut self, key: &str) -> bool {
        let found = |reply: Option<&Value>| Count::Get(reply.map_or(0, signed));
        self.record_read(key, command(&["GET", key]), found, |all| &mut all.counters)
    }

    fn push(&mut self, key: &str) -> bool {
        let element = self.fresh();
        let push = command(&["RPUSH", key, &element.to_string()]);
        let told = |reply: Option<&Value>| Append::Push {
            element,
            told: reply.and_then(Value::as_int).map(|length| length as usize),
        };
        self.record(key, key, &[push], told, |all| &mut all.lists)
    }

    fn read_list(&mut self, key: &str) -> bool {
        let read = command(&["LRANGE", key, "0", "-1"]);
        let found = |reply: Option<&Value>| Append::Read(reply.map(numbers).unwrap_or_default());
        self.record_read(key, read, found, |all| &mut all.lists)
    }

    fn transfer(&mut self, bank: &str) -> bool {
        let number = self.fresh();
        let (from, to, amount) = plan();
        let commands = [
            // Of an exchange that was broken off something may still be watched.
            command(&["UNWATCH"]),
            command(&["MULTI"]),
            command(&["DECRBY", &account(bank, from), &amount.to_string()]),
            command(&["INCRBY", &account(bank, to), &amount.to_string()]),
            command(&["RPUSH", &log(bank), &number.to_string()]),
            command(&["EXEC"]),
        ];
        let told = |reply: Option<&Value>| {
            let balances = reply.and_then(Value::items);
            let balance = |place: usize| balances.and_then(|all| all.get(place)?.as_int());
            Transfer::Move {
                number,
                from,
                to,
                amount,
                told: balance(0).zip(balance(1)),
            }
        };
        self.record(bank, &log(bank), &commands, told, |all| &mut all.transfers)
    }

    /// The same by who looks first: WATCH and GET, then SET to what that makes.
    fn watched_transfer(&mut self, bank: &str) -> bool {
        let number = self.fresh();
        let (from, to, amount) = plan();
        let (giver, taker) = (account(bank, from), account(bank, to));
        let look = [
            command(&["WATCH", &giver, &taker]),
            command(&["GET", &giver]),
            command(&["GET", &taker]),
        ];
        let (home, looked) = self.client.call_at(&giver, &look);
        let Reached::Answered(replies) = looked else {
            return false;
        };
        if replies.iter().any(Value::is_error) {
            return false;
        }
        let told = (signed(&replies[1]) - amount, signed(&replies[2]) + amount);
        let exchange = [
            command(&["MULTI"]),
            command(&["SET", &giver, &told.0.to_string()]),
            command(&["SET", &taker, &told.1.to_string()]),
            command(&["RPUSH", &log(bank), &number.to_string()]),
            command(&["EXEC"]),
        ];
        let Some((begun, outcome)) = self.exchange(&home, &exchange) else {
            return false;
        };
        let is_done = matches!(outcome, Outcome::Done(_));
        let operations = self.history.transfers.entry(bank.to_string()).or_default();
        operations.push(Operation {
            client: self.number,
            begun,
            outcome,
            action: Transfer::Move {
                number,
                from,
                to,
                amount,
                told: is_done.then_some(told),
            },
        });
        is_done
    }

    fn read_bank(&mut self, bank: &str) -> bool {
        let mut commands = vec![command(&["UNWATCH"]), command(&["MULTI"])];
        commands.extend((0..ACCOUNTS).map(|number| command(&["GET", &account(bank, number)])));
        commands.push(command(&["LRANGE", &log(bank), "0", "-1"]));
        commands.push(command(&["EXEC"]));
        let found = |reply: Option<&Value>| {
            let all = reply.and_then(Value::items).unwrap_or_default();
            let (balances, log) = all.split_at(all.len().min(ACCOUNTS));
            Transfer::Read {
                balances: balances.iter().map(signed).collect(),
                log: log.first().map(numbers).unwrap_or_default(),
            }
        };
        self.record(bank, &log(bank), &commands, found, |all| &mut all.transfers)
    }
}

/// From which account to which how much is moved.
fn plan() -> (usize, usize, i64) {
    let from = fastrand::usize(..ACCOUNTS);
    let to = (from + fastrand::usize(1..ACCOUNTS)) % ACCOUNTS;
    (from, to, fastrand::i64(1..100))
}

fn number(value: &Value) -> Option<u64> {
    std::str::from_utf8(value.as_bytes()?).ok()?.parse().ok()
}

/// Nothing is 0.
fn signed(value: &Value) -> i64 {
    let text = value
        .as_bytes()
        .and_then(|bytes| std::str::from_utf8(bytes).ok());
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn numbers(value: &Value) -> Vec<u64> {
    value
        .items()
        .unwrap_or_default()
        .iter()
        .filter_map(number)
        .collect()
}
