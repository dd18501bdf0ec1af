//! Whether costs stay what they are when there is much: of elements in a collection, of bytes in a string, of what
//! was deleted, of what expires at once.
//!
//! ```text
//! bench_depth [--scale full|small] [--only NAME,NAME] [--memory MB] [--dir PATH] [--port N]
//! ```
//!
//! Starts Cairn (`CAIRN_BIN`, or the binary beside this one) anew for each group of bars, and prints a line for each
//! bar: what the command costs where there is little, what it costs where there is much, and the most that one may
//! be of the other. The status is 1 if a bar is missed. Both costs come from the same run, measured in turn.
//!
//! A cost is the time from sending a command to having its reply: what a client waits for. It is the median of
//! several rounds, and in each round the mean of many commands, so that a rare slow one counts.

mod deletion;
mod expiry;
mod fill;
mod foreground;
mod garbage;
mod lists;
mod measure;
mod picks;
mod ranks;
mod reclaiming;
mod scale;
mod streams;
mod strings;
mod table;
mod trial;

use std::process::ExitCode;

use scale::Scale;
use table::Table;
use trial::{Settings, Trial};

struct Group {
    name: &'static str,
    run: fn(&mut Trial, &mut Table),
}

const GROUPS: &[Group] = &[
    Group {
        name: "ranks",
        run: ranks::run,
    },
    Group {
        name: "picks",
        run: picks::run,
    },
    Group {
        name: "strings",
        run: strings::run,
    },
    Group {
        name: "deletion",
        run: deletion::run,
    },
    Group {
        name: "flushing",
        run: deletion::run_flushes,
    },
    Group {
        name: "reclaiming",
        run: reclaiming::run,
    },
    Group {
        name: "overwriting",
        run: reclaiming::run_overwrites,
    },
    Group {
        name: "expiry",
        run: expiry::run,
    },
    Group {
        name: "garbage",
        run: garbage::run,
    },
    Group {
        name: "queue",
        run: garbage::run_queue,
    },
    Group {
        name: "lists",
        run: lists::run,
    },
    Group {
        name: "streams",
        run: streams::run,
    },
];

struct Arguments {
    scale: Scale,
    /// Names of groups; all if there are none.
    only: Vec<String>,
    settings: Settings,
}

fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(reason) => {
            eprintln!("bench_depth: {reason}");
            return ExitCode::from(2);
        }
    };
    let mut table = Table::begin(&arguments.scale);
    for group in GROUPS {
        if arguments.only.is_empty() || arguments.only.iter().any(|name| name == group.name) {
            table.group(group.name);
            measure(group, &arguments, &mut table);
            for _ in 1..arguments.scale.attempts {
                if !table.group_is_met() {
                    table.forget_group();
                    measure(group, &arguments, &mut table);
                }
            }
        }
    }
    if table.end() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn measure(group: &Group, arguments: &Arguments, table: &mut Table) {
    let mut trial = Trial::begin(&arguments.settings, &arguments.scale);
    (group.run)(&mut trial, table);
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut parsed = Arguments {
        scale: Scale::FULL,
        only: Vec::new(),
        settings: Settings {
            memory: 1024,
            dir: "/var/tmp".into(),
            port: None,
        },
    };
    while let Some(flag) = words.next() {
        let value = words.next().ok_or(format!("{flag} needs a value"))?;
        let number = || {
            let number = value.parse::<u64>();
            number.map_err(|_| format!("{flag} {value}: not a number"))
        };
        match flag.as_str() {
            "--scale" => {
                parsed.scale = Scale::named(&value).ok_or(format!("no scale is named {value}"))?;
            }
            "--only" => parsed.only = names(&value)?,
            "--memory" => parsed.settings.memory = number()?,
            "--port" => parsed.settings.port = Some(number()? as u16),
            "--dir" => parsed.settings.dir = value,
            _ => return Err(format!("unknown flag {flag}")),
        }
    }
    Ok(parsed)
}

fn names(list: &str) -> Result<Vec<String>, String> {
    let names: Vec<String> = list.split(',').map(str::to_owned).collect();
    match names
        .iter()
        .find(|name| GROUPS.iter().all(|group| group.name != **name))
    {
        Some(unknown) => {
            let known: Vec<&str> = GROUPS.iter().map(|group| group.name).collect();
            Err(format!("no {unknown} among {}", known.join(", ")))
        }
        None => Ok(names),
    }
}
