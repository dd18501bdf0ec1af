//! What clients are told, in the words of Redis Cluster.
//!
//! Redis has masters and replicas; here a node leads some regions and follows in others. Stock clients keep one role per
//! node, so every node is shown as a master, with the slots that it leads: `CLUSTER SLOTS` and its like list leaders
//! alone. Only if clients are to read from followers (`replica_reads`) are these listed behind the leader of each range,
//! and a node that leads nothing appears as a replica of one that it follows.
//!
//! The words are data, [`Answer`]s and text, which the server turns into replies.

mod alone;
mod id;
mod nodes;
mod shards;
mod slots;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use cairn_encoding::SLOTS;

use crate::map::ClusterMap;
use crate::node::{Node, NodeState};
use crate::observed::Observed;
use crate::region::{Duty, Region};
use crate::slots::SlotRange;
pub use alone::Alone;
pub use id::node_name;

/// What a command answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    Int(i64),
    Text(String),
    List(Vec<Answer>),
    Map(Vec<(Answer, Answer)>),
}

impl Answer {
    fn text(text: impl Into<String>) -> Answer {
        Answer::Text(text.into())
    }
}

/// Where a slot is served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Route {
    /// By the node that is asked.
    Here { region: u64 },
    /// By another.
    Moved { slot: u16, host: String, port: u16 },
    /// By nobody, as far as is known.
    Down { region: Option<u64> },
}

impl Route {
    /// The error that a client gets, if any.
    pub fn error(&self) -> Option<String> {
        match self {
            Route::Here { .. } => None,
            Route::Moved { slot, host, port } => Some(format!("MOVED {slot} {host}:{port}")),
            Route::Down { .. } => Some("CLUSTERDOWN Hash slot not served".to_string()),
        }
    }
}

/// The cluster, as one node shows it to one client.
#[derive(Clone, Copy)]
pub struct View<'a> {
    pub map: &'a ClusterMap,
    pub observed: &'a Observed,
    /// The node that is asked.
    pub own: u64,
    /// Whether the client is encrypted, and is told ports for that.
    pub tls: bool,
    pub replica_reads: bool,
}

impl<'a> View<'a> {
    pub fn route(&self, slot: u16) -> Route {
        let Some(region) = self.map.region_of(slot) else {
            return Route::Down { region: None };
        };
        let leader = self
            .observed
            .leader(region)
            .and_then(|node| self.map.node(node));
        match leader {
            None => Route::Down {
                region: Some(region.id),
            },
            Some(node) if node.id == self.own => Route::Here { region: region.id },
            Some(node) => Route::Moved {
                slot,
                host: node.endpoint().host.clone(),
                port: node.endpoint().port_for(self.tls),
            },
        }
    }

    /// `CLUSTER MYID`.
    pub fn my_id(&self) -> String {
        self.name(self.own)
    }

    /// `CLUSTER INFO`, to which whoever counts messages adds how many.
    pub fn info(&self) -> String {
        let served: u32 = self
            .led()
            .iter()
            .map(|(range, _)| u32::from(range.count()))
            .sum();
        let all = u32::from(SLOTS);
        let leaders: BTreeSet<u64> = self.led().iter().map(|(_, node)| node.id).collect();
        let lines = [
            (
                "cluster_state",
                if served == all { "ok" } else { "fail" }.to_string(),
            ),
            ("cluster_slots_assigned", all.to_string()),
            ("cluster_slots_ok", served.to_string()),
            ("cluster_slots_pfail", "0".to_string()),
            ("cluster_slots_fail", (all - served).to_string()),
            ("cluster_known_nodes", self.present().count().to_string()),
            ("cluster_size", leaders.len().to_string()),
            ("cluster_current_epoch", self.map.epoch().to_string()),
            ("cluster_my_epoch", self.own.to_string()),
        ];
        lines
            .iter()
            .map(|(name, value)| format!("{name}:{value}\r\n"))
            .collect()
    }

    fn name(&self, node: u64) -> String {
        node_name(self.map.cluster(), node)
    }

    /// All nodes but those that were removed.
    fn present(&self) -> impl Iterator<Item = &'a Node> {
        let nodes = self.map.nodes();
        nodes.filter(|node| node.state != NodeState::Removed)
    }

    fn is_alive(&self, node: &Node) -> bool {
        node.id == self.own || self.observed.alive.contains(&node.id)
    }

    /// The ranges that somebody serves, in the order of slots, and who does. What one node leads on both sides of a
    /// region's border is one range, as in Redis.
    fn led(&self) -> Vec<(SlotRange, &'a Node)> {
        let mut led: Vec<(SlotRange, &Node)> = Vec::new();
        for (range, nodes) in self.served(|_, _| false) {
            led.extend(nodes.first().map(|leader| (range, *leader)));
        }
        led
    }

    /// The same, with followers that are to be shown behind each leader.
    fn served(&self, shown: impl Fn(&Region, &Node) -> bool) -> Vec<(SlotRange, Vec<&'a Node>)> {
        let ranges = self.map.regions().filter_map(|region| {
            let leader = self.map.node(self.observed.leader(region)?)?;
            let followers = region.replicas.values().filter_map(|replica| {
                let node = self.map.node(replica.node)?;
                let follows = replica.duty == Duty::Voter && node.id != leader.id;
                (follows && shown(region, node)).then_some(node)
            });
            let nodes: Vec<&Node> = std::iter::once(leader).chain(followers).collect();
            Some((region.slots?, nodes))
        });
        let mut ranges: Vec<(SlotRange, Vec<&Node>)> = ranges.collect();
        ranges.sort_by_key(|(range, _)| *range);
        let mut merged: Vec<(SlotRange, Vec<&Node>)> = Vec::new();
        for (range, nodes) in ranges {
            if let Some((last, same)) = merged.last_mut()
                && last.last() + 1 == range.first()
                && *same == nodes
                && let Some(both) = SlotRange::new(last.first(), range.last())
            {
                *last = both;
                continue;
            }
            merged.push((range, nodes));
        }
        merged
    }

    /// Followers that a client may read from, behind the leader of each range.
    fn readable(&self) -> Vec<(SlotRange, Vec<&'a Node>)> {
        self.served(|_, node| self.replica_reads && self.is_alive(node))
    }

    /// Nodes that appear as replicas, and of whom: they lead nothing.
    fn followers(&self) -> BTreeMap<u64, u64> {
        let mut followers = BTreeMap::new();
        if !self.replica_reads {
            return followers;
        }
        let leaders: BTreeSet<u64> = self.led().iter().map(|(_, node)| node.id).collect();
        for (_, nodes) in self.served(|_, _| true) {
            for follower in &nodes[1..] {
                if !leaders.contains(&follower.id) {
                    followers.entry(follower.id).or_insert(nodes[0].id);
                }
            }
        }
        followers
    }
}
