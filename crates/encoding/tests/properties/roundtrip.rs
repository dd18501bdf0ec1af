use crate::strategies::{
    bytes, data_family_row, expiry_row, metadata_row, metadata_value, number, score, score_row,
    system_key,
};
use cairn_encoding::legacy::LegacyString;
use cairn_encoding::metadata::{self, Metadata};
use cairn_encoding::row::{self, RowKey};
use cairn_encoding::system::{Maxima, SystemKey};
use cairn_encoding::{chunk, score as scores};
use proptest::prelude::*;

proptest! {
    #[test]
    fn metadata_rows(row in metadata_row()) {
        let encoded = row.encode();
        prop_assert_eq!(RowKey::decode_metadata(&encoded), Ok(row.borrow()));
    }

    #[test]
    fn data_and_legacy_rows(row in data_family_row()) {
        let encoded = row.encode();
        prop_assert_eq!(RowKey::decode_data(&encoded), Ok(row.borrow()));
    }

    #[test]
    fn score_rows(row in score_row()) {
        let encoded = row.encode();
        prop_assert_eq!(RowKey::decode_score(&encoded), Ok(row.borrow()));
    }

    #[test]
    fn expiry_rows(row in expiry_row()) {
        let encoded = row.encode();
        prop_assert_eq!(RowKey::decode_expiry(&encoded), Ok(row.borrow()));
    }

    #[test]
    fn metadata_values_and_what_peeks_see_of_them(value in metadata_value()) {
        let metadata = value.borrow();
        let encoded = metadata.encode();
        prop_assert_eq!(Metadata::decode(&encoded), Ok(metadata));
        prop_assert_eq!(metadata::type_of(&encoded), Ok(metadata.kind()));
        prop_assert_eq!(metadata::expire_of(&encoded), Ok(metadata.expire_ms));
    }

    #[test]
    fn legacy_values(expire_ms in number(), payload in bytes()) {
        let value = LegacyString { expire_ms, payload: &payload };
        let encoded = value.encode();
        prop_assert_eq!(LegacyString::decode(&encoded), Ok(value));
    }

    #[test]
    fn scores_to_the_bit_but_for_the_sign_of_zero(score in score()) {
        let decoded = scores::decode(scores::encode(score));
        let expected = if score == 0.0 { 0.0 } else { score };
        prop_assert_eq!(decoded.to_bits(), expected.to_bits());
        prop_assert_eq!(scores::decode_value(&scores::encode(score)), Ok(expected));
    }

    #[test]
    fn system_keys_and_maxima(key in system_key(), version in number(), timestamp_ms in number()) {
        let encoded = key.encode();
        prop_assert_eq!(SystemKey::decode(&encoded), Ok(key));
        let maxima = Maxima { version, timestamp_ms };
        prop_assert_eq!(Maxima::decode(&maxima.encode()), Ok(maxima));
    }

    #[test]
    fn numeric_sub_keys(number in any::<u32>(), index in number()) {
        prop_assert_eq!(chunk::decode_chunk_sub(&chunk::chunk_sub(number)), Ok(number));
        prop_assert_eq!(chunk::decode_index_sub(&chunk::index_sub(index)), Ok(index));
    }

    #[test]
    fn rows_finished_from_a_metadata_key_are_the_same_rows(
        row in prop_oneof![data_family_row(), score_row(), expiry_row()],
    ) {
        let metadata_key = metadata_key_of(row.borrow());
        let mut out = Vec::new();
        match row.borrow() {
            RowKey::Metadata { .. } => out.extend_from_slice(&metadata_key),
            RowKey::Data { version, sub, .. } => {
                row::append_data(&mut out, &metadata_key, version, sub);
            }
            RowKey::Score { version, score, member, .. } => {
                row::append_score(&mut out, &metadata_key, version, score, member);
            }
            RowKey::Count { version, first, .. } => {
                row::append_count(&mut out, &metadata_key, version, first);
            }
            RowKey::Field { version, field, .. } => {
                row::append_field(&mut out, &metadata_key, version, field);
            }
            RowKey::FieldTime { version, at_ms, field, .. } => {
                row::append_field_time(&mut out, &metadata_key, version, at_ms, field);
            }
            RowKey::Expiry { at_ms, .. } => row::append_expiry(&mut out, &metadata_key, at_ms),
            RowKey::FieldsExpiry { at_ms, version, .. } => {
                row::append_fields_expiry(&mut out, &metadata_key, at_ms, version);
            }
            RowKey::Legacy { .. } => row::append_legacy(&mut out, &metadata_key),
        }
        prop_assert_eq!(out, row.encode());
    }

    #[test]
    fn the_metadata_key_is_found_inside_every_row(
        versioned in prop_oneof![data_family_row(), score_row()],
        expiry in expiry_row(),
    ) {
        let (encoded, expected) = (versioned.encode(), metadata_key_of(versioned.borrow()));
        prop_assert_eq!(row::metadata_key_of(&encoded), Ok(&expected[..]));
        let (index, key) = versioned.borrow().index_and_key();
        prop_assert_eq!(row::index_of(&encoded), Some(index));
        prop_assert_eq!(row::slot_of(&encoded), Some(cairn_encoding::slot::slot(key)));
        let (encoded, expected) = (expiry.encode(), metadata_key_of(expiry.borrow()));
        prop_assert_eq!(row::metadata_key_of_expiry(&encoded), Ok(&expected[..]));
    }
}

fn metadata_key_of(row: RowKey<'_>) -> Vec<u8> {
    let (index, key) = row.index_and_key();
    RowKey::Metadata { index, key }.encode()
}
