//! The sockets that connections come in by.

use std::io::Result as IoResult;
use std::net::SocketAddr;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::PathBuf;
use std::task::{Context, Poll};

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::address::{Address, Bound, Place};
use crate::config::Settings;
use crate::unix_socket::{self, SocketFile};

/// A connection that has come in.
pub enum Arrival {
    Tcp(TcpStream, SocketAddr),
    /// To be encrypted.
    Tls(TcpStream),
    Unix(UnixStream),
}

/// Sockets that are open, before there is a loop to accept from them.
pub struct Opened {
    address: Address,
    bound: Vec<Bound>,
    unix: Option<(StdUnixListener, SocketFile, PathBuf)>,
}

impl Opened {
    /// Opens what the settings ask for.
    pub fn open(settings: &Settings) -> Result<Opened, String> {
        let address = settings.values.address();
        let bound = address.listen(&[]).map_err(|error| error.reason)?;
        let unix = match settings.unix_socket() {
            None => None,
            Some((path, permissions)) => {
                let opened = unix_socket::listen(&path, permissions);
                let (listener, file) = opened
                    .map_err(|error| format!("cannot listen on {}: {error}", path.display()))?;
                Some((listener, file, path))
            }
        };
        if bound.is_empty() && unix.is_none() {
            return Err("there is no address, port or Unix socket to listen on".into());
        }
        Ok(Opened {
            address,
            bound,
            unix,
        })
    }
}

struct Socket {
    place: Place,
    listener: TcpListener,
}

impl Socket {
    fn new(bound: Bound) -> IoResult<Socket> {
        let listener = TcpListener::from_std(bound.socket)?;
        let local = listener.local_addr()?;
        tracing::info!("{local}: ready to accept connections");
        Ok(Socket {
            place: bound.place,
            listener,
        })
    }
}

/// Where connections come in.
pub struct Listening {
    address: Address,
    sockets: Vec<Socket>,
    unix: Option<UnixListener>,
    /// Which of them is asked first: each has its turn.
    first: usize,
    _file: Option<SocketFile>,
}

impl Listening {
    pub fn new(opened: Opened) -> IoResult<Listening> {
        let (unix, file) = match opened.unix {
            None => (None, None),
            Some((listener, file, path)) => {
                let listener = UnixListener::from_std(listener)?;
                tracing::info!("{}: ready to accept connections", path.display());
                (Some(listener), Some(file))
            }
        };
        Ok(Listening {
            address: opened.address,
            sockets: opened
                .bound
                .into_iter()
                .map(Socket::new)
                .collect::<IoResult<_>>()?,
            unix,
            first: 0,
            _file: file,
        })
    }

    /// The next connection, whichever socket it comes by.
    pub async fn accept(&mut self) -> IoResult<Arrival> {
        std::future::poll_fn(|context| self.poll_accept(context)).await
    }

    fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<IoResult<Arrival>> {
        self.first = self.first.wrapping_add(1);
        let count = self.sockets.len();
        for at in 0..count {
            let socket = &self.sockets[(self.first + at) % count];
            if let Poll::Ready(accepted) = socket.listener.poll_accept(context) {
                let is_tls = socket.place.is_tls;
                return Poll::Ready(accepted.map(|(stream, peer)| match is_tls {
                    true => Arrival::Tls(stream),
                    false => Arrival::Tcp(stream, peer),
                }));
            }
        }
        match &self.unix {
            Some(unix) => unix
                .poll_accept(context)
                .map_ok(|(stream, _)| Arrival::Unix(stream)),
            None => Poll::Pending,
        }
    }

    /// Listens elsewhere, or as before if that fails. New sockets come first, unless the old ones are in their way.
    pub fn move_to(&mut self, to: Address) -> Result<(), String> {
        let open: Vec<Place> = self.sockets.iter().map(|socket| socket.place).collect();
        match to.listen(&open) {
            Ok(bound) => {
                let wanted = to.places();
                self.sockets.retain(|socket| wanted.contains(&socket.place));
                self.add(bound)?;
            }
            Err(error) if !error.is_taken => return Err(error.reason),
            Err(_) => {
                self.sockets.clear();
                match to.listen(&[]) {
                    Ok(bound) => self.add(bound)?,
                    Err(error) => {
                        let before = self.address.listen(&[]);
                        self.add(before.map_err(|error| error.reason)?)?;
                        return Err(error.reason);
                    }
                }
            }
        }
        self.address = to;
        Ok(())
    }

    fn add(&mut self, bound: Vec<Bound>) -> Result<(), String> {
        for bound in bound {
            let socket = Socket::new(bound).map_err(|error| error.to_string())?;
            self.sockets.push(socket);
        }
        Ok(())
    }
}
