//! Where the server listens, which CONFIG SET may change.
//!
//! The loop that accepts connections owns the sockets. Who wants other addresses asks the loop for them, and
//! waits for the answer.

use std::fmt;
use std::io::{Error, Result as IoResult};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::mpsc;

use crate::config::is_local;

/// How long the loop may take to answer; it is never busy for so long.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many connections may wait to be accepted.
pub const BACKLOG: i32 = 511;

/// Every address that the server listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// As Redis writes them: with blanks between, `*` for all of IPv4 and `::*` for all of IPv6; one with a minus sign
    /// before it need not be there.
    pub bind: String,
    /// Zero: none.
    pub port: u16,
    /// The same, for connections that are encrypted.
    pub tls_port: u16,
}

/// Where a socket listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub at: SocketAddr,
    pub is_tls: bool,
}

/// A socket that the server listens on.
pub struct Bound {
    pub place: Place,
    pub socket: TcpListener,
}

/// Why the server cannot listen.
#[derive(Debug)]
pub struct Unavailable {
    pub reason: String,
    /// Somebody listens there already: perhaps a socket of our own, that goes.
    pub is_taken: bool,
}

impl Address {
    /// Listens on all of them, or on none. Those of `open` that are among them are not opened again.
    pub fn listen(&self, open: &[Place]) -> Result<Vec<Bound>, Unavailable> {
        let mut bound = Vec::new();
        for (word, port, is_tls) in self.words() {
            let (host, may_be_absent) = match word.strip_prefix('-') {
                Some(host) => (host, true),
                None => (word, false),
            };
            let listen = || {
                let at = resolve(host, port)?;
                let place = Place { at, is_tls };
                match open.contains(&place) {
                    true => Ok(None),
                    false => Ok(Some(Bound {
                        place,
                        socket: listen_at(at)?,
                    })),
                }
            };
            match listen() {
                Ok(socket) => bound.extend(socket),
                Err(error) if can_be_done_without(&error, may_be_absent) => {}
                Err(error) => {
                    return Err(Unavailable {
                        reason: format!("cannot listen on {host}:{port}: {error}"),
                        is_taken: error.raw_os_error() == Some(libc::EADDRINUSE),
                    });
                }
            }
        }
        Ok(bound)
    }

    /// The sockets that all this means, as far as that can be told.
    pub fn places(&self) -> Vec<Place> {
        let place = |(word, port, is_tls): (&str, u16, bool)| {
            let host = word.strip_prefix('-').unwrap_or(word);
            let at = resolve(host, port).ok()?;
            Some(Place { at, is_tls })
        };
        self.words().filter_map(place).collect()
    }

    /// Each address with each port, and whether that one is for encrypted connections.
    fn words(&self) -> impl Iterator<Item = (&str, u16, bool)> {
        let ports = [(self.port, false), (self.tls_port, true)];
        let ports = ports.into_iter().filter(|(port, _)| *port != 0);
        ports.flat_map(|(port, is_tls)| {
            let words = (!self.bind.is_empty()).then(|| self.bind.split(' '));
            words
                .into_iter()
                .flatten()
                .map(move |word| (word, port, is_tls))
        })
    }
}

fn resolve(host: &str, port: u16) -> IoResult<SocketAddr> {
    let ip: IpAddr = match host {
        "*" => Ipv4Addr::UNSPECIFIED.into(),
        "::*" => Ipv6Addr::UNSPECIFIED.into(),
        _ => match host.parse() {
            Ok(ip) => ip,
            Err(_) => {
                let mut found = (host, port).to_socket_addrs()?;
                return found.next().ok_or_else(|| Error::other("no such host"));
            }
        },
    };
    Ok(SocketAddr::new(ip, port))
}

fn listen_at(at: SocketAddr) -> IoResult<TcpListener> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM, Some(Protocol::TCP))?;
    if at.is_ipv6() {
        // `* ::*` are two sockets, which must not get in each other's way.
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&at.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Whether the machine lacks the protocol, or an address that may be absent.
fn can_be_done_without(error: &Error, may_be_absent: bool) -> bool {
    match error.raw_os_error() {
        Some(libc::EADDRNOTAVAIL) => may_be_absent,
        Some(code) => [
            libc::ENOPROTOOPT,
            libc::EPROTONOSUPPORT,
            libc::ESOCKTNOSUPPORT,
            libc::EPFNOSUPPORT,
            libc::EAFNOSUPPORT,
        ]
        .contains(&code),
        None => false,
    }
}

/// One end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    Ip(SocketAddr),
    /// The path of a Unix socket.
    Unix(Arc<str>),
}

impl Endpoint {
    /// Whether it is on this machine.
    pub fn is_local(&self) -> bool {
        match self {
            Endpoint::Ip(address) => is_local(address.ip()),
            Endpoint::Unix(_) => true,
        }
    }

    /// As MONITOR shows it.
    pub fn origin(&self) -> String {
        match self {
            Endpoint::Ip(address) => address.to_string(),
            Endpoint::Unix(path) => format!("unix:{path}"),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Ip(address) => address.fmt(f),
            Endpoint::Unix(path) => write!(f, "{path}:0"),
        }
    }
}

/// A wish to listen elsewhere.
pub struct Move {
    to: Address,
    done: std::sync::mpsc::Sender<Result<(), String>>,
    /// Either the loop takes it up, or whoever wished it takes it back.
    is_decided: Arc<AtomicBool>,
}

impl Move {
    /// Fulfils the wish, unless it was taken back.
    pub fn fulfil(self, listen: impl FnOnce(Address) -> Result<(), String>) {
        if !self.is_decided.swap(true, Ordering::SeqCst) {
            // Whoever wished it waits for this.
            let _ = self.done.send(listen(self.to));
        }
    }
}

/// Wishes on their way to the loop.
pub struct Moves {
    wishes: mpsc::UnboundedSender<Move>,
    /// Until the loop takes it.
    receiver: Mutex<Option<mpsc::UnboundedReceiver<Move>>>,
}

impl Default for Moves {
    fn default() -> Self {
        let (wishes, receiver) = mpsc::unbounded_channel();
        Moves {
            wishes,
            receiver: Mutex::new(Some(receiver)),
        }
    }
}

impl Moves {
    pub fn receiver(&self) -> Option<mpsc::UnboundedReceiver<Move>> {
        self.receiver.lock().take()
    }

    /// Listens there from now on, and nowhere else; or as before, if that fails.
    pub fn ask(&self, to: Address) -> Result<(), String> {
        let (done, outcome) = std::sync::mpsc::channel();
        let is_decided = Arc::new(AtomicBool::new(false));
        let asked = self.wishes.send(Move {
            to,
            done,
            is_decided: is_decided.clone(),
        });
        asked.map_err(|_| "the server is stopping".to_owned())?;
        if let Ok(result) = outcome.recv_timeout(PATIENCE) {
            return result;
        }
        if !is_decided.swap(true, Ordering::SeqCst) {
            return Err("nobody accepts connections".into());
        }
        // It was taken up at the last moment.
        outcome
            .recv()
            .unwrap_or_else(|_| Err("the server is stopping".into()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn free_port() -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.local_addr().unwrap().port()
    }

    fn listen(bind: &str, port: u16) -> Result<Vec<SocketAddr>, Unavailable> {
        let bind = bind.to_string();
        let address = Address {
            bind,
            port,
            tls_port: 0,
        };
        let bound = address.listen(&[])?;
        Ok(bound.iter().map(|bound| bound.place.at).collect())
    }

    #[test]
    fn several_addresses_are_listened_on() {
        let port = free_port();
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        assert_eq!(listen("127.0.0.1", port).unwrap(), [local]);
        assert_eq!(listen("127.0.0.1 127.0.0.2", port).unwrap().len(), 2);
        assert_eq!(listen("127.0.0.1 -192.0.2.77", port).unwrap(), [local]);
        assert!(listen("127.0.0.1 192.0.2.77", port).is_err());
        assert!(listen("127.0.0.1  127.0.0.2", port).is_err());
        assert!(listen("999.1.1.1", port).is_err());
        let all = listen("* -::*", port).unwrap();
        assert_eq!(all[0], SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)));
        assert_eq!(listen("", port).unwrap(), []);
        assert_eq!(listen("127.0.0.1", 0).unwrap(), []);
    }

    #[test]
    fn ends_of_connections_are_shown_as_redis_does() {
        let unix = Endpoint::Unix("/run/cairn.sock".into());
        assert_eq!(unix.to_string(), "/run/cairn.sock:0");
        assert_eq!(unix.origin(), "unix:/run/cairn.sock");
        assert!(unix.is_local());
        let remote = Endpoint::Ip("192.0.2.7:1234".parse().unwrap());
        assert_eq!(remote.to_string(), "192.0.2.7:1234");
        assert!(!remote.is_local());
    }
}
