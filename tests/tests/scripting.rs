//! Scripts and functions beyond what the golden scripts compare with Redis: long ones, many at once, and what is left
//! of them after a crash.

use std::thread;
use std::time::{Duration, Instant};

use cairn_tests::client::{Client, Value};
use cairn_tests::server::Server;

/// Runs until it is told to stop.
const ENDLESS: &str = "while true do end";

fn eval(client: &mut Client, script: &str, keys: &[&str]) -> Value {
    client.command(&words(script, keys))
}

fn words<'a>(script: &'a str, keys: &[&'a str]) -> Vec<&'a str> {
    const COUNTS: [&str; 4] = ["0", "1", "2", "3"];
    let mut words = vec!["EVAL", script, COUNTS[keys.len()]];
    words.extend_from_slice(keys);
    words
}

fn bulk(text: &str) -> Value {
    Value::Bulk(text.as_bytes().to_vec())
}

fn is_error(value: &Value, beginning: &str) -> bool {
    matches!(value, Value::Error(text) if text.starts_with(beginning.as_bytes()))
}

/// Asks until the answer is as wanted.
fn wait_for(client: &mut Client, command: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let value = client.line(command);
        if wanted(&value) {
            return value;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "{command}: {value:?}"
        );
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_long_script_holds_up_nobody_who_does_not_need_its_keys() {
    let server = Server::cairn(&["--threads", "1"]);
    let (mut runner, mut other) = (server.client(), server.client());
    let long =
        "local n = 0 for i = 1, 300000000 do n = n + 1 end redis.call('SET', KEYS[1], n) return n";
    runner.send(&words(long, &["slow"]));
    runner.flush().expect("sent");
    let mut slowest = Duration::ZERO;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(500) {
        let asked = Instant::now();
        assert_eq!(other.line("SET quick 1"), Value::ok());
        assert_eq!(
            eval(&mut other, "return redis.call('GET', KEYS[1])", &["quick"]),
            bulk("1")
        );
        slowest = slowest.max(asked.elapsed());
    }
    assert!(
        slowest < Duration::from_millis(700),
        "one had to wait for {slowest:?}"
    );
    assert_eq!(
        other.line("GET slow"),
        Value::Null,
        "nothing is seen of it before its end"
    );
    assert_eq!(runner.receive(), Value::Int(300_000_000));
    assert_eq!(other.line("GET slow"), bulk("300000000"));
}

#[test]
fn a_script_can_be_killed_before_and_after_others_are_told_that_it_is_busy() {
    let server = Server::cairn(&[]);
    let (mut runner, mut other) = (server.client(), server.client());
    runner.send(&words(ENDLESS, &[]));
    runner.flush().expect("sent");
    wait_for(&mut other, "SCRIPT KILL", |reply| *reply == Value::ok());
    assert!(is_error(
        &runner.receive(),
        "ERR Script killed by user with SCRIPT KILL..."
    ));
    wait_for(&mut other, "SCRIPT KILL", |reply| {
        is_error(reply, "NOTBUSY")
    });

    other.line("CONFIG SET busy-reply-threshold 20");
    runner.send(&words(ENDLESS, &[]));
    runner.flush().expect("sent");
    let busy = wait_for(&mut other, "PING", |reply| matches!(reply, Value::Error(_)));
    let text =
        "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";
    assert!(is_error(&busy, text));
    assert!(is_error(&other.line("FUNCTION KILL"), "BUSY"));
    assert!(is_error(&other.line("SHUTDOWN"), "BUSY"));
    assert_eq!(other.line("MULTI"), Value::ok());
    assert_eq!(other.line("DISCARD"), Value::ok());
    assert_eq!(other.line("SCRIPT KILL"), Value::ok());
    assert!(is_error(&runner.receive(), "ERR Script killed by user"));
    wait_for(&mut other, "PING", |reply| {
        *reply == Value::Simple(b"PONG".to_vec())
    });
}

#[test]
fn a_script_that_has_written_is_not_killed_and_leaves_nothing_when_the_server_stops() {
    let mut server = Server::cairn(&[]);
    let (mut runner, mut other) = (server.client(), server.client());
    other.line("CONFIG SET busy-reply-threshold 20");
    let script = "redis.call('SET', KEYS[1], 'half') while true do end";
    runner.send(&words(script, &["key"]));
    runner.flush().expect("sent");
    wait_for(&mut other, "PING", |reply| is_error(reply, "BUSY"));
    assert!(is_error(&other.line("SCRIPT KILL"), "UNKILLABLE"));
    other.send(&["SHUTDOWN", "NOSAVE"]);
    other.flush().expect("sent");
    let begun = Instant::now();
    while server.is_running() {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "it does not stop"
        );
        thread::sleep(Duration::from_millis(10));
    }
    server.restart();
    assert_eq!(server.client().line("GET key"), Value::Null);
}

/// Transfers that name their keys, transfers that do not, and long ones, while others look at the sum.
#[test]
fn transfers_by_scripts_keep_the_sum() {
    const ACCOUNTS: [&str; 3] = ["a", "b", "c"];
    let server = Server::cairn(&["--threads", "2"]);
    let mut client = server.client();
    for account in ACCOUNTS {
        client.command(&["SET", account, "100"]);
    }
    let declared = "redis.call('DECR', KEYS[1]) redis.call('INCR', KEYS[2])";
    let undeclared = "local k = {'a', 'b', 'c'} local i = math.random(3) redis.call('DECR', k[i]) redis.call('INCR', k[i % 3 + 1])";
    let long = "redis.call('DECR', KEYS[1]) for i = 1, 2000000 do end redis.call('INCR', KEYS[2])";
    let sum = "return redis.call('GET', KEYS[1]) + redis.call('GET', KEYS[2]) + redis.call('GET', KEYS[3])";
    thread::scope(|scope| {
        for number in 0..6 {
            let server = &server;
            scope.spawn(move || {
                let mut client = server.client();
                let (from, to) = (ACCOUNTS[number % 3], ACCOUNTS[(number + 1) % 3]);
                for round in 0..200 {
                    let reply = match number {
                        0 | 1 => eval(&mut client, declared, &[from, to]),
                        2 | 3 => eval(&mut client, undeclared, &[]),
                        4 if round < 20 => eval(&mut client, long, &[from, to]),
                        4 => break,
                        _ => {
                            let total = eval(&mut client, sum, &ACCOUNTS);
                            assert_eq!(total, Value::Int(300));
                            continue;
                        }
                    };
                    assert_eq!(reply, Value::Null);
                }
            });
        }
    });
    assert_eq!(eval(&mut client, sum, &ACCOUNTS), Value::Int(300));
}

#[test]
fn what_a_script_does_is_seen_once_however_often_it_began() {
    let server = Server::cairn(&["--threads", "1"]);
    let mut client = server.client();
    let mut waiters: Vec<Client> = (0..3).map(|_| server.client()).collect();
    for waiter in &mut waiters {
        waiter.send(&["BLPOP", "list", "20"]);
        waiter.flush().expect("sent");
    }
    client.line("CONFIG RESETSTAT");
    wait_for(
        &mut client,
        "INFO clients",
        |report| matches!(report, Value::Bulk(text) if String::from_utf8_lossy(text).contains("blocked_clients:3")),
    );
    // Long enough to be undone, and to begin again elsewhere.
    let script = "redis.call('RPUSH', KEYS[1], 'x') for i = 1, 3000000 do end redis.call('INCR', KEYS[2]) \
                  redis.log(redis.LOG_WARNING, 'logged once') return redis.call('RPUSH', KEYS[1], 'y')";
    assert_eq!(eval(&mut client, script, &["list", "count"]), Value::Int(2));
    let first = Value::Array(vec![bulk("list"), bulk("x")]);
    let second = Value::Array(vec![bulk("list"), bulk("y")]);
    assert_eq!(waiters[0].receive(), first);
    assert_eq!(waiters[1].receive(), second);
    assert_eq!(client.line("LLEN list"), Value::Int(0));
    assert_eq!(client.line("GET count"), bulk("1"));
    let Value::Bulk(report) = client.line("INFO commandstats") else {
        panic!("no report");
    };
    let report = String::from_utf8_lossy(&report).into_owned();
    assert!(report.contains("cmdstat_rpush:calls=2,"), "{report}");
    assert!(report.contains("cmdstat_eval:calls=1,"), "{report}");
    assert_eq!(server.log().matches("logged once").count(), 1);
    assert_eq!(
        client.line("RPUSH list z"),
        Value::Int(1),
        "the third still waits"
    );
    assert_eq!(
        waiters[2].receive(),
        Value::Array(vec![bulk("list"), bulk("z")])
    );
}

#[test]
fn functions_survive_a_crash_and_a_transaction_of_them_is_whole() {
    let mut server = Server::cairn(&[]);
    let mut client = server.client();
    let library = |name: &str, answer: &str| {
        format!(
            "#!lua name={name}\nredis.register_function('{name}', function() return '{answer}' end)"
        )
    };
    client.command(&["FUNCTION", "LOAD", &library("kept", "old")]);
    client.command(&["FUNCTION", "LOAD", &library("gone", "x")]);
    client.line("MULTI");
    client.command(&["FUNCTION", "LOAD", "REPLACE", &library("kept", "new")]);
    client.command(&["FUNCTION", "DELETE", "gone"]);
    client.command(&["SET", "key", "value"]);
    client.line("EXEC");
    client.line("FLUSHALL");
    server.kill9();
    server.start();
    let mut client = server.client();
    assert_eq!(client.line("FCALL kept 0"), bulk("new"));
    assert!(is_error(
        &client.line("FCALL gone 0"),
        "ERR Function not found"
    ));
    client.line("FUNCTION FLUSH");
    server.restart();
    let mut client = server.client();
    assert_eq!(client.line("FUNCTION LIST"), Value::Array(Vec::new()));
}
