//! Walks over several families that show the same moment.
//!
//! They are opened together with the rows that are young then, while nothing is committed. What they were opened on is
//! pinned: whatever is committed, drained, compacted or dropped later does not show, however long the walks take. And
//! compaction filters need not be held up for it, since nothing is opened afterwards.

use rust_rocksdb::ReadOptions;

use crate::engine::Engine;
use crate::error::Result;
use crate::family::Family;
use crate::overlay::Overlay;
use crate::row::Row;
use crate::rows::{Direction, OwnedIterator, Rows, Stored};
use crate::young::Carried;

/// The most young rows that are taken along; more are drained first.
const MOST_YOUNG: usize = 16 * 1024;
/// How often that is tried: they may come as quickly as they are drained.
const DRAINS: usize = 3;

/// Young rows, the newest first, and what lies below them in each family.
type Opened<const N: usize> = (Vec<Row>, [(Family, OwnedIterator); N]);

impl Engine {
    /// Walks over all rows of these families, forward, as they are at one moment: after some commit, and before the next.
    /// A family that is named twice is walked over twice.
    pub fn at_one_moment<const N: usize>(&self, families: [Family; N]) -> Result<[Rows; N]> {
        let (young, stored) = self.open_together(families)?;
        Ok(stored.map(|(family, stored)| {
            let of_family = young.iter().filter(|row| row.family() == family);
            let changes = Carried {
                newest: of_family.cloned().collect(),
                ..Carried::default()
            };
            let overlay = Overlay::new(changes, Direction::Forward);
            Rows::new(Stored::Iterator(stored), overlay, Box::default())
        }))
    }

    /// Moves what is young into RocksDB. Whoever will be alone while such walks are opened does this before, so that there
    /// is little left of it then.
    pub fn settle(&self) -> Result<()> {
        self.drain()
    }

    fn open_together<const N: usize>(&self, families: [Family; N]) -> Result<Opened<N>> {
        let iterators = || {
            families.map(|family| {
                let mut options = ReadOptions::default();
                options.fill_cache(false);
                options.set_auto_readahead_size(true);
                let iterator = OwnedIterator::new(self.database().clone(), family, options);
                (family, iterator)
            })
        };
        let mut drains = 0;
        loop {
            self.drain()?;
            drains += 1;
            let most = match drains < DRAINS {
                true => MOST_YOUNG,
                false => usize::MAX,
            };
            if let Some(opened) = self.young().open_all(most, iterators) {
                return Ok(opened);
            }
        }
    }
}
