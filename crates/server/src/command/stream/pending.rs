//! XPENDING, XCLAIM, XAUTOCLAIM.

use std::ops::RangeInclusive;

use cairn_resp::Reply;
use cairn_store::stream::{Delivery, Group, Id};
use cairn_store::{Direction, Error, ReadTxn, Result, Stream, WriteTxn};

use super::group::{no_key_or_group, propagate_delivery, propagate_last, see};
use super::id;
use super::reply::{Gathered, id_reply};
use crate::command::args::{int, is};
use crate::command::{Args, quotable};
use crate::propagation::Propagate;

/// Opens a group that exists, with its stream.
fn open(txn: &ReadTxn, args: &Args) -> Result<(Stream, Group)> {
    let stream = Stream::open(txn, args[1])?;
    let group = stream.group(txn, args[2])?;
    Ok((
        stream,
        group.ok_or_else(|| no_key_or_group(args[1], args[2], b""))?,
    ))
}

/// Which pending entries are asked for.
struct Filter<'a> {
    least_idle: u64,
    ids: RangeInclusive<Id>,
    most: u64,
    consumer: Option<&'a [u8]>,
}

impl<'a> Filter<'a> {
    fn parse(args: &Args<'a>) -> Result<Option<Filter<'a>>> {
        if args.len() == 3 {
            return Ok(None);
        }
        if args.len() < 6 || args.len() > 9 {
            return Err(Error::SYNTAX);
        }
        let (mut least_idle, mut at) = (0, 3);
        if is(args[3], "idle") {
            least_idle = args.int(4)?;
            if args.len() < 8 {
                return Err(Error::SYNTAX);
            }
            at = 5;
        }
        let most = u64::try_from(args.int(at + 2)?).unwrap_or(0);
        Ok(Some(Filter {
            least_idle: u64::try_from(least_idle).unwrap_or(0),
            ids: id::start(args[at])?..=id::end(args[at + 1])?,
            most,
            consumer: args.get(at + 3).copied(),
        }))
    }
}

pub fn xpending(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let filter = Filter::parse(args)?;
    let (stream, mut group) = open(txn, args)?;
    let Some(filter) = filter else {
        return summary(txn, &stream, &group);
    };
    if let Some(consumer) = filter.consumer
        && group.consumer(&stream, txn, consumer)?.is_none()
    {
        return Ok(Reply::Array(Vec::new()));
    }
    let mut found = Vec::new();
    let ids = filter.ids.clone();
    let mut rows = stream.pending_rows(txn, &group, filter.consumer, ids, Direction::Forward)?;
    while (found.len() as u64) < filter.most
        && let Some((row_key, value)) = rows.next()?
    {
        txn.step()?;
        let id = stream.pending_id(row_key)?;
        let delivery = match filter.consumer {
            None => Some(Delivery::decode(value)?),
            Some(_) => stream.delivery(txn, &group, id)?,
        };
        let Some(delivery) = delivery else { continue };
        let idle = txn.now_ms().saturating_sub(delivery.at_ms);
        if idle >= filter.least_idle {
            found.push(Reply::Array(vec![
                id_reply(id),
                delivery.consumer.into(),
                idle.into(),
                delivery.count.into(),
            ]));
        }
    }
    Ok(Reply::Array(found))
}

fn summary(txn: &ReadTxn, stream: &Stream, group: &Group) -> Result<Reply> {
    if group.pending() == 0 {
        return Ok(Reply::Array(vec![
            Reply::Int(0),
            Reply::Null,
            Reply::Null,
            Reply::NullArray,
        ]));
    }
    let outermost = |direction| -> Result<Reply> {
        let mut rows = stream.pending_rows(txn, group, None, Id::MIN..=Id::MAX, direction)?;
        match rows.next()? {
            Some((row_key, _)) => Ok(id_reply(stream.pending_id(row_key)?)),
            None => Ok(Reply::Null),
        }
    };
    let consumers = stream.consumers(txn, group)?;
    let consumers = consumers
        .into_iter()
        .filter(|(_, facts)| facts.pending > 0)
        .map(|(name, facts)| {
            let pending = facts.pending.to_string().into_bytes();
            Reply::Array(vec![name.into(), pending.into()])
        });
    Ok(Reply::Array(vec![
        group.pending().into(),
        outermost(Direction::Forward)?,
        outermost(Direction::Backward)?,
        Reply::Array(consumers.collect()),
    ]))
}

fn least_idle(text: &[u8], complaint: &'static str) -> Result<u64> {
    let idle = int(text).map_err(|_| Error::fixed(complaint))?;
    Ok(u64::try_from(idle).unwrap_or(0))
}

/// What becomes of an entry that is claimed.
struct Claim<'a> {
    consumer: &'a [u8],
    least_idle: u64,
    /// When it counts as delivered.
    at_ms: u64,
    deliveries: Option<u64>,
    only_ids: bool,
    /// An entry is given also if it is not pending.
    force: bool,
    last: Id,
}

impl<'a> Claim<'a> {
    fn new(txn: &ReadTxn, consumer: &'a [u8], least_idle: u64) -> Claim<'a> {
        Claim {
            consumer,
            least_idle,
            at_ms: txn.wall_ms(),
            deliveries: None,
            only_ids: false,
            force: false,
            last: Id::MIN,
        }
    }

    /// The options of XCLAIM.
    fn parse(&mut self, txn: &ReadTxn, args: &Args, at: usize) -> Result<()> {
        let now_ms = txn.wall_ms() as i64;
        let mut delivered_ms = None;
        let number = |text: &[u8], option: &str| {
            let complaint = || format!("ERR Invalid {option} option argument for XCLAIM");
            int(text).map_err(|_| Error::reply(complaint()))
        };
        let mut options = args.options(at);
        while let Some(option) = options.next() {
            let has_value = !options.is_empty();
            if is(option, "force") {
                self.force = true;
            } else if is(option, "justid") {
                self.only_ids = true;
            } else if is(option, "idle") && has_value {
                let idle = number(options.value()?, "IDLE")?;
                delivered_ms = Some(now_ms.saturating_sub(idle));
            } else if is(option, "time") && has_value {
                delivered_ms = Some(number(options.value()?, "TIME")?);
            } else if is(option, "retrycount") && has_value {
                let count = number(options.value()?, "RETRYCOUNT")?;
                self.deliveries = u64::try_from(count).ok();
            } else if is(option, "lastid") && has_value {
                self.last = id::exact(options.value()?)?;
            } else {
                let option = quotable(option, usize::MAX);
                let text: [&[u8]; 3] = [b"ERR Unrecognized XCLAIM option '", option, b"'"];
                return Err(Error::reply(text.concat()));
            }
        }
        // What cannot be is now.
        if let Some(at_ms) = delivered_ms.and_then(|at_ms| u64::try_from(at_ms).ok())
            && at_ms <= self.at_ms
        {
            self.at_ms = at_ms;
        }
        Ok(())
    }

    fn is_due(&self, txn: &ReadTxn, delivery: &Delivery) -> bool {
        txn.now_ms().saturating_sub(delivery.at_ms) >= self.least_idle
    }

    /// Gives an entry to the consumer.
    fn take(
        &self,
        txn: &mut WriteTxn,
        stream: &Stream,
        group: &mut Group,
        id: Id,
        before: u64,
    ) -> Result<()> {
        let count = match self.deliveries {
            Some(count) => count,
            None if self.only_ids => before,
            None => before + 1,
        };
        let delivery = Delivery {
            consumer: self.consumer.to_vec(),
            at_ms: self.at_ms,
            count,
        };
        stream.deliver(txn, group, id, &delivery)?;
        propagate_delivery(txn, stream.name(), group, id, &delivery);
        Ok(())
    }
}

pub fn xclaim(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let (stream, mut group) = open(txn, args)?;
    let least_idle = least_idle(args[4], "ERR Invalid min-idle-time argument for XCLAIM")?;
    let ids: Vec<Id> = args
        .rest(5)
        .iter()
        .map_while(|text| id::exact(text).ok())
        .collect();
    let mut claim = Claim::new(txn, args[3], least_idle);
    claim.parse(txn, args, 5 + ids.len())?;
    txn.propagate_nothing();
    let mut raises_last = claim.last > group.last();
    if raises_last {
        let read = group.read();
        group.set_last(claim.last, read);
    }
    let mut gathered = Gathered::default();
    let mut is_seen = false;
    for id in ids {
        txn.step()?;
        let delivery = stream.delivery(txn, &group, id)?;
        let Some(entry) = stream.entry(txn, id)?.map(|entry| entry.to_vec()) else {
            if let Some(delivery) = &delivery {
                propagate_delivery(txn, args[1], &group, id, delivery);
                raises_last = false;
            }
            stream.acknowledge(txn, &mut group, id)?;
            continue;
        };
        let before = match &delivery {
            Some(delivery) if claim.is_due(txn, delivery) => delivery.count,
            None if claim.force => 1,
            _ => continue,
        };
        if !std::mem::replace(&mut is_seen, true) {
            see(txn, &stream, &mut group, claim.consumer, args[1])?;
        }
        claim.take(txn, &stream, &mut group, id, before)?;
        raises_last = false;
        match claim.only_ids {
            true => gathered.add_id(id),
            false => gathered.add(id, &entry),
        }
    }
    if raises_last {
        propagate_last(txn, args[1], &group);
    }
    group.save(txn, &stream);
    Ok(gathered.reply())
}

/// How many pending entries are looked at for each that is asked for.
const ATTEMPTS: u64 = 10;

pub fn xautoclaim(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let least_idle = least_idle(args[4], "ERR Invalid min-idle-time argument for XAUTOCLAIM")?;
    let start = id::start(args[5])?;
    let mut claim = Claim::new(txn, args[3], least_idle);
    let mut left = 100;
    let mut options = args.options(6);
    while let Some(option) = options.next() {
        if is(option, "count") && !options.is_empty() {
            left = options.value().and_then(count)?;
        } else if is(option, "justid") {
            claim.only_ids = true;
        } else {
            return Err(Error::SYNTAX);
        }
    }
    let (stream, mut group) = open(txn, args)?;
    txn.propagate_nothing();
    let mut attempts = left.saturating_mul(ATTEMPTS);
    let (mut gathered, mut deleted) = (Gathered::default(), Gathered::default());
    let mut is_seen = false;
    let is_from_low = start <= group.low();
    let mut rows = stream.pending_rows(txn, &group, None, start..=Id::MAX, Direction::Forward)?;
    let mut next = None;
    let mut is_first = true;
    while let Some((row_key, value)) = rows.next()? {
        txn.step()?;
        let id = stream.pending_id(row_key)?;
        if std::mem::take(&mut is_first) && is_from_low {
            group.raise_low(id);
        }
        if attempts == 0 || left == 0 {
            next = Some(id);
            break;
        }
        attempts -= 1;
        let delivery = Delivery::decode(value)?;
        let Some(entry) = stream.entry(txn, id)?.map(|entry| entry.to_vec()) else {
            propagate_delivery(txn, args[1], &group, id, &delivery);
            stream.acknowledge(txn, &mut group, id)?;
            deleted.add_id(id);
            left -= 1;
            continue;
        };
        if !claim.is_due(txn, &delivery) {
            continue;
        }
        if !std::mem::replace(&mut is_seen, true) {
            see(txn, &stream, &mut group, claim.consumer, args[1])?;
        }
        claim.take(txn, &stream, &mut group, id, delivery.count)?;
        match claim.only_ids {
            true => gathered.add_id(id),
            false => gathered.add(id, &entry),
        }
        left -= 1;
    }
    group.save(txn, &stream);
    Ok(Reply::Array(vec![
        id_reply(next.unwrap_or(Id::MIN)),
        gathered.reply(),
        deleted.reply(),
    ]))
}

/// The most that COUNT takes: Redis keeps an array of IDs of 16 bytes.
const LARGEST_COUNT: u64 = i64::MAX as u64 / 16;

fn count(text: &[u8]) -> Result<u64> {
    let count = int(text).ok().and_then(|count| u64::try_from(count).ok());
    count
        .filter(|count| (1..=LARGEST_COUNT).contains(count))
        .ok_or(Error::fixed("ERR COUNT must be > 0"))
}
