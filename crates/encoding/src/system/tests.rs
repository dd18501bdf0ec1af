use super::*;
use crate::golden::assert_bytes;

const REGION: u64 = 0x0102_0304_0506_0708;

/// One key of every kind, with its bytes.
const KEYS: [(SystemKey, &str); 15] = [
    (SystemKey::Format, "01"),
    (
        SystemKey::Database {
            region: REGION,
            number: 15,
        },
        "02 0102030405060708 0000000f",
    ),
    (
        SystemKey::NextIndex { region: REGION },
        "03 0102030405060708",
    ),
    (
        SystemKey::DeadIndex {
            region: REGION,
            index: 42,
        },
        "04 0102030405060708 000000000000002a",
    ),
    (
        SystemKey::Staging {
            region: REGION,
            version: 43,
        },
        "05 0102030405060708 000000000000002b",
    ),
    (SystemKey::Maxima { region: REGION }, "06 0102030405060708"),
    (
        SystemKey::Watermark { region: REGION },
        "07 0102030405060708",
    ),
    (
        SystemKey::LegacyMayExist { region: REGION },
        "08 0102030405060708",
    ),
    (
        SystemKey::AppliedIndex { region: REGION },
        "09 0102030405060708",
    ),
    (
        SystemKey::RegionDescriptor { region: REGION },
        "0a 0102030405060708",
    ),
    (
        SystemKey::Library {
            region: REGION,
            name: b"math",
        },
        "0b 0102030405060708 00000004 6d617468",
    ),
    (SystemKey::Applied { region: REGION }, "0c 0102030405060708"),
    (
        SystemKey::Installing { region: REGION },
        "0d 0102030405060708",
    ),
    (
        SystemKey::ClusterMap { region: REGION },
        "0e 0102030405060708",
    ),
    (SystemKey::Identity, "0f"),
];

/// Those that belong to no region.
const BARE: [SystemKey; 2] = [SystemKey::Format, SystemKey::Identity];

#[test]
fn golden_bytes() {
    for (key, bytes) in KEYS {
        assert_bytes(&key.encode(), bytes);
    }
}

#[test]
fn every_tag_is_an_error_or_has_a_golden_key() {
    let known: Vec<u8> = (0..=u8::MAX)
        .filter(|&tag| SystemKind::of_tag(tag).is_ok_and(|kind| kind as u8 == tag))
        .collect();
    let golden: Vec<u8> = KEYS.iter().map(|(key, _)| key.kind() as u8).collect();
    assert_eq!(known, golden);
    assert_eq!(
        SystemKey::decode(&[0xee]).map_err(|error| error.to_string()),
        Err("system key: unknown tag 0xee".to_string())
    );
}

#[test]
fn every_truncation_and_extension_is_an_error() {
    for (key, _) in KEYS {
        let bytes = key.encode();
        assert_eq!(SystemKey::decode(&bytes), Ok(key));
        for length in 0..bytes.len() {
            assert!(SystemKey::decode(&bytes[..length]).is_err(), "{key:?}");
        }
        assert!(
            SystemKey::decode(&[&bytes[..], b"x"].concat()).is_err(),
            "{key:?}"
        );
    }
}

#[test]
fn prefixes_bound_a_kind_and_a_region_of_it() {
    for (key, _) in KEYS {
        let bytes = key.encode();
        for (other, _) in KEYS {
            let same_kind = key.kind() == other.kind();
            assert_eq!(bytes.starts_with(&other.kind().prefix()), same_kind);
            let of_region = bytes.starts_with(&other.kind().region_prefix(REGION));
            assert_eq!(of_region, same_kind && !BARE.contains(&key));
            assert!(!bytes.starts_with(&other.kind().region_prefix(REGION + 1)));
        }
    }
}

#[test]
fn every_key_but_the_bare_ones_names_its_region() {
    for (key, _) in KEYS {
        let expected = (!BARE.contains(&key)).then_some(REGION);
        assert_eq!(key.region(), expected);
    }
}
