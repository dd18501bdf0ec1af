//! MULTI, EXEC, DISCARD, WATCH, UNWATCH.

use cairn_resp::Reply;
use cairn_store::{Error, Result};

use super::flags::Flag::{AllowBusy, Fast, Loading, NoScript, SkipSlowlog, Stale, Transaction};
use super::keys::{Access, KeySpec, Keys, Place};
use super::{Args, Command, Flag, Handler, OwnedArgs, command};
use crate::session::Session;
use crate::transaction::{AddWatches, Exec, Queue};
use crate::unit::Unit;

const WATCHES_KEYS: Keys = Keys(&[KeySpec {
    access: Access::PEEK,
    place: Place::Range {
        first: 1,
        last: -1,
        step: 1,
    },
}]);

const FLAGS: &[Flag] = &[NoScript, Loading, Stale, AllowBusy, Transaction];

pub const COMMANDS: &[Command] = &[
    command("multi", 1, Handler::Session(multi))
        .flags(FLAGS)
        .flags(&[Fast])
        .about(
            "transactions",
            "1.2.0",
            "O(1)",
            "Begins a transaction: commands are queued until EXEC.",
        ),
    command("exec", 1, Handler::Unit(exec))
        .flags(&[NoScript, Loading, Stale, SkipSlowlog, Transaction])
        .about(
            "transactions",
            "1.2.0",
            "That of the queued commands",
            "Runs the queued commands as one.",
        ),
    command("discard", 1, Handler::Session(discard))
        .flags(FLAGS)
        .flags(&[Fast])
        .about(
            "transactions",
            "2.0.0",
            "O(N) for N queued commands",
            "Forgets the queued commands.",
        ),
    command("watch", -2, Handler::Unit(watch))
        .keys(WATCHES_KEYS)
        .flags(FLAGS)
        .flags(&[Fast])
        .syntax("key+")
        .about(
            "transactions",
            "2.2.0",
            "O(1) for each key",
            "Has the next EXEC do nothing if one of these keys changes before.",
        ),
    command("unwatch", 1, Handler::Session(unwatch))
        .flags(FLAGS)
        .flags(&[Fast])
        .about("transactions", "2.2.0", "O(1)", "Forgets the watched keys."),
];

fn multi(session: &mut Session, _: &Args) -> Result<Reply> {
    if session.queue.is_some() {
        return Err(Error::fixed("ERR MULTI calls can not be nested"));
    }
    session.queue = Some(Queue::begin(&session.client));
    Ok(Reply::Ok)
}

fn exec(session: &mut Session, _: &Args) -> Result<Box<dyn Unit>> {
    Ok(Box::new(Exec::take(session)?))
}

fn discard(session: &mut Session, _: &Args) -> Result<Reply> {
    if session.queue.take().is_none() {
        return Err(Error::fixed("ERR DISCARD without MULTI"));
    }
    session.watch = None;
    Ok(Reply::Ok)
}

fn watch(session: &mut Session, args: &Args) -> Result<Box<dyn Unit>> {
    if session.queue.is_some() {
        return Err(Error::fixed("ERR WATCH inside MULTI is not allowed"));
    }
    Ok(Box::new(AddWatches(OwnedArgs::new(args))))
}

fn unwatch(session: &mut Session, _: &Args) -> Result<Reply> {
    session.watch = None;
    Ok(Reply::Ok)
}
