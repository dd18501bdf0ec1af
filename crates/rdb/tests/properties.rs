//! Laws of the crate, for any value, and for any bytes.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use cairn_rdb::{Corrupt, Dump, Facts, Id, Item, Listpack, Payload};
use cairn_resp::number::{format_double, parse_i64};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;

#[path = "../fuzz/checks.rs"]
mod checks;

/// Numbers, what repeats, and noise, of lengths about which the forms change.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        any::<i64>().prop_map(|number| number.to_string().into_bytes()),
        (-5000i64..5000).prop_map(|number| number.to_string().into_bytes()),
        vec(any::<u8>(), 0..70),
        vec(0u8..3, 0..300),
        (any::<u8>(), 0usize..20_000).prop_map(|(byte, length)| vec![byte; length]),
    ]
}

fn read(payload: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let payload = Payload::open(payload).unwrap();
    payload.check().unwrap();
    let mut items = Vec::new();
    payload
        .read(&mut |item| {
            items.push(match item {
                Item::String(one) | Item::Element(one) | Item::Member(one) => {
                    (one.to_vec(), Vec::new())
                }
                Item::Scored(member, score) => (member.to_vec(), score.to_le_bytes().to_vec()),
                Item::Field(field, value) => (field.to_vec(), value.to_vec()),
                Item::FieldUntil(field, value, at_ms) => {
                    (field.to_vec(), [&at_ms.to_be_bytes(), value].concat())
                }
                other => panic!("{other:?}"),
            });
            Ok::<_, Corrupt>(())
        })
        .unwrap();
    items
}

fn names<'a>(names: impl IntoIterator<Item = &'a Vec<u8>>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let names = names.into_iter();
    names.map(|name| (name.clone(), Vec::new())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn hashes_with_fields_that_expire_come_back(
        fields in btree_map(bytes(), (bytes(), 0u64..1 << 47), 1..40),
    ) {
        let times = fields.values().map(|(_, at_ms)| *at_ms);
        let first_ms = times.filter(|at_ms| *at_ms > 0).min().unwrap_or(0);
        let mut dump = Dump::expiring_hash(fields.len() as u64, first_ms);
        for (field, (value, at_ms)) in &fields {
            dump.time(first_ms, *at_ms);
            dump.part(field);
            dump.part(value);
        }
        let expected = fields.into_iter().map(|(field, (value, at_ms))| match at_ms {
            0 => (field, value),
            at_ms => (field, [&at_ms.to_be_bytes(), &value[..]].concat()),
        });
        prop_assert_eq!(read(&dump.seal()), expected.collect::<Vec<_>>());
    }

    #[test]
    fn strings_come_back(value in bytes()) {
        prop_assert_eq!(read(&Dump::string(&value).seal()), names([&value]));
    }

    #[test]
    fn lists_come_back(elements in vec(bytes(), 1..60)) {
        let mut list = Dump::list();
        elements.iter().for_each(|element| list.push(element));
        prop_assert_eq!(read(&Dump::of_list(list).seal()), names(&elements));
    }

    #[test]
    fn sets_come_back(members in btree_set(bytes(), 1..60)) {
        let mut dump = Dump::set(members.len() as u64);
        members.iter().for_each(|member| dump.part(member));
        prop_assert_eq!(read(&dump.seal()), names(&members));
    }

    #[test]
    fn sets_of_numbers_come_back(numbers in btree_set(any::<i64>(), 1..60), shift in 0..60) {
        let numbers: Vec<i64> = numbers.into_iter().map(|number| number >> shift).collect();
        let mut numbers = numbers;
        numbers.dedup();
        let text: Vec<Vec<u8>> = numbers.iter().map(|n| n.to_string().into_bytes()).collect();
        prop_assert_eq!(read(&Dump::small_set(&numbers).seal()), names(&text));
    }

    #[test]
    fn hashes_come_back(fields in btree_map(bytes(), bytes(), 1..40)) {
        let expected: Vec<_> = fields.clone().into_iter().collect();
        let mut dump = Dump::hash(fields.len() as u64);
        let mut small = Listpack::default();
        for (field, value) in &fields {
            dump.part(field);
            dump.part(value);
            small.push(field);
            small.push(value);
        }
        prop_assert_eq!(&read(&dump.seal()), &expected);
        prop_assert_eq!(&read(&Dump::small_hash(small).seal()), &expected);
    }

    #[test]
    fn sorted_sets_come_back(members in btree_map(bytes(), scores(), 1..40)) {
        let expected: BTreeMap<_, _> = members
            .iter()
            .map(|(member, score)| (member.clone(), score.to_le_bytes().to_vec()))
            .collect();
        let mut dump = Dump::zset(members.len() as u64);
        let mut small = Listpack::default();
        for (member, score) in &members {
            dump.part(member);
            dump.score(*score);
            small.push(member);
            let mut text = Vec::new();
            format_double(*score, &mut text);
            small.push(&text);
        }
        let read_back = |payload: Vec<u8>| BTreeMap::from_iter(read(&payload));
        prop_assert_eq!(&read_back(dump.seal()), &expected);
        prop_assert_eq!(&read_back(Dump::small_zset(small).seal()), &expected);
    }

    #[test]
    fn streams_come_back(entries in vec((0u64..3, 0u64..500, vec(bytes(), 1..4)), 0..200)) {
        let mut nodes = Dump::stream();
        let mut expected = Vec::new();
        let mut id = Id::default();
        for (ms, seq, values) in &entries {
            id = match ms {
                0 => Id { ms: id.ms, seq: id.seq + seq + 1 },
                _ => Id { ms: id.ms + ms, seq: *seq },
            };
            let words: Vec<&[u8]> = values.iter().flat_map(|value| [&b"f"[..], value]).collect();
            nodes.push(id, &words);
            expected.push((id, words.concat()));
        }
        let facts = Facts {
            length: entries.len() as u64,
            last: id,
            first: expected.first().map_or(Id::default(), |(id, _)| *id),
            deleted: Id { ms: 7, seq: 8 },
            added: u64::MAX,
        };
        let mut dump = Dump::of_stream(nodes, &facts);
        dump.count(0);
        let payload = dump.seal();
        let payload = Payload::open(&payload).unwrap();
        prop_assert_eq!(payload.check(), Ok(()));
        let mut found = Vec::new();
        let read = payload.read(&mut |item| {
            match item {
                Item::Entry(id, words) => {
                    let words: Vec<Vec<u8>> = words.iter().map(|w| w.with(<[u8]>::to_vec)).collect();
                    found.push((id, words.concat()));
                }
                other => assert_eq!(other, Item::Facts(facts)),
            }
            Ok::<_, Corrupt>(())
        });
        prop_assert!(read.is_ok());
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn any_bytes_are_read_or_refused(form in 0u8..20, content in vec(any::<u8>(), 0..200)) {
        checks::check_content(&[&[form], &content[..]].concat());
    }

    /// One byte of a good payload is changed.
    #[test]
    fn damage_is_harmless(elements in vec(bytes(), 2..20), place: usize, byte: u8, form in 0..4) {
        let mut content = some_payload(form, &elements);
        content.truncate(content.len() - 10);
        let place = place % content.len();
        content[place] = byte;
        checks::check_content(&content);
    }
}

fn scores() -> impl Strategy<Value = f64> {
    let any = prop::num::f64::ANY.prop_filter("no score", |score| !score.is_nan() && *score != 0.0);
    prop_oneof![any, (-100_000i64..100_000).prop_map(|score| score as f64)]
}

fn some_payload(form: i32, elements: &[Vec<u8>]) -> Vec<u8> {
    let mut listpack = Listpack::default();
    elements.iter().for_each(|element| listpack.push(element));
    match form {
        0 => {
            let mut list = Dump::list();
            elements.iter().for_each(|element| list.push(element));
            Dump::of_list(list).seal()
        }
        1 => Dump::small_hash(listpack).seal(),
        2 => Dump::small_zset(listpack).seal(),
        _ => {
            let mut numbers: Vec<i64> = elements.iter().flat_map(|text| parse_i64(text)).collect();
            numbers.sort_unstable();
            numbers.dedup();
            Dump::small_set(&numbers).seal()
        }
    }
}

/// What fuzzing has found worth keeping.
#[test]
fn the_corpus_of_the_fuzzer() {
    let corpus = Path::new("fuzz/corpus/payload");
    let mut files = 0;
    for file in fs::read_dir(corpus).unwrap() {
        checks::check_content(&fs::read(file.unwrap().path()).unwrap());
        files += 1;
    }
    assert!(files > 0);
}
