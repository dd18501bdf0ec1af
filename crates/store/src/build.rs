//! A whole new hash, set or list, element by element, for what comes from outside. (`zset::Builder` and
//! `stream::Builder` do the same for sorted sets and streams.)

use cairn_encoding::LIST_ORIGIN;
use cairn_encoding::chunk::index_sub;
use cairn_encoding::metadata::{Body, CollectionKind, Metadata};
use cairn_engine::Family;

use crate::error::Result;
use crate::fresh::Fresh;
use crate::key::Key;
use crate::txn::WriteTxn;

/// Writes rows under a version that nobody sees before one of the `finish` methods, which make them the value of
/// the key. By then the key must be absent.
pub struct Builder {
    key: Key,
    version: u64,
    size: u64,
    fresh: Fresh,
}

impl Builder {
    pub fn new(txn: &WriteTxn, name: &[u8]) -> Builder {
        let key = txn.key(name);
        let version = txn.next_version();
        Builder {
            fresh: Fresh::new(&key, version),
            key,
            version,
            size: 0,
        }
    }

    /// Adds a field that was not added before.
    pub fn field(&mut self, txn: &WriteTxn, field: &[u8], value: &[u8]) -> Result<()> {
        self.put(txn, field, value)
    }

    /// Adds a member that was not added before.
    pub fn member(&mut self, txn: &WriteTxn, member: &[u8]) -> Result<()> {
        self.put(txn, member, &[])
    }

    /// Appends an element.
    pub fn element(&mut self, txn: &WriteTxn, element: &[u8]) -> Result<()> {
        self.put(txn, &index_sub(LIST_ORIGIN + self.size), element)
    }

    fn put(&mut self, txn: &WriteTxn, sub: &[u8], value: &[u8]) -> Result<()> {
        let row_key = self.key.data(self.version, sub);
        self.fresh.put(txn, Family::Data, &row_key, value)?;
        self.size += 1;
        Ok(())
    }

    pub fn finish_hash(self, txn: &mut WriteTxn, expire_ms: u64) {
        self.finish_collection(txn, CollectionKind::Hash, expire_ms);
    }

    pub fn finish_set(self, txn: &mut WriteTxn, expire_ms: u64) {
        self.finish_collection(txn, CollectionKind::Set, expire_ms);
    }

    fn finish_collection(self, txn: &mut WriteTxn, kind: CollectionKind, expire_ms: u64) {
        let body = Body::Collection {
            kind,
            version: self.version,
            size: self.size,
            is_counted: false,
        };
        self.finish(txn, body, expire_ms);
    }

    pub fn finish_list(self, txn: &mut WriteTxn, expire_ms: u64) {
        let body = Body::List {
            version: self.version,
            size: self.size,
            head: LIST_ORIGIN,
            tail: LIST_ORIGIN + self.size,
        };
        self.finish(txn, body, expire_ms);
    }

    fn finish(self, txn: &mut WriteTxn, body: Body<'_>, expire_ms: u64) {
        self.fresh.finish(txn);
        txn.put_metadata(&self.key, &Metadata { expire_ms, body }, 0);
        txn.notify_new(&self.key);
    }
}
