//! Commands on the connection itself: greeting, identity, database.

use cairn_resp::{Protocol, Reply, number};
use cairn_store::{Error, Result};

use super::args::{Args, int32, is};
use super::flags::Flag::{AllowBusy, Connection, Fast, Loading, NoAuth, NoScript, Stale};
use super::{Command, Flag, Handler, command};
use crate::info::REDIS_VERSION;
use crate::session::Session;

const GROUP: &str = "connection";
const BEFORE_AUTH: &[Flag] = &[
    NoScript, Loading, Stale, Fast, NoAuth, AllowBusy, Connection,
];

pub const COMMANDS: &[Command] = &[
    command("ping", -1, Handler::Session(ping))
        .flags(&[Fast, Connection])
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .syntax("message?")
        .about(
            GROUP,
            "1.0.0",
            "O(1)",
            "Answers, to show that the server is there.",
        ),
    command("echo", 2, Handler::Session(echo))
        .flags(&[Loading, Stale, Fast, Connection])
        .syntax("message")
        .about(GROUP, "1.0.0", "O(1)", "Returns its argument."),
    command("hello", -1, Handler::Session(hello))
        .irrevocable()
        .flags(BEFORE_AUTH)
        .syntax(
            "arguments{protover:i AUTH/username_password{username password}? SETNAME/clientname?}?",
        )
        .about(
            GROUP,
            "6.0.0",
            "O(1)",
            "Greets the server and chooses a version of the protocol.",
        ),
    command("auth", -2, Handler::Session(auth))
        .irrevocable()
        .flags(BEFORE_AUTH)
        .syntax("username? password")
        .about(
            GROUP,
            "1.0.0",
            "O(1)",
            "Says who the client is, and proves it.",
        ),
    command("quit", -1, Handler::Session(quit))
        .flags(BEFORE_AUTH)
        .about(GROUP, "1.0.0", "O(1)", "Closes the connection."),
    command("reset", 1, Handler::Session(reset))
        .flags(BEFORE_AUTH)
        .about(
            GROUP,
            "6.2.0",
            "O(1)",
            "Makes the connection as it was at first.",
        ),
    command("select", 2, Handler::Session(select))
        .flags(&[Loading, Stale, Fast, Connection])
        .syntax("index:i")
        .about(
            GROUP,
            "1.0.0",
            "O(1)",
            "Changes the database of the connection.",
        ),
];

fn ping(session: &mut Session, args: &Args) -> Result<Reply> {
    match args.rest(1) {
        [] if session.only_listens() => Ok(Reply::Array(vec!["pong".into(), "".into()])),
        [message] if session.only_listens() => {
            Ok(Reply::Array(vec!["pong".into(), Reply::bulk(*message)]))
        }
        [] => Ok(Reply::Simple("PONG")),
        [message] => Ok(Reply::bulk(*message)),
        _ => Err(super::wrong_arity("ping")),
    }
}

fn echo(_: &mut Session, args: &Args) -> Result<Reply> {
    Ok(Reply::bulk(args[1]))
}

const WRONG_PASSWORD: Error =
    Error::fixed("WRONGPASS invalid username-password pair or user is disabled.");

fn hello(session: &mut Session, args: &Args) -> Result<Reply> {
    let protocol = match args.get(1) {
        None => None,
        Some(version) => Some(protocol_of(version)?),
    };
    // Each option takes effect as it is read, whatever is wrong with the next.
    let mut options = args.options(2);
    while let Some(option) = options.next() {
        if is(option, "auth") && options.len() >= 2 {
            if !session.authenticate(options.value()?, options.value()?, args[0]) {
                return Err(WRONG_PASSWORD);
            }
        } else if is(option, "setname") && !options.is_empty() {
            let name = options.value()?;
            check_name(name)?;
            *session.client.name.lock() = name.to_vec();
        } else {
            let option = super::quotable(option, usize::MAX);
            let text = [b"ERR Syntax error in HELLO option '", option, b"'"];
            return Err(Error::reply(text.concat()));
        }
    }
    if session.must_authenticate() {
        return Err(Error::fixed(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO AUTH <user> <pass> option can be used to authenticate the client and select \
             the RESP protocol version at the same time",
        ));
    }
    if let Some(protocol) = protocol {
        session.speak(protocol);
    }
    Ok(greeting(session))
}

fn protocol_of(version: &[u8]) -> Result<Protocol> {
    match number::parse_i64(version) {
        Some(2) => Ok(Protocol::Resp2),
        Some(3) => Ok(Protocol::Resp3),
        Some(_) => Err(Error::fixed("NOPROTO unsupported protocol version")),
        None => Err(Error::fixed(
            "ERR Protocol version is not an integer or out of range",
        )),
    }
}

fn greeting(session: &Session) -> Reply {
    let version = match session.protocol {
        Protocol::Resp2 => 2,
        Protocol::Resp3 => 3,
    };
    let role = match session.server.upstream.is_any() {
        true => "replica",
        false => "master",
    };
    Reply::Map(vec![
        ("server".into(), "redis".into()),
        ("version".into(), REDIS_VERSION.into()),
        ("proto".into(), Reply::Int(version)),
        ("id".into(), session.client.id.into()),
        ("mode".into(), session.server.mode().into()),
        ("role".into(), role.into()),
        ("modules".into(), Reply::Array(Vec::new())),
    ])
}

/// A name must not break the lines of CLIENT LIST, nor the fields in them.
pub fn check_name(name: &[u8]) -> Result<()> {
    if name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        return Ok(());
    }
    Err(Error::fixed(
        "ERR Client names cannot contain spaces, newlines or special characters.",
    ))
}

fn auth(session: &mut Session, args: &Args) -> Result<Reply> {
    let (user, password): (&[u8], &[u8]) = match *args.rest(1) {
        [_] if session.server.acl.is_open() => {
            return Err(Error::fixed(
                "ERR AUTH <password> called without any password configured for the default \
                 user. Are you sure your configuration is correct?",
            ));
        }
        [password] => (b"default", password),
        [user, password] => (user, password),
        _ => return Err(Error::SYNTAX),
    };
    if session.authenticate(user, password, args[0]) {
        Ok(Reply::Ok)
    } else {
        Err(WRONG_PASSWORD)
    }
}

fn quit(session: &mut Session, _: &Args) -> Result<Reply> {
    session.closes = true;
    Ok(Reply::Ok)
}

fn reset(session: &mut Session, _: &Args) -> Result<Reply> {
    if session.following.is_some() {
        return Err(Error::fixed("ERR can only reset normal client connections"));
    }
    session.reset();
    Ok(Reply::Simple("RESET"))
}

fn select(session: &mut Session, args: &Args) -> Result<Reply> {
    let number = int32(args[1])?;
    let count = session.server.store.database_count();
    if number != 0 && session.server.settings.cluster_enabled {
        return Err(Error::fixed("ERR SELECT is not allowed in cluster mode"));
    }
    match u32::try_from(number) {
        Ok(number) if number < count => {
            session.select(number);
            Ok(Reply::Ok)
        }
        _ => Err(Error::fixed("ERR DB index is out of range")),
    }
}
