//! What an operator does to a running server: configures, watches, pauses, limits and stops it.
//!
//! The golden scripts compare replies with Redis; here are the effects that take time, several
//! connections, a configuration file or a restart.

use std::fs;
use std::time::{Duration, Instant};

use cairn_tests::client::{Client, Value, is_closed};
use cairn_tests::server::{Launch, Server, free_port};

fn text(value: &Value) -> String {
    match value {
        Value::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => panic!("text expected, got {other:?}"),
    }
}

/// A field of INFO.
fn info(client: &mut Client, field: &str) -> String {
    let report = text(&client.line("INFO everything"));
    let line = report
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    match line {
        Some(value) => value.to_string(),
        None => panic!("no {field} in\n{report}"),
    }
}

fn pong() -> Value {
    Value::Simple(b"PONG".to_vec())
}

fn is_gone(client: &mut Client) -> bool {
    client
        .try_command(&["PING"])
        .is_err_and(|error| is_closed(&error))
}

#[test]
fn what_config_set_changed_is_there_after_rewrite_and_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("cairn.toml");
    fs::write(&path, "# for tests\ntimeout = 77 # seconds\nsave = \"\"\n").expect("a file");
    let config = path.to_str().expect("a plain path");
    let mut server = Launch::cairn().flags(["--config", config]).start();
    let mut client = server.client();
    assert_eq!(client.line("CONFIG GET timeout"), pair("timeout", "77"));
    assert_eq!(
        client.line("CONFIG SET timeout 88 zset-max-ziplist-value 9"),
        Value::ok()
    );
    assert_eq!(client.line("CONFIG REWRITE"), Value::ok());
    let written = fs::read_to_string(&path).expect("the file");
    assert!(written.starts_with("# for tests\ntimeout = 88 # seconds\nsave = \"\"\n"));
    server.restart();
    let mut client = server.client();
    assert_eq!(client.line("CONFIG GET timeout"), pair("timeout", "88"));
    let name = "zset-max-listpack-value";
    assert_eq!(client.line(&format!("CONFIG GET {name}")), pair(name, "9"));
}

fn pair(name: &str, value: &str) -> Value {
    Value::Array(vec![Value::bulk(name), Value::bulk(value)])
}

#[test]
fn paused_commands_wait_and_then_run() {
    let server = Server::cairn(&[]);
    let (mut admin, mut client) = (server.client(), server.client());
    assert_eq!(admin.line("CLIENT PAUSE 1500 WRITE"), Value::ok());
    let started = Instant::now();
    client.send(&["GET", "key"]);
    client.send(&["SET", "key", "v"]);
    client.send(&["GET", "key"]);
    assert_eq!(client.receive(), Value::Null);
    assert!(
        started.elapsed() < Duration::from_millis(1200),
        "reads do not wait"
    );
    assert_eq!(info(&mut admin, "blocked_clients"), "1");
    assert_eq!(client.receive(), Value::ok());
    assert!(
        started.elapsed() >= Duration::from_millis(1490),
        "writes do"
    );
    assert_eq!(client.receive(), Value::bulk("v"));

    assert_eq!(admin.line("CLIENT PAUSE 60000 WRITE"), Value::ok());
    client.send(&["SET", "key", "w"]);
    client.flush().expect("it is sent");
    assert_eq!(admin.line("CLIENT UNPAUSE"), Value::ok());
    assert_eq!(client.receive(), Value::ok());
}

#[test]
fn the_server_listens_where_config_set_says() {
    let server = Server::cairn(&[]);
    let mut client = server.client();
    let at = |host: &str, port: u16| Client::connect((host, port));
    let other = free_port();
    let set_port = |port: u16| format!("CONFIG SET port {port}");
    assert_eq!(client.line(&set_port(other)), Value::ok());
    let mut moved = at("127.0.0.1", other).expect("the new port");
    assert_eq!(moved.line("PING"), pong());
    assert!(at("127.0.0.1", server.port()).is_err(), "the old one");
    assert_eq!(client.line("PING"), pong(), "connections stay");
    assert_eq!(info(&mut client, "tcp_port"), other.to_string());

    let taken = Server::redis(&[]);
    let refused = moved.line(&set_port(taken.port()));
    let reason = "Unable to listen on this port. Check server logs.";
    let prefix = "ERR CONFIG SET failed (possibly related to argument";
    assert_eq!(
        refused,
        Value::error(format!("{prefix} 'port') - {reason}"))
    );
    let refused = moved.line("CONFIG SET bind 999.999.999.999");
    let reason = "Failed to bind to specified addresses.";
    assert_eq!(
        refused,
        Value::error(format!("{prefix} 'bind') - {reason}"))
    );
    assert_eq!(
        at("127.0.0.1", other).expect("as before").line("PING"),
        pong()
    );

    // The same port, so that the old socket is in the way of the new one.
    assert_eq!(moved.line("CONFIG SET bind 0.0.0.0"), Value::ok());
    assert_eq!(
        at("127.0.0.2", other).expect("any address").line("PING"),
        pong()
    );
    assert_eq!(moved.line("CONFIG GET bind"), pair("bind", "0.0.0.0"));
}

/// A pause keeps everything as it is: what expires meanwhile is hidden, and deleted afterwards.
#[test]
fn nothing_is_deleted_during_a_pause() {
    let server = Server::cairn(&["--expire-interval-ms", "5"]);
    let (mut admin, mut client) = (server.client(), server.client());
    client.line("SET key v PX 50");
    assert_eq!(admin.line("CLIENT PAUSE 60000 WRITE"), Value::ok());
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(client.line("GET key"), Value::Null);
    assert_eq!(info(&mut admin, "expired_keys"), "0");
    assert_eq!(admin.line("CLIENT UNPAUSE"), Value::ok());
    let deadline = Instant::now() + Duration::from_secs(10);
    while info(&mut admin, "expired_keys") != "1" {
        assert!(Instant::now() < deadline, "it is not deleted");
    }
}

/// Who ends a pause finds gone, and counted, what became due meanwhile, however rarely the expirer looks.
#[test]
fn what_became_due_in_a_pause_goes_with_it() {
    let server = Server::cairn(&["--expire-interval-ms", "600000"]);
    let mut admin = server.client();
    admin.line("MSET one v two v");
    assert_eq!(admin.line("CLIENT PAUSE 60000 WRITE"), Value::ok());
    assert_eq!(admin.line("CLIENT UNPAUSE"), Value::ok());
    for line in [
        "PEXPIRE one 20",
        "PEXPIRE two 20",
        "CLIENT PAUSE 60000 WRITE",
    ] {
        admin.line(line);
    }
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(info(&mut admin, "expired_keys"), "0");
    // Also where the pause is ended by one who holds the latch of such a key.
    for line in ["WATCH one", "MULTI", "GET one", "CLIENT UNPAUSE"] {
        admin.line(line);
    }
    assert!(!admin.line("EXEC").is_error());
    assert_eq!(admin.line("CLIENT UNPAUSE"), Value::ok());
    assert_eq!(info(&mut admin, "expired_keys"), "2");
}

#[test]
fn no_more_connections_come_in_than_may() {
    let server = Server::cairn(&["--maxclients", "2"]);
    let (mut first, mut second) = (server.client(), server.client());
    assert_eq!(first.line("PING"), pong());
    assert_eq!(second.line("PING"), pong());
    let refused = server.client().receive_until_closed().expect("a reply");
    assert_eq!(refused, b"-ERR max number of clients reached\r\n");
    assert_eq!(info(&mut first, "rejected_connections"), "1");
    assert_eq!(first.line("CONFIG SET maxclients 3"), Value::ok());
    assert_eq!(server.client().line("PING"), pong());
}

#[test]
fn a_connection_that_idles_is_closed() {
    let server = Server::cairn(&["--timeout", "1"]);
    let (mut busy, mut idle, mut waiting) = (server.client(), server.client(), server.client());
    waiting.send(&["DEBUG", "SLEEP", "4"]);
    waiting.flush().expect("it is sent");
    let started = Instant::now();
    while started.elapsed() < Duration::from_millis(3500) {
        assert_eq!(busy.line("PING"), pong());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(is_gone(&mut idle));
    assert_eq!(
        waiting.receive(),
        Value::ok(),
        "whoever is served does not idle"
    );
}

#[test]
fn a_password_keeps_strangers_out() {
    let server = Server::cairn(&["--requirepass", "secret"]);
    let mut client = server.client();
    let refused = client.line("GET key");
    assert_eq!(refused, Value::error("NOAUTH Authentication required."));
    assert_eq!(client.line("AUTH secret"), Value::ok());
    assert_eq!(client.line("GET key"), Value::Null);
}

#[test]
fn commands_and_errors_are_counted() {
    let server = Server::cairn(&[]);
    let mut client = server.client();
    for _ in 0..3 {
        client.line("SET key v");
    }
    client.line("GET key");
    client.line("GET missing");
    client.line("GET");
    client.line("LPUSH key x");
    client.line("BOGUS");
    client.line("CONFIG BOGUS");
    let set = info(&mut client, "cmdstat_set");
    assert!(set.starts_with("calls=3,usec=") && set.ends_with("rejected_calls=0,failed_calls=0"));
    let get = info(&mut client, "cmdstat_get");
    assert!(get.starts_with("calls=2,usec=") && get.ends_with("rejected_calls=1,failed_calls=0"));
    assert!(info(&mut client, "cmdstat_lpush").ends_with("rejected_calls=0,failed_calls=1"));
    // Nobody knows what was called, so nobody's calls were rejected.
    let stats = text(&client.line("INFO commandstats"));
    assert!(!stats.contains("cmdstat_config:"), "{stats}");
    assert_eq!(info(&mut client, "errorstat_ERR"), "count=3");
    assert_eq!(info(&mut client, "errorstat_WRONGTYPE"), "count=1");
    assert_eq!(info(&mut client, "total_error_replies"), "4");
    assert_eq!(info(&mut client, "keyspace_hits"), "1");
    assert_eq!(info(&mut client, "keyspace_misses"), "1");
    assert_eq!(info(&mut client, "db0"), "keys=1,expires=0,avg_ttl=0");
    assert!(info(&mut client, "latency_percentiles_usec_set").starts_with("p50="));
    assert_eq!(client.line("CONFIG RESETSTAT"), Value::ok());
    assert_eq!(info(&mut client, "keyspace_hits"), "0");
    assert_eq!(info(&mut client, "total_error_replies"), "0");
}

/// Each key that a reading command asks for counts once, whatever it takes to read it.
#[test]
fn lookups_are_counted_as_redis_counts_them() {
    let servers = [Server::cairn(&[]), Server::redis(&[])];
    let mut clients = servers.each_ref().map(Server::client);
    let large = "x".repeat(100_000);
    for client in &mut clients {
        client.command(&["SET", "large", &large]);
        client.line("HSET hash field value");
        client.line("SADD set member");
        client.line("ZADD zset 1 member");
    }
    for command in [
        "GET large",
        "GETRANGE large 10 99000",
        "HGET hash field",
        "HGET hash absent",
        "HGET absent field",
        "HMGET hash field absent",
        "SISMEMBER set absent",
        "ZSCORE zset absent",
        "ZRANDMEMBER zset -3",
        "ZUNION 2 zset absent",
        "ZINTERCARD 2 zset set",
        "MEMORY USAGE hash",
        "EXISTS hash absent hash",
        "SCAN 0",
    ] {
        let [cairn, redis] = clients.each_mut().map(|client| {
            let counts = |client: &mut Client| {
                ["keyspace_hits", "keyspace_misses"]
                    .map(|field| info(client, field).parse::<u64>().expect("a count"))
            };
            let before = counts(client);
            client.line(command);
            let after = counts(client);
            [after[0] - before[0], after[1] - before[1]]
        });
        assert_eq!(cairn, redis, "hits and misses of {command}");
    }
}

#[test]
fn shutdown_answers_nothing_and_loses_nothing() {
    let mut server = Server::cairn(&[]);
    let mut client = server.client();
    client.send_raw(b"SET key v\r\nSHUTDOWN NOSAVE\r\nSET key w\r\n");
    let replies = client.receive_until_closed().expect("the end");
    assert_eq!(replies, b"+OK\r\n");
    let deadline = Instant::now() + Duration::from_secs(20);
    while server.is_running() {
        assert!(Instant::now() < deadline, "it does not stop");
        std::thread::sleep(Duration::from_millis(10));
    }
    server.kill9();
    server.start();
    assert_eq!(server.client().line("GET key"), Value::bulk("v"));
}

/// What Cairn lacks on purpose is told from what is misspelt.
#[test]
fn commands_that_are_absent_say_why() {
    let server = Server::cairn(&[]);
    let mut client = server.client();
    let mut complaint = |line: &str| {
        let reply = client.line(line);
        assert!(reply.is_error(), "{line}: {reply:?}");
        String::from_utf8_lossy(reply.as_bytes().unwrap_or_default()).into_owned()
    };
    for line in ["CLUSTER INFO", "ASKING", "READONLY", "READWRITE"] {
        let expected = "ERR This instance has cluster support disabled";
        assert_eq!(complaint(line), expected, "{line}");
    }
    for line in [
        "FAILOVER",
        "MODULE LIST",
        "SENTINEL MASTERS",
        "PFDEBUG ENCODING key",
        "PFSELFTEST",
    ] {
        let name = line.split(' ').next().unwrap_or_default();
        let beginning = format!("ERR {} is not supported: ", name.to_uppercase());
        assert!(complaint(line).starts_with(&beginning), "{line}");
    }
    assert!(complaint("REPLICAOFF").starts_with("ERR unknown command"));
    assert_eq!(
        client.line("COMMAND INFO module"),
        Value::Array(vec![Value::Null])
    );
}

#[test]
fn memory_is_told_in_figures_and_given_back() {
    let server = Server::cairn(&[]);
    let mut client = server.client();
    client.line("SET key value");
    let stats = client.line("MEMORY STATS").into_items().expect("figures");
    let figure = |name: &str| {
        let mut pairs = stats.chunks_exact(2);
        let found = pairs.find(|pair| pair[0] == Value::bulk(name));
        found.map(|pair| pair[1].clone())
    };
    assert_eq!(figure("keys.count"), Some(Value::Int(1)));
    let allocated = figure("total.allocated").and_then(|bytes| bytes.as_int());
    assert!(allocated.is_some_and(|bytes| bytes > 100_000), "{stats:?}");
    assert!(figure("dataset.percentage").is_some());
    let report = client.line("MEMORY MALLOC-STATS");
    let report = String::from_utf8_lossy(report.as_bytes().unwrap_or_default()).into_owned();
    assert!(report.starts_with("jemalloc-") && report.contains("resident: "));
    assert_eq!(client.line("MEMORY PURGE"), Value::ok());
    assert_eq!(client.line("GET key"), Value::bulk("value"));
}

#[test]
fn whoever_has_it_saved_is_answered_as_redis_does() {
    let server = Server::cairn(&[]);
    let mut client = server.client();
    client.line("SET key value");
    let status = |text: &str| Value::Simple(text.as_bytes().to_vec());
    assert_eq!(client.line("SAVE"), Value::ok());
    assert_eq!(client.line("BGSAVE"), status("Background saving started"));
    assert_eq!(
        client.line("BGREWRITEAOF"),
        status("Background append only file rewriting started")
    );
    let saved = client.line("LASTSAVE").as_int().expect("a time");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.expect("a time").as_secs() as i64;
    assert!((now - 60..=now).contains(&saved), "{saved}");
}

/// Commands that write look up what they read from as commands do that read, and what they write to in silence.
#[test]
fn lookups_count_where_they_do_in_redis() {
    let server = Server::cairn(&[]);
    let mut client = server.client();
    for line in [
        "SET string abc",
        "SADD set a b",
        "ZADD zset 1 a",
        "RPUSH list b a",
        "PFADD estimate a",
        "GEOADD places 1 1 a",
        "XADD stream 1-1 a b",
        "XGROUP CREATE stream group 0",
    ] {
        assert!(!client.line(line).is_error(), "{line}");
    }
    let cases = [
        ("SET string 1", 0, 0),
        ("SET string 1 XX KEEPTTL", 0, 0),
        ("SET string 1 GET", 1, 0),
        ("SET string 1 NX GET", 1, 0),
        ("GETSET string 2", 1, 0),
        ("GETEX string", 1, 0),
        ("GETEX none PERSIST", 0, 1),
        ("GETDEL none", 0, 1),
        ("INCR string", 0, 0),
        ("SETNX string 1", 0, 0),
        ("APPEND string 1", 0, 0),
        ("BITFIELD string GET u8 0", 1, 0),
        ("BITFIELD string SET u8 0 1", 0, 0),
        ("BITOP AND to string none", 1, 1),
        ("LPOP none", 0, 0),
        ("SADD set c", 0, 0),
        ("SPOP none", 0, 0),
        ("SINTERSTORE to set set", 2, 0),
        ("SUNIONSTORE to set none", 1, 1),
        ("SDIFFSTORE to set none", 1, 1),
        ("ZUNIONSTORE to 2 zset none", 1, 1),
        ("ZINTERSTORE to 2 zset zset", 2, 0),
        ("ZDIFFSTORE to 2 zset none", 1, 1),
        ("ZRANGESTORE to zset 0 -1", 1, 0),
        ("COPY list other", 1, 0),
        ("COPY list other", 1, 0),
        ("COPY none other", 0, 1),
        ("RENAME other another", 0, 0),
        ("EXPIRE list 100", 0, 0),
        ("SORT list ALPHA", 1, 0),
        ("SORT list ALPHA STORE to", 1, 0),
        ("PFCOUNT estimate none", 1, 1),
        (
            "GEOSEARCHSTORE to places FROMLONLAT 1 1 BYRADIUS 5 km",
            1,
            0,
        ),
        ("GEORADIUS none 1 1 5 km", 0, 1),
        ("XACK stream group 1-1", 1, 0),
        ("XACK none group 1-1", 0, 1),
        ("XADD stream * a b", 0, 0),
        ("DUMP string", 1, 0),
    ];
    for (line, hits, misses) in cases {
        assert_eq!(client.line("CONFIG RESETSTAT"), Value::ok());
        assert!(!client.line(line).is_error(), "{line}");
        let counted = ["keyspace_hits", "keyspace_misses"].map(|name| info(&mut client, name));
        assert_eq!(counted, [hits, misses].map(|it| it.to_string()), "{line}");
    }
    client.line("CONFIG RESETSTAT");
    for line in ["MULTI", "GETDEL string", "INCR string", "EXEC"] {
        client.line(line);
    }
    assert_eq!(info(&mut client, "keyspace_hits"), "1");
}

/// To clients the subcommands of DEBUG are mere arguments.
#[test]
fn debug_tells_itself_that_it_does_not_know_a_subcommand() {
    let server = Server::cairn(&[]);
    let mut client = server.client();
    for line in ["DEBUG NOPE", "DEBUG SLEEP", "DEBUG", "CONFIG NOPE"] {
        assert!(client.line(line).is_error(), "{line}");
    }
    let stats = info(&mut client, "cmdstat_debug");
    assert!(stats.starts_with("calls=2,"), "{stats}");
    assert!(
        stats.ends_with("rejected_calls=1,failed_calls=2"),
        "{stats}"
    );
}
