//! What the rows of the `meta` family say, one layout per kind.
//!
//! ```text
//!   Format             format version u32
//!   Database           index_id u64
//!   NextIndex          index_id u64
//!   DeadIndex          (empty)
//!   Staging            the metadata key that the staged version is for
//!   Maxima             version u64 | timestamp_ms u64
//!   Watermark          milliseconds u64
//!   LegacyMayExist     (empty)
//!   AppliedIndex       index u64
//!   Library            its code, as the client gave it: opaque here
//! ```
//!
//! `RegionDescriptor` and `Installing` are in [`region`](super::region), `Applied` is in [`raft`](crate::raft).
//!
//! A pair of functions for each, rather than one for each width, so that a call site says which row it
//! has in hand, and a damaged value is reported under that name.

use crate::DecodeError;
use crate::reader::Reader;
use crate::row::{self, RowKey};

/// The value of rows that say all they have to say by being there.
pub const EMPTY: &[u8] = &[];

pub fn encode_format(version: u32) -> [u8; 4] {
    version.to_be_bytes()
}

pub fn decode_format(value: &[u8]) -> Result<u32, DecodeError> {
    let mut reader = Reader::new("format value", value);
    let version = reader.u32("format version")?;
    reader.finish()?;
    Ok(version)
}

pub fn encode_database(index: u64) -> [u8; 8] {
    index.to_be_bytes()
}

pub fn decode_database(value: &[u8]) -> Result<u64, DecodeError> {
    decode_u64("database value", "index_id", value)
}

pub fn encode_next_index(index: u64) -> [u8; 8] {
    index.to_be_bytes()
}

pub fn decode_next_index(value: &[u8]) -> Result<u64, DecodeError> {
    decode_u64("next index value", "index_id", value)
}

pub fn decode_dead_index(value: &[u8]) -> Result<(), DecodeError> {
    Reader::new("dead index value", value).finish()
}

/// Appends the metadata key of the key that the version is staged for.
pub fn encode_staging(out: &mut Vec<u8>, index: u64, key: &[u8]) {
    row::metadata_key(out, index, key);
}

/// Always a [`RowKey::Metadata`]. The value itself is that row's key, ready to be looked up.
pub fn decode_staging(value: &[u8]) -> Result<RowKey<'_>, DecodeError> {
    RowKey::decode_metadata(value)
}

/// The highest version and the latest time that commits of a region have carried. Neither may fall back,
/// whatever the clock does after a restart or at the next leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Maxima {
    pub version: u64,
    pub timestamp_ms: u64,
}

impl Maxima {
    pub fn encode(&self) -> [u8; 16] {
        let mut value = [0; 16];
        value[..8].copy_from_slice(&self.version.to_be_bytes());
        value[8..].copy_from_slice(&self.timestamp_ms.to_be_bytes());
        value
    }

    pub fn decode(value: &[u8]) -> Result<Maxima, DecodeError> {
        let mut reader = Reader::new("maxima value", value);
        let maxima = Maxima {
            version: reader.u64("version")?,
            timestamp_ms: reader.u64("timestamp_ms")?,
        };
        reader.finish()?;
        Ok(maxima)
    }
}

pub fn encode_watermark(at_ms: u64) -> [u8; 8] {
    at_ms.to_be_bytes()
}

pub fn decode_watermark(value: &[u8]) -> Result<u64, DecodeError> {
    decode_u64("watermark value", "milliseconds", value)
}

pub fn encode_applied_index(index: u64) -> [u8; 8] {
    index.to_be_bytes()
}

pub fn decode_applied_index(value: &[u8]) -> Result<u64, DecodeError> {
    decode_u64("applied index value", "index", value)
}

pub fn decode_legacy_may_exist(value: &[u8]) -> Result<(), DecodeError> {
    Reader::new("legacy mark value", value).finish()
}

fn decode_u64(layout: &'static str, field: &'static str, value: &[u8]) -> Result<u64, DecodeError> {
    let mut reader = Reader::new(layout, value);
    let number = reader.u64(field)?;
    reader.finish()?;
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FORMAT_VERSION;
    use crate::golden::assert_bytes;

    const NUMBER: u64 = 0x0102_0304_0506_0708;

    #[test]
    fn golden_bytes() {
        assert_bytes(&encode_format(FORMAT_VERSION), "00000008");
        assert_bytes(&encode_database(NUMBER), "0102030405060708");
        assert_bytes(&encode_next_index(NUMBER), "0102030405060708");
        assert_bytes(&encode_watermark(NUMBER), "0102030405060708");
        assert_bytes(&encode_applied_index(NUMBER), "0102030405060708");
        let maxima = Maxima {
            version: NUMBER,
            timestamp_ms: 9,
        };
        assert_bytes(&maxima.encode(), "0102030405060708 0000000000000009");
        let mut staging = Vec::new();
        encode_staging(&mut staging, 7, b"foo");
        assert_bytes(
            &staging,
            "0000000000000001 0000000000000007 2f96 00000003 666f6f",
        );
    }

    #[test]
    fn each_value_decodes_to_what_was_encoded() {
        assert_eq!(decode_format(&encode_format(5)), Ok(5));
        assert_eq!(decode_database(&encode_database(NUMBER)), Ok(NUMBER));
        assert_eq!(decode_next_index(&encode_next_index(NUMBER)), Ok(NUMBER));
        assert_eq!(decode_watermark(&encode_watermark(NUMBER)), Ok(NUMBER));
        assert_eq!(
            decode_applied_index(&encode_applied_index(NUMBER)),
            Ok(NUMBER)
        );
        assert_eq!(decode_dead_index(EMPTY), Ok(()));
        assert_eq!(decode_legacy_may_exist(EMPTY), Ok(()));
        let maxima = Maxima {
            version: NUMBER,
            timestamp_ms: 9,
        };
        assert_eq!(Maxima::decode(&maxima.encode()), Ok(maxima));
        let mut staging = Vec::new();
        encode_staging(&mut staging, 7, b"foo");
        assert_eq!(
            decode_staging(&staging),
            Ok(RowKey::Metadata {
                index: 7,
                key: b"foo"
            })
        );
    }

    #[test]
    fn a_value_of_the_wrong_length_is_reported_under_its_name() {
        let report = |error: DecodeError| error.to_string();
        assert_eq!(
            decode_watermark(&[0; 7]).map_err(report),
            Err("watermark value: milliseconds at byte 0 takes 8 bytes, 7 are left".to_string())
        );
        assert_eq!(
            decode_dead_index(b"x").map_err(report),
            Err("dead index value: complete at byte 0, yet 1 bytes follow".to_string())
        );
        assert!(decode_format(&[0; 5]).is_err());
        assert!(decode_database(&[0; 9]).is_err());
        assert!(decode_next_index(&[0; 9]).is_err());
        assert!(decode_legacy_may_exist(b"x").is_err());
        assert!(Maxima::decode(&[0; 15]).is_err());
        assert!(Maxima::decode(&[0; 17]).is_err());
        assert!(decode_staging(&[0; 22]).is_err());
    }
}
