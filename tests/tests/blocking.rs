//! Clients that wait for an element: who is served, in which order, and what becomes of those who leave. The same on
//! redis-server, which is what Cairn is held to.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use cairn_tests::client::{Client, Value};
use cairn_tests::figures;
use cairn_tests::server::Server;

fn servers() -> Vec<Server> {
    // More threads than there are by default on a small machine: clients of different threads meet.
    vec![
        Server::cairn(&["--threads", "3"]),
        Server::cairn(&["--threads", "2", "--sync", "always"]),
        Server::redis(&[]),
    ]
}

/// A client that has sent a command which waits, and is known to.
fn waiter(server: &Server, line: &str) -> Client {
    let mut asker = server.client();
    let before = figures::info(&mut asker, "clients", "blocked_clients");
    let mut client = server.client();
    client.send(&line.split(' ').collect::<Vec<_>>());
    client.flush().expect("sent");
    let started = Instant::now();
    while figures::info(&mut asker, "clients", "blocked_clients") == before {
        assert!(
            started.elapsed() < Duration::from_secs(10),
            "{line}: never waits"
        );
        thread::sleep(Duration::from_millis(1));
    }
    client
}

fn words(words: &[&str]) -> Value {
    Value::Array(words.iter().map(|word| Value::bulk(*word)).collect())
}

fn run(client: &mut Client, line: &str) -> Value {
    let reply = client.line(line);
    assert!(!reply.is_error(), "{line}: {reply:?}");
    reply
}

#[test]
fn first_come_first_served() {
    for server in servers() {
        let mut waiters: Vec<Client> = (0..20)
            .map(|n| {
                waiter(
                    &server,
                    if n % 2 == 0 {
                        "BLPOP a b 0"
                    } else {
                        "BLPOP b a 0"
                    },
                )
            })
            .collect();
        let mut pusher = server.client();
        for (number, waiter) in waiters.iter_mut().enumerate() {
            let key = if number % 3 == 0 { "a" } else { "b" };
            run(&mut pusher, &format!("RPUSH {key} {number}"));
            assert_eq!(waiter.receive(), words(&[key, &number.to_string()]));
        }
        assert_eq!(run(&mut pusher, "EXISTS a b"), Value::Int(0));
    }
}

/// Nobody comes between a push and those who waited for it.
#[test]
fn a_push_is_for_those_who_wait() {
    for server in servers() {
        let mut waiters: Vec<Client> = (0..3).map(|_| waiter(&server, "BLPOP list 0")).collect();
        let mut pusher = server.client();
        let lines = ["RPUSH list 1 2 3 4 5", "LPOP list", "LLEN list"];
        let lines: Vec<Vec<&str>> = lines.iter().map(|line| line.split(' ').collect()).collect();
        let replies = pusher.pipeline(&lines).expect("replies");
        assert_eq!(replies, [Value::Int(5), Value::bulk("4"), Value::Int(1)]);
        for (number, waiter) in waiters.iter_mut().enumerate() {
            let expected = (number + 1).to_string();
            assert_eq!(waiter.receive(), words(&["list", &expected]));
        }
    }
}

#[test]
fn every_way_in_which_a_key_comes_to_be_wakes() {
    let ways: [(&str, &str, &[&str]); 9] = [
        ("BLPOP k 0", "k x", &["RPUSH other x", "RENAME other k"]),
        ("BLPOP k 0", "k x", &["RPUSH other x", "COPY other k"]),
        (
            "BRPOP k 0",
            "k x",
            &["RPUSH other x", "LMOVE other k LEFT LEFT"],
        ),
        (
            "BLPOP k 0",
            "k x",
            &["SET k string", "RPUSH other x", "COPY other k REPLACE"],
        ),
        (
            "BLPOP k 0",
            "k x",
            &["SELECT 1", "RPUSH k x", "SWAPDB 0 1", "SELECT 0"],
        ),
        (
            "BLPOP k 0",
            "k x",
            &["SELECT 1", "RPUSH k x", "MOVE k 0", "SELECT 0"],
        ),
        (
            "BZPOPMIN k 0",
            "k x 1",
            &["ZADD other 1 x", "ZUNIONSTORE k 1 other"],
        ),
        (
            "BZPOPMAX k 0",
            "k x 1",
            &["ZADD other 1 x", "ZRANGESTORE k other 0 -1"],
        ),
        ("BZPOPMIN k 0", "k x 1", &["MULTI", "ZADD k 1 x", "EXEC"]),
    ];
    for server in servers() {
        let mut client = server.client();
        for (command, expected, lines) in ways {
            run(&mut client, "FLUSHALL");
            let mut waiter = waiter(&server, command);
            lines.iter().for_each(|line| drop(run(&mut client, line)));
            let expected: Vec<&str> = expected.split(' ').collect();
            assert_eq!(waiter.receive(), words(&expected), "{lines:?}");
        }
    }
}

#[test]
fn what_does_not_make_the_key_does_not_wake() {
    for server in servers() {
        let mut client = server.client();
        let mut waiter = waiter(&server, "BLPOP k 0");
        for line in [
            "SET k string",
            "DEL k",
            "ZADD k 1 x",
            "DEL k",
            "MULTI",
            "RPUSH k x",
            "DEL k",
            "EXEC",
            "FLUSHALL",
            "SELECT 5",
            "RPUSH k wrong",
        ] {
            run(&mut client, line);
        }
        assert!(waiter.receive_raw(Duration::from_millis(50)).is_err());
        run(&mut client, "SELECT 0");
        run(&mut client, "RPUSH k right");
        assert_eq!(waiter.receive(), words(&["k", "right"]));
    }
}

/// What one waiter makes may be what the next one waits for.
#[test]
fn moves_go_on_through_a_chain() {
    for server in servers() {
        let mut last = waiter(&server, "BLPOP d 0");
        let mut third = waiter(&server, "BRPOPLPUSH c d 0");
        let mut second = waiter(&server, "BLMOVE b c LEFT RIGHT 0");
        let mut first = waiter(&server, "BLMOVE a b RIGHT LEFT 0");
        let mut client = server.client();
        run(&mut client, "RPUSH a x");
        for waiter in [&mut first, &mut second, &mut third] {
            assert_eq!(waiter.receive(), Value::bulk("x"));
        }
        assert_eq!(last.receive(), words(&["d", "x"]));
        assert_eq!(run(&mut client, "EXISTS a b c d"), Value::Int(0));
    }
}

#[test]
fn nothing_is_popped_for_a_client_that_has_gone() {
    for server in servers() {
        let mut client = server.client();
        for round in 0..10 {
            let gone: Vec<Client> = (0..3).map(|_| waiter(&server, "BLPOP list 0")).collect();
            drop(gone);
            let started = Instant::now();
            while figures::info(&mut client, "clients", "blocked_clients") > 0 {
                assert!(started.elapsed() < Duration::from_secs(10));
            }
            run(&mut client, &format!("RPUSH list {round}"));
            assert_eq!(
                run(&mut client, "LPOP list"),
                Value::bulk(round.to_string())
            );
        }
    }
}

#[test]
fn waiting_ends_in_time_or_when_it_is_ended() {
    for server in servers() {
        let mut client = server.client();
        for milliseconds in [1_u32, 20, 150] {
            let started = Instant::now();
            let line = format!("BLPOP none {}", f64::from(milliseconds) / 1000.0);
            assert_eq!(client.line(&line), Value::NullArray);
            let took = started.elapsed();
            let least = Duration::from_millis(u64::from(milliseconds));
            assert!(
                took >= least && took < least + Duration::from_secs(2),
                "{took:?}"
            );
        }
        let mut other = server.client();
        let Value::Int(id) = run(&mut other, "CLIENT ID") else {
            panic!("an id is a number");
        };
        for (reason, expected) in [("", "null"), ("TIMEOUT", "null"), ("ERROR", "UNBLOCKED")] {
            other.send(&["BLPOP", "none", "0"]);
            other.flush().expect("sent");
            let unblock = format!("CLIENT UNBLOCK {id} {reason}");
            let started = Instant::now();
            while run(&mut client, &unblock) == Value::Int(0) {
                assert!(started.elapsed() < Duration::from_secs(10));
            }
            match other.receive() {
                Value::NullArray => assert_eq!(expected, "null"),
                reply => {
                    let text = format!("{reply:?}");
                    assert!(
                        text.contains("UNBLOCKED") && expected == "UNBLOCKED",
                        "{text}"
                    );
                }
            }
            assert_eq!(run(&mut client, &unblock), Value::Int(0));
        }
    }
}

/// What a client sends while it waits is run when the wait is over, and not lost.
#[test]
fn what_is_sent_behind_a_wait_runs_after_it() {
    for server in servers() {
        let mut client = server.client();
        let mut waiter = waiter(&server, "BLPOP list 0");
        for number in 0..1000 {
            waiter.send(&["ECHO", &format!("{number}")]);
        }
        waiter.flush().expect("sent");
        run(&mut client, "RPUSH list x");
        assert_eq!(waiter.receive(), words(&["list", "x"]));
        for number in 0..1000 {
            assert_eq!(waiter.receive(), Value::bulk(number.to_string()));
        }
    }
}

/// Ten thousand who wait cost nothing while nothing comes, and each gets one element when it does.
#[test]
fn thousands_wait_for_nothing() {
    const WAITERS: usize = 2000;
    let server = Server::cairn(&[]);
    let mut client = server.client();
    let mut waiters: Vec<Client> = (0..WAITERS)
        .map(|number| {
            let mut waiter = server.client();
            waiter.send(&["BLPOP", &format!("own:{number}"), "all", "0"]);
            waiter.flush().expect("sent");
            waiter
        })
        .collect();
    let started = Instant::now();
    while figures::info(&mut client, "clients", "blocked_clients") < WAITERS as u64 {
        assert!(started.elapsed() < Duration::from_secs(30));
    }
    let pid = server.pid().expect("it runs");
    let before = processor_ticks(pid);
    thread::sleep(Duration::from_secs(2));
    let ticks = processor_ticks(pid) - before;
    // Of two seconds a twentieth: background threads look around now and then.
    assert!(ticks <= 10, "{ticks} hundredths of a second");
    let elements: Vec<String> = (0..WAITERS).map(|number| number.to_string()).collect();
    let mut push = vec!["RPUSH", "all"];
    push.extend(elements.iter().map(String::as_str));
    let started = Instant::now();
    assert_eq!(client.command(&push), Value::Int(WAITERS as i64));
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
    let mut got: Vec<String> = waiters
        .iter_mut()
        .map(|waiter| match waiter.receive() {
            Value::Array(pair) => {
                let element = pair[1].as_bytes().expect("an element");
                String::from_utf8_lossy(element).into_owned()
            }
            reply => panic!("{reply:?}"),
        })
        .collect();
    got.sort();
    let mut elements = elements;
    elements.sort();
    assert_eq!(got, elements);
    assert_eq!(run(&mut client, "EXISTS all"), Value::Int(0));
}

/// What the process has used of the processors, in hundredths of a second.
fn processor_ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
    let fields = stat.rsplit(')').next().expect("fields behind its name");
    let fields: Vec<u64> = fields
        .split_whitespace()
        .filter_map(|field| field.parse().ok())
        .collect();
    // The state before them is no number: utime and stime are the eleventh and twelfth that are.
    fields[10] + fields[11]
}

/// An entry of a stream, as XREAD shows it under its key.
fn entry(key: &str, id: &str) -> Value {
    let entry = Value::Array(vec![Value::bulk(id), words(&["field", "value"])]);
    Value::Array(vec![Value::Array(vec![
        Value::bulk(key),
        Value::Array(vec![entry]),
    ])])
}

#[test]
fn all_who_read_a_stream_get_what_is_added_and_one_of_a_group() {
    for server in servers() {
        let mut adder = server.client();
        run(&mut adder, "XADD s 1-0 field old");
        run(&mut adder, "XGROUP CREATE s g $");
        let mut readers: Vec<Client> = (0..3)
            .map(|_| waiter(&server, "XREAD BLOCK 0 STREAMS t s $ $"))
            .collect();
        let mut consumers: Vec<Client> = (0..3)
            .map(|number| {
                let line = format!("XREADGROUP GROUP g c{number} BLOCK 0 STREAMS s >");
                waiter(&server, &line)
            })
            .collect();
        run(&mut adder, "XADD s 2-0 field value");
        for reader in &mut readers {
            assert_eq!(reader.receive(), entry("s", "2-0"));
        }
        assert_eq!(consumers[0].receive(), entry("s", "2-0"));
        run(&mut adder, "XADD s 3-0 field value");
        assert_eq!(consumers[1].receive(), entry("s", "3-0"));
        let pending = run(&mut adder, "XPENDING s g");
        assert_eq!(
            pending.items().map(|items| items[0].clone()),
            Some(Value::Int(2))
        );

        let destroyed = run(&mut adder, "XGROUP DESTROY s g");
        assert_eq!(destroyed, Value::Int(1));
        let told = consumers[2].receive();
        assert!(
            told.is_error() && format!("{told:?}").contains("NOGROUP"),
            "{told:?}"
        );
    }
}

/// What $ means is decided when the command is called, however often it has to be tried.
#[test]
fn what_comes_last_is_fixed_when_waiting_begins() {
    for server in servers() {
        let mut adder = server.client();
        run(&mut adder, "XADD s 5-0 field old");
        let mut reader = waiter(&server, "XREAD BLOCK 0 STREAMS s $");
        run(&mut adder, "DEL s");
        run(&mut adder, "SET s string");
        run(&mut adder, "DEL s");
        run(&mut adder, "XADD s 5-0 field value");
        run(&mut adder, "XADD s 5-1 field value");
        assert_eq!(reader.receive(), entry("s", "5-1"));

        let mut consumer = {
            run(&mut adder, "XGROUP CREATE s g $");
            waiter(&server, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >")
        };
        run(&mut adder, "RENAME s t");
        let told = consumer.receive();
        assert!(
            told.is_error() && format!("{told:?}").contains("no longer exists"),
            "{told:?}"
        );
    }
}

/// Whoever names so many keys that they take long to look at waits like everyone else.
#[test]
fn many_keys_are_waited_for() {
    for server in servers() {
        let keys: Vec<String> = (0..30_000).map(|number| format!("key{number}")).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let mut client = server.client();
        let started = Instant::now();
        let call = [&["BLPOP"][..], &keys, &["0.1"]].concat();
        client.send(&call);
        assert_eq!(client.receive(), Value::NullArray);
        let ids = vec!["0"; keys.len()];
        let call = [&["XREAD", "BLOCK", "100", "STREAMS"][..], &keys, &ids].concat();
        client.send(&call);
        assert_eq!(client.receive(), Value::NullArray);
        assert!(started.elapsed() < Duration::from_secs(20));

        let call = [&["BLPOP"][..], &keys, &["0"]].concat();
        client.send(&call);
        client.flush().expect("sent");
        let mut pusher = server.client();
        let started = Instant::now();
        while figures::info(&mut pusher, "clients", "blocked_clients") == 0 {
            assert!(started.elapsed() < Duration::from_secs(20), "never waits");
            thread::sleep(Duration::from_millis(5));
        }
        run(&mut pusher, "RPUSH key29999 x");
        assert_eq!(client.receive(), words(&["key29999", "x"]));
    }
}

/// A word is an option only where an option may stand.
#[test]
fn a_group_may_be_called_streams() {
    for server in servers() {
        let mut adder = server.client();
        run(&mut adder, "XGROUP CREATE k streams $ MKSTREAM");
        let lines = [
            "XREADGROUP GROUP streams c BLOCK 0 STREAMS k >",
            "XREADGROUP COUNT 1 GROUP streams streams BLOCK 0 STREAMS k >",
        ];
        for (number, line) in lines.into_iter().enumerate() {
            let mut consumer = waiter(&server, line);
            run(&mut adder, &format!("XADD k {}-0 field value", number + 1));
            assert_eq!(consumer.receive(), entry("k", &format!("{}-0", number + 1)));
        }
    }
}

/// Who reads for a group cannot do without the stream, and expects nothing but what is added.
#[test]
fn a_group_is_told_when_its_stream_goes_and_of_nothing_that_was_there() {
    for server in servers() {
        let mut client = server.client();
        run(&mut client, "XADD stream 1-0 field value");
        run(&mut client, "XGROUP CREATE stream group $");
        let read = "XREADGROUP GROUP group consumer BLOCK 0 STREAMS stream >";
        let mut reader = waiter(&server, read);
        run(&mut client, "XGROUP SETID stream group 0");
        run(&mut client, "XGROUP CREATECONSUMER stream group other");
        assert_eq!(figures::info(&mut client, "clients", "blocked_clients"), 1);
        run(&mut client, "XADD stream 2-0 field value");
        let entries = reader.receive();
        let entries = &entries.items().expect("streams")[0].items().expect("a key")[1];
        assert_eq!(entries.items().map(<[Value]>::len), Some(2));
        let gone = Value::Error("UNBLOCKED the stream key no longer exists".into());
        for line in ["PEXPIRE stream 30", "DEL stream", "SET stream text"] {
            client.line("XGROUP CREATE stream group $ MKSTREAM");
            let mut reader = waiter(&server, read);
            run(&mut client, line);
            assert_eq!(reader.receive(), gone, "{line}");
        }
    }
}
