//! Fitting a number into a binary float: to the nearest, ties to even, as IEEE 754 has it.
//!
//! A finite float is `significand * 2^exponent` with both in the bounds of its [`Format`]. It is kept
//! normalized, the significand's top bit set, except at the smallest exponent: that is where the
//! subnormal numbers and zero are.

/// The bounds of a binary float.
pub(super) struct Format {
    /// Bits in the significand.
    pub precision: u32,
    /// The exponent of the smallest subnormal, which has a significand of 1.
    pub min_exponent: i32,
    /// The exponent of the largest number, which has a significand of all ones.
    pub max_exponent: i32,
}

/// IEEE 754 binary64.
pub(super) const DOUBLE: Format = Format {
    precision: 53,
    min_exponent: -1074,
    max_exponent: 971,
};

/// The extended format of the x87, which is C's `long double` on x86-64.
pub(super) const EXTENDED: Format = Format {
    precision: 64,
    min_exponent: -16445,
    max_exponent: 16320,
};

/// A finite float, normalized for its format.
///
/// The derived order is that of the values: of two normalized floats the one with the larger exponent
/// is the larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Float {
    pub exponent: i32,
    pub significand: u64,
}

/// A positive number before rounding: `significand * 2^exponent`, and, if `inexact`, a little more,
/// less than one unit of the significand.
///
/// An inexact significand must have more bits than the format it will be rounded to, so that the first
/// of them tells the halves apart.
pub(super) struct Unrounded {
    pub significand: u128,
    pub exponent: i32,
    pub inexact: bool,
}

impl Unrounded {
    pub fn exact(significand: u128, exponent: i32) -> Self {
        Self {
            significand,
            exponent,
            inexact: false,
        }
    }

    /// The nearest float of `format`, or nothing if that is infinity.
    pub fn round(self, format: &Format) -> Option<Float> {
        let width = (u128::BITS - self.significand.leading_zeros()) as i32;
        debug_assert!(!self.inexact || width > format.precision as i32);

        if width == 0 {
            return Some(Float {
                exponent: format.min_exponent,
                significand: 0,
            });
        }
        let excess = (width - format.precision as i32).max(format.min_exponent - self.exponent);
        let mut exponent = self.exponent + excess;
        let mut significand = match excess {
            ..=0 => self.significand << -excess,
            _ => round_shift(self.significand, excess as u32, self.inexact),
        };
        if significand == 1 << format.precision {
            significand >>= 1;
            exponent += 1;
        }
        (exponent <= format.max_exponent).then_some(Float {
            exponent,
            significand: significand as u64,
        })
    }
}

/// `value / 2^bits` to the nearest, ties to even; `inexact` if there was a little more below `value`.
pub(super) fn round_shift(value: u128, bits: u32, inexact: bool) -> u128 {
    if bits == 0 {
        return value;
    }
    let Some(half) = 1u128.checked_shl(bits - 1) else {
        return 0;
    };
    let kept = value.checked_shr(bits).unwrap_or(0);
    let dropped = value & (half | (half - 1));
    let tie = dropped == half && !inexact;
    let up = if tie { kept % 2 == 1 } else { dropped >= half };
    kept + u128::from(up)
}
