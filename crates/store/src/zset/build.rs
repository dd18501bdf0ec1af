//! A whole new sorted set, for results of unknown size.

use cairn_encoding::metadata::{Body, CollectionKind, Metadata};
use cairn_encoding::score;
use cairn_engine::Family;

use crate::effects::EventClass;
use crate::error::Result;
use crate::fresh::Fresh;
use crate::key::Key;
use crate::txn::{Found, WriteTxn};

/// Writes a sorted set under a version that nobody sees before [`Builder::finish`]. Until then the
/// key holds what it held, so the new members may come from it.
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

    /// Adds a member that was not added before.
    pub fn add(&mut self, txn: &WriteTxn, member: &[u8], score: f64) -> Result<()> {
        let data = self.key.data(self.version, member);
        let ordered = self.key.score(self.version, score, member);
        self.fresh
            .put(txn, Family::Data, &data, score::encode(score))?;
        self.fresh.put(txn, Family::ZsetScore, &ordered, [])?;
        self.size += 1;
        Ok(())
    }

    /// Puts the new sorted set in place of whatever the key holds, or nothing if it is empty. Gives its
    /// size.
    pub fn finish(self, txn: &mut WriteTxn, expire_ms: u64) -> Result<u64> {
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
        let metadata = Metadata {
            expire_ms,
            body: Body::Collection {
                kind: CollectionKind::ZSet,
                version: self.version,
                size: self.size,
                is_counted: false,
            },
        };
        txn.put_metadata(&self.key, &metadata, 0);
        if !was_live {
            txn.notify_new(&self.key);
        }
        Ok(self.size)
    }
}
