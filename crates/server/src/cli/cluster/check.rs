//! `cairn cluster check`: whether the replicas of each region hold the same.
//!
//! Replicas can be compared at one place of their log only, and a region that is written to does not stay at one. So the leader
//! says where it is, all replicas are asked to sum up what they have there or later, and those that are at the same place
//! are compared; if they are at different ones it is done again, and after some attempts the leader's clients are kept
//! from writing for a moment.

use std::process::ExitCode;

use super::client::{Address, Client, Connecting, Fields, text_of};
use super::{At, list, say};
use cairn_resp::Value;

const ATTEMPTS: usize = 20;
/// From this attempt on clients have to wait,
const PAUSED: usize = 3;
/// for so many milliseconds.
const PAUSE: &str = "500";

#[derive(clap::Args)]
pub struct Check {
    #[command(flatten)]
    at: At,
    /// Only this region.
    #[arg(long)]
    region: Option<u64>,
}

/// What a replica holds.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Sum {
    place: u64,
    rows: u64,
    sum: String,
}

enum Outcome {
    Same(Sum),
    Different(Vec<(u64, Sum)>),
    /// They were never at one place.
    Busy,
}

impl Check {
    /// Fails if replicas differ, or could not be compared.
    pub fn run(self) -> Result<ExitCode, String> {
        let mut client = self.at.connect()?;
        let nodes = list(&mut client, "NODES")?;
        let regions = list(&mut client, "REGIONS")?;
        let asked: Vec<&Fields> = regions
            .iter()
            .filter(|region| self.region.is_none_or(|id| region.number("region") == id))
            .collect();
        if asked.is_empty() {
            return Err("there is no such region".into());
        }
        let mut is_well = true;
        for region in asked {
            let id = region.number("region");
            let outcome = compare(region, &nodes, &self.at.how);
            match outcome.map_err(|error| format!("region {id}: {error}"))? {
                Outcome::Same(sum) => say(format_args!(
                    "region {id}: replicas on nodes {} hold the same {} rows at {}",
                    region.text("voters"),
                    sum.rows,
                    sum.place
                ))?,
                Outcome::Different(sums) => {
                    is_well = false;
                    say(format_args!("region {id}: THE REPLICAS DIFFER"))?;
                    for (node, Sum { place, rows, sum }) in sums {
                        say(format_args!(
                            "  node {node}: {rows} rows, {sum}, at {place}"
                        ))?;
                    }
                }
                Outcome::Busy => {
                    is_well = false;
                    let why = "not compared, it is written to all the time";
                    say(format_args!("region {id}: {why}"))?;
                }
            }
        }
        Ok(match is_well {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        })
    }
}

fn compare(region: &Fields, nodes: &[Fields], how: &Connecting) -> Result<Outcome, String> {
    let id = region.text("region");
    let connect = |node: &str| connect(node, nodes, how);
    let mut leader = match region.text("leader") {
        "" => return Err("nobody leads it".into()),
        leader => connect(leader)?,
    };
    let mut replicas = Vec::new();
    for node in region.text("voters").split(',') {
        replicas.push((node.parse().unwrap_or(0), connect(node)?));
    }
    for attempt in 0..ATTEMPTS {
        let is_paused = attempt >= PAUSED;
        if is_paused {
            leader.ask(&["CLIENT", "PAUSE", PAUSE, "WRITE"])?;
        }
        let place = text_of(&leader.ask(&["CAIRN.CLUSTER", "PLACE", id])?);
        let sums = sum_up(&mut replicas, id, &place);
        if is_paused {
            leader.ask(&["CLIENT", "UNPAUSE"])?;
        }
        let sums = sums?;
        let (_, first) = &sums[0];
        if sums.iter().all(|(_, sum)| sum.place == first.place) {
            return Ok(match sums.iter().all(|(_, sum)| sum == first) {
                true => Outcome::Same(first.clone()),
                false => Outcome::Different(sums),
            });
        }
    }
    Ok(Outcome::Busy)
}

/// Asks all replicas at once.
fn sum_up(
    replicas: &mut [(u64, Client)],
    region: &str,
    place: &str,
) -> Result<Vec<(u64, Sum)>, String> {
    std::thread::scope(|scope| {
        let asked: Vec<_> = replicas
            .iter_mut()
            .map(|(node, client)| {
                let words = ["CAIRN.CLUSTER", "CHECKSUM", region, place];
                (*node, scope.spawn(move || client.ask_patiently(&words)))
            })
            .collect();
        let mut sums = Vec::new();
        for (node, asked) in asked {
            let told = asked.join().map_err(|_| "a thread has failed")??;
            let Value::Array(parts) = told else {
                return Err(format!("node {node} answers otherwise than expected"));
            };
            let part = |at: usize| parts.get(at).map(text_of).unwrap_or_default();
            let sum = Sum {
                place: part(0).parse().unwrap_or(0),
                rows: part(1).parse().unwrap_or(0),
                sum: part(2),
            };
            sums.push((node, sum));
        }
        Ok(sums)
    })
}

fn connect(node: &str, nodes: &[Fields], how: &Connecting) -> Result<Client, String> {
    let known = nodes.iter().find(|known| known.text("node") == node);
    let known = known.ok_or_else(|| format!("there is no node {node}"))?;
    let port = how.port_of(known.number("port") as u16, known.number("tls-port") as u16);
    let address = Address {
        host: known.text("host").to_string(),
        port,
    };
    Client::connect(&address, how)
}
