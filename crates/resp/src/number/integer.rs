//! Whole numbers, read strictly: each value has exactly one spelling.
//!
//! Redis stores a string that spells an integer as that integer and must print the same bytes again,
//! so it refuses whatever would not survive the trip: `+1`, `007`, `-0`, ` 1`. Stream IDs alone go
//! through C's `strtoull` as a second chance, with all that it lets through.

/// Reads an integer spelled the one way it prints: no `+`, spaces, leading zeros or `-0`.
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    match text {
        b"0" => Some(0),
        [b'-', digits @ ..] => 0i64.checked_sub_unsigned(positive(digits)?),
        digits => i64::try_from(positive(digits)?).ok(),
    }
}

/// Reads an unsigned integer as Redis does in stream IDs.
///
/// Unlike [`parse_i64`] this takes leading spaces, `+` and zeros; and a minus sign wraps around, but
/// only before a number that is not a proper negative: `-01` is 2^64 - 1, while `-1` is refused.
pub fn parse_u64(text: &[u8]) -> Option<u64> {
    match parse_i64(text) {
        Some(value) => u64::try_from(value).ok(),
        None => wrapping_u64(text),
    }
}

fn wrapping_u64(text: &[u8]) -> Option<u64> {
    match skip_spaces(text) {
        [b'-', digits @ ..] => Some(accumulate(digits)?.wrapping_neg()),
        [b'+', digits @ ..] | digits => accumulate(digits),
    }
}

/// What follows the spaces that C's `isspace` knows.
pub(super) fn skip_spaces(text: &[u8]) -> &[u8] {
    let start = text
        .iter()
        .position(|&byte| !is_space(byte))
        .unwrap_or(text.len());
    &text[start..]
}

fn is_space(byte: u8) -> bool {
    // Rust's is_ascii_whitespace leaves out the vertical tab.
    byte.is_ascii_whitespace() || byte == b'\x0b'
}

/// The value of digits that do not start with a zero.
fn positive(digits: &[u8]) -> Option<u64> {
    match digits.first() {
        Some(b'1'..=b'9') => accumulate(digits),
        _ => None,
    }
}

fn accumulate(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |value, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn signed_integers_have_one_spelling() {
        let accepted = [
            ("0", 0),
            ("1", 1),
            ("-1", -1),
            ("10", 10),
            ("9223372036854775807", i64::MAX),
            ("-9223372036854775808", i64::MIN),
        ];
        for (text, value) in accepted {
            assert_eq!(parse_i64(text.as_bytes()), Some(value), "{text:?}");
        }
        let refused = [
            "",
            "-",
            "+1",
            " 1",
            "1 ",
            "01",
            "00",
            "-0",
            "-01",
            "--1",
            "1.0",
            "1e3",
            "0x1",
            "1\0",
            "9223372036854775808",
            "-9223372036854775809",
            "18446744073709551615",
            "99999999999999999999",
        ];
        for text in refused {
            assert_eq!(parse_i64(text.as_bytes()), None, "{text:?}");
        }
    }

    // The answers of `XADD key 1-<text>` on a Redis 7.0.15.
    #[test]
    fn unsigned_integers_are_those_of_stream_ids() {
        let accepted = [
            ("0", 0),
            ("00000", 0),
            ("007", 7),
            ("+1", 1),
            (" 1", 1),
            ("\t2", 2),
            ("\x0b2", 2),
            ("-0", 0),
            ("-01", u64::MAX),
            ("-018446744073709551615", 1),
            ("9223372036854775808", 1 << 63),
            ("18446744073709551615", u64::MAX),
        ];
        for (text, value) in accepted {
            assert_eq!(parse_u64(text.as_bytes()), Some(value), "{text:?}");
        }
        let refused = [
            "",
            " ",
            "+",
            "-",
            "-1",
            "+-1",
            "1 ",
            "0x1",
            "\x002",
            "18446744073709551616",
            "-018446744073709551616",
        ];
        for text in refused {
            assert_eq!(parse_u64(text.as_bytes()), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read(signed: i64, unsigned: u64) {
            prop_assert_eq!(parse_i64(signed.to_string().as_bytes()), Some(signed));
            prop_assert_eq!(parse_u64(unsigned.to_string().as_bytes()), Some(unsigned));
        }

        #[test]
        fn what_is_read_prints_the_same(text in "[-+]?[0-9]{1,20}") {
            if let Some(value) = parse_i64(text.as_bytes()) {
                prop_assert_eq!(value.to_string(), text);
            } else {
                let reprinted = text.parse::<i64>().ok().map(|value| value.to_string());
                prop_assert_ne!(reprinted, Some(text));
            }
        }
    }
}
