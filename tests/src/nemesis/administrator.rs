//! Who looks after a cluster of Cairn, by its own command line.

use std::collections::BTreeMap;
use std::process::Command;

use fastrand::Rng;

use super::slot::slot;
use super::until;
use crate::json::Json;
use crate::server::cairn_binary;

/// No command takes longer, whatever became of the node that it asks.
const LIMIT_SECONDS: &str = "60";

/// Knows nodes by their place in the fleet.
#[derive(Clone, Debug)]
pub struct Administrator {
    addresses: Vec<String>,
}

/// How a cluster fares, as one of its nodes sees it.
#[derive(Clone, Debug)]
pub struct Status {
    /// What the cluster calls the nodes of the fleet that belong to it.
    pub ids: BTreeMap<usize, u64>,
    /// Those that hold slots.
    pub regions: Vec<Region>,
    /// Whether nothing is under way, and nothing waits.
    pub is_settled: bool,
}

#[derive(Clone, Debug)]
pub struct Region {
    pub id: u64,
    pub first: u16,
    pub last: u16,
    pub leader: Option<usize>,
    pub voters: Vec<usize>,
    /// Replicas that are no voters, or no longer.
    pub others: usize,
}

impl Administrator {
    pub fn new(addresses: Vec<String>) -> Administrator {
        Administrator { addresses }
    }

    /// `cairn cluster`, asking whichever node answers. What it says if it fails is the error.
    pub fn order(&self, words: &[&str]) -> Result<String, String> {
        let mut nodes: Vec<usize> = (0..self.addresses.len()).collect();
        fastrand::shuffle(&mut nodes);
        let mut complaints = Vec::new();
        for node in nodes {
            match self.order_at(node, words) {
                Ok(said) => return Ok(said),
                Err(complaint) => complaints.push(complaint),
            }
        }
        Err(complaints.join("\n"))
    }

    pub fn order_at(&self, node: usize, words: &[&str]) -> Result<String, String> {
        let (subcommand, rest) = words.split_first().expect("a subcommand");
        run(&[&[subcommand, "--node", &self.addresses[node]], rest].concat())
    }

    /// Makes these nodes a cluster.
    pub fn found(&self, nodes: &[usize], regions: usize, replicas: usize) {
        let addresses: Vec<&str> = nodes.iter().map(|node| &*self.addresses[*node]).collect();
        let (addresses, regions) = (addresses.join(","), regions.to_string());
        let replicas = replicas.to_string();
        let init = ["init", "--nodes", &addresses, "--regions", &regions];
        let said = run(&[&init[..], &["--replicas", &replicas]].concat());
        assert!(said.is_ok(), "{said:?}");
    }

    /// `None` while nobody answers.
    pub fn status(&self) -> Option<Status> {
        let said = self.order(&["status", "--json"]).ok()?;
        self.understood(&Json::parse(&said)?)
    }

    fn understood(&self, json: &Json) -> Option<Status> {
        let place = |node: &Json| {
            let address = node.get("clients").text()?;
            let place = self.addresses.iter().position(|own| own == address)?;
            Some((place, node.get("id").number()?))
        };
        let nodes = json.get("nodes").items();
        let ids: BTreeMap<usize, u64> = nodes.iter().filter_map(place).collect();
        let known = |id: u64| {
            ids.iter()
                .find(|(_, other)| **other == id)
                .map(|(at, _)| *at)
        };
        let region = |region: &Json| {
            let (voters, others): (Vec<&Json>, Vec<&Json>) = region
                .get("replicas")
                .items()
                .iter()
                .partition(|replica| replica.get("duty").text() == Some("voter"));
            let node = |replica: &Json| replica.get("node").number().and_then(known);
            Some(Region {
                id: region.get("id").number()?,
                first: u16::try_from(region.get("first").number()?).ok()?,
                last: u16::try_from(region.get("last").number()?).ok()?,
                leader: region.get("leader").number().and_then(known),
                voters: voters.into_iter().filter_map(node).collect(),
                others: others.len(),
            })
        };
        Some(Status {
            regions: json
                .get("regions")
                .items()
                .iter()
                .filter_map(region)
                .collect(),
            is_settled: json.get("steps").number() == Some(0)
                && json.get("waiting").items().is_empty(),
            ids,
        })
    }

    /// Waits until every region is led and has this many voters, and nothing is to be done.
    pub fn until_settled(&self, replicas: usize) -> Status {
        let mut settled = None;
        until("the cluster settles", || {
            settled = self.status().filter(|status| status.is_whole(replicas));
            settled.is_some()
        });
        settled.expect("it is")
    }

    /// Hands the lead of a region to another node, which has a replica of it.
    pub fn transfer(&self, region: u64, to: u64) -> Result<String, String> {
        let (region, to) = (region.to_string(), to.to_string());
        self.order(&["transfer-leader", "--region", &region, "--to", &to])
    }

    pub fn move_replica(&self, region: u64, from: u64, to: u64) -> Result<String, String> {
        let [region, from, to] = [region, from, to].map(|id| id.to_string());
        let between = ["--from", &from, "--to", &to];
        self.order(&[&["move-region", "--region", &region][..], &between].concat())
    }

    /// Hands some region to some other of its replicas. Returns whether that could be asked for.
    pub fn transfer_any(&self, rng: &mut Rng) -> bool {
        let Some(status) = self.status() else {
            return false;
        };
        let Some(region) = rng.choice(&status.regions) else {
            return false;
        };
        let others = region
            .voters
            .iter()
            .filter(|node| Some(**node) != region.leader);
        let to = rng.choice(others.collect::<Vec<_>>());
        to.is_some_and(|to| self.transfer(region.id, status.ids[to]).is_ok())
    }

    /// Moves some replica to a node that has none of its region.
    pub fn move_any(&self, rng: &mut Rng) -> bool {
        let Some(status) = self.status() else {
            return false;
        };
        let Some(region) = rng.choice(&status.regions) else {
            return false;
        };
        let free = status
            .ids
            .keys()
            .filter(|node| !region.voters.contains(node));
        let (from, to) = (
            rng.choice(&region.voters),
            rng.choice(free.collect::<Vec<_>>()),
        );
        let Some((from, to)) = from.zip(to) else {
            return false;
        };
        let [from, to] = [from, to].map(|node| status.ids[node]);
        self.move_replica(region.id, from, to).is_ok()
    }
}

impl Status {
    pub fn is_whole(&self, replicas: usize) -> bool {
        let is_whole = |region: &Region| {
            region.leader.is_some() && region.voters.len() == replicas && region.others == 0
        };
        self.is_settled && !self.regions.is_empty() && self.regions.iter().all(is_whole)
    }

    pub fn region_of(&self, key: impl AsRef<[u8]>) -> Option<&Region> {
        let slot = slot(key.as_ref());
        let mut regions = self.regions.iter();
        regions.find(|region| region.holds(slot))
    }

    pub fn led_by(&self, node: usize) -> impl Iterator<Item = &Region> {
        let led = move |region: &&Region| region.leader == Some(node);
        self.regions.iter().filter(led)
    }
}

impl Region {
    pub fn holds(&self, slot: u16) -> bool {
        (self.first..=self.last).contains(&slot)
    }

    /// A key that lies in it. Which one depends on the number.
    pub fn key(&self, number: usize) -> String {
        let names = (0..).map(|n| format!("in-region:{number}:{n}"));
        let mut names = names.filter(|name| self.holds(slot(name.as_bytes())));
        names.next().expect("some name has its slot")
    }
}

fn run(words: &[&str]) -> Result<String, String> {
    let mut command = Command::new("timeout");
    command.arg(LIMIT_SECONDS).arg(cairn_binary());
    let output = command.arg("cluster").args(words).output();
    let output = output.map_err(|error| error.to_string())?;
    let [said, complained] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    match output.status.success() {
        true => Ok(said),
        false => Err(format!("cluster {}: {said}{complained}", words.join(" "))),
    }
}
