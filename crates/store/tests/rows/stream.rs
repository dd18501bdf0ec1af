//! The rows of a stream: each kind of disagreement is planted by hand, and must be found and named.

use cairn_encoding::metadata::{Body, Metadata};
use cairn_encoding::stream::{Consumer, Group, Head, Id, Pending, Sub};
use cairn_store::check::check;
use cairn_store::{Family, WriteTxn};

use crate::sample::{NOW_MS, Sample, read_stream, xadd};

const VERSION: u64 = (NOW_MS * 1000) << 11;

const HEAD: Head = Head {
    version: VERSION,
    size: 3,
    added: 3,
    groups: 1,
    floor: Id::new(1, 0),
    last: Id::new(3, 0),
    deleted: Id::MIN,
};

/// Three entries, of which a consumer has two.
fn build() -> Sample {
    let sample = Sample::new();
    sample.change(|txn| {
        xadd(txn, "s", &[1, 2, 3]);
        read_stream(txn, "s", "g", "c", &[1, 2]);
    });
    sample
}

#[track_caller]
fn expect(plant: impl FnOnce(&mut WriteTxn), expected: &[&str]) {
    let sample = build();
    sample.change(plant);
    let mut lines = Vec::new();
    check(&sample.read_only(), &mut |violation| {
        lines.push(violation.to_string());
    })
    .unwrap();
    let expected: Vec<String> = expected
        .iter()
        .map(|text| format!("database 0, key \"s\": {text}"))
        .collect();
    assert_eq!(lines, expected);
}

fn put(txn: &mut WriteTxn, sub: Sub<'_>, value: impl AsRef<[u8]>) {
    let row = txn.key(b"s").data(VERSION, &sub.encode());
    txn.put(Family::Data, &row, value);
}

fn delete(txn: &mut WriteTxn, sub: Sub<'_>) {
    let row = txn.key(b"s").data(VERSION, &sub.encode());
    txn.delete(Family::Data, &row);
}

fn put_head(txn: &mut WriteTxn, head: Head) {
    let key = txn.key(b"s");
    let body = Body::Stream {
        version: head.version,
        size: head.size,
        rest: &head.rest(),
    };
    let metadata = Metadata { expire_ms: 0, body };
    txn.put(Family::Metadata, key.metadata(), metadata.encode());
}

#[test]
fn a_sound_stream_has_no_violations() {
    expect(|_| {}, &[]);
}

#[test]
fn the_metadata_must_agree_with_the_entries() {
    let size = Head { size: 4, ..HEAD };
    expect(
        |txn| put_head(txn, size),
        &["the metadata of the stream says 4, but 3 rows are there"],
    );
    let floor = Head {
        floor: Id::new(0, 5),
        ..HEAD
    };
    expect(
        |txn| put_head(txn, floor),
        &["the stream's first entry is 1-0, but its floor is 0-5"],
    );
    let last = Head {
        last: Id::new(2, 9),
        ..HEAD
    };
    expect(
        |txn| put_head(txn, last),
        &["the stream's entry 3-0 lies above its last ID, 2-9"],
    );
    let groups = Head { groups: 2, ..HEAD };
    expect(
        |txn| put_head(txn, groups),
        &["the metadata of the stream says 2 groups, but 1 are there"],
    );
    expect(
        |txn| put(txn, Sub::Entry(Id::new(2, 0)), [0, 0, 0, 9]),
        &[
            "the row of \"\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x02\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\" does \
             not decode: stream entry: field at byte 4 takes 9 bytes, 0 are left",
        ],
    );
}

#[test]
fn what_is_pending_must_agree() {
    let group = Group {
        last: Id::new(2, 0),
        read: Some(2),
        consumers: 1,
        pending: 2,
        low: Id::new(1, 0),
    };
    let name = &b"g"[..];
    expect(
        |txn| {
            let more = Group {
                consumers: 5,
                pending: 3,
                low: Id::new(1, 1),
                ..group
            };
            put(txn, Sub::Group(name), more.encode());
        },
        &[
            "group \"g\" has 1-0 pending below its low ID, 1-1",
            "group \"g\" says 5 consumers, but 1 are there",
            "group \"g\" says 3 pending entries, but 2 are there",
        ],
    );
    let consumer = &b"c"[..];
    expect(
        |txn| {
            let more = Consumer {
                seen_ms: 1,
                pending: 3,
            };
            let sub = Sub::Consumer {
                group: name,
                consumer,
            };
            put(txn, sub, more.encode());
        },
        &["consumer \"c\" of group \"g\" says 3 pending entries, but 2 are there"],
    );
    expect(
        |txn| {
            let other = Pending {
                delivered_ms: 1,
                deliveries: 1,
                consumer: b"another",
            };
            let sub = Sub::Pending {
                group: name,
                id: Id::new(2, 0),
            };
            put(txn, sub, other.encode());
        },
        &["the pending entries of group \"g\" differ from those of its consumers"],
    );
    expect(
        |txn| {
            delete(txn, Sub::Group(name));
            put_head(txn, Head { groups: 0, ..HEAD });
        },
        &["rows of group \"g\" are there, but the group is not"; 5],
    );
}
