//! Commands that another node has forwarded for a client of its own.
//!
//! They run as those of a connection that has no socket: its input is there from the start, and its replies are handed
//! back when all of them have run. So whatever a command needs, a thread of its own, latches, a wait, it finds as any other.

use std::io::{Error as IoError, Result as IoResult};
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use cairn_resp::Protocol;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

use crate::address::Endpoint;
use crate::client::{Ends, Place};
use crate::connection::Connection;
use crate::turn::Worker;

/// The longest replies that are handed back: they stand in memory, here and there.
const MOST_REPLIES: usize = 128 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guest {
    /// By which the node that has sent it can call it back.
    pub visit: u64,
    /// Who the client is there. It is the user of that name here, and may do what that may.
    pub user: Vec<u8>,
    pub protocol: Protocol,
    /// No command waits for longer: the client may be gone.
    pub patience: Duration,
    /// As a client would send them.
    pub requests: Vec<u8>,
}

/// Why commands have no replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dismissal {
    /// Nothing was done.
    Unknown,
    /// Nothing was done, and it has ceased to wait, since it was called back.
    CalledBack,
    /// Some of them may have been.
    BrokenOff,
    /// The same, and the replies are too long to hand back: they would be again.
    TooLong,
}

pub type Replies = Result<Vec<u8>, Dismissal>;

/// A guest on its way to the thread that serves it.
pub struct Visit {
    guest: Guest,
    told: oneshot::Sender<Replies>,
    called_back: oneshot::Receiver<()>,
}

impl Visit {
    /// It is called back when the other end of `called_back` is used, or gone.
    pub fn of(
        guest: Guest,
        called_back: oneshot::Receiver<()>,
    ) -> (Visit, oneshot::Receiver<Replies>) {
        let (told, replies) = oneshot::channel();
        let visit = Visit {
            guest,
            told,
            called_back,
        };
        (visit, replies)
    }
}

/// Serves a guest on this thread.
pub fn enter(worker: &Rc<Worker>, visit: Visit, place: Place) {
    let Visit {
        guest,
        told,
        called_back,
    } = visit;
    let server = &worker.server;
    let Some(user) = server.acl.find(&guest.user) else {
        told.send(Err(Dismissal::Unknown)).ok();
        return;
    };
    let nowhere = Endpoint::Ip(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
    let ends = Ends {
        peer: nowhere.clone(),
        local: nowhere,
        is_encrypted: false,
    };
    let entered = server.clients.enter(place, ends, -1, user);
    let client = entered.client.clone();
    let stream = GuestStream {
        replies: Vec::new(),
        told: Some(told),
        called_back,
        has_ended: false,
        is_too_long: false,
    };
    let connection = Connection::new(stream, worker.clone(), entered).of_guest(guest);
    let task = tokio::task::spawn_local(connection.serve());
    client.set_task(task.abort_handle());
}

/// Gathers replies. Nothing comes from there, since the input is given otherwise, but its end: who waits looks for it.
struct GuestStream {
    replies: Vec<u8>,
    /// Gone once they have been handed back.
    told: Option<oneshot::Sender<Replies>>,
    called_back: oneshot::Receiver<()>,
    /// Whoever waits has been told that it was called back.
    has_ended: bool,
    /// There was more than is handed back.
    is_too_long: bool,
}

impl AsyncRead for GuestStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<IoResult<()>> {
        if !self.has_ended {
            // It may not be polled again once it is ready.
            self.has_ended = Pin::new(&mut self.called_back).poll(context).is_ready();
        }
        match self.has_ended {
            true => Poll::Ready(Ok(())),
            false => Poll::Pending,
        }
    }
}

impl AsyncWrite for GuestStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<IoResult<usize>> {
        if self.replies.len() + bytes.len() > MOST_REPLIES {
            self.is_too_long = true;
            return Poll::Ready(Err(IoError::other(
                "replies that are too long to hand back",
            )));
        }
        self.replies.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<IoResult<()>> {
        Poll::Ready(Ok(()))
    }

    /// All has run.
    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<IoResult<()>> {
        let replies = std::mem::take(&mut self.replies);
        if let Some(told) = self.told.take() {
            // The other node may be gone.
            told.send(Ok(replies)).ok();
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for GuestStream {
    fn drop(&mut self) {
        if let Some(told) = self.told.take() {
            let dismissal = match (self.is_too_long, self.has_ended) {
                (true, _) => Dismissal::TooLong,
                (false, true) => Dismissal::CalledBack,
                (false, false) => Dismissal::BrokenOff,
            };
            told.send(Err(dismissal)).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[test]
    fn replies_that_are_too_long_are_told_from_others_that_broke_off() {
        let dismissed = |longest: usize| {
            let (told, mut replies) = oneshot::channel();
            let (_call_back, called_back) = oneshot::channel();
            let mut stream = GuestStream {
                replies: Vec::new(),
                told: Some(told),
                called_back,
                has_ended: false,
                is_too_long: false,
            };
            let piece = vec![0; MOST_REPLIES / 4];
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            let written = async {
                for _ in 0..longest {
                    stream.write_all(&piece).await?;
                }
                IoResult::Ok(())
            };
            let written = runtime.unwrap().block_on(written);
            drop(stream);
            (written.is_ok(), replies.try_recv().unwrap())
        };
        assert_eq!(dismissed(4), (true, Err(Dismissal::BrokenOff)));
        assert_eq!(dismissed(5), (false, Err(Dismissal::TooLong)));
    }
}
