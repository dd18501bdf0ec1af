//! The x87's 80-bit float, which C calls `long double` and INCRBYFLOAT computes in.
//!
//! Its 64 bits of significand are why `INCRBYFLOAT` from 0.1 by 0.2 answers `0.3` and not
//! `0.30000000000000004`: eleven more bits than a double hide the error from the 17 decimals that are
//! printed. They also reach from 1e-4951 to 1e4932, and such numbers are printed in full, so a reply can
//! have five thousand digits.
//!
//! Only what Redis needs is here: reading, adding, printing. There is no NaN, because none is read and
//! [`LongDouble::checked_add`] makes none.

use std::fmt;

use super::literal::{Literal, Magnitude};
use super::natural::Natural;
use super::rounding::{EXTENDED, Float, Unrounded, round_shift};

/// Redis copies the text to a buffer of 5 KiB first, and refuses what does not fit with its NUL.
const MAX_TEXT: usize = 5 * 1024 - 1;

/// The decimals that are printed, and how many units of the last of them make one.
const DECIMALS: usize = 17;
const DECIMAL_UNITS: u128 = 10u128.pow(DECIMALS as u32);

/// An 80-bit extended float; never NaN.
#[derive(Clone, Copy, Debug)]
pub struct LongDouble {
    negative: bool,
    /// `None` is infinity.
    magnitude: Option<Float>,
}

impl LongDouble {
    /// Reads what C's `strtold` reads, hexadecimal and infinity included, correctly rounded. Refused
    /// are NaN, spaces, any other byte before or after, 5 KiB or more, and numbers so large or so small
    /// that only infinity or zero is left of them.
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() > MAX_TEXT {
            return None;
        }
        let Literal {
            negative,
            magnitude,
        } = Literal::parse(text)?;
        let unrounded = match &magnitude {
            Magnitude::Infinity => {
                return Some(Self {
                    negative,
                    magnitude: None,
                });
            }
            Magnitude::Decimal(digits) => Unrounded::from_decimal(digits),
            Magnitude::Hex(digits) => Unrounded::from_hex(digits),
        };
        let rounded = unrounded.round(&EXTENDED)?;
        if rounded.significand == 0 && !magnitude.is_zero() {
            return None;
        }
        Some(Self {
            negative,
            magnitude: Some(rounded),
        })
    }

    pub fn is_finite(self) -> bool {
        self.magnitude.is_some()
    }

    /// The sum, or nothing where it is infinite or, of two opposite infinities, not a number.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        let (a, b) = (self.magnitude?, other.magnitude?);
        // What cancels out may be -0 here, which no one ever sees: it prints as 0.
        let (large, small, negative) = if a >= b {
            (a, b, self.negative)
        } else {
            (b, a, other.negative)
        };
        let sum = combine(large, small, self.negative != other.negative).round(&EXTENDED)?;
        Some(Self {
            negative,
            magnitude: Some(sum),
        })
    }

    /// What `Display` prints, as the bytes that are stored and replied.
    pub fn to_bytes(self) -> Vec<u8> {
        self.to_string().into_bytes()
    }
}

/// The sum or, if they are `opposite`, the difference of two magnitudes.
fn combine(large: Float, small: Float, opposite: bool) -> Unrounded {
    /// Room below the significands for the smaller one to be moved into; the top bit is for the carry.
    const ROOM: u32 = 63;

    let distance = (large.exponent - small.exponent) as u32;
    let augend = u128::from(large.significand) << ROOM;
    let exact = u128::from(small.significand) << ROOM;
    let addend = exact.checked_shr(distance).unwrap_or(0);
    let inexact = addend.checked_shl(distance).unwrap_or(0) != exact;
    let significand = match opposite {
        false => augend + addend,
        // The bits that were cut off are missing from what is taken away: take one unit more, and a
        // little is left over again.
        true => augend - addend - u128::from(inexact),
    };
    Unrounded {
        significand,
        exponent: large.exponent - ROOM as i32,
        inexact,
    }
}

/// As Redis prints a long double for people: 17 decimals, exactly rounded, without the zeros at their
/// end; and never `-0`.
impl fmt::Display for LongDouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = match self.magnitude {
            None => "inf".to_owned(),
            Some(float) if float.exponent > 0 => integer_digits(float),
            Some(float) => decimal_digits(float),
        };
        if self.negative && digits != "0" {
            f.write_str("-")?;
        }
        f.write_str(&digits)
    }
}

/// The digits of a number without a fraction.
fn integer_digits(float: Float) -> String {
    let mut number = Natural::from(float.significand);
    number.shift_left(float.exponent as u32);
    number.to_string()
}

/// The digits of a number that may have a fraction. It is counted in units of the last decimal, for
/// which 128 bits are enough: the significand has 64, and the number of units in one takes 57.
fn decimal_digits(float: Float) -> String {
    let units = round_shift(
        u128::from(float.significand) * DECIMAL_UNITS,
        float.exponent.unsigned_abs(),
        false,
    );
    let (whole, fraction) = (units / DECIMAL_UNITS, units % DECIMAL_UNITS);
    if fraction == 0 {
        return whole.to_string();
    }
    let text = format!("{whole}.{fraction:0DECIMALS$}");
    text.trim_end_matches('0').to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::{format_human_double, golden};
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> LongDouble {
        LongDouble::parse(text.as_bytes()).unwrap()
    }

    fn sum(a: &str, b: &str) -> Option<String> {
        read(a).checked_add(read(b)).map(|sum| sum.to_string())
    }

    #[test]
    fn adds_as_incrbyfloat_does() {
        for &(a, b, answer) in golden::SUMS {
            assert_eq!(sum(a, b).as_deref(), Some(answer), "{a} + {b}");
            assert_eq!(sum(b, a).as_deref(), Some(answer), "{b} + {a}");
        }
        for &(a, b) in golden::NO_SUMS {
            assert_eq!(sum(a, b), None, "{a} + {b}");
        }
    }

    #[test]
    fn refuses_what_incrbyfloat_refuses() {
        for text in golden::NO_LONG_DOUBLES {
            assert!(LongDouble::parse(text.as_bytes()).is_none(), "{text:?}");
        }
    }

    #[test]
    fn texts_of_five_kib_are_too_long() {
        let zeros = "0".repeat(MAX_TEXT + 1);
        assert!(LongDouble::parse(zeros.as_bytes()).is_none());
        assert_eq!(read(&zeros[1..]).to_string(), "0");
    }

    #[test]
    fn the_largest_number_is_printed_in_full() {
        let largest = sum("0x1.fffffffffffffffep16383", "0x1p16318").unwrap();
        assert_eq!(largest.len(), 4933);
        assert!(largest.starts_with("1189731495357231765021263853030970205169"));
        assert!(largest.ends_with("19552086811989770240"));
    }

    #[test]
    fn infinity_is_read_and_printed() {
        for (text, printed) in [("inf", "inf"), ("+INFINITY", "inf"), ("-Inf", "-inf")] {
            assert!(!read(text).is_finite());
            assert_eq!(read(text).to_bytes(), printed.as_bytes());
        }
        assert!(read("1e4932").is_finite());
    }

    #[test]
    fn subnormal_numbers_are_kept() {
        let float = |significand| {
            Some(Float {
                exponent: EXTENDED.min_exponent,
                significand,
            })
        };
        let cases = [
            ("3.6e-4951", float(1)),
            ("1.8226e-4951", float(1)),
            ("0x1.8p-16445", float(2)),
            ("0x1.4p-16444", float(2)),
            ("0x1.6p-16444", float(3)),
            ("0x0.ffffffffffffffffp-16382", float(1 << 63)),
        ];
        for (text, magnitude) in cases {
            assert_eq!(read(text).magnitude, magnitude, "{text}");
        }
        let difference = read("0x1p-16382").checked_add(read("-0x1p-16445")).unwrap();
        assert_eq!(difference.magnitude, float((1 << 63) - 1));
    }

    proptest! {
        #[test]
        fn whole_numbers_add_exactly(a: i64, b: i64) {
            let expected = (i128::from(a) + i128::from(b)).to_string();
            prop_assert_eq!(sum(&a.to_string(), &b.to_string()), Some(expected));
        }

        // Below 32 the errors of two numbers and of their sum stay under half of the last decimal.
        #[test]
        fn small_decimals_add_as_on_paper(a in -16_000i64..=16_000, b in -16_000i64..=16_000) {
            let thousandths = |n: i64| {
                let sign = if n < 0 { "-" } else { "" };
                let text = format!("{sign}{}.{:03}", n.abs() / 1000, n.abs() % 1000);
                text.trim_end_matches('0').trim_end_matches('.').to_owned()
            };
            prop_assert_eq!(sum(&thousandths(a), &thousandths(b)), Some(thousandths(a + b)));
        }

        #[test]
        fn what_is_subtracted_again_leaves_nothing(text in "[1-9][0-9]{0,30}(\\.[0-9]{1,30})?(e-?[0-9]{1,3})?") {
            prop_assert_eq!(sum(&text, &format!("-{text}")), Some("0".to_owned()));
            prop_assert_eq!(sum(&text, "0"), Some(read(&text).to_string()));
        }

        // Every double is a long double, and both print it the same.
        #[test]
        fn doubles_print_the_same(v in prop::num::f64::NORMAL) {
            let mut printed = Vec::new();
            format_human_double(v, &mut printed);
            prop_assert_eq!(read(&format!("{v:.1074}")).to_bytes(), printed);
        }
    }
}
