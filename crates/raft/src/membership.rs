//! Changing who belongs to a region, and who leads it.

use std::collections::BTreeSet;
use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;

use openraft::errors::{ClientWriteError, RaftError};

use crate::consensus::{Place, Types};
use crate::error::MembershipError;
use crate::group::{Group, Member, Role, member};
use crate::runtime::now;

type Changed = Result<(), MembershipError>;

impl Group {
    /// Adds a replica that learns. It has no vote, so it may be as far behind as it is.
    pub(crate) async fn add_learner(&self, new: Member) -> Changed {
        let place = Place { node: new.node };
        self.changed(self.raft.add_learner(new.replica, place, false))
            .await
    }

    /// Makes these replicas the voters, by a joint change. All of them must be members; those that were voters and are
    /// none of these are removed.
    pub(crate) async fn change_voters(self: &Arc<Self>, voters: BTreeSet<u64>) -> Changed {
        let leaves = match self.role() {
            // It hands over when it is done with that.
            Role::Leader { term, .. } if !voters.contains(&self.replica) => {
                Some((term, self.suspends_lease()))
            }
            _ => None,
        };
        let changed = self
            .changed(self.raft.change_membership(voters, false))
            .await;
        if let Some((term, suspended)) = leaves {
            // One that was refused stays.
            if !matches!(changed, Err(MembershipError::Refused(_))) {
                self.gives_up_lease(term);
            }
            drop(suspended);
        }
        changed
    }

    /// Removes a replica that learns.
    pub(crate) async fn remove_learner(&self, replica: u64) -> Changed {
        let change = openraft::ChangeMembers::RemoveNodes(BTreeSet::from([replica]));
        self.changed(self.raft.change_membership(change, false))
            .await
    }

    /// Asks another voter to lead from now on. Whether it does shows in the role.
    pub(crate) async fn transfer(&self, to: u64) -> Changed {
        let Role::Leader { term, .. } = self.role() else {
            return Err(MembershipError::NotLeader(self.hint()));
        };
        let is_voter = self.metrics(|metrics| {
            metrics
                .membership_config
                .voter_ids()
                .any(|voter| voter == to)
        });
        if !is_voter || to == self.replica {
            let why = format!("replica {to} cannot take over");
            return Err(MembershipError::Refused(why));
        }
        // Once it is asked to, openraft neither writes nor says in this term that it leads, whatever comes of it. So nobody is
        // asked who would not answer.
        if !self.answers(to) {
            let why = format!("replica {to} does not answer");
            return Err(MembershipError::Refused(why));
        }
        // Before anybody else may be elected.
        self.gives_up_lease(term);
        let asked = self.raft.trigger().transfer_leader(to).await;
        asked.map_err(|error| MembershipError::Refused(error.to_string()))
    }

    /// Whether another replica has lately been heard of.
    fn answers(&self, replica: u64) -> bool {
        self.metrics(|metrics| {
            let heard = metrics.heartbeat.as_ref()?.get(&replica)?.as_ref()?;
            Some(now() - *heard.deref() < self.config.election_timeout)
        })
        .unwrap_or(false)
    }

    /// Waits until a change is committed. A leader that removes itself may not hear how that ended.
    async fn changed<T: Send>(
        &self,
        change: impl Future<Output = Result<T, RaftError<Types, ClientWriteError<Types>>>> + Send,
    ) -> Changed {
        let Role::Leader { term, .. } = self.role() else {
            return Err(MembershipError::NotLeader(self.hint()));
        };
        match self.while_leading(term, change).await {
            Some(changed) => changed.map(|_| ()).map_err(not_changed),
            None => Err(MembershipError::Unknown),
        }
    }
}

fn not_changed(error: RaftError<Types, ClientWriteError<Types>>) -> MembershipError {
    match error {
        RaftError::APIError(ClientWriteError::ForwardToLeader(forward)) => {
            MembershipError::NotLeader(member(forward.leader_id, forward.leader_node))
        }
        RaftError::APIError(ClientWriteError::LogEntryDiscarded(_)) | RaftError::Fatal(_) => {
            MembershipError::Unknown
        }
        RaftError::APIError(error) => MembershipError::Refused(error.to_string()),
    }
}
