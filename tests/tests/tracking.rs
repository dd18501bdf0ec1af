//! Client-side caching: whoever has read a key hears of its next change, and of no other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use cairn_tests::client::Client;
use cairn_tests::ending::Ending;
use cairn_tests::server::Server;
use cairn_tests::value::Value;

fn spelled(value: &Value) -> String {
    if let Some(items) = value.items() {
        return items.iter().map(spelled).collect::<Vec<_>>().join(" ");
    }
    match (value.as_int(), value.as_bytes()) {
        (Some(number), _) => number.to_string(),
        (_, Some(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
        _ => "nil".to_string(),
    }
}

fn heard(client: &mut Client) -> String {
    spelled(&client.receive())
}

fn nothing_comes(client: &mut Client) {
    let patience = Duration::from_millis(100);
    assert!(client.receive_raw(patience).is_err(), "nothing was said");
}

/// A client that speaks the new protocol and tracks as it is told.
fn reader(server: &Server, how: &str) -> Client {
    let mut client = server.client();
    client.resp3();
    let reply = client.line(&format!("CLIENT TRACKING ON {how}"));
    assert_eq!(reply, Value::ok());
    client
}

#[test]
fn one_change_of_what_was_read_is_told_once() {
    let server = Server::cairn(&[]);
    let (mut reader, mut writer) = (reader(&server, ""), server.client());
    reader.line("GET a");
    writer.line("SET a 1");
    assert_eq!(heard(&mut reader), "invalidate a");
    writer.line("SET a 2");
    writer.line("SET b 2");
    nothing_comes(&mut reader);
    for line in ["MULTI", "HGET h f", "LRANGE l 0 -1", "EXEC"] {
        reader.line(line);
    }
    for line in ["HSET h f 1", "RPUSH l 1", "RPUSH l 2"] {
        writer.line(line);
    }
    assert_eq!(heard(&mut reader), "invalidate h");
    assert_eq!(heard(&mut reader), "invalidate l");
    // Its own change comes behind the reply.
    reader.line("GET a");
    assert_eq!(spelled(&reader.line("INCR a")), "3");
    assert_eq!(heard(&mut reader), "invalidate a");
    reader.line("GET a");
    writer.line("FLUSHDB");
    assert_eq!(heard(&mut reader), "invalidate nil");
    // What expires is outdated without anybody's doing.
    writer.line("SET e 1 PX 50");
    reader.line("GET e");
    assert_eq!(heard(&mut reader), "invalidate e");
}

#[test]
fn prefixes_are_heard_of_without_reading() {
    let server = Server::cairn(&[]);
    let mut watcher = reader(&server, "BCAST PREFIX user: PREFIX job: NOLOOP");
    let mut writer = server.client();
    writer.line("SET other 1");
    watcher.line("SET user:1 mine");
    writer.line("MSET user:2 x user:3 x job:1 x");
    let mut told = [heard(&mut watcher), heard(&mut watcher)];
    told.sort();
    assert_eq!(told, ["invalidate job:1", "invalidate user:2 user:3"]);
    nothing_comes(&mut watcher);
    let info = watcher.line("CLIENT TRACKINGINFO");
    let info = info.into_pairs().expect("a map").into_iter();
    let info: Vec<String> = info.map(|(_, value)| spelled(&value)).collect();
    assert_eq!(info, ["on bcast noloop", "0", "job: user:"]);
    let list = spelled(&writer.line("CLIENT LIST"));
    assert!(list.contains("flags=tB"), "{list}");
}

/// What a script is called with is what it reads, for all that its client knows.
#[test]
fn a_script_that_reads_reads_the_keys_that_it_was_called_with() {
    let server = Server::cairn(&[]);
    let (mut reader, mut writer) = (reader(&server, ""), server.client());
    let calls = |command: &str| ["EVAL", command, "2", "a", "b"].map(str::to_owned);
    reader.command(&calls("return redis.call('SET', 'other', '1')"));
    reader.command(&calls("return redis.call('PING')"));
    writer.line("MSET b 1 a 1");
    nothing_comes(&mut reader);
    reader.command(&calls("return redis.call('GET', 'other')"));
    writer.line("SET other 2");
    writer.line("MSET b 2 a 2");
    assert_eq!(heard(&mut reader), "invalidate b");
    assert_eq!(heard(&mut reader), "invalidate a");
    for line in [
        "MULTI",
        "EVAL_RO return{redis.call('GET',KEYS[1])} 1 b",
        "EXEC",
    ] {
        reader.line(line);
    }
    writer.line("SET b 3");
    assert_eq!(heard(&mut reader), "invalidate b");
    nothing_comes(&mut reader);
}

/// What it waited for is a copy too, which the change that ended the wait does not make outdated.
#[test]
fn a_client_that_waited_hears_of_the_next_change() {
    let server = Server::cairn(&[]);
    let (mut reader, mut writer) = (reader(&server, ""), server.client());
    reader.send(&["XREAD", "BLOCK", "10000", "STREAMS", "s", "$"]);
    reader.flush().expect("it is sent");
    while !spelled(&writer.line("INFO clients")).contains("blocked_clients:1") {
        thread::sleep(Duration::from_millis(5));
    }
    writer.line("XADD s 1-1 f v");
    // Its reply, a map, and what it hears of that change, in whichever order.
    while !matches!(reader.receive(), Value::Map(_)) {}
    while let Ok(more) = reader.receive_raw(Duration::from_millis(100)) {
        assert!(!more.is_empty(), "the connection goes on");
    }
    writer.line("XADD s 1-2 f v");
    assert_eq!(heard(&mut reader), "invalidate s");
}

#[test]
fn a_client_that_changes_what_it_reads_hears_of_the_changes_of_others() {
    let server = Server::cairn(&[]);
    let (mut reader, mut writer) = (reader(&server, "NOLOOP"), server.client());
    // In one commit: the change is its own, and what it has read is still to be told.
    reader.send(&["SET", "a", "1"]);
    reader.send(&["GET", "a"]);
    assert_eq!(reader.receive(), Value::ok());
    assert_eq!(heard(&mut reader), "1");
    nothing_comes(&mut reader);
    writer.line("SET a 2");
    assert_eq!(heard(&mut reader), "invalidate a");
}

#[test]
fn the_table_is_bounded_and_who_is_forgotten_is_told() {
    let server = Server::cairn(&[]);
    let (mut reader, mut writer) = (reader(&server, ""), server.client());
    writer.line("CONFIG SET tracking-table-max-keys 10");
    for number in 0..11 {
        reader.line(&format!("GET k{number}"));
    }
    assert_eq!(heard(&mut reader), "invalidate k0");
    let info = spelled(&writer.line("INFO stats"));
    assert!(info.contains("tracking_total_keys:10\r\ntracking_total_items:10"));
    drop(reader);
    let clients = || spelled(&server.client().line("INFO clients"));
    while !clients().contains("tracking_clients:0") {
        thread::sleep(Duration::from_millis(10));
    }
}

/// A client that keeps a copy and trusts it until it hears otherwise must never hold an old value for good.
#[test]
fn no_change_is_missed_while_others_write() {
    let server = Server::cairn(&["--threads", "2"]);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let end = Ending(&stop);
        let writing = scope.spawn(|| {
            let mut writer = server.client();
            let mut last = 0;
            while !stop.load(Ordering::Relaxed) {
                last += 1;
                writer.line(&format!("SET a {last}"));
            }
            last
        });
        let (mut reader, mut copies) = (reader(&server, ""), 0);
        while copies < 2000 {
            reader.line("GET a");
            copies += 1;
            // The copy is good until this.
            assert_eq!(heard(&mut reader), "invalidate a");
        }
        reader.line("CLIENT TRACKING OFF");
        drop(end);
        assert!(writing.join().expect("a writer") > 1000);
    });
}
