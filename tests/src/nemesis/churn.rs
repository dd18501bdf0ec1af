//! Writes that nobody writes down: so many that logs are purged, and of kinds that leave much behind for compactions to drop.
//!
//! What these keys hold is no matter. Their rows have to agree with each other, as `cairn check` sees, and on all replicas.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fastrand::Rng;

use super::cluster_client::{ClusterClient, Reached};
use crate::client::Client;

/// So few that they are deleted, and written over, again and again.
const KEYS: usize = 12;

#[derive(Clone, Copy, Debug)]
pub struct Churn {
    /// The length of the longest values.
    pub largest: usize,
    /// Whether anything dies, but by being written over.
    pub garbage: bool,
}

impl Churn {
    /// Writes until it is over, and returns how many bytes were acknowledged.
    pub fn write(self, mut client: ClusterClient, mut rng: Rng, over: &AtomicBool) -> usize {
        let mut acknowledged = 0;
        while !over.load(Ordering::Relaxed) {
            let command = self.command(&mut rng);
            let bytes: usize = command.iter().map(String::len).sum();
            let key = command[1].clone();
            if let Reached::Answered(_) = client.call(&key, &[command]) {
                acknowledged += bytes;
            }
        }
        acknowledged
    }

    fn command(self, rng: &mut Rng) -> Vec<String> {
        let number = rng.usize(..KEYS);
        let key = |kind: &str| format!("{{churn:{number}}}:{kind}");
        let text = |rng: &mut Rng| "x".repeat(rng.usize(1..self.largest));
        let soon_ms = rng.u16(1..400);
        let first = rng.u16(..300);
        let kinds = if self.garbage { 16 } else { 6 };
        let line = match rng.u8(..kinds) {
            0..4 => format!("SET {} {}", key("string"), text(rng)),
            4 | 5 => format!("HSET {}{}", key("hash"), pairs(first)),
            6 => format!("SET {} {} PX {soon_ms}", key("brief"), text(rng)),
            7 => format!("HPEXPIRE {} {soon_ms} FIELDS 1 {first}", key("hash")),
            // What is written for pairs is a set as well.
            8 => format!("SADD {}{}", key("set"), pairs(first)),
            9 => format!("SPOP {} 20", key("set")),
            10 => format!("ZADD {}{}", key("sorted"), pairs(first)),
            11 => format!("ZPOPMIN {} 20", key("sorted")),
            12 => format!("COPY {} {} REPLACE", key("hash"), key("copy")),
            13 => format!("RENAME {} {}", key("set"), key("renamed")),
            14 => format!("DEL {}", key(["string", "hash", "copy"][rng.usize(..3)])),
            _ => {
                let kind = ["hash", "copy", "renamed"][rng.usize(..3)];
                format!("PEXPIRE {} {soon_ms}", key(kind))
            }
        };
        line.split(' ').map(str::to_string).collect()
    }
}

/// Thirty members with their scores, or fields with their values: each is its own.
fn pairs(first: u16) -> String {
    let pairs = (first..first + 30).map(|member| format!(" {member} {member}"));
    pairs.collect()
}

/// Compacts a node again and again until it is over, whenever it is there.
pub fn compact(address: &str, mut rng: Rng, over: &AtomicBool) {
    let mut client = None;
    while !over.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(rng.u64(100..700)));
        if client.is_none() {
            client = Client::connect(address).ok();
        }
        let asked = client
            .as_mut()
            .map(|at| at.try_command(&["DEBUG", "COMPACT"]));
        if asked.is_some_and(|reply| reply.is_err()) {
            client = None;
        }
    }
}
