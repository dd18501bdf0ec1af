//! All replicas of a node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::RwLock;
use tokio::sync::watch;

use crate::config::Config;
use crate::consensus::Place;
use crate::error::{MembershipError, Outcome, ReadError, StartError};
use crate::group::{Group, Member, Role, Status};
use crate::lease::{ReadLease, Suspended};
use crate::log::Log;
use crate::machine::Machine;
use crate::message::{Call, Request, Response};
use crate::read::{Answer, Confirmed};
use crate::runtime::{Later, sleep, spawn};
use crate::tcp::Caller;
use crate::transport::{Service, Transport};

/// How often it is looked whether there is something to purge.
const UPKEEP: Duration = Duration::from_secs(1);

pub struct Node {
    id: u64,
    config: Arc<Config>,
    log: Log,
    machine: Arc<dyn Machine>,
    transport: Arc<dyn Transport>,
    groups: RwLock<BTreeMap<u64, Arc<Group>>>,
    /// Held while a region is started or stopped.
    changing: tokio::sync::Mutex<()>,
    /// For what others ask, which may outlive it.
    own: Weak<Node>,
}

impl Node {
    /// Starts nothing yet: `log.replicas()` says what there was.
    pub fn new(
        id: u64,
        config: Config,
        log: Log,
        machine: Arc<dyn Machine>,
        transport: Arc<dyn Transport>,
    ) -> Arc<Node> {
        let node = Arc::new_cyclic(|own| Node {
            id,
            config: Arc::new(config),
            log,
            machine,
            transport,
            groups: RwLock::default(),
            changing: tokio::sync::Mutex::default(),
            own: own.clone(),
        });
        let own = node.own.clone();
        spawn(async move {
            while let Some(node) = own.upgrade() {
                node.upkeep().await;
                drop(node);
                sleep(UPKEEP).await;
            }
        });
        node
    }

    pub fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn machine(&self) -> &Arc<dyn Machine> {
        &self.machine
    }

    pub(crate) fn group(&self, region: u64) -> Option<Arc<Group>> {
        self.groups.read().get(&region).cloned()
    }

    /// Starts a replica, which is made if it is new. It does nothing until it is made a member, or `initialize`d.
    pub async fn start(&self, region: u64, replica: u64) -> Result<(), StartError> {
        let _changing = self.changing.lock().await;
        if self.group(region).is_some() {
            return Err(StartError::Running(region));
        }
        if self.log.had_another(region) {
            self.machine.remove(region).await?;
        }
        let group = Group::start(
            region,
            replica,
            &self.log,
            self.machine.clone(),
            self.transport.clone(),
            self.config.clone(),
        )
        .await?;
        self.groups.write().insert(region, group);
        Ok(())
    }

    /// Makes the first members of a region. Several of them may do this, if they name the same.
    pub async fn initialize(&self, region: u64, members: &[Member]) -> Result<(), MembershipError> {
        let Some(group) = self.group(region) else {
            return Err(MembershipError::NotLeader(None));
        };
        let members: BTreeMap<u64, Place> = members
            .iter()
            .map(|member| (member.replica, Place { node: member.node }))
            .collect();
        let initialized = group.raft.initialize(members).await;
        initialized.map_err(|error| MembershipError::Refused(error.to_string()))
    }

    /// Stops a replica; it can be started again.
    pub async fn stop(&self, region: u64) {
        let _changing = self.changing.lock().await;
        self.stopped(region).await;
    }

    async fn stopped(&self, region: u64) {
        let group = self.groups.write().remove(&region);
        if let Some(group) = group {
            // It has told why, if it failed.
            drop(group.raft.shutdown().await);
        }
    }

    /// Stops a replica for good, and drops its log and state. Its number is never used again.
    pub async fn destroy(&self, region: u64) -> Result<(), StartError> {
        let _changing = self.changing.lock().await;
        self.stopped(region).await;
        // What a crash leaves in between is cleared away before the next replica is made.
        self.log.destroy(region).await?;
        Ok(self.machine.remove(region).await?)
    }

    /// Stops all replicas.
    pub async fn shut_down(&self) {
        let _changing = self.changing.lock().await;
        let regions: Vec<u64> = self.groups.read().keys().copied().collect();
        for region in regions {
            self.stopped(region).await;
        }
    }

    pub fn regions(&self) -> Vec<u64> {
        self.groups.read().keys().copied().collect()
    }

    /// Commits a batch that was evaluated while this replica led in `term`, and was `ready`, in the region's `epoch`.
    ///
    /// A caller that gives up waiting does not take it back.
    pub async fn propose(&self, region: u64, term: u64, epoch: u64, payload: Bytes) -> Outcome {
        match self.group(region) {
            Some(group) => group.propose(term, epoch, payload).await,
            None => Outcome::NotLeader(None),
        }
    }

    pub fn role(&self, region: u64) -> Role {
        self.group(region)
            .map_or(Role::Stopped, |group| group.role())
    }

    /// Follows the role of a replica; none if it is not running.
    pub fn watch(&self, region: u64) -> Option<watch::Receiver<Role>> {
        self.group(region).map(|group| group.watch())
    }

    pub fn status(&self, region: u64) -> Option<Status> {
        self.group(region).map(|group| group.status())
    }

    /// Whether what is applied here may be read at once. If not, `read_barrier` finds out.
    pub fn holds_lease(&self, region: u64) -> bool {
        self.group(region).is_some_and(|group| group.holds_lease())
    }

    /// The same for whoever asks often; none if there is no such replica.
    pub fn lease(&self, region: u64) -> Option<ReadLease> {
        self.group(region).map(ReadLease)
    }

    /// From now on until what is returned is dropped, this replica reads only after having asked: it is about to give
    /// slots away to a region that others may lead.
    pub fn suspend_lease(&self, region: u64) -> Option<Suspended> {
        self.group(region).map(|group| group.suspends_lease())
    }

    /// Has a replica of a region that never had a leader stand for election at once. It need not be elected.
    pub async fn stand(&self, region: u64) {
        if let Some(group) = self.group(region)
            && let Err(error) = group.raft.trigger().elect(true).await
        {
            tracing::debug!("region {region}: {error}");
        }
    }

    /// Waits until all that was acknowledged before the call is applied here, and this replica certainly leads.
    pub async fn read_barrier(&self, region: u64) -> Result<(), ReadError> {
        match self.group(region) {
            Some(group) => group.read_barrier().await,
            None => Err(ReadError::NotLeader(None)),
        }
    }

    /// Waits until all that was acknowledged before the call is applied here, whoever leads. Returns the leader's time since,
    /// in milliseconds: what it has hidden as expired must not be shown here.
    pub async fn follower_barrier(&self, region: u64) -> Result<u64, ReadError> {
        let group = self.group(region).ok_or(ReadError::NotLeader(None))?;
        let transport = self.transport.clone();
        let following = group.following.clone();
        let ask = move || ask_leader(group.clone(), transport.clone());
        let confirmed = following.pass(ask).await?;
        (self.config.hear_time)(confirmed.now);
        Ok(confirmed.now)
    }

    pub async fn add_learner(&self, region: u64, new: Member) -> Result<(), MembershipError> {
        self.leading(region)?.add_learner(new).await
    }

    pub async fn remove_learner(&self, region: u64, replica: u64) -> Result<(), MembershipError> {
        self.leading(region)?.remove_learner(replica).await
    }

    pub async fn change_voters(
        &self,
        region: u64,
        voters: BTreeSet<u64>,
    ) -> Result<(), MembershipError> {
        self.leading(region)?.change_voters(voters).await
    }

    pub async fn transfer(&self, region: u64, to: u64) -> Result<(), MembershipError> {
        self.leading(region)?.transfer(to).await
    }

    fn leading(&self, region: u64) -> Result<Arc<Group>, MembershipError> {
        self.group(region).ok_or(MembershipError::NotLeader(None))
    }

    /// Purges what can go.
    pub(crate) async fn upkeep(&self) {
        for region in self.regions() {
            let Some(group) = self.group(region) else {
                continue;
            };
            group.incoming.forget(self.config.install_timeout);
            if let Err(error) = group.purge(&self.machine).await {
                tracing::warn!("region {region}: its log cannot be purged: {error}");
            }
        }
    }
}

/// Waits until this replica has applied what its leader says that a read has to see.
async fn ask_leader(group: Arc<Group>, transport: Arc<dyn Transport>) -> Answer {
    let Some(leader) = group.hint() else {
        return group.confirm().await;
    };
    let request = Request {
        region: group.region,
        from: group.replica,
        to: leader.replica,
        call: Call::Read,
    };
    let limit = group.config.election_timeout * 2;
    let answer = transport.call(leader.node, request.encode(), limit);
    match answer.await.map(|answer| Response::decode(&answer)) {
        Ok(Ok(Response::Read { id, now })) => {
            let applied = group
                .raft
                .wait(Some(limit))
                .applied_index_at_least(Some(id.index), "a follower's read")
                .await;
            let confirmed = applied.map(|_| Confirmed { id, now });
            confirmed.map_err(|_| ReadError::NoQuorum)
        }
        _ => Err(ReadError::NoQuorum),
    }
}

impl Service for Node {
    /// Who belongs to the cluster is the map's affair, of which this knows nothing.
    fn admits(&self, _: &Caller) -> Result<(), String> {
        Ok(())
    }

    fn serve(&self, _: u64, request: Bytes) -> Later<'static, Bytes> {
        let node = self.own.upgrade();
        Box::pin(async move {
            match node {
                Some(node) => node.answer(request).await,
                None => Response::Refused("it is about to end".to_string()).encode(),
            }
        })
    }
}
