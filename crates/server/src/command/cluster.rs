//! What clients of a cluster ask its nodes. What they are told is made by `cairn_cluster`: here it becomes replies. A server
//! that stands alone says so as Redis does.
//!
//! Redis' own ways to change a cluster are not those of this one, which is changed by `cairn cluster`. They say so.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cairn_cluster::{Addresses, Alone, Answer, ClusterMap, Observed, View};
use cairn_resp::Reply;
use cairn_store::{Error, Patience, Result, SLOTS, WriteTxn, keyspace, slot};

use super::args::{Args, int};
use super::flags::Flag::{Admin, Connection, Fast, Loading, NoAsyncLoading, NoScript, Stale};
use super::{Command, Flag, Handler, command, help};
use crate::cluster::Entrance;
use crate::server::Server;
use crate::session::Session;

const GROUP: &str = "cluster";
const ADMINS: &[Flag] = &[Admin, Stale];
/// Those that would change a cluster of Redis.
const CHANGES: &[Flag] = &[Admin, Stale, NoAsyncLoading];

pub const DISABLED: &str = "ERR This instance has cluster support disabled";

pub const COMMANDS: &[Command] = &[
    command("asking", 1, Handler::Session(asking))
        .flags(&[Fast, Connection])
        .about(
            GROUP,
            "3.0.0",
            "O(1)",
            "Has the next command run on a slot that is being imported.",
        ),
    command("readonly", 1, Handler::Session(readonly))
        .flags(&[Loading, Stale, Fast, Connection])
        .about(
            GROUP,
            "3.0.0",
            "O(1)",
            "Allows the connection to read from a replica.",
        ),
    command("readwrite", 1, Handler::Session(readwrite))
        .flags(&[Loading, Stale, Fast, Connection])
        .about(GROUP, "3.0.0", "O(1)", "Takes READONLY back."),
    command("cluster", -2, Handler::Container)
        .subcommands(SUBCOMMANDS)
        .about(
            GROUP,
            "3.0.0",
            "Depends on the subcommand",
            "Tells about the cluster that this server is a node of.",
        ),
];

const SUBCOMMANDS: &[Command] = &[
    changed_by("addslots", -3, "<slot> [<slot> ...]", "slot:i+", "3.0.0"),
    changed_by(
        "addslotsrange",
        -4,
        "<start slot> <end slot> [<start slot> <end slot> ...]",
        "start-slot_end-slot{start-slot:i end-slot:i}+",
        "7.0.0",
    ),
    changed_by("bumpepoch", 2, "", "", "3.0.0").tips(&["nondeterministic_output"]),
    command("count-failure-reports", 3, Handler::Session(failure_reports))
        .flags(ADMINS)
        .tips(&["nondeterministic_output"])
        .usage("<node-id>")
        .syntax("node-id")
        .about(
            GROUP,
            "3.0.0",
            "O(N) for N nodes",
            "Returns how many nodes have reported another to be down: nodes here do not gossip, so none has.",
        ),
    command("countkeysinslot", 3, Handler::Admin(count_keys))
        .flags(&[Stale])
        .walks_keys()
        .usage("<slot>")
        .syntax("slot:i")
        .about(
            GROUP,
            "3.0.0",
            "O(N) for N keys in the slot",
            "Counts the keys in a slot that this node leads.",
        ),
    changed_by("delslots", -3, "<slot> [<slot> ...]", "slot:i+", "3.0.0"),
    changed_by(
        "delslotsrange",
        -4,
        "<start slot> <end slot> [<start slot> <end slot> ...]",
        "start-slot_end-slot{start-slot:i end-slot:i}+",
        "7.0.0",
    ),
    changed_by("failover", -2, "[FORCE|TAKEOVER]", "options(FORCE!|TAKEOVER!)?", "3.0.0"),
    changed_by("flushslots", 2, "", "", "3.0.0"),
    changed_by("forget", 3, "<node-id>", "node-id", "3.0.0"),
    command("getkeysinslot", 4, Handler::Admin(get_keys))
        .flags(&[Stale])
        .walks_keys()
        .tips(&["nondeterministic_output"])
        .usage("<slot> <count>")
        .syntax("slot:i count:i")
        .about(
            GROUP,
            "3.0.0",
            "O(N) for the count",
            "Lists keys in a slot that this node leads.",
        ),
    command("help", 2, Handler::Session(helped))
        .flags(&[Loading, Stale])
        .about(GROUP, "5.0.0", "O(1)", "Prints this help."),
    command("info", 2, Handler::Session(info))
        .flags(&[Stale])
        .tips(&["nondeterministic_output"])
        .about(
            GROUP,
            "3.0.0",
            "O(N) for N regions",
            "Tells whether all slots are served, and by how many nodes.",
        ),
    command("keyslot", 3, Handler::Session(keyslot))
        .flags(&[Stale])
        .usage("<key>")
        .syntax("key:s")
        .about(
            GROUP,
            "3.0.0",
            "O(N) for N bytes",
            "Returns the slot of a key.",
        ),
    command("links", 2, Handler::Session(links))
        .flags(&[Stale])
        .tips(&["nondeterministic_output"])
        .about(
            GROUP,
            "7.0.0",
            "O(N) for N nodes",
            "Lists the connections to other nodes.",
        ),
    changed_by(
        "meet",
        -4,
        "<ip> <port> [<bus-port>]",
        "ip port:i cluster_bus_port:i?",
        "3.0.0",
    ),
    command("myid", 2, Handler::Session(my_id))
        .flags(&[Stale])
        .about(GROUP, "3.0.0", "O(1)", "Returns the name of this node."),
    command("nodes", 2, Handler::Session(nodes))
        .flags(&[Stale])
        .tips(&["nondeterministic_output"])
        .about(
            GROUP,
            "3.0.0",
            "O(N) for N nodes and regions",
            "Lists the nodes with the slots that they lead.",
        ),
    command("replicas", 3, Handler::Session(replicas))
        .flags(ADMINS)
        .tips(&["nondeterministic_output"])
        .usage("<node-id>")
        .syntax("node-id")
        .about(
            GROUP,
            "5.0.0",
            "O(N) for N nodes and regions",
            "Lists the nodes that are shown as replicas of another.",
        ),
    changed_by("replicate", 3, "<node-id>", "node-id", "3.0.0"),
    changed_by("reset", -2, "[HARD|SOFT]", "hard_soft(HARD!|SOFT!)?", "3.0.0")
        .flags(&[NoScript]),
    command("saveconfig", 2, Handler::Session(save_config))
        .flags(CHANGES)
        .about(
            GROUP,
            "3.0.0",
            "O(1)",
            "Does nothing: what a node knows of its cluster is always on the disk.",
        ),
    changed_by("set-config-epoch", 3, "<epoch>", "config-epoch:i", "3.0.0"),
    changed_by(
        "setslot",
        -4,
        "<slot> (IMPORTING <node-id>|MIGRATING <node-id>|STABLE|NODE <node-id>)",
        "slot:i subcommand(IMPORTING/node-id|MIGRATING/node-id|NODE/node-id|STABLE!)",
        "3.0.0",
    ),
    command("shards", 2, Handler::Session(shards))
        .flags(&[Stale])
        .tips(&["nondeterministic_output"])
        .about(
            GROUP,
            "7.0.0",
            "O(N) for N nodes and regions",
            "Lists which nodes serve which slots.",
        ),
    command("slaves", 3, Handler::Session(replicas))
        .flags(ADMINS)
        .tips(&["nondeterministic_output"])
        .deprecated("5.0.0", "`CLUSTER REPLICAS`")
        .usage("<node-id>")
        .syntax("node-id")
        .about(
            GROUP,
            "3.0.0",
            "O(N) for N nodes and regions",
            "The same as REPLICAS.",
        ),
    command("slots", 2, Handler::Session(slots))
        .flags(&[Stale])
        .tips(&["nondeterministic_output"])
        .deprecated("7.0.0", "`CLUSTER SHARDS`")
        .about(
            GROUP,
            "3.0.0",
            "O(N) for N nodes and regions",
            "Lists ranges of slots with the nodes that serve them.",
        ),
];

/// A subcommand by which Redis changes a cluster, and Cairn does not.
const fn changed_by(
    name: &'static str,
    arity: i32,
    usage: &'static str,
    syntax: &'static str,
    since: &'static str,
) -> Command {
    command(name, arity, Handler::Session(done_otherwise))
        .flags(match name.as_bytes() {
            b"reset" => ADMINS,
            _ => CHANGES,
        })
        .usage(usage)
        .syntax(syntax)
        .about(
            GROUP,
            since,
            "O(1)",
            "Says which command of `cairn cluster` does the like.",
        )
}

/// What does it here.
const OTHERWISE: &[(&str, &str)] = &[
    ("addslots", SLOTS_MOVE),
    ("addslotsrange", SLOTS_MOVE),
    ("delslots", SLOTS_MOVE),
    ("delslotsrange", SLOTS_MOVE),
    ("flushslots", SLOTS_MOVE),
    ("setslot", SLOTS_MOVE),
    ("bumpepoch", EPOCH),
    ("set-config-epoch", EPOCH),
    (
        "meet",
        "nodes are let in by `cairn cluster init` and `cairn cluster add-node`",
    ),
    ("forget", REMOVE),
    ("reset", REMOVE),
    (
        "replicate",
        "replicas are those of regions, moved by `cairn cluster move-region`",
    ),
    (
        "failover",
        "another node leads a region after `cairn cluster transfer-leader`",
    ),
];
const SLOTS_MOVE: &str =
    "slots belong to regions, see `cairn cluster split-region` and `cairn cluster move-region`";
const EPOCH: &str = "the epoch of a cluster's map rises with each change by itself";
const REMOVE: &str = "a node is drained and let go by `cairn cluster remove-node`";

fn done_otherwise(session: &mut Session, args: &Args) -> Result<Reply> {
    entrance(&session.server)?;
    let asked = args[1].to_ascii_lowercase();
    let found = OTHERWISE.iter().find(|(name, _)| name.as_bytes() == asked);
    let (name, how) = found.ok_or(Error::SYNTAX)?;
    let name = name.to_ascii_uppercase();
    Err(Error::reply(format!(
        "ERR CLUSTER {name} is not supported: {how}"
    )))
}

/// By which the server is a node of a cluster, or may become one.
pub fn entrance(server: &Server) -> Result<&Entrance> {
    server.entrance.get().ok_or(Error::fixed(DISABLED))
}

/// What a node knows of its cluster at a moment, and who asks.
struct Seen {
    /// None while the node is in no cluster.
    own: Option<u64>,
    map: Arc<ClusterMap>,
    observed: Arc<Observed>,
    addresses: Addresses,
    name: String,
    tls: bool,
    replica_reads: bool,
}

enum Face<'s> {
    Member(View<'s>),
    Alone(Alone<'s>),
}

impl Seen {
    fn by(session: &Session) -> Result<Seen> {
        let server = &session.server;
        let entrance = entrance(server)?;
        let node = server.cluster.get();
        Ok(Seen {
            own: node.map(|node| node.id()),
            map: node.map(|node| node.map()).unwrap_or_default(),
            observed: node.map(|node| node.observed()).unwrap_or_default(),
            addresses: entrance.addresses().clone(),
            name: server.run_id.clone(),
            tls: session.client.is_encrypted,
            replica_reads: server.settings.values.get("cluster-replica-reads") == b"yes",
        })
    }

    fn face(&self) -> Face<'_> {
        match self.own {
            Some(own) if self.map.is_founded() => Face::Member(View {
                map: &self.map,
                observed: &self.observed,
                own,
                tls: self.tls,
                replica_reads: self.replica_reads,
            }),
            _ => Face::Alone(Alone {
                name: &self.name,
                addresses: &self.addresses,
                tls: self.tls,
            }),
        }
    }
}

fn reply(answer: Answer) -> Reply {
    match answer {
        Answer::Int(number) => Reply::Int(number),
        Answer::Text(text) => Reply::bulk(text),
        Answer::List(items) => Reply::Array(items.into_iter().map(reply).collect()),
        Answer::Map(pairs) => {
            let pairs = pairs.into_iter();
            Reply::Map(
                pairs
                    .map(|(key, value)| (reply(key), reply(value)))
                    .collect(),
            )
        }
    }
}

fn asking(session: &mut Session, _: &Args) -> Result<Reply> {
    // No slot is ever served by two nodes, so there is nothing that the next command could be asked for.
    entrance(&session.server).map(|_| Reply::Ok)
}

fn readonly(session: &mut Session, _: &Args) -> Result<Reply> {
    entrance(&session.server)?;
    session.reads_replicas = true;
    Ok(Reply::Ok)
}

fn readwrite(session: &mut Session, _: &Args) -> Result<Reply> {
    entrance(&session.server)?;
    session.reads_replicas = false;
    Ok(Reply::Ok)
}

fn helped(session: &mut Session, args: &Args) -> Result<Reply> {
    entrance(&session.server)?;
    help(session, args)
}

fn info(session: &mut Session, _: &Args) -> Result<Reply> {
    let text = match Seen::by(session)?.face() {
        Face::Member(view) => view.info() + &counted_messages(session),
        Face::Alone(alone) => alone.info(),
    };
    Ok(Reply::Verbatim("txt", text.into_bytes()))
}

/// How many messages nodes have exchanged, as this one has counted them.
fn counted_messages(session: &Session) -> String {
    let Some(node) = session.server.cluster.get() else {
        return String::new();
    };
    let traffic = node.post().traffic();
    let (sent, received) = (&traffic.sent, &traffic.received);
    format!(
        "cluster_stats_messages_sent:{}\r\ncluster_stats_messages_received:{}\r\n\
         total_cluster_links_buffer_limit_exceeded:0\r\n",
        sent.load(Ordering::Relaxed),
        received.load(Ordering::Relaxed)
    )
}

fn nodes(session: &mut Session, _: &Args) -> Result<Reply> {
    let text = match Seen::by(session)?.face() {
        Face::Member(view) => view.nodes(),
        Face::Alone(alone) => alone.nodes(),
    };
    Ok(Reply::Verbatim("txt", text.into_bytes()))
}

fn my_id(session: &mut Session, _: &Args) -> Result<Reply> {
    Ok(Reply::bulk(match Seen::by(session)?.face() {
        Face::Member(view) => view.my_id(),
        Face::Alone(alone) => alone.name.to_string(),
    }))
}

fn slots(session: &mut Session, _: &Args) -> Result<Reply> {
    Ok(match Seen::by(session)?.face() {
        Face::Member(view) => reply(view.slots()),
        Face::Alone(_) => Reply::Array(Vec::new()),
    })
}

fn shards(session: &mut Session, _: &Args) -> Result<Reply> {
    Ok(reply(match Seen::by(session)?.face() {
        Face::Member(view) => view.shards(),
        Face::Alone(alone) => alone.shards(),
    }))
}

fn links(session: &mut Session, _: &Args) -> Result<Reply> {
    let node = session.server.cluster.get();
    let connected = node.map(|node| node.post().connected());
    Ok(match Seen::by(session)?.face() {
        Face::Member(view) => reply(view.links(&connected.unwrap_or_default())),
        Face::Alone(_) => Reply::Array(Vec::new()),
    })
}

fn replicas(session: &mut Session, args: &Args) -> Result<Reply> {
    let lines = replicas_of(session, args[2])?.into_iter();
    Ok(Reply::Array(lines.map(Reply::bulk).collect()))
}

fn failure_reports(session: &mut Session, args: &Args) -> Result<Reply> {
    match Seen::by(session)?.face() {
        Face::Member(view) if view.knows(&String::from_utf8_lossy(args[2])) => Ok(Reply::Int(0)),
        _ => Err(unknown_node(args[2])),
    }
}

fn replicas_of(session: &Session, name: &[u8]) -> Result<Vec<String>> {
    match Seen::by(session)?.face() {
        Face::Member(view) => view
            .replicas(&String::from_utf8_lossy(name))
            .map_err(Error::reply),
        Face::Alone(alone) if alone.name.as_bytes() == name => Ok(Vec::new()),
        Face::Alone(_) => Err(unknown_node(name)),
    }
}

fn unknown_node(name: &[u8]) -> Error {
    Error::reply([b"ERR Unknown node ", super::quotable(name, 128)].concat())
}

fn save_config(session: &mut Session, _: &Args) -> Result<Reply> {
    entrance(&session.server).map(|_| Reply::Ok)
}

fn keyslot(session: &mut Session, args: &Args) -> Result<Reply> {
    entrance(&session.server)?;
    Ok(Reply::Int(i64::from(slot(args[2]))))
}

fn count_keys(server: &Server, args: &Args) -> Result<Reply> {
    entrance(server)?;
    let slot = slot_of(int(args[2])?).ok_or(Error::fixed("ERR Invalid slot"))?;
    let mut keys = 0;
    visit_keys(server, slot, |_| {
        keys += 1;
        true
    })?;
    Ok(Reply::Int(keys))
}

fn get_keys(server: &Server, args: &Args) -> Result<Reply> {
    entrance(server)?;
    let (slot, most) = (slot_of(int(args[2])?), int(args[3])?);
    let (Some(slot), Ok(most)) = (slot, usize::try_from(most)) else {
        return Err(Error::fixed("ERR Invalid slot or number of keys"));
    };
    let mut names = Vec::new();
    visit_keys(server, slot, |name| {
        if names.len() < most {
            names.push(Reply::bulk(name));
        }
        names.len() < most
    })?;
    Ok(Reply::Array(names))
}

fn slot_of(number: i64) -> Option<u16> {
    u16::try_from(number).ok().filter(|slot| *slot < SLOTS)
}

/// The keys that live in a slot, until no more are wanted. Those of slots that others lead are not this node's to list.
fn visit_keys(server: &Server, slot: u16, mut visit: impl FnMut(&[u8]) -> bool) -> Result<()> {
    let regions = server.store.regions();
    let Some(region) = regions.with_slot(slot).filter(|region| region.is_led()) else {
        return Ok(());
    };
    let mut txn = WriteTxn::new(server.store.clone(), region.clone(), Patience::Long);
    txn.begin(0);
    let mut walk = keyspace::Walk::in_slot(&txn, slot)?;
    while let Some(met) = walk.next()? {
        txn.step()?;
        if !met.has_expired(txn.now_ms()) && !visit(met.name) {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_otherwise_says_how() {
        let told = SUBCOMMANDS.iter().filter(|command| {
            matches!(command.handler, Handler::Session(handler) if std::ptr::fn_addr_eq(handler, done_otherwise as fn(&mut Session, &Args) -> Result<Reply>))
        });
        let mut told: Vec<&str> = told.map(|command| command.name).collect();
        let mut known: Vec<&str> = OTHERWISE.iter().map(|(name, _)| *name).collect();
        told.sort_unstable();
        known.sort_unstable();
        assert_eq!(told, known);
    }
}
