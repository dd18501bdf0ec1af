//! HRANDFIELD.
//!
//! Every field is as likely as any other. Fields that must differ are chosen on one walk: each row is
//! taken with the probability that so many of so many left are wanted, which needs no memory. Where
//! fields may come twice, their ranks are drawn some thousands at a time and sorted, so that one walk
//! finds them all, and what it found is shuffled. Either way the reply may be of any length.

#[cfg(test)]
mod tests;

use cairn_resp::{Detached, Progress, Protocol, Reply, ReplyStream, StreamError, Writer};
use cairn_store::{Error, Hash, ReadTxn, Result, Rows};

use super::Args;
use crate::command::args::is;
use crate::command::rows::{self, Shape};

/// How many ranks are drawn at once, and how many bytes of what was found there are kept.
const DRAWN_AT_ONCE: u64 = 1 << 14;
const KEPT_BYTES: usize = 1024 * 1024;
/// How many rows one piece of a stream may pass over: in between, other connections have their turn.
const ROWS_PER_PIECE: usize = 10_000;

pub fn hrandfield<'t>(txn: &'t ReadTxn, args: &Args) -> Result<Reply<'t>> {
    if args.len() == 2 {
        return one(txn, args[1]);
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
        [option] if is(option, "withvalues") => Shape::Pairs,
        _ => return Err(Error::SYNTAX),
    };
    let wanted = count.unsigned_abs();
    if shape == Shape::Pairs && wanted > i64::MAX as u64 / 2 {
        return Err(Error::fixed("ERR value is out of range"));
    }
    let hash = Hash::open(txn, args[1])?;
    if hash.is_empty() || wanted == 0 {
        return Ok(Reply::Array(Vec::new()));
    }
    if count < 0 {
        expect_walk(txn, &hash)?;
        Ok(repeated(txn, &hash, shape, wanted))
    } else if wanted >= hash.len() {
        let item = Item::new(&hash, shape);
        let write = move |key: &[u8], value: &[u8], out: &mut Writer<'_>| {
            item.write(key, value, out);
        };
        Ok(rows::reply(shape, hash.len(), hash.rows(txn), write))
    } else {
        expect_walk(txn, &hash)?;
        Ok(distinct(txn, &hash, shape, wanted))
    }
}

fn one<'t>(txn: &'t ReadTxn, name: &[u8]) -> Result<Reply<'t>> {
    let hash = Hash::open(txn, name)?;
    if hash.is_empty() {
        return Ok(Reply::Null);
    }
    let mut before = fastrand::u64(..hash.len());
    let mut rows = hash.rows(txn);
    while let Some((row_key, _)) = rows.next()? {
        txn.step()?;
        if before == 0 {
            return Ok(hash.field_of(row_key).into());
        }
        before -= 1;
    }
    Ok(Reply::Null)
}

/// The rows are walked while the reply is written, where it is too late to move to another thread: that
/// is decided here.
fn expect_walk(txn: &ReadTxn, hash: &Hash) -> Result<()> {
    if !txn.is_patient() {
        for _ in 0..hash.len() {
            txn.step()?;
        }
    }
    Ok(())
}

/// How a field is written, with its value or without.
#[derive(Clone, Copy)]
struct Item {
    shape: Shape,
    field_at: usize,
}

impl Item {
    fn new(hash: &Hash, shape: Shape) -> Item {
        Item {
            shape,
            field_at: hash.collection().sub_offset(),
        }
    }

    fn write(self, row_key: &[u8], value: &[u8], out: &mut Writer<'_>) {
        let field = &row_key[self.field_at..];
        if self.shape != Shape::Pairs {
            return out.bulk(field);
        }
        if out.protocol() == Protocol::Resp3 {
            out.array(2);
        }
        out.bulk(field);
        out.bulk(value);
    }
}

fn distinct<'t>(txn: &'t ReadTxn, hash: &Hash, shape: Shape, wanted: u64) -> Reply<'t> {
    Reply::Stream(Box::new(Distinct {
        rows: hash.rows(txn),
        rows_left: hash.len(),
        wanted,
        has_header: false,
        item: Item::new(hash, shape),
    }))
}

struct Distinct<'t> {
    rows: Rows<'t>,
    rows_left: u64,
    wanted: u64,
    has_header: bool,
    item: Item,
}

impl ReplyStream for Distinct<'_> {
    fn write(
        &mut self,
        out: &mut Writer<'_>,
        limit: usize,
    ) -> std::result::Result<Progress, StreamError> {
        if !std::mem::replace(&mut self.has_header, true) {
            self.item.shape.write(out, self.wanted);
        }
        for _ in 0..ROWS_PER_PIECE {
            if self.wanted == 0 {
                return Ok(Progress::Done);
            }
            if out.len() >= limit {
                break;
            }
            let Some((row_key, value)) = self.rows.next().map_err(StreamError::new)? else {
                return Err(StreamError::new("rows are missing"));
            };
            if fastrand::u64(..self.rows_left) < self.wanted {
                self.item.write(row_key, value, out);
                self.wanted -= 1;
            }
            self.rows_left -= 1;
        }
        Ok(Progress::More)
    }

    fn detach<'s>(self: Box<Self>) -> Detached<'s>
    where
        Self: 's,
    {
        if self.rows.has_pending() {
            return Err(self);
        }
        let Distinct {
            rows,
            rows_left,
            wanted,
            has_header,
            item,
        } = *self;
        match rows.into_stored() {
            Some(rows) => Ok(Box::new(Distinct {
                rows,
                rows_left,
                wanted,
                has_header,
                item,
            })),
            None => unreachable!("a walk without pending changes is free of its transaction"),
        }
    }
}

fn repeated<'t>(txn: &'t ReadTxn, hash: &Hash, shape: Shape, wanted: u64) -> Reply<'t> {
    Reply::Stream(Box::new(Repeated {
        rows: hash.rows(txn),
        draw: Draw {
            size: hash.len(),
            undrawn: wanted,
            ranks: Vec::new(),
            next_rank: 0,
            found: Vec::new(),
            places: Vec::new(),
        },
        has_header: false,
        item: Item::new(hash, shape),
    }))
}

struct Repeated<'t> {
    rows: Rows<'t>,
    draw: Draw,
    has_header: bool,
    item: Item,
}

/// What has been drawn, and how far it has been looked up.
struct Draw {
    size: u64,
    undrawn: u64,
    /// Ranks not looked up yet, the lowest last.
    ranks: Vec<u64>,
    /// The rank of the row that the walk gives next.
    next_rank: u64,
    /// What was found and not sent yet, as it will be sent...
    found: Vec<u8>,
    /// ...and where in `found` each of it lies.
    places: Vec<std::ops::Range<usize>>,
}

impl Draw {
    fn draw(&mut self, rows: &mut Rows<'_>) {
        let count = self.undrawn.min(DRAWN_AT_ONCE);
        self.undrawn -= count;
        self.ranks = (0..count).map(|_| fastrand::u64(..self.size)).collect();
        self.ranks.sort_unstable_by(|a, b| b.cmp(a));
        self.next_rank = 0;
        rows.rewind();
    }

    /// Looks up the next ranks, as many as there is room for, and shuffles what it found.
    fn look_up(
        &mut self,
        rows: &mut Rows<'_>,
        item: Item,
        protocol: Protocol,
    ) -> std::result::Result<(), StreamError> {
        self.found.clear();
        while let Some(&rank) = self.ranks.last()
            && self.found.len() < KEPT_BYTES
        {
            let Some((row_key, value)) = rows.next().map_err(StreamError::new)? else {
                return Err(StreamError::new("rows are missing"));
            };
            if self.next_rank == rank {
                let start = self.found.len();
                item.write(row_key, value, &mut Writer::new(&mut self.found, protocol));
                while self.ranks.pop_if(|other| *other == rank).is_some() {
                    self.places.push(start..self.found.len());
                }
            }
            self.next_rank += 1;
        }
        fastrand::shuffle(&mut self.places);
        Ok(())
    }
}

impl ReplyStream for Repeated<'_> {
    fn write(
        &mut self,
        out: &mut Writer<'_>,
        limit: usize,
    ) -> std::result::Result<Progress, StreamError> {
        if !std::mem::replace(&mut self.has_header, true) {
            self.item.shape.write(out, self.draw.undrawn);
        }
        while out.len() < limit {
            if let Some(place) = self.draw.places.pop() {
                out.bytes().extend_from_slice(&self.draw.found[place]);
                continue;
            }
            if self.draw.ranks.is_empty() {
                if self.draw.undrawn == 0 {
                    return Ok(Progress::Done);
                }
                self.draw.draw(&mut self.rows);
            }
            let protocol = out.protocol();
            self.draw.look_up(&mut self.rows, self.item, protocol)?;
        }
        Ok(Progress::More)
    }

    fn detach<'s>(self: Box<Self>) -> Detached<'s>
    where
        Self: 's,
    {
        if self.rows.has_pending() {
            return Err(self);
        }
        let Repeated {
            rows,
            draw,
            has_header,
            item,
        } = *self;
        match rows.into_stored() {
            Some(rows) => Ok(Box::new(Repeated {
                rows,
                draw,
                has_header,
                item,
            })),
            None => unreachable!("a walk without pending changes is free of its transaction"),
        }
    }
}
