//! Many clients on few keys: transactions, scripts and blocking moves at once, and no moment at which one of them
//! is seen by halves, or has been lost. See `bank.rs` for what they do and how it shows.
//!
//! - `CONCURRENCY_SECONDS`: how long the clients go on.
//! - `CRASH_ROUNDS`: how often the server is killed under them.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cairn_tests::bank::movers::Way;
use cairn_tests::bank::statement::Reading;
use cairn_tests::bank::{Bank, Report};
use cairn_tests::client::Value;
use cairn_tests::ending::Ending;
use cairn_tests::fault::{one_at_a_time, setting};
use cairn_tests::server::Server;
use fastrand::Rng;

const TRANSACTIONS_AND_MOVES: [Way; 10] = [
    Way::Watching,
    Way::Watching,
    Way::Watching,
    Way::Minting,
    Way::Cashing,
    Way::BlockingMove,
    Way::BlockingMove,
    Way::BlockingMove,
    Way::BlockingPush,
    Way::BlockingPush,
];

const EVERYTHING: [Way; 13] = [
    Way::Watching,
    Way::Watching,
    Way::Script,
    Way::Script,
    Way::BlindScript,
    Way::Minting,
    Way::MintingScript,
    Way::Cashing,
    Way::CashingScript,
    Way::BlockingMove,
    Way::BlockingMove,
    Way::BlockingPush,
    Way::BlockingPush,
];

/// Starts the server to be tested.
type Start = fn() -> Server;

/// More threads than there are by default on a small machine: they are what races.
fn cairn() -> Server {
    Server::cairn(&["--threads", "4"])
}

/// Here commits go another way, and nobody may see them before they are synced.
fn cairn_that_syncs() -> Server {
    Server::cairn(&["--threads", "4", "--sync", "always"])
}

fn redis() -> Server {
    Server::redis(&["--appendonly", "yes", "--appendfsync", "always"])
}

fn seconds() -> Duration {
    Duration::from_secs_f64(setting("CONCURRENCY_SECONDS", 3.0))
}

/// Lets the clients work for a while.
fn work(bank: &mut Bank, server: &Server) -> Result<Report, String> {
    bank.work(&server.addr(), || {
        thread::sleep(seconds());
        None
    })
}

/// That everyone got somewhere, and that they met.
fn everyone_moved(report: &Report) {
    let moved = || report.moved.iter();
    assert!(moved().all(|one| one.acknowledged > 5), "{report:?}");
    assert!(report.read.iter().all(|read| *read > 20), "{report:?}");
    for way in [Way::Watching, Way::BlockingMove] {
        let in_vain = moved().any(|one| one.way == way && one.in_vain > 0);
        assert!(in_vain, "nobody met anybody: {report:?}");
    }
}

fn the_sum_stays(start: Start, ways: &[Way], readings: &[Reading]) {
    let _turn = one_at_a_time();
    let server = start();
    let mut client = server.client();
    let mut bank = Bank::open(&mut client, ways, readings, &mut Rng::new());
    match work(&mut bank, &server) {
        Ok(report) => everyone_moved(&report),
        Err(trouble) => panic!("{trouble}\n{}", server.log_tail()),
    }
    bank.audit(&mut client).expect("books in order");
}

fn the_sum_survives(start: Start, ways: &[Way], readings: &[Reading]) {
    let _turn = one_at_a_time();
    let mut server = start();
    let mut rng = Rng::new();
    let mut bank = Bank::open(&mut server.client(), ways, readings, &mut rng);
    for round in 1..=setting("CRASH_ROUNDS", 10) {
        let pause = Duration::from_millis(rng.u64(100..800));
        let worked = bank.work(&server.addr(), || {
            thread::sleep(pause);
            let ended = Instant::now();
            server.kill9();
            Some(ended)
        });
        worked.unwrap_or_else(|trouble| panic!("round {round}: {trouble}\n{}", server.log_tail()));
        server.start();
        let audited = bank.audit(&mut server.client());
        audited.unwrap_or_else(|wrong| panic!("after round {round}: {wrong}"));
    }
}

/// A few parcels go round from list to list, each step by somebody who waits without end: one wake-up that is lost,
/// and they stand still. Others push and pop in between, so that threads meet.
fn parcels_go_round(start: Start) {
    const STATIONS: usize = 8;
    const PARCELS: usize = 3;
    let _turn = one_at_a_time();
    let server = start();
    let over = AtomicBool::new(false);
    let steps: Vec<AtomicUsize> = (0..STATIONS).map(|_| AtomicUsize::new(0)).collect();
    thread::scope(|scope| {
        let end = Ending(&over);
        for station in 0..STATIONS {
            let (mut client, steps, over) = (server.client(), &steps[station], &over);
            scope.spawn(move || {
                let from = format!("station:{station}");
                let to = format!("station:{}", (station + 1) % STATIONS);
                let mut wait = || client.command(&["BLMOVE", &from, &to, "LEFT", "RIGHT", "0"]);
                while !over.load(Ordering::Relaxed) {
                    assert_ne!(wait(), Value::Null);
                    steps.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut client = server.client();
        for parcel in 0..PARCELS {
            client.command(&["RPUSH", "station:0", &parcel.to_string()]);
        }
        let deadline = Instant::now() + seconds();
        while Instant::now() < deadline {
            // Whoever comes between two steps takes a parcel away, and brings it back.
            let parcel = client.line("LPOP station:3");
            if let Some(parcel) = parcel.as_bytes() {
                client.command(&[&b"RPUSH"[..], b"station:3", parcel]);
            }
            client.line("PING");
        }
        let before: usize = steps.iter().map(|of| of.load(Ordering::Relaxed)).sum();
        assert!(before > 1000, "only {before} steps: {steps:?}");
        drop(end);
        // Enough for everyone to make the last step.
        for station in 0..STATIONS {
            client.command(&["RPUSH", &format!("station:{station}"), "last"]);
        }
    });
    let mut client = server.client();
    let left: i64 = (0..STATIONS)
        .filter_map(|n| client.line(&format!("LLEN station:{n}")).as_int())
        .sum();
    assert_eq!(left, (PARCELS + STATIONS) as i64);
}

/// Whoever waits gives up again and again, just when something may come: what is pushed is popped once or stays.
fn every_element_is_popped_once(start: Start) {
    const QUEUES: usize = 2;
    const EACH: usize = 3000;
    let _turn = one_at_a_time();
    let server = start();
    let over = AtomicBool::new(false);
    let popped = thread::scope(|scope| {
        let end = Ending(&over);
        let poppers: Vec<_> = (0..8)
            .map(|popper| {
                let (mut client, over) = (server.client(), &over);
                scope.spawn(move || {
                    let mut got = Vec::new();
                    let mut rng = Rng::with_seed(popper);
                    while !over.load(Ordering::Relaxed) {
                        let patience = format!("0.00{}", rng.u8(1..6));
                        let pop = ["BLPOP", "queue:0", "queue:1", &patience];
                        let pop = if popper % 2 == 0 {
                            client.command(&pop)
                        } else {
                            client
                                .command(&["BLMPOP", &patience, "2", "queue:1", "queue:0", "RIGHT"])
                        };
                        got.extend(pop.items().and_then(|pair| element(&pair[1])));
                    }
                    got
                })
            })
            .collect();
        let pushers: Vec<_> = (0..3)
            .map(|pusher| {
                let mut client = server.client();
                scope.spawn(move || {
                    let mut rng = Rng::with_seed(pusher);
                    for n in 0..EACH {
                        let queue = format!("queue:{}", rng.usize(..QUEUES));
                        client.command(&["LPUSH", &queue, &format!("{pusher}:{n}")]);
                        if n % 16 == 0 {
                            thread::sleep(Duration::from_millis(rng.u64(..4)));
                        }
                    }
                })
            })
            .collect();
        for pusher in pushers {
            pusher.join().expect("a pusher");
        }
        drop(end);
        let got = poppers.into_iter().map(|popper| popper.join());
        let got: Vec<Vec<Vec<u8>>> = got.collect::<Result<_, _>>().expect("all poppers");
        got.concat()
    });
    let mut client = server.client();
    let mut all = popped.clone();
    for queue in 0..QUEUES {
        let left = client.line(&format!("LRANGE queue:{queue} 0 -1"));
        let left = left.into_items().expect("a list");
        all.extend(left.iter().filter_map(element));
    }
    let distinct: BTreeSet<&Vec<u8>> = all.iter().collect();
    assert_eq!((all.len(), distinct.len()), (3 * EACH, 3 * EACH));
    assert!(popped.len() > EACH, "{} were popped", popped.len());
}

/// What BLPOP and BLMPOP say they popped.
fn element(popped: &Value) -> Option<Vec<u8>> {
    let popped = popped.items().map_or(popped, |items| &items[0]);
    popped.as_bytes().map(<[u8]>::to_vec)
}

/// What a wrong client does to the sum is noticed, by readers while it goes on, and by the audit; and so is a
/// reader who looks at one thing after the other.
fn carelessness_is_noticed(start: Start) {
    let _turn = one_at_a_time();
    let server = start();
    let mut client = server.client();
    let careless = [Way::Careless; 6];
    let orderly = [Way::Minting, Way::Minting, Way::Cashing, Way::Cashing];
    let tells_the_sum = |said: String| said.contains("a sum of");

    let mut bank = Bank::open(&mut client, &careless, &BY_TRANSACTION, &mut Rng::new());
    assert!(work(&mut bank, &server).is_err_and(tells_the_sum));

    client.line("FLUSHALL");
    let mut bank = Bank::open(&mut client, &careless, &[], &mut Rng::new());
    assert!(work(&mut bank, &server).is_ok());
    assert!(bank.audit(&mut client).is_err_and(tells_the_sum));

    client.line("FLUSHALL");
    let readings = [Reading::OneByOne; 2];
    let mut bank = Bank::open(&mut client, &orderly, &readings, &mut Rng::new());
    assert!(work(&mut bank, &server).is_err_and(tells_the_sum));
    assert_eq!(bank.audit(&mut client), Ok(()));
}

const BY_TRANSACTION: [Reading; 2] = [Reading::Transaction; 2];
const BY_ALL_MEANS: [Reading; 3] = [Reading::Transaction, Reading::Script, Reading::BlindScript];

#[test]
fn the_sum_stays_with_transactions_and_moves() {
    the_sum_stays(cairn, &TRANSACTIONS_AND_MOVES, &BY_TRANSACTION);
}

#[test]
fn the_sum_stays_where_everything_is_synced() {
    let ways = TRANSACTIONS_AND_MOVES;
    the_sum_stays(cairn_that_syncs, &ways, &BY_TRANSACTION);
}

#[test]
fn the_sum_stays_with_scripts_too() {
    the_sum_stays(cairn, &EVERYTHING, &BY_ALL_MEANS);
}

#[test]
fn the_sum_of_transactions_and_moves_survives() {
    the_sum_survives(cairn, &TRANSACTIONS_AND_MOVES, &BY_TRANSACTION);
}

#[test]
fn the_sum_of_scripts_survives_too() {
    the_sum_survives(cairn, &EVERYTHING, &BY_ALL_MEANS);
}

#[test]
fn no_wake_up_is_lost() {
    parcels_go_round(cairn);
}

#[test]
fn nothing_is_popped_twice_or_lost() {
    every_element_is_popped_once(cairn);
}

#[test]
fn careless_clients_are_noticed() {
    carelessness_is_noticed(cairn);
}

#[test]
#[ignore = "calibration: a redis-server passes all of this"]
fn redis_passes() {
    the_sum_stays(redis, &EVERYTHING, &BY_ALL_MEANS);
    the_sum_survives(redis, &EVERYTHING, &BY_ALL_MEANS);
    parcels_go_round(redis);
    every_element_is_popped_once(redis);
    carelessness_is_noticed(redis);
}
