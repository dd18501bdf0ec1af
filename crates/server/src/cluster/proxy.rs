//! Commands for slots that another node leads, asked there for a client that knows nothing of clusters: `cluster-proxy`.
//!
//! Whoever leads the slot runs them as those of a guest (`guest`), and hands the replies back. Where it is not certain that
//! they were not run, they are not sent again unless they only read: the client is told INDOUBT.
//!
//! A client that waits for a key is asked for again and again, since another node may lead that key meanwhile. If the client
//! goes, its guest is called back, so that nothing is popped for nobody.
//!
//! ```text
//!   guest   visit u64 | protocol u8 | patience u32, ms | length u16 | user | requests, as clients send them
//! ```

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cairn_cluster::MAP_REGION;
use cairn_encoding::DecodeError;
use cairn_encoding::reader::Reader;
use cairn_engine::EngineError;
use cairn_raft::CallError;
use cairn_resp::Protocol;
use cairn_store::Error;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::sleep;

use super::node::ClusterNode;
use super::post::{Answer, Letter};
use crate::guest::{Dismissal, Guest, Visit};
use crate::route::{self, DOWN};
use crate::server::Server;

/// How long a command may take elsewhere. That the other node is gone is found out sooner.
const LIMIT: Duration = Duration::from_secs(3600);
/// How long a client waits for a key before it is asked for again.
pub const SLICE: Duration = Duration::from_secs(1);
/// How many commands may be elsewhere at once, those that wait for a key and others: they share a connection with what Raft
/// says, which serves a few thousand at once.
const AT_ONCE: usize = 1024;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(20);
/// The longest requests that are forwarded: they stand in memory, and what is longer than a message may be would cost the
/// nodes their connection.
pub const MOST_REQUESTS: usize = 128 << 20;

const TOO_LONG: Error = Error::fixed(
    "ERR a reply of more than 128 MB is not handed back: connect to the node that leads the key",
);

pub struct Proxy {
    waiting: Semaphore,
    others: Semaphore,
    next_visit: AtomicU64,
    /// Those of other nodes that wait here, by node and visit: each goes when what is kept of it does.
    guests: Mutex<HashMap<(u64, u64), oneshot::Sender<()>>>,
}

impl Default for Proxy {
    fn default() -> Proxy {
        Proxy {
            waiting: Semaphore::new(AT_ONCE),
            others: Semaphore::new(AT_ONCE),
            next_visit: AtomicU64::new(0),
            guests: Mutex::default(),
        }
    }
}

/// To whom commands are forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Whoever leads this slot.
    Slot(u16),
    /// Whoever leads region 0.
    Map,
}

/// What became of commands that were to be forwarded.
pub enum Forwarded {
    Replied(Vec<u8>),
    /// The guest was called back before it had done anything.
    CameBack,
    /// This node leads the slot by now.
    Here,
    Failed(Error),
}

/// What is done elsewhere for a client. When that does not wait for it any more, the guest is called back.
pub struct Errand {
    node: Arc<ClusterNode>,
    target: Target,
    pub visit: u64,
    is_over: bool,
}

impl Errand {
    pub fn begin(node: &Arc<ClusterNode>, target: Target) -> Errand {
        Errand {
            node: node.clone(),
            target,
            visit: node.proxy.next_visit.fetch_add(1, Ordering::Relaxed),
            is_over: false,
        }
    }

    /// The guest is to come back, unless it has something.
    pub fn call_back(&self) {
        let Some(leader) = self.node.node_of(self.target) else {
            return;
        };
        let (node, letter) = (self.node.clone(), Letter::CallBack(self.visit));
        self.node.spawn(async move {
            // If it is not heard, the guest comes back by itself.
            let _ = node.post().call(leader, &letter, SLICE).await;
        });
    }

    /// The guest has come back.
    pub fn end(mut self) {
        self.is_over = true;
    }
}

impl Drop for Errand {
    fn drop(&mut self) {
        if !self.is_over {
            self.call_back();
        }
    }
}

/// A guest that is listed for as long as this exists.
struct Listed<'p> {
    proxy: &'p Proxy,
    guest: (u64, u64),
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.proxy.guests.lock().remove(&self.guest);
    }
}

impl ClusterNode {
    /// Whether this node is it.
    fn is_target(&self, server: &Server, target: Target) -> bool {
        match target {
            Target::Slot(slot) => route::is_led_here(server, slot),
            Target::Map => server.store.home().is_led(),
        }
    }

    fn node_of(&self, target: Target) -> Option<u64> {
        let leader = match target {
            Target::Slot(slot) => self.leader_of(slot),
            Target::Map => self.observed().leader(self.map().region(MAP_REGION)?),
        };
        leader.filter(|leader| *leader != self.id())
    }

    /// Has a leader run what a guest brings. It may be sent to another leader if it was certainly not run, or
    /// does nothing but read.
    pub async fn forward(
        self: &Arc<Self>,
        server: &Server,
        target: Target,
        guest: Guest,
        only_reads: bool,
    ) -> Forwarded {
        let waits = !guest.patience.is_zero();
        let kind = match waits {
            true => &self.proxy.waiting,
            false => &self.proxy.others,
        };
        // It is never closed.
        let _room = kind.acquire().await;
        let letter = Arc::new(Letter::Forward(guest));
        let until = Instant::now() + self.settings.raft.election_timeout * 2;
        loop {
            if self.is_target(server, target) {
                return Forwarded::Here;
            }
            if let Some(leader) = self.node_of(target) {
                match self.ask(leader, letter.clone()).await {
                    Ok(Answer::Replied(replies)) if !is_undone(&replies) => {
                        return Forwarded::Replied(replies);
                    }
                    Ok(Answer::CameBack) if waits => return Forwarded::CameBack,
                    Ok(Answer::Refused(why)) => {
                        let error = format!("ERR node {leader} refuses what is forwarded: {why}");
                        return Forwarded::Failed(Error::reply(error));
                    }
                    // It would be as long again.
                    Ok(Answer::TooLong) if only_reads => return Forwarded::Failed(TOO_LONG),
                    // Nobody has called back one that does not wait, who is still asked for: an earlier attempt has ended.
                    Ok(Answer::Replied(_) | Answer::NotHere | Answer::CameBack)
                    | Err(CallError::NotSent(_)) => {}
                    Ok(_) | Err(_) if only_reads => {}
                    Ok(_) | Err(_) => return Forwarded::Failed(EngineError::InDoubt.into()),
                }
            }
            if Instant::now() > until {
                return Forwarded::Failed(Error::fixed(DOWN));
            }
            sleep(BETWEEN_ATTEMPTS).await;
        }
    }

    /// Links are kept by the runtime in which they are opened, and that of connections is not the one for them.
    async fn ask(self: &Arc<Self>, other: u64, letter: Arc<Letter>) -> Result<Answer, CallError> {
        let node = self.clone();
        let asked = self
            .runtime
            .spawn(async move { node.post().call(other, &letter, LIMIT).await });
        let gone = |_| CallError::Unreachable("this node is about to end".to_string());
        asked.await.map_err(gone)?
    }

    /// Runs what another node has forwarded.
    pub(super) async fn receive(&self, from: u64, guest: Guest) -> Answer {
        let Some(server) = self.server() else {
            return Answer::NotHere;
        };
        let Some(reception) = server.reception.get() else {
            return Answer::NotHere;
        };
        let user = String::from_utf8_lossy(&guest.user).into_owned();
        let (call_back, called_back) = oneshot::channel();
        let listed = (from, guest.visit);
        self.proxy.guests.lock().insert(listed, call_back);
        let _listed = Listed {
            proxy: &self.proxy,
            guest: listed,
        };
        let (visit, replies) = Visit::of(guest, called_back);
        reception(visit);
        match replies.await {
            Ok(Ok(replies)) => Answer::Replied(replies),
            Ok(Err(Dismissal::Unknown)) => Answer::Refused(format!("it has no user {user}")),
            Ok(Err(Dismissal::CalledBack)) => Answer::CameBack,
            Ok(Err(Dismissal::TooLong)) => Answer::TooLong,
            // Whoever asked must not take it for undone.
            Ok(Err(Dismissal::BrokenOff)) | Err(_) => Answer::Done,
        }
    }

    /// A guest need not wait here any more.
    pub(super) fn dismiss(&self, from: u64, visit: u64) {
        self.proxy.guests.lock().remove(&(from, visit));
    }
}

/// Whether nothing was done, because another node leads, or nobody, or another has begun to. In a transaction this is told
/// after MULTI, and what was queued. What a script answers may look the same, so it is forwarded as a transaction, whose
/// replies stand in an array.
fn is_undone(replies: &[u8]) -> bool {
    let mut rest = replies;
    if let Some(queued) = rest.strip_prefix(b"+OK\r\n") {
        rest = queued;
        while let Some(next) = rest.strip_prefix(b"+QUEUED\r\n") {
            rest = next;
        }
    }
    let undone: [&[u8]; 3] = [b"-MOVED ", b"-CLUSTERDOWN ", b"-TRYAGAIN "];
    undone.iter().any(|word| rest.starts_with(word))
}

/// What a script has answered that was forwarded as a transaction; or why it was not run, or not committed.
pub fn reply_of_script(replies: &[u8]) -> Option<&[u8]> {
    if let Some(reply) = reply_of_exec(replies, 1) {
        return Some(reply.strip_prefix(b"*1\r\n").unwrap_or(reply));
    }
    // It was not queued.
    let refused = replies.strip_prefix(b"+OK\r\n")?;
    let end = refused.windows(2).position(|two| two == b"\r\n")?;
    Some(&refused[..end + 2])
}

/// The last of the replies to a transaction of so many commands: that of EXEC.
pub fn reply_of_exec(replies: &[u8], commands: usize) -> Option<&[u8]> {
    let mut rest = replies.strip_prefix(b"+OK\r\n")?;
    for _ in 0..commands {
        rest = rest.strip_prefix(b"+QUEUED\r\n")?;
    }
    Some(rest)
}

impl Guest {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.visit.to_be_bytes());
        out.push(match self.protocol {
            Protocol::Resp2 => 2,
            Protocol::Resp3 => 3,
        });
        out.extend_from_slice(&(self.patience.as_millis() as u32).to_be_bytes());
        out.extend_from_slice(&(self.user.len() as u16).to_be_bytes());
        out.extend_from_slice(&self.user);
        out.extend_from_slice(&self.requests);
    }

    pub(super) fn decode(mut reader: Reader<'_>) -> Result<Guest, DecodeError> {
        let visit = reader.u64("visit")?;
        let protocol = match reader.u8("protocol")? {
            2 => Protocol::Resp2,
            3 => Protocol::Resp3,
            tag => return Err(DecodeError::UnknownTag { tag }),
        };
        let patience = Duration::from_millis(u64::from(reader.u32("patience")?));
        let length = reader.u16("length")?;
        Ok(Guest {
            visit,
            user: reader.bytes("user", usize::from(length))?.to_vec(),
            protocol,
            patience,
            requests: reader.rest().to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn bytes_between_nodes() {
        let guest = Guest {
            visit: 7,
            user: b"ada".to_vec(),
            protocol: Protocol::Resp3,
            patience: SLICE,
            requests: b"*1\r\n".to_vec(),
        };
        let mut out = Vec::new();
        guest.encode(&mut out);
        let hex: String = out.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "000000000000000703000003e800036164612a310d0a");
        assert_eq!(Guest::decode(Reader::new("guest", &out)).unwrap(), guest);
        assert!(Guest::decode(Reader::new("guest", &out[..8])).is_err());
    }

    #[test]
    fn what_another_leads_is_found_among_the_replies() {
        let told = |replies: &str| is_undone(replies.as_bytes());
        assert!(told("-MOVED 7 host:1\r\n"));
        assert!(told("-TRYAGAIN x\r\n"));
        assert!(told(
            "+OK\r\n+QUEUED\r\n-MOVED 7 host:1\r\n-EXECABORT x\r\n"
        ));
        assert!(told("+OK\r\n+QUEUED\r\n-CLUSTERDOWN x\r\n"));
        assert!(!told("+OK\r\n"));
        assert!(!told("+OK\r\n+QUEUED\r\n*1\r\n-MOVED 7 host:1\r\n"));
        assert!(!told("-INDOUBT x\r\n"));
    }

    #[test]
    fn what_exec_answers_comes_last() {
        let replies = b"+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:1\r\n:2\r\n";
        assert_eq!(reply_of_exec(replies, 2), Some(&b"*2\r\n:1\r\n:2\r\n"[..]));
        let refused = b"+OK\r\n-ERR x\r\n-EXECABORT x\r\n";
        assert_eq!(reply_of_exec(refused, 1), None);
        assert_eq!(reply_of_script(refused), Some(&b"-ERR x\r\n"[..]));
        let own = b"+OK\r\n+QUEUED\r\n*1\r\n-MOVED 1 x\r\n";
        assert!(!is_undone(own));
        assert_eq!(reply_of_script(own), Some(&b"-MOVED 1 x\r\n"[..]));
        let lost = b"+OK\r\n+QUEUED\r\n-INDOUBT x\r\n";
        assert_eq!(reply_of_script(lost), Some(&b"-INDOUBT x\r\n"[..]));
    }
}
