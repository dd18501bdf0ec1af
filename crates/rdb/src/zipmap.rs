//! Zipmaps, in which Redis kept small hashes before 2.6.
//!
//! ```text
//! fields u8 | field... | FF                             FE fields or more: go and count them
//! field     length | name | length | unused u8 | value | unused bytes
//! length    u8, or FE and u32, little endian
//! ```

use crate::{Corrupt, Input};

const END: u8 = 0xff;
const LONG: u8 = 0xfe;

/// A name and its value.
type Field<'a> = (&'a [u8], &'a [u8]);

pub struct Fields<'a> {
    input: Input<'a>,
    left: Option<u8>,
}

impl<'a> Fields<'a> {
    pub fn open(bytes: &'a [u8]) -> Result<Self, Corrupt> {
        let mut input = Input(bytes);
        let count = input.byte()?;
        Ok(Fields {
            input,
            left: (count < LONG).then_some(count),
        })
    }

    pub fn next(&mut self) -> Result<Option<Field<'a>>, Corrupt> {
        if self.input.0 == [END] {
            return match self.left {
                None | Some(0) => Ok(None),
                Some(_) => Err(Corrupt),
            };
        }
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(1).ok_or(Corrupt)?;
        }
        let length = self.length()?;
        let name = self.input.take(length)?;
        let length = self.length()?;
        let unused = self.input.byte()?;
        let value = self.input.take(length)?;
        self.input.take(usize::from(unused))?;
        Ok(Some((name, value)))
    }

    fn length(&mut self) -> Result<usize, Corrupt> {
        match self.input.byte()? {
            END => Err(Corrupt),
            // What is short is never written so.
            LONG => match u32::from_le_bytes(self.input.fixed()?) {
                ..254 => Err(Corrupt),
                long => Ok(long as usize),
            },
            short => Ok(usize::from(short)),
        }
    }
}
