//! Commands that answer with millions of elements, or pass over them: from bounded memory, and without
//! holding up anybody.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cairn_tests::client::{Client, encode};
use cairn_tests::figures;
use cairn_tests::server::Server;
use cairn_tests::value::Value;

/// `CAIRN_TEST_ELEMENTS` asks for another number of elements.
fn number_of_elements() -> usize {
    let given = std::env::var("CAIRN_TEST_ELEMENTS");
    given.map_or(300_000, |text| text.parse().expect("a number of elements"))
}

fn fill(client: &mut Client, elements: usize) {
    let mut load = |head: &str, element: &dyn Fn(usize) -> String| {
        for start in (0..elements).step_by(2000) {
            let numbers = start..elements.min(start + 2000);
            let words: Vec<String> = numbers.map(element).collect();
            let line = format!("{head} {}", words.join(" "));
            assert!(!client.line(&line).is_error(), "{head}");
        }
    };
    load("ZADD zset", &|n| {
        format!("{} member:{n:08}", n * 7919 % 1000)
    });
    load("ZADD other", &|n| format!("{n} member:{:08}", n * 2));
    load("HSET hash", &|n| format!("member:{n:08} value"));
    load("SADD set", &|n| format!("member:{n:08}"));
}

/// Sends a command and throws its reply away as it comes; how many bytes it had.
fn drain(server: &Server, command: &str) -> usize {
    let mut socket = TcpStream::connect(server.addr()).expect("a connection");
    let mut request = Vec::new();
    encode(&command.split(' ').collect::<Vec<_>>(), &mut request);
    // What follows the reply marks its end.
    encode(&["ECHO", "the end of the reply"], &mut request);
    socket.write_all(&request).expect("sent");
    let (mut piece, mut tail, mut count) = (vec![0; 1 << 16], Vec::new(), 0);
    let mark = b"$20\r\nthe end of the reply\r\n";
    while !tail.ends_with(mark) {
        let read = socket.read(&mut piece).expect("the reply goes on");
        assert!(read > 0, "{command}: the reply broke off");
        count += read;
        tail.extend_from_slice(&piece[..read]);
        tail.drain(..tail.len().saturating_sub(mark.len()));
    }
    count - mark.len()
}

/// Runs a command while another client of the same thread asks for little things, and checks how long
/// that one waits and how much memory the server takes.
fn run_beside_others(server: &Server, command: &str, least_bytes: usize, most_mib: u64) {
    let pid = server.pid().expect("the server runs");
    let before = figures::resident(pid) / 1024;
    let is_done = AtomicBool::new(false);
    let (mut slowest, mut most) = (Duration::ZERO, before);
    thread::scope(|scope| {
        let drained = scope.spawn(|| {
            let started = Instant::now();
            let count = drain(server, command);
            is_done.store(true, Ordering::Relaxed);
            (count, started.elapsed())
        });
        let mut client = server.client();
        while !is_done.load(Ordering::Relaxed) && !drained.is_finished() {
            let asked = Instant::now();
            assert_eq!(client.line("ECHO x"), Value::bulk("x"));
            slowest = slowest.max(asked.elapsed());
            most = most.max(figures::resident(pid) / 1024);
            thread::sleep(Duration::from_millis(1));
        }
        let (count, took) = drained.join().expect("a whole reply");
        let grown = most.saturating_sub(before) / 1024;
        println!(
            "{command}: {count} bytes in {took:?}; others waited {slowest:?}; {grown} MiB more"
        );
        assert!(count >= least_bytes, "{command}: {count} bytes");
        assert!(
            slowest < Duration::from_millis(500),
            "{command}: others waited {slowest:?}"
        );
        assert!(grown < most_mib, "{command}: {grown} MiB more");
    });
}

#[test]
fn whole_collections_are_answered_from_bounded_memory() {
    let elements = number_of_elements();
    let server = Server::cairn(&["--memory", "128mb", "--threads", "1"]);
    fill(&mut server.client(), elements);
    let names = elements * "$15\r\nmember:00000000\r\n".len();
    // A first walk fills the block cache, which is no part of what is looked for.
    for command in [
        "HGETALL hash",
        "SMEMBERS set",
        "ZRANGE zset 0 -1",
        "ZRANGE other 0 -1",
    ] {
        drain(&server, command);
    }
    drain(&server, "ZUNIONSTORE spare 1 zset");
    let huge = elements * 10;
    for (command, least_bytes) in [
        ("ZUNION 2 zset other WITHSCORES".to_owned(), names * 3 / 2),
        ("ZINTER 2 zset other".to_owned(), names / 3),
        ("ZDIFF 2 zset other".to_owned(), names / 3),
        (format!("ZRANDMEMBER zset {}", elements - 1), names - 100),
        (format!("ZRANDMEMBER zset -{}", elements / 4), names / 5),
        (format!("HRANDFIELD hash -{}", elements / 4), names / 5),
        (format!("SRANDMEMBER set -{}", elements / 4), names / 5),
        // No more than a step's worth, whatever is asked for.
        (format!("SCAN 0 COUNT {huge}"), 10),
        (format!("HSCAN hash 0 COUNT {huge}"), 1000),
        (format!("SSCAN set 0 COUNT {huge}"), 1000),
        (format!("ZSCAN zset 0 COUNT {huge}"), 1000),
        (format!("ZPOPMIN zset {}", elements / 5), names / 5),
        (
            format!("ZMPOP 1 zset MAX COUNT {}", elements / 2),
            names / 2,
        ),
        (format!("ZPOPMAX spare {huge}"), names),
        ("DUMP hash".into(), names),
        ("DUMP other".into(), names),
    ] {
        run_beside_others(&server, &command, least_bytes, 128);
    }
    let mut client = server.client();
    let left = elements - elements / 5 - elements / 2;
    assert_eq!(client.line("ZCARD zset"), Value::Int(left as i64));
    assert_eq!(client.line("EXISTS spare"), Value::Int(0));
}
