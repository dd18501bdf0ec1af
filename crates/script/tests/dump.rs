//! FUNCTION DUMP and RESTORE, from Redis to us and from us to Redis.

#![allow(clippy::unwrap_used)]

mod common;

use cairn_script::Value;
use common::notation::notation;
use common::redis::Redis;
use common::table::Server;

fn words(words: &[&[u8]]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.to_vec()).collect()
}

/// Libraries short and long, of much that repeats and of little.
fn libraries() -> Vec<Vec<u8>> {
    let padding = [0, 10, 100, 1000, 20_000, 100_000].map(|len| "x".repeat(len));
    let noise: String = (0..3000u32)
        .map(|n| char::from(b'!' + (n.wrapping_mul(2_654_435_761) >> 20) as u8 % 90))
        .collect();
    let comments = padding.into_iter().chain([noise]);
    comments
        .enumerate()
        .map(|(n, comment)| {
            format!(
                "#!lua name=lib{n}\n-- {comment}\nredis.register_function{{function_name='f{n}', \
                 callback=function(keys, args) return {{{n}, keys, args}} end, \
                 flags={{'no-writes'}}, description='number {n}'}}"
            )
            .into_bytes()
        })
        .collect()
}

fn bulk(value: Value) -> Vec<u8> {
    match value {
        Value::Bulk(bytes) => bytes,
        other => panic!("{}", notation(&other)),
    }
}

fn sorted_list(list: Value) -> Vec<String> {
    let Value::Array(libraries) = list else {
        panic!("{}", notation(&list));
    };
    let mut libraries: Vec<_> = libraries.iter().map(notation).collect();
    libraries.sort();
    libraries
}

#[test]
fn payloads_go_both_ways() {
    let mut ours = Server::new();
    let mut redis = Redis::start();
    for code in libraries() {
        redis.ask(&words(&[b"FUNCTION", b"LOAD", &code]));
    }
    let list = words(&[b"FUNCTION", b"LIST", b"WITHCODE"]);
    let expected = sorted_list(redis.ask(&list));
    assert_eq!(expected.len(), libraries().len());

    let payload = bulk(redis.ask(&words(&[b"FUNCTION", b"DUMP"])));
    let restore = |payload: &[u8], policy: &str| {
        words(&[b"FUNCTION", b"RESTORE", payload, policy.as_bytes()])
    };
    assert_eq!(notation(&ours.ask(&restore(&payload, "append"))), "+OK");
    assert_eq!(sorted_list(ours.ask(&list)), expected);
    let call = words(&[b"FCALL", b"f3", b"1", b"k", b"a"]);
    assert_eq!(notation(&ours.ask(&call)), "[3, [\"k\"], [\"a\"]]");

    let payload = bulk(ours.ask(&words(&[b"FUNCTION", b"DUMP"])));
    redis.ask(&words(&[b"FUNCTION", b"FLUSH"]));
    assert_eq!(notation(&redis.ask(&restore(&payload, "append"))), "+OK");
    assert_eq!(sorted_list(redis.ask(&list)), expected);

    // Collisions are told alike, and change nothing.
    let clash = b"#!lua name=clash\nredis.register_function('F1', function() end)";
    for policy in ["append", "replace", "flush", "append"] {
        let of_redis = notation(&redis.ask(&restore(&payload, policy)));
        let of_ours = notation(&ours.ask(&restore(&payload, policy)));
        if policy != "append" {
            assert_eq!(of_redis, "+OK");
        }
        // Which of the libraries is named first is up to a hash table there.
        let ending = |text: &str| text.rsplit(' ').take(2).collect::<Vec<_>>().join(" ");
        assert_eq!(ending(&of_ours), ending(&of_redis), "{policy}");
        assert_eq!(sorted_list(ours.ask(&list)), expected, "{policy}");
    }
    let load = words(&[b"FUNCTION", b"LOAD", clash]);
    assert_eq!(notation(&ours.ask(&load)), notation(&redis.ask(&load)));
}

#[test]
fn bad_payloads_are_refused() {
    let mut ours = Server::new();
    ours.ask(&words(&[b"FUNCTION", b"LOAD", &libraries()[2]]));
    let payload = bulk(ours.ask(&words(&[b"FUNCTION", b"DUMP"])));
    let wrong = "-ERR DUMP payload version or checksum are wrong";
    for place in 0..payload.len() {
        let mut damaged = payload.clone();
        damaged[place] ^= 1;
        let answer = ours.ask(&words(&[b"FUNCTION", b"RESTORE", &damaged]));
        assert_eq!(notation(&answer), wrong, "{place}");
        let cut = &payload[..place];
        let answer = ours.ask(&words(&[b"FUNCTION", b"RESTORE", cut]));
        assert_eq!(notation(&answer), wrong, "{place}");
    }
}
