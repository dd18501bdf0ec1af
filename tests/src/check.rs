//! All that a server holds, read back key by key, with every structure checked against itself.
//!
//! A collection is stored as a count and as rows, a sorted set even in two orders. Each can be asked
//! for in several ways that a server answers from different rows: here they are all asked, and have to
//! tell the same. Nothing is known of what the keys ought to hold: comparing with that is for the
//! caller, who gets the contents.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use crate::client::{Client, Value};
use crate::workload::model::{Bytes, Entry, Object, by_score, int};
use crate::workload::unix_millis;

pub struct Dump {
    pub entries: BTreeMap<Bytes, Entry>,
    /// When reading began and ended, in milliseconds since 1970: keys may expire in between.
    pub began: u64,
    pub ended: u64,
}

/// Reads everything, and says what contradicts itself.
pub fn dump(client: &mut Client) -> io::Result<(Dump, Vec<String>)> {
    let began = unix_millis();
    let mut entries = BTreeMap::new();
    let mut violations = Vec::new();
    for key in all_keys(client)? {
        let mut examiner = Examiner {
            client: &mut *client,
            key: &key,
        };
        let read = examiner.entry()?;
        // What expired while it was read may well have looked inconsistent.
        if examiner.ask(&["EXISTS"])? == Value::Int(0) {
            continue;
        }
        match read {
            Ok(entry) => {
                entries.insert(key, entry);
            }
            Err(violation) => violations.push(format!("{}: {violation}", key.escape_ascii())),
        }
    }
    let ended = unix_millis();
    let dump = Dump {
        entries,
        began,
        ended,
    };
    Ok((dump, violations))
}

fn all_keys(client: &mut Client) -> io::Result<BTreeSet<Bytes>> {
    let mut keys = BTreeSet::new();
    let mut cursor = b"0".to_vec();
    loop {
        let reply = client.try_command(&[&b"SCAN"[..], &cursor, b"COUNT", b"1000"])?;
        let Some([Value::Bulk(next), page]) = reply.items() else {
            return Err(io::Error::other(format!("SCAN answered {reply:?}")));
        };
        keys.extend(bulks(page).map_err(io::Error::other)?);
        if next == b"0" {
            return Ok(keys);
        }
        cursor.clone_from(next);
    }
}

struct Examiner<'a> {
    client: &'a mut Client,
    key: &'a [u8],
}

/// The outer error is a lost connection, the inner one a violation.
type Examined<T> = io::Result<Result<T, String>>;

/// Leaves the calling function with the violation, if there is one.
macro_rules! sound {
    ($examined:expr) => {
        match $examined {
            Ok(value) => value,
            Err(violation) => return Ok(Err(violation)),
        }
    };
}

impl Examiner<'_> {
    fn entry(&mut self) -> Examined<Entry> {
        let kind = self.ask(&["TYPE"])?;
        let object = match kind.as_bytes() {
            Some(b"string") => self.string()?,
            Some(b"hash") => self.hash()?,
            Some(b"list") => self.list()?,
            Some(b"set") => self.set()?,
            Some(b"zset") => self.zset()?,
            _ => Err(format!("of type {kind:?}")),
        };
        let object = sound!(object);
        let due = self.ask(&["PEXPIRETIME"])?;
        let expires_at = match due {
            Value::Int(-1) => None,
            Value::Int(due) => u64::try_from(due).ok(),
            other => return Ok(Err(format!("PEXPIRETIME is {other:?}"))),
        };
        Ok(Ok(Entry { object, expires_at }))
    }

    fn string(&mut self) -> Examined<Object> {
        let reply = self.ask(&["GET"])?;
        let Value::Bulk(value) = reply else {
            return Ok(Err(format!("GET answers {reply:?}")));
        };
        sound!(self.counts("STRLEN", &[], value.len())?);
        let middle = value.len() / 2;
        let half = self.ask(&["GETRANGE", &middle.to_string(), "-1"])?;
        sound!(same(
            "GETRANGE of the second half",
            &half,
            &Value::bulk(&value[middle..])
        ));
        Ok(Ok(Object::String(value)))
    }

    fn hash(&mut self) -> Examined<Object> {
        let pairs = self.ask(&["HGETALL"])?.into_pairs().unwrap_or_default();
        let hash: BTreeMap<Bytes, Bytes> = sound!(pairs.iter().map(bulk_pair).collect());
        sound!(distinct(hash.len(), pairs.len()));
        sound!(self.counts("HLEN", &[], pairs.len())?);
        // In no particular order: reading alone may reorder a hash of Redis.
        let (keys, values) = (
            sound!(bulks(&self.ask(&["HKEYS"])?)),
            sound!(bulks(&self.ask(&["HVALS"])?)),
        );
        sound!(holds("HKEYS", sorted(keys.iter()) == sorted(hash.keys())));
        sound!(holds(
            "HVALS",
            sorted(values.iter()) == sorted(hash.values())
        ));
        let looked_up = self.ask_many("HMGET", hash.keys())?;
        let expected = Value::Array(hash.values().map(Value::bulk).collect());
        sound!(same("HMGET of all fields", &looked_up, &expected));
        let scanned: BTreeMap<Bytes, Bytes> = pairwise(sound!(self.scan("HSCAN")?)).collect();
        sound!(holds("fields and values by HSCAN", scanned == hash));
        Ok(Ok(Object::Hash(hash)))
    }

    fn list(&mut self) -> Examined<Object> {
        let list = sound!(bulks(&self.ask(&["LRANGE", "0", "-1"])?));
        sound!(self.counts("LLEN", &[], list.len())?);
        let last = list.len().saturating_sub(1);
        for (index, at) in [("0", 0), ("-1", last), (&(last / 2).to_string(), last / 2)] {
            let element = self.ask(&["LINDEX", index])?;
            let expected = list.get(at).map_or(Value::Null, Value::bulk);
            sound!(same("LINDEX", &element, &expected));
        }
        let end = sound!(bulks(&self.ask(&["LRANGE", "-3", "-1"])?));
        sound!(holds("the end by LRANGE", list.ends_with(&end)));
        sound!(holds("an empty list", !list.is_empty()));
        Ok(Ok(Object::List(list.into())))
    }

    fn set(&mut self) -> Examined<Object> {
        let members = sound!(bulks(&self.ask(&["SMEMBERS"])?));
        let set: BTreeSet<Bytes> = members.iter().cloned().collect();
        sound!(distinct(set.len(), members.len()));
        sound!(self.counts("SCARD", &[], members.len())?);
        let all = self.ask_many("SMISMEMBER", members.iter())?;
        let yes = vec![Value::Int(1); members.len()];
        sound!(same("SMISMEMBER of all members", &all, &Value::Array(yes)));
        let scanned: BTreeSet<Bytes> = sound!(self.scan("SSCAN")?).into_iter().collect();
        sound!(holds("the members by SSCAN", scanned == set));
        Ok(Ok(Object::Set(set)))
    }

    fn zset(&mut self) -> Examined<Object> {
        let by_rank = self.ask(&["ZRANGE", "0", "-1", "WITHSCORES"])?;
        let pairs = sound!(scored(&by_rank));
        let zset: BTreeMap<Bytes, f64> = pairs.iter().cloned().collect();
        sound!(distinct(zset.len(), pairs.len()));
        let order: Vec<_> = by_score(&zset)
            .into_iter()
            .map(|(m, s)| (m.clone(), s))
            .collect();
        sound!(holds("the order by score", order == pairs));
        sound!(self.counts("ZCARD", &[], pairs.len())?);
        sound!(self.counts("ZCOUNT", &["-inf", "+inf"], pairs.len())?);

        // The other index: members to scores.
        let looked_up = self.ask_many("ZMSCORE", pairs.iter().map(|(member, _)| member))?;
        let scores = looked_up
            .items()
            .unwrap_or_default()
            .iter()
            .map(Value::as_f64);
        let expected = pairs.iter().map(|(_, score)| Some(*score));
        sound!(holds("the scores by ZMSCORE", scores.eq(expected)));
        let scanned = sound!(self.scan("ZSCAN")?).into_iter().map(Value::Bulk);
        let scanned = sound!(scored(&Value::Array(scanned.collect())));
        let scanned: BTreeMap<Bytes, f64> = scanned.into_iter().collect();
        sound!(holds("members and scores by ZSCAN", scanned == zset));

        let by_scores = self.ask(&["ZRANGE", "-inf", "+inf", "BYSCORE", "WITHSCORES"])?;
        sound!(same("ZRANGE BYSCORE", &by_scores, &by_rank));
        let mut backwards = sound!(scored(&self.ask(&[
            "ZRANGE",
            "0",
            "-1",
            "REV",
            "WITHSCORES"
        ])?));
        backwards.reverse();
        sound!(holds("ZRANGE REV", backwards == pairs));
        sound!(self.ranks(&pairs)?);
        Ok(Ok(Object::Zset(zset)))
    }

    /// Ranks, and ranges by index, of some members across the whole order.
    fn ranks(&mut self, pairs: &[(Bytes, f64)]) -> Examined<()> {
        let step = pairs.len() / 8 + 1;
        for (rank, (member, score)) in pairs.iter().enumerate().step_by(step) {
            let ranked = self.ask_many("ZRANK", [member])?;
            sound!(same("ZRANK", &ranked, &int(rank)));
            let rank = rank.to_string();
            let there = sound!(scored(&self.ask(&[
                "ZRANGE",
                &rank,
                &rank,
                "WITHSCORES"
            ])?));
            sound!(holds(
                "ZRANGE of one rank",
                there == [(member.clone(), *score)]
            ));
        }
        Ok(Ok(()))
    }

    /// A whole iteration by one of the SCAN family: fields and values in turn, or members.
    fn scan(&mut self, command: &str) -> Examined<Vec<Bytes>> {
        let mut found = Vec::new();
        let mut cursor = "0".to_owned();
        loop {
            let reply = self.ask(&[command, &cursor, "COUNT", "1000"])?;
            let Some([Value::Bulk(next), page]) = reply.items() else {
                return Ok(Err(format!("{command} answers {reply:?}")));
            };
            found.extend(sound!(bulks(page)));
            cursor = String::from_utf8_lossy(next).into_owned();
            if cursor == "0" {
                return Ok(Ok(found));
            }
        }
    }

    fn counts(&mut self, command: &str, args: &[&str], elements: usize) -> Examined<()> {
        let counted = self.ask(&[&[command], args].concat())?;
        Ok(match counted {
            n if n == int(elements) => Ok(()),
            other => Err(format!("{command} is {other:?}, but there are {elements}")),
        })
    }

    /// A command on the key: its name, then what follows the key.
    fn ask(&mut self, words: &[&str]) -> io::Result<Value> {
        let mut argv = vec![words[0].as_bytes(), self.key];
        argv.extend(words[1..].iter().map(|word| word.as_bytes()));
        self.client.try_command(&argv)
    }

    fn ask_many<'m>(
        &mut self,
        command: &str,
        members: impl IntoIterator<Item = &'m Bytes>,
    ) -> io::Result<Value> {
        let mut argv = vec![command.as_bytes(), self.key];
        for member in members {
            argv.push(member);
        }
        self.client.try_command(&argv)
    }
}

fn holds(what: &str, holds: bool) -> Result<(), String> {
    if holds {
        Ok(())
    } else {
        Err(format!("disagrees: {what}"))
    }
}

fn same(what: &str, reply: &Value, expected: &Value) -> Result<(), String> {
    let brief = |value: &Value| format!("{value:?}").chars().take(200).collect::<String>();
    if reply == expected {
        Ok(())
    } else {
        Err(format!(
            "{what} answers {}, not {}",
            brief(reply),
            brief(expected)
        ))
    }
}

fn distinct(distinct: usize, all: usize) -> Result<(), String> {
    holds("an element that is there twice", distinct == all)?;
    holds("a collection without elements", all > 0)
}

fn sorted<'a>(items: impl Iterator<Item = &'a Bytes>) -> Vec<&'a Bytes> {
    let mut items: Vec<&Bytes> = items.collect();
    items.sort();
    items
}

fn bulk(value: &Value) -> Result<Bytes, String> {
    match value {
        Value::Bulk(bytes) => Ok(bytes.clone()),
        other => Err(format!("{other:?} where a string belongs")),
    }
}

fn bulk_pair(pair: &(Value, Value)) -> Result<(Bytes, Bytes), String> {
    Ok((bulk(&pair.0)?, bulk(&pair.1)?))
}

fn pairwise(items: Vec<Bytes>) -> impl Iterator<Item = (Bytes, Bytes)> {
    let mut items = items.into_iter();
    std::iter::from_fn(move || Some((items.next()?, items.next()?)))
}

fn bulks(reply: &Value) -> Result<Vec<Bytes>, String> {
    let items = reply
        .items()
        .ok_or_else(|| format!("{reply:?} where an array belongs"))?;
    items.iter().map(bulk).collect()
}

fn scored(reply: &Value) -> Result<Vec<(Bytes, f64)>, String> {
    let pairs = reply.clone().into_pairs();
    let pairs = pairs.ok_or_else(|| format!("{reply:?} where pairs belong"))?;
    let pair = |(member, score): &(Value, Value)| {
        let score = score
            .as_f64()
            .ok_or_else(|| format!("{score:?} where a score belongs"))?;
        Ok((bulk(member)?, score))
    };
    pairs.iter().map(pair).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::server::Server;

    const CONTENTS: [&str; 6] = [
        "SET string value",
        "HSET hash a 1 b 2",
        "RPUSH list a b c",
        "SADD set a b c",
        "ZADD zset -1 a 0.5 b 0.5 c inf d",
        "SET expiring value PX 100000",
    ];

    fn examine(flags: &[&str]) -> (Dump, Vec<String>) {
        let server = Server::redis(flags);
        let mut client = server.client();
        for line in CONTENTS {
            assert!(!client.line(line).is_error());
        }
        dump(&mut client).unwrap()
    }

    #[test]
    fn a_sound_server_has_no_contradictions() {
        let (dump, violations) = examine(&[]);
        assert_eq!(violations, [""; 0]);
        let sizes = dump
            .entries
            .iter()
            .map(|(key, entry)| (key.as_slice(), entry.object.len()));
        let expected: [(&[u8], usize); 6] = [
            (b"expiring", 5),
            (b"hash", 2),
            (b"list", 3),
            (b"set", 3),
            (b"string", 5),
            (b"zset", 4),
        ];
        assert_eq!(sizes.collect::<Vec<_>>(), expected);
        assert!(dump.entries[&b"expiring"[..]].expires_at.is_some());
    }

    /// Redis can be told to answer one command as if it were another. TOUCH counts 1 whatever there
    /// is, and the others answer what does not fit.
    #[test]
    fn each_disagreement_is_noticed() {
        let lies = [
            ("STRLEN", "TOUCH", "string"),
            ("HLEN", "TOUCH", "hash"),
            ("HKEYS", "HVALS", "hash"),
            ("LLEN", "TOUCH", "list"),
            ("LINDEX", "GETBIT", "list"),
            ("SCARD", "TOUCH", "set"),
            ("SMISMEMBER", "ZMSCORE", "set"),
            ("ZCARD", "TOUCH", "zset"),
            ("ZCOUNT", "ZLEXCOUNT", "zset"),
            ("ZRANK", "ZREVRANK", "zset"),
            ("ZMSCORE", "SMISMEMBER", "zset"),
        ];
        for (command, impostor, key) in lies {
            let (_, violations) = examine(&[
                "--rename-command",
                command,
                "",
                "--rename-command",
                impostor,
                command,
            ]);
            let noticed = violations
                .iter()
                .any(|violation| violation.starts_with(key));
            assert!(noticed, "{impostor} in place of {command}: {violations:?}");
        }
    }
}
