//! A crash has left a replica with neither its old state nor the snapshot that was to replace it. It is given up, with its log, and
//! another takes its place under a new number: it must not vote as if it remembered what it acknowledged.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use cairn_encoding::system::SystemKey;
use cairn_engine::{Batch, Clock, Engine, EngineOptions, Family, Maxima, Regions, SystemTime};
use tempfile::TempDir;

const CAIRN: &str = env!("CARGO_BIN_EXE_cairn");
const REGION: u64 = 1;
const PATIENCE: Duration = Duration::from_secs(60);

struct Node {
    dir: TempDir,
    port: u16,
    port_for_nodes: u16,
    process: Option<Child>,
}

fn own_port() -> u16 {
    loop {
        let port = fastrand::u16(20_000..32_000);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

impl Node {
    fn start() -> Node {
        let mut node = Node {
            dir: TempDir::new().unwrap(),
            port: own_port(),
            port_for_nodes: own_port(),
            process: None,
        };
        node.revive();
        node
    }

    fn revive(&mut self) {
        let mut command = Command::new(CAIRN);
        command.args(["serve", "--cluster-enabled", "yes", "--memory", "64mb"]);
        command.args(["--cluster-election-timeout", "500"]);
        command.args(["--cluster-heartbeat", "100", "--dir"]);
        command.arg(self.dir.path());
        command.args(["--port", &self.port.to_string()]);
        command.args(["--cluster-port", &self.port_for_nodes.to_string()]);
        self.process = Some(command.spawn().unwrap());
        until("it listens", || {
            TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok()
        });
    }

    fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The first line of the reply, and what it announces.
    fn ask(&self, command: &str) -> Option<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).ok()?;
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .ok()?;
        stream.write_all(format!("{command}\r\n").as_bytes()).ok()?;
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some(length) = line.strip_prefix('$') else {
            return Some(line.trim_end().to_string());
        };
        let mut bytes = vec![0; length.trim_end().parse().ok()?];
        reader.read_exact(&mut bytes).ok()?;
        String::from_utf8(bytes).ok()
    }

    /// `cairn cluster status --json`, without its spaces.
    fn status(&self) -> String {
        let mut command = Command::new(CAIRN);
        command.args(["cluster", "status", "--json", "--node", &self.address()]);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        text.split_whitespace().collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

#[track_caller]
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        sleep(Duration::from_millis(50));
    }
}

/// The command at whichever node leads.
fn ask_leader(nodes: &[Node], command: &str) -> String {
    let mut found = None;
    until(command, || {
        let running = nodes.iter().filter(|node| node.process.is_some());
        let mut replies = running.filter_map(|node| node.ask(command));
        found = replies.find(|reply| !reply.starts_with('-'));
        found.is_some()
    });
    found.unwrap()
}

/// As if the process had died when the old rows were gone, and then the files of the snapshot had been lost.
fn lose_half_a_snapshot(dir: &Path) {
    let options = EngineOptions {
        memory: 64 << 20,
        ..EngineOptions::default()
    };
    let engine = Engine::open_in_cluster(dir, &options).unwrap();
    let clock = Clock::new(Box::<SystemTime>::default());
    let regions = Regions::open(Arc::new(engine), Arc::new(clock)).unwrap();
    let slots = regions.descriptor(REGION).unwrap().unwrap().slots;
    let place = regions.applied(REGION).unwrap();
    let mut mark = Batch::new();
    let key = SystemKey::Installing { region: REGION }.encode();
    mark.put(Family::Meta, &key, slots.encode());
    let marked = regions.apply(REGION, vec![mark], &place, Maxima::default());
    marked.unwrap();
    regions.sync().unwrap();
}

/// The numbers of the replicas that a node has, the map's included, which vote.
fn voters_on(node: u64, status: &str) -> BTreeSet<u64> {
    let end = format!(r#","node":{node},"duty":"voter""#);
    let replicas = status.split(r#""id":"#);
    let numbers = replicas.filter_map(|text| text.split_once(&end)?.0.parse().ok());
    numbers.collect()
}

#[test]
fn a_replica_that_has_lost_its_state_is_replaced() {
    let mut nodes: Vec<Node> = (0..3).map(|_| Node::start()).collect();
    let addresses: Vec<String> = nodes.iter().map(Node::address).collect();
    let founded = Command::new(CAIRN)
        .args(["cluster", "init", "--regions", "1", "--nodes"])
        .arg(addresses.join(","))
        .status();
    assert!(founded.unwrap().success());
    assert_eq!(ask_leader(&nodes, "SET key value"), "+OK");
    let mut before = BTreeSet::new();
    until("each node has its replicas", || {
        before = voters_on(3, &nodes[0].status());
        before.len() == 2
    });

    nodes[2].kill();
    lose_half_a_snapshot(nodes[2].dir.path());
    nodes[2].revive();
    until("another replica has taken its place", || {
        let status = nodes[0].status();
        let after = voters_on(3, &status);
        // The group follows the map.
        let is_settled = status.contains(r#""steps":0"#) && status.contains(r#""waiting":[]"#);
        is_settled && after.len() == 2 && after != before
    });
    // It is needed, and has everything.
    nodes[0].kill();
    assert_eq!(ask_leader(&nodes, "GET key"), "value");
    assert_eq!(ask_leader(&nodes, "SET key again"), "+OK");
    assert_eq!(ask_leader(&nodes, "GET key"), "again");
}
