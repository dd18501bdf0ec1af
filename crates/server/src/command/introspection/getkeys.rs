//! COMMAND GETKEYS: the keys that a call names. Unlike the latches, which take what they find, this must
//! refuse a call whose arguments make no sense.

use std::ops::Range;

use cairn_resp::{Reply, number};
use cairn_store::{Error, Result};

use crate::command::args::is;
use crate::command::keys::{Access, Place, count_of};
use crate::command::{Args, Command, Flag, lookup};
use crate::session::Session;

pub fn keys(_: &mut Session, args: &Args) -> Result<Reply> {
    let named = named_keys(&Args::new(args.rest(2)))?;
    Ok(named.into_iter().map(|(key, _)| key).collect())
}

pub fn keys_and_flags(_: &mut Session, args: &Args) -> Result<Reply> {
    let named = named_keys(&Args::new(args.rest(2)))?;
    let pairs = named.into_iter().map(|(key, access)| {
        let flags = access.names().into_iter().map(Reply::Simple).collect();
        Reply::Array(vec![key.into(), Reply::Set(flags)])
    });
    Ok(Reply::Array(pairs.collect()))
}

fn named_keys<'a>(call: &Args<'a>) -> Result<Vec<(&'a [u8], Access)>> {
    let command = lookup(call).ok_or(Error::fixed("ERR Invalid command specified"))?;
    if command
        .keys
        .0
        .iter()
        .all(|spec| spec.access == Access::NotKey)
    {
        return Err(Error::fixed("ERR The command has no key arguments"));
    }
    if !command.accepts(call.len()) {
        return Err(Error::fixed(
            "ERR Invalid number of arguments specified for command",
        ));
    }
    let places = keys_of(command, call);
    let places = places.ok_or(Error::fixed("ERR Invalid arguments specified for command"))?;
    let named = places.into_iter();
    Ok(named.map(|(at, access)| (call[at], access)).collect())
}

/// Where the keys of a call stand, and what it does to each; none if its arguments make no sense.
pub fn keys_of(command: &Command, call: &Args<'_>) -> Option<Vec<(usize, Access)>> {
    let mut named = Vec::new();
    for spec in command.keys.0 {
        let access = command.access.map_or(spec.access, |access| access(call));
        let positions = positions(call, spec.place);
        if positions.is_none() && command.has(Flag::NoMandatoryKeys) {
            continue;
        }
        let positions = positions?.into_iter().map(|at| (at, access));
        match spec.place {
            // Redis has another way to find them if their number is none to this one, and another order there.
            Place::Counted { count_at } if strictly_counted(call, count_at).is_none() => {
                named.splice(0..0, positions);
            }
            _ => named.extend(positions),
        }
    }
    Some(named)
}

/// The keys behind their number.
fn strictly_counted(call: &Args<'_>, count_at: usize) -> Option<Range<usize>> {
    let count = number::parse_i64(call.get(count_at)?)?;
    counted(call, count_at, usize::try_from(count).ok()?)
}

fn counted(call: &Args<'_>, count_at: usize, count: usize) -> Option<Range<usize>> {
    let first = count_at + 1;
    let end = first.checked_add(count).filter(|end| *end <= call.len())?;
    (count > 0).then_some(first..end)
}

fn positions(call: &Args<'_>, place: Place) -> Option<Vec<usize>> {
    match place {
        Place::Range { first, last, step } => {
            let last = if last < 0 {
                call.len().checked_sub(last.unsigned_abs() as usize)?
            } else {
                last as usize
            };
            (first <= last && last < call.len()).then(|| (first..=last).step_by(step).collect())
        }
        Place::Counted { count_at } => {
            let keys = strictly_counted(call, count_at);
            let keys = keys.or_else(|| counted(call, count_at, count_of(call.get(count_at)?)?));
            keys.map(Iterator::collect)
        }
        Place::HalfBehind { option, from } => {
            // Redis looks for the word where the specification says, whatever it may be the value of.
            let mut words = from..call.len().saturating_sub(1);
            let first = words.find(|at| is(call[*at], option.word))? + 1;
            let count = (call.len() - first) / 2;
            (count > 0).then(|| (first..first + count).collect())
        }
        Place::Unless { position, option } => {
            let behind = option.behind(call);
            match call.get(position)?.is_empty() {
                true if behind.is_empty() => Some(vec![position]),
                true => Some(Vec::new()),
                false => behind.is_empty().then(|| vec![position]),
            }
        }
        Place::AllBehind(option) => {
            let behind = option.behind(call);
            Some((call.len() - behind.len()..call.len()).collect())
        }
        Place::Option(option) => Some(option.positions(call).last().into_iter().collect()),
        Place::Elsewhere => Some(Vec::new()),
        // The word may be missing; if there are several, Redis tells of the first.
        Place::Behind { word, from } => {
            let mut words = (from..call.len()).zip(call.rest(from).windows(2));
            let found = words.find(|(_, pair)| is(pair[0], word));
            Some(found.map(|(at, _)| at + 1).into_iter().collect())
        }
    }
}
