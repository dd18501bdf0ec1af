//! How a cluster fares: a table for people, and JSON for programs.

use std::fmt;

use crate::balance::leader_counts;
use crate::drive::{Step, Waiting};
use crate::json::Json;
use crate::map::ClusterMap;
use crate::node::{Node, NodeState};
use crate::observed::{CLOSE, Observed};
use crate::plan::Plan;
use crate::region::{Duty, Region, Replica};

/// Shown, it is a table.
pub struct Status<'a> {
    pub map: &'a ClusterMap,
    pub observed: &'a Observed,
    pub plan: &'a Plan,
}

impl Status<'_> {
    pub fn to_json(&self) -> String {
        let settings = self.map.settings();
        let cluster = Json::Object(vec![
            (
                "cluster",
                Json::Text(format!("{:016x}", self.map.cluster())),
            ),
            ("epoch", Json::Number(self.map.epoch())),
            ("replicas", Json::Number(u64::from(settings.replicas))),
            ("balance", Json::Bool(settings.balance)),
            (
                "nodes",
                Json::List(self.map.nodes().map(|node| self.node_json(node)).collect()),
            ),
            (
                "regions",
                Json::List(
                    self.map
                        .regions()
                        .map(|region| self.region_json(region))
                        .collect(),
                ),
            ),
            ("steps", Json::Number(self.plan.steps.len() as u64)),
            (
                "waiting",
                Json::List(
                    self.plan
                        .waiting
                        .iter()
                        .map(|(region, waiting)| {
                            Json::Object(vec![
                                ("region", Json::Number(*region)),
                                ("for", Json::Text(waiting.to_string())),
                            ])
                        })
                        .collect(),
                ),
            ),
        ]);
        cluster.to_string()
    }

    fn node_json(&self, node: &Node) -> Json {
        Json::Object(vec![
            ("id", Json::Number(node.id)),
            (
                "name",
                Json::Text(crate::view::node_name(self.map.cluster(), node.id)),
            ),
            ("state", Json::Text(node.state.to_string())),
            ("alive", Json::Bool(self.observed.alive.contains(&node.id))),
            (
                "short_of_disk",
                Json::Bool(self.observed.short_of_disk.contains(&node.id)),
            ),
            ("clients", Json::Text(clients(node))),
            ("peers", Json::Text(node.addresses.peers.to_string())),
            ("version", Json::Number(u64::from(node.version))),
            (
                "replicas",
                Json::Number(self.map.replicas_on(node.id).count() as u64),
            ),
            ("leads", Json::Number(self.leads(node) as u64)),
        ])
    }

    fn region_json(&self, region: &Region) -> Json {
        let group = self.observed.groups.get(&region.id);
        let replicas = region.replicas.iter().map(|(id, replica)| {
            let duty = match replica.duty {
                Duty::Voter => "voter",
                Duty::Learner { .. } => "learner",
                Duty::Leaving => "leaving",
            };
            Json::Object(vec![
                ("id", Json::Number(*id)),
                ("node", Json::Number(replica.node)),
                ("duty", Json::Text(duty.to_string())),
                (
                    "lag",
                    group.and_then(|group| group.lag.get(id).copied()).into(),
                ),
                ("runs", Json::Bool(self.runs(region, replica))),
            ])
        });
        Json::Object(vec![
            ("id", Json::Number(region.id)),
            (
                "first",
                region.slots.map(|slots| u64::from(slots.first())).into(),
            ),
            (
                "last",
                region.slots.map(|slots| u64::from(slots.last())).into(),
            ),
            ("epoch", Json::Number(region.epoch)),
            ("leader", self.observed.leader(region).into()),
            (
                "preferred",
                region
                    .preferred
                    .and_then(|replica| region.node_of(replica))
                    .into(),
            ),
            ("replicas", Json::List(replicas.collect())),
        ])
    }

    /// Whether a replica runs, as far as its node says.
    fn runs(&self, region: &Region, replica: &Replica) -> bool {
        let failed = &self.observed.failed;
        !failed.contains(&(region.id, replica.node))
    }

    /// What is wrong with a voter: the region has fewer than it seems.
    fn complaint(&self, region: &Region, id: u64) -> Option<String> {
        let replica = region.replicas.get(&id)?;
        if !self.runs(region, replica) {
            return Some("does not run".to_string());
        }
        let group = self.observed.groups.get(&region.id)?;
        // Who does not lead knows nothing of the others.
        if id == group.leader || replica.duty != Duty::Voter || group.lag.is_empty() {
            return None;
        }
        match group.lag.get(&id) {
            Some(lag) if *lag > CLOSE => Some(format!("{lag} behind")),
            Some(_) => None,
            None => Some("has not answered the leader".to_string()),
        }
    }

    fn is_well(&self, region: &Region) -> bool {
        let mut replicas = region.replicas.keys();
        self.observed.leader(region).is_some()
            && replicas.all(|id| self.complaint(region, *id).is_none())
    }

    fn leads(&self, node: &Node) -> usize {
        let counts = leader_counts(self.map, self.observed);
        counts.get(&node.id).copied().unwrap_or(0)
    }

    fn node_row(&self, node: &Node) -> Vec<String> {
        let alive = match self.observed.alive.contains(&node.id) {
            true => "yes",
            false => "no",
        };
        vec![
            node.id.to_string(),
            node.state.to_string(),
            alive.to_string(),
            clients(node),
            node.addresses.peers.to_string(),
            self.map.replicas_on(node.id).count().to_string(),
            self.leads(node).to_string(),
        ]
    }

    fn region_row(&self, region: &Region) -> Vec<String> {
        let group = self.observed.groups.get(&region.id);
        let replicas = region.replicas.iter().map(|(id, replica)| {
            let behind = group.and_then(|group| group.lag.get(id));
            let behind = behind
                .map(|lag| format!(", {lag} behind"))
                .unwrap_or_default();
            let complaint = self.complaint(region, *id);
            match replica.duty {
                _ if let Some(complaint) = complaint => format!("{} ({complaint})", replica.node),
                Duty::Voter => replica.node.to_string(),
                Duty::Learner { .. } => format!("{} (learns{behind})", replica.node),
                Duty::Leaving => format!("{} (leaves)", replica.node),
            }
        });
        let replicas: Vec<String> = replicas.collect();
        let leader = self.observed.leader(region);
        vec![
            region.id.to_string(),
            region
                .slots
                .map_or("the map".to_string(), |slots| slots.to_string()),
            region.epoch.to_string(),
            leader.map_or("none".to_string(), |node| node.to_string()),
            replicas.join(" "),
        ]
    }
}

fn clients(node: &Node) -> String {
    let endpoint = node.endpoint();
    format!("{}:{}", endpoint.host, endpoint.port_for(false))
}

impl fmt::Display for Status<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (map, settings) = (self.map, self.map.settings());
        writeln!(
            f,
            "cluster {:016x}, epoch {}, {} replicas wanted, balancing {}\n",
            map.cluster(),
            map.epoch(),
            settings.replicas,
            if settings.balance { "on" } else { "off" },
        )?;
        let heads = [
            "node", "state", "alive", "clients", "nodes", "replicas", "leads",
        ];
        table(
            f,
            &heads,
            map.nodes().map(|node| self.node_row(node)).collect(),
        )?;
        writeln!(f)?;
        let heads = ["region", "slots", "epoch", "leader", "replicas on nodes"];
        table(
            f,
            &heads,
            map.regions()
                .map(|region| self.region_row(region))
                .collect(),
        )?;
        writeln!(f)?;
        let absent = map.nodes().filter(|node| {
            node.state != NodeState::Removed && !self.observed.alive.contains(&node.id)
        });
        for node in absent {
            writeln!(f, "node {} does not answer", node.id)?;
        }
        for node in &self.observed.short_of_disk {
            writeln!(
                f,
                "node {node} is short of room on its disk: those who lead what it has replicas of refuse writes"
            )?;
        }
        for step in &self.plan.steps {
            writeln!(f, "next: {step}")?;
        }
        for (region, waiting) in &self.plan.waiting {
            writeln!(f, "region {region} waits: {waiting}")?;
        }
        let leaderless: Vec<&Region> = map
            .regions()
            .filter(|region| self.observed.leader(region).is_none())
            .collect();
        for region in &leaderless {
            writeln!(f, "region {} has no leader", region.id)?;
        }
        if *self.plan == Plan::default() && leaderless.is_empty() {
            let is_well = map.regions().all(|region| self.is_well(region));
            let is_short = !self.observed.short_of_disk.is_empty();
            match is_well && !is_short {
                true => writeln!(f, "nothing is to be done")?,
                false if !is_well => writeln!(f, "some replicas have to catch up")?,
                false => {}
            }
        }
        Ok(())
    }
}

fn table(f: &mut fmt::Formatter<'_>, heads: &[&str], rows: Vec<Vec<String>>) -> fmt::Result {
    let heads: Vec<String> = heads.iter().map(ToString::to_string).collect();
    let lines: Vec<&Vec<String>> = std::iter::once(&heads).chain(&rows).collect();
    let width = |column: usize| {
        lines
            .iter()
            .map(|line| line[column].len())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    for line in &lines {
        let cells = line
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}"));
        let text = cells.collect::<Vec<_>>().join("  ");
        writeln!(f, "{}", text.trim_end())?;
    }
    Ok(())
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Propose(change) => write!(f, "the map: {change:?}"),
            Step::AddLearner {
                region,
                replica,
                node,
            } => {
                write!(
                    f,
                    "region {region} takes in replica {replica} on node {node}"
                )
            }
            Step::RemoveLearner { region, replica } => {
                write!(f, "region {region} lets replica {replica} go")
            }
            Step::ChangeVoters { region, voters } => {
                write!(f, "the voters of region {region} become {voters:?}")
            }
            Step::Transfer { region, to } => write!(f, "replica {to} leads region {region}"),
            Step::Split { region, split } => write!(f, "region {region} is split at {}", split.at),
        }
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Waiting::Leader => f.write_str("for a leader"),
            Waiting::Membership => f.write_str("for its new members to be committed"),
            Waiting::CatchUp {
                replica,
                lag: Some(lag),
            } => {
                write!(
                    f,
                    "for replica {replica} to catch up, which is {lag} entries behind"
                )
            }
            Waiting::CatchUp { replica, lag: None } => {
                write!(f, "for replica {replica} to catch up")
            }
            Waiting::Node(node) => write!(f, "for node {node} to answer"),
            Waiting::Majority => f.write_str("for a majority of its future voters to answer"),
            Waiting::Successor => f.write_str("for a replica that could take over"),
        }
    }
}

#[cfg(test)]
mod tests;
