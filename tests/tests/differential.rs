//! A short differential run: thousands of random commands, the same replies from Cairn and Redis.
//!
//! The long form is the program `differential`, which also explains what a failure prints.
//! `CAIRN_TEST_ADDR` names another server to test instead, and `CAIRN_TEST_SEED` other rounds.

use std::time::Duration;

use cairn_tests::differential::peer::Address;
use cairn_tests::differential::{Options, run};
use cairn_tests::server::{Server, external_address};

const TIME_LIMIT: Duration = Duration::from_secs(20);
/// Fewer in that time would be no test.
const AT_LEAST: usize = 10_000;

#[test]
fn cairn_answers_as_redis_does() {
    let cairn = external_address().is_none().then(|| Server::cairn(&[]));
    let addr = external_address().or(cairn.as_ref().map(Server::addr));
    let redis = Server::redis(&[]);
    let options = Options {
        seed: seed(),
        commands: 200_000,
        time_limit: Some(TIME_LIMIT),
        without: Vec::new(),
        findings: 5,
    };
    let report = run(
        &Address(addr.expect("an address to test")),
        &Address(redis.addr()),
        &options,
        &mut |finding| eprintln!("{finding}"),
    );
    eprintln!("{report}");
    assert!(
        report.broken.is_none() && report.findings.is_empty(),
        "{report}"
    );
    assert!(report.commands() >= AT_LEAST, "{report}");
}

/// The same rounds every time, so that a failure is about the change under test.
fn seed() -> u64 {
    let given = std::env::var("CAIRN_TEST_SEED").ok();
    given.map_or(1, |seed| seed.parse().expect("CAIRN_TEST_SEED is a number"))
}
