//! XGROUP, XACK.

use cairn_resp::Reply;
use cairn_store::stream::{Delivery, Group, Id};
use cairn_store::{Error, EventClass, ReadTxn, Result, Stream, WriteTxn};

use super::id;
use super::reply::id_text;
use crate::command::args::{int, is};
use crate::command::{Args, events, quotable, wrong_subcommand};
use crate::propagation::{Propagate, decimal};

/// What is told about a group that is not there.
pub fn no_group(key: &[u8], group: &[u8]) -> Error {
    told([
        b"NOGROUP No such consumer group '",
        group,
        b"' for key name '",
        key,
        b"'",
    ])
}

/// The same by a command that creates no key, with what it adds.
pub fn no_key_or_group(key: &[u8], group: &[u8], where_else: &[u8]) -> Error {
    told([
        b"NOGROUP No such key '",
        key,
        b"' or consumer group '",
        group,
        &[b"'", where_else].concat(),
    ])
}

fn told(words: [&[u8]; 5]) -> Error {
    Error::reply(words.map(|word| quotable(word, usize::MAX)).concat())
}

/// Opens a stream that exists.
fn existing(txn: &ReadTxn, name: &[u8]) -> Result<Stream> {
    let stream = Stream::open(txn, name)?;
    if stream.exists() {
        return Ok(stream);
    }
    Err(Error::fixed(
        "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the \
         MKSTREAM option to create an empty stream automatically.",
    ))
}

/// Opens a group that exists, with its stream.
fn existing_group(txn: &ReadTxn, args: &Args) -> Result<(Stream, Group)> {
    let stream = existing(txn, args[2])?;
    let group = stream.group(txn, args[3])?;
    Ok((stream, group.ok_or_else(|| no_group(args[2], args[3]))?))
}

/// The options of CREATE and SETID.
#[derive(Default)]
struct GroupOptions {
    creates: bool,
    read: Option<u64>,
}

impl GroupOptions {
    fn parse(args: &Args, may_create: bool) -> Result<GroupOptions> {
        let mut parsed = GroupOptions::default();
        let mut options = args.options(5);
        while let Some(option) = options.next() {
            if may_create && is(option, "mkstream") {
                parsed.creates = true;
            } else if is(option, "entriesread") && !options.is_empty() {
                parsed.read = match int(options.value()?)? {
                    -1 => None,
                    read => Some(u64::try_from(read).map_err(|_| {
                        Error::fixed("ERR value for ENTRIESREAD must be positive or -1")
                    })?),
                };
            } else {
                return Err(wrong_subcommand(args));
            }
        }
        Ok(parsed)
    }
}

pub fn create(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let options = GroupOptions::parse(args, true)?;
    let mut stream = if options.creates {
        Stream::open(txn, args[2])?
    } else {
        existing(txn, args[2])?
    };
    if args.len() > 8 {
        return Err(wrong_subcommand(args));
    }
    let last = match args[4] {
        b"$" => stream.last(),
        text => id::exact(text)?,
    };
    if stream.group(txn, args[3])?.is_some() {
        return Err(Error::fixed("BUSYGROUP Consumer Group name already exists"));
    }
    let group = stream.create_group(txn, args[3], last, options.read);
    group.save(txn, &stream);
    stream.save(txn);
    txn.notify(EventClass::Stream, "xgroup-create", args[2]);
    Ok(Reply::Ok)
}

pub fn set_id(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let options = GroupOptions::parse(args, false)?;
    let (stream, mut group) = existing_group(txn, args)?;
    if ![5, 7].contains(&args.len()) {
        return Err(wrong_subcommand(args));
    }
    let last = match args[4] {
        b"$" => stream.last(),
        text => id::any(text)?,
    };
    group.set_last(last, options.read);
    group.save(txn, &stream);
    txn.notify(EventClass::Stream, "xgroup-setid", args[2]);
    Ok(Reply::Ok)
}

pub fn destroy(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let mut stream = existing(txn, args[2])?;
    let Some(group) = stream.group(txn, args[3])? else {
        return Ok(Reply::Int(0));
    };
    stream.destroy_group(txn, group)?;
    stream.save(txn);
    txn.notify(EventClass::Stream, "xgroup-destroy", args[2]);
    Ok(Reply::Int(1))
}

/// A consumer is heard of, and created if it is new.
pub fn see(
    txn: &mut WriteTxn,
    stream: &Stream,
    group: &mut Group,
    consumer: &[u8],
    key: &[u8],
) -> Result<bool> {
    let is_new = group.see(stream, txn, consumer)?;
    if is_new {
        txn.notify(EventClass::Stream, "xgroup-createconsumer", key);
    }
    Ok(is_new)
}

/// Tells followers who has an entry now. They find it pending or not, or find that it is gone, and do no more than that.
pub fn propagate_delivery(
    txn: &mut WriteTxn,
    key: &[u8],
    group: &Group,
    id: Id,
    delivery: &Delivery,
) {
    if txn.is_followed() {
        txn.propagate_as(&[
            b"XCLAIM",
            key,
            group.name(),
            &delivery.consumer,
            b"0",
            &id_text(id),
            b"TIME",
            &decimal(delivery.at_ms),
            b"RETRYCOUNT",
            &decimal(delivery.count),
            b"FORCE",
            b"JUSTID",
            b"LASTID",
            &id_text(group.last()),
        ]);
    }
}

/// Tells followers what was delivered last, where no entry is pending that says so.
pub fn propagate_last(txn: &mut WriteTxn, key: &[u8], group: &Group) {
    if txn.is_followed() {
        let read = group.read().map(decimal);
        let read = read.as_deref().unwrap_or(b"-1");
        let last = id_text(group.last());
        txn.propagate_as(&[
            b"XGROUP",
            b"SETID",
            key,
            group.name(),
            &last,
            b"ENTRIESREAD",
            read,
        ]);
    }
}

pub fn create_consumer(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let (stream, mut group) = existing_group(txn, args)?;
    if group.consumer(&stream, txn, args[4])?.is_some() {
        return Ok(Reply::Int(0));
    }
    see(txn, &stream, &mut group, args[4], args[2])?;
    group.save(txn, &stream);
    Ok(Reply::Int(1))
}

pub fn delete_consumer(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let (stream, mut group) = existing_group(txn, args)?;
    let Some(pending) = stream.delete_consumer(txn, &mut group, args[4])? else {
        return Ok(Reply::Int(0));
    };
    group.save(txn, &stream);
    txn.notify(EventClass::Stream, "xgroup-delconsumer", args[2]);
    Ok(pending.into())
}

pub fn xack(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    events::missing(txn, &args.rest(1)[..1])?;
    let stream = Stream::open(txn, args[1])?;
    let Some(mut group) = stream.group(txn, args[2])? else {
        return Ok(Reply::Int(0));
    };
    let mut acknowledged = 0u64;
    for id in id::all_exact(args.rest(3))? {
        acknowledged += u64::from(stream.acknowledge(txn, &mut group, id)?);
    }
    group.save(txn, &stream);
    Ok(acknowledged.into())
}
