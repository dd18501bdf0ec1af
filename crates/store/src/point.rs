//! Reads that need no latch.
//!
//! One row is read atomically by itself. A row of a collection takes two reads, its key's metadata and
//! then the row; if the row is there, it was so at one moment between the two. If it is not, the key may
//! have been replaced and its old rows reclaimed meanwhile, so the metadata is read again.

use cairn_encoding::metadata::CollectionKind;

use crate::collection::Collection;
use crate::error::{Error, Result};
use crate::store::Store;
use crate::string::Str;
use crate::txn::{Found, Lookups, ReadTxn, Row};

#[derive(Clone, Copy)]
pub struct Point<'t> {
    txn: &'t ReadTxn,
    is_latched: bool,
}

impl<'t> Point<'t> {
    pub fn unlatched(txn: &'t ReadTxn) -> Self {
        Point {
            txn,
            is_latched: false,
        }
    }

    pub fn latched(txn: &'t ReadTxn) -> Self {
        Point {
            txn,
            is_latched: true,
        }
    }

    pub fn store(self) -> &'t Store {
        self.txn.store()
    }

    pub fn now_ms(self) -> u64 {
        self.txn.now_ms()
    }

    /// What the key holds.
    #[inline]
    pub fn find(self, name: &[u8]) -> Result<Option<Found<'t>>> {
        self.txn.find(&self.txn.key(name))
    }

    #[inline]
    pub fn string(self, name: &'t [u8]) -> Result<Option<Str<'t>>> {
        Str::find(self.txn, name)
    }

    /// How many elements; an error if the key holds something else.
    pub fn len(self, name: &[u8], kind: CollectionKind) -> Result<u64> {
        let collection = Collection::open(self.txn, name, kind)?;
        if collection.may_hide(self.txn) {
            return collection.live_len(self.several_rows()?);
        }
        Ok(collection.len())
    }

    /// The row of a field or member.
    pub fn element(self, name: &[u8], kind: CollectionKind, sub: &[u8]) -> Result<Option<Row<'t>>> {
        let mut collection = Collection::open(self.txn, name, kind)?;
        loop {
            if let Some(row) = collection.get(self.txn, sub)? {
                return Ok(Some(row));
            }
            let lookups = self.txn.lookups();
            let again = Collection::open(self.txn, name, kind)?;
            self.txn.restore_lookups(lookups);
            if again.version() == collection.version() {
                return Ok(None);
            }
            collection = again;
        }
    }

    /// The byte at a place in a string: zero where there is none.
    pub fn byte(self, name: &'t [u8], at: u64) -> Result<u8> {
        let Some(mut string) = self.string(name)? else {
            return Ok(0);
        };
        loop {
            if let Some(byte) = string.byte(self.txn, at)? {
                return Ok(byte);
            }
            let lookups = self.txn.lookups();
            let again = self.string(name);
            self.txn.restore_lookups(lookups);
            match again? {
                Some(again) if again.version() != string.version() => string = again,
                _ => return Ok(0),
            }
        }
    }

    /// For values that lie in several rows: the transaction, if the latch is held; else the command is
    /// run again with it.
    pub fn several_rows(self) -> Result<&'t ReadTxn> {
        if self.is_latched {
            Ok(self.txn)
        } else {
            self.txn.restore_lookups(Lookups::default());
            Err(Error::Unlatched)
        }
    }
}
