//! Nodes over TCP: one connection in each direction, which all regions share.

mod complaints;
mod connection;
mod frame;
mod handshake;
mod link;
mod processes;
mod server;
mod tls;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;

use self::complaints::Complaints;
pub use self::handshake::{Caller, Identity};
use self::handshake::{Introduction, NEWEST};
use self::link::Link;
use self::processes::Processes;
pub use self::processes::Run;
pub use self::tls::Tls;
use crate::log::Log;
use crate::runtime::Later;
use crate::transport::{CallError, Service, Transport};

/// A node that could not be reached is not tried again before. All regions ask for it.
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(100);

pub struct Tcp {
    identity: RwLock<Identity>,
    newest: u16,
    /// How new what is known of the cluster is.
    knows: AtomicU64,
    company: Company,
    peers: Mutex<BTreeMap<u64, Peer>>,
    traffic: Arc<Traffic>,
}

/// How many messages went to other nodes and came from them, requests and answers alike.
#[derive(Default)]
pub struct Traffic {
    pub sent: AtomicU64,
    pub received: AtomicU64,
}

/// The nodes that there are, as connections tell.
#[derive(Clone, Default)]
struct Company {
    processes: Arc<Processes>,
    complaints: Arc<Complaints>,
    /// Called when others say that this process must not be the node.
    outdated: Arc<OnceLock<Outdated>>,
}

type Outdated = Box<dyn Fn(&str) + Send + Sync>;

struct Peer {
    address: String,
    link: Option<Arc<Link>>,
    tried: Option<Instant>,
}

impl Tcp {
    /// Which processes it meets is forgotten when it ends.
    pub fn new(identity: Identity) -> Arc<Tcp> {
        Tcp::in_company(identity, NEWEST, Company::default())
    }

    /// A node of the next version, which speaks this one, too: for tests of what the two make of each other.
    #[doc(hidden)]
    pub fn of_next_version(identity: Identity) -> Arc<Tcp> {
        Tcp::in_company(identity, NEWEST + 1, Company::default())
    }

    /// The same for a node that remembers them in its log: so they are told from old copies also after it was started anew.
    pub fn remembering(identity: Identity, log: Log) -> Arc<Tcp> {
        let company = Company {
            processes: Arc::new(Processes::remembered_in(log)),
            ..Company::default()
        };
        Tcp::in_company(identity, NEWEST, company)
    }

    fn in_company(identity: Identity, newest: u16, company: Company) -> Arc<Tcp> {
        Arc::new(Tcp {
            identity: RwLock::new(identity),
            newest,
            knows: AtomicU64::new(0),
            company,
            peers: Mutex::default(),
            traffic: Arc::default(),
        })
    }

    /// Says what to do when another node finds that this process has an old copy of the node's directory: it has forgotten what it
    /// promised, and must end.
    pub fn when_outdated(&self, end: impl Fn(&str) + Send + Sync + 'static) {
        self.company.outdated.set(Box::new(end)).ok();
    }

    /// Shows another certificate from now on. Connections that there are go on.
    pub fn renew(&self, tls: Tls) {
        self.identity.write().tls = Some(tls);
    }

    /// Says how new what this node knows of the cluster is, which others are told.
    pub fn know(&self, knows: u64) {
        self.knows.store(knows, Ordering::Relaxed);
    }

    fn introduction(&self) -> Introduction {
        Introduction {
            identity: self.identity.read().clone(),
            newest: self.newest,
            knows: self.knows.load(Ordering::Relaxed),
        }
    }

    /// Says where a node is. If that has changed, what was asked at the old address is still answered there, and the
    /// connection goes then.
    pub fn set_address(&self, node: u64, address: String) {
        let mut peers = self.peers.lock();
        let known = peers.get(&node);
        if known.is_none_or(|known| known.address != address) {
            let peer = Peer {
                address,
                link: None,
                tried: None,
            };
            peers.insert(node, peer);
        }
    }

    /// The node is no longer one of the cluster: it is not called any more.
    pub fn forget(&self, node: u64) {
        self.peers.lock().remove(&node);
    }

    /// Serves other nodes until it is given up. Without a secret or TLS only those of this machine are talked to.
    pub async fn serve(&self, listener: TcpListener, service: Arc<dyn Service>) -> io::Result<()> {
        let service = Arc::new(Counting {
            service,
            traffic: self.traffic.clone(),
        });
        server::serve(
            listener,
            || self.introduction(),
            self.company.clone(),
            service,
        )
        .await
    }

    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// The nodes to which there is a connection, and since when.
    pub fn connected(&self) -> Vec<(u64, SystemTime)> {
        let peers = self.peers.lock();
        let links = peers.iter().filter_map(|(node, peer)| {
            let link = peer.link.as_ref().filter(|link| !link.is_closed())?;
            Some((*node, *link.connected_at()?))
        });
        links.collect()
    }

    fn link(&self, node: u64) -> Result<Arc<Link>, CallError> {
        let unreachable = |why: &str| CallError::NotSent(why.to_string());
        let mut peers = self.peers.lock();
        let peer = peers
            .get_mut(&node)
            .ok_or_else(|| unreachable("its address is not known"))?;
        if let Some(link) = peer.link.as_ref().filter(|link| !link.is_closed()) {
            return Ok(link.clone());
        }
        if peer
            .tried
            .is_some_and(|tried| tried.elapsed() < BETWEEN_ATTEMPTS)
        {
            return Err(unreachable("it could not be reached just now"));
        }
        let address = peer.address.clone();
        let link = Link::open(self.introduction(), self.company.clone(), node, address);
        peer.tried = Some(Instant::now());
        peer.link = Some(link.clone());
        Ok(link)
    }
}

impl Transport for Tcp {
    fn call(
        &self,
        node: u64,
        request: Bytes,
        limit: Duration,
    ) -> Later<'static, Result<Bytes, CallError>> {
        let link = self.link(node);
        let traffic = self.traffic.clone();
        Box::pin(async move {
            let link = link?;
            traffic.sent.fetch_add(1, Ordering::Relaxed);
            let answer = link.call(request, limit).await?;
            traffic.received.fetch_add(1, Ordering::Relaxed);
            Ok(answer)
        })
    }
}

/// Counts what others ask, and what they are answered.
struct Counting {
    service: Arc<dyn Service>,
    traffic: Arc<Traffic>,
}

impl Service for Counting {
    fn admits(&self, caller: &Caller) -> Result<(), String> {
        self.service.admits(caller)
    }

    fn serve(&self, from: u64, request: Bytes) -> Later<'static, Bytes> {
        self.traffic.received.fetch_add(1, Ordering::Relaxed);
        let (answer, traffic) = (self.service.serve(from, request), self.traffic.clone());
        Box::pin(async move {
            let answer = answer.await;
            traffic.sent.fetch_add(1, Ordering::Relaxed);
            answer
        })
    }
}

/// If nodes have nothing to show, anybody could join, so nobody from outside is listened to.
fn may_talk(identity: &Identity, address: SocketAddr) -> io::Result<()> {
    let shows_nothing = identity.secret.is_empty() && identity.tls.is_none();
    match shows_nothing && !address.ip().is_loopback() {
        true => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "nodes on other machines need a shared secret or TLS",
        )),
        false => Ok(()),
    }
}

/// Whether a connection ended because the two must not talk, or cannot understand each other. That lasts until somebody does
/// something about it.
fn is_refusal(error: &io::Error) -> bool {
    // The latter is what TLS makes of bytes that are none.
    let kinds = [io::ErrorKind::PermissionDenied, io::ErrorKind::InvalidData];
    kinds.contains(&error.kind())
}

/// A connection that is ready for the handshake: encrypted, if nodes are to talk so.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

#[cfg(test)]
mod tests;
