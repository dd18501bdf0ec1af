//! `CLUSTER SLOTS`.

use super::{Answer, View};
use crate::node::Node;

impl View<'_> {
    pub fn slots(&self) -> Answer {
        let ranges = self.readable().into_iter().map(|(range, nodes)| {
            let bounds = [range.first(), range.last()];
            let bounds = bounds.map(|slot| Answer::Int(i64::from(slot)));
            let nodes = nodes.into_iter().map(|node| self.slots_node(node));
            Answer::List(bounds.into_iter().chain(nodes).collect())
        });
        Answer::List(ranges.collect())
    }

    fn slots_node(&self, node: &Node) -> Answer {
        let endpoint = node.endpoint();
        Answer::List(vec![
            Answer::text(&endpoint.host),
            Answer::Int(i64::from(endpoint.port_for(self.tls))),
            Answer::text(self.name(node.id)),
            Answer::Map(Vec::new()),
        ])
    }
}
