//! Intsets: small sets of whole numbers.
//!
//! ```text
//! width u32 (2, 4 or 8) | numbers u32 | number...     little endian, rising
//! ```

use crate::{Corrupt, Input};

pub struct Numbers<'a> {
    input: Input<'a>,
    width: usize,
    latest: Option<i64>,
}

impl<'a> Numbers<'a> {
    pub fn open(bytes: &'a [u8]) -> Result<Self, Corrupt> {
        let mut input = Input(bytes);
        let width = u32::from_le_bytes(input.fixed()?) as usize;
        let count = u32::from_le_bytes(input.fixed()?) as usize;
        let is_whole =
            matches!(width, 2 | 4 | 8) && Some(input.0.len()) == count.checked_mul(width);
        match is_whole {
            true => Ok(Numbers {
                input,
                width,
                latest: None,
            }),
            false => Err(Corrupt),
        }
    }

    pub fn next(&mut self) -> Result<Option<i64>, Corrupt> {
        if self.input.is_empty() {
            return Ok(None);
        }
        let number = match self.width {
            2 => i16::from_le_bytes(self.input.fixed()?).into(),
            4 => i32::from_le_bytes(self.input.fixed()?).into(),
            _ => i64::from_le_bytes(self.input.fixed()?),
        };
        if self.latest.is_some_and(|latest| latest >= number) {
            return Err(Corrupt);
        }
        self.latest = Some(number);
        Ok(Some(number))
    }
}

/// Of numbers that rise.
pub fn of(numbers: &[i64]) -> Vec<u8> {
    let fit = |lowest: i64| {
        let range = lowest..=-(lowest + 1);
        numbers.iter().all(|number| range.contains(number))
    };
    let width = match () {
        () if fit(i16::MIN.into()) => 2,
        () if fit(i32::MIN.into()) => 4,
        () => 8,
    };
    let mut bytes = Vec::with_capacity(8 + numbers.len() * width);
    bytes.extend_from_slice(&(width as u32).to_le_bytes());
    bytes.extend_from_slice(&(numbers.len() as u32).to_le_bytes());
    for number in numbers {
        bytes.extend_from_slice(&number.to_le_bytes()[..width]);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(bytes: &[u8]) -> Result<Vec<i64>, Corrupt> {
        let mut numbers = Numbers::open(bytes)?;
        let mut all = Vec::new();
        while let Some(number) = numbers.next()? {
            all.push(number);
        }
        Ok(all)
    }

    #[test]
    fn as_wide_as_the_widest() {
        for (some, width) in [
            (vec![-32768, 32767], 2),
            (vec![0, 32768], 4),
            (vec![-32769, 7], 4),
            (vec![i64::from(i32::MIN) - 1], 8),
            (vec![i64::MIN, 0, i64::MAX], 8),
        ] {
            let bytes = of(&some);
            assert_eq!(bytes.len(), 8 + some.len() * width);
            assert_eq!(numbers(&bytes).unwrap(), some);
        }
    }

    #[test]
    fn refused_ones() {
        for bytes in [
            &b"\x02\0\0\0\x02\0\0\0\x02\0\x01\0"[..],
            b"\x02\0\0\0\x02\0\0\0\x01\0\x01\0",
            b"\x02\0\0\0\x02\0\0\0\x01\0",
            b"\x02\0\0\0\xff\xff\xff\xff\x01\0",
            b"\x03\0\0\0\x01\0\0\0\x01\0\0",
            b"\x02\0\0\0",
        ] {
            assert!(numbers(bytes).is_err(), "{bytes:?}");
        }
    }
}
