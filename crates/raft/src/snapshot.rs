//! A region's state on its way to a replica that is too far behind for the log.
//!
//! It goes piece by piece, each acknowledged before the next is read, so that neither side holds more than one. The
//! receiver knows the transfer by a number. One that does not fit, because either side began anew, is refused,
//! and the sender begins from the beginning with the state of that moment.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cairn_encoding::raft::{Applied, Vote};
use openraft::alias::SnapshotOf;
use openraft::errors::{NetworkError, ReplicationClosed, StreamingError};
use openraft::raft::SnapshotResponse;
use openraft::rt::{AsyncRuntime, Select2};
use openraft::storage::Snapshot;
use openraft::{OptionalSend, Raft};
use tokio::sync::Mutex;

use crate::consensus::{RaftVote, Types, raft_vote, vote};
use crate::machine::{Machine, SnapshotWriter};
use crate::message::{Call, Response};
use crate::network::{Peer, unexpected};
use crate::runtime::{Instant, Runtime, now};
use crate::state_machine::{SnapshotData, StateMachine, snapshot_meta};

/// How slow a network or disk may be, in bytes of a piece that it takes in a millisecond: pieces are short, unless a row is long.
const SLOWEST: u64 = 4096;

type Sent = Result<SnapshotResponse<Types>, StreamingError<Types>>;

pub(crate) async fn send(
    peer: &Peer,
    leader: RaftVote,
    snapshot: SnapshotOf<Types, SnapshotData>,
    cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
) -> Sent {
    let sending = send_all(peer, leader, snapshot.snapshot);
    match Runtime::select2(cancel, sending).await {
        Select2::First(closed) => Err(closed.into()),
        Select2::Second(sent) => sent,
    }
}

async fn send_all(peer: &Peer, leader: RaftVote, data: SnapshotData) -> Sent {
    let SnapshotData::Read {
        applied,
        mut reader,
    } = data
    else {
        return Err(NetworkError::from_string("a snapshot without bytes").into());
    };
    let config = &peer.config;
    let transfer = fastrand::u64(..);
    let begin = Call::Begin {
        vote: vote(&leader),
        transfer,
        applied,
    };
    // Its old state may have to be moved out of the way first.
    let patience = config.install_timeout;
    match peer.call(begin, patience).await? {
        Response::Done => {}
        Response::Installed(vote) => return Ok(SnapshotResponse::new(raft_vote(vote))),
        other => return Err(unexpected(other).into()),
    }
    let mut pieces = 0;
    loop {
        let piece = reader.next().await.map_err(|error| {
            (config.failure)(&format!("a snapshot cannot be read: {error}"));
            NetworkError::from_string(error)
        })?;
        let Some(bytes) = piece else { break };
        let taking = Duration::from_millis(bytes.len() as u64 / SLOWEST);
        let piece = Call::Piece {
            transfer,
            number: pieces,
            bytes,
        };
        match peer
            .call(piece, config.election_timeout * 10 + taking)
            .await?
        {
            Response::Done => pieces += 1,
            other => return Err(unexpected(other).into()),
        }
    }
    match peer.call(Call::End { transfer, pieces }, patience).await? {
        Response::Installed(vote) => Ok(SnapshotResponse::new(raft_vote(vote))),
        other => Err(unexpected(other).into()),
    }
}

/// The transfer that is coming in, if one is.
#[derive(Default)]
pub(crate) struct Incoming(Mutex<Option<Transfer>>);

struct Transfer {
    number: u64,
    leader: Vote,
    applied: Applied,
    writer: Box<dyn SnapshotWriter>,
    pieces: u64,
    touched: Instant,
}

impl Incoming {
    pub(crate) async fn begin(
        &self,
        machine: &Arc<dyn Machine>,
        region: u64,
        number: u64,
        leader: Vote,
        applied: Applied,
    ) -> Response {
        let mut incoming = self.0.lock().await;
        // The one before has to let go of its place.
        *incoming = None;
        match machine.receive(region).await {
            Ok(writer) => {
                *incoming = Some(Transfer {
                    number,
                    leader,
                    applied,
                    writer,
                    pieces: 0,
                    touched: now(),
                });
                Response::Done
            }
            Err(error) => Response::Refused(format!("no place for a snapshot: {error}")),
        }
    }

    pub(crate) async fn piece(&self, transfer: u64, number: u64, bytes: Bytes) -> Response {
        let mut incoming = self.0.lock().await;
        let Some(current) = incoming.as_mut() else {
            return unknown();
        };
        if current.number != transfer || current.pieces != number {
            return unknown();
        }
        current.touched = now();
        match current.writer.write(bytes).await {
            Ok(()) => {
                current.pieces += 1;
                Response::Done
            }
            Err(error) => {
                *incoming = None;
                Response::Refused(format!("a piece of a snapshot cannot be kept: {error}"))
            }
        }
    }

    pub(crate) async fn end(
        &self,
        raft: &Raft<Types, StateMachine>,
        transfer: u64,
        pieces: u64,
    ) -> Response {
        // Held until it is installed: a new transfer would clear its place away.
        let mut incoming = self.0.lock().await;
        let complete =
            incoming.take_if(|current| current.number == transfer && current.pieces == pieces);
        let Some(current) = complete else {
            return unknown();
        };
        let meta = match snapshot_meta(&current.applied) {
            Ok(meta) => meta,
            Err(error) => return Response::Refused(error.to_string()),
        };
        let snapshot = Snapshot {
            meta,
            snapshot: SnapshotData::Received {
                applied: current.applied,
                writer: current.writer,
            },
        };
        match raft
            .install_full_snapshot(raft_vote(current.leader), snapshot)
            .await
        {
            Ok(response) => Response::Installed(vote(&response.vote)),
            Err(error) => Response::Refused(error.to_string()),
        }
    }

    /// Gives up what has come of a transfer.
    pub(crate) async fn stop(&self, transfer: u64) {
        let mut incoming = self.0.lock().await;
        incoming.take_if(|current| current.number == transfer);
    }

    /// Forgets a transfer of which nothing was heard for long.
    pub(crate) fn forget(&self, patience: Duration) {
        // Who holds it is at work with it.
        if let Ok(mut incoming) = self.0.try_lock() {
            incoming.take_if(|current| now() - current.touched > patience);
        }
    }
}

fn unknown() -> Response {
    Response::Refused("another transfer".to_string())
}
