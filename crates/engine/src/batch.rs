//! The effects of a transaction: which rows become what.
//!
//! A batch is an overlay over the stored rows. The transaction that builds it reads through it, a row
//! that is touched ten times is kept once, and it is written out once, when it is committed. A savepoint
//! lets one failing command among many be undone without touching the others.

use cairn_encoding::DecodeError;
use cairn_encoding::changes::{self, Change};
use cairn_encoding::system::{Descriptor, Maxima, SystemKey};

use crate::error::Result;
use crate::family::Family;
use crate::measure::Growth;
use crate::ordered::{self, Found, OrderedRows};
use crate::row::{Row, family_of, hash, key_of};

/// Room for no more changes than this is made before they come.
const MOST_EXPECTED: usize = 8192;

#[derive(Default)]
pub struct Batch {
    rows: OrderedRows,
    /// How many rows of each family there are.
    counts: [usize; Family::COUNT],
    /// What the rows changed since the savepoint, or since the beginning of the unit, were before, the latest
    /// change last.
    undo: Vec<Before>,
    /// Rows of which the value was written over, as they were.
    overwritten: Vec<u8>,
    savepoint: Savepoint,
    /// How much of `undo` is older than the savepoint: the commands of a unit that came before.
    undo_at_savepoint: usize,
    bytes: usize,
    bytes_at_savepoint: usize,
    bytes_at_unit: usize,
    /// It is about work in the background, which uses no key.
    is_no_use: bool,
    /// By how much the data grows with it, if anybody wants to know.
    pub(crate) growth: Option<Box<Growth>>,
}

/// What the batch had to say of a row before it was changed.
enum Before {
    /// Nothing. The row is this one of all.
    Nothing(u32),
    Row(u32, Row),
    /// What stands from here on in `overwritten`; with the row's hash, as above.
    Overwritten(u32, usize),
}

/// What a rollback goes back to.
#[derive(Default, PartialEq, Eq)]
enum Savepoint {
    #[default]
    None,
    /// The empty batch: to go back is to clear, and nothing needs to be remembered.
    Empty,
    /// Changes that stay.
    Changes,
}

impl Batch {
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes it out, to be committed elsewhere. An empty one is left that will be about as large.
    pub fn take(&mut self) -> Batch {
        let rows = self.rows.successor(MOST_EXPECTED);
        let rows = std::mem::replace(&mut self.rows, rows);
        let taken = Batch {
            rows,
            counts: self.counts,
            bytes: self.bytes,
            is_no_use: self.is_no_use,
            growth: self.growth.take(),
            ..Batch::default()
        };
        self.begin_again();
        taken
    }

    /// Is as new afterwards, and has the memory that it has for what comes next.
    pub fn begin_again(&mut self) {
        let Batch {
            rows,
            undo,
            overwritten,
            ..
        } = std::mem::take(self);
        *self = Batch {
            rows,
            undo,
            overwritten,
            ..Batch::default()
        };
        self.rows.clear(MOST_EXPECTED);
        self.undo.clear();
        self.undo.shrink_to(MOST_EXPECTED);
        self.overwritten.clear();
        self.overwritten.shrink_to(MOST_EXPECTED);
    }

    /// Whoever commits it uses none of its keys.
    pub fn be_no_use(&mut self) {
        self.is_no_use = true;
    }

    #[inline]
    pub(crate) fn is_use(&self) -> bool {
        !self.is_no_use
    }

    /// The batch as bytes, which are what a cluster replicates.
    pub fn encode(&self, maxima: Maxima) -> Vec<u8> {
        Batch::encode_all(std::iter::once(self), maxima)
    }

    /// Several as one: of a row that two of them change, what the later one makes of it is left.
    pub fn encode_all<'b>(
        batches: impl Iterator<Item = &'b Batch> + Clone,
        maxima: Maxima,
    ) -> Vec<u8> {
        let bytes = |batch: &Batch| batch.bytes + 16 * batch.len();
        let mut out = Vec::with_capacity(batches.clone().map(bytes).sum::<usize>() + 32);
        changes::begin_batch(&mut out, maxima);
        for (family, key, value) in batches.flat_map(Batch::changes) {
            changes::append(&mut out, family as u8, key, value);
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<(Batch, Maxima)> {
        let (maxima, changes) = changes::read_batch(bytes)?;
        Ok((Batch::of_changes(changes)?, maxima))
    }

    /// What it makes of a region's descriptor; none if it does not touch it.
    pub fn descriptor(&self, region: u64) -> Result<Option<Descriptor>> {
        let key = SystemKey::RegionDescriptor { region }.encode();
        let value = self.get(Family::Meta, &key).flatten();
        Ok(value.map(Descriptor::decode).transpose()?)
    }

    pub(crate) fn of_changes<'c>(
        changes: impl Iterator<Item = Result<Change<'c>, DecodeError>>,
    ) -> Result<Batch> {
        let mut batch = Batch::new();
        for change in changes {
            let (family, key, value) = change?;
            batch.change(Family::of_byte(family)?, key, value);
        }
        Ok(batch)
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The number of rows changed.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// About how much memory the changes take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn put(&mut self, family: Family, key: &[u8], value: impl AsRef<[u8]>) {
        self.change(family, key, Some(value.as_ref()));
    }

    /// Puts a row that is certainly not there, neither in this batch nor below it. If it dies while it is young, nobody need be
    /// told.
    pub fn put_new(&mut self, family: Family, key: &[u8], value: impl AsRef<[u8]>) {
        self.change_row(family, key, Some(value.as_ref()), true);
    }

    pub fn delete(&mut self, family: Family, key: &[u8]) {
        self.change(family, key, None);
    }

    fn change(&mut self, family: Family, key: &[u8], value: Option<&[u8]>) {
        self.change_row(family, key, value, false);
    }

    fn change_row(&mut self, family: Family, key: &[u8], value: Option<&[u8]>, is_new: bool) {
        self.bytes += key.len() + value.map_or(0, <[u8]>::len);
        let hash = hash(family, key);
        let remembers = self.savepoint == Savepoint::Changes;
        let place = self.rows.len() as u32;
        let row = match self.rows.find(hash, family, key) {
            Found::Row(row) => row,
            Found::Room(room) => {
                room.add(Row::new(family, key, value), is_new);
                self.counts[family as usize] += 1;
                if remembers {
                    self.undo.push(Before::Nothing(place));
                }
                return;
            }
        };
        // Most often the metadata of a collection, which every command changes that adds to it.
        if let Some(value) = value
            && let Some((bytes, value_at)) = row.place_to_overwrite(value.len())
        {
            if remembers {
                let at = self.overwritten.len();
                self.undo.push(Before::Overwritten(hash, at));
                self.overwritten.extend_from_slice(bytes);
            }
            bytes[value_at..].copy_from_slice(value);
            return;
        }
        let before = std::mem::replace(row, Row::new(family, key, value));
        if remembers {
            self.undo.push(Before::Row(hash, before));
        }
    }

    /// What this batch makes of a row: `None` if it does not touch it, `Some(None)` if it deletes it.
    #[inline]
    pub fn get(&self, family: Family, key: &[u8]) -> Option<Option<&[u8]>> {
        if self.counts[family as usize] == 0 {
            return None;
        }
        let row = self.rows.get(hash(family, key), family, key)?;
        Some(row.value())
    }

    #[inline]
    pub fn has_changes_in(&self, family: Family) -> bool {
        self.counts[family as usize] > 0
    }

    /// From here on, [`Batch::rollback`] can undo. A command that changes millions of rows comes first in
    /// its batch: it does not keep each key twice.
    pub fn savepoint(&mut self) {
        self.savepoint = if self.is_empty() {
            Savepoint::Empty
        } else {
            Savepoint::Changes
        };
        self.bytes_at_savepoint = self.bytes;
        self.undo.clear();
        self.overwritten.clear();
        self.undo_at_savepoint = 0;
    }

    /// The same for several commands that can be undone together: [`Batch::rollback_unit`]. Each of them can
    /// be undone by itself after a [`Batch::savepoint_in_unit`].
    pub fn begin_unit(&mut self) {
        self.savepoint();
        self.savepoint = Savepoint::Changes;
        self.bytes_at_unit = self.bytes;
    }

    pub fn savepoint_in_unit(&mut self) {
        self.undo_at_savepoint = self.undo.len();
        self.bytes_at_savepoint = self.bytes;
    }

    /// Takes back every change since the unit began.
    pub fn rollback_unit(&mut self) {
        self.undo_at_savepoint = 0;
        self.bytes_at_savepoint = self.bytes_at_unit;
        self.rollback();
    }

    /// The rows that were changed since the last savepoint, or if it is a unit since that began; some more than
    /// once.
    pub fn changed(&self) -> impl Iterator<Item = (Family, &[u8])> {
        let all = (self.savepoint != Savepoint::Changes).then(|| self.rows());
        let all = all.into_iter().flatten();
        let remembered = self.undo.iter().map(|before| match before {
            Before::Nothing(place) => self.rows.at(*place).bytes(),
            Before::Row(_, row) => row.bytes(),
            Before::Overwritten(_, at) => &self.overwritten[*at..],
        });
        let rows = all.map(Row::bytes).chain(remembered);
        rows.map(|row| (family_of(row), key_of(row)))
    }

    /// Whether a row was changed since it was so large, and not taken back, be it to what it was before.
    pub fn has_changed_since(&self, bytes: usize) -> bool {
        // Every change adds its key.
        self.bytes > bytes
    }

    /// Takes back every change since the last savepoint.
    pub fn rollback(&mut self) {
        if self.savepoint == Savepoint::Empty {
            self.rows = OrderedRows::default();
            self.counts = [0; Family::COUNT];
        }
        self.bytes = self.bytes_at_savepoint;
        while self.undo.len() > self.undo_at_savepoint
            && let Some(before) = self.undo.pop()
        {
            match before {
                Before::Nothing(_) => {
                    if let Some(row) = self.rows.take_last() {
                        self.counts[row.family() as usize] -= 1;
                    }
                }
                Before::Row(hash, row) => self.put_back(hash, row),
                Before::Overwritten(hash, at) => {
                    self.put_back(hash, Row::copy_of(&self.overwritten[at..]));
                    self.overwritten.truncate(at);
                }
            }
        }
    }

    fn put_back(&mut self, hash: u32, row: Row) {
        if let Found::Row(changed) = self.rows.find(hash, row.kind(), row.key()) {
            *changed = row;
        }
    }

    /// Every change, in the order in which their rows were changed first.
    pub fn changes(&self) -> impl Iterator<Item = (Family, &[u8], Option<&[u8]>)> {
        self.rows()
            .map(|row| (row.family(), row.key(), row.value()))
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.rows()
    }

    /// Takes out every change, to be kept elsewhere.
    pub(crate) fn drain_rows(&mut self) -> std::vec::Drain<'_, ordered::Change> {
        self.rows.drain()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
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
    fn its_bytes_are_the_same_batch() {
        let mut batch = Batch::new();
        batch.put(Family::Data, b"k", *b"v");
        batch.put(Family::Meta, b"", []);
        batch.delete(Family::Expiry, b"gone");
        let maxima = Maxima {
            version: 7,
            timestamp_ms: 8,
        };
        let bytes = batch.encode(maxima);
        let (same, its_maxima) = Batch::decode(&bytes).unwrap();
        assert_eq!((changes(&same), its_maxima), (changes(&batch), maxima));
        assert!(Batch::decode(&bytes[..bytes.len() - 1]).is_err());
        let unknown_family = [&batch_head(maxima)[..], &[9, 0, 0, 0, 0, 0, 0, 0, 0]].concat();
        assert!(Batch::decode(&unknown_family).is_err());
    }

    #[test]
    fn several_become_one_in_their_order() {
        let [mut first, mut second, mut both] = [(); 3].map(|()| Batch::new());
        for batch in [&mut first, &mut both] {
            batch.put(Family::Data, b"a", *b"1");
            batch.put(Family::Data, b"b", *b"1");
        }
        for batch in [&mut second, &mut both] {
            batch.delete(Family::Data, b"a");
            batch.put(Family::Data, b"c", *b"2");
        }
        let bytes = Batch::encode_all([&first, &second].into_iter(), Maxima::default());
        let (decoded, _) = Batch::decode(&bytes).unwrap();
        assert_eq!(changes(&decoded), changes(&both));
    }

    fn batch_head(maxima: Maxima) -> Vec<u8> {
        Batch::new().encode(maxima)
    }

    #[test]
    fn the_first_command_is_taken_back_without_having_been_remembered() {
        let mut batch = Batch::new();
        batch.savepoint();
        batch.put(Family::Data, b"a", *b"1");
        assert!(batch.undo.is_empty());
        batch.rollback();
        assert!(batch.is_empty());
        assert_eq!(batch.bytes(), 0);

        batch.put(Family::Data, b"a", *b"1");
        batch.savepoint();
        batch.put(Family::Data, b"b", *b"2");
        batch.rollback();
        assert_eq!(batch.len(), 1);
    }

    #[test]
    fn a_unit_is_taken_back_as_a_whole_or_by_command() {
        for before in [0, 1] {
            let mut batch = Batch::new();
            for number in 0..before {
                batch.put(Family::Data, &[number], *b"before");
            }
            let (kept, bytes) = (changes(&batch), batch.bytes());
            batch.begin_unit();
            batch.savepoint_in_unit();
            batch.put(Family::Data, b"a", *b"1");
            batch.put(Family::Data, &[0], *b"changed");
            let first = changes(&batch);
            batch.savepoint_in_unit();
            batch.put(Family::Data, b"a", *b"2");
            batch.delete(Family::Expiry, b"b");
            batch.rollback();
            assert_eq!(changes(&batch), first);
            let changed: Vec<&[u8]> = batch.changed().map(|(_, key)| key).collect();
            assert_eq!(changed, [&b"a"[..], &[0]]);
            batch.rollback_unit();
            assert_eq!(changes(&batch), kept);
            assert_eq!(batch.bytes(), bytes);
            assert_eq!(batch.changed().count(), 0);
        }
    }

    #[test]
    fn values_that_are_written_over_come_back() {
        let mut batch = Batch::new();
        batch.put(Family::Metadata, b"k", *b"1");
        batch.put(Family::Metadata, b"l", *b"1");
        // Somebody else shows this one: it must not change under them.
        let shown: Vec<Row> = batch
            .rows()
            .filter(|row| row.key() == b"l")
            .cloned()
            .collect();
        let before = changes(&batch);
        batch.savepoint();
        for value in [*b"2", *b"3"] {
            batch.put(Family::Metadata, b"k", value);
            batch.put(Family::Metadata, b"l", value);
        }
        assert_eq!(batch.get(Family::Metadata, b"k"), Some(Some(&b"3"[..])));
        assert_eq!(shown[0].value(), Some(&b"1"[..]));
        let changed: Vec<&[u8]> = batch.changed().map(|(_, key)| key).collect();
        assert_eq!(changed, [b"k", b"l", b"k", b"l"]);
        batch.rollback();
        assert_eq!(changes(&batch), before);
        batch.rollback();
        assert_eq!(changes(&batch), before);
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
        assert!(batch.has_changes_in(Family::Expiry));
        batch.rollback();
        assert_eq!(changes(&batch), before);
        assert!(!batch.has_changes_in(Family::Expiry));
    }
}
