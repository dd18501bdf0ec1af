//! BITCOUNT and BITPOS: looking through a part of a value.

use std::ops::Range;

use cairn_resp::{Reply, number};
use cairn_store::{Error, ReadTxn, Result, Str};

use crate::command::Args;
use crate::command::args::{int, is};

/// A part of a value, in bits: where it begins and ends.
type Bits = Range<u64>;

/// `start end [BYTE | BIT]`, as far as they are given.
struct Section {
    start: i64,
    end: Option<i64>,
    is_in_bits: bool,
}

impl Section {
    /// Of BITCOUNT. None if both ends are counted from the end of the value, and the wrong way round: then nobody asks
    /// for the unit.
    fn to_count(words: &[&[u8]]) -> Result<Option<Section>> {
        let (start, end) = (start_of(words)?, end_of(words)?);
        if start < 0 && end.is_some_and(|end| end < 0 && start > end) {
            return Ok(None);
        }
        Ok(Some(Section {
            start,
            end,
            is_in_bits: is_in_bits(words)?,
        }))
    }

    /// Of BITPOS, which looks at the words in another order.
    fn to_search(words: &[&[u8]]) -> Result<Section> {
        Ok(Section {
            start: start_of(words)?,
            is_in_bits: is_in_bits(words)?,
            end: end_of(words)?,
        })
    }

    /// What it is of a value of so many bytes.
    fn of(&self, length: u64) -> Option<Bits> {
        let unit = if self.is_in_bits { 1 } else { 8 };
        let total = (length * 8 / unit) as i64;
        let from_start = |index: i64| match index {
            0.. => index,
            _ => total.saturating_add(index).max(0),
        };
        let start = from_start(self.start);
        let end = from_start(self.end.unwrap_or(-1)).min(total - 1);
        if start > end {
            return None;
        }
        Some(start as u64 * unit..(end as u64 + 1) * unit)
    }
}

fn start_of(words: &[&[u8]]) -> Result<i64> {
    words.first().map_or(Ok(0), |word| int(word))
}

fn end_of(words: &[&[u8]]) -> Result<Option<i64>> {
    words.get(1).map(|word| int(word)).transpose()
}

fn is_in_bits(words: &[&[u8]]) -> Result<bool> {
    match words.get(2) {
        None => Ok(false),
        Some(unit) if is(unit, "bit") => Ok(true),
        Some(unit) if is(unit, "byte") => Ok(false),
        Some(_) => Err(Error::SYNTAX),
    }
}

pub fn bitcount(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let Some(value) = Str::find(txn, args[1])? else {
        return Ok(Reply::Int(0));
    };
    let words = args.rest(2);
    if words.len() == 1 || words.len() > 3 {
        return Err(Error::SYNTAX);
    }
    let section = Section::to_count(words)?;
    let Some(bits) = section.and_then(|section| section.of(value.len())) else {
        return Ok(Reply::Int(0));
    };
    let mut count = 0;
    look_through(txn, &value, &bits, false, |_, bytes| {
        count += count_ones(bytes);
        false
    })?;
    Ok(count.into())
}

fn count_ones(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let in_words: u32 = words
        .iter()
        .map(|word| u64::from_ne_bytes(*word).count_ones())
        .sum();
    let in_rest: u32 = rest.iter().map(|byte| byte.count_ones()).sum();
    u64::from(in_words + in_rest)
}

pub fn bitpos(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let wanted = match int(args[2])? {
        0 => false,
        1 => true,
        _ => return Err(Error::fixed("ERR The bit argument must be 1 or 0.")),
    };
    let Some(value) = Str::find(txn, args[1])? else {
        return Ok(Reply::Int(if wanted { -1 } else { 0 }));
    };
    let words = args.rest(3);
    if words.len() > 3 {
        return Err(Error::SYNTAX);
    }
    let section = Section::to_search(words)?;
    let Some(bits) = section.of(value.len()) else {
        return Ok(Reply::Int(-1));
    };
    let mut found = None;
    look_through(txn, &value, &bits, !wanted, |start, bytes| {
        let skipped = if wanted { 0 } else { 0xff };
        let byte = bytes.iter().position(|byte| *byte != skipped);
        found = byte.map(|at| {
            let byte = bytes[at] ^ skipped;
            (start + at as u64) * 8 + u64::from(byte.leading_zeros())
        });
        found.is_some()
    })?;
    match found {
        Some(found) => Ok(found.into()),
        // A value goes on with zeros, unless its end was given.
        None if !wanted && section.end.is_none() => Ok((value.len() * 8).into()),
        None => Ok(Reply::Int(-1)),
    }
}

/// Shows the bytes of a part of a value, from this byte on, until `look` has seen enough. Bits outside of the part
/// are shown as `outside`. Of the zeros where nothing is stored the first byte is shown, and stands for all of them.
fn look_through(
    txn: &ReadTxn,
    value: &Str<'_>,
    bits: &Bits,
    outside: bool,
    mut look: impl FnMut(u64, &[u8]) -> bool,
) -> Result<()> {
    let bytes = bits.start / 8..bits.end.div_ceil(8);
    let mut masked = |start: u64, piece: &mut [u8]| {
        mask(bits, start, piece, outside);
        look(start, piece)
    };
    let Some(mut chunks) = value.section(txn, bytes.clone())? else {
        let mut piece = value.range(txn, bytes.start, bytes.end)?;
        masked(bytes.start, &mut piece);
        return Ok(());
    };
    let (mut start, mut piece) = (bytes.start, Vec::new());
    loop {
        let gap = chunks.pass_gap()?;
        if gap > 0 && masked(start, &mut [0]) {
            return Ok(());
        }
        start += gap;
        if !chunks.append_next(&mut piece)? {
            return Ok(());
        }
        txn.step()?;
        if masked(start, &mut piece) {
            return Ok(());
        }
        start += piece.len() as u64;
        piece.clear();
    }
}

/// Puts other bits where the first and the last byte lie outside of the part.
fn mask(bits: &Bits, start: u64, piece: &mut [u8], outside: bool) {
    let end = start + piece.len() as u64;
    let cover = |byte: &mut u8, inside: u8| match outside {
        true => *byte |= !inside,
        false => *byte &= inside,
    };
    if let Some(first) = piece.first_mut()
        && start == bits.start / 8
    {
        cover(first, 0xff >> (bits.start % 8));
    }
    if let Some(last) = piece.last_mut()
        && end == bits.end.div_ceil(8)
        && !bits.end.is_multiple_of(8)
    {
        cover(last, !(0xff >> (bits.end % 8)));
    }
}

/// An offset in bits, as SETBIT and BITFIELD take it.
pub fn parse_offset(text: &[u8]) -> Option<u64> {
    number::parse_i64(text).and_then(|offset| u64::try_from(offset).ok())
}
