//! Runs every golden script of `tests/scripts` against Cairn, and against the real redis-server
//! that the scripts were recorded from. Those in `later` are about what Redis has had since, and are Cairn's alone.
//!
//! `CAIRN_TEST_ADDR=host:port` tests a server that runs already, `SCRIPTS=zset` only the scripts
//! whose name contains it. Replies are recorded by `UPDATE=1 cargo test --test scripts redis`.

use std::fs;
use std::path::{Path, PathBuf};

use cairn_tests::script::{Runner, Script};
use cairn_tests::server::{Server, external_address};

#[test]
fn cairn_passes_every_script() {
    match external_address() {
        Some(addr) => report(each_script(&["", "later"], |script| compare(script, &addr))),
        None => report(each_script(&["", "later"], |script| {
            let server = Server::cairn(&[]);
            let result = compare(script, &server.addr());
            if server.is_running() {
                return result;
            }
            result.map_err(|failure| format!("{failure}\n{}", server.log_tail()))
        })),
    }
}

#[test]
fn redis_passes_every_script() {
    let update = std::env::var_os("UPDATE").is_some();
    report(each_script(&[""], |script| {
        let server = Server::redis(&[]);
        if update {
            record(script, &server.addr());
        }
        compare(script, &server.addr())
    }));
}

/// What each script that fails has to say.
fn each_script(folders: &[&str], run: impl Fn(&Path) -> Result<usize, String>) -> Vec<String> {
    let wanted = std::env::var("SCRIPTS").unwrap_or_default();
    let mut failures = Vec::new();
    for script in folders.iter().flat_map(|folder| scripts(folder)) {
        let name = script
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if !name.contains(&wanted) {
            continue;
        }
        match run(&script) {
            Ok(commands) => println!("{name}: {commands} commands"),
            Err(failure) => failures.push(format!("{name}: {failure}")),
        }
    }
    failures
}

fn scripts(folder: &str) -> Vec<PathBuf> {
    let all = Path::new("scripts");
    let entries = fs::read_dir(all.join(folder)).expect("the folder of scripts");
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry of the folder").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "there are no scripts");
    paths
}

fn report(failures: Vec<String>) {
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

fn read(path: &Path) -> Result<Script, String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    Script::parse(&text)
}

/// The number of commands, or every difference.
fn compare(path: &Path, addr: &str) -> Result<usize, String> {
    let outcome = Runner::new(addr).run(&read(path)?);
    if outcome.failures.is_empty() {
        return Ok(outcome.commands);
    }
    let differences: Vec<String> = outcome.failures.iter().map(ToString::to_string).collect();
    Err(differences.join("\n"))
}

fn record(path: &Path, addr: &str) {
    let script = read(path).expect("a readable script");
    let outcome = Runner::new(addr).recording().run(&script);
    assert!(
        outcome.is_complete,
        "{}: {:?}",
        path.display(),
        outcome.failures.last()
    );
    fs::write(path, script.rewritten(&outcome)).expect("the script can be written");
}
