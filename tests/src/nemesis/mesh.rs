//! A proxy for each direction between any two nodes, so that links can be cut one by one.
//!
//! It is made before the nodes are: node `a` is told to find node `b` at [`Mesh::port`]`(a, b)`, and everybody else finds `b`
//! where it really is.

use std::collections::BTreeMap;
use std::io;

use super::proxy::{Proxy, Weather};

pub struct Mesh {
    links: BTreeMap<(usize, usize), Proxy>,
}

impl Mesh {
    /// Between nodes that will listen on these ports.
    pub fn new(ports: &[u16]) -> io::Result<Mesh> {
        let mut links = BTreeMap::new();
        for from in 0..ports.len() {
            for (to, port) in ports.iter().enumerate().filter(|(to, _)| *to != from) {
                links.insert((from, to), Proxy::to(*port)?);
            }
        }
        Ok(Mesh { links })
    }

    /// Where one node finds another.
    pub fn port(&self, from: usize, to: usize) -> u16 {
        self.links[&(from, to)].port()
    }

    /// What becomes of connections that one node opens to another.
    pub fn set(&self, from: usize, to: usize, weather: Weather) {
        self.links[&(from, to)].set(weather);
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

    pub fn delay_all(&self, delay: std::time::Duration) {
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
        for ((from, to), link) in &self.links {
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
    use std::time::Duration;

    #[test]
    fn links_fail_one_by_one() {
        let servers: Vec<Server> = (0..3).map(|_| Server::redis(&[])).collect();
        let ports: Vec<u16> = servers.iter().map(Server::port).collect();
        let mesh = Mesh::new(&ports).expect("proxies");
        let answers = |from, to| {
            let Ok(mut client) = Client::connect(("127.0.0.1", mesh.port(from, to))) else {
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
