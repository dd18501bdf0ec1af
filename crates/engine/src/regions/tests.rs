//! What the tests of regions share, and do: they follow each step of an installation.
#![allow(clippy::unwrap_used)]

mod checksum;
mod install;
mod transfer;

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

/// Regions that begin with nothing.
fn create(regions: &Regions, all: &[(u64, Descriptor)]) {
    let all = all.iter().map(|(region, descriptor)| {
        let beginning = Regions::beginning(Membership::default());
        (*region, *descriptor, beginning)
    });
    regions.create(&all.collect::<Vec<_>>()).unwrap();
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
    create(&sender, &[(REGION, new)]);
    fill(&sender, REGION, new.slots, 50, "new");
    create(&receiver, &[(REGION, old), (OTHER, other)]);
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
