//! Walking many collections side by side, as a union of thousands of sets does.
//!
//! An iterator of the engine takes some kilobytes, and a command may name a hundred thousand keys. Up to
//! [`OWN`] walks have an iterator each. More of them share one over the whole database: it goes wherever
//! the walk that moves next has to go, which is a search each time, but takes no more memory. It is opened
//! under the command's latches, like the others, and shows one moment.

use std::sync::Arc;

use cairn_encoding::row;
use cairn_engine::{Direction, Family, Rows};
use parking_lot::Mutex;

use crate::collection::Collection;
use crate::error::Result;
use crate::txn::ReadTxn;

/// How many walks have an iterator of their own.
const OWN: usize = 256;

/// Opens the walks of one command.
pub(crate) struct Walks<'t> {
    txn: &'t ReadTxn,
    shared: Option<Arc<Mutex<Shared>>>,
}

/// The one iterator of many walks.
pub(crate) struct Shared {
    rows: Rows,
    /// Where it stands: the first row at or after this comes next.
    place: Vec<u8>,
}

impl<'t> Walks<'t> {
    /// For so many collections of the selected database.
    pub(crate) fn new(txn: &'t ReadTxn, count: usize) -> Result<Self> {
        Self::sharing_beyond(txn, count, OWN)
    }

    pub(crate) fn of_few(txn: &'t ReadTxn) -> Self {
        Walks { txn, shared: None }
    }

    fn sharing_beyond(txn: &'t ReadTxn, count: usize, own: usize) -> Result<Self> {
        if count <= own {
            return Ok(Self::of_few(txn));
        }
        let (mut lower, mut upper) = (Vec::new(), Vec::new());
        row::index_prefix(&mut lower, txn.index());
        row::index_prefix(&mut upper, txn.index() + 1);
        let shared = Shared {
            rows: txn.rows(Family::Data, &lower, &upper, Direction::Forward)?,
            place: Vec::new(),
        };
        let shared = Some(Arc::new(Mutex::new(shared)));
        Ok(Walks { txn, shared })
    }

    /// Over the elements of a collection, in the order of their sub-keys.
    pub(crate) fn open(&self, collection: &Collection) -> Result<ElementRows> {
        Ok(match &self.shared {
            None => ElementRows::Own(collection.rows(self.txn, Direction::Forward)?),
            Some(shared) => {
                let (lower, upper) = collection.range();
                ElementRows::Shared {
                    next: lower.to_vec(),
                    lower: lower.to_vec(),
                    upper: upper.to_vec(),
                    shared: shared.clone(),
                }
            }
        })
    }
}

/// The rows of one collection among many.
pub(crate) enum ElementRows {
    Own(Rows),
    Shared {
        shared: Arc<Mutex<Shared>>,
        lower: Vec<u8>,
        upper: Vec<u8>,
        /// The first row at or after this comes next.
        next: Vec<u8>,
    },
}

impl ElementRows {
    /// Reads the next row, key and value.
    pub(crate) fn read_next<T>(
        &mut self,
        read: impl FnOnce(&[u8], &[u8]) -> T,
    ) -> Result<Option<T>> {
        match self {
            ElementRows::Own(rows) => Ok(rows.next()?.map(|(key, value)| read(key, value))),
            ElementRows::Shared {
                shared,
                upper,
                next,
                ..
            } => {
                let shared = &mut *shared.lock();
                if shared.place != *next {
                    shared.rows.seek(next);
                }
                // Whatever comes of it, the iterator has moved.
                shared.place.clear();
                let Some((key, value)) = shared.rows.next()? else {
                    return Ok(None);
                };
                if key >= upper.as_slice() {
                    return Ok(None);
                }
                next.clear();
                next.extend_from_slice(key);
                next.push(0);
                shared.place.clone_from(next);
                Ok(Some(read(key, value)))
            }
        }
    }

    /// Moves so that the first row at or after `key` comes next.
    pub(crate) fn seek(&mut self, key: &[u8]) {
        match self {
            ElementRows::Own(rows) => rows.seek(key),
            ElementRows::Shared { lower, next, .. } => {
                next.clear();
                next.extend_from_slice(key.max(lower));
            }
        }
    }

    /// Back to the first row.
    pub(crate) fn rewind(&mut self) {
        match self {
            ElementRows::Own(rows) => rows.rewind(),
            ElementRows::Shared { lower, next, .. } => next.clone_from(lower),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use cairn_engine::{EngineOptions, SyncMode, SystemTime};

    use super::*;
    use crate::{CollectionKind, Patience, Set, Store, StoreOptions, WriteTxn};

    /// Two walks that take turns: members read, places sought, in whatever order.
    #[test]
    fn walks_that_share_an_iterator_go_their_own_ways() {
        let directory = tempfile::tempdir().unwrap();
        let options = StoreOptions {
            engine: EngineOptions {
                memory: 64 * 1024 * 1024,
                ..EngineOptions::default()
            },
            sync: SyncMode::No,
            databases: 1,
            time: Box::<SystemTime>::default(),
            ranks: Default::default(),
        };
        let store = Store::open(directory.path(), options).unwrap();
        let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
        txn.begin(0);
        for (name, members) in [("one", "acegi"), ("other", "bcdg"), ("zzz", "a")] {
            let mut set = Set::open(&txn, name.as_bytes()).unwrap();
            for member in members.bytes() {
                set.add(&mut txn, &[member]).unwrap();
            }
            set.save(&mut txn);
        }
        store.commit_blocking(&mut txn).unwrap();
        for own in [0, 2] {
            let walks = Walks::sharing_beyond(&txn, 2, own).unwrap();
            let sets = [b"one".as_slice(), b"other"]
                .map(|name| Collection::open(&txn, name, CollectionKind::Set).unwrap());
            let mut rows = sets.each_ref().map(|set| walks.open(set).unwrap());
            let mut next = |at: usize| {
                let offset = sets[at].sub_offset();
                let read = rows[at].read_next(|key, _| char::from(key[offset]));
                read.unwrap().unwrap_or('-')
            };
            let turns = [0, 0, 1, 0, 1, 1, 1, 1, 0, 0, 0].map(&mut next);
            assert_eq!(String::from_iter(turns), "acbecdg-gi-");
            rows[0].rewind();
            rows[1].seek(&sets[1].row_key(b"d"));
            let mut next = |at: usize| {
                let offset = sets[at].sub_offset();
                let read = rows[at].read_next(|key, _| char::from(key[offset]));
                read.unwrap().unwrap_or('-')
            };
            let turns = [1, 0, 1, 1, 0].map(&mut next);
            assert_eq!(String::from_iter(turns), "dag-c");
        }
    }
}
