//! Rows and values to test with.
//!
//! Uniform randomness would hardly ever meet the cases that matter: equal keys, keys that are prefixes of
//! each other, a sub-key that continues a key, a version that begins like an old string's mark. So most
//! strategies draw from small sets of awkward choices, and only now and then from everything.

use cairn_encoding::field_expiry::FieldTimes;
use cairn_encoding::metadata::{Body, CollectionKind, Metadata};
use cairn_encoding::row::RowKey;
use cairn_encoding::system::SystemKey;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// [`RowKey`] borrows; this owns what it borrows from.
#[derive(Debug, Clone)]
pub enum Row {
    Metadata(u64, Vec<u8>),
    Data(u64, Vec<u8>, u64, Vec<u8>),
    Score(u64, Vec<u8>, u64, f64, Vec<u8>),
    Count(u64, Vec<u8>, u64, Vec<u8>),
    Field(u64, Vec<u8>, u64, Vec<u8>),
    FieldTime(u64, Vec<u8>, u64, u64, Vec<u8>),
    Expiry(u64, u64, Vec<u8>),
    FieldsExpiry(u64, u64, Vec<u8>, u64),
    Legacy(u64, Vec<u8>),
}

impl Row {
    pub fn borrow(&self) -> RowKey<'_> {
        match *self {
            Row::Metadata(index, ref key) => RowKey::Metadata { index, key },
            Row::Data(index, ref key, version, ref sub) => RowKey::Data {
                index,
                key,
                version,
                sub,
            },
            Row::Count(index, ref key, version, ref first) => RowKey::Count {
                index,
                key,
                version,
                first,
            },
            Row::Score(index, ref key, version, score, ref member) => RowKey::Score {
                index,
                key,
                version,
                score,
                member,
            },
            Row::Field(index, ref key, version, ref field) => RowKey::Field {
                index,
                key,
                version,
                field,
            },
            Row::FieldTime(index, ref key, version, at_ms, ref field) => RowKey::FieldTime {
                index,
                key,
                version,
                at_ms,
                field,
            },
            Row::Expiry(at_ms, index, ref key) => RowKey::Expiry { at_ms, index, key },
            Row::FieldsExpiry(at_ms, index, ref key, version) => RowKey::FieldsExpiry {
                at_ms,
                index,
                key,
                version,
            },
            Row::Legacy(index, ref key) => RowKey::Legacy { index, key },
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        self.borrow().encode()
    }
}

/// Short strings over few bytes: empty, equal and nested ones are common.
pub fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let awkward = select(vec![0x00, 0x01, b'S', b'a', b'{', b'}', 0xff]);
    prop_oneof![
        4 => vec(awkward, 0..5),
        1 => vec(any::<u8>(), 0..40),
    ]
}

pub fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => select(vec![0, 1, 255, 256, u64::MAX / 2, u64::MAX - 1, u64::MAX]),
        // Begins with the byte that marks an old string.
        1 => Just(u64::from_be_bytes(*b"SSSSSSSS")),
        1 => any::<u64>(),
    ]
}

pub fn score() -> impl Strategy<Value = f64> {
    let corners = [
        0.0,
        -0.0,
        1.0,
        1.0 + f64::EPSILON,
        f64::MIN_POSITIVE,
        f64::from_bits(1),
        f64::MAX,
        f64::INFINITY,
    ];
    let mirrored = corners.into_iter().flat_map(|corner| [corner, -corner]);
    prop_oneof![
        3 => select(mirrored.collect::<Vec<f64>>()),
        1 => any::<u64>()
            .prop_map(f64::from_bits)
            .prop_filter("NaN is no score", |score| !score.is_nan()),
    ]
}

/// The rows that share the `data` family.
pub fn data_family_row() -> impl Strategy<Value = Row> {
    prop_oneof![
        3 => (number(), bytes(), number(), bytes())
            .prop_map(|(index, key, version, sub)| Row::Data(index, key, version, sub)),
        1 => (number(), bytes()).prop_map(|(index, key)| Row::Legacy(index, key)),
    ]
}

pub fn metadata_row() -> impl Strategy<Value = Row> {
    (number(), bytes()).prop_map(|(index, key)| Row::Metadata(index, key))
}

/// The rows that share the `zset_score` family.
pub fn score_row() -> impl Strategy<Value = Row> {
    prop_oneof![
        3 => (number(), bytes(), number(), score(), bytes()).prop_map(
            |(index, key, version, score, member)| Row::Score(index, key, version, score, member),
        ),
        1 => (number(), bytes(), number(), bytes())
            .prop_map(|(index, key, version, first)| Row::Count(index, key, version, first)),
        1 => (number(), bytes(), number(), bytes())
            .prop_map(|(index, key, version, field)| Row::Field(index, key, version, field)),
        1 => (number(), bytes(), number(), number(), bytes()).prop_map(
            |(index, key, version, at_ms, field)| Row::FieldTime(index, key, version, at_ms, field),
        ),
    ]
}

pub fn expiry_row() -> impl Strategy<Value = Row> {
    prop_oneof![
        3 => (number(), number(), bytes())
            .prop_map(|(at_ms, index, key)| Row::Expiry(at_ms, index, key)),
        1 => (number(), number(), bytes(), number()).prop_map(
            |(at_ms, index, key, version)| Row::FieldsExpiry(at_ms, index, key, version),
        ),
    ]
}

/// [`Metadata`] borrows the string that it holds inline; this owns it.
#[derive(Debug, Clone)]
pub enum Value {
    Inline { expire_ms: u64, string: Vec<u8> },
    Fixed(Metadata<'static>),
}

impl Value {
    pub fn borrow(&self) -> Metadata<'_> {
        match self {
            Value::Inline { expire_ms, string } => Metadata {
                expire_ms: *expire_ms,
                body: Body::Inline(string),
            },
            Value::Fixed(metadata) => *metadata,
        }
    }
}

pub fn metadata_value() -> impl Strategy<Value = Value> {
    let inline =
        (number(), bytes()).prop_map(|(expire_ms, string)| Value::Inline { expire_ms, string });
    let fixed = (number(), fixed_body())
        .prop_map(|(expire_ms, body)| Value::Fixed(Metadata { expire_ms, body }));
    prop_oneof![1 => inline, 3 => fixed]
}

fn fixed_body() -> impl Strategy<Value = Body<'static>> {
    let kind = select(vec![
        CollectionKind::Hash,
        CollectionKind::Set,
        CollectionKind::ZSet,
    ]);
    prop_oneof![
        (number(), number()).prop_map(|(version, length)| Body::Chunked { version, length }),
        (kind, number(), number(), any::<bool>()).prop_map(|(kind, version, size, is_counted)| {
            Body::Collection {
                kind,
                version,
                size,
                is_counted,
                fields: None,
            }
        }),
        (
            number(),
            number(),
            any::<bool>(),
            number(),
            number(),
            number()
        )
            .prop_map(|(version, size, is_counted, count, first_ms, last_ms)| {
                Body::Collection {
                    kind: CollectionKind::Hash,
                    version,
                    size,
                    is_counted,
                    fields: Some(FieldTimes {
                        count,
                        first_ms,
                        last_ms,
                    }),
                }
            }),
        (number(), number(), number(), number()).prop_map(|(version, size, head, tail)| {
            Body::List {
                version,
                size,
                head,
                tail,
            }
        }),
        (number(), number()).prop_map(|(version, size)| Body::Stream {
            version,
            size,
            rest: b"any bytes are numbers, and these sixty-four of them are such too",
        }),
    ]
}

pub fn system_key() -> impl Strategy<Value = SystemKey<'static>> {
    let region = number;
    prop_oneof![
        Just(SystemKey::Format),
        (region(), any::<u32>())
            .prop_map(|(region, number)| SystemKey::Database { region, number }),
        region().prop_map(|region| SystemKey::NextIndex { region }),
        (region(), number()).prop_map(|(region, index)| SystemKey::DeadIndex { region, index }),
        (region(), number()).prop_map(|(region, version)| SystemKey::Staging { region, version }),
        region().prop_map(|region| SystemKey::Maxima { region }),
        region().prop_map(|region| SystemKey::Watermark { region }),
        region().prop_map(|region| SystemKey::LegacyMayExist { region }),
        region().prop_map(|region| SystemKey::AppliedIndex { region }),
        region().prop_map(|region| SystemKey::RegionDescriptor { region }),
        region().prop_map(|region| SystemKey::Applied { region }),
        region().prop_map(|region| SystemKey::Installing { region }),
        region().prop_map(|region| SystemKey::ClusterMap { region }),
        Just(SystemKey::Identity),
        region().prop_map(|region| SystemKey::Library {
            region,
            name: b"a_name",
        }),
    ]
}
