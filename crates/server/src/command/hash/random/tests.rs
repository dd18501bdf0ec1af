#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use cairn_engine::{EngineOptions, SystemTime};
use cairn_resp::{Protocol, Value, decode};
use cairn_store::{Patience, Store, StoreOptions, SyncMode, WriteTxn};

use super::*;

/// A store with a hash `h` of these fields, each of which has itself as value.
struct Fixture {
    _directory: tempfile::TempDir,
    txn: WriteTxn,
}

impl Fixture {
    fn new(fields: &[String]) -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let options = StoreOptions {
            engine: EngineOptions {
                memory: 64 * 1024 * 1024,
                ..EngineOptions::default()
            },
            sync: SyncMode::No,
            databases: 1,
            time: Box::new(SystemTime),
        };
        let store = Store::open(directory.path(), options).unwrap();
        let mut txn = WriteTxn::new(store, Patience::Long);
        let mut hash = Hash::open(&txn, b"h").unwrap();
        for field in fields {
            hash.set(&mut txn, field.as_bytes(), field.as_bytes())
                .unwrap();
        }
        hash.save(&mut txn);
        Fixture {
            _directory: directory,
            txn,
        }
    }

    /// What HRANDFIELD answers, taken piece by piece.
    fn pick(&self, words: &[&str], protocol: Protocol) -> Vec<Value> {
        let words: Vec<&[u8]> = ["hrandfield", "h"]
            .iter()
            .chain(words)
            .map(|word| word.as_bytes())
            .collect();
        let mut out = Vec::new();
        match hrandfield(&self.txn, &Args::new(&words)).unwrap() {
            Reply::Stream(mut stream) => loop {
                let limit = out.len() + 1000;
                let mut writer = Writer::new(&mut out, protocol);
                if stream.write(&mut writer, limit).unwrap() == Progress::Done {
                    break;
                }
            },
            reply => reply.write(&mut Writer::new(&mut out, protocol)).unwrap(),
        }
        match decode(&out).unwrap() {
            Some((Value::Array(items), consumed)) if consumed == out.len() => items,
            other => panic!("{other:?}"),
        }
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Bulk(bytes) => String::from_utf8(bytes.clone()).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("f{number:05}")).collect()
}

/// Each of `among` fields comes as often as the others, give or take five standard deviations.
fn assert_even(counts: &BTreeMap<String, u32>, among: usize) {
    let total: u32 = counts.values().sum();
    let mean = f64::from(total) / among as f64;
    assert_eq!(counts.len(), among);
    for (field, count) in counts {
        let deviation = (f64::from(*count) - mean).abs();
        assert!(
            deviation < 5.0 * mean.sqrt(),
            "{field}: {count}, not {mean}"
        );
    }
}

#[test]
fn distinct_fields_are_all_as_likely() {
    let hash = Fixture::new(&names(7));
    let mut counts = BTreeMap::new();
    for _ in 0..3000 {
        let picked: Vec<String> = hash
            .pick(&["3"], Protocol::Resp2)
            .iter()
            .map(text)
            .collect();
        assert_eq!(picked.len(), 3);
        assert!(picked.is_sorted_by(|a, b| a < b), "one came twice");
        for field in picked {
            *counts.entry(field).or_default() += 1;
        }
    }
    assert_even(&counts, 7);
}

#[test]
fn more_repeats_than_are_drawn_at_once() {
    let hash = Fixture::new(&names(5));
    let wanted = 2 * DRAWN_AT_ONCE + 5;
    let picked = hash.pick(&[&format!("-{wanted}")], Protocol::Resp2);
    assert_eq!(picked.len() as u64, wanted);
    let mut counts = BTreeMap::new();
    let mut after_itself = 0;
    for pair in picked.windows(2) {
        *counts.entry(text(&pair[0])).or_default() += 1;
        after_itself += u32::from(pair[0] == pair[1]);
    }
    assert_even(&counts, 5);
    // In random order a field follows itself once in five times.
    assert!((5_500..7_600).contains(&after_itself), "{after_itself}");
}

#[test]
fn more_bytes_than_are_kept() {
    let fields: Vec<String> = names(50)
        .iter()
        .map(|name| format!("{name}{}", "x".repeat(KEPT_BYTES / 8)))
        .collect();
    let hash = Fixture::new(&fields);
    let picked = hash.pick(&["-100", "withvalues"], Protocol::Resp3);
    assert_eq!(picked.len(), 100);
    for pair in &picked {
        match pair {
            Value::Array(pair) => assert_eq!(pair[0], pair[1]),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_walk_too_long_for_a_connection_thread_is_refused_there() {
    let hash = Fixture::new(&names(30_000));
    let mut txn = hash.txn;
    let store = txn.store().clone();
    store.commit_blocking(&mut txn).unwrap();
    let hasty = WriteTxn::new(store, Patience::Short);
    for count in ["5", "-5"] {
        let words: [&[u8]; 3] = [b"hrandfield", b"h", count.as_bytes()];
        let refused = hrandfield(&hasty, &Args::new(&words));
        assert!(matches!(refused, Err(Error::TooLong)));
    }
    assert!(hrandfield(&txn, &Args::new(&[b"hrandfield", b"h"])).is_ok());
}
