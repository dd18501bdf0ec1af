//! `cairn inspect` and `cairn check`: looking at the rows of a database, with or without its server.
//!
//! Both open the directory read-only, which takes no lock and changes nothing: beside a running server
//! they show the moment at which they opened it.

use std::ffi::OsString;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cairn_engine::{Engine, EngineOptions, SystemTime, TimeSource};
use cairn_store::check;
use cairn_store::inspect::{self, Detail, Presence};

/// Enough for walking in order; what is read is seldom read again.
const MEMORY: usize = 256 << 20;

#[derive(clap::Args)]
pub struct Inspect {
    /// The key, as it is; after `--` if it begins with a dash.
    key: OsString,
    /// Where the data lies.
    #[arg(long, default_value = "./data")]
    dir: PathBuf,
    /// The database that the key is in.
    #[arg(long, default_value_t = 0)]
    db: u32,
    /// The most rows to show, of live and of dead ones, in each family.
    #[arg(long, default_value_t = 100)]
    limit: usize,
    /// Show the bytes of each row too.
    #[arg(long)]
    hex: bool,
}

impl Inspect {
    /// Fails if a client would not find the key.
    pub fn run(self) -> Result<ExitCode, String> {
        let engine = open(&self.dir)?;
        let wall_ms = SystemTime::default().micros() / 1000;
        let detail = Detail {
            limit: self.limit,
            hex: self.hex,
        };
        let inspected =
            inspect::inspect_stored(&engine, self.db, self.key.as_bytes(), wall_ms, detail);
        let inspection = inspected.map_err(|error| error.to_string())?;
        let mut lines = inspection.lines.join("\n");
        lines.push('\n');
        told(io::stdout().lock().write_all(lines.as_bytes()))?;
        Ok(success_if(inspection.presence == Presence::Present))
    }
}

#[derive(clap::Args)]
pub struct Check {
    /// Where the data lies.
    #[arg(long, default_value = "./data")]
    dir: PathBuf,
}

impl Check {
    /// Fails if there is any violation.
    pub fn run(self) -> Result<ExitCode, String> {
        let engine = open(&self.dir)?;
        let mut out = BufWriter::new(io::stdout().lock());
        let mut printed = Ok(());
        let checked = check::check(&engine, &mut |violation| {
            if printed.is_ok() {
                printed = writeln!(out, "{violation}");
            }
        });
        let summary = checked.map_err(|error| error.to_string())?;
        told(printed.and_then(|()| write!(out, "{summary}")))?;
        told(out.flush())?;
        Ok(success_if(summary.violations == 0))
    }
}

fn open(dir: &Path) -> Result<Engine, String> {
    let options = EngineOptions {
        memory: MEMORY,
        ..EngineOptions::default()
    };
    Engine::open_read_only(dir, &options).map_err(|error| error.to_string())
}

/// Who listened has gone: that is no failure of ours.
pub fn told(outcome: io::Result<()>) -> Result<(), String> {
    match outcome {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.to_string()),
        _ => Ok(()),
    }
}

fn success_if(is_well: bool) -> ExitCode {
    if is_well {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
