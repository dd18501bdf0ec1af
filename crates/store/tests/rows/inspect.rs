//! What is printed for each kind of key, against a golden file that doubles as a tour of the format.
//! `BLESS=1` writes the file anew.

use cairn_encoding::system::SystemKey;
use cairn_engine::LOCAL_REGION;
use cairn_store::inspect::{Detail, Inspection, Presence, inspect, inspect_stored};
use cairn_store::stream::Id;
use cairn_store::{End, Expiry, Family, Hash, Stream, keys, legacy, string};

use crate::sample::{NOW_MS, Sample, hset, pop, push, read_stream, sadd, set, xadd, zadd};

const ALL: Detail = Detail {
    limit: 100,
    hex: false,
};
const WITH_BYTES: Detail = Detail {
    limit: 100,
    hex: true,
};

/// A chapter of the golden file.
type Chapter = (&'static str, &'static str, Detail);

const CHAPTERS: [Chapter; 16] = [
    ("A small string lies in its metadata row", "greeting", ALL),
    ("The same, byte by byte", "greeting", WITH_BYTES),
    (
        "A large string lies in chunks; what is absent reads as zeros",
        "bitmap",
        ALL,
    ),
    ("A hash: one row per field", "user:7", ALL),
    (
        "A list: popped rows stay until a compaction meets them",
        "jobs",
        ALL,
    ),
    ("A set: the members are keys, and nothing more", "tags", ALL),
    ("A sorted set: each member twice", "board", WITH_BYTES),
    (
        "A stream: entries, and what was delivered; trimmed entries stay until a compaction meets them",
        "events",
        ALL,
    ),
    (
        "A key written anew: the old rows are dead by their version",
        "reborn",
        ALL,
    ),
    (
        "A plain SET reads nothing, and leaves an expiry row behind",
        "overwritten",
        ALL,
    ),
    ("A key past its time", "session", ALL),
    ("A deleted key", "deleted", ALL),
    ("A string of the old format", "ancient", ALL),
    (
        "Rows that are written ahead of their metadata",
        "staged",
        ALL,
    ),
    (
        "A hash with fields that expire: when, by name and by time",
        "cart",
        WITH_BYTES,
    ),
    ("A key that never was", "nothing", ALL),
];

fn build() -> Sample {
    let sample = Sample::new();
    sample.change(|txn| {
        set(
            txn,
            "greeting",
            "héllo \"wörld\"\0".as_bytes(),
            Expiry::Never,
        );
        string::Edit::open(txn, b"bitmap")
            .and_then(|edit| edit.write_at(txn, 3 * 16_384 + 5, b"end"))
            .unwrap();
        string::Edit::open(txn, b"bitmap")
            .and_then(|edit| edit.write_at(txn, 0, &[b'x'; 40]))
            .unwrap();
        hset(
            txn,
            "user:7",
            &[("name", "Ada"), ("age", "36"), ("note", "")],
        );
        keys::set_expiry(txn, b"user:7", NOW_MS + 90_000).unwrap();
        push(txn, "jobs", End::Right, &["a", "b", "c", "d"]);
        push(txn, "jobs", End::Left, &["z"]);
        sadd(txn, "tags", &[b"blue", b"red", b"\xff\x00"]);
        zadd(
            txn,
            "board",
            &[(12.5, "alice"), (-1.0, "bob"), (12.5, "carol")],
        );
        sadd(txn, "reborn", &[b"old"]);
        set(txn, "overwritten", b"1", Expiry::At(NOW_MS + 5000));
        set(txn, "session", b"token", Expiry::At(NOW_MS + 250));
        hset(txn, "deleted", &[("f", "1"), ("g", "2")]);
    });
    sample.change(|txn| {
        xadd(txn, "events", &[1, 2, 3]);
        read_stream(txn, "events", "mailers", "one", &[1, 2]);
    });
    sample.change(|txn| {
        let mut events = Stream::open(txn, b"events").unwrap();
        events.delete(txn, Id::new(1, 0)).unwrap();
        events.save(txn);
        pop(txn, "jobs", End::Left);
        pop(txn, "jobs", End::Right);
        keys::delete(txn, b"reborn").unwrap();
        zadd(txn, "reborn", &[(1.0, "new")]);
        set(txn, "overwritten", b"2", Expiry::Never);
        keys::delete(txn, b"deleted").unwrap();
        legacy::write_legacy(txn, b"ancient", b"from an earlier time", NOW_MS + 1000);
        let (region, version) = (LOCAL_REGION, txn.next_version());
        let key = txn.key(b"staged");
        txn.put(Family::Data, &key.data(version, b"field"), *b"to come");
        let staging = SystemKey::Staging { region, version }.encode();
        txn.put(Family::Meta, &staging, key.metadata());
        hset(txn, "cart", &[("apple", "3"), ("pear", "1")]);
        let mut cart = Hash::open(txn, b"cart").unwrap();
        cart.expire(txn, b"apple", NOW_MS + 60_000).unwrap();
        cart.save(txn);
    });
    sample.time.set_millis(NOW_MS + 300);
    sample
}

fn titled(title: &str, inspection: &Inspection) -> String {
    format!("# {title}\n\n{}\n\n", inspection.lines.join("\n"))
}

#[test]
fn each_kind_of_key_is_shown_as_in_the_golden_file() {
    let sample = build();
    let txn = sample.begin();
    let mut shown = String::new();
    for (title, name, detail) in CHAPTERS {
        let inspection = inspect(&txn, name.as_bytes(), detail).unwrap();
        shown.push_str(&titled(title, &inspection));
    }
    let file = "tests/rows/inspect.txt";
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(file, &shown).unwrap();
    }
    let golden = std::fs::read_to_string(file).unwrap();
    for (shown, golden) in shown.split("# ").zip(golden.split("# ")) {
        assert_eq!(shown, golden);
    }
    assert_eq!(shown.len(), golden.len());
}

#[test]
fn without_a_server_the_same_is_shown() {
    let sample = build();
    let txn = sample.begin();
    let engine = sample.read_only();
    for (_, name, detail) in CHAPTERS {
        let online = inspect(&txn, name.as_bytes(), detail).unwrap();
        let wall_ms = NOW_MS + 300;
        let stored = inspect_stored(&engine, 0, name.as_bytes(), wall_ms, detail).unwrap();
        assert_eq!(online.lines, stored.lines);
        assert_eq!(online.presence, stored.presence);
    }
}

#[test]
fn time_never_falls_behind_what_the_database_has_seen() {
    let sample = build();
    sample.change(|txn| set(txn, "last", b"", Expiry::Never));
    let engine = sample.read_only();
    let at = |wall_ms| inspect_stored(&engine, 0, b"session", wall_ms, ALL).unwrap();
    assert_eq!(at(0).presence, Presence::Remains);
    assert_eq!(at(0).lines, at(NOW_MS + 300).lines);
    assert!(at(NOW_MS + 1250).lines[0].ends_with("expired 1.000s ago"));
}

#[test]
fn presence_is_what_a_client_would_find() {
    let sample = build();
    let txn = sample.begin();
    let presence = |name: &str| inspect(&txn, name.as_bytes(), ALL).unwrap().presence;
    for name in ["greeting", "jobs", "reborn", "ancient"] {
        assert_eq!(presence(name), Presence::Present, "{name}");
    }
    for name in ["session", "deleted", "staged"] {
        assert_eq!(presence(name), Presence::Remains, "{name}");
    }
    assert_eq!(presence("nothing"), Presence::Absent);
}

#[test]
fn a_transaction_shows_its_own_changes() {
    let sample = build();
    let mut txn = sample.begin();
    hset(&mut txn, "user:7", &[("city", "London")]);
    keys::delete(&mut txn, b"greeting").unwrap();
    let user = inspect(&txn, b"user:7", ALL).unwrap();
    assert!(user.lines.iter().any(|line| line.contains("\"London\"")));
    assert_eq!(
        inspect(&txn, b"greeting", ALL).unwrap().lines,
        [r#"key         "greeting" in database 0 does not exist"#]
    );
}

#[test]
fn each_database_has_its_own_keys() {
    let sample = build();
    let engine = sample.read_only();
    let other = inspect_stored(&engine, 1, b"greeting", NOW_MS, ALL).unwrap();
    assert_eq!(other.presence, Presence::Absent);
    let error = inspect_stored(&engine, 2, b"greeting", NOW_MS, ALL).unwrap_err();
    assert_eq!(error.to_string(), "there is no database 2");
}

/// Dead rows sort before live ones, and must not use up the limit.
#[test]
fn a_limit_counts_live_and_dead_rows_apart() {
    let sample = Sample::new();
    sample.change(|txn| {
        sadd(txn, "k", &[b"dead-1", b"dead-2", b"dead-3"]);
        keys::delete(txn, b"k").unwrap();
        push(txn, "k", End::Right, &["p1", "p2", "p3", "a", "b", "c"]);
    });
    sample.change(|txn| (0..3).for_each(|_| pop(txn, "k", End::Left)));
    let two = Detail {
        limit: 2,
        hex: false,
    };
    let lines = inspect(&sample.begin(), b"k", two).unwrap().lines;
    let rows: Vec<&str> = lines
        .iter()
        .filter(|line| line.starts_with("  ") && line.contains('→') || line.contains("..."))
        .map(|line| line.rsplit("  ").next().unwrap())
        .collect();
    let more = "more rows, beyond the limit of 2";
    let expected = ["(empty)", "(empty)", more, r#""a""#, r#""b""#, more];
    assert_eq!(rows, expected, "{}", lines.join("\n"));
    assert_eq!(
        lines.last().unwrap(),
        "rows        3 live, 2 dead, and more"
    );
}

#[test]
fn damage_is_shown_and_not_stumbled_over() {
    let sample = Sample::new();
    sample.change(|txn| {
        hset(txn, "h", &[("f", "1")]);
        let key = txn.key(b"h");
        let mut cut_short = key.metadata().to_vec();
        cut_short.extend_from_slice(&[1, 2, 3]);
        txn.put(Family::Data, &cut_short, *b"x");
        txn.put(Family::Metadata, key.metadata(), *b"\x8f");
    });
    let inspection = inspect(&sample.begin(), b"h", ALL).unwrap();
    assert_eq!(inspection.presence, Presence::Present);
    let expected = r#"
key         "h" in database 0: what it holds is not known, its metadata row is damaged
prefix      keyspace 1 | index 1 | slot 11694 | key_len 1 | key "h"

metadata    prefix → flags | expire_ms | ...
  damaged   8f  metadata value: unknown type 15 in flags

data        prefix | what follows, and why it is no row
  damaged   010203  data row: version at byte 23 takes 8 bytes, 3 are left

data        prefix | version 3481600000000000000 | sub-key → value
            a version of 2023-11-14 22:13:20.000000 UTC, which no metadata names
  unknown   "f"  →  "1"

rows        2 damaged, 1 unknown"#;
    assert_eq!(format!("\n{}", inspection.lines.join("\n")), expected);
}
