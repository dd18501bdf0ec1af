//! Strings as replies.

use std::ops::Range;

use cairn_resp::{Progress, Reply, ReplyStream, StreamError, Writer};
use cairn_store::string::{Next, Strings};
use cairn_store::{Chunks, Point, Result, Str, WriteTxn};

/// A part of a string, which must lie inside it.
pub fn part(point: Point<'_>, string: &Str<'_>, range: Range<u64>) -> Result<Reply> {
    if let Some(value) = string.inline() {
        return Ok(value[range.start as usize..range.end as usize].into());
    }
    let chunks = string.section(point.several_rows()?, range)?;
    Ok(chunks.map_or(Reply::Null, of_chunks))
}

/// A string that its command is about to change or delete. A large one is sent from a walk that is
/// opened now, and goes on to show it as it was.
pub fn before_change(txn: &WriteTxn, string: &Str<'_>) -> Result<Reply> {
    if let Some(value) = string.inline() {
        return Ok(value.into());
    }
    Ok(string.chunks(txn)?.map_or(Reply::Null, of_chunks))
}

fn of_chunks(chunks: Chunks) -> Reply {
    Reply::Stream(Box::new(ChunkReply {
        has_header: false,
        chunks,
    }))
}

struct ChunkReply {
    has_header: bool,
    chunks: Chunks,
}

impl ReplyStream for ChunkReply {
    fn write(
        &mut self,
        out: &mut Writer<'_>,
        limit: usize,
    ) -> std::result::Result<Progress, StreamError> {
        if !std::mem::replace(&mut self.has_header, true) {
            out.bulk_header(self.chunks.remaining() as usize);
        }
        while out.len() < limit {
            let more = self.chunks.append_next(out.bytes());
            if !more.map_err(StreamError::new)? {
                out.bytes().extend_from_slice(b"\r\n");
                return Ok(Progress::Done);
            }
        }
        Ok(Progress::More)
    }
}

/// Several strings, or nulls where there is none.
pub fn of_strings(strings: Strings) -> Reply {
    Reply::Stream(Box::new(StringsReply {
        has_header: false,
        strings,
        is_inside: false,
    }))
}

struct StringsReply {
    has_header: bool,
    strings: Strings,
    /// In the midst of a large string.
    is_inside: bool,
}

impl StringsReply {
    /// Writes one value, or a piece of one; false if there is no more.
    fn write_next(&mut self, out: &mut Writer<'_>) -> Result<bool> {
        if self.is_inside {
            self.is_inside = self.strings.append_chunk(out.bytes())?;
            if !self.is_inside {
                out.bytes().extend_from_slice(b"\r\n");
            }
            return Ok(true);
        }
        match self.strings.next()? {
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

impl ReplyStream for StringsReply {
    fn write(
        &mut self,
        out: &mut Writer<'_>,
        limit: usize,
    ) -> std::result::Result<Progress, StreamError> {
        if !std::mem::replace(&mut self.has_header, true) {
            out.array(self.strings.len());
        }
        while out.len() < limit {
            if !self.write_next(out).map_err(StreamError::new)? {
                return Ok(Progress::Done);
            }
        }
        Ok(Progress::More)
    }
}
