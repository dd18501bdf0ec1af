//! CONFIG: parameters, while the server runs.

use cairn_engine::Memory;
use cairn_resp::Reply;
use cairn_store::{Error, Result};

use super::args::Args;
use super::flags::Flag::{Admin, Loading, NoScript, Stale};
use super::{Command, Flag, Handler, command, help, printable};
use crate::config::SetError;
use crate::server::Server;
use crate::session::Session;
use crate::shortage;

const GROUP: &str = "server";
const ADMINS: &[Flag] = &[Admin, NoScript, Loading, Stale];

pub const COMMANDS: &[Command] = &[command("config", -2, Handler::Container)
    .subcommands(SUBCOMMANDS)
    .about(
        GROUP,
        "2.0.0",
        "Depends on the subcommand",
        "Reads and changes the configuration.",
    )];

const SUBCOMMANDS: &[Command] = &[
    command("get", -3, Handler::Session(get))
        .flags(ADMINS)
        .usage("<pattern> [<pattern> ...]")
        .syntax("parameter{parameter}+")
        .about(
            GROUP,
            "2.0.0",
            "O(N) for N parameters",
            "Returns the parameters that match a pattern.",
        ),
    command("resetstat", 2, Handler::Session(resetstat))
        .flags(ADMINS)
        .about(
            GROUP,
            "2.0.0",
            "O(1)",
            "Sets the counters that INFO shows to zero.",
        ),
    command("rewrite", 2, Handler::Admin(rewrite))
        .flags(ADMINS)
        .about(
            GROUP,
            "2.8.0",
            "O(N) for N parameters",
            "Writes what is set now into the configuration file.",
        ),
    command("set", -4, Handler::Admin(set))
        .flags(ADMINS)
        .usage("<parameter> <value> [<parameter> <value> ...]")
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .syntax("parameter_value{parameter value}+")
        .about(
            GROUP,
            "2.0.0",
            "O(N) for N parameters",
            "Sets all of the parameters, or none.",
        ),
    command("help", 2, Handler::Session(help))
        .flags(&[Loading, Stale])
        .about(GROUP, "5.0.0", "O(1)", "Prints this help."),
];

fn get(session: &mut Session, args: &Args) -> Result<Reply> {
    let found = session.server.config.matching(args.rest(2));
    let pairs = found
        .into_iter()
        .map(|(name, value)| (name.into(), value.into()));
    Ok(Reply::Map(pairs.collect()))
}

/// To listen elsewhere takes a while.
fn set(server: &Server, args: &Args) -> Result<Reply> {
    let words = args.rest(2);
    if !words.len().is_multiple_of(2) {
        return Err(Error::SYNTAX);
    }
    let pairs: Vec<(&[u8], &[u8])> = words
        .chunks_exact(2)
        .map(|pair| (pair[0], pair[1]))
        .collect();
    let relisten = |address| server.moves.ask(address);
    match server.config.set(&pairs, &server.live, relisten) {
        Ok(()) => {
            shortage::look(server);
            Ok(Reply::Ok)
        }
        Err(SetError::Unknown(name)) => Err(Error::reply(format!(
            "ERR Unknown option or number of arguments for CONFIG SET - '{}'",
            printable(&name, 128)
        ))),
        Err(SetError::Refused(name, reason)) => Err(Error::reply(format!(
            "ERR CONFIG SET failed (possibly related to argument '{}') - {reason}",
            printable(&name, 128)
        ))),
    }
}

fn resetstat(session: &mut Session, _: &Args) -> Result<Reply> {
    let server = &session.server;
    let expirer = server.store.expirer();
    let expired = (expirer.expired_keys(), expirer.expired_fields());
    server.stats.reset(expired, Memory::now().allocated);
    server.acl.reset_counters();
    server.room.reset_figures(server);
    Ok(Reply::Ok)
}

fn rewrite(server: &Server, _: &Args) -> Result<Reply> {
    let rewritten = server.config.rewrite(&server.acl);
    rewritten.map_err(|reason| Error::reply(format!("ERR {reason}")))?;
    Ok(Reply::Ok)
}
