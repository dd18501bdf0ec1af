//! A whole new list, for results of unknown size.

use cairn_encoding::LIST_ORIGIN;
use cairn_encoding::chunk::index_sub;
use cairn_encoding::metadata::{Body, Metadata};
use cairn_engine::Family;

use crate::effects::EventClass;
use crate::error::Result;
use crate::fresh::Fresh;
use crate::key::Key;
use crate::txn::{Found, WriteTxn};

/// Writes a list under a version that nobody sees before [`Builder::finish`]. Until then the key holds what it held,
/// so the elements may come from it.
pub struct Builder {
    key: Key,
    version: u64,
    tail: u64,
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
            tail: LIST_ORIGIN,
        }
    }

    /// Adds an element behind the others.
    pub fn push(&mut self, txn: &WriteTxn, element: &[u8]) -> Result<()> {
        let row_key = self.key.data(self.version, &index_sub(self.tail));
        self.fresh.put(txn, Family::Data, &row_key, element)?;
        self.tail += 1;
        Ok(())
    }

    /// Puts the new list in place of whatever the key holds, or nothing if it is empty. Gives its length.
    pub fn finish(self, txn: &mut WriteTxn) -> Result<u64> {
        let replaced = txn
            .find_even_expired(&self.key)?
            .map(|found| Found::stamp(&found));
        if let Some(replaced) = replaced {
            txn.remove(&self.key, &replaced);
        }
        let was_live = replaced.is_some_and(|replaced| txn.is_live(&replaced));
        let size = self.tail - LIST_ORIGIN;
        if size == 0 {
            if was_live {
                txn.notify(EventClass::Generic, "del", self.key.name());
            }
            return Ok(0);
        }
        self.fresh.finish(txn);
        let metadata = Metadata {
            expire_ms: 0,
            body: Body::List {
                version: self.version,
                size,
                head: LIST_ORIGIN,
                tail: self.tail,
            },
        };
        txn.put_metadata(&self.key, &metadata, 0);
        if !was_live {
            txn.notify_new(&self.key);
        }
        Ok(size)
    }
}
