//! `CLUSTER SHARDS`. A shard is what one node leads.

use std::collections::{BTreeMap, BTreeSet};

use super::{Answer, View};
use crate::node::Node;
use crate::slots::SlotRange;

impl View<'_> {
    pub fn shards(&self) -> Answer {
        let mut shards: BTreeMap<u64, Shard<'_>> = BTreeMap::new();
        let followers = self.followers();
        for node in self.present() {
            if !followers.contains_key(&node.id) {
                shards.insert(node.id, Shard::default());
            }
        }
        for (range, node) in self.led() {
            shards.entry(node.id).or_default().ranges.push(range);
        }
        for (_, nodes) in self.served(|_, _| self.replica_reads) {
            let shard = shards.entry(nodes[0].id).or_default();
            for follower in &nodes[1..] {
                if shard.seen.insert(follower.id) {
                    shard.followers.push(follower);
                }
            }
        }
        let shards = shards.iter().filter_map(|(leader, shard)| {
            let leader = self.map.node(*leader)?;
            let leader = self.shard_node(leader, "master");
            let followers = shard.followers.iter();
            let followers = followers.map(|node| self.shard_node(node, "replica"));
            let bounds = shard
                .ranges
                .iter()
                .flat_map(|range| [range.first(), range.last()]);
            Some(Answer::Map(vec![
                (
                    Answer::text("slots"),
                    Answer::List(bounds.map(|slot| Answer::Int(i64::from(slot))).collect()),
                ),
                (
                    Answer::text("nodes"),
                    Answer::List(std::iter::once(leader).chain(followers).collect()),
                ),
            ]))
        });
        Answer::List(shards.collect())
    }

    fn shard_node(&self, node: &Node, role: &str) -> Answer {
        let endpoint = node.endpoint();
        let health = if self.is_alive(node) {
            "online"
        } else {
            "fail"
        };
        let mut fields = vec![("id", Answer::text(self.name(node.id)))];
        for (name, port) in [("port", endpoint.port), ("tls-port", endpoint.tls_port)] {
            if port != 0 {
                fields.push((name, Answer::Int(i64::from(port))));
            }
        }
        fields.extend([
            ("ip", Answer::text(&endpoint.host)),
            ("endpoint", Answer::text(&endpoint.host)),
            ("role", Answer::text(role)),
            // Nobody is behind what it was asked for: reads are linearizable.
            ("replication-offset", Answer::Int(0)),
            ("health", Answer::text(health)),
        ]);
        let fields = fields
            .into_iter()
            .map(|(name, value)| (Answer::text(name), value));
        Answer::Map(fields.collect())
    }
}

#[derive(Default)]
struct Shard<'a> {
    ranges: Vec<SlotRange>,
    followers: Vec<&'a Node>,
    seen: BTreeSet<u64>,
}
