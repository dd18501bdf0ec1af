//! What nodes see of each other.
//!
//! Every node tells all others several times in a second what it leads, and in what term; of each region, whoever tells the
//! highest term is believed. Who has told nothing for a while is taken for dead, and so is what it led. A node also believes its
//! own replicas. It tells, too, whether its disk is almost full: what is written to a region takes room of all who have a replica
//! of it, so whoever leads it refuses writes as if it were its own disk, while there is some room left there. The answer to a report is a newer map, if there is one: so it reaches all nodes, whether they have a replica of
//! region 0 or not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use cairn_cluster::{ClusterMap, Group, NodeState, Observed};
use cairn_raft::{Role, Status};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::node::ClusterNode;
use super::post::{Answer, Led, Letter, Report};

/// The most time between two reports.
const BETWEEN_REPORTS: Duration = Duration::from_millis(250);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct Sightings {
    heard: Mutex<BTreeMap<u64, Heard>>,
    /// To whom a report is on its way.
    telling: Mutex<BTreeSet<u64>>,
    observed: ArcSwap<Observed>,
    /// There is something to tell at once.
    urgent: Notify,
}

struct Heard {
    report: Report,
    at: Instant,
}

impl Sightings {
    pub fn observed(&self) -> Arc<Observed> {
        self.observed.load_full()
    }
}

/// A region's leader, in a term.
struct Seen {
    term: u64,
    group: Group,
}

impl ClusterNode {
    /// Tells the others of this node, for as long as it runs.
    pub(super) async fn tell_others(self: Arc<Self>) {
        let between = self.settings.raft.heartbeat.min(BETWEEN_REPORTS);
        loop {
            self.refresh();
            let report = self.report();
            for node in self.others() {
                if self.sightings.telling.lock().insert(node) {
                    self.spawn(self.clone().tell(node, report.clone()));
                }
            }
            tokio::select! {
                () = sleep(between) => {}
                () = self.sightings.urgent.notified() => {}
            }
        }
    }

    async fn tell(self: Arc<Self>, node: u64, report: Report) {
        let letter = Letter::Report(report);
        let answer = self.post().call(node, &letter, PATIENCE).await;
        self.sightings.telling.lock().remove(&node);
        match answer {
            Ok(Answer::Map(bytes)) => self.learn(&bytes),
            Ok(Answer::Refused(why)) => tracing::debug!("node {node}: {why}"),
            Ok(_) => {}
            Err(error) => tracing::debug!("node {node}: {error}"),
        }
    }

    /// Takes over a map that another node has sent.
    pub(super) fn learn(&self, bytes: &[u8]) {
        match ClusterMap::decode(bytes) {
            Ok(map) if map.cluster() == self.cluster() => {
                if self.map.learn(map) {
                    self.tell_news();
                }
            }
            Ok(_) => tracing::warn!("a map of another cluster came in"),
            Err(error) => tracing::error!("a map cannot be read: {error}"),
        }
    }

    /// Another node has told of itself.
    pub(super) fn hear(&self, from: u64, report: Report) -> Answer {
        let known = self.map();
        let answer = match report.map_epoch < known.epoch() {
            true => Answer::Map(known.encode()),
            false => Answer::Done,
        };
        // One that was removed learns that, and counts no more.
        let sender = known.node(from);
        if sender.is_some_and(|node| node.state == NodeState::Removed) {
            return answer;
        }
        let leads = |report: &Report| -> Vec<(u64, u64)> {
            let led = report.led.iter();
            led.map(|led| (led.region, led.term)).collect()
        };
        let (leads_now, is_short) = (leads(&report), report.is_short);
        let heard = Heard {
            report,
            at: Instant::now(),
        };
        let before = self.sightings.heard.lock().insert(from, heard);
        let is_known = |before: Heard| {
            leads(&before.report) == leads_now && before.report.is_short == is_short
        };
        if !before.is_some_and(is_known) {
            self.refresh();
        }
        answer
    }

    /// Who leads here has changed, or what else others have to know at once.
    pub(super) fn note_role(&self) {
        self.refresh();
        self.sightings.urgent.notify_one();
    }

    /// Whether the disk of this node is almost full.
    fn is_short_of_disk(&self) -> bool {
        self.short_of_disk.load(Ordering::Relaxed)
    }

    /// Takes note whether the disk of this node is almost full.
    pub fn note_disk(&self, is_short: bool) {
        if self.short_of_disk.swap(is_short, Ordering::Relaxed) != is_short {
            self.note_role();
        }
    }

    /// Another node, if there is one, whose disk is almost full, and on which everything is that is written to some region that
    /// this node leads.
    pub fn short_follower(&self) -> Option<u64> {
        let observed = self.observed();
        let is_short = |node: &u64| *node != self.id() && observed.short_of_disk.contains(node);
        if !observed.short_of_disk.iter().any(is_short) {
            return None;
        }
        let regions = self.store.regions();
        let led = regions.led().filter(|region| !region.slots().is_empty());
        led.filter_map(|region| self.raft.status(region.id()))
            .flat_map(|status| status.membership.nodes.into_values())
            .find(is_short)
    }

    fn report(&self) -> Report {
        let regions = self.raft.regions().into_iter();
        let led = regions.filter_map(|region| {
            let status = self.raft.status(region)?;
            match status.role {
                Role::Leader { term, ready: true } => Some(Led {
                    region,
                    term,
                    group: self.group(region, &status),
                }),
                _ => None,
            }
        });
        Report {
            map_epoch: self.map().epoch(),
            led: led.collect(),
            is_short: self.is_short_of_disk(),
            failed: self.failed.lock().clone(),
        }
    }

    /// A group as its leader sees it.
    pub(super) fn group(&self, region: u64, status: &Status) -> Group {
        let last = status.last.unwrap_or(0);
        let lag = status.matched.iter().filter_map(|(replica, matched)| {
            let matched = (*matched)?;
            Some((*replica, last.saturating_sub(matched)))
        });
        let epoch = self.regions.descriptor(region).ok().flatten();
        Group {
            leader: status.replica,
            lag: lag.collect(),
            settled: status.settled,
            epoch: epoch.map_or(0, |descriptor| descriptor.epoch),
            ..members(status)
        }
    }

    /// Puts together what is seen now.
    pub(super) fn refresh(&self) {
        let patience = (self.settings.raft.election_timeout * 2).max(PATIENCE);
        let mut alive = BTreeSet::from([self.id()]);
        let mut short_of_disk = BTreeSet::new();
        if self.is_short_of_disk() {
            short_of_disk.insert(self.id());
        }
        let own = self.failed.lock().clone().into_iter();
        let mut failed: BTreeSet<(u64, u64)> = own.map(|region| (region, self.id())).collect();
        let mut seen: BTreeMap<u64, Seen> = BTreeMap::new();
        for (node, heard) in &*self.sightings.heard.lock() {
            if heard.at.elapsed() > patience {
                continue;
            }
            alive.insert(*node);
            if heard.report.is_short {
                short_of_disk.insert(*node);
            }
            failed.extend(heard.report.failed.iter().map(|region| (*region, *node)));
            for led in &heard.report.led {
                note(&mut seen, led.region, led.term, || led.group.clone());
            }
        }
        for region in self.raft.regions() {
            let Some(status) = self.raft.status(region) else {
                continue;
            };
            match status.role {
                Role::Leader { term, .. } => {
                    note(&mut seen, region, term, || self.group(region, &status));
                }
                Role::Follower {
                    leader: Some(leader),
                } if alive.contains(&leader.node) => {
                    // What a follower knows of the members may be old, and nothing shall be decided by it.
                    note(&mut seen, region, status.term, || Group {
                        leader: leader.replica,
                        ..members(&status)
                    });
                }
                _ => {}
            }
        }
        let groups = seen.into_iter().map(|(region, seen)| (region, seen.group));
        let observed = Observed {
            alive,
            short_of_disk,
            failed,
            groups: groups.collect(),
        };
        self.sightings.observed.store(Arc::new(observed));
        self.tell_news();
    }
}

fn note(seen: &mut BTreeMap<u64, Seen>, region: u64, term: u64, group: impl FnOnce() -> Group) {
    if seen.get(&region).is_none_or(|known| known.term < term) {
        let group = group();
        seen.insert(region, Seen { term, group });
    }
}

fn members(status: &Status) -> Group {
    let membership = &status.membership;
    let voters: BTreeSet<u64> = membership.configs.iter().flatten().copied().collect();
    let learners = membership.nodes.keys().copied();
    Group {
        learners: learners
            .filter(|replica| !voters.contains(replica))
            .collect(),
        configs: membership.configs.clone(),
        ..Group::default()
    }
}
