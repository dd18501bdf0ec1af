//! Where the server listens, which CONFIG SET may change.
//!
//! The loop that accepts connections owns the socket. Who wants another address asks the loop for it, and
//! waits for the answer.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use parking_lot::Mutex;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::mpsc;

/// How long the loop may take to answer; it is never busy for so long.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub bind: String,
    pub port: u16,
}

impl Address {
    pub fn listen(&self) -> Result<TcpListener, String> {
        let Address { bind, port } = self;
        self.try_listen()
            .map_err(|error| format!("cannot listen on {bind}:{port}: {error}"))
    }

    fn try_listen(&self) -> std::io::Result<TcpListener> {
        let ip = self.bind.parse().map_err(|_| {
            std::io::Error::new(std::io::ErrorKind::InvalidInput, "not an IP address")
        })?;
        let address = SocketAddr::new(ip, self.port);
        let socket = Socket::new(
            Domain::for_address(address),
            Type::STREAM,
            Some(Protocol::TCP),
        )?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(511)?;
        Ok(socket.into())
    }
}

/// A wish to listen elsewhere.
pub struct Move {
    pub to: Address,
    pub done: std::sync::mpsc::Sender<Result<(), String>>,
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
        let asked = self.wishes.send(Move { to, done });
        asked.map_err(|_| "the server is stopping".to_owned())?;
        let outcome = outcome.recv_timeout(PATIENCE);
        outcome.unwrap_or_else(|_| Err("nobody accepts connections".into()))
    }
}
