//! The other replicas of a region, as openraft calls them.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_core::Stream;
use openraft::alias::SnapshotOf;
use openraft::base::{BoxFuture, BoxStream};
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, stream_append_sequential};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::{OptionalSend, RaftNetworkV2};

use crate::config::Config;
use crate::consensus::{
    Place, RaftEntry, RaftVote, Types, log_id, raft_log_id, raft_vote, size, vote,
};
use crate::lease::{Lease, Places};
use crate::message::{Appended, Call, Candidacy, Request, Response};
use crate::notices::Notices;
use crate::snapshot;
use crate::state_machine::SnapshotData;
use crate::time::LeadersTime;
use crate::transport::{CallError, Transport};

/// The slowest network and disk that are waited for, in bytes per second.
const SLOWEST: u64 = 1024 * 1024;

type Rpc<T> = Result<T, RPCError<Types>>;

/// Makes [`Peer`]s of a region.
pub(crate) struct Peers {
    pub region: u64,
    pub replica: u64,
    pub time: Arc<LeadersTime>,
    pub transport: Arc<dyn Transport>,
    pub config: Arc<Config>,
    pub lease: Arc<Lease>,
    pub places: Arc<Places>,
}

impl RaftNetworkFactory<Types> for Peers {
    type Network = Peer;

    async fn new_client(&mut self, target: u64, place: &Place) -> Peer {
        Peer {
            region: self.region,
            from: self.replica,
            to: target,
            node: place.node,
            time: self.time.clone(),
            transport: self.transport.clone(),
            config: self.config.clone(),
            lease: self.lease.clone(),
            places: self.places.clone(),
        }
    }
}

pub(crate) struct Peer {
    region: u64,
    from: u64,
    to: u64,
    node: u64,
    time: Arc<LeadersTime>,
    transport: Arc<dyn Transport>,
    pub(crate) config: Arc<Config>,
    lease: Arc<Lease>,
    places: Arc<Places>,
}

impl Peer {
    pub(crate) async fn call(&self, call: Call, limit: Duration) -> Rpc<Response> {
        let request = Request {
            region: self.region,
            from: self.from,
            to: self.to,
            call,
        };
        let answer = self
            .transport
            .call(self.node, request.encode(), limit)
            .await
            .map_err(|error| match error {
                CallError::NotSent(_) | CallError::Unreachable(_) => unreachable(error),
                // It may have been slow just now.
                CallError::TimedOut => NetworkError::from_string(error).into(),
            })?;
        match Response::decode(&answer).map_err(unreachable)? {
            Response::Refused(why) => Err(unreachable(why)),
            response => Ok(response),
        }
    }

    async fn ask_for_vote(
        &self,
        rpc: VoteRequest<Types>,
        call: impl FnOnce(Candidacy) -> Call,
        limit: Duration,
    ) -> Rpc<VoteResponse<Types>> {
        let candidacy = Candidacy {
            vote: vote(&rpc.vote),
            last: rpc.last_log_id.as_ref().map(log_id),
            transfer: rpc.leadership_transfer,
        };
        match self.call(call(candidacy), limit).await? {
            Response::Voted {
                vote,
                granted,
                last,
                now,
            } => {
                // Before it can be elected.
                (self.config.hear_time)(now.max(self.time.by_now()));
                Ok(VoteResponse::new(
                    raft_vote(vote),
                    last.map(raft_log_id),
                    granted,
                ))
            }
            other => Err(unexpected(other)),
        }
    }
}

/// How much longer a message may take for what it carries: to give up on a long one and send it again would never end.
fn carrying(entries: &[RaftEntry]) -> Duration {
    let bytes: u64 = entries.iter().map(size).sum();
    Duration::from_millis(bytes * 1000 / SLOWEST)
}

fn unreachable(why: impl ToString) -> RPCError<Types> {
    Unreachable::from_string(why).into()
}

pub(crate) fn unexpected(response: Response) -> RPCError<Types> {
    unreachable(format!("an answer to another question: {response:?}"))
}

impl RaftNetworkV2<Types> for Peer {
    type SnapshotData = SnapshotData;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Rpc<AppendEntriesResponse<Types>> {
        // What is to be written to a slow disk may take longer than to say that one is there.
        let limit = match rpc.entries.is_empty() {
            true => option.soft_ttl(),
            false => self.config.election_timeout + carrying(&rpc.entries),
        };
        if let Some(committed) = &rpc.leader_commit {
            // openraft tells its log store of it later, perhaps: no follower is to know more than its leader.
            self.places.note_committed(committed.index);
        }
        let call = Call::append(
            vote(&rpc.vote),
            rpc.prev_log_id.as_ref().map(log_id),
            rpc.leader_commit.as_ref().map(log_id),
            (self.config.wall_clock)(),
            rpc.entries,
        );
        match self.call(call, limit).await? {
            Response::Appended(appended) => Ok(match appended {
                Appended::All => AppendEntriesResponse::Success,
                Appended::UpTo(id) => AppendEntriesResponse::PartialSuccess(id.map(raft_log_id)),
                Appended::Conflict => AppendEntriesResponse::Conflict,
                Appended::Higher(vote) => AppendEntriesResponse::HigherVote(raft_vote(vote)),
            }),
            other => Err(unexpected(other)),
        }
    }

    fn stream_append<'s, S>(
        &'s mut self,
        requests: S,
        option: RPCOption,
    ) -> BoxFuture<'s, Rpc<BoxStream<'s, Rpc<StreamAppendResult<Types>>>>>
    where
        S: Stream<Item = AppendEntriesRequest<Types>> + OptionalSend + Unpin + 'static,
    {
        let requests = Notices::new(requests, self.lease.clone());
        stream_append_sequential(self, requests, option)
    }

    async fn vote(&mut self, rpc: VoteRequest<Types>, _: RPCOption) -> Rpc<VoteResponse<Types>> {
        let limit = self.config.election_timeout;
        self.ask_for_vote(rpc, Call::Vote, limit).await
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<Types>,
        _: RPCOption,
    ) -> Rpc<VoteResponse<Types>> {
        let limit = self.config.election_timeout;
        self.ask_for_vote(rpc, Call::PreVote, limit).await
    }

    async fn full_snapshot(
        &mut self,
        vote: RaftVote,
        snapshot: SnapshotOf<Types, SnapshotData>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        snapshot::send(self, vote, snapshot, cancel).await
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<Types>,
        _: RPCOption,
    ) -> Rpc<TransferLeaderResponse<Types>> {
        let call = Call::Transfer {
            vote: vote(request.from_leader()),
            to: *request.to_node_id(),
            last: request.last_log_id().map(log_id),
            now: (self.config.wall_clock)(),
        };
        match self.call(call, self.config.election_timeout).await? {
            Response::Done => Ok(Ok(())),
            other => Err(unexpected(other)),
        }
    }
}
