//! What a node of a cluster is started with.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use cairn_cluster::{Addresses, Endpoint, Peer};
use cairn_raft::{Config, Tls};

use crate::config::Settings;
use crate::tls;

/// What is added to the port for clients unless there is a port for nodes.
const PORT_FOR_NODES: u16 = 10_000;

#[derive(Clone)]
pub struct ClusterSettings {
    /// Where other nodes connect.
    pub listen: SocketAddr,
    /// What others are told. A host is empty if this server listens everywhere and nobody has said what it is reached by.
    pub addresses: Addresses,
    pub secret: Vec<u8>,
    /// How nodes encrypt what they say, if they do.
    pub tls: Option<Tls>,
    pub raft: Config,
    /// What clients ask for that another node leads is asked there for them.
    pub proxies: bool,
    /// Clients that read from replicas may be told of the past.
    pub reads_stale: bool,
}

impl ClusterSettings {
    /// What is set; or what is wrong with it.
    pub fn of(settings: &Settings) -> Result<ClusterSettings, String> {
        let values = &settings.values;
        let address = values.address();
        let port = match address.port {
            0 => address.tls_port,
            port => port,
        };
        let nodes_port = match values.number("cluster-port") {
            0 => port.checked_add(PORT_FOR_NODES).ok_or_else(|| {
                format!(
                    "port {port} is too high for a node of a cluster: other nodes reach it at one that is higher by \
                     {PORT_FOR_NODES}, unless cluster-port says at which"
                )
            })?,
            port => port as u16,
        };
        let places = address.places();
        let ip = places
            .first()
            .map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |place| place.at.ip());
        let secret = values.get("cluster-secret").to_vec();
        let is_yes = |name| values.get(name) == b"yes";
        let tls = match is_yes("tls-cluster") {
            true => Some(tls::between_nodes(values)?),
            false => None,
        };
        let is_open = !secret.is_empty() || tls.is_some();
        // Others must not reach a node that takes everybody for one.
        let listen_ip = match is_open || ip.is_loopback() {
            true => ip,
            false => IpAddr::V4(Ipv4Addr::LOCALHOST),
        };
        let announced = values.text("cluster-announce-ip");
        let host = match ip.is_unspecified() {
            true => announced.clone(),
            false => ip.to_string(),
        };
        let clients = Endpoint {
            host: host.clone(),
            port: address.port,
            tls_port: address.tls_port,
        };
        let or = |name, own: u16| match values.number(name) {
            0 => own,
            port => port as u16,
        };
        let advertised = Endpoint {
            host: if announced.is_empty() {
                host
            } else {
                announced
            },
            port: or("cluster-announce-port", address.port),
            tls_port: or("cluster-announce-tls-port", address.tls_port),
        };
        let peers = Peer {
            host: advertised.host.clone(),
            port: or("cluster-announce-bus-port", nodes_port),
        };
        let millis = |name| Duration::from_millis(values.number(name));
        let raft = Config {
            election_timeout: millis("cluster-election-timeout"),
            heartbeat: millis("cluster-heartbeat"),
            log_bytes: values.number("cluster-log-size"),
            log_bytes_limit: values.number("cluster-log-limit"),
            ..Config::default()
        };
        raft.check()?;
        Ok(ClusterSettings {
            listen: SocketAddr::new(listen_ip, nodes_port),
            addresses: Addresses {
                advertised: (advertised != clients).then_some(advertised),
                clients,
                peers,
            },
            secret,
            tls,
            proxies: is_yes("cluster-proxy"),
            reads_stale: is_yes("readonly-stale"),
            raft,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use clap::{Args, Command, FromArgMatches};

    use super::*;
    use crate::config::Flags;

    fn settings(flags: &[&str]) -> ClusterSettings {
        let command = Flags::augment_args(Command::new("serve"));
        let words = [&["serve", "--port", "7001"], flags].concat();
        let matches = command.try_get_matches_from(words).unwrap();
        let flags = Flags::from_arg_matches(&matches).unwrap();
        ClusterSettings::of(&flags.load().unwrap()).unwrap()
    }

    #[test]
    fn a_node_is_where_its_server_is() {
        let plain = settings(&[]);
        assert_eq!(plain.listen.to_string(), "127.0.0.1:17001");
        assert_eq!(plain.addresses.clients.host, "127.0.0.1");
        assert_eq!(plain.addresses.advertised, None);
        assert_eq!(plain.addresses.peers.to_string(), "127.0.0.1:17001");
    }

    #[test]
    fn a_port_must_leave_room_for_that_of_other_nodes() {
        let parsed = |words: &[&str]| {
            let command = Flags::augment_args(Command::new("serve"));
            let matches = command.try_get_matches_from(words).unwrap();
            let flags = Flags::from_arg_matches(&matches).unwrap();
            ClusterSettings::of(&flags.load().unwrap())
        };
        let high = ["serve", "--port", "55536"];
        let refused = parsed(&high).err().unwrap();
        assert!(refused.contains("port 55536 is too high"), "{refused}");
        assert!(parsed(&["serve", "--port", "55535"]).is_ok());
        let named = [&high[..], &["--cluster-port", "900"]].concat();
        assert_eq!(parsed(&named).unwrap().listen.port(), 900);
    }

    #[test]
    fn others_are_told_what_is_announced() {
        let flags = [
            ["--bind", "*"],
            ["--cluster-announce-ip", "db.example"],
            ["--cluster-announce-bus-port", "900"],
            ["--cluster-announce-port", "901"],
        ];
        let announced = settings(flags.as_flattened());
        assert_eq!(announced.listen.to_string(), "127.0.0.1:17001");
        let endpoint = announced.addresses.advertised.unwrap();
        assert_eq!((endpoint.host.as_str(), endpoint.port), ("db.example", 901));
        assert_eq!(announced.addresses.peers.to_string(), "db.example:900");
        let open = settings(&[flags.as_flattened(), &["--cluster-secret", "x"]].concat());
        assert_eq!(open.listen.to_string(), "0.0.0.0:17001");
    }
}
