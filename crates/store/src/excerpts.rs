//! What was lately read of lists, in one piece.
//!
//! Each element of a list is a row, and to find a row takes longer than to copy what is in it. So a part of a list that is
//! asked for a second time, while nobody has written to the list, is kept as it was read, and is copied from there.
//!
//! Readers keep and find it under the list's latch, and whoever writes an element forgets it first, under the same latch,
//! exclusively. So it is what is committed. An element that was popped may lie in it, and is not asked for: a push that
//! comes back to its index writes it. A version that is dead is never asked for again.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::key::Key;
use crate::txn::ReadTxn;

/// Fewer elements than this are found as quickly.
const LEAST: u64 = 16;
/// The share of the memory that all of them may take, and what they may take in any case.
const MEMORY_SHARE: usize = 128;
const LEAST_BUDGET: usize = 2 * 1024 * 1024;
/// One takes no more than this part of the budget, so that there is room for some.
const LARGEST_SHARE: usize = 8;
/// What is taken for each beside its bytes, about.
const OVERHEAD: usize = 128;

pub(crate) struct Excerpts {
    budget: usize,
    /// How many lists are known of, to be asked without a lock.
    count: AtomicUsize,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    lists: FxHashMap<Arc<[u8]>, Known>,
    /// Their names in the order in which they came. Some may have been forgotten since.
    order: VecDeque<Arc<[u8]>>,
    memory: usize,
}

/// What is known of a list.
struct Known {
    version: u64,
    /// Which part was asked for.
    indexes: Range<u64>,
    /// Once it was asked for again.
    read: Option<Arc<Excerpt>>,
}

impl Known {
    fn memory(&self) -> usize {
        OVERHEAD + self.read.as_ref().map_or(0, |read| read.memory())
    }
}

/// Elements in a row.
#[derive(Default)]
pub(crate) struct Excerpt {
    bytes: Vec<u8>,
    /// Where each of them ends.
    ends: Vec<usize>,
}

impl Excerpt {
    pub(crate) fn push(&mut self, element: &[u8]) {
        self.bytes.extend_from_slice(element);
        self.ends.push(self.bytes.len());
    }

    fn get(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[at]]
    }

    fn memory(&self) -> usize {
        self.bytes.len() + self.ends.len() * size_of::<usize>()
    }
}

/// Elements that were found.
pub(crate) struct Found {
    excerpt: Arc<Excerpt>,
    first: u64,
}

impl Found {
    pub(crate) fn element(&self, index: u64) -> &[u8] {
        self.excerpt.get((index - self.first) as usize)
    }
}

/// What to do about a part of a list.
pub(crate) enum Asked {
    /// It is here.
    Found(Found),
    /// It should be read and kept: it was asked for before.
    Again,
    /// It should be read.
    First,
}

impl Excerpts {
    pub(crate) fn new(memory: usize) -> Self {
        Excerpts {
            budget: (memory / MEMORY_SHARE).max(LEAST_BUDGET),
            count: AtomicUsize::new(0),
            table: Mutex::default(),
        }
    }

    /// Looks for these elements, and notes that they were asked for. The list's latch is held.
    pub(crate) fn ask(&self, key: &Key, version: u64, indexes: &Range<u64>) -> Asked {
        if indexes.end - indexes.start < LEAST {
            return Asked::First;
        }
        let mut table = self.table.lock();
        if let Some(known) = table.lists.get(key.metadata())
            && known.version == version
        {
            let is_inside =
                known.indexes.start <= indexes.start && indexes.end <= known.indexes.end;
            match &known.read {
                Some(excerpt) if is_inside => {
                    let first = known.indexes.start;
                    let excerpt = excerpt.clone();
                    return Asked::Found(Found { excerpt, first });
                }
                None if known.indexes == *indexes => return Asked::Again,
                _ => {}
            }
        }
        let known = Known {
            version,
            indexes: indexes.clone(),
            read: None,
        };
        self.put(&mut table, key, known);
        Asked::First
    }

    /// Keeps what was read, all of it. The list's latch has been held since it was asked for.
    pub(crate) fn keep(
        &self,
        txn: &ReadTxn,
        key: &Key,
        version: u64,
        indexes: Range<u64>,
        excerpt: Excerpt,
    ) {
        if excerpt.memory() > self.budget / LARGEST_SHARE {
            return;
        }
        let known = Known {
            version,
            indexes,
            read: Some(Arc::new(excerpt)),
        };
        let mut table = self.table.lock();
        if txn.may_keep() {
            self.put(&mut table, key, known);
        }
    }

    /// An element of the list is about to change. The list's latch is held, exclusively.
    #[inline]
    pub(crate) fn forget(&self, key: &Key) {
        if self.count.load(Ordering::Acquire) > 0 {
            let mut table = self.table.lock();
            table.remove(key.metadata());
            self.count.store(table.lists.len(), Ordering::Release);
        }
    }

    pub(crate) fn clear(&self) {
        let mut table = self.table.lock();
        *table = Table::default();
        self.count.store(0, Ordering::Release);
    }

    fn put(&self, table: &mut Table, key: &Key, known: Known) {
        let name = key.metadata();
        let memory = known.memory();
        match table.lists.get_mut(name) {
            Some(before) => {
                table.memory -= before.memory();
                *before = known;
            }
            None => {
                let name: Arc<[u8]> = name.into();
                table.order.push_back(name.clone());
                table.lists.insert(name, known);
            }
        }
        table.memory += memory;
        while table.memory > self.budget || table.order.len() > 2 * table.lists.len() + 16 {
            let Some(oldest) = table.order.pop_front() else {
                break;
            };
            table.remove(&oldest);
        }
        self.count.store(table.lists.len(), Ordering::Release);
    }
}

impl Table {
    fn remove(&mut self, name: &[u8]) {
        if let Some(known) = self.lists.remove(name) {
            self.memory -= known.memory();
        }
    }
}
