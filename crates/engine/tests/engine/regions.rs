//! Regions of a cluster's node: what their logs commit shows, lasts as far as is said, and comes back as it was at the
//! place that is told.

use std::path::Path;
use std::sync::Arc;

use cairn_encoding::raft::{Applied, LogId, Membership};
use cairn_encoding::system::SystemKey;
use cairn_engine::{
    Batch, Clock, Committer, Descriptor, Engine, EngineError, Family, LOCAL_REGION, ManualTime,
    Maxima, Regions, Result, Slots, SyncMode,
};

use crate::support::{all_rows, commit, committer, image, open, paths, settings};

const NOW: u64 = 1_000;

fn open_regions(path: &Path) -> (Regions, Arc<Clock>) {
    let engine = Engine::open_in_cluster(path, &settings()).unwrap();
    let clock = Arc::new(Clock::new(Box::new(ManualTime::at_millis(NOW))));
    (
        Regions::open(Arc::new(engine), clock.clone()).unwrap(),
        clock,
    )
}

fn create(regions: &Regions, all: &[(u64, Descriptor)]) -> Result<()> {
    let all = all.iter().map(|(region, descriptor)| {
        let beginning = Regions::beginning(Membership::default());
        (*region, *descriptor, beginning)
    });
    regions.create(&all.collect::<Vec<_>>())
}

fn at(index: u64) -> Applied {
    Applied {
        last: Some(LogId { term: 1, index }),
        timestamp_ms: NOW + index,
        ..Applied::default()
    }
}

fn put(key: &[u8], value: &[u8]) -> Batch {
    let mut batch = Batch::new();
    batch.put(Family::Data, key, value);
    batch
}

fn value(engine: &Engine, key: &[u8]) -> Option<Vec<u8>> {
    let value = engine.get(Family::Data, key).unwrap();
    value.map(|value| value.to_vec())
}

fn slots(first: u16, end: u16) -> Slots {
    Slots::new(first, end).unwrap()
}

fn region(first: u16, end: u16, epoch: u64) -> Descriptor {
    Descriptor {
        slots: slots(first, end),
        epoch,
    }
}

#[test]
fn what_is_applied_shows_with_its_place_and_moves_the_clock() {
    let dir = tempfile::tempdir().unwrap();
    let (regions, clock) = open_regions(dir.path());
    assert_eq!(regions.applied(3).unwrap(), Applied::default());
    let maxima = Maxima {
        version: 1 << 60,
        timestamp_ms: 0,
    };
    regions
        .apply(3, vec![put(b"a", b"1"), put(b"a", b"2")], &at(7), maxima)
        .unwrap();
    assert_eq!(value(regions.engine(), b"a").unwrap(), b"2");
    assert_eq!(regions.applied(3).unwrap(), at(7));
    assert_eq!(clock.maxima(), (1 << 60, NOW + 7));
    // The maxima of a region never fall, whoever leads.
    regions
        .apply(3, Vec::new(), &at(8), Maxima::default())
        .unwrap();
    let expected = Maxima {
        version: 1 << 60,
        timestamp_ms: NOW + 8,
    };
    assert_eq!(regions.maxima(3).unwrap(), expected);
    assert_eq!(regions.maxima(4).unwrap(), Maxima::default());
    drop(regions);
    let (regions, clock) = open_regions(dir.path());
    assert_eq!(regions.applied(3).unwrap(), at(8));
    assert_eq!(clock.maxima(), (1 << 60, NOW + 8));
}

#[test]
fn a_crash_takes_back_what_was_not_durable_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let (regions, _) = open_regions(dir.path());
    let none = Maxima::default();
    regions
        .apply(3, vec![put(b"a", b"1")], &at(1), none)
        .unwrap();
    regions
        .apply(4, vec![put(b"b", b"1")], &at(9), none)
        .unwrap();
    assert_eq!(regions.durable(3), None);
    regions.sync().unwrap();
    assert_eq!(
        [3, 4, 5].map(|region| regions.durable(region)),
        [Some(1), Some(9), None]
    );
    regions
        .apply(3, vec![put(b"a", b"2")], &at(2), none)
        .unwrap();
    assert_eq!(regions.durable(3), Some(1));

    let crashed = image(dir.path());
    let (after, _) = open_regions(crashed.path());
    assert_eq!(after.applied(3).unwrap(), at(1));
    assert_eq!(value(after.engine(), b"a").unwrap(), b"1");
    assert_eq!(value(after.engine(), b"b").unwrap(), b"1");
    assert_eq!(
        [3, 4].map(|region| after.durable(region)),
        [Some(1), Some(9)]
    );
    // The log leads it on.
    after.apply(3, vec![put(b"a", b"2")], &at(2), none).unwrap();
    assert_eq!(value(after.engine(), b"a").unwrap(), b"2");
    assert_eq!(value(regions.engine(), b"a").unwrap(), b"2");
}

/// What a drain brings into RocksDB is the state at the place that it says, whenever the process dies.
#[test]
fn every_image_is_of_one_place() {
    let dir = tempfile::tempdir().unwrap();
    let (regions, _) = open_regions(dir.path());
    let mut images = Vec::new();
    for index in 1..=2000_u64 {
        let number = index.to_be_bytes();
        for (region, key) in [(3, b"three"), (4, b"-four")] {
            let mut batch = put(key, &number);
            batch.put(Family::Data, &[key, &number[..]].concat(), [0; 2000]);
            regions
                .apply(region, vec![batch], &at(index), Maxima::default())
                .unwrap();
        }
        if index % 250 == 0 {
            images.push(image(dir.path()));
        }
    }
    let mut places = Vec::new();
    for crashed in images {
        let (regions, _) = open_regions(crashed.path());
        for (region, key) in [(3, b"three"), (4, b"-four")] {
            let place = regions.applied(region).unwrap().last.map(|last| last.index);
            let shown = value(regions.engine(), key)
                .map(|value| u64::from_be_bytes(value.try_into().unwrap()));
            assert_eq!(shown, place);
            places.push(place);
        }
    }
    assert!(places.iter().any(Option::is_some), "nothing was drained");
}

#[test]
fn one_machine_becomes_a_node_of_a_cluster_and_is_none_again() {
    let dir = tempfile::tempdir().unwrap();
    let alone = open(dir.path());
    commit(&alone, |batch| batch.put(Family::Data, b"a", b"1"));
    // As after a crash: it is in the journal only.
    let crashed = {
        let committer = committer(&alone, SyncMode::No);
        committer.commit(&mut put(b"b", b"2")).wait().unwrap();
        image(dir.path())
    };
    let (regions, _) = open_regions(crashed.path());
    assert_eq!(value(regions.engine(), b"a").unwrap(), b"1");
    assert_eq!(value(regions.engine(), b"b").unwrap(), b"2");
    assert!(
        !paths(crashed.path())
            .iter()
            .any(|path| path.starts_with("journal"))
    );
    // Until it has a region it may go back.
    drop(regions);
    assert_eq!(value(&open(crashed.path()), b"b").unwrap(), b"2");

    let (regions, _) = open_regions(crashed.path());
    let whole = region(0, 16384, 1);
    create(&regions, &[(0, region(0, 0, 1)), (LOCAL_REGION, whole)]).unwrap();
    assert_eq!(regions.descriptor(LOCAL_REGION).unwrap(), Some(whole));
    // It begins where nobody is who has nothing of it.
    assert_eq!(regions.durable(LOCAL_REGION), Some(1));
    assert_eq!(regions.list().unwrap().len(), 2);
    drop(regions);
    let refused = Engine::open(crashed.path(), &settings());
    assert!(matches!(refused, Err(EngineError::InCluster(_))));
    let (regions, _) = open_regions(crashed.path());
    assert_eq!(value(regions.engine(), b"b").unwrap(), b"2");
    assert_eq!(regions.descriptor(LOCAL_REGION).unwrap(), Some(whole));
}

#[test]
fn no_two_regions_have_the_same_slot() {
    let dir = tempfile::tempdir().unwrap();
    let (regions, _) = open_regions(dir.path());
    let first = [(1, region(0, 100, 1)), (2, region(100, 200, 1))];
    create(&regions, &first).unwrap();
    let others = [(3, region(200, 300, 1)), (4, region(199, 200, 1))];
    let taken = create(&regions, &others);
    assert!(matches!(
        taken,
        Err(EngineError::SlotsTaken {
            region: 4,
            other: 2,
            ..
        })
    ));
    // All or none.
    assert_eq!(regions.descriptor(3).unwrap(), None);
    // The same again, or changed, is its own.
    let changed = [(2, region(100, 150, 2)), (4, region(150, 200, 2))];
    create(&regions, &changed).unwrap();
    assert_eq!(regions.descriptor(2).unwrap(), Some(region(100, 150, 2)));
    let key = SystemKey::RegionDescriptor { region: 4 }.encode();
    let rows = all_rows(regions.engine(), Family::Meta).unwrap();
    assert!(rows.contains(&(key, region(150, 200, 2).encode().to_vec())));
}
