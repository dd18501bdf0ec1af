//! HyperLogLogs: strings that estimate how many different elements they were shown.

mod estimate;
mod sketch;
mod sparse;

use std::ops::Range;

use cairn_resp::Reply;
use cairn_store::{Error, EventClass, Expiry, ReadTxn, Result, Stamp, Str, WriteTxn, string};

use self::sketch::{Corrupt, HEADER, LONGEST, Registers, Sketch};
use super::args::Args;
use super::events;
use super::flags::Flag::{DenyOom, Fast, MayReplicate, ReadOnly};
use super::keys::{Access, KeySpec, Keys, Place, Purpose};
use super::{Command, Handler, command};
use crate::config::ENCODINGS;

const GROUP: &str = "hyperloglog";

const fn from(first: usize, access: Access) -> KeySpec {
    KeySpec {
        access,
        place: Place::Range {
            first,
            last: -1,
            step: 1,
        },
    }
}

pub const COMMANDS: &[Command] = &[
    command("pfadd", -2, Handler::Write(pfadd))
        .keys(Keys(&[KeySpec::at(1, Access::INSERT)]))
        .flags(&[DenyOom, Fast])
        .syntax("key element?+")
        .about(
            GROUP,
            "2.8.9",
            "O(1) for each element",
            "Shows elements to a HyperLogLog.",
        ),
    command("pfcount", -2, Handler::Write(pfcount))
        .counts_lookups()
        .keys(Keys(&[from(1, Access::ReadWrite(Purpose::Access))]))
        .flags(&[ReadOnly, MayReplicate])
        .syntax("key+")
        .notes(&["RW because it may change the internal representation of the key, and propagate to replicas"])
        .about(
            GROUP,
            "2.8.9",
            "O(1) for each key",
            "Estimates how many different elements HyperLogLogs were shown, all together.",
        ),
    command("pfmerge", -2, Handler::Write(pfmerge))
        .counts_lookups()
        .keys(Keys(&[
            KeySpec::at(1, Access::ReadWrite(Purpose::AccessInsert)),
            from(2, Access::READ),
        ]))
        .flags(&[DenyOom])
        .syntax("destkey:k sourcekey:k+")
        .about(
            GROUP,
            "2.8.9",
            "O(1) for each key",
            "Makes one HyperLogLog of several.",
        ),
];

const NOT_ONE: Error = Error::fixed("WRONGTYPE Key is not a valid HyperLogLog string value.");

impl From<Corrupt> for Error {
    fn from(_: Corrupt) -> Error {
        Error::fixed("INVALIDOBJ Corrupted HLL object detected")
    }
}

/// What is needed to replace a value that was found.
struct Live {
    stamp: Stamp,
    /// What lies behind all registers, where SETRANGE may have put anything: it was not read.
    unread: Range<u64>,
}

/// The HyperLogLog of a key, if there is one. Of one that is longer than any can be, so much is read that registers
/// can be looked up, and that counting them shows it to be corrupt.
fn find(txn: &ReadTxn, name: &[u8]) -> Result<Option<(Sketch, Live)>> {
    let Some(value) = Str::find(txn, name)? else {
        return Ok(None);
    };
    let len = value.len();
    if !Sketch::is_one(&value.range(txn, 0, len.min(HEADER as u64))?, len) {
        return Err(NOT_ONE);
    }
    let read = len.min(LONGEST as u64 + 1);
    let sketch = Sketch::from_bytes(value.range(txn, 0, read)?);
    let live = Live {
        stamp: value.stamp(),
        unread: read..len,
    };
    Ok(Some((sketch, live)))
}

/// Writes it back; it expires when it would have.
fn store(txn: &mut WriteTxn, name: &[u8], live: Option<Live>, mut sketch: Sketch) -> Result<()> {
    let key = txn.key(name);
    let stamp = live.as_ref().map(|live| live.stamp);
    if let Some(Live { unread, .. }) = live
        && !unread.is_empty()
    {
        if !txn.is_patient() {
            return Err(Error::TooLong);
        }
        if let Some(value) = Str::find(txn, name)? {
            sketch.append(&value.range(txn, unread.start, unread.end)?);
        }
    }
    string::replace(txn, &key, stamp.as_ref(), sketch.bytes(), Expiry::Keep)
}

fn pfadd(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let sparse_len = ENCODINGS.sparse_hyperloglog();
    let (mut sketch, live) = match find(txn, args[1])? {
        Some((sketch, live)) => (sketch, Some(live)),
        None => (Sketch::new(), None),
    };
    let mut is_changed = live.is_none();
    for element in args.rest(2) {
        is_changed |= sketch.add(element, sparse_len)?;
    }
    if is_changed {
        sketch.forget_estimate();
        store(txn, args[1], live, sketch)?;
        txn.notify(EventClass::String, "pfadd", args[1]);
    }
    Ok(Reply::Int(i64::from(is_changed)))
}

/// Counts as a command that reads, although it keeps the estimate of a single key with it.
fn pfcount(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    events::missing(txn, args.rest(1))?;
    let [name] = args.rest(1) else {
        return Ok(Reply::Int(merged(txn, args.rest(1))?.0.estimate()));
    };
    let Some((mut sketch, live)) = find(txn, name)? else {
        return Ok(Reply::Int(0));
    };
    if let Some(estimate) = sketch.kept_estimate() {
        return Ok(Reply::Int(estimate));
    }
    let estimate = sketch.estimate()?;
    sketch.keep_estimate(estimate);
    store(txn, name, Some(live), sketch)?;
    Ok(Reply::Int(estimate))
}

/// The registers of all keys together, and whether any of them is dense.
fn merged(txn: &ReadTxn, names: &[&[u8]]) -> Result<(Registers, bool)> {
    let mut registers = Registers::new();
    let mut has_dense = false;
    for name in names {
        if let Some((sketch, _)) = find(txn, name)? {
            has_dense |= sketch.is_dense();
            sketch.merge_into(&mut registers)?;
        }
    }
    Ok((registers, has_dense))
}

fn pfmerge(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    events::missing(txn, args.rest(1))?;
    let (registers, has_dense) = merged(txn, args.rest(1))?;
    let (mut sketch, live) = match txn.unasked(|txn| find(txn, args[1]))? {
        Some((sketch, live)) => (sketch, Some(live)),
        None => (Sketch::new(), None),
    };
    if has_dense {
        sketch.make_dense()?;
    }
    sketch.raise_all(&registers, ENCODINGS.sparse_hyperloglog())?;
    sketch.forget_estimate();
    store(txn, args[1], live, sketch)?;
    txn.notify(EventClass::String, "pfadd", args[1]);
    Ok(Reply::Ok)
}
