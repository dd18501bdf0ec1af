//! Inline requests: a line of words, for people with telnet or netcat.
//!
//! Quoting follows Redis: `"..."` knows `\n \r \t \b \a \xHH` and takes any other escaped byte as
//! itself, `'...'` knows only `\'`. A quote may open in the middle of a word but always ends it, so
//! what follows a closing quote must be a blank.

use crate::args::Args;
use crate::error::ProtocolError;

/// Cuts `line`, already without its line end, into the words of `args`.
pub(crate) fn split(line: &[u8], args: &mut Args) -> Result<(), ProtocolError> {
    args.begin_inline();
    let mut rest = skip_blanks(line);
    while !rest.is_empty() {
        let after = word(rest, args)?;
        args.end_word();
        rest = skip_blanks(after);
    }
    Ok(())
}

/// The words of a line that stands by itself: the first line of a script.
pub fn words(line: &[u8]) -> Result<Vec<Vec<u8>>, ProtocolError> {
    let mut args = Args::new();
    split(line, &mut args)?;
    Ok(args.iter(b"").map(<[u8]>::to_vec).collect())
}

/// Appends one word and returns what follows it.
fn word<'a>(mut rest: &'a [u8], args: &mut Args) -> Result<&'a [u8], ProtocolError> {
    loop {
        match rest {
            // Vertical tab and form feed separate words (`is_blank`) but do not end one: so in Redis.
            [] | [b' ' | b'\t' | b'\r' | b'\n', ..] => return Ok(rest),
            [b'"', after @ ..] => return double_quoted(after, args),
            [b'\'', after @ ..] => return single_quoted(after, args),
            [byte, after @ ..] => {
                args.push_byte(*byte);
                rest = after;
            }
        }
    }
}

fn double_quoted<'a>(mut rest: &'a [u8], args: &mut Args) -> Result<&'a [u8], ProtocolError> {
    loop {
        let (byte, after) = match rest {
            [] => return Err(ProtocolError::UnbalancedQuotes),
            [b'"', after @ ..] => return closed(after),
            [b'\\', b'x', high, low, after @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                (hex_digit(*high) << 4 | hex_digit(*low), after)
            }
            [b'\\', escaped, after @ ..] => (unescape(*escaped), after),
            [byte, after @ ..] => (*byte, after),
        };
        args.push_byte(byte);
        rest = after;
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], args: &mut Args) -> Result<&'a [u8], ProtocolError> {
    loop {
        let (byte, after) = match rest {
            [] => return Err(ProtocolError::UnbalancedQuotes),
            [b'\'', after @ ..] => return closed(after),
            [b'\\', b'\'', after @ ..] => (b'\'', after),
            [byte, after @ ..] => (*byte, after),
        };
        args.push_byte(byte);
        rest = after;
    }
}

fn closed(after: &[u8]) -> Result<&[u8], ProtocolError> {
    match after.first() {
        Some(next) if !is_blank(*next) => Err(ProtocolError::UnbalancedQuotes),
        _ => Ok(after),
    }
}

fn skip_blanks(line: &[u8]) -> &[u8] {
    let blanks = line.iter().take_while(|byte| is_blank(**byte)).count();
    &line[blanks..]
}

/// C's `isspace`, which is wider than Rust's `is_ascii_whitespace` by the vertical tab.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

fn unescape(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    }
}

fn hex_digit(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => digit.to_ascii_lowercase() - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn words_as_redis_reads_them() {
        let cases: &[(&[u8], &[&[u8]])] = &[
            (b"", &[]),
            (b" \t\x0b\x0c ", &[]),
            (b"get key", &[b"get", b"key"]),
            (b"  get\tkey\r", &[b"get", b"key"]),
            (b"a\rb", &[b"a", b"b"]),
            (b"a\x0bb \x0bc", &[b"a\x0bb", b"c"]),
            (b"\xa0\x85", &[b"\xa0\x85"]),
            (b"'' \"\"", &[b"", b""]),
            (b"\"a b\" 'c d'", &[b"a b", b"c d"]),
            (b"a\"b c\" d'e f'", &[b"ab c", b"de f"]),
            (b"\"a\"\x0b\"b\"", &[b"a", b"b"]),
            (br#""\n\r\t\b\a\q\\\"""#, &[b"\n\r\t\x08\x07q\\\""]),
            (br#""\x41\x4a\x4A\xff""#, &[b"AJJ\xff"]),
            (br#""\x4" "\x4g" "\X41""#, &[b"x4", b"x4g", b"X41"]),
            (br"'\n\'\x41'", &[br"\n'\x41"]),
            (br"a\n\x41", &[br"a\n\x41"]),
            (b"'\"' \"'\"", &[b"\"", b"'"]),
        ];
        for (line, expected) in cases {
            assert_eq!(words(line).unwrap(), *expected, "{}", line.escape_ascii());
        }
    }

    #[test]
    fn quotes_out_of_balance() {
        let cases: &[&[u8]] = &[
            b"\"", b"'", b"\"a", b"'a", b"a\"b", b"\"a'", b"\"a\"b", b"'a'b", b"'a''b'", b"\"a\\",
            b"\"a\\\"", b"'a\\'", b"\"\\x4",
        ];
        for line in cases {
            let outcome = words(line);
            assert_eq!(
                outcome,
                Err(ProtocolError::UnbalancedQuotes),
                "{}",
                line.escape_ascii()
            );
        }
    }
}
