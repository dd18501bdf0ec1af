//! Clients that ask as fast as they are answered.

use std::io;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::grpc::Puts;

pub const VALUE: usize = 100;
pub const KEYS: u64 = 100_000;

/// How many ask, and over how many connections.
#[derive(Clone, Copy)]
pub struct Clients {
    pub connections: usize,
    /// Requests under way on each.
    pub at_once: usize,
}

/// Puts per second. One thread does all, as in redis-benchmark.
pub fn etcd(leader: &str, clients: Clients, duration: Duration) -> io::Result<f64> {
    let connections = (0..clients.connections).map(|_| Puts::connect(leader));
    let mut connections = connections.collect::<io::Result<Vec<_>>>()?;
    let begun = Instant::now();
    let mut done = 0;
    for connection in &mut connections {
        begin(connection, clients.at_once)?;
    }
    while begun.elapsed() < duration {
        for ready in readable(&connections)? {
            let finished = connections[ready].finish()?;
            done += finished;
            begin(&mut connections[ready], finished)?;
        }
    }
    Ok(done as f64 / begun.elapsed().as_secs_f64())
}

fn begin(connection: &mut Puts, count: usize) -> io::Result<()> {
    for _ in 0..count {
        let key = format!("key:{:012}", fastrand::u64(..KEYS));
        connection.begin(key.as_bytes(), &[b'x'; VALUE]);
    }
    connection.flush()
}

/// Those on which something has arrived.
fn readable(connections: &[Puts]) -> io::Result<Vec<usize>> {
    let watched = connections.iter().map(|connection| libc::pollfd {
        fd: connection.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    });
    let mut watched: Vec<libc::pollfd> = watched.collect();
    let count = libc::nfds_t::try_from(watched.len()).expect("few connections");
    // SAFETY: the array is ours and as long as it is said to be.
    let told = unsafe { libc::poll(watched.as_mut_ptr(), count, 1000) };
    if told < 0 {
        return Err(io::Error::last_os_error());
    }
    let ready = watched
        .iter()
        .enumerate()
        .filter(|(_, one)| one.revents != 0);
    Ok(ready.map(|(place, _)| place).collect())
}

/// What redis-benchmark asks for.
pub struct Benchmark<'a> {
    pub port: u16,
    pub command: &'a str,
    pub clients: Clients,
    /// Whether it finds out who has which slot.
    pub is_cluster: bool,
}

impl Benchmark<'_> {
    /// Requests per second, measured for about so long.
    pub fn rate(&self, duration: Duration) -> f64 {
        let probe = self.run(20_000);
        self.run((probe * duration.as_secs_f64()) as usize)
    }

    pub fn run(&self, requests: usize) -> f64 {
        let mut program = Command::new("redis-benchmark");
        program.args(["--csv", "-p", &self.port.to_string(), "-t", self.command]);
        program.args([
            "-n",
            &requests.max(1000).to_string(),
            "-r",
            &KEYS.to_string(),
        ]);
        program.args([
            "-c",
            &self.clients.connections.to_string(),
            "-P",
            &self.clients.at_once.to_string(),
        ]);
        program.args(["-d", &VALUE.to_string()]);
        if self.is_cluster {
            program.arg("--cluster");
        }
        let output = program.output().expect("redis-benchmark runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let rate = said
            .lines()
            .last()
            .and_then(|line| line.split('"').nth(3)?.parse().ok());
        rate.unwrap_or_else(|| panic!("{said}{}", String::from_utf8_lossy(&output.stderr)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::Etcd;

    #[test]
    fn what_is_counted_is_put() {
        let Some(cluster) = Etcd::start() else {
            println!("skipped: etcd is not installed");
            return;
        };
        for (connections, at_once) in [(64, 1), (4, 16)] {
            let before = cluster.status().expect("a leader");
            let (duration, clients) = (
                Duration::from_secs(1),
                Clients {
                    connections,
                    at_once,
                },
            );
            let rate = etcd(&before.leader, clients, duration).expect("etcd answers");
            let changes = cluster.status().expect("a leader").revision - before.revision;
            let counted = rate * duration.as_secs_f64();
            assert!(
                counted > 10.0 && changes as f64 >= counted,
                "{rate}, {changes}"
            );
            println!("{rate:.0} puts a second over {connections} connections");
        }
    }
}
