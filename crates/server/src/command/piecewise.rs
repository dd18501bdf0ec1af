//! Replies that are sent piece by piece, from rows as they are walked over.
//!
//! A walk shows the moment at which it was opened, and borrows nothing from its transaction: such a reply
//! goes on when the command that it answers is committed and its latches are let go.

use cairn_resp::{Progress, Reply, ReplyStream, StreamError, Writer};

/// How many rows one piece may pass over, however few of them are sent: between two pieces other
/// connections have their turn.
pub const ROWS_PER_PIECE: usize = 10_000;

/// A pair of a key and what was taken from it: LMPOP, ZMPOP.
pub fn with_key(name: &[u8], reply: Reply) -> Reply {
    match reply {
        Reply::Stream(reply) => Reply::Stream(Box::new(WithKey {
            name: Some(name.into()),
            reply,
        })),
        reply => Reply::Array(vec![name.into(), reply]),
    }
}

struct WithKey {
    name: Option<Box<[u8]>>,
    reply: Box<dyn ReplyStream>,
}

impl ReplyStream for WithKey {
    fn write(&mut self, out: &mut Writer<'_>, limit: usize) -> Result<Progress, StreamError> {
        if let Some(name) = self.name.take() {
            out.array(2);
            out.bulk(name);
        }
        self.reply.write(out, limit)
    }
}
