//! What shows how the server is doing: MONITOR, SLOWLOG, LATENCY; and WAIT.

use std::fmt::Write;
use std::time::{Duration, Instant};

use cairn_resp::{Reply, number};
use cairn_store::{Error, Result};

use super::args::Args;
use super::flags::Flag::{Admin, Connection, Loading, NoScript, Stale};
use super::{Command, Flag, Handler, all, command, help, printable};
use crate::server::Server;
use crate::session::{Awaited, Session};
use crate::slowlog::Entry;
use crate::spikes::History;
use crate::stats::Latency;

const GROUP: &str = "server";
const ADMINS: &[Flag] = &[Admin, Loading, Stale];
const HELP: &[Flag] = &[Loading, Stale];

pub const COMMANDS: &[Command] = &[
    command("monitor", 1, Handler::Session(monitor))
        .flags(&[Admin, NoScript, Loading, Stale])
        .about(GROUP, "1.0.0", "", "Shows every command as it runs."),
    command("slowlog", -2, Handler::Container)
        .subcommands(SLOWLOG)
        .about(
            GROUP,
            "2.2.12",
            "Depends on the subcommand",
            "Tells which commands took long.",
        ),
    command("latency", -2, Handler::Container)
        .subcommands(LATENCY)
        .about(
            GROUP,
            "2.8.13",
            "Depends on the subcommand",
            "Tells when things took long.",
        ),
    command("wait", 3, Handler::Session(wait))
        .flags(&[NoScript, Connection])
        .tips(&["request_policy:all_shards", "response_policy:agg_min"])
        .syntax("numreplicas:i timeout:i")
        .about(
            "generic",
            "3.0.0",
            "O(1)",
            "Waits until replicas have what this connection wrote. There are none but in a cluster.",
        ),
];

const SLOWLOG: &[Command] = &[
    command("get", -2, Handler::Session(slowlog_get))
        .flags(ADMINS)
        .tips(&["request_policy:all_nodes", "nondeterministic_output"])
        .usage("[<count>]")
        .syntax("count:i?")
        .about(
            GROUP,
            "2.2.12",
            "O(N) for N entries returned",
            "Returns the latest entries: ten, unless a number is given; -1 for all.",
        ),
    command("len", 2, Handler::Session(slowlog_len))
        .flags(ADMINS)
        .tips(&[
            "request_policy:all_nodes",
            "response_policy:agg_sum",
            "nondeterministic_output",
        ])
        .about(GROUP, "2.2.12", "O(1)", "Returns the number of entries."),
    command("reset", 2, Handler::Session(slowlog_reset))
        .flags(ADMINS)
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .about(
            GROUP,
            "2.2.12",
            "O(N) for N entries",
            "Removes all entries.",
        ),
    command("help", 2, Handler::Session(help))
        .flags(HELP)
        .about(GROUP, "6.2.0", "O(1)", "Prints this help."),
];

const LATENCY_FLAGS: &[Flag] = &[Admin, NoScript, Loading, Stale];

const LATENCY: &[Command] = &[
    command("doctor", 2, Handler::Session(doctor))
        .flags(LATENCY_FLAGS)
        .tips(&[
            "nondeterministic_output",
            "request_policy:all_nodes",
            "response_policy:special",
        ])
        .about(GROUP, "2.8.13", "O(1)", "Says in words what has been slow."),
    command("graph", 3, Handler::Session(graph))
        .flags(LATENCY_FLAGS)
        .tips(&[
            "nondeterministic_output",
            "request_policy:all_nodes",
            "response_policy:special",
        ])
        .usage("<event>")
        .syntax("event")
        .about(GROUP, "2.8.13", "O(1)", "Draws the spikes of an event."),
    command("histogram", -2, Handler::Session(histogram))
        .flags(LATENCY_FLAGS)
        .tips(&[
            "nondeterministic_output",
            "request_policy:all_nodes",
            "response_policy:special",
        ])
        .usage("[COMMAND ...]")
        .syntax("command?+")
        .about(
            GROUP,
            "7.0.0",
            "O(N) for N commands",
            "Returns how many calls took how long, of these commands or of all.",
        ),
    command("history", 3, Handler::Session(history))
        .flags(LATENCY_FLAGS)
        .tips(&[
            "nondeterministic_output",
            "request_policy:all_nodes",
            "response_policy:special",
        ])
        .usage("<event>")
        .syntax("event")
        .about(GROUP, "2.8.13", "O(1)", "Returns the spikes of an event."),
    command("latest", 2, Handler::Session(latest))
        .flags(LATENCY_FLAGS)
        .tips(&[
            "nondeterministic_output",
            "request_policy:all_nodes",
            "response_policy:special",
        ])
        .about(
            GROUP,
            "2.8.13",
            "O(1)",
            "Returns the last spike of every event.",
        ),
    command("reset", -2, Handler::Session(reset))
        .flags(LATENCY_FLAGS)
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .usage("[<event> ...]")
        .syntax("event?+")
        .about(
            GROUP,
            "2.8.13",
            "O(1)",
            "Forgets the spikes of these events, or of all.",
        ),
    command("help", 2, Handler::Session(help))
        .flags(HELP)
        .about(GROUP, "2.8.13", "O(1)", "Prints this help."),
];

fn monitor(session: &mut Session, _: &Args) -> Result<Reply> {
    if session.is_in_unit {
        return Err(Error::fixed(
            "ERR MONITOR isn't allowed for DENY BLOCKING client",
        ));
    }
    session.listens = true;
    let monitors = session.server.monitors.clone();
    let client = session.client.clone();
    session
        .monitor
        .get_or_insert_with(|| monitors.enter(&client));
    Ok(Reply::Ok)
}

/// On one machine there is nobody to wait for. In a cluster the connection waits, and answers.
fn wait(session: &mut Session, args: &Args) -> Result<Reply> {
    let replicas = args.int(1)?;
    let unreadable = Error::fixed("ERR timeout is not an integer or out of range");
    let timeout = number::parse_i64(args[2]).ok_or(unreadable)?;
    if timeout < 0 {
        return Err(Error::fixed("ERR timeout is negative"));
    }
    session.awaits = Some(Awaited {
        replicas: replicas.max(0) as usize,
        until: match timeout {
            0 => None,
            timeout => Instant::now().checked_add(Duration::from_millis(timeout as u64)),
        },
    });
    Ok(Reply::Int(0))
}

fn slowlog_get(session: &mut Session, args: &Args) -> Result<Reply> {
    let count = match args.rest(2) {
        [] => 10,
        [count] => match number::parse_i64(count) {
            Some(-1) => usize::MAX,
            Some(count @ 0..) => count as usize,
            _ => {
                return Err(Error::fixed(
                    "ERR count should be greater than or equal to -1",
                ));
            }
        },
        _ => {
            return Err(Error::fixed(
                "ERR unknown subcommand or wrong number of arguments for 'get'. Try SLOWLOG HELP.",
            ));
        }
    };
    let entries = session.server.slowlog.latest(count);
    Ok(Reply::Array(entries.into_iter().map(entry).collect()))
}

fn entry(entry: Entry) -> Reply {
    let args = entry.args.into_iter().map(Reply::Bulk);
    Reply::Array(vec![
        entry.id.into(),
        entry.at.into(),
        (entry.took.as_micros() as u64).into(),
        Reply::Array(args.collect()),
        Reply::bulk(entry.peer),
        Reply::Bulk(entry.name),
    ])
}

fn slowlog_len(session: &mut Session, _: &Args) -> Result<Reply> {
    Ok(session.server.slowlog.len().into())
}

fn slowlog_reset(session: &mut Session, _: &Args) -> Result<Reply> {
    session.server.slowlog.clear();
    Ok(Reply::Ok)
}

fn history(session: &mut Session, args: &Args) -> Result<Reply> {
    let history = session.server.spikes.of(args[2]).unwrap_or_default();
    let spikes = history.spikes.iter();
    let pairs = spikes.map(|spike| vec![spike.at.into(), spike.milliseconds.into()]);
    Ok(Reply::Array(pairs.map(Reply::Array).collect()))
}

fn latest(session: &mut Session, _: &Args) -> Result<Reply> {
    let mut latest = Vec::new();
    for (event, history) in session.server.spikes.all() {
        if let Some(spike) = history.spikes.last() {
            latest.push(Reply::Array(vec![
                Reply::Static(event),
                spike.at.into(),
                spike.milliseconds.into(),
                history.longest.into(),
            ]));
        }
    }
    Ok(Reply::Array(latest))
}

fn reset(session: &mut Session, args: &Args) -> Result<Reply> {
    let spikes = &session.server.spikes;
    let forgotten = match args.rest(2) {
        [] => spikes.clear(),
        events => events.iter().filter(|event| spikes.forget(event)).count(),
    };
    Ok(forgotten.into())
}

fn graph(session: &mut Session, args: &Args) -> Result<Reply> {
    let history = session.server.spikes.of(args[2]).ok_or_else(|| {
        let event = printable(args[2], 128);
        Error::reply(format!("ERR No samples available for event '{event}'"))
    })?;
    let event = String::from_utf8_lossy(args[2]);
    Ok(Reply::Verbatim(
        "txt",
        draw(&event, &history, crate::server::unix_seconds()).into_bytes(),
    ))
}

/// How many rows a column can be high, and the marks of a row from the lowest to the highest part of it.
const ROWS: usize = 4;
const MARKS: [char; 3] = ['_', 'o', '#'];

/// A column for each spike, its age below it.
fn draw(event: &str, history: &History, now: u64) -> String {
    let times = history.spikes.iter().map(|spike| spike.milliseconds);
    let (low, high) = (
        times.clone().min().unwrap_or(0),
        times.clone().max().unwrap_or(0),
    );
    let mut text = format!(
        "{event} - high {high} ms, low {low} ms (all time high {} ms)\n{}\n",
        history.longest,
        "-".repeat(80)
    );
    let steps = ROWS * MARKS.len();
    let heights: Vec<usize> = times
        .map(|time| match high - low {
            0 => 0,
            range => ((time - low) * (steps as u64 - 1) / range) as usize,
        })
        .collect();
    for row in (0..ROWS).rev() {
        for height in &heights {
            let (top, mark) = (height / MARKS.len(), height % MARKS.len());
            text.push(match top.cmp(&row) {
                std::cmp::Ordering::Less => ' ',
                std::cmp::Ordering::Equal => MARKS[mark],
                std::cmp::Ordering::Greater => '|',
            });
        }
        text.push('\n');
    }
    text.push('\n');
    let ages: Vec<String> = history
        .spikes
        .iter()
        .map(|spike| age(now.saturating_sub(spike.at)))
        .collect();
    let longest = ages.iter().map(String::len).max().unwrap_or(0);
    for at in 0..longest {
        let letters = ages.iter().map(|age| age.as_bytes().get(at));
        text.extend(letters.map(|letter| letter.map_or(' ', |letter| char::from(*letter))));
        text.push('\n');
    }
    text
}

fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86400),
    }
}

fn doctor(session: &mut Session, _: &Args) -> Result<Reply> {
    Ok(Reply::Verbatim("txt", report(&session.server).into_bytes()))
}

fn report(server: &Server) -> String {
    let threshold = server
        .live
        .spike_ms
        .load(std::sync::atomic::Ordering::Relaxed);
    if threshold == 0 {
        return "Nothing is being watched: the latency monitor is off. Turn it on with CONFIG SET \
                latency-monitor-threshold <milliseconds>.\n"
            .into();
    }
    let events = server.spikes.all();
    if events.is_empty() {
        return format!("Nothing has taken {threshold} ms or more since the last reset.\n");
    }
    let mut text = format!("What took {threshold} ms or more:\n\n");
    for (event, history) in &events {
        let times: Vec<u64> = history.spikes.iter().map(|s| s.milliseconds).collect();
        let mean = times.iter().sum::<u64>() / times.len().max(1) as u64;
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "- {event}: {} spikes, {mean} ms on average, {} ms at most.",
            times.len(),
            history.longest
        );
    }
    text.push_str(
        "\nSLOWLOG GET shows which commands, and INFO storage what the disk was busy with.\n",
    );
    text
}

fn histogram(session: &mut Session, args: &Args) -> Result<Reply> {
    let stats = &session.server.stats;
    let mut shown = Vec::new();
    let mut show = |command: &Command| {
        if let Some(latency) = stats.latency_of(command) {
            shown.push((Reply::Static(command.full_name), buckets(&latency)));
        }
    };
    if args.len() == 2 {
        super::every().for_each(&mut show);
    }
    for name in args.rest(2) {
        let named = |command: &&Command| name.eq_ignore_ascii_case(command.full_name.as_bytes());
        match all().find(named) {
            Some(command) if !command.shown_subcommands().is_empty() => {
                command.shown_subcommands().iter().for_each(&mut show);
            }
            Some(command) => show(command),
            None => super::every().filter(named).for_each(&mut show),
        }
    }
    Ok(Reply::Map(shown))
}

fn buckets(latency: &Latency) -> Reply {
    let buckets = latency.doublings().into_iter();
    let buckets = buckets.map(|(micros, count)| (micros.into(), count.into()));
    Reply::Map(vec![
        (Reply::Static("calls"), latency.count().into()),
        (
            Reply::Static("histogram_usec"),
            Reply::Map(buckets.collect()),
        ),
    ])
}
