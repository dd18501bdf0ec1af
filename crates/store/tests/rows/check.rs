//! Each kind of disagreement is planted by hand, and must be found, named, and be the only finding.

use cairn_encoding::field_expiry::{self, FieldTimes};
use cairn_encoding::metadata::{Body, CollectionKind, Metadata, Type};
use cairn_encoding::slot::slot;
use cairn_encoding::system::{Descriptor, Maxima, Slots, SystemKey, value};
use cairn_encoding::{SLOTS, count, score};
use cairn_engine::LOCAL_REGION as REGION;
use cairn_store::check::{Orphans, Summary, check};
use cairn_store::{End, Expiry, Family, Key, WriteTxn, databases, keys, legacy, string};

use crate::sample::{NOW_MS, Sample, hset, pop, push, sadd, set, zadd};

/// The first version that the sample's clock gives, and so the ones of the keys below, in their order.
const FIRST: u64 = (NOW_MS * 1000) << 11;
const BIG: u64 = FIRST;
const HASH: u64 = FIRST + 1;
const LIST: u64 = FIRST + 2;
const SET: u64 = FIRST + 3;
const ZSET: u64 = FIRST + 4;

/// One key of each type, and no garbage.
fn build() -> Sample {
    let sample = Sample::new();
    sample.change(|txn| {
        set(txn, "small", b"1", Expiry::At(NOW_MS + 1000));
        set(txn, "big", &[b'x'; 20_000], Expiry::Never);
        hset(txn, "hash", &[("f", "1"), ("g", "2")]);
        push(txn, "list", End::Right, &["a", "b", "c", "d"]);
        sadd(txn, "set", &[b"m"]);
        zadd(txn, "zset", &[(1.0, "a"), (2.5, "b")]);
    });
    sample
}

fn examine(sample: &Sample) -> (Vec<String>, Summary) {
    let mut lines = Vec::new();
    let summary = check(&sample.read_only(), &mut |violation| {
        lines.push(violation.to_string());
    });
    (lines, summary.unwrap())
}

#[track_caller]
fn expect(plant: impl FnOnce(&mut WriteTxn), expected: &[&str]) {
    let sample = build();
    sample.change(plant);
    let (lines, summary) = examine(&sample);
    assert_eq!(lines, expected);
    assert_eq!(summary.violations, expected.len() as u64);
}

fn put_metadata(txn: &mut WriteTxn, name: &str, expire_ms: u64, body: Body<'_>) {
    let key = txn.key(name.as_bytes());
    let value = Metadata { expire_ms, body }.encode();
    txn.put(Family::Metadata, key.metadata(), value);
}

fn collection(kind: CollectionKind, version: u64, size: u64) -> Body<'static> {
    Body::Collection {
        kind,
        version,
        size,
        is_counted: false,
        fields: None,
    }
}

fn put_data(txn: &mut WriteTxn, name: &str, version: u64, sub: &[u8], value: &[u8]) {
    let row = txn.key(name.as_bytes()).data(version, sub);
    txn.put(Family::Data, &row, value);
}

fn delete_data(txn: &mut WriteTxn, name: &str, version: u64, sub: &[u8]) {
    let row = txn.key(name.as_bytes()).data(version, sub);
    txn.delete(Family::Data, &row);
}

fn score_row(txn: &WriteTxn, score: f64, member: &str) -> Vec<u8> {
    txn.key(b"zset")
        .score(ZSET, score, member.as_bytes())
        .to_vec()
}

#[test]
fn a_sound_database_has_no_violations() {
    let sample = build();
    let (lines, summary) = examine(&sample);
    assert_eq!(lines, [""; 0]);
    let count = |kind| summary.keys(kind);
    assert_eq!(
        [Type::String, Type::Hash, Type::List, Type::Set, Type::ZSet].map(count),
        [2, 1, 1, 1, 1]
    );
    let rows = |family| summary.rows(family);
    assert_eq!(
        [
            Family::Metadata,
            Family::Data,
            Family::ZsetScore,
            Family::Expiry
        ]
        .map(rows),
        [6, 2 + 2 + 4 + 1 + 2, 2, 1]
    );
    assert_eq!(summary.orphans, Orphans::default());
    let shown = summary.to_string();
    let mut shown = shown.lines();
    assert_eq!(
        shown.next().unwrap(),
        "keys                  6   string 2, hash 1, list 1, set 1, zset 1, stream 0"
    );
    assert_eq!(shown.last().unwrap(), "violations            0");
}

#[test]
fn garbage_is_counted_and_is_no_violation() {
    let sample = build();
    sample.change(|txn| {
        keys::delete(txn, b"hash").unwrap();
        keys::delete(txn, b"zset").unwrap();
        pop(txn, "list", End::Left);
        pop(txn, "list", End::Right);
        set(txn, "small", b"2", Expiry::Never);
        set(txn, "old", b"new", Expiry::Never);
        legacy::write_legacy(txn, b"old", b"old", 0);
        legacy::write_legacy(txn, b"ancient", b"old", 0);
        let version = txn.next_version();
        put_data(txn, "coming", version, b"f", b"1");
        let staging = SystemKey::Staging {
            region: REGION,
            version,
        };
        let key = txn.key(b"coming");
        txn.put(Family::Meta, &staging.encode(), key.metadata());
    });
    sample.change(|txn| {
        txn.begin(1);
        sadd(txn, "flushed", &[b"a", b"b"]);
    });
    sample.change(|txn| databases::flush(txn, [1]));
    let (lines, summary) = examine(&sample);
    assert_eq!(lines, [""; 0]);
    let orphans = Orphans {
        of_dead_versions: 2 + 4,
        cut_off: 2,
        of_flushed_databases: 3,
        superseded: 1,
        of_other_nodes: 0,
    };
    assert_eq!(summary.orphans, orphans);
    assert_eq!(summary.staged_rows, 1);
    assert_eq!(summary.stale_expiry_rows, 1);
    assert_eq!(summary.keys(Type::String), 4);
}

#[test]
fn what_does_not_decode() {
    expect(
        |txn| {
            let key = txn.key(b"hash");
            txn.put(Family::Metadata, key.metadata(), *b"\x02");
        },
        &[
            r#"database 0, key "hash": the metadata does not decode: metadata value: bit 7 of flags 0x02 is not set"#,
        ],
    );
    expect(
        |txn| {
            txn.put(Family::Data, b"junk", *b"");
            txn.put(Family::Expiry, b"junk", *b"");
            txn.put(Family::Meta, b"\xee", *b"");
        },
        &[
            r#"meta: a row does not decode: system key: unknown tag 0xee: "\xee""#,
            r#"data: a row does not decode: data row: keyspace_id at byte 0 takes 8 bytes, 4 are left: "junk""#,
            r#"expiry: a row does not decode: expiry row: keyspace_id at byte 0 takes 8 bytes, 4 are left: "junk""#,
        ],
    );
    expect(
        |txn| put_data(txn, "zset", ZSET, b"a", b"short"),
        &[
            r#"database 0, key "zset": the row of "a" does not decode: score value: score at byte 0 takes 8 bytes, 5 are left"#,
        ],
    );
    expect(
        |txn| put_data(txn, "set", SET, b"m", b"value"),
        &[r#"database 0, key "set": the row of "m" has a value of 5 bytes, and should have none"#],
    );
}

#[test]
fn sizes_that_are_not_the_number_of_rows() {
    expect(
        |txn| put_data(txn, "hash", HASH, b"h", b"3"),
        &[r#"database 0, key "hash": the metadata of the hash says 2, but 3 rows are there"#],
    );
    expect(
        |txn| delete_data(txn, "set", SET, b"m"),
        &[r#"database 0, key "set": the metadata of the set says 1, but 0 rows are there"#],
    );
    expect(
        |txn| put_metadata(txn, "zset", 0, collection(CollectionKind::ZSet, ZSET, 7)),
        &[r#"database 0, key "zset": the metadata of the zset says 7, but 2 rows are there"#],
    );
    expect(
        |txn| {
            let version = txn.next_version();
            put_metadata(txn, "none", 0, collection(CollectionKind::Set, version, 0));
        },
        &[r#"database 0, key "none": the set is empty, and should not exist"#],
    );
}

#[test]
fn lists_with_gaps() {
    let origin = u64::MAX / 2;
    let bounds = |size, head, tail| Body::List {
        version: LIST,
        size,
        head,
        tail,
    };
    expect(
        |txn| {
            delete_data(txn, "list", LIST, &(origin + 1).to_be_bytes());
            delete_data(txn, "list", LIST, &(origin + 2).to_be_bytes());
        },
        &[
            r#"database 0, key "list": the list's elements from index 9223372036854775808 up to 9223372036854775810 are missing"#,
        ],
    );
    expect(
        |txn| put_metadata(txn, "list", 0, bounds(6, origin - 1, origin + 5)),
        &[
            r#"database 0, key "list": the list's elements from index 9223372036854775806 up to 9223372036854775807 are missing"#,
            r#"database 0, key "list": the list's elements from index 9223372036854775811 up to 9223372036854775812 are missing"#,
        ],
    );
    expect(
        |txn| put_metadata(txn, "list", 0, bounds(3, origin, origin + 4)),
        &[
            r#"database 0, key "list": the list's size is 3, but it reaches from 9223372036854775807 to 9223372036854775811"#,
        ],
    );
}

#[test]
fn sorted_sets_whose_orders_disagree() {
    expect(
        |txn| txn.delete(Family::ZsetScore, &score_row(txn, 2.5, "b")),
        &[r#"database 0, key "zset": member "b" has score 2.5, but no row in score order"#],
    );
    expect(
        |txn| txn.put(Family::ZsetScore, &score_row(txn, 4.0, "c"), *b""),
        &[
            r#"database 0, key "zset": member "c" is at 4 in score order, but has no row of its own"#,
        ],
    );
    expect(
        |txn| put_data(txn, "zset", ZSET, b"a", &score::encode(3.0)),
        &[
            r#"database 0, key "zset": member "a" has score 3, but no row in score order"#,
            r#"database 0, key "zset": member "a" is at 1 in score order, but has score 3"#,
        ],
    );
    expect(
        |txn| {
            let row = txn.key(b"hash").score(HASH, 1.0, b"f");
            txn.put(Family::ZsetScore, &row, *b"");
        },
        &[r#"database 0, key "hash": 1 rows in score order belong to a hash"#],
    );
}

#[test]
fn fields_whose_times_are_not_what_is_said() {
    const AT: u64 = NOW_MS + 1000;
    let metadata = |count, first_ms, last_ms| Body::Collection {
        kind: CollectionKind::Hash,
        version: HASH,
        size: 2,
        is_counted: false,
        fields: Some(FieldTimes {
            count,
            first_ms,
            last_ms,
        }),
    };
    let by_name = |txn: &mut WriteTxn, field: &str, at_ms| {
        let row = txn.key(b"hash").field(HASH, field.as_bytes());
        txn.put(Family::ZsetScore, &row, field_expiry::encode(at_ms));
    };
    let by_time = |txn: &mut WriteTxn, field: &str, at_ms| {
        let row = txn.key(b"hash").field_time(HASH, at_ms, field.as_bytes());
        txn.put(Family::ZsetScore, &row, []);
    };
    let index = |txn: &mut WriteTxn, at_ms| {
        let row = txn.key(b"hash").fields_expiry(at_ms, HASH);
        txn.put(Family::Expiry, &row, []);
    };
    // f expires, and what is said of an earlier time is garbage.
    let whole = |txn: &mut WriteTxn| {
        put_metadata(txn, "hash", 0, metadata(1, AT, AT));
        by_name(txn, "f", AT);
        by_time(txn, "f", AT);
        by_name(txn, "gone", AT - 1);
        by_time(txn, "gone", AT - 1);
        index(txn, AT);
    };
    expect(whole, &[]);
    expect(
        |txn| {
            whole(txn);
            let row = txn.key(b"hash").fields_expiry(AT, HASH);
            txn.delete(Family::Expiry, &row);
        },
        &[
            r#"database 0, key "hash": fields expire from 1700000001000 on, but no expiry row says so: they would not be deleted"#,
        ],
    );
    expect(
        |txn| {
            whole(txn);
            by_name(txn, "g", AT);
        },
        &[
            r#"database 0, key "hash": the metadata says that 1 fields expire, but 2 rows say so"#,
            r#"database 0, key "hash": when fields expire is said differently by name and by time"#,
        ],
    );
    expect(
        |txn| {
            whole(txn);
            by_name(txn, "f", AT + 1);
        },
        &[
            r#"database 0, key "hash": field "f" expires at 1700000001001, after what the metadata says to be the last time, 1700000001000"#,
            r#"database 0, key "hash": when fields expire is said differently by name and by time"#,
        ],
    );
    expect(
        |txn| {
            whole(txn);
            put_metadata(txn, "hash", 0, metadata(2, AT, AT));
            by_name(txn, "x", AT);
            by_time(txn, "x", AT);
        },
        &[r#"database 0, key "hash": field "x" expires, but is not there"#],
    );
    expect(
        |txn| {
            let row = txn.key(b"set").field(SET, b"m");
            txn.put(Family::ZsetScore, &row, field_expiry::encode(AT));
        },
        &[r#"database 0, key "set": 1 rows say of a set that fields expire"#],
    );
}

#[test]
fn counts_that_are_not_the_number_of_elements() {
    let counted = |kind, version, size| Body::Collection {
        kind,
        version,
        size,
        is_counted: true,
        fields: None,
    };
    let put_count = |txn: &mut WriteTxn, (name, version): (&str, u64), first: &[u8], elements| {
        let row = txn.key(name.as_bytes()).count(version, first);
        txn.put(Family::ZsetScore, &row, count::encode(elements));
    };
    let zset = ("zset", ZSET);
    let second = score::encode(2.0);
    let zset_metadata = counted(CollectionKind::ZSet, ZSET, 2);
    let hash_metadata = counted(CollectionKind::Hash, HASH, 2);
    expect(
        |txn| {
            put_metadata(txn, "zset", 0, zset_metadata);
            put_count(txn, zset, b"", 1);
            put_count(txn, zset, &second, 1);
            put_metadata(txn, "hash", 0, hash_metadata);
            put_count(txn, ("hash", HASH), b"", 1);
            put_count(txn, ("hash", HASH), b"g", 1);
        },
        &[],
    );
    expect(
        |txn| {
            put_metadata(txn, "zset", 0, zset_metadata);
            put_count(txn, zset, b"", 2);
            put_count(txn, zset, &second, 0);
            put_metadata(txn, "hash", 0, hash_metadata);
            put_count(txn, ("hash", HASH), b"", 3);
        },
        &[
            "database 0, key \"hash\": the block of \"\" counts 3 elements, but 2 are there",
            "database 0, key \"zset\": the block of \"\" counts 2 elements, but 1 are there",
            "database 0, key \"zset\": the block of \"\\xc0\\x00\\x00\\x00\\x00\\x00\\x00\\x00\" counts 0 elements, but 1 are there",
        ],
    );
    expect(
        |txn| {
            put_metadata(txn, "zset", 0, zset_metadata);
            put_count(txn, zset, &second, 1);
            put_count(txn, ("set", SET), b"", 1);
        },
        &[
            "database 0, key \"set\": 1 count rows are there, but nothing says that elements are counted",
            "database 0, key \"zset\": its elements should be counted, but the first block is missing",
        ],
    );
}

#[test]
fn chunks_beyond_their_string() {
    expect(
        |txn| put_data(txn, "big", BIG, &1_u32.to_be_bytes(), &[0; 3617]),
        &[r#"database 0, key "big": chunk 1 ends at 20001, beyond the string's length of 20000"#],
    );
    expect(
        |txn| put_data(txn, "big", BIG, &2_u32.to_be_bytes(), b"x"),
        &[r#"database 0, key "big": chunk 2 ends at 32769, beyond the string's length of 20000"#],
    );
    expect(
        |txn| put_data(txn, "big", BIG, &0_u32.to_be_bytes(), &[0; 16_385]),
        &[r#"database 0, key "big": chunk 0 has 16385 bytes, more than 16384"#],
    );
    let sparse = |txn: &mut WriteTxn| {
        let edit = string::Edit::open(txn, b"sparse").unwrap();
        edit.write_at(txn, 100_000, b"end").unwrap();
    };
    expect(sparse, &[]);
}

#[test]
fn expiries_without_their_row() {
    expect(
        |txn| {
            let row = txn.key(b"small").expiry(NOW_MS + 1000);
            txn.delete(Family::Expiry, &row);
        },
        &[
            r#"database 0, key "small": it expires at 1700000001000, but no expiry row says so: it would not be deleted"#,
        ],
    );
    // A row for another time does not help.
    expect(
        |txn| put_metadata(txn, "small", NOW_MS + 2000, Body::Inline(b"1")),
        &[
            r#"database 0, key "small": it expires at 1700000002000, but no expiry row says so: it would not be deleted"#,
        ],
    );
}

#[test]
fn versions_that_could_be_given_out_again() {
    let future = 1 << 62;
    expect(
        |txn| {
            put_metadata(txn, "new", 0, collection(CollectionKind::Hash, future, 1));
            put_data(txn, "new", future, b"f", b"1");
        },
        &[
            r#"database 0, key "new": version 4611686018427387904 is above the recorded maximum 3481600000000000004: it could be given out again"#,
        ],
    );
    expect(
        |txn| {
            put_data(txn, "dead", future, b"f", b"1");
            put_data(txn, "dead", future, b"g", b"1");
        },
        &[
            r#"database 0, key "dead": version 4611686018427387904 is above the recorded maximum 3481600000000000004: it could be given out again"#,
        ],
    );
    expect(
        |txn| {
            let staging = SystemKey::Staging {
                region: REGION,
                version: HASH,
            };
            let key = txn.key(b"hash");
            txn.put(Family::Meta, &staging.encode(), key.metadata());
        },
        &[
            r#"database 0, key "hash": version 3481600000000000001 is in use and yet announced as staged: the next start would drop its rows"#,
        ],
    );
}

#[test]
fn facts_about_the_database_that_contradict_each_other() {
    expect(
        |txn| {
            let row = Key::new(77, b"lost").data(FIRST, b"f");
            txn.put(Family::Data, &row, *b"1");
            let row = Key::new(77, b"too").data(FIRST, b"f");
            txn.put(Family::Data, &row, *b"1");
        },
        &["metadata: index 77 has rows, but is neither a database's nor listed as dead"],
    );
    let database = |number| SystemKey::Database {
        region: REGION,
        number,
    };
    expect(
        |txn| {
            let shared = value::encode_database(txn.index_of(0));
            txn.put(Family::Meta, &database(9).encode(), shared);
        },
        &["meta: databases 0 and 9 share index 1"],
    );
    expect(
        |txn| {
            let dead = SystemKey::DeadIndex {
                region: REGION,
                index: txn.index_of(1),
            };
            txn.put(Family::Meta, &dead.encode(), value::EMPTY);
        },
        &["meta: index 2 of database 1 is listed as dead"],
    );
    expect(
        |txn| {
            let next = SystemKey::NextIndex { region: REGION };
            txn.put(Family::Meta, &next.encode(), value::encode_next_index(2));
        },
        &["meta: index 2 is in use, but 2 is the next to be given out"],
    );
    expect(
        |txn| {
            legacy::write_legacy(txn, b"ancient", b"old", 0);
            let mark = SystemKey::LegacyMayExist { region: REGION };
            txn.delete(Family::Meta, &mark.encode());
        },
        &[
            r#"database 0, key "ancient": a string of the old format is there, but `meta` says that none is: it cannot be seen"#,
        ],
    );
}

/// The committer writes them with every batch, so they are deleted past it.
#[test]
fn maxima_that_are_missing() {
    let sample = build();
    let maxima = SystemKey::Maxima { region: REGION }.encode();
    let engine = sample.store.engine();
    engine.delete_now(Family::Meta, &maxima).unwrap();
    let (lines, _) = examine(&sample);
    assert_eq!(lines, ["meta: the maxima of version and time are missing"]);
}

/// Regions of a cluster's node, with these slots each.
fn describe(txn: &mut WriteTxn, regions: &[(u64, u16, u16)]) {
    for &(region, first, end) in regions {
        let slots = Slots::new(first, end).unwrap();
        let descriptor = Descriptor { slots, epoch: 1 };
        let key = SystemKey::RegionDescriptor { region }.encode();
        txn.put(Family::Meta, &key, descriptor.encode());
    }
}

/// What a region that has led once says of itself: its databases have the same indexes as those of the others.
fn begin_databases(txn: &mut WriteTxn, region: u64, highest: u64) {
    for number in 0..2 {
        let key = SystemKey::Database { region, number }.encode();
        let index = value::encode_database(txn.index_of(number));
        txn.put(Family::Meta, &key, index);
    }
    let next = SystemKey::NextIndex { region }.encode();
    txn.put(Family::Meta, &next, value::encode_next_index(3));
    let maxima = Maxima {
        version: highest,
        timestamp_ms: NOW_MS,
    };
    let key = SystemKey::Maxima { region }.encode();
    txn.put(Family::Meta, &key, maxima.encode());
}

#[test]
fn regions_answer_for_their_own_slots() {
    let half = SLOTS / 2;
    let cut = |txn: &mut WriteTxn| {
        describe(txn, &[(0, 0, 0), (REGION, 0, half), (7, half, SLOTS)]);
        begin_databases(txn, 7, u64::MAX);
    };
    expect(cut, &[]);
    expect(
        |txn| {
            cut(txn);
            // Not where it would be seen: the version is above what the other half has given out.
            begin_databases(txn, 7, ZSET - 1);
        },
        &[&format!(
            "database 0, key \"zset\": version {ZSET} is above the recorded maximum {}: it could be given out again",
            ZSET - 1
        )],
    );
    assert!(slot(b"zset") >= half && slot(b"hash") < half);
    expect(
        |txn| {
            cut(txn);
            let dead = SystemKey::DeadIndex {
                region: 7,
                index: 1,
            };
            txn.put(Family::Meta, &dead.encode(), value::EMPTY);
        },
        &["region 7: index 1 of database 0 is listed as dead"],
    );
    expect(
        |txn| {
            cut(txn);
            describe(txn, &[(7, half - 1, SLOTS)]);
        },
        &["meta: regions 1 and 7 share slots"],
    );
}

#[test]
fn what_other_nodes_hold_is_left_over() {
    let sample = build();
    let half = SLOTS / 2;
    sample.change(|txn| describe(txn, &[(REGION, 0, half)]));
    let (lines, summary) = examine(&sample);
    assert_eq!(lines, [""; 0]);
    assert!(summary.orphans.of_other_nodes >= 4, "{summary}");
    assert_eq!(summary.keys(Type::ZSet), 0);
    assert_eq!(summary.keys(Type::Hash), 1);
    // What is being replaced is not judged, whatever it looks like.
    sample.change(|txn| {
        let mark = SystemKey::Installing { region: REGION }.encode();
        txn.put(Family::Meta, &mark, Slots::new(0, half).unwrap().encode());
        delete_data(txn, "hash", HASH, b"f");
    });
    let (lines, summary) = examine(&sample);
    assert_eq!(lines, [""; 0]);
    assert_eq!(summary.keys(Type::Hash), 0);
    assert!(summary.staged_rows >= 2, "{summary}");
}
