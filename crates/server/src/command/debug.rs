//! DEBUG: for tests and for those who want to look inside. Nothing here can harm the data.

mod protocol;
mod rdb;

use std::time::Duration;

use cairn_resp::{Reply, number};
use cairn_store::inspect::{Detail, Presence, inspect};
use cairn_store::{Error, ReadTxn, Result, Shape};

use super::args::{Args, is};
use super::flags::Flag::{Admin, Debugging, Loading, NoScript, Stale};
use super::introspection::{bytes_of, encoding_of};
use super::keys::{Access, KeySpec, Keys};
use super::{Command, Flag, Handler, command, help, printable};
use crate::server::{Server, unix_seconds};
use crate::session::Session;

const GROUP: &str = "server";
const FLAGS: &[Flag] = &[Admin, NoScript, Loading, Stale, Debugging];

pub const COMMANDS: &[Command] = &[command("debug", -2, Handler::Container)
    .flags(FLAGS)
    .hidden_subcommands(SUBCOMMANDS)
    .about(
        GROUP,
        "1.0.0",
        "Depends on the subcommand",
        "Looks inside the server.",
    )];

const SUBCOMMANDS: &[Command] = &[
    command("block-reads", 2, Handler::Session(block_reads))
        .flags(FLAGS)
        .about(
            GROUP,
            "1.0.0",
            "O(1)",
            "Tells how many blocks were read from files for this connection and those on its thread.",
        ),
    command("compact", 2, Handler::Admin(compact))
        .flags(FLAGS)
        .about(
            GROUP,
            "1.0.0",
            "O(N) for all rows",
            "Compacts the database, and drops what is dead.",
        ),
    command("change-repl-id", 2, Handler::Session(change_nothing))
        .flags(FLAGS)
        .about(
            GROUP,
            "1.0.0",
            "O(1)",
            "Changes nothing: there are no replicas to notice.",
        ),
    command("error", 3, Handler::Session(protocol::error))
        .flags(FLAGS)
        .usage("<message>")
        .about(GROUP, "1.0.0", "O(1)", "Returns an error that reads so."),
    command("loadaof", 2, Handler::Admin(reload))
        .flags(FLAGS)
        .about(
            GROUP,
            "1.0.0",
            "O(N) for recent changes",
            "Writes everything out to the disk.",
        ),
    command("log", 3, Handler::Session(log))
        .flags(FLAGS)
        .usage("<message>")
        .about(GROUP, "1.0.0", "O(1)", "Writes a message to the log."),
    command("object", 3, Handler::Read(object))
        .looks_on()
        .flags(FLAGS)
        .keys(Keys(&[KeySpec::at(2, Access::PEEK)]))
        .usage("<key>")
        .about(GROUP, "1.0.0", "O(1)", "Tells about the value of a key."),
    command("protocol", 3, Handler::Session(protocol::protocol))
        .flags(FLAGS)
        .usage(
            "(string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false)",
        )
        .about(GROUP, "1.0.0", "O(1)", "Returns a reply of this kind."),
    command("rdb-load", 3, Handler::Admin(rdb::load))
        .flags(FLAGS)
        .usage("<name>")
        .about(
            GROUP,
            "1.0.0",
            "O(N) for N elements",
            "Adds the keys of an RDB file in the directory of the database, and replaces all functions.",
        ),
    command("rdb-save", -3, Handler::Admin(rdb::save))
        .flags(FLAGS)
        .usage("<name> [VERSION (10|12)]")
        .about(
            GROUP,
            "1.0.0",
            "O(N) for all elements",
            "Writes all keys, as they are now, to a new RDB file in the directory of the database.",
        ),
    command("reload", -2, Handler::Admin(reload))
        .flags(FLAGS)
        .usage("[NOSAVE] [NOFLUSH] [MERGE]")
        .about(
            GROUP,
            "1.0.0",
            "O(N) for recent changes",
            "Writes everything out to the disk.",
        ),
    command("rows", -3, Handler::Read(rows))
        .looks_on()
        .flags(FLAGS)
        .keys(Keys(&[KeySpec::at(2, Access::READ)]))
        .usage("<key> [LIMIT <count>] [HEX]")
        .about(
            GROUP,
            "1.0.0",
            "O(N) for N rows",
            "Shows the rows that a key is made of.",
        ),
    command("set-active-expire", 3, Handler::Session(set_active_expire))
        .flags(FLAGS)
        .usage("(0|1)")
        .about(
            GROUP,
            "1.0.0",
            "O(1)",
            "Stops or starts deleting keys that have expired.",
        ),
    command("sleep", 3, Handler::Session(sleep))
        .flags(FLAGS)
        .usage("<seconds>")
        .about(GROUP, "1.0.0", "O(1)", "Lets this connection wait."),
    command("help", 2, Handler::Session(help))
        .flags(FLAGS)
        .about(GROUP, "1.0.0", "O(1)", "Prints this help."),
];

fn block_reads(_: &mut Session, _: &Args) -> Result<Reply> {
    Ok(Reply::Int(cairn_engine::block_reads() as i64))
}

fn compact(server: &Server, _: &Args) -> Result<Reply> {
    server.store.engine().compact()?;
    Ok(Reply::Ok)
}

fn log(session: &mut Session, args: &Args) -> Result<Reply> {
    let message = printable(args[2], 1024);
    tracing::warn!("{}: {message}", session.client.peer);
    Ok(Reply::Ok)
}

fn object(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let key = txn.key(args[2]);
    let found = txn.peek(&key)?.ok_or(Error::NO_SUCH_KEY)?;
    let encoding = encoding_of(txn, &key, &found)?;
    let length = bytes_of(txn, &key, &found, 5)?;
    // Values have no address; the version is what tells two of them apart.
    let address = found.version().unwrap_or(0);
    let clock = unix_seconds() & 0xff_ffff;
    let mut line = format!(
        "Value at:0x{address:x} refcount:1 encoding:{encoding} serializedlength:{length} \
         lru:{clock} lru_seconds_idle:0"
    );
    if let Shape::List { size, .. } = found.shape {
        line.push_str(&format!(
            " ql_nodes:1 ql_avg_node:{size}.00 ql_listpack_max:-2 ql_compressed:0 \
             ql_uncompressed_size:{length}"
        ));
    }
    Ok(Reply::Status(line.into_bytes()))
}

fn reload(server: &Server, args: &Args) -> Result<Reply> {
    let is_known = |option: &&[u8]| {
        ["nosave", "noflush", "merge"]
            .iter()
            .any(|word| is(option, word))
    };
    if !args.rest(2).iter().all(is_known) {
        return Err(Error::fixed(
            "ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.",
        ));
    }
    server.save()?;
    Ok(Reply::Ok)
}

fn rows(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let mut detail = Detail {
        limit: 100,
        hex: false,
    };
    let mut options = args.options(3);
    while !options.is_empty() {
        if options.take("limit") {
            let limit = super::args::int(options.value()?)?;
            detail.limit = usize::try_from(limit).map_err(|_| Error::NOT_INTEGER)?;
        } else if options.take("hex") {
            detail.hex = true;
        } else {
            return Err(Error::SYNTAX);
        }
    }
    let inspection = inspect(txn, args[2], detail)?;
    if inspection.presence == Presence::Absent {
        return Err(Error::NO_SUCH_KEY);
    }
    Ok(inspection
        .lines
        .into_iter()
        .map(String::into_bytes)
        .collect())
}

fn change_nothing(_: &mut Session, _: &Args) -> Result<Reply> {
    Ok(Reply::Ok)
}

fn set_active_expire(session: &mut Session, args: &Args) -> Result<Reply> {
    let is_active = number::parse_i64(args[2]).is_some_and(|number| number != 0);
    session.server.store.expirer().pause(!is_active);
    Ok(Reply::Ok)
}

fn sleep(session: &mut Session, args: &Args) -> Result<Reply> {
    let seconds = number::parse_f64(args[2]).unwrap_or(0.0);
    session.sleeps = Duration::try_from_secs_f64(seconds).ok();
    Ok(Reply::Ok)
}
