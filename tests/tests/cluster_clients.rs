//! A cluster as its clients see it, whoever they are: by TLS or not, with or without a library that follows it, and those who come
//! from a Redis Cluster.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use cairn_tests::certificates::Authority;
use cairn_tests::client::{Client, Value};
use cairn_tests::nemesis::cairn::{Cluster, Setup};
use cairn_tests::nemesis::{Fault, Target, redis, slot, until};
use cairn_tests::server::{Server, cairn_binary};

/// Three nodes, of which each leads one of three regions.
fn found(flags: &[&str]) -> Cluster {
    let cluster = Cluster::found(&setup(flags));
    until_each_leads(&cluster);
    cluster
}

fn setup(flags: &[&str]) -> Setup {
    let own = ["--memory", "256mb"];
    Setup {
        regions: 3,
        flags: own.iter().chain(flags).map(ToString::to_string).collect(),
        links: false,
        ..Setup::default()
    }
}

fn until_each_leads(cluster: &Cluster) {
    until("each node leads a region", || {
        (0..3).all(|node| led_by(cluster, node).is_some())
    });
}

/// A key that the node leads.
fn led_by(cluster: &Cluster, node: usize) -> Option<String> {
    let status = cluster.administrator.status()?;
    let key = status.led_by(node).next()?.key(0);
    let mut client = cluster.fleet.node(node).client();
    let reply = client.command(&["WATCH", &key]);
    (!reply.is_error()).then_some(key)
}

#[track_caller]
fn key_of(cluster: &Cluster, node: usize) -> String {
    led_by(cluster, node).expect("the node leads something")
}

/// What a program says, and complains about.
fn said_by(mut command: Command) -> String {
    let output = command.output().expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    text(output.stdout) + &text(output.stderr)
}

#[test]
fn clients_come_and_are_sent_on_by_tls_and_with_a_password() {
    let authority = Authority::new();
    let own = authority.issue("node");
    let path = |path: &std::path::Path| path.to_str().expect("a name").to_string();
    let trusted = path(&authority.certificate());
    let (certificate, key) = (path(&own.certificate), path(&own.key));
    let flags = [
        ["--tls-cert-file", &certificate],
        ["--tls-key-file", &key],
        ["--tls-ca-cert-file", &trusted],
        ["--tls-auth-clients", "no"],
        ["--requirepass", "open sesame"],
    ];
    let cluster = Cluster::start(&Setup {
        tls: true,
        ..setup(flags.as_flattened())
    });
    let address = |node: usize| format!("127.0.0.1:{}", cluster.tls_ports[node]);
    let administrate = |words: &[&str], password: &str| {
        let mut command = Command::new("timeout");
        let command = command.arg("60").arg(cairn_binary()).arg("cluster");
        let by = ["--tls", "--tls-ca", &trusted, "--password", password];
        let output = command.args(words).args(by).output().expect("cairn runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let complained = String::from_utf8_lossy(&output.stderr).into_owned();
        match output.status.success() {
            true => Ok(said),
            false => Err(complained),
        }
    };
    let nodes = [0, 1, 2].map(address).join(",");
    let init = ["init", "--nodes", &nodes, "--regions", "3"];
    let refused = administrate(&init, "wrong").expect_err("a wrong password");
    assert!(refused.contains("WRONGPASS"), "{refused}");
    administrate(&init, "open sesame").expect("a cluster");
    let status = ["status", "--node", &address(1)];
    until("the cluster settles", || {
        let status = administrate(&status, "open sesame");
        status.is_ok_and(|status| status.contains("nothing is to be done"))
    });
    let cli = |port: u16, flags: &[&str], words: &[&str]| {
        let mut command = Command::new("timeout");
        command.args(["20", "redis-cli", "--no-auth-warning", "-a", "open sesame"]);
        command.args(["-p", &port.to_string()]);
        command.args(flags).args(words);
        said_by(command)
    };
    let by_tls = ["--tls", "--cacert", &trusted];
    let following = [&["-c"], &by_tls[..]].concat();
    let mut moved = 0;
    for n in 0..20 {
        let key = format!("key:{n}");
        let set = cli(cluster.tls_ports[n % 3], &following, &["set", &key, "v"]);
        assert!(set.ends_with("OK\n"), "{set}");
        // By each port it is told one of its own kind.
        for (port, flags, others) in [
            (cluster.tls_ports[0], &by_tls[..], &cluster.tls_ports),
            (
                cluster.fleet.node(0).port(),
                &[],
                &(0..3).map(|node| cluster.fleet.node(node).port()).collect(),
            ),
        ] {
            let said = cli(port, flags, &["get", &key]);
            let Some(told) = said.strip_prefix("MOVED ") else {
                assert_eq!(said, "v\n");
                continue;
            };
            let told: u16 = told
                .trim()
                .rsplit(':')
                .next()
                .expect("a port")
                .parse()
                .expect("a port");
            assert!(others.contains(&told), "{said}, none of {others:?}");
            moved += 1;
        }
    }
    assert!(moved > 0);
    let listed = cli(cluster.tls_ports[0], &by_tls, &["cluster", "slots"]);
    for port in &cluster.tls_ports {
        assert!(listed.contains(&port.to_string()), "{listed}");
    }
}

#[test]
fn a_node_that_may_have_been_deposed_lists_no_keys() {
    let mut cluster = Cluster::found(&Setup {
        links: true,
        ..setup(&QUICK)
    });
    until_each_leads(&cluster);
    let key = key_of(&cluster, 0);
    let mut client = cluster.fleet.node(0).client();
    assert_eq!(client.command(&["SET", &key, "v"]), Value::ok());
    let place = slot(key.as_bytes());
    let walks = [
        "DBSIZE".to_string(),
        "KEYS *".to_string(),
        "SCAN 0".to_string(),
        "RANDOMKEY".to_string(),
        format!("CLUSTER COUNTKEYSINSLOT {place}"),
        format!("CLUSTER GETKEYSINSLOT {place} 10"),
    ];
    let in_script = ["EVAL", "return redis.call('dbsize')", "0"];
    for walk in &walks {
        assert!(!client.line(walk).is_error(), "{walk}");
    }
    assert_eq!(client.command(&in_script), Value::Int(1));
    let mut rng = fastrand::Rng::new();
    assert!(cluster.hurt(Fault::Part, &[0], &mut rng));
    // It was told just now that it leads; soon that proves nothing.
    thread::sleep(Duration::from_millis(1500));
    for walk in &walks {
        let told = client.line(walk);
        assert!(is_down(&told), "{walk}: {told:?}");
    }
    for flush in ["FLUSHALL", "FLUSHDB ASYNC"] {
        let told = client.line(flush);
        assert!(is_down(&told), "{flush}: {told:?}");
    }
    let told = client.command(&in_script);
    assert!(is_down(&told), "{told:?}");
    client.line("MULTI");
    client.line("DBSIZE");
    let done = client.line("EXEC");
    let told = done.items().map(|items| &items[0]);
    assert!(told.is_some_and(is_down), "{done:?}");
    cluster.heal(Fault::Part, &[0]);
    until("it knows again what it leads", || {
        walks.iter().all(|walk| !client.line(walk).is_error())
    });
    let reply = client.command(&["GET", &key]);
    let has_moved = reply.text().starts_with("MOVED ");
    assert!(has_moved || reply == Value::bulk("v"), "{reply:?}");
}

/// Of a node that is cut off: it does not know whether it leads, or has stepped down by itself in the meantime. That it has no
/// keys would not be true, for a client that asks all.
fn is_down(told: &Value) -> bool {
    matches!(told, Value::Error(_)) && told.text().contains("CLUSTERDOWN ")
}

/// Flags of nodes that find out sooner that another is gone.
const QUICK: [&str; 4] = [
    "--cluster-election-timeout",
    "500",
    "--cluster-heartbeat",
    "100",
];

#[test]
fn a_command_waits_for_one_election_before_it_fails() {
    let mut cluster = found(&QUICK);
    let key = key_of(&cluster, 0);
    cluster.fleet.kill(0);
    // Others take over: whoever asks is sent to them, or answered by them, and not told that nobody is there.
    let said = cluster.fleet.node(1).client().command(&["GET", &key]);
    assert!(
        said == Value::Null || said.text().starts_with("MOVED "),
        "{said:?}"
    );
    cluster.fleet.kill(2);
    let mut client = cluster.fleet.node(1).client();
    until("it is known that nobody leads", || {
        client
            .command(&["GET", &key])
            .text()
            .starts_with("CLUSTERDOWN ")
    });
    let began = Instant::now();
    let said = client.command(&["SET", &key, "v"]);
    let waited = began.elapsed();
    assert!(said.text().starts_with("CLUSTERDOWN "), "{said:?}");
    let longest = Duration::from_secs(5);
    assert!(
        (Duration::from_millis(500)..longest).contains(&waited),
        "{waited:?}"
    );
}

/// A key of a region that another node leads, and what that node's replica says of it while it is cut off.
fn read_while_parted(flags: &[&str]) -> Value {
    let flags = [&QUICK, flags].concat();
    let mut cluster = Cluster::found(&Setup {
        links: true,
        ..setup(&flags)
    });
    until_each_leads(&cluster);
    let key = key_of(&cluster, 1);
    let mut writer = cluster.fleet.node(1).client();
    assert_eq!(writer.command(&["SET", &key, "v"]), Value::ok());
    let mut reader = cluster.fleet.node(0).client();
    let told = reader.command(&["GET", &key]);
    assert!(told.text().starts_with("MOVED "), "{told:?}");
    assert_eq!(reader.line("READONLY"), Value::ok());
    until("the replica has it", || {
        reader.command(&["GET", &key]) == Value::bulk("v")
    });
    assert!(cluster.hurt(Fault::Part, &[0], &mut fastrand::Rng::new()));
    thread::sleep(Duration::from_millis(1500));
    reader.command(&["GET", &key])
}

#[test]
fn only_who_may_read_the_past_is_answered_by_a_replica_that_cannot_ask() {
    assert_eq!(
        read_while_parted(&["--readonly-stale", "yes"]),
        Value::bulk("v")
    );
    let told = read_while_parted(&[]);
    assert!(is_down(&told), "{told:?}");
}

#[test]
fn keyspace_events_are_heard_on_the_leader() {
    let cluster = found(&[]);
    let key = key_of(&cluster, 1);
    let channel = format!("__keyspace@0__:{key}");
    for node in 0..3 {
        let mut client = cluster.fleet.node(node).client();
        let set = client.line("CONFIG SET notify-keyspace-events KEA");
        assert_eq!(set, Value::ok());
    }
    let mut listeners: Vec<Client> = (0..3)
        .map(|node| cluster.fleet.node(node).client())
        .collect();
    for listener in &mut listeners {
        listener.command(&["SUBSCRIBE", &channel, "end"]);
        listener.receive();
    }
    let mut writer = cluster.fleet.node(1).client();
    assert_eq!(writer.command(&["SET", &key, "v"]), Value::ok());
    assert_eq!(writer.command(&["PEXPIRE", &key, "1"]), Value::Int(1));
    let mut heard = || {
        let message = listeners[1].receive();
        message.items().map(|items| items[2].text())
    };
    let events = [heard(), heard(), heard()];
    assert_eq!(
        events.map(Option::unwrap_or_default),
        ["set", "expire", "expired"]
    );
    // What is published reaches all, and nothing came before it on the others.
    writer.command(&["PUBLISH", "end", "now"]);
    for listener in &mut listeners {
        let message = listener.receive();
        let items = message.items().expect("a message");
        assert_eq!(items[1].text(), "end", "{message:?}");
    }
}

#[test]
fn nodes_tell_of_their_connections() {
    let cluster = found(&[]);
    let mut client = cluster.fleet.node(0).client();
    let links = client.line("CLUSTER LINKS");
    let links = links.items().expect("a list");
    assert_eq!(links.len(), 2, "{links:?}");
    for link in links {
        let fields = link.items().expect("a map");
        assert_eq!(fields[0].text(), "direction");
        let since = fields[5].as_int().expect("milliseconds");
        let now = std::time::UNIX_EPOCH.elapsed().expect("a time").as_millis() as i64;
        assert!((now - 120_000..=now).contains(&since), "{since} {now}");
    }
    let count = |client: &mut Client, name: &str| -> u64 {
        let info = client.line("CLUSTER INFO").text();
        let line = info.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.strip_prefix(':'))
            .expect(name)
            .parse()
            .expect("a number")
    };
    for name in [
        "cluster_stats_messages_sent",
        "cluster_stats_messages_received",
    ] {
        let before = count(&mut client, name);
        assert!(before > 0, "{name}");
        until(name, || count(&mut client, name) > before);
    }
}

#[test]
fn keys_come_from_a_redis_cluster_by_migrate() {
    let scratch = tempfile::tempdir().expect("a directory");
    let source = redis::cluster(1, Duration::from_secs(5), scratch.path());
    let cluster = found(&[]);
    let mut from = source.node(0).client();
    for node in 0..3 {
        let key = key_of(&cluster, node);
        from.command(&["RPUSH", &key, "a", "b"]);
        let port = cluster.fleet.node(node).port().to_string();
        let moved = from.command(&["MIGRATE", "127.0.0.1", &port, &key, "0", "5000"]);
        assert_eq!(moved, Value::ok());
        let mut client = cluster.fleet.node(node).client();
        let list = client.command(&["LRANGE", &key, "0", "-1"]);
        assert_eq!(list.items(), Some(&["a", "b"].map(Value::bulk)[..]));
        assert_eq!(from.command(&["EXISTS", &key]), Value::Int(0));
    }
}

/// A cluster whose nodes lead a third of the slots each, in the order of these.
struct Thirds {
    clients: Vec<Client>,
    ports: Vec<String>,
}

impl Thirds {
    fn of(nodes: Vec<&Server>) -> Thirds {
        Thirds {
            clients: nodes.iter().map(|node| node.client()).collect(),
            ports: nodes.iter().map(|node| node.addr()).collect(),
        }
    }

    /// What the first node answers. Addresses of others become their places.
    fn ask(&mut self, words: &[String]) -> String {
        let reply = format!("{:?}", self.clients[0].command(words));
        let ports = self.ports.iter().enumerate();
        ports.fold(reply, |reply, (place, port)| {
            reply.replace(port, &format!("node {place}"))
        })
    }
}

/// The names `a0`, `a1` and so on become keys whose slot is in that third; `{a0}` does as a part of one.
fn words(line: &str) -> Vec<String> {
    let key = |name: char, third: u16| {
        let middle = third * 5461 + 1000..third * 5461 + 4000;
        let names = (0..).map(|n| format!("{name}:{n}"));
        let mut names = names.filter(|name| middle.contains(&slot(name.as_bytes())));
        names.next().expect("some name has its slot")
    };
    let mut line = line.to_string();
    for name in ['a', 'b', 'c'] {
        for third in 0..3 {
            line = line.replace(&format!("{name}{third}"), &key(name, third));
        }
    }
    line.split(' ').map(str::to_string).collect()
}

/// What is told of slots, and of what a cluster cannot do.
const LINES: &str = "
SET a0 v
GET a0
GET a1
SET a2 v
MGET a0 b0
MGET a0 {a0}x
MGET a0 a1
MSET a1 v b1 v
DEL a0 a1
GET
GET a1 a2
NOSUCH a1
SWAPDB 0 1
SWAPDB 0 0
SWAPDB x 0
SELECT 0
SELECT 1
MOVE a0 1
MOVE a1 1
MOVE a0 x
COPY a0 {a0}copy DB 1
COPY a0 {a0}copy DB 0
COPY a0 {a0}copy DB x
COPY a0 a1
DEL {a0}copy
RPUSH {a0}list 2 1
SORT {a0}list
SORT {a0}list BY w_*
SORT {a0}list BY nosort
SORT {a0}list GET w_*
SORT_RO {a0}list BY w_*
SORT {a0}list STORE a1
SORT {a1}list BY w_*
REPLICAOF NO ONE
SLAVEOF 127.0.0.1 1
FAILOVER
ZUNION 5 a0 a1
ZUNION 2 a0 a1
ZUNION x a0 a1
ZUNION 0 a0 a1
ZUNIONSTORE a0 9 a1
ZUNIONSTORE a0 1 a1
LMPOP 9 a0 a1 LEFT
LMPOP 2 a0 a1 LEFT
LMPOP 1 a1 LEFT
LMPOP 1 a1 UP
BLMPOP 0 9 a0 a1 LEFT
SINTERCARD 3 a0 a1
SINTERCARD 1 a1
EVAL return 1 a0
EVAL return_1 2 a0
EVAL x 1 a1
EVAL x 2 a0 a1
EVALSHA ffffffffffffffffffffffffffffffffffffffff 1 a0
EVALSHA ffffffffffffffffffffffffffffffffffffffff 1 a1
EVALSHA ffffffffffffffffffffffffffffffffffffffff 2 a0 a1
EVALSHA ffffffffffffffffffffffffffffffffffffffff 0
EVALSHA_RO ffffffffffffffffffffffffffffffffffffffff 1 a1
FCALL f 1 a1
FCALL f 1 a0
FCALL f 2 a0 a1
FCALL_RO f 0
COMMAND GETKEYS SPUBLISH a b
COMMAND GETKEYS SSUBSCRIBE a b
COMMAND GETKEYS GET a1
COMMAND GETKEYS ZUNION 5 a b
COMMAND GETKEYS EVAL x 2 a b
XREAD STREAMS a0 a1 0 0
XREAD STREAMS a1 0
XREAD COUNT
XREADGROUP GROUP g c STREAMS a1 >
XGROUP CREATE a1 g $
XINFO STREAM a1
OBJECT ENCODING a1
OBJECT HELP x
OBJECT ENCODING
MEMORY USAGE a1
GEOSEARCHSTORE a0 a1 FROMLONLAT 1 1 BYRADIUS 1 m
GEORADIUS a0 1 1 1 m STORE a1
BITOP AND a0 a1
PFCOUNT a0 a1
PFMERGE a0 a1
RENAME a0 a1
RENAME a0 {a0}x
SMOVE a0 a1 x
LMOVE a0 a1 LEFT LEFT
BLPOP a0 a1 1
BLPOP a1 1
BLPOP a1 x
BLPOP a1 -1
MIGRATE 127.0.0.1 1 a1 0 100
SSUBSCRIBE a1
SSUBSCRIBE a0 a1
SPUBLISH a1 x
SPUBLISH a0 x
PUBLISH a1 x
WATCH a1
WATCH a0 a1
WATCH a0
UNWATCH
MULTI
GET a0
GET a0
EXEC
MULTI
GET a1
EXEC
MULTI
GET a0
GET b0
EXEC
MULTI
SET a0 x
NOSUCH
EXEC
MULTI
SWAPDB 0 1
MOVE a0 1
SELECT 1
PING
EXEC
MULTI
SORT {a0}list BY w_*
EXEC
MULTI
EVAL x 1 a1
DISCARD
READONLY
SET a1 v
READWRITE
GET a1
ASKING
CLUSTER KEYSLOT a1
CLUSTER KEYSLOT
CLUSTER COUNTKEYSINSLOT 99999
CLUSTER COUNTKEYSINSLOT x
CLUSTER GETKEYSINSLOT 1 -1
CLUSTER GETKEYSINSLOT 1 x
CLUSTER REPLICAS nobody
CLUSTER NOSUCH
RESTORE a1 0 x
RESTORE a0 0 x
RESTORE-ASKING a0 0 x
SUBSCRIBE channel
GET a1
GET a0
SET a0
UNSUBSCRIBE channel
";

#[test]
fn errors_are_those_of_a_redis_cluster() {
    let scratch = tempfile::tempdir().expect("a directory");
    let source = redis::cluster(3, Duration::from_secs(5), scratch.path());
    let mut expected = Thirds::of((0..3).map(|node| source.node(node)).collect());
    let cluster = found(&["--enable-debug-command", "yes"]);
    let status = cluster.administrator.status().expect("a status");
    let leaders = (0..3).map(|third| {
        let key = &words(&format!("a{third}"))[0];
        let region = status.region_of(key).expect("a region");
        cluster.fleet.node(region.leader.expect("a leader"))
    });
    let mut found = Thirds::of(leaders.collect());
    let lines = LINES.lines().filter(|line| !line.is_empty());
    let differ = lines.filter_map(|line| {
        let words = words(line);
        let (expected, found) = (expected.ask(&words), found.ask(&words));
        (expected != found).then(|| format!("{line}\n  Redis {expected}\n  Cairn {found}\n"))
    });
    let differ: Vec<String> = differ.collect();
    assert!(differ.is_empty(), "{}", differ.concat());
}

#[test]
fn what_a_client_waits_for_through_another_node_is_popped_for_nobody_else() {
    let cluster = found(&["--cluster-proxy", "yes"]);
    let far = key_of(&cluster, 1);
    let (near_node, far_node) = (cluster.fleet.node(0), cluster.fleet.node(1));
    let mut pusher = far_node.client();
    let waiting_there = |pusher: &mut Client| {
        let info = pusher.line("INFO clients").text();
        info.contains("blocked_clients:1")
    };
    // Its client goes: what is pushed then stays.
    for _ in 0..5 {
        let mut waiting = near_node.client();
        waiting.send(&["BLPOP", &far, "10"]);
        waiting.flush().expect("it is sent");
        until("it waits over there", || waiting_there(&mut pusher));
        drop(waiting);
        until("it is called back", || !waiting_there(&mut pusher));
        assert_eq!(pusher.command(&["RPUSH", &far, "x"]), Value::Int(1));
        assert_eq!(pusher.command(&["LPOP", &far]), Value::bulk("x"));
    }
    // It is unblocked, by a client of its own node.
    for (how, with_error) in [("TIMEOUT", false), ("ERROR", true)] {
        let mut waiting = near_node.client();
        let id = waiting
            .line("CLIENT ID")
            .as_int()
            .expect("a number")
            .to_string();
        let (sender, replies) = std::sync::mpsc::channel();
        let key = far.clone();
        thread::spawn(move || sender.send(waiting.command(&["BLPOP", &key, "0"])));
        until("it waits over there", || waiting_there(&mut pusher));
        let mut other = near_node.client();
        let began = Instant::now();
        assert_eq!(
            other.command(&["CLIENT", "UNBLOCK", &id, how]),
            Value::Int(1)
        );
        let reply = replies
            .recv_timeout(Duration::from_secs(10))
            .expect("a reply");
        assert!(
            began.elapsed() < Duration::from_millis(900),
            "{:?}",
            began.elapsed()
        );
        match with_error {
            true => assert!(reply.text().starts_with("UNBLOCKED "), "{reply:?}"),
            false => assert!(reply.is_null(), "{reply:?}"),
        }
        assert_eq!(
            other.command(&["CLIENT", "UNBLOCK", &id, how]),
            Value::Int(0)
        );
    }
    // Replies that came before do not wait with it.
    let mut pipeline = near_node.client();
    pipeline.send(&["PING"]);
    pipeline.send(&["BLPOP", &far, "10"]);
    assert_eq!(pipeline.receive().text(), "PONG");
    pusher.command(&["RPUSH", &far, "y"]);
    let popped = pipeline.receive();
    assert_eq!(
        popped.items(),
        Some(&[Value::bulk(&far), Value::bulk("y")][..])
    );
}

#[test]
fn transactions_take_scripts_and_functions_to_other_nodes() {
    let cluster = found(&["--cluster-proxy", "yes"]);
    let far = key_of(&cluster, 1);
    let mut client = cluster.fleet.node(0).client();
    // By its text, since it is known here alone.
    let sha = client
        .command(&["SCRIPT", "LOAD", "return redis.call('incr', KEYS[1])"])
        .text();
    client.line("MULTI");
    client.command(&["SET", &far, "5"]);
    client.command(&["EVALSHA", &sha, "1", &far]);
    let done = client.line("EXEC");
    assert_eq!(done.items(), Some(&[Value::ok(), Value::Int(6)][..]));
    // Functions are changed where their region is led, whoever is asked.
    for node in 0..3 {
        let mut client = cluster.fleet.node(node).client();
        let code = format!(
            "#!lua name=lib{node}\nredis.register_function('f{node}', function() return {node} end)"
        );
        client.line("MULTI");
        client.command(&["FUNCTION", "LOAD", &code]);
        let done = client.line("EXEC");
        assert_eq!(
            done.items(),
            Some(&[Value::bulk(format!("lib{node}"))][..]),
            "{done:?}"
        );
        let key = key_of(&cluster, node);
        client.line("MULTI");
        client.command(&["SET", &key, "v"]);
        client.line("FUNCTION FLUSH");
        let done = client.line("EXEC");
        let told = done.items().map(|items| items[1].text());
        assert!(
            told.is_some_and(|told| told.contains("together with keys")),
            "{done:?}"
        );
    }
    for node in 0..3 {
        let mut client = cluster.fleet.node(node).client();
        for function in 0..3 {
            until("it knows the function", || {
                client.line(&format!("FCALL f{function} 0")) == Value::Int(function)
            });
        }
    }
}
