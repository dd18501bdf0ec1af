//! A Redis Cluster: as many masters, and behind each a replica.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::time::Duration;

use super::fleet::Fleet;
use super::until;
use crate::client::Value;
use crate::server::{CLAIMABLE, Launch, free_port};

/// Nodes `0..masters` are masters, and node `masters + n` is the replica of node `n`. It takes over when its master
/// has been silent for `timeout`.
pub fn cluster(masters: usize, timeout: Duration, dir: &Path) -> Fleet {
    let timeout = timeout.as_millis().to_string();
    let fleet = Fleet::start(masters * 2, |node| {
        let launch = Launch::redis().dir(dir.join(node.to_string()));
        launch.port(free_ports()).flags([
            "--cluster-enabled",
            "yes",
            "--cluster-node-timeout",
            &timeout,
            // A replica takes over however old its data is, so that what it lacks is lost.
            "--cluster-replica-validity-factor",
            "0",
            "--cluster-require-full-coverage",
            "no",
            // A node that comes back has all that it has acknowledged.
            "--appendonly",
            "yes",
            "--appendfsync",
            "always",
        ])
    });
    let first = fleet.node(0).port().to_string();
    for node in 1..masters * 2 {
        let met = fleet
            .node(node)
            .client()
            .command(&["CLUSTER", "MEET", "127.0.0.1", &first]);
        assert_eq!(met, Value::ok());
    }
    for master in 0..masters {
        let range = [16384 * master / masters, 16384 * (master + 1) / masters - 1];
        let [from, to] = range.map(|slot| slot.to_string());
        let added = fleet
            .node(master)
            .client()
            .command(&["CLUSTER", "ADDSLOTSRANGE", &from, &to]);
        assert_eq!(added, Value::ok());
    }
    for master in 0..masters {
        let id = fleet.node(master).client().line("CLUSTER MYID");
        let id = String::from_utf8_lossy(id.as_bytes().unwrap_or_default()).into_owned();
        until("a replica knows its master", || {
            let replicate = ["CLUSTER", "REPLICATE", &id];
            fleet.node(masters + master).client().command(&replicate) == Value::ok()
        });
    }
    for node in 0..masters * 2 {
        until("all nodes agree", || is_whole(&fleet, node, masters));
    }
    fleet
}

/// A port of which the one for other nodes, which lies higher by 10000, is free too, and not among those that tests claim.
fn free_ports() -> u16 {
    let is_free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    loop {
        let port = free_port();
        if !CLAIMABLE.contains(&(port + 10_000)) && is_free(port + 10_000) {
            return port;
        }
    }
}

/// Whether a node thinks that every slot has a master, and every master a replica.
fn is_whole(fleet: &Fleet, node: usize, masters: usize) -> bool {
    let mut client = fleet.node(node).client();
    let text =
        |value: Value| String::from_utf8_lossy(value.as_bytes().unwrap_or_default()).into_owned();
    let info = text(client.line("CLUSTER INFO"));
    let nodes = text(client.line("CLUSTER NODES"));
    let is_ok = info.contains("cluster_state:ok") && info.contains("cluster_slots_ok:16384");
    let is_linked =
        node < masters || text(client.line("INFO replication")).contains("master_link_status:up");
    is_ok && is_linked && nodes.matches("slave").count() == masters
}

/// Whether a node is a master now.
pub fn is_master(fleet: &Fleet, node: usize) -> bool {
    let role = fleet.node(node).client().line("ROLE");
    role.items().and_then(|items| items.first()) == Some(&Value::bulk("master"))
}
