//! What a connection does next.
//!
//! Each connection owns a few keys, and picks a command that fits what one of them holds now: so
//! nearly every command changes something, and the keys still change type, are overwritten, renamed
//! over one another and emptied all the time. Some keys are roomy: strings of many chunks, collections
//! large enough for whatever index a server keeps beyond some size.
//!
//! Keys that expire soon are a family of their own. What they hold depends on the clock, so each is
//! written from nothing every time: deleted, filled, given its expiry.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fastrand::Rng;

use super::model::{Argv, Bytes, Model, Object};

const KEYS: usize = 24;
const BRIEF_KEYS: usize = 6;
/// Every connection has so many that are due at once.
const SWARM: usize = 100;
/// Every so many keys, one is roomy.
const ROOMY: usize = 6;
/// Where a server that cuts large strings in chunks may go wrong.
const CHUNK: usize = 16 * 1024;

pub struct Generator {
    rng: Rng,
    connection: usize,
    /// The rest of what is being done to a key that expires soon.
    brief: VecDeque<Argv>,
}

/// How much a key may hold.
struct Room {
    elements: usize,
    at_once: usize,
    string: usize,
}

pub fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or(Duration::ZERO).as_millis() as u64
}

fn argv<const N: usize>(words: [&[u8]; N]) -> Argv {
    words.iter().map(|word| word.to_vec()).collect()
}

fn text(value: impl ToString) -> Bytes {
    value.to_string().into_bytes()
}

impl Generator {
    pub fn new(connection: usize, rng: Rng) -> Generator {
        Generator {
            rng,
            connection,
            brief: VecDeque::new(),
        }
    }

    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    /// Forgets what was begun: the server has been restarted since.
    pub fn start_over(&mut self) {
        self.brief.clear();
    }

    /// A command on the connection's lasting keys.
    pub fn lasting(&mut self, model: &Model) -> Argv {
        let n = self.rng.usize(..KEYS);
        let (key, room) = (self.key(n), Room::of(n));
        if self.rng.usize(..400) < if is_roomy(n) { 3 } else { 30 } {
            return self.on_any(model, &key);
        }
        match model.object(&key) {
            None => self.fill(&key, &room),
            Some(Object::String(value)) => self.on_string(&key, value, &room),
            Some(Object::Hash(hash)) => self.on_hash(&key, hash.len(), &room),
            Some(Object::List(list)) => self.on_list(model, &key, list.len(), &room),
            Some(Object::Set(set)) => self.on_set(model, &key, set.len(), &room),
            Some(Object::Zset(zset)) => self.on_zset(model, &key, zset.len(), &room),
        }
    }

    /// A read of one of the lasting keys, if it exists: all of it in order, or how much it holds.
    pub fn read_back(&mut self, model: &Model) -> Option<Argv> {
        let n = self.rng.usize(..KEYS);
        let key = self.key(n);
        Some(match model.object(&key)? {
            Object::String(_) => argv([b"GET", &key]),
            Object::Hash(_) => argv([b"HLEN", &key]),
            Object::List(_) if self.rng.bool() => argv([b"LLEN", &key]),
            Object::List(_) => argv([b"LRANGE", &key, b"0", b"-1"]),
            Object::Set(_) => argv([b"SCARD", &key]),
            Object::Zset(_) if self.rng.bool() => argv([b"ZCARD", &key]),
            Object::Zset(_) => argv([b"ZRANGE", &key, b"0", b"-1", b"WITHSCORES"]),
        })
    }

    /// A command on the keys that expire soon.
    pub fn brief(&mut self) -> Argv {
        if let Some(next) = self.brief.pop_front() {
            return next;
        }
        let n = self.rng.usize(..BRIEF_KEYS);
        let key = text(format!("w{}:brief:{n}", self.connection));
        let due = text(unix_millis() + self.rng.u64(20..1500));
        if self.rng.u8(..100) == 0 {
            return self.swarm(&due);
        }
        if self.rng.bool() {
            let value = self.bytes(1..100);
            return argv([b"SET", &key, &value, b"PXAT", &due]);
        }
        let filling = self.fill(&key, &Room::of(n));
        let expiring = argv([b"PEXPIREAT", &key, &due]);
        self.brief.extend([filling, expiring]);
        argv([b"DEL", &key])
    }

    /// Very many keys that are due at once.
    fn swarm(&mut self, due: &[u8]) -> Argv {
        for n in 0..SWARM {
            let key = text(format!("w{}:brief:swarm:{n}", self.connection));
            self.brief
                .push_back(argv([b"SET", &key, b"value", b"PXAT", due]));
        }
        self.brief()
    }

    fn key(&self, n: usize) -> Bytes {
        let mut key = text(format!("w{}:{n}", self.connection));
        if n % 2 == 1 {
            key.extend_from_slice(b"\x00\xff\r\n");
        }
        key
    }

    /// A key to store to or to combine with. Seldom a roomy one: those need time to fill.
    fn any_key(&mut self) -> Bytes {
        let n = self.rng.usize(..KEYS);
        if is_roomy(n) && self.rng.u8(..8) > 0 {
            return self.any_key();
        }
        self.key(n)
    }

    /// Another key that `fits`, or that is absent.
    fn partner(&mut self, model: &Model, fits: fn(&Object) -> bool) -> Bytes {
        loop {
            let key = self.any_key();
            if model.object(&key).is_none_or(fits) {
                return key;
            }
        }
    }

    fn fill(&mut self, key: &[u8], room: &Room) -> Argv {
        match self.rng.u8(..6) {
            0 => {
                let value = self.string_of(room);
                argv([b"SET", key, &value])
            }
            1 => argv([b"INCRBY", key, b"7"]),
            2 => self.add_fields(key, room),
            3 => self.push(key, room),
            4 => self.add_members(key, room),
            _ => self.add_scores(key, room),
        }
    }

    /// Commands that take any type.
    fn on_any(&mut self, model: &Model, key: &[u8]) -> Argv {
        let exists = model.get(key).is_some();
        let other = self.any_key();
        match self.rng.u8(..10) {
            0 if exists && other != key => argv([b"RENAME", key, &other]),
            1 if exists && other != key => argv([b"COPY", key, &other, b"REPLACE"]),
            2 | 3 if exists => {
                let due = unix_millis() + self.rng.u64(3_600_000..7_200_000);
                argv([b"PEXPIREAT", key, &text(due)])
            }
            4 if exists => argv([b"PERSIST", key]),
            5 if exists => argv([b"PEXPIREAT", key, b"1"]),
            6 => argv([b"UNLINK", key, &other]),
            7 => {
                let value = self.bytes(0..60);
                argv([b"SET", key, &value, b"KEEPTTL"])
            }
            8 => {
                let value = self.bytes(0..60);
                argv([b"MSET", key, &value, &other, b""])
            }
            _ => argv([b"DEL", key]),
        }
    }

    fn on_string(&mut self, key: &[u8], value: &[u8], room: &Room) -> Argv {
        let digits = std::str::from_utf8(value).ok();
        let number = digits.and_then(|digits| digits.parse::<u32>().ok());
        let is_number = number.is_some_and(|number| text(number) == value);
        match self.rng.u8(..16) {
            0..15 if is_number => argv([b"INCRBY", key, &text(self.rng.u16(..))]),
            0..4 if value.len() > room.string => argv([b"GETDEL", key]),
            4..15 if value.len() > room.string => argv([b"SET", key, &value[value.len() / 2..]]),
            0..6 => {
                let tail = self.string_of(room);
                argv([b"APPEND", key, &tail])
            }
            6 | 7 => {
                let offset = text(self.rng.usize(..8 * (value.len() + room.string / 8)));
                let bit: &[u8] = if self.rng.bool() { b"1" } else { b"0" };
                argv([b"SETBIT", key, &offset, bit])
            }
            8 | 9 => {
                let offset = text(self.rng.usize(..=value.len() + room.string / 8));
                let patch = self.bytes(1..room.string / 4);
                argv([b"SETRANGE", key, &offset, &patch])
            }
            10..14 => {
                let value = self.string_of(room);
                argv([b"SET", key, &value])
            }
            14 => argv([b"SET", key, b"0"]),
            _ => argv([b"DEL", key]),
        }
    }

    fn on_hash(&mut self, key: &[u8], size: usize, room: &Room) -> Argv {
        match self.rng.u8(..8) {
            0..4 if size < room.elements => self.add_fields(key, room),
            4..6 => {
                let field = [b"n", &self.member(room)[..]].concat();
                argv([b"HINCRBY", key, &field, &text(self.rng.i32(-99..999))])
            }
            _ => self.remove("HDEL", key, room),
        }
    }

    fn on_list(&mut self, model: &Model, key: &[u8], size: usize, room: &Room) -> Argv {
        let is_list = |object: &Object| matches!(object, Object::List(_));
        let index = text(self.rng.usize(..size));
        let element = self.member(room);
        match self.rng.u8(..10) {
            0..4 if size < room.elements => self.push(key, room),
            4 => {
                let sides = [&b"LEFT"[..], b"RIGHT"];
                let (from, to) = (sides[self.rng.usize(..2)], sides[self.rng.usize(..2)]);
                let partner = self.partner(model, is_list);
                argv([b"LMOVE", key, &partner, from, to])
            }
            5 => argv([b"LSET", key, &index, &element]),
            6 => argv([b"LREM", key, b"0", &element]),
            7 => {
                let pivot = self.member(room);
                argv([b"LINSERT", key, b"BEFORE", &pivot, &element])
            }
            8 if size > room.elements / 2 => {
                argv([b"LTRIM", key, &text(size / 8), &text(size - size / 8)])
            }
            _ => {
                let pop = if self.rng.bool() { b"LPOP" } else { b"RPOP" };
                argv([pop, key, &text(self.rng.usize(1..=room.at_once / 2))])
            }
        }
    }

    fn on_set(&mut self, model: &Model, key: &[u8], size: usize, room: &Room) -> Argv {
        let is_set = |object: &Object| matches!(object, Object::Set(_));
        match self.rng.u8(..10) {
            0..5 if size < room.elements => self.add_members(key, room),
            5 => argv([b"SPOP", key, &text(self.rng.usize(1..=room.at_once))]),
            6 => {
                let (partner, member) = (self.partner(model, is_set), self.member(room));
                argv([b"SMOVE", key, &partner, &member])
            }
            7 => {
                let stores = [&b"SUNIONSTORE"[..], b"SINTERSTORE", b"SDIFFSTORE"];
                let store = stores[self.rng.usize(..3)];
                let (to, partner) = (self.any_key(), self.partner(model, is_set));
                argv([store, &to, key, &partner])
            }
            _ => self.remove("SREM", key, room),
        }
    }

    fn on_zset(&mut self, model: &Model, key: &[u8], size: usize, room: &Room) -> Argv {
        let is_zset = |object: &Object| matches!(object, Object::Zset(_));
        let (first, member) = (self.rng.usize(..size), self.member(room));
        let (from, to) = (text(first), text(first + self.rng.usize(..room.at_once)));
        match self.rng.u8(..14) {
            0..5 if size < room.elements => self.add_scores(key, room),
            5 | 6 => argv([b"ZINCRBY", key, &self.score(), &member]),
            7 => argv([b"ZPOPMIN", key, &text(self.rng.usize(1..=room.at_once))]),
            8 => argv([b"ZPOPMAX", key, &text(self.rng.usize(1..=room.at_once))]),
            9 => argv([b"ZREMRANGEBYRANK", key, &from, &to]),
            10 => {
                let low = self.rng.i32(-500..500);
                argv([b"ZREMRANGEBYSCORE", key, &text(low), &text(low + 20)])
            }
            11 => argv([b"ZRANGESTORE", &self.any_key(), key, &from, &to]),
            12 => {
                let stores = [&b"ZUNIONSTORE"[..], b"ZINTERSTORE"];
                let store = stores[self.rng.usize(..2)];
                let (to, partner) = (self.any_key(), self.partner(model, is_zset));
                argv([store, &to, b"2", key, &partner])
            }
            _ => self.remove("ZREM", key, room),
        }
    }

    fn add_fields(&mut self, key: &[u8], room: &Room) -> Argv {
        let mut command = argv([b"HSET", key]);
        for _ in 0..self.rng.usize(1..=room.at_once) {
            let field = self.member(room);
            let large = self.rng.u8(..) == 0;
            let value = self.bytes(0..if large { 2 * CHUNK } else { 20 });
            command.extend([field, value]);
        }
        command
    }

    fn push(&mut self, key: &[u8], room: &Room) -> Argv {
        let push = if self.rng.bool() { b"LPUSH" } else { b"RPUSH" };
        let mut command = argv([push, key]);
        self.extend_with_members(&mut command, room);
        command
    }

    fn add_members(&mut self, key: &[u8], room: &Room) -> Argv {
        let mut command = argv([b"SADD", key]);
        self.extend_with_members(&mut command, room);
        command
    }

    fn add_scores(&mut self, key: &[u8], room: &Room) -> Argv {
        let mut command = argv([b"ZADD", key]);
        for _ in 0..self.rng.usize(1..=room.at_once) {
            command.extend([self.score(), self.member(room)]);
        }
        command
    }

    fn remove(&mut self, name: &str, key: &[u8], room: &Room) -> Argv {
        let mut command = argv([name.as_bytes(), key]);
        self.extend_with_members(&mut command, room);
        command
    }

    fn extend_with_members(&mut self, command: &mut Argv, room: &Room) {
        for _ in 0..self.rng.usize(1..=room.at_once) {
            command.push(self.member(room));
        }
    }

    /// From few enough that commands meet each other's members.
    fn member(&mut self, room: &Room) -> Bytes {
        text(format!("m{}", self.rng.usize(..room.elements * 3 / 2)))
    }

    /// Halves, so that sums are exact and spelled alike everywhere.
    fn score(&mut self) -> Bytes {
        text(f64::from(self.rng.i32(-1000..1000)) / 2.0)
    }

    fn string_of(&mut self, room: &Room) -> Bytes {
        if room.string > CHUNK && self.rng.u8(..4) == 0 {
            let edge = CHUNK * self.rng.usize(1..4);
            return self.bytes(edge - 1..edge + 2);
        }
        self.bytes(0..room.string / 2)
    }

    /// Bytes that no two calls share: a shifted or mixed-up chunk shows.
    fn bytes(&mut self, length: Range<usize>) -> Bytes {
        let length = self.rng.usize(length);
        let mut bytes = vec![0; length];
        self.rng.fill(&mut bytes);
        // A string that begins like a number would be counted up.
        if let Some(first) = bytes.first_mut() {
            *first |= 0x80;
        }
        bytes
    }
}

fn is_roomy(n: usize) -> bool {
    n.is_multiple_of(ROOMY)
}

impl Room {
    fn of(n: usize) -> Room {
        if is_roomy(n) {
            Room {
                elements: 1500,
                at_once: 60,
                string: 5 * CHUNK,
            }
        } else {
            Room {
                elements: 40,
                at_once: 4,
                string: 160,
            }
        }
    }
}
