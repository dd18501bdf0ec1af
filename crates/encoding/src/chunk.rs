//! Sub-keys that are numbers: which chunk of a large string, which element of a list.
//!
//! ```text
//!   chunk number   u32      chunk n holds bytes [n * 16 KiB, (n + 1) * 16 KiB) of the string
//!   list index     u64      from head to tail; a new list starts in the middle, at LIST_ORIGIN
//! ```
//!
//! Both are unsigned and big-endian, so a scan of the version meets the chunks, or the elements, in
//! order, and a seek finds any of them directly.

use crate::DecodeError;
use crate::reader::Reader;

pub fn chunk_sub(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

pub fn decode_chunk_sub(sub: &[u8]) -> Result<u32, DecodeError> {
    let mut reader = Reader::new("chunk sub-key", sub);
    let number = reader.u32("chunk number")?;
    reader.finish()?;
    Ok(number)
}

pub fn index_sub(index: u64) -> [u8; 8] {
    index.to_be_bytes()
}

pub fn decode_index_sub(sub: &[u8]) -> Result<u64, DecodeError> {
    let mut reader = Reader::new("list sub-key", sub);
    let index = reader.u64("list index")?;
    reader.finish()?;
    Ok(index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LIST_ORIGIN;
    use crate::golden::assert_bytes;

    #[test]
    fn golden_bytes() {
        assert_bytes(&chunk_sub(0x0102_0304), "01020304");
        assert_bytes(&index_sub(LIST_ORIGIN), "7fffffffffffffff");
        assert_bytes(&index_sub(LIST_ORIGIN + 1), "8000000000000000");
    }

    #[test]
    fn a_sub_key_of_another_length_is_an_error() {
        assert_eq!(decode_chunk_sub(&[0, 0, 1, 0]), Ok(256));
        assert!(decode_chunk_sub(&[0; 3]).is_err());
        assert!(decode_chunk_sub(&[0; 5]).is_err());
        assert_eq!(decode_index_sub(&[0, 0, 0, 0, 0, 0, 1, 0]), Ok(256));
        assert!(decode_index_sub(&[0; 7]).is_err());
        assert!(decode_index_sub(&[0; 9]).is_err());
    }
}
