//! DUMP and RESTORE between Cairn and a real redis-server, both ways: every type, small and large.

use std::time::Duration;

use cairn_tests::client::Client;
use cairn_tests::server::Server;
use cairn_tests::value::Value;

/// A kind of value, by the command that makes it and the words for its n-th element.
struct Made {
    command: &'static str,
    element: fn(usize) -> Vec<String>,
}

/// Of each type what Redis keeps in different forms: numbers, words, long words, fractions.
const KINDS: [Made; 9] = [
    Made {
        command: "RPUSH",
        element: |n| vec![format!("element:{n}")],
    },
    Made {
        command: "RPUSH",
        element: |n| vec![(n as i64 * 7_919_919 - 5_000_000).to_string()],
    },
    Made {
        command: "RPUSH",
        element: |n| {
            vec![
                n.to_string()
                    .repeat(if n % 100 == 7 { 5000 } else { n % 9 }),
            ]
        },
    },
    Made {
        command: "SADD",
        element: |n| vec![(n as i64 * 1_000_003 - 70_000_000).to_string()],
    },
    Made {
        command: "SADD",
        element: |n| vec![format!("member:{n}")],
    },
    Made {
        command: "HSET",
        element: |n| vec![format!("field:{n}"), n.to_string()],
    },
    Made {
        command: "HSET",
        element: |n| vec![format!("field:{n}"), "v".repeat(n % 70)],
    },
    Made {
        command: "ZADD",
        element: |n| vec![format!("{}", n as f64 / 3.0), format!("member:{n}")],
    },
    Made {
        command: "ZADD",
        element: |n| vec![(n * n).to_string(), "m".repeat(n % 70) + &n.to_string()],
    },
];

/// Sizes about which the forms change, and one that takes a thread of its own.
const SIZES: [usize; 7] = [1, 2, 60, 128, 513, 2000, 50_000];

fn make(client: &mut Client, made: &Made, size: usize) {
    client.line("DEL value");
    for start in (0..size).step_by(1000) {
        let mut words = vec![made.command.to_string(), "value".to_string()];
        words.extend((start..size.min(start + 1000)).flat_map(made.element));
        assert!(!client.command(&words).is_error());
    }
}

/// The value, where it has no order of its own in the order of the bytes.
fn content(client: &mut Client) -> Vec<Vec<u8>> {
    let kind = client.line("TYPE value");
    let (line, width) = match kind.as_bytes().expect("a type") {
        b"string" => return vec![client.line("GET value").as_bytes().expect("it").to_vec()],
        b"list" => ("LRANGE value 0 -1", 0),
        b"zset" => ("ZRANGE value 0 -1 WITHSCORES", 0),
        b"set" => ("SMEMBERS value", 1),
        b"hash" => ("HGETALL value", 2),
        b"stream" => return vec![stream(client)],
        other => panic!("{}", String::from_utf8_lossy(other)),
    };
    let items = client.line(line).into_items().expect("an array");
    let bytes = |item: &Value| item.as_bytes().expect("a string").to_vec();
    let items: Vec<Vec<u8>> = items.iter().map(bytes).collect();
    if width == 0 {
        return items;
    }
    let mut groups: Vec<_> = items.chunks(width).collect();
    groups.sort();
    groups.concat()
}

/// All that is to be known of a stream, as text.
fn stream(client: &mut Client) -> Vec<u8> {
    let entries = client.line("XRANGE value - +");
    let mut info = client.line("XINFO STREAM value FULL COUNT 0");
    // How Redis keeps the entries in memory is its own affair, and so is the order of groups.
    if let Value::Array(fields) = &mut info {
        fields.drain(2..6);
    }
    format!("{entries:?} {info:?}").into_bytes()
}

fn dump(client: &mut Client) -> Vec<u8> {
    let payload = client.line("DUMP value");
    payload.as_bytes().expect("a payload").to_vec()
}

fn restore(client: &mut Client, payload: &[u8]) {
    let words: [&[u8]; 5] = [b"RESTORE", b"value", b"0", payload, b"REPLACE"];
    assert_eq!(client.command(&words), Value::ok());
}

/// Dumps what one has, and finds the same in the other, in the same form.
fn hand_over(from: &mut Client, to: &mut Client, what: &str) {
    let payload = dump(from);
    restore(to, &payload);
    assert!(content(to) == content(from), "{what}");
    let encoding = "OBJECT ENCODING value";
    assert_eq!(to.line(encoding), from.line(encoding), "{what}");
    // And back, and over what is there.
    let again = dump(to);
    restore(from, &again);
    assert!(content(to) == content(from), "{what}");
}

fn servers() -> (Server, Server) {
    (Server::cairn(&[]), Server::redis(&[]))
}

#[test]
fn collections_pass_between_cairn_and_redis() {
    let (mut cairn, redis) = servers();
    let (mut ours, mut theirs) = (cairn.client(), redis.client());
    for (number, made) in KINDS.iter().enumerate() {
        for size in SIZES {
            let what = format!("{} {number} of {size}", made.command);
            make(&mut theirs, made, size);
            hand_over(&mut theirs, &mut ours, &what);
            make(&mut ours, made, size);
            hand_over(&mut ours, &mut theirs, &what);
        }
        // It can be written to as if it had been made here.
        ours.line(&format!("RENAME value kept:{number}"));
    }
    for (line, reply) in [
        ("LPUSH kept:0 first", 50_001),
        ("RPUSH kept:0 last", 50_002),
        ("SADD kept:3 another", 1),
        ("SREM kept:3 another missing", 1),
        ("HDEL kept:5 field:0 field:1 missing", 2),
        ("ZCARD kept:7", 50_000),
        ("ZRANK kept:7 member:40000", 40_000),
        ("ZREMRANGEBYRANK kept:7 0 9", 10),
        ("ZRANK kept:7 member:40000", 39_990),
    ] {
        assert_eq!(ours.line(line).as_int(), Some(reply), "{line}");
    }
    drop(ours);
    cairn.terminate();
    checked(&cairn);
}

#[test]
fn strings_pass_between_cairn_and_redis() {
    let (cairn, redis) = servers();
    let (mut ours, mut theirs) = (cairn.client(), redis.client());
    let mut rng = fastrand::Rng::with_seed(7);
    let noise: Vec<u8> = std::iter::repeat_with(|| rng.u8(..))
        .take(3_000_000)
        .collect();
    for value in [
        b"".to_vec(),
        b"17".to_vec(),
        b"-2147483649".to_vec(),
        b"0017".to_vec(),
        vec![b'x'; 21],
        vec![b'x'; 16 * 1024 + 1],
        b"abc".repeat(1_000_000),
        noise[..44].to_vec(),
        noise[..16 * 1024].to_vec(),
        noise,
    ] {
        for (from, to) in [(0, 1), (1, 0)] {
            let clients = [&mut ours, &mut theirs];
            let [from, to] = if from < to {
                clients
            } else {
                let [ours, theirs] = clients;
                [theirs, ours]
            };
            let words: [&[u8]; 3] = [b"SET", b"value", &value];
            assert_eq!(from.command(&words), Value::ok());
            hand_over(from, to, &format!("a string of {}", value.len()));
        }
    }
}

/// A stream with groups, consumers and pending entries, some of them taken over, acknowledged or deleted.
fn make_stream(client: &mut Client, entries: usize) {
    client.line("DEL value");
    let mut lines: Vec<String> = (1..=entries)
        .map(|n| match n % 7 {
            0 => format!("XADD value {n}-{} other:{} {n} more x", n % 3, n % 2),
            _ => format!("XADD value {n}-{} field value:{n} number {n}", n % 3),
        })
        .collect();
    let half = entries / 2;
    lines.extend([
        "XGROUP CREATE value workers 0".to_string(),
        "XGROUP CREATE value 12 $".to_string(),
        "XGROUP CREATE value late 0 ENTRIESREAD 1".to_string(),
        format!("XREADGROUP GROUP workers alice COUNT {half} STREAMS value >"),
        "XREADGROUP GROUP workers bob COUNT 5 STREAMS value >".to_string(),
        "XGROUP CREATECONSUMER value workers idle".to_string(),
        "XREADGROUP GROUP late carol COUNT 1 STREAMS value >".to_string(),
        "XCLAIM value workers bob 0 1-1 2-2 RETRYCOUNT 7 TIME 12345".to_string(),
        "XACK value workers 3-0 4-1".to_string(),
        "XDEL value 5-2 6-0".to_string(),
    ]);
    for line in lines {
        assert!(!client.line(&line).is_error(), "{line}");
    }
}

#[test]
fn streams_pass_between_cairn_and_redis() {
    let (mut cairn, redis) = servers();
    let (mut ours, mut theirs) = (cairn.client(), redis.client());
    for entries in [1, 8, 99, 100, 101, 20_000] {
        let what = format!("a stream of {entries}");
        make_stream(&mut theirs, entries);
        hand_over(&mut theirs, &mut ours, &what);
        make_stream(&mut ours, entries);
        hand_over(&mut ours, &mut theirs, &what);
    }
    for (line, reply) in [
        ("XLEN value", 19_998),
        ("XACK value workers 7-1 8-2 3-0", 2),
        ("XDEL value 9-0 9-1", 1),
        ("XTRIM value MAXLEN 100", 19_897),
    ] {
        assert_eq!(ours.line(line).as_int(), Some(reply), "{line}");
        assert_eq!(theirs.line(line).as_int(), Some(reply), "{line}");
    }
    assert_eq!(stream(&mut ours), stream(&mut theirs));
    for line in [
        "XADD empty 5-5 a b",
        "XTRIM empty MAXLEN 0",
        "RENAME empty value",
    ] {
        assert!(!theirs.line(line).is_error());
    }
    hand_over(&mut theirs, &mut ours, "an empty stream");
    assert!(ours.line("XADD value 5-5 a b").is_error());
    drop(ours);
    cairn.terminate();
    checked(&cairn);
}

/// `cairn check` finds nothing wrong with the database of a server that has ended.
fn checked(server: &Server) {
    let output = std::process::Command::new(cairn_tests::server::cairn_binary())
        .args(["check", "--dir"])
        .arg(server.dir())
        .output()
        .expect("cairn check runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
}

/// A large RESTORE writes ahead of its commit: a crash in the midst of it leaves the key as it was, and nothing
/// else behind.
#[test]
fn a_crash_during_restore_leaves_what_was() {
    let mut cairn = Server::cairn(&[]);
    let mut client = cairn.client();
    let made = &KINDS[7];
    make(&mut client, made, 200_000);
    let payload = dump(&mut client);
    client.line("DEL value");
    let mut rng = fastrand::Rng::with_seed(11);
    let mut cut = 0;
    for round in 0..12 {
        let mut client = cairn.client();
        client.command(&["SET", "value", "before"]);
        let words: [&[u8]; 5] = [b"RESTORE", b"value", b"0", &payload, b"REPLACE"];
        client.send(&words);
        client.flush().expect("sent");
        std::thread::sleep(Duration::from_millis(rng.u64(1..600)));
        cairn.kill9();
        checked(&cairn);
        cairn.start();
        let mut client = cairn.client();
        match client.line("TYPE value").as_bytes() {
            Some(b"string") => {
                assert_eq!(client.line("GET value"), Value::bulk("before"));
                cut += 1;
            }
            Some(b"zset") => assert_eq!(client.line("ZCARD value").as_int(), Some(200_000)),
            other => panic!("round {round}: {other:?}"),
        }
    }
    assert!(cut > 0, "no crash came in time");
}
