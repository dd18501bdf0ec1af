//! A whole new stream, for one that comes from outside: its entries, then what is known of it, then its groups.

use cairn_encoding::metadata::{Body, Metadata};
use cairn_encoding::stream::{self as layout, Head, Id, Sub, entry_sub};
use cairn_engine::Family;

use super::Stream;
use crate::error::Result;
use crate::fresh::Fresh;
use crate::txn::WriteTxn;

/// Writes rows under a version that nobody sees before [`Builder::finish`], which makes them the value of the key. By
/// then the key must be absent.
pub struct Builder {
    stream: Stream,
    fresh: Fresh,
    /// The group that is being written, and its last consumer: their rows say how much they have.
    group: Option<(Vec<u8>, layout::Group)>,
    consumer: Option<(Vec<u8>, layout::Consumer)>,
}

impl Builder {
    pub fn new(txn: &WriteTxn, name: &[u8]) -> Builder {
        let head = Head {
            version: txn.next_version(),
            size: 0,
            added: 0,
            groups: 0,
            floor: Id::MIN,
            last: Id::MIN,
            deleted: Id::MIN,
        };
        let stream = Stream {
            key: txn.key(name),
            head,
            expire_ms: 0,
            stored: None,
            cut: 0,
        };
        Builder {
            fresh: Fresh::new(&stream.key, head.version),
            stream,
            group: None,
            consumer: None,
        }
    }

    /// Adds an entry, in the order of IDs.
    pub fn entry(&mut self, txn: &WriteTxn, id: Id, entry: &[u8]) -> Result<()> {
        let head = &mut self.stream.head;
        if head.size == 0 {
            head.floor = id;
        }
        head.size += 1;
        self.put(txn, &entry_sub(id), entry)
    }

    /// What is known of the stream besides its entries.
    pub fn facts(&mut self, last: Id, deleted: Id, added: u64) {
        let head = &mut self.stream.head;
        (head.last, head.deleted, head.added) = (last, deleted, added);
    }

    /// Begins a group. How much of the stream it has read may be known, or not, or for nobody to say.
    pub fn group(
        &mut self,
        txn: &WriteTxn,
        name: &[u8],
        last: Id,
        read: Option<Option<u64>>,
    ) -> Result<()> {
        self.end_group(txn)?;
        self.stream.head.groups += 1;
        let facts = layout::Group {
            last,
            read: read.unwrap_or_else(|| self.stream.added_up_to(last)),
            consumers: 0,
            pending: 0,
            low: Id::MIN,
        };
        self.group = Some((name.to_vec(), facts));
        Ok(())
    }

    /// Begins a consumer of the last group.
    pub fn consumer(&mut self, txn: &WriteTxn, name: &[u8], seen_ms: u64) -> Result<()> {
        self.end_consumer(txn)?;
        if let Some((_, group)) = &mut self.group {
            group.consumers += 1;
        }
        let facts = layout::Consumer {
            seen_ms,
            pending: 0,
        };
        self.consumer = Some((name.to_vec(), facts));
        Ok(())
    }

    /// Adds what the last consumer has pending.
    pub fn pending(
        &mut self,
        txn: &WriteTxn,
        id: Id,
        delivered_ms: u64,
        deliveries: u64,
    ) -> Result<()> {
        let (Some((group, facts)), Some((consumer, owner))) = (&mut self.group, &mut self.consumer)
        else {
            return Ok(());
        };
        facts.low = match facts.pending {
            0 => id,
            _ => facts.low.min(id),
        };
        facts.pending += 1;
        owner.pending += 1;
        let pending = Sub::Pending { group, id }.encode();
        let owned = Sub::Owned {
            group,
            consumer,
            id,
        };
        let owned = owned.encode();
        let value = layout::Pending {
            delivered_ms,
            deliveries,
            consumer,
        };
        let value = value.encode();
        self.put(txn, &pending, &value)?;
        self.put(txn, &owned, &[])
    }

    fn end_consumer(&mut self, txn: &WriteTxn) -> Result<()> {
        let Some((consumer, facts)) = self.consumer.take() else {
            return Ok(());
        };
        let group = self.group.as_ref().map_or(&[][..], |(group, _)| group);
        let consumer = &consumer[..];
        let sub = Sub::Consumer { group, consumer }.encode();
        self.put(txn, &sub, &facts.encode())
    }

    fn end_group(&mut self, txn: &WriteTxn) -> Result<()> {
        self.end_consumer(txn)?;
        match self.group.take() {
            Some((name, facts)) => self.put(txn, &Sub::Group(&name).encode(), &facts.encode()),
            None => Ok(()),
        }
    }

    fn put(&mut self, txn: &WriteTxn, sub: &[u8], value: &[u8]) -> Result<()> {
        let row_key = self.stream.row_key(sub);
        self.fresh.put(txn, Family::Data, &row_key, value)
    }

    pub fn finish(mut self, txn: &mut WriteTxn, expire_ms: u64) -> Result<()> {
        self.end_group(txn)?;
        self.fresh.finish(txn);
        let Stream { key, head, .. } = &self.stream;
        let body = Body::Stream {
            version: head.version,
            size: head.size,
            rest: &head.rest(),
        };
        txn.put_metadata(key, &Metadata { expire_ms, body }, 0);
        txn.notify_new(key);
        Ok(())
    }
}
