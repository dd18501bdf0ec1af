use super::*;
use crate::LIST_ORIGIN;
use crate::golden::assert_bytes;

const EXPIRE_MS: u64 = 0x0102_0304_0506_0708;

fn collection(kind: CollectionKind) -> Metadata<'static> {
    Metadata {
        expire_ms: EXPIRE_MS,
        body: Body::Collection {
            kind,
            version: 0x2a,
            size: 3,
            is_counted: false,
            fields: None,
        },
    }
}

/// A hash all of whose fields expire.
fn expiring(expire_ms: u64) -> Metadata<'static> {
    let body = Body::Collection {
        kind: CollectionKind::Hash,
        version: 0x2a,
        size: 3,
        is_counted: false,
        fields: Some(FieldTimes {
            count: 3,
            first_ms: 0x0190_0000_0000,
            last_ms: 0x0190_0000_0001,
        }),
    };
    Metadata { expire_ms, body }
}

fn list() -> Metadata<'static> {
    Metadata {
        expire_ms: 0,
        body: Body::List {
            version: 0x2a,
            size: 3,
            head: LIST_ORIGIN - 1,
            tail: LIST_ORIGIN + 2,
        },
    }
}

#[test]
fn golden_bytes_of_strings() {
    let inline = Metadata {
        expire_ms: EXPIRE_MS,
        body: Body::Inline(b"Ada"),
    };
    assert_bytes(&inline.encode(), "81 0102030405060708 416461");

    let empty = Metadata {
        expire_ms: 0,
        body: Body::Inline(b""),
    };
    assert_bytes(&empty.encode(), "81 0000000000000000");

    let chunked = Metadata {
        expire_ms: EXPIRE_MS,
        body: Body::Chunked {
            version: 0x2a,
            length: 100_000_000,
        },
    };
    assert_bytes(
        &chunked.encode(),
        "91 0102030405060708 000000000000002a 0000000005f5e100",
    );
}

#[test]
fn golden_bytes_of_collections() {
    assert_bytes(
        &collection(CollectionKind::Hash).encode(),
        "82 0102030405060708 000000000000002a 0000000000000003",
    );
    assert_bytes(
        &collection(CollectionKind::Set).encode(),
        "84 0102030405060708 000000000000002a 0000000000000003",
    );
    assert_bytes(
        &collection(CollectionKind::ZSet).encode(),
        "85 0102030405060708 000000000000002a 0000000000000003",
    );
    let counted = Metadata {
        expire_ms: EXPIRE_MS,
        body: Body::Collection {
            kind: CollectionKind::ZSet,
            version: 0x2a,
            size: 3,
            is_counted: true,
            fields: None,
        },
    };
    assert_bytes(
        &counted.encode(),
        "a5 0102030405060708 000000000000002a 0000000000000003",
    );
    assert_bytes(
        &expiring(0).encode(),
        "c2 0000000000000000 000000000000002a 0000000000000003 \
         0000000000000003 0000019000000000 0000019000000001",
    );
    assert_bytes(
        &list().encode(),
        "83 0000000000000000 000000000000002a 0000000000000003 7ffffffffffffffe 8000000000000001",
    );
}

#[test]
fn encoding_appends_and_reserves_once() {
    let mut out = b"before".to_vec();
    list().encode_into(&mut out);
    assert_eq!(&out[..6], b"before");
    assert_eq!(Metadata::decode(&out[6..]), Ok(list()));
    assert_eq!(list().encode().capacity(), list().encode().len());
}

#[test]
fn every_truncation_and_every_extension_of_a_fixed_body_is_an_error() {
    let values = [
        list().encode(),
        collection(CollectionKind::ZSet).encode(),
        expiring(0).encode(),
    ];
    for value in values {
        for length in 0..value.len() {
            assert!(matches!(
                Metadata::decode(&value[..length]),
                Err(DecodeError::Truncated { .. })
            ));
        }
        let longer = [&value[..], b"x"].concat();
        assert!(matches!(
            Metadata::decode(&longer),
            Err(DecodeError::Trailing { extra: 1, .. })
        ));
    }
}

#[test]
fn golden_bytes_of_a_stream() {
    let head = stream::Head {
        version: 0x2a,
        size: 3,
        added: 5,
        groups: 1,
        floor: stream::Id::new(0x11, 1),
        last: stream::Id::new(0x13, 0),
        deleted: stream::Id::new(0x12, 2),
    };
    let metadata = Metadata {
        expire_ms: EXPIRE_MS,
        body: Body::Stream {
            version: head.version,
            size: head.size,
            rest: &head.rest(),
        },
    };
    let value = metadata.encode();
    assert_bytes(
        &value,
        "86 0102030405060708 000000000000002a 0000000000000003 0000000000000005 0000000000000001 \
         0000000000000011 0000000000000001 0000000000000013 0000000000000000 \
         0000000000000012 0000000000000002",
    );
    assert_eq!(value.capacity(), value.len());
    assert_eq!(Metadata::decode(&value), Ok(metadata));
    assert_eq!(stream::Head::of(0x2a, 3, &head.rest()), Ok(head));
    assert!(Metadata::decode(&value[..value.len() - 1]).is_err());
    assert!(Metadata::decode(&[&value[..], b"x"].concat()).is_err());
}

#[test]
fn peeking_needs_no_more_than_it_looks_at() {
    let value = collection(CollectionKind::Set).encode();
    assert_eq!(type_of(&value[..1]), Ok(Type::Set));
    assert_eq!(expire_of(&value[..9]), Ok(EXPIRE_MS));
    assert!(type_of(b"").is_err());
    assert!(expire_of(&value[..8]).is_err());
    assert!(expire_of(&[0; 9]).is_err());
}

#[test]
fn a_key_outlives_the_millisecond_it_expires_at() {
    let at = |expire_ms| Metadata {
        expire_ms,
        body: Body::Inline(b""),
    };
    assert!(!at(1000).is_expired(999));
    assert!(!at(1000).is_expired(1000));
    assert!(at(1000).is_expired(1001));
    assert!(!at(0).is_expired(u64::MAX));
    assert!(!at(u64::MAX).is_expired(u64::MAX));
}

#[test]
fn a_hash_ends_with_the_last_of_its_fields_if_all_expire() {
    const LAST: u64 = 0x0190_0000_0001;
    for (expire_ms, ends_ms) in [(0, LAST), (LAST + 1, LAST), (LAST - 1, LAST - 1)] {
        assert_eq!(expiring(expire_ms).ends_ms(), ends_ms);
        assert_eq!(ends_of(&expiring(expire_ms).encode()), Ok(ends_ms));
        let mut larger = expiring(expire_ms);
        if let Body::Collection { size, .. } = &mut larger.body {
            *size += 1;
        }
        assert_eq!(larger.ends_ms(), expire_ms);
        assert_eq!(ends_of(&larger.encode()), Ok(expire_ms));
    }
    assert!(expiring(0).is_expired(LAST + 1));
    assert!(!expiring(0).is_expired(LAST));
    assert_eq!(ends_of(&list().encode()), Ok(0));
}

#[test]
fn only_an_inline_string_has_no_version() {
    let inline = Metadata {
        expire_ms: 0,
        body: Body::Inline(b"Ada"),
    };
    assert_eq!(inline.version(), None);
    assert_eq!(collection(CollectionKind::Hash).version(), Some(0x2a));
    assert_eq!(list().version(), Some(0x2a));
}

/// The names are the answers of the TYPE command of Redis 7.0.15.
#[test]
fn type_names_are_those_of_redis() {
    let names = [
        (Type::String, "string"),
        (Type::Hash, "hash"),
        (Type::List, "list"),
        (Type::Set, "set"),
        (Type::ZSet, "zset"),
        (Type::Stream, "stream"),
    ];
    for (kind, name) in names {
        assert_eq!(kind.name(), name);
    }
}
