//! Very many keys that are due at once.

use std::thread;
use std::time::{Duration, Instant};

use cairn_tests::client::Client;
use cairn_tests::server::Server;
use cairn_tests::value::Value;

/// `CAIRN_TEST_EXPIRING` asks for another number of keys.
fn number_of_keys() -> u64 {
    let given = std::env::var("CAIRN_TEST_EXPIRING");
    given.map_or(200_000, |text| text.parse().expect("a number of keys"))
}

fn expired_keys(client: &mut Client) -> u64 {
    let report = client.line("INFO stats");
    let report = String::from_utf8_lossy(report.as_bytes().expect("text"));
    let line = report
        .lines()
        .find_map(|line| line.strip_prefix("expired_keys:"));
    line.and_then(|count| count.parse().ok())
        .expect("a count of expired keys")
}

fn load(client: &mut Client, keys: u64) {
    for start in (0..keys).step_by(5000) {
        let numbers = start..keys.min(start + 5000);
        let commands: Vec<Vec<String>> = numbers
            .map(|number| format!("SET due:{number} value PX 100"))
            .map(|line| line.split(' ').map(str::to_owned).collect())
            .collect();
        let replies = client.pipeline(&commands).expect("replies");
        assert!(replies.iter().all(|reply| *reply == Value::ok()));
    }
}

/// They go in seconds, the last as fast as the first, and nobody waits for it.
#[test]
fn keys_that_are_due_at_once_go_at_a_steady_rate() {
    let keys = number_of_keys();
    // Enough that nothing is written out meanwhile: what was deleted then lies in the way the longest.
    let server = Server::cairn(&["--memory", "1gb"]);
    let mut client = server.client();
    assert_eq!(client.line("DEBUG SET-ACTIVE-EXPIRE 0"), Value::ok());
    load(&mut client, keys);
    thread::sleep(Duration::from_millis(110));
    assert_eq!(client.line("DBSIZE"), Value::Int(0), "hidden at once");
    assert_eq!(expired_keys(&mut client), 0);

    assert_eq!(client.line("DEBUG SET-ACTIVE-EXPIRE 1"), Value::ok());
    let started = Instant::now();
    let mut slowest_ping = Duration::ZERO;
    let mut quarters = Vec::new();
    while quarters.len() < 4 {
        let asked = Instant::now();
        assert_eq!(client.line("PING"), Value::Simple(b"PONG".to_vec()));
        slowest_ping = slowest_ping.max(asked.elapsed());
        let reached = expired_keys(&mut client) * 4 / keys;
        while (quarters.len() as u64) < reached {
            quarters.push(started.elapsed());
        }
        assert!(started.elapsed() < Duration::from_secs(60), "{quarters:?}");
        thread::sleep(Duration::from_millis(2));
    }
    println!("{keys} keys gone, by quarters: {quarters:?}; slowest PING: {slowest_ping:?}");
    assert_eq!(expired_keys(&mut client), keys);
    let (first, last) = (quarters[0], quarters[3] - quarters[2]);
    assert!(last < first * 2 + Duration::from_millis(500));
    assert!(slowest_ping < Duration::from_millis(500));
}
