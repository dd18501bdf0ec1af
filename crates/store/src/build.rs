//! A whole new collection, element by element, for results of unknown size and for what comes from outside.
//! (`stream::Builder` does the same for streams.)

use cairn_encoding::chunk::index_sub;
use cairn_encoding::field_expiry::{self, FieldTimes};
use cairn_encoding::metadata::{Body, CollectionKind, Metadata};
use cairn_encoding::{LIST_ORIGIN, score};
use cairn_engine::Family;

use crate::effects::EventClass;
use crate::error::Result;
use crate::fresh::Fresh;
use crate::key::Key;
use crate::txn::{Found, WriteTxn};

/// Writes rows under a version that nobody sees before one of the `finish` methods, which put them in place of whatever
/// the key holds, or nothing if there are none. Until then the key holds what it held, so the elements may come from
/// it.
pub struct Builder {
    key: Key,
    version: u64,
    size: u64,
    fields: Option<FieldTimes>,
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
            fields: None,
        }
    }

    /// Adds a field that was not added before.
    pub fn field(&mut self, txn: &WriteTxn, field: &[u8], value: &[u8]) -> Result<()> {
        self.put(txn, field, value)
    }

    /// Adds a field that was not added before, and that expires.
    pub fn field_until(
        &mut self,
        txn: &WriteTxn,
        field: &[u8],
        value: &[u8],
        at_ms: u64,
    ) -> Result<()> {
        self.put(txn, field, value)?;
        let by_name = self.key.field(self.version, field);
        let time = field_expiry::encode(at_ms);
        self.fresh.put(txn, Family::ZsetScore, &by_name, time)?;
        let by_time = self.key.field_time(self.version, at_ms, field);
        self.fresh.put(txn, Family::ZsetScore, &by_time, [])?;
        self.fields = Some(match self.fields {
            Some(fields) => fields.with(at_ms),
            None => FieldTimes::of(at_ms),
        });
        Ok(())
    }

    /// Adds a member that was not added before.
    pub fn member(&mut self, txn: &WriteTxn, member: &[u8]) -> Result<()> {
        self.put(txn, member, &[])
    }

    /// Adds a member with its score that was not added before.
    pub fn scored(&mut self, txn: &WriteTxn, member: &[u8], score: f64) -> Result<()> {
        self.put(txn, member, &score::encode(score))?;
        let ordered = self.key.score(self.version, score, member);
        self.fresh.put(txn, Family::ZsetScore, &ordered, [])
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

    pub fn finish_hash(self, txn: &mut WriteTxn, expire_ms: u64) -> Result<u64> {
        self.finish_collection(txn, CollectionKind::Hash, expire_ms)
    }

    pub fn finish_set(self, txn: &mut WriteTxn, expire_ms: u64) -> Result<u64> {
        self.finish_collection(txn, CollectionKind::Set, expire_ms)
    }

    pub fn finish_zset(self, txn: &mut WriteTxn, expire_ms: u64) -> Result<u64> {
        self.finish_collection(txn, CollectionKind::ZSet, expire_ms)
    }

    fn finish_collection(
        self,
        txn: &mut WriteTxn,
        kind: CollectionKind,
        expire_ms: u64,
    ) -> Result<u64> {
        let body = Body::Collection {
            kind,
            version: self.version,
            size: self.size,
            is_counted: false,
            fields: self.fields,
        };
        self.finish(txn, body, expire_ms)
    }

    pub fn finish_list(self, txn: &mut WriteTxn, expire_ms: u64) -> Result<u64> {
        let body = Body::List {
            version: self.version,
            size: self.size,
            head: LIST_ORIGIN,
            tail: LIST_ORIGIN + self.size,
        };
        self.finish(txn, body, expire_ms)
    }

    /// Puts it in place of whatever the key holds, or nothing if it is empty. Gives its size.
    fn finish(self, txn: &mut WriteTxn, body: Body<'_>, expire_ms: u64) -> Result<u64> {
        let replaced = txn
            .find_even_expired(&self.key)?
            .map(|found| Found::stamp(&found));
        if let Some(replaced) = replaced {
            txn.remove(&self.key, &replaced);
        }
        let was_live = replaced.is_some_and(|replaced| txn.is_live(&replaced));
        if self.size == 0 {
            if was_live {
                txn.notify(EventClass::Generic, "del", self.key.name());
            }
            return Ok(0);
        }
        self.fresh.finish(txn);
        txn.put_metadata(&self.key, &Metadata { expire_ms, body }, 0);
        let expiry = self.fields.map(|fields| (fields.first_ms, self.version));
        txn.move_fields_expiry(&self.key, None, expiry);
        if !was_live {
            txn.notify_new(&self.key);
        }
        Ok(self.size)
    }
}
