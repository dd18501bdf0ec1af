//! A proxy before each node, which knows who calls, so that links between any two can be cut one by one.
//!
//! It is made before the nodes are: each announces its [`door`](Mesh::door) to the others as the place where it is found, and
//! listens behind it.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::proxy::{Proxy, Sky, Weather};

type Links = BTreeMap<(usize, usize), Sky>;

pub struct Mesh {
    doors: Vec<Proxy>,
    links: Arc<Links>,
}

impl Mesh {
    /// Before nodes that will listen on these ports. `caller` says which node has opened a connection to a door, given
    /// where it comes from; everybody else comes through in any weather.
    pub fn new<C>(ports: &[u16], caller: C) -> io::Result<Mesh>
    where
        C: Fn(SocketAddr) -> Option<usize> + Clone + Send + 'static,
    {
        let nodes = 0..ports.len();
        let links = nodes.clone().flat_map(|from| {
            let others = nodes.clone().filter(move |to| *to != from);
            others.map(move |to| ((from, to), Sky::default()))
        });
        let links: Arc<Links> = Arc::new(links.collect());
        let doors = ports.iter().enumerate().map(|(to, port)| {
            let (links, caller) = (links.clone(), caller.clone());
            Proxy::to(*port, move |from| {
                let link = caller(from).and_then(|from| links.get(&(from, to)));
                link.cloned().unwrap_or_default()
            })
        });
        Ok(Mesh {
            doors: doors.collect::<io::Result<_>>()?,
            links,
        })
    }

    /// The port where others find a node.
    pub fn door(&self, node: usize) -> u16 {
        self.doors[node].port()
    }

    /// Parts these nodes from all others.
    pub fn part(&self, nodes: &[usize]) {
        let cut = Weather {
            is_cut: true,
            ..Weather::default()
        };
        self.set_all(|from, to| nodes.contains(&from) != nodes.contains(&to), cut);
    }

    /// Whatever this node says is lost, and it hears everybody.
    pub fn mute(&self, node: usize) {
        let calls = Weather {
            loses_calls: true,
            ..Weather::default()
        };
        let answers = Weather {
            loses_answers: true,
            ..Weather::default()
        };
        self.set_all(|from, _| from == node, calls);
        self.set_all(|_, to| to == node, answers);
    }

    pub fn delay_all(&self, delay: Duration) {
        let weather = Weather {
            delay,
            ..Weather::default()
        };
        self.set_all(|_, _| true, weather);
    }

    pub fn heal(&self) {
        self.set_all(|_, _| true, Weather::default());
    }

    fn set_all(&self, which: impl Fn(usize, usize) -> bool, weather: Weather) {
        for ((from, to), link) in self.links.iter() {
            if which(*from, *to) {
                link.set(weather);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Client;
    use crate::server::Server;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn links_fail_one_by_one() {
        let servers: Vec<Server> = (0..3).map(|_| Server::redis(&[])).collect();
        let ports: Vec<u16> = servers.iter().map(Server::port).collect();
        let caller = Arc::new(AtomicUsize::new(0));
        let called = caller.clone();
        let mesh = Mesh::new(&ports, move |_| Some(called.load(Ordering::Relaxed)));
        let mesh = mesh.expect("proxies");
        let answers = |from, to| {
            caller.store(from, Ordering::Relaxed);
            let Ok(mut client) = Client::connect(("127.0.0.1", mesh.door(to))) else {
                return false;
            };
            client
                .set_read_timeout(Duration::from_millis(200))
                .expect("a timeout");
            client.try_command(&["PING"]).is_ok()
        };
        let whole = || (0..3).all(|from| (0..3).all(|to| from == to || answers(from, to)));
        assert!(whole());
        mesh.part(&[0]);
        assert!(!answers(0, 1) && !answers(2, 0) && answers(1, 2) && answers(2, 1));
        mesh.heal();
        assert!(whole());
        // What it says is lost, whoever has called.
        mesh.mute(1);
        assert!(!answers(1, 2) && !answers(0, 1) && answers(0, 2));
        mesh.heal();
        assert!(whole());
    }
}
