//! Replies from bytes: the client's half, for tests and for servers that talk to servers.
//!
//! It favours being plainly right over being fast: values are owned, and a reply that has not wholly
//! arrived is decoded from its start the next time. It is strict where the request parser is lenient,
//! since what it reads was written by us or by Redis, and a slip should show. RESP3's streamed strings
//! and aggregates (`$?`, `*?`) are refused; no Redis sends them.

use std::fmt;

use crate::number::parse_i64;

/// How deep arrays may nest. No command comes near it; it keeps a hostile peer off our stack.
const MAX_DEPTH: usize = 128;

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Simple(Vec<u8>),
    /// Both `-` and RESP3's length-prefixed `!`.
    Error(Vec<u8>),
    Int(i64),
    Bulk(Vec<u8>),
    /// `$-1` or `_`.
    Null,
    /// `*-1`, in RESP2 only.
    NullArray,
    Array(Vec<Value>),
    Map(Vec<(Value, Value)>),
    Set(Vec<Value>),
    Push(Vec<Value>),
    Double(f64),
    Bool(bool),
    BigNumber(Vec<u8>),
    Verbatim {
        format: [u8; 3],
        text: Vec<u8>,
    },
    Attributed {
        attributes: Vec<(Value, Value)>,
        value: Box<Value>,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecodeError {
    UnknownKind(u8),
    /// A length is not a number, or is negative where it may not be.
    BadLength,
    /// The text of an integer, double, bool, null or verbatim string is none.
    BadText,
    /// A `\r` without `\n`, or a payload that does not end where it said.
    BadLineEnd,
    TooDeep,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownKind(kind) => {
                write!(f, "no reply starts with '{}'", kind.escape_ascii())
            }
            Self::BadLength => f.write_str("invalid length in reply"),
            Self::BadText => f.write_str("invalid value in reply"),
            Self::BadLineEnd => f.write_str("line end missing in reply"),
            Self::TooDeep => f.write_str("reply nested too deeply"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// Decodes the reply at the start of `buf`, with how many bytes it took; none if it has yet to arrive
/// in full.
pub fn decode(buf: &[u8]) -> Result<Option<(Value, usize)>, DecodeError> {
    let mut cursor = Cursor { buf, at: 0 };
    match cursor.value(0) {
        Ok(value) => Ok(Some((value, cursor.at))),
        Err(Stop::Incomplete) => Ok(None),
        Err(Stop::Malformed(error)) => Err(error),
    }
}

/// Why decoding came to no value; lets `?` carry both.
enum Stop {
    Incomplete,
    Malformed(DecodeError),
}

impl From<DecodeError> for Stop {
    fn from(error: DecodeError) -> Stop {
        Stop::Malformed(error)
    }
}

struct Cursor<'a> {
    buf: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn value(&mut self, depth: usize) -> Result<Value, Stop> {
        if depth > MAX_DEPTH {
            return Err(DecodeError::TooDeep.into());
        }
        let (kind, line) = self.header()?;
        let value = match kind {
            b'+' => Value::Simple(line.to_vec()),
            b'-' => Value::Error(line.to_vec()),
            b':' => Value::Int(parse_i64(line).ok_or(DecodeError::BadText)?),
            b'$' if line == b"-1" => Value::Null,
            b'$' => Value::Bulk(self.payload(line)?.to_vec()),
            b'*' if line == b"-1" => Value::NullArray,
            b'*' => Value::Array(self.values(line, depth)?),
            b'~' => Value::Set(self.values(line, depth)?),
            b'>' => Value::Push(self.values(line, depth)?),
            b'%' => Value::Map(self.pairs(line, depth)?),
            b'|' => Value::Attributed {
                attributes: self.pairs(line, depth)?,
                value: Box::new(self.value(depth + 1)?),
            },
            b'_' if line.is_empty() => Value::Null,
            b'#' if line == b"t" => Value::Bool(true),
            b'#' if line == b"f" => Value::Bool(false),
            b',' => Value::Double(double(line)?),
            b'(' => Value::BigNumber(line.to_vec()),
            b'!' => Value::Error(self.payload(line)?.to_vec()),
            b'=' => verbatim(self.payload(line)?)?,
            b'_' | b'#' => return Err(DecodeError::BadText.into()),
            unknown => return Err(DecodeError::UnknownKind(unknown).into()),
        };
        Ok(value)
    }

    /// The kind of a value and the rest of its line.
    fn header(&mut self) -> Result<(u8, &'a [u8]), Stop> {
        let rest = &self.buf[self.at..];
        let end = memchr::memchr(b'\r', rest).ok_or(Stop::Incomplete)?;
        match rest.get(end + 1) {
            None => return Err(Stop::Incomplete),
            Some(b'\n') => self.at += end + 2,
            Some(_) => return Err(DecodeError::BadLineEnd.into()),
        }
        match &rest[..end] {
            [kind, line @ ..] => Ok((*kind, line)),
            [] => Err(DecodeError::UnknownKind(b'\r').into()),
        }
    }

    fn payload(&mut self, line: &[u8]) -> Result<&'a [u8], Stop> {
        let len = length(line)?;
        let rest = &self.buf[self.at..];
        let end = len.checked_add(2).ok_or(DecodeError::BadLength)?;
        let framed = rest.get(..end).ok_or(Stop::Incomplete)?;
        self.at += end;
        let payload = framed.strip_suffix(b"\r\n");
        Ok(payload.ok_or(DecodeError::BadLineEnd)?)
    }

    fn values(&mut self, line: &[u8], depth: usize) -> Result<Vec<Value>, Stop> {
        // Collected without reserving: the length is only a claim.
        let mut values = Vec::new();
        for _ in 0..length(line)? {
            values.push(self.value(depth + 1)?);
        }
        Ok(values)
    }

    fn pairs(&mut self, line: &[u8], depth: usize) -> Result<Vec<(Value, Value)>, Stop> {
        let mut pairs = Vec::new();
        for _ in 0..length(line)? {
            pairs.push((self.value(depth + 1)?, self.value(depth + 1)?));
        }
        Ok(pairs)
    }
}

fn length(line: &[u8]) -> Result<usize, DecodeError> {
    let len = parse_i64(line).ok_or(DecodeError::BadLength)?;
    usize::try_from(len).map_err(|_| DecodeError::BadLength)
}

fn double(line: &[u8]) -> Result<f64, DecodeError> {
    let text = std::str::from_utf8(line).map_err(|_| DecodeError::BadText)?;
    text.parse().map_err(|_| DecodeError::BadText)
}

fn verbatim(payload: &[u8]) -> Result<Value, DecodeError> {
    match payload {
        [a, b, c, b':', text @ ..] => Ok(Value::Verbatim {
            format: [*a, *b, *c],
            text: text.to_vec(),
        }),
        _ => Err(DecodeError::BadText),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn kinds_that_no_writer_of_ours_produces() {
        let error = Value::Error(b"ERR a\r\nb".to_vec());
        assert_eq!(decode(b"!8\r\nERR a\r\nb\r\n"), Ok(Some((error, 14))));
        let Ok(Some((Value::Double(value), 6))) = decode(b",nan\r\n") else {
            panic!("a NaN is a double");
        };
        assert!(value.is_nan());
        assert_eq!(decode(b",1e3\r\n"), Ok(Some((Value::Double(1000.0), 6))));
    }

    #[test]
    fn malformed_replies() {
        let cases: &[(&[u8], DecodeError)] = &[
            (b"?\r\n", DecodeError::UnknownKind(b'?')),
            (b"\r\n", DecodeError::UnknownKind(b'\r')),
            (b"+OK\rX", DecodeError::BadLineEnd),
            (b"$2\r\nabcd", DecodeError::BadLineEnd),
            (b"$-2\r\n", DecodeError::BadLength),
            (b"$?\r\n", DecodeError::BadLength),
            (b"*?\r\n", DecodeError::BadLength),
            (b"~-1\r\n", DecodeError::BadLength),
            (b":x\r\n", DecodeError::BadText),
            (b":+1\r\n", DecodeError::BadText),
            (b",\xff\r\n", DecodeError::BadText),
            (b",x\r\n", DecodeError::BadText),
            (b"#x\r\n", DecodeError::BadText),
            (b"_x\r\n", DecodeError::BadText),
            (b"=3\r\ntxt\r\n", DecodeError::BadText),
            (b"*2\r\n:1\r\n?\r\n", DecodeError::UnknownKind(b'?')),
        ];
        for (bytes, expected) in cases {
            assert_eq!(decode(bytes), Err(*expected), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |depth: usize| [&b"*1\r\n".repeat(depth)[..], b":1\r\n"].concat();
        assert!(decode(&nested(MAX_DEPTH)).unwrap().is_some());
        assert_eq!(decode(&nested(MAX_DEPTH + 1)), Err(DecodeError::TooDeep));
        let attributes = b"|0\r\n".repeat(MAX_DEPTH + 2);
        assert_eq!(decode(&attributes), Err(DecodeError::TooDeep));
    }

    #[test]
    fn a_claimed_length_is_not_reserved() {
        for claim in [
            &b"*9223372036854775807\r\n"[..],
            b"%1000000000\r\n:1\r\n",
            b"$1000000000\r\n",
        ] {
            assert_eq!(decode(claim), Ok(None));
        }
    }
}
