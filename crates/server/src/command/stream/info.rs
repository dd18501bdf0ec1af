//! XINFO.

use cairn_resp::Reply;
use cairn_store::stream::{Delivery, Group, Id};
use cairn_store::{Direction, Error, ReadTxn, Result, Stream};

use super::group::no_group;
use super::range::within;
use super::reply::{entry_reply, id_reply};
use crate::command::args::{int, is};
use crate::command::{Args, wrong_subcommand};
use crate::config::ENCODINGS;

fn open(txn: &ReadTxn, args: &Args) -> Result<Stream> {
    let stream = Stream::open(txn, args[2])?;
    match stream.exists() {
        true => Ok(stream),
        false => Err(Error::NO_SUCH_KEY),
    }
}

pub fn groups(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let stream = open(txn, args)?;
    let groups = stream.all_groups(txn)?;
    let groups = groups.into_iter().map(|group| {
        Reply::Map(vec![
            ("name".into(), group.name().into()),
            ("consumers".into(), group.consumer_count().into()),
            ("pending".into(), group.pending().into()),
            ("last-delivered-id".into(), id_reply(group.last())),
            ("entries-read".into(), group.read().map(as_shown).into()),
            ("lag".into(), group.lag(&stream).into()),
        ])
    });
    Ok(Reply::Array(groups.collect()))
}

pub fn consumers(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let stream = open(txn, args)?;
    let group = stream.group(txn, args[3])?;
    let group = group.ok_or_else(|| no_group(args[2], args[3]))?;
    let consumers = stream.consumers(txn, &group)?;
    let consumers = consumers.into_iter().map(|(name, facts)| {
        let idle = txn.now_ms().saturating_sub(facts.seen_ms);
        Reply::Map(vec![
            ("name".into(), name.into()),
            ("pending".into(), facts.pending.into()),
            ("idle".into(), idle.into()),
        ])
    });
    Ok(Reply::Array(consumers.collect()))
}

/// A number as Redis shows it: one that was set far too high comes back as a negative one.
fn as_shown(number: u64) -> i64 {
    number as i64
}

/// How many entries FULL shows unless it is told.
const SHOWN: u64 = 10;

pub fn stream(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let stream = open(txn, args)?;
    let full = match *args.rest(3) {
        [] => None,
        [full] if is(full, "full") => Some(SHOWN),
        [full, count, number] if is(full, "full") && is(count, "count") => {
            let number = int(number)?;
            Some(u64::try_from(number).unwrap_or(SHOWN))
        }
        _ => return Err(wrong_subcommand(args)),
    };
    // Redis keeps entries in nodes of so many, and those in a tree.
    let nodes = stream.len().div_ceil(ENCODINGS.stream_entries().max(1));
    let mut facts = vec![
        ("length".into(), stream.len().into()),
        ("radix-tree-keys".into(), nodes.into()),
        ("radix-tree-nodes".into(), (nodes + 1).into()),
        ("last-generated-id".into(), id_reply(stream.last())),
        ("max-deleted-entry-id".into(), id_reply(stream.deleted())),
        ("entries-added".into(), as_shown(stream.added()).into()),
        (
            "recorded-first-entry-id".into(),
            id_reply(stream.first().unwrap_or_default()),
        ),
    ];
    match full {
        None => {
            facts.push(("groups".into(), stream.groups().into()));
            let ends = [
                ("first-entry", Direction::Forward),
                ("last-entry", Direction::Backward),
            ];
            for (name, direction) in ends {
                facts.push((name.into(), outermost(txn, &stream, direction)?));
            }
        }
        Some(shown) => {
            let most = if shown == 0 { u64::MAX } else { shown };
            let ids = Id::MIN..=Id::MAX;
            let entries = within(txn, &stream, ids, Direction::Forward, most)?;
            let entries = entries.unwrap_or(Reply::Array(Vec::new()));
            facts.push(("entries".into(), entries));
            let groups = stream.all_groups(txn)?;
            let groups: Result<Vec<Reply>> = groups
                .iter()
                .map(|group| full_group(txn, &stream, group, most))
                .collect();
            facts.push(("groups".into(), Reply::Array(groups?)));
        }
    }
    Ok(Reply::Map(facts))
}

fn outermost(txn: &ReadTxn, stream: &Stream, direction: Direction) -> Result<Reply> {
    let mut rows = stream.rows(txn, Id::MIN..=Id::MAX, direction)?;
    match rows.next()? {
        Some((row_key, entry)) if !stream.is_empty() => {
            Ok(entry_reply(stream.id_of(row_key)?, entry))
        }
        _ => Ok(Reply::Null),
    }
}

fn full_group(txn: &ReadTxn, stream: &Stream, group: &Group, most: u64) -> Result<Reply> {
    let consumers = stream.consumers(txn, group)?;
    let consumers: Result<Vec<Reply>> = consumers
        .into_iter()
        .map(|(name, facts)| {
            let pending = pending(txn, stream, group, Some(&name), most)?;
            Ok(Reply::Map(vec![
                ("name".into(), name.into()),
                ("seen-time".into(), facts.seen_ms.into()),
                ("pel-count".into(), facts.pending.into()),
                ("pending".into(), pending),
            ]))
        })
        .collect();
    Ok(Reply::Map(vec![
        ("name".into(), group.name().into()),
        ("last-delivered-id".into(), id_reply(group.last())),
        ("entries-read".into(), group.read().map(as_shown).into()),
        ("lag".into(), group.lag(stream).into()),
        ("pel-count".into(), group.pending().into()),
        ("pending".into(), pending(txn, stream, group, None, most)?),
        ("consumers".into(), Reply::Array(consumers?)),
    ]))
}

/// What a group, or one of its consumers, has pending.
fn pending(
    txn: &ReadTxn,
    stream: &Stream,
    group: &Group,
    consumer: Option<&[u8]>,
    most: u64,
) -> Result<Reply> {
    let mut found = Vec::new();
    let ids = Id::MIN..=Id::MAX;
    let mut rows = stream.pending_rows(txn, group, consumer, ids, Direction::Forward)?;
    while (found.len() as u64) < most
        && let Some((row_key, value)) = rows.next()?
    {
        txn.step()?;
        let id = stream.pending_id(row_key)?;
        let delivery = match consumer {
            None => Some(Delivery::decode(value)?),
            Some(_) => stream.delivery(txn, group, id)?,
        };
        let Some(delivery) = delivery else { continue };
        let mut item = vec![id_reply(id)];
        if consumer.is_none() {
            item.push(delivery.consumer.into());
        }
        item.push(delivery.at_ms.into());
        item.push(delivery.count.into());
        found.push(Reply::Array(item));
    }
    Ok(Reply::Array(found))
}
