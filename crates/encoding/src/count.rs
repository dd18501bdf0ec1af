//! How many elements of a collection lie where.
//!
//! The elements of a large hash, set or sorted set lie in an order: a hash's and a set's by sub-key, a sorted
//! set's by score and member. The order is cut into blocks, and each block has a count row:
//!
//! ```text
//!   zset_score   prefix | version | ff × 8 | first  →  count u64
//!
//!   order        ─────────────┬──────────────┬─────────────┬────────▶
//!   count rows   "" → 190     "fo" → 201     "mit" → 177   "s" → 12
//! ```
//!
//! A block reaches from `first` up to the `first` of the next one. What stands there is what follows the
//! version in an element's row (so for a sorted set score and member), cut off where it can be told from the
//! element before. The first block begins with nothing, so every element lies in one. Either all of a
//! collection is counted, and its metadata says so, or there is no such row.
//!
//! The rows of hashes and sets lie in `zset_score` too: in `data` any bytes may be a sub-key.

use crate::DecodeError;
use crate::reader::Reader;

pub fn encode(count: u64) -> [u8; 8] {
    count.to_be_bytes()
}

pub fn decode(value: &[u8]) -> Result<u64, DecodeError> {
    let mut reader = Reader::new("count", value);
    let count = reader.u64("count")?;
    reader.finish()?;
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::assert_bytes;

    #[test]
    fn golden_bytes() {
        assert_bytes(&encode(0x1234), "0000000000001234");
        assert_eq!(decode(&encode(7)), Ok(7));
    }

    #[test]
    fn a_value_is_one_number_exactly() {
        assert!(matches!(
            decode(&[0; 7]),
            Err(DecodeError::Truncated { .. })
        ));
        assert!(matches!(decode(&[0; 9]), Err(DecodeError::Trailing { .. })));
    }
}
