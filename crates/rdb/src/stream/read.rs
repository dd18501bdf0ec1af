//! Reading a stream.

use foldhash::HashSet;

use super::{Facts, Id, Read, UNKNOWN, node};
use crate::listpack::Value;
use crate::read::Item;
use crate::{Corrupt, Input};

type Visit<'v, E> = &'v mut dyn FnMut(Item<'_>) -> Result<(), E>;

/// Shows the entries, then the facts, and then group after group: each of its consumers, followed by what that has
/// pending. `knows_all` says whether it was written by Redis 7.0.
pub fn read<E: From<Corrupt>>(
    input: &mut Input<'_>,
    knows_all: bool,
    visit: Visit<'_, E>,
) -> Result<(), E> {
    let (count, first) = read_entries(input, visit)?;
    let length = input.length()?;
    let last = id(input)?;
    let facts = match knows_all {
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
            first,
            deleted: Id::default(),
            added: length,
        },
    };
    if count.number != length || count.latest > last {
        return Err(Corrupt.into());
    }
    visit(Item::Facts(facts))?;
    let mut names = HashSet::default();
    for _ in 0..input.length()? {
        let name = input.string()?.into_owned();
        read_group(input, &name, knows_all, visit)?;
        if !names.insert(name) {
            return Err(Corrupt.into());
        }
    }
    Ok(())
}

/// The entries so far.
#[derive(Default)]
struct Count {
    number: u64,
    latest: Id,
}

impl Count {
    fn add(&mut self, id: Id) -> Result<(), Corrupt> {
        // No entry has the ID of zeros, so this holds for the first one, too.
        if id <= self.latest {
            return Err(Corrupt);
        }
        self.number += 1;
        self.latest = id;
        Ok(())
    }
}

fn read_entries<E: From<Corrupt>>(
    input: &mut Input<'_>,
    visit: Visit<'_, E>,
) -> Result<(Count, Id), E> {
    let mut count = Count::default();
    let mut first_of_all = Id::default();
    let mut before = None;
    for _ in 0..input.length()? {
        let first = Id::decode(&input.string()?)?;
        if before.replace(first).is_some_and(|before| before >= first) {
            return Err(Corrupt.into());
        }
        let bytes = input.string()?;
        node::read(&bytes, first, |id, words: &[Value<'_>]| {
            if count.number == 0 {
                first_of_all = id;
            }
            count.add(id)?;
            visit(Item::Entry(id, words))
        })?;
    }
    Ok((count, first_of_all))
}

fn read_group<E: From<Corrupt>>(
    input: &mut Input<'_>,
    name: &[u8],
    knows_all: bool,
    visit: Visit<'_, E>,
) -> Result<(), E> {
    let last = id(input)?;
    let read = match knows_all {
        false => Read::Untold,
        true => match input.length()? {
            UNKNOWN => Read::Unknown,
            known => Read::Known(known),
        },
    };
    visit(Item::Group { name, last, read })?;
    let mut pending = read_pending(input)?;
    let mut names = HashSet::default();
    for _ in 0..input.length()? {
        let name = input.string()?.into_owned();
        let seen_ms = time(input)?;
        visit(Item::Consumer {
            name: &name,
            seen_ms,
        })?;
        for _ in 0..input.length()? {
            let id = Id::decode(input.take(16)?)?;
            let delivery = pending.take(id)?;
            visit(Item::Pending {
                id,
                delivered_ms: delivery.delivered_ms,
                deliveries: delivery.deliveries,
            })?;
        }
        if !names.insert(name) {
            return Err(Corrupt.into());
        }
    }
    Ok(pending.finish()?)
}

struct Delivery {
    id: Id,
    delivered_ms: u64,
    deliveries: u64,
    is_taken: bool,
}

/// What a group has pending, in the order of IDs, until its consumers have all of it.
struct Deliveries {
    all: Vec<Delivery>,
    taken: usize,
}

fn read_pending(input: &mut Input<'_>) -> Result<Deliveries, Corrupt> {
    let mut all: Vec<Delivery> = Vec::new();
    for _ in 0..input.length()? {
        let id = Id::decode(input.take(16)?)?;
        if all.last().is_some_and(|before| before.id >= id) {
            return Err(Corrupt);
        }
        all.push(Delivery {
            id,
            delivered_ms: time(input)?,
            deliveries: input.length()?,
            is_taken: false,
        });
    }
    Ok(Deliveries { all, taken: 0 })
}

impl Deliveries {
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
