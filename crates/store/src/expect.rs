//! What commands will ask for first, brought near before they run.

use cairn_encoding::metadata::{Body, Metadata};
use cairn_encoding::row::RowBytes;
use cairn_engine::{Expected, Family};

use crate::error::Result;
use crate::key::Key;
use crate::txn::ReadTxn;

/// How many rows are brought near at once by those who know which ones they will ask for.
pub const EXPECTED: usize = 16;

impl ReadTxn {
    /// Has the processor bring near what commands will ask for first. Each names a key, and something in it: if
    /// it is the same key, that is what they will have to wait for.
    pub fn expect_calls<'n>(
        &self,
        index: u64,
        named: impl Iterator<Item = (&'n [u8], &'n [u8])> + Clone,
    ) {
        let mut names = named.clone().map(|(name, _)| name);
        let Some(first) = names.next() else {
            return;
        };
        // Two that are the same stand for all: if that is wrong, something else is brought near.
        if names.next().is_none_or(|name| name == first) {
            self.expect_elements(&Key::new(index, first), named.map(|(_, sub)| sub));
        } else {
            let names = named.map(|(name, _)| name);
            self.store().latches().expect(names.clone());
            self.expect_keys(index, names);
        }
    }

    /// Has keys brought near that will be asked for, a few of them: those that are on the disk alone are fetched together.
    pub fn expect(&self, names: &[&[u8]]) -> Result<()> {
        let index = self.index();
        if names.len() < 2 {
            return Ok(());
        }
        if self.expect_keys(index, names.iter().copied()) || self.is_quiet() {
            return Ok(());
        }
        let keys: Vec<Key> = names.iter().map(|name| Key::new(index, name)).collect();
        let rows = keys.iter().map(Key::metadata);
        Ok(self.store().engine().fetch_many(Family::Metadata, rows)?)
    }

    fn expect_keys<'n>(&self, index: u64, names: impl Iterator<Item = &'n [u8]>) -> bool {
        let mut rows = Expected::default();
        for name in names {
            rows.add_key(index, name);
        }
        self.store().engine().expect(&rows)
    }

    /// The same for elements of a collection.
    pub(crate) fn expect_rows(&self, rows: &[RowBytes]) -> Result<()> {
        let mut expected = Expected::default();
        for row in rows {
            expected.add(Family::Data, row);
        }
        let engine = self.store().engine();
        if engine.expect(&expected) || self.is_quiet() {
            return Ok(());
        }
        Ok(engine.fetch_many(Family::Data, rows.iter().map(|row| &row[..]))?)
    }

    fn expect_elements<'n>(&self, key: &Key, subs: impl Iterator<Item = &'n [u8]> + Clone) {
        // Those who pop say by themselves what they will want next.
        if subs.clone().all(<[u8]>::is_empty) {
            return;
        }
        let Some(row) = self.row_in_memory(Family::Metadata, key.metadata()) else {
            return;
        };
        if let Ok(Metadata {
            body: Body::Collection { version, .. },
            ..
        }) = Metadata::decode(&row)
        {
            let mut rows = Expected::default();
            for sub in subs {
                rows.add(Family::Data, &key.data(version, sub));
            }
            self.store().engine().expect(&rows);
        }
    }
}
