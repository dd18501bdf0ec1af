//! What a cluster of three nodes on one machine bears and does, beside etcd and a single Cairn.
//!
//! ```text
//! bench_cluster [--kills N] [--transfers N] [--rounds N] [--seconds S] [--clients N] [--only NAME,NAME]
//!               [--report PATH]
//! ```
//!
//! Starts Cairn (`CAIRN_BIN`, or the binary beside this one) and etcd on loopback, and holds what it measures to bars. The
//! status is 1 if one is missed. The report is a page in Markdown. Data lies where temporary files do (`TMPDIR`): on a disk,
//! or syncing would cost nothing.

mod etcd;
mod failover;
mod grpc;
mod load;
mod report;
mod resp;
mod throughput;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use report::Report;

pub struct Options {
    kills: usize,
    transfers: usize,
    rounds: usize,
    duration: Duration,
    clients: usize,
    only: Vec<String>,
    report: Option<PathBuf>,
}

type Part = (&'static str, fn(&Options, &mut Report));

const PARTS: [Part; 4] = [
    ("kills", failover::kills),
    ("transfers", failover::transfers),
    ("writes", throughput::writes),
    ("reads", throughput::reads),
];

fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(reason) => {
            eprintln!("bench_cluster: {reason}");
            return ExitCode::from(2);
        }
    };
    let mut report = Report::begin();
    for (name, run) in PARTS {
        if options.only.is_empty() || options.only.iter().any(|only| only == name) {
            run(&options, &mut report);
        }
    }
    if let Some(path) = &options.report
        && let Err(error) = std::fs::write(path, report.page())
    {
        eprintln!("bench_cluster: {}: {error}", path.display());
        return ExitCode::from(2);
    }
    match report.is_met() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options {
        kills: 100,
        transfers: 50,
        rounds: 3,
        duration: Duration::from_secs(10),
        clients: 1024,
        only: Vec::new(),
        report: None,
    };
    while let Some(flag) = words.next() {
        let value = words.next().ok_or(format!("{flag} needs a value"))?;
        let wrong = || format!("{flag} {value}: not a number");
        let number = || value.parse::<usize>().map_err(|_| wrong());
        match flag.as_str() {
            "--kills" => options.kills = number()?,
            "--transfers" => options.transfers = number()?,
            "--rounds" => options.rounds = number()?,
            "--seconds" => {
                let seconds = value.parse().map_err(|_| wrong())?;
                options.duration = Duration::from_secs_f64(seconds);
            }
            "--clients" => options.clients = number()?,
            "--only" => options.only = value.split(',').map(str::to_string).collect(),
            "--report" => options.report = Some(PathBuf::from(value)),
            _ => return Err(format!("unknown flag {flag}")),
        }
    }
    Ok(options)
}
