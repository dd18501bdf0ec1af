#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use cairn_engine::{EngineOptions, SystemTime};
use cairn_resp::{Progress, Protocol, Value, decode};
use cairn_store::random::{ROUND, ROUND_BYTES};
use cairn_store::{Patience, Store, StoreOptions, SyncMode, WriteTxn};

use super::*;
use crate::command::piecewise::ROWS_PER_PIECE;

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
            time: Box::<SystemTime>::default(),
            ranks: Default::default(),
        };
        let store = Store::open(directory.path(), options).unwrap();
        let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
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
    let wanted = 2 * ROUND + 5;
    let picked = hash.pick(&[&format!("-{wanted}")], Protocol::Resp2);
    assert_eq!(picked.len(), wanted);
    let mut counts = BTreeMap::new();
    let mut after_itself = 0;
    for pair in picked.windows(2) {
        *counts.entry(text(&pair[0])).or_default() += 1;
        after_itself += u32::from(pair[0] == pair[1]);
    }
    assert_even(&counts, 5);
    // In random order a field follows itself once in five times.
    assert!((25_400..27_100).contains(&after_itself), "{after_itself}");
}

#[test]
fn more_bytes_than_are_kept() {
    let fields: Vec<String> = names(50)
        .iter()
        .map(|name| format!("{name}{}", "x".repeat(ROUND_BYTES / 64)))
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

/// However few fields are sent, others have their turn in the midst of a long walk.
#[test]
fn a_piece_passes_over_a_bounded_number_of_rows() {
    const FIELDS: usize = 35_000;
    let hash = Fixture::new(&names(FIELDS));
    let pieces = |count: String| {
        let words: [&[u8]; 3] = [b"hrandfield", b"h", count.as_bytes()];
        let Reply::Stream(mut stream) = hrandfield(&hash.txn, &Args::new(&words)).unwrap() else {
            panic!("a stream expected");
        };
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out, Protocol::Resp2);
        let mut write = || stream.write(&mut writer, usize::MAX).unwrap();
        std::iter::from_fn(|| (write() == Progress::More).then_some(())).count()
    };
    // All but one: nearly the whole walk.
    assert_eq!(pieces((FIELDS - 1).to_string()), FIELDS / ROWS_PER_PIECE);
    // More than one walk looks up, and of so many draws some are of the last rows.
    let walked = 2 * (FIELDS - 1000);
    assert!(pieces(format!("-{}", ROUND + 1000)) >= walked / ROWS_PER_PIECE);
}
