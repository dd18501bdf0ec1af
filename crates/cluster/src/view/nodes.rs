//! `CLUSTER NODES` and `CLUSTER REPLICAS`: a line for each node.
//!
//! ```text
//!   name host:port@port-for-nodes flags master ping-sent pong-received config-epoch link-state slots...
//! ```
//!
//! When others were last heard of is not told: nodes do not gossip. The epoch by which Redis settles who has a slot is that
//! of a region here; clients want it to differ from master to master, and so does the number of the node.

use std::collections::BTreeMap;

use super::{Answer, View};
use crate::node::Node;

impl View<'_> {
    pub fn nodes(&self) -> String {
        let followers = self.followers();
        let lines = self
            .present()
            .map(|node| self.line(node, &followers) + "\n");
        lines.collect()
    }

    /// Whether a node has this name.
    pub fn knows(&self, name: &str) -> bool {
        self.named(name).is_some()
    }

    /// `CLUSTER LINKS`: the nodes to which this one has a connection, and since when, in milliseconds. How much waits to be sent
    /// to whom is known to nobody here.
    pub fn links(&self, connected: &[(u64, i64)]) -> Answer {
        let links = connected.iter().map(|(node, since_ms)| {
            let fields = [
                ("direction", Answer::text("to")),
                ("node", Answer::text(self.name(*node))),
                ("create-time", Answer::Int(*since_ms)),
                ("events", Answer::text("rw")),
                ("send-buffer-allocated", Answer::Int(0)),
                ("send-buffer-used", Answer::Int(0)),
            ];
            let fields = fields.map(|(name, value)| (Answer::text(name), value));
            Answer::Map(fields.to_vec())
        });
        Answer::List(links.collect())
    }

    fn named(&self, name: &str) -> Option<&Node> {
        self.present()
            .find(|node| self.name(node.id).eq_ignore_ascii_case(name))
    }

    /// The lines of those that follow the node with this name; or the error that the client gets.
    pub fn replicas(&self, name: &str) -> Result<Vec<String>, String> {
        let Some(master) = self.named(name) else {
            return Err(format!("ERR Unknown node {name}"));
        };
        let followers = self.followers();
        if followers.contains_key(&master.id) {
            return Err("ERR The specified node is not a master".to_string());
        }
        let own = self
            .present()
            .filter(|node| followers.get(&node.id) == Some(&master.id));
        Ok(own.map(|node| self.line(node, &followers)).collect())
    }

    fn line(&self, node: &Node, followers: &BTreeMap<u64, u64>) -> String {
        let endpoint = node.endpoint();
        let mut flags = Vec::new();
        if node.id == self.own {
            flags.push("myself");
        }
        flags.push(match followers.contains_key(&node.id) {
            true => "slave",
            false => "master",
        });
        let is_alive = self.is_alive(node);
        if !is_alive {
            flags.push("fail");
        }
        let master = followers.get(&node.id).map(|master| self.name(*master));
        let mut line = format!(
            "{} {}:{}@{} {} {} 0 0 {} {}",
            self.name(node.id),
            endpoint.host,
            endpoint.port_for(self.tls),
            node.addresses.peers.port,
            flags.join(","),
            master.as_deref().unwrap_or("-"),
            node.id,
            if is_alive {
                "connected"
            } else {
                "disconnected"
            },
        );
        for (range, leader) in self.led() {
            if leader.id == node.id {
                line.push_str(&format!(" {range}"));
            }
        }
        line
    }
}
