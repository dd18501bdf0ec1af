//! Strings that lie in chunks.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::TcpStream;

use cairn_tests::client::encode;
use cairn_tests::figures;

use crate::measure::{self, words};
use crate::table::{Table, megabytes};
use crate::trial::Trial;

const SHORT: u64 = 100;
/// As much as one command writes while the long string is made.
const PIECE: usize = 1 << 20;

pub fn run(trial: &mut Trial, table: &mut Table) {
    let long = trial.scale.string;
    trial
        .client
        .command(&[b"SET".as_slice(), b"short", &bytes(SHORT as usize)]);
    for _ in 0..long / PIECE as u64 {
        trial
            .client
            .command(&[b"APPEND".as_slice(), b"long", &bytes(PIECE)]);
    }
    streamed(trial, table);
    type Asked = fn(&str, u64) -> String;
    let commands: [(&str, Asked); 7] = [
        ("EXPIRE", |name, _| {
            format!("EXPIRE {name} {}", 1000 + fastrand::u32(..1000))
        }),
        ("STRLEN", |name, _| format!("STRLEN {name}")),
        ("GETRANGE of 10 bytes", |name, size| {
            let at = fastrand::u64(..size - 10);
            format!("GETRANGE {name} {at} {}", at + 9)
        }),
        ("SETRANGE of 10 bytes", |name, size| {
            format!("SETRANGE {name} {} 0123456789", fastrand::u64(..size - 10))
        }),
        ("GETBIT", |name, size| {
            format!("GETBIT {name} {}", fastrand::u64(..size * 8))
        }),
        ("SETBIT", |name, size| {
            let at = fastrand::u64(..size * 8);
            format!("SETBIT {name} {at} {}", fastrand::u8(..2))
        }),
        ("APPEND of 1 byte", |name, _| format!("APPEND {name} x")),
    ];
    for (what, asked) in commands {
        let (rounds, count) = (trial.scale.rounds, trial.scale.commands);
        let client = RefCell::new(&mut trial.client);
        let cost = |name: &'static str, size: u64| {
            let client = &client;
            move || {
                measure::mean(&mut client.borrow_mut(), count, |_| {
                    words(&asked(name, size))
                })
            }
        };
        let costs = measure::in_turn(rounds, cost("short", SHORT), cost("long", long));
        table.ratio(
            &format!("{what}, {} MB to {SHORT} bytes", long >> 20),
            costs,
            5.0,
        );
    }
    far_bit(trial, table);
}

/// The last bit that a string can have, where there is none yet.
fn far_bit(trial: &mut Trial, table: &mut Table) {
    let one = |trial: &mut Trial| {
        trial.run("DEL far");
        let before = figures::written(trial.pid());
        trial.run("SETBIT far 4294967295 1");
        figures::written(trial.pid()) - before
    };
    // What the background writes at the same moment is not meant.
    let least = (0..10).map(|_| one(trial)).min().unwrap_or_default();
    let what = "SETBIT of bit 4294967295 in no key, written";
    table.at_most(what, least as f64 / 1024.0, "KB", 20.0);
}

/// How much memory it takes to send a large string. The server has just been started, so nothing of it is cached.
fn streamed(trial: &mut Trial, table: &mut Table) {
    trial.restart();
    trial.run("STRLEN long");
    trial.run("GETRANGE long 0 100000");
    let before = figures::resident(trial.pid());
    figures::forget_most_resident(trial.pid());
    let mut socket = TcpStream::connect(trial.server.addr()).expect("a connection");
    let mut request = Vec::new();
    encode(&["GET", "long"], &mut request);
    socket.write_all(&request).expect("sent");
    let header = format!("${}\r\n", trial.scale.string).len() as u64;
    let mut left = header + trial.scale.string + 2;
    let mut piece = vec![0; 1 << 16];
    while left > 0 {
        let read = socket.read(&mut piece).expect("the reply goes on") as u64;
        assert!(read > 0, "the reply broke off");
        left -= read;
    }
    let grown = figures::most_resident(trial.pid()).saturating_sub(before);
    let what = format!("GET of {} MB, memory", trial.scale.string >> 20);
    table.at_most(&what, megabytes(grown), "MB", 8.0);
}

fn bytes(count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    fastrand::fill(&mut bytes);
    bytes
}
