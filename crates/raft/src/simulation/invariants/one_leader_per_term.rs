//! In each term one node leads, or none.

use std::collections::BTreeMap;

#[derive(Default)]
pub(crate) struct Leaders(BTreeMap<u64, u64>);

impl Leaders {
    pub(crate) fn seen(&mut self, term: u64, node: u64) {
        let leader = *self.0.entry(term).or_insert(node);
        assert_eq!(leader, node, "two leaders in term {term}");
    }

    pub(crate) fn terms(&self) -> usize {
        self.0.len()
    }
}
