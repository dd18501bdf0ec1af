//! Keys that are due: very many at once, and one that is moved again and again.

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use cairn_tests::client::{Client, Value};
use cairn_tests::figures;

use crate::fill;
use crate::foreground;
use crate::reclaiming::settle;
use crate::table::Table;
use crate::trial::Trial;

/// How long keys may take to go.
const LIMIT: Duration = Duration::from_secs(30);

/// What files may take that hold nothing but facts about the database.
const KILOBYTES: f64 = 64.0;

pub fn run(trial: &mut Trial, table: &mut Table) {
    due_at_once(trial, table);
    trail(trial, table);
}

/// The keys lie in a database of their own, so that those of the foreground can be told from them.
fn due_at_once(trial: &mut Trial, table: &mut Table) {
    let (many, quiet) = (trial.scale.many, trial.scale.quiet);
    // Later than it takes to write them and to measure the foreground without them.
    let lead = Duration::from_secs(5 + many / 20_000) + quiet * 2;
    let due = SystemTime::now() + lead;
    let due_ms = due.duration_since(UNIX_EPOCH).expect("a time of today");
    trial.run("SELECT 1");
    fill::due_keys(&mut trial.client, many, due_ms.as_millis() as u64);
    settle(trial);
    let mut alone = foreground::alone(&trial.server, quiet);
    let left = due.duration_since(SystemTime::now());
    thread::sleep(left.expect("writing them takes less long"));
    let mut left = 0;
    let (beside, took) = foreground::beside(&trial.server, || {
        let started = Instant::now();
        while are_there(&mut trial.client, many) && started.elapsed() < LIMIT * 2 {
            thread::sleep(Duration::from_millis(500));
        }
        let took = started.elapsed();
        left = keys(&mut trial.client);
        // What is short has to be long enough for a percentile.
        thread::sleep(quiet.saturating_sub(took));
        took
    });
    alone.extend(foreground::alone(&trial.server, quiet));
    let what = format!("{many} keys that are due, gone");
    table.at_most(&what, took.as_secs_f64(), "s", LIMIT.as_secs_f64());
    let costs = foreground::compare(alone, beside);
    table.ratio("  p99 of GET and SET meanwhile", costs, 2.5);
    table.at_most("  keys that DBSIZE finds", left as f64, "", 0.0);
    // What the foreground wrote goes; what was due is gone by itself, or is still found.
    trial.run("SELECT 0");
    trial.run("FLUSHDB");
    trial.run("DEBUG COMPACT");
    let left = trial.info("storage", "storage_estimated_keys");
    table.at_most("  rows of keys after a compaction", left as f64, "", 0.0);
    // A file that a walk has pinned goes with that walk.
    let started = Instant::now();
    let mut kilobytes = || trial.info("storage", "storage_sst_bytes") as f64 / 1024.0;
    while kilobytes() > KILOBYTES && started.elapsed() < Duration::from_secs(5) {
        thread::sleep(Duration::from_millis(100));
    }
    table.at_most("  files after a compaction", kilobytes(), "KB", KILOBYTES);
}

/// Whether some of the keys that are due have not been deleted. This asks for a counter: to count what is left would
/// be work of its own beside the work that is measured.
fn are_there(client: &mut Client, many: u64) -> bool {
    figures::info(client, "stats", "expired_keys") < many
}

fn keys(client: &mut Client) -> i64 {
    match client.line("DBSIZE") {
        Value::Int(count) => count,
        other => panic!("DBSIZE is a number: {other:?}"),
    }
}

/// Whether a key whose time is moved leaves something behind each time.
fn trail(trial: &mut Trial, table: &mut Table) {
    for (what, command) in [
        ("EXPIRE", "PEXPIREAT moved "),
        ("SET EX", "SET moved value PXAT "),
    ] {
        trial.run("SET moved value");
        let later = SystemTime::now() + Duration::from_secs(1000);
        let later = later.duration_since(UNIX_EPOCH).expect("a time of today");
        for number in 0..1000 {
            trial.run(&format!("{command}{}", later.as_millis() + number));
        }
        let rows = expiry_rows(trial);
        table.at_most(
            &format!("expiry rows after 1000 times {what}"),
            rows as f64,
            "",
            1.0,
        );
    }
}

/// How many rows of the expiry index name the key.
fn expiry_rows(trial: &mut Trial) -> usize {
    let lines = trial.run("DEBUG ROWS moved LIMIT 10000");
    let lines = lines.items().unwrap_or_default().iter();
    let lines: Vec<_> = lines
        .map(|line| String::from_utf8_lossy(line.as_bytes().unwrap_or_default()).into_owned())
        .collect();
    let rows = lines.iter().skip_while(|line| !line.starts_with("expiry"));
    rows.skip(1)
        .take_while(|line| !line.trim().is_empty())
        .count()
}
