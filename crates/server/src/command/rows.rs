//! Replies made of rows, written straight from the iterator into the output.

use cairn_resp::{Progress, Protocol, Reply, ReplyStream, StreamError, Writer};
use cairn_store::{Shared, Walked};

use super::piecewise::ROWS_PER_PIECE;

/// What the reply is made of, for its header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    Array,
    Set,
    /// The count is one of pairs, and each row writes two values.
    Map,
    /// Each row writes two values, for RESP3 as an array of two: members with scores.
    Pairs,
}

impl Shape {
    pub fn write(self, out: &mut Writer<'_>, count: u64) {
        let count = count as usize;
        match self {
            Shape::Array => out.array(count),
            Shape::Set => out.set(count),
            Shape::Map => out.map(count),
            Shape::Pairs if out.protocol() == Protocol::Resp2 => out.array(2 * count),
            Shape::Pairs => out.array(count),
        }
    }
}

/// How many rows that are due one piece passes by: their times are walked over as well.
const DUE_PER_PIECE: usize = ROWS_PER_PIECE / 4;

/// A single value, from where it lies.
pub fn shared(value: Shared) -> Reply {
    Reply::Shared(value.bytes, value.start)
}

/// A reply of exactly `count` rows, each written by `item` from its key and value. `rows` stands before
/// the first of them; those that are due are passed by, and not counted.
pub fn reply<R, F>(shape: Shape, count: u64, rows: R, item: F) -> Reply
where
    R: Walked + 'static,
    F: FnMut(&[u8], &[u8], &mut Writer<'_>) + Send + 'static,
{
    Reply::Stream(Box::new(Items {
        header: Some(shape),
        left: count,
        rows,
        item,
    }))
}

struct Items<R, F> {
    header: Option<Shape>,
    left: u64,
    rows: R,
    item: F,
}

impl<R, F> ReplyStream for Items<R, F>
where
    R: Walked,
    F: FnMut(&[u8], &[u8], &mut Writer<'_>) + Send + 'static,
{
    fn write(&mut self, out: &mut Writer<'_>, limit: usize) -> Result<Progress, StreamError> {
        if let Some(shape) = self.header.take() {
            shape.write(out, self.left);
        }
        let mut passed_by = 0;
        while self.left > 0 {
            if out.len() >= limit || passed_by >= DUE_PER_PIECE {
                return Ok(Progress::More);
            }
            match self.rows.next_row().map_err(StreamError::new)? {
                Some(row) if row.is_due => passed_by += 1,
                Some(row) => {
                    (self.item)(row.row_key, row.value, out);
                    self.left -= 1;
                }
                None => return Err(StreamError::new("rows are missing")),
            }
        }
        Ok(Progress::Done)
    }
}
