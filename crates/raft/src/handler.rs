//! What other nodes ask of this one's replicas.

use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::RaftError;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, TransferLeaderRequest, VoteRequest, VoteResponse,
};
use tokio::sync::oneshot;

use crate::consensus::{Types, log_id, raft_log_id, raft_vote, vote};
use crate::group::{Group, Role};
use crate::machine::Machine;
use crate::message::{Appended, Call, Candidacy, Request, Response};
use crate::node::Node;
use crate::read::Confirmed;
use crate::runtime::{spawn, within};

impl Node {
    pub(crate) async fn answer(&self, request: Bytes) -> Bytes {
        let response = match Request::decode(&request) {
            Err(error) => Response::Refused(error.to_string()),
            Ok(request) => match self.group(request.region) {
                // It may have been, or come to be.
                Some(group) if group.replica == request.to => {
                    group.answer(request.call, self.machine()).await
                }
                _ => Response::Refused(format!(
                    "no replica {} of region {}",
                    request.to, request.region
                )),
            },
        };
        response.encode()
    }
}

impl Group {
    async fn answer(self: &Arc<Self>, call: Call, machine: &Arc<dyn Machine>) -> Response {
        match call {
            Call::Append {
                vote,
                prev,
                committed,
                now,
                entries,
            } => {
                let request = AppendEntriesRequest {
                    vote: raft_vote(vote),
                    prev_log_id: prev.map(raft_log_id),
                    entries,
                    leader_commit: committed.map(raft_log_id),
                };
                let is_heartbeat = request.entries.is_empty();
                let answer = match is_heartbeat {
                    true => self.acknowledge(request).await,
                    false => self.raft.append_entries(request).await.map(appended),
                };
                match answer {
                    Ok(response) => {
                        // If another leads by now, it is over what that one was told.
                        if !matches!(response, Appended::Higher(_)) {
                            self.time.hear(vote.term, now);
                        }
                        Response::Appended(response)
                    }
                    Err(error) => Response::Refused(error.to_string()),
                }
            }
            Call::Vote(_) | Call::PreVote(_) if !self.votes() => {
                Response::Refused("it has just come back".to_string())
            }
            Call::Vote(candidacy) => {
                let leads = matches!(self.role(), Role::Leader { .. });
                let answer = self.raft.vote(candidate(candidacy)).await;
                let own = if leads { (self.config.wall_clock)() } else { 0 };
                voted(answer, own.max(self.time.by_now()))
            }
            Call::PreVote(candidacy) => voted(self.raft.pre_vote(candidate(candidacy)).await, 0),
            Call::Transfer {
                vote,
                to,
                last,
                now,
            } => {
                (self.config.hear_time)(now);
                let last = last.map(raft_log_id);
                let request = TransferLeaderRequest::new(raft_vote(vote), to, last);
                match self.raft.handle_transfer_leader(request).await {
                    Ok(Ok(())) => Response::Done,
                    Ok(Err(error)) => Response::Refused(error.to_string()),
                    Err(error) => Response::Refused(error.to_string()),
                }
            }
            Call::Begin {
                vote: leader,
                transfer,
                applied,
            } => {
                let own = self.raft.metrics().borrow_watched().vote;
                if own > raft_vote(leader) {
                    return Response::Installed(vote(&own));
                }
                if self.config.is_short_of_disk() {
                    return no_room();
                }
                self.incoming
                    .begin(machine, self.region, transfer, leader, applied)
                    .await
            }
            Call::Piece {
                transfer,
                number,
                bytes,
            } => match self.config.is_short_of_disk() {
                true => {
                    self.incoming.stop(transfer).await;
                    no_room()
                }
                false => self.incoming.piece(transfer, number, bytes).await,
            },
            Call::End { transfer, pieces } => {
                // Whoever asked may be gone before it is installed, and with it this task. The next one must wait for
                // that, and not clear its place away.
                let (told, answer) = oneshot::channel();
                let group = self.clone();
                spawn(async move {
                    let response = group.incoming.end(&group.raft, transfer, pieces).await;
                    told.send(response).ok();
                });
                let lost = || Response::Refused("it is about to end".to_string());
                answer.await.unwrap_or_else(|_| lost())
            }
            Call::Read => match self.confirm_for_follower().await {
                Ok(Confirmed { id, now }) => Response::Read { id, now },
                Err(error) => Response::Refused(error.to_string()),
            },
        }
    }
}

impl Group {
    /// Answers a leader that only shows that it is there. openraft does so when all that came before is on the disk, which takes
    /// as long as that does: what has to be written may be long, and the disk slow. But what the leader asks for is a
    /// promise, and that is given as soon as the message has been taken in.
    async fn acknowledge(
        &self,
        heartbeat: AppendEntriesRequest<Types>,
    ) -> Result<Appended, RaftError<Types>> {
        let leader = heartbeat.vote;
        let mut answer = pin!(self.raft.append_entries(heartbeat));
        if let Some(answer) = within(self.config.heartbeat / 8, &mut answer).await {
            return answer.map(appended);
        }
        // Messages to the core come in their order: when this one has its answer, that one was taken in.
        let vote = self.raft.with_raft_state(|state| *state.vote_ref()).await;
        match vote.map_err(RaftError::Fatal)? == leader {
            true => Ok(Appended::All),
            false => answer.await.map(appended),
        }
    }
}

/// A snapshot would take what is left for the log, and without that the node cannot go on.
fn no_room() -> Response {
    Response::Refused("its disk is almost full".to_string())
}

fn appended(response: AppendEntriesResponse<Types>) -> Appended {
    match response {
        AppendEntriesResponse::Success => Appended::All,
        AppendEntriesResponse::PartialSuccess(id) => Appended::UpTo(id.as_ref().map(log_id)),
        AppendEntriesResponse::Conflict => Appended::Conflict,
        AppendEntriesResponse::HigherVote(higher) => Appended::Higher(vote(&higher)),
    }
}

fn candidate(candidacy: Candidacy) -> VoteRequest<Types> {
    VoteRequest {
        vote: raft_vote(candidacy.vote),
        last_log_id: candidacy.last.map(raft_log_id),
        leadership_transfer: candidacy.transfer,
    }
}

fn voted<E: ToString>(result: Result<VoteResponse<Types>, E>, now: u64) -> Response {
    match result {
        Ok(response) => Response::Voted {
            vote: vote(&response.vote),
            granted: response.vote_granted,
            last: response.last_log_id.as_ref().map(log_id),
            now,
        },
        Err(error) => Response::Refused(error.to_string()),
    }
}
