//! The program's commands.

mod cluster;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::config::Flags;
use crate::inspect::{Check, Inspect};
use crate::{config, listener, processor};

#[derive(Parser)]
#[command(name = "cairn", version, about = "A Redis-compatible database on disk")]
struct Cli {
    #[command(subcommand)]
    command: Run,
}

#[derive(Subcommand)]
enum Run {
    /// Serve clients.
    Serve(Flags),
    /// Show the rows that a key is made of.
    Inspect(Inspect),
    /// Check that all rows agree with each other.
    Check(Check),
    /// Begin a cluster, and look after it.
    #[command(subcommand)]
    Cluster(cluster::Cluster),
}

pub fn main() -> ExitCode {
    if let Some(what) = processor::lacks() {
        eprintln!("cairn: {what}");
        return ExitCode::FAILURE;
    }
    let outcome = match Cli::parse().command {
        Run::Serve(flags) => flags.load().and_then(|settings| {
            config::start_log(settings.values.get("loglevel"));
            listener::serve(settings)?;
            Ok(ExitCode::SUCCESS)
        }),
        Run::Inspect(inspect) => inspect.run(),
        Run::Check(check) => check.run(),
        Run::Cluster(cluster) => cluster.run(),
    };
    match outcome {
        Ok(code) => code,
        Err(message) => {
            eprintln!("cairn: {message}");
            ExitCode::FAILURE
        }
    }
}
