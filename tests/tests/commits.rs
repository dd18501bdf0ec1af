//! Replies and the commits they rest on: in order, never ahead of them, and true when one fails.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cairn_tests::client::Client;
use cairn_tests::disk::SmallDisk;
use cairn_tests::server::{Launch, Server};
use cairn_tests::value::Value;

fn words(line: &str) -> Vec<Vec<u8>> {
    line.split_whitespace().map(|word| word.into()).collect()
}

/// A key that others hold the latch of cuts a pipeline in two turns, and with `--sync always` the first
/// waits for the disk. A read takes no latch: it must still find what its own client wrote before.
#[test]
fn a_pipeline_reads_its_own_writes_across_a_contended_latch() {
    let server = Server::cairn(&["--sync", "always", "--threads", "2"]);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..4 {
            let (server, stop) = (&server, &stop);
            scope.spawn(move || {
                let mut client = server.client();
                let load = vec![words(&format!("SADD hot member:{number}")); 20];
                while !stop.load(Ordering::Relaxed) {
                    client.pipeline(&load).expect("replies");
                }
            });
        }
        // Connections are dealt out to the threads in turn: these two are not served by the same one.
        for name in ["first", "second"] {
            let (server, stop) = (&server, &stop);
            scope.spawn(move || {
                let mut client = server.client();
                for round in 0..300 {
                    let replies = client.pipeline(&[
                        words(&format!("SET {name} {round}")),
                        words(&format!("SADD hot {name}:{round}")),
                        words(&format!("GET {name}")),
                        words(&format!("SREM hot {name}:{round}")),
                        words(&format!("STRLEN {name}")),
                    ]);
                    let length = i64::try_from(round.to_string().len()).expect("a small number");
                    let expected = [
                        Value::ok(),
                        Value::Int(1),
                        Value::bulk(round.to_string()),
                        Value::Int(1),
                        Value::Int(length),
                    ];
                    if replies.as_deref().ok() != Some(&expected) {
                        stop.store(true, Ordering::Relaxed);
                        panic!("round {round}: {replies:?}");
                    }
                }
                if name == "second" {
                    stop.store(true, Ordering::Relaxed);
                }
            });
        }
    });
}

/// A script has a key until it is killed.
const HOLD: &str = "while true do redis.call('GET', KEYS[1]) end";
const WAITING: usize = 40;
/// A command that was sent waits for its latch by then, or is held up by a very busy machine.
const A_WHILE: Duration = Duration::from_millis(500);

/// A number that INFO tells.
fn told(server: &Server, name: &str) -> usize {
    let info = server.client().line("INFO storage");
    let Value::Bulk(text) = info else {
        panic!("{info:?}");
    };
    let text = String::from_utf8(text).expect("text");
    let value = |line: &str| Some(line.strip_prefix(name)?.strip_prefix(':')?.to_owned());
    let value = text.lines().find_map(value);
    value.expect("it is there").parse().expect("a number")
}

/// Clients of two threads that have sent the same command, one each, while a script held the key.
fn sent_while_held(server: &Server, command: &[&str]) -> Vec<Client> {
    let mut holder = server.client();
    let mut clients: Vec<_> = (0..WAITING).map(|_| server.client()).collect();
    holder.send(&["EVAL", HOLD, "1", "hot"]);
    holder.flush().expect("it is sent");
    // It runs on a thread of its own by then.
    thread::sleep(A_WHILE);
    for client in &mut clients {
        client.send(command);
        client.flush().expect("it is sent");
    }
    thread::sleep(A_WHILE);
    assert_eq!(server.client().line("SCRIPT KILL"), Value::ok());
    let killed = holder.receive();
    assert!(matches!(killed, Value::Error(_)), "{killed:?}");
    clients
}

/// Those of a thread that wait for the same latch go on together.
#[test]
fn a_hot_key_costs_far_fewer_commits_than_commands() {
    let server = Server::cairn(&["--threads", "2"]);
    let before = told(&server, "storage_commits");
    let mut clients = sent_while_held(&server, &["INCR", "hot"]);
    let replies = clients.iter_mut().map(|client| match client.receive() {
        Value::Int(number) => number,
        other => panic!("{other:?}"),
    });
    let mut replies: Vec<i64> = replies.collect();
    replies.sort_unstable();
    assert_eq!(replies, Vec::from_iter(1..=WAITING as i64));
    // One for each of the two threads, and a few for those who came late.
    let commits = told(&server, "storage_commits") - before;
    assert!(commits <= WAITING / 4, "{commits} commits");
}

/// A command that blocks leaves the turn in which those behind it go on.
#[test]
fn who_waits_behind_a_command_that_blocks_is_served_too() {
    let server = Server::cairn(&["--threads", "2"]);
    let mut clients = sent_while_held(&server, &["BLPOP", "hot", "0"]);
    for number in 0..WAITING {
        let pushed = server.client().line(&format!("RPUSH hot {number}"));
        assert!(matches!(pushed, Value::Int(_)), "{pushed:?}");
    }
    let popped = clients.iter_mut().map(|client| {
        let reply = client.receive();
        let Value::Array(key_and_element) = &reply else {
            panic!("{reply:?}");
        };
        let Value::Bulk(element) = &key_and_element[1] else {
            panic!("{reply:?}");
        };
        String::from_utf8_lossy(element).parse().expect("a number")
    });
    let mut popped: Vec<usize> = popped.collect();
    popped.sort_unstable();
    assert_eq!(popped, Vec::from_iter(0..WAITING));
}

/// Who queues up for others, and is killed meanwhile, leaves nobody behind.
#[test]
fn those_behind_a_client_that_is_killed_go_on() {
    let server = Server::cairn(&["--threads", "1"]);
    let mut holder = server.client();
    holder.send(&["EVAL", HOLD, "1", "hot"]);
    holder.flush().expect("it is sent");
    thread::sleep(A_WHILE);
    let mut clients: Vec<_> = (0..4).map(|_| server.client()).collect();
    let id = clients[0].line("CLIENT ID");
    let Value::Int(id) = id else {
        panic!("{id:?}");
    };
    for client in &mut clients {
        client.send(&["INCR", "hot"]);
        client.flush().expect("it is sent");
        thread::sleep(A_WHILE / 4);
    }
    let killed = server.client().line(&format!("CLIENT KILL ID {id}"));
    assert_eq!(killed, Value::Int(1));
    assert_eq!(server.client().line("SCRIPT KILL"), Value::ok());
    let replies = clients[1..].iter_mut().map(Client::receive);
    let replies: Vec<Value> = replies.collect();
    assert_eq!(replies, [1, 2, 3].map(Value::Int));
}

/// Rows stay young for thirty seconds, unless there is time to move them while nobody wants anything.
#[test]
fn what_a_burst_has_written_is_moved_in_the_lull_behind_it() {
    const KEYS: usize = 3000;
    const YOUTH: Duration = Duration::from_secs(30);
    let server = Server::cairn(&["--memory", "128mb"]);
    let value = "x".repeat(1000);
    let mut client = server.client();
    let burst = Instant::now();
    for number in 0..KEYS {
        assert_eq!(
            client.line(&format!("SET key:{number} {value}")),
            Value::ok()
        );
    }
    // An eighth of the room for them is a megabyte, and half of it four.
    assert!(told(&server, "storage_young_bytes") > 3 << 20);
    while told(&server, "storage_young_bytes") > 1 << 20 {
        assert!(burst.elapsed() < YOUTH * 2 / 3, "they are still young");
        thread::sleep(Duration::from_secs(1));
    }
}

/// Writes that are too large together for one turn, with reads in between.
const ROUND: usize = 400;
const VALUE_LEN: usize = 10_000;

/// A server that runs into the wall when its disk is full, with no reserve that stops it before; and
/// the file whose removal makes room.
struct Cramped {
    server: Server,
    ballast: PathBuf,
    _disk: SmallDisk,
}

impl Cramped {
    fn start(sync: &str) -> Option<Cramped> {
        let disk = SmallDisk::mount("96m")?;
        let ballast = disk.path().join("ballast");
        fs::write(&ballast, vec![0; 40 << 20]).expect("there is room for it");
        let server = Launch::cairn()
            .flags(["--memory", "64mb", "--min-free-disk", "0"])
            .flags(["--threads", "1", "--sync", sync])
            .dir(disk.path().join("data"))
            .start();
        Some(Cramped {
            server,
            ballast,
            _disk: disk,
        })
    }
}

fn key(number: usize) -> String {
    format!("key:{number:06}")
}

fn value_of(number: usize) -> Vec<u8> {
    // Not to be compressed, but the same each time.
    let mut rng = fastrand::Rng::with_seed(number as u64);
    (0..VALUE_LEN).map(|_| rng.alphanumeric() as u8).collect()
}

/// For each write, its number and then a PING and a read of what was just written.
fn round(first: usize) -> Vec<Vec<Vec<u8>>> {
    let mut commands = Vec::new();
    for number in first..first + ROUND {
        commands.push(vec![b"SET".to_vec(), key(number).into(), value_of(number)]);
        commands.push(words("PING"));
        commands.push(words(&format!("STRLEN {}", key(number))));
    }
    commands
}

fn says_disk_full(reply: &Value) -> bool {
    let text = format!("{reply:?}");
    reply.is_error() && (text.contains("disk") || text.contains("No space left"))
}

/// Checks the replies to a round one by one; which of its writes were acknowledged.
fn judge(replies: &[Value]) -> Vec<bool> {
    let judge_write = |replies: &[Value]| {
        let [set, ping, length] = replies else {
            panic!("three replies expected: {replies:?}");
        };
        assert_eq!(
            *ping,
            Value::Simple(b"PONG".to_vec()),
            "it rests on no commit"
        );
        if *set == Value::ok() {
            assert_eq!(*length, Value::Int(VALUE_LEN as i64));
            return true;
        }
        assert!(says_disk_full(set), "{set:?}");
        assert!(
            says_disk_full(length) || *length == Value::Int(0),
            "{length:?}"
        );
        false
    };
    replies.chunks(3).map(judge_write).collect()
}

fn assert_holds_exactly(client: &mut Client, acknowledged: &[bool]) {
    for (number, is_there) in acknowledged.iter().enumerate() {
        let expected = if *is_there {
            Value::Bulk(value_of(number))
        } else {
            Value::Null
        };
        let found = client.command(&["GET", &key(number)]);
        assert!(found == expected, "{}: {is_there}", key(number));
    }
}

#[test]
fn a_commit_that_fails_is_answered_with_errors_and_later_ones_succeed() {
    fills_up_and_recovers("everysec");
}

/// A record that does not fit is cut off the journal again: nothing of it was synced.
#[test]
fn so_is_one_that_would_have_been_synced() {
    fills_up_and_recovers("always");
}

fn fills_up_and_recovers(sync: &'static str) {
    let Some(mut cramped) = Cramped::start(sync) else {
        return;
    };
    let mut client = cramped.server.client();
    let mut acknowledged = Vec::new();
    while acknowledged.last() != Some(&false) {
        assert!(acknowledged.len() < 20_000, "the disk does not fill up");
        let replies = client.pipeline(&round(acknowledged.len()));
        acknowledged.extend(judge(&replies.expect("a reply to each command")));
    }
    let refused = acknowledged.iter().filter(|write| !**write).count();
    println!("{refused} of {} writes refused", acknowledged.len());
    assert!(acknowledged[0]);

    // What rests on no commit, or on another one, is answered as ever: before the write that fails, and
    // after one so large that it ends its turn.
    let large = "x".repeat(2 << 20);
    let first = Value::Int(VALUE_LEN as i64);
    let strlen = words(&format!("STRLEN {}", key(0)));
    let mut set_large = words("SET large");
    set_large.push(large.into());
    let replies = client
        .pipeline(&[
            strlen.clone(),
            words("SET small value"),
            words("PING"),
            set_large,
            strlen,
            words("EXISTS large small"),
        ])
        .expect("a reply to each command");
    assert_eq!(replies[0], first);
    // There may be room for a small one; and for a large one, if RocksDB has cleared something away meanwhile.
    let is_there = |reply: &Value| {
        assert!(*reply == Value::ok() || says_disk_full(reply), "{reply:?}");
        i64::from(*reply == Value::ok())
    };
    assert_eq!(replies[2], Value::Simple(b"PONG".to_vec()));
    let there = is_there(&replies[1]) + is_there(&replies[3]);
    assert_eq!(replies[4..], [first, Value::Int(there)]);

    // The log is to be synced every second, and cannot be: that is no reason to end.
    thread::sleep(Duration::from_millis(1500));
    fs::remove_file(&cramped.ballast).expect("the ballast is there");
    let started = Instant::now();
    while client.line("SET again yes") != Value::ok() {
        let waited = started.elapsed();
        assert!(waited < Duration::from_secs(20), "there is room again");
        thread::sleep(Duration::from_millis(50));
    }
    assert_holds_exactly(&mut client, &acknowledged);
    // RocksDB may notice a little later than the journal that there is room.
    loop {
        let replies = client.pipeline(&round(acknowledged.len()));
        let more = judge(&replies.expect("a reply to each command"));
        let work_again = more.iter().all(|is_there| *is_there);
        acknowledged.extend(more);
        if work_again {
            break;
        }
        assert!(
            started.elapsed() < Duration::from_secs(20),
            "writes work again"
        );
        thread::sleep(Duration::from_millis(50));
    }
    cramped.server.restart();
    assert_holds_exactly(&mut cramped.server.client(), &acknowledged);
}
