//! Members as replies, with their scores or without.
//!
//! Scores follow their members in RESP2, and make pairs with them in RESP3. [`Shape::Pairs`] says that
//! there are scores, [`Shape::Array`] that there are none.

use cairn_resp::{Progress, Protocol, Reply, ReplyStream, StreamError, Writer};
use cairn_store::Rows;
use cairn_store::zset::{ScoreRows, Scored};

use crate::command::rows::{self, Shape};

pub fn shape(has_scores: bool) -> Shape {
    if has_scores {
        Shape::Pairs
    } else {
        Shape::Array
    }
}

pub fn write_member(out: &mut Writer<'_>, shape: Shape, member: &[u8], score: f64) {
    if shape != Shape::Pairs {
        return out.bulk(member);
    }
    if out.protocol() == Protocol::Resp3 {
        out.array(2);
    }
    out.bulk(member);
    out.double(score);
}

/// The next `count` score rows of a walk.
pub fn of_rows(shape: Shape, count: u64, rows: Rows, keys: ScoreRows) -> Reply {
    let item = move |key: &[u8], _: &[u8], out: &mut Writer<'_>| {
        write_member(out, shape, keys.member(key), keys.score(key));
    };
    rows::reply(shape, count, rows, item)
}

/// Members that had to be collected.
pub fn of_members(shape: Shape, members: Vec<Scored>) -> Reply {
    Reply::Stream(Box::new(Collected {
        shape,
        has_header: false,
        members: members.into_iter(),
    }))
}

/// A stream although it stands in memory: the reply's shape depends on the protocol, and a long one is
/// not to stand there twice.
struct Collected {
    shape: Shape,
    has_header: bool,
    members: std::vec::IntoIter<Scored>,
}

impl ReplyStream for Collected {
    fn write(&mut self, out: &mut Writer<'_>, limit: usize) -> Result<Progress, StreamError> {
        if !std::mem::replace(&mut self.has_header, true) {
            self.shape.write(out, self.members.len() as u64);
        }
        while out.len() < limit {
            let Some(Scored { member, score }) = self.members.next() else {
                return Ok(Progress::Done);
            };
            write_member(out, self.shape, &member, score);
        }
        Ok(Progress::More)
    }
}
