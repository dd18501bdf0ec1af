//! Strings as replies.

use std::ops::Range;

use cairn_resp::{Progress, Reply, StreamError, Writer};
use cairn_store::string::{Next, Strings};
use cairn_store::{Chunks, Point, Result, Str, WriteTxn};

use crate::command::stream::{self, Pieces};

/// A part of a string, which must lie inside it.
pub fn part<'t>(point: Point<'t>, string: &Str<'t>, range: Range<u64>) -> Result<Reply<'t>> {
    if let Some(value) = string.inline() {
        return Ok(value[range.start as usize..range.end as usize].into());
    }
    let chunks = string.section(point.several_rows()?, range);
    Ok(chunks.map_or(Reply::Null, of_chunks))
}

/// A string that its command is about to change or delete. A large one is sent from a walk that is
/// opened now, and goes on to show it as it was.
pub fn before_change(txn: &WriteTxn, string: &Str<'_>) -> Result<Reply<'static>> {
    if let Some(value) = string.inline() {
        return Ok(value.into());
    }
    match string.chunks(txn).and_then(Chunks::into_stored) {
        Some(chunks) => Ok(of_chunks(chunks)),
        // Written by this very transaction, which will not outlive the command.
        None => Ok(string.to_vec(txn)?.into()),
    }
}

fn of_chunks(chunks: Chunks<'_>) -> Reply<'_> {
    stream::reply(chunks, ChunkReply { has_header: false })
}

struct ChunkReply {
    has_header: bool,
}

impl Pieces for ChunkReply {
    type Walk<'t> = Chunks<'t>;

    fn write(
        &mut self,
        chunks: &mut Chunks<'_>,
        out: &mut Writer<'_>,
        limit: usize,
    ) -> std::result::Result<Progress, StreamError> {
        if !std::mem::replace(&mut self.has_header, true) {
            out.bulk_header(chunks.remaining() as usize);
        }
        while out.len() < limit {
            let more = chunks.append_next(out.bytes());
            if !more.map_err(StreamError::new)? {
                out.bytes().extend_from_slice(b"\r\n");
                return Ok(Progress::Done);
            }
        }
        Ok(Progress::More)
    }
}

/// Several strings, or nulls where there is none.
pub fn of_strings(strings: Strings<'_>) -> Reply<'_> {
    let pieces = StringsReply {
        has_header: false,
        is_inside: false,
    };
    stream::reply(strings, pieces)
}

struct StringsReply {
    has_header: bool,
    /// In the midst of a large string.
    is_inside: bool,
}

impl StringsReply {
    /// Writes one value, or a piece of one; false if there is no more.
    fn write_next(&mut self, strings: &mut Strings<'_>, out: &mut Writer<'_>) -> Result<bool> {
        if self.is_inside {
            self.is_inside = strings.append_chunk(out.bytes())?;
            if !self.is_inside {
                out.bytes().extend_from_slice(b"\r\n");
            }
            return Ok(true);
        }
        match strings.next()? {
            None => return Ok(false),
            Some(Next::Nothing) => out.null(),
            Some(Next::Value(value)) => out.bulk(value),
            Some(Next::Large(length)) => {
                out.bulk_header(length as usize);
                self.is_inside = true;
            }
        }
        Ok(true)
    }
}

impl Pieces for StringsReply {
    type Walk<'t> = Strings<'t>;

    fn write(
        &mut self,
        strings: &mut Strings<'_>,
        out: &mut Writer<'_>,
        limit: usize,
    ) -> std::result::Result<Progress, StreamError> {
        if !std::mem::replace(&mut self.has_header, true) {
            out.array(strings.len());
        }
        while out.len() < limit {
            if !self.write_next(strings, out).map_err(StreamError::new)? {
                return Ok(Progress::Done);
            }
        }
        Ok(Progress::More)
    }
}
