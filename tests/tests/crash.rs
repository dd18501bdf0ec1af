//! Kill -9 at any moment: whatever was acknowledged is there afterwards, and everything is in order.
//!
//! A process that ends loses nothing that it has handed to the kernel, so `everysec` has to keep as
//! much as `always`. See `fault.rs` for a round, `workload.rs` for the load and how it knows.
//!
//! - `CRASH_ROUNDS`: how many rounds each test runs.
//! - `CRASH_SEED`: the random choices of a run that failed. Its timing is another matter.
//! - `CRASH_KEEP`: leaves the data directories behind.

use std::time::Duration;

use cairn_tests::fault::{Program, Trial, setting};
use cairn_tests::workload::Promise;

fn killed(program: Program, sync: &'static str) -> Trial {
    Trial {
        program,
        sync,
        promise: Promise::Everything,
        rounds: setting("CRASH_ROUNDS", 30),
        load: Duration::from_millis(50)..Duration::from_millis(1500),
        power_cut: false,
        compactions: true,
        bulk: false,
    }
}

fn withstands(trial: Trial) {
    match trial.run() {
        Ok(outcome) => {
            assert!(outcome.tally.acknowledged > 100 * trial.rounds);
            if trial.program == Program::Cairn {
                assert!(outcome.counted > 0, "no counts were there to be lost");
            }
        }
        Err(failure) => panic!("{failure}"),
    }
}

#[test]
fn everysec_loses_nothing_when_killed() {
    withstands(killed(Program::Cairn, "everysec"));
}

#[test]
fn always_loses_nothing_when_killed() {
    withstands(killed(Program::Cairn, "always"));
}

/// So much is written that the journal's files are written over again and again.
#[test]
fn always_loses_nothing_when_killed_where_files_are_used_again() {
    withstands(Trial {
        bulk: true,
        rounds: setting("CRASH_ROUNDS", 10),
        ..killed(Program::Cairn, "always")
    });
}

#[test]
#[ignore = "calibration: a redis-server with its append-only file keeps the same promise"]
fn redis_always_loses_nothing_when_killed() {
    withstands(killed(Program::Redis, "always"));
}

/// Redis promises less here: while an fsync is under way it keeps what it would write in memory, for
/// up to two seconds, and answers nevertheless. On a busy disk this test shows it.
#[test]
#[ignore = "calibration: a redis-server with its append-only file loses two seconds at most"]
fn redis_everysec_loses_little_when_killed() {
    let window = Duration::from_secs(2);
    withstands(Trial {
        promise: Promise::AllBut(window),
        load: window..window.mul_f64(1.6),
        ..killed(Program::Redis, "everysec")
    });
}
