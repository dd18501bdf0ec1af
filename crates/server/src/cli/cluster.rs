//! `cairn cluster`: beginning a cluster and looking after it, from the command line.
//!
//! Each command is a client of CAIRN.CLUSTER (`command/cairn_cluster.rs`): it asks a node, any one, and says in words what
//! came of it. Those that take their time wait for it, and tell how far it is on the standard error; to be interrupted
//! does them no harm, for the cluster goes on by itself.

mod check;
mod client;
mod init;
mod waiting;

use std::io::{self, Write};
use std::process::ExitCode;

use cairn_cluster::Change;
use clap::Subcommand;

use crate::inspect::told;
use client::{Address, Client, Connecting, Fields, text_of};
use init::{Newcomer, invite};
use waiting::{Until, wait, wait_briefly};

/// Tells what came of it.
fn say(line: impl std::fmt::Display) -> Result<(), String> {
    told(writeln!(io::stdout().lock(), "{line}"))
}

#[derive(Subcommand)]
pub enum Cluster {
    /// Begin a cluster with some nodes. It may be run again if it was interrupted.
    Init(init::Init),
    /// Show how the cluster fares.
    Status {
        #[command(flatten)]
        at: At,
        /// For programs.
        #[arg(long)]
        json: bool,
    },
    /// Let a node in that belongs to no cluster yet.
    AddNode {
        #[command(flatten)]
        at: At,
        /// The new node's address for clients, as host:port.
        #[arg(long)]
        address: Address,
    },
    /// Move everything off a node, and let it go.
    RemoveNode {
        #[command(flatten)]
        at: At,
        /// The number of the node, as in the status.
        #[arg(long)]
        id: u64,
        /// Return at once.
        #[arg(long)]
        no_wait: bool,
    },
    /// Take remove-node back, while it is under way.
    KeepNode {
        #[command(flatten)]
        at: At,
        /// The number of the node, as in the status.
        #[arg(long)]
        id: u64,
    },
    /// Move a replica of a region from a node to another.
    MoveRegion {
        #[command(flatten)]
        at: At,
        #[arg(long)]
        region: u64,
        /// The number of the node that has it.
        #[arg(long, value_name = "NODE")]
        from: u64,
        /// The number of the node that gets it.
        #[arg(long, value_name = "NODE")]
        to: u64,
        /// Return at once.
        #[arg(long)]
        no_wait: bool,
    },
    /// Have a node lead a region, until rebalance.
    TransferLeader {
        #[command(flatten)]
        at: At,
        #[arg(long)]
        region: u64,
        /// The number of the node that is to lead.
        #[arg(long, value_name = "NODE")]
        to: u64,
        /// Return at once.
        #[arg(long)]
        no_wait: bool,
    },
    /// Have replicas and leaders spread evenly, whoever has placed them.
    Rebalance {
        #[command(flatten)]
        at: At,
        /// Leave them where they are, from now on.
        #[arg(long)]
        off: bool,
    },
    /// Change how many replicas each region has.
    Configure {
        #[command(flatten)]
        at: At,
        #[arg(long, value_parser = clap::value_parser!(u8).range(1..=9))]
        replicas: u8,
    },
    /// Make two regions of one.
    SplitRegion {
        #[command(flatten)]
        at: At,
        #[arg(long)]
        region: u64,
        /// The first slot of the new region.
        #[arg(long = "at", value_name = "SLOT", value_parser = clap::value_parser!(u16).range(1..16384))]
        slot: u16,
        /// Return at once.
        #[arg(long)]
        no_wait: bool,
    },
    /// Compare the replicas of each region.
    Check(check::Check),
}

/// A node to ask.
#[derive(clap::Args)]
pub struct At {
    /// Any node's address for clients, as host:port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6379")]
    node: Address,
    #[command(flatten)]
    how: Connecting,
}

impl At {
    fn connect(&self) -> Result<Client, String> {
        Client::connect(&self.node, &self.how)
    }
}

impl Cluster {
    pub fn run(self) -> Result<ExitCode, String> {
        match self {
            Cluster::Init(init) => init.run()?,
            Cluster::Check(check) => return check.run(),
            Cluster::Status { at, json } => status(&at, json)?,
            Cluster::AddNode { at, address } => add_node(&at, &address)?,
            Cluster::RemoveNode { at, id, no_wait } => remove_node(&at, id, !no_wait)?,
            Cluster::KeepNode { at, id } => {
                at.connect()?
                    .ask(&["CAIRN.CLUSTER", "KEEP-NODE", &id.to_string()])?;
                say(format_args!("node {id} stays"))?;
            }
            Cluster::MoveRegion {
                at,
                region,
                from,
                to,
                no_wait,
            } => move_region(&at, region, from, to, !no_wait)?,
            Cluster::TransferLeader {
                at,
                region,
                to,
                no_wait,
            } => transfer_leader(&at, region, to, !no_wait)?,
            Cluster::Rebalance { at, off } => {
                let balance = if off { "OFF" } else { "ON" };
                at.connect()?
                    .ask(&["CAIRN.CLUSTER", "REBALANCE", balance])?;
                say(match off {
                    true => "replicas and leaders stay where they are",
                    false => "replicas and leaders are spread evenly; see `cairn cluster status`",
                })?;
            }
            Cluster::Configure { at, replicas } => {
                let replicas = replicas.to_string();
                at.connect()?
                    .ask(&["CAIRN.CLUSTER", "CONFIGURE", "REPLICAS", &replicas])?;
                say(format_args!(
                    "each region is to have {replicas} replicas; see `cairn cluster status`"
                ))?;
            }
            Cluster::SplitRegion {
                at,
                region,
                slot,
                no_wait,
            } => split_region(&at, region, slot, !no_wait)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn status(at: &At, json: bool) -> Result<(), String> {
    let mut client = at.connect()?;
    let told = match json {
        true => client.ask(&["CAIRN.CLUSTER", "STATUS", "JSON"])?,
        false => client.ask(&["CAIRN.CLUSTER", "STATUS"])?,
    };
    say(text_of(&told).trim_end())
}

fn add_node(at: &At, new: &Address) -> Result<(), String> {
    let newcomer = Newcomer::meet(new, &at.how)?;
    let mut client = at.connect()?;
    let cluster = Fields::of(client.ask(&["CAIRN.CLUSTER", "WHOAMI"])?)?;
    let cluster = cluster.text("cluster").to_string();
    if cluster.is_empty() {
        return Err(format!(
            "{} belongs to no cluster itself: see `cairn cluster init`",
            at.node
        ));
    }
    newcomer.must_be_able_to_join(&cluster)?;
    let nodes = nodes(&mut client)?;
    if let Some(node) = nodes.iter().find(|node| node.text("state") != "removed") {
        newcomer.must_be_as_near_as(node)?;
    }
    // It may have been let in before, without hearing of it.
    let known = nodes
        .iter()
        .find(|node| node.text("state") != "removed" && newcomer.is_at(node));
    let id = match known {
        Some(node) => {
            newcomer.must_be(node)?;
            node.number("node")
        }
        None => {
            let change = Change::AddNode {
                addresses: newcomer.addresses.clone(),
                version: newcomer.layout,
                incarnation: newcomer.incarnation,
            };
            let words: [&[u8]; 3] = [b"CAIRN.CLUSTER", b"ADD-NODE", &change.encode()];
            let id = text_of(&client.ask(&words)?);
            id.parse()
                .map_err(|_| format!("{}: no number of a node: {id}", at.node))?
        }
    };
    let nodes = self::nodes(&mut client)?;
    invite(newcomer, &cluster, id, &nodes)?;
    say(format_args!(
        "{new} is node {id}; replicas are moved to it, see `cairn cluster status`"
    ))?;
    Ok(())
}

fn nodes(client: &mut Client) -> Result<Vec<Fields>, String> {
    list(client, "NODES")
}

/// What is told of all nodes, or of all regions.
fn list(client: &mut Client, of: &str) -> Result<Vec<Fields>, String> {
    match client.ask(&["CAIRN.CLUSTER", of])? {
        cairn_resp::Value::Array(items) => items.into_iter().map(Fields::of).collect(),
        _ => Err("it answers otherwise than expected".into()),
    }
}

fn remove_node(at: &At, id: u64, waits: bool) -> Result<(), String> {
    let mut client = at.connect()?;
    client.ask(&["CAIRN.CLUSTER", "REMOVE-NODE", &id.to_string()])?;
    if waits {
        wait(at, client, |client| {
            let nodes = nodes(client)?;
            let node = nodes.iter().find(|node| node.number("node") == id);
            let node = node.ok_or_else(|| format!("there is no node {id}"))?;
            Ok(match node.text("state") {
                "removed" => Until::Done,
                "active" => Until::Never(format!("node {id} is to stay after all")),
                _ => Until::Later(format!(
                    "node {id} has {} replicas left, and leads {} regions",
                    node.text("replicas"),
                    node.text("leads")
                )),
            })
        })?;
        say(format_args!("node {id} is removed, and can be stopped"))?;
    } else {
        say(format_args!(
            "node {id} is drained; see `cairn cluster status`"
        ))?;
    }
    Ok(())
}

/// The region of this number, if there is one.
fn region(client: &mut Client, id: u64) -> Result<Fields, String> {
    let regions = list(client, "REGIONS")?;
    let mut found = regions.into_iter();
    found
        .find(|region| region.number("region") == id)
        .ok_or_else(|| format!("there is no region {id}"))
}

fn move_region(at: &At, id: u64, from: u64, to: u64, waits: bool) -> Result<(), String> {
    let mut client = at.connect()?;
    let words = [id, from, to].map(|number| number.to_string());
    let [id_word, from_word, to_word] = &words;
    client.ask(&["CAIRN.CLUSTER", "MOVE-REGION", id_word, from_word, to_word])?;
    if !waits {
        say(format_args!(
            "region {id} moves; see `cairn cluster status`"
        ))?;
        return Ok(());
    }
    wait(at, client, |client| {
        let region = region(client, id)?;
        let has = |node: &str| region.text("voters").split(',').any(|voter| voter == node);
        Ok(match region.number("settled") == 1 {
            true if has(to_word) && !has(from_word) => Until::Done,
            // The learner was given up: its node is gone, or is to go.
            true => Until::Never(format!("region {id} could not be moved to node {to}")),
            false => Until::Later(format!("region {id} is being moved to node {to}")),
        })
    })?;
    say(format_args!(
        "region {id} has moved from node {from} to node {to}"
    ))?;
    Ok(())
}

fn transfer_leader(at: &At, id: u64, to: u64, waits: bool) -> Result<(), String> {
    let mut client = at.connect()?;
    let words = [id, to].map(|number| number.to_string());
    client.ask(&["CAIRN.CLUSTER", "TRANSFER-LEADER", &words[0], &words[1]])?;
    if !waits {
        say(format_args!("node {to} is to lead region {id}"))?;
        return Ok(());
    }
    wait_briefly(at, client, |client| {
        let region = region(client, id)?;
        Ok(match region.text("leader") == words[1] {
            true => Until::Done,
            false => Until::Later(format!("node {to} does not lead region {id} yet")),
        })
    })?;
    say(format_args!("node {to} leads region {id}"))?;
    Ok(())
}

fn split_region(at: &At, id: u64, slot: u16, waits: bool) -> Result<(), String> {
    let mut client = at.connect()?;
    let (id_word, slot_word) = (id.to_string(), slot.to_string());
    let new = client.ask(&["CAIRN.CLUSTER", "SPLIT-REGION", &id_word, &slot_word])?;
    let new = text_of(&new);
    if !waits {
        say(format_args!(
            "region {id} is split at slot {slot}; the new one will be region {new}"
        ))?;
        return Ok(());
    }
    wait_briefly(at, client, |client| {
        let regions = list(client, "REGIONS")?;
        let made = regions.iter().find(|region| region.text("region") == new);
        Ok(match made {
            Some(made) if !made.text("leader").is_empty() => Until::Done,
            Some(_) => Until::Later(format!("region {new} has no leader yet")),
            None => Until::Later(format!("region {id} is not split yet")),
        })
    })?;
    say(format_args!(
        "region {id} is split at slot {slot}; the new one is region {new}"
    ))?;
    Ok(())
}
