//! Transactions that are large, long, or meet others at the wrong moment.

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cairn_tests::client::{Client, Value};
use cairn_tests::ending::Ending;
use cairn_tests::figures;
use cairn_tests::server::Server;

fn run(client: &mut Client, line: &str) -> Value {
    let reply = client.line(line);
    assert!(!reply.is_error(), "{line}: {reply:?}");
    reply
}

/// Sends lines at once, and returns the last reply.
fn run_all(client: &mut Client, lines: impl IntoIterator<Item = String>) -> Value {
    let lines: Vec<Vec<String>> = lines
        .into_iter()
        .map(|line| line.split(' ').map(str::to_owned).collect())
        .collect();
    let mut replies = client.pipeline(&lines).expect("replies");
    replies.pop().expect("at least one")
}

fn wait_until_blocked(client: &mut Client) {
    let started = Instant::now();
    while figures::info(client, "clients", "blocked_clients") == 0 {
        assert!(started.elapsed() < Duration::from_secs(10));
    }
}

/// However much a command has done: those who watch what it changed are told.
#[test]
fn no_change_is_too_large_to_be_noticed() {
    let server = Server::cairn(&["--threads", "2"]);
    let mut writer = server.client();
    for elements in [100, 9_999, 19_998, 19_999, 20_001, 50_000] {
        run(&mut writer, "FLUSHALL");
        run(&mut writer, "SADD set first");
        let mut watchers: Vec<Client> = (0..20).map(|_| server.client()).collect();
        for (number, watcher) in watchers.iter_mut().enumerate() {
            run(watcher, &format!("WATCH set counter:{number}"));
            run(watcher, "MULTI");
        }
        let mut waiter = server.client();
        waiter.send(&["BLPOP", "list", "0"]);
        waiter.flush().expect("sent");
        wait_until_blocked(&mut writer);
        let members: Vec<String> = (0..elements).map(|n| n.to_string()).collect();
        let counters = (0..20).map(|number| format!("INCR counter:{number}"));
        let lines = ["MULTI".into(), format!("SADD set {}", members.join(" "))];
        let lines = lines.into_iter().chain(counters);
        let lines = lines.chain(["RPUSH list x".into(), "EXEC".into()]);
        assert!(!run_all(&mut writer, lines).is_error());
        for watcher in &mut watchers {
            assert_eq!(run(watcher, "EXEC"), Value::NullArray, "{elements}");
        }
        let expected = Value::Array(vec![Value::bulk("list"), Value::bulk("x")]);
        assert_eq!(waiter.receive(), expected);
    }
}

/// A pop that is too long for its connection's thread, at once and after a wait.
#[test]
fn long_pops_that_may_wait_come_to_their_end() {
    let server = Server::cairn(&[]);
    let mut client = server.client();
    for elements in [19_900, 20_100, 60_000] {
        for waits in [false, true] {
            run(&mut client, "FLUSHALL");
            let members: Vec<String> = (0..elements).map(|n| format!("{n} {n}")).collect();
            run(&mut client, &format!("ZADD other {}", members.join(" ")));
            let pop = format!("BZMPOP 0 1 zset MIN COUNT {elements}");
            let mut popper = server.client();
            if !waits {
                run(&mut client, "RENAME other zset");
            }
            popper.send(&pop.split(' ').collect::<Vec<_>>());
            popper.flush().expect("sent");
            if waits {
                wait_until_blocked(&mut client);
                run(&mut client, "RENAME other zset");
            }
            let reply = popper.receive();
            let popped = reply.items().expect("a key and its members")[1].items();
            assert_eq!(popped.map(<[Value]>::len), Some(elements));
            assert_eq!(run(&mut client, "EXISTS zset other"), Value::Int(0));
            assert_eq!(popper.line("ECHO x"), Value::bulk("x"));
        }
    }
}

#[test]
fn a_client_that_is_being_killed_is_served_nothing() {
    let server = Server::cairn(&["--threads", "1"]);
    let mut client = server.client();
    for _ in 0..20 {
        let mut waiter = server.client();
        let Value::Int(id) = run(&mut waiter, "CLIENT ID") else {
            panic!("an id is a number");
        };
        waiter.send(&["BLPOP", "list", "0"]);
        waiter.flush().expect("sent");
        wait_until_blocked(&mut client);
        let lines = [
            format!("CLIENT KILL ID {id}"),
            "RPUSH list x".into(),
            "LLEN list".into(),
        ];
        assert_eq!(run_all(&mut client, lines), Value::Int(1));
        run(&mut client, "DEL list");
    }
}

/// A transaction that writes and empties the database is seen by nobody in between, however a key is read.
#[test]
fn databases_do_not_move_by_halves() {
    for sync in ["always", "everysec"] {
        let server = Server::cairn(&["--threads", "3", "--sync", sync]);
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            let _end = Ending(&is_done);
            for reads in ["GET half", "KEYS half", "EXISTS half", "SCAN 0 COUNT 1000"] {
                let (server, is_done) = (&server, &is_done);
                scope.spawn(move || {
                    let mut client = server.client();
                    while !is_done.load(Ordering::Relaxed) {
                        let seen = format!("{:?}", run(&mut client, reads));
                        let is_there = seen.contains("half") || seen.contains("Int(1)");
                        assert!(!is_there, "{reads}: {seen}");
                    }
                });
            }
            let mut client = server.client();
            let started = Instant::now();
            while started.elapsed() < Duration::from_secs(2) {
                let lines = ["MULTI", "SET half half", "FLUSHDB", "SET whole 1", "EXEC"];
                run_all(&mut client, lines.map(str::to_owned));
            }
        });
    }
}

/// What is done inside a transaction that has to be started again is done once.
#[test]
fn a_transaction_that_is_started_again_is_seen_once() {
    let server = Server::cairn(&[]);
    let mut client = server.client();
    let members: Vec<String> = (0..60_000).map(|n| format!("member:{n}")).collect();
    run(&mut client, &format!("SADD large {}", members.join(" ")));
    let mut waiter = server.client();
    let Value::Int(id) = run(&mut waiter, "CLIENT ID") else {
        panic!("an id is a number");
    };
    waiter.send(&["BLPOP", "none", "0"]);
    waiter.flush().expect("sent");
    wait_until_blocked(&mut client);
    let lines = [
        "CONFIG RESETSTAT".into(),
        "MULTI".into(),
        "SELECT 3".into(),
        "INCR counter".into(),
        "SELECT 0".into(),
        format!("CLIENT UNBLOCK {id}"),
        "RPUSH list x".into(),
        "SMEMBERS large".into(),
        "EXEC".into(),
    ];
    let reply = run_all(&mut client, lines);
    let items = reply.items().expect("replies");
    assert_eq!(
        items[..5],
        [
            Value::Simple("OK".into()),
            Value::Int(1),
            Value::Simple("OK".into()),
            Value::Int(1),
            Value::Int(1)
        ]
    );
    assert_eq!(items[5].items().map(<[Value]>::len), Some(60_000));
    assert_eq!(waiter.receive(), Value::NullArray);
    let stats = run(&mut client, "INFO commandstats");
    let stats = String::from_utf8_lossy(stats.as_bytes().unwrap_or_default()).into_owned();
    for command in ["incr", "rpush", "smembers", "client|unblock"] {
        let line = format!("cmdstat_{command}:calls=1,");
        assert!(stats.contains(&line), "{line} {stats}");
    }
}

/// What a transaction does to its own connection, and to others, does not happen twice, although it turns out to be
/// long, or to need the latch of a key that somebody else holds.
#[test]
fn what_cannot_be_undone_is_done_once() {
    let server = Server::cairn(&[]);
    let mut client = server.client();
    let members: Vec<String> = (0..60_000).map(|n| format!("member:{n}")).collect();
    run(&mut client, &format!("SADD large {}", members.join(" ")));
    run(&mut client, "SET held value");
    run(&mut client, "ACL SETUSER ada on >lovelace ~* &* +@all");
    // Takes connections, and never answers: who migrates there holds the latch of the key.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("an address").port();
    let long = "SMEMBERS large";
    let held = "EVAL return(redis.call('get','held')) 0";
    for (kills, last) in [(false, long), (true, long), (false, held), (true, held)] {
        run(&mut client, "ACL LOG RESET");
        let mut migrating = server.client();
        let _connected = (last == held).then(|| {
            let target = port.to_string();
            migrating.send(&["MIGRATE", "127.0.0.1", &target, "held", "0", "500"]);
            migrating.flush().expect("sent");
            silent.accept().expect("the migration begins")
        });
        let mut victim = server.client();
        let Value::Int(id) = run(&mut victim, "CLIENT ID") else {
            panic!("an id is a number");
        };
        let mut client = server.client();
        let kill = format!("CLIENT KILL ID {id}");
        let lines = [
            "MULTI",
            "ACL WHOAMI",
            "CLIENT GETNAME",
            if kills { &kill } else { "INCR counter" },
            "AUTH ada wrong",
            "AUTH ada lovelace",
            "CLIENT SETNAME named",
            last,
            "EXEC",
        ];
        let reply = run_all(&mut client, lines.map(str::to_owned));
        let items = reply.items().expect("replies");
        assert_eq!(items[0], Value::bulk("default"), "{last}");
        assert_eq!(items[1], Value::Null, "{last}");
        if kills {
            assert_eq!(items[2], Value::Int(1), "{last}");
        }
        let log = run(&mut client, "ACL LOG");
        let entries = log.items().expect("entries");
        assert_eq!(entries.len(), 1, "{last}");
        let count = &entries[0].items().expect("pairs")[1];
        assert_eq!(*count, Value::Int(1), "{last}");
    }
}

/// The replies after HELLO, and its own, are in the protocol that it chose.
/// What was queued while there was enough of everything is not run when there is not.
#[test]
fn a_transaction_is_refused_for_what_the_server_is_short_of() {
    let server = Server::cairn(&[]);
    let (mut client, mut admin) = (server.client(), server.client());
    for (parameter, queued, refusal) in [
        (
            "maxmemory",
            "SET a 1",
            "OOM command not allowed when used memory > 'maxmemory'.",
        ),
        (
            "min-replicas-to-write",
            "DEL a",
            "NOREPLICAS Not enough good replicas to write.",
        ),
    ] {
        let exec_with = |client: &mut Client, admin: &mut Client, queued: &str| {
            run(client, "MULTI");
            run(client, queued);
            run(admin, &format!("CONFIG SET {parameter} 1"));
            let reply = client.line("EXEC");
            run(admin, &format!("CONFIG SET {parameter} 0"));
            reply
        };
        let refused = format!("EXECABORT Transaction discarded because of: {refusal}");
        let reply = exec_with(&mut client, &mut admin, queued);
        assert_eq!(reply, Value::Error(refused.into_bytes()));
        assert!(!exec_with(&mut client, &mut admin, "GET a").is_error());
    }
    // A limit that asks for keys to be deleted refuses when there are none.
    run(
        &mut admin,
        "CONFIG SET maxmemory 1 maxmemory-policy allkeys-lru",
    );
    assert!(client.error_of("SET a 1").starts_with("OOM"));
}

#[test]
fn a_transaction_may_change_the_protocol() {
    for server in [Server::cairn(&[]), Server::redis(&[])] {
        let mut client = server.client();
        let lines = ["MULTI", "HGETALL none", "HELLO 3", "HGETALL none", "EXEC"];
        let reply = run_all(&mut client, lines.map(str::to_owned));
        let items = reply.items().expect("replies");
        assert_eq!(items[0], Value::Array(Vec::new()));
        assert!(matches!(items[1], Value::Map(_)), "{:?}", items[1]);
        assert_eq!(items[2], Value::Map(Vec::new()));
    }
}
