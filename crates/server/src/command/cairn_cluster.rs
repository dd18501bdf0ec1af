//! CAIRN.CLUSTER: how a cluster is administered. `cairn cluster` is its client (`cli/cluster.rs`), and says it in words for
//! people. Any node answers; what changes the map goes to the leader of region 0, wherever that is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_cluster::{
    Addresses, Change, ClusterMap, Effect, Limits, NEWEST, Node, NodeState, Observed, Peer, Region,
    Settings, Status, plan,
};
use cairn_resp::Reply;
use cairn_store::{Error, Result};

use super::args::{Args, int, is};
use super::cluster::entrance;
use super::flags::Flag::{Admin, Loading, NoMulti, NoScript, Stale};
use super::{Command, Flag, Handler, command, help};
use crate::cluster::{ChangeError, ClusterNode};
use crate::info::CAIRN_VERSION;
use crate::server::Server;

const GROUP: &str = "cluster";
const SINCE: &str = "7.0.0";
const ADMINS: &[Flag] = &[Admin, NoScript, NoMulti, Loading, Stale];

/// How long a replica may take to come to the place at which it is to be summed up.
const CATCHING_UP: Duration = Duration::from_secs(30);

pub const COMMANDS: &[Command] = &[command("cairn.cluster", -2, Handler::Container)
    .subcommands(SUBCOMMANDS)
    .about(
        GROUP,
        SINCE,
        "Depends on the subcommand",
        "Administers a cluster of Cairn; `cairn cluster` is its client.",
    )];

const fn administrative(
    name: &'static str,
    arity: i32,
    run: fn(&Server, &Args) -> Result<Reply>,
) -> Command {
    command(name, arity, Handler::Admin(run)).flags(ADMINS)
}

const SUBCOMMANDS: &[Command] = &[
    administrative("add-node", 3, add_node)
        .usage("<change>")
        .syntax("change")
        .about(
            GROUP,
            SINCE,
            "O(1)",
            "Lets a node in, and returns its number. The change is in the bytes of the map's log.",
        ),
    administrative("checksum", 4, checksum)
        .usage("<region> <index>")
        .syntax("region:i index:i")
        .about(
            GROUP,
            SINCE,
            "O(N) for N rows of the region",
            "Sums up this node's replica of a region at the index of its log or later, and returns at which.",
        ),
    administrative("configure", 4, configure)
        .usage("REPLICAS <count>")
        .syntax("REPLICAS/count:i")
        .about(
            GROUP,
            SINCE,
            "O(1)",
            "Sets how many replicas each region is to have.",
        ),
    administrative("found", 3, found)
        .usage("<change>")
        .syntax("change")
        .about(
            GROUP,
            SINCE,
            "O(N) for N regions",
            "Begins a cluster. The change is in the bytes of the map's log.",
        ),
    command("help", 2, Handler::Session(help))
        .flags(&[Loading, Stale])
        .about(GROUP, SINCE, "O(1)", "Prints this help."),
    administrative("join", -5, join)
        .usage("<cluster> <node> <incarnation> [<node> <host> <port> ...]")
        .syntax("cluster:i node:i incarnation:i peer{node:i host port:i}?+")
        .about(
            GROUP,
            SINCE,
            "O(N) for N nodes",
            "Tells this node which one of a cluster it is, and where the others are.",
        ),
    administrative("keep-node", 3, keep_node)
        .usage("<node>")
        .syntax("node:i")
        .about(GROUP, SINCE, "O(1)", "Takes REMOVE-NODE back."),
    administrative("move-region", 5, move_region)
        .usage("<region> <from> <to>")
        .syntax("region:i from:i to:i")
        .about(
            GROUP,
            SINCE,
            "O(1), and O(N) later for N rows of the region",
            "Moves a replica of a region from a node to another.",
        ),
    administrative("nodes", 2, nodes).about(
        GROUP,
        SINCE,
        "O(N) for N nodes",
        "Lists the nodes, with their addresses and how many replicas they have.",
    ),
    administrative("place", 3, place)
        .usage("<region>")
        .syntax("region:i")
        .about(
            GROUP,
            SINCE,
            "O(1)",
            "Returns how far a region's log is applied that this node leads.",
        ),
    administrative("rebalance", 3, rebalance)
        .usage("ON|OFF")
        .syntax("balance(ON!|OFF!)")
        .about(
            GROUP,
            SINCE,
            "O(N) for N regions",
            "Has replicas and leaders spread evenly, also those that somebody has placed; or leaves them where they are.",
        ),
    administrative("regions", 2, regions).about(
        GROUP,
        SINCE,
        "O(N) for N regions",
        "Lists the regions, with their slots, leaders and nodes.",
    ),
    administrative("remove-node", 3, remove_node)
        .usage("<node>")
        .syntax("node:i")
        .about(
            GROUP,
            SINCE,
            "O(1), and O(N) later for N rows",
            "Has a node's replicas moved to others, and then the node removed.",
        ),
    administrative("split-region", 4, split_region)
        .usage("<region> <slot>")
        .syntax("region:i slot:i")
        .about(
            GROUP,
            SINCE,
            "O(1)",
            "Makes a region of its own of a region's slots from one on, and returns its number.",
        ),
    administrative("status", -2, status)
        .usage("[JSON]")
        .syntax("JSON!?")
        .about(
            GROUP,
            SINCE,
            "O(N) for N nodes and regions",
            "Tells how the cluster fares, to people or to programs.",
        ),
    administrative("transfer-leader", 4, transfer_leader)
        .usage("<region> <node>")
        .syntax("region:i node:i")
        .about(
            GROUP,
            SINCE,
            "O(1)",
            "Has a node lead a region, from now on and whenever it can.",
        ),
    administrative("whoami", 2, who_am_i).about(
        GROUP,
        SINCE,
        "O(1)",
        "Tells which node of which cluster this is, where it is reached, and whether it holds data.",
    ),
];

fn refused(why: impl std::fmt::Display) -> Error {
    Error::reply(format!("ERR {why}"))
}

/// A number of a node, a region or a cluster.
fn number(text: &[u8]) -> Result<u64> {
    let text = std::str::from_utf8(text).map_err(|_| Error::NOT_INTEGER)?;
    text.parse().map_err(|_| Error::NOT_INTEGER)
}

/// The node, if it is one of a cluster.
fn member(server: &Server) -> Result<&Arc<ClusterNode>> {
    entrance(server)?;
    server.cluster.get().ok_or_else(|| {
        refused(
            "this node belongs to no cluster yet: see `cairn cluster init` and `cairn cluster add-node`",
        )
    })
}

/// The map with all changes so far, if its leader can be asked, and what is seen of the cluster here.
fn overview(server: &Server) -> Result<(Arc<ClusterMap>, Arc<Observed>)> {
    let node = member(server)?;
    let (map, _) = node.runtime().block_on(node.latest_map());
    Ok((map, node.observed()))
}

fn change(server: &Server, change: Change) -> Result<Effect> {
    let node = member(server)?;
    let changed = node.runtime().block_on(node.change(change));
    changed.map_err(|error| match error {
        ChangeError::Unknown => Error::reply(format!("INDOUBT {error}")),
        error => refused(error),
    })
}

fn fields(pairs: Vec<(&'static str, Reply)>) -> Reply {
    let pairs = pairs.into_iter();
    Reply::Map(pairs.map(|(name, value)| (name.into(), value)).collect())
}

fn who_am_i(server: &Server, _: &Args) -> Result<Reply> {
    let entrance = entrance(server)?;
    let Addresses {
        clients,
        advertised,
        peers,
    } = entrance.addresses().clone();
    let identity = entrance.identity().map_err(refused)?;
    let (cluster, own) = match &identity {
        Some(identity) => (identity.cluster.to_string(), identity.node),
        None => (String::new(), 0),
    };
    let holds_data = entrance.holds_data().map_err(refused)?;
    let values = &server.settings.values;
    let is_secured =
        !values.get("cluster-secret").is_empty() || values.get("tls-cluster") == b"yes";
    let flag = |is: bool| Reply::Int(i64::from(is));
    let port = |port: u16| Reply::Int(i64::from(port));
    let mut told = vec![
        ("cairn", Reply::bulk(CAIRN_VERSION)),
        ("layout", port(NEWEST)),
        ("run", Reply::bulk(server.run_id.clone())),
        ("cluster", Reply::bulk(cluster)),
        ("node", own.into()),
        (
            "incarnation",
            Reply::bulk(entrance.incarnation().to_string()),
        ),
        ("data", flag(holds_data)),
        ("secured", flag(is_secured)),
        ("host", Reply::bulk(clients.host)),
        ("port", port(clients.port)),
        ("tls-port", port(clients.tls_port)),
        ("peer-host", Reply::bulk(peers.host)),
        ("peer-port", port(peers.port)),
    ];
    if let Some(advertised) = advertised {
        told.push(("advertised-host", Reply::bulk(advertised.host)));
        told.push(("advertised-port", port(advertised.port)));
        told.push(("advertised-tls-port", port(advertised.tls_port)));
    }
    Ok(fields(told))
}

fn found(server: &Server, args: &Args) -> Result<Reply> {
    let entrance = entrance(server)?;
    let Change::Found(foundation) = decoded(args[2])? else {
        return Err(refused("this is no foundation of a cluster"));
    };
    entrance.found(foundation).map_err(refused)?;
    Ok(Reply::Ok)
}

fn join(server: &Server, args: &Args) -> Result<Reply> {
    let entrance = entrance(server)?;
    let (cluster, own) = (number(args[2])?, number(args[3])?);
    let incarnation = number(args[4])?;
    let rest = args.rest(5);
    if !rest.len().is_multiple_of(3) {
        return Err(Error::SYNTAX);
    }
    let mut peers = Vec::new();
    for peer in rest.chunks_exact(3) {
        let host = String::from_utf8_lossy(peer[1]).into_owned();
        let port = u16::try_from(int(peer[2])?).map_err(|_| Error::NOT_INTEGER)?;
        peers.push((number(peer[0])?, Peer { host, port }));
    }
    entrance
        .join(cluster, own, incarnation, peers)
        .map_err(refused)?;
    Ok(Reply::Ok)
}

fn decoded(bytes: &[u8]) -> Result<Change> {
    Change::decode(bytes).map_err(refused)
}

fn add_node(server: &Server, args: &Args) -> Result<Reply> {
    let asked = decoded(args[2])?;
    if !matches!(asked, Change::AddNode { .. }) {
        return Err(refused("this change adds no node"));
    }
    match change(server, asked)? {
        Effect::Node(id) => Ok(id.into()),
        _ => Ok(Reply::Ok),
    }
}

fn remove_node(server: &Server, args: &Args) -> Result<Reply> {
    let node = number(args[2])?;
    let (map, _) = overview(server)?;
    // It may be asked for again.
    match map.node(node).map(|node| node.state) {
        Some(NodeState::Draining | NodeState::Removed) => Ok(Reply::Ok),
        _ => change(server, Change::DrainNode { node }).map(|_| Reply::Ok),
    }
}

fn keep_node(server: &Server, args: &Args) -> Result<Reply> {
    let node = number(args[2])?;
    change(server, Change::KeepNode { node }).map(|_| Reply::Ok)
}

fn move_region(server: &Server, args: &Args) -> Result<Reply> {
    let (id, from, to) = (number(args[2])?, number(args[3])?, number(args[4])?);
    let (map, _) = overview(server)?;
    let region = region_of(&map, id)?;
    let asked = Change::AddReplica {
        region: id,
        node: to,
        replaces: Some(replica_on(region, from)?),
    };
    change(server, asked).map(|_| Reply::Ok)
}

fn transfer_leader(server: &Server, args: &Args) -> Result<Reply> {
    let (id, to) = (number(args[2])?, number(args[3])?);
    let (map, _) = overview(server)?;
    let region = region_of(&map, id)?;
    let asked = Change::Prefer {
        region: id,
        replica: Some(replica_on(region, to)?),
    };
    change(server, asked).map(|_| Reply::Ok)
}

fn split_region(server: &Server, args: &Args) -> Result<Reply> {
    let region = number(args[2])?;
    let at = u16::try_from(int(args[3])?).map_err(|_| refused("there is no such slot"))?;
    match change(server, Change::BeginSplit { region, at })? {
        Effect::Region(id) => Ok(id.into()),
        _ => Ok(Reply::Ok),
    }
}

fn configure(server: &Server, args: &Args) -> Result<Reply> {
    if !is(args[2], "replicas") {
        return Err(Error::SYNTAX);
    }
    let (map, _) = overview(server)?;
    let replicas = u8::try_from(int(args[3])?).map_err(|_| Error::NOT_INTEGER)?;
    let active = map.active_nodes().count();
    if usize::from(replicas) > active {
        return Err(refused(format_args!(
            "{replicas} replicas need as many nodes, and there are {active}"
        )));
    }
    let settings = Settings {
        replicas,
        ..map.settings()
    };
    change(server, Change::Configure(settings)).map(|_| Reply::Ok)
}

fn rebalance(server: &Server, args: &Args) -> Result<Reply> {
    let balance = match args[2].to_ascii_lowercase().as_slice() {
        b"on" => true,
        b"off" => false,
        _ => return Err(Error::SYNTAX),
    };
    let (map, _) = overview(server)?;
    let placed = map.regions().filter(|region| region.preferred.is_some());
    for region in placed.filter(|_| balance) {
        let region = region.id;
        change(
            server,
            Change::Prefer {
                region,
                replica: None,
            },
        )?;
    }
    if map.settings().balance != balance {
        let settings = Settings {
            balance,
            ..map.settings()
        };
        change(server, Change::Configure(settings))?;
    }
    Ok(Reply::Ok)
}

fn region_of(map: &ClusterMap, id: u64) -> Result<&Region> {
    map.region(id)
        .ok_or_else(|| refused(format_args!("there is no region {id}")))
}

fn replica_on(region: &Region, node: u64) -> Result<u64> {
    region.replica_on(node).ok_or_else(|| {
        let id = region.id;
        refused(format_args!("region {id} has no replica on node {node}"))
    })
}

fn status(server: &Server, args: &Args) -> Result<Reply> {
    let (map, observed) = overview(server)?;
    let next = plan(&map, &observed, Limits::default());
    let status = Status {
        map: &map,
        observed: &observed,
        plan: &next,
    };
    match args.rest(2) {
        [] => Ok(Reply::Verbatim("txt", status.to_string().into_bytes())),
        [word] if is(word, "json") => Ok(Reply::bulk(status.to_json())),
        _ => Err(Error::SYNTAX),
    }
}

fn nodes(server: &Server, _: &Args) -> Result<Reply> {
    let (map, observed) = overview(server)?;
    let told = map.nodes().map(|node| told_of_node(node, &map, &observed));
    Ok(Reply::Array(told.collect()))
}

fn told_of_node(node: &Node, map: &ClusterMap, observed: &Observed) -> Reply {
    let leads = map
        .regions()
        .filter(|region| observed.leader(region) == Some(node.id));
    let endpoint = node.endpoint();
    let peers = &node.addresses.peers;
    let port = |port: u16| Reply::Int(i64::from(port));
    fields(vec![
        ("node", node.id.into()),
        ("state", Reply::bulk(node.state.to_string())),
        ("incarnation", Reply::bulk(node.incarnation.to_string())),
        (
            "alive",
            Reply::Int(i64::from(observed.alive.contains(&node.id))),
        ),
        ("host", Reply::bulk(endpoint.host.clone())),
        ("port", port(endpoint.port)),
        ("tls-port", port(endpoint.tls_port)),
        ("peer-host", Reply::bulk(peers.host.clone())),
        ("peer-port", port(peers.port)),
        ("replicas", map.replicas_on(node.id).count().into()),
        ("leads", leads.count().into()),
    ])
}

fn regions(server: &Server, _: &Args) -> Result<Reply> {
    let (map, observed) = overview(server)?;
    let told = map.regions().map(|region| {
        let slot = |slot: Option<u16>| slot.map_or(Reply::Null, |slot| Reply::Int(i64::from(slot)));
        let on = region.voters().into_iter();
        let on = on.filter_map(|replica| region.node_of(replica));
        let on: Vec<String> = on.map(|node| node.to_string()).collect();
        fields(vec![
            ("region", region.id.into()),
            ("first", slot(region.slots.map(|slots| slots.first()))),
            ("last", slot(region.slots.map(|slots| slots.last()))),
            ("epoch", region.epoch.into()),
            (
                "leader",
                observed.leader(region).map_or(Reply::Null, Reply::from),
            ),
            ("settled", Reply::Int(i64::from(region.is_settled()))),
            ("voters", Reply::bulk(on.join(","))),
        ])
    });
    Ok(Reply::Array(told.collect()))
}

fn place(server: &Server, args: &Args) -> Result<Reply> {
    let region = number(args[2])?;
    let node = member(server)?;
    let raft = node.raft();
    let confirmed = node.runtime().block_on(raft.read_barrier(region));
    confirmed.map_err(|error| refused(format_args!("region {region}: {error}")))?;
    let applied = applied_index(node, region)?;
    Ok(applied.into())
}

fn checksum(server: &Server, args: &Args) -> Result<Reply> {
    let (region, index) = (number(args[2])?, number(args[3])?);
    let node = member(server)?;
    let began = Instant::now();
    while applied_index(node, region)? < index {
        if began.elapsed() > CATCHING_UP || server.is_stopping() {
            return Err(refused(format_args!(
                "region {region} does not come to {index} here"
            )));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let summed = node.regions().checksum(region);
    let (applied, sum) =
        summed.map_err(|error| refused(format_args!("region {region}: {error}")))?;
    let at = applied.last.map_or(0, |last| last.index);
    Ok(Reply::Array(vec![
        at.into(),
        sum.rows.into(),
        Reply::bulk(format!("{:016x}", sum.sum)),
    ]))
}

fn applied_index(node: &ClusterNode, region: u64) -> Result<u64> {
    let status = node.raft().status(region);
    let status = status.ok_or_else(|| refused(format_args!("region {region} is not here")))?;
    Ok(status.applied.map_or(0, |applied| applied.index))
}
