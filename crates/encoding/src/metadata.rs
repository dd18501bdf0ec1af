//! The value of a key's metadata row: all that a command must know about a key before it touches another
//! row, and for a small string the string itself.
//!
//! ```text
//!   every type         flags u8 | expire_ms u64 | body
//!
//!   body of
//!     string           the bytes of the string
//!     chunked string   version u64 | length u64
//!     hash, set, zset  version u64 | size u64
//!     hash, expiring   version u64 | size u64 | fields u64 | first_ms u64 | last_ms u64
//!     list             version u64 | size u64 | head u64 | tail u64
//!     stream           see `stream`
//!
//!   flags              7 | 6 | 5 | 4 | 3 2 1 0
//!                      │   │   │   │   └ type: the code of `Type`
//!                      │   │   │   └ chunked: the string lies in `data`, in chunks of 16 KiB
//!                      │   │   └ counted: count rows say how many elements lie where, see `count`
//!                      │   └ expiring: fields of the hash expire, see `field_expiry`
//!                      └ always 1: counters have 64 bits
//! ```
//!
//! Flags and expiry come first, at fixed places, so that TYPE, TTL and a filter that asks only whether a
//! key has expired need not decode the rest ([`type_of`], [`expire_of`]).
//!
//! A list occupies the indexes in the half-open range [head, tail). What the version is for is told in
//! [`version`](crate::version).

mod flags;

use crate::DecodeError;
use crate::field_expiry::FieldTimes;
use crate::reader::Reader;
use crate::stream;
use flags::Flags;

const LAYOUT: &str = "metadata value";

/// Type of a key. The numbers are on disk.
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Type {
    String = 1,
    Hash = 2,
    List = 3,
    Set = 4,
    ZSet = 5,
    Stream = 6,
}

impl Type {
    /// As the TYPE command prints it.
    pub fn name(self) -> &'static str {
        match self {
            Type::String => "string",
            Type::Hash => "hash",
            Type::List => "list",
            Type::Set => "set",
            Type::ZSet => "zset",
            Type::Stream => "stream",
        }
    }
}

/// The types whose metadata is a version and a size, and nothing more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CollectionKind {
    Hash,
    Set,
    ZSet,
}

impl From<CollectionKind> for Type {
    fn from(kind: CollectionKind) -> Type {
        match kind {
            CollectionKind::Hash => Type::Hash,
            CollectionKind::Set => Type::Set,
            CollectionKind::ZSet => Type::ZSet,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metadata<'a> {
    /// Absolute milliseconds; 0 = never.
    pub expire_ms: u64,
    pub body: Body<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body<'a> {
    Inline(&'a [u8]),
    Chunked {
        version: u64,
        length: u64,
    },
    Collection {
        kind: CollectionKind,
        version: u64,
        size: u64,
        /// Its elements are counted: see [`count`](crate::count).
        is_counted: bool,
        /// Of a hash that has fields that expire.
        fields: Option<FieldTimes>,
    },
    List {
        version: u64,
        size: u64,
        head: u64,
        tail: u64,
    },
    /// [`stream::Head`] is all of it together.
    Stream {
        version: u64,
        size: u64,
        rest: &'a stream::HeadRest,
    },
}

impl<'a> Metadata<'a> {
    pub fn kind(&self) -> Type {
        match self.body {
            Body::Inline(_) | Body::Chunked { .. } => Type::String,
            Body::Collection { kind, .. } => kind.into(),
            Body::List { .. } => Type::List,
            Body::Stream { .. } => Type::Stream,
        }
    }

    /// None for an inline string, the only body that has no rows elsewhere.
    pub fn version(&self) -> Option<u64> {
        match self.body {
            Body::Inline(_) => None,
            Body::Chunked { version, .. }
            | Body::Collection { version, .. }
            | Body::List { version, .. }
            | Body::Stream { version, .. } => Some(version),
        }
    }

    pub fn is_expired(&self, now_ms: u64) -> bool {
        has_expired(self.ends_ms(), now_ms)
    }

    /// When there is nothing left of it, zero for never: a hash all of whose fields expire ends with the last of them,
    /// unless the key expires before.
    #[inline]
    pub fn ends_ms(&self) -> u64 {
        match self.body {
            Body::Collection {
                size,
                fields: Some(fields),
                ..
            } => ends_ms(self.expire_ms, size, fields),
            _ => self.expire_ms,
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode_into(&mut out);
        out
    }

    /// Appends the value to `out`.
    #[inline]
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        out.reserve(self.encoded_len());
        out.push(self.flags().encode());
        put_u64s(out, [self.expire_ms]);
        match self.body {
            Body::Inline(value) => out.extend_from_slice(value),
            Body::Chunked { version, length } => put_u64s(out, [version, length]),
            Body::Collection {
                version,
                size,
                fields,
                ..
            } => {
                put_u64s(out, [version, size]);
                if let Some(fields) = fields {
                    out.extend_from_slice(&fields.encode());
                }
            }
            Body::List {
                version,
                size,
                head,
                tail,
            } => put_u64s(out, [version, size, head, tail]),
            Body::Stream {
                version,
                size,
                rest,
            } => {
                put_u64s(out, [version, size]);
                out.extend_from_slice(rest);
            }
        }
    }

    #[inline]
    pub fn decode(value: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(LAYOUT, value);
        let flags = Flags::decode(reader.u8("flags")?)?;
        Ok(Metadata {
            expire_ms: reader.u64("expire_ms")?,
            body: Body::read(flags, reader)?,
        })
    }

    fn flags(&self) -> Flags {
        Flags {
            kind: self.kind(),
            chunked: matches!(self.body, Body::Chunked { .. }),
            counted: matches!(
                self.body,
                Body::Collection {
                    is_counted: true,
                    ..
                }
            ),
            expiring: matches!(
                self.body,
                Body::Collection {
                    fields: Some(_),
                    ..
                }
            ),
        }
    }

    fn encoded_len(&self) -> usize {
        let body = match self.body {
            Body::Inline(value) => value.len(),
            Body::Chunked { .. } => 16,
            Body::Collection { fields, .. } => 16 + fields.map_or(0, |_| FieldTimes::LEN),
            Body::List { .. } => 32,
            Body::Stream { rest, .. } => 16 + rest.len(),
        };
        1 + 8 + body
    }
}

impl<'a> Body<'a> {
    #[inline]
    fn read(flags: Flags, mut reader: Reader<'a>) -> Result<Self, DecodeError> {
        let body = match flags.kind {
            Type::String if !flags.chunked => return Ok(Body::Inline(reader.rest())),
            Type::String => Body::Chunked {
                version: reader.u64("version")?,
                length: reader.u64("length")?,
            },
            Type::Hash => Body::read_collection(CollectionKind::Hash, &flags, &mut reader)?,
            Type::Set => Body::read_collection(CollectionKind::Set, &flags, &mut reader)?,
            Type::ZSet => Body::read_collection(CollectionKind::ZSet, &flags, &mut reader)?,
            Type::List => Body::List {
                version: reader.u64("version")?,
                size: reader.u64("size")?,
                head: reader.u64("head")?,
                tail: reader.u64("tail")?,
            },
            Type::Stream => Body::Stream {
                version: reader.u64("version")?,
                size: reader.u64("size")?,
                rest: reader.chunk("stream")?,
            },
        };
        reader.finish()?;
        Ok(body)
    }

    #[inline]
    fn read_collection(
        kind: CollectionKind,
        flags: &Flags,
        reader: &mut Reader<'a>,
    ) -> Result<Self, DecodeError> {
        Ok(Body::Collection {
            kind,
            version: reader.u64("version")?,
            size: reader.u64("size")?,
            is_counted: flags.counted,
            fields: match flags.expiring {
                true => Some(FieldTimes::read(reader)?),
                false => None,
            },
        })
    }
}

fn put_u64s<const N: usize>(out: &mut Vec<u8>, numbers: [u64; N]) {
    out.extend_from_slice(numbers.map(u64::to_be_bytes).as_flattened());
}

/// The type of the key whose metadata value this is, from its first byte alone.
pub fn type_of(value: &[u8]) -> Result<Type, DecodeError> {
    let flags = Reader::new(LAYOUT, value).u8("flags")?;
    Ok(Flags::decode(flags)?.kind)
}

/// The `expire_ms` of a metadata value, without a look at its body.
pub fn expire_of(value: &[u8]) -> Result<u64, DecodeError> {
    let mut reader = Reader::new(LAYOUT, value);
    Flags::decode(reader.u8("flags")?)?;
    reader.u64("expire_ms")
}

/// When there is nothing left of a key, from its metadata value: see [`Metadata::ends_ms`].
pub fn ends_of(value: &[u8]) -> Result<u64, DecodeError> {
    let flags = Flags::decode(Reader::new(LAYOUT, value).u8("flags")?)?;
    match flags.expiring {
        true => Ok(Metadata::decode(value)?.ends_ms()),
        false => expire_of(value),
    }
}

/// The same of a hash that has so many fields, of which some expire.
pub fn ends_ms(expire_ms: u64, size: u64, fields: FieldTimes) -> u64 {
    match (expire_ms, fields.last_ms) {
        (expire_ms, _) if fields.count < size => expire_ms,
        (0, last_ms) => last_ms,
        (expire_ms, last_ms) => expire_ms.min(last_ms),
    }
}

/// Redis' rule: a key still exists during the millisecond it expires at, and 0 is no expiry.
#[inline]
pub fn has_expired(expire_ms: u64, now_ms: u64) -> bool {
    expire_ms != 0 && now_ms > expire_ms
}

#[cfg(test)]
mod tests;
