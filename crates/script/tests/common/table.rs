//! A host with a few commands over a table in memory, and what a server does around scripts.

use std::collections::BTreeMap;

use cairn_script::{Engine, Flags, Host, Libraries, Limits, LogLevel, Policy, Script, Stop, Value};

#[derive(Default)]
pub struct TableHost {
    pub strings: BTreeMap<Vec<u8>, Vec<u8>>,
    pub lists: BTreeMap<Vec<u8>, Vec<Vec<u8>>>,
    pub hashes: BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, Vec<u8>>>,
    pub logged: Vec<(LogLevel, Vec<u8>)>,
    pub protocol: u8,
    pub read_only: bool,
    /// Checks until the script is stopped.
    pub checks_left: Option<usize>,
    /// Calls until it is.
    pub calls_left: Option<usize>,
}

/// Name, arity as Redis counts it, and whether it writes.
const COMMANDS: [(&str, i64, bool); 11] = [
    ("get", 2, false),
    ("set", -3, true),
    ("del", -2, true),
    ("incr", 2, true),
    ("ping", -1, false),
    ("echo", 2, false),
    ("rpush", -3, true),
    ("lrange", 4, false),
    ("hset", -4, true),
    ("hgetall", 2, false),
    ("debug", -2, false),
];

fn error(text: &str) -> Value {
    Value::Error(text.as_bytes().to_vec())
}

fn bulk(text: &[u8]) -> Value {
    Value::Bulk(text.to_vec())
}

impl Host for TableHost {
    fn call(&mut self, args: &[Vec<u8>]) -> Result<Value, Stop> {
        match &mut self.calls_left {
            Some(0) => return Err(Stop(b"ERR no more calls".to_vec())),
            Some(left) => *left -= 1,
            None => {}
        }
        Ok(self.answer(args))
    }

    fn log(&mut self, level: LogLevel, message: &[u8]) {
        self.logged.push((level, message.to_vec()));
    }

    fn set_protocol(&mut self, version: u8) {
        self.protocol = version;
    }

    fn may_run(&mut self, args: &[Vec<u8>]) -> Option<bool> {
        let name = String::from_utf8_lossy(&args[0]).to_ascii_lowercase();
        COMMANDS
            .iter()
            .any(|(known, ..)| *known == name)
            .then_some(true)
    }

    fn check(&mut self) -> Result<(), Stop> {
        match &mut self.checks_left {
            None => Ok(()),
            Some(0) => Err(Stop::killed()),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
        }
    }
}

impl TableHost {
    pub fn answer(&mut self, args: &[Vec<u8>]) -> Value {
        let name = String::from_utf8_lossy(&args[0]).to_ascii_lowercase();
        if name == "eval" {
            return error("ERR This Redis command is not allowed from script");
        }
        let Some((_, arity, writes)) = COMMANDS.iter().find(|(known, ..)| *known == name) else {
            return error("ERR Unknown Redis command called from script");
        };
        let given = args.len() as i64;
        if given != *arity && (*arity > 0 || given < -arity) {
            return error("ERR Wrong number of args calling Redis command from script");
        }
        if *writes && self.read_only {
            return error("ERR Write commands are not allowed from read-only scripts.");
        }
        self.run(&name, args)
    }

    fn run(&mut self, name: &str, args: &[Vec<u8>]) -> Value {
        const WRONG_TYPE: &str =
            "WRONGTYPE Operation against a key holding the wrong kind of value";
        let key = args.get(1).cloned().unwrap_or_default();
        let is_other = match name {
            "get" | "incr" => self.lists.contains_key(&key) || self.hashes.contains_key(&key),
            "rpush" | "lrange" => self.strings.contains_key(&key) || self.hashes.contains_key(&key),
            "hset" | "hgetall" => self.strings.contains_key(&key) || self.lists.contains_key(&key),
            _ => false,
        };
        if is_other {
            return error(WRONG_TYPE);
        }
        match name {
            "get" => self.strings.get(&key).map_or(Value::Null, |v| bulk(v)),
            "set" => {
                self.strings.insert(key, args[2].clone());
                Value::Simple(b"OK".to_vec())
            }
            "del" => {
                let count = args[1..].iter().filter(|key| {
                    self.strings.remove(*key).is_some()
                        | self.lists.remove(*key).is_some()
                        | self.hashes.remove(*key).is_some()
                });
                Value::Int(count.count() as i64)
            }
            "incr" => {
                let old = self.strings.get(&key).map_or(&b"0"[..], |v| v);
                let Ok(old) = String::from_utf8_lossy(old).parse::<i64>() else {
                    return error("ERR value is not an integer or out of range");
                };
                self.strings.insert(key, (old + 1).to_string().into_bytes());
                Value::Int(old + 1)
            }
            "ping" => match args.get(1) {
                Some(text) => bulk(text),
                None => Value::Simple(b"PONG".to_vec()),
            },
            "echo" => bulk(&key),
            "rpush" => {
                let list = self.lists.entry(key).or_default();
                list.extend_from_slice(&args[2..]);
                Value::Int(list.len() as i64)
            }
            "lrange" => {
                let list = self.lists.get(&key).into_iter().flatten();
                Value::Array(list.map(|item| bulk(item)).collect())
            }
            "hset" => {
                let hash = self.hashes.entry(key).or_default();
                for pair in args[2..].chunks(2) {
                    hash.insert(pair[0].clone(), pair[1].clone());
                }
                Value::Int((args.len() / 2 - 1) as i64)
            }
            "hgetall" => {
                let hash = self.hashes.get(&key).into_iter().flatten();
                Value::Map(hash.map(|(k, v)| (bulk(k), bulk(v))).collect())
            }
            _ if args[1].eq_ignore_ascii_case(b"protocol") => debug_protocol(&args[2]),
            _ => Value::Simple(b"OK".to_vec()),
        }
    }
}

/// DEBUG PROTOCOL, of which Redis made an example of every kind of reply.
fn debug_protocol(kind: &[u8]) -> Value {
    let numbers = || (0..3).map(Value::Int).collect();
    match kind {
        b"string" => bulk(b"Hello World"),
        b"integer" => Value::Int(12345),
        b"double" => Value::Double(3141.0 / 1000.0),
        b"null" => Value::Null,
        b"array" => Value::Array(numbers()),
        b"set" => Value::Set(numbers()),
        b"map" => Value::Map(
            (0..3)
                .map(|n| (Value::Int(n), Value::Bool(n == 1)))
                .collect(),
        ),
        b"attrib" => Value::Attributed {
            attributes: vec![],
            value: Box::new(bulk(b"Some real reply following the attribute")),
        },
        b"bignum" => Value::BigNumber(b"1234567999999999999999999999999999999".to_vec()),
        b"true" => Value::Bool(true),
        b"false" => Value::Bool(false),
        _ => Value::Verbatim {
            format: *b"txt",
            text: b"This is a verbatim\nstring".to_vec(),
        },
    }
}

/// As much of a server as scripts and functions need.
pub struct Server {
    pub engine: Engine,
    pub host: TableHost,
    pub libraries: Libraries,
}

impl Server {
    pub fn new() -> Server {
        Server {
            engine: Engine::new(Limits::default(), 1).unwrap(),
            host: TableHost::default(),
            libraries: Libraries::new(),
        }
    }

    pub fn ask(&mut self, words: &[Vec<u8>]) -> Value {
        let command = String::from_utf8_lossy(&words[0]).to_ascii_lowercase();
        match command.as_str() {
            "eval" => self.eval(words, false),
            "eval_ro" => self.eval(words, true),
            "fcall" => self.fcall(words, false),
            "fcall_ro" => self.fcall(words, true),
            "function" => self.function(&words[1..]),
            _ => self.host.answer(words),
        }
    }

    fn eval(&mut self, words: &[Vec<u8>], read_only: bool) -> Value {
        let script = match Script::new(&words[1]) {
            Ok(script) => script,
            Err(text) => return refused(&text),
        };
        if let Err(text) = self.engine.compile(&script) {
            return Value::Error(text);
        }
        let may_write = match Flags::may_write(script.flags(), read_only) {
            Ok(may_write) => may_write,
            Err(text) => return error(text),
        };
        self.host.read_only = !may_write;
        let (keys, args) = keys_and_args(words);
        self.engine.eval(&script, keys, args, &mut self.host)
    }

    fn fcall(&mut self, words: &[Vec<u8>], read_only: bool) -> Value {
        let Some((library, function)) = self.libraries.function(&words[1]) else {
            return error("ERR Function not found");
        };
        let may_write = match Flags::may_write(Some(function.flags), read_only) {
            Ok(may_write) => may_write,
            Err(text) => return error(text),
        };
        self.host.read_only = !may_write;
        let (library, name) = (library.clone(), function.name.clone());
        let (keys, args) = keys_and_args(words);
        self.engine
            .call_function(&library, &name, keys, args, &mut self.host)
    }

    fn function(&mut self, words: &[Vec<u8>]) -> Value {
        let command = String::from_utf8_lossy(&words[0]).to_ascii_lowercase();
        let done = || Value::Simple(b"OK".to_vec());
        match command.as_str() {
            "load" => {
                let replace = words.len() > 2;
                let loaded = self.engine.load(&words[words.len() - 1], &mut self.host);
                match loaded.and_then(|library| {
                    let name = library.name.clone();
                    self.libraries.add(library, replace).map(|()| name)
                }) {
                    Ok(name) => Value::Bulk(name),
                    Err(text) => refused(&text),
                }
            }
            "delete" if self.libraries.delete(&words[1]) => done(),
            "delete" => error("ERR Library not found"),
            "flush" => {
                self.libraries = Libraries::new();
                done()
            }
            "list" => {
                let has = |word: &str| {
                    let word = word.as_bytes();
                    words.iter().position(|w| w.eq_ignore_ascii_case(word))
                };
                let pattern = has("libraryname").map(|at| words[at + 1].as_slice());
                self.libraries.list(pattern, has("withcode").is_some())
            }
            "stats" => Value::Map(vec![
                (bulk(b"running_script"), Value::Null),
                (bulk(b"engines"), self.libraries.engines()),
            ]),
            "dump" => Value::Bulk(cairn_script::dump(&self.libraries)),
            _ => self.restore(words),
        }
    }

    fn restore(&mut self, words: &[Vec<u8>]) -> Value {
        let policy = match words.get(2).map(|word| word.to_ascii_lowercase()) {
            Some(word) if word == b"flush" => Policy::Flush,
            Some(word) if word == b"replace" => Policy::Replace,
            _ => Policy::Append,
        };
        let codes = match cairn_script::dumped_codes(&words[1]) {
            Ok(codes) => codes,
            Err(text) => return refused(text.as_bytes()),
        };
        let mut restored = Vec::new();
        for code in codes {
            match self.engine.load(&code, &mut self.host) {
                Ok(library) => restored.push(library),
                Err(text) => return refused(&text),
            }
        }
        match self.libraries.restore(restored, policy) {
            Ok(()) => Value::Simple(b"OK".to_vec()),
            Err(text) => refused(&text),
        }
    }
}

fn refused(text: &[u8]) -> Value {
    Value::Error([b"ERR ", text].concat())
}

fn keys_and_args(words: &[Vec<u8>]) -> (&[Vec<u8>], &[Vec<u8>]) {
    let keys: usize = String::from_utf8_lossy(&words[2]).parse().unwrap();
    words[3..].split_at(keys)
}
