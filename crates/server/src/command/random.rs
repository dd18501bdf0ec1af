//! HRANDFIELD and ZRANDMEMBER: rows of a collection at random, with what belongs to them or without.
//!
//! A few of many rows are found by their ranks, where these are known. Else rows that must differ are chosen on
//! one walk while they are sent. Where rows may come twice, some thousands are drawn and looked up in one walk,
//! and then the next. Either way the reply may be of any length, and so may the collection: a piece of the reply
//! passes over a bounded number of rows.

use cairn_resp::{Progress, Protocol, Reply, ReplyStream, StreamError, Writer};
use cairn_store::random::{Draws, Lottery};
use cairn_store::{Collection, Error, Jumps, LiveRow, LiveRows, ReadTxn, Result};

use super::args::{Args, is};
use super::piecewise::ROWS_PER_PIECE;
use super::rows::{self, Shape};

/// What follows the key: `[count [WITHVALUES]]`.
#[derive(Clone, Copy)]
pub enum Request {
    One,
    Several {
        wanted: u64,
        may_repeat: bool,
        shape: Shape,
    },
}

impl Request {
    /// `pairing` is the option that asks for the value or the score too.
    pub fn parse(args: &Args, pairing: &str) -> Result<Request> {
        if args.len() == 2 {
            return Ok(Request::One);
        }
        let count = args.int(2)?;
        if count == i64::MIN {
            return Err(Error::reply(format!(
                "ERR value is out of range, value must between {} and {}",
                -i64::MAX,
                i64::MAX
            )));
        }
        let shape = match args.rest(3) {
            [] => Shape::Array,
            [option] if is(option, pairing) => Shape::Pairs,
            _ => return Err(Error::SYNTAX),
        };
        let wanted = count.unsigned_abs();
        if shape == Shape::Pairs && wanted > i64::MAX.unsigned_abs() / 2 {
            return Err(Error::fixed("ERR value is out of range"));
        }
        Ok(Request::Several {
            wanted,
            may_repeat: count < 0,
            shape,
        })
    }

    /// Answers from the rows of a collection.
    pub fn reply(self, txn: &ReadTxn, from: &Collection, item: impl Item) -> Result<Reply> {
        let Request::Several {
            wanted,
            may_repeat,
            shape,
        } = self
        else {
            let row_key = from.any(txn)?;
            return Ok(row_key.map(|row_key| item.name(&row_key).to_vec()).into());
        };
        let size = from.live_len(txn)?;
        if let Some(reply) = picked(txn, from, (wanted, may_repeat), shape, item)? {
            return Ok(reply);
        }
        let header = Some((shape, wanted));
        let rows = from.live_ordered_rows(txn)?;
        Ok(if size == 0 || wanted == 0 {
            Reply::Array(Vec::new())
        } else if may_repeat {
            Reply::Stream(Box::new(Repeated {
                header,
                rows,
                draws: Draws::new(wanted, size),
                shape,
                item,
            }))
        } else if wanted < size {
            Reply::Stream(Box::new(Distinct {
                header,
                rows,
                lottery: Lottery::new(wanted, size),
                shape,
                item,
            }))
        } else {
            let write = move |row_key: &[u8], value: &[u8], out: &mut Writer<'_>| {
                write(shape, item, row_key, value, out);
            };
            rows::reply(shape, size, rows, write)
        })
    }
}

/// How to read the rows of a collection.
pub trait Item: Copy + Send + 'static {
    /// The field or member.
    fn name(self, row_key: &[u8]) -> &[u8];

    /// Writes what belongs to it: the value or the score.
    fn write_partner(self, row_key: &[u8], value: &[u8], out: &mut Writer<'_>);
}

fn write(shape: Shape, item: impl Item, row_key: &[u8], value: &[u8], out: &mut Writer<'_>) {
    if shape != Shape::Pairs {
        return out.bulk(item.name(row_key));
    }
    if out.protocol() == Protocol::Resp3 {
        out.array(2);
    }
    out.bulk(item.name(row_key));
    item.write_partner(row_key, value, out);
}

type Header = Option<(Shape, u64)>;

fn write_header(header: &mut Header, out: &mut Writer<'_>) {
    if let Some((shape, count)) = header.take() {
        shape.write(out, count);
    }
}

/// An answer from rows that are found by their ranks; none where it should be walked.
pub fn picked(
    txn: &ReadTxn,
    from: &Collection,
    (wanted, may_repeat): (u64, bool),
    shape: Shape,
    item: impl Item,
) -> Result<Option<Reply>> {
    let jumps = from.jumps(txn, wanted, may_repeat)?;
    Ok(jumps.map(|jumps| {
        Reply::Stream(Box::new(Picked {
            header: Some((shape, wanted)),
            jumps,
            shape,
            item,
        }))
    }))
}

/// Rows whose places are known.
struct Picked<I> {
    header: Header,
    jumps: Jumps,
    shape: Shape,
    item: I,
}

/// How many of these are looked up at a time: each is a search, and a walk over some rows.
const PICKS_PER_PIECE: usize = 64;

impl<I: Item> ReplyStream for Picked<I> {
    fn write(&mut self, out: &mut Writer<'_>, limit: usize) -> Result<Progress, StreamError> {
        write_header(&mut self.header, out);
        for _ in 0..PICKS_PER_PIECE {
            if out.len() >= limit {
                break;
            }
            match self.jumps.next().map_err(StreamError::new)? {
                Some((row_key, value)) => write(self.shape, self.item, row_key, value, out),
                None => return Ok(Progress::Done),
            }
        }
        Ok(Progress::More)
    }
}

/// Rows none of which comes twice.
struct Distinct<I> {
    header: Header,
    rows: LiveRows,
    lottery: Lottery,
    shape: Shape,
    item: I,
}

impl<I: Item> ReplyStream for Distinct<I> {
    fn write(&mut self, out: &mut Writer<'_>, limit: usize) -> Result<Progress, StreamError> {
        write_header(&mut self.header, out);
        for _ in 0..ROWS_PER_PIECE {
            if self.lottery.wanted() == 0 {
                return Ok(Progress::Done);
            }
            if out.len() >= limit {
                break;
            }
            let row = next_row(&mut self.rows)?;
            if !row.is_due && self.lottery.draw() {
                write(self.shape, self.item, row.row_key, row.value, out);
            }
        }
        Ok(Progress::More)
    }
}

/// Rows of which any may come several times.
struct Repeated<I> {
    header: Header,
    rows: LiveRows,
    draws: Draws,
    shape: Shape,
    item: I,
}

impl<I: Item> ReplyStream for Repeated<I> {
    fn write(&mut self, out: &mut Writer<'_>, limit: usize) -> Result<Progress, StreamError> {
        write_header(&mut self.header, out);
        let mut rows_left = ROWS_PER_PIECE;
        while out.len() < limit && rows_left > 0 {
            if let Some(drawn) = self.draws.pop() {
                out.bytes().extend_from_slice(&drawn);
                continue;
            }
            if !self.draws.is_looking() {
                if !self.draws.start_walk() {
                    return Ok(Progress::Done);
                }
                self.rows.rewind();
            }
            rows_left -= 1;
            let LiveRow {
                row_key,
                value,
                is_due,
                ..
            } = next_row(&mut self.rows)?;
            if is_due {
                continue;
            }
            let (shape, item, protocol) = (self.shape, self.item, out.protocol());
            self.draws.meet(|| {
                // Kept as it will be sent.
                let mut copy = Vec::new();
                let mut out = Writer::new(&mut copy, protocol);
                write(shape, item, row_key, value, &mut out);
                copy
            });
        }
        Ok(Progress::More)
    }
}

fn next_row(rows: &mut LiveRows) -> Result<LiveRow<'_>, StreamError> {
    let row = rows.next().map_err(StreamError::new)?;
    row.ok_or_else(|| StreamError::new("rows are missing"))
}
