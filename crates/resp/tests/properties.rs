//! Laws of the crate, for any input: drawn at random, and what fuzzing has found worth keeping.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use cairn_resp::number::{format_double, format_human_double, parse_f64};
use cairn_resp::{Limits, Protocol, Reply, Value, Writer, decode};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::LazyJust;

#[path = "../fuzz/checks.rs"]
mod checks;

/// Bytes that look like requests far more often than chance would have it.
fn requestlike() -> impl Strategy<Value = Vec<u8>> {
    let token = prop_oneof![
        (-2i64..15).prop_map(|count| format!("*{count}\r\n").into_bytes()),
        (-2i64..50).prop_map(|len| format!("${len}\r\n").into_bytes()),
        vec(any::<u8>(), 0..12).prop_map(|payload| {
            let header = format!("${}\r\n", payload.len());
            [header.as_bytes(), &payload, b"\r\n"].concat()
        }),
        "[a-c '\"\\\\x0-9\t\x0b]{0,24}\r?\n".prop_map(String::into_bytes),
        Just(b"\0".to_vec()),
        vec(any::<u8>(), 0..4),
    ];
    vec(token, 0..20).prop_map(|tokens| tokens.concat())
}

fn limits() -> impl Strategy<Value = Limits> {
    let tight = (0usize..60, 0usize..40, 0usize..20, any::<bool>());
    let tight = tight.prop_map(
        |(max_bulk_len, max_inline, max_multibulk, authenticated)| Limits {
            max_bulk_len,
            max_inline,
            max_multibulk,
            authenticated,
        },
    );
    prop_oneof![
        tight,
        Just(Limits::default()),
        Just(Limits::default().unauthenticated()),
    ]
}

fn reply() -> impl Strategy<Value = Reply> {
    let bytes = || vec(any::<u8>(), 0..20);
    let double = prop::num::f64::ANY.prop_filter("NaN equals nothing", |value| !value.is_nan());
    let leaf = prop_oneof![
        LazyJust::new(|| Reply::Ok),
        LazyJust::new(|| Reply::Null),
        LazyJust::new(|| Reply::NullArray),
        LazyJust::new(|| Reply::Static("string")),
        bytes().prop_map(Reply::Status),
        bytes().prop_map(Reply::Error),
        any::<i64>().prop_map(Reply::Int),
        bytes().prop_map(Reply::Bulk),
        (bytes(), any::<prop::sample::Index>()).prop_map(|(bytes, from)| {
            let from = from.index(bytes.len() + 1);
            Reply::Shared(bytes.into(), from)
        }),
        double.prop_map(Reply::Double),
        (-180.0..180.0).prop_map(Reply::HumanDouble),
        any::<bool>().prop_map(Reply::Bool),
        bytes().prop_map(|text| Reply::Verbatim("txt", text)),
        "-?[1-9][0-9]{0,40}".prop_map(|digits| Reply::BigNumber(digits.into_bytes())),
    ];
    leaf.prop_recursive(4, 64, 6, |inner| {
        let pairs = vec((inner.clone(), inner.clone()), 0..4);
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Reply::Array),
            vec(inner.clone(), 0..6).prop_map(Reply::Set),
            vec(inner.clone(), 0..6).prop_map(Reply::Push),
            vec((inner.clone(), inner.clone()), 0..4).prop_map(Reply::Map),
            (pairs, inner).prop_map(|(pairs, value)| Reply::Attributed(pairs, Box::new(value))),
        ]
    })
}

/// What a client is to understand by a reply, told apart from how it is written.
fn meaning(reply: &Reply, protocol: Protocol) -> Value {
    let resp3 = protocol == Protocol::Resp3;
    let all = |items: &[Reply]| items.iter().map(|item| meaning(item, protocol)).collect();
    let flat = |pairs: &[(Reply, Reply)]| {
        let sides = pairs.iter().flat_map(|(key, value)| [key, value]);
        Value::Array(sides.map(|side| meaning(side, protocol)).collect())
    };
    let mapped = |pairs: &[(Reply, Reply)]| -> Vec<(Value, Value)> {
        let both =
            |(key, value): &(Reply, Reply)| (meaning(key, protocol), meaning(value, protocol));
        pairs.iter().map(both).collect()
    };
    match reply {
        Reply::Ok => Value::Simple(b"OK".to_vec()),
        Reply::Simple(text) => Value::Simple(text.as_bytes().to_vec()),
        Reply::Status(text) => Value::Simple(on_one_line(text)),
        Reply::Error(text) => {
            let broken = |byte: &u8| *byte == b'\r' || *byte == b'\n';
            let tail = text.iter().rev().take_while(|byte| broken(byte)).count();
            Value::Error(on_one_line(&text[..text.len() - tail]))
        }
        Reply::Int(value) => Value::Int(*value),
        Reply::Bulk(bytes) => Value::Bulk(bytes.clone()),
        Reply::Shared(bytes, from) => Value::Bulk(bytes[*from..].to_vec()),
        Reply::Bulks(bulks) => {
            let values = bulks.iter().map(|bulk| Value::Bulk(bulk.to_vec()));
            Value::Array(values.collect())
        }
        Reply::Static(text) => Value::Bulk(text.as_bytes().to_vec()),
        Reply::Double(value) if resp3 => Value::Double(*value),
        Reply::Double(value) => {
            let mut text = Vec::new();
            format_double(*value, &mut text);
            Value::Bulk(text)
        }
        Reply::HumanDouble(value) => {
            let mut text = Vec::new();
            format_human_double(*value, &mut text);
            match parse_f64(&text) {
                Some(value) if resp3 => Value::Double(value),
                _ => Value::Bulk(text),
            }
        }
        Reply::Bool(value) if resp3 => Value::Bool(*value),
        Reply::Bool(value) => Value::Int(i64::from(*value)),
        Reply::NullArray if !resp3 => Value::NullArray,
        Reply::Null | Reply::NullArray => Value::Null,
        Reply::Array(items) => Value::Array(all(items)),
        Reply::Map(pairs) if resp3 => Value::Map(mapped(pairs)),
        Reply::Map(pairs) => flat(pairs),
        Reply::Set(items) if resp3 => Value::Set(all(items)),
        Reply::Push(items) if resp3 => Value::Push(all(items)),
        Reply::Set(items) | Reply::Push(items) => Value::Array(all(items)),
        Reply::Verbatim(_, text) if resp3 => Value::Verbatim {
            format: *b"txt",
            text: text.clone(),
        },
        Reply::Verbatim(_, text) => Value::Bulk(text.clone()),
        Reply::BigNumber(digits) if resp3 => Value::BigNumber(digits.clone()),
        Reply::BigNumber(digits) => Value::Bulk(digits.clone()),
        Reply::Attributed(pairs, reply) if resp3 => Value::Attributed {
            attributes: mapped(pairs),
            value: Box::new(meaning(reply, protocol)),
        },
        Reply::Attributed(_, reply) => meaning(reply, protocol),
        Reply::Stream(_) => unreachable!("none is generated"),
    }
}

fn on_one_line(text: &[u8]) -> Vec<u8> {
    let blank = |byte: &u8| if b"\r\n".contains(byte) { b' ' } else { *byte };
    text.iter().map(blank).collect()
}

#[test]
fn the_fuzz_corpus_holds() {
    let corpus = Path::new("fuzz/corpus/parser");
    let mut replayed = 0;
    for file in fs::read_dir(corpus).unwrap() {
        checks::check_fuzz_input(&fs::read(file.unwrap().path()).unwrap());
        replayed += 1;
    }
    assert!(
        replayed > 50,
        "only {replayed} inputs: is the corpus missing?"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn any_args_survive_being_sent(requests in vec(vec(vec(any::<u8>(), 0..40), 1..8), 0..6),
                                   pieces in vec(1usize..50, 1..5)) {
        let mut stream = Vec::new();
        let mut expected = Vec::new();
        for request in requests {
            Writer::new(&mut stream, Protocol::Resp2).request(&request);
            expected.push((request, stream.len()));
        }
        let seen = checks::read_in_pieces(&stream, &pieces, &Limits::default());
        prop_assert_eq!(seen, checks::Seen { requests: expected, error: None });
    }

    #[test]
    fn any_split_of_anything_requestlike_reads_the_same(stream in requestlike(),
                                                        pieces in vec(1usize..40, 1..6),
                                                        limits in limits()) {
        checks::check(&stream, &pieces, &limits);
    }

    #[test]
    fn any_split_of_any_bytes_reads_the_same(stream in vec(any::<u8>(), 0..300),
                                             pieces in vec(1usize..40, 1..6),
                                             limits in limits()) {
        checks::check(&stream, &pieces, &limits);
    }

    #[test]
    fn a_reply_is_understood_as_meant(reply in reply(), resp3 in any::<bool>(),
                                      tail in vec(any::<u8>(), 0..5)) {
        let protocol = if resp3 { Protocol::Resp3 } else { Protocol::Resp2 };
        let meant = meaning(&reply, protocol);
        let sent = reply.to_bytes(protocol).unwrap();
        for cut in 0..sent.len() {
            prop_assert_eq!(decode(&sent[..cut]), Ok(None), "cut at {}", cut);
        }
        prop_assert_eq!(decode(&[&sent[..], &tail].concat()), Ok(Some((meant, sent.len()))));
    }

    #[test]
    fn decoding_never_panics(bytes in vec(any::<u8>(), 0..200)) {
        if let Ok(Some((_, consumed))) = decode(&bytes) {
            prop_assert!(consumed <= bytes.len());
        }
    }
}
