//! Doubles: what `%.17g` prints and `strtod` reads.
//!
//! Seventeen significant digits always tell two doubles apart, but they are not the shortest that do:
//! 0.1 is `0.10000000000000001`, as in every reply of Redis 7.0. Rust rounds `{:.16e}` from the exact
//! value, ties to even, as C does; what is left to do here is the layout of `%g`.
//!
//! Coordinates are the exception: GEOPOS prints a double the way INCRBYFLOAT prints a long double.

use std::io::Write;

use super::integer::{parse_i64, skip_spaces};
use super::literal::{Literal, Magnitude};
use super::rounding::{DOUBLE, Float, Unrounded};

/// Digits that `%.17g` keeps.
const SIGNIFICANT: usize = 17;

/// Whole numbers below this have at most seventeen digits, so `%.17g` prints them exactly.
const EXACT_INTEGERS: f64 = 1e17;

/// Reads a double as Redis does in arguments: all that `strtod` reads, hexadecimal and infinity
/// included, correctly rounded. Refused are NaN, spaces, any other byte before or after, and numbers so
/// large or so small that only infinity or zero is left of them.
pub fn parse_f64(text: &[u8]) -> Option<f64> {
    // Most scores are integers, and their conversion is correctly rounded too.
    if let Some(whole) = parse_i64(text) {
        return Some(whole as f64);
    }
    let (literal, value) = read(text)?;
    let in_range = match literal.magnitude {
        Magnitude::Infinity => true,
        magnitude => value.is_finite() && (value != 0.0 || magnitude.is_zero()),
    };
    in_range.then_some(value)
}

/// Reads a bound of a score range (ZRANGEBYSCORE, ZCOUNT...), without its `(`.
///
/// Redis hands these to `strtod` unchecked, and accepts more than in scores: leading spaces, anything
/// after a NUL, nothing at all as 0, and numbers out of range as infinity or zero.
pub fn parse_score_bound(text: &[u8]) -> Option<f64> {
    let text = text.split(|&byte| byte == 0).next().unwrap_or(text);
    if text.is_empty() {
        return Some(0.0);
    }
    read(skip_spaces(text)).map(|(_, value)| value)
}

/// A literal and the double nearest to it, which may be infinity or zero.
fn read(text: &[u8]) -> Option<(Literal<'_>, f64)> {
    let literal = Literal::parse(text)?;
    let size = match &literal.magnitude {
        Magnitude::Infinity => f64::INFINITY,
        Magnitude::Hex(digits) => Unrounded::from_hex(digits)
            .round(&DOUBLE)
            .map_or(f64::INFINITY, from_float),
        // The grammar of Rust contains that of decimal literals, and its conversion is exact and fast.
        Magnitude::Decimal(_) => str::from_utf8(text).ok()?.parse::<f64>().ok()?.abs(),
    };
    let value = if literal.negative { -size } else { size };
    Some((literal, value))
}

/// Puts a double together. The significand of a normal number has a bit more than the field it is
/// written to, and carries one into the exponent; a subnormal one does not, and has exponent 0.
fn from_float(float: Float) -> f64 {
    let exponent = (float.exponent - DOUBLE.min_exponent) as u64;
    f64::from_bits((exponent << (DOUBLE.precision - 1)) + float.significand)
}

/// Appends `v` as C's `%.17g` does: `0.10000000000000001`, `1e+20`, `-0`, `inf`, `nan`.
pub fn format_double(v: f64, out: &mut Vec<u8>) {
    let whole = v as i64;
    if v.abs() < EXACT_INTEGERS && whole as f64 == v && (whole != 0 || v.is_sign_positive()) {
        out.extend_from_slice(itoa::Buffer::new().format(whole).as_bytes());
    } else if v.is_finite() {
        format_general(v, out);
    } else {
        format_non_finite(v, out);
    }
}

/// Appends `v` as C's `%.17f` does, without zeros at the end of the fraction, and never as `-0`: the
/// notation of coordinates in GEOPOS and GEOSEARCH.
pub fn format_human_double(v: f64, out: &mut Vec<u8>) {
    if !v.is_finite() {
        return format_non_finite(v, out);
    }
    let start = out.len();
    // Writing to a Vec cannot fail.
    let _ = write!(out, "{v:.17}");
    let kept = out
        .iter()
        .rposition(|&byte| byte != b'0')
        .map_or(0, |last| last + 1);
    out.truncate(kept);
    if out.last() == Some(&b'.') {
        out.pop();
    }
    if &out[start..] == b"-0" {
        out.remove(start);
    }
}

/// C prints the sign of a NaN as well, and so Redis replies with it.
fn format_non_finite(v: f64, out: &mut Vec<u8>) {
    if v.is_sign_negative() {
        out.push(b'-');
    }
    out.extend_from_slice(if v.is_nan() { b"nan" } else { b"inf" });
}

/// Lays out seventeen digits by the rules of `%g`: an exponent only where it is below -4 or does not
/// fit the digits, and no zeros at the end of a fraction.
fn format_general(v: f64, out: &mut Vec<u8>) {
    if v.is_sign_negative() {
        out.push(b'-');
    }
    let (digits, exponent) = significant_digits(v);
    let digits = without_trailing_zeros(&digits);
    if exponent < -4 || exponent >= SIGNIFICANT as i32 {
        push_with_point(digits, 1, out);
        let sign = if exponent < 0 { '-' } else { '+' };
        let _ = write!(out, "e{sign}{:02}", exponent.unsigned_abs());
    } else if exponent < 0 {
        out.extend_from_slice(b"0.");
        out.resize(out.len() + (-exponent - 1) as usize, b'0');
        out.extend_from_slice(digits);
    } else {
        push_with_point(digits, exponent as usize + 1, out);
    }
}

/// Appends `digits` with a point after the first `whole` of them, padding those with zeros.
fn push_with_point(digits: &[u8], whole: usize, out: &mut Vec<u8>) {
    if digits.len() <= whole {
        out.extend_from_slice(digits);
        out.resize(out.len() + whole - digits.len(), b'0');
    } else {
        out.extend_from_slice(&digits[..whole]);
        out.push(b'.');
        out.extend_from_slice(&digits[whole..]);
    }
}

/// The seventeen digits of `v`, and the power of ten of the first.
fn significant_digits(v: f64) -> ([u8; SIGNIFICANT], i32) {
    // The longest is `d.dddddddddddddddde-308`.
    let mut text = [0u8; 24];
    let mut rest = &mut text[..];
    let _ = write!(rest, "{:.*e}", SIGNIFICANT - 1, v.abs());
    let len = 24 - rest.len();

    let mut digits = [text[0]; SIGNIFICANT];
    digits[1..].copy_from_slice(&text[2..SIGNIFICANT + 1]);
    (digits, exponent_value(&text[SIGNIFICANT + 2..len]))
}

/// The value of an exponent that Rust printed: digits, perhaps after a minus sign.
fn exponent_value(text: &[u8]) -> i32 {
    let (sign, digits) = match text {
        [b'-', digits @ ..] => (-1, digits),
        digits => (1, digits),
    };
    sign * digits
        .iter()
        .fold(0, |value, digit| value * 10 + i32::from(digit - b'0'))
}

fn without_trailing_zeros(digits: &[u8]) -> &[u8] {
    let kept = digits
        .iter()
        .rposition(|&digit| digit != b'0')
        .map_or(1, |last| last + 1);
    &digits[..kept]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::golden;
    use super::*;
    use proptest::prelude::*;

    fn general(v: f64) -> String {
        let mut out = Vec::new();
        format_double(v, &mut out);
        String::from_utf8(out).unwrap()
    }

    fn human(v: f64) -> String {
        // Zeros that were there before must stay.
        let mut out = b"100".to_vec();
        format_human_double(v, &mut out);
        String::from_utf8(out)
            .unwrap()
            .strip_prefix("100")
            .unwrap()
            .to_owned()
    }

    #[test]
    fn prints_as_c_does() {
        for &(v, text) in golden::GENERAL {
            assert_eq!(general(v), text);
        }
        for &(v, text) in golden::HUMAN {
            assert_eq!(human(v), text);
        }
    }

    #[test]
    fn prints_what_is_not_finite() {
        for print in [general, human] {
            assert_eq!(print(f64::INFINITY), "inf");
            assert_eq!(print(f64::NEG_INFINITY), "-inf");
            assert_eq!(print(f64::NAN.copysign(1.0)), "nan");
            assert_eq!(print(f64::NAN.copysign(-1.0)), "-nan");
        }
    }

    #[test]
    fn reads_the_scores_that_redis_reads() {
        for &(text, printed) in golden::SCORES {
            assert_eq!(
                parse_f64(text.as_bytes()).map(general).as_deref(),
                Some(printed),
                "{text:?}"
            );
        }
        for text in golden::NO_SCORES {
            assert_eq!(parse_f64(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn reads_the_bounds_that_redis_reads() {
        for &(text, printed) in golden::BOUNDS {
            let bound = parse_score_bound(text.as_bytes());
            assert_eq!(bound.map(general).as_deref(), Some(printed), "{text:?}");
        }
        for text in golden::NO_BOUNDS {
            assert_eq!(parse_score_bound(text.as_bytes()), None, "{text:?}");
        }
    }

    /// The exact value of a double, in hexadecimal.
    fn hex(v: f64) -> String {
        let fraction = v.to_bits() & ((1 << 52) - 1);
        match (v.to_bits() >> 52 & 0x7ff) as i32 {
            0 => format!("0x0.{fraction:013x}p-1022"),
            exponent => format!("0x1.{fraction:013x}p{}", exponent - 1023),
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read(v in any::<f64>().prop_filter("a number", |v| !v.is_nan())) {
            let read = parse_f64(general(v).as_bytes()).unwrap();
            prop_assert_eq!(read.to_bits(), v.to_bits());
        }

        #[test]
        fn hexadecimal_is_exact(v in prop::num::f64::POSITIVE | prop::num::f64::SUBNORMAL | prop::num::f64::ZERO) {
            prop_assert_eq!(parse_f64(hex(v.abs()).as_bytes()), Some(v.abs()));
        }

        #[test]
        fn integers_print_the_same_on_either_path(v in -(1i64 << 53)..1 << 53) {
            let mut slow = Vec::new();
            format_general(v as f64, &mut slow);
            prop_assert_eq!(general(v as f64).into_bytes(), slow);
        }
    }
}
