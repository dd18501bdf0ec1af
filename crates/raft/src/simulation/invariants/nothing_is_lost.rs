//! No acknowledged batch is lost, none is applied twice, and no refused one is applied.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::machine::{Content, Entry};

#[derive(Default)]
pub(crate) struct Acknowledged {
    applied: BTreeMap<u64, Bytes>,
    refused: Vec<Bytes>,
}

impl Acknowledged {
    pub(crate) fn applied(&mut self, index: u64, payload: Bytes) {
        let other = self.applied.insert(index, payload);
        assert_eq!(other, None, "two batches were acknowledged at {index}");
    }

    pub(crate) fn refused(&mut self, payload: Bytes) {
        self.refused.push(payload);
    }

    /// The highest index that anybody was told of.
    pub(crate) fn highest(&self) -> Option<u64> {
        self.applied.keys().next_back().copied()
    }

    /// How many were applied, and refused.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.applied.len(), self.refused.len())
    }

    /// Against what a replica that has everything applied.
    pub(crate) fn check(&self, history: &[Entry]) {
        for (index, payload) in &self.applied {
            let entry = history.get(*index as usize).map(|entry| &entry.content);
            match entry {
                Some(Content::Batch { payload: found, .. }) => assert_eq!(found, payload),
                other => panic!("batch {index} was acknowledged, but there is {other:?}"),
            }
        }
        let batches = history.iter().filter_map(|entry| match &entry.content {
            Content::Batch { payload, .. } => Some(payload),
            _ => None,
        });
        let mut found: Vec<&Bytes> = batches.collect();
        let count = found.len();
        found.sort();
        found.dedup();
        assert_eq!(found.len(), count, "a batch was applied twice");
        for refused in &self.refused {
            let applied = found.binary_search(&refused).is_ok();
            assert!(!applied, "{refused:?} was refused, and applied");
        }
    }
}
