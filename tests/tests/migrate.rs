//! MIGRATE from Cairn to a real redis-server, back, and to another Cairn.

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cairn_tests::client::Client;
use cairn_tests::ending::Ending;
use cairn_tests::server::Server;
use cairn_tests::value::Value;

/// A key of each type, in forms small and large.
fn fill(client: &mut Client) -> Vec<String> {
    let words = |count: usize, element: &dyn Fn(usize) -> String| {
        let words: Vec<String> = (0..count).map(element).collect();
        words.join(" ")
    };
    let mut names = Vec::new();
    for count in [3, 30_000] {
        for (kind, head, element) in [
            (
                "list",
                "RPUSH",
                (|n| format!("e{n}")) as fn(usize) -> String,
            ),
            ("set", "SADD", |n| format!("m{n}")),
            ("numbers", "SADD", |n| format!("{}", n * 3)),
            ("hash", "HSET", |n| format!("f{n} v{n}")),
            ("zset", "ZADD", |n| format!("{n}.5 m{n}")),
        ] {
            let name = format!("{kind}:{count}");
            let line = format!("{head} {name} {}", words(count, &element));
            assert!(!client.line(&line).is_error());
            names.push(name);
        }
    }
    for n in 1..=500 {
        client.line(&format!("XADD stream {n}-1 field value:{n}"));
    }
    client.line("XGROUP CREATE stream group 0");
    client.line("XREADGROUP GROUP group consumer COUNT 7 STREAMS stream >");
    names.push("stream".into());
    for (name, length) in [("string:3", 3), ("string:large", 2_000_000)] {
        client.command(&["SET", name, &"x".repeat(length)]);
        names.push(name.into());
    }
    names
}

fn digest(client: &mut Client, name: &str) -> (Value, Value, usize) {
    let kind = client.line(&format!("TYPE {name}"));
    let line = match kind.as_bytes().expect("a type") {
        b"string" => format!("STRLEN {name}"),
        b"list" => format!("LRANGE {name} 0 -1"),
        b"set" => format!("SCARD {name}"),
        b"hash" => format!("HGET {name} f2"),
        b"zset" => format!("ZRANGE {name} 0 -1 WITHSCORES"),
        b"stream" => format!("XPENDING {name} group"),
        _ => return (kind, Value::Null, 0),
    };
    let expires = client.line(&format!("TTL {name}")).as_int() > Some(0);
    let value = client.line(&line);
    (kind, value, usize::from(expires))
}

fn to(server: &Server, key: &str, rest: &str) -> String {
    let port = server.port();
    format!("MIGRATE 127.0.0.1 {port} {key} 0 5000 {rest}")
}

#[test]
fn every_type_moves_there_and_back() {
    let (cairn, other, redis) = (Server::cairn(&[]), Server::cairn(&[]), Server::redis(&[]));
    let mut first = cairn.client();
    let names = fill(&mut first);
    first.line("EXPIRE list:3 1000");
    let before: Vec<_> = names.iter().map(|name| digest(&mut first, name)).collect();
    for (from, to_server) in [(&cairn, &redis), (&redis, &other), (&other, &cairn)] {
        let (mut source, mut target) = (from.client(), to_server.client());
        for name in &names {
            assert_eq!(source.line(&to(to_server, name, "")), Value::ok(), "{name}");
        }
        assert_eq!(source.line("DBSIZE").as_int(), Some(0));
        for (name, before) in names.iter().zip(&before) {
            assert_eq!(&digest(&mut target, name), before, "{name}");
        }
        assert_eq!(
            source.line(&to(to_server, "list:3", "")),
            Value::Simple(b"NOKEY".to_vec())
        );
    }
}

#[test]
fn only_what_the_target_has_taken_is_deleted() {
    let (cairn, redis) = (Server::cairn(&[]), Server::redis(&[]));
    let (mut source, mut target) = (cairn.client(), redis.client());
    let names = |letters: &str| letters.chars().map(|c| format!("{c} ")).collect::<String>();
    source.line("MSET a 1 b 2 c 3 d 4 e 5");
    target.line("MSET b _ d _");
    let keys = format!("KEYS {}", names("abcdef"));
    let mut words: Vec<String> = to(&redis, "empty", &keys)
        .split_whitespace()
        .map(str::to_string)
        .collect();
    words[3] = String::new();
    assert_eq!(
        source.command(&words),
        Value::error(
            "ERR Target instance replied with error: BUSYKEY Target key name already exists."
        )
    );
    assert_eq!(source.line("MGET a b c d e"), {
        let value = |text: &str| Value::bulk(text);
        Value::Array(vec![
            Value::Null,
            value("2"),
            Value::Null,
            value("4"),
            Value::Null,
        ])
    });
    assert_eq!(target.line("DBSIZE").as_int(), Some(5));
    assert_eq!(target.line("GET b"), Value::bulk("_"));
}

/// Somebody adds to a key all the time while it is moved again and again: nothing that was acknowledged is lost, and
/// nothing is counted twice.
#[test]
fn no_write_is_lost_on_the_way() {
    let (cairn, redis) = (Server::cairn(&[]), Server::redis(&[]));
    let has_ended = AtomicBool::new(false);
    let acknowledged = AtomicI64::new(0);
    let mut moved = 0;
    thread::scope(|scope| {
        let _end = Ending(&has_ended);
        for _ in 0..3 {
            scope.spawn(|| {
                let mut client = cairn.client();
                while !has_ended.load(Ordering::Relaxed) {
                    assert!(client.line("INCR counter").as_int().is_some());
                    acknowledged.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let (mut source, mut target) = (cairn.client(), redis.client());
        let until = Instant::now() + Duration::from_secs(3);
        let mut moves = 0;
        while Instant::now() < until {
            let reply = source.line(&to(&redis, "counter", ""));
            if reply == Value::ok() {
                let taken = target.line("GETDEL counter");
                let text = String::from_utf8_lossy(taken.as_bytes().expect("a number"));
                moved += text.parse::<i64>().expect("a number");
                moves += 1;
            }
        }
        assert!(moves > 10, "{moves}");
    });
    let mut client = cairn.client();
    let left = client.line("GET counter");
    let left = String::from_utf8_lossy(left.as_bytes().unwrap_or(b"0")).into_owned();
    let left: i64 = left.parse().expect("a number");
    assert_eq!(moved + left, acknowledged.load(Ordering::Relaxed));
    assert!(moved > 0);
}

/// A target that does not answer is given up in time. Meanwhile nobody waits but those who want to change the key.
#[test]
fn a_silent_target_holds_up_nobody_else() {
    let cairn = Server::cairn(&["--threads", "1"]);
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("an address").port();
    let mut client = cairn.client();
    client.line("MSET key value other value");
    let began = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            let line = format!("MIGRATE 127.0.0.1 {port} key 0 2500");
            assert_eq!(
                cairn.client().line(&line),
                Value::error("IOERR error or timeout reading to target instance")
            );
            assert!(began.elapsed() < Duration::from_secs(10));
        });
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(150));
            assert_eq!(cairn.client().line("APPEND key s").as_int(), Some(6));
            assert!(began.elapsed() > Duration::from_millis(2300));
        });
        thread::sleep(Duration::from_millis(250));
        let mut slowest = Duration::ZERO;
        while began.elapsed() < Duration::from_millis(2300) {
            let asked = Instant::now();
            assert_eq!(client.line("GET key"), Value::bulk("value"));
            assert!(client.line("INCR number").as_int().is_some());
            slowest = slowest.max(asked.elapsed());
        }
        assert!(slowest < Duration::from_millis(1000), "{slowest:?}");
    });
    assert_eq!(client.line("GET key"), Value::bulk("values"));
}

/// However many wait for targets that do not answer: there are threads left for others, and the server can be stopped.
#[test]
fn many_silent_targets_leave_room_for_others() {
    let mut cairn = Server::cairn(&["--threads", "1"]);
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("an address").port();
    let mut client = cairn.client();
    let waiting: Vec<Client> = (0..600)
        .map(|number| {
            client.line(&format!("SET key:{number} value"));
            let mut waiting = cairn.client();
            let line = format!("MIGRATE 127.0.0.1 {port} key:{number} 0 60000");
            waiting.send(&line.split(' ').collect::<Vec<_>>());
            waiting.flush().expect("sent");
            waiting
        })
        .collect();
    // INFO, too, needs a thread that may take its time.
    let began = Instant::now();
    assert!(client.line("INFO server").as_bytes().is_some());
    assert!(began.elapsed() < Duration::from_secs(5));
    let began = Instant::now();
    assert!(cairn.terminate().success());
    assert!(began.elapsed() < Duration::from_secs(5));
    drop(waiting);
}

/// It cannot be taken back, so a script that calls it is not started twice, whatever it does afterwards.
#[test]
fn a_script_moves_a_key_once() {
    let (cairn, redis) = (Server::cairn(&[]), Server::redis(&[]));
    let mut client = cairn.client();
    client.line("MSET key value undeclared 1");
    let script = format!(
        "local reply = redis.call('MIGRATE', '127.0.0.1', '{}', KEYS[1], 0, 5000) \
         redis.call('INCR', 'undeclared') \
         return reply",
        redis.port()
    );
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("an address").port();
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let _end = Ending(&has_ended);
        // So that its latch is not to be had at once.
        scope.spawn(|| {
            let mut other = cairn.client();
            while !has_ended.load(Ordering::Relaxed) {
                other.line(&format!("MIGRATE 127.0.0.1 {port} undeclared 0 20"));
            }
        });
        let mut replies = Vec::new();
        for _ in 0..20 {
            redis.client().line("DEL key");
            client.line("SET key value");
            replies.push(client.command(&["EVAL", &script, "1", "key"]));
        }
        assert!(
            replies.iter().all(|reply| *reply == Value::ok()),
            "{replies:?}"
        );
    });
    assert_eq!(client.line("EXISTS key").as_int(), Some(0));
    assert_eq!(client.line("GET undeclared"), Value::bulk("21"));
}

#[test]
fn a_target_may_want_a_password() {
    let (cairn, redis) = (
        Server::cairn(&[]),
        Server::redis(&["--requirepass", "secret"]),
    );
    let (mut source, mut target) = (cairn.client(), redis.client());
    target.line("AUTH secret");
    source.line("MSET a 1 b 2");
    for (rest, said) in [
        ("", "NOAUTH Authentication required."),
        (
            "AUTH wrong",
            "WRONGPASS invalid username-password pair or user is disabled.",
        ),
        (
            "AUTH2 nobody secret",
            "WRONGPASS invalid username-password pair or user is disabled.",
        ),
    ] {
        let told = format!("ERR Target instance replied with error: {said}");
        assert_eq!(source.line(&to(&redis, "a", rest)), Value::error(told));
        assert_eq!(source.line("EXISTS a b").as_int(), Some(2));
    }
    assert_eq!(source.line(&to(&redis, "a", "AUTH secret")), Value::ok());
    let named = to(&redis, "b", "COPY AUTH2 default secret");
    assert_eq!(source.line(&named), Value::ok());
    assert_eq!(source.line("EXISTS a b").as_int(), Some(1));
    assert_eq!(target.line("EXISTS a b").as_int(), Some(2));
}
