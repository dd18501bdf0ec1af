//! The long form of the differential test.
//!
//! ```text
//! differential [--commands N] [--seed S] [--addr HOST:PORT] [--reference HOST:PORT]
//!              [--without GET,SET] [--findings N] [--tallies]
//! ```
//!
//! Without addresses it starts Cairn (`CAIRN_BIN`, or the binary beside this one) and redis-server.
//! It empties whatever servers it is pointed at.

use std::process::ExitCode;

use cairn_tests::differential::peer::Address;
use cairn_tests::differential::report::Report;
use cairn_tests::differential::{Options, run};
use cairn_tests::server::Server;

struct Arguments {
    options: Options,
    addr: Option<String>,
    reference: Option<String>,
    tallies: bool,
}

fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(reason) => {
            eprintln!("differential: {reason}");
            return ExitCode::from(2);
        }
    };
    let cairn = arguments.addr.is_none().then(|| Server::cairn(&[]));
    let redis = arguments.reference.is_none().then(|| Server::redis(&[]));
    let address = |given: &Option<String>, own: &Option<Server>| {
        let own = own.as_ref().map(Server::addr);
        Address(given.clone().or(own).unwrap_or_default())
    };
    println!("seed {}", arguments.options.seed);
    let report = run(
        &address(&arguments.addr, &cairn),
        &address(&arguments.reference, &redis),
        &arguments.options,
        &mut |finding| println!("{finding}"),
    );
    if arguments.tallies {
        print_tallies(&report);
    }
    println!("{report}");
    if report.findings.is_empty() && report.broken.is_none() {
        return ExitCode::SUCCESS;
    }
    if let Some(cairn) = &cairn {
        eprintln!("{}", cairn.log_tail());
    }
    ExitCode::FAILURE
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut parsed = Arguments {
        options: Options {
            seed: fastrand::u64(..1 << 32),
            commands: 1_000_000,
            time_limit: None,
            without: Vec::new(),
            findings: 10,
        },
        addr: None,
        reference: None,
        tallies: false,
    };
    while let Some(flag) = words.next() {
        if flag == "--tallies" {
            parsed.tallies = true;
            continue;
        }
        let value = words.next().ok_or(format!("{flag} needs a value"))?;
        let number = || {
            value
                .parse()
                .map_err(|_| format!("{flag} {value}: not a number"))
        };
        match flag.as_str() {
            "--commands" => parsed.options.commands = number()? as usize,
            "--seed" => parsed.options.seed = number()?,
            "--findings" => parsed.options.findings = number()? as usize,
            "--addr" => parsed.addr = Some(value),
            "--reference" => parsed.reference = Some(value),
            "--without" => {
                let names = value.split(',').map(str::to_ascii_uppercase);
                parsed.options.without.extend(names);
            }
            _ => return Err(format!("unknown flag {flag}")),
        }
    }
    Ok(parsed)
}

fn print_tallies(report: &Report) {
    println!("{:>24} {:>8} {:>8}", "command", "sent", "refused");
    for (name, tally) in &report.tallies {
        println!(
            "{:>24.24} {:>8} {:>8}",
            name.escape_debug().to_string(),
            tally.sent,
            tally.errors
        );
    }
}
