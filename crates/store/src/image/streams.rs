//! What a stream before the reader holds: its entries, and its groups with all that they have pending.
//!
//! Groups, their consumers and what is pending lie in ranges of their own, and one walk goes from the one to the other:
//! it remembers the group and the consumer that it has come to, and finds the next ones behind these.

use cairn_encoding::stream::{self as layout, Head, Id, Pending, Sub, entry_sub};

use cairn_engine::Rows;

use super::Image;
use super::elements::lacking;
use crate::error::Result;

/// How far a stream has been read.
#[derive(Default)]
pub(super) struct StreamWalk {
    entries_left: u64,
    groups_left: u64,
    group: Option<Vec<u8>>,
    deliveries_left: u64,
    consumers_left: u64,
    consumer: Option<Vec<u8>>,
    owned_left: u64,
}

/// A group of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PicturedGroup {
    pub name: Vec<u8>,
    pub last: Id,
    pub read: Option<u64>,
    pub consumers: u64,
    pub pending: u64,
}

/// A consumer of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PicturedConsumer {
    pub name: Vec<u8>,
    pub seen_ms: u64,
    pub pending: u64,
}

/// An entry that is pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PicturedDelivery {
    pub id: Id,
    pub delivered_ms: u64,
    pub deliveries: u64,
}

impl Image {
    /// The next entry of the stream is its first.
    pub fn rewind_entries(&mut self, head: &Head) {
        self.seek_sub(&entry_sub(head.floor));
        self.stream = StreamWalk {
            entries_left: head.size,
            ..StreamWalk::default()
        };
    }

    /// The next entry: its ID, and its fields and values (`stream::Fields`).
    pub fn next_entry(&mut self) -> Result<Option<(Id, &[u8])>> {
        let Some(left) = self.stream.entries_left.checked_sub(1) else {
            return Ok(None);
        };
        self.stream.entries_left = left;
        let key = &self.key;
        match next_sub(&mut self.data, self.walk.prefix())? {
            Some((Sub::Entry(id), entry)) => Ok(Some((id, entry))),
            _ => Err(lacking(key)),
        }
    }

    /// The next group of the stream is its first.
    pub fn rewind_groups(&mut self, head: &Head) {
        self.stream = StreamWalk {
            groups_left: head.groups,
            ..StreamWalk::default()
        };
    }

    /// The next group. What it has pending is to be asked for next, and then its consumers.
    pub fn next_group(&mut self) -> Result<Option<PicturedGroup>> {
        let Some(left) = self.stream.groups_left.checked_sub(1) else {
            return Ok(None);
        };
        self.stream.groups_left = left;
        let from = match &self.stream.group {
            Some(group) => after(Sub::Group(group)),
            None => Sub::groups(),
        };
        self.seek_sub(&from);
        let group = match self.next_sub()? {
            Some((Sub::Group(name), value)) => {
                let group = layout::Group::decode(value)?;
                PicturedGroup {
                    name: name.to_vec(),
                    last: group.last,
                    read: group.read,
                    consumers: group.consumers,
                    pending: group.pending,
                }
            }
            _ => return Err(lacking(&self.key)),
        };
        self.seek_sub(&Sub::pending_of(&group.name));
        self.stream.deliveries_left = group.pending;
        self.stream.consumers_left = group.consumers;
        self.stream.consumer = None;
        self.stream.group = Some(group.name.clone());
        Ok(Some(group))
    }

    /// What the group has pending, in the order of IDs.
    pub fn next_delivery(&mut self) -> Result<Option<PicturedDelivery>> {
        let Some(left) = self.stream.deliveries_left.checked_sub(1) else {
            return Ok(None);
        };
        self.stream.deliveries_left = left;
        match self.next_sub()? {
            Some((Sub::Pending { id, .. }, value)) => {
                let pending = Pending::decode(value)?;
                Ok(Some(PicturedDelivery {
                    id,
                    delivered_ms: pending.delivered_ms,
                    deliveries: pending.deliveries,
                }))
            }
            _ => Err(lacking(&self.key)),
        }
    }

    /// The next consumer of the group. What it has pending is to be asked for next.
    pub fn next_consumer(&mut self) -> Result<Option<PicturedConsumer>> {
        let Some(left) = self.stream.consumers_left.checked_sub(1) else {
            return Ok(None);
        };
        self.stream.consumers_left = left;
        let group = self.stream.group.clone().unwrap_or_default();
        let group = &group[..];
        let from = match &self.stream.consumer {
            Some(consumer) => after(Sub::Consumer { group, consumer }),
            None => Sub::consumers_of(group),
        };
        self.seek_sub(&from);
        let consumer = match self.next_sub()? {
            Some((
                Sub::Consumer {
                    group: of,
                    consumer,
                },
                value,
            )) if of == group => {
                let facts = layout::Consumer::decode(value)?;
                PicturedConsumer {
                    name: consumer.to_vec(),
                    seen_ms: facts.seen_ms,
                    pending: facts.pending,
                }
            }
            _ => return Err(lacking(&self.key)),
        };
        self.seek_sub(&Sub::owned_by(group, &consumer.name));
        self.stream.owned_left = consumer.pending;
        self.stream.consumer = Some(consumer.name.clone());
        Ok(Some(consumer))
    }

    /// What the consumer has pending, in the order of IDs.
    pub fn next_owned(&mut self) -> Result<Option<Id>> {
        let Some(left) = self.stream.owned_left.checked_sub(1) else {
            return Ok(None);
        };
        self.stream.owned_left = left;
        match self.next_sub()? {
            Some((Sub::Owned { id, .. }, _)) => Ok(Some(id)),
            _ => Err(lacking(&self.key)),
        }
    }

    fn seek_sub(&mut self, sub: &[u8]) {
        self.data.seek(&self.key.data(self.version, sub));
    }

    fn next_sub(&mut self) -> Result<Option<(Sub<'_>, &[u8])>> {
        next_sub(&mut self.data, self.walk.prefix())
    }
}

/// The next row of a stream, if it begins as all of them do: its sub-key, and its value.
fn next_sub<'r>(data: &'r mut Rows, prefix: &[u8]) -> Result<Option<(Sub<'r>, &'r [u8])>> {
    Ok(match data.next()? {
        Some((row_key, value)) if row_key.starts_with(prefix) => {
            Some((Sub::decode(&row_key[prefix.len()..])?, value))
        }
        _ => None,
    })
}

/// The least sub-key behind another.
fn after(sub: Sub<'_>) -> Vec<u8> {
    let mut sub = sub.encode();
    sub.push(0);
    sub
}
