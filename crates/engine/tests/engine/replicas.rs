//! A node that follows another, region by region, by logs and by snapshots, and crashes, compacts, splits and removes regions
//! between any two of these. Whatever comes, a region on it holds what the region held at the place that it says.

use std::collections::BTreeMap;
use std::sync::Arc;

use cairn_encoding::changes;
use cairn_encoding::metadata::{Body, CollectionKind, Metadata};
use cairn_encoding::raft::{Applied, LogId, Membership};
use cairn_encoding::row::{self, RowKey};
use cairn_encoding::slot::slot;
use cairn_encoding::system::{SystemKey, value};
use cairn_engine::{
    Batch, Clock, Descriptor, Engine, EngineError, Family, ManualTime, Maxima, Regions, Slots,
};
use fastrand::Rng;
use tempfile::TempDir;

use crate::support::{image, settings};

const INDEX: u64 = 1;
const KEYS: u32 = 300;
/// Where a region is before the first entry of its log.
const BEGINNING: usize = 1;
const FIELD: &[u8] = b"field";

/// Names of hashes with their versions, and with the value of their only field.
type Contents = BTreeMap<String, (u64, String)>;

/// A log of a region, and what the region held before and after each entry.
struct Group {
    batches: Vec<Vec<u8>>,
    contents: Vec<Contents>,
}

struct Replica {
    dir: TempDir,
    regions: Regions,
}

impl Replica {
    fn open(dir: TempDir) -> Replica {
        let engine = Engine::open_in_cluster(dir.path(), &settings()).unwrap();
        let clock = Clock::new(Box::new(ManualTime::at_millis(1000)));
        let regions = Regions::open(Arc::new(engine), Arc::new(clock)).unwrap();
        regions.engine().start_filters();
        Replica { dir, regions }
    }

    fn place(&self, region: u64) -> usize {
        let last = self.regions.applied(region).unwrap().last;
        last.map_or(0, |last| last.index as usize)
    }

    fn is_here(&self, region: u64) -> bool {
        self.place(region) >= BEGINNING
    }

    fn apply(&self, region: u64, batches: &[Vec<u8>]) {
        let to = self.place(region) + batches.len();
        let batches = batches.iter().map(|batch| Batch::decode(batch).unwrap().0);
        self.regions
            .apply(region, batches.collect(), &at(to), Maxima::default())
            .unwrap();
    }

    /// What a snapshot of the region holds that lives.
    fn contents(&self, region: u64) -> Contents {
        let (mut versions, mut fields) = (BTreeMap::new(), BTreeMap::new());
        let mut snapshot = self.regions.snapshot(region).unwrap();
        while let Some(piece) = snapshot.next_piece().unwrap() {
            for change in changes::read_piece(&piece).unwrap() {
                let (family, key, value) = change.unwrap();
                let value = value.unwrap();
                if family == Family::Metadata as u8 {
                    let Body::Collection { version, .. } = Metadata::decode(value).unwrap().body
                    else {
                        panic!("not a hash");
                    };
                    versions.insert(key.to_vec(), version);
                } else if family == Family::Data as u8 {
                    let RowKey::Data { version, .. } = RowKey::decode_data(key).unwrap() else {
                        panic!("not a field");
                    };
                    let owner = row::metadata_key_of(key).unwrap().to_vec();
                    fields.insert((owner, version), value.to_vec());
                }
            }
        }
        let hashes = versions.into_iter().map(|(key, version)| {
            let (_, name) = RowKey::decode_metadata(&key).unwrap().index_and_key();
            let name = String::from_utf8(name.to_vec()).unwrap();
            let value = fields.remove(&(key, version)).expect("its field is there");
            (name, (version, String::from_utf8(value).unwrap()))
        });
        hashes.collect()
    }

    /// The same, as readers find it, key by key: what is kept in memory must not differ.
    fn shown(&self, slots: Slots) -> Contents {
        let engine = self.regions.engine();
        let mut contents = Contents::new();
        for name in names(slots) {
            let key = name.as_bytes();
            let index = INDEX;
            let row = RowKey::Metadata { index, key }.encode();
            let Some(metadata) = engine.get(Family::Metadata, &row).unwrap() else {
                continue;
            };
            let Body::Collection { version, .. } = Metadata::decode(&metadata).unwrap().body else {
                panic!("not a hash");
            };
            let field = engine.get(Family::Data, &field(key, version)).unwrap();
            let value = String::from_utf8(field.unwrap().to_vec()).unwrap();
            contents.insert(name, (version, value));
        }
        contents
    }

    /// After compactions there is nothing left of slots that no region has.
    fn has_foreign_rows(&self) -> bool {
        let regions = self.regions.list().unwrap();
        if regions.values().all(|region| region.slots.is_empty()) {
            return false;
        }
        let mut rows = self
            .regions
            .engine()
            .background_rows(Family::Data, &[], &[]);
        while let Some((key, _)) = rows.next().unwrap() {
            let slot = row::slot_of(key).unwrap();
            if !regions.values().any(|region| region.slots.contains(slot)) {
                return true;
            }
        }
        false
    }
}

fn at(index: usize) -> Applied {
    let index = index as u64;
    Applied {
        last: Some(LogId { term: 1, index }),
        ..Applied::default()
    }
}

fn names(slots: Slots) -> impl Iterator<Item = String> {
    let names = (0..KEYS).map(|number| format!("key:{number}"));
    names.filter(move |name| slots.contains(slot(name.as_bytes())))
}

fn field(key: &[u8], version: u64) -> Vec<u8> {
    RowKey::Data {
        index: INDEX,
        key,
        version,
        sub: FIELD,
    }
    .encode()
}

struct Story {
    random: Rng,
    leader: Replica,
    follower: Replica,
    groups: BTreeMap<u64, Group>,
    version: u64,
    /// How often each thing has happened.
    counts: BTreeMap<&'static str, usize>,
}

impl Story {
    fn new(seed: u64) -> Story {
        let bounds = [0, 4000, 9000, 16384];
        let descriptors: Vec<_> = (1..)
            .zip(bounds.windows(2))
            .map(|(region, bounds)| {
                let slots = Slots::new(bounds[0], bounds[1]).unwrap();
                let beginning = Regions::beginning(Membership::default());
                (region, Descriptor { slots, epoch: 1 }, beginning)
            })
            .collect();
        let [leader, follower] = [(), ()].map(|()| {
            let replica = Replica::open(TempDir::new().unwrap());
            replica.regions.create(&descriptors).unwrap();
            replica
        });
        let group = || Group {
            batches: Vec::new(),
            contents: vec![Contents::new()],
        };
        let mut story = Story {
            random: Rng::with_seed(seed),
            leader,
            follower,
            groups: (1..4).map(|region| (region, group())).collect(),
            version: 0,
            counts: BTreeMap::new(),
        };
        for region in 1..4 {
            let mut batch = Batch::new();
            let database = SystemKey::Database { region, number: 0 };
            batch.put(
                Family::Meta,
                &database.encode(),
                value::encode_database(INDEX),
            );
            story.commit(region, &batch, Contents::new());
        }
        story
    }

    fn some_region(&mut self) -> u64 {
        let regions: Vec<u64> = self.groups.keys().copied().collect();
        regions[self.random.usize(..regions.len())]
    }

    fn slots(&self, region: u64) -> Slots {
        let descriptor = self.leader.regions.descriptor(region).unwrap();
        descriptor.unwrap().slots
    }

    fn commit(&mut self, region: u64, batch: &Batch, contents: Contents) {
        let payload = batch.encode(Maxima::default());
        self.leader.apply(region, std::slice::from_ref(&payload));
        let group = self.groups.get_mut(&region).unwrap();
        group.batches.push(payload);
        group.contents.push(contents);
    }

    fn write(&mut self) {
        let region = self.some_region();
        let slots = self.slots(region);
        let names: Vec<String> = names(slots).collect();
        if names.is_empty() {
            return;
        }
        let mut contents = self.groups[&region].contents.last().unwrap().clone();
        let mut batch = Batch::new();
        for _ in 0..self.random.usize(1..8) {
            let name = names[self.random.usize(..names.len())].clone();
            let key = name.as_bytes();
            let index = INDEX;
            let row = RowKey::Metadata { index, key }.encode();
            if self.random.u8(..3) == 0 {
                batch.delete(Family::Metadata, &row);
                contents.remove(&name);
                continue;
            }
            self.version += 1;
            let version = self.version;
            let body = Body::Collection {
                kind: CollectionKind::Hash,
                version,
                size: 1,
                is_counted: false,
                fields: None,
            };
            let metadata = Metadata { expire_ms: 0, body };
            let text = format!("value {version}");
            batch.put(Family::Metadata, &row, metadata.encode());
            batch.put(Family::Data, &field(key, version), &text);
            contents.insert(name, (version, text));
        }
        self.commit(region, &batch, contents);
    }

    fn split(&mut self) {
        let region = self.some_region();
        let slots = self.slots(region);
        let at = self.random.u16(slots.first()..slots.end());
        let new = self.groups.len() as u64 + 1;
        let Ok(batch) = self
            .leader
            .regions
            .split(region, at, new, Membership::default())
        else {
            return;
        };
        let contents = self.groups[&region].contents.last().unwrap().clone();
        let (below, above) = contents
            .into_iter()
            .partition(|(name, _)| slot(name.as_bytes()) < at);
        self.commit(region, &batch, below);
        let group = Group {
            batches: Vec::new(),
            contents: vec![above],
        };
        self.groups.insert(new, group);
    }

    fn follow(&mut self) {
        let region = self.some_region();
        if !self.follower.is_here(region) {
            return;
        }
        let behind = self.follower.place(region) - BEGINNING;
        let left = &self.groups[&region].batches[behind..];
        if left.is_empty() {
            return;
        }
        let count = self.random.usize(1..=left.len());
        self.follower.apply(region, &left[..count]);
    }

    fn send_snapshot(&mut self) {
        let region = self.some_region();
        let (here, there) = (self.leader.place(region), self.follower.place(region));
        if here <= there {
            return;
        }
        let is_taken = {
            let slots = self
                .leader
                .regions
                .descriptor(region)
                .unwrap()
                .unwrap()
                .slots;
            let mut others = self.follower.regions.list().unwrap();
            others.remove(&region);
            others.values().any(|other| other.slots.overlaps(slots))
        };
        let mut snapshot = self.leader.regions.snapshot(region).unwrap();
        let mut incoming = self.follower.regions.receive(region).unwrap();
        let mut result = Ok(());
        while let Some(piece) = snapshot.next_piece().unwrap()
            && result.is_ok()
        {
            result = incoming.write(&piece);
        }
        match result {
            Ok(()) => {
                assert!(!is_taken);
                let regions = &self.follower.regions;
                // Filters look at what goes and at what comes.
                std::thread::scope(|scope| {
                    scope.spawn(|| regions.engine().compact().unwrap());
                    regions.install(snapshot.applied(), incoming).unwrap();
                });
                assert_eq!(self.follower.regions.durable(region), Some(here as u64));
                *self.counts.entry("installed").or_default() += 1;
            }
            Err(EngineError::SlotsTaken { .. }) => {
                assert!(is_taken);
                *self.counts.entry("refused").or_default() += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn crash(&mut self) {
        let durable: Vec<(u64, Option<u64>)> = self
            .groups
            .keys()
            .map(|region| (*region, self.follower.regions.durable(*region)))
            .collect();
        self.follower = Replica::open(image(self.follower.dir.path()));
        for (region, durable) in durable {
            assert!(self.follower.place(region) as u64 >= durable.unwrap_or(0));
        }
    }

    fn remove(&mut self) {
        let region = self.some_region();
        self.follower.regions.remove(region).unwrap();
        assert_eq!(self.follower.place(region), 0);
        assert_eq!(self.follower.contents(region), Contents::new());
    }

    fn check(&self, seed: u64, step: usize) {
        for (region, descriptor) in self.follower.regions.list().unwrap() {
            let place = self.follower.place(region);
            let expected = &self.groups[&region].contents[place - BEGINNING];
            let held = self.follower.contents(region);
            assert_eq!(held, *expected, "seed {seed}, step {step}, region {region}");
            let shown = self.follower.shown(descriptor.slots);
            assert_eq!(
                shown, *expected,
                "seed {seed}, step {step}, region {region}"
            );
            if place == self.leader.place(region) {
                let sums = [&self.leader, &self.follower]
                    .map(|replica| replica.regions.checksum(region).unwrap());
                assert_eq!(
                    sums[0], sums[1],
                    "seed {seed}, step {step}, region {region}"
                );
            }
        }
    }

    fn tell(&mut self, steps: usize, seed: u64) {
        for step in 0..steps {
            let what = match self.random.u8(..100) {
                0..40 => {
                    self.write();
                    "wrote"
                }
                40..44 => {
                    self.split();
                    "split"
                }
                44..70 => {
                    self.follow();
                    "followed"
                }
                70..82 => {
                    self.send_snapshot();
                    "sent"
                }
                82..86 => {
                    self.remove();
                    "removed"
                }
                86..91 => {
                    self.follower.regions.sync().unwrap();
                    "synced"
                }
                91..95 => {
                    self.follower.regions.sync().unwrap();
                    self.follower.regions.engine().compact().unwrap();
                    assert!(
                        !self.follower.has_foreign_rows(),
                        "seed {seed}, step {step}"
                    );
                    "compacted"
                }
                _ => {
                    self.crash();
                    "crashed"
                }
            };
            *self.counts.entry(what).or_default() += 1;
            self.check(seed, step);
        }
    }
}

/// `SEEDS=8..100` tells more stories.
fn seeds() -> std::ops::Range<u64> {
    let Ok(seeds) = std::env::var("SEEDS") else {
        return 0..6;
    };
    let (from, to) = seeds.split_once("..").unwrap();
    from.parse().unwrap()..to.parse().unwrap()
}

#[test]
fn a_region_holds_what_it_held_at_the_place_that_it_says() {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in seeds() {
        let mut story = Story::new(seed);
        story.tell(150, seed);
        for (what, count) in story.counts {
            *counts.entry(what).or_default() += count;
        }
    }
    println!("{counts:?}");
    for what in [
        "installed",
        "refused",
        "removed",
        "crashed",
        "compacted",
        "split",
    ] {
        assert!(
            counts.get(what).is_some_and(|count| *count > 3),
            "{what}: {counts:?}"
        );
    }
}
