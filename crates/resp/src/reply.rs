//! What a command answers.
//!
//! Handlers return a [`Reply`] and never see the socket. Nearly every reply is small and stands in
//! memory as a value. One that may be as large as the data set, HGETALL of a hash of a million fields,
//! is a [`ReplyStream`]: the connection asks it for a piece whenever the previous one has left, so that
//! the memory it takes does not depend on its size nor on how slowly the client reads.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::bulks::Bulks;
use crate::error::ProtocolError;
use crate::writer::{Protocol, Writer};

#[derive(Debug, PartialEq)]
pub enum Reply {
    Ok,
    Simple(&'static str),
    /// A simple string made at run time: a script's status reply.
    Status(Vec<u8>),
    /// Starts with the error's code: `ERR`, `WRONGTYPE`... Bytes, because it may quote the client's.
    Error(Vec<u8>),
    Int(i64),
    Bulk(Vec<u8>),
    /// A bulk that lies in memory for others too: what comes after the offset.
    Shared(Arc<[u8]>, usize),
    /// A bulk known at compile time: the name of a type, an encoding.
    Static(&'static str),
    Double(f64),
    /// A double in the notation of coordinates.
    HumanDouble(f64),
    Bool(bool),
    Null,
    NullArray,
    Array(Vec<Reply>),
    /// An array of bulks.
    Bulks(Bulks),
    Map(Vec<(Reply, Reply)>),
    Set(Vec<Reply>),
    Push(Vec<Reply>),
    Verbatim(&'static str, Vec<u8>),
    BigNumber(Vec<u8>),
    /// A reply with attributes ahead of it, which RESP2 clients do not get to see.
    Attributed(Vec<(Reply, Reply)>, Box<Reply>),
    Stream(Box<dyn ReplyStream>),
}

/// A reply written piece by piece, straight from where its rows lie, so that it never stands in memory
/// as a whole. It outlives the command that it answers, and holds all that it needs.
pub trait ReplyStream: Send {
    /// Goes on writing where it stopped, until `out.len() >= limit` or there is no more.
    fn write(&mut self, out: &mut Writer<'_>, limit: usize) -> Result<Progress, StreamError>;
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    More,
    Done,
}

/// A stream broke off. The reply's header may have left long ago with a count that will not be met, so
/// there is no reply to save: the connection must be closed.
#[derive(Debug)]
pub struct StreamError(Box<dyn Error + Send + Sync>);

impl StreamError {
    pub fn new(cause: impl Into<Box<dyn Error + Send + Sync>>) -> StreamError {
        StreamError(cause.into())
    }
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a streamed reply broke off: {}", self.0)
    }
}

impl Error for StreamError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

impl fmt::Debug for dyn ReplyStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReplyStream")
    }
}

/// What a stream will say is known only by draining it, so no two are equal; the comparison is here for
/// the sake of all other replies.
impl PartialEq for dyn ReplyStream {
    fn eq(&self, _: &Self) -> bool {
        false
    }
}

impl Reply {
    pub fn error(text: impl Into<Vec<u8>>) -> Reply {
        Reply::Error(text.into())
    }

    pub fn bulk(bytes: impl Into<Vec<u8>>) -> Reply {
        Reply::Bulk(bytes.into())
    }

    /// Writes the reply; a stream is drained whole, wherever in the reply it stands. Only a stream can
    /// fail.
    pub fn write(self, out: &mut Writer<'_>) -> Result<(), StreamError> {
        match self {
            Reply::Ok => out.simple("OK"),
            Reply::Simple(text) => out.simple(text),
            Reply::Status(text) => out.simple(text),
            Reply::Error(text) => out.error(text),
            Reply::Int(value) => out.int(value),
            Reply::Bulk(bytes) => out.bulk(bytes),
            Reply::Shared(bytes, start) => out.bulk(&bytes[start..]),
            Reply::Static(text) => out.bulk(text),
            Reply::Double(value) => out.double(value),
            Reply::HumanDouble(value) => out.human_double(value),
            Reply::Bool(value) => out.bool(value),
            Reply::Null => out.null(),
            Reply::NullArray => out.null_array(),
            Reply::Verbatim(format, text) => out.verbatim(format, &text),
            Reply::BigNumber(digits) => out.big_number(&digits),
            Reply::Array(items) => {
                out.array(items.len());
                return write_all(items, out);
            }
            Reply::Bulks(bulks) => {
                out.array(bulks.len());
                bulks.iter().for_each(|bulk| out.bulk(bulk));
            }
            Reply::Set(members) => {
                out.set(members.len());
                return write_all(members, out);
            }
            Reply::Push(items) => {
                out.push(items.len());
                return write_all(items, out);
            }
            Reply::Map(pairs) => {
                out.map(pairs.len());
                return write_pairs(pairs, out);
            }
            Reply::Attributed(attributes, reply) => {
                if out.attributes(attributes.len()) {
                    write_pairs(attributes, out)?;
                }
                return reply.write(out);
            }
            Reply::Stream(mut stream) => while stream.write(out, usize::MAX)? == Progress::More {},
        }
        Ok(())
    }

    /// The reply as it goes over the wire.
    pub fn to_bytes(self, protocol: Protocol) -> Result<Vec<u8>, StreamError> {
        let mut bytes = Vec::new();
        self.write(&mut Writer::new(&mut bytes, protocol))?;
        Ok(bytes)
    }
}

fn write_all(items: Vec<Reply>, out: &mut Writer<'_>) -> Result<(), StreamError> {
    items.into_iter().try_for_each(|item| item.write(out))
}

fn write_pairs(pairs: Vec<(Reply, Reply)>, out: &mut Writer<'_>) -> Result<(), StreamError> {
    for (key, value) in pairs {
        key.write(out)?;
        value.write(out)?;
    }
    Ok(())
}

// There is no `From<bool>` on purpose: commands that answer yes or no (EXISTS, SISMEMBER) answer with an
// integer, in RESP3 too.

impl From<i64> for Reply {
    fn from(value: i64) -> Reply {
        Reply::Int(value)
    }
}

impl From<u64> for Reply {
    fn from(value: u64) -> Reply {
        Reply::Int(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<usize> for Reply {
    fn from(value: usize) -> Reply {
        Reply::Int(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<f64> for Reply {
    fn from(value: f64) -> Reply {
        Reply::Double(value)
    }
}

impl From<Vec<u8>> for Reply {
    fn from(bytes: Vec<u8>) -> Reply {
        Reply::Bulk(bytes)
    }
}

impl From<&[u8]> for Reply {
    fn from(bytes: &[u8]) -> Reply {
        Reply::Bulk(bytes.to_vec())
    }
}

impl From<&'static str> for Reply {
    fn from(text: &'static str) -> Reply {
        Reply::Static(text)
    }
}

/// A value that may be missing: GET, HGET, ZSCORE.
impl<T: Into<Reply>> From<Option<T>> for Reply {
    fn from(value: Option<T>) -> Reply {
        value.map_or(Reply::Null, Into::into)
    }
}

impl<T: Into<Reply>> FromIterator<T> for Reply {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Reply {
        Reply::Array(items.into_iter().map(Into::into).collect())
    }
}

impl From<ProtocolError> for Reply {
    fn from(error: ProtocolError) -> Reply {
        Reply::Error([b"ERR ", &*error.text()].concat())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Counts up to `end`, and breaks at `broken`.
    struct Counter {
        next: i64,
        end: i64,
        broken: i64,
    }

    impl Counter {
        fn to(end: i64) -> Counter {
            let (next, broken) = (0, i64::MAX);
            Counter { next, end, broken }
        }
    }

    impl ReplyStream for Counter {
        fn write(&mut self, out: &mut Writer<'_>, limit: usize) -> Result<Progress, StreamError> {
            if self.next == 0 {
                out.array(usize::try_from(self.end).map_err(StreamError::new)?);
            }
            while self.next < self.end {
                if out.len() >= limit {
                    return Ok(Progress::More);
                }
                if self.next == self.broken {
                    return Err(StreamError::new("the disk is gone"));
                }
                out.int(self.next);
                self.next += 1;
            }
            Ok(Progress::Done)
        }
    }

    fn resp2(reply: Reply) -> String {
        let bytes = reply.to_bytes(Protocol::Resp2).unwrap();
        bytes.escape_ascii().to_string()
    }

    #[test]
    fn a_stream_leaves_in_pieces_and_is_the_same_reply() {
        let mut stream: Box<dyn ReplyStream> = Box::new(Counter::to(1000));
        let (mut sent, mut pieces) = (Vec::new(), 0);
        loop {
            let mut piece = Vec::new();
            let mut writer = Writer::new(&mut piece, Protocol::Resp2);
            let progress = stream.write(&mut writer, 100).unwrap();
            assert!(piece.len() < 110);
            sent.append(&mut piece);
            pieces += 1;
            if progress == Progress::Done {
                break;
            }
        }
        let whole: Reply = (0..1000i64).collect();
        assert_eq!(sent, whole.to_bytes(Protocol::Resp2).unwrap());
        assert!(pieces > 50);
    }

    #[test]
    fn a_stream_inside_a_reply_is_drained() {
        let reply = Reply::Array(vec![
            Reply::Ok,
            Reply::Stream(Box::new(Counter::to(2))),
            Reply::Int(7),
        ]);
        assert_eq!(resp2(reply), r"*3\r\n+OK\r\n*2\r\n:0\r\n:1\r\n:7\r\n");
    }

    #[test]
    fn a_stream_that_breaks_says_so() {
        let broken = 3;
        let stream = Counter {
            broken,
            ..Counter::to(5)
        };
        let reply = Reply::Array(vec![Reply::Stream(Box::new(stream))]);
        let error = reply.to_bytes(Protocol::Resp2).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a streamed reply broke off: the disk is gone"
        );
        assert_eq!(error.source().unwrap().to_string(), "the disk is gone");
    }

    #[test]
    fn values_become_replies() {
        assert_eq!(Reply::from(5i64), Reply::Int(5));
        assert_eq!(Reply::from(5usize), Reply::Int(5));
        assert_eq!(Reply::from(u64::MAX), Reply::Int(i64::MAX));
        assert_eq!(Reply::from(1.5), Reply::Double(1.5));
        assert_eq!(Reply::from(b"x".to_vec()), Reply::bulk("x"));
        assert_eq!(Reply::from(&b"x"[..]), Reply::bulk("x"));
        assert_eq!(Reply::from("list"), Reply::Static("list"));
        assert_eq!(Reply::from(None::<i64>), Reply::Null);
        assert_eq!(Reply::from(Some(5i64)), Reply::Int(5));
        let members = [Some(b"a".to_vec()), None];
        let array = Reply::Array(vec![Reply::bulk("a"), Reply::Null]);
        assert_eq!(members.into_iter().collect::<Reply>(), array);
        let error = Reply::from(ProtocolError::ExpectedDollar(0xff));
        let text = b"ERR Protocol error: expected '$', got '\xff'";
        assert_eq!(error, Reply::error(text));
    }

    #[test]
    fn nesting_and_attributes() {
        let reply = || {
            let map = Reply::Map(vec![(
                Reply::Static("k"),
                Reply::Set(vec![Reply::Bool(true)]),
            )]);
            Reply::Attributed(vec![(Reply::Static("ttl"), Reply::Int(1))], Box::new(map))
        };
        assert_eq!(resp2(reply()), r"*2\r\n$1\r\nk\r\n*1\r\n:1\r\n");
        let resp3 = b"|1\r\n$3\r\nttl\r\n:1\r\n%1\r\n$1\r\nk\r\n~1\r\n#t\r\n";
        assert_eq!(reply().to_bytes(Protocol::Resp3).unwrap(), resp3);
    }
}
