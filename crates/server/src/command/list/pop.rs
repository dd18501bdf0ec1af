//! Taking elements from the ends of lists: LPOP, RPOP, LMPOP, and LMOVE and RPOPLPUSH, which put what
//! they take elsewhere.

use cairn_resp::Reply;
use cairn_store::{End, Error, EventClass, List, Result, WriteTxn};

use super::{count_from, elements, push_event};
use crate::command::args::is;
use crate::command::events;
use crate::command::piecewise::with_key;
use crate::command::rows;
use crate::command::{Args, wrong_arity};
use crate::propagation::{Propagate, decimal};

pub(super) fn lpop(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    pop(txn, args, "lpop", End::Left)
}

pub(super) fn rpop(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    pop(txn, args, "rpop", End::Right)
}

fn pop(txn: &mut WriteTxn, args: &Args, name: &str, end: End) -> Result<Reply> {
    if args.len() > 3 {
        return Err(wrong_arity(name));
    }
    let complaint = "ERR value is out of range, must be positive";
    let count = args.get(2).map(|text| count_from(text, 0, complaint));
    let count = count.transpose()?;
    let mut list = List::open(txn, args[1])?;
    match count {
        Some(_) if !list.exists() => Ok(Reply::NullArray),
        Some(count) => pop_several(txn, args[1], list, end, count),
        None => {
            let element = list.pop(txn, end)?;
            if element.is_some() {
                save_popped(txn, args[1], list, end);
            }
            Ok(element.map_or(Reply::Null, rows::shared))
        }
    }
}

/// Saves a list from which something was taken, and tells of that.
fn save_popped(txn: &mut WriteTxn, name: &[u8], list: List, end: End) {
    let event = match end {
        End::Left => "lpop",
        End::Right => "rpop",
    };
    let is_emptied = list.is_empty();
    list.save(txn);
    events::taken(txn, EventClass::List, event, name, is_emptied);
}

/// Takes the outermost element, if there is a list.
pub fn pop_one(txn: &mut WriteTxn, name: &[u8], end: End) -> Result<Option<Reply>> {
    let mut list = List::open(txn, name)?;
    if !list.exists() {
        return Ok(None);
    }
    let element = list.pop(txn, end)?;
    save_popped(txn, name, list, end);
    Ok(element.map(rows::shared))
}

pub(super) fn lmpop(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let (keys, wanted) = parse_pops(args.rest(1))?;
    let popped = pop_first(txn, keys.iter().copied(), wanted)?;
    Ok(popped.unwrap_or(Reply::NullArray))
}

type Names<'a> = &'a [&'a [u8]];

/// `numkeys key [key ...] LEFT | RIGHT [COUNT count]`: the keys, and what to take.
pub fn parse_pops<'a>(words: &'a [&'a [u8]]) -> Result<(Names<'a>, (End, u64))> {
    let keys = count_from(words[0], 1, "ERR numkeys should be greater than 0")?;
    let end_at = usize::try_from(keys).map_or(usize::MAX, |keys| keys.saturating_add(1));
    let end = end_named(words.get(end_at).ok_or(Error::SYNTAX)?)?;
    let mut options = Args::new(words).options(end_at + 1);
    let mut count = None;
    while !options.is_empty() {
        if count.is_some() || !options.take("count") {
            return Err(Error::SYNTAX);
        }
        let text = options.value()?;
        count = Some(count_from(text, 1, "ERR count should be greater than 0")?);
    }
    Ok((&words[1..end_at], (end, count.unwrap_or(1))))
}

pub fn end_word(end: End) -> &'static [u8] {
    match end {
        End::Left => b"left",
        End::Right => b"right",
    }
}

/// The command that takes from this end.
pub fn pop_word(end: End) -> &'static [u8] {
    match end {
        End::Left => b"LPOP",
        End::Right => b"RPOP",
    }
}

/// Takes elements from the first of the lists that has any.
pub fn pop_first<'a>(
    txn: &mut WriteTxn,
    names: impl Iterator<Item = &'a [u8]>,
    (end, count): (End, u64),
) -> Result<Option<Reply>> {
    for name in names {
        let list = List::open(txn, name)?;
        if list.exists() {
            let taken = count.min(list.len());
            let elements = pop_several(txn, name, list, end, count)?;
            if txn.is_followed() {
                txn.propagate_as(&[pop_word(end), name, &decimal(taken)]);
            }
            return Ok(Some(with_key(name, elements)));
        }
    }
    Ok(None)
}

/// Takes the elements nearest to an end. A walk that is opened before goes on to show them, so those of a
/// long list can be streamed.
fn pop_several(
    txn: &mut WriteTxn,
    name: &[u8],
    mut list: List,
    end: End,
    count: u64,
) -> Result<Reply> {
    let positions = list.outermost(end, count);
    let taken = positions.end - positions.start;
    let reply = elements(txn, &list, positions.clone(), end, |bulks| {
        let show = |element: &[u8]| bulks.push(element);
        match end {
            End::Left => list.show_from_memory(txn, positions, show),
            End::Right => list.show_from_memory(txn, positions.rev(), show),
        }
    })?;
    list.drop_outermost(end, count);
    if taken > 0 {
        save_popped(txn, name, list, end);
    }
    Ok(reply)
}

pub(super) fn lmove(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let (from, to) = ends(args[3], args[4])?;
    move_element(txn, (args[1], from), (args[2], to))
}

pub(super) fn rpoplpush(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    move_element(txn, (args[1], End::Right), (args[2], End::Left))
}

/// Takes an element from one list and puts it in another; null if there is none.
pub fn move_element(
    txn: &mut WriteTxn,
    (source_name, from): (&[u8], End),
    (target_name, to): (&[u8], End),
) -> Result<Reply> {
    let mut source = List::open(txn, source_name)?;
    if !source.exists() {
        return Ok(Reply::Null);
    }
    // A list that turns on itself is one list, and stays one even if it has a single element.
    let target = if source_name == target_name {
        None
    } else {
        Some(List::open(txn, target_name)?)
    };
    let Some(element) = source.pop(txn, from)? else {
        return Ok(Reply::Null);
    };
    match target {
        None => source.push(txn, to, &element),
        Some(mut target) => {
            target.push(txn, to, &element);
            target.save(txn);
        }
    }
    txn.notify(EventClass::List, push_event(to), target_name);
    save_popped(txn, source_name, source, from);
    Ok(rows::shared(element))
}

pub fn ends(from: &[u8], to: &[u8]) -> Result<(End, End)> {
    Ok((end_named(from)?, end_named(to)?))
}

fn end_named(text: &[u8]) -> Result<End> {
    if is(text, "left") {
        Ok(End::Left)
    } else if is(text, "right") {
        Ok(End::Right)
    } else {
        Err(Error::SYNTAX)
    }
}
