use crate::strategies::{bytes, number, score};
use cairn_encoding::row::RowKey;
use cairn_encoding::slot::slot;
use cairn_encoding::{chunk, score as scores, version};
use proptest::collection::vec;
use proptest::prelude::*;
use std::cmp::Ordering;

/// Keys of a slot sort by length first, which is what lets no key lie inside another.
fn key_order(index: u64, key: &[u8]) -> (u64, u16, usize, &[u8]) {
    (index, slot(key), key.len(), key)
}

/// Steps of a microsecond or none, leaps in both directions, and nonsense.
fn clock() -> impl Strategy<Value = u64> {
    prop_oneof![
        1_700_000_000_000_000..1_700_000_000_000_003_u64,
        0..1_u64 << 53,
        number(),
    ]
}

proptest! {
    #[test]
    fn scores_sort_as_doubles(a in score(), b in score()) {
        let expected = a.partial_cmp(&b).unwrap();
        prop_assert_eq!(scores::encode(a).cmp(&scores::encode(b)), expected);
    }

    #[test]
    fn score_rows_sort_by_score_and_then_by_member(
        key in bytes(),
        version in number(),
        (a, member_a) in (score(), bytes()),
        (b, member_b) in (score(), bytes()),
    ) {
        let row = |score, member| RowKey::Score { index: 0, key: &key, version, score, member }.encode();
        let expected = a.partial_cmp(&b).unwrap().then(member_a.cmp(&member_b));
        prop_assert_eq!(row(a, &member_a).cmp(&row(b, &member_b)), expected);
    }

    #[test]
    fn data_rows_sort_by_database_slot_key_version_and_sub_key(
        a in (number(), bytes(), number(), bytes()),
        b in (number(), bytes(), number(), bytes()),
        same_key in any::<bool>(),
        same_version in any::<bool>(),
    ) {
        let (index_a, key_a, version_a, sub_a) = a;
        let (mut index_b, mut key_b, mut version_b, sub_b) = b;
        if same_key {
            (index_b, key_b) = (index_a, key_a.clone());
        }
        if same_version {
            version_b = version_a;
        }
        let row_a = RowKey::Data { index: index_a, key: &key_a, version: version_a, sub: &sub_a };
        let row_b = RowKey::Data { index: index_b, key: &key_b, version: version_b, sub: &sub_b };
        let expected = (key_order(index_a, &key_a), version_a, &sub_a)
            .cmp(&(key_order(index_b, &key_b), version_b, &sub_b));
        prop_assert_eq!(row_a.encode().cmp(&row_b.encode()), expected);
    }

    #[test]
    fn metadata_rows_sort_by_database_slot_and_key(
        (index_a, key_a) in (number(), bytes()),
        (index_b, key_b) in (number(), bytes()),
    ) {
        let row = |index, key| RowKey::Metadata { index, key }.encode();
        let expected = key_order(index_a, &key_a).cmp(&key_order(index_b, &key_b));
        prop_assert_eq!(row(index_a, &key_a).cmp(&row(index_b, &key_b)), expected);
    }

    #[test]
    fn expiry_rows_sort_by_time_before_anything_else(
        (at_a, index_a, key_a) in (number(), number(), bytes()),
        (at_b, index_b, key_b) in (number(), number(), bytes()),
    ) {
        let row = |at_ms, index, key| RowKey::Expiry { at_ms, index, key }.encode();
        let expected = (at_a, key_order(index_a, &key_a)).cmp(&(at_b, key_order(index_b, &key_b)));
        prop_assert_eq!(row(at_a, index_a, &key_a).cmp(&row(at_b, index_b, &key_b)), expected);
    }

    #[test]
    fn list_indexes_and_chunk_numbers_sort_as_numbers(
        (a, b) in (number(), number()),
        (c, d) in (any::<u32>(), any::<u32>()),
    ) {
        prop_assert_eq!(chunk::index_sub(a).cmp(&chunk::index_sub(b)), a.cmp(&b));
        prop_assert_eq!(chunk::chunk_sub(c).cmp(&chunk::chunk_sub(d)), c.cmp(&d));
    }

    #[test]
    fn versions_rise_whatever_the_clock_does(clock in vec(clock(), 1..20)) {
        let mut last = 0;
        for now_micros in clock {
            let next = version::next(now_micros, last);
            prop_assert_eq!(next.cmp(&last), Ordering::Greater);
            last = next;
        }
    }
}
