//! Members as a reply.
//!
//! A reply begins with the number of its members, which for an intersection, say, is known only when it
//! has been made. So it is made once to be counted. If the result is small it has been collected on the
//! way; if not, it is made again, on the same pinned rows, while it is sent.

use cairn_resp::{Progress, Reply, ReplyStream, StreamError, Writer};
use cairn_store::set::{Selection, Step};
use cairn_store::{ReadTxn, Result};

use crate::command::piecewise::ROWS_PER_PIECE;

/// Results up to this are collected.
const FEW: u64 = 512;
const FEW_BYTES: usize = 64 * 1024;

/// What RESP3 clients see the members as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Set,
    Array,
}

/// The members of a selection that stands before its first.
pub fn members(txn: &ReadTxn, kind: Kind, mut selection: Selection) -> Result<Reply> {
    let count = match selection.known_len() {
        Some(count) if count > FEW => count,
        known => {
            let (collected, count) = collect(txn, &mut selection)?;
            if collected.len() as u64 == count {
                return Ok(match kind {
                    Kind::Set => Reply::Set(collected),
                    Kind::Array => Reply::Array(collected),
                });
            }
            selection.rewind();
            known.unwrap_or(count)
        }
    };
    Ok(stream(kind, count, selection))
}

/// The members, if they are few, and how many there are. More than a few are counted only.
fn collect(txn: &ReadTxn, selection: &mut Selection) -> Result<(Vec<Reply>, u64)> {
    let (mut collected, mut bytes, mut count) = (Vec::new(), 0, 0);
    loop {
        txn.step()?;
        match selection.step()? {
            Step::End => return Ok((collected, count)),
            Step::Onward => continue,
            Step::Member => {}
        }
        count += 1;
        bytes += selection.member().len();
        if count <= FEW && bytes <= FEW_BYTES {
            collected.push(Reply::from(selection.member()));
        } else {
            collected = Vec::new();
        }
    }
}

/// The members of a selection that is known to have so many.
pub fn stream(kind: Kind, count: u64, selection: Selection) -> Reply {
    Reply::Stream(Box::new(Members {
        header: Some(kind),
        selection,
        left: count,
    }))
}

struct Members {
    header: Option<Kind>,
    selection: Selection,
    left: u64,
}

impl Members {
    fn write_header(&mut self, out: &mut Writer<'_>) {
        let count = usize::try_from(self.left).unwrap_or(usize::MAX);
        match self.header.take() {
            Some(Kind::Set) => out.set(count),
            Some(Kind::Array) => out.array(count),
            None => {}
        }
    }
}

impl ReplyStream for Members {
    fn write(
        &mut self,
        out: &mut Writer<'_>,
        limit: usize,
    ) -> std::result::Result<Progress, StreamError> {
        self.write_header(out);
        for _ in 0..ROWS_PER_PIECE {
            if self.left == 0 {
                return Ok(Progress::Done);
            }
            if out.len() >= limit {
                break;
            }
            match self.selection.step().map_err(StreamError::new)? {
                Step::Member => {
                    out.bulk(self.selection.member());
                    self.left -= 1;
                }
                Step::Onward => {}
                Step::End => return Err(StreamError::new("members are missing")),
            }
        }
        Ok(Progress::More)
    }
}
