use super::*;
use crate::golden::assert_bytes;

fn bytes(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out);
    out
}

fn membership() -> Membership {
    Membership {
        configs: vec![BTreeSet::from([1, 2]), BTreeSet::from([2, 3])],
        nodes: BTreeMap::from([(1, 11), (2, 12), (3, 13)]),
    }
}

const MEMBERSHIP_HEX: &str = "02 \
    00000002 0000000000000001 0000000000000002 \
    00000002 0000000000000002 0000000000000003 \
    00000003 0000000000000001 000000000000000b \
    0000000000000002 000000000000000c \
    0000000000000003 000000000000000d";

#[test]
fn keys() {
    let cases = [
        (Key::Replica { region: 7 }, "01 0000000000000007"),
        (Key::Vote { region: 7 }, "02 0000000000000007"),
        (Key::Committed { region: 7 }, "03 0000000000000007"),
        (Key::Purged { region: 7 }, "04 0000000000000007"),
        (Key::Starts, "06 0000000000000000"),
        (Key::Peer { node: 3 }, "07 0000000000000003"),
        (
            Key::Entry {
                region: 7,
                index: 258,
            },
            "05 0000000000000007 0000000000000102",
        ),
    ];
    for (key, expected) in cases {
        assert_bytes(&key.encode(), expected);
        assert_eq!(Key::decode(&key.encode()), Ok(key));
    }
    assert!(Key::decode(&[9; 9]).is_err());
    assert!(Key::decode(&Key::Vote { region: 7 }.encode()[..8]).is_err());
}

#[test]
fn replicas_come_first() {
    let last = Key::Replica { region: u64::MAX }.encode();
    assert!(last < Key::after_replicas());
    assert!(Key::after_replicas() <= Key::Vote { region: 0 }.encode());
}

#[test]
fn entries_sort_by_region_and_index() {
    let key = |region, index| Key::Entry { region, index }.encode();
    assert!(key(1, 255) < key(1, 256));
    assert!(key(1, u64::MAX) < key(2, 0));
}

#[test]
fn small_values() {
    let vote = Vote {
        term: 3,
        candidate: 2,
        committed: true,
    };
    let encoded = bytes(|out| vote.encode(out));
    assert_bytes(&encoded, "0000000000000003 0000000000000002 01");
    assert_eq!(Vote::decode(&encoded), Ok(vote));

    let replica = Replica {
        replica: 9,
        removed: true,
    };
    let encoded = bytes(|out| replica.encode(out));
    assert_bytes(&encoded, "0000000000000009 02");
    assert_eq!(Replica::decode(&encoded), Ok(replica));
    assert!(Replica::decode(&[0; 9]).is_err());

    let purged = Purged {
        id: LogId { term: 3, index: 4 },
        bytes: 5,
    };
    let encoded = bytes(|out| purged.encode(out));
    assert_bytes(
        &encoded,
        "0000000000000003 0000000000000004 0000000000000005",
    );
    assert_eq!(Purged::decode(&encoded), Ok(purged));
}

#[test]
fn entries() {
    let cases = [
        (Body::Blank, "00".to_string()),
        (
            Body::Batch {
                timestamp_ms: 1,
                epoch: 2,
                payload: b"abc",
            },
            "01 0000000000000001 0000000000000002 616263".to_string(),
        ),
        (
            Body::Membership(membership()),
            format!("02 {MEMBERSHIP_HEX}"),
        ),
    ];
    for (body, expected) in cases {
        let entry = Entry {
            term: 6,
            bytes: 8,
            body,
        };
        let encoded = bytes(|out| entry.encode(out));
        assert_bytes(
            &encoded,
            &format!("0000000000000006 0000000000000008 {expected}"),
        );
        assert_eq!(Entry::decode(&encoded), Ok(entry));
    }
}

#[test]
fn applied() {
    let empty = Applied::default();
    let encoded = bytes(|out| empty.encode(out));
    assert_bytes(&encoded, "00 0000000000000000 00 00 00000000");
    assert_eq!(Applied::decode(&encoded), Ok(empty));

    let applied = Applied {
        last: Some(LogId { term: 2, index: 9 }),
        timestamp_ms: 77,
        membership_at: Some(LogId { term: 1, index: 1 }),
        membership: membership(),
    };
    let encoded = bytes(|out| applied.encode(out));
    assert_bytes(
        &encoded,
        &format!(
            "01 0000000000000002 0000000000000009 000000000000004d \
             01 0000000000000001 0000000000000001 {MEMBERSHIP_HEX}"
        ),
    );
    assert_eq!(Applied::decode(&encoded), Ok(applied));
}

/// A count is believed only as far as there are bytes for it: nothing is reserved ahead.
#[test]
fn what_is_cut_short_is_an_error() {
    let encoded = bytes(|out| Body::Membership(membership()).encode(out));
    for end in 0..encoded.len() {
        assert!(Body::decode(&encoded[..end]).is_err(), "{end} bytes");
    }
    assert!(Body::decode(&[MEMBERSHIP, 1, 255, 255, 255, 255]).is_err());
}
