//! A client of a cluster that is honest about what it knows.
//!
//! It follows MOVED and ASK, waits while the cluster is down, and sends again only what certainly was not done.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

use super::slot::slot;
use crate::client::{Client, Value};

/// How long it rests before it tries again.
const REST: Duration = Duration::from_millis(10);

/// What became of a request.
#[derive(Debug)]
pub enum Reached {
    Answered(Vec<Value>),
    /// It may have been done, or may still be.
    Unknown(String),
    /// It certainly was not done, and never will be.
    Refused(String),
}

pub struct ClusterClient {
    seeds: Vec<String>,
    patience: Duration,
    connections: HashMap<String, Client>,
    /// Who has a slot, as far as anybody has told.
    homes: BTreeMap<u16, String>,
    next_seed: usize,
}

/// What to do about replies.
enum Verdict {
    Answered,
    Moved(String),
    Asked(String),
    /// Certainly not done, for now.
    Again(String),
    Refused(String),
    Unknown(String),
}

impl ClusterClient {
    /// It waits for each answer, and tries what was not done again, for as long as its `patience` lasts.
    pub fn new(seeds: Vec<String>, patience: Duration) -> ClusterClient {
        ClusterClient {
            next_seed: fastrand::usize(..seeds.len()),
            seeds,
            patience,
            connections: HashMap::new(),
            homes: BTreeMap::new(),
        }
    }

    /// Sends commands about one slot, in one piece: one, or a transaction.
    pub fn call(&mut self, key: &str, commands: &[Vec<String>]) -> Reached {
        self.call_at(key, commands).1
    }

    /// The same, and tells who answered.
    pub fn call_at(&mut self, key: &str, commands: &[Vec<String>]) -> (String, Reached) {
        let slot = slot(key.as_bytes());
        let deadline = Instant::now() + self.patience;
        let mut asked: Option<String> = None;
        let mut why = String::new();
        while Instant::now() < deadline {
            let is_asking = asked.is_some();
            let home = asked.take().unwrap_or_else(|| self.home(slot));
            if let Err(error) = self.connected(&home) {
                why = format!("{home}: {error}");
                self.homes.remove(&slot);
                thread::sleep(REST);
                continue;
            }
            let replies = match self.exchange(&home, commands, is_asking) {
                Ok(replies) => replies,
                Err(error) => {
                    self.forget(&home);
                    return (home, Reached::Unknown(error.to_string()));
                }
            };
            match judge(&replies) {
                Verdict::Answered => return (home, Reached::Answered(replies)),
                Verdict::Unknown(why) => return (home, Reached::Unknown(why)),
                Verdict::Refused(why) => return (home, Reached::Refused(why)),
                Verdict::Asked(to) => asked = Some(to),
                Verdict::Moved(to) => {
                    why = format!("moved to {to}");
                    self.homes.insert(slot, to);
                    // Two nodes that send each other their clients settle that soon.
                    thread::sleep(Duration::from_millis(1));
                }
                Verdict::Again(reason) => {
                    why = reason;
                    self.homes.remove(&slot);
                    thread::sleep(REST);
                }
            }
        }
        (String::new(), Reached::Refused(why))
    }

    /// Sends a second piece to where the first went, on the same connection: what a WATCH depends on.
    pub fn go_on(&mut self, home: &str, commands: &[Vec<String>]) -> Reached {
        if !self.connections.contains_key(home) {
            return Reached::Refused("the connection is gone".to_string());
        }
        match self.exchange(home, commands, false) {
            Err(error) => {
                self.forget(home);
                Reached::Unknown(error.to_string())
            }
            Ok(replies) => match judge(&replies) {
                Verdict::Answered => Reached::Answered(replies),
                Verdict::Unknown(why) => Reached::Unknown(why),
                Verdict::Moved(why)
                | Verdict::Asked(why)
                | Verdict::Again(why)
                | Verdict::Refused(why) => Reached::Refused(why),
            },
        }
    }

    /// What any node, that may have no more than a replica, answers to a command that reads; none if it does not answer, or not
    /// with what was asked for.
    pub fn read_anywhere(&mut self, read: &[String]) -> Option<Value> {
        let node = self.seeds[fastrand::usize(..self.seeds.len())].clone();
        self.connected(&node).ok()?;
        let around = |word: &str| vec![word.to_string()];
        let commands = [around("READONLY"), read.to_vec(), around("READWRITE")];
        match self.exchange(&node, &commands, false) {
            Ok(mut replies) => Some(replies.swap_remove(1)).filter(|reply| !reply.is_error()),
            Err(_) => {
                self.forget(&node);
                None
            }
        }
    }

    fn home(&mut self, slot: u16) -> String {
        if let Some(home) = self.homes.get(&slot) {
            return home.clone();
        }
        self.next_seed = (self.next_seed + 1) % self.seeds.len();
        self.seeds[self.next_seed].clone()
    }

    fn forget(&mut self, home: &str) {
        self.connections.remove(home);
        self.homes.retain(|_, other| other != home);
    }

    fn connected(&mut self, home: &str) -> io::Result<()> {
        if self.connections.contains_key(home) {
            return Ok(());
        }
        // One that stands still accepts, and answers nothing; that is found out later.
        let address = home
            .to_socket_addrs()?
            .next()
            .ok_or(io::ErrorKind::AddrNotAvailable)?;
        TcpStream::connect_timeout(&address, self.patience)?;
        let mut client = Client::connect(address)?;
        client.set_read_timeout(self.patience)?;
        self.connections.insert(home.to_string(), client);
        Ok(())
    }

    fn exchange(
        &mut self,
        home: &str,
        commands: &[Vec<String>],
        is_asking: bool,
    ) -> io::Result<Vec<Value>> {
        let client = self
            .connections
            .get_mut(home)
            .ok_or(io::ErrorKind::NotConnected)?;
        if is_asking {
            client.try_command(&["ASKING"])?;
        }
        client.pipeline(commands)
    }
}

/// What was asked for was done if the last reply is no error: a transaction is done by its EXEC.
fn judge(replies: &[Value]) -> Verdict {
    let Some(Value::Error(last)) = replies.last() else {
        return Verdict::Answered;
    };
    let errors = replies.iter().filter_map(|reply| match reply {
        Value::Error(text) => Some(String::from_utf8_lossy(text).into_owned()),
        _ => None,
    });
    let last = String::from_utf8_lossy(last).into_owned();
    // EXECABORT says that some command before it was refused, and that one says why.
    let cause = errors.into_iter().next().unwrap_or_else(|| last.clone());
    let mut words = cause.split(' ');
    match words.next().unwrap_or_default() {
        _ if last.starts_with("INDOUBT") => Verdict::Unknown(last),
        "MOVED" => Verdict::Moved(words.nth(1).unwrap_or_default().to_string()),
        "ASK" => Verdict::Asked(words.nth(1).unwrap_or_default().to_string()),
        "CLUSTERDOWN" | "TRYAGAIN" | "LOADING" | "MASTERDOWN" | "READONLY" => Verdict::Again(cause),
        _ => Verdict::Refused(cause),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_not_done_is_sent_again() {
        let error = |text: &str| Value::error(text);
        let ok = Value::ok;
        assert!(matches!(judge(&[ok()]), Verdict::Answered));
        let moved = judge(&[error("MOVED 12182 127.0.0.1:7002")]);
        assert!(matches!(moved, Verdict::Moved(to) if to == "127.0.0.1:7002"));
        let asked = judge(&[error("ASK 12182 127.0.0.1:7002")]);
        assert!(matches!(asked, Verdict::Asked(to) if to == "127.0.0.1:7002"));
        let aborted = [
            ok(),
            error("MOVED 1 a:1"),
            error("EXECABORT Transaction discarded because of previous errors."),
        ];
        assert!(matches!(judge(&aborted), Verdict::Moved(_)));
        assert!(matches!(
            judge(&[error("CLUSTERDOWN x")]),
            Verdict::Again(_)
        ));
        assert!(matches!(judge(&[error("INDOUBT x")]), Verdict::Unknown(_)));
        assert!(matches!(
            judge(&[error("WRONGTYPE x")]),
            Verdict::Refused(_)
        ));
        let queued = [ok(), Value::Simple(b"QUEUED".to_vec()), error("INDOUBT x")];
        assert!(matches!(judge(&queued), Verdict::Unknown(_)));
    }
}
