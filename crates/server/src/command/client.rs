//! CLIENT: who is connected, and what becomes of them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cairn_resp::{Reply, number};
use cairn_store::{Error, Result};

use super::args::{Args, is};
use super::connection::check_name;
use super::flags::Flag::{Admin, Connection, Loading, NoScript, Stale};
use super::tracking::{caching, getredir, tracking, trackinginfo};
use super::{Command, Flag, Handler, command, help, printable, wrong_subcommand};
use crate::acl::{Acl, User};
use crate::address::Endpoint;
use crate::blocked::Unblock;
use crate::client::Client;
use crate::pause::Mode;
use crate::server::Server;
use crate::session::{Replies, Session};

const GROUP: &str = "connection";
const PLAIN: &[Flag] = &[NoScript, Loading, Stale, Connection];
const ADMINS: &[Flag] = &[Admin, NoScript, Loading, Stale, Connection];

pub const COMMANDS: &[Command] = &[command("client", -2, Handler::Container)
    .subcommands(SUBCOMMANDS)
    .about(
        GROUP,
        "2.4.0",
        "Depends on the subcommand",
        "Tells about connections and manages them.",
    )];

const SUBCOMMANDS: &[Command] = &[
    command("caching", 3, Handler::Session(caching))
        .irrevocable()
        .flags(PLAIN)
        .usage("(YES|NO)")
        .syntax("mode(YES!|NO!)")
        .about(
            GROUP,
            "6.0.0",
            "O(1)",
            "Says whether copies are kept of what the next command reads.",
        ),
    command("getname", 2, Handler::Session(getname))
        .flags(PLAIN)
        .about(
            GROUP,
            "2.6.9",
            "O(1)",
            "Returns the name of the connection.",
        ),
    command("getredir", 2, Handler::Session(getredir))
        .flags(PLAIN)
        .about(
            GROUP,
            "6.0.0",
            "O(1)",
            "Returns who gets this connection's invalidations.",
        ),
    command("id", 2, Handler::Session(id)).flags(PLAIN).about(
        GROUP,
        "5.0.0",
        "O(1)",
        "Returns the number of the connection.",
    ),
    command("info", 2, Handler::Session(info))
        .flags(PLAIN)
        .tips(&["nondeterministic_output"])
        .about(GROUP, "6.2.0", "O(1)", "Describes the connection."),
    command("kill", -3, Handler::Session(kill))
        .flags(ADMINS)
        .usage(
            "(<ip:port> | [ID <id>] [TYPE <type>] [USER <name>] [ADDR <ip:port>] \
             [LADDR <ip:port>] [SKIPME (YES|NO)])",
        )
        .syntax(
            "filter(ip:port|new-format(ID/client-id:i?|TYPE/normal_master_slave_pubsub(NORMAL!|\
             MASTER!|SLAVE!|REPLICA!|PUBSUB!)?|USER/username?|ADDR/ip:port?|LADDR/ip:port?|\
             SKIPME/yes/no?)+)",
        )
        .about(
            GROUP,
            "2.4.0",
            "O(N) for N connections",
            "Closes the connections that meet every option.",
        ),
    command("list", -2, Handler::Session(list))
        .flags(ADMINS)
        .usage("[TYPE (NORMAL|MASTER|REPLICA|PUBSUB)] [ID <id> [<id> ...]]")
        .tips(&["nondeterministic_output"])
        .syntax(
            "TYPE/normal_master_replica_pubsub(NORMAL!|MASTER!|REPLICA!|PUBSUB!)? \
             ID/id{client-id:i+}?",
        )
        .about(
            GROUP,
            "2.4.0",
            "O(N) for N connections",
            "Describes the connections, one on a line.",
        ),
    command("no-evict", 3, Handler::Session(no_evict))
        .flags(ADMINS)
        .usage("(ON|OFF)")
        .syntax("enabled(ON!|OFF!)")
        .about(
            GROUP,
            "7.0.0",
            "O(1)",
            "Marks the connection as one to keep when memory is short.",
        ),
    command("no-touch", 3, Handler::Session(no_touch))
        .flags(PLAIN)
        .usage("(ON|OFF)")
        .syntax("enabled(ON!|OFF!)")
        .about(
            GROUP,
            "7.2.0",
            "O(1)",
            "Says that what the connection reads does not count as used.",
        ),
    command("pause", -3, Handler::Session(pause))
        .flags(ADMINS)
        .usage("<milliseconds> [WRITE|ALL]")
        .syntax("timeout:i mode(WRITE!|ALL!)?")
        .about(
            GROUP,
            "2.9.50",
            "O(1)",
            "Lets all commands, or those that write, wait.",
        ),
    command("reply", 3, Handler::Session(reply))
        .irrevocable()
        .flags(PLAIN)
        .usage("(ON|OFF|SKIP)")
        .syntax("on_off_skip(ON!|OFF!|SKIP!)")
        .about(
            GROUP,
            "3.2.0",
            "O(1)",
            "Decides whether commands are answered.",
        ),
    command("setname", 3, Handler::Session(setname))
        .irrevocable()
        .flags(PLAIN)
        .usage("<name>")
        .syntax("connection-name")
        .about(GROUP, "2.6.9", "O(1)", "Names the connection."),
    command("tracking", -3, Handler::Session(tracking))
        .irrevocable()
        .flags(PLAIN)
        .usage("(ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]] [OPTIN] [OPTOUT] [NOLOOP]")
        .syntax(
            "status(ON!|OFF!) REDIRECT/client-id:i? PREFIX/prefix?++ BCAST!? OPTIN!? \
             OPTOUT!? NOLOOP!?",
        )
        .about(
            GROUP,
            "6.0.0",
            "O(1), or O(N) for N prefixes",
            "Has the server tell when what the client has read changes.",
        ),
    command("trackinginfo", 2, Handler::Session(trackinginfo))
        .flags(PLAIN)
        .about(
            GROUP,
            "6.2.0",
            "O(1)",
            "Tells what CLIENT TRACKING was told.",
        ),
    command("unblock", -3, Handler::Session(unblock))
        .flags(ADMINS)
        .usage("<id> [TIMEOUT|ERROR]")
        .syntax("client-id:i timeout_error(TIMEOUT!|ERROR!)?")
        .about(
            GROUP,
            "5.0.0",
            "O(log N) for N connections",
            "Ends the wait of a blocked connection.",
        ),
    command("unpause", 2, Handler::Admin(unpause))
        .flags(ADMINS)
        .about(
            GROUP,
            "6.2.0",
            "O(N) for N commands that wait",
            "Ends a pause.",
        ),
    command("help", 2, Handler::Session(help))
        .flags(&[Loading, Stale, Connection])
        .about(GROUP, "5.0.0", "O(1)", "Prints this help."),
];

fn getname(session: &mut Session, _: &Args) -> Result<Reply> {
    let name = session.client.name.lock();
    Ok(if name.is_empty() {
        Reply::Null
    } else {
        Reply::bulk(name.as_slice())
    })
}

fn setname(session: &mut Session, args: &Args) -> Result<Reply> {
    check_name(args[2])?;
    *session.client.name.lock() = args[2].to_vec();
    Ok(Reply::Ok)
}

fn id(session: &mut Session, _: &Args) -> Result<Reply> {
    Ok(session.client.id.into())
}

fn info(session: &mut Session, _: &Args) -> Result<Reply> {
    let mut line = Vec::new();
    session.client.describe(&mut line);
    Ok(Reply::Verbatim("txt", line))
}

/// The types that clients are told apart by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClientType {
    Normal,
    Subscriber,
    /// It follows this server.
    Replica,
    /// This server follows it.
    Master,
}

impl ClientType {
    fn of(client: &Client) -> ClientType {
        if client.is_master() {
            ClientType::Master
        } else if client.is_replica() {
            ClientType::Replica
        } else if client.is_subscriber() {
            ClientType::Subscriber
        } else {
            ClientType::Normal
        }
    }
}

fn type_of(name: &[u8]) -> Result<ClientType> {
    match name.to_ascii_lowercase().as_slice() {
        b"normal" => Ok(ClientType::Normal),
        b"pubsub" => Ok(ClientType::Subscriber),
        b"slave" | b"replica" => Ok(ClientType::Replica),
        b"master" => Ok(ClientType::Master),
        _ => {
            let name = printable(name, 128);
            Err(Error::reply(format!("ERR Unknown client type '{name}'")))
        }
    }
}

fn list(session: &mut Session, args: &Args) -> Result<Reply> {
    let clients = &session.server.clients;
    let listed: Vec<Arc<Client>> = match args.rest(2) {
        [] => clients.all(),
        [option, name] if is(option, "type") => {
            let kind = type_of(name)?;
            let mut clients = clients.all();
            clients.retain(|client| ClientType::of(client) == kind);
            clients
        }
        [option, ids @ ..] if is(option, "id") && !ids.is_empty() => {
            let ids: Option<Vec<i64>> = ids.iter().map(|id| number::parse_i64(id)).collect();
            let ids = ids.ok_or(Error::fixed("ERR Invalid client ID"))?;
            let possible = ids.into_iter().filter_map(|id| u64::try_from(id).ok());
            possible.filter_map(|id| clients.get(id)).collect()
        }
        _ => return Err(Error::SYNTAX),
    };
    let mut lines = Vec::new();
    for client in listed.iter().filter(|client| !client.is_killed()) {
        client.describe(&mut lines);
    }
    Ok(Reply::Verbatim("txt", lines))
}

/// Which clients CLIENT KILL means.
#[derive(Default)]
struct Target {
    id: Option<u64>,
    kind: Option<ClientType>,
    user: Option<Arc<User>>,
    peer: Option<Vec<u8>>,
    local: Option<Vec<u8>>,
    spares_caller: bool,
}

impl Target {
    fn read(args: &Args, acl: &Acl) -> Result<Target> {
        let mut target = Target {
            spares_caller: true,
            ..Target::default()
        };
        let mut options = args.options(2);
        while let Some(option) = options.next() {
            let value = options.value()?;
            match option.to_ascii_lowercase().as_slice() {
                b"id" => {
                    let id = number::parse_i64(value).filter(|id| *id > 0);
                    let id = id.ok_or(Error::fixed("ERR client-id should be greater than 0"))?;
                    target.id = Some(id.unsigned_abs());
                }
                b"type" => target.kind = Some(type_of(value)?),
                b"addr" => target.peer = Some(value.to_vec()),
                b"laddr" => target.local = Some(value.to_vec()),
                b"user" => {
                    target.user = Some(acl.find(value).ok_or_else(|| {
                        let name = printable(value, 128);
                        Error::reply(format!("ERR No such user '{name}'"))
                    })?);
                }
                b"skipme" if is(value, "yes") => target.spares_caller = true,
                b"skipme" if is(value, "no") => target.spares_caller = false,
                _ => return Err(Error::SYNTAX),
            }
        }
        Ok(target)
    }

    fn is_met_by(&self, client: &Client) -> bool {
        let is = |wanted: &Option<Vec<u8>>, address: &Endpoint| {
            let address = address.to_string();
            wanted
                .as_ref()
                .is_none_or(|wanted| wanted == address.as_bytes())
        };
        self.id.is_none_or(|id| id == client.id)
            && self.kind.is_none_or(|kind| kind == ClientType::of(client))
            && self.user.as_ref().is_none_or(|user| client.is_user(user))
            && is(&self.peer, &client.peer)
            && is(&self.local, &client.local)
    }
}

fn kill(session: &mut Session, args: &Args) -> Result<Reply> {
    let (target, by_address) = match args.rest(2) {
        [address] => {
            let peer = Some(address.to_vec());
            (
                Target {
                    peer,
                    ..Target::default()
                },
                true,
            )
        }
        _ => (Target::read(args, &session.server.acl)?, false),
    };
    let mut killed = 0;
    for client in session.server.clients.all() {
        let is_caller = client.id == session.client.id;
        if !target.is_met_by(&client) || is_caller && target.spares_caller {
            continue;
        }
        if is_caller {
            session.closes = true;
        } else {
            client.kill();
        }
        killed += 1;
    }
    match (by_address, killed) {
        (true, 0) => Err(Error::fixed("ERR No such client")),
        (true, _) => Ok(Reply::Ok),
        (false, _) => Ok(Reply::Int(killed)),
    }
}

fn no_evict(session: &mut Session, args: &Args) -> Result<Reply> {
    let keep = on_or_off(args[2])?;
    session.client.no_evict.store(keep, Ordering::Relaxed);
    Ok(Reply::Ok)
}

fn no_touch(session: &mut Session, args: &Args) -> Result<Reply> {
    let is_quiet = on_or_off(args[2])?;
    session.client.no_touch.store(is_quiet, Ordering::Relaxed);
    Ok(Reply::Ok)
}

fn on_or_off(word: &[u8]) -> Result<bool> {
    match word.to_ascii_lowercase().as_slice() {
        b"on" => Ok(true),
        b"off" => Ok(false),
        _ => Err(Error::SYNTAX),
    }
}

fn reply(session: &mut Session, args: &Args) -> Result<Reply> {
    session.replies = match args[2].to_ascii_lowercase().as_slice() {
        b"on" => Replies::On,
        b"off" => Replies::Off,
        // Whoever gets no replies at all does not miss the next one.
        b"skip" if session.replies == Replies::Off => Replies::Off,
        b"skip" => Replies::SkipThis,
        _ => return Err(Error::SYNTAX),
    };
    Ok(Reply::Ok)
}

fn pause(session: &mut Session, args: &Args) -> Result<Reply> {
    let mode = match args.rest(3) {
        [] => Mode::Everything,
        [mode] if is(mode, "all") => Mode::Everything,
        [mode] if is(mode, "write") => Mode::Writes,
        [_] => return Err(Error::fixed("ERR CLIENT PAUSE mode must be WRITE or ALL")),
        _ => return Err(wrong_subcommand(args)),
    };
    let unreadable = Error::fixed("ERR timeout is not an integer or out of range");
    let milliseconds = number::parse_i64(args[2]).ok_or(unreadable)?;
    let milliseconds =
        u64::try_from(milliseconds).map_err(|_| Error::fixed("ERR timeout is negative"))?;
    let until = Instant::now().checked_add(Duration::from_millis(milliseconds));
    let until = until.ok_or(Error::fixed("ERR timeout is out of range"))?;
    let server = &session.server;
    server.pause.start(mode, until);
    // Neither a command nor the passing of time may change anything meanwhile.
    server.store.expirer().rest_until(server.pause.until());
    Ok(Reply::Ok)
}

fn unpause(server: &Server, _: &Args) -> Result<Reply> {
    server.pause.end();
    server.store.expirer().rest_until(None);
    // What has become due meanwhile goes now, so that nobody sees less than what Redis does when it is asked for it. If
    // that fails, the expirer fails as well, and tells why.
    let _ = server.store.expire_some(server.settings.expire_batch);
    Ok(Reply::Ok)
}

fn unblock(session: &mut Session, args: &Args) -> Result<Reply> {
    let with_error = match args.rest(3) {
        [] => false,
        [reason] if is(reason, "timeout") => false,
        [reason] if is(reason, "error") => true,
        [_] => {
            return Err(Error::fixed(
                "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR",
            ));
        }
        _ => return Err(wrong_subcommand(args)),
    };
    let id = u64::try_from(args.int(2)?).unwrap_or_default();
    let unblock = Unblock { with_error };
    let was_blocked = session.server.blocked.unblock(id, unblock);
    Ok(Reply::Int(was_blocked.into()))
}
