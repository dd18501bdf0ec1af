//! Tests of the comparison: a redis-server that lies in one point is found out, and the lie is
//! told in the fewest commands; one that does not lie is not accused.

use std::collections::VecDeque;
use std::io;

use super::fair::name_of;
use super::grammar::Argv;
use super::peer::{Address, Link, Peer};
use super::report::Finding;
use super::rule::words;
use super::{Options, grammar, run};
use crate::server::Server;
use crate::value::Value;

/// What a liar does to a command on its way in, and to the reply on its way out.
#[derive(Clone, Copy)]
struct Lie {
    rewrite: fn(&[Vec<u8>]) -> Option<Argv>,
    alter: fn(&[Vec<u8>], Value) -> io::Result<Value>,
}

const HONEST: Lie = Lie {
    rewrite: |_| None,
    alter: |_, reply| Ok(reply),
};

struct Liar {
    honest: Address,
    lie: Lie,
}

impl Peer for Liar {
    fn connect(&self) -> io::Result<Box<dyn Link>> {
        Ok(Box::new(LyingLink {
            honest: self.honest.connect()?,
            lie: self.lie,
            asked: VecDeque::new(),
        }))
    }
}

struct LyingLink {
    honest: Box<dyn Link>,
    lie: Lie,
    asked: VecDeque<Argv>,
}

impl Link for LyingLink {
    fn send(&mut self, argv: &[Vec<u8>]) {
        self.asked.push_back(argv.to_vec());
        let rewritten = (self.lie.rewrite)(argv);
        self.honest.send(rewritten.as_deref().unwrap_or(argv));
    }

    fn flush(&mut self) -> io::Result<()> {
        self.honest.flush()
    }

    fn receive(&mut self) -> io::Result<Value> {
        let reply = self.honest.receive()?;
        let argv = self.asked.pop_front().expect("a command for every reply");
        (self.lie.alter)(&argv, reply)
    }
}

fn options(commands: usize) -> Options {
    Options {
        seed: 1,
        commands,
        time_limit: None,
        without: Vec::new(),
        findings: 1,
    }
}

/// The lie as the run found it; panics if it did not.
fn found(lie: Lie) -> Finding {
    let (target, reference) = (Server::redis(&[]), Server::redis(&[]));
    let liar = Liar {
        honest: Address(target.addr()),
        lie,
    };
    let reference = Address(reference.addr());
    let mut report = run(&liar, &reference, &options(100_000), &mut |_| {});
    assert!(report.broken.is_none(), "{:?}", report.broken);
    report.findings.pop().expect("the lie is found")
}

/// Alters the replies to the commands of one name.
fn altered(
    name: &str,
    argv: &[Vec<u8>],
    reply: Value,
    alter: fn(Value) -> Value,
) -> io::Result<Value> {
    Ok(if name_of(argv) == name {
        alter(reply)
    } else {
        reply
    })
}

#[track_caller]
fn check(lie: Lie, name: &str, at_most: usize) {
    let finding = found(lie);
    assert_eq!(finding.name(), name, "{finding}");
    assert!(finding.reproduced, "{finding}");
    assert!(finding.steps.len() <= at_most, "{finding}");
}

#[test]
fn an_honest_server_is_not_accused_and_hears_every_command() {
    let (target, reference) = (Server::redis(&[]), Server::redis(&[]));
    let (target, reference) = (Address(target.addr()), Address(reference.addr()));
    let report = run(&target, &reference, &options(60_000), &mut |finding| {
        panic!("{finding}")
    });
    assert!(report.broken.is_none(), "{:?}", report.broken);
    for name in grammar().names() {
        let tally = report.tallies.get(name).copied().unwrap_or_default();
        assert!(tally.sent - tally.errors >= 10, "{name}: {tally:?}");
    }
}

#[test]
fn a_lost_element_is_found() {
    let alter = |argv: &[Vec<u8>], reply| {
        altered("ZREVRANGE", argv, reply, |reply| match reply {
            Value::Array(mut items) if items.len() > 2 => {
                items.pop();
                Value::Array(items)
            }
            other => other,
        })
    };
    check(Lie { alter, ..HONEST }, "ZREVRANGE", 6);
}

#[test]
fn a_wrong_member_is_found_in_any_order() {
    let alter = |argv: &[Vec<u8>], reply| {
        altered("SMEMBERS", argv, reply, |reply| match reply {
            Value::Set(mut items) if items.len() > 1 => {
                items[0] = Value::bulk("stranger");
                Value::Set(items)
            }
            other => other,
        })
    };
    check(Lie { alter, ..HONEST }, "SMEMBERS", 6);
}

#[test]
fn a_wrong_time_is_found() {
    let alter = |argv: &[Vec<u8>], reply| {
        altered("TTL", argv, reply, |reply| match reply {
            Value::Int(left) if left > 0 => Value::Int(left / 1000),
            other => other,
        })
    };
    check(Lie { alter, ..HONEST }, "TTL", 6);
}

#[test]
fn popping_what_is_not_there_is_found() {
    let alter = |argv: &[Vec<u8>], reply| {
        altered("SPOP", argv, reply, |reply| match reply {
            Value::Bulk(_) => Value::bulk("stranger"),
            other => other,
        })
    };
    check(Lie { alter, ..HONEST }, "SPOP", 6);
}

#[test]
fn an_element_lost_by_a_scan_is_found() {
    let alter = |argv: &[Vec<u8>], reply| {
        altered("HSCAN", argv, reply, |reply| match reply {
            Value::Array(mut page) => {
                if let Some(Value::Array(elements)) = page.get_mut(1) {
                    elements.truncate(elements.len().saturating_sub(2));
                }
                Value::Array(page)
            }
            other => other,
        })
    };
    check(Lie { alter, ..HONEST }, "HSCAN", 6);
}

#[test]
fn the_wrong_kind_of_reply_is_found() {
    let alter = |argv: &[Vec<u8>], reply| {
        altered("HGETALL", argv, reply, |reply| match reply {
            Value::Map(pairs) => {
                Value::Array(pairs.into_iter().flat_map(|(k, v)| [k, v]).collect())
            }
            other => other,
        })
    };
    check(Lie { alter, ..HONEST }, "HGETALL", 6);
}

#[test]
fn a_wrong_error_is_found() {
    let alter = |argv: &[Vec<u8>], reply| {
        altered("ZADD", argv, reply, |reply| match reply {
            Value::Error(text) if text.starts_with(b"WRONGTYPE") => Value::error("ERR wrong type"),
            other => other,
        })
    };
    check(Lie { alter, ..HONEST }, "ZADD", 6);
}

#[test]
fn a_fault_that_only_large_values_meet_is_found_at_its_boundary() {
    let alter = |argv: &[Vec<u8>], reply| {
        altered("APPEND", argv, reply, |reply| match reply {
            Value::Int(length) if length > 16_384 => Value::Int(length - 1),
            other => other,
        })
    };
    let finding = found(Lie { alter, ..HONEST });
    assert_eq!(finding.name(), "APPEND", "{finding}");
    let appended: usize = finding
        .steps
        .iter()
        .filter_map(|step| step.argv.get(2))
        .map(Vec::len)
        .sum();
    assert!(finding.steps.len() <= 6 && appended <= 16_400, "{finding}");
}

/// The reply is right, the effect is missing.
#[test]
fn a_change_that_does_not_happen_is_found_in_the_state() {
    let rewrite = |argv: &[Vec<u8>]| {
        let persists = argv.len() == 3 && argv[2].eq_ignore_ascii_case(b"PERSIST");
        (name_of(argv) == "GETEX" && persists).then(|| vec![b"GET".to_vec(), argv[1].clone()])
    };
    let finding = found(Lie { rewrite, ..HONEST });
    let persisted = |step: &super::round::Step| {
        step.argv
            .get(2)
            .is_some_and(|word| word.eq_ignore_ascii_case(b"PERSIST"))
    };
    assert!(
        finding.steps.len() <= 6 && finding.steps.iter().any(persisted),
        "{finding}"
    );
}

#[test]
fn a_lost_connection_is_found() {
    let alter = |argv: &[Vec<u8>], reply| match name_of(argv).as_str() {
        "GETDEL" => Err(io::ErrorKind::ConnectionReset.into()),
        _ => Ok(reply),
    };
    check(Lie { alter, ..HONEST }, "GETDEL", 1);
}

/// A seed finds the same thing twice, and prints what it takes to see it.
#[test]
fn a_finding_replays_from_its_seed() {
    let rewrite = |argv: &[Vec<u8>]| (name_of(argv) == "RPOP").then(|| words(&["RPOP", "nothing"]));
    let lie = Lie { rewrite, ..HONEST };
    let (first, second) = (found(lie), found(lie));
    assert_eq!(
        (first.seed, first.steps.len()),
        (second.seed, second.steps.len())
    );
    let told = first.to_string();
    for part in [
        "DIFFERENCE: ",
        "reference: ",
        "target: ",
        &format!("--seed {}", first.seed),
    ] {
        assert!(told.contains(part), "{told}");
    }
}
