//! Fields of hashes that expire: hidden at the right millisecond, deleted when due, and never more than that.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use cairn_store::{
    Effect, EventClass, Family, Hash, Observer, Point, Progress, ReadTxn, WriteTxn, check,
    databases, keys, keyspace,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::support::*;

pub fn hexpire(txn: &mut WriteTxn, name: &str, field: &str, at_ms: u64) {
    let mut hash = Hash::open(txn, name.as_bytes()).unwrap();
    hash.expire(txn, field.as_bytes(), at_ms).unwrap();
    hash.save(txn);
}

fn hdel(txn: &mut WriteTxn, name: &str, field: &str) -> bool {
    let mut hash = Hash::open(txn, name.as_bytes()).unwrap();
    let removed = hash.remove(txn, field.as_bytes()).unwrap();
    hash.save(txn);
    removed
}

pub fn expire_all(fixture: &Fixture) -> (u64, u64) {
    let expirer = fixture.store().expirer();
    let before = (expirer.expired_fields(), expirer.stale_rows());
    while fixture.store().expire_some(7).unwrap() != Progress::Idle {}
    (
        expirer.expired_fields() - before.0,
        expirer.stale_rows() - before.1,
    )
}

/// What the rows say is wrong.
pub fn violations(fixture: &Fixture) -> Vec<String> {
    let mut found = Vec::new();
    let report = &mut |violation: &check::Violation| found.push(violation.to_string());
    check::check(fixture.store().engine(), report).unwrap();
    found
}

#[test]
fn a_field_lives_through_its_last_millisecond_and_the_hash_through_that_of_its_last_field() {
    let fixture = Fixture::new();
    fixture.write(|txn| {
        hset(txn, "some", fields(3));
        hexpire(txn, "some", "field:000001", START + 100);
        hset(txn, "all", fields(2));
        hexpire(txn, "all", "field:000000", START + 50);
        hexpire(txn, "all", "field:000001", START + 100);
    });
    for (millis, some, all) in [(50, 3, 2), (51, 3, 1), (100, 3, 1), (101, 2, 0)] {
        fixture.time.set_millis(START + millis);
        fixture.read(|txn| {
            assert_eq!(hgetall(txn, "some").len(), some, "after {millis} ms");
            assert_eq!(hgetall(txn, "all").len(), all, "after {millis} ms");
            assert_eq!(txn.exists(&txn.key(b"all")).unwrap(), all > 0);
        });
        assert_eq!(fixture.keys().len(), 1 + usize::from(all > 0));
        let count = fixture.store().count_keys(0).unwrap();
        assert_eq!(count.keys, 1 + u64::from(all > 0));
    }
    // Hidden, not deleted: reading does not write.
    assert_eq!(fixture.count_in(Family::Data), 5);
    assert_eq!(violations(&fixture), [""; 0]);
    assert_eq!(expire_all(&fixture), (3, 0));
    assert_eq!(fixture.count_in(Family::Data), 2);
    assert_eq!(fixture.count_in(Family::Expiry), 0);
    assert_eq!(violations(&fixture), [""; 0]);
    fixture.compact();
    assert_eq!(fixture.count_in(Family::ZsetScore), 0);
}

/// What says when fields expire costs nobody else anything.
#[test]
fn a_hash_that_nothing_expires_of_has_the_rows_that_it_always_had() {
    let fixture = Fixture::new();
    fixture.write(|txn| hset(txn, "plain", fields(2)));
    let plain = [Family::Metadata, Family::Data].map(|family| fixture.raw(family));
    assert_eq!(plain[0][0].1.len(), 25);
    fixture.write(|txn| hexpire(txn, "plain", "field:000000", START + 100));
    assert_eq!(fixture.raw(Family::Metadata)[0].1.len(), 25 + 24);
    assert_eq!(fixture.raw(Family::Data), plain[1]);
    assert_eq!(fixture.count_in(Family::ZsetScore), 2);
    fixture.write(|txn| {
        let mut hash = Hash::open(txn, b"plain").unwrap();
        assert!(hash.persist(txn, b"field:000000").unwrap());
        assert!(!hash.persist(txn, b"field:000000").unwrap());
        hash.save(txn);
    });
    let now = [Family::Metadata, Family::Data].map(|family| fixture.raw(family));
    assert_eq!(now, plain);
    assert_eq!(fixture.count_in(Family::ZsetScore), 0);
    assert_eq!(fixture.count_in(Family::Expiry), 0);
}

#[test]
fn a_deleted_or_replaced_hash_leaves_one_index_row_at_most() {
    let fixture = Fixture::new();
    let names = ["deleted", "set over", "emptied", "renamed"];
    fixture.write(|txn| {
        for name in names {
            hset(txn, name, fields(50));
            for n in 0..50 {
                hexpire(txn, name, &format!("field:{n:06}"), START + 10 + n);
            }
        }
    });
    assert_eq!(fixture.count_in(Family::Expiry), names.len());
    fixture.write(|txn| {
        assert!(del(txn, "deleted"));
        set(txn, "set over", "blind");
        for n in 0..50 {
            assert!(hdel(txn, "emptied", &format!("field:{n:06}")));
        }
        let [from, to] = ["renamed", "new"].map(|name| txn.key(name.as_bytes()));
        assert!(keys::rename(txn, &from, &to).unwrap());
    });
    assert_eq!(fixture.keys_in(Family::Expiry), ["set over", "new"]);
    assert_eq!(violations(&fixture), [""; 0]);
    fixture.time.set_millis(START + 30);
    assert_eq!(expire_all(&fixture), (20, 1));
    assert_eq!(fixture.keys(), ["new", "set over"]);
    fixture.read(|txn| assert_eq!(hgetall(txn, "new").len(), 30));
    fixture.compact();
    assert_eq!(fixture.count_in(Family::ZsetScore), 60);
    assert_eq!(violations(&fixture), [""; 0]);
}

/// A key that is made again at the moment of the old one's time has nothing to do with it.
#[test]
fn an_index_row_of_an_earlier_life_takes_nothing_from_a_later_one() {
    let fixture = Fixture::new();
    fixture.write(|txn| {
        hset(txn, "key", fields(2));
        hexpire(txn, "key", "field:000000", START + 10);
    });
    fixture.write(|txn| set(txn, "key", "blind"));
    fixture.write(|txn| {
        assert!(del(txn, "key"));
        hset(txn, "key", fields(2));
        hexpire(txn, "key", "field:000001", START + 10);
    });
    assert_eq!(fixture.count_in(Family::Expiry), 2);
    fixture.time.set_millis(START + 11);
    assert_eq!(expire_all(&fixture), (1, 1));
    let left = fixture.read(|txn| hgetall(txn, "key"));
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].0, "field:000000");
}

/// How many are due is not known from the metadata alone, so a latch is asked for.
#[test]
fn the_number_of_fields_is_one_look_unless_something_is_due() {
    let fixture = Fixture::new();
    fixture.write(|txn| {
        hset(txn, "hash", fields(3));
        hexpire(txn, "hash", "field:000000", START + 5);
    });
    let kind = cairn_store::CollectionKind::Hash;
    let unlatched = |txn: &ReadTxn| Point::unlatched(txn).len(b"hash", kind);
    assert_eq!(fixture.read(unlatched).unwrap(), 3);
    fixture.time.set_millis(START + 6);
    assert!(fixture.read(unlatched).is_err());
    let latched = |txn: &ReadTxn| Point::latched(txn).len(b"hash", kind);
    assert_eq!(fixture.read(latched).unwrap(), 2);
    expire_all(&fixture);
    assert_eq!(fixture.read(unlatched).unwrap(), 2);
}

struct Told(std::sync::Arc<std::sync::Mutex<Vec<String>>>);

impl Observer for Told {
    fn show(&self, effects: Vec<Effect>) {
        let mut told = self.0.lock().unwrap();
        for effect in effects {
            told.push(match effect {
                Effect::Event { name, key, .. } => {
                    format!("{name} {}", String::from_utf8_lossy(&key))
                }
                Effect::FieldsExpired { last_ms, .. } => format!("lost by {}", last_ms - START),
                other => format!("{other:?}"),
            });
        }
    }
}

#[test]
fn those_who_listen_are_told_once_for_each_batch() {
    let fixture = Fixture::new();
    let told = std::sync::Arc::default();
    let listeners = fixture.store().listeners();
    listeners.observe(Box::new(Told(std::sync::Arc::clone(&told))));
    let classes = EventClass::Hash as u32 | EventClass::Generic as u32;
    listeners.classes().store(classes, Ordering::Relaxed);
    fixture.write(|txn| {
        hset(txn, "hash", fields(3));
        for n in 0..3 {
            hexpire(txn, "hash", &format!("field:{n:06}"), START + n);
        }
    });
    fixture.time.set_millis(START + 2);
    expire_all(&fixture);
    fixture.time.set_millis(START + 3);
    expire_all(&fixture);
    let expected = [
        "hexpired hash",
        "lost by 1",
        "hexpired hash",
        "del hash",
        "lost by 2",
    ];
    assert_eq!(*told.lock().unwrap(), expected);
}

type Name = &'static str;
type Model = BTreeMap<Name, (String, u64)>;

#[derive(Clone, Debug)]
enum Step {
    Set(Name),
    Insert(Name),
    Extend(Name),
    Remove(Name),
    Expire(Name, u64),
    Persist(Name),
    Delete,
    ExpireKey(u64),
    Copy,
    Rename,
    Pass(u64),
    Undo(Box<Step>),
    RunExpirer(usize),
    Compact,
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let name = || prop::sample::select(vec!["", "a", "aa", "b", "c", "\0", "z"]);
    let change = prop_oneof![
        6 => name().prop_map(Step::Set),
        2 => name().prop_map(Step::Insert),
        2 => name().prop_map(Step::Extend),
        3 => name().prop_map(Step::Remove),
        10 => (name(), 1..40_u64).prop_map(|(name, ms)| Step::Expire(name, ms)),
        2 => name().prop_map(Step::Persist),
        1 => Just(Step::Delete),
        1 => (1..60_u64).prop_map(Step::ExpireKey),
        1 => Just(Step::Copy),
        1 => Just(Step::Rename),
    ];
    let undone = change.clone().prop_map(|step| Step::Undo(Box::new(step)));
    prop_oneof![
        20 => change,
        2 => undone,
        8 => (1..12_u64).prop_map(Step::Pass),
        5 => (1..4_usize).prop_map(Step::RunExpirer),
        1 => Just(Step::Compact),
        1 => Just(Step::Restart),
    ]
}

/// A hash, and what it should be.
struct Pair {
    model: Model,
    /// When the key expires; zero for never.
    expire_ms: u64,
}

impl Pair {
    /// Forgets what has expired.
    fn pass(&mut self, now_ms: u64) {
        let is_live = |at_ms: u64| at_ms == 0 || now_ms <= at_ms;
        self.model.retain(|_, (_, at_ms)| is_live(*at_ms));
        if self.model.is_empty() || !is_live(self.expire_ms) {
            self.model.clear();
            self.expire_ms = 0;
        }
    }

    fn run(&mut self, txn: &mut WriteTxn, step: &Step) {
        let name = b"hash";
        let now_ms = txn.now_ms();
        let mut hash = Hash::open(txn, name).unwrap();
        match *step {
            Step::Set(field) => {
                let is_new = self.model.insert(field, ("v".into(), 0)).is_none();
                assert_eq!(hash.set(txn, field.as_bytes(), b"v").unwrap(), is_new);
            }
            Step::Insert(field) => {
                let is_new = !self.model.contains_key(field);
                self.model.entry(field).or_insert(("i".into(), 0));
                assert_eq!(hash.insert(txn, field.as_bytes(), b"i").unwrap(), is_new);
            }
            Step::Extend(field) => {
                let entry = self.model.entry(field).or_insert((String::new(), 0));
                entry.0.push('+');
                let extend = |old: Option<&[u8]>| Ok([old.unwrap_or(b""), b"+"].concat());
                hash.update(txn, field.as_bytes(), extend).unwrap();
            }
            Step::Remove(field) => {
                let was_there = self.model.remove(field).is_some();
                assert_eq!(hash.remove(txn, field.as_bytes()).unwrap(), was_there);
            }
            Step::Expire(field, ms) => {
                let before = hash.expiry_of(txn, field.as_bytes()).unwrap();
                let entry = self.model.get_mut(field);
                assert_eq!(before, entry.as_ref().map(|(_, at_ms)| *at_ms));
                if let Some((_, at_ms)) = entry {
                    *at_ms = now_ms + ms;
                    hash.expire(txn, field.as_bytes(), now_ms + ms).unwrap();
                }
            }
            Step::Persist(field) => {
                if let Some((_, at_ms)) = self.model.get_mut(field) {
                    let expired = std::mem::take(at_ms) != 0;
                    assert_eq!(hash.persist(txn, field.as_bytes()).unwrap(), expired);
                }
            }
            Step::Delete => {
                assert_eq!(keys::delete(txn, name).unwrap(), !self.model.is_empty());
                self.model.clear();
                self.expire_ms = 0;
                return;
            }
            Step::ExpireKey(ms) => {
                keys::set_expiry(txn, name, now_ms + ms).unwrap();
                if !self.model.is_empty() {
                    self.expire_ms = now_ms + ms;
                }
                return;
            }
            Step::Copy | Step::Rename => {
                // There and back again.
                let (here, there) = (txn.key(name), txn.key(b"there"));
                let is_there = !self.model.is_empty();
                assert_eq!(keys::copy(txn, &here, &there).unwrap(), is_there);
                if is_there {
                    keys::delete(txn, name).unwrap();
                    assert!(keys::rename(txn, &there, &here).unwrap());
                }
                return;
            }
            _ => unreachable!("no change of the hash"),
        }
        if self.model.is_empty() {
            self.expire_ms = 0;
        }
        hash.save(txn);
    }

    fn compare(&self, txn: &ReadTxn) {
        let hash = Hash::open(txn, b"hash").unwrap();
        assert_eq!(hash.len(txn).unwrap(), self.model.len() as u64);
        if self.model.is_empty() {
            assert!(hash.collection().any(txn).unwrap().is_none());
        }
        for field in ["", "a", "aa", "b", "c", "\0", "z"] {
            let expected = self.model.get(field);
            let value = hash.get(txn, field.as_bytes()).unwrap();
            let value = value.map(|value| String::from_utf8(value.to_vec()).unwrap());
            assert_eq!(value.as_ref(), expected.map(|(value, _)| value));
            let at_ms = hash.expiry_of(txn, field.as_bytes()).unwrap();
            assert_eq!(at_ms, expected.map(|(_, at_ms)| *at_ms));
        }
        if !hash.exists() {
            return;
        }
        let wanted: [&[u8]; 4] = [b"b", b"", b"absent", b"a"];
        let mut values = hash.values(txn, &wanted).unwrap();
        for field in wanted {
            let field = std::str::from_utf8(field).unwrap();
            let expected = self.model.get(field).map(|(value, _)| value.as_bytes());
            assert_eq!(values.next().unwrap(), Some(expected));
        }
        let mut found = Model::new();
        let mut rows = hash.rows_with_times(txn).unwrap();
        while let Some(row) = rows.next().unwrap() {
            if !row.is_due {
                let names = ["", "a", "aa", "b", "c", "\0", "z"].into_iter();
                let field = hash.field_of(row.row_key);
                let name = names.into_iter().find(|name| name.as_bytes() == field);
                let value = String::from_utf8(row.value.to_vec()).unwrap();
                found.insert(name.unwrap(), (value, row.expire_ms));
            }
        }
        assert_eq!(found, self.model);
        let (mut cursor, mut scanned) = (0, 0);
        loop {
            let collection = hash.collection();
            cursor = keyspace::scan_collection(txn, collection, cursor, 2, |_, _| {
                scanned += 1;
                Ok(())
            })
            .unwrap();
            if cursor == 0 {
                break;
            }
        }
        assert_eq!(scanned, self.model.len());
        if !self.model.is_empty() {
            let row_key = hash.collection().any(txn).unwrap().unwrap();
            let field = std::str::from_utf8(hash.field_of(&row_key)).unwrap();
            assert!(self.model.contains_key(field));
        }
    }
}

/// Whatever happens to a hash, in whichever order, while time passes: it is a map whose entries go at their times.
#[test]
fn a_hash_with_fields_that_expire_does_what_a_map_does() {
    let mut fixture = Fixture::new();
    let mut runner = TestRunner::new(Config {
        cases: 150,
        failure_persistence: None,
        ..Config::default()
    });
    let mut now_ms = START;
    let fixture = std::cell::RefCell::new(&mut fixture);
    let now_ms = std::cell::RefCell::new(&mut now_ms);
    let outcome = runner.run(&vec(step(), 1..100), |steps| {
        let (mut fixture, mut now_ms) = (fixture.borrow_mut(), now_ms.borrow_mut());
        fixture.write(|txn| keys::clear(txn, b"hash").unwrap());
        let mut pair = Pair {
            model: Model::new(),
            expire_ms: 0,
        };
        for step in &steps {
            match step {
                Step::Pass(ms) => {
                    **now_ms += ms;
                    fixture.time.set_millis(**now_ms);
                    pair.pass(**now_ms);
                }
                Step::RunExpirer(limit) => {
                    fixture.store().expire_some(*limit).unwrap();
                }
                Step::Compact => fixture.compact(),
                Step::Restart => fixture.restart(),
                Step::Undo(step) => {
                    let mut txn = fixture.txn();
                    set(&mut txn, "before", "value");
                    txn.begin(0);
                    let model = pair.model.clone();
                    let expire_ms = pair.expire_ms;
                    pair.run(&mut txn, step);
                    pair.compare(&txn);
                    txn.undo();
                    pair = Pair { model, expire_ms };
                    pair.compare(&txn);
                    fixture.commit(txn);
                }
                change => fixture.write(|txn| {
                    pair.run(txn, change);
                    pair.compare(txn);
                }),
            }
            fixture.read(|txn| pair.compare(txn));
            if pair.model.is_empty() {
                // One from which the field was deleted that would have expired last may be there, without a field that
                // anybody sees, until the expirer comes.
                fixture.write(|txn| keys::clear(txn, b"hash").unwrap());
                pair.expire_ms = 0;
            }
            prop_assert_eq!(violations(&fixture), [""; 0]);
        }
        Ok(())
    });
    outcome.unwrap();
}

/// Flushed databases are dropped, and their index rows are found by the expirer later.
#[test]
fn a_hash_of_a_flushed_database_is_not_written_again() {
    let fixture = Fixture::new();
    fixture.write(|txn| {
        let mut hash = Hash::open(txn, b"hash").unwrap();
        for field in ["a", "b"] {
            hash.set(txn, field.as_bytes(), b"value").unwrap();
        }
        hash.expire(txn, b"a", START + 1000).unwrap();
        hash.save(txn);
    });
    let mut txn = fixture.txn();
    databases::flush(&mut txn, [0]);
    fixture.commit(txn);
    fixture.store().reclaim_databases().unwrap();
    fixture.time.set_millis(START + 5000);
    fixture.store().expire_some(100).unwrap();
    assert_eq!(violations(&fixture), [""; 0]);
}
