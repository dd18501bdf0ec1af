//! Whole replies, whatever happens to the key meanwhile.
//!
//! Writers delete and recreate collections, and compactions drop the rows of what was deleted, without
//! regard for snapshots. A reader must always get all of one incarnation: each has elements that are all
//! marked with its number, and the number of elements is known.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cairn_tests::client::Client;
use cairn_tests::ending::Ending;
use cairn_tests::server::Server;
use cairn_tests::value::Value;

/// Large enough for several pieces of a streamed reply.
const ELEMENTS: usize = 3000;
const RUN: Duration = Duration::from_secs(8);

/// How one kind of collection is written and read back as elements.
struct Kind {
    key: &'static str,
    write: fn(&str, &str) -> Vec<String>,
    read: fn(&str) -> Vec<String>,
    /// Replies hold this many values per element, the marked one first.
    values: usize,
}

fn words(line: String) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// `command key` and then one word, or two, per element.
fn spread(head: &str, element: impl Fn(usize) -> String) -> Vec<String> {
    let mut command = words(head.to_owned());
    for number in 0..ELEMENTS {
        command.extend(words(element(number)));
    }
    command
}

const KINDS: [Kind; 4] = [
    Kind {
        key: "hash",
        write: |key, mark| spread(&format!("HSET {key}"), |n| format!("f{n} {mark}:{n}")),
        read: |key| words(format!("HVALS {key}")),
        values: 1,
    },
    Kind {
        key: "list",
        write: |key, mark| spread(&format!("RPUSH {key}"), |n| format!("{mark}:{n}")),
        read: |key| words(format!("LRANGE {key} 0 -1")),
        values: 1,
    },
    Kind {
        key: "set",
        write: |key, mark| spread(&format!("SADD {key}"), |n| format!("{mark}:{n}")),
        read: |key| words(format!("SMEMBERS {key}")),
        values: 1,
    },
    Kind {
        key: "zset",
        write: |key, mark| spread(&format!("ZADD {key}"), |n| format!("{n} {mark}:{n}")),
        read: |key| words(format!("ZRANGE {key} 0 -1 WITHSCORES")),
        values: 2,
    },
];

fn write(kind: &Kind, client: &mut Client, stop: &AtomicBool) {
    let mut mark = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        mark += 1;
        client.command(&["DEL", kind.key]);
        client.command(&(kind.write)(kind.key, &mark.to_string()));
    }
}

fn read(kind: &Kind, client: &mut Client, stop: &AtomicBool) -> u64 {
    let mut whole = 0;
    while !stop.load(Ordering::Relaxed) {
        let reply = client.command(&(kind.read)(kind.key));
        let items = reply.items().expect("an array");
        if items.is_empty() {
            continue;
        }
        assert_eq!(items.len(), ELEMENTS * kind.values, "{} is short", kind.key);
        let mark = |value: &Value| -> Vec<u8> {
            let bytes = value.as_bytes().expect("a bulk");
            bytes
                .split(|b| *b == b':')
                .next()
                .unwrap_or_default()
                .to_vec()
        };
        let first = mark(&items[0]);
        for item in items.iter().step_by(kind.values) {
            assert_eq!(mark(item), first, "{} mixes two incarnations", kind.key);
        }
        whole += 1;
    }
    whole
}

#[test]
fn no_reply_is_short_or_torn_under_deletion_and_compaction() {
    let server = Server::cairn(&["--memory", "64mb"]);
    let stop = AtomicBool::new(false);
    let (replies, compactions) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        let _end = Ending(&stop);
        for kind in &KINDS {
            let (server, stop, replies) = (&server, &stop, &replies);
            scope.spawn(move || write(kind, &mut server.client(), stop));
            scope.spawn(move || {
                let whole = read(kind, &mut server.client(), stop);
                replies.fetch_add(whole, Ordering::Relaxed);
            });
        }
        scope.spawn(|| {
            let mut client = server.client();
            while !stop.load(Ordering::Relaxed) {
                assert_eq!(client.line("DEBUG COMPACT"), Value::ok());
                compactions.fetch_add(1, Ordering::Relaxed);
            }
        });
        let started = Instant::now();
        while started.elapsed() < RUN {
            thread::sleep(Duration::from_millis(50));
        }
    });
    let (replies, compactions) = (replies.into_inner(), compactions.into_inner());
    println!("{replies} whole replies during {compactions} compactions");
    assert!(replies > 20 && compactions > 2);
}

/// No reader sees half of an MSET, an LMOVE or an SMOVE.
#[test]
fn commands_on_several_keys_are_seen_whole() {
    let server = Server::cairn(&[]);
    let stop = AtomicBool::new(false);
    server.client().line("MSET a 0 b 0 c 0");
    server.client().line("SADD s1 x");
    thread::scope(|scope| {
        let _end = Ending(&stop);
        scope.spawn(|| {
            let mut client = server.client();
            for number in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                client.line(&format!("MSET a {number} b {number} c {number}"));
                client.line("SMOVE s1 s2 x");
                client.line("SMOVE s2 s1 x");
            }
        });
        let mut client = server.client();
        for _ in 0..5000 {
            let reply = client.line("MGET a b c");
            let items = reply.items().expect("an array");
            assert!(items.windows(2).all(|pair| pair[0] == pair[1]), "{reply:?}");
            assert_eq!(
                client.line("SUNION s1 s2").items().expect("an array").len(),
                1
            );
            assert_eq!(
                client.line("SINTER s1 s2").items().expect("an array").len(),
                0
            );
        }
    });
}
