#![allow(clippy::unwrap_used)]

use super::*;
use crate::golden::assert_bytes;

const ID: Id = Id::new(0x0102_0304, 7);

#[test]
fn golden_bytes_of_sub_keys() {
    assert_bytes(
        &Sub::Entry(ID).encode(),
        "00 0000000001020304 0000000000000007",
    );
    assert_bytes(&Sub::Group(b"g").encode(), "01 67");
    let (group, consumer, id) = (&b"g"[..], &b"ab"[..], ID);
    assert_bytes(
        &Sub::Consumer { group, consumer }.encode(),
        "02 00000001 67 6162",
    );
    assert_bytes(
        &Sub::Pending { group, id }.encode(),
        "03 00000001 67 0000000001020304 0000000000000007",
    );
    let owned = Sub::Owned {
        group,
        consumer,
        id,
    };
    assert_bytes(
        &owned.encode(),
        "04 00000001 67 00000002 6162 0000000001020304 0000000000000007",
    );
}

#[test]
fn sub_keys_are_read_as_they_were_written() {
    let (group, consumer, id) = (&b""[..], &b"\xff\x00"[..], Id::MAX);
    let subs = [
        Sub::Entry(id),
        Sub::Group(group),
        Sub::Group(consumer),
        Sub::Consumer { group, consumer },
        Sub::Pending { group, id },
        Sub::Owned {
            group: consumer,
            consumer: group,
            id,
        },
    ];
    for sub in subs {
        let bytes = sub.encode();
        assert_eq!(Sub::decode(&bytes), Ok(sub));
        assert_eq!(is_entry(&bytes), matches!(sub, Sub::Entry(_)));
        let is_fixed = !matches!(sub, Sub::Group(_) | Sub::Consumer { .. });
        if is_fixed {
            assert!(Sub::decode(&bytes[..bytes.len() - 1]).is_err());
            assert!(Sub::decode(&[&bytes[..], b"x"].concat()).is_err());
        }
    }
    assert_eq!(
        Sub::decode(&[9]),
        Err(DecodeError::UnknownStreamRow { tag: 9 })
    );
    assert!(Sub::decode(&[]).is_err());
}

#[test]
fn golden_bytes_of_values() {
    let group = Group {
        last: ID,
        read: Some(3),
        consumers: 1,
        pending: 2,
        low: Id::new(5, 6),
    };
    assert_bytes(
        &group.encode(),
        "0000000001020304 0000000000000007 0000000000000003 0000000000000001 0000000000000002 \
         0000000000000005 0000000000000006",
    );
    assert_eq!(Group::decode(&group.encode()), Ok(group));
    let unknown = Group {
        read: None,
        ..group
    };
    assert_bytes(&unknown.encode()[16..24], "ffffffffffffffff");
    assert_eq!(Group::decode(&unknown.encode()), Ok(unknown));

    let consumer = Consumer {
        seen_ms: 0x1234,
        pending: 2,
    };
    assert_bytes(&consumer.encode(), "0000000000001234 0000000000000002");
    assert_eq!(Consumer::decode(&consumer.encode()), Ok(consumer));

    let pending = Pending {
        delivered_ms: 0x1234,
        deliveries: 1,
        consumer: b"ab",
    };
    assert_bytes(&pending.encode(), "0000000000001234 0000000000000001 6162");
    assert_eq!(Pending::decode(&pending.encode()), Ok(pending));
}

#[test]
fn an_entry_is_its_fields_and_values() {
    let mut entry = Vec::new();
    for field in ["name", "", "Ada"] {
        append_field(&mut entry, field.as_bytes());
    }
    assert_bytes(&entry, "00000004 6e616d65 00000000 00000003 416461");
    let read: Result<Vec<&[u8]>, _> = Fields::of(&entry).collect();
    assert_eq!(read, Ok(vec![&b"name"[..], b"", b"Ada"]));
    assert!(Fields::of(&entry[..entry.len() - 1]).any(|field| field.is_err()));
}

#[test]
fn ids_follow_each_other() {
    assert_eq!(Id::new(1, 2).next(), Some(Id::new(1, 3)));
    assert_eq!(Id::new(1, u64::MAX).next(), Some(Id::new(2, 0)));
    assert_eq!(Id::MAX.next(), None);
    assert_eq!(Id::new(1, 3).previous(), Some(Id::new(1, 2)));
    assert_eq!(Id::new(2, 0).previous(), Some(Id::new(1, u64::MAX)));
    assert_eq!(Id::MIN.previous(), None);
    assert_eq!(ID.to_string(), "16909060-7");
    let ids = [Id::MIN, Id::new(1, 9), Id::new(2, 0), Id::MAX];
    assert!(ids.is_sorted_by(|one, other| one < other));
    assert!(ids.is_sorted_by_key(|id| entry_sub(*id)));
}
