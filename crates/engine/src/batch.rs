//! The effects of a transaction: which rows become what.
//!
//! A batch is an overlay over the stored rows. The transaction that builds it reads through it, a row
//! that is touched ten times is kept once, and it is written out once, when it is committed. A savepoint
//! lets one failing command among many be undone without touching the others.

use std::ops::Bound;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::family::Family;

/// Shared, because a committed row stands in several places at once: see `young` and `cache`.
pub(crate) type Bytes = Arc<[u8]>;
/// What becomes of a row: `None` deletes it.
pub(crate) type Change = Option<Bytes>;
pub(crate) type Changes = FxHashMap<Bytes, Change>;

#[derive(Default)]
pub struct Batch {
    families: [Changes; Family::COUNT],
    /// What the rows changed since the savepoint were before, the latest change last; the outer `None`
    /// says that the overlay had no opinion.
    undo: Vec<(Family, Bytes, Option<Change>)>,
    has_savepoint: bool,
    bytes: usize,
    bytes_at_savepoint: usize,
}

impl Batch {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn is_empty(&self) -> bool {
        self.families.iter().all(Changes::is_empty)
    }

    /// The number of rows changed.
    pub fn len(&self) -> usize {
        self.families.iter().map(Changes::len).sum()
    }

    /// About how much memory the changes take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn put(&mut self, family: Family, key: &[u8], value: impl AsRef<[u8]>) {
        let value = match value.as_ref() {
            // One for all, which takes no memory.
            [] => Bytes::default(),
            value => Bytes::from(value),
        };
        self.change(family, key, Some(value));
    }

    pub fn delete(&mut self, family: Family, key: &[u8]) {
        self.change(family, key, None);
    }

    fn change(&mut self, family: Family, key: &[u8], change: Change) {
        self.bytes += key.len() + change.as_ref().map_or(0, |value| value.len());
        let rows = &mut self.families[family as usize];
        let key = match rows.get_key_value(key) {
            Some((known, _)) => known.clone(),
            None => Bytes::from(key),
        };
        let undo_key = self.has_savepoint.then(|| key.clone());
        let before = rows.insert(key, change);
        if let Some(key) = undo_key {
            self.undo.push((family, key, before));
        }
    }

    /// What this batch makes of a row: `None` if it does not touch it, `Some(None)` if it deletes it.
    pub fn get(&self, family: Family, key: &[u8]) -> Option<Option<&[u8]>> {
        self.families[family as usize]
            .get(key)
            .map(|change| change.as_deref())
    }

    /// The changes of rows within these bounds, in no order.
    pub(crate) fn range(
        &self,
        family: Family,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
    ) -> impl Iterator<Item = (&Bytes, &Change)> {
        in_range(&self.families[family as usize], lower, upper)
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

    /// Every change, family by family.
    pub fn changes(&self) -> impl Iterator<Item = (Family, &[u8], Option<&[u8]>)> {
        Family::ALL.into_iter().flat_map(move |family| {
            self.families[family as usize]
                .iter()
                .map(move |(key, change)| (family, &**key, change.as_deref()))
        })
    }

    /// The same, to be kept elsewhere.
    pub(crate) fn into_changes(self) -> impl Iterator<Item = (Family, Bytes, Change)> {
        Family::ALL
            .into_iter()
            .zip(self.families)
            .flat_map(|(family, rows)| {
                rows.into_iter()
                    .map(move |(key, change)| (family, key, change))
            })
    }
}

/// Those of some changes that lie within bounds.
pub(crate) fn in_range<'c>(
    changes: &'c Changes,
    lower: Bound<&[u8]>,
    upper: Bound<&[u8]>,
) -> impl Iterator<Item = (&'c Bytes, &'c Change)> {
    use std::ops::RangeBounds;
    changes
        .iter()
        .filter(move |(key, _)| RangeBounds::<[u8]>::contains::<[u8]>(&(lower, upper), key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(batch: &Batch) -> Vec<(Family, Vec<u8>, Option<Vec<u8>>)> {
        let mut changes: Vec<_> = batch
            .changes()
            .map(|(family, key, value)| (family, key.to_vec(), value.map(<[u8]>::to_vec)))
            .collect();
        changes.sort();
        changes
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
        batch.put(Family::Expiry, b"c", []);
        batch.rollback();
        assert_eq!(changes(&batch), before);
    }
}
