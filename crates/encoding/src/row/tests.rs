use super::*;
use crate::golden::assert_bytes;

const INDEX: u64 = 7;
const VERSION: u64 = 0x0102_0304_0506_0708;

/// `foo` belongs to slot 12182 = 0x2f96.
const FOO: &str = "0000000000000001 0000000000000007 2f96 00000003 666f6f ";

fn data(key: &'static [u8], sub: &'static [u8]) -> RowKey<'static> {
    RowKey::Data {
        index: INDEX,
        key,
        version: VERSION,
        sub,
    }
}

fn score_row(score: f64, member: &'static [u8]) -> RowKey<'static> {
    RowKey::Score {
        index: INDEX,
        key: b"foo",
        version: VERSION,
        score,
        member,
    }
}

fn count_row(first: &'static [u8]) -> RowKey<'static> {
    RowKey::Count {
        index: INDEX,
        key: b"foo",
        version: VERSION,
        first,
    }
}

fn field_row(field: &'static [u8]) -> RowKey<'static> {
    RowKey::Field {
        index: INDEX,
        key: b"foo",
        version: VERSION,
        field,
    }
}

fn field_time_row(at_ms: u64, field: &'static [u8]) -> RowKey<'static> {
    RowKey::FieldTime {
        index: INDEX,
        key: b"foo",
        version: VERSION,
        at_ms,
        field,
    }
}

fn fields_expiry_row(at_ms: u64) -> RowKey<'static> {
    RowKey::FieldsExpiry {
        at_ms,
        index: INDEX,
        key: b"foo",
        version: VERSION,
    }
}

fn built(build: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    build(&mut out);
    out
}

#[test]
fn golden_bytes_of_rows() {
    let metadata = RowKey::Metadata {
        index: INDEX,
        key: b"foo",
    };
    assert_bytes(&metadata.encode(), FOO);

    let field = data(b"foo", b"name").encode();
    assert_bytes(&field, &format!("{FOO} 0102030405060708 6e616d65"));

    let score = score_row(-1.0, b"Ada").encode();
    assert_bytes(
        &score,
        &format!("{FOO} 0102030405060708 400fffffffffffff 416461"),
    );

    let count = count_row(b"Ad").encode();
    assert_bytes(
        &count,
        &format!("{FOO} 0102030405060708 ffffffffffffffff 4164"),
    );

    let field = field_row(b"Ad").encode();
    assert_bytes(
        &field,
        &format!("{FOO} 0102030405060708 fffffffffffffffe 4164"),
    );

    let time = field_time_row(0x0190_0000_0000, b"Ad").encode();
    assert_bytes(
        &time,
        &format!("{FOO} 0102030405060708 fffffffffffffffd 0000019000000000 4164"),
    );

    assert_bytes(
        &fields_expiry_row(0x0190_0000_0000).encode(),
        &format!("0000000000000001 0000019000000000 {FOO} 0102030405060708"),
    );

    let expiry = RowKey::Expiry {
        at_ms: 0x0190_0000_0000,
        index: INDEX,
        key: b"foo",
    };
    assert_bytes(
        &expiry.encode(),
        &format!("0000000000000001 0000019000000000 {FOO}"),
    );

    let legacy = RowKey::Legacy {
        index: INDEX,
        key: b"foo",
    };
    assert_bytes(&legacy.encode(), &format!("{FOO} 53"));
}

#[test]
fn golden_bytes_of_an_empty_key_and_an_empty_sub_key() {
    assert_bytes(
        &data(b"", b"").encode(),
        "0000000000000001 0000000000000007 0000 00000000 0102030405060708",
    );
}

#[test]
fn golden_bytes_of_bounds() {
    let keyspace_and_index = "0000000000000001 0000000000000007";
    assert_bytes(&built(|out| index_prefix(out, INDEX)), keyspace_and_index);
    assert_bytes(
        &built(|out| slot_prefix(out, INDEX, 0x1234)),
        &format!("{keyspace_and_index} 1234"),
    );
    assert_bytes(&built(|out| metadata_key(out, INDEX, b"foo")), FOO);
    assert_bytes(
        &built(|out| version_prefix(out, INDEX, b"foo", VERSION)),
        &format!("{FOO} 0102030405060708"),
    );
    assert_bytes(
        &built(|out| expiry_prefix(out, 5)),
        "0000000000000001 0000000000000005",
    );
}

#[test]
fn encoding_appends_and_allocates_once() {
    let rows = [
        data(b"foo", b"name"),
        score_row(1.5, b"Ada"),
        count_row(b"Ad"),
        field_row(b"Ad"),
        field_time_row(9, b"Ad"),
        fields_expiry_row(9),
        RowKey::Metadata {
            index: INDEX,
            key: b"foo",
        },
        RowKey::Legacy {
            index: INDEX,
            key: b"foo",
        },
        RowKey::Expiry {
            at_ms: 9,
            index: INDEX,
            key: b"foo",
        },
    ];
    for row in rows {
        let mut out = b"before".to_vec();
        row.encode_into(&mut out);
        assert_eq!(out, [b"before", &row.encode()[..]].concat());
        assert_eq!(row.encoded_len(), row.encode().len());
    }
}

#[test]
fn a_slot_that_is_not_the_keys_is_an_error() {
    let mut row = data(b"foo", b"name").encode();
    row[17] ^= 1;
    assert_eq!(
        RowKey::decode_data(&row).map_err(|error| error.to_string()),
        Err("data row: slot 12183 is stored, but the key belongs to slot 12182".to_string())
    );
}

#[test]
fn another_keyspace_is_an_error_in_both_places_of_an_expiry_row() {
    let row = RowKey::Expiry {
        at_ms: 9,
        index: INDEX,
        key: b"foo",
    }
    .encode();
    for offset in [7, 16 + 7] {
        let mut foreign = row.clone();
        foreign[offset] = 2;
        assert_eq!(
            RowKey::decode_expiry(&foreign).map_err(|error| error.to_string()),
            Err("expiry row: keyspace_id is 2, not 1".to_string())
        );
    }
}

#[test]
fn a_key_length_beyond_the_row_is_an_error() {
    let mut row = data(b"foo", b"name").encode();
    row[18..22].fill(0xff);
    assert_eq!(
        RowKey::decode_data(&row).map_err(|error| error.to_string()),
        Err("data row: key at byte 22 takes 4294967295 bytes, 15 are left".to_string())
    );
}

#[test]
fn only_a_lone_s_marks_an_old_string() {
    let prefix = built(|out| metadata_key(out, INDEX, b"foo"));
    let decode = |tail: &[u8]| RowKey::decode_data(&[&prefix, tail].concat()).map(|_| ());
    assert_eq!(decode(b"S"), Ok(()));
    for tail in [&b""[..], b"s", b"SS", b"SSSSSSS"] {
        assert!(matches!(decode(tail), Err(DecodeError::Truncated { .. })));
    }
    let versioned = [&prefix[..], b"SSSSSSSS"].concat();
    assert_eq!(
        RowKey::decode_data(&versioned),
        Ok(RowKey::Data {
            index: INDEX,
            key: b"foo",
            version: 0x5353_5353_5353_5353,
            sub: b""
        })
    );
}

#[test]
fn count_rows_lie_behind_all_scores_and_within_their_version() {
    let highest = score_row(f64::INFINITY, &[u8::MAX; 100]).encode();
    let (first, later) = (count_row(b"").encode(), count_row(&[u8::MAX; 100]).encode());
    let end = version_end(&data(b"foo", b"").encode());
    assert!(highest < first && first < later && later < end);
    for row in [first, later] {
        let decoded = RowKey::decode_score(&row);
        assert_eq!(decoded.map(|decoded| decoded.encode()), Ok(row));
    }
}

#[test]
fn the_end_of_a_prefix_carries_over_full_bytes() {
    assert_eq!(prefix_end(b"ab"), Some(b"ac".to_vec()));
    assert_eq!(prefix_end(b"a\xff\xff"), Some(b"b".to_vec()));
    assert_eq!(prefix_end(b"\xff\x00\xff"), Some(b"\xff\x01".to_vec()));
    assert_eq!(prefix_end(b"\xff\xff"), None);
    assert_eq!(prefix_end(b""), None);
}

#[test]
fn the_rows_of_a_version_end_where_the_next_begins() {
    let prefix = |key: &[u8], version| {
        let mut prefix = Vec::new();
        version_prefix(&mut prefix, 3, key, version);
        prefix
    };
    for version in [1, 255, 0xffff_ffff] {
        let (this, next) = (prefix(b"key", version), prefix(b"key", version + 1));
        assert_eq!(version_end(&this), next);
        let row = [&this, &b"sub"[..]].concat();
        assert_eq!(version_prefix_of(&row), Some(&this[..]));
        assert_eq!(version_prefix_of(&this), Some(&this[..]));
        assert!(ends_within_version(&this, &row));
        assert!(ends_within_version(&this, &this));
        assert!(ends_within_version(&this, &next));
        for beyond in [
            [&next, &b"\0"[..]].concat(),
            prefix(b"key", version + 2),
            prefix(b"kez", version + 1),
            Vec::new(),
        ] {
            assert!(!ends_within_version(&this, &beyond));
        }
    }
    let legacy = RowKey::Legacy {
        index: 3,
        key: b"key",
    };
    assert_eq!(version_prefix_of(&legacy.encode()), None);
}
