//! What clients were told. Whether that is true, `invariants` finds out.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::machine::Entry;
use crate::simulation::invariants::{Acknowledged, Leaders, Reads};

#[derive(Clone, Default)]
pub(crate) struct History(Arc<Mutex<Told>>);

#[derive(Default)]
struct Told {
    acknowledged: Acknowledged,
    unknown: u64,
    reads: Reads,
    leaders: Leaders,
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
        self.0.lock().acknowledged.applied(index, payload);
    }

    pub(crate) fn refused(&self, payload: Bytes) {
        self.0.lock().acknowledged.refused(payload);
    }

    pub(crate) fn unknown(&self) {
        self.0.lock().unknown += 1;
    }

    /// The highest index that was acknowledged by now.
    pub(crate) fn highest(&self) -> Option<u64> {
        self.0.lock().acknowledged.highest()
    }

    pub(crate) fn read(&self, before: Option<u64>, seen: Option<u64>) {
        self.0.lock().reads.seen(before, seen);
    }

    pub(crate) fn leads(&self, term: u64, node: u64) {
        self.0.lock().leaders.seen(term, node);
    }

    pub(crate) fn acknowledged(&self) -> usize {
        self.0.lock().acknowledged.counts().0
    }

    pub(crate) fn counts(&self) -> Counts {
        let told = self.0.lock();
        let (applied, refused) = told.acknowledged.counts();
        Counts {
            applied,
            refused,
            unknown: told.unknown,
            reads: told.reads.count(),
            terms: told.leaders.terms(),
            ..Counts::default()
        }
    }

    pub(crate) fn check_against(&self, history: &[Entry]) {
        self.0.lock().acknowledged.check(history);
    }
}
