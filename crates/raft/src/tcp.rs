//! Nodes over TCP: one connection in each direction, which all regions share.

mod connection;
mod frame;
mod handshake;
mod link;
mod server;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::net::TcpListener;

pub use self::handshake::Identity;
use self::link::Link;
use crate::runtime::Later;
use crate::transport::{CallError, Service, Transport};

/// A node that could not be reached is not tried again before. All regions ask for it.
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(100);

pub struct Tcp {
    identity: Identity,
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
            identity,
            peers: Mutex::default(),
        })
    }

    /// Says where a node is.
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

    /// Serves other nodes until it is given up. Without a secret only those of this machine are talked to.
    pub async fn serve(&self, listener: TcpListener, service: Arc<dyn Service>) -> io::Result<()> {
        server::serve(listener, self.identity.clone(), service).await
    }

    fn link(&self, node: u64) -> Result<Arc<Link>, CallError> {
        let unreachable = |why: &str| CallError::Unreachable(why.to_string());
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
        let link = Link::open(self.identity.clone(), node, peer.address.clone());
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

/// Without a secret anybody could join, so nobody from outside is listened to.
fn may_talk(identity: &Identity, address: SocketAddr) -> io::Result<()> {
    match identity.secret.is_empty() && !address.ip().is_loopback() {
        true => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "nodes on other machines need a shared secret",
        )),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests;
