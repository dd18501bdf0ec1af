//! Three real processes are one database: what it has acknowledged survives them.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use cairn_tests::client::Value;
use cairn_tests::nemesis::{ClusterClient, Reached};
use cairn_tests::server::{Launch, Server, cairn_binary, free_port};

const PATIENCE: Duration = Duration::from_secs(30);
/// Of each log this much is kept, so that who was away for a short time needs a snapshot.
const SHORT_LOG: &str = "65536";

fn launch() -> Launch {
    let flags = [
        ("--cluster-enabled", "yes"),
        ("--cluster-election-timeout", "500"),
        ("--cluster-heartbeat", "100"),
        ("--cluster-log-size", SHORT_LOG),
        ("--cluster-log-limit", SHORT_LOG),
        ("--memory", "128mb"),
    ];
    let flags = flags.iter().flat_map(|(name, value)| [*name, *value]);
    let port = free_port().to_string();
    Launch::cairn()
        .port(free_port())
        .flags(flags)
        .flags(["--cluster-port", &port])
}

fn found(regions: &str) -> Vec<Server> {
    let nodes: Vec<Server> = (0..3).map(|_| launch().start()).collect();
    let addresses: Vec<String> = nodes.iter().map(Server::addr).collect();
    let output = Command::new(cairn_binary())
        .args(["cluster", "init", "--regions", regions, "--nodes"])
        .arg(addresses.join(","))
        .output()
        .expect("cairn runs");
    assert!(output.status.success(), "{output:?}");
    nodes
}

struct Client(ClusterClient);

impl Client {
    fn of(nodes: &[Server]) -> Client {
        let addresses = nodes.iter().map(Server::addr).collect();
        Client(ClusterClient::new(addresses, PATIENCE))
    }

    /// None if nobody knows what became of it.
    #[track_caller]
    fn ask(&mut self, words: &[&str]) -> Option<Value> {
        let command = words.iter().map(ToString::to_string).collect();
        match self.0.call(words[1], &[command]) {
            Reached::Answered(mut replies) => Some(replies.remove(0)),
            Reached::Unknown(_) => None,
            other => panic!("{words:?}: {other:?}"),
        }
    }

    /// Sets keys, and returns those of which it is certain.
    fn fill(&mut self, keys: std::ops::Range<usize>, value: &str) -> Vec<usize> {
        let set = |key: &usize| {
            let reply = self.ask(&["SET", &format!("key:{key}"), value]);
            reply.is_some_and(|reply| !reply.is_error())
        };
        keys.filter(set).collect()
    }

    #[track_caller]
    fn check(&mut self, keys: &[usize], value: &str) {
        for key in keys {
            // Who asks a node that dies asks again.
            let name = format!("key:{key}");
            let reply = (0..5).find_map(|_| self.ask(&["GET", &name]));
            let reply = reply.expect("a read has an answer");
            assert_eq!(reply.as_bytes(), Some(value.as_bytes()), "key:{key}");
        }
    }
}

#[test]
fn what_was_acknowledged_outlives_every_node() {
    let mut nodes = found("4");
    let mut client = Client::of(&nodes);
    let mut acknowledged = client.fill(0..100, "a");
    assert_eq!(acknowledged.len(), 100);
    for (node, from) in nodes.iter_mut().zip([100, 200, 300]) {
        node.kill9();
        acknowledged.extend(client.fill(from..from + 100, "a"));
        client.check(&acknowledged, "a");
        node.start();
    }
    assert!(acknowledged.len() >= 390, "{}", acknowledged.len());
    nodes.iter_mut().for_each(Server::kill9);
    nodes.iter_mut().for_each(Server::start);
    client.check(&acknowledged, "a");
    // In good order too.
    for node in &mut nodes {
        assert!(node.terminate().success(), "{}", node.log_tail());
    }
    nodes.iter_mut().for_each(Server::start);
    client.check(&acknowledged, "a");
    let more = client.fill(400..500, "a");
    client.check(&more, "a");
}

#[test]
fn who_was_away_for_longer_than_the_log_comes_back_by_a_snapshot() {
    let mut nodes = found("2");
    let mut client = Client::of(&nodes);
    let value = "x".repeat(2000);
    let before = client.fill(0..50, "old");
    nodes[2].kill9();
    // Several times as much as the logs keep, and over a time in which they are cut off.
    let mut during = Vec::new();
    for round in 1..5 {
        during.extend(client.fill(50..250, &value));
        thread::sleep(Duration::from_millis(500 * round));
    }
    nodes[2].start();
    let deadline = Instant::now() + PATIENCE;
    // It can lead again only when it has caught up; then any one of the others can go.
    while !nodes[2].log().contains("was put in place") {
        assert!(Instant::now() < deadline, "{}", nodes[2].log_tail());
        thread::sleep(Duration::from_millis(100));
    }
    nodes[0].kill9();
    client.check(&before, "old");
    client.check(&during, &value);
    assert_eq!(client.fill(250..300, "new").len(), 50);
}
