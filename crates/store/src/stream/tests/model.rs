//! Streams against a model of maps, by random operations; and whatever came of them, the rows agree with each other.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::*;
use crate::check;

const CONSUMERS: [&[u8]; 2] = [b"one", b"\xff"];

#[derive(Clone, Debug)]
enum Op {
    /// With an ID so much larger than the last.
    Append(u64),
    Delete(u64),
    TrimToLength(u64),
    TrimBelow(u64),
    SetLast(u64),
    CreateGroup,
    DestroyGroup,
    Deliver(u64, usize),
    Acknowledge(u64),
    DeleteConsumer(usize),
    Commit,
}

fn op() -> impl Strategy<Value = Op> {
    let consumer = || 0..CONSUMERS.len();
    prop_oneof![
        8 => (1..4u64).prop_map(Op::Append),
        4 => (0..40u64).prop_map(Op::Delete),
        1 => (0..8u64).prop_map(Op::TrimToLength),
        1 => (0..40u64).prop_map(Op::TrimBelow),
        1 => (0..40u64).prop_map(Op::SetLast),
        2 => Just(Op::CreateGroup),
        1 => Just(Op::DestroyGroup),
        6 => (0..40u64, consumer()).prop_map(|(id, consumer)| Op::Deliver(id, consumer)),
        4 => (0..40u64).prop_map(Op::Acknowledge),
        1 => consumer().prop_map(Op::DeleteConsumer),
        2 => Just(Op::Commit),
    ]
}

#[derive(Default)]
struct Model {
    entries: BTreeMap<u64, Vec<u8>>,
    last: u64,
    /// Who has what; none if there is no group.
    pending: Option<BTreeMap<u64, usize>>,
}

struct Case {
    store: std::sync::Arc<crate::Store>,
    txn: WriteTxn,
    name: Vec<u8>,
    model: Model,
}

impl Case {
    fn group(&self) -> (Stream, Option<Group>) {
        let stream = Stream::open(&self.txn, &self.name).unwrap();
        let group = stream.group(&self.txn, b"g").unwrap();
        (stream, group)
    }

    fn run(&mut self, op: &Op) {
        let (mut stream, group) = self.group();
        assert_eq!(group.is_some(), self.model.pending.is_some());
        let (txn, model) = (&mut self.txn, &mut self.model);
        match *op {
            Op::Append(step) => {
                model.last += step;
                let mut entry = Vec::new();
                append_field(&mut entry, format!("entry {}", model.last).as_bytes());
                stream.append(txn, id(model.last), &entry);
                model.entries.insert(model.last, entry);
            }
            Op::Delete(at) => {
                let is_there = model.entries.remove(&at).is_some();
                assert_eq!(stream.delete(txn, id(at)).unwrap(), is_there);
            }
            Op::TrimToLength(kept) => {
                let trim = Trim {
                    until: Until::Length(kept),
                    unit: 1,
                    at_most: u64::MAX,
                };
                let gone = stream.trim(txn, trim).unwrap();
                assert_eq!(gone, (model.entries.len() as u64).saturating_sub(kept));
                for _ in 0..gone {
                    model.entries.pop_first();
                }
            }
            Op::TrimBelow(least) => {
                let trim = Trim {
                    until: Until::Id(id(least)),
                    unit: 1,
                    at_most: u64::MAX,
                };
                let kept = model.entries.split_off(&least);
                assert_eq!(stream.trim(txn, trim).unwrap(), model.entries.len() as u64);
                model.entries = kept;
            }
            Op::SetLast(last) => {
                let top = model.entries.last_key_value().map_or(0, |(id, _)| *id);
                if stream.exists() && last >= top {
                    stream.set_last(txn, id(last)).unwrap();
                    model.last = last;
                }
            }
            Op::CreateGroup => {
                if group.is_none() {
                    let group = stream.create_group(txn, b"g", Id::MIN, None);
                    group.save(txn, &stream);
                    model.pending = Some(BTreeMap::new());
                }
            }
            Op::DestroyGroup => {
                if let Some(group) = group {
                    stream.destroy_group(txn, group).unwrap();
                    model.pending = None;
                }
            }
            Op::Deliver(at, consumer) => {
                if let (Some(mut group), Some(pending)) = (group, &mut model.pending) {
                    let name = CONSUMERS[consumer];
                    group.see(&stream, txn, name).unwrap();
                    let delivery = Delivery {
                        consumer: name.to_vec(),
                        at_ms: 7,
                        count: 1,
                    };
                    stream.deliver(txn, &mut group, id(at), &delivery).unwrap();
                    group.save(txn, &stream);
                    pending.insert(at, consumer);
                }
            }
            Op::Acknowledge(at) => {
                if let (Some(mut group), Some(pending)) = (group, &mut model.pending) {
                    let is_pending = pending.remove(&at).is_some();
                    let acknowledged = stream.acknowledge(txn, &mut group, id(at)).unwrap();
                    assert_eq!(acknowledged, is_pending);
                    group.save(txn, &stream);
                }
            }
            Op::DeleteConsumer(consumer) => {
                if let (Some(mut group), Some(pending)) = (group, &mut model.pending) {
                    let name = CONSUMERS[consumer];
                    let owned = stream.delete_consumer(txn, &mut group, name).unwrap();
                    let before = pending.len();
                    pending.retain(|_, owner| *owner != consumer);
                    let gone = (before - pending.len()) as u64;
                    assert_eq!(owned.unwrap_or(0), gone);
                    group.save(txn, &stream);
                }
            }
            Op::Commit => {}
        }
        stream.save(&mut self.txn);
        if let Op::Commit = op {
            self.store.commit_blocking(&mut self.txn).unwrap();
            self.txn.begin(0);
        }
        self.compare();
    }

    fn compare(&self) {
        let (stream, group) = self.group();
        let txn = &self.txn;
        let mut rows = stream
            .rows(txn, Id::MIN..=Id::MAX, Direction::Forward)
            .unwrap();
        let mut entries = BTreeMap::new();
        while let Some((row_key, entry)) = rows.next().unwrap() {
            entries.insert(stream.id_of(row_key).unwrap().ms, entry.to_vec());
        }
        assert_eq!(entries, self.model.entries);
        assert_eq!(stream.len(), entries.len() as u64);
        assert_eq!(stream.last(), id(self.model.last));
        assert_eq!(
            stream.first(),
            entries.first_key_value().map(|(ms, _)| id(*ms))
        );
        if let (Some(group), Some(model)) = (group, &self.model.pending) {
            assert_eq!(group.pending(), model.len() as u64);
            for (number, name) in CONSUMERS.into_iter().enumerate() {
                let all = Id::MIN..=Id::MAX;
                let mut rows = stream
                    .pending_rows(txn, &group, Some(name), all, Direction::Backward)
                    .unwrap();
                let mut owned = Vec::new();
                while let Some((row_key, _)) = rows.next().unwrap() {
                    owned.push(stream.pending_id(row_key).unwrap().ms);
                }
                owned.reverse();
                let expected = model.iter().filter(|(_, owner)| **owner == number);
                assert_eq!(owned, expected.map(|(id, _)| *id).collect::<Vec<_>>());
            }
        }
    }
}

#[test]
fn streams_behave_like_maps() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(directory.path());
    let mut runner = TestRunner::new(Config::with_cases(200));
    let strategy = proptest::collection::vec(op(), 1..80);
    let cases = std::cell::Cell::new(0);
    let result = runner.run(&strategy, |ops| {
        cases.set(cases.get() + 1);
        let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
        txn.begin(0);
        let mut case = Case {
            store: store.clone(),
            txn,
            name: format!("stream {}", cases.get()).into_bytes(),
            model: Model::default(),
        };
        for op in &ops {
            case.run(op);
        }
        case.run(&Op::Commit);
        Ok(())
    });
    result.unwrap();
    store.engine().flush().unwrap();
    let mut faults = Vec::new();
    let report = &mut |violation: &check::Violation| faults.push(violation.to_string());
    check::check(store.engine(), report).unwrap();
    assert_eq!(faults.first(), None);
}
