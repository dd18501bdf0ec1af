//! XREAD and XREADGROUP.

use std::time::Duration;

use cairn_resp::Reply;
use cairn_store::stream::{Delivery, Group, Id};
use cairn_store::{Direction, Error, ReadTxn, Result, Stream, WriteTxn};

use super::reply::{Gathered, by_key, entry_reply, id_reply, id_text};
use super::{group, id, range};
use crate::command::args::{int, is};
use crate::command::blocking::{Blocking, reads};
use crate::command::{Args, Handler, OwnedArgs, events};
use crate::propagation::Propagate;

pub const XREAD: Handler = Handler::Blocking(Blocking {
    fixed: Some(fix_last),
    ..reads(xread)
});

pub const XREADGROUP: Handler = Handler::Blocking(Blocking {
    gone: Some("UNBLOCKED the stream key no longer exists"),
    ..reads(xreadgroup)
});

/// What a call asks for.
struct Reading<'a> {
    /// For how long to wait, if at all; without end if nothing is said.
    block: Option<Option<Duration>>,
    most: u64,
    /// Its name, and that of the consumer.
    group: Option<(&'a [u8], &'a [u8])>,
    acknowledges: bool,
    keys: &'a [&'a [u8]],
    ids: &'a [&'a [u8]],
}

impl<'a> Reading<'a> {
    fn parse(args: &Args<'a>, in_group: bool) -> Result<Reading<'a>> {
        let mut reading = Reading {
            block: None,
            most: u64::MAX,
            group: None,
            acknowledges: false,
            keys: &[],
            ids: &[],
        };
        let mut options = args.options(1);
        loop {
            let option = options.next().ok_or(Error::SYNTAX)?;
            let left = options.len();
            if is(option, "block") && left >= 1 {
                reading.block = Some(parse_timeout(options.value()?)?);
            } else if is(option, "count") && left >= 1 {
                // Nothing, or less, is all.
                let count = int(options.value()?)?;
                reading.most = match u64::try_from(count) {
                    Ok(0) | Err(_) => u64::MAX,
                    Ok(count) => count,
                };
            } else if is(option, "streams") && left >= 1 {
                let streams = args.rest(args.len() - left);
                if !left.is_multiple_of(2) {
                    return Err(Error::fixed(
                        "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must \
                         be specified.",
                    ));
                }
                (reading.keys, reading.ids) = streams.split_at(left / 2);
                break;
            } else if is(option, "group") && left >= 2 {
                if !in_group {
                    return Err(Error::fixed(
                        "ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.",
                    ));
                }
                reading.group = Some((options.value()?, options.value()?));
            } else if is(option, "noack") {
                if !in_group {
                    return Err(Error::fixed(
                        "ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.",
                    ));
                }
                reading.acknowledges = true;
            } else {
                return Err(Error::SYNTAX);
            }
        }
        if in_group && reading.group.is_none() {
            return Err(Error::fixed("ERR Missing GROUP option for XREADGROUP"));
        }
        Ok(reading)
    }

    /// The keys with their IDs; only one of them, if one is given.
    fn wanted(
        &self,
        only: Option<&'a [u8]>,
    ) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let pairs = self.keys.iter().copied().zip(self.ids.iter().copied());
        pairs.filter(move |(name, _)| only.is_none_or(|only| *name == only))
    }

    /// What is answered, if anything was found.
    fn answer(&self, found: Vec<(&[u8], Reply)>) -> Option<Reply> {
        if !found.is_empty() {
            return Some(by_key(found));
        }
        match self.block {
            Some(_) => None,
            None => Some(Reply::NullArray),
        }
    }
}

/// Milliseconds; zero is without end.
fn parse_timeout(text: &[u8]) -> Result<Option<Duration>> {
    let milliseconds =
        int(text).map_err(|_| Error::fixed("ERR timeout is not an integer or out of range"))?;
    let milliseconds =
        u64::try_from(milliseconds).map_err(|_| Error::fixed("ERR timeout is negative"))?;
    Ok((milliseconds > 0).then(|| Duration::from_millis(milliseconds)))
}

/// What BLOCK says, if it is among the options of XREAD or XREADGROUP.
pub fn block_option(args: &Args) -> Result<Option<Option<Duration>>> {
    let in_group = is(args[0], "xreadgroup");
    Ok(Reading::parse(args, in_group)?.block)
}

/// Puts what the last ID is now in the place of a $.
fn fix_last(txn: &ReadTxn, args: &Args) -> Result<Option<OwnedArgs>> {
    let reading = Reading::parse(args, false)?;
    if reading.block.is_none() || !reading.ids.contains(&&b"$"[..]) {
        return Ok(None);
    }
    let mut fixed = OwnedArgs::new(args);
    let first = args.len() - reading.ids.len();
    for (at, (name, text)) in reading.wanted(None).enumerate() {
        if text == b"$" {
            fixed.replace(first + at, id_text(Stream::open(txn, name)?.last()));
        }
    }
    Ok(Some(fixed))
}

fn xread(txn: &mut WriteTxn, args: &Args, only: Option<&[u8]>) -> Result<Option<Reply>> {
    let reading = Reading::parse(args, false)?;
    if only.is_none() {
        // Redis looks for them twice.
        events::missing(txn, reading.keys)?;
        events::missing(txn, reading.keys)?;
    }
    let mut asked = Vec::new();
    for (name, text) in reading.wanted(only) {
        let stream = Stream::open(txn, name)?;
        let id = match text {
            b"$" => stream.last(),
            b">" => {
                return Err(Error::fixed(
                    "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> \
                     <consumer> option.",
                ));
            }
            text => id::exact(text)?,
        };
        asked.push((name, stream, id));
    }
    let mut found = Vec::new();
    for (name, stream, id) in asked {
        if stream.is_empty() || stream.last() <= id {
            continue;
        }
        let Some(first) = id.next() else { continue };
        let ids = first..=Id::MAX;
        // What came last may have been deleted.
        let entries = range::within(txn, &stream, ids, Direction::Forward, reading.most)?;
        found.extend(entries.map(|entries| (name, entries)));
    }
    Ok(reading.answer(found))
}

fn xreadgroup(txn: &mut WriteTxn, args: &Args, only: Option<&[u8]>) -> Result<Option<Reply>> {
    let reading = Reading::parse(args, true)?;
    let (group_name, consumer) = reading.group.unwrap_or_default();
    let mut asked = Vec::new();
    for (name, text) in reading.wanted(only) {
        let stream = Stream::open(txn, name)?;
        let Some(group) = stream.group(txn, group_name)? else {
            return Err(match only {
                Some(_) => Error::fixed(
                    "NOGROUP the consumer group this client was blocked on no longer exists",
                ),
                None => {
                    let where_else = b" in XREADGROUP with GROUP option";
                    group::no_key_or_group(name, group_name, where_else)
                }
            });
        };
        let behind = match text {
            b">" => None,
            b"$" => {
                return Err(Error::fixed(
                    "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of \
                     this consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID \
                     would just return an empty result set.",
                ));
            }
            // Redis takes the last possible ID for the same.
            text => Some(id::exact(text)?).filter(|id| *id != Id::MAX),
        };
        asked.push((name, stream, group, behind));
    }
    let (mut found, is_one) = (Vec::new(), asked.len() == 1);
    for (name, stream, mut group, behind) in asked {
        // The same stream may be asked for twice.
        if !is_one && let Some(again) = stream.group(txn, group_name)? {
            group = again;
        }
        let consumer = Consumer {
            key: name,
            name: consumer,
            stream: &stream,
        };
        let reply = match behind {
            Some(id) => Some(consumer.history(txn, &mut group, id, reading.most)?),
            None => consumer.news(txn, &mut group, &reading)?,
        };
        group.save(txn, &stream);
        if let Some(reply) = reply {
            found.push((name, reply));
        }
    }
    Ok(reading.answer(found))
}

/// Who asks.
struct Consumer<'a> {
    key: &'a [u8],
    name: &'a [u8],
    stream: &'a Stream,
}

impl Consumer<'_> {
    /// Delivers entries that nobody in the group has been given, if there are any.
    fn news(
        &self,
        txn: &mut WriteTxn,
        group: &mut Group,
        reading: &Reading<'_>,
    ) -> Result<Option<Reply>> {
        let stream = self.stream;
        if stream.is_empty() || stream.last() <= group.last() {
            return Ok(None);
        }
        let Some(first) = group.last().next() else {
            return Ok(None);
        };
        let mut rows = stream.rows(txn, first..=Id::MAX, Direction::Forward)?;
        let mut gathered = Gathered::default();
        let delivery = Delivery {
            consumer: self.name.to_vec(),
            at_ms: txn.now_ms(),
            count: 1,
        };
        while (gathered.len() as u64) < reading.most
            && let Some((row_key, entry)) = rows.next()?
        {
            txn.step()?;
            let id = stream.id_of(row_key)?;
            if gathered.is_empty() {
                let is_new = group::see(txn, stream, group, self.name, self.key)?;
                if is_new && reading.acknowledges {
                    let words = [b"XGROUP", &b"CREATECONSUMER"[..], self.key];
                    txn.propagate_as(&[&words[..], &[group.name(), self.name]].concat());
                }
            }
            gathered.add(id, entry);
            group.advance(stream, id);
            if !reading.acknowledges {
                stream.deliver(txn, group, id, &delivery)?;
                group::propagate_delivery(txn, self.key, group, id, &delivery);
            }
        }
        if reading.acknowledges && !gathered.is_empty() {
            group::propagate_last(txn, self.key, group);
        }
        Ok((!gathered.is_empty()).then(|| gathered.reply()))
    }

    /// What the consumer has not acknowledged.
    fn history(
        &self,
        txn: &mut WriteTxn,
        group: &mut Group,
        behind: Id,
        most: u64,
    ) -> Result<Reply> {
        let stream = self.stream;
        group::see(txn, stream, group, self.name, self.key)?;
        let mut items = Vec::new();
        let Some(first) = behind.next() else {
            return Ok(Reply::Array(items));
        };
        let ids = first..=Id::MAX;
        let mut rows = stream.pending_rows(txn, group, Some(self.name), ids, Direction::Forward)?;
        while (items.len() as u64) < most
            && let Some((row_key, _)) = rows.next()?
        {
            txn.step()?;
            let id = stream.pending_id(row_key)?;
            let Some(entry) = stream.entry(txn, id)? else {
                items.push(Reply::Array(vec![id_reply(id), Reply::NullArray]));
                continue;
            };
            items.push(entry_reply(id, &entry));
            drop(entry);
            if let Some(mut delivery) = stream.delivery(txn, group, id)? {
                delivery.at_ms = txn.now_ms();
                delivery.count += 1;
                stream.deliver(txn, group, id, &delivery)?;
            }
        }
        Ok(Reply::Array(items))
    }
}
