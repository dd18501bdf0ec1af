use super::*;
use crate::found::{Foundation, Founder};
use crate::map::Settings;
use crate::node::{Addresses, Endpoint};
use crate::simulation::{addresses, founded};

#[track_caller]
fn assert_bytes(actual: &[u8], expected: &str) {
    let hex: String = actual.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, expected.replace([' ', '\n'], ""));
}

const ADDRESSES: &str = "0008 31302e302e302e31 18eb 0000  00  0008 31302e302e302e31 3ffb";

fn changes() -> Vec<(Change, String)> {
    let advertised = Addresses {
        advertised: Some(Endpoint {
            host: "db".into(),
            port: 1,
            tls_port: 2,
        }),
        ..addresses(1)
    };
    let settings = Settings {
        replicas: 3,
        balance: true,
    };
    let (region, node, replica) = (5, 6, 7);
    let two = "0000000000000005 0000000000000007";
    vec![
        (
            Change::Found(Foundation {
                cluster: 9,
                settings,
                nodes: vec![Founder {
                    addresses: addresses(1),
                    version: 1,
                    incarnation: 9,
                }],
                regions: 16,
            }),
            format!("01 0000000000000009 0301 00000001 {ADDRESSES} 0001 0000000000000009 0010"),
        ),
        (
            Change::AddNode {
                addresses: addresses(1),
                version: 1,
                incarnation: 9,
            },
            format!("02 {ADDRESSES} 0001 0000000000000009"),
        ),
        (
            Change::UpdateNode {
                node,
                addresses: advertised,
                version: 2,
            },
            "03 0000000000000006 0008 31302e302e302e31 18eb 0000 \
             01 0002 6462 0001 0002  0008 31302e302e302e31 3ffb 0002"
                .to_string(),
        ),
        (
            Change::DrainNode { node },
            "04 0000000000000006".to_string(),
        ),
        (Change::KeepNode { node }, "05 0000000000000006".to_string()),
        (
            Change::RemoveNode { node },
            "06 0000000000000006".to_string(),
        ),
        (Change::Configure(settings), "07 0301".to_string()),
        (
            Change::AddReplica {
                region,
                node,
                replaces: None,
            },
            "08 0000000000000005 0000000000000006 00".to_string(),
        ),
        (
            Change::AddReplica {
                region,
                node,
                replaces: Some(replica),
            },
            "08 0000000000000005 0000000000000006 01 0000000000000007".to_string(),
        ),
        (Change::Promote { region, replica }, format!("09 {two}")),
        (Change::Abandon { region, replica }, format!("0a {two}")),
        (
            Change::RemoveReplica { region, replica },
            format!("0b {two}"),
        ),
        (Change::Drop { region, replica }, format!("0c {two}")),
        (
            Change::Prefer {
                region,
                replica: Some(replica),
            },
            "0d 0000000000000005 01 0000000000000007".to_string(),
        ),
        (
            Change::BeginSplit { region, at: 258 },
            "0e 0000000000000005 0102".to_string(),
        ),
        (
            Change::FinishSplit { region, epoch: 7 },
            format!("0f {two}"),
        ),
        (Change::Lose { region, replica: 7 }, format!("10 {two}")),
    ]
}

#[test]
fn golden_changes() {
    for (change, expected) in changes() {
        assert_bytes(&change.encode(), &format!("0001 {expected}"));
        assert_eq!(Change::decode(&change.encode()), Ok(change));
    }
}

#[test]
fn a_golden_map() {
    let mut map = founded(1, 1, 1);
    map.apply(&Change::BeginSplit { region: 1, at: 16 })
        .unwrap();
    let expected = format!(
        "0001 0000000000000007 0000000000000002 0001 0101 \
         0000000000000002 0000000000000003 0000000000000004 \
         00000001 0000000000000001 {ADDRESSES} 00 0001 0000000000000009 \
         00000002 \
         0000000000000000 00 0000000000000001 00000001 \
         0000000000000001 0000000000000001 00 00  00 00 \
         0000000000000001 01 0000 3fff 0000000000000001 00000001 \
         0000000000000002 0000000000000001 00 00  00 \
         01 0010 0000000000000002 00000001 0000000000000002 0000000000000003"
    );
    assert_bytes(&map.encode(), &expected);
    assert_eq!(ClusterMap::decode(&map.encode()), Ok(map));
}

#[test]
fn what_a_newer_node_wrote_is_refused() {
    let mut bytes = Change::DrainNode { node: 1 }.encode();
    bytes[1] = 2;
    let why = "cluster change was written in version 2 by a newer node, and 1 is the newest that is read here";
    let refused = Change::decode(&bytes).expect_err("it is newer");
    assert_eq!(refused.to_string(), why);
    let mut bytes = founded(1, 1, 1).encode();
    bytes[0] = 1;
    assert!(matches!(
        ClusterMap::decode(&bytes),
        Err(LayoutError::Newer { version: 257, .. })
    ));
}

/// A count is believed only as far as there are bytes for it: nothing is reserved ahead.
#[test]
fn damage_is_an_error() {
    for (change, _) in changes() {
        let bytes = change.encode();
        for end in 0..bytes.len() {
            assert!(
                Change::decode(&bytes[..end]).is_err(),
                "{change:?} cut at {end}"
            );
        }
        let longer = [&bytes[..], b"x"].concat();
        assert!(Change::decode(&longer).is_err());
    }
    assert!(Change::decode(&[0, 0, 4]).is_err());
    assert!(Change::decode(&[0, 1, 99]).is_err());
    let bytes = founded(3, 4, 3).encode();
    for end in 0..bytes.len() {
        assert!(ClusterMap::decode(&bytes[..end]).is_err(), "cut at {end}");
    }
    // Whatever it is, it is no panic; and what is read is written the same.
    let mut rng = fastrand::Rng::with_seed(1);
    for _ in 0..100_000 {
        let mut damaged = bytes.clone();
        let at = rng.usize(..damaged.len());
        damaged[at] ^= 1 << rng.u8(..8);
        if let Ok(map) = ClusterMap::decode(&damaged) {
            assert!(map.encode().len() <= damaged.len());
        }
    }
}
