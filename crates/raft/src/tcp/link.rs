//! The connection on which this node asks another, and those who wait for answers.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, BufReader, split};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{sleep, timeout};

use super::connection::{Incoming, send_all};
use super::frame::{Kind, Message, PART};
use super::handshake::{Introduction, call, is_outdated, refused, take_verdict};
use super::processes::{Presence, Processes};
use super::{Company, Stream};
use crate::transport::CallError;

/// How long it may take to reach a node.
const CONNECTING: Duration = Duration::from_secs(2);
/// A node that owes answers, and says nothing for so long, is gone.
const SILENCE: Duration = Duration::from_secs(5);
/// The id of requests whose answers nobody waits for.
const PROBE: u64 = u64::MAX;
/// What may wait to be sent.
const QUEUED_MESSAGES: usize = 4096;
const QUEUED_BYTES: usize = 64 * 1024 * 1024;
/// Messages below this length are not counted by their bytes.
const SHORT: usize = 4096;

pub(super) struct Link {
    queue: mpsc::Sender<Message>,
    room: Arc<Semaphore>,
    waiting: Arc<Waiting>,
    next: AtomicU64,
    /// Something may have been sent since then.
    connected_at: Arc<OnceLock<SystemTime>>,
}

#[derive(Default)]
struct Waiting(Mutex<BTreeMap<u64, Waiter>>);

struct Waiter {
    told: oneshot::Sender<Bytes>,
    /// Kept until the answer is there.
    _room: Option<OwnedSemaphorePermit>,
}

/// Whoever gives up is no longer waited for.
struct Place {
    waiting: Arc<Waiting>,
    id: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.waiting.0.lock().remove(&self.id);
    }
}

impl Link {
    /// Begins to connect. Requests may be queued at once.
    pub(super) fn open(
        introduction: Introduction,
        company: Company,
        node: u64,
        address: String,
    ) -> Arc<Link> {
        let (queue, messages) = mpsc::channel(QUEUED_MESSAGES);
        let link = Arc::new(Link {
            queue,
            room: Arc::new(Semaphore::new(QUEUED_BYTES)),
            waiting: Arc::default(),
            next: AtomicU64::new(0),
            connected_at: Arc::default(),
        });
        let (waiting, queue) = (link.waiting.clone(), link.queue.downgrade());
        let connected_at = link.connected_at.clone();
        tokio::spawn(async move {
            let connecting = connect(&introduction, &company.processes, node, &address);
            let connected = timeout(CONNECTING, connecting).await;
            let ended = match connected.unwrap_or_else(|error| Err(error.into())) {
                Ok((stream, presence)) => {
                    connected_at.set(SystemTime::now()).ok();
                    run(stream, messages, queue, &waiting, &presence).await
                }
                Err(error) => {
                    drop(messages);
                    Err(error)
                }
            };
            match ended {
                Err(error) if super::is_refusal(&error) => {
                    let complaint = format!("node {node} at {address} is not talked to: {error}");
                    company.complaints.tell(complaint);
                    if is_outdated(&error)
                        && let Some(end) = company.outdated.get()
                    {
                        end(&error.to_string());
                    }
                }
                Err(error) => tracing::debug!("node {node} at {address}: {error}"),
                Ok(()) => {}
            }
            // Nobody will answer them.
            waiting.0.lock().clear();
        });
        link
    }

    pub(super) fn connected_at(&self) -> Option<&SystemTime> {
        self.connected_at.get()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }

    pub(super) async fn call(&self, request: Bytes, limit: Duration) -> Result<Bytes, CallError> {
        timeout(limit, self.ask(request))
            .await
            .unwrap_or(Err(CallError::TimedOut))
    }

    async fn ask(&self, request: Bytes) -> Result<Bytes, CallError> {
        let not_sent = || CallError::NotSent("there is no connection".to_string());
        // What is short takes no room, so that no heartbeat waits for it; and nothing takes so much that it has to wait for
        // everything else.
        let room = match request.len() {
            ..SHORT => None,
            bytes => {
                let bytes = bytes.min(QUEUED_BYTES / 4) as u32;
                let room = self.room.clone().acquire_many_owned(bytes).await;
                Some(room.map_err(|_| not_sent())?)
            }
        };
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (told, answer) = oneshot::channel();
        let waiter = Waiter { told, _room: room };
        self.waiting.0.lock().insert(id, waiter);
        let _place = Place {
            waiting: self.waiting.clone(),
            id,
        };
        let message = Message {
            kind: Kind::Request,
            id,
            bytes: request,
        };
        self.queue.send(message).await.map_err(|_| not_sent())?;
        answer.await.map_err(|_| match self.connected_at() {
            Some(_) => CallError::Unreachable("the connection was lost".to_string()),
            None => not_sent(),
        })
    }
}

async fn run(
    stream: Box<dyn Stream>,
    messages: mpsc::Receiver<Message>,
    queue: mpsc::WeakSender<Message>,
    waiting: &Waiting,
    presence: &Presence,
) -> io::Result<()> {
    let (reader, writer) = split(stream);
    let heard = presence.heard();
    let incoming = Incoming::new(BufReader::with_capacity(PART, reader), heard.clone());
    tokio::select! {
        biased;
        sent = send_all(writer, messages) => sent,
        received = receive(incoming, waiting) => received,
        gone = probe(queue, &heard, waiting) => gone,
        over = presence.over() => Err(over),
    }
}

pub(super) async fn connect(
    introduction: &Introduction,
    processes: &Arc<Processes>,
    node: u64,
    address: &str,
) -> io::Result<(Box<dyn Stream>, Presence)> {
    let identity = &introduction.identity;
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    super::may_talk(identity, stream.peer_addr()?)?;
    let mut stream: Box<dyn Stream> = match &identity.tls {
        Some(tls) => Box::new(tls.call(stream).await?),
        None => Box::new(stream),
    };
    let (other, _version) = call(&mut stream, introduction, node).await?;
    take_verdict(&mut stream).await?;
    let met = processes.meet(&mut stream, node, other.run).await;
    let presence = met.map_err(|error| match is_outdated(&error) {
        // It is the other one, not this.
        true => refused(&error.to_string()),
        false => error,
    })?;
    Ok((stream, presence))
}

async fn receive<S: AsyncRead + Unpin>(
    mut incoming: Incoming<S>,
    waiting: &Waiting,
) -> io::Result<()> {
    loop {
        let message = incoming.next().await?;
        let waiter = waiting.0.lock().remove(&message.id);
        if let Some(waiter) = waiter {
            waiter.told.send(message.bytes).ok();
        }
    }
}

/// While somebody waits, makes sure that the other side is there: it answers an empty request at once, however busy.
async fn probe(
    queue: mpsc::WeakSender<Message>,
    heard: &AtomicU64,
    waiting: &Waiting,
) -> io::Result<()> {
    loop {
        sleep(SILENCE / 2).await;
        if waiting.0.lock().is_empty() {
            continue;
        }
        let before = heard.load(Ordering::Relaxed);
        let Some(queue) = queue.upgrade() else {
            return Ok(());
        };
        let empty = Message {
            kind: Kind::Request,
            id: PROBE,
            bytes: Bytes::new(),
        };
        // If there is no room for it, enough is on its way.
        queue.try_send(empty).ok();
        drop(queue);
        sleep(SILENCE).await;
        if heard.load(Ordering::Relaxed) == before {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "it says nothing"));
        }
    }
}
