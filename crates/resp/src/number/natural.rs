//! Whole numbers of any size, with just the arithmetic that reading and printing floats takes.
//!
//! They are rare and bounded: only texts with many digits or a large exponent get here, and those are
//! at most some ten thousand decimal digits. So the schoolbook methods are the right ones. Limbs have
//! 32 bits because a product or quotient then fits a machine word, and the division by a constant
//! power of ten compiles to a multiplication.

use std::cmp::Ordering;
use std::fmt;

const LIMB_BITS: u32 = u32::BITS;

/// The largest powers of ten and five that fit a limb.
const TEN_9: u32 = 1_000_000_000;
const FIVE_13: u32 = 1_220_703_125;

/// A whole number; little-endian limbs, the last of them not zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Natural {
    limbs: Vec<u32>,
}

impl Natural {
    pub fn from_decimal(digits: &[u8]) -> Self {
        let mut number = Self { limbs: Vec::new() };
        for chunk in digits.chunks(9) {
            let value = chunk
                .iter()
                .fold(0, |value, &digit| value * 10 + u32::from(digit));
            number.multiply_add(10u32.pow(chunk.len() as u32), value);
        }
        number
    }

    pub fn power_of_five(exponent: u32) -> Self {
        let mut number = Self { limbs: vec![1] };
        number.multiply_power_of_five(exponent);
        number
    }

    pub fn multiply_power_of_five(&mut self, exponent: u32) {
        for _ in 0..exponent / 13 {
            self.multiply_add(FIVE_13, 0);
        }
        self.multiply_add(5u32.pow(exponent % 13), 0);
    }

    /// How many bits it takes to write the number.
    pub fn width(&self) -> u32 {
        let limbs = self.limbs.len() as u32 * LIMB_BITS;
        limbs - self.limbs.last().map_or(0, |top| top.leading_zeros())
    }

    pub fn is_zero(&self) -> bool {
        self.limbs.is_empty()
    }

    pub fn shift_left(&mut self, bits: u32) {
        let within = bits % LIMB_BITS;
        if within > 0 {
            self.multiply_add(1 << within, 0);
        }
        if !self.is_zero() {
            self.limbs
                .splice(..0, std::iter::repeat_n(0, (bits / LIMB_BITS) as usize));
        }
    }

    /// Takes `other` away, which must not be larger.
    pub fn subtract(&mut self, other: &Self) {
        let mut borrow = false;
        for (i, limb) in self.limbs.iter_mut().enumerate() {
            let taken = other.limbs.get(i).copied().unwrap_or(0);
            (*limb, borrow) = limb.borrowing_sub(taken, borrow);
        }
        debug_assert!(!borrow);
        self.drop_leading_zeros();
    }

    /// The top 128 bits, the power of two that they are to be multiplied by, and whether bits below
    /// them were left out.
    pub fn leading_bits(&self) -> (u128, u32, bool) {
        let omitted = self.width().saturating_sub(u128::BITS);
        let mut bits = 0u128;
        for (i, &limb) in self.limbs.iter().enumerate() {
            let place = i as i64 * i64::from(LIMB_BITS) - i64::from(omitted);
            match place {
                0.. => bits |= u128::from(limb) << place,
                -31..0 => bits |= u128::from(limb >> -place),
                _ => {}
            }
        }
        (bits, omitted, self.trailing_zeros() < omitted)
    }

    fn trailing_zeros(&self) -> u32 {
        let zeros = self.limbs.iter().take_while(|&&limb| limb == 0).count();
        let within = self
            .limbs
            .get(zeros)
            .map_or(0, |limb| limb.trailing_zeros());
        zeros as u32 * LIMB_BITS + within
    }

    fn multiply_add(&mut self, factor: u32, addend: u32) {
        let mut carry = addend;
        for limb in &mut self.limbs {
            (*limb, carry) = limb.carrying_mul(factor, carry);
        }
        if carry > 0 {
            self.limbs.push(carry);
        }
    }

    /// Divides by 10^9 and returns the remainder.
    fn divide_by_ten_9(&mut self) -> u32 {
        let mut remainder = 0u64;
        for limb in self.limbs.iter_mut().rev() {
            let dividend = remainder << LIMB_BITS | u64::from(*limb);
            *limb = (dividend / u64::from(TEN_9)) as u32;
            remainder = dividend % u64::from(TEN_9);
        }
        self.drop_leading_zeros();
        remainder as u32
    }

    fn drop_leading_zeros(&mut self) {
        while self.limbs.last() == Some(&0) {
            self.limbs.pop();
        }
    }
}

impl From<u64> for Natural {
    fn from(value: u64) -> Self {
        let mut number = Self {
            limbs: vec![value as u32, (value >> LIMB_BITS) as u32],
        };
        number.drop_leading_zeros();
        number
    }
}

impl Ord for Natural {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_length = self.limbs.len().cmp(&other.limbs.len());
        by_length.then_with(|| self.limbs.iter().rev().cmp(other.limbs.iter().rev()))
    }
}

impl PartialOrd for Natural {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Decimal digits.
impl fmt::Display for Natural {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.clone();
        let mut groups = Vec::new();
        while !rest.is_zero() {
            groups.push(rest.divide_by_ten_9());
        }
        write!(f, "{}", groups.pop().unwrap_or(0))?;
        groups
            .iter()
            .rev()
            .try_for_each(|group| write!(f, "{group:09}"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use proptest::prelude::*;

    fn natural(text: &str) -> Natural {
        let digits: Vec<u8> = text.bytes().map(|byte| byte - b'0').collect();
        Natural::from_decimal(&digits)
    }

    #[test]
    fn powers_of_five_and_two_make_powers_of_ten() {
        for exponent in [0, 1, 12, 13, 14, 31, 32, 33, 100, 4932] {
            let mut number = Natural::power_of_five(exponent);
            number.shift_left(exponent);
            assert_eq!(
                number.to_string(),
                format!("1{}", "0".repeat(exponent as usize))
            );
        }
    }

    #[test]
    fn zero_has_no_width() {
        let mut zero = natural("000");
        zero.shift_left(100);
        assert!(zero.is_zero());
        assert_eq!((zero.width(), zero.to_string()), (0, "0".to_owned()));
    }

    proptest! {
        #[test]
        fn prints_the_digits_it_was_made_of(text in "[1-9][0-9]{0,200}") {
            prop_assert_eq!(natural(&text).to_string(), text);
        }

        #[test]
        fn small_numbers_behave_as_u128(a: u128, b: u128, shift in 0u32..100) {
            let (large, small) = (a.max(b) >> shift, a.min(b) >> shift);
            let mut number = natural(&large.to_string());
            prop_assert_eq!(number.width(), u128::BITS - large.leading_zeros());
            prop_assert_eq!(number.leading_bits(), (large, 0, false));
            prop_assert_eq!(number.cmp(&natural(&small.to_string())), large.cmp(&small));
            number.subtract(&natural(&small.to_string()));
            prop_assert_eq!(number.to_string(), (large - small).to_string());
        }

        #[test]
        fn leading_bits_say_what_they_leave_out(top in 1u128 << 127.., low: u32, shift in 32u32..300) {
            let mut number = natural(&top.to_string());
            number.shift_left(shift);
            prop_assert_eq!(number.leading_bits(), (top, shift, false));
            number.multiply_add(1, low);
            prop_assert_eq!(number.leading_bits(), (top, shift, low != 0));
        }
    }
}
