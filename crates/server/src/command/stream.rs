//! Replies that are sent piece by piece, from rows as they are walked over.
//!
//! Such a reply is a walk and what is made of it. The walk may borrow from the transaction it shows; what
//! is made of it never does. So one place here says how a reply leaves its transaction, for all of them.

use cairn_resp::{Detached, Progress, Reply, ReplyStream, StreamError, Writer};
use cairn_store::set::Selection;
use cairn_store::string::Strings;
use cairn_store::zset::Algebra;
use cairn_store::{Chunks, Rows, Values, keyspace};

/// How many rows one piece may pass over, however few of them are sent: between two pieces other
/// connections have their turn.
pub const ROWS_PER_PIECE: usize = 10_000;

/// What a reply reads while it is sent.
pub trait Source: Send {
    /// The same, free of any transaction.
    type Stored;

    /// Whether it shows changes of its transaction, so that it cannot outlive it.
    fn has_pending(&self) -> bool;

    fn into_stored(self) -> Option<Self::Stored>;
}

/// What is made of a walk.
pub trait Pieces: Send + 'static {
    type Walk<'t>: Source<Stored = Self::Walk<'static>>;

    /// Goes on writing where it stopped, as [`ReplyStream::write`] does.
    fn write(
        &mut self,
        walk: &mut Self::Walk<'_>,
        out: &mut Writer<'_>,
        limit: usize,
    ) -> Result<Progress, StreamError>;
}

pub fn reply<'t, P: Pieces>(walk: P::Walk<'t>, pieces: P) -> Reply<'t> {
    Reply::Stream(Box::new(Stream { walk, pieces }))
}

struct Stream<'t, P: Pieces> {
    walk: P::Walk<'t>,
    pieces: P,
}

impl<P: Pieces> ReplyStream for Stream<'_, P> {
    fn write(&mut self, out: &mut Writer<'_>, limit: usize) -> Result<Progress, StreamError> {
        self.pieces.write(&mut self.walk, out, limit)
    }

    fn detach<'s>(self: Box<Self>) -> Detached<'s>
    where
        Self: 's,
    {
        if self.walk.has_pending() {
            return Err(self);
        }
        let Stream { walk, pieces } = *self;
        match walk.into_stored() {
            Some(walk) => Ok(Box::new(Stream { walk, pieces })),
            None => unreachable!("a walk without pending changes is free of its transaction"),
        }
    }
}

/// A pair of a key and what was taken from it: LMPOP, ZMPOP.
pub fn with_key(name: &[u8], reply: Reply<'static>) -> Reply<'static> {
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

    fn detach<'s>(self: Box<Self>) -> Detached<'s>
    where
        Self: 's,
    {
        Ok(self)
    }
}

/// The store's walks all have both methods.
macro_rules! sources {
    ($($walk:ident $(:: $part:ident)*),*) => {
        $(impl Source for $walk $(:: $part)*<'_> {
            type Stored = $walk $(:: $part)*<'static>;

            fn has_pending(&self) -> bool {
                self.has_pending()
            }

            fn into_stored(self) -> Option<Self::Stored> {
                self.into_stored()
            }
        })*
    };
}

sources!(
    Rows,
    Selection,
    Algebra,
    Chunks,
    Strings,
    Values,
    keyspace::Walk
);
