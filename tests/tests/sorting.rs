//! SORT looks at keys that its arguments do not name, and sees them all at one moment.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cairn_tests::client::{Client, Value};
use cairn_tests::ending::Ending;
use cairn_tests::server::Server;

fn run(client: &mut Client, line: &str) -> Value {
    let reply = client.line(line);
    assert!(!reply.is_error(), "{line}: {reply:?}");
    reply
}

/// Writers that set all weights to the same number at once, and readers that must find them equal.
fn weights_stay_equal(elements: usize, sort: impl Fn(&mut Client) -> Vec<Value> + Sync) {
    let server = Server::cairn(&["--threads", "2"]);
    let names: Vec<String> = (0..elements).map(|n| n.to_string()).collect();
    run(
        &mut server.client(),
        &format!("RPUSH list {}", names.join(" ")),
    );
    let set_all = |client: &mut Client, round: usize| {
        let pairs: Vec<String> = names.iter().map(|n| format!("w_{n} {round}")).collect();
        run(client, &format!("MSET {}", pairs.join(" ")));
    };
    set_all(&mut server.client(), 0);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _end = Ending(&is_over);
        for writer in 0..2 {
            let (server, is_over, set_all) = (&server, &is_over, &set_all);
            scope.spawn(move || {
                let mut client = server.client();
                let mut round = writer;
                while !is_over.load(Ordering::Relaxed) {
                    round += 2;
                    set_all(&mut client, round);
                }
            });
        }
        let mut client = server.client();
        let started = Instant::now();
        let (mut sorts, mut seen) = (0, Vec::new());
        let mut torn = None;
        while torn.is_none() && (started.elapsed() < Duration::from_secs(2) || sorts < 20) {
            let values = sort(&mut client);
            assert_eq!(values.len(), elements);
            torn = values.iter().find(|value| **value != values[0]).cloned();
            seen.push(values[0].clone());
            sorts += 1;
        }
        assert_eq!(torn, None, "after {sorts} sorts");
        seen.dedup();
        assert!(seen.len() > 5, "the writers did not come to write");
    });
}

fn items(reply: Value) -> Vec<Value> {
    reply.into_items().expect("an array")
}

#[test]
fn one_moment_is_seen_of_all_weights() {
    weights_stay_equal(10, |client| items(run(client, "SORT list BY w_* GET w_*")));
}

/// Too many for a connection's thread.
#[test]
fn one_moment_is_seen_of_many_weights() {
    weights_stay_equal(6000, |client| {
        items(run(client, "SORT_RO list BY nosort GET w_*"))
    });
}

#[test]
fn one_moment_is_seen_by_scripts() {
    weights_stay_equal(10, |client| {
        let words = [
            "EVAL",
            "return redis.call('sort', 'list', 'get', 'w_*')",
            "0",
        ];
        items(client.command(&words))
    });
}
