//! Numbers as C's `printf` and `strtod` write and read them.

use std::io::Write;

use cairn_resp::number::parse_score_bound;

/// Appends `v` as `%.{precision}g` does.
pub fn format_general(v: f64, precision: usize, out: &mut Vec<u8>) {
    if !v.is_finite() {
        let sign = if v.is_sign_negative() { "-" } else { "" };
        let name = if v.is_nan() { "nan" } else { "inf" };
        out.extend_from_slice(sign.as_bytes());
        return out.extend_from_slice(name.as_bytes());
    }
    let scientific = format!("{v:.*e}", precision - 1);
    // Rust always writes an `e`, and an exponent that is a number.
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    // Writing to a Vec cannot fail.
    let _ = if exponent < -4 || exponent >= precision as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        let digits = without_trailing_zeros(digits);
        write!(out, "{digits}e{sign}{:02}", exponent.unsigned_abs())
    } else {
        let decimals = (precision as i32 - 1 - exponent) as usize;
        let fixed = format!("{v:.decimals$}");
        write!(out, "{}", without_trailing_zeros(&fixed))
    };
}

fn without_trailing_zeros(digits: &str) -> &str {
    if digits.contains('.') {
        digits.trim_end_matches('0').trim_end_matches('.')
    } else {
        digits
    }
}

/// The number at the start of `text` and how many bytes it takes, read as `strtod` reads it: infinity, NaN
/// and hexadecimal included. Nothing where there is none.
pub fn parse_prefix(text: &[u8]) -> Option<(f64, usize)> {
    let (negative, sign) = match text.first() {
        Some(b'-') => (true, 1),
        Some(b'+') => (false, 1),
        _ => (false, 0),
    };
    let signed = |value: f64| if negative { -value } else { value };
    let rest = &text[sign..];
    for (name, value) in [
        (&b"infinity"[..], f64::INFINITY),
        (b"inf", f64::INFINITY),
        (b"nan", f64::NAN),
    ] {
        if starts_with_in_any_case(rest, name) {
            return Some((signed(value), sign + name.len()));
        }
    }
    if starts_with_in_any_case(rest, b"0x")
        && let Some(len) = digits(&rest[2..], u8::is_ascii_hexdigit, b'p')
    {
        let value = parse_score_bound(&rest[..2 + len])?;
        return Some((signed(value), sign + 2 + len));
    }
    let len = digits(rest, u8::is_ascii_digit, b'e')?;
    let value: f64 = std::str::from_utf8(&rest[..len]).ok()?.parse().ok()?;
    Some((signed(value), sign + len))
}

fn starts_with_in_any_case(text: &[u8], name: &[u8]) -> bool {
    text.get(..name.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(name))
}

/// How long the digits are, with a point among them and an exponent behind.
fn digits(text: &[u8], is_digit: fn(&u8) -> bool, exponent_mark: u8) -> Option<usize> {
    let count =
        |from: usize, is: fn(&u8) -> bool| text[from..].iter().take_while(|byte| is(byte)).count();
    let whole = count(0, is_digit);
    let mut end = whole;
    if text.get(whole) == Some(&b'.') {
        let fraction = count(whole + 1, is_digit);
        if whole + fraction > 0 {
            end += 1 + fraction;
        }
    }
    if end == 0 {
        return None;
    }
    if text.get(end).map(u8::to_ascii_lowercase) == Some(exponent_mark) {
        let sign = usize::from(matches!(text.get(end + 1), Some(b'+' | b'-')));
        let exponent = count((end + 1 + sign).min(text.len()), u8::is_ascii_digit);
        if exponent > 0 {
            end += 1 + sign + exponent;
        }
    }
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_as_c_writes_them() {
        let cases = [
            (0.1, 14, "0.1"),
            (1.0 / 3.0, 14, "0.33333333333333"),
            (1e15, 14, "1e+15"),
            (100.0, 14, "100"),
            (99_999_999_999_999.9, 14, "1e+14"),
            (123_456.0, 3, "1.23e+05"),
            (-0.0, 14, "-0"),
            (1e-5, 14, "1e-05"),
            (0.0001, 14, "0.0001"),
            (1e300, 1, "1e+300"),
            (f64::INFINITY, 14, "inf"),
        ];
        for (value, precision, expected) in cases {
            let mut out = Vec::new();
            format_general(value, precision, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }

    #[test]
    fn read_as_c_reads_them() {
        let cases: &[(&str, Option<(f64, usize)>)] = &[
            ("12,", Some((12.0, 2))),
            ("-1.5e3x", Some((-1500.0, 6))),
            ("1e", Some((1.0, 1))),
            ("1e+", Some((1.0, 1))),
            (".5", Some((0.5, 2))),
            ("5.]", Some((5.0, 2))),
            (".", None),
            ("-", None),
            ("", None),
            ("0x1F]", Some((31.0, 4))),
            ("0x", Some((0.0, 1))),
            ("0x1p4", Some((16.0, 5))),
            ("-INFinit", Some((f64::NEG_INFINITY, 4))),
            ("1e999", Some((f64::INFINITY, 5))),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_prefix(text.as_bytes()), *expected, "{text}");
        }
    }
}
