//! Kinds of values: what is accepted for each, and the one way it is shown.
//!
//! Whatever a value comes from, a flag, the file or CONFIG SET, it is read here and kept as the text
//! that CONFIG GET shows; so what was shown can always be set again. Refusals are worded as Redis words
//! them.

use std::borrow::Cow;

use cairn_resp::number::parse_i64;

/// Why a value was refused.
pub type Refusal = Cow<'static, str>;

/// Reads a value, given the one it replaces, and returns it as it is shown.
pub type Normalise = fn(&[u8], &[u8]) -> Result<Vec<u8>, Refusal>;

#[derive(Clone, Copy)]
pub enum Kind {
    YesNo,
    OneOf(&'static [&'static str]),
    Number {
        min: i64,
        max: i64,
    },
    /// Bytes, with an optional unit.
    Size {
        min: u64,
        max: u64,
    },
    /// Bytes, or a share of the memory limit.
    SizeOrPercent,
    /// Permissions of a file.
    Octal,
    Text,
    /// A notation of its own.
    Special(Normalise),
}

impl Kind {
    /// Reads `text`, which is to replace `current`.
    pub fn read(&self, text: &[u8], current: &[u8]) -> Result<Vec<u8>, Refusal> {
        match *self {
            Kind::YesNo => {
                one_of(text, &["yes", "no"]).ok_or(Cow::Borrowed("argument must be 'yes' or 'no'"))
            }
            Kind::OneOf(words) => one_of(text, words).ok_or_else(|| {
                let words = words.join(", ");
                format!("argument(s) must be one of the following: {words}").into()
            }),
            Kind::Number { min, max } => {
                let number =
                    parse_i64(text).ok_or("argument couldn't be parsed into an integer")?;
                in_range(number, min, max)
            }
            Kind::Size { min, max } => {
                let size = parse_size(text).ok_or("argument must be a memory value")?;
                in_range(size, min, max)
            }
            Kind::SizeOrPercent => size_or_percent(text),
            Kind::Octal => octal(text),
            Kind::Text => Ok(text.to_vec()),
            Kind::Special(normalise) => normalise(text, current),
        }
    }

    /// Whether the value is a number to a configuration file, too.
    pub fn is_number(&self) -> bool {
        matches!(self, Kind::Number { .. } | Kind::Size { .. })
    }
}

fn one_of(text: &[u8], words: &[&'static str]) -> Option<Vec<u8>> {
    let word = words
        .iter()
        .find(|word| text.eq_ignore_ascii_case(word.as_bytes()))?;
    Some(word.as_bytes().to_vec())
}

fn in_range<T: Ord + ToString>(number: T, min: T, max: T) -> Result<Vec<u8>, Refusal> {
    if number < min || number > max {
        let (min, max) = (min.to_string(), max.to_string());
        return Err(format!("argument must be between {min} and {max} inclusive").into());
    }
    Ok(number.to_string().into_bytes())
}

/// A size as Redis writes it: 1k is 1000 bytes, 1kb is 1024. Nothing at all is zero, and what is larger
/// than any memory is the largest number there is.
pub fn parse_size(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, unit) = text.split_at(digits);
    let unit: u64 = match unit.to_ascii_lowercase().as_slice() {
        b"" | b"b" => 1,
        b"k" => 1000,
        b"kb" => 1 << 10,
        b"m" => 1_000_000,
        b"mb" => 1 << 20,
        b"g" => 1_000_000_000,
        b"gb" => 1 << 30,
        _ => return None,
    };
    let number = digits.iter().fold(0u64, |number, digit| {
        number
            .saturating_mul(10)
            .saturating_add(u64::from(digit - b'0'))
    });
    Some(number.saturating_mul(unit))
}

fn size_or_percent(text: &[u8]) -> Result<Vec<u8>, Refusal> {
    let refused = "argument must be a memory or percent value";
    let Some(percent) = text.strip_suffix(b"%") else {
        let size = parse_size(text).ok_or(refused)?;
        return Ok(size.to_string().into_bytes());
    };
    match parse_i64(percent) {
        Some(0) => Ok(b"0".to_vec()),
        Some(1..=100) => Ok(text.to_vec()),
        Some(101..) => Err("percentage argument must be less or equal to 100".into()),
        _ => Err(refused.into()),
    }
}

fn octal(text: &[u8]) -> Result<Vec<u8>, Refusal> {
    let number = std::str::from_utf8(text)
        .ok()
        .and_then(|text| u32::from_str_radix(text, 8).ok())
        .ok_or("argument couldn't be parsed as an octal number")?;
    if number > 0o777 {
        return Err("argument must be between 0 and 777 inclusive".into());
    }
    Ok(format!("{number:o}").into_bytes())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn check(kind: Kind, text: &str, expected: Result<&str, &str>) {
        let read = kind.read(text.as_bytes(), b"");
        let expected = expected
            .map(|shown| shown.as_bytes().to_vec())
            .map_err(|refusal| Cow::Owned(refusal.to_string()));
        assert_eq!(read, expected, "{text:?}");
    }

    // What a Redis 7.0.15 answered to CONFIG SET.
    #[test]
    fn numbers_have_one_spelling_and_a_range() {
        let kind = Kind::Number { min: 1, max: 99 };
        check(kind, "1", Ok("1"));
        check(kind, "99", Ok("99"));
        for text in ["0", "100", "-5"] {
            check(
                kind,
                text,
                Err("argument must be between 1 and 99 inclusive"),
            );
        }
        for text in ["", " 5", "5 ", "+5", "05", "0x5", "5.0", "-0", "zzz"] {
            check(
                kind,
                text,
                Err("argument couldn't be parsed into an integer"),
            );
        }
    }

    #[test]
    fn sizes_have_units() {
        let kind = Kind::Size {
            min: 0,
            max: u64::MAX,
        };
        let accepted = [
            ("", "0"),
            ("05", "5"),
            ("1kb", "1024"),
            ("5K", "5000"),
            ("5Kb", "5120"),
            ("1GB", "1073741824"),
            ("18446744073709551616", "18446744073709551615"),
        ];
        for (text, shown) in accepted {
            check(kind, text, Ok(shown));
        }
        for text in ["-1", "+5", " 5", "5 ", "0x5", "5.0", "5 kb", "10x", "50%"] {
            check(kind, text, Err("argument must be a memory value"));
        }
        let kind = Kind::Size { min: 1, max: 9 };
        check(kind, "", Err("argument must be between 1 and 9 inclusive"));
    }

    #[test]
    fn a_share_of_memory_is_at_most_all_of_it() {
        let kind = Kind::SizeOrPercent;
        check(kind, "50", Ok("50"));
        check(kind, "50%", Ok("50%"));
        check(kind, "0%", Ok("0"));
        check(kind, "1kb", Ok("1024"));
        check(
            kind,
            "101%",
            Err("percentage argument must be less or equal to 100"),
        );
        for text in ["x%", "-1", "-101%", "zzz"] {
            check(
                kind,
                text,
                Err("argument must be a memory or percent value"),
            );
        }
    }

    #[test]
    fn words_are_told_apart_regardless_of_case() {
        check(Kind::YesNo, "YES", Ok("yes"));
        check(Kind::YesNo, "1", Err("argument must be 'yes' or 'no'"));
        let kind = Kind::OneOf(&["allkeys-lru", "noeviction"]);
        check(kind, "Allkeys-LRU", Ok("allkeys-lru"));
        let refusal = "argument(s) must be one of the following: allkeys-lru, noeviction";
        check(kind, "", Err(refusal));
    }
}
