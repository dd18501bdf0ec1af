//! Keys that are due: very many at once, and one that is moved again and again.

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use cairn_tests::client::Value;
use cairn_tests::figures;

use crate::fill;
use crate::foreground;
use crate::reclaiming::settle;
use crate::table::Table;
use crate::trial::Trial;

/// How long keys may take to go.
const LIMIT: Duration = Duration::from_secs(30);

pub fn run(trial: &mut Trial, table: &mut Table) {
    due_at_once(trial, table);
    trail(trial, table);
}

fn due_at_once(trial: &mut Trial, table: &mut Table) {
    let (many, quiet) = (trial.scale.many, trial.scale.quiet);
    // Later than it takes to write them and to measure the foreground without them.
    let lead = Duration::from_secs(5 + many / 20_000) + quiet * 2;
    let due = SystemTime::now() + lead;
    let due_ms = due.duration_since(UNIX_EPOCH).expect("a time of today");
    fill::due_keys(&mut trial.client, many, due_ms.as_millis() as u64);
    settle(trial);
    let mut alone = foreground::alone(&trial.server, quiet);
    let left = due.duration_since(SystemTime::now());
    thread::sleep(left.expect("writing them takes less long"));
    let server = &trial.server;
    let (beside, took) = foreground::beside(server, || {
        let mut client = server.client();
        let started = Instant::now();
        // The index row of each goes with it, or, if a compaction was quicker, by itself.
        let mut are_left = || {
            let gone = ["reclaim_deleted_expired_keys", "reclaim_deleted_stale_rows"];
            let gone = gone.map(|field| figures::info(&mut client, "reclaim", field));
            gone.iter().sum::<u64>() < many
        };
        while are_left() && started.elapsed() < LIMIT * 2 {
            // Seldom: to count them is work too.
            thread::sleep(Duration::from_secs(1));
        }
        let took = started.elapsed();
        // What is short has to be long enough for a percentile.
        thread::sleep(quiet.saturating_sub(took));
        took
    });
    alone.extend(foreground::alone(server, quiet));
    let what = format!("{many} keys that are due, gone");
    table.at_most(&what, took.as_secs_f64(), "s", LIMIT.as_secs_f64());
    let costs = foreground::compare(alone, beside);
    table.ratio("  p99 of GET and SET meanwhile", costs, 2.5);
    trial.run("FLUSHALL");
    let Value::Int(left) = trial.run("DBSIZE") else {
        panic!("DBSIZE is a number");
    };
    table.at_most("  keys that DBSIZE finds", left as f64, "", 0.0);
    trial.run("DEBUG COMPACT");
    let left = trial.info("storage", "storage_estimated_keys");
    table.at_most("  rows after a compaction", left as f64, "", 0.0);
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
