//! The connections on which other nodes ask this one.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{BufReader, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::connection::{Incoming, send_all};
use super::frame::{Kind, Message, PART};
use super::handshake::{Introduction, answer, refused, tell_verdict};
use super::processes::{Presence, Processes};
use super::{Company, Stream};
use crate::transport::Service;

/// How long a caller may take to say who it is.
const INTRODUCTION: Duration = Duration::from_secs(2);
/// How many may be about to say it.
const STRANGERS: usize = 64;
/// How many requests of a node are served at once; others wait in the network.
const AT_ONCE: usize = 4096;

/// Serves whoever calls, until it is given up. Then all connections are closed, and nobody holds the service any more.
pub(super) async fn serve(
    listener: TcpListener,
    introduction: impl Fn() -> Introduction,
    company: Company,
    service: Arc<dyn Service>,
) -> io::Result<()> {
    super::may_talk(&introduction().identity, listener.local_addr()?)?;
    let strangers = Arc::new(Semaphore::new(STRANGERS));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(stranger) = strangers.clone().acquire_owned().await else {
            return Ok(());
        };
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, most likely: it passes.
                tracing::warn!("a node's call cannot be taken: {error}");
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (introduction, service) = (introduction(), service.clone());
        let company = company.clone();
        connections.spawn(async move {
            let introducing = introduce(stream, &introduction, &company.processes, &*service);
            let known = timeout(INTRODUCTION, introducing).await;
            drop(stranger);
            let ended = match known {
                Ok(Ok((node, stream, presence))) => {
                    answer_all(stream, node, &presence, service).await
                }
                Ok(Err(error)) => Err(error),
                Err(error) => Err(error.into()),
            };
            match ended {
                Err(error) if super::is_refusal(&error) => {
                    let ip = address.ip();
                    let complaint = format!("a caller from {ip} is not talked to: {error}");
                    company.complaints.tell(complaint);
                }
                Err(error) => tracing::debug!("{address}: {error}"),
                Ok(()) => {}
            }
        });
    }
}

/// Finds out which node calls, and tells it whether it is welcome.
async fn introduce(
    stream: TcpStream,
    introduction: &Introduction,
    processes: &Arc<Processes>,
    service: &dyn Service,
) -> io::Result<(u64, Box<dyn Stream>, Presence)> {
    stream.set_nodelay(true)?;
    let mut stream: Box<dyn Stream> = match &introduction.identity.tls {
        Some(tls) => Box::new(tls.answer(stream).await?),
        None => Box::new(stream),
    };
    let (caller, _version) = answer(&mut stream, introduction).await?;
    let node = caller.node;
    let met = match service.admits(&caller) {
        Ok(()) => processes.meet(&mut stream, node, caller.run).await,
        Err(why) => Err(refused(&why)),
    };
    tell_verdict(&mut stream, met.as_ref().err()).await?;
    let presence = met.map_err(|error| match super::is_refusal(&error) {
        true => refused(&format!("node {node}: {error}")),
        false => error,
    })?;
    Ok((node, stream, presence))
}

async fn answer_all(
    stream: Box<dyn Stream>,
    node: u64,
    presence: &Presence,
    service: Arc<dyn Service>,
) -> io::Result<()> {
    let (reader, writer) = split(stream);
    let (queue, messages) = mpsc::channel(AT_ONCE);
    let answering = async {
        let reader = BufReader::with_capacity(PART, reader);
        let mut incoming = Incoming::new(reader, presence.heard());
        let at_once = Arc::new(Semaphore::new(AT_ONCE));
        let mut serving = JoinSet::new();
        loop {
            while serving.try_join_next().is_some() {}
            let request = incoming.next().await?;
            if request.bytes.is_empty() {
                // It only wants to know whether somebody is here.
                let message = Message {
                    kind: Kind::Response,
                    ..request
                };
                queue.try_send(message).ok();
                continue;
            }
            let Ok(permit) = at_once.clone().acquire_owned().await else {
                return Ok(());
            };
            let (queue, service) = (queue.clone(), service.clone());
            serving.spawn(async move {
                let bytes = service.serve(node, request.bytes).await;
                let message = Message {
                    kind: Kind::Response,
                    id: request.id,
                    bytes,
                };
                // Whoever asked may be gone.
                queue.send(message).await.ok();
                drop(permit);
            });
        }
    };
    tokio::select! {
        biased;
        sent = send_all(writer, messages) => sent,
        answered = answering => answered,
        over = presence.over() => Err(over),
    }
}
