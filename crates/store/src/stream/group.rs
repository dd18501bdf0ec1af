//! Consumer groups of a stream: what was delivered to whom, and has not been acknowledged.
//!
//! A pending entry has a row in the order of IDs, which says who has it, and one in the order of its consumer's. So to
//! acknowledge an entry, to see what a consumer has, or to take over what is old, costs what it is about, however much
//! is pending.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::RangeInclusive;

use cairn_encoding::row::RowBytes;
use cairn_encoding::stream::{self as layout, Id, Sub};
use cairn_engine::{Direction, EngineError, Family, Rows};

use super::Stream;
use crate::error::Result;
use crate::txn::{ReadTxn, WriteTxn};

/// How many pending entries are deleted before that is committed, where it may be. With very many, one batch would take
/// too much memory.
const DELETED_AT_ONCE: u64 = 10_000;

/// A group as a command works on it. What changes of it and of its consumers is kept here until [`Group::save`].
pub struct Group {
    name: Vec<u8>,
    facts: layout::Group,
    is_changed: bool,
    /// Those that were asked for, and whether they changed.
    consumers: BTreeMap<Vec<u8>, (layout::Consumer, bool)>,
}

/// A pending entry: to whom it was delivered, when last, and how often.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delivery {
    pub consumer: Vec<u8>,
    pub at_ms: u64,
    pub count: u64,
}

impl Delivery {
    pub fn decode(value: &[u8]) -> Result<Delivery> {
        let pending = layout::Pending::decode(value)?;
        Ok(Delivery {
            consumer: pending.consumer.to_vec(),
            at_ms: pending.delivered_ms,
            count: pending.deliveries,
        })
    }
}

impl Stream {
    pub fn group(&self, txn: &ReadTxn, name: &[u8]) -> Result<Option<Group>> {
        if self.head.groups == 0 {
            return Ok(None);
        }
        let row = txn.row(Family::Data, &self.row_key(&Sub::Group(name).encode()))?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some(Group::new(name, layout::Group::decode(&row)?)))
    }

    /// Creates a group that is not there.
    pub fn create_group(
        &mut self,
        txn: &mut WriteTxn,
        name: &[u8],
        last: Id,
        read: Option<u64>,
    ) -> Group {
        self.ensure_version(txn);
        self.head.groups += 1;
        let facts = layout::Group {
            last,
            read,
            consumers: 0,
            pending: 0,
            low: Id::MIN,
        };
        let mut group = Group::new(name, facts);
        group.is_changed = true;
        group
    }

    /// Deletes a group with all that is pending. A crash may leave it with a part of that.
    pub fn destroy_group(&mut self, txn: &mut WriteTxn, mut group: Group) -> Result<()> {
        for (consumer, _) in self.consumers(txn, &group)? {
            self.delete_consumer(txn, &mut group, &consumer)?;
        }
        txn.delete(
            Family::Data,
            &self.row_key(&Sub::Group(&group.name).encode()),
        );
        self.head.groups -= 1;
        Ok(())
    }

    /// The names of all groups, with what is known of them.
    pub fn all_groups(&self, txn: &ReadTxn) -> Result<Vec<Group>> {
        let mut groups = Vec::new();
        if self.head.groups > 0 {
            let mut rows = self.rows_with(txn, &Sub::groups(), Direction::Forward)?;
            while let Some((row_key, value)) = rows.next()? {
                txn.step()?;
                if let Sub::Group(name) = Sub::decode(self.key.sub_of(row_key))? {
                    groups.push(Group::new(name, layout::Group::decode(value)?));
                }
            }
        }
        Ok(groups)
    }

    /// The names of a group's consumers, in order, with when they were seen and how much they have.
    pub fn consumers(
        &self,
        txn: &ReadTxn,
        group: &Group,
    ) -> Result<Vec<(Vec<u8>, layout::Consumer)>> {
        let mut consumers = Vec::new();
        let prefix = Sub::consumers_of(&group.name);
        let mut rows = self.rows_with(txn, &prefix, Direction::Forward)?;
        while let Some((row_key, value)) = rows.next()? {
            txn.step()?;
            if let Sub::Consumer { consumer, .. } = Sub::decode(self.key.sub_of(row_key))? {
                consumers.push((consumer.to_vec(), layout::Consumer::decode(value)?));
            }
        }
        Ok(consumers)
    }

    /// What a group has pending in a range, or one of its consumers. Both kinds of rows end with the ID
    /// ([`Stream::pending_id`]); only the group's say more ([`Delivery::decode`]).
    pub fn pending_rows(
        &self,
        txn: &ReadTxn,
        group: &Group,
        consumer: Option<&[u8]>,
        ids: RangeInclusive<Id>,
        direction: Direction,
    ) -> Result<Rows> {
        let prefix = match consumer {
            None => Sub::pending_of(&group.name),
            Some(consumer) => Sub::owned_by(&group.name, consumer),
        };
        let from = group.facts.low.max(*ids.start());
        let lower = self.row_key(&[&prefix[..], &from.encode()].concat());
        let mut upper = [&prefix[..], &ids.end().encode()].concat();
        // Behind it, as nothing else ends so.
        upper.push(0);
        let upper = self.row_key(&upper);
        let upper = (&*upper).max(&*lower);
        txn.rows(Family::Data, &lower, upper, direction)
    }

    pub fn pending_id(&self, row_key: &[u8]) -> Result<Id> {
        match Sub::decode(self.key.sub_of(row_key))? {
            Sub::Pending { id, .. } | Sub::Owned { id, .. } => Ok(id),
            _ => Err(EngineError::Corrupt("a pending entry is something else".into()).into()),
        }
    }

    /// Who has a pending entry.
    pub fn delivery(&self, txn: &ReadTxn, group: &Group, id: Id) -> Result<Option<Delivery>> {
        if group.facts.pending == 0 || id < group.facts.low {
            return Ok(None);
        }
        let row = txn.row(Family::Data, &self.pending_key(group, id))?;
        row.map(|row| Delivery::decode(&row)).transpose()
    }

    /// Gives an entry to a consumer that exists, from whoever has it.
    pub fn deliver(
        &self,
        txn: &mut WriteTxn,
        group: &mut Group,
        id: Id,
        delivery: &Delivery,
    ) -> Result<()> {
        let before = self.delivery(txn, group, id)?;
        if before.as_ref().map(|before| &before.consumer) != Some(&delivery.consumer) {
            match before {
                Some(before) => self.disown(txn, group, id, &before.consumer)?,
                None => group.add_pending(id),
            }
            let row_key = self.owned_key(group, &delivery.consumer, id);
            txn.put(Family::Data, &row_key, []);
            group.change_pending(self, txn, &delivery.consumer, |pending| pending + 1)?;
        }
        let value = layout::Pending {
            delivered_ms: delivery.at_ms,
            deliveries: delivery.count,
            consumer: &delivery.consumer,
        };
        txn.put(Family::Data, &self.pending_key(group, id), value.encode());
        Ok(())
    }

    /// An entry is not pending any more; true if it was.
    pub fn acknowledge(&self, txn: &mut WriteTxn, group: &mut Group, id: Id) -> Result<bool> {
        let Some(delivery) = self.delivery(txn, group, id)? else {
            return Ok(false);
        };
        self.disown(txn, group, id, &delivery.consumer)?;
        txn.delete(Family::Data, &self.pending_key(group, id));
        group.remove_pending(id);
        Ok(true)
    }

    fn disown(&self, txn: &mut WriteTxn, group: &mut Group, id: Id, consumer: &[u8]) -> Result<()> {
        txn.delete(Family::Data, &self.owned_key(group, consumer, id));
        group.change_pending(self, txn, consumer, |pending| pending.saturating_sub(1))
    }

    /// Deletes a consumer and tells how much it had pending; none if it was not there. A crash may leave it with a part
    /// of that.
    pub fn delete_consumer(
        &self,
        txn: &mut WriteTxn,
        group: &mut Group,
        consumer: &[u8],
    ) -> Result<Option<u64>> {
        let Some(facts) = group.consumer(self, txn, consumer)? else {
            return Ok(None);
        };
        self.delete_owned(txn, group, consumer)?;
        let sub = Sub::Consumer {
            group: &group.name,
            consumer,
        };
        txn.delete(Family::Data, &self.row_key(&sub.encode()));
        group.consumers.remove(consumer);
        group.facts.consumers -= 1;
        group.is_changed = true;
        Ok(Some(facts.pending))
    }

    /// What a consumer has is pending no more.
    fn delete_owned(&self, txn: &mut WriteTxn, group: &mut Group, consumer: &[u8]) -> Result<()> {
        let prefix = Sub::owned_by(&group.name, consumer);
        let mut rows = self.rows_with(txn, &prefix, Direction::Forward)?;
        let mut deleted = 0;
        while let Some((row_key, _)) = rows.next()? {
            txn.step()?;
            let id = self.pending_id(row_key)?;
            txn.delete(Family::Data, row_key);
            txn.delete(Family::Data, &self.pending_key(group, id));
            deleted += 1;
            if deleted == DELETED_AT_ONCE {
                group.forget_pending(self, txn, consumer, deleted)?;
                deleted = 0;
                group.write(txn, self);
                txn.commit_ahead()?;
            }
        }
        group.forget_pending(self, txn, consumer, deleted)
    }

    /// The rows whose sub-keys begin so.
    fn rows_with(&self, txn: &ReadTxn, prefix: &[u8], direction: Direction) -> Result<Rows> {
        let lower = self.row_key(prefix);
        let mut upper = lower.to_vec();
        // A sub-key begins with a small number, so there is always a byte that can be raised.
        while upper.last() == Some(&u8::MAX) {
            upper.pop();
        }
        if let Some(last) = upper.last_mut() {
            *last += 1;
        }
        txn.rows(Family::Data, &lower, &upper, direction)
    }

    fn pending_key(&self, group: &Group, id: Id) -> RowBytes {
        let sub = Sub::Pending {
            group: &group.name,
            id,
        };
        self.row_key(&sub.encode())
    }

    fn owned_key(&self, group: &Group, consumer: &[u8], id: Id) -> RowBytes {
        let sub = Sub::Owned {
            group: &group.name,
            consumer,
            id,
        };
        self.row_key(&sub.encode())
    }
}

impl Group {
    fn new(name: &[u8], facts: layout::Group) -> Group {
        Group {
            name: name.to_vec(),
            facts,
            is_changed: false,
            consumers: BTreeMap::new(),
        }
    }

    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The last entry that was delivered.
    pub fn last(&self) -> Id {
        self.facts.last
    }

    /// How many entries up to the last were ever added, if it is known.
    pub fn read(&self) -> Option<u64> {
        self.facts.read
    }

    pub fn consumer_count(&self) -> u64 {
        self.facts.consumers
    }

    pub fn pending(&self) -> u64 {
        self.facts.pending
    }

    /// No pending entry lies below.
    pub fn low(&self) -> Id {
        self.facts.low
    }

    /// How many entries it has not been delivered, if that can be told. Negative if it was told to have read more than
    /// there were.
    pub fn lag(&self, stream: &Stream) -> Option<i64> {
        let read = match self.facts.read {
            _ if stream.head.added == 0 => return Some(0),
            Some(read) if !stream.has_gaps_from(self.facts.last) => read,
            _ => stream.added_up_to(self.facts.last)?,
        };
        Some(stream.head.added.wrapping_sub(read) as i64)
    }

    pub fn set_last(&mut self, id: Id, read: Option<u64>) {
        self.facts.last = id;
        self.facts.read = read;
        self.is_changed = true;
    }

    /// An entry is delivered that comes after the last.
    pub fn advance(&mut self, stream: &Stream, id: Id) {
        let read = match self.facts.read {
            Some(read) if !stream.has_gaps_from(id) => Some(read.wrapping_add(1)),
            read if stream.head.added == 0 => read,
            _ => stream.added_up_to(id),
        };
        self.set_last(id, read);
    }

    /// No pending entry lies below: found out by a walk.
    pub fn raise_low(&mut self, id: Id) {
        if id > self.facts.low {
            self.facts.low = id;
            self.is_changed = true;
        }
    }

    /// What is known of a consumer, if it is there.
    pub fn consumer(
        &mut self,
        stream: &Stream,
        txn: &ReadTxn,
        name: &[u8],
    ) -> Result<Option<layout::Consumer>> {
        let unknown = match self.consumers.entry(name.to_vec()) {
            Entry::Occupied(known) => return Ok(Some(known.get().0)),
            Entry::Vacant(unknown) => unknown,
        };
        let sub = Sub::Consumer {
            group: &self.name,
            consumer: name,
        };
        let Some(row) = txn.row(Family::Data, &stream.row_key(&sub.encode()))? else {
            return Ok(None);
        };
        let consumer = layout::Consumer::decode(&row)?;
        unknown.insert((consumer, false));
        Ok(Some(consumer))
    }

    /// A consumer is heard of; true if it is new.
    pub fn see(&mut self, stream: &Stream, txn: &ReadTxn, name: &[u8]) -> Result<bool> {
        let known = self.consumer(stream, txn, name)?;
        let consumer = layout::Consumer {
            seen_ms: txn.wall_ms(),
            pending: known.map_or(0, |known| known.pending),
        };
        self.consumers.insert(name.to_vec(), (consumer, true));
        if known.is_none() {
            self.facts.consumers += 1;
            self.is_changed = true;
        }
        Ok(known.is_none())
    }

    fn change_pending(
        &mut self,
        stream: &Stream,
        txn: &ReadTxn,
        name: &[u8],
        change: impl FnOnce(u64) -> u64,
    ) -> Result<()> {
        let mut consumer = self
            .consumer(stream, txn, name)?
            .ok_or_else(|| EngineError::Corrupt("a pending entry's consumer is missing".into()))?;
        consumer.pending = change(consumer.pending);
        self.consumers.insert(name.to_vec(), (consumer, true));
        Ok(())
    }

    /// So many of what a consumer had are pending no more.
    fn forget_pending(
        &mut self,
        stream: &Stream,
        txn: &ReadTxn,
        name: &[u8],
        count: u64,
    ) -> Result<()> {
        self.facts.pending -= count;
        self.is_changed = true;
        self.change_pending(stream, txn, name, |pending| pending.saturating_sub(count))
    }

    fn add_pending(&mut self, id: Id) {
        self.facts.low = match self.facts.pending {
            0 => id,
            _ => self.facts.low.min(id),
        };
        self.facts.pending += 1;
        self.is_changed = true;
    }

    fn remove_pending(&mut self, id: Id) {
        self.facts.pending -= 1;
        if id == self.facts.low {
            self.facts.low = id.next().unwrap_or(id);
        }
        self.is_changed = true;
    }

    /// Writes what changed: to be called after the last change.
    pub fn save(self, txn: &mut WriteTxn, stream: &Stream) {
        self.write(txn, stream);
    }

    fn write(&self, txn: &mut WriteTxn, stream: &Stream) {
        let group = &self.name[..];
        for (consumer, (facts, is_changed)) in &self.consumers {
            if *is_changed {
                let sub = Sub::Consumer { group, consumer };
                txn.put(Family::Data, &stream.row_key(&sub.encode()), facts.encode());
            }
        }
        if self.is_changed {
            let row_key = stream.row_key(&Sub::Group(group).encode());
            txn.put(Family::Data, &row_key, self.facts.encode());
        }
    }
}
