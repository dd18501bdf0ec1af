#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

use cairn_encoding::metadata::{Body, CollectionKind, Metadata};
use cairn_encoding::raft::LogId;
use cairn_encoding::row::RowKey;
use cairn_encoding::slot::slot;
use tempfile::TempDir;

use super::*;
use crate::clock::ManualTime;
use crate::options::EngineOptions;

pub(super) type AfterStep = Box<dyn Fn(&str) -> Result<()> + Send + Sync>;

const REGION: u64 = 7;
const OTHER: u64 = 8;
const INDEX: u64 = 1;
const NOW: u64 = 1_000_000;
/// When the keys expire.
const LATER: u64 = 2_000_000;

fn open(path: &Path) -> Regions {
    let settings = EngineOptions {
        memory: 64 << 20,
        ..EngineOptions::default()
    };
    let engine = Engine::open_in_cluster(path, &settings).unwrap();
    let clock = Clock::new(Box::new(ManualTime::at_millis(NOW)));
    Regions::open(Arc::new(engine), Arc::new(clock)).unwrap()
}

fn at(index: u64) -> Applied {
    Applied {
        last: Some(LogId { term: 1, index }),
        timestamp_ms: NOW,
        ..Applied::default()
    }
}

fn descriptor(first: u16, end: u16) -> Descriptor {
    Descriptor {
        slots: Slots::new(first, end).unwrap(),
        epoch: 1,
    }
}

/// Names of keys whose slots are in the range.
fn names(slots: Slots) -> impl Iterator<Item = String> {
    (0..)
        .map(|number| format!("key:{number}"))
        .filter(move |name| slots.contains(slot(name.as_bytes())))
}

/// A hash with a field, and that it expires.
fn put_hash(batch: &mut Batch, index: u64, name: &str, version: u64, value: &str) {
    let key = name.as_bytes();
    let body = Body::Collection {
        kind: CollectionKind::Hash,
        version,
        size: 1,
        is_counted: false,
        fields: None,
    };
    let metadata = Metadata {
        expire_ms: LATER,
        body,
    };
    let at_ms = LATER;
    let sub = b"field";
    batch.put(
        Family::Metadata,
        &RowKey::Metadata { index, key }.encode(),
        metadata.encode(),
    );
    let data = RowKey::Data {
        index,
        key,
        version,
        sub,
    };
    batch.put(Family::Data, &data.encode(), value);
    let expiry = RowKey::Expiry { at_ms, index, key };
    batch.put(Family::Expiry, &expiry.encode(), []);
}

/// Ten hashes of a region at a place of its log; also a dead database, and a version for each of both.
fn fill(regions: &Regions, region: u64, slots: Slots, index: u64, value: &str) {
    let mut batch = Batch::new();
    for name in names(slots).take(10) {
        put_hash(&mut batch, INDEX, &name, index, value);
    }
    let dead = SystemKey::DeadIndex {
        region,
        index: 100 + index,
    };
    batch.put(Family::Meta, &dead.encode(), []);
    let maxima = Maxima {
        version: index,
        timestamp_ms: NOW,
    };
    regions
        .apply(region, vec![batch], &at(index), maxima)
        .unwrap();
}

/// All rows of a region, as a snapshot has them.
fn rows(regions: &Regions, region: u64) -> Vec<(u8, Vec<u8>, Vec<u8>)> {
    let mut snapshot = regions.snapshot(region).unwrap();
    let mut rows = Vec::new();
    while let Some(piece) = snapshot.next_piece().unwrap() {
        for change in cairn_encoding::changes::read_piece(&piece).unwrap() {
            let (family, key, value) = change.unwrap();
            rows.push((family, key.to_vec(), value.unwrap().to_vec()));
        }
    }
    rows
}

/// The same as readers find them, one by one: through what is kept in memory.
fn is_shown(regions: &Regions, rows: &[(u8, Vec<u8>, Vec<u8>)]) {
    for (family, key, value) in rows {
        let family = Family::of_byte(*family).unwrap();
        let shown = regions.engine.get(family, key).unwrap();
        assert_eq!(shown.as_deref(), Some(&value[..]));
    }
}

fn send(from: &Regions, to: &Regions, region: u64) -> Result<Incoming> {
    let mut snapshot = from.snapshot(region)?;
    let mut incoming = to.receive(region)?;
    while let Some(piece) = snapshot.next_piece()? {
        incoming.write(&piece)?;
    }
    Ok(incoming)
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => all.extend(files(&path)),
            false => all.push(path),
        }
    }
    all.sort();
    all
}

/// A copy of the directory: what a process that dies now leaves behind.
fn image(path: &Path) -> TempDir {
    let sizes = || -> Vec<_> {
        let files = files(path).into_iter();
        let files = files.filter(|path| !path.ends_with("LOG"));
        files
            .map(|path| {
                let size = fs::metadata(&path).map(|metadata| metadata.len()).ok();
                (path, size)
            })
            .collect()
    };
    loop {
        let before = sizes();
        let copy = tempfile::tempdir().unwrap();
        for file in files(path) {
            let to = copy.path().join(file.strip_prefix(path).unwrap());
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            // RocksDB may remove a file meanwhile.
            drop(fs::copy(&file, to));
        }
        if sizes() == before {
            return copy;
        }
    }
}

/// A node with an old replica of the region and one of another, and one with a new state of the region, which has other
/// slots now.
fn nodes() -> (TempDir, Regions, TempDir, Regions) {
    let (sender_dir, receiver_dir) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (sender, receiver) = (open(sender_dir.path()), open(receiver_dir.path()));
    let (old, new, other) = (
        descriptor(100, 200),
        descriptor(100, 150),
        descriptor(200, 300),
    );
    sender.create(&[(REGION, new)]).unwrap();
    fill(&sender, REGION, new.slots, 50, "new");
    receiver.create(&[(REGION, old), (OTHER, other)]).unwrap();
    fill(&receiver, REGION, old.slots, 3, "old");
    fill(&receiver, OTHER, other.slots, 4, "other");
    // Of another database, and not in the snapshot.
    let mut batch = Batch::new();
    for name in names(old.slots).skip(5).take(10) {
        put_hash(&mut batch, 9, &name, 3, "old");
    }
    receiver
        .apply(REGION, vec![batch], &at(4), Maxima::default())
        .unwrap();
    (sender_dir, sender, receiver_dir, receiver)
}

#[test]
fn a_snapshot_takes_the_place_of_all_that_a_region_had() {
    let (_sender_dir, sender, dir, receiver) = nodes();
    let expected = rows(&sender, REGION);
    let other = rows(&receiver, OTHER);
    // What is hot must not outlive it.
    let old = rows(&receiver, REGION);
    is_shown(&receiver, &old);
    is_shown(&receiver, &other);

    let incoming = send(&sender, &receiver, REGION).unwrap();
    receiver.install(&at(50), incoming).unwrap();
    for receiver in [receiver, open(image(dir.path()).path())] {
        assert_eq!(rows(&receiver, REGION), expected);
        assert_eq!(rows(&receiver, OTHER), other);
        is_shown(&receiver, &expected);
        is_shown(&receiver, &other);
        assert_eq!(receiver.applied(REGION).unwrap(), at(50));
        assert_eq!(receiver.durable(REGION), Some(50));
        let gone = old.iter().filter(|(family, key, _)| {
            let is_same = |row: &&(u8, Vec<u8>, Vec<u8>)| row.0 == *family && row.1 == *key;
            !expected.iter().any(|row| is_same(&row))
        });
        for (family, key, _) in gone {
            let family = Family::of_byte(*family).unwrap();
            assert!(receiver.engine.get(family, key).unwrap().is_none());
        }
        for family in Family::ALL {
            let mut walk = receiver.engine.background_rows(family, &[], &[]);
            while let Some((_, value)) = walk.next().unwrap() {
                assert_ne!(value, b"old");
            }
        }
        // It goes on from there.
        fill(&receiver, REGION, descriptor(100, 150).slots, 51, "newer");
        assert_eq!(receiver.applied(REGION).unwrap(), at(51));
    }
}

/// The process dies after each step in turn. The next one finds the old state, or the new one, whole.
#[test]
fn a_crash_after_any_step_leaves_the_old_state_or_the_new_one() {
    let (_sender_dir, sender, dir, receiver) = nodes();
    let (expected, old, other) = (
        rows(&sender, REGION),
        rows(&receiver, REGION),
        rows(&receiver, OTHER),
    );
    receiver.sync().unwrap();
    let images: Arc<Mutex<Vec<(String, TempDir)>>> = Arc::default();
    let (path, taken) = (dir.path().to_owned(), images.clone());
    *receiver.after_step.lock() = Some(Box::new(move |step| {
        taken.lock().push((step.to_string(), image(&path)));
        Ok(())
    }));
    let incoming = send(&sender, &receiver, REGION).unwrap();
    images.lock().push(("received".into(), image(dir.path())));
    receiver.install(&at(50), incoming).unwrap();
    let images = std::mem::take(&mut *images.lock());
    let steps: Vec<&str> = images.iter().map(|(step, _)| &step[..]).collect();
    assert_eq!(
        steps,
        [
            "received",
            "kept",
            "marked",
            "cleared",
            "ingested",
            "ingested",
            "ingested",
            "ingested",
            "set",
            "forgotten"
        ]
    );
    for (at_step, (step, image)) in images.iter().enumerate() {
        let after = open(image.path());
        let is_old = at_step < 2;
        assert_eq!(
            rows(&after, REGION),
            if is_old {
                old.clone()
            } else {
                expected.clone()
            },
            "{step}"
        );
        let place = if is_old { at(4) } else { at(50) };
        assert_eq!(after.applied(REGION).unwrap(), place, "{step}");
        assert_eq!(rows(&after, OTHER), other, "{step}");
        assert!(
            after
                .system_rows(SystemKind::Installing)
                .unwrap()
                .is_empty()
        );
        assert!(!image.path().join("incoming").exists(), "{step}");
    }
}

/// An error in between, and a new attempt in the same process.
#[test]
fn what_was_interrupted_is_begun_anew() {
    for stop_at in ["kept", "marked", "cleared", "ingested", "set", "forgotten"] {
        let (_sender_dir, sender, dir, receiver) = nodes();
        let expected = rows(&sender, REGION);
        *receiver.after_step.lock() = Some(Box::new(move |step| match step == stop_at {
            true => Err(EngineError::Closing),
            false => Ok(()),
        }));
        let incoming = send(&sender, &receiver, REGION).unwrap();
        assert!(receiver.install(&at(50), incoming).is_err());
        *receiver.after_step.lock() = None;
        let incoming = send(&sender, &receiver, REGION).unwrap();
        receiver.install(&at(50), incoming).unwrap();
        assert_eq!(rows(&receiver, REGION), expected, "{stop_at}");
        drop(receiver);
        assert_eq!(rows(&open(dir.path()), REGION), expected, "{stop_at}");
    }
}

/// The files are gone, or damaged: what is half there is removed.
#[test]
fn a_mark_without_its_files_removes_the_region() {
    for damaged in ["installation", "metadata-000000.sst"] {
        let (_sender_dir, sender, dir, receiver) = nodes();
        let other = rows(&receiver, OTHER);
        *receiver.after_step.lock() = Some(Box::new(|step| match step == "cleared" {
            true => Err(EngineError::Closing),
            false => Ok(()),
        }));
        let incoming = send(&sender, &receiver, REGION).unwrap();
        assert!(receiver.install(&at(50), incoming).is_err());
        drop(receiver);
        let file = dir
            .path()
            .join("incoming")
            .join(REGION.to_string())
            .join(damaged);
        fs::write(file, b"damage").unwrap();
        let receiver = open(dir.path());
        assert_eq!(rows(&receiver, REGION), []);
        assert_eq!(receiver.applied(REGION).unwrap(), Applied::default());
        assert_eq!(receiver.durable(REGION), None);
        assert_eq!(rows(&receiver, OTHER), other);
        let incoming = send(&sender, &receiver, REGION).unwrap();
        receiver.install(&at(50), incoming).unwrap();
        assert_eq!(rows(&receiver, REGION), rows(&sender, REGION));
    }
}

#[test]
fn a_removed_region_leaves_nothing_and_may_come_again() {
    let (_sender_dir, sender, dir, receiver) = nodes();
    let other = rows(&receiver, OTHER);
    let old = rows(&receiver, REGION);
    is_shown(&receiver, &old);
    receiver.sync().unwrap();
    assert_eq!(receiver.durable(REGION), Some(4));
    receiver.remove(REGION).unwrap();
    for receiver in [receiver, open(image(dir.path()).path())] {
        assert_eq!(receiver.durable(REGION), None);
        assert_eq!(receiver.applied(REGION).unwrap(), Applied::default());
        assert_eq!(receiver.descriptor(REGION).unwrap(), None);
        for (family, key, _) in &old {
            let family = Family::of_byte(*family).unwrap();
            assert!(receiver.engine.get(family, key).unwrap().is_none());
        }
        assert_eq!(rows(&receiver, OTHER), other);
        let mut expiry = receiver.engine.background_rows(Family::Expiry, &[], &[]);
        while let Some((key, _)) = expiry.next().unwrap() {
            let slot = walk::slot_of(Family::Expiry, key).unwrap();
            assert!(descriptor(200, 300).slots.contains(slot));
        }
        let incoming = send(&sender, &receiver, REGION).unwrap();
        receiver.install(&at(50), incoming).unwrap();
        assert_eq!(rows(&receiver, REGION), rows(&sender, REGION));
    }
}

#[test]
fn a_snapshot_waits_for_the_slots_that_another_region_has_yet() {
    let (_sender_dir, sender, _dir, receiver) = nodes();
    let is_taken = |sent: Result<Incoming>, by: u64| {
        let error = sent.map(|_| ()).unwrap_err();
        assert!(
            matches!(error, EngineError::SlotsTaken { other, .. } if other == by),
            "{error}"
        );
    };
    // Split off elsewhere; here that is not known yet.
    const HALF: u64 = 9;
    sender.create(&[(HALF, descriptor(150, 200))]).unwrap();
    fill(&sender, HALF, descriptor(150, 200).slots, 1, "half");
    is_taken(send(&sender, &receiver, HALF), REGION);
    let incoming = send(&sender, &receiver, REGION).unwrap();
    is_taken(send(&sender, &receiver, HALF), REGION);
    receiver.install(&at(50), incoming).unwrap();
    let incoming = send(&sender, &receiver, HALF).unwrap();
    // While it comes, nobody else may.
    const SAME: u64 = 10;
    sender.remove(HALF).unwrap();
    sender.create(&[(SAME, descriptor(199, 200))]).unwrap();
    is_taken(send(&sender, &receiver, SAME), HALF);
    drop(incoming);
    send(&sender, &receiver, SAME).unwrap();
}

#[test]
fn what_is_no_snapshot_of_the_region_is_refused() {
    let (_sender_dir, sender, dir, receiver) = nodes();
    let mut snapshot = sender.snapshot(REGION).unwrap();
    let piece = snapshot.next_piece().unwrap().unwrap();
    let refused = |region: u64, piece: &[u8]| {
        let mut incoming = receiver.receive(region).unwrap();
        assert!(incoming.write(piece).is_err());
    };
    refused(11, &piece);
    refused(REGION, &piece[..piece.len() - 1]);
    let forged = |family: Family, key: &[u8], value: Option<&[u8]>| {
        let mut forged = piece.clone();
        cairn_encoding::changes::append(&mut forged, family as u8, key, value);
        forged
    };
    refused(
        REGION,
        &forged(Family::Meta, &SystemKey::Format.encode(), Some(&[])),
    );
    let installing = SystemKey::Installing { region: REGION }.encode();
    refused(REGION, &forged(Family::Meta, &installing, Some(&[0; 4])));
    let name = names(descriptor(200, 300).slots).next().unwrap();
    let foreign = RowKey::Expiry {
        at_ms: u64::MAX,
        index: INDEX,
        key: name.as_bytes(),
    };
    refused(
        REGION,
        &forged(Family::Expiry, &foreign.encode(), Some(&[])),
    );
    refused(REGION, &forged(Family::Expiry, &[0xff; 40], None));
    refused(REGION, &forged(Family::Data, b"short", Some(&[])));
    assert!(
        !dir.path()
            .join("incoming")
            .join(REGION.to_string())
            .exists()
    );
}

/// Nothing of what comes after its moment shows in a snapshot, nor goes from it.
#[test]
fn a_snapshot_is_of_one_moment() {
    let (_sender_dir, sender, _dir, _receiver) = nodes();
    let slots = descriptor(100, 150).slots;
    let mut snapshots = Vec::new();
    for index in 51..56 {
        fill(&sender, REGION, slots, index, "later");
        // Some of it young, some of it stored.
        if index % 2 == 0 {
            sender.engine.drain().unwrap();
        }
        let expected = rows(&sender, REGION);
        snapshots.push((sender.snapshot(REGION).unwrap(), expected, at(index)));
    }
    sender.engine.start_filters();
    sender.engine.compact().unwrap();
    sender.remove(REGION).unwrap();
    sender.engine.compact().unwrap();
    for (mut snapshot, expected, place) in snapshots {
        assert_eq!(*snapshot.applied(), place);
        let mut rows = Vec::new();
        while let Some(piece) = snapshot.next_piece().unwrap() {
            for change in cairn_encoding::changes::read_piece(&piece).unwrap() {
                let (family, key, value) = change.unwrap();
                rows.push((family, key.to_vec(), value.unwrap().to_vec()));
            }
        }
        assert_eq!(rows, expected);
    }
}

/// Two replicas that were told the same: one has drained, compacted and dropped what is dead, the other has not.
#[test]
fn replicas_at_one_place_have_the_same_checksum_however_their_rows_lie() {
    let (_one_dir, one, _other_dir, other) = nodes();
    let slots = descriptor(300, 900).slots;
    let all: Vec<String> = names(slots).take(30).collect();
    for regions in [&one, &other] {
        regions.create(&[(20, descriptor(300, 900))]).unwrap();
        let database = SystemKey::Database {
            region: 20,
            number: 0,
        };
        let mut first = Batch::new();
        let value = cairn_encoding::system::value::encode_database(INDEX);
        first.put(Family::Meta, &database.encode(), value);
        for (name, version) in all.iter().zip(1..) {
            put_hash(&mut first, INDEX, name, version, "value");
            // Of a database that is no more.
            put_hash(&mut first, 9, name, version, "value");
        }
        // Overwritten, deleted, and expired before the watermark.
        let mut second = Batch::new();
        for (name, version) in all.iter().zip(101..) {
            let key = name.as_bytes();
            let index = INDEX;
            match version % 3 {
                0 => put_hash(&mut second, index, name, version, "changed"),
                1 => second.delete(Family::Metadata, &RowKey::Metadata { index, key }.encode()),
                _ => {
                    let metadata = Metadata {
                        expire_ms: NOW - 1,
                        body: Body::Inline(b"string"),
                    };
                    let row = RowKey::Metadata { index, key }.encode();
                    second.put(Family::Metadata, &row, metadata.encode());
                }
            }
        }
        let dead = SystemKey::DeadIndex {
            region: 20,
            index: 9,
        };
        second.put(Family::Meta, &dead.encode(), []);
        let watermark = cairn_encoding::system::value::encode_watermark(NOW);
        let key = SystemKey::Watermark { region: 20 }.encode();
        second.put(Family::Meta, &key, watermark);
        let batches = vec![first, second];
        regions
            .apply(20, batches, &at(9), Maxima::default())
            .unwrap();
    }
    let before = rows(&one, 20).len();
    one.engine.start_filters();
    one.sync().unwrap();
    one.engine.compact().unwrap();
    one.engine.compact().unwrap();
    assert!(rows(&one, 20).len() < before - 50, "nothing was dropped");
    let (place, checksum) = one.checksum(20).unwrap();
    assert_eq!(place, at(9));
    assert_eq!(other.checksum(20).unwrap(), (place, checksum));
    // Database, watermark, maxima, descriptor; ten hashes, each with a field and an expiry row.
    assert_eq!(checksum.rows, 4 + 3 * 10);

    // A field that differs, one that is missing, and an expiry row that is missing.
    let key = all[1].as_bytes();
    let field = RowKey::Data {
        index: INDEX,
        key,
        version: 102,
        sub: b"field",
    }
    .encode();
    let at_ms = LATER;
    let index = INDEX;
    let expiry = RowKey::Expiry { at_ms, index, key }.encode();
    assert!(other.engine.get(Family::Data, &field).unwrap().is_some());
    let changes = [
        (Family::Data, &field, Some("different")),
        (Family::Data, &field, None),
        (Family::Expiry, &expiry, None),
    ];
    let mut sums = vec![checksum];
    for (family, key, value) in changes {
        let mut batch = Batch::new();
        match value {
            Some(value) => batch.put(family, key, value),
            None => batch.delete(family, key),
        }
        other
            .apply(20, vec![batch], &at(9), Maxima::default())
            .unwrap();
        let (_, sum) = other.checksum(20).unwrap();
        assert!(!sums.contains(&sum));
        sums.push(sum);
    }
}
