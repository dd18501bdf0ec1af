//! A cluster is begun, looked at and changed by `cairn cluster`, and shown to clients by CLUSTER.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cairn_tests::client::Value;
use cairn_tests::disk::SmallDisk;
use cairn_tests::ending::Ending;
use cairn_tests::nemesis::{ClusterClient, Reached, slot};
use cairn_tests::server::{Launch, Server, cairn_binary, free_port};

const PATIENCE: Duration = Duration::from_secs(30);

/// A node that belongs to no cluster yet.
fn launch() -> Launch {
    launch_at(free_port(), free_port())
}

fn launch_at(port: u16, port_for_nodes: u16) -> Launch {
    let flags = [
        ("--cluster-enabled", "yes".to_string()),
        ("--cluster-port", port_for_nodes.to_string()),
        ("--cluster-election-timeout", "500".to_string()),
        ("--cluster-heartbeat", "100".to_string()),
        ("--memory", "256mb".to_string()),
    ];
    let flags = flags
        .into_iter()
        .flat_map(|(name, value)| [name.to_string(), value]);
    Launch::cairn().port(port).flags(flags)
}

fn addresses(nodes: &[Server]) -> String {
    let addresses: Vec<String> = nodes.iter().map(Server::addr).collect();
    addresses.join(",")
}

/// `cairn cluster`: what it says, or complains.
fn cluster(words: &[&str]) -> Result<String, String> {
    let mut command = Command::new("timeout");
    let command = command.arg("120").arg(cairn_binary()).arg("cluster");
    let output = command.args(words).output().expect("cairn runs");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    match output.status.success() {
        true => Ok(text(output.stdout)),
        false => Err(text(output.stdout) + &text(output.stderr)),
    }
}

#[track_caller]
fn done(words: &[&str]) -> String {
    cluster(words).unwrap_or_else(|why| panic!("{words:?}: {why}"))
}

#[track_caller]
fn refused(words: &[&str], because: &str) {
    match cluster(words) {
        Ok(said) => panic!("{words:?} was not refused: {said}"),
        Err(why) => assert!(why.contains(because), "{words:?}: {why}"),
    }
}

fn found(count: usize, regions: &str) -> Vec<Server> {
    let nodes: Vec<Server> = (0..count).map(|_| launch().start()).collect();
    done(&["init", "--nodes", &addresses(&nodes), "--regions", regions]);
    nodes
}

#[track_caller]
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Waits until nothing is left to be done.
fn settle(node: &Server) -> String {
    let mut status = String::new();
    until("the cluster settles", || {
        status = cluster(&["status", "--node", &node.addr()]).unwrap_or_default();
        status.contains("nothing is to be done")
    });
    status
}

fn client(nodes: &[Server]) -> ClusterClient {
    ClusterClient::new(nodes.iter().map(Server::addr).collect(), PATIENCE)
}

#[track_caller]
fn ask(client: &mut ClusterClient, key: &str, line: &str) -> Value {
    let words = line.split(' ').map(str::to_string).collect();
    match client.call(key, &[words]) {
        Reached::Answered(mut replies) => replies.remove(0),
        other => panic!("{line}: {other:?}"),
    }
}

/// Writes so many keys, and has them read back by everybody who asks later.
fn fill(nodes: &[Server], keys: std::ops::Range<usize>) {
    let mut client = client(nodes);
    for number in keys {
        let key = format!("key:{number}");
        let line = format!("SET {key} value:{number}");
        assert_eq!(ask(&mut client, &key, &line), Value::ok());
    }
}

fn all_there(nodes: &[Server], keys: std::ops::Range<usize>) {
    let mut client = client(nodes);
    for number in keys {
        let key = format!("key:{number}");
        let value = ask(&mut client, &key, &format!("GET {key}"));
        assert_eq!(value, Value::bulk(format!("value:{number}")));
    }
}

/// The number that the cluster has given to a node.
fn number_of(node: &Server) -> Option<i64> {
    let told = node.client().line("CAIRN.CLUSTER WHOAMI");
    let told = told.into_items().expect("fields");
    let fields: Vec<&[Value]> = told.chunks_exact(2).collect();
    let found = fields.iter().find(|pair| pair[0].text() == "node");
    found.and_then(|pair| pair[1].as_int())
}

#[test]
fn a_server_alone_knows_no_cluster() {
    let server = Server::cairn(&[]);
    let mut client = server.client();
    for line in [
        "CLUSTER INFO",
        "CLUSTER HELP",
        "CLUSTER MEET a 1",
        "CLUSTER COUNTKEYSINSLOT 1",
        "CLUSTER KEYSLOT a",
        "CAIRN.CLUSTER WHOAMI",
        "CAIRN.CLUSTER STATUS",
    ] {
        let told = client.error_of(line);
        assert_eq!(
            told, "ERR This instance has cluster support disabled",
            "{line}"
        );
    }
    let nodes = server.addr();
    refused(
        &["init", "--nodes", &nodes],
        "start it with --cluster-enabled yes",
    );
    refused(&["status", "--node", &nodes], "cluster support disabled");
    refused(&["status", "--node", "127.0.0.1:1"], "127.0.0.1:1");
    refused(&["status", "--node", "nonsense"], "host:port");
}

#[test]
fn a_node_in_no_cluster_says_so_as_redis_does() {
    let node = launch().start();
    let mut client = node.client();
    let info = client.line("CLUSTER INFO").text();
    assert!(
        info.starts_with("cluster_state:fail\r\ncluster_slots_assigned:0\r\n"),
        "{info}"
    );
    assert!(info.contains("cluster_known_nodes:1\r\n"), "{info}");
    let nodes = client.line("CLUSTER NODES").text();
    let name = client.line("CLUSTER MYID").text();
    let port = node.port();
    let line = format!("{name} 127.0.0.1:{port}@");
    assert!(
        nodes.starts_with(&line) && nodes.contains("myself,master"),
        "{nodes}"
    );
    assert_eq!(client.line("CLUSTER SLOTS").items(), Some(&[][..]));
    assert_eq!(client.line("CLUSTER LINKS").items(), Some(&[][..]));
    assert_eq!(client.error_of("GET a"), "CLUSTERDOWN Hash slot not served");
    assert_eq!(
        client.error_of("SELECT 1"),
        "ERR SELECT is not allowed in cluster mode"
    );
    assert_eq!(client.line("SELECT 0"), Value::ok());
    for line in ["ASKING", "READONLY", "READWRITE"] {
        assert_eq!(client.line(line), Value::ok(), "{line}");
    }
    assert!(
        client
            .line("INFO cluster")
            .text()
            .contains("cluster_enabled:1")
    );
    assert!(
        client
            .line("INFO server")
            .text()
            .contains("redis_mode:cluster")
    );
    let told = client.error_of("CAIRN.CLUSTER STATUS");
    assert!(told.contains("belongs to no cluster yet"), "{told}");
    assert_eq!(client.error_of("CLUSTER REPLICAS x"), "ERR Unknown node x");
    assert_eq!(
        client.error_of("CLUSTER COUNTKEYSINSLOT 16384"),
        "ERR Invalid slot"
    );
    let told = client.error_of("CLUSTER GETKEYSINSLOT 1 -1");
    assert_eq!(told, "ERR Invalid slot or number of keys");
    assert_eq!(client.line("CLUSTER KEYSLOT foo"), Value::Int(12182));
    let told = client.error_of("CLUSTER MEET 127.0.0.1 7001");
    assert!(told.contains("cairn cluster add-node"), "{told}");
}

#[test]
fn what_cannot_begin_is_told() {
    let nodes: Vec<Server> = (0..2).map(|_| launch().start()).collect();
    let both = addresses(&nodes);
    let one = nodes[0].addr();
    refused(
        &["init", "--nodes", &format!("{one},{one}")],
        "are the same node",
    );
    refused(
        &["init", "--nodes", &both, "--replicas", "3"],
        "3 replicas need 3 nodes, and 2 are named",
    );
    refused(
        &["init", "--nodes", &format!("{one},127.0.0.1:1")],
        "127.0.0.1:1",
    );
    refused(&["init", "--nodes", &both, "--regions", "0"], "--regions");
    refused(
        &["init", "--nodes", &both, "--replicas", "10"],
        "--replicas",
    );
    refused(
        &["add-node", "--node", &one, "--address", &nodes[1].addr()],
        "belongs to no cluster",
    );
    // Nothing has come of all that.
    done(&[
        "init",
        "--nodes",
        &both,
        "--replicas",
        "2",
        "--regions",
        "2",
    ]);
    let other = launch().start();
    done(&[
        "init",
        "--nodes",
        &other.addr(),
        "--replicas",
        "1",
        "--regions",
        "1",
    ]);
    refused(
        &["add-node", "--node", &one, "--address", &other.addr()],
        "another cluster",
    );
    refused(
        &["init", "--nodes", &format!("{one},{}", other.addr())],
        "another cluster",
    );
}

#[test]
fn clients_are_shown_the_cluster_alike_by_all_nodes() {
    let nodes = found(3, "4");
    // It may be run again.
    done(&["init", "--nodes", &addresses(&nodes)]);
    let status = settle(&nodes[0]);
    for node in &nodes {
        assert!(status.contains(&node.addr()), "{status}");
    }
    let json = done(&["status", "--node", &nodes[1].addr(), "--json"]);
    assert!(
        json.starts_with("{\"cluster\":\"") && json.lines().count() == 1,
        "{json}"
    );
    let names: BTreeSet<String> = nodes
        .iter()
        .map(|node| node.client().line("CLUSTER MYID").text())
        .collect();
    assert_eq!(names.len(), 3);
    until("all nodes tell the same", || {
        let slots = nodes.iter().map(|node| node.client().line("CLUSTER SLOTS"));
        let slots: Vec<Value> = slots.collect();
        slots.iter().all(|other| *other == slots[0])
    });
    for node in &nodes {
        let mut client = node.client();
        let info = client.line("CLUSTER INFO").text();
        assert!(
            info.contains("cluster_state:ok") && info.contains("cluster_slots_ok:16384"),
            "{info}"
        );
        let listed = client.line("CLUSTER NODES").text();
        assert_eq!(listed.lines().count(), 3, "{listed}");
        assert_eq!(listed.matches("myself").count(), 1, "{listed}");
        assert!(names.iter().all(|name| listed.contains(name)), "{listed}");
        let shards = client.line("CLUSTER SHARDS").into_items().expect("shards");
        assert_eq!(shards.len(), 3);
        let links = client.line("CLUSTER LINKS").into_items().expect("links");
        assert_eq!(links.len(), 2);
    }
    fill(&nodes, 0..200);
    let at = slot(b"key:7");
    let counts: Vec<i64> = nodes
        .iter()
        .map(|node| {
            let counted = node.client().line(&format!("CLUSTER COUNTKEYSINSLOT {at}"));
            counted.as_int().expect("a number")
        })
        .collect();
    assert_eq!(counts.iter().sum::<i64>(), 1, "{counts:?}");
    let leader = counts
        .iter()
        .position(|count| *count == 1)
        .expect("one has it");
    let listed = nodes[leader]
        .client()
        .line(&format!("CLUSTER GETKEYSINSLOT {at} 5"));
    assert_eq!(listed.items(), Some(&[Value::bulk("key:7")][..]));
    let mut there = nodes[leader].client();
    let told = there.error_of("MOVE key:7 1");
    assert_eq!(told, "ERR MOVE is not allowed in cluster mode");
    let told = there.error_of("SWAPDB 0 1");
    assert_eq!(told, "ERR SWAPDB is not allowed in cluster mode");
    let told = there.error_of("COPY key:7 {key:7}2 DB 1");
    assert_eq!(
        told,
        "ERR Copying to another database is not allowed in cluster mode"
    );
    let elsewhere = nodes[(leader + 1) % 3].client().line("GET key:7");
    let moved = format!("MOVED {at} {}", nodes[leader].addr());
    assert_eq!(elsewhere.text(), moved);
    let said = done(&["check", "--node", &nodes[0].addr()]);
    assert_eq!(said.matches("hold the same").count(), 5, "{said}");
}

#[test]
fn redis_cli_finds_the_cluster_sound() {
    let nodes = found(3, "4");
    settle(&nodes[0]);
    fill(&nodes, 0..50);
    let redis_cli = |words: &[&str]| {
        let output = Command::new("redis-cli")
            .args(words)
            .output()
            .expect("redis-cli runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        (
            output.status.success(),
            said + &String::from_utf8_lossy(&output.stderr),
        )
    };
    let (is_well, said) = redis_cli(&["--cluster", "check", &nodes[1].addr()]);
    assert!(
        is_well && said.contains("[OK] All 16384 slots covered."),
        "{said}"
    );
    assert!(
        said.contains("[OK] All nodes agree about slots configuration."),
        "{said}"
    );
    assert!(
        !said.contains("[ERR]") && !said.contains("[WARNING]"),
        "{said}"
    );
    let (is_well, said) = redis_cli(&["--cluster", "info", &nodes[2].addr()]);
    assert!(
        is_well && said.contains("[OK] 50 keys in 3 masters."),
        "{said}"
    );
    let port = nodes[0].port().to_string();
    for number in 0..50 {
        let key = format!("key:{number}");
        let (is_well, said) = redis_cli(&["-c", "-p", &port, "GET", &key]);
        assert!(
            is_well && said.trim() == format!("value:{number}"),
            "{said}"
        );
    }
}

#[test]
fn a_node_comes_and_another_goes() {
    let mut nodes = found(3, "4");
    fill(&nodes, 0..300);
    nodes.push(launch().start());
    let first = nodes[0].addr();
    let new = nodes[3].addr();
    done(&["add-node", "--node", &first, "--address", &new]);
    // Again, as after an interruption.
    done(&["add-node", "--node", &first, "--address", &new]);
    assert_eq!(number_of(&nodes[3]), Some(4));
    let status = settle(&nodes[0]);
    let row = status
        .lines()
        .find(|line| line.contains(&new))
        .expect("a row");
    assert!(
        !row.trim_end().ends_with(" 0"),
        "it leads something: {status}"
    );
    fill(&nodes, 300..400);
    refused(
        &["remove-node", "--node", &new, "--id", "9"],
        "there is no node 9",
    );
    let said = done(&["remove-node", "--node", &new, "--id", "2"]);
    assert!(said.contains("node 2 is removed"), "{said}");
    done(&["remove-node", "--node", &new, "--id", "2"]);
    refused(
        &["remove-node", "--node", &new, "--id", "1"],
        "3 replicas are wanted, and 2 nodes would be left",
    );
    nodes[1].kill9();
    let left: Vec<Server> = nodes.into_iter().filter(Server::is_running).collect();
    assert_eq!(left.len(), 3);
    all_there(&left, 0..400);
    settle(&left[0]);
    let said = done(&["check", "--node", &first]);
    assert_eq!(said.matches("hold the same").count(), 5, "{said}");
}

#[test]
fn regions_move_are_led_and_are_split_while_written_to() {
    let mut nodes = found(3, "2");
    nodes.push(launch().start());
    let first = nodes[0].addr();
    done(&["rebalance", "--node", &first, "--off"]);
    done(&["add-node", "--node", &first, "--address", &nodes[3].addr()]);
    fill(&nodes, 0..200);
    let over = AtomicBool::new(false);
    let written = thread::scope(|scope| {
        let end = Ending(&over);
        let writer = scope.spawn(|| {
            let mut client = client(&nodes);
            let mut written = 200;
            while !over.load(Ordering::Relaxed) {
                let key = format!("key:{written}");
                let line = format!("SET {key} value:{written}");
                assert_eq!(ask(&mut client, &key, &line), Value::ok());
                written += 1;
            }
            written
        });
        let at = ["--node", first.as_str()];
        let run = |words: &[&str]| done(&[&words[..1], &at, &words[1..]].concat());
        run(&["move-region", "--region", "1", "--from", "2", "--to", "4"]);
        run(&["transfer-leader", "--region", "1", "--to", "4"]);
        let no = |words: &[&str], because: &str| {
            refused(&[&words[..1], &at, &words[1..]].concat(), because)
        };
        no(
            &["move-region", "--region", "1", "--from", "2", "--to", "1"],
            "region 1 has no replica on node 2",
        );
        no(
            &["move-region", "--region", "1", "--from", "1", "--to", "4"],
            "has a replica on node 4",
        );
        no(
            &["transfer-leader", "--region", "1", "--to", "2"],
            "region 1 has no replica on node 2",
        );
        no(
            &["transfer-leader", "--region", "77", "--to", "2"],
            "there is no region 77",
        );
        no(
            &["split-region", "--region", "1", "--at", "9000"],
            "cannot be split at slot 9000",
        );
        let said = run(&["split-region", "--region", "1", "--at", "4096"]);
        assert!(said.contains("the new one is region 3"), "{said}");
        run(&["split-region", "--region", "3", "--at", "4097"]);
        drop(end);
        writer.join().expect("a writer")
    });
    assert!(written > 250, "only {written} were written");
    all_there(&nodes, 0..written);
    let status = settle(&nodes[0]);
    for slots in ["0-4095", "4096 ", "4097-8191", "8192-16383"] {
        assert!(status.contains(slots), "{status}");
    }
    let said = done(&["check", "--node", &first]);
    assert_eq!(said.matches("hold the same").count(), 5, "{said}");
    done(&["rebalance", "--node", &first]);
    settle(&nodes[0]);
    all_there(&nodes, 0..written);
    for node in &mut nodes {
        node.terminate();
    }
    for node in &nodes {
        let mut command = Command::new(cairn_binary());
        let output = command.arg("check").arg("--dir").arg(node.dir()).output();
        let output = output.expect("cairn runs");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stdout)
        );
    }
}

#[test]
fn a_server_alone_becomes_the_first_node() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut alone = Launch::cairn().dir(dir.path()).start();
    let mut client = alone.client();
    for number in 0..100 {
        client.line(&format!("SET key:{number} value:{number}"));
    }
    client.line("HSET hash field value");
    alone.terminate();
    let mut nodes = vec![launch().dir(dir.path()).start()];
    nodes.extend((0..2).map(|_| launch().start()));
    let others = [nodes[1].addr(), nodes[0].addr(), nodes[2].addr()].join(",");
    done(&["init", "--nodes", &others]);
    all_there(&nodes, 0..100);
    let mut client = self::client(&nodes);
    let value = ask(&mut client, "hash", "HGET hash field");
    assert_eq!(value, Value::bulk("value"));
    done(&[
        "split-region",
        "--node",
        &nodes[0].addr(),
        "--region",
        "1",
        "--at",
        "8192",
    ]);
    all_there(&nodes, 0..100);
    let said = done(&["check", "--node", &nodes[2].addr()]);
    assert_eq!(said.matches("hold the same").count(), 3, "{said}");
}

#[test]
fn two_servers_with_data_do_not_become_one_cluster() {
    let dirs = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    for dir in &dirs {
        let mut alone = Launch::cairn().dir(dir.path()).start();
        alone.client().line("SET a b");
        alone.terminate();
    }
    let nodes: Vec<Server> = dirs
        .iter()
        .map(|dir| launch().dir(dir.path()).start())
        .collect();
    refused(&["init", "--nodes", &addresses(&nodes)], "both hold data");
    done(&["init", "--nodes", &nodes[0].addr()]);
    let add = [
        "add-node",
        "--node",
        &nodes[0].addr(),
        "--address",
        &nodes[1].addr(),
    ];
    refused(&add, "holds data");
}

#[test]
fn a_node_that_has_moved_is_found_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut nodes = vec![launch().start(), launch().start()];
    nodes.push(launch().dir(dir.path()).start());
    done(&["init", "--nodes", &addresses(&nodes), "--regions", "4"]);
    settle(&nodes[0]);
    fill(&nodes, 0..100);
    // Both ports change, as the address of a machine would.
    let mut moved = nodes.pop().expect("three nodes");
    moved.kill9();
    nodes.push(launch().dir(dir.path()).start());
    let address = nodes[2].addr();
    until("the map knows where it is", || {
        let status = cluster(&["status", "--node", &nodes[0].addr()]).unwrap_or_default();
        let mut rows = status.lines().map(|line| line.split_whitespace());
        rows.any(|mut row| row.nth(2) == Some("yes") && row.next() == Some(&address))
    });
    settle(&nodes[2]);
    all_there(&nodes, 0..100);
    done(&["check", "--node", &address]);
}

#[test]
fn a_node_that_has_lost_its_directory_is_not_taken_for_itself() {
    let ports = [free_port(), free_port()];
    let mut nodes = vec![launch().start(), launch().start()];
    nodes.push(launch_at(ports[0], ports[1]).start());
    let all = addresses(&nodes);
    done(&["init", "--nodes", &all, "--regions", "2"]);
    settle(&nodes[0]);
    fill(&nodes, 0..50);
    let mut lost = nodes.pop().expect("three nodes");
    lost.kill9();
    nodes.push(launch_at(ports[0], ports[1]).start());
    let place = ["--node", &nodes[0].addr(), "--address", &nodes[2].addr()];
    refused(&["init", "--nodes", &all], "has not its directory");
    refused(
        &[&["add-node"][..], &place].concat(),
        "has not its directory",
    );
    // It comes back as another, once there are others enough.
    nodes.push(launch().start());
    let fourth = ["--node", &nodes[0].addr(), "--address", &nodes[3].addr()];
    done(&[&["add-node"][..], &fourth].concat());
    done(&["remove-node", "--node", &nodes[0].addr(), "--id", "3"]);
    done(&[&["add-node"][..], &place].concat());
    settle(&nodes[0]);
    all_there(&nodes, 0..50);
}

#[test]
fn other_databases_keep_a_server_from_founding_a_cluster() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut alone = Launch::cairn().dir(dir.path()).start();
    let mut client = alone.client();
    client.line("SET a b");
    client.line("SELECT 3");
    client.line("SET hidden x");
    drop(client);
    alone.terminate();
    let node = launch().dir(dir.path()).start();
    refused(
        &["init", "--nodes", &node.addr()],
        "there are keys in others: 3",
    );
}

/// Its own disk has room, but what it is told is written to theirs too, and who cannot write his log any more ends.
#[test]
fn a_leader_spares_the_disks_of_those_who_follow_it() {
    let Some(disk) = SmallDisk::mount("400m") else {
        return;
    };
    let mut nodes = vec![launch().start(), launch().start()];
    nodes.push(launch().dir(disk.path().join("data")).start());
    done(&["init", "--nodes", &addresses(&nodes), "--regions", "1"]);
    settle(&nodes[0]);
    let mut client = nodes[0].client();
    until("the first node leads", || {
        client.line("SET before yes") == Value::ok()
    });
    // A quarter of a small disk is the reserve.
    let filler = disk.path().join("filler");
    let mut file = File::create(&filler).expect("a file");
    let refusal = (0..20).find_map(|_| {
        file.write_all(&vec![0; 16 << 20]).expect("there is room");
        thread::sleep(Duration::from_millis(400));
        let reply = client.line("SET after yes");
        reply.is_error().then_some(reply)
    });
    let refusal = refusal.expect("writes are refused before the disk is full");
    assert!(refusal.text().contains("disk"), "{refusal:?}");
    assert_eq!(client.line("GET before"), Value::bulk("yes"));
    assert_eq!(client.line("DEL after"), Value::Int(1));
    // Who does not lead sends clients on, whatever he is short of.
    for line in ["SET after yes", "GET before"] {
        let told = nodes[2].client().line(line);
        assert!(told.text().starts_with("MOVED "), "{line}: {told:?}");
    }
    let status = cluster(&["status", "--node", &nodes[0].addr()]).expect("it answers");
    assert!(status.contains("is short of room on its disk"), "{status}");
    assert!(nodes[2].is_running() && !nodes[2].has_ended());
    drop(file);
    fs::remove_file(&filler).expect("it was filled");
    until("there is room again", || {
        client.line("SET after yes") == Value::ok()
    });
    settle(&nodes[0]);
    nodes.iter_mut().for_each(|node| {
        node.terminate();
    });
}
