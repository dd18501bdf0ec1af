//! The payload of a stream.

use cairn_rdb::{Dump, Facts, Read};
use cairn_store::stream::{Delivery, Fields, Group, Id};
use cairn_store::{Direction, Result, Stream};

use super::Writing;

pub fn dump(writing: &Writing<'_>) -> Result<Dump> {
    let stream = Stream::open(writing.txn, writing.name)?;
    let mut nodes = Dump::stream();
    let mut rows = stream.rows(writing.txn, Id::MIN..=Id::MAX, Direction::Forward)?;
    while let Some((row_key, entry)) = rows.next()? {
        writing.txn.step()?;
        let words: Vec<&[u8]> = Fields::of(entry).collect::<Result<_, _>>()?;
        nodes.push(id(stream.id_of(row_key)?), &words);
        writing.check(nodes.size())?;
    }
    let facts = Facts {
        length: stream.len(),
        last: id(stream.last()),
        first: id(stream.first().unwrap_or(Id::MIN)),
        deleted: id(stream.deleted()),
        added: stream.added(),
    };
    let mut dump = Dump::of_stream(nodes, &facts);
    dump.count(stream.groups());
    for group in stream.all_groups(writing.txn)? {
        add_group(writing, &stream, &group, &mut dump)?;
    }
    Ok(dump)
}

fn add_group(writing: &Writing<'_>, stream: &Stream, group: &Group, dump: &mut Dump) -> Result<()> {
    let read = group.read().map_or(Read::Unknown, Read::Known);
    dump.group(group.name(), id(group.last()), read);
    dump.count(group.pending());
    let all = Id::MIN..=Id::MAX;
    let mut rows =
        stream.pending_rows(writing.txn, group, None, all.clone(), Direction::Forward)?;
    while let Some((row_key, value)) = rows.next()? {
        writing.txn.step()?;
        let delivery = Delivery::decode(value)?;
        let pending = id(stream.pending_id(row_key)?);
        dump.delivery(pending, delivery.at_ms, delivery.count);
        writing.check(dump.size())?;
    }
    dump.count(group.consumer_count());
    for (name, consumer) in stream.consumers(writing.txn, group)? {
        dump.consumer(&name, consumer.seen_ms);
        dump.count(consumer.pending);
        let mut rows = stream.pending_rows(
            writing.txn,
            group,
            Some(&name),
            all.clone(),
            Direction::Forward,
        )?;
        while let Some((row_key, _)) = rows.next()? {
            writing.txn.step()?;
            dump.owned(id(stream.pending_id(row_key)?));
            writing.check(dump.size())?;
        }
    }
    Ok(())
}

fn id(id: Id) -> cairn_rdb::Id {
    cairn_rdb::Id {
        ms: id.ms,
        seq: id.seq,
    }
}
