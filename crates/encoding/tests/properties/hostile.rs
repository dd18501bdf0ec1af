use crate::strategies::{
    data_family_row, expiry_row, metadata_row, metadata_value, score_row, system_key,
};
use cairn_encoding::legacy::LegacyString;
use cairn_encoding::metadata::{self, Metadata};
use cairn_encoding::row::{self, RowKey};
use cairn_encoding::system::{Maxima, SystemKey, value};
use cairn_encoding::{chunk, score};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

const NEGATIVE_INFINITY: u64 = 0x000f_ffff_ffff_ffff;
const NEGATIVE_ZERO: u64 = 0x7fff_ffff_ffff_ffff;
const INFINITY: u64 = 0xfff0_0000_0000_0000;
const EDGES: [u64; 9] = [
    0,
    NEGATIVE_INFINITY - 1,
    NEGATIVE_INFINITY,
    NEGATIVE_ZERO - 1,
    NEGATIVE_ZERO,
    NEGATIVE_ZERO + 1,
    INFINITY,
    INFINITY + 1,
    u64::MAX,
];

/// Ways in which bytes on a disk go wrong.
#[derive(Debug, Clone)]
enum Damage {
    Truncate(Index),
    Flip(Index, u8),
    Append(Vec<u8>),
}

impl Damage {
    fn apply(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        match self {
            Damage::Truncate(length) => bytes.truncate(length.index(bytes.len() + 1)),
            Damage::Flip(at, mask) if !bytes.is_empty() => {
                let at = at.index(bytes.len());
                bytes[at] ^= mask;
            }
            Damage::Flip(..) => {}
            Damage::Append(more) => bytes.extend_from_slice(more),
        }
        bytes
    }
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        any::<Index>().prop_map(Damage::Truncate),
        (any::<Index>(), any::<u8>()).prop_map(|(at, mask)| Damage::Flip(at, mask)),
        vec(any::<u8>(), 0..10).prop_map(Damage::Append),
    ]
}

/// Bytes that are nearly right: noise alone would not get past the first field.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    // Boxed: nested by value, six families of strategies outgrow the stack of a test thread.
    let intact = prop_oneof![
        data_family_row().prop_map(|row| row.encode()).boxed(),
        metadata_row().prop_map(|row| row.encode()).boxed(),
        score_row().prop_map(|row| row.encode()).boxed(),
        expiry_row().prop_map(|row| row.encode()).boxed(),
        metadata_value()
            .prop_map(|value| value.borrow().encode())
            .boxed(),
        system_key().prop_map(|key| key.encode()).boxed(),
    ];
    (intact, vec(damage(), 0..3)).prop_map(|(intact, damages)| {
        damages
            .iter()
            .fold(intact, |bytes, damage| damage.apply(bytes))
    })
}

fn hostile() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![3 => damaged(), 1 => vec(any::<u8>(), 0..80)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn rows_are_refused_or_encode_back(bytes in hostile()) {
        let decoders = [
            RowKey::decode_metadata,
            RowKey::decode_data,
            RowKey::decode_score,
            RowKey::decode_expiry,
        ];
        for row in decoders.iter().flat_map(|decode| decode(&bytes)) {
            prop_assert_eq!(row.encode(), &bytes[..], "{:?}", row);
        }
    }

    #[test]
    fn metadata_values_are_refused_or_encode_back(bytes in hostile()) {
        let (kind, expire_ms) = (metadata::type_of(&bytes), metadata::expire_of(&bytes));
        if let Ok(metadata) = Metadata::decode(&bytes) {
            prop_assert_eq!(metadata.encode(), &bytes[..]);
            prop_assert_eq!((kind, expire_ms), (Ok(metadata.kind()), Ok(metadata.expire_ms)));
        }
    }

    #[test]
    fn system_keys_and_values_are_refused_or_encode_back(bytes in hostile()) {
        if let Ok(key) = SystemKey::decode(&bytes) {
            prop_assert_eq!(key.encode(), &bytes[..]);
        }
        if let Ok(maxima) = Maxima::decode(&bytes) {
            prop_assert_eq!(&maxima.encode()[..], &bytes[..]);
        }
        if let Ok(staged) = value::decode_staging(&bytes) {
            prop_assert_eq!(staged.encode(), &bytes[..]);
        }
    }

    #[test]
    fn small_layouts_are_refused_or_encode_back(bytes in vec(any::<u8>(), 0..20)) {
        if let Ok(value) = LegacyString::decode(&bytes) {
            prop_assert_eq!(value.encode(), &bytes[..]);
        }
        if let Ok(value) = score::decode_value(&bytes) {
            prop_assert_eq!(&score::encode(value)[..], &bytes[..]);
        }
        if let Ok(number) = chunk::decode_chunk_sub(&bytes) {
            prop_assert_eq!(&chunk::chunk_sub(number)[..], &bytes[..]);
        }
        if let Ok(index) = chunk::decode_index_sub(&bytes) {
            prop_assert_eq!(&chunk::index_sub(index)[..], &bytes[..]);
        }
    }

    #[test]
    fn a_score_row_holds_a_score_between_the_infinities(
        sortable in prop_oneof![select(EDGES.to_vec()), any::<u64>()],
        member in vec(any::<u8>(), 0..5),
    ) {
        let mut row = Vec::new();
        row::version_prefix(&mut row, 0, b"key", 1);
        row.extend_from_slice(&sortable.to_be_bytes());
        row.extend_from_slice(&member);
        let is_score = (NEGATIVE_INFINITY..=INFINITY).contains(&sortable) && sortable != NEGATIVE_ZERO;
        let is_count = sortable == u64::MAX;
        let decoded = RowKey::decode_score(&row);
        prop_assert_eq!(matches!(decoded, Ok(RowKey::Score { .. })), is_score);
        prop_assert_eq!(matches!(decoded, Ok(RowKey::Count { .. })), is_count);
    }

    #[test]
    fn the_cut_of_a_metadata_key_is_a_part_of_the_row_or_an_error(bytes in hostile()) {
        if let Ok(key) = row::metadata_key_of(&bytes) {
            prop_assert!(bytes.starts_with(key));
        }
        if let Ok(key) = row::metadata_key_of_expiry(&bytes) {
            prop_assert!(bytes[16..].starts_with(key));
        }
    }
}
