//! Clients that read and write little things, and how long they wait.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use cairn_tests::client::Client;
use cairn_tests::server::Server;

use crate::measure::{self, Costs};

const CLIENTS: usize = 2;
/// Keys that they read and write.
const KEYS: u32 = 10_000;
/// They rest so long after each command: the machine shall be busy, and not full.
const REST: Duration = Duration::from_micros(300);

/// The waits of all commands while `work` was done.
pub fn beside<T>(server: &Server, work: impl FnOnce() -> T) -> (Vec<Duration>, T) {
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let run = || waits(server.client(), &is_done);
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(run)).collect();
        let result = work();
        is_done.store(true, Ordering::Relaxed);
        let waits = clients
            .into_iter()
            .flat_map(|client| client.join().expect("no panic"));
        (waits.collect(), result)
    })
}

/// The same while nothing else is done.
pub fn alone(server: &Server, time: Duration) -> Vec<Duration> {
    beside(server, || thread::sleep(time)).0
}

fn waits(mut client: Client, is_done: &AtomicBool) -> Vec<Duration> {
    let mut waits = Vec::new();
    while !is_done.load(Ordering::Relaxed) {
        let key = format!("front:{}", fastrand::u32(..KEYS));
        let command = match waits.len() % 2 {
            0 => vec!["SET", &key, "a value of some bytes"],
            _ => vec!["GET", &key],
        };
        waits.push(measure::once(&mut client, &command));
        thread::sleep(REST);
    }
    waits
}

/// What all but one command in a hundred wait at most.
pub fn p99(mut waits: Vec<Duration>) -> f64 {
    waits.sort();
    measure::micros(waits[waits.len() * 99 / 100])
}

pub fn compare(alone: Vec<Duration>, beside: Vec<Duration>) -> Costs {
    Costs {
        base: p99(alone),
        deep: p99(beside),
    }
}
