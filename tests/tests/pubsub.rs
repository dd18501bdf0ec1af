//! Subscribers and publishers on connections of their own: what reaches whom, and in which order.

use std::time::{Duration, Instant};

use cairn_tests::client::Client;
use cairn_tests::server::Server;
use cairn_tests::value::Value;

/// Words and numbers of a message, one after the other.
fn told(client: &mut Client) -> String {
    spelled(&client.receive())
}

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

/// Sends a command that may have several replies, or none.
fn ask(client: &mut Client, line: &str) {
    client.send(&line.split_whitespace().collect::<Vec<_>>());
    client.flush().expect("a connection");
}

fn nothing_comes(client: &mut Client) {
    let patience = Duration::from_millis(100);
    assert!(client.receive_raw(patience).is_err(), "nothing was said");
}

#[test]
fn confirmations_come_before_messages_and_after_them() {
    let server = Server::cairn(&[]);
    let (mut listener, mut publisher) = (server.client(), server.client());
    ask(&mut listener, "SUBSCRIBE a b");
    assert_eq!(told(&mut listener), "subscribe a 1");
    assert_eq!(told(&mut listener), "subscribe b 2");
    for number in 0..100 {
        publisher.send(&["PUBLISH", "a", &number.to_string()]);
    }
    for _ in 0..100 {
        assert_eq!(publisher.receive().as_int(), Some(1));
    }
    // All have been published, so all come before the confirmation.
    ask(&mut listener, "UNSUBSCRIBE a");
    for number in 0..100 {
        assert_eq!(told(&mut listener), format!("message a {number}"));
    }
    assert_eq!(told(&mut listener), "unsubscribe a 1");
    assert_eq!(publisher.line("PUBLISH a x").as_int(), Some(0));
    assert_eq!(publisher.line("PUBLISH b y").as_int(), Some(1));
    assert_eq!(told(&mut listener), "message b y");
    ask(&mut listener, "UNSUBSCRIBE");
    assert_eq!(told(&mut listener), "unsubscribe b 0");
    assert_eq!(spelled(&listener.line("PING")), "PONG");
}

#[test]
fn patterns_channels_and_shards_are_told_apart() {
    let server = Server::cairn(&[]);
    let (mut listener, mut publisher) = (server.client(), server.client());
    ask(&mut listener, "PSUBSCRIBE n* *s");
    ask(&mut listener, "SUBSCRIBE news");
    ask(&mut listener, "SSUBSCRIBE news");
    for expected in [
        "psubscribe n* 1",
        "psubscribe *s 2",
        "subscribe news 3",
        "ssubscribe news 1",
    ] {
        assert_eq!(told(&mut listener), expected);
    }
    assert_eq!(publisher.line("PUBLISH news x").as_int(), Some(3));
    assert_eq!(publisher.line("SPUBLISH news y").as_int(), Some(1));
    assert_eq!(told(&mut listener), "message news x");
    let mut by_pattern = [told(&mut listener), told(&mut listener)];
    by_pattern.sort();
    assert_eq!(by_pattern, ["pmessage *s news x", "pmessage n* news x"]);
    assert_eq!(told(&mut listener), "smessage news y");
    assert_eq!(spelled(&publisher.line("PUBSUB CHANNELS")), "news");
    assert_eq!(
        spelled(&publisher.line("PUBSUB SHARDNUMSUB news x")),
        "news 1 x 0"
    );
    assert_eq!(publisher.line("PUBSUB NUMPAT").as_int(), Some(2));
    let list = spelled(&publisher.line("CLIENT LIST TYPE pubsub"));
    assert!(list.contains("flags=P db=0 sub=1 psub=2 ssub=1"), "{list}");
    let info = spelled(&publisher.line("INFO stats"));
    for field in [
        "pubsub_channels:1",
        "pubsub_patterns:2",
        "pubsubshard_channels:1",
    ] {
        assert!(info.contains(field), "{field}");
    }
    drop(listener);
    let deadline = Instant::now() + Duration::from_secs(5);
    while publisher.line("PUBLISH news x").as_int() != Some(0) {
        assert!(
            Instant::now() < deadline,
            "a client that has gone listens no more"
        );
    }
}

#[test]
fn the_old_protocol_allows_little_to_a_listener_and_the_new_one_everything() {
    let server = Server::cairn(&[]);
    let (mut listener, mut publisher) = (server.client(), server.client());
    ask(&mut listener, "SUBSCRIBE a");
    assert_eq!(told(&mut listener), "subscribe a 1");
    let refused = spelled(&listener.line("GET k"));
    assert!(
        refused.starts_with("ERR Can't execute 'get': only (P|S)SUBSCRIBE"),
        "{refused}"
    );
    assert_eq!(spelled(&listener.line("PING")), "pong ");
    assert_eq!(spelled(&listener.line("PING hi")), "pong hi");
    assert_eq!(spelled(&listener.line("RESET")), "RESET");
    assert_eq!(publisher.line("PUBLISH a x").as_int(), Some(0));
    assert!(listener.line("GET k").is_null());

    listener.resp3();
    assert_eq!(spelled(&listener.line("SUBSCRIBE a")), "subscribe a 1");
    assert!(listener.line("GET k").is_null());
    // A message comes while the client waits for something else.
    ask(&mut listener, "BLPOP queue 10");
    nothing_comes(&mut listener);
    assert_eq!(publisher.line("PUBLISH a x").as_int(), Some(1));
    assert_eq!(told(&mut listener), "message a x");
    publisher.line("RPUSH queue job");
    assert_eq!(told(&mut listener), "queue job");
}

#[test]
fn a_transaction_is_heard_once_and_only_if_it_happens() {
    let server = Server::cairn(&[]);
    let (mut listener, mut publisher) = (server.client(), server.client());
    ask(&mut listener, "SUBSCRIBE a");
    assert_eq!(told(&mut listener), "subscribe a 1");
    publisher.line("WATCH k");
    server.client().line("SET k 1");
    for line in ["MULTI", "PUBLISH a never"] {
        publisher.line(line);
    }
    assert!(publisher.line("EXEC").is_null());
    for line in ["MULTI", "PUBLISH a 1", "INCR k", "PUBLISH a 2"] {
        publisher.line(line);
    }
    assert_eq!(spelled(&publisher.line("EXEC")), "1 2 1");
    assert_eq!(told(&mut listener), "message a 1");
    assert_eq!(told(&mut listener), "message a 2");
    nothing_comes(&mut listener);
}

#[test]
fn a_subscriber_that_does_not_read_is_closed() {
    let server = Server::cairn(&[]);
    let (mut listener, mut publisher) = (server.client(), server.client());
    let limit = [
        "CONFIG",
        "SET",
        "client-output-buffer-limit",
        "pubsub 4mb 0 0",
    ];
    assert_eq!(publisher.command(&limit), Value::ok());
    ask(&mut listener, "SUBSCRIBE a");
    assert_eq!(told(&mut listener), "subscribe a 1");
    let text = "x".repeat(100_000);
    let mut published = 0;
    let deadline = Instant::now() + Duration::from_secs(20);
    while publisher.command(&["PUBLISH", "a", &text]).as_int() == Some(1) {
        published += 1;
        assert!(Instant::now() < deadline, "{published} messages wait");
    }
    assert!(published >= 40, "closed after {published} messages");
    assert!(
        server
            .log()
            .contains("for overcoming of output buffer limits")
    );
    assert_eq!(spelled(&publisher.line("CLIENT LIST TYPE pubsub")), "");
}

#[test]
fn one_that_is_slow_for_long_is_closed_too() {
    let server = Server::cairn(&[]);
    let (mut listener, mut publisher) = (server.client(), server.client());
    let limit = [
        "CONFIG",
        "SET",
        "client-output-buffer-limit",
        "pubsub 0 100kb 1",
    ];
    assert_eq!(publisher.command(&limit), Value::ok());
    ask(&mut listener, "SUBSCRIBE a");
    assert_eq!(told(&mut listener), "subscribe a 1");
    let text = "x".repeat(1_000_000);
    // More than the socket takes.
    for _ in 0..20 {
        assert_eq!(
            publisher.command(&["PUBLISH", "a", &text]).as_int(),
            Some(1)
        );
    }
    let list = spelled(&publisher.line("CLIENT LIST TYPE pubsub"));
    assert!(!list.contains("omem=0 "), "{list}");
    let deadline = Instant::now() + Duration::from_secs(10);
    while publisher.line("PUBSUB NUMSUB a").items().expect("counts")[1].as_int() == Some(1) {
        assert!(Instant::now() < deadline, "it still listens");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Whoever is killed hears nothing more, and is not counted, although the connection may still be there.
#[test]
fn the_killed_are_not_counted() {
    for server in [Server::cairn(&["--threads", "2"]), Server::redis(&[])] {
        let mut client = server.client();
        for subscribe in [
            "SUBSCRIBE channel",
            "PSUBSCRIBE chan*",
            "SSUBSCRIBE channel",
        ] {
            let mut victim = server.client();
            let id = victim.line("CLIENT ID").as_int().expect("a number");
            ask(&mut victim, subscribe);
            assert!(!told(&mut victim).is_empty());
            let publish = match subscribe.starts_with("SSUB") {
                true => "SPUBLISH channel text",
                false => "PUBLISH channel text",
            };
            let lines = [format!("CLIENT KILL ID {id}"), publish.into()];
            let lines: Vec<Vec<&str>> =
                lines.iter().map(|line| line.split(' ').collect()).collect();
            let replies = client.pipeline(&lines).expect("replies");
            assert_eq!(replies, [Value::Int(1), Value::Int(0)], "{subscribe}");
        }
    }
}
