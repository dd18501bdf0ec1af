//! A cursor over stored bytes. It carries the name of the layout being read, so that a decoder which
//! names its fields gets errors that say what was missing where.

use crate::DecodeError;

pub struct Reader<'a> {
    layout: &'static str,
    total: usize,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    #[inline]
    pub fn new(layout: &'static str, bytes: &'a [u8]) -> Self {
        Reader {
            layout,
            total: bytes.len(),
            rest: bytes,
        }
    }

    pub fn layout(&self) -> &'static str {
        self.layout
    }

    #[inline]
    pub fn offset(&self) -> usize {
        self.total - self.rest.len()
    }

    #[inline]
    pub fn u8(&mut self, field: &'static str) -> Result<u8, DecodeError> {
        self.array(field).map(u8::from_be_bytes)
    }

    #[inline]
    pub fn u16(&mut self, field: &'static str) -> Result<u16, DecodeError> {
        self.array(field).map(u16::from_be_bytes)
    }

    #[inline]
    pub fn u32(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        self.array(field).map(u32::from_be_bytes)
    }

    #[inline]
    pub fn u64(&mut self, field: &'static str) -> Result<u64, DecodeError> {
        self.array(field).map(u64::from_be_bytes)
    }

    #[inline]
    pub fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], DecodeError> {
        self.chunk(field).copied()
    }

    #[inline]
    pub fn chunk<const N: usize>(
        &mut self,
        field: &'static str,
    ) -> Result<&'a [u8; N], DecodeError> {
        let Some((taken, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(self.truncated(field, N));
        };
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    pub fn bytes(&mut self, field: &'static str, length: usize) -> Result<&'a [u8], DecodeError> {
        let Some((taken, rest)) = self.rest.split_at_checked(length) else {
            return Err(self.truncated(field, length));
        };
        self.rest = rest;
        Ok(taken)
    }

    /// All that is left, for a last field of variable length.
    #[inline]
    pub fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// What is left, without taking it.
    pub fn peek(&self) -> &'a [u8] {
        self.rest
    }

    /// Must be called by every layout whose last field has a fixed length.
    #[inline]
    pub fn finish(self) -> Result<(), DecodeError> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(DecodeError::Trailing {
            layout: self.layout,
            offset: self.offset(),
            extra: self.rest.len(),
        })
    }

    #[cold]
    fn truncated(&self, field: &'static str, needed: usize) -> DecodeError {
        DecodeError::Truncated {
            layout: self.layout,
            field,
            offset: self.offset(),
            needed,
            left: self.rest.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_is_missing_where() {
        let mut reader = Reader::new("data row", &[0, 1, 2, 3, 4, 5]);
        assert_eq!(reader.u16("slot"), Ok(1));
        let error = reader.u64("version").map_err(|error| error.to_string());
        assert_eq!(
            error,
            Err("data row: version at byte 2 takes 8 bytes, 4 are left".to_string())
        );
    }

    #[test]
    fn a_failed_read_takes_nothing() {
        let mut reader = Reader::new("data row", &[7, 8]);
        assert!(reader.u32("key_len").is_err());
        assert!(reader.bytes("key", 3).is_err());
        assert_eq!(reader.offset(), 0);
        assert_eq!(reader.rest(), &[7, 8]);
    }

    #[test]
    fn leftovers_are_an_error_only_where_the_layout_ends() {
        let mut reader = Reader::new("legacy value", &[1, 2, 3]);
        assert_eq!(reader.u8("first"), Ok(1));
        let error = reader.finish().map_err(|error| error.to_string());
        assert_eq!(
            error,
            Err("legacy value: complete at byte 1, yet 2 bytes follow".to_string())
        );
    }
}
