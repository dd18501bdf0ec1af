//! Beginning a cluster, and letting nodes in.
//!
//! One node, the founder, makes the cluster: it knows all others from the beginning, and its regions are whole. Every other
//! node is told afterwards who it is and where the others are, and is sent what it lacks by those who lead. So
//! whoever is interrupted has left no cluster, or one that some nodes do not know of yet; to run it again tells them.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use cairn_cluster::{Addresses, Change, Endpoint, Foundation, Founder, Peer, Settings};

use super::client::{Address, Client, Connecting, Fields, text_of};
use super::{list, say};

const DEFAULT_REPLICAS: u8 = 3;
const DEFAULT_REGIONS: u16 = 16;
/// How long it may take until all slots are served.
const SERVING: Duration = Duration::from_secs(60);

#[derive(clap::Args)]
pub struct Init {
    /// The nodes' addresses for clients, as host:port, with commas between.
    #[arg(long, value_delimiter = ',', required = true, value_name = "ADDRESSES")]
    nodes: Vec<Address>,
    /// How many regions share the slots; one, if a node has data already.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=16384))]
    regions: Option<u16>,
    /// How many replicas each region has.
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=9))]
    replicas: Option<u8>,
    #[command(flatten)]
    how: Connecting,
}

impl Init {
    pub fn run(self) -> Result<(), String> {
        let mut newcomers = Vec::new();
        for address in &self.nodes {
            newcomers.push(Newcomer::meet(address, &self.how)?);
        }
        must_differ(&newcomers)?;
        must_reach_each_other(&newcomers)?;
        let mut founder = match newcomers.iter().position(|node| !node.cluster.is_empty()) {
            Some(at) => {
                let founder = newcomers.swap_remove(at);
                eprintln!("{} is in a cluster already: going on", founder.address);
                founder
            }
            None => self.found(&mut newcomers)?,
        };
        let nodes = list(&mut founder.client, "NODES")?;
        for newcomer in newcomers {
            newcomer.must_be_able_to_join(&founder.cluster)?;
            let Some(node) = nodes.iter().find(|node| newcomer.is_at(node)) else {
                return Err(format!(
                    "{} is no node of the cluster that {} belongs to: see `cairn cluster add-node`",
                    newcomer.address, founder.address
                ));
            };
            newcomer.must_be(node)?;
            invite(newcomer, &founder.cluster, node.number("node"), &nodes)?;
        }
        wait_until_served(&mut founder)?;
        say(format_args!(
            "the cluster serves all slots; see `cairn cluster status --node {}`",
            founder.address
        ))
    }

    /// Has a node begin the cluster, and takes it out of the others: the one that has data, if there is one.
    fn found(&self, newcomers: &mut Vec<Newcomer>) -> Result<Newcomer, String> {
        let replicas = self.replicas.unwrap_or(DEFAULT_REPLICAS);
        let count = newcomers.len();
        if usize::from(replicas) > count {
            let need = format!("{replicas} replicas need {replicas} nodes, and {count} are named");
            match self.replicas {
                Some(_) => return Err(format!("{need}: name more, or ask for fewer replicas")),
                None => eprintln!("{need}: each region has {count} until more are added"),
            }
        }
        let mut with_data = newcomers.iter().filter(|node| node.holds_data);
        let has_data = match (with_data.next(), with_data.next()) {
            (Some(one), Some(other)) => {
                return Err(format!(
                    "{} and {} both hold data, and a cluster begins with that of one: empty the other",
                    one.address, other.address
                ));
            }
            (one, _) => one.is_some(),
        };
        let at = newcomers.iter().position(|node| node.holds_data);
        let founder = newcomers.remove(at.unwrap_or(0));
        let regions = match has_data {
            true => {
                if self.regions.is_some_and(|regions| regions > 1) {
                    eprintln!(
                        "{} holds data, which begins as one region: it can be split afterwards",
                        founder.address
                    );
                }
                1
            }
            false => self.regions.unwrap_or(DEFAULT_REGIONS),
        };
        let known_as = |node: &Newcomer| Founder {
            addresses: node.addresses.clone(),
            version: node.layout,
            incarnation: node.incarnation,
        };
        let cluster = fastrand::u64(1..);
        let foundation = Change::Found(Foundation {
            cluster,
            settings: Settings {
                replicas,
                ..Settings::default()
            },
            nodes: std::iter::once(&founder)
                .chain(newcomers.iter())
                .map(known_as)
                .collect(),
            regions,
        });
        let mut founder = founder;
        let words: [&[u8]; 3] = [b"CAIRN.CLUSTER", b"FOUND", &foundation.encode()];
        founder.client.ask(&words)?;
        founder.cluster = cluster.to_string();
        eprintln!(
            "{} has founded a cluster of {count} nodes and {regions} regions",
            founder.address
        );
        Ok(founder)
    }
}

/// A node that is to be let in, as it tells about itself.
pub struct Newcomer {
    address: Address,
    client: Client,
    /// None is "".
    cluster: String,
    run: String,
    holds_data: bool,
    is_secured: bool,
    /// The newest layout of the map's changes that it reads.
    pub layout: u16,
    /// What tells its directory from any other.
    pub incarnation: u64,
    pub addresses: Addresses,
}

impl Newcomer {
    pub fn meet(address: &Address, how: &Connecting) -> Result<Newcomer, String> {
        let mut client = Client::connect(address, how)?;
        let told = client.ask(&["CAIRN.CLUSTER", "WHOAMI"]);
        let told = told.map_err(|error| match error.contains("cluster support disabled") {
            true => format!("{address} stands alone: start it with --cluster-enabled yes"),
            false => error,
        })?;
        let told = Fields::of(told).map_err(|error| format!("{address}: {error}"))?;
        let port = |name: &str| told.number(name) as u16;
        // A node that listens everywhere does not know by which of its addresses others reach it.
        let host = |name: &str| match told.text(name) {
            "" => client.ip.to_string(),
            host => host.to_string(),
        };
        let advertised = (!told.text("advertised-host").is_empty()).then(|| Endpoint {
            host: told.text("advertised-host").to_string(),
            port: port("advertised-port"),
            tls_port: port("advertised-tls-port"),
        });
        let addresses = Addresses {
            clients: Endpoint {
                host: host("host"),
                port: port("port"),
                tls_port: port("tls-port"),
            },
            advertised,
            peers: Peer {
                host: host("peer-host"),
                port: port("peer-port"),
            },
        };
        Ok(Newcomer {
            address: address.clone(),
            cluster: told.text("cluster").to_string(),
            run: told.text("run").to_string(),
            holds_data: told.number("data") == 1,
            is_secured: told.number("secured") == 1,
            layout: port("layout"),
            incarnation: told.number("incarnation"),
            addresses,
            client,
        })
    }

    /// It belongs to no cluster and holds nothing, or it belongs to this one already.
    pub fn must_be_able_to_join(&self, cluster: &str) -> Result<(), String> {
        let address = &self.address;
        if self.cluster == cluster {
            return Ok(());
        }
        if !self.cluster.is_empty() {
            return Err(format!("{address} belongs to another cluster already"));
        }
        match self.holds_data {
            true => Err(format!(
                "{address} holds data, which would be lost in a cluster that has begun: empty it first"
            )),
            false => Ok(()),
        }
    }

    /// It has the directory that the cluster let in: one that was lost took along what the node had promised to others.
    pub fn must_be(&self, node: &Fields) -> Result<(), String> {
        let id = node.text("node");
        match node.number("incarnation") == self.incarnation {
            true => Ok(()),
            false => Err(format!(
                "{} is in the place of node {id}, and has not its directory: if that is lost, remove the node by \
                 `cairn cluster remove-node --id {id}`, and let this one in by add-node",
                self.address
            )),
        }
    }

    /// Whether it and a node of the cluster can both be reached, from the same machine or from others.
    pub fn must_be_as_near_as(&self, node: &Fields) -> Result<(), String> {
        let (own, theirs) = (&self.addresses.peers.host, node.text("peer-host"));
        match is_local(own) == is_local(theirs) {
            true => Ok(()),
            false => Err(format!(
                "{} is reached by {own}, and the cluster's nodes by addresses like {theirs}: they would not find \
                 each other; set cluster-announce-ip, or name the node by another address",
                self.address
            )),
        }
    }

    /// Whether this is the node that the cluster knows.
    pub fn is_at(&self, node: &Fields) -> bool {
        let peers = &self.addresses.peers;
        node.text("peer-host") == peers.host && node.number("peer-port") == u64::from(peers.port)
    }
}

/// Tells a node who it is, and where the others are.
pub fn invite(
    mut newcomer: Newcomer,
    cluster: &str,
    id: u64,
    nodes: &[Fields],
) -> Result<(), String> {
    let mut words = ["CAIRN.CLUSTER", "JOIN", cluster]
        .map(str::to_string)
        .to_vec();
    words.push(id.to_string());
    words.push(newcomer.incarnation.to_string());
    for node in nodes.iter().filter(|node| node.text("state") != "removed") {
        words.extend(["node", "peer-host", "peer-port"].map(|name| node.text(name).to_string()));
    }
    newcomer.client.ask(&words).map(|_| ())
}

fn must_differ(newcomers: &[Newcomer]) -> Result<(), String> {
    for (at, node) in newcomers.iter().enumerate() {
        let same = newcomers[..at].iter().find(|other| other.run == node.run);
        if let Some(other) = same {
            return Err(format!(
                "{} and {} are the same node",
                other.address, node.address
            ));
        }
    }
    Ok(())
}

/// Whether nobody but the machine itself reaches it by this.
fn is_local(host: &str) -> bool {
    host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

/// Nodes that are to talk must be able to, and not only each to itself.
fn must_reach_each_other(newcomers: &[Newcomer]) -> Result<(), String> {
    let is_local = |node: &&Newcomer| is_local(&node.addresses.peers.host);
    let local = newcomers.iter().find(is_local);
    let elsewhere = newcomers.iter().find(|node| !is_local(node));
    if let (Some(local), Some(_)) = (local, elsewhere) {
        return Err(format!(
            "{} is reached by {}, which nobody on another machine can: name it by an address that \
             others reach it by, or set its cluster-announce-ip",
            local.address, local.addresses.peers.host
        ));
    }
    if elsewhere.is_some()
        && let Some(open) = newcomers.iter().find(|node| !node.is_secured)
    {
        return Err(format!(
            "{} has neither cluster-secret nor tls-cluster, so it talks on its own machine only",
            open.address
        ));
    }
    Ok(())
}

fn wait_until_served(founder: &mut Newcomer) -> Result<(), String> {
    let began = Instant::now();
    while began.elapsed() < SERVING {
        let info = founder.client.ask(&["CLUSTER", "INFO"]);
        if info.is_ok_and(|info| text_of(&info).contains("cluster_state:ok")) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Err(format!(
        "the cluster has begun, but does not serve all slots yet: see `cairn cluster status --node {}`",
        founder.address
    ))
}
