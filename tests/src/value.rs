//! A reply as a client sees it: every kind that RESP2 and RESP3 know, owned, and compared exactly.
//!
//! The decoder is deliberately not the one of `cairn-resp`: a mistake that encoder and decoder of
//! the server's own crate share would otherwise stay unseen.

use std::fmt;

/// Deeper nesting than this is taken for a broken stream rather than for a reply.
const MAX_DEPTH: usize = 64;

/// Texts are bytes, since errors and simple strings may quote what the client sent.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    Simple(Vec<u8>),
    Error(Vec<u8>),
    Int(i64),
    Bulk(Vec<u8>),
    /// `$-1` in RESP2, `_` in RESP3.
    Null,
    /// `*-1`: RESP2 alone tells it from `Null`, and so do some clients.
    NullArray,
    Array(Vec<Value>),
    Map(Vec<(Value, Value)>),
    Set(Vec<Value>),
    Push(Vec<Value>),
    /// Kept as spelled, because the spelling is part of the protocol. See [`Value::as_f64`].
    Double(Vec<u8>),
    Bool(bool),
    Verbatim {
        format: [u8; 3],
        text: Vec<u8>,
    },
    BigNumber(Vec<u8>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError(pub String);

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not RESP: {}", self.0)
    }
}

impl std::error::Error for DecodeError {}

impl Value {
    pub fn ok() -> Value {
        Value::Simple(b"OK".to_vec())
    }

    pub fn bulk(bytes: impl AsRef<[u8]>) -> Value {
        Value::Bulk(bytes.as_ref().to_vec())
    }

    pub fn error(text: impl AsRef<[u8]>) -> Value {
        Value::Error(text.as_ref().to_vec())
    }

    pub fn is_error(&self) -> bool {
        matches!(self, Value::Error(_))
    }

    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null | Value::NullArray)
    }

    pub fn as_int(&self) -> Option<i64> {
        match self {
            Value::Int(n) => Some(*n),
            _ => None,
        }
    }

    /// The bytes of any kind that is spelled as text.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Value::Simple(text)
            | Value::Error(text)
            | Value::Bulk(text)
            | Value::Double(text)
            | Value::BigNumber(text)
            | Value::Verbatim { text, .. } => Some(text),
            _ => None,
        }
    }

    /// The same as text; empty for all other kinds.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.as_bytes().unwrap_or_default()).into_owned()
    }

    /// The text of a double, or of what RESP2 sends in its place.
    pub fn as_f64(&self) -> Option<f64> {
        std::str::from_utf8(self.as_bytes()?).ok()?.parse().ok()
    }

    /// The elements of an array, set or push.
    pub fn items(&self) -> Option<&[Value]> {
        match self {
            Value::Array(items) | Value::Set(items) | Value::Push(items) => Some(items),
            _ => None,
        }
    }

    pub fn into_items(self) -> Option<Vec<Value>> {
        match self {
            Value::Array(items) | Value::Set(items) | Value::Push(items) => Some(items),
            _ => None,
        }
    }

    /// A map, or the flat array that RESP2 sends in its place.
    pub fn into_pairs(self) -> Option<Vec<(Value, Value)>> {
        match self {
            Value::Map(pairs) => Some(pairs),
            Value::Array(items) if items.len() % 2 == 0 => {
                let mut items = items.into_iter();
                let mut pairs = Vec::with_capacity(items.len() / 2);
                while let (Some(key), Some(value)) = (items.next(), items.next()) {
                    pairs.push((key, value));
                }
                Some(pairs)
            }
            _ => None,
        }
    }
}

/// Decodes the reply that `buf` begins with, and says how many bytes it took; `None` if it goes on
/// beyond `buf`.
pub fn decode(buf: &[u8]) -> Result<Option<(Value, usize)>, DecodeError> {
    let mut decoder = Decoder { buf, at: 0 };
    let value = decoder.value(0)?;
    Ok(value.map(|value| (value, decoder.at)))
}

struct Decoder<'a> {
    buf: &'a [u8],
    at: usize,
}

type Decoded<T> = Result<Option<T>, DecodeError>;

/// Leaves the calling decoder early when the bytes have run out.
macro_rules! some {
    ($decoded:expr) => {
        match $decoded? {
            Some(value) => value,
            None => return Ok(None),
        }
    };
}

impl Decoder<'_> {
    fn value(&mut self, depth: usize) -> Decoded<Value> {
        if depth > MAX_DEPTH {
            return Err(DecodeError("nested too deeply".into()));
        }
        let line = some!(self.line());
        let Some((&kind, text)) = line.split_first() else {
            return Err(DecodeError("an empty line".into()));
        };
        Ok(Some(match kind {
            b'+' => Value::Simple(text.to_vec()),
            b'-' => Value::Error(text.to_vec()),
            b':' => Value::Int(integer(text)?),
            b',' => Value::Double(text.to_vec()),
            b'(' => Value::BigNumber(text.to_vec()),
            b'_' => Value::Null,
            b'#' => Value::Bool(text == b"t"),
            b'$' if text == b"-1" => Value::Null,
            b'*' if text == b"-1" => Value::NullArray,
            b'$' => Value::Bulk(some!(self.bytes(length(text)?)).to_vec()),
            b'=' => some!(self.verbatim(length(text)?)),
            b'*' => Value::Array(some!(self.values(length(text)?, depth))),
            b'~' => Value::Set(some!(self.values(length(text)?, depth))),
            b'>' => Value::Push(some!(self.values(length(text)?, depth))),
            b'%' => Value::Map(some!(self.pairs(length(text)?, depth))),
            _ => {
                let line = line.escape_ascii();
                return Err(DecodeError(format!("a line that begins '{line}'")));
            }
        }))
    }

    fn values(&mut self, count: usize, depth: usize) -> Decoded<Vec<Value>> {
        let mut values = Vec::with_capacity(count.min(1024));
        for _ in 0..count {
            values.push(some!(self.value(depth + 1)));
        }
        Ok(Some(values))
    }

    fn pairs(&mut self, count: usize, depth: usize) -> Decoded<Vec<(Value, Value)>> {
        let mut pairs = Vec::with_capacity(count.min(1024));
        for _ in 0..count {
            let key = some!(self.value(depth + 1));
            pairs.push((key, some!(self.value(depth + 1))));
        }
        Ok(Some(pairs))
    }

    fn verbatim(&mut self, length: usize) -> Decoded<Value> {
        match some!(self.bytes(length)) {
            [a, b, c, b':', text @ ..] => Ok(Some(Value::Verbatim {
                format: [*a, *b, *c],
                text: text.to_vec(),
            })),
            _ => Err(DecodeError("a verbatim string without a format".into())),
        }
    }
}

impl<'a> Decoder<'a> {
    fn line(&mut self) -> Decoded<&'a [u8]> {
        let rest = &self.buf[self.at..];
        let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") else {
            return Ok(None);
        };
        self.at += end + 2;
        Ok(Some(&rest[..end]))
    }

    fn bytes(&mut self, length: usize) -> Decoded<&'a [u8]> {
        let rest = &self.buf[self.at..];
        if rest.len() < length.saturating_add(2) {
            return Ok(None);
        }
        if &rest[length..length + 2] != b"\r\n" {
            return Err(DecodeError("a string longer than announced".into()));
        }
        self.at += length + 2;
        Ok(Some(&rest[..length]))
    }
}

fn integer(text: &[u8]) -> Result<i64, DecodeError> {
    let parsed = std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| DecodeError(format!("'{}' for an integer", text.escape_ascii())))
}

fn length(text: &[u8]) -> Result<usize, DecodeError> {
    usize::try_from(integer(text)?)
        .map_err(|_| DecodeError(format!("'{}' for a length", text.escape_ascii())))
}

/// One line, in the spirit of redis-cli, for assertion messages.
impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Simple(text) => write!(f, "{}", text.escape_ascii()),
            Value::Error(text) => write!(f, "(error) {}", text.escape_ascii()),
            Value::Int(n) => write!(f, "(integer) {n}"),
            Value::Bulk(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Value::Null => write!(f, "(nil)"),
            Value::NullArray => write!(f, "(nil array)"),
            Value::Array(items) => f.debug_list().entries(items).finish(),
            Value::Map(pairs) => f
                .debug_map()
                .entries(pairs.iter().map(|(k, v)| (k, v)))
                .finish(),
            Value::Set(items) => f.debug_set().entries(items).finish(),
            Value::Push(items) => {
                write!(f, "(push) ")?;
                f.debug_list().entries(items).finish()
            }
            Value::Double(text) => write!(f, "(double) {}", text.escape_ascii()),
            Value::Bool(value) => write!(f, "({value})"),
            Value::Verbatim { format, text } => {
                write!(f, "({}) \"{}\"", format.escape_ascii(), text.escape_ascii())
            }
            Value::BigNumber(digits) => write!(f, "(big number) {}", digits.escape_ascii()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn decoded(bytes: &[u8]) -> Value {
        let (value, consumed) = decode(bytes).unwrap().unwrap();
        assert_eq!(consumed, bytes.len());
        value
    }

    #[test]
    fn every_kind_is_told_apart() {
        assert_eq!(decoded(b"+OK\r\n"), Value::ok());
        assert_eq!(decoded(b"-ERR no\r\n"), Value::error("ERR no"));
        assert_eq!(decoded(b":-7\r\n"), Value::Int(-7));
        assert_eq!(decoded(b"$4\r\na\r\nb\r\n"), Value::bulk("a\r\nb"));
        assert_eq!(decoded(b"$0\r\n\r\n"), Value::bulk(""));
        assert_eq!(decoded(b"$-1\r\n"), Value::Null);
        assert_eq!(decoded(b"_\r\n"), Value::Null);
        assert_eq!(decoded(b"*-1\r\n"), Value::NullArray);
        assert_eq!(decoded(b",-inf\r\n").as_f64(), Some(f64::NEG_INFINITY));
        assert_eq!(decoded(b"#t\r\n"), Value::Bool(true));
        assert_eq!(decoded(b"(99\r\n"), Value::BigNumber(b"99".to_vec()));
        assert_eq!(
            decoded(b"=7\r\ntxt:abc\r\n"),
            Value::Verbatim {
                format: *b"txt",
                text: b"abc".to_vec()
            }
        );
        assert_eq!(
            decoded(b"%1\r\n+k\r\n*2\r\n:1\r\n~0\r\n"),
            Value::Map(vec![(
                Value::Simple(b"k".to_vec()),
                Value::Array(vec![Value::Int(1), Value::Set(vec![])])
            )])
        );
    }

    #[test]
    fn a_reply_cut_anywhere_is_incomplete() {
        let whole = b"*3\r\n$2\r\nab\r\n%1\r\n:1\r\n_\r\n=5\r\ntxt:x\r\n";
        for cut in 0..whole.len() {
            assert_eq!(decode(&whole[..cut]), Ok(None), "cut at {cut}");
        }
        assert_eq!(decode(whole).unwrap().unwrap().1, whole.len());
    }

    #[test]
    fn nonsense_is_an_error() {
        for bytes in [
            &b"?\r\n"[..],
            b"\r\n",
            b":x\r\n",
            b"$-2\r\n",
            b"$1\r\nabc\r\n",
            &b"*1\r\n".repeat(100),
        ] {
            assert!(decode(bytes).is_err(), "{}", bytes.escape_ascii());
        }
    }
}
