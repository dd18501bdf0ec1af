//! The effects of a transaction: which rows become what.
//!
//! A batch is an ordered overlay over the stored rows. The transaction that builds it reads through it,
//! a row that is touched ten times is kept once, and it is serialized once, when it is committed. A
//! savepoint lets one failing command among many be undone without touching the others.

use std::collections::BTreeMap;
use std::collections::btree_map;
use std::ops::Bound;

use crate::family::Family;

/// What becomes of a row: `None` deletes it.
pub(crate) type Change = Option<Box<[u8]>>;
pub(crate) type Overlay = BTreeMap<Box<[u8]>, Change>;

#[derive(Default)]
pub struct Batch {
    families: [Overlay; Family::COUNT],
    /// What the rows changed since the savepoint were before, the latest change last; the outer `None`
    /// says that the overlay had no opinion.
    undo: Vec<(Family, Box<[u8]>, Option<Change>)>,
    has_savepoint: bool,
    bytes: usize,
    bytes_at_savepoint: usize,
}

impl Batch {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn is_empty(&self) -> bool {
        self.families.iter().all(BTreeMap::is_empty)
    }

    /// The number of rows changed.
    pub fn len(&self) -> usize {
        self.families.iter().map(BTreeMap::len).sum()
    }

    /// About how much memory the changes take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn put(&mut self, family: Family, key: &[u8], value: impl Into<Box<[u8]>>) {
        self.change(family, key, Some(value.into()));
    }

    pub fn delete(&mut self, family: Family, key: &[u8]) {
        self.change(family, key, None);
    }

    fn change(&mut self, family: Family, key: &[u8], change: Change) {
        self.bytes += key.len() + change.as_ref().map_or(0, |value| value.len());
        let before = self.families[family as usize].insert(key.into(), change);
        if self.has_savepoint {
            self.undo.push((family, key.into(), before));
        }
    }

    /// What this batch makes of a row: `None` if it does not touch it, `Some(None)` if it deletes it.
    pub fn get(&self, family: Family, key: &[u8]) -> Option<Option<&[u8]>> {
        self.families[family as usize]
            .get(key)
            .map(|change| change.as_deref())
    }

    pub(crate) fn range(
        &self,
        family: Family,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
    ) -> btree_map::Range<'_, Box<[u8]>, Change> {
        self.families[family as usize].range::<[u8], _>((lower, upper))
    }

    pub fn has_changes_in(&self, family: Family) -> bool {
        !self.families[family as usize].is_empty()
    }

    /// From here on, [`Batch::rollback`] can undo.
    pub fn savepoint(&mut self) {
        self.has_savepoint = true;
        self.bytes_at_savepoint = self.bytes;
        self.undo.clear();
    }

    /// Takes back every change since the last savepoint.
    pub fn rollback(&mut self) {
        self.bytes = self.bytes_at_savepoint;
        while let Some((family, key, before)) = self.undo.pop() {
            let rows = &mut self.families[family as usize];
            match before {
                Some(change) => rows.insert(key, change),
                None => rows.remove(&key),
            };
        }
    }

    /// Every change, family by family, in key order.
    pub fn changes(&self) -> impl Iterator<Item = (Family, &[u8], Option<&[u8]>)> {
        Family::ALL.into_iter().flat_map(move |family| {
            self.families[family as usize]
                .iter()
                .map(move |(key, change)| (family, &**key, change.as_deref()))
        })
    }

    pub fn clear(&mut self) {
        for rows in &mut self.families {
            rows.clear();
        }
        self.undo.clear();
        self.has_savepoint = false;
        self.bytes = 0;
        self.bytes_at_savepoint = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(batch: &Batch) -> Vec<(Family, Vec<u8>, Option<Vec<u8>>)> {
        batch
            .changes()
            .map(|(family, key, value)| (family, key.to_vec(), value.map(<[u8]>::to_vec)))
            .collect()
    }

    #[test]
    fn a_row_touched_twice_is_kept_once_as_it_was_last() {
        let mut batch = Batch::new();
        batch.put(Family::Data, b"k", *b"1");
        batch.put(Family::Data, b"k", *b"2");
        batch.put(Family::Metadata, b"k", *b"m");
        batch.delete(Family::Data, b"k");
        assert_eq!(
            changes(&batch),
            [
                (Family::Metadata, b"k".to_vec(), Some(b"m".to_vec())),
                (Family::Data, b"k".to_vec(), None),
            ]
        );
        assert_eq!(batch.get(Family::Data, b"k"), Some(None));
        assert_eq!(batch.get(Family::Data, b"other"), None);
    }

    #[test]
    fn rollback_takes_back_what_came_after_the_savepoint_only() {
        let mut batch = Batch::new();
        batch.put(Family::Data, b"a", *b"1");
        batch.delete(Family::Data, b"b");
        let before = changes(&batch);
        batch.savepoint();
        batch.put(Family::Data, b"a", *b"2");
        batch.delete(Family::Data, b"a");
        batch.put(Family::Data, b"b", *b"3");
        batch.put(Family::Expiry, b"c", *b"");
        batch.rollback();
        assert_eq!(changes(&batch), before);
    }
}
