use crate::strategies::{Row, bytes, data_family_row, expiry_row, metadata_row, number, score_row};
use cairn_encoding::row::{
    RowKey, expiry_prefix, index_prefix, metadata_key, prefix_end, slot_prefix, version_prefix,
};
use cairn_encoding::slot::slot;
use proptest::collection::vec;
use proptest::prelude::*;

fn built(build: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    build(&mut out);
    out
}

/// As a scan with an upper bound sees it.
fn within(prefix: &[u8], row: &[u8]) -> bool {
    prefix <= row && prefix_end(prefix).is_none_or(|end| row < &end[..])
}

/// Database, key and version (an old string has none) of a `data` or `zset_score` row.
fn owner(row: &Row) -> (u64, &[u8], Option<u64>) {
    match row.borrow() {
        RowKey::Data {
            index,
            key,
            version,
            ..
        }
        | RowKey::Score {
            index,
            key,
            version,
            ..
        }
        | RowKey::Count {
            index,
            key,
            version,
            ..
        }
        | RowKey::Field {
            index,
            key,
            version,
            ..
        }
        | RowKey::FieldTime {
            index,
            key,
            version,
            ..
        } => (index, key, Some(version)),
        RowKey::Metadata { index, key }
        | RowKey::Legacy { index, key }
        | RowKey::Expiry { index, key, .. }
        | RowKey::FieldsExpiry { index, key, .. } => (index, key, None),
    }
}

fn versioned_family_row() -> impl Strategy<Value = Row> {
    prop_oneof![data_family_row(), score_row()]
}

proptest! {
    #[test]
    fn different_rows_of_a_family_never_share_an_encoding(
        data in vec(data_family_row(), 2..8),
        score in vec(score_row(), 2..8),
        metadata in vec(metadata_row(), 2..8),
        expiry in vec(expiry_row(), 2..8),
    ) {
        for family in [data, score, metadata, expiry] {
            for (a, b) in family.iter().zip(&family[1..]) {
                prop_assert_eq!(a.encode() == b.encode(), a.borrow() == b.borrow());
            }
        }
    }

    /// The classic collision: the same bytes, cut into key and sub-key elsewhere. A hash tag keeps the
    /// slot equal, and one byte repeated makes the version look like its neighbours, so that nothing but
    /// the stored length of the key tells the rows apart.
    #[test]
    fn moving_the_cut_between_key_and_sub_key_gives_another_row(
        byte in any::<u8>(),
        (key_a, key_b) in (0..10_usize, 0..10_usize),
    ) {
        let run = [byte; 10];
        let version = u64::from_be_bytes([byte; 8]);
        let row = |length: usize| {
            let (in_key, sub) = run.split_at(length);
            let key = [b"{tag}", in_key].concat();
            RowKey::Data { index: 0, key: &key, version, sub }.encode()
        };
        prop_assert_eq!(row(key_a).len(), row(key_b).len());
        prop_assert_eq!(row(key_a) == row(key_b), key_a == key_b);

        let of_key_b = built(|out| {
            version_prefix(out, 0, &[b"{tag}", &run[..key_b]].concat(), version);
        });
        prop_assert_eq!(within(&of_key_b, &row(key_a)), key_a == key_b);
    }

    #[test]
    fn a_version_prefix_bounds_exactly_the_rows_of_that_version(
        rows in vec(versioned_family_row(), 1..8),
        (index, key, version) in (number(), bytes(), number()),
    ) {
        // The owners of the rows themselves, so that many of the ranges are not empty.
        let mut candidates = vec![(index, &key[..], version)];
        candidates.extend(rows.iter().map(|row| {
            let (index, key, of_row) = owner(row);
            (index, key, of_row.unwrap_or(version))
        }));
        for (index, key, version) in candidates {
            let prefix = built(|out| version_prefix(out, index, key, version));
            for row in &rows {
                let belongs = owner(row) == (index, key, Some(version));
                prop_assert_eq!(within(&prefix, &row.encode()), belongs, "{:?}", row);
            }
        }
    }

    #[test]
    fn wider_prefixes_bound_exactly_a_key_a_slot_or_a_database(
        rows in vec(versioned_family_row(), 1..8),
    ) {
        for bounding in &rows {
            let (index, key, _) = owner(bounding);
            let key_bounds = built(|out| metadata_key(out, index, key));
            let slot_bounds = built(|out| slot_prefix(out, index, slot(key)));
            let index_bounds = built(|out| index_prefix(out, index));
            for row in &rows {
                let (row_index, row_key, _) = owner(row);
                let encoded = row.encode();
                let same_index = row_index == index;
                prop_assert_eq!(within(&index_bounds, &encoded), same_index);
                let same_slot = same_index && slot(row_key) == slot(key);
                prop_assert_eq!(within(&slot_bounds, &encoded), same_slot);
                prop_assert_eq!(within(&key_bounds, &encoded), same_index && row_key == key);
            }
        }
    }

    #[test]
    fn what_is_due_lies_below_the_expiry_prefix(row in expiry_row(), now_ms in number()) {
        let (RowKey::Expiry { at_ms, .. } | RowKey::FieldsExpiry { at_ms, .. }) = row.borrow()
        else {
            unreachable!("the strategy makes expiry rows")
        };
        let bound = built(|out| expiry_prefix(out, now_ms));
        prop_assert_eq!(row.encode() < bound, at_ms < now_ms);
        prop_assert_eq!(within(&bound, &row.encode()), at_ms == now_ms);
    }

    #[test]
    fn the_end_of_a_prefix_is_tight(prefix in bytes(), other in bytes()) {
        prop_assert_eq!(within(&prefix, &other), other.starts_with(&prefix));
        if let Some(end) = prefix_end(&prefix) {
            // Nothing that does not begin with the prefix fits between its strings and the end.
            let above_all = [&prefix[..], &[0xff; 60]].concat();
            prop_assert!(other <= above_all || other >= end);
        }
    }
}
