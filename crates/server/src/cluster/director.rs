//! Brings the cluster into the order that its map says.
//!
//! Region 0's leader looks at everything once in a second, and proposes what `plan` says to the map. The leader of each region
//! does what `drive` says next. Both decide from the map and what is seen alone, so whoever comes after them goes on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cairn_cluster::{
    Change, Effect, Limits, MAP_REGION, NEWEST, NodeState, Progress, Split, Step, drive, plan,
};
use cairn_engine::EngineError;
use cairn_raft::{CallError, Member, Membership, Outcome, Role};
use cairn_store::Request;
use thiserror::Error;
use tokio::time::{sleep, timeout};

use super::machine::change_entry;
use super::node::ClusterNode;
use super::post::{Answer, Letter};
use super::publish;

const BETWEEN_LOOKS: Duration = Duration::from_secs(1);
/// A new leader of region 0 waits until it has heard of the others.
const BEFORE_THE_FIRST: Duration = Duration::from_secs(3);
/// How long a change of the map is tried.
const PATIENCE: Duration = Duration::from_secs(10);
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(100);
/// When a new region stands for election after a split, until it has a leader: the others have it in a moment, and to wait until
/// somebody misses one would take longer.
const STANDS: [u64; 3] = [20, 100, 300];

/// Why the map was not changed, or why that is not known.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ChangeError {
    #[error("{0}")]
    Refused(String),
    #[error("nobody leads the cluster's map now")]
    NoLeader,
    #[error("it is not known whether the cluster's map was changed")]
    Unknown,
}

impl ClusterNode {
    /// Changes the map, wherever that is done.
    pub async fn change(&self, change: Change) -> Result<Effect, ChangeError> {
        let bytes = change.encode();
        let is_asked = AtomicBool::new(false);
        let changed = timeout(PATIENCE, async {
            loop {
                is_asked.store(true, Ordering::Relaxed);
                let answer = self.change_anywhere(&bytes).await?;
                is_asked.store(false, Ordering::Relaxed);
                if let Some(answer) = answer {
                    let effect = Effect::read_answer(&answer);
                    let effect = effect.map_err(|_| ChangeError::Unknown)?;
                    return effect.map_err(ChangeError::Refused);
                }
                sleep(BETWEEN_ATTEMPTS).await;
            }
        });
        changed
            .await
            .unwrap_or_else(|_| match is_asked.load(Ordering::Relaxed) {
                true => Err(ChangeError::Unknown),
                false => Err(ChangeError::NoLeader),
            })
    }

    /// None if it was certainly not done, and may be tried again.
    async fn change_anywhere(&self, bytes: &[u8]) -> Result<Option<Vec<u8>>, ChangeError> {
        if matches!(self.raft.role(MAP_REGION), Role::Leader { .. }) {
            return self.change_here(bytes).await;
        }
        let letter = Letter::Change(bytes.to_vec());
        for node in self.keepers_of_map() {
            match self.post().call(node, &letter, PATIENCE).await {
                Ok(Answer::Changed(answer)) => return Ok(Some(answer)),
                Ok(Answer::Refused(why)) => return Err(ChangeError::Refused(why)),
                Ok(Answer::NotHere) | Err(CallError::NotSent(_)) => {}
                Ok(_) | Err(_) => return Err(ChangeError::Unknown),
            }
        }
        Ok(None)
    }

    /// The same if this node leads region 0.
    async fn change_here(&self, bytes: &[u8]) -> Result<Option<Vec<u8>>, ChangeError> {
        let Role::Leader { term, ready: true } = self.raft.role(MAP_REGION) else {
            return Ok(None);
        };
        let descriptor = self.regions.descriptor(MAP_REGION).ok().flatten();
        let Some(descriptor) = descriptor else {
            return Ok(None);
        };
        // What some node cannot read must not come into the log: it would have to stop there, for good.
        let refused = |why: String| ChangeError::Refused(why);
        let change = Change::decode(bytes).map_err(|error| refused(error.to_string()))?;
        let readable = self.map().readable(change.version());
        readable.map_err(|refusal| refused(refusal.to_string()))?;
        let entry = change_entry(bytes);
        let proposed = self.raft.propose(MAP_REGION, term, descriptor.epoch, entry);
        match proposed.await {
            Outcome::Applied { response, .. } => Ok(Some(response.to_vec())),
            Outcome::NotLeader(_) | Outcome::Stale => Ok(None),
            Outcome::TooLarge => Err(ChangeError::Refused("it is too large".to_string())),
            Outcome::Unknown => Err(ChangeError::Unknown),
        }
    }

    /// What another node asks for.
    pub(super) async fn answer(self: &Arc<Self>, from: u64, letter: Letter) -> Answer {
        match letter {
            Letter::Report(report) => self.hear(from, report),
            Letter::ShowMap => self.show_map().await,
            Letter::Change(bytes) => match self.change_here(&bytes).await {
                Ok(Some(answer)) => Answer::Changed(answer),
                Ok(None) => Answer::NotHere,
                Err(ChangeError::Refused(why)) => Answer::Refused(why),
                // Whoever asked must not take it for undone.
                Err(_) => Answer::Done,
            },
            Letter::Transfer { region, to } => match self.raft.transfer(region, to).await {
                Ok(()) => Answer::Done,
                Err(error) => Answer::Refused(error.to_string()),
            },
            Letter::Publish(messages) => {
                let server = self.server();
                match server.map(|server| publish::show(&server, &messages)) {
                    Some(Err(error)) => Answer::Refused(error.to_string()),
                    Some(Ok(())) | None => Answer::Done,
                }
            }
            Letter::Forward(guest) => self.receive(from, guest).await,
            Letter::CallBack(visit) => {
                self.dismiss(from, visit);
                Answer::Done
            }
            Letter::Functions(told) => {
                self.take_functions(told).await;
                Answer::Done
            }
            Letter::AskFunctions(known) => self.tell_functions(known),
        }
    }

    pub(super) async fn direct(self: Arc<Self>) {
        let mut leading_since = None;
        loop {
            sleep(BETWEEN_LOOKS).await;
            self.drive_regions();
            self.keep_addresses().await;
            self.tell_losses().await;
            match self.raft.role(MAP_REGION) {
                Role::Leader { ready: true, .. } => {
                    let since = *leading_since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= BEFORE_THE_FIRST {
                        self.carry_out_plan().await;
                    }
                }
                _ => leading_since = None,
            }
        }
    }

    /// What the whole cluster needs.
    async fn carry_out_plan(&self) {
        let (map, observed) = (self.map(), self.observed());
        for step in plan(&map, &observed, Limits::default()).steps {
            match step {
                Step::Propose(change) => {
                    tracing::info!("the map: {change:?}");
                    if let Err(error) = self.change(change).await {
                        // Something has changed meanwhile, and the next look finds out what.
                        tracing::debug!("{error}");
                    }
                }
                Step::Transfer { region, to } => {
                    let known = map.region(region);
                    let leader = known.and_then(|region| observed.leader(region));
                    let done = match leader {
                        None => continue,
                        Some(leader) if leader == self.id() => {
                            let done = self.raft.transfer(region, to).await;
                            done.map_err(|error| error.to_string())
                        }
                        Some(leader) => {
                            let letter = Letter::Transfer { region, to };
                            let answer = self.post().call(leader, &letter, BETWEEN_LOOKS).await;
                            answer.map(|_| ()).map_err(|error| error.to_string())
                        }
                    };
                    if let Err(error) = done {
                        tracing::debug!("region {region} is not handed over: {error}");
                    }
                }
                // That is for the region's leader.
                Step::AddLearner { .. }
                | Step::RemoveLearner { .. }
                | Step::ChangeVoters { .. }
                | Step::Split { .. } => {}
            }
        }
    }

    /// What the regions need that this node leads.
    fn drive_regions(self: &Arc<Self>) {
        let (map, observed) = (self.map(), self.observed());
        let mut leading: BTreeMap<u64, usize> = BTreeMap::new();
        for leader in map.regions().filter_map(|region| observed.leader(region)) {
            *leading.entry(leader).or_default() += 1;
        }
        for region in map.regions() {
            let Role::Leader { term, ready: true } = self.raft.role(region.id) else {
                continue;
            };
            let Some(group) = observed.groups.get(&region.id) else {
                continue;
            };
            if region.node_of(group.leader) != Some(self.id()) {
                continue;
            }
            if let Progress::Next(step) = drive(region, &observed, &leading)
                && !matches!(step, Step::Propose(_))
                && self.steps.lock().insert(region.id)
            {
                let (node, id) = (self.clone(), region.id);
                self.spawn(async move {
                    tracing::info!("region {id}: {step:?}");
                    if let Err(error) = node.take_step(step, term).await {
                        tracing::debug!("region {id}: {error}");
                    }
                    node.steps.lock().remove(&id);
                });
            }
        }
    }

    async fn take_step(self: &Arc<Self>, step: Step, term: u64) -> Result<(), String> {
        let raft = &self.raft;
        let done = match step {
            Step::AddLearner {
                region,
                replica,
                node,
            } => raft.add_learner(region, Member { replica, node }).await,
            Step::RemoveLearner { region, replica } => raft.remove_learner(region, replica).await,
            Step::ChangeVoters { region, voters } => raft.change_voters(region, voters).await,
            Step::Transfer { region, to } => raft.transfer(region, to).await,
            Step::Split { region, split } => return self.split(region, term, split).await,
            Step::Propose(_) => Ok(()),
        };
        done.map_err(|error| error.to_string())
    }

    /// Splits a region that this node leads, by an entry of its own log.
    async fn split(self: &Arc<Self>, region: u64, term: u64, split: Split) -> Result<(), String> {
        let status = self.raft.status(region).ok_or("it is not here")?;
        let placed = self.placed(region).ok_or("it is not placed")?;
        let lead = placed.lead().filter(|lead| lead.term() == term);
        let lead = lead.ok_or("it is not led here")?;
        // Others may lead the new region as soon as they have applied this, and before this node has.
        let lease = self.raft.suspend_lease(region);
        // What is under way is applied before, and nothing is evaluated until the split is.
        let held = self.store.latches().acquire(Request::everything()).await;
        let members = renamed(&status.membership, &split.replicas);
        let members = members.ok_or("its members are not those of which the map knows")?;
        let regions = self.regions.clone();
        let (at, new) = (split.at, split.region);
        let batch = tokio::task::spawn_blocking(move || regions.split(region, at, new, members));
        let batch = batch.await.map_err(|error| error.to_string())?;
        let mut batch = batch.map_err(|error| error.to_string())?;
        // By the lead, which refuses it if something that came before may still be applied.
        let outcome = lead.commit(&mut batch).await;
        drop(held);
        match outcome {
            Ok(()) => {
                drop(lease);
                for millis in STANDS {
                    sleep(Duration::from_millis(millis)).await;
                    if let Role::Follower { leader: None } = self.raft.role(new) {
                        self.raft.stand(new).await;
                    }
                }
                Ok(())
            }
            Err(EngineError::InDoubt) => {
                // It may be applied later. For as long as this term goes on, it asks before it reads.
                let node = self.clone();
                self.spawn(async move {
                    let leads =
                        |role| matches!(role, Role::Leader { term: now, .. } if now == term);
                    while leads(node.raft.role(region)) {
                        sleep(BETWEEN_LOOKS).await;
                    }
                    drop(lease);
                });
                Err("it is not known whether it was split".to_string())
            }
            Err(error) => Err(error.to_string()),
        }
    }

    /// The map says where this node is, and what it reads; if that has changed, the map has to know.
    async fn keep_addresses(&self) {
        let map = self.map();
        let Some(known) = map.node(self.id()) else {
            return;
        };
        let addresses = &self.settings.addresses;
        let is_true = known.addresses == *addresses && known.version == NEWEST;
        if is_true || addresses.clients.host.is_empty() || known.state == NodeState::Removed {
            return;
        }
        let change = Change::UpdateNode {
            node: self.id(),
            addresses: addresses.clone(),
            version: NEWEST,
        };
        if let Err(why) = self.announce(&change).await {
            tracing::warn!("the cluster does not know where this node is: {why}");
        }
    }

    /// Changes what the map says of this node. Who has moved is reached by nobody, and so hears of no leader: it asks everybody.
    /// To do so twice does no harm.
    async fn announce(&self, change: &Change) -> Result<(), String> {
        let bytes = change.encode();
        let mut answer = self.change_here(&bytes).await.ok().flatten();
        for node in self.others() {
            if answer.is_some() {
                break;
            }
            let letter = Letter::Change(bytes.clone());
            answer = match self.post().call(node, &letter, BETWEEN_LOOKS).await {
                Ok(Answer::Changed(answer)) => Some(answer),
                _ => None,
            };
        }
        match answer.map(|answer| Effect::read_answer(&answer)) {
            Some(Ok(Ok(_))) => Ok(()),
            Some(Ok(Err(why))) => Err(why),
            _ => Err("nobody who leads its map has answered".to_string()),
        }
    }
}

/// The members of a new region: a replica beside each that there is.
fn renamed(members: &Membership, replicas: &BTreeMap<u64, u64>) -> Option<Membership> {
    let renamed = |replica: &u64| replicas.get(replica).copied();
    let configs = members.configs.iter();
    let nodes = members.nodes.iter();
    Some(Membership {
        configs: configs
            .map(|voters| voters.iter().map(renamed).collect())
            .collect::<Option<_>>()?,
        nodes: nodes
            .map(|(replica, node)| Some((renamed(replica)?, *node)))
            .collect::<Option<_>>()?,
    })
}
