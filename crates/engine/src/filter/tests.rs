#![allow(clippy::unwrap_used)]

use cairn_encoding::field_expiry;
use cairn_encoding::metadata::{Body, CollectionKind, Metadata};
use cairn_encoding::row::RowKey;
use cairn_encoding::system::{Descriptor, Slots, value};
use rust_rocksdb::DB;
use rust_rocksdb::compaction_filter_factory::CompactionFilterContext;

use super::*;
use crate::LOCAL_REGION;
use crate::engine::Engine;
use crate::options::{self, EngineOptions};

/// An engine whose gate is in the test's hands.
fn engine(path: &std::path::Path, gate: &Arc<Gate>) -> Engine {
    let settings = EngineOptions {
        memory: 64 * 1024 * 1024,
        ..EngineOptions::default()
    };
    let memory = options::Memory::new(&settings);
    let mut database_options = options::database(&settings, &memory, gate);
    database_options.create_if_missing(true);
    database_options.create_missing_column_families(true);
    let families =
        Family::ALL.map(|family| options::family(family, &settings, &memory, Some(gate)));
    let db = DB::open_cf_descriptors(&database_options, path, families).unwrap();
    Engine::assemble(db, gate.clone(), memory, database_options, path).unwrap()
}

fn new_filter(gate: &Arc<Gate>) -> Filter {
    new_filter_of(Family::Data, gate)
}

fn new_filter_of(family: Family, gate: &Arc<Gate>) -> Filter {
    let context = CompactionFilterContext {
        is_full_compaction: true,
        is_manual_compaction: true,
    };
    FilterFactory::new(family, gate.clone()).create(context)
}

/// A filter outlives the moment at which its compaction began: those that began before, while and after
/// the database was open judge the same dead row.
#[test]
fn rows_are_dropped_only_while_the_database_is_open() {
    let directory = tempfile::tempdir().unwrap();
    let gate = Arc::new(Gate::default());
    let engine = engine(directory.path(), &gate);
    let orphan = RowKey::Data {
        index: 1,
        key: b"no such key",
        version: 5,
        sub: b"field",
    }
    .encode();
    let drops = |filter: &mut Filter| {
        matches!(
            filter.filter(0, &orphan, b"value"),
            CompactionDecision::Remove
        )
    };

    let mut while_opening = new_filter(&gate);
    assert!(!drops(&mut while_opening));
    engine.start_filters();
    let mut while_open = new_filter(&gate);
    assert!(drops(&mut while_open));
    assert!(!drops(&mut while_opening), "it knows nothing");

    gate.close();
    assert!(!drops(&mut while_open), "it knew, but may no longer");
    assert!(!drops(&mut new_filter(&gate)));
    assert_eq!(gate.counters().dead_versions.load(Ordering::Relaxed), 1);
}

/// The view is of the moment in which the compaction began, whatever is written afterwards.
#[test]
fn a_filter_judges_by_the_moment_it_began() {
    let directory = tempfile::tempdir().unwrap();
    let gate = Arc::new(Gate::default());
    let engine = engine(directory.path(), &gate);
    engine.start_filters();
    let (index, key) = (1, b"hash");
    let metadata = RowKey::Metadata { index, key }.encode();
    let write = |version: Option<u64>| {
        let mut batch = crate::Batch::new();
        match version {
            None => batch.delete(Family::Metadata, &metadata),
            Some(version) => {
                let kind = cairn_encoding::metadata::CollectionKind::Hash;
                let body = Body::Collection {
                    kind,
                    version,
                    size: 1,
                    is_counted: false,
                    fields: None,
                };
                let value = Metadata { expire_ms: 0, body }.encode();
                batch.put(Family::Metadata, &metadata, value);
            }
        }
        engine.write([&batch], false).unwrap();
    };
    let keeps = |filter: &mut Filter, version| {
        let row = RowKey::Data {
            index,
            key,
            version,
            sub: b"field",
        };
        matches!(
            filter.filter(0, &row.encode(), b"value"),
            CompactionDecision::Keep
        )
    };

    write(Some(5));
    let mut before = new_filter(&gate);
    write(Some(6));
    let mut after = new_filter(&gate);
    write(None);
    let mut last = new_filter(&gate);
    assert_eq!(
        [5, 6].map(|version| keeps(&mut before, version)),
        [true, false]
    );
    assert_eq!(
        [5, 6].map(|version| keeps(&mut after, version)),
        [false, true]
    );
    assert_eq!(
        [5, 6].map(|version| keeps(&mut last, version)),
        [false, false]
    );
}

/// A compaction of the metadata meets an older row of the key, due before the watermark, while the newest
/// says otherwise. Were the older one dropped, then a filter of the key's rows whose view is of the time
/// before would find no metadata at all, since filters ignore snapshots, and would drop rows that live.
#[test]
fn metadata_that_is_due_stays_while_there_is_a_newer_row() {
    const WATERMARK: u64 = 1000;
    let directory = tempfile::tempdir().unwrap();
    let gate = Arc::new(Gate::default());
    let engine = engine(directory.path(), &gate);
    engine.start_filters();
    let (index, key) = (1, b"hash");
    let row = RowKey::Metadata { index, key }.encode();
    let due_at = |expire_ms| {
        let body = Body::Collection {
            kind: cairn_encoding::metadata::CollectionKind::Hash,
            version: 5,
            size: 1,
            is_counted: false,
            fields: None,
        };
        Metadata { expire_ms, body }.encode()
    };
    let write = |family, row: &[u8], value: Vec<u8>| {
        let mut batch = crate::Batch::new();
        batch.put(family, row, value);
        engine.write([&batch], false).unwrap();
    };
    let drops = |expire_ms| {
        let mut filter = new_filter_of(Family::Metadata, &gate);
        let decision = filter.filter(0, &row, &due_at(expire_ms));
        matches!(decision, CompactionDecision::Remove)
    };
    let region = LOCAL_REGION;
    let watermark = value::encode_watermark(WATERMARK);
    let watermark_row = SystemKey::Watermark { region }.encode();
    write(Family::Meta, &watermark_row, watermark.to_vec());

    let due = WATERMARK - 1;
    write(Family::Metadata, &row, due_at(due));
    assert!(drops(due), "it is the newest");
    for (moved_to, what) in [(0, "PERSIST"), (WATERMARK + 1, "a later time")] {
        write(Family::Metadata, &row, due_at(moved_to));
        assert!(!drops(due), "{what}: the older row");
        assert!(!drops(moved_to), "{what}: the newest row");
    }
    let earlier = due - 1;
    write(Family::Metadata, &row, due_at(earlier));
    assert!(!drops(due), "an earlier time: the older row");
    assert!(drops(earlier), "an earlier time: the newest row");
}

/// The metadata says up to where the times of fields have been dealt with. What it does not show is decided by it
/// alone: an older row of a field may say an earlier time than the newest, and is as dead.
#[test]
fn times_of_fields_are_dropped_below_the_first_one_that_the_metadata_names() {
    const FIRST: u64 = 1000;
    let directory = tempfile::tempdir().unwrap();
    let gate = Arc::new(Gate::default());
    let engine = engine(directory.path(), &gate);
    engine.start_filters();
    let (index, key, version) = (1, b"hash", 5);
    let write = |first_ms: Option<u64>| {
        let body = Body::Collection {
            kind: CollectionKind::Hash,
            version,
            size: 9,
            is_counted: false,
            fields: first_ms.map(field_expiry::FieldTimes::of),
        };
        let row = RowKey::Metadata { index, key }.encode();
        let mut batch = crate::Batch::new();
        batch.put(
            Family::Metadata,
            &row,
            Metadata { expire_ms: 0, body }.encode(),
        );
        engine.write([&batch], false).unwrap();
    };
    let drops = |at_ms: u64| {
        let mut filter = new_filter_of(Family::ZsetScore, &gate);
        let field = b"field";
        let by_name = RowKey::Field {
            index,
            key,
            version,
            field,
        };
        let by_time = RowKey::FieldTime {
            index,
            key,
            version,
            at_ms,
            field,
        };
        let time = field_expiry::encode(at_ms);
        let rows = [(by_name.encode(), &time[..]), (by_time.encode(), &[])];
        rows.map(|(row, value)| {
            let decision = filter.filter(0, &row, value);
            matches!(decision, CompactionDecision::Remove)
        })
    };
    write(Some(FIRST));
    assert_eq!(drops(FIRST - 1), [true; 2]);
    assert_eq!(drops(FIRST), [false; 2]);
    write(None);
    assert_eq!(drops(FIRST), [true; 2]);
    write(Some(FIRST + 1));
    assert_eq!(drops(FIRST), [true; 2]);
    assert_eq!(drops(FIRST + 1), [false; 2]);

    let data = RowKey::Data {
        index,
        key,
        version,
        sub: b"field",
    }
    .encode();
    let decision = new_filter(&gate).filter(0, &data, b"value");
    assert!(
        matches!(decision, CompactionDecision::Keep),
        "the field itself is the expirer's"
    );
}

/// Two regions give out the same numbers to their databases, and each has a watermark of its own.
#[test]
fn a_row_is_judged_by_the_region_that_holds_its_slot() {
    const WATERMARK: u64 = 1000;
    let directory = tempfile::tempdir().unwrap();
    let gate = Arc::new(Gate::default());
    let engine = engine(directory.path(), &gate);
    engine.start_filters();
    let system = |key: SystemKey<'_>, value: &[u8]| {
        let mut batch = crate::Batch::new();
        batch.put(Family::Meta, &key.encode(), value);
        engine.write([&batch], false).unwrap();
    };
    let describe = |region, first, end| {
        let slots = Slots::new(first, end).unwrap();
        let value = Descriptor { slots, epoch: 1 }.encode();
        system(SystemKey::RegionDescriptor { region }, &value);
    };
    // Slots 12182, 5061 and 866.
    let (of_two, of_one, foreign) = (&b"foo"[..], &b"bar"[..], &b"hello"[..]);
    let expired = Metadata {
        expire_ms: WATERMARK - 1,
        body: Body::Inline(b"value"),
    }
    .encode();
    for index in [7, 8] {
        let mut batch = crate::Batch::new();
        for key in [of_one, of_two, foreign] {
            let row = RowKey::Metadata { index, key }.encode();
            batch.put(Family::Metadata, &row, &expired);
        }
        engine.write([&batch], false).unwrap();
    }
    let drops = |index, key: &[u8]| {
        let mut filter = new_filter_of(Family::Metadata, &gate);
        let row = RowKey::Metadata { index, key }.encode();
        let metadata = filter.filter(0, &row, &expired);
        let mut filter = new_filter_of(Family::Expiry, &gate);
        let at_ms = WATERMARK - 1;
        let row = RowKey::Expiry { at_ms, index, key }.encode();
        let expiry = filter.filter(0, &row, &[]);
        [metadata, expiry].map(|decision| matches!(decision, CompactionDecision::Remove))
    };
    let all = [
        (7, of_one),
        (8, of_one),
        (7, of_two),
        (8, of_two),
        (7, foreign),
    ];
    let all_drops = || all.map(|(index, key)| drops(index, key));
    let (kept, gone, expired_only) = ([false; 2], [true; 2], [true, false]);

    // No region has slots: all are those of one machine.
    describe(0, 0, 0);
    system(
        SystemKey::DeadIndex {
            region: LOCAL_REGION,
            index: 8,
        },
        &[],
    );
    assert_eq!(all_drops(), [kept, gone, kept, gone, kept]);
    // What it had dead is not what they have.
    describe(11, 5000, 6000);
    describe(12, 12000, 16384);
    assert_eq!(all_drops(), [kept, kept, kept, kept, gone]);
    system(
        SystemKey::DeadIndex {
            region: 11,
            index: 7,
        },
        &[],
    );
    system(
        SystemKey::Watermark { region: 12 },
        &value::encode_watermark(WATERMARK),
    );
    assert_eq!(all_drops(), [gone, kept, expired_only, expired_only, gone]);
    // A snapshot is put in the place of one, in slots that it has and in some that it gets.
    let coming = Slots::new(0, 5500).unwrap();
    system(SystemKey::Installing { region: 12 }, &coming.encode());
    assert_eq!(all_drops(), [kept, kept, kept, kept, kept]);
    assert!(gate.counters().foreign.load(Ordering::Relaxed) > 0);
}

/// What a region has staged is kept, also while its keys are becoming another's.
#[test]
fn staged_rows_of_any_region_are_kept() {
    let directory = tempfile::tempdir().unwrap();
    let gate = Arc::new(Gate::default());
    let engine = engine(directory.path(), &gate);
    engine.start_filters();
    let mut batch = crate::Batch::new();
    let slots = Slots::ALL;
    let descriptor = SystemKey::RegionDescriptor { region: 12 }.encode();
    batch.put(
        Family::Meta,
        &descriptor,
        Descriptor { slots, epoch: 2 }.encode(),
    );
    let staging = SystemKey::Staging {
        region: 11,
        version: 5,
    };
    let mut metadata_key = Vec::new();
    value::encode_staging(&mut metadata_key, 1, b"key");
    batch.put(Family::Meta, &staging.encode(), metadata_key);
    engine.write([&batch], false).unwrap();
    let decisions = [5, 6].map(|version| {
        let row = RowKey::Data {
            index: 1,
            key: b"key",
            version,
            sub: b"field",
        };
        let decision = new_filter(&gate).filter(0, &row.encode(), b"value");
        matches!(decision, CompactionDecision::Remove)
    });
    assert_eq!(decisions, [false, true]);
}
