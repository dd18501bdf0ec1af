//! `maxmemory`: what goes, what stays, and how much there is.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use cairn_tests::client::Client;
use cairn_tests::server::{Server, cairn_binary};
use cairn_tests::value::Value;
use fastrand::Rng;

const MIB: u64 = 1 << 20;

fn figure(client: &mut Client, name: &str) -> i64 {
    let report = client.line("INFO everything").text();
    figure_in(&report, name)
}

fn figure_in(report: &str, name: &str) -> i64 {
    let prefix = format!("{name}:");
    let line = report.lines().find_map(|line| line.strip_prefix(&prefix));
    line.and_then(|figure| figure.parse().ok())
        .unwrap_or_else(|| panic!("no {name} in INFO"))
}

fn data(client: &mut Client) -> u64 {
    figure(client, "data_bytes") as u64
}

/// Sets the limit so that there is room for so much data.
fn leave_room(client: &mut Client, bytes: u64) {
    let report = client.line("INFO memory").text();
    let figure = |name| figure_in(&report, name);
    // What `maxmemory` is compared with, without the data.
    let used = figure("used_memory") - figure("mem_not_counted_for_evict");
    let beside = used - figure("data_bytes");
    let limit = u64::try_from(beside).expect("something") + bytes;
    assert_eq!(
        client.line(&format!("CONFIG SET maxmemory {limit}")),
        Value::ok()
    );
}

fn policy(client: &mut Client, policy: &str) {
    let set = format!("CONFIG SET maxmemory-policy {policy}");
    assert_eq!(client.line(&set), Value::ok());
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

fn run(client: &mut Client, lines: impl Iterator<Item = String>) -> Vec<Value> {
    let commands: Vec<Vec<String>> = lines.map(|line| words(&line)).collect();
    let mut replies = Vec::new();
    for some in commands.chunks(500) {
        replies.extend(client.pipeline(some).expect("replies"));
    }
    replies
}

fn count_existing(client: &mut Client, names: impl Iterator<Item = String>) -> usize {
    let replies = run(client, names.map(|name| format!("EXISTS {name}")));
    replies
        .iter()
        .filter(|reply| **reply == Value::Int(1))
        .count()
}

fn check(dir: &Path) {
    let checked = Command::new(cairn_binary())
        .args(["check", "--dir"])
        .arg(dir)
        .output()
        .expect("a check");
    let told = String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success(), "{told}");
}

/// Far more than there is room for is written, while a hot set is read: that stays, and the data keeps to its limit.
#[test]
fn what_is_used_stays_and_the_rest_makes_room() {
    let mut server = Server::cairn(&["--memory", "64mb"]);
    let mut client = server.client();
    policy(&mut client, "allkeys-lru");
    let value = "v".repeat(1000);
    let set = |name: String| format!("SET {name} {value}");
    let hot = || (0..500).map(|number| format!("hot:{number}"));
    run(&mut client, hot().map(set));
    leave_room(&mut client, 8 * MIB);
    let mut most = 0;
    for round in 0..20 {
        let cold = (0..1000).map(|number| format!("cold:{round}:{number}"));
        run(&mut client, cold.map(set));
        run(&mut client, hot().map(|name| format!("GET {name}")));
        most = most.max(data(&mut client));
        // Times are told apart by seconds, in which no more than a quarter of all may come.
        if round % 2 == 1 {
            thread::sleep(Duration::from_millis(1100));
        }
    }
    let kept = count_existing(&mut client, hot());
    let evicted = figure(&mut client, "evicted_keys");
    println!("{kept} of 500 kept, {evicted} evicted, at most {most} bytes");
    assert!(kept >= 450, "{kept} of 500");
    assert!(evicted > 10_000, "{evicted}");
    assert!(most < 10 * MIB, "{most}");
    let keys = client.line("DBSIZE").as_int().expect("a number");
    assert!(keys > 5000, "{keys} left: more went than had to");

    // It is known again after a start.
    let before = data(&mut client);
    let limit = client.line("CONFIG GET maxmemory").items().expect("a pair")[1].text();
    server.terminate();
    check(server.dir());
    server.start();
    let mut client = server.client();
    policy(&mut client, "allkeys-lru");
    client.line(&format!("CONFIG SET maxmemory {limit}"));
    let until = Instant::now() + Duration::from_secs(20);
    while data(&mut client).abs_diff(before) > before / 20 {
        let now = data(&mut client);
        assert!(Instant::now() < until, "{now} instead of {before}");
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn persistent_keys_stay_under_volatile_policies() {
    let server = Server::cairn(&["--memory", "64mb"]);
    let mut client = server.client();
    let value = "v".repeat(1000);
    for name in [
        "volatile-lru",
        "volatile-lfu",
        "volatile-random",
        "volatile-ttl",
    ] {
        client.line("CONFIG SET maxmemory 0");
        client.line("FLUSHALL");
        policy(&mut client, name);
        run(
            &mut client,
            (0..1000).map(|number| format!("SET kept:{number} {value}")),
        );
        leave_room(&mut client, 2 * MIB);
        run(
            &mut client,
            (0..5000).map(|number| format!("SET due:{number} {value} EX {}", 1000 + number)),
        );
        let kept = count_existing(
            &mut client,
            (0..1000).map(|number| format!("kept:{number}")),
        );
        assert_eq!(kept, 1000, "{name}");
        let due: Vec<u32> = (0..5000)
            .filter(|number| {
                count_existing(&mut client, [format!("due:{number}")].into_iter()) == 1
            })
            .collect();
        assert!((200..1200).contains(&due.len()), "{name}: {}", due.len());
        if name == "volatile-ttl" {
            let late = due.iter().filter(|number| **number >= 3000).count();
            assert!(late * 10 >= due.len() * 9, "{late} of {}", due.len());
        }
        // Nothing more can go when only persistent keys are left. A command that has waited for a second runs, and others
        // evict.
        client.line("CONFIG SET maxmemory 1");
        let until = Instant::now() + Duration::from_secs(10);
        while !client.line("SET new value").is_error() {
            assert_eq!(client.line("DEL new"), Value::Int(1));
            assert!(Instant::now() < until, "{name}");
        }
        let refused = client.error_of("SET new value");
        assert!(refused.starts_with("OOM"), "{name}: {refused}");
        let kept = count_existing(
            &mut client,
            (0..1000).map(|number| format!("kept:{number}")),
        );
        assert_eq!(kept, 1000, "{name}");
        assert_eq!(client.line("DBSIZE"), Value::Int(1000), "{name}");
    }
}

#[test]
fn what_is_used_often_stays() {
    let server = Server::cairn(&["--memory", "64mb"]);
    let mut client = server.client();
    policy(&mut client, "allkeys-lfu");
    let value = "v".repeat(1000);
    let hot = || (0..200).map(|number| format!("hot:{number}"));
    run(&mut client, hot().map(|name| format!("SET {name} {value}")));
    for _ in 0..200 {
        run(&mut client, hot().map(|name| format!("GET {name}")));
    }
    let often = client.line("OBJECT FREQ hot:7").as_int().expect("a number");
    assert!(often > 6, "{often}");
    leave_room(&mut client, 2 * MIB);
    run(
        &mut client,
        (0..10_000).map(|number| format!("SET cold:{number} {value}")),
    );
    // By chance it would be some 40.
    let kept = count_existing(&mut client, hot());
    assert!(kept >= 190, "{kept} of 200");
}

#[test]
fn without_eviction_what_grows_is_refused_and_what_shrinks_is_not() {
    let server = Server::cairn(&["--memory", "64mb"]);
    let mut client = server.client();
    leave_room(&mut client, MIB);
    let value = "v".repeat(10_000);
    let replies = run(
        &mut client,
        (0..500).map(|number| format!("SET key:{number} {value}")),
    );
    let done = replies
        .iter()
        .filter(|reply| **reply == Value::ok())
        .count();
    let oom = "OOM command not allowed when used memory > 'maxmemory'.";
    assert_eq!(replies.last(), Some(&Value::error(oom)));
    assert!((80..320).contains(&done), "{done}");
    assert_eq!(figure(&mut client, "evicted_keys"), 0);
    assert_eq!(client.line("GET key:0"), Value::bulk(&value));
    // What came in one piece may have gone beyond the limit together.
    for (number, reply) in replies.iter().enumerate() {
        if *reply == Value::ok() {
            assert_eq!(client.line(&format!("DEL key:{number}")), Value::Int(1));
        }
    }
    assert_eq!(client.line("SET again value"), Value::ok());
    assert_eq!(client.line("FLUSHALL"), Value::ok());
    assert!(data(&mut client) < 1000);
}

/// A limit far below what there is: it is evicted at once, in every database, and collections go as a whole.
#[test]
fn a_lower_limit_is_kept_to_at_once() {
    let server = Server::cairn(&["--memory", "64mb"]);
    let mut client = server.client();
    policy(&mut client, "allkeys-random");
    // Measured from the beginning, since there will be more than can be counted at once.
    assert_eq!(client.line("CONFIG SET maxmemory 1000gb"), Value::ok());
    let fields: String = (0..200)
        .map(|field| format!(" field:{field} value"))
        .collect();
    for database in [0, 3] {
        client.line(&format!("SELECT {database}"));
        run(
            &mut client,
            (0..300).map(|number| format!("HSET hash:{number}{fields}")),
        );
    }
    let before = data(&mut client);
    assert!(before > 4 * MIB, "{before}");
    leave_room(&mut client, before / 4);
    let until = Instant::now() + Duration::from_secs(10);
    while data(&mut client) > before / 4 {
        assert!(Instant::now() < until, "{}", data(&mut client));
    }
    let left = data(&mut client);
    assert!(
        left > before / 8,
        "{left} of {before}: more went than had to"
    );
    // A quarter of 600, in both databases together: the hand goes through one of them first.
    let keys = [0, 3].map(|database| {
        client.line(&format!("SELECT {database}"));
        client.line("DBSIZE").as_int().expect("a number")
    });
    let all = keys.iter().sum::<i64>();
    assert!((100..=170).contains(&all), "{keys:?}");
}

/// What followers of keys are told: the event, and that a copy is outdated, before the next reply.
#[test]
fn clients_are_told_what_has_gone() {
    let server = Server::cairn(&[]);
    let (mut client, mut listener, mut tracker) =
        (server.client(), server.client(), server.client());
    client.line("CONFIG SET notify-keyspace-events Ee");
    policy(&mut client, "allkeys-lru");
    listener.line("SUBSCRIBE __keyevent@0__:evicted");
    tracker.resp3();
    tracker.line("CLIENT TRACKING on");
    client.line("SET foo bar");
    tracker.line("GET foo");
    client.line("WATCH foo");
    client.line("MULTI");
    assert_eq!(server.client().line("CONFIG SET maxmemory 1"), Value::ok());
    let told = listener.receive();
    assert_eq!(told.items().expect("a message")[2], Value::bulk("foo"));
    let told = tracker.receive();
    assert!(format!("{told:?}").contains("invalidate"), "{told:?}");
    assert_eq!(server.client().line("CONFIG SET maxmemory 0"), Value::ok());
    client.line("PING");
    assert!(client.line("EXEC").is_null(), "what was watched has gone");
}

/// Nothing is lost but what was evicted, whenever the process ends.
#[test]
fn nothing_else_is_lost_by_a_crash() {
    let mut server = Server::cairn(&["--memory", "64mb", "--sync", "always"]);
    let mut client = server.client();
    policy(&mut client, "volatile-lru");
    let value = "v".repeat(500);
    run(
        &mut client,
        (0..500).map(|number| format!("SET kept:{number} {value}")),
    );
    leave_room(&mut client, MIB);
    for round in 0..3 {
        let mut writer = server.client();
        let value = value.clone();
        let writing = thread::spawn(move || {
            for number in 0.. {
                let set = format!("SET due:{round}:{number} {value} EX 1000");
                if writer.try_command(&words(&set)).is_err() {
                    return;
                }
            }
        });
        thread::sleep(Duration::from_millis(400));
        server.kill9();
        writing.join().expect("the writer");
        check(server.dir());
        server.start();
        let mut client = server.client();
        let kept = count_existing(&mut client, (0..500).map(|number| format!("kept:{number}")));
        assert_eq!(kept, 500);
        policy(&mut client, "volatile-lru");
        leave_room(&mut client, MIB);
    }
}

/// One command of many kinds on few keys.
fn any_command(random: &mut Rng) -> String {
    let kind = random.usize(..7);
    let (one, other) = (random.u8(..4), random.u8(..4));
    let key = format!("{kind}:{one}");
    let long = "x".repeat(random.usize(1..400));
    // So few that none is guessed.
    let element = format!("e{}", random.u32(..30));
    let member = "m".repeat(random.usize(1..30));
    let number = random.u32(..100);
    let common = random.usize(..14);
    match common {
        0 => return format!("DEL {key}"),
        1 => return format!("EXPIRE {key} {}", 1000 + number),
        2 => return format!("PERSIST {key}"),
        3 => return format!("RENAME {key} {kind}:{other}"),
        4 => return format!("COPY {key} {kind}:{other} REPLACE"),
        _ => {}
    }
    let choice = random.usize(..6);
    match (kind, choice) {
        (0, 0 | 1) => format!("SET {key} {long}"),
        (0, 2) => format!("APPEND {key} {long}"),
        (0, 3) => format!("SETRANGE {key} {} {long}", random.u32(..60_000)),
        (0, 4) => format!("SETBIT {key} {} 1", random.u32(..400_000)),
        (0, _) => format!("SET {key} {long} PX {}", 1_000_000 + number),
        (1, 0..4) => format!("HSET {key} {element} {long}"),
        (1, 4) => format!("HDEL {key} {element}"),
        (1, _) => format!("SET {key} {long}"),
        (2, 0..2) => format!("RPUSH {key} {element} {long}"),
        (2, 2) => format!("LPUSH {key} {element} {long} {element}"),
        (2, 3) => format!("LPOP {key}"),
        (2, 4) => format!("LTRIM {key} {} 20", number % 3),
        (2, _) => format!("LREM {key} 1 {element}"),
        (3, 0..4) => format!("SADD {key} {element} {member}"),
        (3, 4) => format!("SPOP {key} 2"),
        (3, _) => format!("SUNIONSTORE {key} 3:0 3:1 3:2"),
        (4, 0..4) => format!("ZADD {key} {number} {element} {number} {member}"),
        (4, 4) => format!("ZREMRANGEBYRANK {key} 0 1"),
        (4, _) => format!("ZUNIONSTORE {key} 2 4:0 4:1"),
        (5, 0..4) => format!("XADD {key} MAXLEN 20 * field {long}"),
        (5, 4) => format!("XTRIM {key} MAXLEN 5"),
        (5, _) => format!("XADD {key} * field {element}"),
        (_, 0..3) => format!("PFADD {key} {element} {long}"),
        (_, 3) => format!("INCR n:{one}"),
        (_, 4) => format!("LINSERT 2:{one} BEFORE {element} {long}"),
        _ => format!("LSET 2:{one} 0 {long}"),
    }
}

/// Whatever is done, the sum that is kept is what a count of all rows finds.
#[test]
fn the_sum_that_is_kept_is_what_there_is() {
    let server = Server::cairn(&["--memory", "64mb"]);
    let mut client = server.client();
    for seed in 0..8 {
        let mut random = Rng::with_seed(seed);
        assert_eq!(client.line("CONFIG SET maxmemory 1000gb"), Value::ok());
        for _ in 0..20 {
            let commands = (0..50).map(|_| any_command(&mut random));
            run(&mut client, commands.collect::<Vec<_>>().into_iter());
        }
        if seed == 4 {
            client.line("SELECT 1");
            client.line("SET elsewhere value");
            client.line("SWAPDB 0 1");
            client.line("FLUSHDB");
            client.line("SELECT 0");
        }
        let kept = data(&mut client);
        client.line("CONFIG SET maxmemory 0");
        let counted = data(&mut client);
        println!("seed {seed}: {kept} kept, {counted} counted");
        // A plain SET leaves behind when the key would have expired, which is not counted.
        let off = kept.abs_diff(counted);
        assert!(
            off <= counted / 50 + 1000,
            "seed {seed}: {kept}, and {counted} counted"
        );
    }
}

/// Of a large collection that dies some elements stand for all.
#[test]
fn a_large_collection_that_is_deleted_is_known_nearly() {
    let server = Server::cairn(&["--memory", "64mb"]);
    let mut client = server.client();
    assert_eq!(client.line("CONFIG SET maxmemory 1000gb"), Value::ok());
    let commands = (0..2000).map(|number| {
        let value = "v".repeat(number * 37 % 100);
        format!("HSET large field:{number} {value}")
    });
    run(&mut client, commands);
    run(
        &mut client,
        (0..1000).map(|number| format!("RPUSH list {number}")),
    );
    let before = data(&mut client);
    assert!(before > 200_000, "{before}");
    assert_eq!(client.line("DEL large"), Value::Int(1));
    assert_eq!(client.line("LTRIM list 900 -1"), Value::ok());
    let left = data(&mut client);
    client.line("CONFIG SET maxmemory 0");
    let counted = data(&mut client);
    assert!(
        left.abs_diff(counted) < before / 10,
        "{left}, and {counted} counted"
    );
}
