//! A node that belongs to no cluster yet, in the same words: it knows itself, and serves nothing.

use super::Answer;
use crate::node::Addresses;

pub struct Alone<'a> {
    /// Forty hexadecimal digits. It gets another when it is let in.
    pub name: &'a str,
    pub addresses: &'a Addresses,
    /// Whether the client is encrypted, and is told ports for that.
    pub tls: bool,
}

impl Alone<'_> {
    /// `CLUSTER INFO`.
    pub fn info(&self) -> String {
        let lines = [
            ("cluster_state", "fail"),
            ("cluster_slots_assigned", "0"),
            ("cluster_slots_ok", "0"),
            ("cluster_slots_pfail", "0"),
            ("cluster_slots_fail", "0"),
            ("cluster_known_nodes", "1"),
            ("cluster_size", "0"),
            ("cluster_current_epoch", "0"),
            ("cluster_my_epoch", "0"),
        ];
        let lines = lines
            .iter()
            .map(|(name, value)| format!("{name}:{value}\r\n"));
        lines.collect()
    }

    /// `CLUSTER NODES`.
    pub fn nodes(&self) -> String {
        let (host, port) = self.endpoint();
        let peers = self.addresses.peers.port;
        let name = self.name;
        format!("{name} {host}:{port}@{peers} myself,master - 0 0 0 connected\n")
    }

    /// `CLUSTER SHARDS`.
    pub fn shards(&self) -> Answer {
        let (host, port) = self.endpoint();
        let fields = [
            ("id", Answer::text(self.name)),
            ("port", Answer::Int(i64::from(port))),
            ("ip", Answer::text(host)),
            ("endpoint", Answer::text(host)),
            ("role", Answer::text("master")),
            ("replication-offset", Answer::Int(0)),
            ("health", Answer::text("online")),
        ];
        let fields = fields.map(|(name, value)| (Answer::text(name), value));
        let node = Answer::Map(fields.to_vec());
        Answer::List(vec![Answer::Map(vec![
            (Answer::text("slots"), Answer::List(Vec::new())),
            (Answer::text("nodes"), Answer::List(vec![node])),
        ])])
    }

    fn endpoint(&self) -> (&str, u16) {
        let addresses = self.addresses;
        let endpoint = addresses.advertised.as_ref().unwrap_or(&addresses.clients);
        (&endpoint.host, endpoint.port_for(self.tls))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{Endpoint, Peer};

    #[test]
    fn a_node_in_no_cluster_knows_itself() {
        let addresses = Addresses {
            clients: Endpoint {
                host: "10.0.0.1".into(),
                port: 6379,
                tls_port: 0,
            },
            advertised: None,
            peers: Peer {
                host: "10.0.0.1".into(),
                port: 16379,
            },
        };
        let alone = Alone {
            name: "e65f7fe11b94b44662531f6d1c0c49b42a41a967",
            addresses: &addresses,
            tls: false,
        };
        assert_eq!(
            alone.nodes(),
            "e65f7fe11b94b44662531f6d1c0c49b42a41a967 10.0.0.1:6379@16379 myself,master - 0 0 0 connected\n"
        );
        assert!(alone.info().starts_with("cluster_state:fail\r\n"));
        let Answer::List(shards) = alone.shards() else {
            panic!("a list");
        };
        assert_eq!(shards.len(), 1);
    }
}
