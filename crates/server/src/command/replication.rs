//! By which a server follows this one: SYNC, PSYNC and REPLCONF.

use cairn_resp::Reply;
use cairn_store::{Error, Result};

use super::args::{Args, is};
use super::flags::Flag::{Admin, AllowBusy, Loading, NoAsyncLoading, NoMulti, NoScript, Stale};
use super::pubsub::unanswered;
use super::{Command, Handler, command};
use crate::session::{Session, Sync};
use crate::upstream::{self, Master};

const GROUP: &str = "server";
const MASTER: &str = "args(host-port{host port:i}|no-one{NO! ONE!})";

pub const COMMANDS: &[Command] = &[
    command("sync", 1, Handler::Session(sync))
        .flags(&[Admin, NoScript, NoAsyncLoading, NoMulti])
        .about(
            GROUP,
            "1.0.0",
            "O(N) for all that there is",
            "Sends a snapshot, and then all commands that change something.",
        ),
    command("psync", -3, Handler::Session(psync))
        .flags(&[Admin, NoScript, NoAsyncLoading, NoMulti])
        .syntax("replicationid offset:i")
        .about(
            GROUP,
            "2.8.0",
            "O(N) for all that there is, or what was missed",
            "Sends all commands that change something, from some place on or behind a snapshot.",
        ),
    command("replicaof", 3, Handler::Session(replicaof))
        .flags(&[Admin, NoScript, Stale, NoAsyncLoading])
        .syntax(MASTER)
        .about(
            GROUP,
            "5.0.0",
            "O(1)",
            "Has the server follow another one, or none any more.",
        ),
    command("slaveof", 3, Handler::Session(replicaof))
        .flags(&[Admin, NoScript, Stale, NoAsyncLoading])
        .syntax(MASTER)
        .deprecated("5.0.0", "`REPLICAOF`")
        .about(
            GROUP,
            "1.0.0",
            "O(1)",
            "Has the server follow another one, or none any more: the old name of REPLICAOF.",
        ),
    command("replconf", -1, Handler::Session(replconf))
        .flags(&[Admin, NoScript, Loading, Stale, AllowBusy])
        .about(
            GROUP,
            "3.0.0",
            "O(1)",
            "Tells what a server is like that follows this one, and how far it has come.",
        ),
];

fn replicaof(session: &mut Session, args: &Args) -> Result<Reply> {
    let server = session.server.clone();
    if server.settings.cluster_enabled {
        return Err(Error::fixed("ERR REPLICAOF not allowed in cluster mode."));
    }
    if is(args[1], "no") && is(args[2], "one") {
        upstream::follow_nobody(&server);
        return Ok(Reply::Ok);
    }
    if session.following.is_some() {
        return Err(Error::fixed(
            "ERR Command is not valid when client is a replica.",
        ));
    }
    let port = super::args::int(args[2])?;
    let master = Master {
        host: String::from_utf8_lossy(args[1]).into_owned(),
        port: u16::try_from(port).map_err(|_| Error::fixed("ERR Invalid master port"))?,
    };
    match upstream::follow(&server, master) {
        Ok(true) => Ok(Reply::Ok),
        Ok(false) => Ok(Reply::Simple("OK Already connected to specified master")),
        Err(error) => Err(Error::reply(format!("ERR cannot start a thread: {error}"))),
    }
}

fn sync(session: &mut Session, _: &Args) -> Result<Reply> {
    begin(session, None)
}

fn psync(session: &mut Session, args: &Args) -> Result<Reply> {
    // Nobody has byte zero, nor any before it: who says so has nothing.
    let next = args.int(2)?.max(0) as u64;
    begin(session, Some((args[1].to_vec(), next)))
}

/// The connection does the rest.
fn begin(session: &mut Session, place: Option<(Vec<u8>, u64)>) -> Result<Reply> {
    if session.server.settings.cluster_enabled {
        return Err(Error::fixed(
            "ERR a node of a cluster is not followed by this protocol: its replicas are given by `cairn cluster`",
        ));
    }
    if session.following.is_some() {
        return Ok(unanswered());
    }
    if session.server.upstream.is_stale() {
        // What it has is no beginning for others; and it may be the one that asks.
        return Err(Error::fixed(
            "NOMASTERLINK Can't SYNC while not connected with my master",
        ));
    }
    let mut introduction = session.introduction.clone().unwrap_or_default();
    introduction.is_mute = place.is_none();
    session.sync = Some(Box::new(Sync {
        introduction: *introduction,
        place,
    }));
    Ok(unanswered())
}

fn replconf(session: &mut Session, args: &Args) -> Result<Reply> {
    if args.len().is_multiple_of(2) {
        return Err(Error::SYNTAX);
    }
    let mut options = args.options(1);
    while let Some(option) = options.next() {
        let value = options.value()?;
        if is(option, "ack") {
            // Only from one who follows.
            if session.following.is_some() {
                session.acknowledges = u64::try_from(super::args::int(value)?).ok();
            }
            return Ok(unanswered());
        }
        if is(option, "getack") {
            if session.is_master {
                let told = session.server.upstream.acknowledgement();
                session
                    .client
                    .outbox
                    .push(|out| out.extend_from_slice(&told));
            }
            return Ok(unanswered());
        }
        introduce(session, option, value)?;
    }
    Ok(Reply::Ok)
}

fn introduce(session: &mut Session, option: &[u8], value: &[u8]) -> Result<()> {
    let introduction = session.introduction.get_or_insert_default();
    if is(option, "listening-port") {
        introduction.port = super::args::int(value)?.clamp(0, u16::MAX.into()) as u16;
    } else if is(option, "ip-address") {
        let address = String::from_utf8_lossy(value).into_owned();
        introduction.address = Some(address).filter(|address| !address.is_empty());
    } else if is(option, "capa") {
        introduction.knows_mark |= is(value, "eof");
        introduction.knows_names |= is(value, "psync2");
    } else if is(option, "rdb-only") {
        introduction.only_snapshot = super::args::int(value)? != 0;
    } else if is(option, "rdb-filter-only") {
        if !value.is_empty() {
            return Err(Error::fixed("ERR a snapshot is of everything"));
        }
    } else if !is(option, "version") {
        let option = super::printable(option, 128);
        return Err(Error::reply(format!(
            "ERR Unrecognized REPLCONF option: {option}"
        )));
    }
    Ok(())
}
