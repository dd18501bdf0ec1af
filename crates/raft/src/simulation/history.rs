//! What clients were told, and whether it is true.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::machine::{Content, Entry};
use crate::simulation::cluster::{Cluster, REGION};

/// What was acknowledged, and where.
#[derive(Clone, Default)]
pub(crate) struct History(Arc<Mutex<Told>>);

#[derive(Default)]
struct Told {
    applied: BTreeMap<u64, Bytes>,
    refused: Vec<Bytes>,
    unknown: u64,
    /// The highest index that anybody was told of.
    highest: Option<u64>,
    reads: u64,
    leaders: BTreeMap<u64, u64>,
}

/// What happened in a story.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub applied: usize,
    pub refused: usize,
    pub unknown: u64,
    pub reads: u64,
    pub terms: usize,
    pub snapshots: u64,
    pub moves: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: Counts) {
        self.applied += other.applied;
        self.refused += other.refused;
        self.unknown += other.unknown;
        self.reads += other.reads;
        self.terms += other.terms;
        self.snapshots += other.snapshots;
        self.moves += other.moves;
    }

    /// Stories in which nothing happens prove nothing.
    pub(crate) fn everything_happened(&self) -> bool {
        let told = self.applied > 0 && self.refused > 0 && self.unknown > 0 && self.reads > 0;
        told && self.terms > 1 && self.snapshots > 0 && self.moves > 0
    }
}

impl History {
    pub(crate) fn applied(&self, index: u64, payload: Bytes) {
        let mut told = self.0.lock();
        told.highest = told.highest.max(Some(index));
        let other = told.applied.insert(index, payload);
        assert_eq!(other, None, "two batches were acknowledged at {index}");
    }

    pub(crate) fn refused(&self, payload: Bytes) {
        self.0.lock().refused.push(payload);
    }

    pub(crate) fn unknown(&self) {
        self.0.lock().unknown += 1;
    }

    /// The highest index that was acknowledged by now.
    pub(crate) fn highest(&self) -> Option<u64> {
        self.0.lock().highest
    }

    /// No stale read: what was acknowledged before the read began must show.
    pub(crate) fn read(&self, before: Option<u64>, seen: Option<u64>) {
        assert!(
            seen >= before,
            "a read saw {seen:?}, after {before:?} was acknowledged"
        );
        self.0.lock().reads += 1;
    }

    /// One leader per term.
    pub(crate) fn leads(&self, term: u64, node: u64) {
        let leader = *self.0.lock().leaders.entry(term).or_insert(node);
        assert_eq!(leader, node, "two leaders in term {term}");
    }

    pub(crate) fn acknowledged(&self) -> usize {
        self.0.lock().applied.len()
    }

    pub(crate) fn counts(&self) -> Counts {
        let told = self.0.lock();
        Counts {
            applied: told.applied.len(),
            refused: told.refused.len(),
            unknown: told.unknown,
            reads: told.reads,
            terms: told.leaders.len(),
            ..Counts::default()
        }
    }

    /// No acknowledged batch is lost, and no refused one is applied.
    pub(crate) fn check_against(&self, history: &[Entry]) {
        let told = self.0.lock();
        for (index, payload) in &told.applied {
            let entry = history.get(*index as usize).map(|entry| &entry.content);
            match entry {
                Some(Content::Batch { payload: found, .. }) => assert_eq!(found, payload),
                other => panic!("batch {index} was acknowledged, but there is {other:?}"),
            }
        }
        let mut found: Vec<&Bytes> = history
            .iter()
            .filter_map(|entry| match &entry.content {
                Content::Batch { payload, .. } => Some(payload),
                _ => None,
            })
            .collect();
        let count = found.len();
        found.sort();
        found.dedup();
        assert_eq!(found.len(), count, "a batch was applied twice");
        for refused in &told.refused {
            let applied = found.binary_search(&refused).is_ok();
            assert!(!applied, "{refused:?} was refused, and applied");
        }
    }
}

/// State machine safety: what any two replicas have applied is the same as far as both go.
pub(crate) fn check_machines(cluster: &Cluster) {
    let machines: Vec<_> = cluster
        .hardware
        .lock()
        .values()
        .map(|hardware| hardware.machine.state(REGION).history)
        .collect();
    let longest = machines.iter().max_by_key(|history| history.len());
    for history in &machines {
        let longest = &longest.expect("there is one")[..history.len()];
        if let Some(at) = (0..history.len()).find(|at| history[*at] != longest[*at]) {
            panic!(
                "two machines differ: {:?} and {:?}",
                history[at], longest[at]
            );
        }
    }
}
