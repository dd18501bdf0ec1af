//! Strings as the format before this one kept them: whole, in `data`, with no metadata row.
//!
//! ```text
//!   key     prefix | 'S'                    (RowKey::Legacy)
//!   value   expire_ms u64 | payload
//! ```
//!
//! They are only read, and moved to a metadata row by the first write to their key or by the background
//! pass. The encoder is here for the tests of all that, and so that the layout has one home.

use crate::DecodeError;
use crate::metadata::has_expired;
use crate::reader::Reader;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LegacyString<'a> {
    /// Absolute milliseconds; 0 = never.
    pub expire_ms: u64,
    pub payload: &'a [u8],
}

impl<'a> LegacyString<'a> {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode_into(&mut out);
        out
    }

    pub fn encode_into(&self, out: &mut Vec<u8>) {
        out.reserve(8 + self.payload.len());
        out.extend_from_slice(&self.expire_ms.to_be_bytes());
        out.extend_from_slice(self.payload);
    }

    pub fn decode(value: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new("legacy value", value);
        Ok(LegacyString {
            expire_ms: reader.u64("expire_ms")?,
            payload: reader.rest(),
        })
    }

    pub fn is_expired(&self, now_ms: u64) -> bool {
        has_expired(self.expire_ms, now_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::assert_bytes;

    #[test]
    fn golden_bytes() {
        let value = LegacyString {
            expire_ms: 0x0102_0304_0506_0708,
            payload: b"Ada",
        };
        assert_bytes(&value.encode(), "0102030405060708 416461");
    }

    #[test]
    fn an_empty_payload_is_a_value_and_a_short_value_is_none() {
        let empty = LegacyString::decode(&[0; 8]);
        assert_eq!(
            empty,
            Ok(LegacyString {
                expire_ms: 0,
                payload: b""
            })
        );
        assert!(LegacyString::decode(&[0; 7]).is_err());
    }

    #[test]
    fn it_expires_as_metadata_does() {
        let value = LegacyString {
            expire_ms: 1000,
            payload: b"",
        };
        assert!(!value.is_expired(1000));
        assert!(value.is_expired(1001));
    }
}
