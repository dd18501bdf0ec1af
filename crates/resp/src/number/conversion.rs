//! From digits to an unrounded binary number.
//!
//! Hexadecimal digits are bits already. Decimal ones are a whole number times a power of ten, and so a
//! product, or with a negative power a quotient, of whole numbers, whose leading bits are found exactly
//! and not by floating point, since a wrong guess at a tie is a wrong last digit. What people write
//! fits 128 bits; the rest takes a [`Natural`].

use std::cmp::Ordering;

use super::literal::Digits;
use super::natural::Natural;
use super::rounding::Unrounded;

/// An exponent that overflows every format, and its negative underflows.
const BEYOND_ANY_FORMAT: i32 = 1 << 30;

/// Places of the first decimal digit, counted from the point, that the largest format needs: 1.19e4932
/// is its maximum, and half of its smallest subnormal is 1.82e-4951.
const MAX_PLACE: i64 = 4932;
const MIN_PLACE: i64 = -4951;

/// The bits of a quotient: more than any format has.
const QUOTIENT_BITS: i32 = 66;

impl Unrounded {
    pub fn from_hex(digits: &Digits) -> Self {
        /// As many as fit the significand with four bits to spare.
        const KEPT: usize = 31;

        let mut significand = 0;
        let mut inexact = false;
        let mut count = 0;
        for digit in digits.significant() {
            if count < KEPT {
                significand = significand << 4 | u128::from(digit);
            } else {
                inexact |= digit != 0;
            }
            count += 1;
        }
        let omitted = count.saturating_sub(KEPT) as i64;
        let exponent = digits.exponent() + 4 * (omitted - digits.fraction_len() as i64);
        let limit = i64::from(BEYOND_ANY_FORMAT);
        Self {
            significand,
            exponent: exponent.clamp(-limit, limit) as i32,
            inexact,
        }
    }

    pub fn from_decimal(digits: &Digits) -> Self {
        let mut significant: Vec<u8> = digits.significant().collect();
        let place = significant.len() as i64 - 1 - digits.fraction_len() as i64 + digits.exponent();
        let zeros = significant
            .iter()
            .rev()
            .take_while(|&&digit| digit == 0)
            .count();
        significant.truncate(significant.len() - zeros);

        if significant.is_empty() {
            Self::exact(0, 0)
        } else if place > MAX_PLACE {
            Self::exact(1, BEYOND_ANY_FORMAT)
        } else if place < MIN_PLACE {
            Self::exact(1, -BEYOND_ANY_FORMAT)
        } else {
            let power = place as i32 + 1 - significant.len() as i32;
            Self::from_short_decimal(&significant, power)
                .unwrap_or_else(|| Self::from_long_decimal(&significant, power))
        }
    }

    /// `digits * 10^power` where 128 bits are enough.
    fn from_short_decimal(digits: &[u8], power: i32) -> Option<Self> {
        // 19 digits fit 64 bits; and a dividend of 128 bits leaves a quotient of 68 when divided by
        // 10^18, which is more than any format has.
        if digits.len() > 19 || power.abs() > 18 {
            return None;
        }
        let whole = digits
            .iter()
            .fold(0, |value, &digit| value * 10 + u128::from(digit));
        let scale = 10u128.pow(power.unsigned_abs());
        if power >= 0 {
            return Some(Self::exact(whole * scale, 0));
        }
        let shift = whole.leading_zeros();
        let dividend = whole << shift;
        Some(Self {
            significand: dividend / scale,
            exponent: -(shift as i32),
            inexact: dividend % scale != 0,
        })
    }

    /// `digits * 10^power` at any size. The tens are taken as fives and twos; the twos go straight to
    /// the exponent.
    fn from_long_decimal(digits: &[u8], power: i32) -> Self {
        let mut whole = Natural::from_decimal(digits);
        let fives = power.unsigned_abs();
        let mut unrounded = if power < 0 {
            Self::quotient(whole, Natural::power_of_five(fives))
        } else {
            whole.multiply_power_of_five(fives);
            let (significand, omitted, inexact) = whole.leading_bits();
            Self {
                significand,
                exponent: omitted as i32,
                inexact,
            }
        };
        unrounded.exponent += power;
        unrounded
    }

    /// Long division, bit by bit.
    fn quotient(mut remainder: Natural, mut divisor: Natural) -> Self {
        let shift = divisor.width() as i32 - remainder.width() as i32;
        match shift {
            0.. => remainder.shift_left(shift as u32),
            _ => divisor.shift_left(-shift as u32),
        }
        // Both have the same width now, so the first bit may be 0 but the second is 1 then.
        let mut quotient = 0;
        for _ in 0..=QUOTIENT_BITS {
            quotient <<= 1;
            if remainder.cmp(&divisor) != Ordering::Less {
                remainder.subtract(&divisor);
                quotient |= 1;
            }
            remainder.shift_left(1);
        }
        Self {
            significand: quotient,
            exponent: -shift - QUOTIENT_BITS,
            inexact: !remainder.is_zero(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::literal::{Literal, Magnitude};
    use super::super::rounding::{DOUBLE, EXTENDED, Float, Format};
    use super::*;
    use proptest::prelude::*;

    fn round_decimal(text: &str, format: &Format) -> Option<Float> {
        match Literal::parse(text.as_bytes()).unwrap().magnitude {
            Magnitude::Decimal(digits) => Unrounded::from_decimal(&digits).round(format),
            _ => unreachable!("{text} is not decimal"),
        }
    }

    /// What Rust's own conversion makes of a text, which is correctly rounded too.
    fn round_by_rust(text: &str) -> Option<Float> {
        let bits = text.parse::<f64>().unwrap().to_bits();
        let fraction = bits & ((1 << 52) - 1);
        match (bits >> 52) as i32 {
            0x7ff => None,
            0 => Some(Float {
                exponent: -1074,
                significand: fraction,
            }),
            exponent => Some(Float {
                exponent: exponent - 1075,
                significand: fraction | 1 << 52,
            }),
        }
    }

    #[test]
    fn zeros_before_and_after_do_not_count() {
        let spellings = [
            "12.5",
            "00012.5",
            "12.50000",
            "0.000125e5",
            "1250000e-5",
            "125e-1",
        ];
        for text in spellings {
            assert_eq!(
                round_decimal(text, &EXTENDED),
                round_decimal("12.5", &EXTENDED),
                "{text}"
            );
        }
        for zero in ["0", "0.000", "0e9999999", "0e-9999999"] {
            assert_eq!(
                round_decimal(zero, &EXTENDED).map(|float| float.significand),
                Some(0)
            );
        }
    }

    proptest! {
        #[test]
        fn agrees_with_rust_on_doubles(
            whole in "[0-9]{1,30}",
            fraction in "[0-9]{0,30}",
            exponent in prop_oneof![-30..30, -400..350],
        ) {
            let text = format!("{whole}.{fraction}e{exponent}");
            prop_assert_eq!(round_decimal(&text, &DOUBLE), round_by_rust(&text));
        }

        // Halfway between two doubles, and a little above.
        #[test]
        fn ties_go_to_even(significand in 1u64 << 52..(1 << 53) - 1, shift in 0u32..200) {
            let mut halfway = Natural::from(significand * 2 + 1);
            halfway.shift_left(shift);
            let even = significand + significand % 2;
            for (suffix, rounded) in [("", even), (".0", even), (".0000000001", significand + 1)] {
                let expected = Float { exponent: shift as i32 + 1, significand: rounded };
                let text = format!("{halfway}{suffix}");
                prop_assert_eq!(round_decimal(&text, &DOUBLE), Some(expected));
            }
        }

        #[test]
        fn short_and_long_decimals_agree(digits in prop::collection::vec(0u8..10, 1..=19), power in -18..=18) {
            prop_assume!(digits[0] != 0);
            let short = Unrounded::from_short_decimal(&digits, power).unwrap();
            let long = Unrounded::from_long_decimal(&digits, power);
            prop_assert_eq!(short.round(&EXTENDED), long.round(&EXTENDED));
        }
    }
}
