//! What the nodes of a cluster say to each other for their clients: messages, reads of replicas, forwarded commands, functions.

use std::thread;
use std::time::{Duration, Instant};

use cairn_tests::certificates::Authority;
use cairn_tests::client::{Client, Value};
use cairn_tests::nemesis::cairn::{Cluster, Setup};
use cairn_tests::nemesis::until;
use cairn_tests::server::Server;

/// Three nodes of a cluster of three regions, of which each leads one.
fn found(flags: &[&str]) -> Cluster {
    let own = ["--memory", "256mb"];
    let cluster = Cluster::found(&Setup {
        regions: 3,
        flags: own.iter().chain(flags).map(ToString::to_string).collect(),
        links: false,
        ..Setup::default()
    });
    until("all nodes lead", || {
        (0..3).all(|node| find_key(cluster.fleet.node(node), "key").is_some())
    });
    cluster
}

fn nodes(cluster: &Cluster) -> impl Iterator<Item = &Server> {
    (0..cluster.fleet.len()).map(|node| cluster.fleet.node(node))
}

/// A key that the node leads and does not forward.
fn find_key(node: &Server, prefix: &str) -> Option<String> {
    let mut client = node.client();
    let mut names = (0..200).map(|n| format!("{prefix}:{n}"));
    names.find(|name| !client.command(&["WATCH", name]).is_error())
}

#[track_caller]
fn key_of(node: &Server, prefix: &str) -> String {
    find_key(node, prefix).expect("the node leads something")
}

#[test]
fn messages_reach_those_who_listen_on_every_node() {
    let cluster = found(&[]);
    let mut listeners: Vec<Client> = nodes(&cluster).map(Server::client).collect();
    for listener in &mut listeners {
        listener.line("SUBSCRIBE news");
    }
    let mut by_pattern = cluster.fleet.node(2).client();
    by_pattern.line("PSUBSCRIBE n*s");
    let mut publisher = cluster.fleet.node(0).client();
    for n in 0..1000 {
        publisher.send(&["PUBLISH", "news", &n.to_string()]);
    }
    // Those who listen on this node are counted, and no others.
    for _ in 0..1000 {
        assert_eq!(publisher.receive(), Value::Int(1));
    }
    for listener in &mut listeners {
        for n in 0..1000 {
            let message = listener.receive();
            let expected = ["message", "news", &n.to_string()].map(Value::bulk);
            assert_eq!(message.items(), Some(&expected[..]));
        }
    }
    let first = by_pattern.receive();
    let expected = ["pmessage", "n*s", "news", "0"].map(Value::bulk);
    assert_eq!(first.items(), Some(&expected[..]));
    // What a transaction or script publishes is told as well.
    let key = key_of(cluster.fleet.node(0), "key");
    publisher.line("MULTI");
    publisher.command(&["SET", &key, "v"]);
    publisher.line("PUBLISH news queued");
    publisher.line("EXEC");
    publisher.command(&[
        "EVAL",
        "return redis.call('publish', 'news', 'script')",
        "0",
    ]);
    for listener in &mut listeners {
        for expected in ["queued", "script"] {
            assert_eq!(
                listener.receive().items().map(|it| it[2].text()),
                Some(expected.into())
            );
        }
    }
}

#[test]
fn a_channel_of_a_slot_is_heard_where_the_slot_is_led() {
    let cluster = found(&[]);
    let name = key_of(cluster.fleet.node(1), "channel");
    let mut elsewhere = cluster.fleet.node(0).client();
    assert!(
        elsewhere
            .error_of(&format!("SSUBSCRIBE {name}"))
            .starts_with("MOVED ")
    );
    assert!(
        elsewhere
            .error_of(&format!("SPUBLISH {name} x"))
            .starts_with("MOVED ")
    );
    let mut listener = cluster.fleet.node(1).client();
    listener.command(&["SSUBSCRIBE", &name]);
    let mut publisher = cluster.fleet.node(1).client();
    assert_eq!(
        publisher.command(&["SPUBLISH", &name, "hello"]),
        Value::Int(1)
    );
    let heard = listener.receive();
    let expected = ["smessage", &name, "hello"].map(Value::bulk);
    assert_eq!(heard.items(), Some(&expected[..]));
    // Another takes over: they are told, and are to listen there.
    let status = cluster.administrator.status().expect("a status");
    for region in &status.regions {
        let moved = cluster.administrator.transfer(region.id, status.ids[&0]);
        assert!(moved.is_ok(), "{moved:?}");
    }
    let told = listener.receive();
    let expected = [
        Value::bulk("sunsubscribe"),
        Value::bulk(&name),
        Value::Int(0),
    ];
    assert_eq!(told.items(), Some(&expected[..]));
    // On a busy machine the lead may have come back once before it went for good.
    until("those who listen are sent to the new leader", || {
        let reply = listener.command(&["SSUBSCRIBE", &name]);
        reply.is_error() && reply.text().starts_with("MOVED ")
    });
    until("the new leader has those who listen", || {
        !elsewhere.command(&["SSUBSCRIBE", &name]).is_error()
    });
}

#[test]
fn replicas_are_read_and_never_show_the_past() {
    let cluster = found(&[]);
    let key = key_of(cluster.fleet.node(0), "key");
    let tagged = |name: &str| format!("{{{key}}}{name}");
    let mut leader = cluster.fleet.node(0).client();
    let mut follower = cluster.fleet.node(1).client();
    assert!(
        follower
            .error_of(&format!("GET {key}"))
            .starts_with("MOVED ")
    );
    assert_eq!(follower.line("READONLY"), Value::ok());
    for n in 0..300 {
        let value = n.to_string();
        assert_eq!(leader.command(&["SET", &key, &value]), Value::ok());
        assert_eq!(follower.command(&["GET", &key]), Value::bulk(&value));
        leader.command(&["RPUSH", &tagged("list"), &value]);
        assert_eq!(
            follower.command(&["LLEN", &tagged("list")]),
            Value::Int(n + 1)
        );
    }
    let rank = |client: &mut Client| client.command(&["ZRANK", &tagged("zset"), "m999"]);
    for n in 0..1000 {
        leader.send(&["ZADD", &tagged("zset"), &n.to_string(), &format!("m{n}")]);
        leader.send(&["HSET", &tagged("hash"), &format!("f{n}"), "v"]);
    }
    (0..2000).for_each(|_| drop(leader.receive()));
    assert_eq!(rank(&mut follower), Value::Int(999));
    assert_eq!(rank(&mut leader), Value::Int(999));
    leader.command(&["ZREM", &tagged("zset"), "m0"]);
    assert_eq!(rank(&mut follower), Value::Int(998));
    let all = follower.command(&["HGETALL", &tagged("hash")]);
    assert_eq!(all.items().map(<[Value]>::len), Some(2000));
    // Nothing is written there, and nothing else read.
    assert!(
        follower
            .error_of(&format!("SET {key} x"))
            .starts_with("MOVED ")
    );
    assert!(
        follower
            .error_of(&format!("EVAL x 1 {key}"))
            .starts_with("MOVED ")
    );
    let unknown = "f".repeat(40);
    let unknown = follower.error_of(&format!("EVALSHA {unknown} 1 {key}"));
    assert!(unknown.starts_with("MOVED "), "{unknown}");
    // A database that is emptied is empty there, too.
    assert_eq!(leader.line("FLUSHALL"), Value::ok());
    assert_eq!(follower.command(&["EXISTS", &key]), Value::Int(0));
    leader.command(&["SET", &key, "again"]);
    assert_eq!(follower.command(&["GET", &key]), Value::bulk("again"));
    // Nor is it read by a client that is to be told of changes.
    follower.resp3();
    follower.line("CLIENT TRACKING ON");
    assert!(
        follower
            .error_of(&format!("GET {key}"))
            .starts_with("MOVED ")
    );
    follower.line("CLIENT TRACKING OFF");
    assert_eq!(follower.line("READWRITE"), Value::ok());
    assert!(
        follower
            .error_of(&format!("GET {key}"))
            .starts_with("MOVED ")
    );
}

#[test]
fn a_client_that_knows_nothing_of_clusters_is_served_by_any_node() {
    let cluster = found(&["--cluster-proxy", "yes"]);
    let keys: Vec<String> = nodes(&cluster).map(|node| key_of(node, "key")).collect();
    let mut client = cluster.fleet.node(0).client();
    for n in 0..300 {
        client.send(&["SET", &format!("k{n}"), &n.to_string()]);
        client.send(&["GET", &format!("k{n}")]);
    }
    for n in 0..300 {
        assert_eq!(client.receive(), Value::ok());
        assert_eq!(client.receive(), Value::bulk(n.to_string()));
    }
    let far = &keys[1];
    let tagged = |name: &str| format!("{{{far}}}{name}");
    // A transaction goes as a whole.
    client.line("MULTI");
    assert_eq!(client.command(&["INCR", far]).text(), "QUEUED");
    client.command(&["HSET", &tagged("h"), "f", "v"]);
    let done = client.line("EXEC");
    assert_eq!(done.items(), Some(&[Value::Int(1), Value::Int(1)][..]));
    client.line("MULTI");
    client.command(&["SET", far, "x"]);
    client.command(&["SET", &keys[2], "x"]);
    assert!(client.error_of("EXEC").starts_with("CROSSSLOT "));
    assert_eq!(client.command(&["GET", far]), Value::bulk("1"));
    assert!(
        client
            .error_of(&format!("MGET {far} {}", keys[2]))
            .starts_with("CROSSSLOT ")
    );
    assert!(
        client
            .error_of(&format!("WATCH {far}"))
            .contains("not watched")
    );
    // So does a script, which need not be known there.
    let incr = "return redis.call('incrby', KEYS[1], ARGV[1])";
    assert_eq!(
        client.command(&["EVAL", incr, "1", far, "5"]),
        Value::Int(6)
    );
    let sha = client
        .command(&["SCRIPT", "LOAD", "return redis.call('get', KEYS[1])"])
        .text();
    assert_eq!(
        client.command(&["EVALSHA", &sha, "1", far]),
        Value::bulk("6")
    );
    // What it answers is its own, and not taken for what a node says.
    let script = "redis.call('incr', KEYS[1]) return redis.error_reply('MOVED 1 x')";
    let own = client.command(&["EVAL", script, "1", far]);
    assert_eq!(own, Value::error("MOVED 1 x"));
    assert_eq!(client.command(&["GET", far]), Value::bulk("7"));
    let unknown = "f".repeat(40);
    let unknown = client.error_of(&format!("EVALSHA {unknown} 1 {far}"));
    assert!(unknown.starts_with("NOSCRIPT "), "{unknown}");
    // Who waits for a key, for longer than it is asked for at once.
    let waiting = thread::spawn({
        let (mut waiting, list) = (cluster.fleet.node(0).client(), tagged("list"));
        move || waiting.command(&["BLPOP", &list, "10"])
    });
    thread::sleep(Duration::from_millis(2300));
    client.command(&["RPUSH", &tagged("list"), "a"]);
    let popped = waiting.join().expect("a reply");
    assert_eq!(
        popped.items(),
        Some(&[Value::bulk(tagged("list")), Value::bulk("a")][..])
    );
    let began = Instant::now();
    assert!(client.command(&["BLPOP", &tagged("list"), "1.5"]).is_null());
    let took = began.elapsed();
    assert!((1400..3000).contains(&took.as_millis()), "{took:?}");
    let read = client.command(&["XREAD", "STREAMS", &tagged("stream"), "0"]);
    assert!(read.is_null());
    // Long values, and the newer protocol.
    let long = "x".repeat(5 << 20);
    assert_eq!(client.command(&["SET", far, &long]), Value::ok());
    assert_eq!(client.command(&["GET", far]), Value::bulk(&long));
    client.resp3();
    let hash = client.command(&["HGETALL", &tagged("h")]);
    let pairs = vec![(Value::bulk("f"), Value::bulk("v"))];
    assert_eq!(hash, Value::Map(pairs));
    // The user must be known where the command runs.
    client.line("ACL SETUSER ada on nopass ~* +@all");
    let mut ada = cluster.fleet.node(0).client();
    assert_eq!(ada.line("AUTH ada x"), Value::ok());
    assert!(ada.error_of(&format!("GET {far}")).contains("no user ada"));
    cluster
        .fleet
        .node(1)
        .client()
        .line("ACL SETUSER ada on nopass ~nothing +@all");
    assert!(ada.error_of(&format!("GET {far}")).starts_with("NOPERM "));
}

/// A client would send what it takes for undone again and again.
#[test]
fn replies_that_are_too_long_to_hand_back_are_refused_at_once() {
    let cluster = found(&["--cluster-proxy", "yes"]);
    let far = key_of(cluster.fleet.node(1), "long");
    let mut there = cluster.fleet.node(1).client();
    let length = 129 << 20;
    assert_eq!(
        there.command(&["SETRANGE", &far, &(length - 1).to_string(), "x"]),
        Value::Int(length)
    );
    let mut client = cluster.fleet.node(0).client();
    let told = client.error_of(&format!("GET {far}"));
    assert!(
        told.starts_with("ERR a reply of more than 128 MB"),
        "{told}"
    );
    assert_eq!(client.command(&["STRLEN", &far]), Value::Int(length));
    // Whether it was done is not known.
    let told = client.error_of(&format!("GETDEL {far}"));
    assert!(told.starts_with("INDOUBT "), "{told}");
    assert_eq!(there.command(&["EXISTS", &far]), Value::Int(0));
}

#[test]
fn a_forwarded_write_is_not_done_twice_when_its_leader_dies() {
    let mut cluster = found(&["--cluster-proxy", "yes"]);
    let counter = key_of(cluster.fleet.node(1), "counter");
    let mut client = cluster.fleet.node(0).client();
    let mut certain = 0;
    let mut in_doubt = 0;
    for n in 0..400 {
        if n == 100 {
            cluster.fleet.kill(1);
        }
        let reply = client.command(&["INCR", &counter]);
        match (reply.as_int(), reply.text()) {
            (Some(_), _) => certain += 1,
            (None, why) if why.starts_with("INDOUBT ") => in_doubt += 1,
            (None, why) => assert!(
                why.starts_with("CLUSTERDOWN ") || why.starts_with("TRYAGAIN "),
                "{why}"
            ),
        }
    }
    let counted = client.command(&["GET", &counter]);
    let counted: i64 = counted.text().parse().expect("a number");
    assert!(certain >= 100, "{certain}");
    assert!(
        (certain..=certain + in_doubt).contains(&counted),
        "{certain} {in_doubt} {counted}"
    );
}

#[test]
fn wait_tells_how_many_replicas_have_it() {
    let mut cluster = found(&[]);
    let key = key_of(cluster.fleet.node(0), "key");
    let mut client = cluster.fleet.node(0).client();
    client.command(&["SET", &key, "v"]);
    assert_eq!(client.line("WAIT 2 5000"), Value::Int(2));
    cluster.fleet.kill(2);
    client.command(&["SET", &key, "w"]);
    let began = Instant::now();
    assert_eq!(client.line("WAIT 2 700"), Value::Int(1));
    assert!(began.elapsed() >= Duration::from_millis(700));
    assert_eq!(client.line("WAIT 1 0"), Value::Int(1));
    client.line("MULTI");
    client.line("WAIT 2 0");
    assert_eq!(client.line("EXEC").items(), Some(&[Value::Int(1)][..]));
    cluster.fleet.revive(2);
    assert_eq!(client.line("WAIT 2 20000"), Value::Int(2));
}

#[test]
fn nodes_talk_by_tls_if_they_are_told_to() {
    let authority = Authority::new();
    let own = authority.issue("node");
    let path = |path: &std::path::Path| path.to_str().expect("a name").to_string();
    let (certificate, key) = (path(&own.certificate), path(&own.key));
    let trusted = path(&authority.certificate());
    let cluster = found(&[
        "--tls-cluster",
        "yes",
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &key,
        "--tls-ca-cert-file",
        &trusted,
    ]);
    let name = key_of(cluster.fleet.node(1), "key");
    let mut client = cluster.fleet.node(1).client();
    assert_eq!(client.command(&["SET", &name, "v"]), Value::ok());
    let mut follower = cluster.fleet.node(0).client();
    follower.line("READONLY");
    assert_eq!(follower.command(&["GET", &name]), Value::bulk("v"));
}

#[test]
fn functions_are_the_same_on_all_nodes() {
    let mut cluster = found(&[]);
    let code = "#!lua name=lib\nredis.register_function('put', function(keys, args) \
                return redis.call('set', keys[1], args[1]) end)\n\
                redis.register_function{function_name='seven', callback=function() return 7 end, \
                flags={'no-writes'}}";
    // As a client of Redis Cluster does it: on one node after the other.
    for node in nodes(&cluster) {
        let loaded = node.client().command(&["FUNCTION", "LOAD", code]);
        assert_eq!(loaded, Value::bulk("lib"));
    }
    for node in nodes(&cluster) {
        let mut client = node.client();
        let key = key_of(node, "key");
        assert_eq!(
            client.command(&["FCALL", "put", "1", &key, "v"]),
            Value::ok()
        );
        assert_eq!(client.line("FCALL seven 0"), Value::Int(7));
        let another = code.replace("return 7", "return 8");
        let refused = client.command(&["FUNCTION", "LOAD", &another]);
        assert!(refused.text().contains("already exists"), "{refused:?}");
    }
    let key = key_of(cluster.fleet.node(1), "key");
    let moved = cluster
        .fleet
        .node(0)
        .client()
        .command(&["FCALL", "put", "1", &key, "v"]);
    assert!(moved.text().starts_with("MOVED "), "{moved:?}");
    // A node that was away learns what has changed.
    cluster.fleet.kill(2);
    let eight = code.replace("return 7", "return 8");
    let loaded = cluster
        .fleet
        .node(1)
        .client()
        .command(&["FUNCTION", "LOAD", "REPLACE", &eight]);
    assert_eq!(loaded, Value::bulk("lib"));
    assert_eq!(
        cluster.fleet.node(0).client().line("FCALL seven 0"),
        Value::Int(8)
    );
    cluster.fleet.revive(2);
    until("it knows the new function", || {
        cluster.fleet.node(2).client().line("FCALL seven 0") == Value::Int(8)
    });
    for node in nodes(&cluster) {
        until("it is deleted", || {
            let reply = node.client().line("FUNCTION DELETE lib");
            assert!(
                reply == Value::ok() || reply.text().starts_with("TRYAGAIN "),
                "{reply:?}"
            );
            reply == Value::ok()
        });
    }
    for node in nodes(&cluster) {
        assert!(
            node.client()
                .error_of("FCALL seven 0")
                .contains("Function not found")
        );
    }
}
