//! XADD, XDEL, XTRIM, XSETID.

use cairn_resp::Reply;
use cairn_store::stream::{Id, Trim, Until, append_field};
use cairn_store::{Error, EventClass, Result, Stream, WriteTxn};

use super::id::{self, NewId};
use super::reply::{id_reply, id_text};
use crate::command::args::{Options, int, is};
use crate::command::{Args, wrong_arity};
use crate::config::ENCODINGS;
use crate::propagation::{Propagate, decimal};

/// How a stream is to be trimmed, as it is read from the options one by one.
#[derive(Default)]
struct TrimOptions {
    until: Option<Until>,
    is_approximate: bool,
    limit: Option<u64>,
    /// How many words there are behind the threshold.
    behind: usize,
}

/// The most that is trimmed at once if nothing else is said.
const MOST_BY_DEFAULT: u64 = 1_000_000;

impl TrimOptions {
    /// Reads one of them, if this is one.
    fn read(&mut self, option: &[u8], rest: &mut Options<'_>) -> Result<bool> {
        let is_length = is(option, "maxlen");
        if (is_length || is(option, "minid")) && !rest.is_empty() {
            if self.until.is_some() {
                return Err(Error::fixed(
                    "ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
                ));
            }
            // The last word is a threshold whatever it is.
            self.is_approximate = rest.len() >= 2 && rest.take("~");
            if !self.is_approximate && rest.len() >= 2 {
                rest.take("=");
            }
            let threshold = rest.value()?;
            self.behind = rest.len();
            self.until = Some(if is_length {
                let length = u64::try_from(int(threshold)?)
                    .map_err(|_| Error::fixed("ERR The MAXLEN argument must be >= 0."))?;
                Until::Length(length)
            } else {
                Until::Id(id::exact(threshold)?)
            });
            return Ok(true);
        }
        if is(option, "limit") && !rest.is_empty() {
            let limit = u64::try_from(int(rest.value()?)?)
                .map_err(|_| Error::fixed("ERR The LIMIT argument must be >= 0."))?;
            self.limit = Some(limit);
            return Ok(true);
        }
        Ok(false)
    }

    /// How followers trim to what is left here, which where it may be a little more is up to each server: the places of the
    /// sign and of the threshold, and what stands there then.
    fn exact(&self, words: usize, stream: &Stream) -> Option<(usize, Vec<u8>)> {
        let threshold = match self.until.filter(|_| self.is_approximate)? {
            Until::Length(_) => decimal(stream.len()).to_vec(),
            Until::Id(_) => id_text(stream.first().unwrap_or(Id::MIN)),
        };
        Some((words - self.behind - 1, threshold))
    }

    /// A server that is followed says exactly what is to be done, and leaves its limit there.
    fn finish(&self, is_of_master: bool) -> Result<Option<Trim>> {
        let Some(until) = self.until else {
            if self.limit.is_some_and(|limit| limit > 0) {
                return Err(Error::fixed(
                    "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
                ));
            }
            return Ok(None);
        };
        if !self.is_approximate {
            if self.limit.is_some() && !is_of_master {
                return Err(Error::fixed(
                    "ERR syntax error, LIMIT cannot be used without the special ~ option",
                ));
            }
            return Ok(Some(Trim {
                until,
                unit: 1,
                at_most: u64::MAX,
            }));
        }
        let unit = ENCODINGS.stream_entries();
        let at_most = match self.limit {
            Some(0) => u64::MAX,
            Some(limit) => limit,
            None if unit == 0 => 10_000,
            None => unit.saturating_mul(100).min(MOST_BY_DEFAULT),
        };
        Ok(Some(Trim {
            until,
            unit: if unit == 0 { u64::MAX } else { unit },
            at_most,
        }))
    }
}

pub fn xadd(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let mut trim = TrimOptions::default();
    let mut creates = true;
    let mut options = args.options(2);
    let new_id = loop {
        let Some(option) = options.next() else {
            // Only options: no ID, and no fields.
            trim.finish(txn.is_of_master())?;
            return Err(wrong_arity("xadd"));
        };
        if option == b"*" {
            break NewId::Any;
        }
        if is(option, "nomkstream") {
            creates = false;
        } else if !trim.read(option, &mut options)? {
            break id::new(option)?;
        }
    };
    let options_of_trim = trim;
    let trim = options_of_trim.finish(txn.is_of_master())?;
    let id_at = args.len() - options.len() - 1;
    let fields = args.rest(args.len() - options.len());
    if fields.is_empty() || !fields.len().is_multiple_of(2) {
        return Err(wrong_arity("xadd"));
    }
    if new_id == NewId::Exact(Id::MIN) {
        return Err(Error::fixed(
            "ERR The ID specified in XADD must be greater than 0-0",
        ));
    }
    let mut stream = Stream::open(txn, args[1])?;
    if !stream.exists() && !creates {
        return Ok(Reply::Null);
    }
    let is_chosen_here = !matches!(new_id, NewId::Exact(_));
    let new_id = assign(&stream, new_id, txn.now_ms())?;
    let mut entry = Vec::with_capacity(fields.iter().map(|field| field.len() + 4).sum());
    for field in fields {
        append_field(&mut entry, field);
    }
    stream.append(txn, new_id, &entry);
    let trimmed = match trim {
        Some(trim) => stream.trim(txn, trim)?,
        None => 0,
    };
    if txn.is_followed() {
        let id = id_text(new_id);
        let exact = options_of_trim.exact(args.len(), &stream);
        let chosen: &[(usize, &[u8])] = &[(id_at, &id)];
        let chosen = if is_chosen_here { chosen } else { &[] };
        propagate_trimmed(txn, args, exact, chosen);
    }
    stream.save(txn);
    txn.notify(EventClass::Stream, "xadd", args[1]);
    if trimmed > 0 {
        txn.notify(EventClass::Stream, "xtrim", args[1]);
    }
    Ok(id_reply(new_id))
}

fn propagate_trimmed(
    txn: &mut WriteTxn,
    args: &Args,
    exact: Option<(usize, Vec<u8>)>,
    changes: &[(usize, &[u8])],
) {
    let mut changes = changes.to_vec();
    if let Some((at, threshold)) = &exact {
        changes.extend([(at - 1, &b"="[..]), (*at, threshold)]);
    }
    txn.propagate_with(args, &changes);
}

/// The ID that a new entry gets.
fn assign(stream: &Stream, wanted: NewId, now_ms: u64) -> Result<Id> {
    const NOT_LARGER: Error = Error::fixed(
        "ERR The ID specified in XADD is equal or smaller than the target stream top item",
    );
    let last = stream.last();
    if last == Id::MAX {
        return Err(Error::fixed(
            "ERR The stream has exhausted the last possible ID, unable to add more items",
        ));
    }
    let id = match wanted {
        NewId::Any => stream.next_id(now_ms).ok_or(NOT_LARGER)?,
        NewId::AnyOf { ms } if ms == last.ms => {
            // What Redis says in this case.
            let full = Error::fixed("ERR Elements are too large to be stored");
            Id::new(ms, last.seq.checked_add(1).ok_or(full)?)
        }
        NewId::AnyOf { ms } => Id::new(ms, 0),
        NewId::Exact(id) => id,
    };
    if id > last { Ok(id) } else { Err(NOT_LARGER) }
}

pub fn xtrim(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let mut trim = TrimOptions::default();
    let mut options = args.options(2);
    while let Some(option) = options.next() {
        if !trim.read(option, &mut options)? {
            return Err(Error::SYNTAX);
        }
    }
    let options_of_trim = trim;
    let trim = options_of_trim.finish(txn.is_of_master())?;
    let trim = trim.ok_or(Error::fixed(
        "ERR syntax error, XTRIM must be called with a trimming strategy",
    ))?;
    let mut stream = Stream::open(txn, args[1])?;
    let trimmed = stream.trim(txn, trim)?;
    if trimmed > 0 && txn.is_followed() {
        let exact = options_of_trim.exact(args.len(), &stream);
        propagate_trimmed(txn, args, exact, &[]);
    }
    stream.save(txn);
    if trimmed > 0 {
        txn.notify(EventClass::Stream, "xtrim", args[1]);
    }
    Ok(trimmed.into())
}

pub fn xdel(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let mut stream = Stream::open(txn, args[1])?;
    if !stream.exists() {
        return Ok(Reply::Int(0));
    }
    let mut deleted = 0u64;
    for id in id::all_exact(args.rest(2))? {
        deleted += u64::from(stream.delete(txn, id)?);
    }
    stream.save(txn);
    if deleted > 0 {
        txn.notify(EventClass::Stream, "xdel", args[1]);
    }
    Ok(deleted.into())
}

pub fn xsetid(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let last = id::exact(args[2])?;
    let (mut added, mut deleted) = (None, Id::MIN);
    let mut options = args.options(3);
    while let Some(option) = options.next() {
        if is(option, "entriesadded") && !options.is_empty() {
            let number = u64::try_from(int(options.value()?)?)
                .map_err(|_| Error::fixed("ERR entries_added must be positive"))?;
            added = Some(number);
        } else if is(option, "maxdeletedid") && !options.is_empty() {
            deleted = id::exact(options.value()?)?;
            if last < deleted {
                return Err(Error::fixed(
                    "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
                ));
            }
        } else {
            return Err(Error::SYNTAX);
        }
    }
    let mut stream = Stream::open(txn, args[1])?;
    if !stream.exists() {
        return Err(Error::NO_SUCH_KEY);
    }
    if let Some(top) = stream.top(txn)? {
        if last < top {
            return Err(Error::fixed(
                "ERR The ID specified in XSETID is smaller than the target stream top item",
            ));
        }
        if added.is_some_and(|added| added < stream.len()) {
            return Err(Error::fixed(
                "ERR The entries_added specified in XSETID is smaller than the target stream length",
            ));
        }
    }
    stream.set_last(txn, last)?;
    if let Some(added) = added {
        stream.set_added(added);
    }
    if deleted != Id::MIN {
        stream.set_deleted(deleted);
    }
    stream.save(txn);
    txn.notify(EventClass::Stream, "xsetid", args[1]);
    Ok(Reply::Ok)
}
