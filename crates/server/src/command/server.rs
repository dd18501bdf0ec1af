//! Commands on the server as a whole.

mod lolwut;

use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use cairn_resp::Reply;
use cairn_store::{Error, Result};

use super::args::{Args, is};
use super::flags::Flag::{
    Admin, Administrative, AllowBusy, Dangerous, Fast, Loading, NoAsyncLoading, NoMulti, NoScript,
    ReadOnly, Stale,
};
use super::{Command, Handler, command};
use crate::info;
use crate::server::Server;
use crate::session::{Replies, Session};
use crate::upstream::Stage;

const GROUP: &str = "server";

pub const COMMANDS: &[Command] = &[
    command("info", -1, Handler::Admin(info))
        .flags(&[Loading, Stale, Dangerous])
        .tips(&[
            "nondeterministic_output",
            "request_policy:all_shards",
            "response_policy:special",
        ])
        .syntax("section?+")
        .about(
            GROUP,
            "1.0.0",
            "O(1)",
            "Returns figures about the server, by section.",
        ),
    command("time", 1, Handler::Session(time))
        .flags(&[Loading, Stale, Fast])
        .tips(&["nondeterministic_output"])
        .about(GROUP, "2.6.0", "O(1)", "Returns the time of the server."),
    command("shutdown", -1, Handler::Session(shutdown))
        .flags(&[Admin, NoScript, Loading, Stale, NoMulti, AllowBusy])
        .syntax("nosave_save(NOSAVE!|SAVE!)? NOW!? FORCE!? ABORT!?")
        .about(
            GROUP,
            "1.0.0",
            "O(N) for recent changes",
            "Writes everything out, and stops.",
        ),
    command("lolwut", -1, Handler::Session(lolwut))
        .flags(&[ReadOnly, Fast])
        .syntax("VERSION/version:i?")
        .about(GROUP, "5.0.0", "O(1)", "Draws a pile of stones."),
    command("lastsave", 1, Handler::Session(lastsave))
        .flags(&[Loading, Stale, Fast, Administrative])
        .tips(&["nondeterministic_output"])
        .about(
            GROUP,
            "1.0.0",
            "O(1)",
            "Returns when everything was last written out.",
        ),
    command("save", 1, Handler::Admin(save))
        .flags(&[Admin, NoScript, NoAsyncLoading, NoMulti])
        .about(
            GROUP,
            "1.0.0",
            "O(N) for recent changes",
            "Writes everything out.",
        ),
    command("bgsave", -1, Handler::Admin(bgsave))
        .flags(&[Admin, NoScript, NoAsyncLoading])
        .syntax("SCHEDULE!?")
        .about(
            GROUP,
            "1.0.0",
            "O(N) for recent changes",
            "Writes everything out.",
        ),
    command("bgrewriteaof", 1, Handler::Admin(bgrewriteaof))
        .flags(&[Admin, NoScript, NoAsyncLoading])
        .about(
            GROUP,
            "1.0.0",
            "O(N) for recent changes",
            "Writes everything out, so that the journal may begin anew.",
        ),
    command("role", 1, Handler::Session(role))
        .flags(&[NoScript, Loading, Stale, Fast, Administrative])
        .about(
            GROUP,
            "2.8.12",
            "O(1)",
            "Returns the part that the server has in replication.",
        ),
];

fn info(server: &Server, args: &Args) -> Result<Reply> {
    let text = info::report(server, args.rest(1))?;
    Ok(Reply::Verbatim("txt", text.into_bytes()))
}

fn time(_: &mut Session, _: &Args) -> Result<Reply> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let parts = [now.as_secs().to_string(), now.subsec_micros().to_string()];
    Ok(parts.into_iter().map(String::into_bytes).collect())
}

/// Everything is written out however the server stops, so the options make hardly a difference; and stopping
/// waits for nobody, so there is never a shutdown to abort.
fn shutdown(session: &mut Session, args: &Args) -> Result<Reply> {
    let (mut saves, mut saves_not, mut aborts) = (false, false, false);
    for option in args.rest(1) {
        match option.to_ascii_lowercase().as_slice() {
            b"save" => saves = true,
            b"nosave" => saves_not = true,
            b"abort" => aborts = true,
            b"now" | b"force" => {}
            _ => return Err(Error::SYNTAX),
        }
    }
    if saves && saves_not || aborts && args.len() > 2 {
        return Err(Error::SYNTAX);
    }
    if aborts {
        return Err(Error::fixed("ERR No shutdown in progress."));
    }
    // Not to save is to give up what a script has done so far.
    if !saves_not && session.server.scripts.running.is_busy() {
        session.server.scripts.running.check_busy()?;
    }
    tracing::warn!("{}: asked to shut down", session.client.peer);
    session.server.stop();
    session.replies = Replies::Off;
    session.closes = true;
    Ok(Reply::Ok)
}

fn lolwut(_: &mut Session, args: &Args) -> Result<Reply> {
    if args.len() >= 3 && is(args[1], "version") {
        // How large the drawings of these versions are to be.
        let sizes = match args.int(2)? {
            5 => 3,
            6 => 2,
            _ => 0,
        };
        (3..args.len().min(3 + sizes)).try_for_each(|at| args.int(at).map(drop))?;
    }
    let mut text = lolwut::draw(&mut fastrand::Rng::new());
    text.push_str(&format!(
        "\nCairn {}, in the manner of Redis ver. {}\n",
        info::CAIRN_VERSION,
        info::REDIS_VERSION
    ));
    Ok(Reply::Verbatim("txt", text.into_bytes()))
}

fn lastsave(session: &mut Session, _: &Args) -> Result<Reply> {
    Ok(session.server.last_save.load(Ordering::Relaxed).into())
}

fn save(server: &Server, _: &Args) -> Result<Reply> {
    server.save()?;
    Ok(Reply::Ok)
}

/// Nothing is held up by it, so it need not be done behind anyone's back.
fn bgsave(server: &Server, args: &Args) -> Result<Reply> {
    match args.rest(1) {
        [] => {}
        [option] if is(option, "schedule") => {}
        _ => return Err(Error::SYNTAX),
    }
    server.save()?;
    Ok(Reply::Simple("Background saving started"))
}

/// The journal is what Redis' append only file is, and lets go of what has been written out.
fn bgrewriteaof(server: &Server, _: &Args) -> Result<Reply> {
    server.save()?;
    Ok(Reply::Simple(
        "Background append only file rewriting started",
    ))
}

fn role(session: &mut Session, _: &Args) -> Result<Reply> {
    if let Some(upstream) = session.server.upstream.overview() {
        let applied = match upstream.stage {
            Stage::Connected => upstream.applied as i64,
            _ => -1,
        };
        return Ok(Reply::Array(vec![
            "slave".into(),
            Reply::bulk(upstream.master.host),
            Reply::Int(upstream.master.port.into()),
            upstream.stage.name().into(),
            Reply::Int(applied),
        ]));
    }
    let overview = session.server.replication.overview();
    let followers = overview.followers.iter().filter(|it| it.is_online());
    let followers = followers.map(|follower| {
        let (address, port) = follower.address();
        let words = [
            address,
            port.to_string(),
            follower.acknowledged().to_string(),
        ];
        words.into_iter().map(String::into_bytes).collect()
    });
    Ok(Reply::Array(vec![
        "master".into(),
        overview.offset.into(),
        Reply::Array(followers.collect()),
    ]))
}
