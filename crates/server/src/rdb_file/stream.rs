//! Streams: their entries in nodes, and then their groups.

use cairn_rdb::{Facts, Id, Nodes, Packing, Read, part};
use cairn_store::stream::{self, Fields, Head};
use cairn_store::{Image, Result};

use super::SMALL;

/// What is left of a stream.
pub struct StreamRest {
    head: Head,
    place: Place,
}

enum Place {
    /// Its nodes are counted: so many until now.
    Counting(Packing, u64),
    /// The same entries again, to be written.
    Entries(Packing),
    Facts,
    Group,
    /// What the last group has pending, before so many consumers.
    Deliveries(u64),
    Consumer,
    Owned,
    End,
}

/// Writes the entries of a small stream. If it turns out not to be small, nothing is written.
pub fn begin(image: &mut Image, head: &Head, out: &mut Vec<u8>) -> Result<StreamRest> {
    image.rewind_entries(head);
    let mut nodes = Nodes::new(Vec::new());
    let mut size = 0;
    while size <= SMALL
        && let Some((id, entry)) = image.next_entry()?
    {
        size += entry.len();
        nodes.push(rdb_id(id), &words(entry)?);
    }
    let place = match size <= SMALL {
        true => {
            out.extend_from_slice(&nodes.finish());
            Place::Facts
        }
        false => {
            image.rewind_entries(head);
            Place::Counting(Packing::default(), 0)
        }
    };
    Ok(StreamRest { head: *head, place })
}

impl StreamRest {
    /// Appends the next part, or only looks at an entry; false if there was nothing left.
    pub fn write_next(&mut self, image: &mut Image, out: &mut Vec<u8>) -> Result<bool> {
        match &mut self.place {
            Place::Counting(packing, nodes) => {
                if let Some((id, entry)) = image.next_entry()? {
                    let full = packing.push(rdb_id(id), &words(entry)?);
                    *nodes += u64::from(full.is_some());
                } else {
                    let last = u64::from(packing.finish().is_some());
                    part::count(*nodes + last, out);
                    image.rewind_entries(&self.head);
                    self.place = Place::Entries(Packing::default());
                }
            }
            Place::Entries(packing) => {
                if let Some((id, entry)) = image.next_entry()? {
                    if let Some(node) = packing.push(rdb_id(id), &words(entry)?) {
                        node.append(out);
                    }
                } else {
                    if let Some(node) = packing.finish() {
                        node.append(out);
                    }
                    self.place = Place::Facts;
                }
            }
            Place::Facts => {
                self.write_facts(out);
                image.rewind_groups(&self.head);
                self.place = Place::Group;
            }
            Place::Group => self.place = write_group(image, out)?,
            Place::Deliveries(consumers) => match image.next_delivery()? {
                Some(pending) => part::delivery(
                    rdb_id(pending.id),
                    pending.delivered_ms,
                    pending.deliveries,
                    out,
                ),
                None => {
                    part::count(*consumers, out);
                    self.place = Place::Consumer;
                }
            },
            Place::Consumer => self.place = write_consumer(image, out)?,
            Place::Owned => match image.next_owned()? {
                Some(id) => part::owned(rdb_id(id), out),
                None => self.place = Place::Consumer,
            },
            Place::End => return Ok(false),
        }
        Ok(true)
    }

    fn write_facts(&self, out: &mut Vec<u8>) {
        let head = &self.head;
        let first = match head.size {
            0 => stream::Id::MIN,
            _ => head.floor,
        };
        let facts = Facts {
            length: head.size,
            last: rdb_id(head.last),
            first: rdb_id(first),
            deleted: rdb_id(head.deleted),
            added: head.added,
        };
        part::facts(&facts, out);
        part::count(head.groups, out);
    }
}

fn write_group(image: &mut Image, out: &mut Vec<u8>) -> Result<Place> {
    let Some(group) = image.next_group()? else {
        return Ok(Place::End);
    };
    let read = group.read.map_or(Read::Unknown, Read::Known);
    part::group(&group.name, rdb_id(group.last), read, out);
    part::count(group.pending, out);
    Ok(Place::Deliveries(group.consumers))
}

fn write_consumer(image: &mut Image, out: &mut Vec<u8>) -> Result<Place> {
    let Some(consumer) = image.next_consumer()? else {
        return Ok(Place::Group);
    };
    part::consumer(&consumer.name, consumer.seen_ms, out);
    part::count(consumer.pending, out);
    Ok(Place::Owned)
}

fn words(entry: &[u8]) -> Result<Vec<&[u8]>> {
    Ok(Fields::of(entry).collect::<Result<_, _>>()?)
}

fn rdb_id(id: stream::Id) -> Id {
    Id {
        ms: id.ms,
        seq: id.seq,
    }
}
