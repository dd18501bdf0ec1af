//! Money in a few keys, moved by many clients in every way that is atomic: so a move done by halves, or seen by
//! halves, shows in the sum.
//!
//! | keys | hold |
//! |---|---|
//! | `account:0..6` | a balance each |
//! | `purse:0..3` | coins, each worth one and with a name of its own |
//! | `done:MOVER` | how many moves of this mover are in the accounts |
//!
//! [`movers`] change them, [`statement`] reads all of them at once. A move and its `done` are one transaction, or
//! one script: when the server was killed, they tell which moves survived.

pub mod movers;
pub mod statement;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::Instant;

use fastrand::Rng;

use crate::client::{Client, Value, describe};
use movers::{Mover, Way};
use statement::Reading;

pub const ACCOUNTS: usize = 6;
pub const PURSES: usize = 3;

const OPENING_BALANCE: i64 = 1000;
/// Few, so that purses are empty and movers wait for coins.
const COINS_IN_A_PURSE: usize = 1;

pub fn account(n: usize) -> String {
    format!("account:{n}")
}

pub fn purse(n: usize) -> String {
    format!("purse:{n}")
}

/// What all balances and coins are worth together, at every moment.
pub fn worth() -> i64 {
    ACCOUNTS as i64 * OPENING_BALANCE + (PURSES * COINS_IN_A_PURSE) as i64
}

/// Why a client of the bank had to stop.
#[derive(Debug)]
pub enum Trouble {
    Lost(io::Error),
    Wrong(String),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Trouble {
        Trouble::Lost(error)
    }
}

/// Sends a command whose reply must not be an error.
fn call(client: &mut Client, args: &[&str]) -> Result<Value, Trouble> {
    match client.try_command(args)? {
        Value::Error(text) => Err(Trouble::Wrong(format!(
            "{} answered {}",
            describe(args),
            text.escape_ascii()
        ))),
        reply => Ok(reply),
    }
}

/// What one mover did in a round.
#[derive(Clone, Debug)]
pub struct Moved {
    pub way: Way,
    pub acknowledged: usize,
    /// Sent, but the server was gone before it answered.
    pub in_doubt: usize,
    /// Somebody else was quicker, or nothing was there to be moved.
    pub in_vain: usize,
}

/// What all clients of a round saw.
#[derive(Debug, Default)]
pub struct Report {
    pub moved: Vec<Moved>,
    /// How many statements each reader read; all of them were in order.
    pub read: Vec<usize>,
}

pub struct Bank {
    movers: Vec<Mover>,
    readers: Vec<Reading>,
}

impl Bank {
    /// Opens all accounts.
    pub fn open(client: &mut Client, ways: &[Way], readers: &[Reading], rng: &mut Rng) -> Bank {
        for n in 0..ACCOUNTS {
            let balance = OPENING_BALANCE.to_string();
            assert_eq!(
                client.command(&["SET", &account(n), &balance]),
                Value::ok(),
                "an account"
            );
        }
        for n in 0..PURSES {
            for coin in 0..COINS_IN_A_PURSE {
                client.command(&["RPUSH", &purse(n), &format!("first:{n}:{coin}")]);
            }
        }
        let mover = |(id, way): (usize, &Way)| Mover::new(id, *way, rng.fork());
        Bank {
            movers: ways.iter().enumerate().map(mover).collect(),
            readers: readers.to_vec(),
        }
    }

    /// Lets everyone work until `end` returns. It tells when the server was ended, if it was: until then
    /// everyone must have been answered, and rightly.
    pub fn work(
        &mut self,
        addr: &str,
        end: impl FnOnce() -> Option<Instant>,
    ) -> Result<Report, String> {
        let closed = &AtomicBool::new(false);
        thread::scope(|scope| {
            let mut movers = Vec::new();
            for mover in &mut self.movers {
                movers.push(scope.spawn(move || {
                    mover.begin();
                    let parted = until(closed, addr, |client| mover.step(client))?;
                    Ok((mover.moved.clone(), parted))
                }));
            }
            let mut readers = Vec::new();
            for reading in &self.readers {
                readers.push(scope.spawn(move || {
                    let mut read = 0;
                    let parted = until(closed, addr, |client| {
                        reading.read(client)?.check().map_err(Trouble::Wrong)?;
                        read += 1;
                        Ok(())
                    })?;
                    Ok((read, parted))
                }));
            }
            let ended = end();
            closed.store(true, Ordering::Relaxed);
            Ok(Report {
                moved: gather(movers, ended)?,
                read: gather(readers, ended)?,
            })
        })
    }

    /// Looks through the books after a round, which may have ended with the server's end: the sum is right,
    /// and of each mover's moves those are in it that were answered, and at most those in doubt besides.
    pub fn audit(&mut self, client: &mut Client) -> Result<(), String> {
        let statement = Reading::Transaction.read(client);
        let statement = statement.map_err(|trouble| format!("{trouble:?}"))?;
        statement.check()?;
        for mover in &mut self.movers {
            mover.audit(client)?;
        }
        Ok(())
    }
}

/// When and how somebody found the server gone.
type Parted = Option<(Instant, io::Error)>;

/// Does its work again and again, until the bank is closed or the server is gone.
fn until(
    closed: &AtomicBool,
    addr: &str,
    mut work: impl FnMut(&mut Client) -> Result<(), Trouble>,
) -> Result<Parted, String> {
    let mut client = match Client::connect(addr) {
        Ok(client) => client,
        Err(error) => return Ok(Some((Instant::now(), error))),
    };
    while !closed.load(Ordering::Relaxed) {
        match work(&mut client) {
            Ok(()) => {}
            Err(Trouble::Lost(error)) => return Ok(Some((Instant::now(), error))),
            Err(Trouble::Wrong(what)) => {
                // The others need not go on.
                closed.store(true, Ordering::Relaxed);
                return Err(what);
            }
        }
    }
    Ok(None)
}

/// What all of them did, unless one met with something wrong, or with a server gone before its end.
fn gather<T>(
    workers: Vec<ScopedJoinHandle<'_, Result<(T, Parted), String>>>,
    ended: Option<Instant>,
) -> Result<Vec<T>, String> {
    let results = workers.into_iter().map(|worker| match worker.join() {
        Ok(Ok((_, Some((when, error))))) if ended.is_none_or(|ended| when < ended) => {
            Err(format!("lost: {error}"))
        }
        Ok(Ok((done, _))) => Ok(done),
        Ok(Err(wrong)) => Err(wrong),
        Err(_) => Err("a client panicked".into()),
    });
    results.collect()
}
