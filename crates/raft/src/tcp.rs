//! Nodes over TCP: one connection in each direction, which all regions share.

mod connection;
mod frame;
mod handshake;
mod link;
mod server;
mod tls;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;

pub use self::handshake::Identity;
use self::link::Link;
pub use self::tls::Tls;
use crate::runtime::Later;
use crate::transport::{CallError, Service, Transport};

/// A node that could not be reached is not tried again before. All regions ask for it.
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(100);

pub struct Tcp {
    identity: RwLock<Identity>,
    peers: Mutex<BTreeMap<u64, Peer>>,
}

struct Peer {
    address: String,
    link: Option<Arc<Link>>,
    tried: Option<Instant>,
}

impl Tcp {
    pub fn new(identity: Identity) -> Arc<Tcp> {
        Arc::new(Tcp {
            identity: RwLock::new(identity),
            peers: Mutex::default(),
        })
    }

    /// Shows another certificate from now on. Connections that there are go on.
    pub fn renew(&self, tls: Tls) {
        self.identity.write().tls = Some(tls);
    }

    fn identity(&self) -> Identity {
        self.identity.read().clone()
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
        server::serve(listener, || self.identity(), service).await
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
        let link = Link::open(self.identity(), node, peer.address.clone());
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
        Box::pin(async move { link?.call(request, limit).await })
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

/// A connection that is ready for the handshake: encrypted, if nodes are to talk so.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

#[cfg(test)]
mod tests;
