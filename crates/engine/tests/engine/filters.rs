//! What compactions drop and what they keep, row by row.
//!
//! The rows are written by hand, each with what should become of it; then everything is compacted, and
//! what is left is read raw.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cairn_encoding::legacy::LegacyString;
use cairn_encoding::metadata::{Body, CollectionKind, Metadata};
use cairn_encoding::row::RowKey;
use cairn_encoding::system::{SystemKey, value};
use cairn_engine::{Batch, Direction, Engine, Family, LOCAL_REGION};

use crate::support::{all_rows, commit, open, ticker};

const LIVE: u64 = 1;
const DEAD: u64 = 9;
const WATERMARK: u64 = 1000;
const STAGED: u64 = 77;

/// What should become of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Stays,
    DeadVersion,
    ListGap,
    Expired,
    DeadDatabase,
}

use Fate::{DeadDatabase, DeadVersion, Expired, ListGap, Stays};

struct Planted {
    family: Family,
    key: Vec<u8>,
    value: Vec<u8>,
    fate: Fate,
}

/// Rows to be written, in the words of the layouts.
#[derive(Default)]
struct Field {
    rows: Vec<Planted>,
    index: u64,
}

impl Field {
    fn of(index: u64) -> Field {
        Field {
            rows: Vec::new(),
            index,
        }
    }

    fn plant(&mut self, family: Family, key: RowKey<'_>, value: impl Into<Vec<u8>>, fate: Fate) {
        let key = key.encode();
        let value = value.into();
        self.rows.push(Planted {
            family,
            key,
            value,
            fate,
        });
    }

    fn metadata(&mut self, key: &str, expire_ms: u64, body: Body<'_>, fate: Fate) {
        let (index, key) = (self.index, key.as_bytes());
        let value = Metadata { expire_ms, body }.encode();
        let row = RowKey::Metadata { index, key };
        self.plant(Family::Metadata, row, value, fate);
    }

    fn data(&mut self, key: &str, version: u64, sub: &[u8], fate: Fate) {
        let row = RowKey::Data {
            index: self.index,
            key: key.as_bytes(),
            version,
            sub,
        };
        self.plant(Family::Data, row, *b"value", fate);
    }

    fn score(&mut self, key: &str, version: u64, score: f64, member: &str, fate: Fate) {
        let row = RowKey::Score {
            index: self.index,
            key: key.as_bytes(),
            version,
            score,
            member: member.as_bytes(),
        };
        self.plant(Family::ZsetScore, row, [], fate);
    }

    fn expiry(&mut self, key: &str, at_ms: u64, fate: Fate) {
        let (index, key) = (self.index, key.as_bytes());
        self.plant(
            Family::Expiry,
            RowKey::Expiry { at_ms, index, key },
            [],
            fate,
        );
    }

    fn legacy(&mut self, key: &str, fate: Fate) {
        let (index, key) = (self.index, key.as_bytes());
        let value = LegacyString {
            expire_ms: 1,
            payload: b"old",
        };
        let row = RowKey::Legacy { index, key };
        self.plant(Family::Data, row, value.encode(), fate);
    }
}

fn collection(kind: CollectionKind, version: u64) -> Body<'static> {
    Body::Collection {
        kind,
        version,
        size: 2,
        is_counted: false,
        fields: None,
    }
}

/// A database in which everything that can die has died once.
fn field() -> Vec<Planted> {
    let mut field = Field::of(LIVE);
    let hash = |version| collection(CollectionKind::Hash, version);

    field.metadata("hash", 0, hash(5), Stays);
    field.data("hash", 5, b"field", Stays);
    field.data("hash", 5, b"", Stays);
    field.data("hash", 4, b"field", DeadVersion);
    field.data("hash", 6, b"field", DeadVersion);

    field.data("deleted", 5, b"field", DeadVersion);
    field.score("deleted", 5, 1.0, "member", DeadVersion);

    field.metadata("overwritten by SET", 0, Body::Inline(b"string"), Stays);
    field.data("overwritten by SET", 5, b"field", DeadVersion);

    let chunked = Body::Chunked {
        version: 5,
        length: 40_000,
    };
    field.metadata("large string", 0, chunked, Stays);
    field.data("large string", 5, &[0, 0, 0, 2], Stays);
    field.data("large string", 4, &[0, 0, 0, 2], DeadVersion);

    let list = Body::List {
        version: 5,
        size: 3,
        head: 10,
        tail: 13,
    };
    field.metadata("list", 0, list, Stays);
    for index in 0..20u64 {
        let inside = (10..13).contains(&index);
        let fate = if inside { Stays } else { ListGap };
        field.data("list", 5, &index.to_be_bytes(), fate);
    }
    field.data("list", 5, &u64::MAX.to_be_bytes(), ListGap);
    field.data("list", 4, &11u64.to_be_bytes(), DeadVersion);

    field.metadata("zset", 0, collection(CollectionKind::ZSet, 5), Stays);
    field.data("zset", 5, b"member", Stays);
    field.score("zset", 5, -1.5, "member", Stays);
    field.data("zset", 4, b"member", DeadVersion);
    field.score("zset", 4, f64::INFINITY, "member", DeadVersion);

    // Due before the watermark, at it, and after it; all of them long ago by any clock.
    field.metadata("due", WATERMARK - 1, hash(5), Expired);
    field.data("due", 5, b"field", DeadVersion);
    field.metadata("due now", WATERMARK, hash(5), Stays);
    field.data("due now", 5, b"field", Stays);
    field.metadata("due later", WATERMARK + 1, Body::Inline(b"string"), Stays);
    field.expiry("due", WATERMARK - 1, Stays);
    field.expiry("due later", WATERMARK + 1, Stays);

    field.legacy("old string", Stays);
    field.data("staged", STAGED, b"field", Stays);
    field.score("staged", STAGED, 0.0, "member", Stays);

    let mut rows = field.rows;
    rows.extend(dead_database());
    rows
}

fn dead_database() -> Vec<Planted> {
    let mut field = Field::of(DEAD);
    let set = collection(CollectionKind::Set, 5);
    field.metadata("set", 0, set, DeadDatabase);
    field.data("set", 5, b"member", DeadDatabase);
    field.score("set", 5, 1.0, "member", DeadDatabase);
    field.expiry("set", u64::MAX, DeadDatabase);
    field.legacy("old string", DeadDatabase);
    // Not even staging helps the dead.
    field.data("staged", STAGED, b"field", DeadDatabase);
    field.rows
}

fn system_rows() -> [(SystemKey<'static>, Vec<u8>); 3] {
    let region = LOCAL_REGION;
    let mut staged_for = Vec::new();
    value::encode_staging(&mut staged_for, LIVE, b"staged");
    let index = DEAD;
    let version = STAGED;
    [
        (SystemKey::DeadIndex { region, index }, Vec::new()),
        (SystemKey::Staging { region, version }, staged_for),
        (
            SystemKey::Watermark { region },
            value::encode_watermark(WATERMARK).to_vec(),
        ),
    ]
}

fn sow(engine: &Arc<Engine>, rows: &[Planted]) {
    let plant = |batch: &mut Batch, are_metadata: bool| {
        let is_one = |row: &&Planted| (row.family == Family::Metadata) == are_metadata;
        for row in rows.iter().filter(is_one) {
            batch.put(row.family, &row.key, row.value.as_slice());
        }
    };
    // What is dead already when RocksDB is to be given it would be left out.
    commit(engine, |batch| plant(batch, false));
    commit(engine, |batch| {
        for (key, value) in system_rows() {
            batch.put(Family::Meta, &key.encode(), value);
        }
        plant(batch, true);
    });
}

/// By a walk: a single row may be remembered, and a dead one would be asked for by nobody else.
fn is_there(engine: &Engine, row: &Planted) -> bool {
    let end = [&row.key[..], &[0]].concat();
    let mut rows = engine.rows(None, row.family, &row.key, &end, Direction::Forward);
    rows.next().unwrap().is_some()
}

fn assert_all_there(engine: &Engine, rows: &[Planted]) {
    for row in rows {
        assert!(is_there(engine, row), "{:?} {:?}", row.family, row.fate);
    }
}

/// Dropped rows by reason, and their bytes.
fn counters(engine: &Engine) -> [u64; 5] {
    let counters = engine.filter_counters();
    [
        &counters.dead_versions,
        &counters.cut_off,
        &counters.expired_metadata,
        &counters.dead_databases,
        &counters.dropped_bytes,
    ]
    .map(|counter| counter.load(Ordering::Relaxed))
}

fn expected_counters(rows: &[Planted]) -> [u64; 5] {
    let of = |fate| rows.iter().filter(|row| row.fate == fate).count() as u64;
    let dropped = rows.iter().filter(|row| row.fate != Stays);
    let bytes: usize = dropped.map(|row| row.key.len() + row.value.len()).sum();
    [
        of(DeadVersion),
        of(ListGap),
        of(Expired),
        of(DeadDatabase),
        bytes as u64,
    ]
}

#[test]
fn a_compaction_drops_what_is_dead_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let rows = field();
    sow(&engine, &rows);
    engine.start_filters();
    engine.compact().unwrap();
    for row in &rows {
        let stays = row.fate == Stays;
        assert_eq!(
            is_there(&engine, row),
            stays,
            "{:?} {:?}",
            row.family,
            row.fate
        );
    }
    assert_eq!(counters(&engine), expected_counters(&rows));
    // What is gone is not found a second time.
    engine.compact().unwrap();
    assert_eq!(counters(&engine), expected_counters(&rows));
}

#[test]
fn until_the_filters_are_started_everything_stays() {
    let directory = tempfile::tempdir().unwrap();
    let rows = field();
    for _ in 0..2 {
        let engine = open(directory.path());
        sow(&engine, &rows);
        engine.compact().unwrap();
        assert_all_there(&engine, &rows);
        assert_eq!(counters(&engine), [0; 5]);
    }
    // An open finds much to compact, and closes again at once: filters that never started keep all.
    let engine = open(directory.path());
    assert_all_there(&engine, &rows);
}

#[test]
fn without_a_watermark_no_metadata_expires() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let mut field = Field::of(LIVE);
    field.metadata("long ago", 1, Body::Inline(b"string"), Stays);
    sow(&engine, &field.rows);
    let region = LOCAL_REGION;
    commit(&engine, |batch| {
        batch.delete(Family::Meta, &SystemKey::Watermark { region }.encode());
    });
    engine.start_filters();
    engine.compact().unwrap();
    assert_all_there(&engine, &field.rows);
}

#[test]
fn a_staged_version_lives_as_long_as_its_staging_row() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let mut field = Field::of(LIVE);
    field.data("staged", STAGED, b"field", Stays);
    field.score("staged", STAGED, 0.0, "member", Stays);
    sow(&engine, &field.rows);
    engine.start_filters();
    engine.compact().unwrap();
    assert_all_there(&engine, &field.rows);
    commit(&engine, |batch| {
        for (key, _) in system_rows() {
            batch.delete(Family::Meta, &key.encode());
        }
    });
    engine.compact().unwrap();
    assert!(!field.rows.iter().any(|row| is_there(&engine, row)));
    assert_eq!(counters(&engine)[0], 2);
}

#[test]
fn a_row_that_cannot_be_understood_stays() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let foreign = [b"x".to_vec(), vec![0xff; 40], Vec::new()];
    commit(&engine, |batch| {
        for family in Family::ALL {
            for key in &foreign {
                batch.put(family, key, *b"what is this");
            }
        }
        // Metadata that cannot be read: what it stands for may be alive.
        let mut field = Field::of(LIVE);
        field.metadata("damaged", 0, Body::Inline(b""), Stays);
        field.data("damaged", 5, b"field", Stays);
        batch.put(Family::Metadata, &field.rows[0].key, *b"\x7f");
        batch.put(Family::Data, &field.rows[1].key, *b"alive?");
    });
    engine.start_filters();
    engine.compact().unwrap();
    for (family, extra) in [
        (Family::Metadata, 1),
        (Family::Data, 1),
        (Family::Expiry, 0),
    ] {
        let rows = all_rows(&engine, family).unwrap();
        assert_eq!(rows.len(), foreign.len() + extra, "{family:?}");
    }
    assert_eq!(counters(&engine), [0; 5]);
}

/// A filter that believed what a power cut can take back would drop rows that come back to life.
#[test]
fn a_compaction_that_filters_syncs_the_log_first() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let mut field = Field::of(LIVE);
    field.metadata("hash", 0, collection(CollectionKind::Hash, 5), Stays);
    field.data("hash", 5, b"field", DeadVersion);
    let synced = || ticker(&engine, "rocksdb.wal.synced");
    let syncs_to_compact = || {
        // What was never there need not be deleted.
        sow(&engine, &field.rows);
        engine.flush().unwrap();
        commit(&engine, |batch| {
            batch.delete(Family::Metadata, &field.rows[0].key)
        });
        let before = synced();
        engine.compact().unwrap();
        synced() - before
    };

    let without_filters = syncs_to_compact();
    engine.start_filters();
    assert!(syncs_to_compact() > without_filters);
    assert!(!is_there(&engine, &field.rows[1]));
}
