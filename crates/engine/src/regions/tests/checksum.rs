//! Checksums.

use cairn_encoding::system::value;

use super::*;

/// Two replicas that were told the same: one has drained, compacted and dropped what is dead, the other has not.
#[test]
fn replicas_at_one_place_have_the_same_checksum_however_their_rows_lie() {
    let (_one_dir, one, _other_dir, other) = nodes();
    let slots = descriptor(300, 900).slots;
    let all: Vec<String> = names(slots).take(30).collect();
    for regions in [&one, &other] {
        create(regions, &[(20, descriptor(300, 900))]);
        let database = SystemKey::Database {
            region: 20,
            number: 0,
        };
        let mut first = Batch::new();
        first.put(
            Family::Meta,
            &database.encode(),
            value::encode_database(INDEX),
        );
        for (name, version) in all.iter().zip(1..) {
            put_hash(&mut first, INDEX, name, version, "value");
            // Of a database that is no more.
            put_hash(&mut first, 9, name, version, "value");
        }
        // Overwritten, deleted, and expired before the watermark.
        let mut second = Batch::new();
        for (name, version) in all.iter().zip(101..) {
            let key = name.as_bytes();
            let index = INDEX;
            match version % 3 {
                0 => put_hash(&mut second, index, name, version, "changed"),
                1 => second.delete(Family::Metadata, &RowKey::Metadata { index, key }.encode()),
                _ => {
                    let metadata = Metadata {
                        expire_ms: NOW - 1,
                        body: Body::Inline(b"string"),
                    };
                    let row = RowKey::Metadata { index, key }.encode();
                    second.put(Family::Metadata, &row, metadata.encode());
                }
            }
        }
        let dead = SystemKey::DeadIndex {
            region: 20,
            index: 9,
        };
        second.put(Family::Meta, &dead.encode(), []);
        let watermark = value::encode_watermark(NOW);
        let key = SystemKey::Watermark { region: 20 }.encode();
        second.put(Family::Meta, &key, watermark);
        let batches = vec![first, second];
        regions
            .apply(20, batches, &at(9), Maxima::default())
            .unwrap();
    }
    let before = rows(&one, 20).len();
    one.engine.start_filters();
    one.sync().unwrap();
    one.engine.compact().unwrap();
    one.engine.compact().unwrap();
    assert!(rows(&one, 20).len() < before - 50, "nothing was dropped");
    let (place, checksum) = one.checksum(20).unwrap();
    assert_eq!(place, at(9));
    assert_eq!(other.checksum(20).unwrap(), (place, checksum));
    // Database, watermark, maxima, descriptor; ten hashes, each with a field and an expiry row.
    assert_eq!(checksum.rows, 4 + 3 * 10);

    // A field that differs, one that is missing, and an expiry row that is missing.
    let key = all[1].as_bytes();
    let field = RowKey::Data {
        index: INDEX,
        key,
        version: 102,
        sub: b"field",
    }
    .encode();
    let at_ms = LATER;
    let index = INDEX;
    let expiry = RowKey::Expiry { at_ms, index, key }.encode();
    assert!(other.engine.get(Family::Data, &field).unwrap().is_some());
    let changes = [
        (Family::Data, &field, Some("different")),
        (Family::Data, &field, None),
        (Family::Expiry, &expiry, None),
    ];
    let mut sums = vec![checksum];
    for (family, key, value) in changes {
        let mut batch = Batch::new();
        match value {
            Some(value) => batch.put(family, key, value),
            None => batch.delete(family, key),
        }
        other
            .apply(20, vec![batch], &at(9), Maxima::default())
            .unwrap();
        let (_, sum) = other.checksum(20).unwrap();
        assert!(!sums.contains(&sum));
        sums.push(sum);
    }
}
