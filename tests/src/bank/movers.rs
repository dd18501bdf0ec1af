//! Those who move the bank's money, each in one way.

use std::thread;
use std::time::Duration;

use fastrand::Rng;

use super::{ACCOUNTS, Moved, PURSES, Trouble, account, call, purse};
use crate::client::{Client, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// WATCH two accounts, look at them, set both in a transaction.
    Watching,
    /// A script that names the two accounts.
    Script,
    /// A script that does not.
    BlindScript,
    /// For an empty purse, a transaction makes a unit of a balance a coin: whoever waits for one is woken by an
    /// EXEC.
    Minting,
    /// A script does the same.
    MintingScript,
    /// WATCH a purse, and make its first coin a unit of a balance.
    Cashing,
    /// A script does the same.
    CashingScript,
    /// BLMOVE from a purse to the next.
    BlockingMove,
    /// BRPOPLPUSH, likewise.
    BlockingPush,
    /// As `Watching`, but without WATCH. For testing the test.
    Careless,
}

impl Way {
    /// Whether it counts its moves together with making them.
    fn is_counted(self) -> bool {
        !matches!(self, Way::BlockingMove | Way::BlockingPush | Way::Careless)
    }
}

const TRANSFER: &str = "
    redis.call('DECRBY', KEYS[1], ARGV[1])
    redis.call('INCRBY', KEYS[2], ARGV[1])
    return redis.call('INCR', KEYS[3])";

const BLIND_TRANSFER: &str = "
    redis.call('DECRBY', ARGV[2], ARGV[1])
    redis.call('INCRBY', ARGV[3], ARGV[1])
    return redis.call('INCR', ARGV[4])";

const MINT: &str = "
    if redis.call('LLEN', KEYS[2]) > 0 then return false end
    redis.call('DECR', KEYS[1])
    redis.call('RPUSH', KEYS[2], ARGV[1])
    return redis.call('INCR', KEYS[3])";

const CASH: &str = "
    if not redis.call('LPOP', KEYS[2]) then return false end
    redis.call('INCR', KEYS[1])
    return redis.call('INCR', KEYS[3])";

/// How long a mover waits for a coin, in seconds: some are served, and some come too late.
const PATIENCE: &str = "0.004";

const PAUSE_US: u64 = 2000;

pub struct Mover {
    id: usize,
    rng: Rng,
    pub moved: Moved,
    /// How many moves the accounts knew of when the round began.
    known: usize,
    coins: usize,
}

impl Mover {
    pub fn new(id: usize, way: Way, rng: Rng) -> Mover {
        Mover {
            id,
            rng,
            moved: Moved::none(way),
            known: 0,
            coins: 0,
        }
    }

    /// A new round.
    pub fn begin(&mut self) {
        self.moved = Moved::none(self.moved.way);
    }

    fn done(&self) -> String {
        format!("done:{}", self.id)
    }

    /// Makes one move, or tries to.
    pub fn step(&mut self, client: &mut Client) -> Result<(), Trouble> {
        // Those who look first, and need three trips for a move, would hardly ever find nothing changed otherwise.
        thread::sleep(Duration::from_micros(self.rng.u64(..PAUSE_US)));
        // Until it is answered, nobody knows.
        self.moved.in_doubt = 1;
        let reply = self.try_to_move(client)?;
        self.moved.in_doubt = 0;
        match reply {
            Value::Null | Value::NullArray => self.moved.in_vain += 1,
            Value::Array(replies) if replies.iter().any(Value::is_error) => {
                return Err(Trouble::Wrong(format!("EXEC answered {replies:?}")));
            }
            _ => self.moved.acknowledged += 1,
        }
        Ok(())
    }

    /// The reply is null if nothing was moved.
    fn try_to_move(&mut self, client: &mut Client) -> Result<Value, Trouble> {
        let from = self.rng.usize(..ACCOUNTS);
        let to = (from + self.rng.usize(1..ACCOUNTS)) % ACCOUNTS;
        let (from, to) = (account(from), account(to));
        let amount = self.rng.u8(1..100).to_string();
        let place = self.rng.usize(..PURSES);
        let (place, next) = (purse(place), purse((place + 1) % PURSES));
        let done = self.done();
        match self.moved.way {
            Way::Watching => {
                call(client, &["WATCH", &from, &to])?;
                self.set_both(client, &from, &to, &done)
            }
            Way::Careless => self.set_both(client, &from, &to, &done),
            Way::Script => call(client, &["EVAL", TRANSFER, "3", &from, &to, &done, &amount]),
            Way::BlindScript => call(
                client,
                &["EVAL", BLIND_TRANSFER, "0", &amount, &from, &to, &done],
            ),
            Way::Minting => {
                if call(client, &["LLEN", &place])? != Value::Int(0) {
                    return Ok(Value::Null);
                }
                let coin = self.new_coin();
                let mint = [
                    &["DECR", &from][..],
                    &["RPUSH", &place, &coin],
                    &["INCR", &done],
                ];
                transaction(client, &mint)
            }
            Way::MintingScript => {
                let coin = self.new_coin();
                call(client, &["EVAL", MINT, "3", &from, &place, &done, &coin])
            }
            Way::Cashing => {
                call(client, &["WATCH", &place])?;
                if call(client, &["LLEN", &place])? == Value::Int(0) {
                    call(client, &["UNWATCH"])?;
                    return Ok(Value::Null);
                }
                transaction(
                    client,
                    &[&["LPOP", &place], &["INCR", &to], &["INCR", &done]],
                )
            }
            Way::CashingScript => call(client, &["EVAL", CASH, "3", &to, &place, &done]),
            Way::BlockingMove => call(
                client,
                &["BLMOVE", &place, &next, "LEFT", "RIGHT", PATIENCE],
            ),
            Way::BlockingPush => call(client, &["BRPOPLPUSH", &place, &next, PATIENCE]),
        }
    }

    /// Looks at both balances, and sets them to what they should be then.
    fn set_both(
        &mut self,
        client: &mut Client,
        from: &str,
        to: &str,
        done: &str,
    ) -> Result<Value, Trouble> {
        let amount = self.rng.i64(1..100);
        let [less, more] = balances(client, from, to)?;
        let (less, more) = ((less - amount).to_string(), (more + amount).to_string());
        transaction(
            client,
            &[&["SET", from, &less], &["SET", to, &more], &["INCR", done]],
        )
    }

    fn new_coin(&mut self) -> String {
        self.coins += 1;
        format!("{}:{}", self.id, self.coins)
    }

    /// Compares what the mover was told with what the accounts know. From there the next round goes on.
    pub fn audit(&mut self, client: &mut Client) -> Result<(), String> {
        if !self.moved.way.is_counted() {
            return Ok(());
        }
        let done = client.command(&["GET", &self.done()]);
        let done = done.as_bytes().unwrap_or(b"0");
        let done = String::from_utf8_lossy(done).parse();
        let done: usize = done.map_err(|error| format!("{}: {error}", self.done()))?;
        let Moved {
            acknowledged,
            in_doubt,
            ..
        } = self.moved;
        let least = self.known + acknowledged;
        if !(least..=least + in_doubt).contains(&done) {
            return Err(format!(
                "mover {} ({:?}): {done} moves are there, {least} were answered, {in_doubt} not",
                self.id, self.moved.way
            ));
        }
        self.known = done;
        Ok(())
    }
}

impl Moved {
    fn none(way: Way) -> Moved {
        Moved {
            way,
            acknowledged: 0,
            in_doubt: 0,
            in_vain: 0,
        }
    }
}

fn balances(client: &mut Client, from: &str, to: &str) -> Result<[i64; 2], Trouble> {
    let reply = call(client, &["MGET", from, to])?;
    let number = |value: &Value| std::str::from_utf8(value.as_bytes()?).ok()?.parse().ok();
    let found = (reply.items()).and_then(|items| Some([number(&items[0])?, number(&items[1])?]));
    found.ok_or_else(|| Trouble::Wrong(format!("{from} and {to} hold {reply:?}")))
}

/// All at once, as most clients send it.
fn transaction(client: &mut Client, commands: &[&[&str]]) -> Result<Value, Trouble> {
    client.send(&["MULTI"]);
    commands.iter().for_each(|command| client.send(command));
    client.send(&["EXEC"]);
    for _ in 0..=commands.len() {
        let queued = client.try_receive()?;
        if queued.is_error() {
            return Err(Trouble::Wrong(format!("{queued:?} in a transaction")));
        }
    }
    match client.try_receive()? {
        Value::Error(text) => {
            let text = text.escape_ascii();
            Err(Trouble::Wrong(format!("EXEC answered {text}")))
        }
        reply => Ok(reply),
    }
}
