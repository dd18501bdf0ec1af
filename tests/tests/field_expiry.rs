//! Fields of hashes that are due, very many of them or without end: what is seen of that from outside.

use std::thread;
use std::time::{Duration, Instant};

use cairn_tests::client::Client;
use cairn_tests::server::Server;
use cairn_tests::value::Value;

/// A number that INFO tells.
fn info(client: &mut Client, field: &str) -> u64 {
    let report = client.line("INFO everything");
    let report = String::from_utf8_lossy(report.as_bytes().expect("text"));
    let line = report.lines().find_map(|line| line.strip_prefix(field));
    let number = line.and_then(|line| line.strip_prefix(':')?.parse().ok());
    number.unwrap_or_else(|| panic!("INFO tells no {field}"))
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// Sets fields that expire after so many milliseconds.
fn set_fields(client: &mut Client, numbers: std::ops::Range<u64>, ms: u64) {
    for start in numbers.clone().step_by(1000) {
        let names: Vec<String> = (start..numbers.end.min(start + 1000))
            .map(|number| format!("field:{number}"))
            .collect();
        let pairs: Vec<String> = names.iter().map(|name| format!("{name} value")).collect();
        let count = names.len();
        let commands = [
            words(&format!("HSET hash {}", pairs.join(" "))),
            words(&format!(
                "HPEXPIRE hash {ms} FIELDS {count} {}",
                names.join(" ")
            )),
        ];
        let replies = client.pipeline(&commands).expect("replies");
        assert_eq!(replies[0], Value::Int(count as i64));
    }
}

fn wait_until(mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(30));
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_is_due_and_what_has_gone_is_told() {
    let server = Server::cairn(&[]);
    let mut client = server.client();
    assert_eq!(client.line("DEBUG SET-ACTIVE-EXPIRE 0"), Value::ok());
    set_fields(&mut client, 0..100, 20);
    client.line("HSET hash kept value");
    assert_eq!(info(&mut client, "reclaim_expiry_lag_ms"), 0);
    thread::sleep(Duration::from_millis(150));
    assert_eq!(client.line("HLEN hash"), Value::Int(1));
    // They are not gone yet, and no key is due.
    let lag = info(&mut client, "reclaim_expiry_lag_ms");
    assert!((100..30_000).contains(&lag), "{lag}");
    assert_eq!(info(&mut client, "reclaim_expired_keys"), 0);
    assert_eq!(info(&mut client, "expired_subkeys"), 0);

    assert_eq!(client.line("DEBUG SET-ACTIVE-EXPIRE 1"), Value::ok());
    wait_until(|| info(&mut client, "expired_subkeys") == 100);
    assert_eq!(info(&mut client, "reclaim_deleted_expired_fields"), 100);
    assert_eq!(info(&mut client, "expired_keys"), 0);
    wait_until(|| info(&mut client, "reclaim_expiry_lag_ms") == 0);

    // The statistics begin anew; what the reclaimer tells does not.
    assert_eq!(client.line("CONFIG RESETSTAT"), Value::ok());
    assert_eq!(info(&mut client, "expired_subkeys"), 0);
    assert_eq!(info(&mut client, "reclaim_deleted_expired_fields"), 100);
    set_fields(&mut client, 0..1, 1);
    wait_until(|| info(&mut client, "expired_subkeys") == 1);
}

/// Somebody writes to the hash all the time: what is due goes as fast as new fields come.
#[test]
fn a_hash_that_is_written_to_without_pause_does_not_grow() {
    let server = Server::cairn(&[]);
    let mut client = server.client();
    let (rate, ms) = (4_000, 100);
    let started = Instant::now();
    let mut set = 0;
    let mut most_overdue = 0;
    while started.elapsed() < Duration::from_secs(4) {
        let due = started.elapsed().as_millis() as u64 * rate / 1000;
        set_fields(&mut client, set..due.max(set), ms);
        set = set.max(due);
        if set % 8 == 0 {
            let gone = info(&mut client, "expired_subkeys");
            let live = client.line("HLEN hash").as_int().expect("a number") as u64;
            most_overdue = most_overdue.max(set - gone - live);
        }
    }
    assert!(set > 2 * rate, "only {set} were set");
    println!("{set} fields, at most {most_overdue} of them overdue");
    assert!(most_overdue < rate, "{most_overdue} of {set} were overdue");
}

/// All of them are in memory still, and a walk has to look at them: not on a connection's thread.
#[test]
fn walks_over_very_many_fields_that_are_due_hold_up_nobody() {
    let server = Server::cairn(&["--threads", "1"]);
    let mut client = server.client();
    assert_eq!(client.line("DEBUG SET-ACTIVE-EXPIRE 0"), Value::ok());
    assert_eq!(client.line("HSET hash kept value"), Value::Int(1));
    set_fields(&mut client, 0..150_000, 1);
    let asks = [
        "HLEN hash",
        "HGETALL hash",
        "HRANDFIELD hash",
        "HRANDFIELD hash 5",
        "HMGET hash kept field:1",
        "HSCAN hash 0 COUNT 10",
        "OBJECT ENCODING hash",
        "DUMP hash",
    ];
    for ask in asks {
        let mut other = server.client();
        let (mut slowest, mut pings) = (Duration::ZERO, 0);
        thread::scope(|scope| {
            let asker = scope.spawn(|| server.client().line(ask));
            while pings < 20 || !asker.is_finished() {
                let asked = Instant::now();
                other.line("PING");
                slowest = slowest.max(asked.elapsed());
                pings += 1;
            }
            asker.join().expect("a reply");
        });
        println!("{ask}: the slowest of {pings} PINGs took {slowest:?}");
        assert!(slowest < Duration::from_millis(200), "{ask}: {slowest:?}");
    }
}
