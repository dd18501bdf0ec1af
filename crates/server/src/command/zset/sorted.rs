//! The result of ZUNION and its like, in the order of the scores, from bounded memory.
//!
//! A result comes in the order of the members, and has to be sorted. One that takes more memory than a
//! window is made again and again, on the same pinned rows: each time the next members by score are kept,
//! as many as fit into the window, and then sent.

use cairn_resp::{Progress, Reply, ReplyStream, StreamError, Writer};
use cairn_store::set::Step;
use cairn_store::zset::{Algebra, Scored};
use cairn_store::{ReadTxn, Result};

use super::reply::{self, write_member};
use super::window::{WINDOW, Window};
use crate::command::piecewise::ROWS_PER_PIECE;
use crate::command::rows::Shape;

pub fn reply(txn: &ReadTxn, shape: Shape, result: Algebra) -> Result<Reply> {
    by_window(txn, shape, result, WINDOW)
}

fn by_window(txn: &ReadTxn, shape: Shape, mut result: Algebra, size: usize) -> Result<Reply> {
    let mut window = Window::new(size);
    let mut count = 0;
    while let Some((member, score)) = result.next_member(txn)? {
        window.offer(member, score);
        count += 1;
    }
    let first = window.take();
    if first.len() as u64 == count {
        return Ok(reply::of_members(shape, first));
    }
    result.rewind()?;
    Ok(Reply::Stream(Box::new(Sorted {
        header: Some(shape),
        shape,
        result,
        left: count,
        ready: first.into_iter(),
        window,
    })))
}

struct Sorted {
    header: Option<Shape>,
    shape: Shape,
    result: Algebra,
    left: u64,
    ready: std::vec::IntoIter<Scored>,
    window: Window,
}

impl Sorted {
    /// Looks for the members that come next; true when they have been found.
    fn look(&mut self) -> Result<bool> {
        for _ in 0..ROWS_PER_PIECE {
            match self.result.step()? {
                Step::Member => {
                    let (member, score) = self.result.member();
                    self.window.offer(member, score);
                }
                Step::Onward => {}
                Step::End => {
                    self.ready = self.window.take().into_iter();
                    self.result.rewind()?;
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

impl ReplyStream for Sorted {
    fn write(&mut self, out: &mut Writer<'_>, limit: usize) -> Result<Progress, StreamError> {
        if let Some(shape) = self.header.take() {
            shape.write(out, self.left);
        }
        while self.left > 0 {
            if out.len() >= limit {
                return Ok(Progress::More);
            }
            if let Some(Scored { member, score }) = self.ready.next() {
                write_member(out, self.shape, &member, score);
                self.left -= 1;
                continue;
            }
            if !self.look().map_err(StreamError::new)? {
                return Ok(Progress::More);
            }
            if self.ready.len() == 0 {
                return Err(StreamError::new("members are missing"));
            }
        }
        Ok(Progress::Done)
    }
}
