//! ACL: users and their rules.

use std::sync::Arc;

use cairn_resp::{Reply, number};
use cairn_store::{Error, Result};

use super::args::{Args, is};
use super::flags::Flag::{Admin, Loading, NoScript, Stale};
use super::{
    Command, Flag, Handler, command, every, help, lookup, printable, quotable, wrong_arity,
    wrong_subcommand,
};
use crate::acl::{self, Category, Denial, Entry, Reason, Selector, User};
use crate::pubsub::Kind;
use crate::server::Server;
use crate::session::Session;

const GROUP: &str = "server";
const PLAIN: &[Flag] = &[NoScript, Loading, Stale];
const ADMINS: &[Flag] = &[Admin, NoScript, Loading, Stale];

pub const COMMANDS: &[Command] = &[command("acl", -2, Handler::Container)
    .subcommands(SUBCOMMANDS)
    .about(
        GROUP,
        "6.0.0",
        "Depends on the subcommand",
        "Tells who the users are and what they may do, and changes it.",
    )];

const SUBCOMMANDS: &[Command] = &[
    command("cat", -2, Handler::Session(cat))
        .flags(PLAIN)
        .usage("[<category>]")
        .syntax("categoryname?")
        .about(
            GROUP,
            "6.0.0",
            "O(N) for N commands",
            "Lists the categories, or the commands of one.",
        ),
    command("deluser", -3, Handler::Session(deluser))
        .flags(ADMINS)
        .usage("<username> [<username> ...]")
        .syntax("username+")
        .about(
            GROUP,
            "6.0.0",
            "O(N) for N connections",
            "Deletes users, and closes their connections.",
        ),
    command("dryrun", -4, Handler::Session(dryrun))
        .flags(ADMINS)
        .usage("<username> <command> [<arg> ...]")
        .syntax("username command arg?+")
        .about(
            GROUP,
            "7.0.0",
            "O(1)",
            "Tells whether a user may run a command, and does not run it.",
        ),
    command("genpass", -2, Handler::Session(genpass))
        .flags(PLAIN)
        .usage("[<bits>]")
        .syntax("bits:i?")
        .about(
            GROUP,
            "6.0.0",
            "O(1)",
            "Makes up a password that nobody can guess.",
        ),
    command("getuser", 3, Handler::Session(getuser))
        .flags(ADMINS)
        .usage("<username>")
        .syntax("username")
        .about(
            GROUP,
            "6.0.0",
            "O(N) for N rules",
            "Returns the rules of a user.",
        ),
    command("list", 2, Handler::Session(list))
        .flags(ADMINS)
        .about(
            GROUP,
            "6.0.0",
            "O(N) for N users",
            "Lists the users as the ACL file has them.",
        ),
    command("load", 2, Handler::Session(load))
        .flags(ADMINS)
        .about(
            GROUP,
            "6.0.0",
            "O(N) for N users",
            "Replaces all users by those of the ACL file.",
        ),
    command("log", -2, Handler::Session(log))
        .flags(ADMINS)
        .usage("[<count> | RESET]")
        .syntax("operation(count:i|RESET!)?")
        .about(
            GROUP,
            "6.0.0",
            "O(N) for N entries",
            "Lists what was not permitted lately, or forgets it.",
        ),
    command("save", 2, Handler::Admin(save))
        .flags(ADMINS)
        .about(
            GROUP,
            "6.0.0",
            "O(N) for N users",
            "Writes all users into the ACL file.",
        ),
    command("setuser", -3, Handler::Session(setuser))
        .flags(ADMINS)
        .usage("<username> <rule> [<rule> ...]")
        .syntax("username rule?+")
        .about(
            GROUP,
            "6.0.0",
            "O(N) for N rules",
            "Makes or changes a user by all of the rules, or by none.",
        ),
    command("users", 2, Handler::Session(users))
        .flags(ADMINS)
        .about(
            GROUP,
            "6.0.0",
            "O(N) for N users",
            "Lists the names of the users.",
        ),
    command("whoami", 2, Handler::Session(whoami))
        .flags(PLAIN)
        .about(
            GROUP,
            "6.0.0",
            "O(1)",
            "Returns the user that the connection is.",
        ),
    command("help", 2, Handler::Session(help))
        .flags(&[Loading, Stale])
        .about(GROUP, "6.0.0", "O(1)", "Prints this help."),
];

fn cat(_: &mut Session, args: &Args) -> Result<Reply> {
    let name = match *args.rest(2) {
        [] => return Ok(Category::all().map(Category::name).collect()),
        [name] => name,
        _ => return Err(wrong_subcommand(args)),
    };
    let category = Category::named(name).ok_or_else(|| {
        let name = printable(name, 128);
        Error::reply(format!("ERR Unknown category '{name}'"))
    })?;
    let commands = every().filter(|command| category.has(command));
    Ok(commands.map(|command| command.full_name).collect())
}

fn setuser(session: &mut Session, args: &Args) -> Result<Reply> {
    if acl::has_space(args[2]) {
        return Err(Error::fixed(
            "ERR Usernames can't contain spaces or null characters",
        ));
    }
    let server = session.server.clone();
    let changed = server.acl.set(args[2], args.rest(3));
    let changed = changed.map_err(|text| Error::reply([b"ERR ", &text[..]].concat()))?;
    if changed.has_lost_channels {
        end_subscriptions(&server, &changed.user);
    }
    Ok(Reply::Ok)
}

/// Closes the clients of a user that listen to what the user may not listen to any more.
fn end_subscriptions(server: &Server, user: &Arc<User>) {
    for kind in [Kind::Channel, Kind::Pattern, Kind::Shard] {
        let is_pattern = kind == Kind::Pattern;
        let listeners = server.pubsub.listeners(kind, |client, name| {
            client.is_user(user) && !user.may_listen_to(name, is_pattern)
        });
        listeners.iter().for_each(|client| client.kill());
    }
}

/// Closes the clients of users that are gone. The caller gets its reply before.
fn close_clients(session: &mut Session, gone: &[Arc<User>]) {
    for client in session.server.clients.all() {
        if !gone.iter().any(|user| client.is_user(user)) {
            continue;
        }
        if client.id == session.client.id {
            session.closes = true;
        } else {
            client.kill();
        }
    }
}

fn deluser(session: &mut Session, args: &Args) -> Result<Reply> {
    let names = args.rest(2);
    if names.contains(&acl::DEFAULT) {
        return Err(Error::fixed("ERR The 'default' user cannot be removed"));
    }
    let deleted = session.server.acl.delete(names);
    close_clients(session, &deleted);
    Ok(deleted.len().into())
}

fn getuser(session: &mut Session, args: &Args) -> Result<Reply> {
    let Some(user) = session.server.acl.find(args[2]) else {
        return Ok(Reply::Null);
    };
    let rules = user.rules();
    let flags = rules.flags().into_iter().map(Reply::from).collect();
    let passwords = rules.passwords().iter();
    let mut fields = vec![
        ("flags".into(), Reply::Set(flags)),
        (
            "passwords".into(),
            passwords.map(|hash| hash.show().into_bytes()).collect(),
        ),
    ];
    fields.extend(describe(rules.root()));
    let selectors = rules.others().iter();
    let selectors = selectors.map(|selector| Reply::Map(describe(selector)));
    fields.push(("selectors".into(), selectors.collect()));
    Ok(Reply::Map(fields))
}

fn describe(selector: &Selector) -> Vec<(Reply, Reply)> {
    vec![
        ("commands".into(), selector.commands.describe().into()),
        ("keys".into(), selector.describe_keys().into()),
        ("channels".into(), selector.describe_channels().into()),
    ]
}

fn list(session: &mut Session, _: &Args) -> Result<Reply> {
    let lines = session.server.acl.describe().into_iter();
    Ok(lines.map(Reply::bulk).collect())
}

fn users(session: &mut Session, _: &Args) -> Result<Reply> {
    let users = session.server.acl.all().into_iter();
    Ok(users.map(|user| Reply::bulk(&user.name[..])).collect())
}

fn whoami(session: &mut Session, _: &Args) -> Result<Reply> {
    Ok(Reply::bulk(&session.user().name[..]))
}

fn genpass(_: &mut Session, args: &Args) -> Result<Reply> {
    let bits = match *args.rest(2) {
        [] => 256,
        [bits] => number::parse_i64(bits).ok_or(Error::NOT_INTEGER)?,
        _ => return Err(wrong_subcommand(args)),
    };
    if !(1..=4096).contains(&bits) {
        return Err(Error::fixed(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a \
             positive number up to 4096",
        ));
    }
    let password = acl::generate((bits as usize).div_ceil(4));
    let password = password.ok_or(Error::fixed("ERR the system has no randomness to give"))?;
    Ok(Reply::bulk(password))
}

fn log(session: &mut Session, args: &Args) -> Result<Reply> {
    let log = &session.server.acl.log;
    let count = match *args.rest(2) {
        [] => 10,
        [word] if is(word, "reset") => {
            log.clear();
            return Ok(Reply::Ok);
        }
        [count] => number::parse_i64(count).ok_or(Error::NOT_INTEGER)?,
        _ => return Err(wrong_subcommand(args)),
    };
    let entries = log.latest(usize::try_from(count).unwrap_or(0)).into_iter();
    Ok(entries.map(show_entry).collect())
}

fn show_entry(entry: Entry) -> Reply {
    let age = entry.at.elapsed().as_millis() as f64 / 1000.0;
    Reply::Map(vec![
        ("count".into(), Reply::Int(entry.count as i64)),
        ("reason".into(), entry.reason.name().into()),
        ("context".into(), entry.context.name().into()),
        ("object".into(), entry.object.into()),
        ("username".into(), entry.user.into()),
        ("age-seconds".into(), Reply::Double(age)),
        ("client-info".into(), entry.client.into()),
    ])
}

fn dryrun(session: &mut Session, args: &Args) -> Result<Reply> {
    let not_found = |what: &str, name: &[u8]| {
        let name = printable(name, usize::MAX);
        Error::reply(format!("ERR {what} '{name}' not found"))
    };
    let user = session.server.acl.find(args[2]);
    let user = user.ok_or_else(|| not_found("User", args[2]))?;
    let call = Args::new(args.rest(3));
    let command = lookup(&call).ok_or_else(|| not_found("Command", call[0]))?;
    if !command.accepts(call.len()) {
        return Err(wrong_arity(command.full_name));
    }
    match user.check(command, &call) {
        Err(denial) if denial.reason != Reason::Unnamed => {
            Ok(Reply::bulk(explain(&denial, command, &call)))
        }
        _ => Ok(Reply::Ok),
    }
}

fn explain(denial: &Denial, command: &Command, call: &Args) -> Vec<u8> {
    let (verb, noun): (&[u8], &[u8]) = match denial.reason {
        Reason::Command => (b"run", b"command"),
        Reason::Channel => (b"access", b"channel"),
        _ => (b"access", b"key"),
    };
    let object = quotable(denial.object(command, call), usize::MAX);
    let beginning: &[u8] = b"This user has no permissions to ";
    [beginning, verb, b" the '", object, b"' ", noun].concat()
}

const NO_FILE: Error = Error::fixed(
    "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via \
     the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration \
     file set) in order to store users in the Redis configuration.",
);

fn load(session: &mut Session, _: &Args) -> Result<Reply> {
    let server = session.server.clone();
    let path = server.settings.acl_file().ok_or(NO_FILE)?;
    let loaded = server.acl.load(&path, &server.config.text("aclfile"));
    let gone = loaded.map_err(|errors| Error::reply(format!("ERR {errors}")))?;
    close_clients(session, &gone);
    Ok(Reply::Ok)
}

fn save(server: &Server, _: &Args) -> Result<Reply> {
    let path = server.settings.acl_file().ok_or(NO_FILE)?;
    server.acl.save(&path).map_err(|error| {
        tracing::warn!("cannot write {}: {error}", path.display());
        Error::fixed(
            "ERR There was an error trying to save the ACLs. Please check the server logs for more \
             information",
        )
    })?;
    Ok(Reply::Ok)
}
