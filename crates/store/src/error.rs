//! Why a command did not do what it was asked, told apart by what happens next.

use std::borrow::Cow;

use cairn_engine::EngineError;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The client is told this text (code included), and nothing changed. Bytes, because it may quote
    /// the client's.
    #[error("{}", String::from_utf8_lossy(.0))]
    Reply(Cow<'static, [u8]>),
    /// The work is more than one turn of a connection thread should take: undo it and run the command
    /// again where it may take its time.
    #[error("the command takes too long for a connection thread")]
    TooLong,
    /// A point read met a value that lies in several rows: run the command again under its latches.
    #[error("the command needs its latches")]
    Unlatched,
    /// The storage failed, and nothing changed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl Error {
    pub const WRONG_TYPE: Error =
        Error::fixed("WRONGTYPE Operation against a key holding the wrong kind of value");
    pub const SYNTAX: Error = Error::fixed("ERR syntax error");
    pub const NOT_INTEGER: Error = Error::fixed("ERR value is not an integer or out of range");
    pub const NOT_FLOAT: Error = Error::fixed("ERR value is not a valid float");
    pub const NO_SUCH_KEY: Error = Error::fixed("ERR no such key");
    pub const OUT_OF_RANGE: Error = Error::fixed("ERR index out of range");

    pub const DISK_FULL: Error = Error::fixed(
        "MISCONF the disk is almost full: writes are refused until there is room again",
    );

    pub const fn fixed(text: &'static str) -> Error {
        Error::Reply(Cow::Borrowed(text.as_bytes()))
    }

    pub fn reply(text: impl Into<Vec<u8>>) -> Error {
        Error::Reply(Cow::Owned(text.into()))
    }
}

impl From<cairn_encoding::DecodeError> for Error {
    fn from(error: cairn_encoding::DecodeError) -> Self {
        Error::Engine(error.into())
    }
}
