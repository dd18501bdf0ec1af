//! DEBUG PROTOCOL and DEBUG ERROR: replies of every kind, by which client libraries test themselves.

use cairn_resp::{Progress, Protocol, Reply, ReplyStream, StreamError, Writer};
use cairn_store::{Error, Result};

use crate::command::Args;
use crate::session::Session;

pub fn error(_: &mut Session, args: &Args) -> Result<Reply> {
    Ok(Reply::error(args[2]))
}

/// The double is Redis', and means nothing.
#[allow(clippy::approx_constant)]
pub fn protocol(session: &mut Session, args: &Args) -> Result<Reply> {
    let numbers = 0..3;
    Ok(match args[2].to_ascii_lowercase().as_slice() {
        b"string" => "Hello World".into(),
        b"integer" => Reply::Int(12345),
        b"double" => Reply::Double(3.141),
        b"bignum" => Reply::BigNumber(b"1234567999999999999999999999999999999".to_vec()),
        b"null" => Reply::Null,
        b"array" => Reply::Array(numbers.map(Reply::Int).collect()),
        b"set" => Reply::Set(numbers.map(Reply::Int).collect()),
        b"map" => {
            let pair = |number| (Reply::Int(number), Reply::Bool(number == 1));
            Reply::Map(numbers.map(pair).collect())
        }
        b"attrib" => attributed(),
        b"push" if session.protocol == Protocol::Resp3 => Reply::Stream(Box::new(PushFirst)),
        b"push" => return Err(Error::fixed("ERR RESP2 is not supported by this command")),
        b"verbatim" => Reply::Verbatim("txt", b"This is a verbatim\nstring".to_vec()),
        b"true" => Reply::Bool(true),
        b"false" => Reply::Bool(false),
        _ => {
            return Err(Error::fixed(
                "ERR Wrong protocol type name. Please use one of the following: \
                 string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false",
            ));
        }
    })
}

fn attributed() -> Reply {
    let popularity = Reply::Array(vec!["key:123".into(), Reply::Int(90)]);
    Reply::Attributed(
        vec![("key-popularity".into(), popularity)],
        Box::new("Some real reply following the attribute".into()),
    )
}

/// What the client is sent without having asked, and the answer to what it asked.
struct PushFirst;

impl ReplyStream for PushFirst {
    fn write(&mut self, out: &mut Writer<'_>, _: usize) -> Result<Progress, StreamError> {
        out.push(2);
        out.bulk("server-cpu-usage");
        out.int(42);
        out.bulk("Some real reply following the push reply");
        Ok(Progress::Done)
    }
}
