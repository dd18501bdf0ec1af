//! One replica of one region, at work.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cairn_encoding::raft::{LogId, Membership};
use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::Fatal;
use openraft::{Raft, RaftMetrics, ServerState};
use tokio::sync::watch;

use crate::config::Config;
use crate::consensus::{
    Place, RaftLogId, RaftStoredMembership, RaftVote, Types, log_id, membership,
};
use crate::error::StartError;
use crate::lease::Lease;
use crate::log::{Log, RegionLog};
use crate::machine::Machine;
use crate::network::Peers;
use crate::read::Barrier;
use crate::runtime::{Instant, now, sleep, spawn};
use crate::snapshot::Incoming;
use crate::state_machine::StateMachine;
use crate::time::LeadersTime;
use crate::transport::Transport;

/// How long a process may take to end all its tasks once it has ended one.
const ENDING: Duration = Duration::from_millis(100);

/// What a replica is for its region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// `ready`: its own first entry is applied, and so is all that any leader before it has acknowledged. Before that
    /// it must not evaluate anything.
    Leader { term: u64, ready: bool },
    /// Of whom it believes that it leads.
    Follower { leader: Option<Member> },
    /// It failed, or was stopped.
    Stopped,
}

/// A replica and its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    pub replica: u64,
    pub node: u64,
}

/// How a region fares, as seen by one of its replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub replica: u64,
    pub role: Role,
    pub term: u64,
    pub last: Option<u64>,
    pub committed: Option<LogId>,
    pub applied: Option<LogId>,
    pub purged: Option<LogId>,
    pub log_bytes: u64,
    pub membership: Membership,
    /// Whether the membership is committed. Before, another leader may go back to the one before it.
    pub settled: bool,
    /// Up to where the log of each other replica agrees with this one; known to a leader alone.
    pub matched: BTreeMap<u64, Option<u64>>,
}

pub(crate) struct Group {
    pub region: u64,
    pub replica: u64,
    pub raft: Raft<Types, StateMachine>,
    pub log: RegionLog,
    pub barrier: Arc<Barrier>,
    /// For those who read while another leads.
    pub following: Arc<Barrier>,
    pub incoming: Incoming,
    pub config: Arc<Config>,
    /// When it was started, if it had voted before: see `votes`.
    returned: Option<Instant>,
    pub lease: Arc<Lease>,
    pub time: Arc<LeadersTime>,
    role: watch::Receiver<Role>,
}

impl Group {
    pub(crate) async fn start(
        region: u64,
        replica: u64,
        log: &Log,
        machine: Arc<dyn Machine>,
        transport: Arc<dyn Transport>,
        config: Arc<Config>,
    ) -> Result<Arc<Group>, StartError> {
        let mut openraft = config.openraft().map_err(StartError::config)?;
        let log = log
            .region(region, replica)
            .await?
            .bounded(config.message_bytes)
            .applied_to(machine.clone());
        let returned = log.has_voted().then(now);
        // See `votes`: neither for others nor for itself.
        openraft.enable_elect = returned.is_none();
        let running = Arc::new(AtomicBool::new(false));
        let machine = StateMachine::open(
            region,
            machine,
            config.message_bytes as u64,
            config.failure.clone(),
            running.clone(),
            log.places().clone(),
        )?;
        let time = Arc::new(LeadersTime::default());
        let lease = Arc::new(Lease::new());
        let peers = Peers {
            region,
            replica,
            time: time.clone(),
            transport,
            config: config.clone(),
            lease: lease.clone(),
            places: log.places().clone(),
        };
        let raft = Raft::new(replica, Arc::new(openraft), peers, log.clone(), machine)
            .await
            .map_err(StartError::fatal)?;
        running.store(true, Ordering::Release);
        if returned.is_some() {
            let (raft, wait) = (raft.clone(), config.election_timeout);
            spawn(async move {
                sleep(wait).await;
                raft.runtime_config().elect(true);
            });
        }
        let role = watched_role(&raft, region, replica, &lease, &time, &config);
        Ok(Arc::new(Group {
            region,
            replica,
            raft,
            log,
            barrier: Arc::default(),
            following: Arc::default(),
            incoming: Incoming::default(),
            config,
            returned,
            lease,
            time,
            role,
        }))
    }

    pub(crate) fn metrics<T>(&self, read: impl FnOnce(&RaftMetrics<Types>) -> T) -> T {
        read(&self.raft.metrics().borrow_watched())
    }

    pub(crate) fn role(&self) -> Role {
        self.metrics(|metrics| role(metrics, self.replica))
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Role> {
        self.role.clone()
    }

    /// Whether it may vote. A replica that comes back has forgotten when it last heard of a leader, and to whom it owes
    /// not to elect another: that leader may still read by its lease. So it waits for longer than any lease lasts.
    pub(crate) fn votes(&self) -> bool {
        self.returned
            .is_none_or(|returned| now() - returned >= self.config.election_timeout)
    }

    /// Whether a quorum has been heard of lately.
    pub(crate) fn has_quorum(&self) -> bool {
        self.metrics(|metrics| {
            let voters: BTreeSet<u64> = metrics.membership_config.voter_ids().collect();
            voters == BTreeSet::from([self.replica])
                || metrics.last_quorum_acked.is_some_and(|acked| {
                    now() - acked.into_inner() < self.config.election_timeout * 2
                })
        })
    }

    pub(crate) fn status(&self) -> Status {
        let log_bytes = self.log.bytes();
        self.metrics(|metrics| Status {
            replica: self.replica,
            role: role(metrics, self.replica),
            term: metrics.current_term,
            last: metrics.last_log_index,
            committed: metrics.local_committed.as_ref().map(log_id),
            applied: metrics.last_applied.as_ref().map(log_id),
            purged: metrics.purged.as_ref().map(log_id),
            log_bytes,
            membership: membership(metrics.membership_config.membership()),
            settled: metrics.membership_config == metrics.committed_membership_config,
            matched: metrics
                .replication
                .iter()
                .flatten()
                .map(|(replica, matched)| (*replica, matched.as_ref().map(|id| id.index)))
                .collect(),
        })
    }

    /// Who leads, if this is known.
    pub(crate) fn hint(&self) -> Option<Member> {
        match self.role() {
            Role::Follower { leader } => leader,
            Role::Leader { .. } | Role::Stopped => None,
        }
    }
}

pub(crate) fn member(replica: Option<u64>, place: Option<Place>) -> Option<Member> {
    Some(Member {
        replica: replica?,
        node: place?.node,
    })
}

pub(crate) fn role(metrics: &RaftMetrics<Types>, replica: u64) -> Role {
    if metrics.running_state.is_err() {
        return Role::Stopped;
    }
    let standing = Standing {
        vote: &metrics.vote,
        state: metrics.state,
        leader: metrics.current_leader,
        membership: &metrics.membership_config,
        applied: metrics.last_applied.as_ref(),
    };
    match standing.role(replica) {
        // The vote is the last that is on the disk, and the term the latest that was heard of.
        Role::Leader { term, .. } if term != metrics.current_term => {
            Role::Follower { leader: None }
        }
        role => role,
    }
}

/// From what follows what a replica is.
struct Standing<'a> {
    vote: &'a RaftVote,
    state: ServerState,
    leader: Option<u64>,
    membership: &'a RaftStoredMembership,
    applied: Option<&'a RaftLogId>,
}

impl Standing<'_> {
    fn role(&self, replica: u64) -> Role {
        let term = self.vote.leader_id.term;
        let leads = self.state.is_leader()
            && self.vote.committed
            && self.vote.leader_id.voted_for == replica;
        if leads {
            let ready = self
                .applied
                .is_some_and(|applied| applied.leader_id.term == term);
            return Role::Leader { term, ready };
        }
        let leader = self.leader.filter(|leader| *leader != replica);
        let leader = leader.and_then(|leader| {
            let place = self.membership.get_node(&leader).copied();
            member(Some(leader), place)
        });
        Role::Follower { leader }
    }
}

/// Follows the role, for whoever wants to know when it changes.
///
/// What it depends on is told by itself, and seldom. Something changes with every entry, which it depends on only while a leader
/// is not ready.
fn watched_role(
    raft: &Raft<Types, StateMachine>,
    region: u64,
    replica: u64,
    lease: &Arc<Lease>,
    time: &Arc<LeadersTime>,
    config: &Arc<Config>,
) -> watch::Receiver<Role> {
    let (lease, time, config) = (lease.clone(), time.clone(), config.clone());
    let (mut servers, mut data) = (raft.server_metrics(), raft.data_metrics());
    let all = raft.metrics();
    let (sender, receiver) = watch::channel(role(&raft.metrics().borrow_watched(), replica));
    spawn(async move {
        loop {
            let role = {
                let server = servers.borrow_and_update();
                // Told before the server's part, so it is not older.
                let data = data.borrow_and_update();
                let standing = Standing {
                    vote: &server.vote,
                    state: server.state,
                    leader: server.current_leader,
                    membership: &server.membership_config,
                    applied: data.last_applied.as_ref(),
                };
                standing.role(replica)
            };
            sender.send_if_modified(|before| {
                match (*before, role) {
                    (Role::Leader { term, .. }, _) => time.hear(term, (config.wall_clock)()),
                    (_, Role::Leader { .. }) => lease.note_lead(&config),
                    _ => {}
                }
                std::mem::replace(before, role) != role
            });
            let is_unready = matches!(role, Role::Leader { ready: false, .. });
            let changed = tokio::select! {
                biased;
                changed = servers.changed() => changed,
                changed = data.changed(), if is_unready => changed,
            };
            if changed.is_err() {
                break;
            }
        }
        sender.send_replace(Role::Stopped);
        let fault = fault(&all.borrow_watched().running_state);
        if let Some(fault) = fault {
            // Whoever ends takes its tasks along, in any order. This one does not see the end of that.
            sleep(ENDING).await;
            (config.failure)(&format!("region {region}: {fault}"));
        }
    });
    receiver
}

/// What has ended a replica that nobody has stopped. What it has promised is on the disk, but others may wait for it in vain, and
/// what it has in memory may be anything: the node must not go on with it.
fn fault(state: &Result<(), Fatal<Types>>) -> Option<String> {
    match state {
        Err(Fatal::Stopped) => None,
        Err(fault) => Some(format!("its replica has failed: {fault}")),
        // It had no time to tell.
        Ok(()) => Some("its replica has panicked".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use parking_lot::Mutex;
    use tokio::sync::mpsc;

    use super::*;
    use crate::error::Outcome;
    use crate::log::{Change, Rows};
    use crate::node::Node;
    use crate::runtime::Later;
    use crate::simulation::machine::Memory;
    use crate::simulation::rows::MemoryRows;
    use crate::simulation::runtime::run;
    use crate::transport::CallError;

    #[test]
    fn who_was_stopped_has_not_failed() {
        assert_eq!(fault(&Err(Fatal::Stopped)), None);
        assert!(fault(&Err(Fatal::Panicked)).is_some());
        assert!(fault(&Ok(())).is_some(), "it had no time to tell");
    }

    /// There is nobody else.
    struct Alone;

    impl Transport for Alone {
        fn call(&self, _: u64, _: Bytes, _: Duration) -> Later<'static, Result<Bytes, CallError>> {
            Box::pin(async { Err(CallError::NotSent(String::new())) })
        }
    }

    #[test]
    fn a_replica_that_cannot_read_its_log_is_not_left_alone() {
        run(1, Duration::from_secs(60), async {
            let told: Arc<Mutex<Vec<String>>> = Arc::default();
            let listener = told.clone();
            let config = Config {
                // What is written has to be read again.
                cached_bytes: 0,
                failure: Arc::new(move |reason| listener.lock().push(reason.to_string())),
                ..Config::default()
            };
            let rows = Arc::new(MemoryRows::default());
            let loses = Arc::new(AtomicBool::new(false));
            let (queue, receiver) = mpsc::unbounded_channel();
            let log = Log::new(rows.clone(), queue, None).unwrap();
            let mut writer = Log::writer(rows.clone(), receiver, &config);
            let lost = loses.clone();
            spawn(async move {
                while let Some(op) = writer.queue.recv().await {
                    writer.write(op);
                    if lost.load(Ordering::Relaxed) {
                        let all = Change::DeleteEntries {
                            region: 7,
                            from: 0,
                            to: u64::MAX,
                        };
                        rows.write(vec![all], true).unwrap();
                    }
                }
            });
            let node = Node::new(1, config, log, Arc::new(Memory::default()), Arc::new(Alone));
            node.start(7, 1).await.unwrap();
            let own = Member {
                replica: 1,
                node: 1,
            };
            node.initialize(7, &[own]).await.unwrap();
            let term = loop {
                match node.role(7) {
                    Role::Leader { term, ready: true } => break term,
                    _ => sleep(Duration::from_millis(10)).await,
                }
            };
            assert_eq!(*told.lock(), [""; 0]);
            loses.store(true, Ordering::Relaxed);
            let outcome = node.propose(7, term, 0, Bytes::from_static(b"x")).await;
            assert_eq!(outcome, Outcome::Unknown);
            while told.lock().is_empty() {
                sleep(Duration::from_millis(10)).await;
            }
            assert_eq!(node.role(7), Role::Stopped);
            let told = told.lock().join("; ");
            assert!(
                told.starts_with("region 7: its replica has failed"),
                "{told}"
            );
        });
    }
}
