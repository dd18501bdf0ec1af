//! A TCP proxy on loopback, which loses and delays what passes through it: a link that can be cut, with no privileges.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How soon a connection notices that the weather has changed.
const NOTICE: Duration = Duration::from_millis(20);

/// What becomes of bytes on their way, for each direction: those that the proxy was called with, and the answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weather {
    /// Nothing arrives; connections stay open, and neither side is told.
    pub loses_calls: bool,
    pub loses_answers: bool,
    /// New connections are refused and those that there are are closed.
    pub is_cut: bool,
    /// Each piece arrives so much later.
    pub delay: Duration,
}

/// The weather of one link, which changes.
#[derive(Clone, Debug, Default)]
pub struct Sky(Arc<Mutex<Weather>>);

impl Sky {
    pub fn set(&self, weather: Weather) {
        *self.0.lock().expect("no one panics here") = weather;
    }

    fn weather(&self) -> Weather {
        *self.0.lock().expect("no one panics here")
    }
}

pub struct Proxy {
    port: u16,
    over: Arc<AtomicBool>,
    listener: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Passes connections on to a port of this machine. `above` says under which sky a caller is.
    pub fn to(
        target: u16,
        above: impl Fn(SocketAddr) -> Sky + Send + 'static,
    ) -> io::Result<Proxy> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        listener.set_nonblocking(true)?;
        let over = Arc::new(AtomicBool::new(false));
        let door = Door {
            target,
            over: over.clone(),
        };
        Ok(Proxy {
            port,
            over,
            listener: Some(thread::spawn(move || door.accept(&listener, above))),
        })
    }

    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(listener) = self.listener.take() {
            // It cannot fail, and if it did there would be nothing to do about it.
            drop(listener.join());
        }
    }
}

struct Door {
    target: u16,
    over: Arc<AtomicBool>,
}

/// One connection through a door.
#[derive(Clone)]
struct Link {
    sky: Sky,
    over: Arc<AtomicBool>,
}

impl Door {
    fn accept(&self, listener: &TcpListener, above: impl Fn(SocketAddr) -> Sky) {
        while !self.over.load(Ordering::Relaxed) {
            match listener.accept() {
                Ok((caller, from)) => {
                    let sky = above(from);
                    // Closed at once: as near to a refusal as one can come who is listening.
                    if !sky.weather().is_cut {
                        self.connect(caller, sky);
                    }
                }
                Err(_) => thread::sleep(Duration::from_millis(2)),
            }
        }
    }

    fn connect(&self, caller: TcpStream, sky: Sky) {
        let Ok(target) = TcpStream::connect((Ipv4Addr::LOCALHOST, self.target)) else {
            return;
        };
        let ways = [
            (caller.try_clone(), target.try_clone(), false),
            (target.try_clone(), caller.try_clone(), true),
        ];
        for (from, to, is_answer) in ways {
            if let (Ok(from), Ok(to)) = (from, to) {
                let link = Link {
                    sky: sky.clone(),
                    over: self.over.clone(),
                };
                thread::spawn(move || link.carry(from, to, is_answer));
            }
        }
    }
}

impl Link {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Carries bytes one way until one side closes, or the link is cut.
    fn carry(&self, mut from: TcpStream, mut to: TcpStream, is_answer: bool) {
        let mut piece = vec![0; 64 * 1024];
        let timed = from
            .set_nonblocking(false)
            .and_then(|()| from.set_read_timeout(Some(NOTICE)));
        if timed.is_ok() && to.set_nodelay(true).is_ok() {
            while let Some(length) = self.receive(&mut from, &mut piece) {
                let weather = self.sky.weather();
                let is_lost = if is_answer {
                    weather.loses_answers
                } else {
                    weather.loses_calls
                };
                if is_lost {
                    continue;
                }
                thread::sleep(weather.delay);
                if self.sky.weather().is_cut || to.write_all(&piece[..length]).is_err() {
                    break;
                }
            }
        }
        for side in [from, to] {
            // The other side may have done so before.
            drop(side.shutdown(Shutdown::Both));
        }
    }

    /// The next piece; none when it is over with this connection.
    fn receive(&self, from: &mut TcpStream, piece: &mut [u8]) -> Option<usize> {
        loop {
            if self.is_over() || self.sky.weather().is_cut {
                return None;
            }
            match from.read(piece) {
                Ok(0) => return None,
                Ok(length) => return Some(length),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {}
                    _ => return None,
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Client, Value};
    use crate::server::Server;
    use std::time::Instant;

    fn through(proxy: &Proxy) -> Client {
        let mut client = Client::connect(("127.0.0.1", proxy.port())).expect("the proxy listens");
        client
            .set_read_timeout(Duration::from_millis(300))
            .expect("a timeout");
        client
    }

    #[test]
    fn weather_comes_and_goes() {
        let server = Server::redis(&[]);
        let sky = Sky::default();
        let above = sky.clone();
        let proxy = Proxy::to(server.port(), move |_| above.clone()).expect("a proxy");
        let mut client = through(&proxy);
        assert_eq!(client.line("SET k 1"), Value::ok());

        sky.set(Weather {
            loses_answers: true,
            ..Weather::default()
        });
        assert!(client.try_command(&["INCR", "k"]).is_err());
        assert_eq!(
            server.client().line("GET k"),
            Value::bulk("2"),
            "it was done"
        );

        sky.set(Weather {
            loses_calls: true,
            ..Weather::default()
        });
        let mut client = through(&proxy);
        assert!(client.try_command(&["INCR", "k"]).is_err());
        assert_eq!(
            server.client().line("GET k"),
            Value::bulk("2"),
            "it was not done"
        );

        sky.set(Weather {
            delay: Duration::from_millis(50),
            ..Weather::default()
        });
        let begun = Instant::now();
        assert_eq!(
            through(&proxy).line("PING"),
            Value::Simple(b"PONG".to_vec())
        );
        assert!(begun.elapsed() >= Duration::from_millis(100));

        sky.set(Weather {
            is_cut: true,
            ..Weather::default()
        });
        let refused = Client::connect(("127.0.0.1", proxy.port()));
        assert!(
            refused.is_err()
                || refused.is_ok_and(|mut client| client.try_command(&["PING"]).is_err())
        );

        sky.set(Weather::default());
        assert_eq!(through(&proxy).line("GET k"), Value::bulk("2"));
    }
}
