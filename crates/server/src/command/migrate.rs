//! MIGRATE: keys move to another server, a Redis or a Cairn.
//!
//! It runs where it may wait, under the exclusive latches of its keys: from the moment at which a value is read until
//! its deletion is committed nobody can change it, so no write is lost on the way. Whoever wants one of these keys
//! waits; all others go on. A key is deleted if the target has said that it has it, and only then. If that commit
//! should fail, or the target's word be lost, both have it.

mod target;

use std::sync::atomic::Ordering;
use std::time::Duration;

use cairn_resp::Reply;
use cairn_store::{Error, EventClass, Result, WriteTxn, keys};

use super::args::{self, Args};
use super::dump;
use super::flags::Flag::{Dangerous, Keyspace, MovableKeys};
use super::keys::{Access, Among, KeySpec, Keys, Place};
use super::{Command, Handler, command};
use crate::propagation::Propagate;
use crate::turn::error_text;
use target::{Lost, Target};

/// Where options begin.
const OPTIONS: usize = 6;
/// The one behind which the keys may stand.
const KEYS: Among = Among {
    word: "KEYS",
    from: OPTIONS,
    options: &[("AUTH", 1), ("AUTH2", 2)],
};

pub const COMMANDS: &[Command] = &[command("migrate", -6, Handler::Write(migrate))
    .counts_lookups()
    .irrevocable()
    .keys(Keys(&[
        KeySpec {
            access: Access::READ_DELETE,
            place: Place::Unless {
                position: 3,
                option: KEYS,
            },
        },
        KeySpec {
            access: Access::READ_DELETE,
            place: Place::AllBehind(KEYS),
        },
    ]))
    .flags(&[Keyspace, Dangerous, MovableKeys])
    .tips(&["nondeterministic_output"])
    .syntax(
        "host port:i key_or_empty_string(key|/empty_string!) destination-db:i timeout:i COPY!? REPLACE!? \
         authentication(AUTH/password?|AUTH2/username_password{username password}?)? KEYS/key?+",
    )
    .about(
        "generic",
        "2.6.0",
        "O(N) for N elements",
        "Moves keys to another server.",
    )];

/// What follows the timeout.
struct Options<'a> {
    copies: bool,
    replaces: bool,
    /// The words of AUTH, if it is wanted.
    authentication: &'a [&'a [u8]],
    names: &'a [&'a [u8]],
}

impl<'a> Options<'a> {
    fn parse(args: &Args<'a>) -> Result<Options<'a>> {
        let mut parsed = Options {
            copies: false,
            replaces: false,
            authentication: &[],
            names: &args.rest(3)[..1],
        };
        let mut at = OPTIONS;
        while let Some(option) = args.get(at) {
            at += 1;
            let words = |count| args.get(at..at + count).map(|_| &args.rest(at)[..count]);
            if args::is(option, "copy") {
                parsed.copies = true;
            } else if args::is(option, "replace") {
                parsed.replaces = true;
            } else if args::is(option, "auth") {
                parsed.authentication = words(1).ok_or(Error::SYNTAX)?;
                at += 1;
            } else if args::is(option, "auth2") {
                parsed.authentication = words(2).ok_or(Error::SYNTAX)?;
                at += 2;
            } else if args::is(option, KEYS.word) {
                if !args[3].is_empty() {
                    return Err(Error::fixed(
                        "ERR When using MIGRATE KEYS option, the key argument must be set to the empty string",
                    ));
                }
                parsed.names = args.rest(at);
                break;
            } else {
                return Err(Error::SYNTAX);
            }
        }
        Ok(parsed)
    }
}

/// How long the target may take for each step, unless the caller says so.
const TIMEOUT_MS: i64 = 1000;

fn migrate(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let options = Options::parse(args)?;
    let timeout = match args.int(5)? {
        ..=0 => TIMEOUT_MS,
        timeout => timeout,
    };
    let database = args.int(4)?;
    let mut present = Vec::new();
    for name in options.names {
        if txn.exists(&txn.key(name))? {
            present.push(*name);
        }
    }
    if present.is_empty() {
        return Ok(Reply::Simple("NOKEY"));
    }
    if !txn.is_patient() {
        return Err(Error::TooLong);
    }
    let timeout = Duration::from_millis(timeout.unsigned_abs());
    let mut moved: Vec<&[u8]> = vec![b"DEL"];
    let outcome = Target::connect(args[1], args[2], timeout, txn.store())
        .map_err(Stopped::Lost)
        .and_then(|mut target| {
            hand_over(txn, &mut target, &options, (database, &present), &mut moved)
        });
    if moved.len() > 1 {
        txn.propagate_as(&moved);
    }
    match outcome {
        Ok(reply) => Ok(reply),
        // What the target has said it has by then is deleted, so this is no failure to be undone.
        Err(Stopped::Lost(lost)) => Ok(Reply::error(lost.text())),
        Err(Stopped::Failed(error)) => Err(error),
    }
}

/// Why there is no answer from the target.
enum Stopped {
    Lost(Lost),
    Failed(Error),
}

impl From<Lost> for Stopped {
    fn from(lost: Lost) -> Self {
        Stopped::Lost(lost)
    }
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Self {
        Stopped::Failed(error)
    }
}

/// Sends one key after the other, and only then asks what became of them: so the way there and back is waited for
/// once, and no more than one value stands in memory. Those that are there then, and here no more, are added to `moved`.
fn hand_over<'a>(
    txn: &mut WriteTxn,
    target: &mut Target,
    options: &Options<'_>,
    (database, names): (i64, &[&'a [u8]]),
    moved: &mut Vec<&'a [u8]>,
) -> Result<Reply, Stopped> {
    let greetings = greet(target, options.authentication, database)?;
    let mut sent = Vec::new();
    let mut trouble = None;
    for name in names {
        match payload_of(txn, name) {
            Ok(Some((payload, ttl))) => {
                target.send_restore(name, ttl, &payload, options.replaces)?;
                sent.push(*name);
            }
            Ok(None) => {}
            // Those that were sent before have to be seen to first.
            Err(error) => {
                trouble = Some(error_text(&error));
                break;
            }
        }
    }
    let mut refusal = None;
    for _ in 0..greetings {
        let refused = target.receive()?;
        refusal = refusal.or(refused);
    }
    // Whoever was not let in, or to the wrong database, has moved nothing.
    let is_welcome = refusal.is_none();
    for name in sent {
        let refused = target.receive()?;
        let has_it = is_welcome && refused.is_none();
        refusal = refusal.or(refused);
        if has_it && !options.copies && keys::delete(txn, name)? {
            txn.notify(EventClass::Generic, "del", name);
            moved.push(name);
        }
    }
    Ok(match (refusal, trouble) {
        (Some(said), _) => {
            let text: [&[u8]; 2] = [b"ERR Target instance replied with error: ", &said];
            Reply::error(text.concat())
        }
        (None, Some(text)) => Reply::error(text),
        (None, None) => Reply::Ok,
    })
}

/// Says who is there, and which database is meant; how many replies that makes.
fn greet(target: &mut Target, authentication: &[&[u8]], database: i64) -> Result<usize, Lost> {
    let mut greetings = 1;
    if !authentication.is_empty() {
        target.send(&[&[&b"AUTH"[..]], authentication].concat())?;
        greetings += 1;
    }
    target.send(&[b"SELECT", database.to_string().as_bytes()])?;
    Ok(greetings)
}

/// The value of a key, and how many milliseconds it has left: zero for ever.
fn payload_of(txn: &WriteTxn, name: &[u8]) -> Result<Option<(Vec<u8>, u64)>> {
    let ttl = match keys::expiry_of(txn, name)? {
        None => return Ok(None),
        Some(0) => 0,
        // Not what the time was when this began: it may have taken long until here.
        Some(at_ms) => match at_ms.checked_sub(txn.store().clock().now_ms()) {
            None => return Ok(None),
            Some(ttl) => ttl.max(1),
        },
    };
    let most = txn.store().max_value_len().load(Ordering::Relaxed);
    let payload = dump::payload::of_key(txn, name, most)?;
    Ok(payload.map(|payload| (payload, ttl)))
}
