//! All balances and coins at one moment, and whether they add up.

use std::collections::BTreeSet;

use super::{ACCOUNTS, PURSES, Trouble, account, call, purse, worth};
use crate::client::{Client, Value};

/// How a statement is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// MULTI and EXEC.
    Transaction,
    /// A script that names its keys.
    Script,
    /// A script that does not.
    BlindScript,
    /// One command after the other: what lies between them shows. For testing the test.
    OneByOne,
}

#[derive(Debug)]
pub struct Statement {
    balances: Vec<i64>,
    coins: Vec<String>,
}

const SCRIPT: &str = "
    local accounts, purses = {}, {}
    for n, key in ipairs(KEYS) do
        table.insert(n <= tonumber(ARGV[1]) and accounts or purses, key)
    end
    local statement = {redis.call('MGET', unpack(accounts))}
    for _, key in ipairs(purses) do table.insert(statement, redis.call('LRANGE', key, 0, -1)) end
    return statement";

const BLIND_SCRIPT: &str = "
    local accounts = {}
    for n = 0, ARGV[1] - 1 do table.insert(accounts, 'account:' .. n) end
    local statement = {redis.call('MGET', unpack(accounts))}
    for n = 0, ARGV[2] - 1 do
        table.insert(statement, redis.call('LRANGE', 'purse:' .. n, 0, -1))
    end
    return statement";

impl Reading {
    pub fn read(self, client: &mut Client) -> Result<Statement, Trouble> {
        let (accounts, purses) = (ACCOUNTS.to_string(), PURSES.to_string());
        let names: Vec<String> = all_keys();
        let reply = match self {
            Reading::Transaction => read_commands(client, true)?,
            Reading::OneByOne => read_commands(client, false)?,
            Reading::Script => {
                let count = names.len().to_string();
                let mut args = vec!["EVAL", SCRIPT, &count];
                args.extend(names.iter().map(String::as_str));
                args.push(&accounts);
                call(client, &args)?
            }
            Reading::BlindScript => call(client, &["EVAL", BLIND_SCRIPT, "0", &accounts, &purses])?,
        };
        let shown = format!("{reply:?}");
        Statement::from_reply(reply)
            .ok_or_else(|| Trouble::Wrong(format!("not a statement: {shown}")))
    }
}

fn all_keys() -> Vec<String> {
    let accounts = (0..ACCOUNTS).map(account);
    accounts.chain((0..PURSES).map(purse)).collect()
}

fn read_commands(client: &mut Client, at_once: bool) -> Result<Value, Trouble> {
    let names = all_keys();
    let mut balances = vec!["MGET"];
    balances.extend(names[..ACCOUNTS].iter().map(String::as_str));
    let mut commands = vec![balances];
    for purse in &names[ACCOUNTS..] {
        commands.push(vec!["LRANGE", purse, "0", "-1"]);
    }
    if !at_once {
        let replies = commands.iter().map(|command| call(client, command));
        return Ok(Value::Array(replies.collect::<Result<_, _>>()?));
    }
    call(client, &["MULTI"])?;
    for command in &commands {
        call(client, command)?;
    }
    call(client, &["EXEC"])
}

impl Statement {
    fn from_reply(reply: Value) -> Option<Statement> {
        let mut parts = reply.into_items()?.into_iter();
        let balance = |value: &Value| {
            let digits = std::str::from_utf8(value.as_bytes()?).ok()?;
            digits.parse().ok()
        };
        let balances: Option<Vec<i64>> = parts.next()?.items()?.iter().map(balance).collect();
        let balances = balances?;
        let mut coins = Vec::new();
        for purse in parts {
            for coin in purse.into_items()? {
                coins.push(String::from_utf8_lossy(coin.as_bytes()?).into_owned());
            }
        }
        Some(Statement { balances, coins })
    }

    /// That nothing came from nowhere, and nothing went there.
    pub fn check(&self) -> Result<(), String> {
        let sum: i64 = self.balances.iter().sum::<i64>() + self.coins.len() as i64;
        if sum != worth() {
            return Err(format!("a sum of {sum} instead of {}: {self:?}", worth()));
        }
        let distinct: BTreeSet<&String> = self.coins.iter().collect();
        if distinct.len() != self.coins.len() {
            return Err(format!("a coin that is there twice: {self:?}"));
        }
        Ok(())
    }
}
