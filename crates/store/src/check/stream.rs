//! Whether the rows of a stream agree with each other.
//!
//! They come in order: entries, groups, consumers, and then what is pending, twice, once by ID and once by consumer. Of
//! the two nothing is kept but sums, so groups and consumers are all that takes memory.

use std::collections::BTreeMap;
use std::hash::Hasher;

use cairn_encoding::DecodeError;
use cairn_encoding::metadata::Type;
use cairn_encoding::stream::{Consumer, Fields, Group, Head, Id, Pending, Sub};
use rustc_hash::FxHasher;

use super::fault::{Fault, Place};
use super::log::Log;

#[derive(Default)]
pub struct StreamRows {
    entries: u64,
    groups: BTreeMap<Vec<u8>, GroupRows>,
}

struct GroupRows {
    told: Group,
    pending: Sum,
    owned: Sum,
    consumers: BTreeMap<Vec<u8>, ConsumerRows>,
}

struct ConsumerRows {
    told: u64,
    owned: u64,
}

/// Pending entries with their consumers, regardless of order.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Sum {
    rows: u64,
    hashes: u64,
}

impl Sum {
    fn add(&mut self, id: Id, consumer: &[u8]) {
        let mut hasher = FxHasher::default();
        hasher.write(consumer);
        hasher.write_u64(id.ms);
        hasher.write_u64(id.seq);
        self.rows += 1;
        self.hashes = self.hashes.wrapping_add(hasher.finish());
    }
}

impl StreamRows {
    pub fn add(
        &mut self,
        head: &Head,
        sub: &[u8],
        value: &[u8],
        place: &Place,
        log: &mut Log<'_>,
    ) -> Result<(), DecodeError> {
        match Sub::decode(sub)? {
            Sub::Entry(id) => self.entry(head, id, value, place, log)?,
            Sub::Group(name) => {
                let rows = GroupRows {
                    told: Group::decode(value)?,
                    pending: Sum::default(),
                    owned: Sum::default(),
                    consumers: BTreeMap::new(),
                };
                self.groups.insert(name.to_vec(), rows);
            }
            Sub::Consumer { group, consumer } => {
                let rows = ConsumerRows {
                    told: Consumer::decode(value)?.pending,
                    owned: 0,
                };
                if let Some(group) = self.group(group, place, log) {
                    group.consumers.insert(consumer.to_vec(), rows);
                }
            }
            Sub::Pending { group: name, id } => {
                let pending = Pending::decode(value)?;
                if let Some(group) = self.group(name, place, log) {
                    group.pending.add(id, pending.consumer);
                    let low = group.told.low;
                    if id < low {
                        let group = name.to_vec();
                        log.fault(place, Fault::PendingBelowLow { group, id, low });
                    }
                }
            }
            Sub::Owned {
                group,
                consumer,
                id,
            } => {
                if let Some(group) = self.group(group, place, log) {
                    group.owned.add(id, consumer);
                    if let Some(consumer) = group.consumers.get_mut(consumer) {
                        consumer.owned += 1;
                    }
                }
            }
        }
        Ok(())
    }

    fn entry(
        &mut self,
        head: &Head,
        id: Id,
        value: &[u8],
        place: &Place,
        log: &mut Log<'_>,
    ) -> Result<(), DecodeError> {
        if id < head.floor {
            log.summary.orphans.cut_off += 1;
            return Ok(());
        }
        let (first, floor, last) = (id, head.floor, head.last);
        if self.entries == 0 && id != floor {
            log.fault(place, Fault::StreamFloor { first, floor });
        }
        if id > last {
            log.fault(place, Fault::EntryAboveLast { id, last });
        }
        self.entries += 1;
        Fields::of(value).try_for_each(|field| field.map(|_| ()))
    }

    fn group(&mut self, name: &[u8], place: &Place, log: &mut Log<'_>) -> Option<&mut GroupRows> {
        let group = self.groups.get_mut(name);
        if group.is_none() {
            let group = name.to_vec();
            log.fault(place, Fault::StrayGroupRows { group });
        }
        group
    }

    /// After the last row.
    pub fn finish(self, head: &Head, place: &Place, log: &mut Log<'_>) {
        let (size, rows) = (head.size, self.entries);
        if size != rows {
            let kind = Type::Stream;
            log.fault(place, Fault::Size { kind, size, rows });
        }
        let (groups, rows) = (head.groups, self.groups.len() as u64);
        if groups != rows {
            log.fault(place, Fault::Groups { groups, rows });
        }
        for (name, group) in self.groups {
            group.finish(name, place, log);
        }
    }
}

impl GroupRows {
    fn finish(self, group: Vec<u8>, place: &Place, log: &mut Log<'_>) {
        let (told, rows) = (self.told.consumers, self.consumers.len() as u64);
        if told != rows {
            let group = group.clone();
            log.fault(place, Fault::Consumers { group, told, rows });
        }
        let (told, rows) = (self.told.pending, self.pending.rows);
        if told != rows {
            let group = group.clone();
            log.fault(place, Fault::Pending { group, told, rows });
        }
        for (consumer, rows) in self.consumers {
            let (told, rows) = (rows.told, rows.owned);
            if told != rows {
                let group = group.clone();
                let fault = Fault::Owned {
                    group,
                    consumer,
                    told,
                    rows,
                };
                log.fault(place, fault);
            }
        }
        if self.pending != self.owned {
            log.fault(place, Fault::PendingDiffer { group });
        }
    }
}
