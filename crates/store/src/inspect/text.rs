//! Bytes, numbers and times as a person reads them.

use std::fmt::Write;

use cairn_encoding::version;

/// The bytes in quotes, at most `most` of them. What is not printable text is shown as hex.
pub fn quoted(bytes: &[u8], most: usize) -> String {
    let shown = &bytes[..cut(bytes, most)];
    let mut out = String::from("\"");
    for piece in shown.utf8_chunks() {
        for letter in piece.valid().chars() {
            push_letter(&mut out, letter);
        }
        push_hex(&mut out, piece.invalid());
    }
    out.push('"');
    push_rest(&mut out, bytes, shown);
    out
}

/// Where to cut a long text without cutting a letter in two.
fn cut(bytes: &[u8], most: usize) -> usize {
    if bytes.len() <= most {
        return bytes.len();
    }
    let is_inside_letter = |at: usize| bytes[at] & 0b1100_0000 == 0b1000_0000;
    let longest_letter = 4;
    let back = (0..longest_letter.min(most + 1)).find(|back| !is_inside_letter(most - back));
    most - back.unwrap_or(0)
}

fn push_letter(out: &mut String, letter: char) {
    match letter {
        '"' | '\\' => out.extend(['\\', letter]),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\'' => out.push(letter),
        // The standard library knows which letters cannot be seen: it would escape them.
        _ if letter.escape_debug().len() == 1 => out.push(letter),
        _ => push_hex(out, letter.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

fn push_hex(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(out, "\\x{byte:02x}");
    }
}

/// The bytes in hex, at most `most` of them.
pub fn hex(bytes: &[u8], most: usize) -> String {
    let shown = &bytes[..bytes.len().min(most)];
    let mut out = String::with_capacity(2 * shown.len());
    for byte in shown {
        let _ = write!(out, "{byte:02x}");
    }
    push_rest(&mut out, bytes, shown);
    out
}

fn push_rest(out: &mut String, bytes: &[u8], shown: &[u8]) {
    if shown.len() < bytes.len() {
        let _ = write!(out, "… ({} bytes in all)", bytes.len());
    }
}

/// Eight bits, in two groups.
pub fn bits(byte: u8) -> String {
    format!("{:04b} {:04b}", byte >> 4, byte & 0x0f)
}

/// A score, short where it can be.
pub fn number(score: f64) -> String {
    let is_plain = score == 0.0 || (1e-5..1e17).contains(&score.abs());
    if is_plain {
        score.to_string()
    } else {
        format!("{score:e}")
    }
}

pub fn date_of_millis(millis: u64) -> String {
    format!("{}.{:03} UTC", date(millis / 1000), millis % 1000)
}

/// What a version says: when its key's life began, and which of that microsecond it is.
pub fn date_of_version(version: u64) -> String {
    let (micros, count) = version::parts(version);
    let date = date(micros / 1_000_000);
    match count {
        0 => format!("{date}.{:06} UTC", micros % 1_000_000),
        count => format!("{date}.{:06} UTC + {count}", micros % 1_000_000),
    }
}

/// Year to second, of seconds since 1970.
fn date(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// The Gregorian date of a day since 1970. Years are taken to begin in March: then the leap day is the
/// last of its year, and the lengths of the months before it follow one rule.
fn civil(days: u64) -> (u64, u64, u64) {
    const DAYS_IN_400_YEARS: u64 = 146_097;
    const FROM_MARCH_OF_YEAR_0: u64 = 719_468;
    let days = days + FROM_MARCH_OF_YEAR_0;
    let (cycle, day) = (days / DAYS_IN_400_YEARS, days % DAYS_IN_400_YEARS);
    // Leap days seen so far: one in 4 years, but not in 100, but in 400.
    let year = (day - day / 1460 + day / 36_524 - day / (DAYS_IN_400_YEARS - 1)) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    // Five months in a row have 153 days: 31, 30, 31, 30, 31.
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    let is_next_year = month >= 10;
    let month = if is_next_year { month - 9 } else { month + 3 };
    let year = 400 * cycle + year + u64::from(is_next_year);
    (year, month, day_of_month)
}

/// How long until `at_ms`, or since.
pub fn distance(now_ms: u64, at_ms: u64) -> String {
    if at_ms >= now_ms {
        format!("in {}", span(at_ms - now_ms))
    } else {
        format!("{} ago", span(now_ms - at_ms))
    }
}

/// A time span in its two largest units.
fn span(millis: u64) -> String {
    let seconds = millis / 1000;
    match seconds {
        0..60 => format!("{seconds}.{:03}s", millis % 1000),
        60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h {}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_shown_as_text_and_the_rest_as_hex() {
        let cases: [(&[u8], &str); 7] = [
            (b"", r#""""#),
            (b"user:7", r#""user:7""#),
            (b"it's \"so\" \\", r#""it's \"so\" \\""#),
            ("石 é".as_bytes(), r#""石 é""#),
            (b"a\0\r\n\t\x7f", r#""a\x00\r\n\t\x7f""#),
            (b"\xff\xfe ok", r#""\xff\xfe ok""#),
            ("\u{200b}".as_bytes(), r#""\xe2\x80\x8b""#),
        ];
        for (bytes, expected) in cases {
            assert_eq!(quoted(bytes, 100), expected);
        }
    }

    #[test]
    fn what_is_long_is_cut_between_letters() {
        assert_eq!(quoted(b"abcdef", 4), r#""abcd"… (6 bytes in all)"#);
        assert_eq!(quoted("aéé".as_bytes(), 4), r#""aé"… (5 bytes in all)"#);
        assert_eq!(quoted("éé".as_bytes(), 4), r#""éé""#);
        assert_eq!(quoted(&[0x80; 9], 2), r#""\x80\x80"… (9 bytes in all)"#);
        assert_eq!(quoted("é".as_bytes(), 1), r#"""… (2 bytes in all)"#);
        assert_eq!(hex(&[1, 0xab, 3], 2), "01ab… (3 bytes in all)");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        let cases = [
            (0, "1970-01-01 00:00:00.000 UTC"),
            (951_782_399_999, "2000-02-28 23:59:59.999 UTC"),
            (951_782_400_000, "2000-02-29 00:00:00.000 UTC"),
            (951_868_800_000, "2000-03-01 00:00:00.000 UTC"),
            (1_700_000_000_123, "2023-11-14 22:13:20.123 UTC"),
            (1_709_164_800_000, "2024-02-29 00:00:00.000 UTC"),
            (4_107_542_399_000, "2100-02-28 23:59:59.000 UTC"),
            (4_107_542_400_000, "2100-03-01 00:00:00.000 UTC"),
            (253_402_300_799_999, "9999-12-31 23:59:59.999 UTC"),
        ];
        for (millis, expected) in cases {
            assert_eq!(date_of_millis(millis), expected);
        }
        // A client may ask for any time at all.
        assert!(date_of_millis(u64::MAX).ends_with(" UTC"));
    }

    #[test]
    fn a_version_is_a_microsecond_and_a_count() {
        let first = version::next(1_700_000_000_123_456, 0);
        let date = "2023-11-14 22:13:20.123456 UTC";
        assert_eq!(date_of_version(first), date);
        assert_eq!(date_of_version(first + 3), format!("{date} + 3"));
    }

    #[test]
    fn spans_and_numbers_are_short() {
        assert_eq!(distance(1000, 2500), "in 1.500s");
        assert_eq!(distance(2500, 1000), "1.500s ago");
        assert_eq!(distance(0, 61_000), "in 1m 1s");
        assert_eq!(distance(0, 7_260_000), "in 2h 1m");
        assert_eq!(distance(0, 90_000_000), "in 1d 1h");
        let numbers = [0.0, -1.0, 12.5, 1e300, -2e-9, f64::NEG_INFINITY].map(number);
        assert_eq!(numbers, ["0", "-1", "12.5", "1e300", "-2e-9", "-inf"]);
        assert_eq!(bits(0x91), "1001 0001");
    }
}
