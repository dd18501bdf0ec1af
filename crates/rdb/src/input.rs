//! Reading a payload from its beginning.

use std::borrow::Cow;

use crate::{Corrupt, lzf, string};

/// What is left to be read.
#[derive(Clone, Copy)]
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn take(&mut self, len: usize) -> Result<&'a [u8], Corrupt> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Corrupt)?;
        self.0 = rest;
        Ok(taken)
    }

    pub fn fixed<const LEN: usize>(&mut self) -> Result<[u8; LEN], Corrupt> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Corrupt)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub fn byte(&mut self) -> Result<u8, Corrupt> {
        let [byte] = self.fixed()?;
        Ok(byte)
    }

    /// A length, or a number of elements.
    pub fn length(&mut self) -> Result<u64, Corrupt> {
        let first = self.byte()?;
        match first {
            0..0x40 => Ok(u64::from(first)),
            0x40..0x80 => Ok(u64::from(first & 0x3f) << 8 | u64::from(self.byte()?)),
            string::LENGTH_32 => Ok(u64::from(u32::from_be_bytes(self.fixed()?))),
            string::LENGTH_64 => Ok(u64::from_be_bytes(self.fixed()?)),
            _ => Err(Corrupt),
        }
    }

    fn size(&mut self) -> Result<usize, Corrupt> {
        usize::try_from(self.length()?).map_err(|_| Corrupt)
    }

    /// A string in any of its forms.
    pub fn string(&mut self) -> Result<Cow<'a, [u8]>, Corrupt> {
        let number = match self.0.first() {
            Some(&string::INT_8) => {
                let [_, number] = self.fixed()?;
                i32::from(number as i8)
            }
            Some(&string::INT_16) => {
                let [_, low, high] = self.fixed()?;
                i32::from(i16::from_le_bytes([low, high]))
            }
            Some(&string::INT_32) => {
                self.byte()?;
                i32::from_le_bytes(self.fixed()?)
            }
            Some(&string::COMPRESSED) => {
                self.byte()?;
                let compressed = self.size()?;
                let len = self.size()?;
                let value = lzf::decompress(self.take(compressed)?, len).ok_or(Corrupt)?;
                return Ok(value.into());
            }
            _ => {
                let len = self.size()?;
                return Ok(self.take(len)?.into());
            }
        };
        Ok(number.to_string().into_bytes().into())
    }
}
