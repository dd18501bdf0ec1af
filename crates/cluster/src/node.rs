//! The nodes of a cluster.

use std::fmt;

/// The longest host name, as in DNS.
const MAX_HOST: usize = 255;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Never used again, also when the node is removed.
    pub id: u64,
    pub addresses: Addresses,
    pub state: NodeState,
    /// The newest layout of changes that it reads.
    pub version: u16,
    /// What tells its directory from any other. One that was lost has taken along what the node had promised as a voter, so a
    /// server with another is not let in under this number.
    pub incarnation: u64,
}

impl Node {
    /// What clients are told to connect to.
    pub fn endpoint(&self) -> &Endpoint {
        let addresses = &self.addresses;
        addresses.advertised.as_ref().unwrap_or(&addresses.clients)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeState {
    Active,
    /// Its replicas are moved elsewhere. Then it is removed.
    Draining,
    /// It has no replicas, and is let in no more. It stays listed so that its number is known to have been used.
    Removed,
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NodeState::Active => "active",
            NodeState::Draining => "draining",
            NodeState::Removed => "removed",
        })
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Addresses {
    pub clients: Endpoint,
    /// What clients reach it by, where that is not the same: behind NAT, or by name.
    pub advertised: Option<Endpoint>,
    pub peers: Peer,
}

impl Addresses {
    /// Why it cannot be one. Addresses stand in lines of text, so they hold nothing that would end a word there.
    pub(crate) fn fault(&self) -> Option<String> {
        let endpoints = [Some(&self.clients), self.advertised.as_ref()];
        for endpoint in endpoints.into_iter().flatten() {
            if let Some(fault) = host_fault(&endpoint.host) {
                return Some(fault);
            }
            if endpoint.port == 0 && endpoint.tls_port == 0 {
                return Some(format!("{} has no port for clients", endpoint.host));
            }
        }
        if self.peers.port == 0 {
            return Some(format!("{} has no port for nodes", self.peers.host));
        }
        host_fault(&self.peers.host)
    }
}

fn host_fault(host: &str) -> Option<String> {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b',' && byte != b'@';
    match host {
        "" => Some("a host is empty".to_string()),
        host if host.len() > MAX_HOST => Some(format!("a host has {} bytes", host.len())),
        host if !host.bytes().all(is_plain) => Some(format!("{host:?} is no host")),
        _ => None,
    }
}

/// Where clients connect. A port of 0 is not served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    pub host: String,
    pub port: u16,
    pub tls_port: u16,
}

impl Endpoint {
    /// The port for a client of this kind, or the other if there is none.
    pub fn port_for(&self, tls: bool) -> u16 {
        match (tls, self.port, self.tls_port) {
            (true, port, 0) => port,
            (true, _, port) => port,
            (false, 0, port) => port,
            (false, port, _) => port,
        }
    }
}

/// Where other nodes connect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    pub host: String,
    pub port: u16,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(host: &str, port: u16) -> Addresses {
        Addresses {
            clients: Endpoint {
                host: host.into(),
                port,
                tls_port: 0,
            },
            advertised: None,
            peers: Peer {
                host: "10.0.0.1".into(),
                port: 17379,
            },
        }
    }

    #[test]
    fn an_address_holds_no_line_of_text() {
        assert_eq!(addresses("10.0.0.1", 6379).fault(), None);
        assert_eq!(addresses("fe80::1", 6379).fault(), None);
        for host in ["", "a b", "a\nb", "a,b", "a@1", "ü", &"x".repeat(256)] {
            assert!(addresses(host, 6379).fault().is_some(), "{host:?}");
        }
        assert!(addresses("10.0.0.1", 0).fault().is_some());
    }

    #[test]
    fn a_client_is_told_a_port_that_is_served() {
        let endpoint = |port, tls_port| Endpoint {
            host: "h".into(),
            port,
            tls_port,
        };
        assert_eq!(endpoint(1, 2).port_for(false), 1);
        assert_eq!(endpoint(1, 2).port_for(true), 2);
        assert_eq!(endpoint(1, 0).port_for(true), 1);
        assert_eq!(endpoint(0, 2).port_for(false), 2);
    }
}
