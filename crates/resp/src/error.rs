//! What a client can do wrong before it has even said a command.
//!
//! Each kind is worded as Redis words it, for clients and their test suites match on the text. All of
//! them are fatal to the connection: once framing is lost, no byte that follows can be trusted to
//! begin a request. The server sends the error and hangs up.

use std::borrow::Cow;
use std::fmt;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProtocolError {
    InvalidMultibulkLength,
    InvalidBulkLength,
    /// Where a bulk should begin stands this byte instead.
    ExpectedDollar(u8),
    TooBigMultibulkCount,
    TooBigBulkCount,
    TooBigInline,
    UnbalancedQuotes,
    UnauthenticatedMultibulkLength,
    UnauthenticatedBulkLength,
}

impl ProtocolError {
    /// The text of the error, without the `ERR` that precedes it on the wire. Bytes and not a `str`,
    /// because [`ExpectedDollar`](Self::ExpectedDollar) quotes whatever the client sent.
    pub fn text(self) -> Cow<'static, [u8]> {
        let text: &'static str = match self {
            Self::ExpectedDollar(got) => {
                let mut text = b"Protocol error: expected '$', got '".to_vec();
                text.extend([got, b'\'']);
                return Cow::Owned(text);
            }
            Self::InvalidMultibulkLength => "Protocol error: invalid multibulk length",
            Self::InvalidBulkLength => "Protocol error: invalid bulk length",
            Self::TooBigMultibulkCount => "Protocol error: too big mbulk count string",
            Self::TooBigBulkCount => "Protocol error: too big bulk count string",
            Self::TooBigInline => "Protocol error: too big inline request",
            Self::UnbalancedQuotes => "Protocol error: unbalanced quotes in request",
            Self::UnauthenticatedMultibulkLength => {
                "Protocol error: unauthenticated multibulk length"
            }
            Self::UnauthenticatedBulkLength => "Protocol error: unauthenticated bulk length",
        };
        Cow::Borrowed(text.as_bytes())
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.text()))
    }
}

impl std::error::Error for ProtocolError {}
