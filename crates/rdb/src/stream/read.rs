//! Reading a stream, step by step: each takes what [`Reading::needs`] says, and no more.

use std::mem::take;

use foldhash::HashSet;

use super::{Facts, Id, Read, UNKNOWN, node};
use crate::listpack::Value;
use crate::read::Item;
use crate::unit::Unit;
use crate::{Corrupt, Input};

type Visit<'v, E> = &'v mut dyn FnMut(Item<'_>) -> Result<(), E>;

/// Shows the entries, then the facts, and then group after group: each of its consumers, followed by what that has
/// pending.
pub struct Reading {
    writer: Writer,
    place: Place,
    entries: Entries,
    groups_left: u64,
    group_names: HashSet<Vec<u8>>,
    pending: Deliveries,
    consumers_left: u64,
    consumer_names: HashSet<Vec<u8>>,
}

/// Who has written a stream: the later, the more is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Writer {
    Before70,
    Redis70,
    Redis72,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    NodeCount,
    /// So many nodes, and not none: a step always reads something. So it is with the others.
    Nodes(u64),
    Facts,
    Group,
    Deliveries(u64),
    ConsumerCount,
    Consumer,
    Owned(u64),
    End,
}

impl Reading {
    pub fn new(writer: Writer) -> Reading {
        Reading {
            writer,
            place: Place::NodeCount,
            entries: Entries::default(),
            groups_left: 0,
            group_names: HashSet::default(),
            pending: Deliveries::default(),
            consumers_left: 0,
            consumer_names: HashSet::default(),
        }
    }

    fn tells_more(&self) -> bool {
        self.writer >= Writer::Redis70
    }

    pub fn is_done(&self) -> bool {
        self.place == Place::End
    }

    /// What the next step reads.
    pub fn needs(&self) -> &'static [Unit] {
        use Unit::{Bytes, Length, String};
        match self.place {
            Place::NodeCount | Place::ConsumerCount => &[Length],
            Place::Nodes(_) => &[String, String],
            // How many entries, the last ID, and how many groups; and between them, two IDs and a number.
            Place::Facts if self.tells_more() => &[Length; 9],
            Place::Facts => &[Length; 4],
            // Name, last ID, and how many are pending; and before that, how many were read.
            Place::Group if self.tells_more() => &[String, Length, Length, Length, Length],
            Place::Group => &[String, Length, Length, Length],
            Place::Deliveries(_) => &[Bytes(16), Bytes(8), Length],
            Place::Consumer if self.writer >= Writer::Redis72 => {
                &[String, Bytes(8), Bytes(8), Length]
            }
            Place::Consumer => &[String, Bytes(8), Length],
            Place::Owned(_) => &[Bytes(16)],
            Place::End => &[],
        }
    }

    pub fn step<E: From<Corrupt>>(
        &mut self,
        input: &mut Input<'_>,
        visit: Visit<'_, E>,
    ) -> Result<(), E> {
        self.place = match self.place {
            Place::NodeCount => nodes(input.length()?),
            Place::Nodes(left) => {
                self.entries.read_node(input, visit)?;
                nodes(left - 1)
            }
            Place::Facts => self.read_facts(input, visit)?,
            Place::Group => self.read_group(input, visit)?,
            Place::Deliveries(left) => {
                self.pending.read_one(input)?;
                deliveries(left - 1)
            }
            Place::ConsumerCount => {
                self.consumers_left = input.length()?;
                self.owned(0)?
            }
            Place::Consumer => self.read_consumer(input, visit)?,
            Place::Owned(left) => {
                self.read_owned(input, visit)?;
                self.owned(left - 1)?
            }
            Place::End => Place::End,
        };
        Ok(())
    }

    fn read_facts<E: From<Corrupt>>(
        &mut self,
        input: &mut Input<'_>,
        visit: Visit<'_, E>,
    ) -> Result<Place, E> {
        let length = input.length()?;
        let last = id(input)?;
        let facts = match self.tells_more() {
            true => Facts {
                length,
                last,
                first: id(input)?,
                deleted: id(input)?,
                added: input.length()?,
            },
            false => Facts {
                length,
                last,
                first: self.entries.first,
                deleted: Id::default(),
                added: length,
            },
        };
        if self.entries.number != length || self.entries.latest > last {
            return Err(Corrupt.into());
        }
        self.groups_left = input.length()?;
        visit(Item::Facts(facts))?;
        Ok(self.next_group())
    }

    fn next_group(&mut self) -> Place {
        match self.groups_left.checked_sub(1) {
            Some(left) => {
                self.groups_left = left;
                Place::Group
            }
            None => Place::End,
        }
    }

    fn read_group<E: From<Corrupt>>(
        &mut self,
        input: &mut Input<'_>,
        visit: Visit<'_, E>,
    ) -> Result<Place, E> {
        let name = input.string()?.into_owned();
        let last = id(input)?;
        let read = match self.tells_more() {
            false => Read::Untold,
            true => match input.length()? {
                UNKNOWN => Read::Unknown,
                known => Read::Known(known),
            },
        };
        let pending = input.length()?;
        let name = &name;
        visit(Item::Group { name, last, read })?;
        add_name(&mut self.group_names, name)?;
        Ok(deliveries(pending))
    }

    /// So many that the last consumer has pending, and then the next consumer, or the next group.
    fn owned(&mut self, left: u64) -> Result<Place, Corrupt> {
        if left > 0 {
            return Ok(Place::Owned(left));
        }
        if let Some(left) = self.consumers_left.checked_sub(1) {
            self.consumers_left = left;
            return Ok(Place::Consumer);
        }
        self.consumer_names.clear();
        take(&mut self.pending).finish()?;
        Ok(self.next_group())
    }

    fn read_consumer<E: From<Corrupt>>(
        &mut self,
        input: &mut Input<'_>,
        visit: Visit<'_, E>,
    ) -> Result<Place, E> {
        let name = input.string()?.into_owned();
        let seen_ms = time(input)?;
        if self.writer >= Writer::Redis72 {
            // When it last got an entry: that is not kept.
            time(input)?;
        }
        let owned = input.length()?;
        let name = &name;
        visit(Item::Consumer { name, seen_ms })?;
        add_name(&mut self.consumer_names, name)?;
        Ok(self.owned(owned)?)
    }

    fn read_owned<E: From<Corrupt>>(
        &mut self,
        input: &mut Input<'_>,
        visit: Visit<'_, E>,
    ) -> Result<(), E> {
        let id = Id::decode(input.take(16)?)?;
        let delivery = self.pending.take(id)?;
        visit(Item::Pending {
            id,
            delivered_ms: delivery.delivered_ms,
            deliveries: delivery.deliveries,
        })
    }
}

fn nodes(left: u64) -> Place {
    match left {
        0 => Place::Facts,
        left => Place::Nodes(left),
    }
}

fn deliveries(left: u64) -> Place {
    match left {
        0 => Place::ConsumerCount,
        left => Place::Deliveries(left),
    }
}

fn add_name(names: &mut HashSet<Vec<u8>>, name: &[u8]) -> Result<(), Corrupt> {
    match names.insert(name.to_vec()) {
        true => Ok(()),
        false => Err(Corrupt),
    }
}

/// The entries so far.
#[derive(Default)]
struct Entries {
    number: u64,
    first: Id,
    latest: Id,
    /// The ID with which the last node begins.
    node: Option<Id>,
}

impl Entries {
    fn read_node<E: From<Corrupt>>(
        &mut self,
        input: &mut Input<'_>,
        visit: Visit<'_, E>,
    ) -> Result<(), E> {
        let first = Id::decode(&input.string()?)?;
        let is_in_order = self.node.is_none_or(|before| before < first);
        if !is_in_order {
            return Err(Corrupt.into());
        }
        self.node = Some(first);
        let bytes = input.string()?;
        node::read(&bytes, first, |id, words: &[Value<'_>]| {
            self.add(id)?;
            visit(Item::Entry(id, words))
        })
    }

    fn add(&mut self, id: Id) -> Result<(), Corrupt> {
        // No entry has the ID of zeros, so this holds for the first one, too.
        if id <= self.latest {
            return Err(Corrupt);
        }
        if self.number == 0 {
            self.first = id;
        }
        self.number += 1;
        self.latest = id;
        Ok(())
    }
}

struct Delivery {
    id: Id,
    delivered_ms: u64,
    deliveries: u64,
    is_taken: bool,
}

/// What a group has pending, in the order of IDs, until its consumers have all of it.
#[derive(Default)]
struct Deliveries {
    all: Vec<Delivery>,
    taken: usize,
}

impl Deliveries {
    fn read_one(&mut self, input: &mut Input<'_>) -> Result<(), Corrupt> {
        let id = Id::decode(input.take(16)?)?;
        if self.all.last().is_some_and(|before| before.id >= id) {
            return Err(Corrupt);
        }
        self.all.push(Delivery {
            id,
            delivered_ms: time(input)?,
            deliveries: input.length()?,
            is_taken: false,
        });
        Ok(())
    }

    fn take(&mut self, id: Id) -> Result<&Delivery, Corrupt> {
        let place = self.all.binary_search_by_key(&id, |delivery| delivery.id);
        let delivery = &mut self.all[place.map_err(|_| Corrupt)?];
        if std::mem::replace(&mut delivery.is_taken, true) {
            return Err(Corrupt);
        }
        self.taken += 1;
        Ok(delivery)
    }

    fn finish(self) -> Result<(), Corrupt> {
        match self.taken == self.all.len() {
            true => Ok(()),
            false => Err(Corrupt),
        }
    }
}

fn id(input: &mut Input<'_>) -> Result<Id, Corrupt> {
    Ok(Id {
        ms: input.length()?,
        seq: input.length()?,
    })
}

fn time(input: &mut Input<'_>) -> Result<u64, Corrupt> {
    Ok(u64::from_le_bytes(input.fixed()?))
}
