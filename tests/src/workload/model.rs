//! What a connection's own keys hold: the few commands that the load uses, on plain collections.
//!
//! The model answers as Redis does, so that each reply is checked as it arrives, and its state is what
//! a server must come back with. It knows nothing of time: a key past its expiry stays here until the
//! load deletes it, and the comparison with a server (see [`super::history`]) allows for that.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::client::{Value, describe};

pub type Bytes = Vec<u8>;
pub type Argv = Vec<Bytes>;

#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    String(Bytes),
    Hash(BTreeMap<Bytes, Bytes>),
    List(VecDeque<Bytes>),
    Set(BTreeSet<Bytes>),
    Zset(BTreeMap<Bytes, f64>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub object: Object,
    /// Milliseconds since 1970.
    pub expires_at: Option<u64>,
}

#[derive(Clone, Debug, Default)]
pub struct Model {
    entries: BTreeMap<Bytes, Entry>,
}

/// What the reply to a command must be.
#[derive(Clone, Debug)]
pub enum Expected {
    Exactly(Value),
    OneOf(Vec<Value>),
    /// SPOP: that many of these, whichever the server picks.
    Picks {
        members: BTreeSet<Bytes>,
        count: usize,
    },
    /// A transaction or a script: these, one by one.
    Each(Vec<Expected>),
    /// Anything but an error: it depends on the clock, or on other connections.
    NoError,
}

impl Expected {
    pub fn accepts(&self, reply: &Value) -> bool {
        match self {
            Expected::Exactly(value) => value == reply,
            Expected::OneOf(values) => values.contains(reply),
            Expected::NoError => !reply.is_error(),
            Expected::Each(expected) => reply.items().is_some_and(|replies| {
                let mut pairs = expected.iter().zip(replies);
                replies.len() == expected.len() && pairs.all(|(one, reply)| one.accepts(reply))
            }),
            Expected::Picks { members, count } => {
                let Some(picked) = picked(reply) else {
                    return false;
                };
                let distinct: BTreeSet<&Bytes> = picked.iter().collect();
                let known = picked.iter().all(|member| members.contains(member));
                known && distinct.len() == picked.len() && picked.len() == *count
            }
        }
    }
}

/// The members in a reply to SPOP.
pub fn picked(reply: &Value) -> Option<Vec<Bytes>> {
    let member = |item: &Value| item.as_bytes().map(<[u8]>::to_vec);
    match reply {
        Value::Bulk(one) => Some(vec![one.clone()]),
        Value::Null => Some(Vec::new()),
        many => many.items()?.iter().map(member).collect(),
    }
}

impl Model {
    pub fn get(&self, key: &[u8]) -> Option<&Entry> {
        self.entries.get(key)
    }

    pub fn object(&self, key: &[u8]) -> Option<&Object> {
        self.get(key).map(|entry| &entry.object)
    }

    pub fn keys(&self) -> impl Iterator<Item = &Bytes> {
        self.entries.keys()
    }

    /// Runs a command. SPOP alone changes nothing here: once it is answered, it is an SREM.
    pub fn execute(&mut self, argv: &[Bytes]) -> Expected {
        let words: Vec<&[u8]> = argv.iter().map(Vec::as_slice).collect();
        let by_family = [
            Model::string_command,
            Model::hash_command,
            Model::list_command,
            Model::set_command,
            Model::zset_command,
        ];
        if let [b"SPOP", key, count] = words[..] {
            return self.pick(key, number(count));
        }
        let reply = self
            .read_command(&words)
            .or_else(|| self.key_command(&words));
        let reply = reply.or_else(|| by_family.iter().find_map(|family| family(self, &words)));
        match reply {
            Some(reply) => Expected::Exactly(reply),
            None => panic!("the model does not know {}", describe(argv)),
        }
    }

    fn key_command(&mut self, words: &[&[u8]]) -> Option<Value> {
        Some(match words {
            [b"DEL" | b"UNLINK", keys @ ..] => {
                let gone = keys
                    .iter()
                    .filter(|key| self.entries.remove(**key).is_some());
                int(gone.count())
            }
            [b"RENAME", from, to] => {
                let entry = self.entries.remove(*from)?;
                self.entries.insert(to.to_vec(), entry);
                Value::ok()
            }
            [b"COPY", from, to, b"REPLACE"] => {
                let entry = self.entries.get(*from)?.clone();
                self.entries.insert(to.to_vec(), entry);
                int(1)
            }
            // The load uses times that are far ahead, soon to come, or long past.
            [b"PEXPIREAT", key, b"1"] => int(usize::from(self.entries.remove(*key).is_some())),
            [b"PEXPIREAT", key, time] => {
                self.entries.get_mut(*key)?.expires_at = Some(number(time));
                int(1)
            }
            [b"PERSIST", key] => {
                let expiry = self.entries.get_mut(*key)?.expires_at.take();
                int(usize::from(expiry.is_some()))
            }
            _ => return None,
        })
    }

    fn string_command(&mut self, words: &[&[u8]]) -> Option<Value> {
        Some(match words {
            [b"SET", key, value] => {
                self.store(key, Object::String(value.to_vec()));
                Value::ok()
            }
            [b"SET", key, value, b"PXAT", time] => {
                self.store(key, Object::String(value.to_vec()));
                self.entries.get_mut(*key)?.expires_at = Some(number(time));
                Value::ok()
            }
            [b"SET", key, value, b"KEEPTTL"] => {
                let kept = self.get(key).and_then(|entry| entry.expires_at);
                self.store(key, Object::String(value.to_vec()));
                self.entries.get_mut(*key)?.expires_at = kept;
                Value::ok()
            }
            [b"MSET", pairs @ ..] => {
                for pair in pairs.chunks_exact(2) {
                    self.store(pair[0], Object::String(pair[1].to_vec()));
                }
                Value::ok()
            }
            [b"GETDEL", key] => {
                let value = self.string(key).clone();
                self.entries.remove(*key);
                Value::Bulk(value)
            }
            [b"APPEND", key, tail] => {
                let value = self.string(key);
                value.extend_from_slice(tail);
                int(value.len())
            }
            [b"SETRANGE", key, offset, patch] => {
                let (value, offset) = (self.string(key), number::<usize>(offset));
                let end = offset + patch.len();
                value.resize(value.len().max(end), 0);
                value[offset..end].copy_from_slice(patch);
                int(value.len())
            }
            [b"SETBIT", key, offset, bit] => {
                let (value, offset) = (self.string(key), number::<usize>(offset));
                value.resize(value.len().max(offset / 8 + 1), 0);
                let (byte, mask) = (&mut value[offset / 8], 0x80 >> (offset % 8));
                let was_set = *byte & mask != 0;
                *byte = if *bit == b"1" {
                    *byte | mask
                } else {
                    *byte & !mask
                };
                int(usize::from(was_set))
            }
            [b"INCRBY", key, by] => {
                let value = self.string(key);
                let sum = if value.is_empty() { 0 } else { number(value) } + number::<i64>(by);
                *value = sum.to_string().into_bytes();
                Value::Int(sum)
            }
            _ => return None,
        })
    }

    fn hash_command(&mut self, words: &[&[u8]]) -> Option<Value> {
        Some(match words {
            [b"HSET", key, pairs @ ..] => {
                let hash = self.hash(key);
                let before = hash.len();
                for pair in pairs.chunks_exact(2) {
                    hash.insert(pair[0].to_vec(), pair[1].to_vec());
                }
                int(hash.len() - before)
            }
            [b"HINCRBY", key, field, by] => {
                let value = self.hash(key).entry(field.to_vec());
                let value = value.or_insert_with(|| b"0".to_vec());
                let sum: i64 = number::<i64>(value) + number::<i64>(by);
                *value = sum.to_string().into_bytes();
                Value::Int(sum)
            }
            [b"HDEL", key, fields @ ..] => {
                let hash = self.hash(key);
                let gone = fields.iter().filter(|field| hash.remove(**field).is_some());
                let gone = gone.count();
                self.drop_if_empty(key);
                int(gone)
            }
            _ => return None,
        })
    }

    fn set_command(&mut self, words: &[&[u8]]) -> Option<Value> {
        Some(match words {
            [b"SADD", key, members @ ..] => {
                let set = self.set(key);
                let new = members.iter().filter(|member| set.insert(member.to_vec()));
                int(new.count())
            }
            [b"SREM", key, members @ ..] => {
                let set = self.set(key);
                let gone = members.iter().filter(|member| set.remove(**member));
                let gone = gone.count();
                self.drop_if_empty(key);
                int(gone)
            }
            [b"SMOVE", from, to, member] => {
                let moved = self.set(from).remove(*member);
                if moved {
                    self.set(to).insert(member.to_vec());
                }
                self.drop_if_empty(from);
                int(usize::from(moved))
            }
            [combine, to, a, b] => {
                let combine: fn(&BTreeSet<Bytes>, &BTreeSet<Bytes>) -> BTreeSet<Bytes> =
                    match *combine {
                        b"SUNIONSTORE" => |a, b| a | b,
                        b"SINTERSTORE" => |a, b| a & b,
                        b"SDIFFSTORE" => |a, b| a - b,
                        _ => return None,
                    };
                let result = combine(&self.set_copy(a), &self.set_copy(b));
                let size = result.len();
                self.store(to, Object::Set(result));
                int(size)
            }
            _ => return None,
        })
    }

    fn pick(&self, key: &[u8], count: usize) -> Expected {
        let members = self.set_copy(key);
        let count = count.min(members.len());
        Expected::Picks { members, count }
    }

    pub(super) fn set_copy(&self, key: &[u8]) -> BTreeSet<Bytes> {
        match self.object(key) {
            Some(Object::Set(set)) => set.clone(),
            _ => BTreeSet::new(),
        }
    }

    /// Puts a new object in place of whatever the key held. An empty one is no object at all.
    pub(super) fn store(&mut self, key: &[u8], object: Object) {
        let entry = Entry {
            object,
            expires_at: None,
        };
        self.entries.insert(key.to_vec(), entry);
        self.drop_if_empty(key);
    }

    pub(super) fn drop_if_empty(&mut self, key: &[u8]) {
        if self.object(key).is_some_and(Object::is_empty) {
            self.entries.remove(key);
        }
    }

    fn object_or(&mut self, key: &[u8], empty: Object) -> &mut Object {
        let entry = self.entries.entry(key.to_vec()).or_insert(Entry {
            object: empty,
            expires_at: None,
        });
        &mut entry.object
    }
}

/// The object under a key as the type that a command works on, made if the key is absent.
macro_rules! typed_access {
    ($($name:ident: $variant:ident($type:ty),)*) => {
        impl Model {
            $(pub(super) fn $name(&mut self, key: &[u8]) -> &mut $type {
                match self.object_or(key, Object::$variant(Default::default())) {
                    Object::$variant(value) => value,
                    other => panic!("{} is no {}: {other:?}", key.escape_ascii(), stringify!($name)),
                }
            })*
        }
    };
}

typed_access! {
    string: String(Bytes),
    hash: Hash(BTreeMap<Bytes, Bytes>),
    list: List(VecDeque<Bytes>),
    set: Set(BTreeSet<Bytes>),
    zset: Zset(BTreeMap<Bytes, f64>),
}

impl Object {
    pub fn len(&self) -> usize {
        match self {
            Object::String(value) => value.len(),
            Object::Hash(hash) => hash.len(),
            Object::List(list) => list.len(),
            Object::Set(set) => set.len(),
            Object::Zset(zset) => zset.len(),
        }
    }

    /// An empty string is a value, an empty collection is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && !matches!(self, Object::String(_))
    }
}

/// A zset in the order of its scores, ties by member.
pub fn by_score(zset: &BTreeMap<Bytes, f64>) -> Vec<(&Bytes, f64)> {
    let mut order: Vec<_> = zset
        .iter()
        .map(|(member, score)| (member, *score))
        .collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1).then_with(|| a.0.cmp(b.0)));
    order
}

pub fn int(n: usize) -> Value {
    Value::Int(i64::try_from(n).expect("a count"))
}

/// A number that the load itself has written.
pub(super) fn number<T: std::str::FromStr>(text: &[u8]) -> T {
    let parsed = std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse().ok());
    parsed.unwrap_or_else(|| panic!("{} is no number", text.escape_ascii()))
}
